"""336,776 flights through logdb and Spark: the delays of each airport, hour by hour, to a compacted topic and to Parquet.

The topic `flights` is filled as by `flights.py`.  One function says what an hour is, of a DataFrame; as a stream its changes go to
the topic `delays`, key airport@hour, as a batch its rows go to Parquet files.  Both are held against sums in plain Python.

    make demo-spark
    python demo/flights_spark.py --data-dir flights --lake file:///tmp/delays   # kept, to look into
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import flights as table
import logdb
from logdb_spark_source import session, upsert

DELAYS = "delays"
AT_ONCE = 100_000  # flights in a micro-batch
HOUR_MS = 3_600_000


class Hour(NamedTuple):
    """What left an airport in an hour."""

    flights: int
    cancelled: int
    delay_minutes: int  # of those that were not cancelled; negative: early

    @property
    def mean(self) -> float | None:
        departed = self.flights - self.cancelled
        return self.delay_minutes / departed if departed else None


Hours = dict[str, Hour]  # by airport@hour


def key_of(airport: str, scheduled_ms: int) -> str:
    return f"{airport}@{datetime.fromtimestamp(scheduled_ms // HOUR_MS * HOUR_MS / 1000, UTC):%Y-%m-%dT%HZ}"


def in_python(header: bytes, flights: list[table.Flight]) -> Hours:
    """The truth."""
    columns = header.split(b",")
    origin, delay = columns.index(b"origin"), columns.index(b"dep_delay")
    hours: Hours = {}
    for flight in flights:
        fields = flight.row.split(b",")
        cancelled = fields[delay] == b"NA"
        key = key_of(fields[origin].decode(), flight.scheduled_ms)
        known = hours.get(key, Hour(0, 0, 0))
        hours[key] = Hour(known.flights + 1, known.cancelled + cancelled, known.delay_minutes + (0 if cancelled else int(fields[delay])))
    return hours


# ---------------------------------------------------------------- the pipeline


def by_hour(records: DataFrame, header: bytes) -> DataFrame:
    """Rows (airport, hour, flights, cancelled, delay_minutes) of records of the topic `flights`, of a batch or of a stream."""
    schema = ", ".join(f"{name} {'int' if name == 'dep_delay' else 'string'}" for name in header.decode().split(","))
    row = F.from_csv(F.decode("value", "UTF-8"), schema, {"nullValue": "NA"})
    flights = records.select("timestamp", row.alias("flight")).select("timestamp", "flight.origin", "flight.dep_delay")
    return flights.groupBy(F.col("origin").alias("airport"), F.window("timestamp", "1 hour").start.alias("hour")).agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
        F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("delay_minutes"),
    )


def key_column() -> Column:
    """The same as ``key_of``."""
    return F.concat_ws("@", "airport", F.date_format(F.to_utc_timestamp("hour", F.current_timezone()), "yyyy-MM-dd'T'HH'Z'"))


def to_topic(spark: SparkSession, path: str, header: bytes, checkpoint: str) -> int:
    """As a stream, until there are no more; returns in how many micro-batches."""
    options = {"path": path, "subscribe": table.TOPIC, "startingOffsets": "earliest", "columns": "value,timestamp"}
    records = spark.readStream.format("logdb").options(**options, maxOffsetsPerTrigger=AT_ONCE).load()
    value = F.to_json(F.struct(*Hour._fields))
    changes = by_hour(records, header).select(key_column().alias("key"), value.alias("value"))
    writer = changes.writeStream.outputMode("update").foreachBatch(upsert(DELAYS, path=path))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(1 for progress in query.recentProgress if progress["numInputRows"])


def to_parquet(spark: SparkSession, path: str, header: bytes, lake: str) -> None:
    """As a batch; a directory for each airport and month."""
    records = spark.read.format("logdb").options(path=path, subscribe=table.TOPIC, columns="value,timestamp").load()
    rows = by_hour(records, header).withColumns({"key": key_column(), "month": F.date_format("hour", "yyyy-MM")})
    rows.repartition("airport").write.partitionBy("airport", "month").mode("overwrite").parquet(lake)


# ---------------------------------------------------------------- the play


def of_topic(path: str) -> Hours:
    with logdb.open(path, mode="r") as db:
        return {key.decode(): Hour(**json.loads(value)) for key, value in db.table(DELAYS).items()}


def of_parquet(spark: SparkSession, lake: str) -> Hours:
    return {row.key: Hour(*(row[name] for name in Hour._fields)) for row in spark.read.parquet(lake).collect()}


def show(hours: Hours) -> None:
    airports = table.report("airport", "hours", "flights", "cancelled", "mean delay, minutes")
    for airport in sorted({key.partition("@")[0] for key in hours}):
        total = Hour(*map(sum, zip(*(hour for key, hour in hours.items() if key.startswith(airport)), strict=True)))
        count = sum(key.startswith(airport) for key in hours)
        airports.add_row(airport, *(f"{number:,}" for number in (count, total.flights, total.cancelled)), f"{total.mean or 0:.2f}")
    table.console.print(airports)
    worst = table.report("worst hours, of ten departures or more", "flights", "cancelled", "mean delay, minutes")
    busy = [(hour.mean or 0, key, hour) for key, hour in hours.items() if hour.flights - hour.cancelled >= 10]
    for mean, key, hour in sorted(busy, reverse=True)[:5]:
        worst.add_row(key, str(hour.flights), str(hour.cancelled), f"{mean:.1f}")
    table.console.print(worst)


def main(data_dir: str, lake: str, scratch: str, count: int | None) -> None:
    header, rows = table.read_table()
    flights = table.flights_of(header, rows[:count])
    rates = table.Rates()

    table.console.rule(f"Append {len(flights):,} flights, start Spark")
    with logdb.open(data_dir) as db:
        with rates.measure("append_many, then flush", flights):
            table.append(db, flights)
        db.create_topic(DELAYS, config={"cleanup.policy": "compact"})
    began = time.perf_counter()
    spark = session(config={"spark.log.level": "ERROR"})
    table.console.print(f"Spark {spark.version} was there after {time.perf_counter() - began:.1f} s.")

    table.console.rule("Hourly delays of each airport")
    with rates.measure("a stream to the topic, by key", flights):
        batches = to_topic(spark, data_dir, header, os.path.join(scratch, "checkpoint"))
    with rates.measure("a batch to Parquet", flights):
        to_parquet(spark, data_dir, header, lake)
    with rates.measure("plain Python, of rows in memory", flights):
        truth = in_python(header, flights)
    assert of_topic(data_dir) == truth
    assert of_parquet(spark, lake) == truth
    show(truth)
    table.console.print(f"{len(truth):,} hours: the topic (micro-batches: {batches}), the Parquet files and plain Python agree on each.")
    rates.show("MB are those of the flights' rows.")


def run(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="make the database there, and keep it (default: a scratch directory)")
    parser.add_argument("--lake", help="where Parquet files go, any URI that Hadoop knows (default: a scratch directory)")
    parser.add_argument("--count", type=int, help="take only so many flights")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="logdb-demo-") as scratch:
        lake = options.lake or f"file://{scratch}/lake"
        main(options.data_dir or os.path.join(scratch, table.TOPIC), lake, scratch, options.count)


if __name__ == "__main__":
    run()
