"""The database sink on Spark: each partition of a micro-batch is stored by the sink's own task, on the executors.

Exactly once: rows and offsets are in one transaction, as in a worker.  A task that Spark runs again, or twice at a time, finds the
offsets and stores nothing twice.  One partition of a topic is never in two tasks of a micro-batch.  Spark's own JDBC writer can only
append, and commits each task by itself, so a micro-batch that runs again would repeat rows; it cannot upsert, delete or add columns.
"""

import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect.connectors.sql.sink import JdbcSinkTask
from logdb_connect.data import SinkRecord
from logdb_connect.errors import RetriableError
from logdb_connect.runtime.chain import SinkChain
from logdb_connect.runtime.tasks import RETRY_BACKOFF_S
from logdb_connect.spark.records import Job, chain_of, runs

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame


def write(job: Job, frame: "DataFrame", batch: str) -> None:  # noqa: ARG001 -- offsets beside the rows say what is stored
    """Store a micro-batch."""
    frame.mapInArrow(partial(_stored, job), "count long").write.format("noop").mode("append").save()


def _stored(job: Job, batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow

    chain = chain_of(job)
    task, count = JdbcSinkTask(), 0
    task.context = _Context(chain, task)
    opened: set[TopicPartition] = set()
    try:
        task.start(job["config"])
        for at, records in runs(batches, chain):
            if at not in opened:
                task.open([at])
                opened.add(at)
            _put(task, records)
            count += len(records)
    finally:
        task.stop()
        chain.close()
    yield pyarrow.RecordBatch.from_pydict({"count": [count]})


def _put(task: JdbcSinkTask, records: Any) -> None:
    """As a worker calls ``put``: the task counts retries, and raises another error after the last one."""
    while True:
        try:
            task.put(records)
        except RetriableError:
            time.sleep(RETRY_BACKOFF_S)
        else:
            return


class _Context:
    """What the task sees.  Spark decides which records come: the task leaves out those that are stored."""

    def __init__(self, chain: SinkChain, task: object) -> None:
        self._chain, self._task = chain, task

    def committed(self, _partition: TopicPartition) -> OffsetAndMetadata | None:
        return None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Records before ``offset`` come all the same."""

    def report(self, record: SinkRecord, error: Exception) -> None:
        self._chain.report(record, error, self._task)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)
