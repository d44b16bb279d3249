"""One sync for many logs: as durable as a sync of each, and as final where it fails."""

import errno
import os
import random

import pytest

import logdb
from logdb import verify
from logdb.errors import LogdbError, SyncFailed, WriteFailed
from logdb.io import IO
from logdb.log import shared_sync
from support.faulty_io import FaultyIO
from support.power_cut import Killed, PowerCutIO, commits_noted, die, quiet

COUNT = shared_sync.COUNT_MIN


@pytest.fixture
def io():
    io = FaultyIO()
    io.can_sync_together = True
    return io


def many(db, count=COUNT):
    """The logs of a topic, each with a record that is written and not synced; no thread syncs them."""
    quiet(db).create_topic("t", partitions=count, config={"flush.ms": 30_000})  # no checkpoint is due by time on a slow machine
    logs = [db.log("t", partition) for partition in range(count)]
    for log in logs:
        log.append_many([b"x"])
    return logs


def sync(db, logs):
    """One round of the flusher over them, when their syncs are due."""
    flusher = db._store.writer.flusher
    for log in logs:
        log.syncs.unsynced_since_ms = 1
        flusher._unsynced.add(log)
    flusher._sync_due()


def test_many_logs_share_one_sync(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db)
        before = io.count("fdatasync"), io.count("fsync_dir")
        sync(db, logs)
        assert [log.flushed_offset for log in logs] == [1] * COUNT
        assert not any(log.view.active.dirty or log.view.active.new or log.writer.epochs_unsynced for log in logs)
        assert (io.count("sync_file_system"), io.count("start_writing"), io.count("write_errors")) == (1, COUNT, COUNT)
        assert (io.count("fdatasync") - before[0], io.count("fsync_dir") - before[1]) == (1, 0)


def test_a_flush_of_a_database_is_one_sync(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db)
        before = io.count("fdatasync")
        db.flush()
        assert [log.flushed_offset for log in logs] == [1] * COUNT
        assert (io.count("sync_file_system"), io.count("fdatasync") - before) == (1, 1)
        db.flush(sync=False)
        db.flush()
        assert io.count("sync_file_system") == 1


@pytest.mark.parametrize(("kind", "path"), [("sync_file_system", ""), ("write_errors", "t-5")])
def test_a_flush_of_a_database_meets_the_failure(tmp_path, io, kind, path):
    with logdb.open(tmp_path / "db", io=io) as db:
        many(db)
        io.fail(kind, errno.EIO, path)
        for _ in range(2):
            with pytest.raises(SyncFailed):
                db.flush()
            io.heal()


@pytest.mark.parametrize("count", [3, COUNT])
def test_a_log_that_cannot_be_flushed_keeps_no_other_from_it(tmp_path, io, count):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db, count)
        flush = logs[1].flush

        def interrupted(sync=True):
            if sync:
                raise WriteFailed("t-1", "a truncation was interrupted")
            flush(sync)

        logs[1].flush = interrupted
        with pytest.raises(WriteFailed, match="was interrupted"):
            db.flush()
        assert [log.flushed_offset for log in (logs[0], *logs[2:])] == [1] * (count - 1)


def test_a_shared_sync_writes_no_file_for_each_log(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db)
        sync(db, logs)
        before = io.count("open"), io.count("pwrite")
        for log in logs:
            log.append_many([b"y"])
        sync(db, logs)
        assert [log.flushed_offset for log in logs] == [2] * COUNT
        assert (io.count("open") - before[0], io.count("pwrite") - before[1]) == (0, COUNT)


def test_few_logs_are_synced_each(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db, COUNT - 1)
        sync(db, logs)
        assert [log.flushed_offset for log in logs] == [1] * (COUNT - 1)
        assert io.count("sync_file_system") == 0


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_a_system_without_such_a_sync(tmp_path, io, number):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db)
        io.fail("sync_file_system", number)
        sync(db, logs)
        assert [log.flushed_offset for log in logs] == [1] * COUNT
        logs[0].append(b"y", durability="fsync")


@pytest.mark.parametrize(
    ("kind", "path"), [("start_writing", "t-5"), ("sync_file_system", ""), ("write_errors", "t-5"), ("fdatasync", ".log")]
)
def test_a_failure_is_final_for_each_of_the_logs(tmp_path, io, kind, path):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db)
        io.fail(kind, errno.EIO, path)
        sync(db, logs)
        io.heal()
        assert [log.flushed_offset for log in logs] == [0] * COUNT
        for log in logs:
            with pytest.raises(SyncFailed):
                log.append(b"y", durability="fsync")
            with pytest.raises(SyncFailed):
                log.view.active.sync()  # the system would report success: it has reported the failure once


def test_a_log_that_is_appended_to_or_truncated_meanwhile(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db)

        def meanwhile(kind, path):
            if kind == "sync_file_system":
                io.before = lambda kind, path: None
                logs[1].append_many([b"later"])
                db._store.truncate_to("t", 2, 0)

        io.before = meanwhile
        sync(db, logs)
        assert [log.flushed_offset for log in logs] == [1, 1, 0, *[1] * (COUNT - 3)]
        assert (logs[1].end_offset, logs[2].end_offset) == (2, 0)
        assert logs[1].view.active.dirty
        assert logs[1].sync_due_ms() is not None
        logs[2].append(b"after", durability="fsync")
        assert logs[2].flushed_offset == 1


@pytest.mark.parametrize("seed", range(3))
def test_no_power_cut_takes_what_is_flushed(tmp_path, monkeypatch, seed):
    """Killed at each call of a round: what a log calls flushed is there, and each log opens as a log."""
    monkeypatch.setattr(shared_sync, "COUNT_MIN", 2)
    rng = random.Random(seed)
    for kill_at in range(1, 1_000):
        root = tmp_path / f"{kill_at}"
        root.mkdir()
        io = PowerCutIO(str(root))
        db = logdb.open(root / "db", io=io)
        logs = many(db, 3)
        io.note_commit(str(root / "db" / "catalogue"))
        calls, io.kill_at = len(io.calls), len(io.calls) + kill_at
        is_killed = False
        try:
            sync(db, logs)
            logs[0].append_many([b"more"])
            sync(db, logs)
        except Killed:
            is_killed = True
        flushed = [log.flushed_offset for log in logs]
        io.dead = True
        io.cut(str(tmp_path / "cut"), rng)
        io.dead = False
        die(db)
        with logdb.open(tmp_path / "cut" / "db") as again:
            for partition, offset in enumerate(flushed):
                log = again.log("t", partition)
                assert log.end_offset >= offset, io.calls[calls:]
                assert log.read_only_reason is None
                assert len(list(log.read(0))) == log.end_offset
        if not is_killed:
            assert io.calls[calls:].count("sync_file_system") == 2
            return
    raise AssertionError("it never ended")


def test_closing_many_logs_waits_for_the_disk_a_few_times(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io)
    many(db)
    with db.producer() as producer:
        for partition in range(COUNT):
            producer.send("t", b"y", partition=partition).result()
    before = io.count("fdatasync") + io.count("fsync_dir")
    db.close()
    assert io.count("fdatasync") + io.count("fsync_dir") - before < 30
    with logdb.open(tmp_path / "db") as again:
        assert again._store.was_closed
        assert [len(list(again.log("t", partition).read(0))) for partition in range(COUNT)] == [2] * COUNT
    assert verify(tmp_path / "db").ok


def test_a_close_of_many_logs_whose_sync_fails_says_so(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io)
    many(db)
    io.fail("sync_file_system", errno.EIO)
    with pytest.raises(LogdbError, match="sync"):
        db.close()
    io.heal()
    with logdb.open(tmp_path / "db") as again:
        assert not again._store.was_closed
        assert again.log("t", 0).end_offset == 1


def test_a_close_says_so_where_what_is_saved_beside_a_log_could_not_be_synced(tmp_path, io, monkeypatch):
    db = logdb.open(tmp_path / "db", io=io)
    logs = many(db)

    def fails(*_: object, **__: object) -> None:
        error = SyncFailed("x", "broken")
        db._store._state.fail(error)
        raise error

    monkeypatch.setattr(type(logs[0].syncs), "begin_saving", fails)
    with pytest.raises(LogdbError, match="broken"):
        db.close()


@pytest.mark.parametrize("seed", range(3))
def test_no_power_cut_during_a_close_takes_what_is_flushed(tmp_path, monkeypatch, seed):
    """Killed at each call of a close: what was flushed is there; a directory that says it was closed has everything."""
    monkeypatch.setattr(shared_sync, "COUNT_MIN", 2)
    rng, kill_at, is_killed = random.Random(seed), 0, True
    while is_killed:
        kill_at += 1
        os.mkdir(tmp_path / f"{kill_at}")
        io = PowerCutIO(str(tmp_path / f"{kill_at}"))
        with commits_noted(io):
            db = logdb.open(os.path.join(io.root, "db"), io=io)
            logs = many(db, 3)
            logs[0].sync()
            calls, io.kill_at = len(io.calls), len(io.calls) + kill_at
            try:
                db.close()
                is_killed = False
            except Killed:
                die(db)
        io.dead = True
        io.cut(str(tmp_path / "cut"), rng)
        io.dead = False
        with logdb.open(tmp_path / "cut" / "db") as again:
            found = [again.log("t", partition) for partition in range(3)]
            assert [log.read_only_reason for log in found] == [None] * 3
            assert [len(list(log.read(0))) for log in found] == [log.end_offset for log in found]
            assert found[0].end_offset == 1
            assert not again._store.was_closed or [log.end_offset for log in found] == [1] * 3, io.calls[calls:]
    assert again._store.was_closed
    assert io.calls[calls:].count("sync_file_system") >= 3


def test_the_real_system_syncs_files_together(tmp_path):
    class Counting(IO):
        syncs = 0

        def sync_file_system(self, fd):
            super().sync_file_system(fd)
            self.syncs += 1

    io = Counting()
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(db)
        sync(db, logs)
        assert [log.flushed_offset for log in logs] == [1] * COUNT
        fd = os.open(tmp_path, os.O_RDONLY)
        assert io.syncs == IO().syncs_together(fd)
        os.close(fd)


def test_a_subclass_with_its_own_fdatasync_sees_each_sync():
    class Counting(IO):
        def fdatasync(self, fd):
            super().fdatasync(fd)

    with open(__file__) as file:
        assert not Counting().syncs_together(file.fileno())


def test_a_checkpoint_of_many_logs_waits_for_the_disk_a_few_times(tmp_path, io):
    """Producers' snapshots and indexes of all logs are written before one sync, and named before another."""
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(quiet(db))
        with db.producer() as producer:
            for number in range(2 * COUNT):
                producer.send("t", bytes(10_000), partition=number % COUNT).result()
        sync(db, logs)
        before = io.count("fdatasync"), io.count("fsync_dir"), io.count("sync_file_system")
        db._store.writer.checkpoint(logs)
        after = io.count("fdatasync"), io.count("fsync_dir"), io.count("sync_file_system")
        assert all(log.syncs.checkpointed == log.view.flushed and not log.producers_unsaved for log in logs)
        assert all(log.view.active.saved_bytes[0] > 0 for log in logs)
        assert [now - then for now, then in zip(after, before, strict=True)] == [2, 0, 2]


def test_a_checkpoint_of_many_logs_that_are_appended_to_shares_their_syncs(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(quiet(db))
        with db.producer() as producer:
            for number in range(2 * COUNT):
                producer.send("t", bytes(100), partition=number % COUNT).result()
        sync(db, logs)
        for log in logs:
            log.append_many([b"later"])

        def meanwhile(kind, path):
            if kind == "sync_file_system":
                for log in logs:
                    log.append_many([b"much later"])

        io.before = meanwhile
        before = io.count("fdatasync")
        db._store.writer.checkpoint(logs)
        io.before = lambda kind, path: None
        assert io.count("fdatasync") - before <= 3
        assert {log.producers_offset for log in logs} == {4}
        assert min(log.end_offset for log in logs) > 4


@pytest.mark.parametrize(
    ("kind", "path", "code"), [("pwrite", "t-5/", errno.ENOSPC), ("rename", "t-5/", errno.EIO), ("write_errors", ".snapshot", errno.EIO)]
)
def test_a_checkpoint_of_many_logs_that_fails(tmp_path, io, kind, path, code):
    with logdb.open(tmp_path / "db", io=io) as db:
        logs = many(quiet(db))
        with db.producer() as producer:
            for number in range(2 * COUNT):
                producer.send("t", bytes(10_000), partition=number % COUNT).result()
        sync(db, logs)
        known = [log.syncs.checkpointed for log in logs]
        io.fail(kind, code, path)
        with pytest.raises(LogdbError):
            db._store.writer.checkpoint(logs)
        io.heal()
        named = [log.syncs.checkpointed != before for log, before in zip(logs, known, strict=True)]
        assert not named[5]
        assert kind != "pwrite" or sum(named) == COUNT - 1, "the others go on"
        if kind != "write_errors":
            db._store.writer.checkpoint(logs)
            assert all(log.syncs.checkpointed == log.view.flushed for log in logs)
