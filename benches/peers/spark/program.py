"""Times one action on one of Spark's sources: a program for the Spark of ``environment``.

Reads a request (``Request``) as JSON and prints the measure.  All sources get the same session and do the same action.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import length
from pyspark.sql.functions import sum as sum_of

from benches.workload import Measure, Work, Wrong, rate

WARM_BATCH_COUNT, BATCH_COUNT = 10, 40  # micro-batches left out, and measured


class Request(TypedDict):
    """What is asked.

    format: "logdb", "kafka", "parquet", or "scan": our Parquet files and the tail behind them.
    options: Of the source; of "parquet" and "scan" what names the data.
    action: A name of ``ACTIONS``.
    count, value_size: What must come out.
    jars: Of Spark's Kafka source.
    directory: For what the action writes.
    """

    format: str
    options: dict[str, str]
    action: str
    count: int
    value_size: int
    jars: str
    directory: str


def load(spark: SparkSession, request: Request) -> DataFrame:
    options = request["options"]
    if request["format"] == "parquet":
        return spark.read.parquet(options["path"])
    if request["format"] == "scan":
        from logdb_spark_source import scan

        return scan(spark, options["path"], options["subscribe"])
    return spark.read.format(request["format"]).options(**options).load()


def counted(spark: SparkSession, request: Request, work: Work) -> Measure:
    return work.passes(lambda: (load(spark, request).count(), work.count * work.value_size))


def lengths(spark: SparkSession, request: Request, work: Work) -> Measure:
    def one() -> tuple[int, int]:
        total = load(spark, request).select(sum_of(length("value"))).first()
        return work.count, int(total[0]) if total else 0

    return work.passes(one)


def noop(spark: SparkSession, request: Request, work: Work) -> Measure:
    """Every column of every row, given to nobody."""
    work.check((load(spark, request).count(), work.count * work.value_size))

    def one() -> tuple[int, int]:
        load(spark, request).write.format("noop").mode("overwrite").save()
        return work.count, work.count * work.value_size

    return work.passes(one)


def backlog(spark: SparkSession, request: Request, work: Work) -> Measure:
    """All that is there, by a stream that ends then; after one that is not timed."""

    def one() -> float:
        with tempfile.TemporaryDirectory(dir=request["directory"]) as checkpoint:
            began = time.perf_counter()
            query = _stream(spark, request, "earliest").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination()
            seconds = time.perf_counter() - began
            if (rows := sum(progress["numInputRows"] for progress in query.recentProgress)) != work.count:
                raise Wrong(f"{rows} rows instead of {work.count}")
            return seconds

    one()
    return rate(work.count, one())


def micro_batch(spark: SparkSession, request: Request, _work: Work) -> Measure:
    """Milliseconds of a micro-batch, median, while records are written beside it."""
    with tempfile.TemporaryDirectory(dir=request["directory"]) as checkpoint:
        query = _stream(spark, request, "latest").option("checkpointLocation", checkpoint).start()
        took: dict[int, int] = {}
        while len(took) < WARM_BATCH_COUNT + BATCH_COUNT:
            progress = query.lastProgress
            if progress and progress["numInputRows"]:
                took[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            elif not query.isActive:
                raise Wrong(str(query.exception()))
            time.sleep(0.01)
        query.stop()
    return Measure(statistics.median(list(took.values())[WARM_BATCH_COUNT:]), "ms")


def _stream(spark: SparkSession, request: Request, starting_offsets: str) -> Any:
    frame = spark.readStream.format(request["format"]).options(**request["options"], startingOffsets=starting_offsets).load()
    return frame.writeStream.format("noop").outputMode("append")


ACTIONS: dict[str, Callable[[SparkSession, Request, Work], Measure]] = {
    "count": counted,
    "lengths": lengths,
    "noop": noop,
    "backlog": backlog,
    "micro_batch": micro_batch,
}


def main() -> None:
    request: Request = json.load(sys.stdin)
    from logdb_spark_source import session

    spark = session("local[2]", config={"spark.jars": request["jars"]})
    spark.sparkContext.setLogLevel("ERROR")
    directory = Path(request["directory"])
    measure = ACTIONS[request["action"]](spark, request, Work(directory, request["count"], request["value_size"]))
    spark.stop()
    print(json.dumps(measure._asdict()))


if __name__ == "__main__":
    main()
