"""PostgreSQL → capture → topic → sink → MariaDB, by a worker that is killed, between servers that die: each change is applied once."""

import base64
import contextlib
import json
import random
from pathlib import Path

import pytest
import sqlalchemy

import logdb
from support.connect_workers import KILLS, WORKER, WorkerProcess, random_seed, served, standalone, written
from support.ports import free_port
from support.waiting import until

JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


def capture(shop, **more):
    return {
        "name": "capture",
        "connector.class": "PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(shop.server.port),
        "database.user": shop.user,
        "database.dbname": shop.name,
        "slot.name": shop.name,
        "topic.prefix": "shop",
        "table.include.list": r"public\.customers",
        **JSON,
        **more,
    }


def sink(shop, **more):
    return {
        "name": "sink",
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "shop.public.customers",
        "connection.url": f"jdbc:mariadb://127.0.0.1:{shop.server.port}/{shop.name}",
        "connection.user": shop.user,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "auto.create": "true",
        "table.name.format": "customers",
        "max.retries": "1000",
        "retry.backoff.ms": "50",
        "errors.retry.timeout": "-1",
        **JSON,
        **more,
    }


def some_changes(shop, rng):
    with contextlib.suppress(sqlalchemy.exc.OperationalError), shop.transaction() as connection:
        for _ in range(rng.randrange(1, 9)):
            upsert = """INSERT INTO customers VALUES (:id, :name) ON CONFLICT (id) DO UPDATE SET name = excluded.name"""
            connection.execute(sqlalchemy.text(upsert), {"id": rng.randrange(30), "name": f"n{rng.random()}"})
            if rng.random() < 0.3:
                connection.execute(sqlalchemy.text("DELETE FROM customers WHERE id = :id"), {"id": rng.randrange(30)})
        connection.commit()


def rows(shop):
    with contextlib.suppress(sqlalchemy.exc.OperationalError, sqlalchemy.exc.ProgrammingError):
        return sorted(shop.ask("SELECT id, name FROM customers"))
    return None


@pytest.fixture
def origin(postgres_shop):
    postgres_shop.ask("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    postgres_shop.ask("ALTER TABLE customers REPLICA IDENTITY FULL")
    return postgres_shop


def test_a_table_follows_another_one(origin, mariadb_shop, tmp_path):
    origin.ask("INSERT INTO customers VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    with served(tmp_path / "db") as broker, standalone(broker, tmp_path, capture(origin), sink(mariadb_shop)) as rest:
        until(lambda: rows(mariadb_shop) == [(1, "a"), (2, "b"), (3, "c")])
        origin.ask("UPDATE customers SET name = 'z' WHERE id = 1")
        origin.ask("DELETE FROM customers WHERE id = 2")
        until(lambda: rows(mariadb_shop) == [(1, "z"), (3, "c")])
        rest.await_states("capture", "RUNNING", "RUNNING")
        rest.await_states("sink", "RUNNING", "RUNNING")


def test_a_database_that_goes_away_and_returns(postgres_shop, tmp_path):
    """The task fails and names the database, another connector goes on; a restart delivers each record once."""
    table = {
        "name": "rows",
        "connector.class": "JdbcSink",
        "topics": "rows",
        "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres_shop.server.port}/{postgres_shop.name}",
        "connection.user": postgres_shop.user,
        "auto.create": "true",
        "max.retries": "1",
        "retry.backoff.ms": "50",
        "value.converter": JSON["value.converter"],
        "value.converter.schemas.enable": "false",
    }
    file = {"name": "file", "connector.class": "FileStreamSink", "topics": "rows", "file": f"{tmp_path}/out.txt"}
    with served(tmp_path / "db") as broker, logdb.open(broker) as db:
        db.create_topic("rows")
        db.append("rows", b'{"id": 0}')
        with standalone(broker, tmp_path, table, file) as rest:
            until(lambda: ids(postgres_shop) == [0])
            postgres_shop.server.kill()
            try:
                db.append_many("rows", [b'{"id": %d}' % number for number in range(1, 4)])
                rest.await_states("rows", "RUNNING", "FAILED")
                assert postgres_shop.name in rest.get("/connectors/rows/status")["tasks"][0]["trace"]
                until(lambda: (tmp_path / "out.txt").read_text().count("\n") == 4, "the other connector goes on")
            finally:
                postgres_shop.server.start()
            assert rest.call("POST", "/connectors/rows/restart?includeTasks=true&onlyFailed=true")[0] == 202
            until(lambda: len(ids(postgres_shop)) >= 4)
            rest.await_states("rows", "RUNNING", "RUNNING")
    assert ids(postgres_shop) == [0, 1, 2, 3]


def ids(shop):
    with contextlib.suppress(sqlalchemy.exc.OperationalError, sqlalchemy.exc.ProgrammingError):
        return [number for (number,) in shop.ask("SELECT id FROM rows ORDER BY id")]
    return []


@contextlib.contextmanager
def shown(rest, *names):
    """Show the states of connectors where an assertion within the block fails."""
    try:
        yield
    except AssertionError:
        for name in names:
            print(rest.call("GET", f"/connectors/{name}/status"))
        raise


def test_kills_of_worker_and_servers_lose_and_repeat_no_change(origin, mariadb_shop, tmp_path):
    rng, port = random.Random(random_seed()), free_port()
    with served(tmp_path / "db") as broker:
        worker = {
            **WORKER,
            "bootstrap.servers": broker,
            "listeners": f"http://127.0.0.1:{port}",
            "offset.storage.file.filename": f"{tmp_path}/o",
        }
        counted = sink(mariadb_shop, name="all", **{"insert.mode": "insert", "pk.mode": "kafka", "delete.enabled": "false"})
        counted |= {"table.name.format": "changes", "transforms": "live", "transforms.live.predicate": "gone", "predicates": "gone"}
        counted |= {"transforms.live.type": "org.apache.kafka.connect.transforms.Filter"}
        counted |= {"predicates.gone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"}
        connectors = [capture(origin), sink(mariadb_shop), counted]
        files = [written(Path(tmp_path) / f"{each.get('name')}.properties", each) for each in ({"name": "worker", **worker}, *connectors)]
        for _ in range(KILLS):
            with WorkerProcess("standalone", *files, port=port) as process:
                for _ in range(rng.randrange(3, 9)):
                    some_changes(origin, rng)
                if rng.random() < 0.4:
                    server = rng.choice([origin.server, mariadb_shop.server])
                    server.kill()
                    server.start()
                    some_changes(origin, rng)
                process.kill()
        with WorkerProcess("standalone", *files, port=port) as process:
            with shown(process.rest, "capture", "sink", "all"):
                until(lambda: rows(mariadb_shop) == rows(origin) != [], "the tables are equal", 120)
            live = live_records(broker)
            for name in ("capture", "sink", "all"):
                process.rest.await_states(name, "RUNNING", "RUNNING")
            until(lambda: changes(mariadb_shop) == live, "each change is there once")


def live_records(broker):
    """Offsets of the records that have a value."""
    with logdb.open(broker) as db:
        log = db.log("shop.public.customers")
        return [
            record.offset for record in log.read(0, isolation_level="read_committed", end_offset=log.end_offset) if record.value is not None
        ]


def changes(shop):
    with contextlib.suppress(sqlalchemy.exc.ProgrammingError):  # there is no table yet
        return [offset for (offset,) in shop.ask("SELECT __connect_offset FROM changes ORDER BY 1")]
    return None


def test_the_envelope_of_a_table_that_has_only_its_key_as_identity(postgres_shop, tmp_path):
    """``before`` has the key alone, although other columns may not be null.  Large values that did not change are not known."""
    postgres_shop.ask("CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, age int NOT NULL, photo bytea NOT NULL)")
    postgres_shop.ask("ALTER TABLE customers ALTER COLUMN photo SET STORAGE EXTERNAL")
    source = capture(
        postgres_shop, **{"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "slot.drop.on.stop": "true"}
    )
    with served(tmp_path / "db") as broker, logdb.open(broker) as db, standalone(broker, tmp_path, source) as rest:
        rest.await_states("capture", "RUNNING", "RUNNING")
        until(lambda: postgres_shop.ask("SELECT 1 FROM pg_replication_slots WHERE active"))
        insert = "INSERT INTO customers VALUES (1, 'a', 5, convert_to(repeat('x', 9000), 'UTF8'))"
        for statement in (insert, "UPDATE customers SET age = 6", "DELETE FROM customers"):
            postgres_shop.ask(statement)

        def envelopes():
            if "FAILED" in rest.states("capture"):
                raise AssertionError(rest.get("/connectors/capture/status")["tasks"][0]["trace"])
            with contextlib.suppress(logdb.errors.UnknownTopic):
                values = [one.value for one in db.log("shop.public.customers").read(0, isolation_level="read_committed")]
                return [json.loads(value)["payload"] for value in values if value is not None]
            return []

        until(lambda: len(envelopes()) == 3)
        created, updated, deleted = envelopes()
    row, alone = {"id": 1, "name": "a", "age": 5}, {"id": 1, "name": None, "age": None, "photo": None}
    photo, unknown = (base64.b64encode(text).decode() for text in (b"x" * 9000, b"__debezium_unavailable_value"))
    assert (created["op"], created["before"], created["after"]) == ("c", None, {**row, "photo": photo})
    assert (updated["op"], updated["before"], updated["after"]) == ("u", alone, {**row, "age": 6, "photo": unknown})
    assert (deleted["op"], deleted["before"], deleted["after"]) == ("d", alone, None)
