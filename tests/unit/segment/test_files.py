import errno
import os

import pytest

from logdb.errors import Closed, ReadFailed, SyncFailed, WriteFailed
from logdb.segment import files
from logdb.segment.files import FileCache, FileHolder
from support.faulty_io import FaultyIO


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


@pytest.mark.usefixtures("cache")
def test_what_gives_way_is_synced_first(io, tmp_path):
    made = holders(io, tmp_path, 2)
    write(made[0], b"x")
    for number in range(5):
        FileHolder(io, str(tmp_path / f"more{number}"), writable=True).open(create=True)
        keep = [FileHolder(io, str(tmp_path / f"kept{number}"), writable=True)]
        keep[0].open(create=True)
    assert made[0].file is None
    assert io.count("fdatasync", str(made[0].path)) == 1


@pytest.mark.usefixtures("cache")
def test_a_write_while_it_gives_way_is_not_forgotten(io, tmp_path):
    victim, *_ = holders(io, tmp_path, 1)
    file = victim.file
    write(victim, b"x")
    late = [b"y"]
    io.before = lambda kind, path: write(victim, late.pop()) if late and (kind, path) == ("fdatasync", victim.path) else None
    others = [FileHolder(io, str(tmp_path / f"more{number}"), writable=True) for number in range(4)]
    for other in others:
        other.open(create=True)
    assert victim.file is not file
    assert not late
    assert victim.dirty
    victim.sync()
    assert not victim.dirty
    assert io.count("fdatasync", victim.path) == 2


@pytest.mark.usefixtures("cache")
def test_what_is_being_synced_is_not_clean_yet(io, tmp_path):
    """Else a flush beside the cache, which syncs a file before it closes it, would acknowledge what is not durable."""
    victim, *_ = holders(io, tmp_path, 1)
    write(victim, b"x")
    seen = []
    io.before = lambda kind, path: seen.append(victim.dirty) if (kind, path) == ("fdatasync", victim.path) else None
    others = [FileHolder(io, str(tmp_path / f"more{number}"), writable=True) for number in range(4)]
    for other in others:
        other.open(create=True)
    assert seen == [True]
    assert not victim.dirty


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
