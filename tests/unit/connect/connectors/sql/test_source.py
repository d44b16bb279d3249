import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from logdb_connect import ConnectError, RetriableError, Schema
from logdb_connect.connectors.sql.source import JdbcSourceConnector
from logdb_connect.data import DECIMAL, TIMESTAMP
from support.driven import SourceContext, records_of, source_task, started_connector


@pytest.fixture
def file(tmp_path):
    ask(tmp_path / "shop.sqlite", "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, changed DATETIME)")
    return tmp_path / "shop.sqlite"


@pytest.fixture
def started(file):
    tasks = []

    def start(context=None, **settings):
        tasks.append(task := source_task(JdbcSourceConnector, given(file, **settings), context))
        return task

    yield start
    for task in tasks:
        task.stop()


def given(file, **settings):
    named = {key.replace("__", "."): str(value) for key, value in settings.items()}
    return {"name": "shop", "connection.url": f"jdbc:sqlite:{file}", "topic.prefix": "db-", "poll.interval.ms": "0", **named}


def ask(file, query, *values):
    with closing(sqlite3.connect(file)) as connection, connection:
        return connection.execute(query, values).fetchall()


def ids(records):
    return [each.value["id"] for each in records]


def test_incrementing(file, started):
    for number in (-5, 1, 2, 3, 4, 5):
        ask(file, "INSERT INTO orders (id, name) VALUES (?, ?)", number, f"n{number}")
    task = started(mode="incrementing", batch__max__rows=4)
    records = records_of(task, 3)
    assert ids(records) == [-5, 1, 2, 3, 4, 5]
    assert {each.topic for each in records} == {"db-orders"}
    assert records[1].value == {"id": 1, "name": "n1", "changed": None}
    schema = records[0].value_schema
    assert (schema.name, [(each.name, each.schema.type, each.schema.optional) for each in schema.fields]) == (
        "orders",
        [("id", "int64", False), ("name", "string", True), ("changed", "int64", True)],
    )
    assert task.context.offsets == {frozenset({("protocol", "1"), ("table", "orders")}): {"incrementing": 5}}
    ask(file, "INSERT INTO orders (id) VALUES (6)")
    assert ids(records_of(task)) == [6]
    assert records_of(task) == []


def test_it_continues_behind_the_last_committed_batch(file, started):
    ask(file, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) INSERT INTO orders (id) SELECT i FROM n")
    context = SourceContext()
    first = started(context, mode="incrementing", batch__max__rows=3)
    assert ids(records_of(first)) == [1, 2, 3]
    assert ids(records_of(first, commit=False)) == [4, 5, 6]  # it dies before the commit
    assert ids(records_of(started(context, mode="incrementing", batch__max__rows=100))) == [4, 5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_rows_of_the_same_time_come_once(file, started, mode, size):
    moments = [
        "2026-01-01 00:00:00",
        "2026-01-01 00:00:00.000000",
        "2026-01-01 00:00:00",
        "2026-01-01 00:00:01.5",
        "2026-01-01 00:00:01.500",
    ]
    for number, moment in enumerate(moments, 1):
        ask(file, "INSERT INTO orders VALUES (?, '', ?)", number, moment)
    ask(file, "INSERT INTO orders VALUES (99, 'future', '2999-01-01 00:00:00')")
    settings = {"mode": mode, "timestamp__column__name": "changed", "validate__non__null": "false", "batch__max__rows": size}
    context = SourceContext()
    records = []
    for _ in range(8):  # each from the offset of the one before
        records += records_of(started(context, **settings))
    assert sorted(ids(records)) == [1, 2, 3, 4, 5]
    assert records[0].value["changed"] == datetime(2026, 1, 1, tzinfo=UTC)
    (offset,) = context.offsets.values()
    assert (offset["timestamp"], offset["timestamp_nanos"]) == (1767225601500, 500_000_000)
    ask(file, "UPDATE orders SET changed = '2026-01-01 00:00:02' WHERE id = 2")
    assert ids(records_of(started(context, **settings))) == [2]


def test_the_delay_and_the_beginning(file, started):
    now = datetime.now(UTC).replace(tzinfo=None)
    ask(file, "INSERT INTO orders VALUES (1, '', '2020-01-01 00:00:00'), (2, '', ?)", str(now))
    settings = {"mode": "timestamp", "timestamp__column__name": "changed", "validate__non__null": "false"}
    assert ids(records_of(started(timestamp__delay__interval__ms=3_600_000, **settings))) == [1]
    assert ids(records_of(started(timestamp__initial=1_600_000_000_000, **settings))) == [2]
    assert ids(records_of(started(timestamp__initial=-1, **settings))) == []


def test_bulk_gives_all_rows_at_each_round(file, started):
    ask(file, "INSERT INTO orders (id) VALUES (1), (2), (3)")
    task = started(mode="bulk", batch__max__rows=2)
    assert ids(records_of(task, 2)) == [1, 2, 3]
    ask(file, "DELETE FROM orders WHERE id = 2")
    assert ids(records_of(task, 2)) == [1, 3]


def test_a_query(file, started):
    ask(file, "INSERT INTO orders VALUES (1, 'a:b', NULL), (2, '100%', '2026-01-01'), (3, NULL, NULL)")
    settings = {"query": "SELECT id, name, id * 0.5 AS half, 'a:b %' AS text FROM orders WHERE id > 1;", "topic__prefix": "halves"}
    records = records_of(started(mode="incrementing", incrementing__column__name="id", **settings))
    assert [each.value for each in records] == [
        {"id": 2, "name": "100%", "half": 1.0, "text": "a:b %"},
        {"id": 3, "name": None, "half": 1.5, "text": "a:b %"},
    ]
    assert [(each.name, each.schema.type) for each in records[0].value_schema.fields] == [
        ("id", "int64"),
        ("name", "string"),
        ("half", "float64"),
        ("text", "string"),
    ]
    assert {each.topic for each in records} == {"halves"} and records[0].source_partition == {"query": "query"}
    assert ids(records_of(started(mode="bulk", **settings))) == [2, 3]


@pytest.mark.parametrize(
    ("mapping", "expected"), [("none", "bytes"), ("precision_only", "bytes"), ("best_fit", "float64"), ("best_fit_eager_double", "float64")]
)
def test_numeric_mapping(file, started, mapping, expected):
    ask(file, "CREATE TABLE prices (id INTEGER PRIMARY KEY, price DECIMAL(8, 2), count DECIMAL(8))")
    ask(file, "INSERT INTO prices VALUES (1, 12.5, 7)")
    (record,) = records_of(started(mode="incrementing", table__whitelist="prices", numeric__mapping=mapping))
    assert record.value_schema.field("price").schema.type == expected
    assert record.value["price"] == 12.5
    if mapping == "none":
        price = record.value_schema.field("price").schema
        assert price == Schema(type="bytes", name=DECIMAL, optional=True, parameters=(("scale", "2"),))
        assert str(record.value["price"]) == "12.50"
    else:
        assert record.value_schema.field("count").schema.type == "int32"


def test_a_column_that_is_added_is_read(file, started):
    task = started(mode="incrementing")
    ask(file, "INSERT INTO orders (id) VALUES (1)")
    assert records_of(task)[0].value == {"id": 1, "name": None, "changed": None}
    ask(file, "ALTER TABLE orders ADD COLUMN paid BOOLEAN")
    ask(file, "INSERT INTO orders (id, paid) VALUES (2, 1)")
    (record,) = records_of(task)
    assert record.value == {"id": 2, "name": None, "changed": None, "paid": True}


def test_tables_are_shared_among_tasks_and_looked_up_again(file):
    for name in "abcd":
        ask(file, f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)")
    connector = started_connector(
        JdbcSourceConnector, given(file, mode="incrementing", table__blacklist="orders", table__poll__interval__ms=20)
    )
    asked = __import__("threading").Event()
    connector.context = type("Context", (), {"request_task_reconfiguration": lambda _: asked.set()})()
    try:
        assert [each["tables"] for each in connector.task_configs(3)] == ['[[null, "a"], [null, "b"]]', '[[null, "c"]]', '[[null, "d"]]']
        ask(file, "CREATE TABLE e (id INTEGER PRIMARY KEY)")
        assert asked.wait(10)
        assert sum(each["tables"].count("null") for each in connector.task_configs(9)) == 5
    finally:
        connector.stop()


def test_all_tables_of_a_task_get_their_turn(file, started):
    for name in "ab":
        ask(file, f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)")
        ask(file, f"INSERT INTO {name} VALUES (1), (2), (3)")
    task = started(mode="incrementing", table__whitelist="a,b", batch__max__rows=1, poll__interval__ms=60_000)
    assert sorted((each.topic, each.value["id"]) for each in records_of(task, 8)) == [(f"db-{name}", n) for name in "ab" for n in (1, 2, 3)]
    assert records_of(task) == [] and task.context.waited == [0.5]


def test_a_locked_database_is_tried_again(file, started):
    ask(file, "INSERT INTO orders (id) VALUES (1)")
    task = started(mode="incrementing")
    file.rename(file.with_suffix(".away"))
    task._engine.dispose()
    file.mkdir()
    with pytest.raises(RetriableError, match=r"cannot be used now: unable to open database file\. Retry is safe\."):
        task.poll()
    file.rmdir()
    file.with_suffix(".away").rename(file)
    assert ids(records_of(task)) == [1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "timestamp", "timestamp__column__name": "changed"}, "allows null"),
        ({"mode": "incrementing", "incrementing__column__name": "no"}, "has no column no"),
        ({"mode": "incrementing", "table__whitelist": "keyless"}, "has no auto-increment column"),
    ],
)
def test_a_table_that_does_not_fit_the_mode(file, started, settings, message):
    ask(file, "CREATE TABLE keyless (id INTEGER)")
    with pytest.raises(ConnectError, match=message):
        started(**{"table__whitelist": "orders", **settings}).poll()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"mode": "timestamp"}, "timestamp.column.name"),
        ({"mode": "incrementing", "query": "SELECT 1"}, "incrementing.column.name"),
        ({"mode": "bulk", "query": "SELECT 1", "table.whitelist": "a"}, "query"),
        ({"mode": "bulk", "table.whitelist": "a", "table.blacklist": "b"}, "table.blacklist"),
        ({"mode": "bulk", "connection.url": "jdbc:oracle:thin:@h:1"}, "connection.url"),
    ],
)
def test_settings_that_do_not_fit_together(settings, name):
    assert list(JdbcSourceConnector().validate({"connection.url": "sqlite:///x", **settings})) == [name]


def test_logical_types_of_columns(file, started):
    ask(file, "CREATE TABLE moments (id INTEGER PRIMARY KEY, since TIMESTAMP)")
    ask(file, "INSERT INTO moments VALUES (1, '2026-07-01 14:00:00'), (2, 1767225600000)")
    records = records_of(started(mode="incrementing", table__whitelist="moments", db__timezone="Europe/Zurich"))
    assert [each.value["since"] for each in records] == [datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    assert records[0].value_schema.field("since").schema == Schema(type="int64", name=TIMESTAMP, optional=True)


def test_offsets_that_an_administrator_sets_are_checked():
    connector = JdbcSourceConnector()
    connector.alter_offsets({}, {'{"protocol":"1","table":"a"}': {"incrementing": 5}, '{"query":"query"}': None})
    with pytest.raises(ConnectError, match="must have the key table or query"):
        connector.alter_offsets({}, {'{"file":"a"}': {"incrementing": 5}})
    with pytest.raises(ConnectError, match="must be a whole number, not x"):
        connector.alter_offsets({}, {'{"table":"a"}': {"incrementing": "x"}})


def test_a_table_of_the_whitelist_that_is_missing_is_named(file, caplog):
    connector = started_connector(JdbcSourceConnector, given(file, mode="bulk", table__whitelist="orders,nobody,also_gone"))
    assert len(connector.task_configs(4)) == 1
    assert "shop: the database has no table nobody, also_gone (table.whitelist); it looks again every 60000 ms" in caplog.text
    connector.stop()


def test_a_database_without_a_table_to_read_is_named(file, caplog):
    connector = started_connector(JdbcSourceConnector, given(file, mode="bulk", table__blacklist="orders"))
    assert connector.task_configs(4) == []
    assert "shop: the database has no table that the settings choose; it looks again every 60000 ms" in caplog.text
    connector.stop()
