"""The program of the driver: one query, from the topics to the target.  ``driver`` runs it, with a session of Spark."""

import json
import logging
import re
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from logdb_connect.spark import driver
from logdb_connect.spark.records import Job
from logdb_connect.spark.settings import checkpoint_of

logger = logging.getLogger(__name__)

_LOOK_S = 0.2
_PAUSE_S, _PAUSE_S_MAX = 1.0, 30.0
_STARTED_S = 600.0
_OURS = re.compile(r"logdb\.errors\.(\w+)")
_BUSY = "Python worker failed to connect back"
"""What Spark says where a Python process takes longer than ten seconds to start."""


def main(job: Job) -> None:
    """Run until the worker says stop, or the query fails for good."""
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.builder.getOrCreate()
    driver.forget_private()
    for name, text in job["conf"].items():
        if name.startswith(driver.HADOOP):
            spark.conf.set(name.removeprefix(driver.HADOOP), text)
    pause_s, told = _PAUSE_S, -1
    while not driver.asked.is_set():
        before = told
        try:
            query = _started(job, spark)
            driver.tell(started=str(query.id))
            while query.isActive and not driver.asked.wait(_LOOK_S):
                told = _tell_progress(query, told)
            told = _tell_progress(query, told)
            if query.isActive:
                query.stop()
            elif (error := query.exception()) is not None:
                raise error
        except Exception as error:  # noqa: BLE001 -- the worker shows it as the trace of the task
            text = "".join(traceback.format_exception(error))
            if not is_retriable(text):
                driver.tell(failed=advice(text, spark.version) + text)
                return
            logger.warning("the query starts again: %s", text)
            pause_s = _PAUSE_S if told > before else min(2 * pause_s, _PAUSE_S_MAX)
            driver.asked.wait(pause_s)


def advice(text: str, version: str) -> str:
    """What to install, at the begin of an error that says that jars are missing."""
    if "Failed to find data source: avro" in text:
        return f"AvroFormat on Spark needs the property spark.jars.packages=org.apache.spark:spark-avro_2.13:{version}.\n"
    if "ClassNotFoundException: Class org.apache.hadoop.fs.s3a." in text:
        return "S3 on Spark needs the property spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, of Spark's version of Hadoop.\n"
    return ""


def is_retriable(text: str) -> bool:
    """Whether an error of Spark has a cause that passes by itself: an error of logdb, or a machine that is busy."""
    import logdb.errors

    return _BUSY in text or any(bool(getattr(getattr(logdb.errors, name, None), "retriable", False)) for name in _OURS.findall(text))


def _started(job: Job, spark: Any) -> Any:
    config = job["config"]
    reader = spark.readStream.format("logdb").options(**job["place"]).option("subscribePattern", job["pattern"])
    reader = reader.option("includeHeaders", "true").option("isolationLevel", "read_committed")
    reader = reader.option("startingOffsets", job["starting"]).option("maxOffsetsPerTrigger", job["max_offsets"])
    stream = reader.load().writeStream.queryName(job["name"]).option("checkpointLocation", checkpoint_of(job["name"], config))
    query_id: Future[str] = Future()  # the checkpoint keeps it; the first batch may be written before start returns
    write = _writer(job["kind"])

    def stored(frame: Any, batch_id: int) -> None:
        write(job, frame, f"{query_id.result(_STARTED_S)[:8]}-{batch_id}")

    query = stream.foreachBatch(stored).trigger(processingTime=f"{job['interval_ms']} milliseconds").start()
    query_id.set_result(str(query.id))
    return query


def _writer(kind: str) -> Callable[..., None]:
    if kind == "sql":
        from logdb_connect.spark.databases import write
    else:
        from logdb_connect.spark.objects import write
    return write


def _tell_progress(query: Any, told: int) -> int:
    """Tell of each micro-batch that is done, with the offsets behind it; returns the last."""
    for progress in query.recentProgress:
        if progress.batchId > told and progress.numInputRows and progress.sources:
            offsets = progress.sources[0].endOffset
            driver.tell(
                batch=progress.batchId, rows=progress.numInputRows, offsets=offsets if isinstance(offsets, str) else json.dumps(offsets)
            )
            told = progress.batchId
    return told


if __name__ == "__main__":
    main(driver.job)
