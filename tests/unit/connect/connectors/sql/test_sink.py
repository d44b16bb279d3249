import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from sqlalchemy import event

from logdb import OffsetAndMetadata, TopicPartition
from logdb_connect import ConfigError, ConnectError, RetriableError, Schema, struct
from logdb_connect.connectors.sql.sink import JdbcSinkConnector
from logdb_connect.data import DATE, DECIMAL, OPTIONAL_STRING, STRING, TIME, TIMESTAMP, Header
from support.driven import SinkContext, sink_records, sink_task

INT = Schema(type="int32")
ROW = struct("row", id=INT, name=OPTIONAL_STRING)
KEY = struct("key", id=INT)
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "shop.sqlite"


@pytest.fixture
def started(file):
    tasks = []

    def start(context=None, **settings):
        named = {key.replace("__", "."): str(value) for key, value in settings.items()}
        properties = {"name": "shop", "connection.url": f"jdbc:sqlite:{file}", "auto.create": "true", "auto.evolve": "true", **named}
        tasks.append(task := sink_task(JdbcSinkConnector, properties, context))
        task.open([ORDERS])
        return task

    yield start
    for task in tasks:
        task.stop()


def ask(file, query, *values):
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(query, values).fetchall()


def upserts(**more):
    return {"insert__mode": "upsert", "pk__mode": "record_key", "delete__enabled": "true", **more}


def test_insert_creates_and_extends_the_table(file, started):
    task = started()
    task.put(sink_records("orders", [{"id": 1, "name": "a"}, {"id": 2, "name": None}], value_schema=ROW))
    more = struct("row", id=INT, name=OPTIONAL_STRING, paid=Schema(type="boolean", optional=True))
    task.put(sink_records("orders", [{"id": 3, "name": "c", "paid": True}], value_schema=more, start=2))
    assert ask(file, "SELECT * FROM orders") == [(1, "a", None), (2, None, None), (3, "c", 1)]
    types = {name: (kind, bool(needed)) for _, name, kind, needed, *_ in ask(file, "PRAGMA table_info(orders)")}
    assert types == {"id": ("INTEGER", True), "name": ("TEXT", False), "paid": ("BOOLEAN", False)}


def test_upserts_and_tombstones_leave_the_last_state_of_each_key(file, started):
    task = started(**upserts())
    keys = [{"id": each} for each in (1, 2, 1, 1, 3, 3)]
    values = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 1, "name": "c"}, None, {"id": 3, "name": "x"}, {"id": 3, "name": "y"}]
    task.put(sink_records("orders", values, keys=keys, key_schema=KEY, value_schema=ROW))
    assert ask(file, "SELECT * FROM orders") == [(2, "b"), (3, "y")]


def test_upserts_and_deletes_of_many_keys_are_few_statements(file, started):
    task, statements = started(**upserts()), []
    event.listen(task._engine, "before_cursor_execute", lambda *given: statements.append(given[2].split()[0]))
    numbers = [each % 7 for each in range(100)]
    values = [None if each % 3 == 0 else {"id": number, "name": f"n{each}"} for each, number in enumerate(numbers)]
    keys = [{"id": number} for number in numbers]
    task.put(sink_records("orders", values, keys=keys, key_schema=KEY, value_schema=ROW))
    last = dict(zip(numbers, values, strict=True))
    assert ask(file, "SELECT * FROM orders") == [(number, row["name"]) for number, row in sorted(last.items()) if row]
    assert statements.count("DELETE") == 1 and statements.count("INSERT") == 2  # the rows, and the offset
    names = struct("key", name=STRING)  # of these a collation decides which are equal: each in its order
    task.put(
        sink_records(
            "names", [{"id": 1}, None, {"id": 2}], keys=[{"name": each} for each in "aAa"], key_schema=names, value_schema=struct(id=INT)
        )
    )
    assert statements.count("DELETE") == 2 and ask(file, "SELECT * FROM names") == [("a", 2)]


def test_a_delete_from_a_table_that_does_not_exist_is_done(file, started):
    task = started(**upserts(auto__evolve="false"))
    task.put(sink_records("orders", [None, {"id": 2, "name": "b"}], keys=[{"id": 1}, {"id": 2}], key_schema=KEY, value_schema=ROW))
    task.put(sink_records("none", [None], keys=[{"id": 1}], key_schema=KEY))
    assert ask(file, "SELECT * FROM orders") == [(2, "b")]
    assert ask(file, "SELECT topic, next_offset FROM logdb_connect_offsets ORDER BY 1") == [("none", 1), ("orders", 2)]


def test_a_record_is_stored_once_whatever_is_given_again(file, started):
    records = sink_records("orders", [{"id": each, "name": None} for each in range(4)], value_schema=ROW)
    started().put(records[:3])  # it dies before the worker commits the offsets
    task = started(context := SinkContext({ORDERS: OffsetAndMetadata(1)}))
    assert context.sought == {ORDERS: 3}
    task.put(records[1:])  # as a task that has not sought would give it
    assert ask(file, "SELECT id FROM orders") == [(0,), (1,), (2,), (3,)]
    assert ask(file, "SELECT * FROM logdb_connect_offsets") == [("shop", "orders", 0, 4)]


def test_rows_and_offsets_are_stored_together_or_not_at_all(file, started):
    started().put(sink_records("orders", [{"id": 0, "name": "a"}], value_schema=ROW))
    ask(file, "CREATE TRIGGER full BEFORE INSERT ON orders WHEN new.id = 2 BEGIN SELECT RAISE(ABORT, 'full'); END")
    task = started()
    task.put(sink_records("orders", [{"id": each, "name": "b"} for each in (1, 2, 3)], value_schema=ROW, start=1))
    assert ask(file, "SELECT id FROM orders") == [(0,), (1,), (3,)]  # the others one by one
    ((record, error),) = task.context.reported
    assert (record.offset, str(error)) == (2, "The record orders-0@2 was refused: full")
    assert ask(file, "SELECT next_offset FROM logdb_connect_offsets") == [(4,)]


def test_without_a_table_of_offsets_records_come_at_least_once(file, started):
    task = started(connect__offsets__table="")
    record = sink_records("orders", [{"id": 1, "name": None}], value_schema=ROW)
    task.put(record)
    task.put(record)
    assert ask(file, "SELECT id FROM orders") == [(1,), (1,)]
    assert ask(file, "SELECT name FROM sqlite_schema") == [("orders",)]


def test_a_locked_database_is_tried_again_and_then_given_up(file, started, monkeypatch):
    monkeypatch.setattr("logdb_connect.connectors.sql.connection.BUSY_SECONDS", 0.01)
    task = started(max__retries=2, retry__backoff__ms=70)
    records = sink_records("orders", [{"id": 1, "name": None}], value_schema=ROW)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(RetriableError, match=r"cannot be used now: database is locked\. Retry is safe\."):
                task.put(records)
        with pytest.raises(ConnectError, match="2 retries failed") as caught:
            task.put(records)
        assert not isinstance(caught.value, RetriableError)
    assert task.context.waited == [0.07, 0.07]
    task.put(records)
    assert ask(file, "SELECT id FROM orders") == [(1,)]


def test_logical_types(file, started):
    schema = struct(
        "all",
        amount=Schema(type="bytes", name=DECIMAL, parameters=(("scale", "2"),)),
        day=Schema(type="int32", name=DATE),
        at=Schema(type="int32", name=TIME),
        since=Schema(type="int64", name=TIMESTAMP),
        raw=Schema(type="bytes"),
        ratio=Schema(type="float64"),
    )
    value = {
        "amount": Decimal("12.50"),
        "day": date(2026, 2, 3),
        "at": time(1, 2, 3),
        "since": datetime(2026, 7, 1, 12, 0, 0, 250_000, UTC),
        "raw": b"\0\xff",
        "ratio": 0.5,
    }
    started(db__timezone="Europe/Zurich").put(sink_records("orders", [value], value_schema=schema))
    assert ask(file, "SELECT * FROM orders") == [(12.5, "2026-02-03", "01:02:03", "2026-07-01 14:00:00.250000", b"\0\xff", 0.5)]


@pytest.mark.parametrize(
    ("settings", "key", "expected"),
    [
        ({"pk__mode": "kafka"}, None, {"__connect_topic": "orders", "__connect_partition": 0, "__connect_offset": 0, "id": 7, "name": "n"}),
        ({"pk__mode": "kafka", "pk__fields": "t,p,o"}, None, {"t": "orders", "p": 0, "o": 0, "id": 7, "name": "n"}),
        ({"pk__mode": "record_key", "pk__fields": "k"}, "x", {"k": "x", "id": 7, "name": "n"}),
        ({"pk__mode": "record_value", "pk__fields": "id", "fields__whitelist": "name"}, None, {"id": 7, "name": "n"}),
        ({"pk__mode": "record_value", "pk__fields": "id", "fields__whitelist": "id"}, None, {"id": 7}),
        ({"pk__mode": "record_header", "pk__fields": "h"}, None, {"h": "head", "id": 7, "name": "n"}),
    ],
)
def test_the_primary_key(file, started, settings, key, expected):
    (record,) = sink_records("orders", [{"id": 7, "name": "n"}], keys=[key], key_schema=STRING if key else None, value_schema=ROW)
    started(**settings).put([record.replace(headers=[Header("h", "head", STRING)])])
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        assert dict(connection.execute("SELECT * FROM orders").fetchone()) == expected
    primary = [name for _, name, _, _, _, place in ask(file, "PRAGMA table_info(orders)") if place]
    assert primary == list(expected)[: len(primary)] and len(primary) in {1, 3}


def test_records_without_schema(file, started):
    ask(file, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, tags JSON)")
    task = started(insert__mode="upsert", pk__mode="record_value", pk__fields="id")
    values = [{"id": 1, "name": "a", "tags": ["x"]}, {"id": 2, "name": None, "none": None}, {"id": 1, "name": None, "tags": {"k": "ä"}}]
    task.put(sink_records("orders", values))
    assert ask(file, "SELECT * FROM orders") == [(1, None, '{"k":"ä"}'), (2, None, None)]


def test_update_changes_rows_that_there_are(file, started):
    ask(file, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    ask(file, "INSERT INTO orders VALUES (1, 'old')")
    task = started(insert__mode="update", pk__mode="record_value", pk__fields="id")
    task.put(sink_records("orders", [{"id": 1, "name": "new"}, {"id": 2, "name": "none"}], value_schema=ROW))
    assert ask(file, "SELECT * FROM orders") == [(1, "new")]


def test_names_are_quoted(file, started):
    name = 'x"; DROP TABLE orders; -- %s :a'
    started(table__name__format="${topic}" + name).put(sink_records("orders", [{name: "v", "select": "w"}]))
    assert ask(file, "SELECT name FROM sqlite_schema WHERE name LIKE 'orders%'") == [("orders" + name,)]
    assert ask(file, 'SELECT * FROM "orders' + name.replace('"', '""') + '"') == [("v", "w")]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (sink_records("orders", ["text"], value_schema=STRING), "must have a struct as its value, not string"),
        (sink_records("orders", [None], keys=[{"id": 1}], key_schema=KEY), "has no value: tombstones need delete.enabled=true"),
        (sink_records("orders", [{"id": 1 << 70}]), "was refused"),
        (sink_records("orders", [{"id": {"a": 1}}]), "keeps no struct"),
    ],
)
def test_a_record_that_fits_no_row_is_reported(started, file, records, message):
    ask(file, "CREATE TABLE orders (id INTEGER)")
    task = started()
    task.put([*records, *sink_records("orders", [{"id": 5}], start=1)])
    ((record, error),) = task.context.reported
    assert record.offset == 0 and message in str(error)
    assert str(error).count("orders-0@0") == 1
    assert ask(file, "SELECT * FROM orders") == [(5,)]


def test_a_missing_table_or_column_fails_the_task(file, started):
    with pytest.raises(ConnectError, match='Table "orders" is missing and auto-creation is disabled'):
        started(auto__create="false").put(sink_records("orders", [{"id": 1}]))
    ask(file, "CREATE TABLE orders (id INTEGER)")
    with pytest.raises(ConnectError, match=r"missing fields \(name\) and auto-evolution is disabled"):
        started(auto__evolve="false").put(sink_records("orders", [{"id": 1, "name": "x"}]))
    needed = struct("row", id=INT, must=INT)
    with pytest.raises(ConnectError, match="add missing field must, as the field is not optional"):
        started().put(sink_records("orders", [{"id": 1, "must": 2}], value_schema=needed))


def test_offsets_that_an_administrator_sets_are_taken(file, started):
    started().put(sink_records("orders", [{"id": each} for each in range(5)]))
    properties = {"name": "shop", "connection.url": f"sqlite:///{file}"}
    JdbcSinkConnector().alter_offsets(properties, {ORDERS: 2})
    task = started(context := SinkContext({ORDERS: OffsetAndMetadata(2)}))
    assert context.sought == {ORDERS: 2}, "the worker notices if the log does not have it"
    task.put(sink_records("orders", [{"id": 20}], start=2))
    JdbcSinkConnector().alter_offsets(properties, {ORDERS: None})
    started(context := SinkContext()).put(sink_records("orders", [{"id": 30}]))
    assert ask(file, "SELECT id FROM orders") == [(0,), (1,), (2,), (3,), (4,), (20,), (30,)]


@pytest.mark.parametrize(
    ("settings", "name", "message"),
    [
        ({"insert.mode": "upsert"}, "pk.mode", "needs a primary key"),
        ({"delete.enabled": "true"}, "delete.enabled", "needs pk.mode=record_key"),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, "pk.fields", "needs three names"),
        ({"db.timezone": "Mars/Olympus"}, "db.timezone", "no time zone"),
        ({"connection.url": "jdbc:oracle:thin:@h:1"}, "connection.url", "oracle is not supported; use sqlite, postgresql"),
    ],
)
def test_settings_that_do_not_fit_together(settings, name, message):
    faults = JdbcSinkConnector().validate({"connection.url": "sqlite:///x", **settings})
    assert list(faults) == [name] and message in faults[name]
    with pytest.raises(ConfigError, match=r"insert\.mode"):
        JdbcSinkConnector().validate({"connection.url": "sqlite:///x", "insert.mode": "merge"})
