"""Update mode: what a query has changed goes to a compacted topic, once, by a function for ``foreachBatch``.

Knows what Spark gives to such a function.  Does not know how a batch is written: the sink of ``format("logdb")`` does,
told by ``writeId`` and ``batchId`` which batch it is.
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
_RUN_ID = "spark.jobGroup.id"  # a query's jobs are a group of that name, another one after each restart
_done: dict[str, tuple[str | None, int]] = {}  # by what a write is called: the last batch of this process, and of which run


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
        topic: A compacted one.
        path, url: Where the database is; exactly one of them.
        name: What tells two writes of one batch apart, where a function calls several; None: the topic.
        options: Others of ``format("logdb")``: stagingPath, lockTimeout, failOnDataLoss.

    Raises:
        InvalidConfig: An option is not what it should be, there is no such topic, or it is not compacted.
        when called, InvalidConfig: It was not Spark's foreachBatch that called it, or a second time for a batch.
        what ``format("logdb")`` raises, as Spark's errors.
    """
    given = {"topic": topic, **options}
    if path is not None:
        given["path"] = os.fspath(path)
    if url is not None:
        given["url"] = url
    config: LogConfig = WriteOptions.of(given).targets()[topic].config
    if not config.compacted:
        raise InvalidConfig("topic", topic, "allowed is a compacted topic (cleanup.policy=compact): of others each row stays for ever")
    write_name = name or topic

    def write(frame: "DataFrame", batch_id: int) -> None:
        context = frame.sparkSession.sparkContext
        query_id, run_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_RUN_ID)
        if query_id is None:
            raise InvalidConfig("foreachBatch", None, "this function is for a streaming query, which calls it with an id of its own")
        write_id = f"{query_id}-{write_name}"
        if _done.get(write_id) == (run_id, batch_id):  # it would be taken for the first one, coming again
            raise InvalidConfig("name", write_name, f"batch {batch_id} was written under it before: give each of its writes a name")
        frame.write.format("logdb").options(**given, writeId=write_id, batchId=str(batch_id)).mode("append").save()
        _done[write_id] = (run_id, batch_id)

    return write
