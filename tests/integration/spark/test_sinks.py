"""Spark writes to a directory and to a server: batches, streams that are begun again, updates, and what is refused."""

import os
from collections import Counter

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import logdb
from logdb_spark_source import upsert
from support.serving import served
from support.spark import until_started
from support.staged import values

pytestmark = [pytest.mark.slow]
PARTITIONS = 2


@pytest.fixture
def database(tmp_path):
    """What is needed to look into the database while Spark writes to it: the options by which Spark finds it, and a reader."""
    with logdb.open(tmp_path / "db") as writer:
        for name in ("in", "out", "other"):
            writer.create_topic(name, partitions=PARTITIONS)
        writer.create_topic("latest", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    return tmp_path / "db"


@pytest.fixture
def given(place, database):
    if place == "path":
        yield {"path": str(database)}
        return
    with served(database) as server:
        yield {"url": server.url}


def opened(given):
    return logdb.open(given.get("url") or given["path"])


def fill(given, numbers):
    with opened(given) as database:
        for partition in range(PARTITIONS):
            mine = [b"%d" % number for number in numbers if number % PARTITIONS == partition]
            database.log("in", partition).append_many(mine, keys=mine)


def found(given, topic):
    """The committed values of a topic, sorted."""
    with logdb.open(given["url"]) if "url" in given else logdb.open(given["path"], mode="r") as database:
        return sorted(int(value) for partition in range(PARTITIONS) for value in values(database, topic, partition))


def run(spark, given, checkpoint, *, records, write=None):
    """A query that copies ``in``, so many records a batch, until it is at the end; returns how many batches it made."""
    frame = spark.readStream.format("logdb").options(**given)
    frame = frame.option("subscribe", "in").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", records).load()
    stream = frame.selectExpr("key", "value").writeStream if write is None else write(frame)
    if write is None:
        stream = stream.format("logdb").options(**given).option("topic", "out")
    begun = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    until_started(lambda: begun.start().awaitTermination())
    return len(os.listdir(checkpoint / "commits")) // 2  # each with its checksum


def left(database):
    """What is still staged: files beside the database, or uploads in it."""
    there = [path for path in (f"{database}.staging", database / "uploads") if os.path.isdir(path)]
    return [name for path in there for name in os.listdir(path) if not name.endswith((".token", ".last"))]


def forget_last_commit(checkpoint):
    """As if Spark had been killed after the sink's commit, and before its own."""
    last = max((name for name in os.listdir(checkpoint / "commits") if name.isdecimal()), key=int)
    for name in (last, f".{last}.crc"):
        os.unlink(checkpoint / "commits" / name)


def test_a_batch_is_written_and_read_back(spark, database):
    rows = spark.range(100, numPartitions=3).selectExpr(
        "cast(id % 7 as string) as key", "cast(id as string) as value", "'anything' as more",
        "if(id < 90, 'out', 'other') as topic", "if(id >= 95, 1, null) as partition",
        "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) as headers",
    )  # fmt: skip
    rows.write.format("logdb").option("path", str(database)).mode("append").save()
    with logdb.open(database) as writer:
        assert sorted(int(value) for partition in (0, 1) for value in values(writer, "out", partition)) == list(range(90))
        assert {b"95", b"96", b"97", b"98", b"99"} <= set(values(writer, "other", 1))
        keys = {record.key: partition for partition in (0, 1) for record in writer.log("out", partition).read(0)}
        with writer.producer() as producer:
            assert {key: producer.send("other", b"", key).result().partition for key in keys} == keys
    frame = spark.read.format("logdb").option("path", str(database)).option("subscribe", "out").option("includeHeaders", "true").load()
    read = frame.selectExpr("cast(value as string) v", "cast(key as string) k", "headers[0].key h", "cast(headers[0].value as string) w")
    assert sorted((int(row.v), row.k, row.h, row.w) for row in read.collect()) == [(i, str(i % 7), "h", str(i)) for i in range(90)]


def test_a_stream_that_is_begun_again(spark, given, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    fill(given, range(60))
    assert run(spark, given, checkpoint, records=30) == 2
    assert found(given, "out") == list(range(60))
    forget_last_commit(checkpoint)
    fill(given, range(60, 90))
    assert run(spark, given, checkpoint, records=30) == 3
    assert found(given, "out") == list(range(90)), "the batch that came again was not written again"
    assert left(tmp_path / "db") == []


@pytest.mark.local
def test_updates_by_key(spark, given, tmp_path):
    checkpoint = tmp_path / "checkpoint"

    def counted(frame):
        counts = frame.selectExpr("cast(cast(value as string) as int) % 5 as k").groupBy("k").count()
        rows = counts.selectExpr("cast(k as string) key", "cast(count as string) value")
        return rows.writeStream.outputMode("update").foreachBatch(upsert("latest", **given))

    fill(given, range(20))
    run(spark, given, checkpoint, records=10, write=counted)
    forget_last_commit(checkpoint)
    fill(given, range(20, 25))
    run(spark, given, checkpoint, records=10, write=counted)
    with opened(given) as database:
        assert dict(database.table("latest")) == {b"%d" % key: b"5" for key in range(5)}
        log_sizes = Counter(record.key for partition in (0, 1) for record in database.log("latest", partition).read(0))
    assert log_sizes == {b"%d" % key: 3 for key in range(5)}, "three batches, each changed all keys, and one came again"


def refused(write, message):
    with pytest.raises(AnalysisException, match=message):
        write.save()


def test_what_is_refused(spark, database, tmp_path):
    rows = spark.range(3).selectExpr("cast(id as string) as value", "id")
    to = {"path": str(database), "topic": "out"}

    def write(frame=rows, **options):
        return frame.write.format("logdb").options(**to | options).mode("append")

    refused(write(topic="nowhere"), "topic='nowhere': there is no such topic at .* its topics: in, latest, other, out")
    refused(write(topic="__transaction_state"), "logdb alone writes to it")
    refused(write(path=str(tmp_path / "nothing")), "NotADatabase")
    refused(write(subscribe="in"), "subscribe='in': .*options are path")
    refused(write(frame=rows.select("id")), "a column value of type string or binary is needed")
    refused(write(frame=rows.selectExpr("id as value")), "schema='value bigint'")
    refused(rows.write.format("logdb").option("path", str(database)).mode("append"), "topic=None: name a topic by this option")
    refused(write().mode("overwrite"), "mode='overwrite': must be append")
    refused(write().mode("ignore"), 'use either the "Append"')
    with logdb.open(database):
        refused(write(lockTimeout="10ms"), f"DirectoryLocked: .* open for writing in process {os.getpid()}")
    with pytest.raises(Exception, match="unknown topic 'nowhere'; there are 'in', 'latest', 'other', 'out'"):
        # one task: those that Spark kills beside a failed one leave their files until they are reaped
        mixed = rows.coalesce(1).selectExpr("value", "if(id = 2, 'nowhere', 'out') as topic")
        mixed.write.format("logdb").option("path", str(database)).mode("append").save()
    assert left(database) == []
    assert found({"path": str(database)}, "out") == []


@pytest.mark.local
def test_a_query_that_rewrites_all_its_rows_is_refused(spark, given, tmp_path):
    def complete(frame):
        counts = frame.groupBy("key").count().selectExpr("key", "cast(count as string) value")
        return counts.writeStream.outputMode("complete").format("logdb").options(**given).option("topic", "out")

    fill(given, range(4))
    with pytest.raises(StreamingQueryException, match=r"outputMode='complete': must be append"):
        run(spark, given, tmp_path / "checkpoint", records=10, write=complete)
