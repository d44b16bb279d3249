import errno
import os
import resource
import threading
import time

import pytest

from logdb.errors import Closed, ReadFailed, SyncFailed, WriteFailed
from logdb.segment import files
from logdb.segment.files import FileCache, FileHolder
from support.faulty_io import WAIT_S, FaultyIO
from support.replicas import eventually


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def cache(monkeypatch):
    monkeypatch.setattr(files, "FILES", FileCache(2))


def holders(io, tmp_path, count):
    made = [FileHolder(io, str(tmp_path / f"{number}"), writable=True) for number in range(count)]
    for holder in made:
        holder.open(create=True)
    return made


def write(holder, data):
    """As a segment does: counted first."""
    holder.write_count += 1
    (holder.file or holder.open()).write(data, 0)


@pytest.mark.usefixtures("cache")
def test_no_more_files_than_allowed(io, tmp_path):
    made = holders(io, tmp_path, 10)
    assert sum(holder.file is not None for holder in made) <= 3
    for holder in made:
        assert holder.open().size_bytes() == 0
        assert sum(other.file is not None for other in made) <= 3


@pytest.mark.usefixtures("cache")
def test_a_file_in_use_stays_open(io, tmp_path):
    first, *_ = holders(io, tmp_path, 1)
    held = first.open()
    rest = holders(io, tmp_path / "..", 0) + [FileHolder(io, str(tmp_path / f"more{number}"), writable=True) for number in range(9)]
    for holder in rest:
        holder.open(create=True)
    held.write(b"x", 0)
    assert first.file is not held
    assert held.read(1, 0) == b"x"


def test_without_descriptors_others_give_way(io, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FILES", FileCache(100))
    made = holders(io, tmp_path, 8)

    def before(kind, path):
        if kind == "create" and sum(holder.file is not None for holder in made) >= 8:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    io.before = before
    made.append(FileHolder(io, str(tmp_path / "one more"), writable=True))
    assert made[-1].open(create=True).size_bytes() == 0
    assert sum(holder.file is not None for holder in made) == 5


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize(("call", "kind"), [("create", WriteFailed), ("open", ReadFailed)])
def test_no_descriptor_at_all_is_said_by_name(io, tmp_path, number, call, kind):
    holder = FileHolder(io, str(tmp_path / "x"), writable=True)
    if call == "open":
        (tmp_path / "x").touch()
    io.fail(call, number)
    with pytest.raises(kind, match="open files"):
        holder.open(create=call == "create")


def departed(holder):
    """Return once the cache has closed its file."""
    eventually(lambda: holder.file is None)


def crowd_out(io, tmp_path, victim):
    """Open other files, until the cache evicts the one of ``victim``."""
    others = [FileHolder(io, str(tmp_path / f"other{number}"), writable=True) for number in range(9)]
    for other in others:
        other.open(create=True)
    return others


@pytest.mark.usefixtures("cache")
def test_an_evicted_file_is_synced_before_it_is_closed_and_by_another_thread(io, tmp_path):
    victim, *_ = holders(io, tmp_path, 1)
    write(victim, b"x")
    seen = []
    io.before = lambda kind, path: seen.append((threading.current_thread(), victim.file)) if kind == "fdatasync" else None
    file = victim.file
    others = crowd_out(io, tmp_path, victim)
    departed(victim)
    assert [(thread is threading.current_thread(), open_file) for thread, open_file in seen] == [(False, file)]
    assert not victim.dirty
    assert len(others) == 9


@pytest.mark.usefixtures("cache")
def test_a_write_while_it_gives_way_is_not_forgotten(io, tmp_path):
    """The file stays open until a sync has covered the write."""
    victim, *_ = holders(io, tmp_path, 1)
    file = victim.file
    write(victim, b"x")
    late, seen = [b"y"], []

    def before(kind, path):
        if (kind, path) == ("fdatasync", victim.path):
            seen.append(victim.file is file)
            if late:
                write(victim, late.pop())

    io.before = before
    crowd_out(io, tmp_path, victim)
    io.wait_for("fdatasync", victim.path)
    while victim.file is not None:
        FileHolder(io, str(tmp_path / "other0"), writable=True).open()
        time.sleep(0.001)
    assert not late
    assert seen == [True, True]
    assert not victim.dirty


@pytest.mark.usefixtures("cache")
def test_what_is_being_synced_is_not_clean_yet(io, tmp_path):
    """Else a flush meanwhile would acknowledge what is not durable."""
    victim, *_ = holders(io, tmp_path, 1)
    write(victim, b"x")
    seen = []
    io.before = lambda kind, path: seen.append(victim.dirty) if (kind, path) == ("fdatasync", victim.path) else None
    crowd_out(io, tmp_path, victim)
    departed(victim)
    assert seen == [True]
    assert not victim.dirty


def test_a_slow_disk_bounds_the_files_that_depart(io, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FILES", FileCache(16))
    heals = threading.Event()
    io.before = lambda kind, path: heals.wait(WAIT_S) if kind == "fdatasync" else None
    made = [FileHolder(io, str(tmp_path / f"{number}"), writable=True) for number in range(64)]

    def append_to_all():
        for holder in made:
            holder.open(create=True)
            write(holder, b"x")

    appender = threading.Thread(target=append_to_all)
    appender.start()
    eventually(lambda: sum(holder.file is not None for holder in made) >= 16 + 2)
    assert sum(holder.file is not None for holder in made) <= 16 + 3
    assert appender.is_alive()
    heals.set()
    appender.join(WAIT_S)
    eventually(lambda: sum(holder.file is not None for holder in made) <= 16)


@pytest.mark.usefixtures("cache")
def test_a_failed_sync_of_an_evicted_file_is_final(io, tmp_path):
    """The file stays open and dirty: a later sync of it, by a flush, fails too, though the system says nothing more."""
    victim, *_ = holders(io, tmp_path, 1)
    write(victim, b"x")
    io.fail("fdatasync", path=victim.path.rpartition("/")[2])
    crowd_out(io, tmp_path, victim)
    io.wait_for("fdatasync", victim.path)
    eventually(lambda: files.FILES._departures.count == 0)
    io.heal()
    assert victim.dirty
    with pytest.raises(SyncFailed, match="an earlier sync"):
        victim.sync()
    assert victim.dirty


def test_of_two_syncs_at_a_time_none_succeeds_if_one_fails(io, tmp_path):
    """The system reports a failed write to one of them."""
    holder, *_ = holders(io, tmp_path, 1)
    write(holder, b"x")
    began, outcomes = threading.Event(), []

    def fails_once(kind, path):
        if kind == "fdatasync":
            io.before = lambda kind, path: None
            began.set()
            second.join(0.2)
            raise OSError(errno.EIO, "bad sector")

    def sync():
        try:
            holder.sync()
        except SyncFailed as error:
            outcomes.append(error)

    io.before = fails_once
    first, second = threading.Thread(target=sync), threading.Thread(target=lambda: (began.wait(WAIT_S), sync()))
    second.start()
    first.start()
    for thread in (first, second):
        thread.join(WAIT_S)
    assert len(outcomes) == 2
    assert holder.dirty


@pytest.mark.parametrize(
    ("soft", "lent", "most"),
    [
        (1_024, 0, 576),
        (1_024, 384, 512),
        (20_000, 0, 11_250),
        (20_000, 10_000, 7_500),
        (64, 64, 16),
        (1 << 20, 0, 1 << 16),
        (resource.RLIM_INFINITY, 0, 1 << 16),
    ],
)
def test_as_many_as_the_system_allows(monkeypatch, soft, lent, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    cache = FileCache()
    cache.lend(lent)
    assert cache.limit == most


def test_files_give_way_to_connections(io, tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(files, "FILES", FileCache())
    made = holders(io, tmp_path, 144)
    files.FILES.lend(128)
    assert sum(holder.file is not None for holder in made) == 256 - 32 - 128


def test_of_some_more_files_than_the_limit_most_stay_open(io, tmp_path, monkeypatch):
    """Used in turn, the one that was unused for longest is always the next: with it as the victim, each use would open a file."""
    monkeypatch.setattr(files, "FILES", FileCache(100))
    made = holders(io, tmp_path, 110)
    before = io.count("open")
    for _ in range(10):
        for holder in made:
            holder.open()
    assert io.count("open") - before < 110 * 10 // 2


def test_two_that_open_at_a_time_forget_no_write(io, tmp_path):
    """The second one's file takes the place of the first one's, which was written to by then."""
    holder = FileHolder(io, str(tmp_path / "x"), writable=True)
    (tmp_path / "x").touch()

    def first(kind, path):
        io.before = lambda kind, path: None
        write(holder, b"x")

    io.before = first
    second = holder.open()
    assert holder.file is second
    assert holder.dirty


def test_a_failed_sync_leaves_it_dirty(io, tmp_path):
    holder, *_ = holders(io, tmp_path, 1)
    write(holder, b"x")
    io.fail("fdatasync")
    with pytest.raises(SyncFailed):
        holder.sync()
    assert holder.dirty


def test_what_is_given_up_is_not_opened_again(io, tmp_path):
    holder, *_ = holders(io, tmp_path, 1)
    holder.retire()
    with pytest.raises(Closed, match=holder.path):
        holder.open()
