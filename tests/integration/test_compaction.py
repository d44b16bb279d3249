"""Compaction beside those who read and write, in its own process and in others: no thread waits, no reader misses a key."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import logdb
from support.faulty_io import WAIT_S, FaultyIO
from support.keyed import Keyed

SMALL = {"cleanup.policy": "compact", "segment.bytes": 4_096, "index.interval.bytes": 200, "min.cleanable.dirty.ratio": 0.01}
KEYS = 40

# Replays a topic again and again; every key has to be there, never with an older value than before, until one is "end".
READER = """
import sys, logdb
with logdb.open(sys.argv[1], mode="r") as db:
    log, passes, known = db.log("t"), 0, {}
    print("ready", flush=True)
    while b"end" not in known:
        before, at, found = known, -1, {}
        for record in log.read(log.start_offset):
            assert record.offset > at, (record.offset, at)
            at = record.offset
            found[record.key] = int(record.value.split()[0])
        assert set(before) <= set(found), set(before) - set(found)
        assert all(found[key] >= value for key, value in before.items()), (before, found)
        known, passes = found, passes + 1
    print(passes, sorted(set(known.values())))
"""

COMPACTOR = """
import sys, logdb
with logdb.open(sys.argv[1]) as db:
    print("ready", flush=True)
    while True:
        db.compact("t")
        db.log("t").append_many([b"x" * 50] * 40, [b"key %d" % n for n in range(40)])
        print(db.log("t").end_offset, flush=True)
"""


def start(program, path):
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def fill(log, number, keys=KEYS):
    """A record of each key, with the number of the round, in another order each time."""
    names = [b"key %d" % key for key in range(keys)]
    random.Random(number).shuffle(names)
    for first in range(0, keys, 10):
        log.append_many([b"%d " % number * 10] * 10, names[first : first + 10])
    log.flush()


def latest(records):
    return {record.key: record.value for record in records}


def drop_files(log):
    """As the cache of open files does when it is full."""
    for segment in log.segments:
        segment.file = None


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db", batch_size=500) as opened:
        opened.create_topic("t", config=SMALL)
        for number in range(20):
            fill(opened.log("t"), number)
        yield opened


@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("held", [True, False])
def test_a_reader_in_the_middle_of_what_is_compacted(db, mode, held):
    with logdb.open(db.path, mode="r") if mode == "r" else contextlib.nullcontext(db) as reader:
        log = reader.log("t")
        assert len(log.segments) > 5
        records = log.read(0)
        seen = [next(records) for _ in range(100)]
        if held:
            for segment in log.segments:
                segment.open()
        else:
            drop_files(log)
        for _ in range(3):
            db.compact("t")
            fill(db.log("t"), 99)
        seen += records
        assert all(one.offset < other.offset for one, other in itertools.pairwise(seen))
        assert set(latest(seen).values()) <= {b"19 " * 10, b"99 " * 10}
        assert len(latest(seen)) == KEYS
        again = list(log.read(0))
        assert len(again) < 3 * KEYS
        assert set(latest(again).values()) == {b"99 " * 10}
        assert [record.offset for record in log.read(0)] == [record.offset for record in db.log("t").read(0)]


@pytest.mark.parametrize("mode", ["a", "r"])
def test_other_ways_to_read_find_the_new_segments(db, mode):
    with logdb.open(db.path, mode="r") if mode == "r" else contextlib.nullcontext(db) as reader:
        log, times = reader.log("t"), [record.timestamp_ms for record in db.log("t").read(0)]
        drop_files(log)
        db.compact("t")
        left = [record.offset for record in db.log("t").read(0)]
        view, following = log.read_batches(0, 1 << 20)
        assert len(view) and following > 0
        assert [offset for batch in log.read_arrow(columns=["offset"]) for offset in batch.column(0).to_pylist()] == left
        assert log.offset_for_timestamp(times[0]) == left[0]
        assert next(log.read(left[5])).offset == left[5]


def test_readers_in_other_processes_beside_a_writer_that_compacts(db):
    readers = [start(READER, db.path) for _ in range(2)]
    log = db.log("t")
    for number in range(20, 60):
        fill(log, number)
        if number % 2:
            db.compact("t")
    log.append(b"60", b"end")
    log.flush()
    for reader in readers:
        told, _ = reader.communicate(timeout=WAIT_S)
        passes, values = told.split(maxsplit=1)
        assert reader.returncode == 0
        assert int(passes) > 0 and values == "[59, 60]\n"


def test_a_reader_beside_a_compaction_that_is_killed(tmp_path):
    path = tmp_path / "db"
    with logdb.open(path, batch_size=500) as db:
        db.create_topic("t", config=SMALL)
        for number in range(10):
            fill(db.log("t"), number)
    for rounds in range(3):
        compactor = start(COMPACTOR, path)
        with logdb.open(path, mode="r") as reader:
            log = reader.log("t")
            for _ in range(rounds + 1):
                compactor.stdout.readline()
            compactor.send_signal(signal.SIGKILL)
            compactor.wait(WAIT_S)
            assert len(latest(log.read(log.start_offset))) == KEYS
            compactor.stdout.close()
    with logdb.open(path) as db:
        assert len(latest(db.log("t").read(0))) == KEYS
        db.compact("t")
        assert len(list(db.log("t").read(0))) == KEYS
    assert logdb.verify(path).ok


def test_verify_beside_a_writer_that_compacts(db):
    with ThreadPoolExecutor(1) as pool:
        checks = [pool.submit(db.verify) for _ in range(3)]
        number = 100
        while not all(check.done() for check in checks):
            fill(db.log("t"), number)
            db.compact("t")
            number += 1
        for check in checks:
            assert check.result().ok, check.result().problems


def test_appends_and_reads_go_on_at_every_step_of_a_compaction(tmp_path):
    io, steps = FaultyIO(), []
    with logdb.open(tmp_path / "db", batch_size=500, io=io) as db, ThreadPoolExecutor(2) as pool:
        db.create_topic("t", config=SMALL)
        for number in range(10):
            fill(db.log("t"), number)
        log = db.log("t")

        def work():
            offset = log.append(b"77", b"beside")
            log.flush(sync=False)
            return offset, sum(1 for _ in log.read(0))

        def beside(kind, path):
            if path.endswith(".cleaned") and kind in ("create", "pwrite", "fdatasync", "rename"):
                step = pool.submit(work)
                offset, count = step.result(WAIT_S)
                steps.append((kind, offset))
                assert count >= KEYS

        io.before = beside
        db.compact("t")
        io.before = lambda kind, path: None
        assert {kind for kind, _ in steps} == {"create", "pwrite", "fdatasync", "rename"}
        offsets = [offset for _, offset in steps]
        assert offsets == sorted(set(offsets))
        assert latest(log.read(0))[b"beside"] == b"77"
        assert len(latest(log.read(0))) == KEYS + 1


def test_extra_disk_is_one_group_of_segments_at_most(tmp_path):
    io, sizes = FaultyIO(), []
    directory = tmp_path / "db" / "t-0"

    def measure(kind, path):
        if kind in ("pwrite", "unlink", "fsync_dir") and path.startswith(str(directory)):
            sizes.append(sum(entry.stat().st_size for entry in os.scandir(directory)))

    with logdb.open(tmp_path / "db", batch_size=500, io=io) as db:
        db.create_topic("t", config=SMALL | {"segment.bytes": 8_192})
        keyed, log = Keyed(), db.log("t")
        for _ in range(8):
            keyed.append(log, 100, 2_000)
        log.flush()
        log.roll()
        db._store.checkpoint([log])
        before = sum(entry.stat().st_size for entry in os.scandir(directory))
        assert before > 5 * 8_192
        io.before = measure
        db.compact("t")
        io.before = lambda kind, path: None
        indexes = 2 * sum(entry.stat().st_size for entry in os.scandir(directory) if "index" in entry.name)
        assert max(sizes) - before <= 8_192 + indexes
        keyed.check(log)
