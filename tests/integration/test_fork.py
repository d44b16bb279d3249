"""A forked child: refused by name, harmless to the parent in whatever way it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest

import logdb
from logdb import threads
from logdb.errors import Forked
from logdb.io import IO
from logdb.meta.reader_writer_lock import ReaderWriterLock
from logdb.store.lock import LockFile, writer_alive
from support.faulty_io import FaultyIO

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(work) -> None:
    """Run ``work`` in a forked child; whatever it raises fails the test."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 -- a child must not go on with the tests
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def refused(call) -> None:
    with pytest.raises(Forked, match=f"opened by process {os.getppid()}, this is its child {os.getpid()}"):
        call()


def values(log: logdb.Log) -> list[bytes]:
    return [record.value for record in log.read(0)]


def test_the_child_is_refused_and_the_parent_goes_on(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, linger_ms=60_000) as db:
        db.create_topic("t", partitions=2)
        log = db.log("t")
        log.append_many([b"written"])
        log.append(b"waits")

        def child():
            writes = io.count("pwrite")
            for call in (
                lambda: log.append(b"x"),
                lambda: log.append(b"x", durability="fsync"),
                lambda: log.append_many([b"x"]),
                lambda: log.append_batches(b"x"),
                log.flush,
                lambda: log.flush(sync=False),
                lambda: log.read(0),
                lambda: next(log.follow(0)),
                lambda: log.read_batches(0),
                log.read_arrow,
                lambda: log.offset_for_timestamp(0),
                db.flush,
                db.topics,
                lambda: db.log("t", 1),
                lambda: db.describe_topic("t"),
                lambda: db.append("t", b"x"),
                lambda: db.create_topic("u"),
                lambda: db.alter_topic("t", partitions=3),
                lambda: db.delete_topic("t"),
            ):
                refused(call)
            db.close()
            assert io.count("pwrite") == writes

        in_child(child)
        assert log.append(b"after") == 2
        assert values(log) == [b"written", b"waits", b"after"]
        log.flush()
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == [b"written", b"waits", b"after"]
        assert db.log("t").leader_epoch == 0


def test_the_end_of_a_child_does_not_release_the_parents_lock(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        in_child(lambda: None)
        in_child(db.close)
        with pytest.raises(logdb.errors.DirectoryLocked, match=f"process {os.getpid()} "):
            logdb.open(tmp_path / "db")
        assert db.append("t", b"x").offset == 0


def test_a_child_does_not_keep_the_lock(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(there)
        os.read(here, 1)  # until the parent is done
        os._exit(0)
    os.close(here)
    try:
        db.close()
        with logdb.open(tmp_path / "db") as again:
            assert again.append("t", b"x").offset == 0
    finally:
        os.close(there)
        os.waitpid(pid, 0)


def test_close_frees_the_lock_before_a_child_has_run(tmp_path):
    lock = LockFile.acquire(IO(), str(tmp_path / "LOCK"))
    inherited = os.dup(lock._fd)  # what a child holds from fork() on, until it gets to run
    try:
        lock.release()
        LockFile.acquire(IO(), str(tmp_path / "LOCK")).release()
        assert not writer_alive(IO(), str(tmp_path / "LOCK"))
    finally:
        os.close(inherited)


def test_a_child_opens_its_own(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t")
    db.log("t").append(b"parent's")

    def child():
        with logdb.open(tmp_path / "db", mode="r") as mine:
            assert mine.log("t").end_offset in {0, 1}
        with logdb.open(tmp_path / "child's") as mine:
            mine.create_topic("t")
            assert mine.append("t", b"x").offset == 0

    in_child(child)
    db.close()

    def heir():
        with logdb.open(tmp_path / "db") as mine:
            assert mine.append("t", b"child's").offset == 1

    in_child(heir)
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == [b"parent's", b"child's"]


def test_a_reader_in_a_child_is_refused_too(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"])
        with logdb.open(tmp_path / "db", mode="r") as reader:
            log = reader.log("t")
            in_child(lambda: refused(lambda: log.read(0)))
            in_child(lambda: refused(lambda: log.read_batches(0)))
            assert values(log) == [b"x"]


FORKS_AND_EXITS = """
import os, sys, logdb
db = logdb.open(sys.argv[1], linger_ms=60_000)
db.create_topic("t")
log = db.log("t")
for number in range(100):
    log.append(b"%d" % number)
if os.fork() == 0:
    sys.exit(3)  # runs what is registered with atexit
assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
log.append(b"100")
# no close: the interpreter's end writes what waits
"""


def test_the_childs_exit_writes_nothing_twice(tmp_path):
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS_AND_EXITS, str(tmp_path / "db")], check=True, timeout=60)
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == [b"%d" % number for number in range(101)]
        assert db.log("t").leader_epoch == 0, "closed cleanly at exit"


def test_forks_while_threads_append(tmp_path):
    """Whatever lock a thread of the parent holds at that moment, the child hangs in none."""
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=3)
        stop = threading.Event()
        counts = [0, 0, 0]

        def work(partition):
            log = db.log("t", partition)
            while not stop.is_set():
                counts[partition] += len(log.append_many([b"%d" % (counts[partition] + row) for row in range(50)]))
                log.append(b"%d" % counts[partition])
                counts[partition] += 1

        threads = [threading.Thread(target=work, args=(partition,)) for partition in range(3)]
        for thread in threads:
            thread.start()

        def child():
            refused(lambda: db.log("t").append(b"x"))
            refused(lambda: db.create_topic("u"))
            refused(lambda: db.log("t").read(0))
            db.close()

        for _ in range(10):
            in_child(child)
        stop.set()
        for thread in threads:
            thread.join()
        for partition in range(3):
            assert values(db.log("t", partition)) == [b"%d" % number for number in range(counts[partition])]


def test_a_child_of_a_process_in_a_transaction(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.append("t", b"in")
        consumer = db.consumer("t", group_id="g", auto_offset_reset="earliest")
        assert consumer.poll(timeout_ms=5_000)
        session, group = db._session, consumer.group_metadata()
        with db.transaction("id") as tx:
            tx.send("t", b"out")
            tx.flush()

            def child():
                refused(lambda: session.commit_offsets("g", {}))
                refused(lambda: session.heartbeat("g", generation=group.generation, member_id=group.member_id))
                refused(lambda: session.fetch_offsets("g"))
                refused(lambda: session.init_producer_id("id"))
                refused(session.groups)
                refused(session.transactions)
                refused(lambda: tx.send_offsets(consumer))
                db.close()

            in_child(child)
            tx.send_offsets(consumer)
        assert [record.value for record in db.log("t").read(0, isolation_level="read_committed")] == [b"in", b"out"]
        consumer.close()


def test_a_consumers_child_leaves_its_group_alone(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"%d" % number for number in range(100)])
        revoked = []
        with db.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=True, max_poll_records=10) as consumer:
            consumer.subscribe("t", on_revoked=revoked.extend)
            assert len(consumer.poll()[("t", 0)]) == 10
            before = consumer.group_metadata()

            def child():
                with consumer:
                    for call in (consumer.commit, lambda: consumer.committed(("t", 0)), lambda: next(iter(consumer))):
                        with pytest.raises(Forked):
                            call()
                assert revoked == []

            in_child(child)
            assert [record.value for record in consumer.poll()[("t", 0)]] == [b"%d" % number for number in range(10, 20)]
            assert consumer.group_metadata() == before
            assert len(db.describe_group("g").members) == 1


# ---------------------------------------------------------------- whatever the parent's threads are in


def all_locks(db: logdb.Database) -> list:
    """What a thread of the parent may hold: the locks of the process, of the database and of its logs."""
    log_locks = [lock for log in db._store._state.logs.values() for lock in vars_of(log) if hasattr(lock, "_at_fork_reinit")]
    inner = [found._lock if isinstance(found, ReaderWriterLock) else getattr(found, "_cond", found) for found in list(threads._renewed)]
    return inner + log_locks


def vars_of(log: logdb.Log) -> list:
    writer = getattr(log, "writer", None)  # a tail has none
    transactions = None if writer is None else writer.transactions
    return [value for each in (log, writer, transactions) if each is not None for value in vars(each).values()]


@pytest.mark.parametrize("mode", ["a", "r"])
def test_a_child_hangs_in_no_lock_of_its_parent(tmp_path, mode):
    """Another thread holds every lock there is at the moment of the fork."""
    with logdb.open(tmp_path / "db") as writer:
        writer.create_topic("k", config={"cleanup.policy": "compact"})
        writer.append_many("k", [b"v"], [b"k"])
        with writer.transaction("id") as tx:
            tx.send("k", b"w", b"l")
    db = logdb.open(tmp_path / "db", mode=mode)
    log, table, consumer = db.log("k"), db.table("k"), db.consumer("k", auto_offset_reset="earliest")
    assert table[b"k"] == b"v" and consumer.poll(timeout_ms=5_000) and log.end_offset == 3
    calls = [
        lambda: log.read(0),
        lambda: next(log.follow(0)),
        lambda: table[b"k"],
        lambda: len(table),
        lambda: db.table("k")[b"k"],
        lambda: consumer.poll(timeout_ms=10),
        lambda: db.describe_topic("k"),
        db.groups,
        db.transactions,
        lambda: next(db.watch()),
    ]
    if mode == "a":
        producer, begun = db.producer(linger_ms=60_000), db.producer(transactional_id="other")
        sent = producer.send("k", b"x", b"m")
        begun.begin_transaction()
        begun.send("k", b"y", b"n")
        begun.flush()
        calls += [
            lambda: producer.send("k", b"x", b"m"),
            producer.flush,
            sent.result,
            lambda: begun.send("k", b"x", b"m"),
            begun.commit_transaction,
            lambda: db.transaction("third").__enter__(),
            lambda: db.snapshot(tmp_path / "snapshot"),
            lambda: db.compact("k"),
            lambda: db.delete_records("k", 0, 1),
            lambda: log.append(b"x", b"m"),
            log.flush,
        ]
    unharmed = [
        lambda: (log.start_offset, log.end_offset, log.last_stable_offset, log.producers(), log.open_transactions()),
        consumer.close,
        db.close,
    ]

    def child() -> None:
        signal.alarm(30)
        for number, call in enumerate(calls):
            try:
                call()
            except Forked:
                continue
            raise AssertionError(f"call {number} was not refused")
        for call in unharmed:
            with contextlib.suppress(Forked):
                call()
        with logdb.open(tmp_path / "db", mode="r") as again:
            assert values(again.log("k"))[:1] == [b"v"]
            assert again.table("k")[b"k"] == b"v"

    held, enough, locks = threading.Event(), threading.Event(), all_locks(db)
    assert len(locks) > 20

    def hold() -> None:
        taken = [lock for lock in locks if lock.acquire(timeout=0.2)]  # a condition's lock may be another's, too
        held.set()
        enough.wait()
        for lock in reversed(taken):
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    try:
        in_child(child)
    finally:
        enough.set()
        holder.join()
    if mode == "a":
        begun.commit_transaction()
    db.close()
