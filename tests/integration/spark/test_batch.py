"""format("logdb") in batches: what Spark answers, against what the log holds."""

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.utils import CapturedException

import logdb
from logdb_spark_source.columns import NAMES
from support.damage import flip
from support.spark import options_of

NOW = 1_700_000_000_000
COUNT = 300


@pytest.fixture
def path(tmp_path):
    """Two topics; ``t`` has two partitions, compressed records, headers and nulls."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2, config={"compression.type": "zstd", "segment.bytes": 20_000})
        db.create_topic("u", config={"message.timestamp.type": "LogAppendTime"})
        for partition in (0, 1):
            for at in range(0, COUNT, 50):
                rows = range(at, at + 50)
                db.log("t", partition).append_many(
                    [None if row % 7 == 0 else b"value %d" % row * (row % 5) for row in rows],
                    [None if row % 3 == 0 else b"key %d" % row for row in rows],
                    headers=[[("h", b"%d" % row), ("none", None)] if row % 2 else [] for row in rows],
                    timestamps_ms=[NOW + 1000 * row for row in rows],
                )
        db.log("u").append_many([b"a", b"b"])
    return tmp_path / "db"


def expected(path, topic="t"):
    """Every record as a row of all columns."""
    found = []
    with logdb.open(path, mode="r") as db:
        for partition in range(db.describe_topic(topic).partition_count):
            for record in db.log(topic, partition).read(0):
                headers = [(name, value) for name, value in record.headers] or None
                found.append((record.key, record.value, topic, partition, record.offset, record.timestamp_ms, int(topic == "u"), headers))
    return found


def rows(frame):
    """A DataFrame of all columns as tuples, timestamps in ms."""
    parts = frame.selectExpr(*NAMES[:5], "unix_millis(timestamp)", *NAMES[6:]).collect()
    plain = [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in parts]
    return sorted(((*row[:7], pairs(row[7])) for row in plain), key=lambda row: row[2:5])


def pairs(headers):
    return None if headers is None else [(one.key, None if one.value is None else bytes(one.value)) for one in headers]


def load(spark, **options):
    return spark.read.format("logdb").options(**options).load()


@pytest.mark.parametrize("where", ["directory", "snapshot", "url"])
def test_every_place_gives_what_the_log_holds(spark, path, where):
    wanted = expected(path) + expected(path, "u")
    with options_of(where, path) as at:
        frame = load(spark, subscribe="t,u", includeHeaders="true", **at)
        assert rows(frame) == wanted
        assert frame.count() == 2 * COUNT + 2
        aggregated = frame.groupBy("topic", "partition").agg({"offset": "max", "value": "count"}).collect()
        assert sorted(map(tuple, aggregated)) == [("t", 0, 299, 257), ("t", 1, 299, 257), ("u", 0, 1, 2)]
        some = load(spark, assign='{"t":[1]}', startingOffsets='{"t":{"1":10}}', endingTimestamp=str(NOW + 20_000), columns="offset", **at)
        assert sorted(row.offset for row in some.collect()) == list(range(10, 20))


def test_the_same_in_sql_with_a_schema_and_in_pieces(spark, path):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW ts USING logdb OPTIONS (path '{path}', subscribePattern '^t$', minPartitions '7')")
    assert spark.sql("SELECT count(*), count(key), sum(length(value)) FROM ts").first() == (
        2 * COUNT,
        sum(row[0] is not None for row in expected(path)),
        sum(len(row[1] or b"") for row in expected(path)),
    )
    assert spark.table("ts").rdd.getNumPartitions() == 7
    two = spark.read.format("logdb").schema("offset bigint, partition int").option("subscribe", "t").load(str(path))
    assert sorted(map(tuple, two.collect())) == sorted((row[4], row[3]) for row in expected(path))


def test_all_actions_of_a_frame_see_the_same(spark, path):
    frame = load(spark, path=str(path), subscribe="t", columns="partition,offset,value")
    first = frame.count()
    with logdb.open(path) as db:
        for turn in range(3):
            db.log("t", turn % 2).append_many([b"later"] * 1000)
            db.flush()
            assert (frame.count(), frame.where("value = 'later'").count()) == (first, 0)
        joined = frame.alias("a").join(frame.alias("b"), ["partition", "offset"])
        assert joined.count() == first
        db.alter_topic("t", partitions=3)
        assert frame.union(frame).count() == 2 * first
        assert load(spark, path=str(path), subscribe="t", columns="offset").count() == first + 3000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "t", "subscribePattern": "t"}, "subscribe and subscribePattern"),
        ({"subscribe": "nope"}, "subscribe='nope': there is no such topic"),
        ({"subscribe": "t", "startingOffsets": "{"}, "startingOffsets="),
        ({"subscribe": "t", "columns": "valeu"}, "columns="),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "endingOffsets="),
    ],
    ids=["two ways", "no topic", "no JSON", "no column", "no end"],
)
def test_what_is_wrong_is_told_when_it_is_loaded(spark, path, options, says):
    with pytest.raises(AnalysisException) as caught:
        load(spark, path=str(path), **options)
    assert says in str(caught.value)


def test_what_is_wrong_in_a_batch_alone_is_told_before_its_first_task(spark, path):
    with logdb.open(path) as db:
        db.delete_records("t", 0, 100)
    with pytest.raises(AnalysisException, match="startingOffsets=-1: a batch cannot begin at latest"):
        load(spark, path=str(path), subscribe="t", startingOffsets="latest").count()
    offsets = {"startingOffsets": '{"t":{"0":50,"1":0}}'}
    with pytest.raises(AnalysisException, match="failOnDataLoss=false"):
        load(spark, path=str(path), subscribe="t", **offsets).count()
    assert load(spark, path=str(path), subscribe="t", failOnDataLoss="false", **offsets).count() == 2 * COUNT - 100
    with pytest.raises(AnalysisException, match="schema='offset int'"):
        spark.read.format("logdb").schema("offset int").option("subscribe", "t").load(str(path)).count()


def test_a_corrupt_segment_fails_its_task_with_path_and_position(spark, path):
    segment = min((path / "t-1").glob("*.log"))
    flip(segment, 200)
    frame = load(spark, path=str(path), subscribe="t", columns="partition,offset")
    with pytest.raises(CapturedException) as caught:
        frame.count()
    assert f"{segment} is corrupt at byte 0" in str(caught.value)
    assert load(spark, path=str(path), assign='{"t":[0]}', columns="partition,offset").count() == COUNT
