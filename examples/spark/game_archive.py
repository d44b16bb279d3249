"""Game events and alerts of one day, as Parquet files of a data lake, partitioned by day and kind.

Shows a batch by timestamps that may be run again, late: it writes the partitions of its day anew, with what has come since,
and leaves the others alone.  The lake is any URI that Hadoop knows: file:///lake, hdfs://…, s3a://….

    logdb spark run examples/spark/game_archive.py --path db --day 2026-03-01 --lake file:///tmp/lake
"""

import argparse
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from logdb_spark_source import session

EVENT = "kind string, country string, price double"


def of_day(spark: SparkSession, place: dict[str, str], topic: str, day: date) -> DataFrame:
    """The records of a topic with timestamps of that day (UTC), wherever they lie: a late one comes behind younger ones."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    options = {"subscribe": topic, "columns": "key,value,timestamp", **place}
    options |= {"startingTimestamp": str(int(begin.timestamp() * 1_000)), "startingOffsetsByTimestampStrategy": "latest"}
    records = spark.read.format("logdb").options(**options).load()
    within = records.where((F.col("timestamp") >= F.lit(begin)) & (F.col("timestamp") < F.lit(begin + timedelta(days=1))))
    user, text = (F.decode(column, "UTF-8") for column in ("key", "value"))
    return within.select(F.lit(day).alias("day"), "timestamp", user.alias("user"), text.alias("text"))


def archive(spark: SparkSession, place: dict[str, str], day: date, lake: str) -> None:
    events = of_day(spark, place, "events", day).select("day", "timestamp", "user", F.from_json("text", EVENT).alias("event"))
    alerts = of_day(spark, place, "alerts", day).withColumnRenamed("text", "reason")
    write(events.select("day", "timestamp", "user", "event.*"), f"{lake}/events", "day", "kind")
    write(alerts, f"{lake}/alerts", "day")


def write(rows: DataFrame, uri: str, *partitions: str) -> None:
    rows.write.partitionBy(*partitions).mode("overwrite").option("partitionOverwriteMode", "dynamic").parquet(uri)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--path", help="the database's directory")
    where.add_argument("--url", help="its server")
    parser.add_argument("--day", type=date.fromisoformat, required=True, help="such as 2026-03-01, UTC")
    parser.add_argument("--lake", required=True, help="a URI that Hadoop knows")
    given = parser.parse_args(arguments)
    place = {"path": given.path} if given.path else {"url": given.url}
    archive(session(), place, given.day, given.lake)


if __name__ == "__main__":
    main()
