"""A sync fails once: from then on nothing on the device is written until it is reopened, and reading goes on."""

import errno
import gc
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import lmdb
import pytest

import logdb
from logdb.errors import DiskFull, SyncFailed, WriteFailed
from logdb.meta.environment import Environment
from support.faulty_io import FaultyIO
from support.power_cut import quiet
from support.waiting import until


@pytest.fixture
def io():
    return FaultyIO()


def values(log: logdb.Log) -> list[bytes]:
    return [record.value for record in log.read(0)]


def refuses_everything(db: logdb.Database, topic: str = "t") -> None:
    log = db.log(topic)
    before, calls = log.end_offset, [
        lambda: log.append(b"x"),
        lambda: log.append(b"x", durability="fsync"),
        lambda: log.append_many([b"x"]),
        lambda: log.append_batches(b"x"),
        log.flush,
        lambda: log.flush(sync=False),
        db.flush,
        lambda: db.append(topic, b"x"),
        lambda: db.append_many(topic, [b"x"]),
        lambda: db.create_topic("new"),
        lambda: db.alter_topic(topic, partitions=9),
        lambda: db.alter_topic(topic, config={"flush.ms": 5}),
        lambda: db.delete_topic(topic),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(SyncFailed, match="read-only until reopened") as caught:
            call()
        assert not caught.value.retriable
        assert caught.value.reason
        assert caught.value.path
    assert log.end_offset == before


@pytest.mark.parametrize("kind", ["fdatasync", "fsync_dir"])
@pytest.mark.parametrize("level", ["interval", "fsync"])
def test_read_only_until_reopened(tmp_path, io, kind, level):
    db = logdb.open(tmp_path / "db", io=io, durability=level)
    db.create_topic("t", config={"segment.bytes": 1024})
    log = db.log("t")
    log.append_many([b"synced"] * 10)
    log.flush()
    io.fail(kind, errno.EIO, "t-0")
    with pytest.raises(SyncFailed, match="t-0"):
        for _ in range(50):  # a directory is synced when a segment begins
            log.append_many([b"not synced"] * 3)
            log.flush()
    syncs = io.count(kind, "t-0")
    refuses_everything(db)
    seen = values(log)
    assert seen[:10] == [b"synced"] * 10
    assert io.count(kind, "t-0") == syncs, "a failed sync is never tried again"
    with logdb.open(tmp_path / "db", mode="r") as reader:
        assert values(reader.log("t")) == seen
    io.heal()
    refuses_everything(db)
    db.close()

    again = FaultyIO()
    with logdb.open(tmp_path / "db", io=again) as db:
        log = db.log("t")
        assert values(log)[:10] == [b"synced"] * 10
        calls = [kind for kind, path in again.calls if path == log.segments[-1].path and kind in {"fdatasync", "drop_cache"}]
        assert calls[:2] == ["fdatasync", "drop_cache"]
        assert log.leader_epoch == 1
        end = log.append(b"after", durability="fsync")
        assert values(log)[end] == b"after"
    with logdb.open(tmp_path / "db") as db:
        assert db.reports == ()
        assert db.log("t").leader_epoch == 1
    assert logdb.verify(tmp_path / "db").ok


def test_every_database_on_the_device(tmp_path, io):
    with logdb.open(tmp_path / "other") as other:
        other.create_topic("t")
        other.log("t").append_many([b"good"])
        other.log("t").append(b"written, not synced")
        other.log("t").flush(sync=False)
        with logdb.open(tmp_path / "db", io=io) as db:
            db.create_topic("t")
            io.fail("fdatasync", errno.EIO, "t-0")
            with pytest.raises(SyncFailed):
                db.log("t").append(b"x", durability="fsync")
            refuses_everything(other)
            refuses_everything(db)
            assert values(other.log("t"))[:1] == [b"good"]
            with logdb.open(tmp_path / "third") as third:
                third.create_topic("t")
                assert third.append("t", b"x").offset == 0


def test_databases_on_other_devices_go_on(tmp_path, io):
    class Elsewhere(FaultyIO):
        def device(self, path: str) -> int:
            return super().device(path) + 1

    with logdb.open(tmp_path / "other", io=Elsewhere()) as other, logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t")
        other.create_topic("t")
        io.fail("fdatasync", errno.EIO, "t-0")
        with pytest.raises(SyncFailed):
            db.log("t").append(b"x", durability="fsync")
        assert other.log("t").append(b"x", durability="fsync") == 0


def test_a_sync_that_fails_in_the_background(tmp_path, io, caplog):
    with logdb.open(tmp_path / "db", io=io) as db, caplog.at_level(logging.ERROR):
        db.create_topic("t", config={"flush.ms": 1})
        log, marks = db.log("t"), io.count("fdatasync", "LOCK")
        io.fail("fdatasync", errno.EIO, "t-0")
        log.append_many([b"written, not synced"])
        io.wait_for("fdatasync", "LOCK", more_than=marks)  # the mark for the next opening
        with pytest.raises(SyncFailed):
            log.append(b"x")
        refuses_everything(db)
        assert values(log) == [b"written, not synced"]
    assert "in the background, t-0: syncing" in caplog.text


def test_what_waits_is_not_written_after_it(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io, linger_ms=60_000)
    db.create_topic("t", partitions=2)
    db.log("t", 0).append(b"waits")
    db.log("t", 1).append(b"fails")
    io.fail("fdatasync", errno.EIO, "t-1")
    with pytest.raises(SyncFailed):
        db.log("t", 1).flush()
    assert values(db.log("t", 0)) == []
    assert io.count("pwrite", "t-0/0") == 0
    with pytest.raises(logdb.errors.CloseIncomplete, match="lost 1 records"):
        db.close()


def test_the_catalogue_cannot_commit(tmp_path, io, monkeypatch):
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append_many([b"a"])
        monkeypatch.setattr(db._store.catalogue._environment, "_own", _SyncFails)
        with pytest.raises(SyncFailed):
            db.create_topic("u")
        monkeypatch.undo()
        assert values(log) == [b"a"]
        refuses_everything(db)


@pytest.mark.parametrize("what", ["snapshot", "restore"])
def test_the_catalogue_of_a_copy_cannot_be_synced(tmp_path, io, monkeypatch, what):
    """It is on the same device, and LMDB's sync goes past ``io``."""
    own = Environment._own
    monkeypatch.setattr(Environment, "_own", lambda self: _SyncFails() if self.path.startswith(str(tmp_path / "copy")) else own(self))
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t")
        db.log("t").append_many([b"a"])
        db.backup(tmp_path / "backup")
        with pytest.raises(SyncFailed, match="copy"):
            db.snapshot(tmp_path / "copy") if what == "snapshot" else logdb.restore([tmp_path / "backup"], tmp_path / "copy")
        refuses_everything(db)
        assert values(db.log("t")) == [b"a"]


def test_a_lock_that_cannot_be_synced(tmp_path, io):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        io.fail("fdatasync", errno.EIO, "LOCK")
        with pytest.raises(SyncFailed, match="LOCK"):
            logdb.open(tmp_path / "other", io=io)
        refuses_everything(db)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_a_sync_that_says_something_else_than_eio(tmp_path, io, number):
    """With delayed allocation, and on NFS, it is about data that was written before."""
    with logdb.open(tmp_path / "db", io=io, durability="fsync") as db:
        db.create_topic("t")
        io.fail("fdatasync", number, "t-0")
        with pytest.raises(SyncFailed):
            db.log("t").append(b"x")
        refuses_everything(db)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_directory_that_cannot_be_opened_is_tried_again(tmp_path, io, number):
    """The sync was not called: nothing is known to be wrong with the disk, and nothing is acknowledged either."""
    with logdb.open(tmp_path / "db", io=io) as db, logdb.open(tmp_path / "other") as other:
        for one in (db, other):
            one.create_topic("t", config={"segment.bytes": 1024, "flush.ms": 60_000})
        log = quiet(db).log("t")
        log.append_many([b"x" * 900] * 3)
        point = log.view.flushed
        io.fail("open", number, str(tmp_path / "db/t-0"))
        with pytest.raises(WriteFailed, match="t-0"):
            log.flush()
        assert log.view.flushed == point
        io.heal()
        before = io.count("fsync_dir", "t-0")
        log.flush()
        assert io.count("fsync_dir", "t-0") > before, "it is not taken for durable"
        assert log.append(b"after", durability="fsync") == 3
        assert other.log("t").append(b"after", durability="fsync") == 0
    assert logdb.verify(tmp_path / "db").ok


class _SyncFails:
    """LMDB, of which no commit can be synced."""

    def begin(self, *, write):
        error = lmdb.Error("mdb_txn_commit: Input/output error")
        error.code = errno.EIO
        raise error


@pytest.mark.parametrize("where", ["-0.tmp", "topic.json"])
def test_topic_creation(tmp_path, io, where):
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("there")
        io.fail("fsync_dir" if where.endswith("tmp") else "fdatasync", errno.EIO, where)
        with pytest.raises(SyncFailed):
            db.create_topic("t")
        refuses_everything(db, "there")
        assert [topic.name for topic in db.topics()] == ["there"]
    with logdb.open(tmp_path / "db") as db:
        assert [topic.name for topic in db.topics()] == ["there"]
        db.create_topic("t")


def test_epoch_checkpoint(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t")
        io.fail("fdatasync", errno.EIO, "leader-epoch-checkpoint")
        with pytest.raises(SyncFailed, match="leader-epoch-checkpoint"):
            db.log("t").append(b"x", durability="fsync")
        refuses_everything(db)


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, WriteFailed), (errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull)])
def test_a_write_that_fails_leaves_nothing_and_may_be_made_again(tmp_path, io, number, kind):
    with logdb.open(tmp_path / "db", io=io, linger_ms=60_000) as db:
        db.create_topic("t")
        log = db.log("t")
        log.append_many([b"a"])
        io.fail("pwrite", number, "t-0")
        with pytest.raises(kind) as caught:
            log.append_many([b"b", b"c"])
        assert caught.value.retriable
        assert caught.value.offsets is None
        assert values(log) == [b"a"]
        io.heal()
        assert log.append_many([b"b", b"c"]) == range(1, 3)
        assert log.append(b"d") == 3
        assert values(log) == [b"a", b"b", b"c", b"d"]
    with logdb.open(tmp_path / "db") as db:
        assert values(db.log("t")) == [b"a", b"b", b"c", b"d"]
        assert db.log("t").leader_epoch == 0, "a clean close"


def test_index_sync(tmp_path, io):
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t", config={"segment.bytes": 1024, "index.interval.bytes": 0})
        log, marks = db.log("t"), io.count("fdatasync", "LOCK")
        io.fail("fdatasync", errno.EIO, ".index")
        for _ in range(10):
            log.append_many([b"x" * 300])
        io.wait_for("fdatasync", "LOCK", more_than=marks)
        with pytest.raises(SyncFailed, match="index"):
            log.flush()
        refuses_everything(db)
        assert values(log) == [b"x" * 300] * 10


@pytest.mark.parametrize("work", ["flush", "compact"])
def test_close_leaves_no_file_open(tmp_path, io, work):
    """The error that every later call repeats has a traceback, too: it must not keep the frames that held files."""
    db = logdb.open(tmp_path / "db", io=io)
    db.create_topic("t", config={"segment.bytes": 1024, "cleanup.policy": "compact"})
    log = db.log("t")
    for _ in range(5):
        log.append_many([b"x" * 300], [b"key"])
    io.fail("fdatasync", errno.EIO, ".log")
    with pytest.raises(SyncFailed):
        log.flush() if work == "flush" else db.compact("t")
    with pytest.raises(SyncFailed):
        log.append(b"x", b"key")
    db.close()
    gc.collect()
    paths = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]
    assert not [path for path in paths if path.startswith(str(tmp_path))]


def test_a_flush_that_waited_beside_the_failed_one_fails_too(tmp_path, io):
    """The system reports a failure once: a second fdatasync of the same file would succeed, and mean nothing."""
    with logdb.open(tmp_path / "db", io=io, linger_ms=60_000) as db:
        db.create_topic("t", config={"flush.ms": 60_000})
        log = db.log("t")
        log.append(b"x")
        beside = []

        def before(kind: str, path: str) -> None:
            if kind == "fdatasync" and path.endswith(".log"):
                io.before = lambda kind, path: None
                beside.append(threads.submit(log.flush))
                until(lambda: log.syncs.group._waiting, "the second flush waits")
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        io.before = before
        with ThreadPoolExecutor() as threads:
            with pytest.raises(SyncFailed):
                log.flush()
            with pytest.raises(SyncFailed):
                beside[0].result(60)
        assert io.count("fdatasync", ".log") == 0, "but for the one that failed"
        assert log.view.flushed.offset == 0
