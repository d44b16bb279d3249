"""A datetime or a timedelta wherever milliseconds are taken; serializers by name."""

import ast
import asyncio
import dataclasses
import datetime
import inspect
import itertools
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path

import pytest

import logdb
from logdb import serde
from logdb.errors import InvalidConfig
from support.serving import served

AT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_999, tzinfo=datetime.timezone(timedelta(hours=2)))
AT_MS = 1_714_972_089_123
NONE = timedelta(0)
EXTENSION = ast.parse((Path(logdb.__file__).parent / "_native" / "_hot.pyi").read_text(encoding="utf-8"))
# What logdb makes and returns; and the session, whose requests have the numbers that go over the wire.
RETURNED = {logdb.ConsumedRecord, logdb.OpenTransaction, logdb.RecordMetadata, logdb.TableEntry, logdb.TransactionInfo}
OF_REQUESTS = {logdb.Session}


def functions_of(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign]:
    """The functions behind a public name, each overload of its own, and the fields that a caller may give; from the source."""
    public = getattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2])
    if not inspect.isclass(public):
        if callable(public):
            home = ast.parse(inspect.getsource(sys.modules[public.__module__]))
            yield from (node for node in home.body if isinstance(node, ast.FunctionDef) and node.name == public.__name__)
        return
    if public in RETURNED | OF_REQUESTS or issubclass(public, BaseException):
        return
    for kind in public.__mro__:
        if kind.__module__ == "logdb._native._hot":
            (made,) = (node for node in EXTENSION.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
        elif kind.__module__.startswith("logdb."):
            made = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        else:
            continue
        fields = "__init__" not in {getattr(node, "name", "") for node in made.body}
        for node in made.body:
            constructs = getattr(node, "name", "") in {"__init__", "__new__"} and (dataclasses.is_dataclass(kind) or kind is logdb.Record)
            if (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (constructs or not node.name.startswith("_"))) or (
                isinstance(node, ast.AnnAssign) and fields
            ):
                yield node


def given_times(name: str) -> Iterator[tuple[str, str, str]]:
    """Each parameter and field in milliseconds: the function, its name and its annotation."""
    for node in functions_of(name):
        if isinstance(node, ast.AnnAssign):
            found = [(ast.unparse(node.target), node.annotation)]
        else:
            found = [(one.arg, one.annotation) for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        for parameter, annotation in found:
            if parameter.endswith("_ms"):
                assert annotation is not None, (name, parameter)
                yield f"{name}.{getattr(node, 'name', '')}", parameter, ast.unparse(annotation)


def test_each_parameter_in_milliseconds_takes_a_timedelta_or_a_datetime() -> None:
    names = [f"{module.__name__}.{name}" for module in (logdb, logdb.aio) for name in module.__all__]
    found = [one for name in names for one in given_times(name)]
    assert len(found) > 50 and {"timeout_ms", "timestamps_ms", "linger_ms", "iteration_timeout_ms"} <= {name for _, name, _ in found}
    assert [one for one in found if ("Timestamp" if "timestamp" in one[1] else "Duration") not in one[2]] == []


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


def test_a_table_and_a_watch_wait_for_a_timedelta(db):
    db.create_topic("t", partitions=1)
    table, watch = db.table("t"), db.watch()
    offset = db.append("t", b"1", b"k").offset
    db.flush()
    assert table.wait_for({("t", 0): offset}, timedelta(seconds=20)) and table.catch_up(timedelta(seconds=20))
    assert not table.wait_for({("t", 0): offset + 1}, timedelta(milliseconds=1))
    creating = threading.Timer(0.01, db.create_topic, ("u",))
    creating.start()
    assert watch.next_within(timedelta(seconds=20)).topic.name == "u"
    creating.join()


def test_the_same_for_asyncio(tmp_path):
    async def work() -> None:
        async with logdb.aio.open(tmp_path / "db", linger_ms=NONE) as db:
            await db.create_topic("t", partitions=1)
            table = await db.table("t")
            offset = (await db.append("t", b"1", b"k")).offset
            assert await table.wait_for({("t", 0): offset}, timedelta(seconds=20)) and await table.catch_up(timedelta(seconds=20))
            async with db.transaction("x", transaction_timeout_ms=timedelta(minutes=1)) as tx:
                await tx.send("t", b"2", timestamp_ms=AT)

    asyncio.run(work())


def test_the_options_of_a_consumer_take_a_timedelta(db):
    assert logdb.ConsumerConfig(max_poll_interval_ms=timedelta(minutes=1), iteration_timeout_ms=NONE, heartbeat_interval_ms=NONE)
    for wrong in (NONE, timedelta(days=-1), "1m", 1.5):
        with pytest.raises(InvalidConfig, match="max_poll_interval_ms"):
            logdb.ConsumerConfig(max_poll_interval_ms=wrong)


def test_a_record_that_an_interceptor_or_a_test_makes_has_the_time_of_a_datetime(db):
    class Dated(logdb.Interceptor):
        def on_send(self, record: logdb.OutgoingRecord) -> logdb.OutgoingRecord:
            return dataclasses.replace(record, timestamp_ms=AT)

    db.create_topic("t", partitions=1)
    with db.producer(interceptors=[Dated()]) as producer:
        producer.send("t", b"1")
    (record,) = itertools.islice(db.log("t").follow(0, timeout_ms=10_000), 1)
    assert record.timestamp_ms == AT_MS == logdb.Record(b"1", timestamp_ms=AT).timestamp_ms
    assert logdb.OutgoingRecord(topic="t", value=b"1", timestamp_ms=AT).timestamp_ms == AT_MS
    assert logdb.OutgoingRecord(topic="t", value=b"1").timestamp_ms is None
    for make in (lambda at: logdb.OutgoingRecord(topic="t", value=b"1", timestamp_ms=at), lambda at: logdb.Record(timestamp_ms=at)):
        with pytest.raises(ValueError, match="has no time zone"):
            make(AT.replace(tzinfo=None))


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
