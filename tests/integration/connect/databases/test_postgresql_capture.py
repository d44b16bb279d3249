"""PostgreSQL → wal2json → records; the state that the records leave is the table."""

import os
import random
import signal
import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
import sqlalchemy

from logdb_connect import ConnectError, RetriableError
from logdb_connect.connectors.capture.postgresql import PostgresConnector
from support.driven import SourceContext, records_of, source_task
from support.waiting import until

LARGE = "".join(random.Random(1).choices("0123456789abcdefghijklmnopqrstuvwxyz", k=20_000))


@pytest.fixture
def shop(postgres_shop):
    postgres_shop.ask(
        """CREATE TABLE customers (region text, id int, name text, balance numeric(20, 2), rating float8, active bool,
                                   photo bytea, since timestamptz, born date, story text, tags text[], PRIMARY KEY (id, region));
           CREATE TABLE others (id serial PRIMARY KEY);
           ALTER TABLE customers ALTER story SET STORAGE EXTERNAL"""
    )
    return postgres_shop


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
            "database.dbname": shop.name,
            "topic.prefix": "shop",
            "slot.name": shop.name,
            "table.include.list": "public.customers",
            "replica.identity.autoset.values": "public.customers:FULL",
            "poll.interval.ms": "20",
            **named,
        }
        tasks.append(task := source_task(PostgresConnector, properties, context))
        return task

    yield start
    for task in tasks:
        task.stop()


def insert(shop, number, **more):
    row = {"region": "N", "id": number, **more}
    shop.ask(f"INSERT INTO customers ({', '.join(row)}) VALUES ({', '.join(f':{each}' for each in row)})", **row)


def polled(task, count, seconds=20):
    """Records until there are so many."""
    records, end = [], time.monotonic() + seconds
    while len(records) < count and time.monotonic() < end:
        records += records_of(task)
    return records


def brief(records):
    return [(each.headers[0].value, each.key["id"], each.value and each.value["name"]) for each in records]


def test_the_snapshot_and_changes_have_the_same_values(shop, started):
    row = {
        "name": "Zoë",
        "balance": Decimal("-123456789012345678.50"),
        "rating": 1e300,
        "active": True,
        "photo": b"\0\xff",
        "since": datetime(2026, 3, 1, 1, 2, 3, 456_789, UTC),
        "born": date(2000, 2, 29),
        "story": LARGE,
        "tags": ["a", "b,c"],
    }
    insert(shop, 1, **row)
    insert(shop, 2)
    task = started()
    snapshot = records_of(task, 2)
    assert snapshot[0].value == {"region": "N", "id": 1, **row, "tags": '{a,"b,c"}'}
    assert set(snapshot[1].value.values()) == {"N", 2, None}
    shop.ask("UPDATE customers SET region = 'S'")
    records = polled(task, 4)
    assert [(each.key["region"], each.value and each.value["region"]) for each in records] == [("N", None), ("S", "S")] * 2
    assert [each.value for each in records if each.value] == [{**each.value, "region": "S"} for each in snapshot]
    assert {each.topic for each in records} == {"shop.public.customers"}
    assert [each.schema.name or each.schema.type for each in snapshot[0].value_schema.fields][3:5] == [
        "org.apache.kafka.connect.data.Decimal",
        "float64",
    ]


def test_changes_while_the_snapshot_is_read_come_after_it(shop, started):
    for number in range(4):
        insert(shop, number, name="old")
    task = started(snapshot__fetch__size=2)
    first = records_of(task)
    shop.ask("UPDATE customers SET name = 'new' WHERE id IN (0, 3)")
    insert(shop, 9, name="later")
    shop.ask("INSERT INTO others DEFAULT VALUES")
    records = first + polled(task, 5)
    assert brief(records) == [("r", each, "old") for each in range(4)] + [("u", 0, "new"), ("u", 3, "new"), ("c", 9, "later")]


def test_debeziums_envelope_and_what_is_not_known_of_a_large_column(shop, started):
    insert(shop, 1, name="a", story=LARGE)
    named = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector"}
    task = started(**named, replica__identity__autoset__values="public.customers:DEFAULT")
    (read,) = records_of(task, 2)
    assert (read.value["op"], read.value["before"], read.value["after"]["story"]) == ("r", None, LARGE)
    shop.ask("UPDATE customers SET name = 'b'")
    shop.ask("DELETE FROM customers")
    updated, deleted, tombstone = polled(task, 3)
    assert updated.value["after"]["name"] == "b" and updated.value["after"]["story"] == "__debezium_unavailable_value"
    source = updated.value["source"]
    assert (source["connector"], source["schema"], source["table"], source["db"]) == ("postgresql", "public", "customers", shop.name)
    assert source["lsn"] > 0 and source["txId"] > 0 and updated.value_schema.name == "shop.public.customers.Envelope"
    assert (deleted.value["op"], deleted.value["before"]["id"], tombstone.value) == ("d", 1, None)


def some_changes(shop, rng):
    with shop.transaction() as connection:
        connection.execute(sqlalchemy.text("INSERT INTO others DEFAULT VALUES"))
        for _ in range(rng.randrange(9)):
            values = {
                "id": rng.randrange(20),
                "story": LARGE + str(rng.random()) if rng.random() < 0.3 else None,
                "name": f"n{rng.random()}",
            }
            upsert = """INSERT INTO customers (region, id, name, story) VALUES ('N', :id, :name, :story)
                        ON CONFLICT (id, region) DO UPDATE SET name = excluded.name"""
            connection.execute(sqlalchemy.text(upsert), values)
            if rng.random() < 0.2:
                connection.execute(sqlalchemy.text("DELETE FROM customers WHERE id = :id"), {"id": rng.randrange(20)})
        connection.rollback() if rng.random() < 0.2 else connection.commit()


def test_killed_at_any_poll_it_gives_each_change_once(shop, started):
    rng, context = random.Random(5), SourceContext()
    some_changes(shop, rng)
    task = started(context)
    records = records_of(task, 2)
    task.stop()
    for _ in range(25):
        some_changes(shop, rng)
        task = started(context, max__batch__size=rng.randrange(1, 6), poll__interval__ms=100)
        for _ in range(rng.randrange(1, 5)):
            records += records_of(task)
        if rng.random() < 0.5:
            records_of(task, 2, commit=False)  # it dies before the commit
        task.stop()
    task = started(context, poll__interval__ms=500)
    rows = {row[0]: row[1:] for row in shop.ask("SELECT id, name, story FROM customers")}
    assert rows != {}

    def replica():
        records.extend(records_of(task))
        state = {each.key["id"]: each.value for each in records}
        return {number: (row["name"], row["story"]) for number, row in state.items() if row}

    until(lambda: replica() == rows)
    assert records_of(task, 2) == []
    changes = [
        (each.source_offset.get("txId"), each.source_offset["lsn"], each.source_offset.get("events"))
        for each in records
        if not each.source_offset.get("snapshot")
    ]
    assert len(changes) == len(set(changes))


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
        with pytest.raises(RetriableError, match=r"cannot be read now: .* Retry is safe\."):
            for _ in range(100):
                records += records_of_one(task)
    finally:
        shop.server.start()
    insert(shop, 5, name="a")
    records += polled(task, 6 - len(records))
    assert brief(records) == [("c", number, "a") for number in range(6)]


def records_of_one(task):
    found = list(task.poll() or ())
    task.context.keep(found)
    task.commit()
    return found


def test_the_server_may_forget_what_is_stored_and_only_that(shop, started):
    def kept():
        return [row["id"] for row in peeked()]

    def peeked():
        while shop.ask("SELECT 1 FROM pg_replication_slots WHERE active AND slot_name = :slot", slot=shop.name):
            pass
        peek = "pg_logical_slot_peek_changes(:slot, NULL, NULL, 'format-version', '2', 'add-tables', 'public.customers')"
        query = f"SELECT data::json FROM {peek}"
        found = [data for (data,) in shop.ask(query, slot=shop.name) if data["action"] == "I"]
        return [{each["name"]: each["value"] for each in data["columns"]} for data in found]

    context = SourceContext()
    task = started(context)
    records_of(task, 2)
    insert(shop, 1)
    while not task.poll():
        pass
    task.stop()  # dies before the commit
    assert kept() == [1]
    task = started(context)
    assert brief(polled(task, 1)) == [("c", 1, None)]
    shop.ask("INSERT INTO others DEFAULT VALUES")
    task.stop()
    assert kept() == []
    end = time.monotonic() + 20
    position = "SELECT confirmed_flush_lsn >= :lsn FROM pg_replication_slots WHERE slot_name = :slot"
    (lsn,) = shop.ask("SELECT pg_current_wal_lsn()::text")[0]
    task = started(context)
    while shop.ask(position, lsn=lsn, slot=shop.name) != [(True,)] and time.monotonic() < end:
        assert records_of(task) == []  # changes of other tables are confirmed, too
        task._cursor.send_feedback(reply=True)
    assert time.monotonic() < end


def test_a_snapshot_that_was_cut_off_begins_again(shop, started):
    for number in range(4):
        insert(shop, number)
    context = SourceContext()
    task = started(context, snapshot__fetch__size=2)
    assert len(records_of(task)) == 2
    task.stop()
    shop.ask("DELETE FROM customers WHERE id = 0")
    assert brief(records_of(started(context), 2)) == [("r", each, None) for each in (1, 2, 3)]


def test_a_slot_is_dropped_once_the_process_of_its_stream_has_ended(shop, started):
    task = started(slot__drop__on__stop=True)
    slot = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = :slot"
    until(lambda: records_of(task) == [] and shop.ask(slot, slot=shop.name) not in ([], [(None,)]))
    ((pid,),) = shop.ask(slot, slot=shop.name)
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (pid, signal.SIGCONT)).start()
    task.stop()
    assert shop.ask(slot, slot=shop.name) == []


def test_columns_that_are_new(shop, started):
    insert(shop, 0)
    task = started()
    records_of(task, 2)
    shop.ask("ALTER TABLE customers ADD COLUMN first int DEFAULT 1")
    insert(shop, 1)
    assert polled(task, 1)[0].value["first"] == 1
    shop.ask("ALTER TABLE customers ADD COLUMN age int DEFAULT 7, DROP COLUMN rating")
    insert(shop, 2)
    (record,) = polled(task, 1)
    assert record.value["age"] == 7 and "rating" not in record.value
    shop.ask("ALTER TABLE customers DROP COLUMN age")
    insert(shop, 3)
    assert "age" not in polled(task, 1)[0].value


def test_errors_name_what_to_change(shop, started):
    context = SourceContext()
    task = started(context)
    records_of(task, 2)
    with pytest.raises(ConnectError, match="Another program uses the slot"), pytest.MonkeyPatch.context() as patched:
        patched.setattr("logdb_connect.connectors.capture.task._ATTEMPTS", 2)
        records_of(task)
        started()
    task.stop()
    until(lambda: not shop.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = :slot AND active", slot=shop.name))
    shop.ask("SELECT pg_drop_replication_slot(:slot)", slot=shop.name)
    with pytest.raises(ConnectError, match="is gone, and with it changes that were not captured"):
        started(context)
    with pytest.raises(ConnectError, match=r"must be SCHEMA\.TABLE:FULL"):
        started(replica__identity__autoset__values="customers:ALL")
