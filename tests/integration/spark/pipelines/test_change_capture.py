"""SQLite → topic → Spark → replica; the replica is the original, whatever happened between two looks."""

import random
import sqlite3
from contextlib import closing

import pytest

import logdb
from examples.spark.change_capture import Sqlite, capture
from examples.spark.replica import Replica, follow
from logdb.errors import UnexpectedOffset
from support.captured import captured_over_kills, positions, states

COLUMNS = ["region", "id", "name", "balance", "photo"]


@pytest.fixture
def shop(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.sqlite")) as connection:
        connection.execute("CREATE TABLE customers (region TEXT, id INTEGER, name TEXT, balance REAL, photo, PRIMARY KEY (region, id))")
        yield connection


def some_changes(connection, rng, count):
    """Rows inserted, updated, deleted, and given another key; a part of them in a transaction that is taken back."""
    for _ in range(count):
        key = [rng.choice("NS"), rng.randrange(40)]
        name = rng.choice([None, "", 'Zoë "Z" O\'Hara', "名前\n", f"n{rng.random()}"])
        row = [*key, name, rng.choice([None, rng.random() * 1e9, 1e300, -0.1]), rng.choice([None, 7, "text"])]
        connection.execute("INSERT OR REPLACE INTO customers VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("UPDATE customers SET balance = balance + 0.1 WHERE region = ? AND id % 7 = ?", [key[0], rng.randrange(7)])
        if rng.random() < 0.3:
            connection.execute("DELETE FROM customers WHERE id = ?", [rng.randrange(40)])
        if rng.random() < 0.2:
            connection.execute("UPDATE OR IGNORE customers SET id = id + 1000 WHERE region = ? AND id = ?", key)
        connection.rollback() if rng.random() < 0.2 else connection.commit()


def rows(connection):
    return sorted(connection.execute(f"SELECT {', '.join(COLUMNS)} FROM customers"), key=repr)


def test_a_replica_equals_the_original(spark, shop, tmp_path):
    rng = random.Random(3)
    some_changes(shop, rng, 20)  # there are rows before anybody looks
    replica = Replica(str(tmp_path / "replica.sqlite"), "customers", ["region", "id"], COLUMNS)
    for _ in range(2):
        with logdb.open(tmp_path / "db") as db:
            assert capture(db, "customers", Sqlite(shop, "customers")) > 0
            some_changes(shop, rng, 60)
            assert capture(db, "customers", Sqlite(shop, "customers")) > 60
        follow(spark, {"path": str(tmp_path / "db")}, "customers", replica, str(tmp_path / "checkpoint")).awaitTermination()
        with closing(sqlite3.connect(replica.file)) as connection:
            assert rows(connection) == rows(shop) != []
        some_changes(shop, rng, 60)


def test_a_killed_query_brings_each_change_once(shop, tmp_path):
    rng, path = random.Random(4), tmp_path / "db"
    deaths = captured_over_kills(path, lambda: Sqlite(shop, "customers"), lambda: some_changes(shop, rng, 4), rng, runs=40)
    assert 10 < deaths < 40
    found = [int(position) for position in positions(path)]
    assert found == list(range(1, len(found) + 1))
    assert states(path, COLUMNS) == rows(shop) != []
    assert shop.execute("SELECT count(*) FROM customers_changes").fetchone() == (0,)


def test_two_who_capture_one_table_do_not_mix_their_records(shop, tmp_path):
    class Late(Sqlite):
        def changes(self, after):
            found = list(super().changes(after))
            if not others:
                others.append(capture(db, "customers", Sqlite(shop, "customers")))
            yield from found

    others = []
    some_changes(shop, random.Random(5), 10)
    with logdb.open(tmp_path / "db") as db, pytest.raises(UnexpectedOffset):
        capture(db, "customers", Late(shop, "customers"))
    assert states(tmp_path / "db", COLUMNS) == rows(shop)
