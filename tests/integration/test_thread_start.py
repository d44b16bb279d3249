"""A thread that cannot be started: an error by name, nothing half done, and the next try works."""

import asyncio
import threading

import pytest

import logdb
from logdb import aio
from logdb.errors import ThreadUnavailable
from support.open_files import open_below
from support.places import opened
from support.power_cut import die
from support.thread_start import refused
from support.waiting import until

COMPACTED = {"cleanup.policy": "compact"}
TASKS = {
    "logdb-housekeeper": {"retention.ms": 1_000_000},
    "logdb-cleaner": COMPACTED,
    "logdb-parquet": {"logdb.parquet": True},
}


def ours() -> set[str]:
    """Of databases and servers; one thread for large batches stays with the process."""
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if name.startswith("logdb-") and not name.startswith("logdb-large-batch")}


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path):
    before = ours()
    yield
    until(lambda: ours() <= before, "all threads have ended")
    assert open_below(tmp_path) == []


def check_open(path) -> None:
    """It opens, takes records and closes."""
    with logdb.open(path) as db:
        db.create_topic("again", if_not_exists=True)
        assert db.append("again", b"x").offset >= 0
    assert logdb.verify(path).ok


@pytest.mark.parametrize("thread", ["logdb-writer", "logdb-syncer", "logdb-recovery", "logdb-dangling", *TASKS])
def test_opening(tmp_path, thread):
    path = tmp_path / "db"
    db = logdb.open(path)
    db.create_topic("t", config=TASKS.get(thread))
    db.append("t", b"v", b"k")
    with db.transaction("x") as tx:
        tx.send("t", b"w", b"l")
    db.flush()
    db._transactions.close()
    die(db)
    with refused(thread), pytest.raises(ThreadUnavailable, match=thread):
        logdb.open(path)
    assert ours() == set() and open_below(path) == []
    with logdb.open(path) as db:
        assert [record.value for record in db.log("t").read(0)] == [b"v", b"w"]
    check_open(path)


@pytest.mark.parametrize("thread", TASKS)
def test_a_topic_that_needs_it(tmp_path, thread):
    with logdb.open(tmp_path / "db") as db:
        with refused(thread), pytest.raises(ThreadUnavailable, match=thread):
            db.create_topic("t", config=TASKS[thread])
        assert [topic.name for topic in db.topics()] == [], "nothing was created"
        db.create_topic("t")
        with refused(thread), pytest.raises(ThreadUnavailable, match=thread):
            db.alter_topic("t", config=TASKS[thread])
        assert db.describe_topic("t").config == {}, "nothing was changed"
        db.alter_topic("t", config=TASKS[thread])
        assert thread in ours()
    check_open(tmp_path / "db")


def test_timers(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    producer = db.producer(transactional_id="x", transaction_timeout_ms=200)
    with refused("logdb-timers"), pytest.raises(ThreadUnavailable, match="logdb-timers"):
        producer.begin_transaction()
    producer.begin_transaction()
    producer.send("t", b"v")
    producer.flush()
    until(lambda: [str(found.state) for found in db.transactions()] == ["CompleteAbort"], "the transaction has timed out")
    with pytest.raises(logdb.errors.LogdbError):
        producer.commit_transaction()
    db.close()
    check_open(tmp_path / "db")


def test_closing_without_timers(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    with refused("logdb-timers"), pytest.raises(ThreadUnavailable):
        db.producer(transactional_id="x").begin_transaction()
    db.close()
    check_open(tmp_path / "db")


def test_a_producers_thread(tmp_path, place):
    with opened(place, tmp_path / "db") as db:
        db.create_topic("t")
        with db.producer() as producer:
            with refused("logdb-producer"), pytest.raises(ThreadUnavailable, match="logdb-producer"):
                producer.send("t", b"refused")
            assert producer.send("t", b"sent").result(30).offset == 0
        assert [record.value for record in db.log("t").read(0)] == [b"sent"]


def test_syncs_side_by_side_are_made_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr("logdb.broker.marker_writer._SLOW_SYNC_S", -1.0)
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=3)
        with refused("logdb-sync", 2), db.transaction("x") as tx:
            for partition in range(3):
                tx.send("t", b"%d" % partition, partition=partition)
        assert [db.log("t", partition).last_stable_offset for partition in range(3)] == [2, 2, 2]
        with db.transaction("x") as tx:
            for partition in range(3):
                tx.send("t", b"%d" % partition, partition=partition)
        assert "logdb-sync_0" in {thread.name for thread in threading.enumerate()}


def test_a_server(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        with refused("logdb-server"), pytest.raises(ThreadUnavailable, match="logdb-server"):
            logdb.serve(db, http="127.0.0.1:0")
        with logdb.serve(db, http="127.0.0.1:0") as server, logdb.open(server.addresses[0]) as remote:
            assert remote.append("t", b"x").offset == 0


def test_a_servers_threads(tmp_path):
    with logdb.open(tmp_path / "db") as db, logdb.serve(db, http="127.0.0.1:0") as server:
        with refused("logdb-http"), pytest.raises(ThreadUnavailable, match="logdb-http"):
            logdb.open(server.addresses[0])
        with logdb.open(server.addresses[0]) as remote:
            remote.create_topic("t")


def test_a_remote_consumers_threads(tmp_path):
    with opened("url", tmp_path / "db") as db:
        db.create_topic("t")
        db.append("t", b"x")
        with db.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.subscribe("t")
            with refused("logdb-join_group"), pytest.raises(ThreadUnavailable):
                consumer.poll(timeout_ms=5_000)
            assert consumer.poll(timeout_ms=5_000)
            with refused("logdb-commit"), pytest.raises(ThreadUnavailable):
                consumer.commit()
            consumer.commit()
        assert [found.lag for found in db.group_offsets("g")] == [0]


def test_aio(tmp_path):
    async def main() -> None:
        with refused("logdb-aio"), pytest.raises(ThreadUnavailable):
            await aio.open(tmp_path / "db")
        async with await aio.open(tmp_path / "db") as db:
            await db.create_topic("t")
            assert (await db.append("t", b"x")).offset == 0

    asyncio.run(main())
