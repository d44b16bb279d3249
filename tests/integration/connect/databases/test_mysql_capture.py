"""MariaDB's binary log → records; the state that the records leave is the table."""

import random
import time
from datetime import UTC, date, datetime
from datetime import time as clock
from decimal import Decimal

import pytest
import sqlalchemy

from logdb_connect import ConnectError, RetriableError
from logdb_connect.connectors.capture.mysql import MariaDbConnector
from support.driven import SourceContext, records_of, source_task
from support.waiting import until


@pytest.fixture
def shop(mariadb_shop):
    mariadb_shop.ask(
        """CREATE TABLE customers (region VARCHAR(9), id INT, name TEXT, balance DECIMAL(20, 2), rating DOUBLE, photo BLOB,
                                   since DATETIME(6), moment TIMESTAMP(3) NULL, born DATE, at TIME, kind ENUM('a', 'b'), tags SET('x', 'y'),
                                   big BIGINT UNSIGNED, note JSON, PRIMARY KEY (id, region))"""
    )
    mariadb_shop.ask("CREATE TABLE others (id INT AUTO_INCREMENT PRIMARY KEY)")
    return mariadb_shop


@pytest.fixture
def started(shop):
    tasks = []

    def start(context=None, **settings):
        named = {key.replace("__", "."): str(value) for key, value in settings.items()}
        properties = {
            "name": "c",
            "database.hostname": "127.0.0.1",
            "database.port": str(shop.server.port),
            "database.user": shop.user,
            "topic.prefix": "shop",
            "poll.interval.ms": "20",
            "table.include.list": f"{shop.name}\\.customers",
            **named,
        }
        tasks.append(task := source_task(MariaDbConnector, properties, context))
        return task

    yield start
    for task in tasks:
        task.stop()


def insert(shop, number, **more):
    row = {"region": "N", "id": number, **more}
    shop.ask(f"INSERT INTO customers ({', '.join(row)}) VALUES ({', '.join(f':{each}' for each in row)})", **row)


def polled(task, count, seconds=20):
    records, end = [], time.monotonic() + seconds
    while len(records) < count and time.monotonic() < end:
        records += records_of(task)
    return records


def brief(records):
    return [(each.headers[0].value, each.key["id"], each.value and each.value["name"]) for each in records]


def test_the_snapshot_and_changes_have_the_same_values(shop, started):
    row = {
        "name": "Zoë 名",
        "balance": Decimal("-123456789012345678.50"),
        "rating": 1e300,
        "photo": b"\0\xff",
        "since": datetime(2026, 3, 1, 1, 2, 3, 456_789, UTC),
        "moment": datetime(2026, 3, 1, 1, 2, 3, 456_000, UTC),
        "born": date(2000, 2, 29),
        "at": clock(1, 2, 3),
        "kind": "b",
        "tags": "x,y",
        "big": (1 << 63) - 1,
        "note": '{"a": 1}',
    }
    insert(shop, 1, **row)
    insert(shop, 2)
    task = started()
    snapshot = records_of(task, 2)
    assert snapshot[0].value == {"region": "N", "id": 1, **row}
    assert set(snapshot[1].value.values()) == {"N", 2, None}
    shop.ask("UPDATE customers SET region = 'S'")
    records = polled(task, 4)
    assert [(each.key["region"], each.value and each.value["region"]) for each in records] == [("N", None), ("S", "S")] * 2
    assert [each.value for each in records if each.value] == [{**each.value, "region": "S"} for each in snapshot]
    assert {each.topic for each in records} == {f"shop.{shop.name}.customers"}


def test_changes_while_the_snapshot_is_read_come_after_it(shop, started):
    for number in range(4):
        insert(shop, number, name="old")
    task = started(snapshot__fetch__size=2)
    first = records_of(task)
    shop.ask("UPDATE customers SET name = 'new' WHERE id IN (0, 3)")
    insert(shop, 9, name="later")
    shop.ask("INSERT INTO others VALUES ()")
    records = first + polled(task, 5)
    assert brief(records) == [("r", each, "old") for each in range(4)] + [("u", 0, "new"), ("u", 3, "new"), ("c", 9, "later")]


def test_debeziums_envelope(shop, started):
    task = started(**{"connector.class": "io.debezium.connector.mysql.MySqlConnector"})
    records_of(task, 2)
    insert(shop, 1, name="a")
    shop.ask("UPDATE customers SET name = 'b'")
    shop.ask("DELETE FROM customers")
    created, updated, deleted, tombstone = polled(task, 4)
    sides = [(each.value["op"], each.value["before"], each.value["after"]) for each in (created, updated, deleted)]
    names = [(op, before and before["name"], after and after["name"]) for op, before, after in sides]
    assert names == [("c", None, "a"), ("u", "a", "b"), ("d", "b", None)]
    source = updated.value["source"]
    assert (source["db"], source["table"], source["server_id"], source["row"]) == (shop.name, "customers", 1, 0)
    assert source["file"].startswith("binlog.") and source["gtid"].startswith("0-1-") and tombstone.value is None


def some_changes(shop, rng):
    with shop.transaction() as connection:
        connection.execute(sqlalchemy.text("INSERT INTO others VALUES ()"))
        for _ in range(rng.randrange(5)):
            upsert = """INSERT INTO customers (region, id, name) VALUES ('N', :a, :name), ('N', :b, :name)
                        ON DUPLICATE KEY UPDATE name = VALUES(name)"""
            connection.execute(sqlalchemy.text(upsert), {"a": rng.randrange(10), "b": rng.randrange(10, 20), "name": f"n{rng.random()}"})
            connection.execute(sqlalchemy.text("SAVEPOINT here"))
            if rng.random() < 0.2:
                connection.execute(sqlalchemy.text("DELETE FROM customers WHERE id = :id"), {"id": rng.randrange(20)})
        connection.rollback() if rng.random() < 0.2 else connection.commit()
    if rng.random() < 0.2:
        shop.ask("FLUSH BINARY LOGS")


def test_killed_at_any_poll_it_gives_each_change_once(shop, started):
    rng, context = random.Random(5), SourceContext()
    some_changes(shop, rng)
    task = started(context)
    records = records_of(task, 2)
    task.stop()
    for _ in range(10):
        some_changes(shop, rng)
        task = started(context, max__batch__size=rng.randrange(1, 6))
        for _ in range(rng.randrange(1, 5)):
            records += records_of(task)
        if rng.random() < 0.5:
            records_of(task, commit=False)  # it dies before the commit
        task.stop()
    task = started(context)
    rows = dict(shop.ask("SELECT id, name FROM customers"))
    assert rows != {}

    def replica():
        records.extend(records_of(task))
        state = {each.key["id"]: each.value for each in records}
        return {number: row["name"] for number, row in state.items() if row}

    until(lambda: replica() == rows, "the records leave the rows of the table")
    assert records_of(task, 2) == []
    offsets = [repr(each.source_offset) for each in records if not each.source_offset.get("snapshot")]
    assert len(offsets) == len(set(offsets)) > 20


def test_the_server_dies_and_returns(shop, started):
    task = started(max__batch__size=2)
    records_of(task, 2)
    with shop.transaction() as connection:
        for number in range(5):
            connection.execute(sqlalchemy.text("INSERT INTO customers (region, id, name) VALUES ('N', :id, 'a')"), {"id": number})
        connection.commit()
    records = polled(task, 2)  # a part of the transaction
    shop.server.kill()
    try:
        with pytest.raises(RetriableError, match=r"cannot be read now: .*Retry is safe\."):
            for _ in range(100):
                found = list(task.poll() or ())
                task.context.keep(found)
                records += found
    finally:
        shop.server.start()
    insert(shop, 5, name="a")
    records += polled(task, 6 - len(records))
    assert brief(records) == [("c", number, "a") for number in range(6)]


def test_columns_that_are_new(shop, started):
    task = started()
    records_of(task, 2)
    insert(shop, 1)
    polled(task, 1)
    shop.ask("ALTER TABLE customers ADD COLUMN age INT DEFAULT 7, DROP COLUMN rating")
    insert(shop, 2)
    (record,) = polled(task, 1)
    assert record.value["age"] == 7 and "rating" not in record.value


def test_errors_name_what_to_change(shop, started):
    context = SourceContext()
    task = started(context)
    records_of(task, 2)
    task.stop()
    (partition,) = context.offsets
    context.offsets[partition] = {"file": "binlog.999999", "pos": 4}
    with pytest.raises(ConnectError, match=r"no longer has its log from binlog\.999999:4 on: .*snapshot\.mode=always"):
        started(context).poll()
    shop.ask("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        with pytest.raises(ConnectError, match="binlog_row_metadata of the server is MINIMAL: it must be FULL"):
            started()
    finally:
        shop.ask("SET GLOBAL binlog_row_metadata = 'FULL'")
