"""A datetime or a timedelta wherever milliseconds are taken; serializers by name."""

import datetime
import itertools
import time
from datetime import UTC, timedelta

import pytest

import logdb
from logdb import serde
from logdb.errors import InvalidConfig
from support.serving import served

AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_999, tzinfo=datetime.timezone(timedelta(hours=2)))
AT_MS = 1_714_972_089_123
NONE = timedelta(0)


@pytest.fixture(params=["path", "url"])
def db(request, tmp_path):
    if request.param == "path":
        with logdb.open(tmp_path / "db", linger_ms=timedelta(milliseconds=5)) as db:
            yield db
    else:
        with served(tmp_path / "db") as server, logdb.open(server.url, timeout_ms=timedelta(seconds=20)) as db:
            yield db


def test_records_get_the_time_of_a_datetime(db):
    db.create_topic("t", partitions=1)
    log = db.log("t")
    log.append(b"0", timestamp_ms=AT)
    log.append_many([b"1", b"2"], timestamps_ms=[AT, AT_MS])
    assert db.append("t", b"3", timestamp_ms=AT).timestamp_ms == AT_MS
    assert [at.timestamp_ms for at in db.append_many("t", [b"4", b"5"], timestamps_ms=[AT, None])] == [AT_MS, -1]
    with db.producer(linger_ms=timedelta(milliseconds=1), delivery_timeout_ms=timedelta(seconds=9)) as producer:
        producer.send("t", b"6", timestamp_ms=AT)
        producer.flush(timedelta(seconds=10))
        producer.close(timedelta(seconds=10))
    with db.transaction("tx", transaction_timeout_ms=timedelta(minutes=1)) as tx:
        tx.send("t", b"7", timestamp_ms=AT)
    found = itertools.islice(log.follow(0, timeout_ms=10_000), 8)  # in a cluster they are replicated first
    assert [r.timestamp_ms for r in found if r.value != b"5"] == [AT_MS] * 7
    for call in (lambda at: log.append(b"x", timestamp_ms=at), lambda at: log.append_many([b"x"], timestamps_ms=[at])):
        with pytest.raises(ValueError, match="has no time zone"):
            call(AT.replace(tzinfo=None))
        with pytest.raises(TypeError, match="timestamp"):
            call("2024")


def test_waits_take_a_timedelta(db):
    db.create_topic("t", partitions=1)
    began = time.monotonic()
    consumer = db.consumer("t", group_id="g", max_poll_interval_ms=timedelta(minutes=1), iteration_timeout_ms=NONE)
    assert list(consumer) == []
    assert consumer.poll(timedelta(milliseconds=1)) == {}
    consumer.seek_to_timestamp(AT)
    assert consumer.offsets_for_times({("t", 0): AT}) == {("t", 0): None}
    consumer.close()
    assert list(db.log("t").follow(0, timeout_ms=NONE)) == []
    assert list(db.watch(timeout_ms=NONE)) == []
    assert time.monotonic() - began < 30
    with pytest.raises(InvalidConfig, match="max_poll_interval_ms"):
        db.consumer("t", group_id="g", max_poll_interval_ms="1m")


def test_a_part_of_a_millisecond_is_not_lost(db):
    """A wait is at least as long as it was asked for: rounded up; a time is that of its millisecond: rounded down."""
    from logdb.model import duration_ms, timestamp_ms_of

    assert [duration_ms(timedelta(microseconds=n)) for n in (0, 1, 1000, 1001)] == [0, 1, 1, 2]
    assert timestamp_ms_of(AT) == AT_MS
    assert timestamp_ms_of(datetime.datetime(1969, 12, 31, 23, 59, 59, 999_001, tzinfo=UTC)) == -1


def test_serializers_by_name(db):
    db.create_topic("t", partitions=1)
    with db.producer(key_serializer="string", value_serializer="json") as producer:
        producer.send("t", {"n": 1}, key="ü")
    record = next(iter(db.log("t").follow(0, timeout_ms=10_000)))  # in a cluster it is replicated first
    assert (record.key, record.value) == ("ü".encode(), b'{"n":1}')
    consumer = db.consumer("t", auto_offset_reset="earliest", key_deserializer="string", value_deserializer="json")
    ((found,),) = consumer.poll(10_000).values()
    assert (found.key, found.value) == ("ü", {"n": 1})
    assert db.table("t", key_deserializer="string", value_deserializer="json")["ü"] == {"n": 1}
    with pytest.raises(TypeError, match=r"value_serializer='yaml': must be 'string', 'json'"):
        db.producer(value_serializer="yaml")
    assert serde.named("json") is serde.json
