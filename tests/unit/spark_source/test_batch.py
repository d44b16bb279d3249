import pickle

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

import logdb
from logdb.errors import InvalidConfig
from logdb_spark_source.columns import spark_schema
from logdb_spark_source.loss import DataLoss
from logdb_spark_source.source import LogdbDataSource


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with logdb.open(path) as db:
        db.create_topic("t", partitions=2)
        for partition in (0, 1):
            append(db, 100, partition)
        yield db


def append(db, count, partition=0):
    db.log("t", partition).append_many([b"x"] * count)
    db.flush()


def loaded(path, **options):
    """What Spark keeps of a DataFrame: it is pickled with every plan."""
    source = LogdbDataSource({"path": str(path), "subscribe": "t"} | options)
    schema = source.schema()
    return pickle.dumps(source), schema


def planned(frame):
    source, schema = frame
    tasks = pickle.loads(source).reader(schema).partitions()
    return [(one.partition, one.start, one.end) for task in tasks for one in task.ranges]


def test_where_it_ends_is_decided_when_it_is_loaded(path, db):
    frame = loaded(path)
    append(db, 50)
    db.alter_topic("t", partitions=3)
    append(db, 50, 2)
    assert planned(frame) == [(0, 0, 100), (1, 0, 100)]
    assert planned(loaded(path)) == [(0, 0, 150), (1, 0, 100), (2, 0, 50)]


def test_offsets_say_what_is_read(path, db):
    db.delete_records("t", 0, 20)
    assert planned(loaded(path, startingOffsets='{"t":{"0":-2,"1":50}}', endingOffsets='{"t":{"0":90,"1":-1}}')) == [
        (0, 20, 90),
        (1, 50, 100),
    ]
    assert planned(loaded(path, subscribe="t", startingOffsets='{"t":{"0":100,"1":50}}', endingOffsets='{"t":{"0":100,"1":40}}')) == []
    frame = loaded(path, startingOffsets='{"t":{"0":30,"1":0}}')
    db.delete_records("t", 0, 25)
    assert planned(frame) == [(0, 30, 100), (1, 0, 100)]


@pytest.mark.parametrize(
    ("options", "says", "rest"),
    [
        ({"startingOffsets": '{"t":{"0":10,"1":0}}'}, r"offsets \[10, 20\) of t-0 were deleted: it starts at 20", (0, 20, 100)),
        ({"startingOffsets": '{"t":{"0":101,"1":0}}'}, "t-0 has to start at offset 101, but ends at 100", None),
        ({"endingOffsets": '{"t":{"0":101,"1":100}}'}, "t-0 has to end at offset 101, but ends at 100", (0, 20, 100)),
    ],
    ids=["deleted", "after the end", "ends after the end"],
)
def test_offsets_that_are_not_there_are_a_loss(path, db, options, says, rest):
    db.delete_records("t", 0, 20)
    with pytest.raises(DataLoss, match=says):
        planned(loaded(path, **options))
    assert planned(loaded(path, failOnDataLoss="false", **options)) == [*([rest] if rest else []), (1, 0, 100)]


def test_topics_partitions_and_offsets_are_checked_when_it_is_loaded(path, db):
    for options, says in [
        ({"subscribe": "t,nope"}, "subscribe='nope': there is no such topic.*its topics: t"),
        ({"startingOffsets": '{"t":{"0":1}}'}, "startingOffsets=.*missing: t-1"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":1,"1":1,"2":1}}'}, "endingOffsetsByTimestamp=.*these are not: t-2"),
    ]:
        with pytest.raises(InvalidConfig, match=says):
            loaded(path, **options)
    for assign, says in [('{"t":[0,2]}', "assign='t-2': the topic has 2 partitions"), ('{"u":[0]}', "assign='u': there is no such topic")]:
        with pytest.raises(InvalidConfig, match=says):
            LogdbDataSource({"path": str(path), "assign": assign}).schema()


def test_partitions_are_cut_where_more_tasks_are_wanted(path, db):
    assert len(planned(loaded(path, minPartitions="10"))) == 10
    assert planned(loaded(path, maxRecordsPerPartition="60")) == [(0, 0, 50), (0, 50, 100), (1, 0, 50), (1, 50, 100)]


def test_a_pattern_is_searched_for_and_may_match_none(path, db):
    db.create_topic("tt")
    for pattern, count in [("^t$", 2), ("t", 3), ("x", 0)]:
        source = LogdbDataSource({"path": str(path), "subscribePattern": pattern})
        schema = source.schema()
        assert len(source._frozen.partitions.all) == count
        assert all(task.ranges for task in source.reader(schema).partitions())


def test_a_user_s_schema_is_a_list_of_columns(path, db):
    source = LogdbDataSource({"path": str(path), "subscribe": "t"})
    reader = source.reader(spark_schema(("offset", "partition")))
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows[0] == {"offset": 0, "partition": 0} and len(rows) == 200
    with pytest.raises(InvalidConfig, match="schema='offset int'"):
        source.reader(StructType([StructField("offset", IntegerType())]))


def test_a_stream_alone_has_no_end(path, db):
    source = LogdbDataSource({"path": str(path), "subscribe": "t", "endingOffsets": "latest"})
    with pytest.raises(InvalidConfig, match="only batches have an end"):
        source.streamReader(source.schema())


def test_a_timestamp_too_is_looked_up_among_what_was_there(path, db):
    frame = loaded(path, endingTimestamp=str(2**40 * 4), startingTimestamp="1")
    append(db, 50)
    assert planned(frame) == [(0, 0, 100), (1, 0, 100)]
