import threading

import pytest

import logdb
from logdb.errors import DiskFull, SyncFailed
from logdb.io import IO
from logdb.log.log_sync import CHECKPOINT_INTERVALS, CHECKPOINT_SIZE_BYTES
from logdb.log.segment_writer import NOTE_SIZE_BYTES
from logdb.store.flusher import Flusher
from support.batches import encode_log
from support.clock import StillIO
from support.faulty_io import FaultyIO
from support.power_cut import quiet
from support.waiting import until


class FakeLog:
    """A log that waits to be written and synced, once or after some failures."""

    topic, partition = "t", 0

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.written, self.synced = failures, threading.Event(), threading.Event()

    def write_lingering(self, now_ms, linger_ms):
        if self.failures:
            self.failures -= 1
            raise DiskFull("path", 1, "full")
        self.written.set()
        return False

    def sync_due_ms(self):
        return None if self.synced.is_set() else 0

    def sync(self):
        self.synced.set()

    def checkpoint_due_ms(self):
        return None

    due_ms = sync_due_ms


def test_what_is_woken_is_written_and_synced_until_nothing_is_left():
    flusher = Flusher(IO(), 1, lambda logs: None)
    flusher.start()
    for failures in (0, 2):
        log = FakeLog(failures)
        flusher.wake_writer(log)
        assert log.written.wait(60)
        assert not log.synced.is_set()
        flusher.wake_syncer(log)
        assert log.synced.wait(60)
    flusher.stop()
    flusher.stop()
    assert not flusher._lingering
    assert not flusher._unsynced
    assert not any(thread.is_alive() for thread in flusher._threads)


def test_an_os_error_does_not_end_the_threads():
    class Unreadable(FakeLog):
        def sync(self):
            if not self.failures:
                self.failures = 1
                raise OSError(5, "Input/output error")
            super().sync()

        def write_lingering(self, now_ms, linger_ms):
            return False

    flusher, log = Flusher(IO(), 1, lambda logs: None), Unreadable()
    flusher.start()
    flusher.wake_syncer(log)
    assert log.synced.wait(60)
    flusher.stop()


class DueLog(FakeLog):
    """A log with something to do at a time; ``error``: what it raises then."""

    def __init__(self, due_ms, error=None):
        super().__init__()
        self.at_ms, self.error = due_ms, error

    def sync_due_ms(self):
        return self.at_ms

    due_ms = sync_due_ms

    def sync(self):
        if self.error is not None:
            raise self.error
        self.at_ms = None


def test_a_round_says_when_the_next_is_due():
    io = StillIO()
    flusher = Flusher(io, 1, lambda logs: None)
    assert flusher._sync_due() is None
    due, later, last = DueLog(io.now_ms), DueLog(io.now_ms + 700), DueLog(io.now_ms + 9_000)
    for log in (due, later, last):
        flusher.wake_syncer(log)
    assert flusher._sync_due() == 0.7
    io.now_ms += 700
    assert flusher._sync_due() == 8.3
    io.now_ms += 8_299
    assert flusher._sync_due() == 0.05, "rounds do not follow closer"
    io.now_ms += 1
    assert flusher._sync_due() is None
    assert not flusher._unsynced


@pytest.mark.parametrize(("error", "wait_s"), [(DiskFull("path", 1, "full"), 0.05), (SyncFailed("path", "EIO"), None)])
def test_what_failed_is_tried_again_unless_it_is_final(error, wait_s):
    io = StillIO()
    flusher = Flusher(io, 1, lambda logs: None)
    flusher.wake_syncer(DueLog(io.now_ms - 5_000, error))
    assert flusher._sync_due() == wait_s


def test_a_final_failure_of_a_checkpoint_is_not_tried_again():
    class Unnamed(DueLog):
        def sync_due_ms(self):
            return None

        def checkpoint_due_ms(self):
            return self.at_ms

    def fail(logs):
        raise SyncFailed("catalogue", "EIO")

    io = StillIO()
    flusher = Flusher(io, 1, fail)
    flusher.wake_syncer(Unnamed(io.now_ms))
    assert flusher._sync_due() is None


def test_at_level_os_much_data_is_synced_however_slowly_it_comes(tmp_path):
    io, part = FaultyIO(), encode_log([[bytes(900_000)]])
    with logdb.open(tmp_path / "db", durability="os", io=io) as db:
        db.create_topic("t")
        log, flusher = db.log("t"), db._store.writer.flusher
        while log.size_bytes < CHECKPOINT_SIZE_BYTES - NOTE_SIZE_BYTES // 2:
            log.append_batches(part)
        until(lambda: not flusher._unsynced, "nothing is due by now")
        assert log.view.flushed.offset == 0
        while log.size_bytes < CHECKPOINT_SIZE_BYTES + NOTE_SIZE_BYTES:
            log.append_batches(part)
        until(lambda: log.view.flushed.position >= CHECKPOINT_SIZE_BYTES - NOTE_SIZE_BYTES, "it is synced")
        until(lambda: log.syncs.checkpointed.offset > 0, "and the catalogue knows")


@pytest.mark.parametrize("level", ["interval", "fsync"])
def test_a_trickle_of_records_has_few_checkpoints(tmp_path, level):
    """Each writes the catalogue's pages and both indexes', however little has come."""
    io = StillIO()
    with logdb.open(tmp_path / "db", durability=level, io=io) as db:
        quiet(db).create_topic("t", config={"flush.ms": 1_000})
        log, flusher, seconds = db.log("t"), db._store.writer.flusher, 60
        before = db._store.catalogue.number()
        for _ in range(seconds):
            log.append_many([b"x"])
            io.now_ms += 1_000
            flusher._sync_due()
            assert log.view.flushed.offset == log.end_offset
        assert db._store.catalogue.number() - before == seconds // CHECKPOINT_INTERVALS
        while flusher._sync_due() is not None:
            io.now_ms += 1_000
        assert log.syncs.checkpointed == log.view.flushed, "and all that came is told in the end"


def test_logs_that_trickle_share_their_checkpoints(tmp_path):
    io = StillIO()
    with logdb.open(tmp_path / "db", io=io) as db:
        quiet(db).create_topic("t", partitions=30)
        flusher, seconds = db._store.writer.flusher, 60
        before = db._store.catalogue.number()
        for number in range(30 * seconds):  # each once a second, one after the other
            db.log("t", number % 30).append_many([b"x"])
            io.now_ms += 33
            flusher._sync_due()
        assert db._store.catalogue.number() - before <= 2 * seconds // CHECKPOINT_INTERVALS
        assert all(db.log("t", number).syncs.checkpointed.offset >= seconds - 2 * CHECKPOINT_INTERVALS for number in range(30))
