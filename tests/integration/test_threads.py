"""Many threads on the same logs, switched as often as Python can: order, contiguous ranges, nothing lost, nothing twice."""

import os
import subprocess
import sys
import threading

import pytest

import logdb
from support.batches import encode_log
from support.faulty_io import FaultyIO
from support.waiting import until

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))


@pytest.fixture(autouse=True)
def eager_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def run_all(*works) -> None:
    """Run each in a thread of its own; the first exception fails the test."""
    failures = []

    def guarded(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 -- raised again by the caller
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("level", ["os", "interval", "fsync"])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_writers_readers_flushes_and_rolls(tmp_path, level, codec):  # noqa: C901 -- one story
    rounds = (60 if level == "fsync" else 200) * SCALE
    placed: dict[str, list[tuple[range, list[bytes]]]] = {}
    with logdb.open(tmp_path / "db", durability=level, linger_ms=1) as db:
        db.create_topic("t", config={"segment.bytes": 30_000, "compression.type": codec, "flush.ms": 5})
        log, writing = db.log("t"), threading.Event()

        def one(name):
            mine = placed[name] = []
            for number in range(rounds * (1 if level == "fsync" else 10)):
                value = b"%s %d" % (name.encode(), number)
                offset = log.append(value)
                mine.append((range(offset, offset + 1), [value]))

        def many(name):
            mine = placed[name] = []
            for number in range(rounds):
                values = [b"%s %d %d" % (name.encode(), number, row) for row in range(number % 40)]
                mine.append((log.append_many(values), values))

        def raw(name):
            mine = placed[name] = []
            for number in range(rounds):
                values = [b"%s %d %d" % (name.encode(), number, row) for row in range(6)]
                mine.append((log.append_batches(encode_log([values[:2], values[2:]])), values))

        def read():
            while not writing.is_set():
                start = max(0, log.end_offset - 500)
                end = log.end_offset
                offsets = [record.offset for record in log.read(start)]
                assert offsets == list(range(start, start + len(offsets)))
                assert start + len(offsets) >= end, "what was appended before is seen"

        def follow():
            for expected, record in enumerate(log.follow(0, stop=writing)):
                assert record.offset == expected

        def disturb():
            number = 0
            while not writing.is_set():
                number += 1
                log.flush(sync=number % 3 == 0)
                if number % 5 == 0:
                    db.alter_topic("t", config={"segment.bytes": 20_000 + number % 7 * 5000, "max.message.bytes": 1 << 20})
                db.describe_topic("t")

        def write():
            try:
                run_all(*(lambda work=work, name=f"{work.__name__}{copy}": work(name) for copy in range(2) for work in (one, many, raw)))
            finally:
                writing.set()

        run_all(write, read, read, follow, disturb)
        check(log, placed)
        assert len(log.segments) > 1
    with logdb.open(tmp_path / "db") as db:
        assert db.reports == ()
        check(db.log("t"), placed)
    assert logdb.verify(tmp_path / "db").ok


def check(log, placed) -> None:
    there = [record.value for record in log.read(0)]
    claimed = [None] * len(there)
    for name, mine in placed.items():
        last = -1
        for offsets, values in mine:
            assert len(offsets) == len(values)
            assert offsets.start > last or not values, f"{name}: the order of a thread is kept"
            last = max(last, offsets.stop - 1) if values else last
            for offset, value in zip(offsets, values, strict=True):
                assert claimed[offset] is None, f"offset {offset} was given twice"
                claimed[offset] = value
    assert there == claimed


def test_topics_come_and_go_beside_appends(tmp_path):
    with logdb.open(tmp_path / "db", linger_ms=1) as db:
        db.create_topic("kept", partitions=2)
        done = threading.Event()
        count = 300 * SCALE

        def append():
            try:
                for number in range(count):
                    db.append("kept", b"%d" % number, b"k%d" % number)
            finally:
                done.set()

        def churn(name):
            while not done.is_set():
                db.create_topic(name)
                log = db.log(name)
                log.append_many([b"x"] * 10)
                log.append(b"y")
                db.delete_topic(name)

        def look():
            while not done.is_set():
                for topic in db.topics():
                    try:
                        db.describe_topic(topic.name)
                        list(db.log(topic.name).read(0))
                    except (logdb.errors.UnknownTopic, logdb.errors.Closed):
                        assert topic.name != "kept"

        run_all(append, lambda: churn("a"), lambda: churn("b"), look)
        assert sum(info.end_offset for info in db.describe_topic("kept").partitions) == count
        assert db.reports == ()
    assert logdb.verify(tmp_path / "db").ok


def test_close_beside_appends(tmp_path):
    """What was accepted before the close is there after it; what came later was refused."""
    for attempt in range(10 * SCALE):
        path = tmp_path / f"db{attempt}"
        db = logdb.open(path)
        db.create_topic("t")
        log, accepted, begun = db.log("t"), [[] for _ in range(3)], threading.Barrier(4)

        def append(mine, log=log, begun=begun):
            begun.wait()
            try:
                while True:
                    mine.append(log.append(b"x"))
            except logdb.errors.Closed:
                pass

        def close(db=db, begun=begun):
            begun.wait()
            db.close()

        run_all(*(lambda mine=mine: append(mine) for mine in accepted), close)
        with logdb.open(path) as db:
            assert sorted(offset for mine in accepted for offset in mine) == list(range(db.log("t").end_offset))
            assert len(list(db.log("t").read(0))) == db.log("t").end_offset


def test_conditional_appends_race(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log, won = db.log("t"), []

        def compete(name):
            for _ in range(200 * SCALE):
                try:
                    won.append(log.append(name, expected_offset=log.end_offset))
                except logdb.errors.UnexpectedOffset as error:
                    assert error.expected_offset < error.end_offset  # noqa: PT017 -- it may come or not

        run_all(*(lambda name=b"%d" % number: compete(name) for number in range(4)))
        assert sorted(won) == list(range(log.end_offset))


# ---------------------------------------------------------------- in the background


def test_lingering_records_are_written(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, linger_ms=1, durability="os") as db:
        db.create_topic("t")
        for number in range(3):
            writes = io.count("pwrite", ".log")
            db.append("t", b"x")
            io.wait_for("pwrite", ".log", more_than=writes)
            with logdb.open(tmp_path / "db", mode="r") as reader:
                assert next(reader.log("t").follow(number, timeout_ms=60_000)).offset == number  # the call was made, not done


def test_interval_syncs_by_itself(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, linger_ms=1) as db:
        db.create_topic("t", config={"flush.ms": 10})
        log = db.log("t")
        for number in range(3):
            syncs = io.count("fdatasync", "0.log")
            log.append(b"x")
            io.wait_for("fdatasync", "0.log", more_than=syncs)
            io.wait_for("pwrite", "recovery-point", more_than=number)
            until(lambda end=number + 1: log.view.flushed.offset == end, "the record is flushed")


def test_level_os_does_not_sync(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, linger_ms=0, durability="os") as db:
        db.create_topic("t", config={"flush.ms": 1})
        db.create_topic("other", config={"flush.ms": 1, "durability": "interval"})
        db.log("t").append_many([b"x"])
        for number in range(3):
            db.log("other").append_many([b"x"])
            io.wait_for("pwrite", "other-0/recovery-point", more_than=number)
        assert io.count("fdatasync", "t-0/0") == 0
        db.log("t").append_many([b"x"], durability="interval")
        io.wait_for("fdatasync", "t-0/0")


@pytest.mark.parametrize("level", ["os", "interval", "fsync"])
def test_an_idle_database_makes_no_calls(tmp_path, level):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io, linger_ms=1, durability=level) as db:
        db.create_topic("t", config={"flush.ms": 5, "segment.bytes": 4096})
        log = db.log("t")
        log.append_many([b"x" * 100] * 200)
        log.append(b"x")
        db.flush()
        flusher = db._store.writer.flusher
        idle_for(flusher, io)
        calls = len(io.calls)
        woken = threading.Event()
        assert not woken.wait(0.3), "a while in which nothing is due"
        assert io.calls[calls:] == []


def idle_for(flusher, io) -> None:
    """Return once the flusher has nothing left to do."""
    until = threading.Event()
    for _ in range(600):
        if not flusher._lingering and not flusher._unsynced:
            return
        until.wait(0.1)
    raise AssertionError("the flusher never rests")


EXITS = """
import sys, threading, logdb
db = logdb.open(sys.argv[1], linger_ms=60_000)
db.create_topic("t")
log = db.log("t")
def append():
    for number in range(1000):
        log.append(b"%d" % number)
thread = threading.Thread(target=append, daemon=sys.argv[2] == "daemon")
thread.start()
thread.join()
if sys.argv[2] == "error":
    raise RuntimeError("the application fails")
"""


@pytest.mark.parametrize("how", ["plain", "daemon", "error"])
def test_the_interpreter_ends_without_close(tmp_path, how):
    done = subprocess.run([sys.executable, "-c", EXITS, str(tmp_path / "db"), how], capture_output=True, text=True, timeout=60)
    assert done.returncode == (how == "error")
    assert ("RuntimeError" in done.stderr) == (how == "error"), done.stderr
    with logdb.open(tmp_path / "db") as db:
        assert [record.value for record in db.log("t").read(0)] == [b"%d" % number for number in range(1000)]
        assert db.log("t").leader_epoch == 0, "closed cleanly"


APPENDS_TO_THE_END = """
import sys, threading, logdb
db = logdb.open(sys.argv[1])
db.create_topic("t")
log, begun = db.log("t"), threading.Event()
def append():
    try:
        while True:
            log.append(b"%d" % log.end_offset)
            begun.set()
    except logdb.errors.Closed:
        pass
threading.Thread(target=append, daemon=True).start()
begun.wait()
"""


def test_the_interpreter_ends_while_a_thread_appends(tmp_path):
    done = subprocess.run([sys.executable, "-c", APPENDS_TO_THE_END, str(tmp_path / "db")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    with logdb.open(tmp_path / "db") as db:
        log = db.log("t")
        assert log.end_offset > 0
        assert [record.value for record in log.read(0)] == [b"%d" % number for number in range(log.end_offset)]
