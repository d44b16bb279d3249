"""Readers of segments that are removed under them, in the writer's process and in others: they go on, or are told so."""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading

import pytest

import logdb
import logdb.aio
from logdb.errors import CorruptionError, OffsetOutOfRange, UnknownTopic
from logdb.store.writer import Writer
from support.waiting import until

COUNT = 400

# Reads a topic again and again from its start, each record checked, until it meets the record "end".
READER = """
import sys, logdb
with logdb.open(sys.argv[1], mode="r") as db:
    log, passes, jumps, ended = db.log("t"), 0, 0, False
    offset = log.start_offset
    print("ready", flush=True)
    while not ended:
        try:
            for record in log.read(offset):
                assert record.offset == offset, (record.offset, offset)
                assert record.value in (b"end", b"%d" % offset * 50), record
                ended, offset = record.value == b"end", offset + 1
            passes += 1
        except logdb.errors.OffsetOutOfRange as error:
            assert error.start_offset > offset, error
            jumps, offset = jumps + 1, error.start_offset
    print(passes, jumps, offset)
"""


def fill(log, count=COUNT):
    for _ in range(0, count, 10):
        end = log.end_offset
        log.append_many([b"%d" % offset * 50 for offset in range(end, end + 10)], durability="os")
    log.flush()


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as opened:
        opened.create_topic("t", config={"segment.bytes": 4_096})
        fill(opened.log("t"))
        opened._store.checkpoint([opened.log("t")])  # else sealing opens files when a test has closed them
        yield opened


def drop_files(log):
    """As the cache of open files does when it is full."""
    for segment in log.segments:
        segment.file = None


@pytest.mark.parametrize("mode", ["a", "r"])
@pytest.mark.parametrize("held", [True, False])
def test_a_reader_in_the_middle_of_what_is_deleted(db, mode, held):
    reader = db if mode == "a" else logdb.open(db.path, mode="r")
    log = reader.log("t")
    assert len(log.segments) > 10
    records = log.read(0)
    assert next(records).offset == 0
    if held:
        for segment in log.segments:
            segment.open()
    else:
        drop_files(log)
    assert db.delete_records("t", 0, -1) == COUNT
    seen = []
    with contextlib.nullcontext() if held else pytest.raises(OffsetOutOfRange, match=rf"it holds \[{COUNT}, {COUNT}\)"):
        seen.extend((record.offset, record.value) for record in records)
    assert seen == [(offset, b"%d" % offset * 50) for offset in range(1, 1 + len(seen))]
    assert len(seen) == COUNT - 1 or not held
    assert log.start_offset == log.end_offset == COUNT
    for read in (log.read, log.read_batches, log.read_arrow):
        with pytest.raises(OffsetOutOfRange):
            read(0)
    assert log.offset_for_timestamp(0) is None
    fill(db.log("t"), 10)
    assert [record.offset for record in log.read(COUNT)] == list(range(COUNT, COUNT + 10))
    assert log.offset_for_timestamp(0) == COUNT
    if mode == "r":
        reader.close()


def test_a_reader_that_did_not_look_since_is_told_when_it_comes_to_the_files(db):
    with logdb.open(db.path, mode="r") as reader:
        log = reader.log("t")
        drop_files(log)
        db.delete_records("t", 0, 200)
        with pytest.raises(OffsetOutOfRange):
            next(log.read(0))
        assert log.start_offset == 200
        assert next(log.read(200)).offset == 200


@pytest.mark.parametrize("call", ["read_batches", "read_arrow", "offset_for_timestamp"])
def test_every_way_of_reading_is_told(db, call):
    with logdb.open(db.path, mode="r") as reader:
        log = reader.log("t")
        drop_files(log)
        db.delete_records("t", 0, 200)
        if call == "offset_for_timestamp":
            assert log.offset_for_timestamp(0) == 200
            return
        with pytest.raises(OffsetOutOfRange):
            list(getattr(log, call)(0))


def test_a_reader_follows_while_all_is_deleted_and_more_is_written(db):
    with logdb.open(db.path, mode="r") as reader:
        log = reader.log("t")
        followed = log.follow(COUNT, timeout_ms=60_000)
        for _ in range(3):
            db.delete_records("t", 0, -1)
            end = db.log("t").append(b"more", durability="os")
            db.flush()
            assert next(followed).offset == end


def test_a_reader_of_a_log_that_starts_within_its_only_segment(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        fill(db.log("t"), 20)
        db.delete_records("t", 0, 7)
        with logdb.open(db.path, mode="r") as reader:
            log = reader.log("t")
            assert (log.start_offset, log.end_offset) == (7, 20)
            assert [record.offset for record in log.read(7)] == list(range(7, 20))


def test_a_file_that_is_lost_is_still_corruption(db):
    db._store.checkpoint([db.log("t")])
    with logdb.open(db.path, mode="r") as reader:
        log = reader.log("t")
        drop_files(log)
        lost = log.segments[2]
        lost.remove()
        with pytest.raises(CorruptionError, match="the file is missing"):
            list(log.read(lost.base_offset))


@pytest.mark.slow
def test_a_process_that_reads_while_old_segments_go(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 4_096, "retention.bytes": 20_000})
        log = db.log("t")
        fill(log)
        child = subprocess.Popen([sys.executable, "-c", READER, db.path], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        for round_number in range(40):
            if round_number in (10, 30):  # let it fall behind, and come back
                os.kill(child.pid, signal.SIGSTOP if round_number == 10 else signal.SIGCONT)
            fill(log, 200)
            db._store.checkpoint([log])
            db._store.writer.retention.enforce()
        log.append(b"end", durability="os")
        log.flush()
        output, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        _, jumps, offset = map(int, output.split())
        assert offset == log.end_offset
        assert jumps > 0
    assert logdb.verify(tmp_path / "db").ok


def together(stop, *works):
    """Run each in a thread; returns what they failed with, the first of which stops the others."""
    failures = []

    def guarded(work):
        try:
            work()
        except Exception as error:  # noqa: BLE001 -- the test is to hear of it
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.slow
def test_threads_append_and_read_while_records_go(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 32_768, "retention.bytes": 70_000})
        log, stop = db.log("t"), threading.Event()

        def append():
            for _ in range(50):
                fill(log, 100)
            stop.set()

        def read():
            offset = 0
            while not stop.is_set():
                try:
                    for record in log.read(offset):
                        assert (record.offset, record.value) == (offset, b"%d" % offset * 50)
                        offset += 1
                    assert bytes(log.read_batches(max(log.start_offset, offset - 50))[0][16:17]) in (b"\2", b"")
                except OffsetOutOfRange as error:
                    offset = max(error.start_offset, offset)

        def delete():
            for round_number in itertools.count():
                end = log.end_offset
                if round_number % 5 == 4:
                    assert db.delete_records("t", 0, -1) >= end
                else:
                    db._store.checkpoint([log])
                    db._store.writer.retention.enforce()
                if stop.is_set():
                    return

        assert together(stop, append, read, read, delete) == []
        assert log.start_offset > 0
    report = logdb.verify(tmp_path / "db")
    assert report.ok, report.problems


# ---------------------------------------------------------------- when it runs


def aged(path, now_ms, **config):
    """A database that was closed when nothing in it was too old yet; ``now_ms``: a list, of the time."""
    with logdb.open(path, clock=lambda: now_ms[0]) as made:
        made.create_topic("t", config={"segment.bytes": 4_096, **config})
        fill(made.log("t"))


def test_an_opening_lets_go_of_what_is_due(tmp_path):
    """In the background, at once: a program that is soon over never sees the first check interval."""
    now_ms = [1_700_000_000_000]
    aged(tmp_path / "db", now_ms, **{"retention.ms": 86_400_000})
    now_ms[0] += 86_400_001  # while it is closed
    with logdb.open(tmp_path / "db", clock=lambda: now_ms[0]) as db:
        log = db.log("t")
        until(lambda: log.start_offset == COUNT, "the first round is at once", 15)


def test_an_opening_compacts_what_is_due(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 4_096})
        db.log("t").append_many([bytes(100)] * 1_000, keys=[b"k"] * 1_000)
    with logdb.open(tmp_path / "db") as db:
        log = db.log("t")
        until(lambda: log.size_bytes < 20_000, "the first round is at once", 15)


def test_an_opening_waits_for_none_of_it(tmp_path, monkeypatch):
    now_ms, moving, opened = [1_700_000_000_000], threading.Event(), threading.Event()
    aged(tmp_path / "db", now_ms, **{"retention.ms": 86_400_000})
    move = Writer.begin_at

    def late(writer, log, start, config=None):
        moving.set()
        assert opened.wait(60), "the opening waits for what goes"
        return move(writer, log, start, config)

    monkeypatch.setattr(Writer, "begin_at", late)
    now_ms[0] += 86_400_001
    with logdb.open(tmp_path / "db", clock=lambda: now_ms[0]) as db:
        assert moving.wait(60)
        assert db.log("t").append(b"x") == COUNT
        opened.set()


def test_behind_a_url_and_for_asyncio(tmp_path):
    now_ms = [1_700_000_000_000]
    with (
        logdb.open(tmp_path / "db", clock=lambda: now_ms[0], retention_check_interval_ms=1 << 40) as db,
        logdb.serve(db, http="127.0.0.1:0") as server,
    ):
        for name in ("a", "b", "c"):
            db.create_topic(name, config={"retention.ms": -1 if name == "c" else 86_400_000})
            db.append(name, b"x")
        db.flush()
        now_ms[0] += 86_400_001
        gone = [logdb.ExpiredRecords(name, 0, 0, 1, 1, db.log(name).size_bytes) for name in ("a", "b")]
        with logdb.open(server.addresses[0]) as remote:
            assert remote.enforce_retention(dry_run=True) == gone
            assert remote.enforce_retention("b") == gone[1:]
            assert remote.log("b").start_offset == 1
            with pytest.raises(UnknownTopic):
                remote.enforce_retention("d")

        async def use():
            async with logdb.aio.open(server.addresses[0]) as mirrored:
                return await mirrored.enforce_retention()

        assert asyncio.run(use()) == gone[:1]
        assert [db.log(name).start_offset for name in ("a", "b", "c")] == [1, 1, 0]


def test_the_interval_is_what_it_was_set_to(tmp_path):
    with logdb.open(tmp_path / "db", retention_check_interval_ms=7) as db:
        assert db._store.writer.housekeeping._tasks["retention"].interval_ms == 7
    with pytest.raises(ValueError, match="retention_check_interval_ms=0: must be a whole number, 1 or more"):
        logdb.open(tmp_path / "db", retention_check_interval_ms=0)
