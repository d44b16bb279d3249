"""Transactions that commit late: a row appears behind a greater number that was read already."""

import random
import threading

import pytest
import sqlalchemy

from logdb_connect import ConnectError
from logdb_connect.connectors.outbox import OutboxSourceConnector
from support.driven import SourceContext, records_of, source_task

INSERT = sqlalchemy.text("INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', :key, 'made', '{}')")


@pytest.fixture
def started(shop):
    number = {"postgresql": "BIGSERIAL PRIMARY KEY", "mariadb": "BIGINT AUTO_INCREMENT PRIMARY KEY"}[shop.kind]
    shop.ask(f"CREATE TABLE outbox (id {number}, aggregatetype VARCHAR(99), aggregateid VARCHAR(99), type VARCHAR(99), payload TEXT)")
    tasks = []

    def start(context=None, **settings):
        named = {key.replace("__", "."): str(value) for key, value in settings.items()}
        tasks.append(task := source_task(OutboxSourceConnector, {"name": "o", "connection.url": shop.url, **named}, context))
        return task

    yield start
    for task in tasks:
        task.stop()


def put(connection, key):
    connection.execute(INSERT, {"key": key})


def keys(records):
    return [each.key for each in records]


def test_a_row_that_commits_late_comes_at_its_place(shop, started):
    task = started()
    with shop.transaction() as late, shop.transaction() as other:
        put(other, "1")
        other.commit()
        assert keys(records_of(task, 2)) == ["1"]
        put(late, "2")  # has its number, and does not commit
        put(other, "3")
        other.commit()
        assert keys(records_of(task, 3)) == []
        late.commit()
        assert keys(records_of(task, 3)) == ["2", "3"]
        put(late, "gap")
        late.rollback()  # its number is never seen
        put(late, "5")
        late.commit()
        assert keys(records_of(task, 3)) == ["5"]


def test_others_are_not_held_up_by_a_gap(shop, started):
    task = started()
    with shop.transaction() as late, shop.transaction() as other:
        put(late, "1")
        put(other, "2")
        other.commit()
        assert keys(records_of(task, 2)) == []
        put(other, "3")  # neither waits nor fails
        other.commit()
        late.rollback()
    assert keys(records_of(task, 3)) == ["2", "3"]


def test_writers_without_pause_lose_nothing_and_keep_the_order_of_numbers(shop, started):
    stop, failed = threading.Event(), []

    def write(seed):
        rng = random.Random(seed)
        try:
            with shop.transaction() as connection:
                for number in range(40):
                    for part in range(rng.randrange(1, 3)):
                        put(connection, f"{seed}-{number}-{part}")
                    stop.wait(rng.random() * 0.02)
                    connection.rollback() if rng.random() < 0.2 else connection.commit()
        except sqlalchemy.exc.SQLAlchemyError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=[seed]) for seed in range(4)]
    for each in threads:
        each.start()
    context, records = SourceContext(), []
    while any(each.is_alive() for each in threads):
        task = started(context, outbox__delete__enabled="false", batch__max__rows=7)
        records += records_of(task, 10)
        records_of(task, commit=False)  # it dies here
        task.stop()
    assert failed == []
    task = started(context)
    while new := records_of(task, 3):
        records += new
    numbers = [each.source_offset["number"] for each in records]
    assert numbers == sorted(set(numbers))
    assert keys(records) == [key for (key,) in shop.ask("SELECT aggregateid FROM outbox ORDER BY id")]


def test_rows_are_deleted_and_later_ones_come(shop, started):
    context = SourceContext()
    with shop.transaction() as connection:
        put(connection, "1"), put(connection, "2")
        connection.commit()
        assert keys(records_of(started(context, outbox__delete__enabled="true"))) == ["1", "2"]
        assert shop.ask("SELECT count(*) FROM outbox") == [(0,)]
        put(connection, "3")
        connection.commit()
    assert keys(records_of(started(context, outbox__delete__enabled="true"), 2)) == ["3"]


def test_numbers_out_of_order_are_refused(shop, started):
    if shop.kind == "postgresql":
        shop.ask("ALTER SEQUENCE outbox_id_seq CACHE 20")
        with pytest.raises(ConnectError, match="has CACHE 20: sessions take numbers out of order"):
            started()
    else:
        shop.ask("SET GLOBAL auto_increment_increment = 2")
        try:
            with pytest.raises(ConnectError, match="auto_increment_increment is 2"):
                started()
        finally:
            shop.ask("SET GLOBAL auto_increment_increment = 1")
