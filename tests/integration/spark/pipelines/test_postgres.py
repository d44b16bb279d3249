"""PostgreSQL → wal2json → topic → Spark → replica; the replica is the original, whatever happened between two looks."""

import contextlib
import json
import random
import sqlite3
from contextlib import closing
from decimal import Decimal

import pytest

import logdb
from examples.spark import change_capture
from examples.spark.change_capture import Postgres, capture
from examples.spark.replica import Replica, follow
from support.captured import captured_over_kills, positions, states
from support.postgres import open_to_its_user

psycopg = pytest.importorskip("psycopg")

pytestmark = [pytest.mark.foreign]

TABLE = "public.customers"
COLUMNS = ["region", "id", "name", "balance", "rating", "active", "photo", "since", "story"]
LARGE = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))  # kept beside the row, compressed or not


@pytest.fixture
def shop():
    with open_to_its_user(wal2json=True) as where, psycopg.connect(where, autocommit=True) as connection:
        connection.execute(
            """CREATE TABLE customers (region text, id int, name text, balance numeric(20, 2), rating float8, active bool,
                                       photo bytea, since timestamptz, story text, PRIMARY KEY (id, region));
               CREATE TABLE others (id int PRIMARY KEY);
               ALTER TABLE customers ALTER story SET STORAGE EXTERNAL"""
        )
        yield connection


def some_changes(connection, rng, count):
    """Transactions that insert, update, delete and give rows other keys; some taken back, some of another table."""
    for _ in range(count):
        # a new key that another row has: the transaction is taken back
        with contextlib.suppress(psycopg.errors.UniqueViolation), connection.transaction(force_rollback=rng.random() < 0.2):
            connection.execute("INSERT INTO others SELECT coalesce(max(id), 0) + 1 FROM others")
            for _ in range(rng.choice([0, 1, 3])):
                change(connection, rng)


def change(connection, rng):
    key = [rng.choice("NS"), rng.randrange(40)]
    name = rng.choice([None, "", 'Zoë "Z" O\'Hara', "名前\n\\", f"n{rng.random()}"])
    balance = rng.choice([None, Decimal(rng.randrange(-(10**18), 10**18)).scaleb(-2)])
    row = [*key, name, balance, rng.choice([None, rng.random(), 1e300]), rng.choice([None, True, False]), rng.randbytes(5)]
    story = rng.choice([None, "short", LARGE + name if name else LARGE])
    connection.execute(
        """INSERT INTO customers VALUES (%s, %s, %s, %s, %s, %s, %s, timestamptz '2026-03-01' + random() * interval '1 year', %s)
           ON CONFLICT (id, region) DO UPDATE SET name = excluded.name, balance = excluded.balance""",  # a large story stays
        [*row, story],
    )
    connection.execute("UPDATE customers SET balance = balance + 0.01 WHERE id %% 7 = %s", [rng.randrange(7)])
    if rng.random() < 0.4:
        connection.execute("DELETE FROM customers WHERE id = %s", [rng.randrange(40)])
    if rng.random() < 0.2:
        connection.execute("UPDATE customers SET id = id + 1000 WHERE region = %s AND id = %s", key)


def original(connection):
    """The rows as text, but for whole numbers, truth and null; bytes without the sign for hexadecimal."""
    listed = "region, id, name, balance::text, rating::text, active, encode(photo, 'hex'), since::text, story"
    return sorted(connection.execute(f"SELECT {listed} FROM customers").fetchall(), key=repr)


def replicated(file):
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM customers").fetchall()
    truth = {None: None, 0: False, 1: True}
    return sorted(((*row[:5], truth[row[5]], *row[6:]) for row in found), key=repr)


def test_a_replica_equals_the_original(spark, shop, tmp_path):
    rng = random.Random(3)
    some_changes(shop, rng, 20)  # there are rows before anybody looks
    replica = Replica(str(tmp_path / "replica.sqlite"), "customers", ["region", "id"], COLUMNS)
    for _ in range(2):
        with logdb.open(tmp_path / "db") as db:
            assert capture(db, "customers", Postgres(shop, TABLE)) > 0
            some_changes(shop, rng, 60)
            assert capture(db, "customers", Postgres(shop, TABLE)) > 60
        follow(spark, {"path": str(tmp_path / "db")}, "customers", replica, str(tmp_path / "checkpoint")).awaitTermination()
        assert replicated(replica.file) == original(shop) != []
        assert any(row[-1] and len(row[-1]) >= len(LARGE) for row in original(shop))
        some_changes(shop, rng, 60)


def test_a_killed_query_brings_each_change_once(shop, tmp_path):
    rng, path = random.Random(4), tmp_path / "db"
    deaths = captured_over_kills(path, lambda: Postgres(shop, TABLE), lambda: some_changes(shop, rng, 3), rng, runs=30)
    assert 5 < deaths < 30
    changes = [position for position in positions(path) if position != change_capture.FIRST_ROWS]
    assert changes == sorted(set(changes), key=change_capture._order)
    assert states(path, COLUMNS) == original(shop) != []
    query = "SELECT data FROM pg_logical_slot_peek_changes('logdb_public_customers', NULL, NULL, 'add-tables', %s)"
    assert [json.loads(data) for (data,) in shop.execute(query, [TABLE])] == []  # nothing is kept any longer
