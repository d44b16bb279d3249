"""The stream's offsets and tasks, asked for as Spark asks: JSON comes back as it went."""

import json

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import logdb
from logdb.errors import InvalidConfig
from logdb_spark_source.loss import DataLoss
from logdb_spark_source.options import ReadOptions
from logdb_spark_source.stream import StreamReader

ALL = ReadAllAvailable()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def db(path):
    with logdb.open(path) as db:
        db.create_topic("t", partitions=2)
        yield db


def append(db, count, partition=0, topic="t"):
    db.log(topic, partition).append_many([b"x"] * count)
    db.flush()


def reader(path, **options):
    options = ReadOptions.of({"path": str(path), "subscribe": "t"} | options)
    return StreamReader(options, options.columns)


def stored(offset):
    """What Spark gives back of an offset that it wrote into a checkpoint."""
    return json.loads(json.dumps(offset))


def planned(stream, start, end):
    tasks = stream.partitions(stored(start), stored(end))
    return sorted((one.topic, one.partition, one.start, one.end) for task in tasks for one in task.ranges)


def offsets(position):
    return position["offsets"]


def test_a_stream_begins_at_the_end_unless_told_otherwise(path, db):
    append(db, 5)
    assert offsets(reader(path).initialOffset()) == {"t": {"0": 5, "1": 0}}
    assert offsets(reader(path, startingOffsets="earliest").initialOffset()) == {"t": {"0": 0, "1": 0}}
    assert offsets(reader(path, startingOffsets='{"t":{"0":3,"1":-1}}').initialOffset()) == {"t": {"0": 3, "1": 0}}


def test_batch_follows_batch(path, db):
    stream = reader(path, startingOffsets="earliest")
    append(db, 5)
    first = stream.latestOffset(stored(stream.initialOffset()), ALL)
    assert planned(stream, stream.initialOffset(), first) == [("t", 0, 0, 5)]
    assert stream.latestOffset(stored(first), ALL) == first
    append(db, 2)
    append(db, 3, partition=1)
    second = stream.latestOffset(stored(first), ALL)
    assert planned(stream, first, second) == [("t", 0, 5, 7), ("t", 1, 0, 3)]
    assert stream.reportLatestOffset() == second


def test_where_the_first_batch_begins_outlives_a_restart(path, db):
    append(db, 5)
    stream = reader(path)
    begin = stream.initialOffset()
    append(db, 7)
    end = stream.latestOffset(stored(begin), ALL)
    append(db, 100)
    again = reader(path)  # the batch was planned, and is to be run by another process, to which "latest" is another offset
    assert offsets(again.initialOffset())["t"]["0"] == 112
    assert planned(again, again.initialOffset(), end) == [("t", 0, 5, 12)]


def test_a_first_batch_without_records_stays_without(path, db):
    stream = reader(path)
    begin = stream.initialOffset()
    assert stream.latestOffset(stored(begin), ALL) == begin
    append(db, 9)
    again = reader(path)
    assert planned(again, again.initialOffset(), begin) == []
    end = again.latestOffset(stored(begin), ALL)
    assert planned(again, begin, end) == [("t", 0, 0, 9)]
    third = again.latestOffset(stored(end), ALL)
    assert third == end
    append(db, 1)
    assert "start" not in again.latestOffset(stored(end), ALL)


def test_no_more_than_a_limit_shared_out_by_what_is_there(path, db):
    append(db, 30)
    append(db, 10, partition=1)
    stream = reader(path, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert offsets(first) == {"t": {"0": 15, "1": 5}}
    assert offsets(stream.latestOffset(first, limit)) == {"t": {"0": 30, "1": 10}}
    assert offsets(stream.latestOffset(stream.initialOffset(), ALL)) == {"t": {"0": 30, "1": 10}}  # Trigger.Once has no limits


def test_a_batch_waits_for_its_least(path, db):
    stream = reader(path, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    append(db, 1)
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert offsets(first)["t"]["0"] == 1
    append(db, 9)
    assert stream.latestOffset(first, limit) == first
    append(db, 1)
    assert offsets(stream.latestOffset(first, limit))["t"]["0"] == 11


def test_least_and_most_together(path, db):
    stream = reader(path, startingOffsets="earliest", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="12", maxTriggerDelay="1h")
    append(db, 20)
    first = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert offsets(first)["t"]["0"] == 12
    assert stream.latestOffset(first, stream.getDefaultReadLimit()) == first  # eight are left


def test_available_now_ends_where_the_logs_ended_then_and_waits_for_nothing(path, db):
    append(db, 15)
    stream = reader(path, startingOffsets="earliest", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="10", maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    stream.prepareForTriggerAvailableNow()
    append(db, 100)
    first = stream.latestOffset(stream.initialOffset(), limit)
    second = stream.latestOffset(first, limit)
    assert (offsets(first)["t"]["0"], offsets(second)["t"]["0"]) == (10, 15)
    assert stream.latestOffset(second, limit) == second


def test_new_partitions_are_read_from_their_begin(path, db):
    append(db, 5)
    stream = reader(path)
    begin = stream.latestOffset(stream.initialOffset(), ALL)
    db.alter_topic("t", partitions=3)
    append(db, 4, partition=2)
    assert planned(stream, begin, stream.latestOffset(begin, ALL)) == [("t", 2, 0, 4)]


def test_new_topics_of_a_pattern_are_read_from_their_begin(path, db):
    options = ReadOptions.of({"path": str(path), "subscribePattern": "^[tu]$"})
    stream = StreamReader(options, options.columns)
    begin = stream.initialOffset()
    for topic in ("u", "uu"):
        db.create_topic(topic)
        append(db, 3, topic=topic)
    assert planned(stream, begin, stream.latestOffset(begin, ALL)) == [("u", 0, 0, 3)]


def test_small_partitions_share_a_task_unless_more_are_wanted(path, db):
    db.create_topic("many", partitions=32)
    for partition in range(32):
        append(db, 2, partition, "many")
    for wish, count in [({}, 1), ({"minPartitions": "5"}, 5), ({"minPartitions": "64"}, 64), ({"maxRecordsPerPartition": "1"}, 1)]:
        stream = reader(path, subscribe="many", startingOffsets="earliest", **wish)
        begin = stream.initialOffset()
        end = stream.latestOffset(begin, ALL)
        assert len(stream.partitions(begin, end)) == count
        assert sum(last - first for _, _, first, last in planned(stream, begin, end)) == 64


def test_a_checkpoint_of_another_topic_is_refused(path, db):
    db.create_topic("other")
    begin = reader(path, subscribe="other").initialOffset()
    for fail in ("true", "false"):
        with pytest.raises(InvalidConfig, match="checkpointLocation='other': it belongs to topic 'other', which subscribe does not name"):
            reader(path, failOnDataLoss=fail).latestOffset(begin, ALL)


def test_a_checkpoint_of_another_database_is_a_loss(tmp_path, path, db):
    append(db, 5)
    with logdb.open(tmp_path / "other") as other:
        other.create_topic("t", partitions=2)
        append(other, 3, partition=1)
    begin = reader(path).initialOffset()
    with pytest.raises(DataLoss, match=r"checkpointLocation is of a topic 't' with id .* it belongs to another database"):
        reader(tmp_path / "other").latestOffset(begin, ALL)
    stream = reader(tmp_path / "other", failOnDataLoss="false")
    end = stream.latestOffset(stored(begin), ALL)
    assert planned(stream, begin, end) == [("t", 1, 0, 3)]
    with logdb.open(tmp_path / "other") as other:
        append(other, 2, partition=1)
    assert planned(stream, end, stream.latestOffset(stored(end), ALL)) == [("t", 1, 3, 5)]


def test_a_snapshot_goes_on_with_the_checkpoint_of_its_database(tmp_path, path, db):
    append(db, 5)
    begin = reader(path).initialOffset()
    append(db, 2)
    db.snapshot(tmp_path / "snapshot")
    stream = reader(tmp_path / "snapshot")
    assert planned(stream, begin, stream.latestOffset(begin, ALL)) == [("t", 0, 5, 7)]


def test_a_topic_that_went_is_a_loss(path, db):
    db.create_topic("u")
    options = {"path": str(path), "subscribePattern": "^[tu]$"}
    stream = StreamReader(ReadOptions.of(options), ("offset",))
    begin = stream.initialOffset()
    db.delete_topic("u")
    with pytest.raises(DataLoss, match="topic 'u', which was deleted"):
        stream.latestOffset(begin, ALL)
    append(db, 1)
    stream = StreamReader(ReadOptions.of(options | {"failOnDataLoss": "false"}), ("offset",))
    assert planned(stream, begin, stream.latestOffset(begin, ALL)) == [("t", 0, 0, 1)]


@pytest.mark.parametrize("found", [{}, {"version": 2, "topics": {}, "offsets": {}}, {"version": 1, "offsets": [], "topics": {}}])
def test_what_is_no_offset_of_ours_is_refused(path, db, found):
    with pytest.raises(InvalidConfig, match="checkpointLocation"):
        reader(path).latestOffset(found, ALL)


def test_of_committed_records_a_batch_ends_before_what_is_open(path, db):
    append(db, 2)
    with db.producer(transactional_id="x") as producer:
        producer.begin_transaction()
        producer.send("t", b"open", partition=0).result()
        stream = reader(path, startingOffsets="earliest", isolationLevel="read_committed")
        first = stream.latestOffset(stream.initialOffset(), ALL)
        assert planned(stream, stream.initialOffset(), first) == [("t", 0, 0, 2)]
        producer.commit_transaction()
    second = stream.latestOffset(first, ALL)
    assert planned(stream, first, second) == [("t", 0, 2, 4)]  # the record and its marker
