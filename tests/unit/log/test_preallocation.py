"""Which disk space a log reserves, and when it is freed: docs/inside/durability.md, "Preallocation"."""

import errno
import os
import shutil

import pytest

import logdb
from logdb.errors import DiskFull
from logdb.io import IO
from logdb.log.preallocation import BUDGET_SIZE_BYTES, IDLE_MS, STEP_SIZE_BYTES_MAX, STEP_SIZE_BYTES_MIN
from support.clock import StillIO

PIECE = os.urandom(100_000)


class WatchedIO(StillIO):
    """Notes the steps that are reserved, as (bytes of the file before, after)."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[int, int]] = []

    def allocate(self, fd, position, size_bytes):
        self.steps.append((os.fstat(fd).st_size, position + size_bytes))
        super().allocate(fd, position, size_bytes)


@pytest.fixture
def io():
    return WatchedIO()


@pytest.fixture
def db(tmp_path, io, monkeypatch):
    monkeypatch.setattr("logdb.store.flusher.Flusher._sync_loop", lambda self: None)  # the tests look for idle logs themselves
    with logdb.open(tmp_path / "db", io=io, durability="fsync") as db:
        io.steps.clear()  # of RESERVE
        yield db


def files(path) -> list[os.stat_result]:
    return [file.stat() for file in sorted(path.glob("db/t-*/*.log"))]


def reserved_bytes(db) -> int:
    """What lies behind the written ends in all files."""
    return sum(os.stat(log.segments[-1].path).st_size - log.segments[-1].size_bytes for log in db._store.open_logs.values())


def test_partitions_that_write_little_reserve_nothing(tmp_path, io, db):
    db.create_topic("t", partitions=40)
    for _ in range(3):
        for partition in range(40):
            db.log("t", partition).append(bytes(300))
            io.now_ms += 20
    assert not io.steps
    assert {one.st_size for one in files(tmp_path)} == {db.log("t").size_bytes}
    assert max(one.st_blocks * 512 for one in files(tmp_path)) <= 4096


def test_a_trickle_reserves_nothing_however_long_it_lasts(io, db):
    db.create_topic("t")
    for _ in range(300):
        db.log("t").append(bytes(5_000))
        io.now_ms += 100
    assert not io.steps


def test_a_stream_reserves_growing_steps(tmp_path, io, db):
    db.create_topic("t")
    log = db.log("t")
    for _ in range(400):
        log.append_many([PIECE])
        io.now_ms += 5  # 20 MB a second
    sizes = [after - before for before, after in io.steps]
    assert len(sizes) < 20, "most writes stay within the space of an earlier step"
    assert sizes[0] < 4 * len(PIECE)
    assert sizes[:5] == sorted(sizes[:5])
    assert STEP_SIZE_BYTES_MAX <= max(sizes) <= STEP_SIZE_BYTES_MAX + 2 * len(PIECE)
    assert log.size_bytes < files(tmp_path)[0].st_size <= log.size_bytes + STEP_SIZE_BYTES_MAX
    with logdb.open(tmp_path / "db", mode="r") as reader:
        assert sum(1 for _ in reader.log("t").read(0)) == 400
    db.snapshot(tmp_path / "copy")
    assert [file.stat().st_size for file in tmp_path.glob("copy/t-0/*.log")] == [log.size_bytes], "no reserved space is copied"


def test_a_stream_reserves_for_about_a_second(io, db):
    db.create_topic("t")
    for _ in range(100):
        db.log("t").append_many([PIECE])
        io.now_ms += 100  # 1 MB a second
    assert 5 <= len(io.steps) <= 20
    assert max(after - before for before, after in io.steps) <= 2_000_000


def test_all_logs_together_keep_to_the_budget(io, db):
    db.create_topic("t", partitions=30)
    for _ in range(100):
        for partition in range(30):
            db.log("t", partition).append_many([PIECE])
    assert 0 < reserved_bytes(db) <= db._store.preallocation.size_bytes <= BUDGET_SIZE_BYTES
    assert db._store.preallocation.size_bytes > BUDGET_SIZE_BYTES // 2


def test_the_budget_is_a_small_share_of_what_the_disk_has_left(io, db, monkeypatch):
    monkeypatch.setattr(io, "free_bytes", lambda path: 64 << 20)
    db.create_topic("t", partitions=4)
    for _ in range(100):
        for partition in range(4):
            db.log("t", partition).append_many([PIECE])
    assert 0 < reserved_bytes(db) <= 4 << 20
    monkeypatch.setattr(io, "free_bytes", lambda path: 1 << 20)
    io.steps.clear()
    for _ in range(100):
        db.log("t").append_many([PIECE])
    assert not io.steps


def stream(log) -> None:
    for _ in range(20):
        log.append_many([PIECE])


def test_an_idle_log_gives_its_space_back(tmp_path, io, db):
    db.create_topic("t")
    log = db.log("t")
    stream(log)
    due_ms = log.idle_due_ms()
    assert due_ms == log.due_ms() == io.now_ms + IDLE_MS
    for _ in range(2):  # the first look finds that the log has grown since the step
        io.now_ms = log.idle_due_ms()
        log.free_idle_space()
    assert files(tmp_path)[0].st_size == log.size_bytes
    assert (log.idle_due_ms(), db._store.preallocation.size_bytes) == (None, 0)
    log.append_many([PIECE])
    assert sum(1 for _ in log.read(0)) == 21


@pytest.mark.parametrize("how", ["roll", "delete", "truncate"])
def test_a_log_that_goes_on_elsewhere_keeps_none(tmp_path, io, db, how):
    db.create_topic("t", config={"segment.bytes": 4 << 20})
    log = db.log("t")
    stream(log)
    assert db._store.preallocation.size_bytes
    if how == "roll":
        log.append_many([bytes(60_000)] * 100)
        assert files(tmp_path)[0].st_size == log.segments[0].size_bytes
        return
    if how == "delete":
        db.delete_topic("t")
    else:
        db._store.truncate_to("t", 0, 5)
        assert files(tmp_path)[0].st_size == log.size_bytes
    assert not db._store.preallocation.size_bytes


class FullIO(WatchedIO):
    """A disk that gives half of a step, and says then that it is full, as ext4 does."""

    def allocate(self, fd, position, size_bytes):
        super().allocate(fd, position, size_bytes // 2 or size_bytes)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_step_that_finds_no_room_fails_no_append_and_keeps_nothing(tmp_path):
    io = FullIO()
    with logdb.open(tmp_path / "db", io=io, durability="fsync") as db:
        db.create_topic("t")
        log = db.log("t")
        for _ in range(20):
            log.append_many([bytes(10_000)])
        assert files(tmp_path)[0].st_size == log.size_bytes
        assert 2 <= len(io.steps) <= 1 + 200_000 // STEP_SIZE_BYTES_MIN, "it is not tried again by each append"
        assert not db._store.preallocation.size_bytes


class SmallDiskIO(IO):
    """Segments may take ``room`` bytes in all, also those that are only reserved; None: any number."""

    def __init__(self, root) -> None:
        self.root, self.room = root, None

    def _take(self, fd, end) -> None:
        grows = end - os.fstat(fd).st_size
        if self.room is not None and grows > 0 and sum(file.stat().st_size for file in self.root.glob("t-*/*.log")) + grows > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pwrite(self, fd, view, position):
        self._take(fd, position + len(view))
        return super().pwrite(fd, view, position)

    def allocate(self, fd, position, size_bytes):
        self._take(fd, position + size_bytes)
        super().allocate(fd, position, size_bytes)


def test_the_space_of_one_log_is_freed_for_a_write_to_another(tmp_path):
    io = SmallDiskIO(tmp_path / "db")
    with logdb.open(tmp_path / "db", io=io, durability="fsync") as db:
        db.create_topic("t", partitions=2)
        stream(db.log("t"))
        written = db.log("t").size_bytes
        assert files(tmp_path)[0].st_size > written + 100_000
        io.room = written + 100_000
        assert db.log("t", 1).append(bytes(50_000)) == 0
        assert [one.st_size for one in files(tmp_path)] == [written, db.log("t", 1).size_bytes]
        with pytest.raises(DiskFull):
            db.log("t", 1).append(bytes(60_000))


def test_making_room_frees_it_before_it_takes_of_the_reserve(tmp_path, io, db):
    db.create_topic("t")
    stream(db.log("t"))
    reserve, calls = tmp_path / "db" / "RESERVE", []

    def work() -> str:
        calls.append(reserve.stat().st_size)
        if len(calls) == 1:
            raise DiskFull("x", 1, "full")
        return "done"

    assert db._store.reserve.spend(work) == "done"
    assert calls == [calls[0]] * 2
    assert files(tmp_path)[0].st_size == db.log("t").size_bytes


def test_a_crash_leaves_reserved_space_that_the_next_opening_cuts_off(tmp_path, io, db):
    db.create_topic("t")
    log = db.log("t")
    stream(log)
    shutil.copytree(tmp_path / "db", tmp_path / "crashed" / "db")
    (crashed,) = (tmp_path / "crashed").glob("db/t-0/*.log")
    assert crashed.stat().st_size > log.size_bytes
    assert logdb.verify(tmp_path / "crashed" / "db").ok
    with logdb.open(tmp_path / "crashed" / "db") as after:
        assert [record.value for record in after.log("t").read(0)] == [PIECE] * 20
        assert crashed.stat().st_size == log.size_bytes
