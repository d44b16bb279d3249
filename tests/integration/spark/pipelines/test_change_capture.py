"""SQLite or PostgreSQL → change capture of Connect → topic → Spark → replica; the replica is the original."""

import random
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import logdb
from examples.spark.replica import Replica, follow
from logdb_connect.properties import read
from support.connect_workers import standalone
from support.postgres import open_to_its_user
from support.waiting import until

EXAMPLES = Path(__file__).parents[4] / "examples" / "connect"
COLUMNS = ["region", "id", "name", "rating", "story"]
LARGE = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20_000))
TABLE = "CREATE TABLE customers (region {text}, id int, name {text}, rating {real}, story {text}, PRIMARY KEY (id, region))"
UPSERT = (
    "INSERT INTO customers VALUES (?, ?, ?, ?, ?) ON CONFLICT (id, region) DO UPDATE SET name = excluded.name, rating = excluded.rating"
)


class Sqlite:
    example, topic = "capture-sqlite", "shop.main.customers"

    def __init__(self, directory):
        self._connection = sqlite3.connect(directory / "shop.sqlite", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self.properties = {"database.file": f"{directory}/shop.sqlite"}
        self.kinds = {"text": "TEXT", "real": "REAL"}

    def ask(self, statement, values=()):
        return self._connection.execute(statement, values).fetchall()

    def close(self):
        self._connection.close()


class Postgres:
    example, topic = "capture-postgresql", "shop.public.customers"

    def __init__(self, where):
        psycopg = pytest.importorskip("psycopg")
        self._connection = psycopg.connect(where, autocommit=True)
        given = self._connection.info
        self.properties = {"database.hostname": given.host, "database.port": str(given.port), "database.user": given.user}
        self.properties |= {"database.dbname": given.dbname}
        self.kinds = {"text": "text", "real": "float8"}

    def ask(self, statement, values=()):
        cursor = self._connection.execute(statement.replace("%", "%%").replace("?", "%s"), values or None)
        return cursor.fetchall() if cursor.description else []

    def close(self):
        self._connection.close()


@contextmanager
def origin(kind, directory):
    if kind == "sqlite":
        with closing(Sqlite(directory)) as shop:
            yield shop
    else:
        with open_to_its_user() as where, closing(Postgres(where)) as shop:
            yield shop


def some_changes(shop, rng, count):
    """Rows inserted, updated, deleted, and given another key; a part of them in a transaction that is taken back."""
    for _ in range(count):
        shop.ask("BEGIN")
        key = [rng.choice("NS"), rng.randrange(40)]
        name = rng.choice([None, "", 'Zoë "Z" O\'Hara', "名前\n", f"n{rng.random()}"])
        shop.ask(UPSERT, [*key, name, rng.choice([None, rng.random() * 1e9, 1e300, -0.1]), rng.choice([None, "short", LARGE])])
        shop.ask(f"UPDATE customers SET rating = rating + 0.1 WHERE region = ? AND id % 7 = {rng.randrange(7)}", [key[0]])
        if rng.random() < 0.3:
            shop.ask(f"DELETE FROM customers WHERE id = {rng.randrange(40)}")
        if rng.random() < 0.2:
            shop.ask(f"UPDATE customers SET id = id + {rng.randrange(1000, 10**9)} WHERE region = ? AND id = ?", key)
        shop.ask("ROLLBACK" if rng.random() < 0.2 else "COMMIT")


def rows(shop):
    return sorted(map(tuple, shop.ask(f"SELECT {', '.join(COLUMNS)} FROM customers")), key=repr)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.foreign)])
def test_a_replica_equals_the_original(spark, kind, tmp_path):
    rng = random.Random(3)
    with origin(kind, tmp_path) as shop:
        shop.ask(TABLE.format(**shop.kinds))
        some_changes(shop, rng, 20)  # there are rows before anybody looks
        connector = read(str(EXAMPLES / f"{shop.example}.properties")) | shop.properties
        replica = Replica(str(tmp_path / "replica.sqlite"), "customers", ["region", "id"], COLUMNS)
        for _ in range(2):
            with standalone(str(tmp_path / "db"), tmp_path, connector) as rest:
                rest.await_states(connector["name"], "RUNNING", "RUNNING")
                some_changes(shop, rng, 60)
                shop.ask("INSERT INTO customers VALUES ('last', ?, NULL, NULL, NULL)", [last := rng.randrange(10**9)])
                until(lambda last=last: str(last) in keys_of(tmp_path / "db", shop.topic))
            follow(spark, {"path": str(tmp_path / "db")}, shop.topic, replica, str(tmp_path / "checkpoint")).awaitTermination()
            with closing(sqlite3.connect(replica.file)) as connection:
                assert sorted(connection.execute(f"SELECT {', '.join(COLUMNS)} FROM customers"), key=repr) == rows(shop) != []
            some_changes(shop, rng, 60)
        assert any(row[-1] == LARGE for row in rows(shop))


def keys_of(path, topic):
    """The keys of the last records, as text."""
    with logdb.open(path, mode="r") as db:
        if topic not in [each.name for each in db.topics()]:
            return ""
        log = db.log(topic)
        found = log.read(max(log.start_offset, log.end_offset - 10), end_offset=log.end_offset, isolation_level="read_committed")
        return " ".join((record.key or b"").decode() for record in found)
