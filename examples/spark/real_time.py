"""Spark's real-time mode: each record of `orders` is copied to `copied` as it comes, and not in micro-batches.

Spark has this mode for its own Kafka source, so the program reads logdb's Kafka listener. It needs PySpark 4.2, for which the connector
exists, and a core for each partition of `orders`. Delivery is at least once.

    logdb serve db --http localhost:8080 --kafka localhost:9092 &
    python examples/spark/real_time.py --url http://localhost:8080 --kafka localhost:9092

It appends records itself, and prints how long each takes.
"""

import argparse
import statistics
import tempfile
import time

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import logdb

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
WARM_UP = 5


def copy(spark: SparkSession, kafka: str, checkpoint: str) -> StreamingQuery:
    """Spark plans a new batch every five minutes, and writes each record meanwhile."""
    options = {"kafka.bootstrap.servers": kafka}
    orders = spark.readStream.format("kafka").options(**options, subscribe="orders", startingOffsets="earliest").load()
    copied = orders.select("key", "value").writeStream.format("kafka").options(**options, topic="copied")
    timed = copied.outputMode("update").trigger(realTime="5 minutes")  # type: ignore[call-overload] # PySpark's overloads lack it
    query: StreamingQuery = timed.option("checkpointLocation", checkpoint).start()
    return query


def latencies_ms(db: logdb.Database, query: StreamingQuery, count: int) -> list[float]:
    """The time of each record from its append until it is in `copied`, without the first ones."""
    output, found = db.log("copied"), []
    for number in range(WARM_UP + count):
        end, begin = output.end_offset, time.perf_counter()
        db.append("orders", b"order %d" % number, b"user-%d" % (number % 10))
        while output.end_offset == end:
            if not query.isActive:
                raise SystemExit(f"the query has ended: {query.exception()}")
            time.sleep(0.001)
        found.append((time.perf_counter() - begin) * 1_000)
    return found[WARM_UP:]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="the server's HTTP listener")
    parser.add_argument("--kafka", metavar="HOST:PORT", required=True, help="its Kafka listener")
    parser.add_argument("--records", type=int, default=40)
    given = parser.parse_args(arguments)
    spark = SparkSession.builder.master("local[3]").config("spark.jars.packages", CONNECTOR).getOrCreate()
    with logdb.open(given.url) as db, tempfile.TemporaryDirectory() as checkpoint:
        for topic in ("orders", "copied"):
            db.create_topic(topic, if_not_exists=True)
        query = copy(spark, given.kafka, checkpoint)
        found = latencies_ms(db, query, given.records)
        query.stop()
    print(
        f"least {min(found):.0f} ms, median {statistics.median(found):.0f} ms, 95 % within {sorted(found)[len(found) * 95 // 100]:.0f} ms"
    )


if __name__ == "__main__":
    main()
