"""Update mode: ``upsert`` makes a function for ``foreachBatch`` that writes changed rows to a compacted topic, exactly once.

The sink of ``format("logdb")`` writes; ``writeId`` and ``batchId`` identify the batch.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from logdb.errors import InvalidConfig
from logdb.model import LogConfig
from logdb_spark_source.write_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"  # the group of a query's jobs, a new one after each restart
_done: dict[str, tuple[str | None, int]] = {}  # by writeId: the last batch of this process, with its run


def upsert(
    topic: str,
    *,
    path: str | os.PathLike[str] | None = None,
    url: str | None = None,
    name: str | None = None,
    **options: str,
) -> "Callable[[DataFrame, int], None]":
    """A function for ``foreachBatch`` that writes the rows of each batch by key, exactly once.

        counts.writeStream.outputMode("update").foreachBatch(upsert("counts", path="db")).option("checkpointLocation", "…").start()

    The rows have a column key and a column value, string or binary, and may have headers; a value of null deletes the key.

    Args:
        topic: A compacted topic.
        path, url: The database; exactly one of them.
        name: Distinguishes several writes of one batch in one function; None: the topic.
        options: Others of ``format("logdb")``: stagingPath, lockTimeout, failOnDataLoss.

    Raises:
        InvalidConfig: An option is invalid, the topic does not exist, or it is not compacted.
        at a call, InvalidConfig: The caller is not Spark's foreachBatch, or it is the second call for a batch.
        errors of ``format("logdb")``, as Spark's errors.
    """
    given = {"topic": topic, **options}
    if path is not None:
        given["path"] = os.fspath(path)
    if url is not None:
        given["url"] = url
    config: LogConfig = WriteOptions.of(given).targets()[topic].config
    if not config.compacted:
        raise InvalidConfig("topic", topic, "must be a compacted topic (cleanup.policy=compact): others keep every row forever")
    write_name = name or topic

    def write(frame: "DataFrame", batch_id: int) -> None:
        context = frame.sparkSession.sparkContext
        query_id, run_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_RUN_ID)
        if query_id is None:
            raise InvalidConfig("foreachBatch", None, "only a streaming query may call this function")
        write_id = f"{query_id}-{write_name}"
        if _done.get(write_id) == (run_id, batch_id):  # it would be taken for a repetition of the first one
            raise InvalidConfig("name", write_name, f"batch {batch_id} was already written under it: give each of its writes a name")
        frame.write.format("logdb").options(**given, writeId=write_id, batchId=str(batch_id)).mode("append").save()
        _done[write_id] = (run_id, batch_id)

    return write
