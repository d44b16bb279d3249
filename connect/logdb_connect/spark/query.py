"""The program of the driver: one query, from the topics to the target.  ``driver`` runs it, with a session of Spark."""

import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from logdb_connect.spark import driver
from logdb_connect.spark.records import Job
from logdb_connect.spark.settings import checkpoint_of

_LOOK_S = 0.2
_OURS = re.compile(r"logdb\.errors\.(\w+)")


def main(job: Job) -> None:
    """Run until the worker says stop, or the query fails."""
    from pyspark.sql import SparkSession

    asked = threading.Event()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    spark: Any = SparkSession.builder.getOrCreate()
    try:
        query = _started(job, spark)
        driver.tell(started=str(query.id))
        told = -1
        while query.isActive and not asked.wait(_LOOK_S):
            told = _tell_progress(query, told)
        _tell_progress(query, told)
        if query.isActive:
            query.stop()
        elif (error := query.exception()) is not None:
            raise error
    except Exception as error:  # noqa: BLE001 -- the worker shows it as the trace of the task
        text = "".join(traceback.format_exception(error))
        driver.tell(failed=text, retriable=is_retriable(text))


def is_retriable(text: str) -> bool:
    """Whether an error of Spark has an error of logdb as its cause that passes by itself."""
    import logdb.errors

    return any(bool(getattr(getattr(logdb.errors, name, None), "retriable", False)) for name in _OURS.findall(text))


def _listen(asked: threading.Event) -> None:
    """Wait for the word of the worker; without a worker, end at once: another one may run the connector."""
    if sys.stdin.readline().strip() == "stop":
        asked.set()
        sys.stdin.readline()  # until the worker has seen the end, or ends itself
    os._exit(1)


def _started(job: Job, spark: Any) -> Any:
    config = job["config"]
    reader = spark.readStream.format("logdb").options(**job["place"]).option("subscribePattern", job["pattern"])
    reader = reader.option("includeHeaders", "true").option("isolationLevel", "read_committed")
    reader = reader.option("startingOffsets", job["starting"]).option("maxOffsetsPerTrigger", job["max_offsets"])
    stream = reader.load().writeStream.queryName(job["name"]).option("checkpointLocation", checkpoint_of(job["name"], config))
    return stream.foreachBatch(partial(_writer(job["kind"]), job)).trigger(processingTime=f"{job['interval_ms']} milliseconds").start()


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
    began = time.monotonic()
    main(driver.job)
