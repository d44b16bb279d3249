"""How long one record takes from its append to its committed result, on this machine: the floor of micro-batches.

Each query starts its next micro-batch as soon as the last one has ended. One record is on its way at a time.

    python examples/spark/latency.py
"""

import argparse
import statistics
import tempfile
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import logdb
from logdb_spark_source import session, streams

WARM_UP = 5
COMPACTED = {"cleanup.policy": "compact"}


def queries(spark: SparkSession, place: dict[str, str]) -> dict[str, DataStreamWriter]:
    """The writer of each query, by the topic that it writes."""

    def orders() -> DataFrame:
        return streams.stream(spark, "orders", columns="key,value", **place)

    counts = orders().groupBy("key").count().select("key", F.col("count").cast("string").alias("value"))
    return {
        "copied": streams.to(orders(), "copied", **place),
        "joined": streams.to(streams.join_latest(orders(), "emails", **place).drop("emails"), "joined", **place),
        "counted": streams.to_table(counts, "counted", **place),
    }


def latencies_ms(db: logdb.Database, topic: str, count: int) -> list[float]:
    """The time of each record after the first ones, until the output topic has its result."""
    output, found = db.log(topic), []
    for number in range(WARM_UP + count):
        end, begin = output.readable_end_offset("read_committed"), time.perf_counter()
        db.append("orders", b"order", b"user-%d" % (number % 10))
        while output.readable_end_offset("read_committed") == end:
            time.sleep(0.001)
        found.append((time.perf_counter() - begin) * 1_000)
    return found[WARM_UP:]


def measure(spark: SparkSession, directory: str, count: int) -> dict[str, list[float]]:
    with logdb.open(f"{directory}/db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        for topic, config in (("orders", {}), ("emails", COMPACTED), ("copied", {}), ("joined", {}), ("counted", COMPACTED)):
            db.create_topic(topic, config=config)
        db.append_many("emails", [b"user@example.com"] * 10, [b"user-%d" % number for number in range(10)])
        found = {}
        for topic, writer in queries(spark, {"url": server.addresses[0]}).items():
            query = writer.option("checkpointLocation", f"{directory}/{topic}").start()
            query.processAllAvailable()
            found[topic] = latencies_ms(db, topic, count)
            query.processAllAvailable()
            query.stop()
        return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=40)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        for topic, found in measure(session(given.master, config={"spark.log.level": "OFF"}), directory, given.records).items():
            shown = [min(found), statistics.median(found), sorted(found)[len(found) * 95 // 100]]
            print(f"{topic:8} least {shown[0]:6.0f} ms, median {shown[1]:6.0f} ms, 95 % within {shown[2]:6.0f} ms")


if __name__ == "__main__":
    main()
