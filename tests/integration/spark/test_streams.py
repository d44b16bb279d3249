"""The helpers of logdb_spark_source.streams, on Spark: what they give, after restarts too."""

from datetime import UTC, datetime

import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import functions as f

import logdb
from logdb.errors import InvalidConfig
from logdb_spark_source import streams
from support.spark import options_of, until_started

COMPACTED = {"cleanup.policy": "compact"}
BEGIN_MS = int(datetime(2026, 3, 1, 9, tzinfo=UTC).timestamp() * 1_000)


def put(path, topic, *rows, partitions=2, **config):
    """Append keys and values; None: a tombstone."""
    with logdb.open(path) as db:
        db.create_topic(topic, partitions=partitions, config=config.get("config"), if_not_exists=True)
        for key, value in rows:
            db.append(topic, None if value is None else value.encode(), key.encode())


def committed(path, topic):
    with logdb.open(path, mode="r") as db:
        logs = [db.log(topic, one) for one in range(db.describe_topic(topic).partition_count)]
        return [record for log in logs for record in log.read(0, isolation_level="read_committed")]


def run(writer, checkpoint):
    """A whole run of a query, to the present end of its input."""
    until_started(lambda: writer().option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination())


@pytest.mark.parametrize("kind", ["path", "url"])
def test_each_row_gets_the_latest_value_also_after_a_restart_and_a_tombstone(spark, tmp_path, kind):
    path, checkpoint = tmp_path / "db", tmp_path / "checkpoint"

    def enriched():
        with_email = streams.join_latest(streams.stream(spark, "orders", **options), "emails", **options, name="email")
        value = f.concat_ws(" ", f.decode("value", "UTF-8"), f.coalesce(f.decode("email", "UTF-8"), f.lit("nobody")))
        return streams.to(with_email.withColumn("value", value), "out", **options)

    put(path, "out")
    put(path, "emails", ("ann", "ann@old"), ("ann", "ann@1"), ("bob", "bob@1"), config=COMPACTED)
    put(path, "orders", ("ann", "1"), ("bob", "2"), ("cid", "3"))
    with options_of(kind, path) as options:
        run(enriched, checkpoint)
    put(path, "emails", ("ann", "ann@2"), ("bob", None), ("cid", "cid@1"))  # while the query is stopped
    put(path, "orders", ("ann", "4"), ("bob", "5"), ("cid", "6"), ("ann", "7"))
    with options_of(kind, path) as options:
        run(enriched, checkpoint)
        run(enriched, checkpoint)  # there is nothing new
    found = sorted((record.key.decode(), record.value.decode()) for record in committed(path, "out"))
    assert found == sorted(
        [
            ("ann", "1 ann@1"),
            ("bob", "2 bob@1"),
            ("cid", "3 nobody"),
            ("ann", "4 ann@2"),
            ("bob", "5 nobody"),
            ("cid", "6 cid@1"),
            ("ann", "7 ann@2"),
        ]
    )


def test_a_query_that_runs_sees_changes_of_the_table(spark, tmp_path):
    """One query, whose Python workers stay: what was written before a row is seen by it, record for record."""
    path = tmp_path / "db"
    put(path, "out")
    put(path, "emails", ("ann", "0"), config=COMPACTED)
    put(path, "orders", ("ann", "0"))
    place = {"path": str(path)}
    rows = streams.join_latest(streams.stream(spark, "orders", **place), "emails", **place, how="inner")
    writer = streams.to(
        rows.select("key", f.concat_ws(" ", *(f.decode(name, "UTF-8") for name in ("value", "emails"))).alias("value")), "out", **place
    )
    query = until_started(lambda: writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
    try:
        query.processAllAvailable()
        for number in range(1, 6):
            put(path, "emails", ("ann", str(number) if number != 3 else None))
            put(path, "orders", ("ann", str(number)))
            query.processAllAvailable()
    finally:
        query.stop()
    assert [record.value for record in committed(path, "out")] == [b"0 0", b"1 1", b"2 2", b"4 4", b"5 5"]


def test_the_key_may_be_another_column_and_a_batch_is_joined_too(spark, tmp_path):
    put(tmp_path / "db", "users", ("7", "ann"), config=COMPACTED)
    rows = spark.createDataFrame([("a", "7"), ("b", "8"), ("c", None)], "order string, user string")
    joined = streams.join_latest(rows, "users", path=tmp_path / "db", key="user", name="name", store=str(tmp_path / "store"))
    assert [tuple(row) for row in joined.sort("order").collect()] == [("a", "7", bytearray(b"ann")), ("b", "8", None), ("c", None, None)]
    assert list((tmp_path / "store" / "logdb-tables").glob("*/0"))


def test_wrong_arguments_are_told_before_the_query_starts(spark, tmp_path):
    put(tmp_path / "db", "users")
    rows = spark.createDataFrame([("a", 7)], "key string, number int")
    for wrong in ({"key": "number"}, {"key": "other"}, {"name": "number"}, {"how": "outer"}, {"url": "http://localhost:1"}):
        with pytest.raises(InvalidConfig):
            streams.join_latest(rows, "users", **({"path": tmp_path / "db"} | wrong))
    with pytest.raises(InvalidConfig, match=r"must be a topic at .*users"):
        streams.join_latest(rows, "user", path=tmp_path / "db")


def test_windows_are_written_once_when_they_close_under_the_keys_of_kafka(spark, tmp_path):
    path, checkpoint = tmp_path / "db", tmp_path / "checkpoint"
    place = {"path": str(path)}

    def views(*seconds):
        with logdb.open(path) as db:
            db.create_topic("views", if_not_exists=True)
            db.create_topic("counts", config=COMPACTED, if_not_exists=True)
            db.append_many("views", [b""] * len(seconds), [b"/a"] * len(seconds), timestamps_ms=[BEGIN_MS + 1_000 * at for at in seconds])

    def counts():
        found = streams.windows(streams.stream(spark, "views", **place), "1 minute", grace="30 seconds").count()
        return streams.to(
            found.select(streams.windowed_key().alias("key"), f.col("count").cast("string").alias("value")), "counts", **place
        )

    views(1, 59, 61)
    run(counts, checkpoint)
    views(30, 89)  # the first is in time, after the end of its window
    run(counts, checkpoint)
    views(31, 90)  # 90 closes the first window
    run(counts, checkpoint)
    views(32, 150)  # 32 is too late
    run(counts, checkpoint)
    assert [record.value for record in committed(path, "counts")] == [b"4", b"3"]
    with logdb.open(path, mode="r") as db:
        table = db.table("counts")
        assert table.get(streams.windowed_key_bytes(b"/a", datetime(2026, 3, 1, 9, tzinfo=UTC))) == b"4"
        assert table.get(streams.windowed_key_bytes(b"/a", datetime(2026, 3, 1, 9, 1, tzinfo=UTC))) == b"3"


def test_rows_go_through_a_topic_by_a_new_key_to_the_partition_of_producers(spark, tmp_path):
    path = tmp_path / "db"
    put(path, "by-user", partitions=3)
    put(path, "orders", *((f"order-{number}", f"user-{number % 7}") for number in range(50)))
    by_user = streams.stream(spark, "orders", path=path).withColumns({"key": f.col("value"), "value": f.col("key")})
    query, records = streams.repartition(by_user, "by-user", checkpoint=str(tmp_path / "checkpoint"), path=path)
    try:
        assert records.isStreaming
        query.processAllAvailable()
    finally:
        query.stop()
    found = committed(path, "by-user")
    assert sorted(int(record.value.decode().split("-")[1]) for record in found) == list(range(50))
    put(path, "expected", *((record.key.decode(), "") for record in found), partitions=3)
    assert {record.key: record.partition for record in found} == {record.key: record.partition for record in committed(path, "expected")}


def test_a_topic_that_is_deleted_ends_the_query(spark, tmp_path):
    path = tmp_path / "db"
    put(path, "out")
    put(path, "emails", ("ann", "1"), config=COMPACTED)
    put(path, "orders", ("ann", "1"))
    rows = streams.join_latest(streams.stream(spark, "orders", path=path), "emails", path=path)
    with logdb.open(path) as db:
        db.delete_topic("emails")
    with pytest.raises(StreamingQueryException, match="emails"):
        run(lambda: streams.to(rows, "out", path=path), tmp_path / "checkpoint")


def test_spark_refuses_its_real_time_mode_for_sources_in_python(spark, tmp_path):
    """examples/spark/real_time.py shows the way around: Spark's Kafka source on the Kafka listener."""
    put(tmp_path / "db", "orders")
    put(tmp_path / "db", "out")
    writer = streams.to(streams.stream(spark, "orders", path=tmp_path / "db"), "out", path=tmp_path / "db").outputMode("update")
    with pytest.raises(IllegalArgumentException, match="STREAMING_REAL_TIME_MODE"):
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(realTime="5 minutes").start()
