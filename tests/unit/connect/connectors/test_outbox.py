import json
import sqlite3
from contextlib import closing

import pytest

from logdb_connect import ConnectError, DataError, RetriableError
from logdb_connect.connectors.outbox import OutboxSourceConnector
from support.driven import SourceContext, records_of, source_task

TABLE = """CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, aggregatetype TEXT, aggregateid TEXT, type TEXT,
                                payload, event TEXT, made TEXT)"""


@pytest.fixture
def shop(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.sqlite", isolation_level=None)) as connection:
        connection.execute(TABLE)
        yield connection


@pytest.fixture
def started(shop, tmp_path):
    tasks = []

    def start(context=None, **settings):
        named = {key.replace("__", "."): str(value) for key, value in settings.items()}
        properties = {"name": "o", "connection.url": f"sqlite:///{tmp_path}/shop.sqlite", **named}
        tasks.append(task := source_task(OutboxSourceConnector, properties, context))
        return task

    yield start
    for task in tasks:
        task.stop()


def put(shop, number, kind="order", **more):
    row = {"aggregatetype": kind, "aggregateid": f"k{number}", "type": "made", "payload": json.dumps({"n": number}), **more}
    shop.execute(f"INSERT INTO outbox ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def test_rows_become_records_in_order(shop, started):
    put(shop, 1), put(shop, 2, "customer"), put(shop, 3)
    task = started(batch__max__rows=2)
    records = records_of(task, 2)
    assert [(each.topic, each.key, each.value) for each in records] == [
        ("outbox.event.order", "k1", '{"n": 1}'),
        ("outbox.event.customer", "k2", '{"n": 2}'),
        ("outbox.event.order", "k3", '{"n": 3}'),
    ]
    assert [(each.key, each.value) for each in records[0].headers] == [("id", "1")]
    assert task.context.offsets == {frozenset({("table", "outbox")}): {"number": 3}}
    assert records_of(task, 2) == [] and task.context.waited == [0.5]
    assert shop.execute("SELECT count(*) FROM outbox").fetchone() == (3,)


def test_it_continues_behind_the_last_stored_record(shop, started):
    context = SourceContext()
    put(shop, 1), put(shop, 2)
    records_of(started(context))
    put(shop, 3), put(shop, 4)
    records_of(started(context), commit=False)  # it dies before the commit
    assert [each.key for each in records_of(started(context))] == ["k3", "k4"]


def test_rows_are_deleted_when_their_records_are_stored(shop, started):
    context = SourceContext()
    put(shop, 1), put(shop, 2)
    task = started(context, outbox__delete__enabled="true")
    records_of(task, commit=False)
    assert shop.execute("SELECT count(*) FROM outbox").fetchone() == (2,)
    records_of(started(context, outbox__delete__enabled="true"))
    assert shop.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    put(shop, 3)
    assert [each.key for each in records_of(started(context, outbox__delete__enabled="true"))] == ["k3"]


def test_a_locked_table_keeps_its_rows_until_later(shop, started, monkeypatch):
    monkeypatch.setattr("logdb_connect.connectors.sql.connection.BUSY_SECONDS", 0.01)
    put(shop, 1)
    task = started(outbox__delete__enabled="true")
    shop.execute("BEGIN IMMEDIATE")
    assert [each.key for each in records_of(task)] == ["k1"]
    shop.execute("COMMIT")
    shop.execute("BEGIN EXCLUSIVE")
    with pytest.raises(RetriableError, match="is locked"):
        task.poll(), task.poll()
    shop.execute("COMMIT")
    put(shop, 2)
    assert [each.key for each in records_of(task, 2)] == ["k2"]
    assert shop.execute("SELECT count(*) FROM outbox").fetchone() == (0,)


def test_routing_headers_envelope_and_timestamp(shop, started):
    put(shop, 1, "shop-order", event="e1", made="2026-01-01 00:00:00")
    task = started(
        route__topic__regex="shop-(?<name>.*)",
        route__topic__replacement="events.${name}",
        table__field__event__id="event",
        incrementing__column__name="id",
        table__field__event__timestamp="made",
        table__fields__additional__placement="type:header:eventType,type:envelope",
        table__expand__json__payload="true",
    )
    (record,) = records_of(task)
    assert (record.topic, record.value, record.timestamp_ms) == ("events.order", {"payload": {"n": 1}, "type": "made"}, 1767225600000)
    assert [(each.key, each.value) for each in record.headers] == [("id", "e1"), ("eventType", "made")]


def test_a_time_before_1970_is_that_of_its_millisecond(shop, started):
    times = ["1969-12-31 23:59:59.999", "1969-12-31T23:59:59.998+00:00", "1969-12-31 23:58:54.474", "0001-01-01", "1970-01-01"]
    for number, made in enumerate(times):
        put(shop, number, made=made)
    found = records_of(started(table__field__event__timestamp="made"), len(times))
    assert [one.timestamp_ms for one in found] == [-1, -2, -65_526, -62_135_596_800_000, 0]


@pytest.mark.parametrize(("payload", "settings", "expected"), [(None, {}, None), ("", {}, ""), (b"\0\1", {}, b"\0\1")])
def test_payloads(shop, started, payload, settings, expected):
    put(shop, 1, payload=payload)
    assert records_of(started(**settings))[0].value == expected
    assert records_of(started(route__tombstone__on__empty__payload="true"))[0].value == (expected or None)


def test_a_row_that_has_no_topic_stops_the_task(shop, started):
    put(shop, 1, None)
    with pytest.raises(DataError, match=r"The row 1 of outbox has aggregatetype=None: it must match"):
        started().poll()


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ("CREATE TABLE other (id INTEGER PRIMARY KEY AUTOINCREMENT)", {}, "has no column aggregateid, payload, aggregatetype"),
        (TABLE.replace("outbox", "other").replace("AUTOINCREMENT", ""), {}, "must be INTEGER PRIMARY KEY AUTOINCREMENT"),
        (TABLE.replace("outbox", "other"), {"incrementing.column.name": "type"}, "must be a growing number"),
        (TABLE.replace("outbox", "another"), {}, "There is no table other"),
    ],
)
def test_a_table_that_is_no_outbox(shop, started, table, settings, message):
    shop.execute(table)
    with pytest.raises(ConnectError, match=message):
        started(table__include__list="other", **settings)


@pytest.mark.parametrize(
    ("name", "value"), [("table.fields.additional.placement", "type:footer"), ("route.topic.regex", "("), ("db.timezone", "Nowhere")]
)
def test_settings_that_are_wrong(name, value):
    assert list(OutboxSourceConnector().validate({"connection.url": "sqlite:///x", name: value})) == [name]
