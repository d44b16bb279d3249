import random
import sqlite3
from contextlib import closing, suppress

import pytest

from logdb_connect import ConnectError
from logdb_connect.connectors.capture.sqlite import SqliteCaptureConnector
from support.driven import SourceContext, records_of, source_task


@pytest.fixture
def shop(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.sqlite", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE customers (region TEXT, id INTEGER, name TEXT, photo BLOB, PRIMARY KEY (region, id))")
        yield connection


@pytest.fixture
def started(shop, tmp_path):
    tasks = []

    def start(context=None, **settings):
        named = {key.replace("__", "."): str(value) for key, value in settings.items()}
        properties = {"name": "c", "database.file": f"{tmp_path}/shop.sqlite", "topic.prefix": "shop", **named}
        tasks.append(task := source_task(SqliteCaptureConnector, properties, context))
        return task

    yield start
    for task in tasks:
        task.stop()


def brief(records):
    return [(each.headers[0].value, each.key, each.value and each.value["name"]) for each in records]


def key(region, number):
    return {"region": region, "id": number}


def test_a_snapshot_and_then_changes(shop, started):
    shop.execute("INSERT INTO customers VALUES ('N', 1, 'a', x'00ff'), ('N', 2, 'b', NULL)")
    task = started()
    shop.execute("INSERT INTO customers VALUES ('S', 3, 'c', NULL)")
    records = records_of(task, 2)
    assert brief(records) == [("r", key("N", 1), "a"), ("r", key("N", 2), "b"), ("r", key("S", 3), "c")]  # it sees the row, once
    assert records[0].value == {"region": "N", "id": 1, "name": "a", "photo": b"\0\xff"}
    assert (records[0].topic, records[0].key_schema.name) == ("shop.main.customers", "shop.main.customers.Key")
    shop.execute("UPDATE customers SET name = 'z' WHERE id = 1")
    shop.execute("UPDATE customers SET id = 20 WHERE id = 2")
    shop.execute("DELETE FROM customers WHERE id = 3")
    assert brief(records_of(task, 2)) == [
        ("u", key("N", 1), "z"),
        ("d", key("N", 2), None),
        ("c", key("N", 20), "b"),
        ("d", key("S", 3), None),
    ]
    assert shop.execute("SELECT count(*) FROM logdb_changes_customers").fetchone() == (0,)


def test_a_change_that_is_taken_back_is_none(shop, started):
    task = started()
    records_of(task, 2)
    shop.execute("BEGIN")
    shop.execute("INSERT INTO customers VALUES ('N', 1, 'a', NULL)")
    shop.execute("ROLLBACK")
    assert records_of(task, 2) == []


def test_debeziums_envelope(shop, started):
    shop.execute("INSERT INTO customers VALUES ('N', 1, 'a', NULL)")
    task = started(envelope="true")
    (read,) = records_of(task, 2)
    assert read.value["op"] == "r" and read.value["before"] is None and read.value["after"]["name"] == "a"
    assert read.value["source"] | {"ts_ms": 0, "db": ""} == {
        "version": "logdb",
        "connector": "sqlite",
        "name": "shop",
        "ts_ms": 0,
        "snapshot": "true",
        "db": "",
        "schema": "main",
        "table": "customers",
        "position": None,
    }
    assert [each.name for each in read.value_schema.fields] == ["before", "after", "source", "op", "ts_ms"]
    shop.execute("UPDATE customers SET name = 'b'")
    shop.execute("DELETE FROM customers")
    updated, deleted, tombstone = records_of(task, 2)
    assert (updated.value["before"]["name"], updated.value["after"]["name"], updated.value["op"]) == ("a", "b", "u")
    assert (deleted.value["before"]["name"], deleted.value["after"], deleted.value["op"]) == ("b", None, "d")
    assert (tombstone.key, tombstone.value) == (key("N", 1), None)
    assert started(**{"connector.class": "io.debezium.connector.x.Y"})._recorder._envelope


def test_a_snapshot_that_was_cut_off_begins_again(shop, started):
    shop.executemany("INSERT INTO customers VALUES ('N', ?, 'a', NULL)", [(each,) for each in range(5)])
    context = SourceContext()
    assert len(records_of(started(context, snapshot__fetch__size=2), 2)) == 4
    shop.execute("DELETE FROM customers WHERE id = 0")
    task = started(context, snapshot__fetch__size=2)
    assert [each.key["id"] for each in records_of(task, 3)] == [1, 2, 3, 4]
    assert brief(records_of(task, 2)) == []


def test_no_snapshot(shop, started):
    shop.execute("INSERT INTO customers VALUES ('N', 1, 'a', NULL)")
    context = SourceContext()
    task = started(context, snapshot__mode="no_data")
    assert records_of(task, 2) == []
    shop.execute("INSERT INTO customers VALUES ('N', 2, 'b', NULL)")
    assert brief(records_of(started(context, snapshot__mode="no_data"))) == [("c", key("N", 2), "b")]


def test_tables_and_columns_that_are_new(shop, started):
    task = started(table__include__list="main\\.(customers|ord.*)")
    records_of(task, 2)
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
    shop.execute("CREATE TABLE left_out (id INTEGER PRIMARY KEY, name TEXT)")
    shop.execute("INSERT INTO orders VALUES (1, 'before its triggers')")
    shop.execute("ALTER TABLE customers ADD COLUMN age INTEGER")
    records = records_of(task, 2)
    assert [(each.topic, each.value["name"]) for each in records] == [("shop.main.orders", "before its triggers")]
    shop.execute("INSERT INTO customers VALUES ('N', 1, 'a', NULL, 7)")
    assert records_of(task, 2)[0].value == {"region": "N", "id": 1, "name": "a", "photo": None, "age": 7}
    assert not [name for (name,) in shop.execute("SELECT name FROM sqlite_schema") if "left_out" in name and name != "left_out"]


def test_killed_at_any_poll_it_gives_each_change_once(shop, started):
    rng, context, records = random.Random(7), SourceContext(), []
    records += records_of(started(context), 2)
    for _ in range(40):
        for _ in range(rng.randrange(6)):
            number = rng.randrange(9)
            with suppress(sqlite3.IntegrityError):
                shop.execute("INSERT INTO customers VALUES ('N', ?, 'new', NULL)", (number,))
            shop.execute("UPDATE customers SET name = name || '+' WHERE id = ?", (rng.randrange(9),))
            if rng.random() < 0.3:
                shop.execute("DELETE FROM customers WHERE id = ?", (rng.randrange(9),))
        task = started(context, max__batch__size=rng.randrange(1, 5))
        records += records_of(task, rng.randrange(3))
        if rng.random() < 0.5:
            records_of(task, commit=False)  # it dies before the commit
        task.stop()
    records += records_of(started(context, max__batch__size=1000), 2)
    positions = [each.source_offset["positions"]["customers"] for each in records]
    assert positions == list(range(1, len(records) + 1))  # no key changes: a record is a change
    state = {}
    for each in records:
        state[each.key["id"]] = each.value and each.value["name"]
    rows = dict(shop.execute("SELECT id, name FROM customers"))
    assert {number: name for number, name in state.items() if name is not None} == rows != {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"database.file": "/none.sqlite"}, "There is no SQLite database /none.sqlite"),
        ({"table.include.list": "("}, "is no regular expression"),
        ({"table.include.list": "a", "table.exclude.list": "b"}, "are exclusive"),
    ],
)
def test_settings_that_are_wrong(shop, tmp_path, settings, message):
    task = SqliteCaptureConnector.task_class()
    task.context = SourceContext()
    with pytest.raises(ConnectError, match=message):
        task.start({"database.file": f"{tmp_path}/shop.sqlite", "topic.prefix": "shop", **settings})
    task.stop()
