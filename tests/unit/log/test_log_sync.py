import itertools
import threading
from functools import partial

import pytest

import logdb
from logdb.errors import DiskFull
from logdb.log.transactions import LogTransactions
from support.clock import StillIO
from support.interrupts import Interrupted
from support.produced import Sender, open_bare
from support.watched_lock import WatchedLock

STEP_MS = 10


@pytest.fixture
def io():
    return StillIO()


@pytest.fixture
def log(tmp_path, io, monkeypatch):
    monkeypatch.setattr("logdb.store.flusher.Flusher._sync_loop", lambda self: None)  # nothing is synced but by the test
    with open_bare(tmp_path / "db", io=io, linger_ms=60_000) as db:
        db.create_topic("t", config={"flush.ms": 1_000})
        yield db.log("t")


def test_unsynced_records_are_due_from_the_first_on(log, io):
    log.append_many([b"a"])
    due_ms = log.syncs.due_ms()
    io.now_ms += STEP_MS
    log.append_many([b"b"])
    assert log.syncs.due_ms() == due_ms
    log.sync()
    assert log.syncs.due_ms() is None


def test_records_that_come_during_a_sync_are_due_from_then_on(log, io, monkeypatch):
    log.append_many([b"a"])
    due_ms, fdatasync = log.syncs.due_ms(), io.fdatasync

    def append_meanwhile(fd):
        monkeypatch.undo()
        io.now_ms += STEP_MS
        log.append_many([b"b"])
        io.now_ms += STEP_MS
        fdatasync(fd)

    monkeypatch.setattr(io, "fdatasync", append_meanwhile)
    log.sync()
    assert (log.flushed_offset, log.end_offset) == (1, 2)
    assert log.syncs.due_ms() == due_ms + STEP_MS


def test_a_sync_during_a_write_does_not_take_its_records_for_synced(log, monkeypatch):
    """The write found that a sync was due already; the sync that was under way then covered all but this write."""
    sender, advance, threads = Sender(log), LogTransactions.advance, []
    sender.send(b"a")
    log.writer.lock = WatchedLock(log.writer.lock)

    def sync_meanwhile(self, *args):
        if not threads:
            threads.append(threading.Thread(target=log.sync))
            threads[0].start()
            log.writer.lock.until_awaited_by(threads[0])
        return advance(self, *args)

    monkeypatch.setattr(LogTransactions, "advance", sync_meanwhile)
    sender.send(b"b")
    threads[0].join()
    assert log.flushed_offset == log.end_offset or log.syncs.due_ms() is not None


def test_what_a_failed_sync_has_left_stays_due(log, monkeypatch):
    log.append_many([b"a"])
    due_ms = log.syncs.due_ms()

    def full(*_args, **_options):
        raise DiskFull("leader-epoch-checkpoint", 1, "no room")

    log.writer.epochs_unsynced = True
    monkeypatch.setattr(log.writer, "save_epochs", full)
    with pytest.raises(DiskFull):
        log.sync()
    assert log.syncs.due_ms() == due_ms
    monkeypatch.undo()
    log.sync()
    assert (log.syncs.due_ms(), log.flushed_offset) == (None, 1)


def test_a_write_beside_a_sync_that_fails_stays_due(log, monkeypatch):
    """Nothing but the epochs was unsynced when the sync began; the write comes as it fails."""
    log.append_many([b"a"])
    log.sync()
    since_ms, failed, threads = 0, [], []
    log.writer.lock = WatchedLock(log.writer.lock)

    def write_meanwhile(_self):
        known = since_ms
        if failed and not threads:
            threads.append(threading.Thread(target=log.append_many, args=([b"b"],)))
            threads[0].start()
            log.writer.lock.until_awaited_by(threads[0])
        return known

    def noted(_self, ms):
        nonlocal since_ms
        since_ms = ms

    def full(**_options):
        failed.append(True)
        raise DiskFull("leader-epoch-checkpoint", 1, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(log.syncs), "unsynced_since_ms", property(write_meanwhile, noted), raising=False)
        patch.setattr(log.writer, "save_epochs", full)
        log.writer.epochs_unsynced = True
        with pytest.raises(DiskFull):
            log.sync()
        threads[0].join()
    assert since_ms > 0


def test_an_interrupt_of_the_first_roll_leaves_no_log_without_its_epochs(tmp_path):
    with logdb.open(tmp_path / "db", linger_ms=60_000, durability="os") as db:
        db.create_topic("t", partitions=100)
        for partition in range(100):
            log = db.log("t", partition)
            log.append(b"x")
            with log.writer.lock:
                interrupted = Interrupted(partition + 1, partial(log.writer.roll, log.now_ms()))
            log.flush()
            assert (tmp_path / f"db/t-{partition}/leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n", interrupted.place
            if "Segment.create" in str(interrupted.place):
                return
    raise AssertionError("the segment is made later")


def test_an_interrupt_of_a_roll_leaves_a_log_that_takes_records(tmp_path):
    """A checkpoint that comes then does not seal the segment that is still the active one."""
    with open_bare(tmp_path / "db", linger_ms=60_000, durability="os") as db:
        db.create_topic("t")
        log, expected = db.log("t"), []
        for number in itertools.count(1):
            for _ in range(2):
                expected.append(b"%d" % len(expected))
                log.append_many(expected[-1:])
            with log.writer.lock:
                interrupted = Interrupted(number, partial(log.writer.roll, log.now_ms()))
            db._store.checkpoint([log])
            if interrupted.place is None:
                break
        log.append_many([b"last"])
        assert [record.value for record in log.read(0)] == [*expected, b"last"]
