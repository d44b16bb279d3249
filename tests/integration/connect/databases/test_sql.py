"""Sink and source against real servers; SQLite's part is in tests/unit/connect."""

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from logdb import TopicPartition
from logdb_connect import ConnectError, RetriableError, Schema, struct
from logdb_connect.connectors.sql.sink import JdbcSinkConnector
from logdb_connect.connectors.sql.source import JdbcSourceConnector
from logdb_connect.data import DATE, DECIMAL, OPTIONAL_STRING, STRING, TIME, TIMESTAMP
from support.driven import SourceContext, records_of, sink_records, sink_task, source_task

ORDERS = TopicPartition("orders", 0)
ALL = struct(
    "all",
    id=Schema(type="int64"),
    tiny=Schema(type="int8", optional=True),
    ratio=Schema(type="float64", optional=True),
    flag=Schema(type="boolean", optional=True),
    text=OPTIONAL_STRING,
    raw=Schema(type="bytes", optional=True),
    amount=Schema(type="bytes", name=DECIMAL, optional=True, parameters=(("scale", "2"),)),
    day=Schema(type="int32", name=DATE, optional=True),
    at=Schema(type="int32", name=TIME, optional=True),
    since=Schema(type="int64", name=TIMESTAMP, optional=True),
)
VALUE = {
    "id": 1,
    "tiny": -7,
    "ratio": 0.1,
    "flag": True,
    "text": "%s :a 名 '\"\\",
    "raw": b"\0\xff%",
    "amount": Decimal("-12345678901234567890.50"),
    "day": date(2026, 2, 3),
    "at": time(1, 2, 3),
    "since": datetime(2026, 7, 1, 12, 0, 0, 250_000, UTC),
}


@pytest.fixture
def sink(shop):
    tasks = []

    def start(context=None, **settings):
        named = {key.replace("__", "."): str(value) for key, value in settings.items()}
        base = {"name": "shop", "connection.url": shop.url, "auto.create": "true", "auto.evolve": "true", "retry.backoff.ms": "0"}
        tasks.append(task := sink_task(JdbcSinkConnector, {**base, **named}, context))
        task.open([ORDERS])
        return task

    yield start
    for task in tasks:
        task.stop()


@pytest.fixture
def source(shop):
    tasks = []

    def start(context=None, **settings):
        named = {key.replace("__", "."): str(value) for key, value in settings.items()}
        base = {"name": "shop", "connection.url": shop.url, "poll.interval.ms": "0", "topic.prefix": "db-"}
        tasks.append(task := source_task(JdbcSourceConnector, {**base, **named}, context))
        return task

    yield start
    for task in tasks:
        task.stop()


def test_all_types_go_out_and_come_back(shop, sink, source):
    settings = {"insert__mode": "upsert", "pk__mode": "record_value", "pk__fields": "id"}
    nothing = dict.fromkeys(VALUE) | {"id": 2}
    sink(**settings).put(sink_records("orders", [VALUE, nothing], value_schema=ALL))
    records = records_of(source(mode="incrementing", table__whitelist="orders"))
    found = [each.value for each in records]
    if shop.kind == "mariadb":
        assert [each.pop("flag") for each in found] == [1, None]  # a TINYINT
    else:
        assert [each.pop("flag") for each in found] == [True, None]
        assert found[0]["amount"] == "-12345678901234567890.50"  # NUMERIC without scale: text
        found[0]["amount"] = Decimal(found[0]["amount"])
    assert found == [{name: each for name, each in row.items() if name != "flag"} for row in (VALUE, nothing)]
    types = {each.name: each.schema.name or each.schema.type for each in records[0].value_schema.fields}
    expected = {each.name: each.schema.name or each.schema.type for each in ALL.fields}
    differ = {"postgresql": {"tiny": "int16", "amount": "string"}, "mariadb": {"flag": "int8"}}[shop.kind]
    assert types == expected | differ


def test_upserts_keep_the_last_row_of_each_key_and_tombstones_delete(shop, sink):
    task = sink(insert__mode="upsert", pk__mode="record_key", delete__enabled="true", pk__fields="k")
    row = struct("row", name=OPTIONAL_STRING)
    keys = ["a", "b", "a", "c", "b", "a"]
    values = [{"name": "1"}, {"name": "2"}, {"name": "3"}, {"name": "4"}, None, {"name": "6"}]
    task.put(sink_records("orders", values, keys=keys, key_schema=STRING, value_schema=row))
    assert sorted(shop.ask("SELECT k, name FROM orders")) == [("a", "6"), ("c", "4")]
    task.put(sink_records("orders", [{"name": "7"}, None], keys=["a", "none"], key_schema=STRING, value_schema=row, start=6))
    assert sorted(shop.ask("SELECT k, name FROM orders")) == [("a", "7"), ("c", "4")]


def test_a_record_that_the_database_refuses_is_reported(shop, sink):
    shop.ask("CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(3))")
    task = sink()
    values = [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "too long"},
        {"id": 1, "name": "b"},
        {"id": 4, "name": "\0"},
        {"id": 5, "name": "c"},
    ]
    task.put(sink_records("orders", values))
    kept = [(1, "a"), (5, "c")] if shop.kind == "postgresql" else [(1, "a"), (4, "\0"), (5, "c")]
    assert shop.ask("SELECT id, name FROM orders ORDER BY id") == kept
    assert [record.offset for record, _ in task.context.reported] == ([1, 2, 3] if shop.kind == "postgresql" else [1, 2])


def test_a_zombie_stores_nothing_twice(shop, sink):
    records = sink_records("orders", [{"id": each} for each in range(4)])
    zombie, successor = sink(), sink()
    successor.put(records[:3])
    zombie.put(records)  # it has been away since before
    assert shop.ask("SELECT id FROM orders ORDER BY id") == [(0,), (1,), (2,), (3,)]


def test_the_database_dies_and_returns(shop, sink, source):
    records = sink_records("orders", [{"id": each} for each in range(1, 7)])
    task, context = sink(pk__mode="record_value", pk__fields="id"), SourceContext()
    task.put(records[:2])
    reader = source(context, mode="incrementing", table__whitelist="orders", batch__max__rows=1)
    assert [each.value["id"] for each in records_of(reader)] == [1]
    shop.server.kill()
    try:
        with pytest.raises(RetriableError, match=r"cannot be used now: .*Retry is safe\."):
            task.put(records[2:4])
        with pytest.raises(RetriableError, match=r"cannot be used now: .*Retry is safe\."):
            reader.poll()
        with pytest.raises(ConnectError, match=r"No connection to .* after 2 attempts"):
            sink(connection__attempts=2)
    finally:
        shop.server.start()
    task.put(records[2:4])
    task.put(records[2:])  # the worker gives again what it has not committed
    assert shop.ask("SELECT id FROM orders ORDER BY id") == [(each,) for each in range(1, 7)]
    assert [each.value["id"] for each in records_of(reader, 5)] == [2, 3, 4, 5, 6]


def test_connections_that_are_killed_at_any_statement_lose_and_repeat_nothing(shop, sink):
    """The sink's connection ends at its n-th statement, COMMIT among them; the worker gives the records again."""
    import sqlalchemy

    task = sink(max__retries=1000)
    engine, seen = task._engine, {"count": 0, "at": 0}

    def maybe_kill(connection, cursor, statement, *_):
        seen["count"] += 1
        if seen["count"] == seen["at"]:
            connection.connection.driver_connection.close()

    sqlalchemy.event.listen(engine, "before_cursor_execute", maybe_kill)
    sqlalchemy.event.listen(engine, "commit", lambda connection: maybe_kill(connection, None, None))
    number = died = 0
    for at in range(1, 12):
        records = sink_records("orders", [{"id": number}, {"id": number + 1}], start=number)
        number += 2
        seen.update(count=0, at=at)
        while True:
            try:
                task.put(records)
                break
            except RetriableError:
                died += 1
    assert died >= 4
    assert shop.ask("SELECT id FROM orders ORDER BY id") == [(each,) for each in range(number)]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_timestamps(shop, source, size):
    kind = {"postgresql": "TIMESTAMPTZ", "mariadb": "TIMESTAMP(6)"}[shop.kind]
    shop.ask(f"CREATE TABLE orders (id INT PRIMARY KEY, changed {kind} NOT NULL, moment {kind.replace('TZ', '')} NOT NULL)")
    zone = "+00" if shop.kind == "postgresql" else ""
    for number, second in enumerate(["00", "00", "00.5", "00.500001", "01"], 1):
        shop.ask(f"INSERT INTO orders VALUES ({number}, '2026-01-01 00:00:{second}{zone}', '2026-01-01 00:00:{second}')")
    for mode, column in [("timestamp", "changed"), ("timestamp+incrementing", "changed"), ("timestamp", "moment")]:
        context = SourceContext()
        settings = {"mode": mode, "timestamp__column__name": column, "incrementing__column__name": "id", "batch__max__rows": size}
        records = records_of(source(context, **settings), 3) + records_of(source(context, **settings), 5)
        assert sorted(each.value["id"] for each in records) == [1, 2, 3, 4, 5]
        assert records[0].value["changed"] == datetime(2026, 1, 1, tzinfo=UTC)
    shop.ask("UPDATE orders SET moment = '2026-01-01 00:00:02' WHERE id = 1")
    assert [each.value["id"] for each in records_of(source(context, **settings))] == [1]


def test_a_query_has_the_types_of_its_columns(shop, source):
    shop.ask("CREATE TABLE orders (id INT PRIMARY KEY, price NUMERIC(8, 2), made DATE, name VARCHAR(9))")
    shop.ask("INSERT INTO orders VALUES (1, 12.50, '2026-02-03', 'a'), (2, NULL, NULL, NULL)")
    query = "SELECT o.*, price * 2 AS twice FROM orders o WHERE id < 9"
    records = records_of(source(mode="incrementing", incrementing__column__name="id", query=query))
    assert [each.value for each in records] == [
        {"id": 1, "price": Decimal("12.50"), "made": date(2026, 2, 3), "name": "a", "twice": records[0].value["twice"]},
        {"id": 2, "price": None, "made": None, "name": None, "twice": None},
    ]
    assert Decimal(records[0].value["twice"]) == 25
    types = {each.name: each.schema.name or each.schema.type for each in records[0].value_schema.fields}
    assert types | {"id": "", "twice": ""} == {"id": "", "price": DECIMAL, "made": DATE, "name": "string", "twice": ""}


def test_tables_of_schemas(shop, sink, source):
    schema = {"postgresql": "sales", "mariadb": shop.name}[shop.kind]
    if shop.kind == "postgresql":
        shop.ask("CREATE SCHEMA sales")
    task = sink(table__name__format=f"{schema}.${{topic}}", pk__mode="record_value")
    task.put(sink_records("orders", [{"Id": 1}]))
    quote = '"' if shop.kind == "postgresql" else "`"
    assert shop.ask(f"SELECT {quote}Id{quote} FROM {schema}.orders") == [(1,)]
    (record,) = records_of(source(mode="incrementing", incrementing__column__name="Id", table__whitelist=f"{schema}.orders"), 1) or [None]
    assert record.source_partition == {"protocol": "1", "table": f"{schema}.orders"}
