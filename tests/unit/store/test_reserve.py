"""The room that is kept for calls that make room."""

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import logdb
from logdb.errors import CloseIncomplete, DiskFull
from logdb.io import IO
from logdb.store.housekeeping import Housekeeping
from logdb.store.reserve import FILE_NAME, Reserve
from support.faulty_io import FaultyIO
from support.interrupts import Interrupted


@pytest.fixture
def reserve(tmp_path):
    made = Reserve(IO(), str(tmp_path))
    made.fill()
    return made


def test_it_is_given_back_for_the_second_try_and_made_again(reserve, tmp_path):
    path, seen = tmp_path / FILE_NAME, []
    size_bytes = path.stat().st_size
    assert path.stat().st_blocks * 512 >= size_bytes > 0, "the file has its blocks"

    def work() -> str:
        seen.append(path.stat().st_size)
        if len(seen) < 4:
            raise DiskFull("x", 1, "full")
        with ThreadPoolExecutor(1) as other:  # appends of other threads would take the room
            assert isinstance(other.submit(reserve.check, "log", 7).exception(), DiskFull)
        reserve.check("log", 7)
        return "done"

    assert reserve.spend(work) == "done"
    assert seen == [size_bytes, size_bytes * 3 // 4, size_bytes // 2, size_bytes // 4]
    assert (path.stat().st_size, reserve.spender) == (size_bytes, 0)


def test_without_one_the_first_error_stays(reserve, tmp_path):
    (tmp_path / FILE_NAME).unlink()
    calls = []

    def work() -> None:
        calls.append(0)
        raise DiskFull("x", len(calls), "full")

    with pytest.raises(DiskFull) as caught:
        reserve.spend(work)
    assert caught.value.size_bytes == 1
    reserve.fill()
    with pytest.raises(DiskFull) as caught:
        reserve.spend(work)
    assert caught.value.size_bytes == 6, "the last of five tries"
    assert (tmp_path / FILE_NAME).stat().st_size > 0


def test_a_copy_without_blocks_gets_them(reserve, tmp_path):
    """As ``cp`` makes one: it takes zeroes, and what was allocated only, for a hole."""
    path = tmp_path / FILE_NAME
    size_bytes = path.stat().st_size
    path.unlink()
    with path.open("wb") as file:
        file.truncate(size_bytes)
    reserve.fill()
    assert path.stat().st_blocks * 512 >= path.stat().st_size == size_bytes


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("other")], ids=["pipe", "directory", "link"])
def test_what_is_no_file_is_no_reserve(tmp_path, make):
    make(tmp_path / FILE_NAME)
    (tmp_path / "other").write_bytes(b"kept")
    reserve = Reserve(IO(), str(tmp_path))
    reserve.fill()

    def work() -> None:
        raise DiskFull("x", 1, "full")

    with pytest.raises(DiskFull):
        reserve.spend(work)
    assert (tmp_path / "other").read_bytes() == b"kept"


def test_an_interrupt_at_any_place_gives_the_turn_back(reserve):
    """Otherwise other threads could neither append nor make room."""

    def work() -> None:
        raise DiskFull("x", 1, "full")

    def is_free() -> bool:
        return reserve._lock.acquire(blocking=False) and reserve._lock.release() is None

    for number in itertools.count(1):
        interrupted = Interrupted(number, lambda: reserve.spend(work))
        assert reserve.spender == 0, interrupted.place
        with ThreadPoolExecutor(1) as other:
            assert other.submit(is_free).result(), interrupted.place
        if interrupted.place is None:
            break
        assert isinstance(interrupted.error, KeyboardInterrupt)
        reserve.fill()


def test_every_call_that_makes_room_uses_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Housekeeping, "consider", lambda *_: False)  # or its thread makes room, too
    io = FaultyIO()

    def frees(kind: str, path: str) -> None:
        if kind == "truncate" and path.endswith(FILE_NAME):
            given.append(path)
            io.heal()

    given: list[str] = []
    io.before = frees
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t", config={"segment.bytes": 1024, "retention.bytes": 3000})
        log = db.log("t")
        calls = {
            "delete_records": lambda: db.delete_records("t", 0, log.start_offset + 1),
            "enforce_retention": lambda: db.enforce_retention("t"),
            "alter_topic": lambda: db.alter_topic("t", config={"max.message.bytes": 2000}),
            "delete_topic": lambda: db.delete_topic("t"),
        }
        for name, call in calls.items():
            for _ in range(8):
                log.append_many([b"x" * 1000])
            log.flush()
            io.fill_up()
            if name == "delete_topic":
                io.fail("rename", 28)
            call()
            assert len(given) == list(calls).index(name) + 1, name


def test_a_database_that_an_earlier_version_made_gets_one(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
    (tmp_path / "db" / FILE_NAME).unlink()
    with logdb.open(tmp_path / "db"):
        assert (tmp_path / "db" / FILE_NAME).stat().st_size > 0
    assert logdb.verify(tmp_path / "db").ok


def test_what_a_close_could_not_do_does_not_hide_the_error_before_it(tmp_path):
    io = FaultyIO()
    with pytest.raises(DiskFull) as caught, logdb.open(tmp_path / "db", io=io, linger_ms=60_000) as db:
        db.create_topic("t")
        db.append("t", b"waits")
        io.fill_up()
        db.flush()
    assert "lost 1 records" in caught.value.__notes__[0]
    assert "lost no record, and the next opening recovers: why" in str(CloseIncomplete("db", 0, "why"))
