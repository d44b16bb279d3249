import errno
import os

import pytest

from logdb.errors import DiskFull, ReadFailed, SyncFailed, WriteFailed
from logdb.segment import files
from logdb.segment.files import FileCache, FileHolder, Watcher, replace_file, sync_directory, write_file
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


@pytest.mark.usefixtures("cache")
def test_no_more_files_than_allowed(io, tmp_path):
    made = holders(io, tmp_path, 10)
    assert sum(holder.file is not None for holder in made) <= 3
    for holder in made:
        assert os.fstat(holder.open().fd).st_size == 0
        assert sum(other.file is not None for other in made) <= 3


@pytest.mark.usefixtures("cache")
def test_a_file_in_use_stays_open(io, tmp_path):
    first, *_ = holders(io, tmp_path, 1)
    held = first.open()
    rest = holders(io, tmp_path / "..", 0) + [FileHolder(io, str(tmp_path / f"more{number}"), writable=True) for number in range(9)]
    for holder in rest:
        holder.open(create=True)
    held.write(b"x", 0)
    assert os.pread(held.fd, 1, 0) == b"x"


def test_without_descriptors_others_give_way(io, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FILES", FileCache(100))
    made = holders(io, tmp_path, 8)

    def before(kind, path):
        if kind == "create" and sum(holder.file is not None for holder in made) >= 8:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    io.before = before
    made.append(FileHolder(io, str(tmp_path / "one more"), writable=True))
    assert os.fstat(made[-1].open(create=True).fd).st_size == 0
    assert sum(holder.file is not None for holder in made) == 5


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_no_descriptor_at_all_is_said_by_name(io, tmp_path, number):
    holder = FileHolder(io, str(tmp_path / "x"), writable=True)
    io.fail("create", number)
    with pytest.raises(ReadFailed, match="open files"):
        holder.open(create=True)


@pytest.mark.usefixtures("cache")
def test_what_gives_way_is_synced_first(io, tmp_path):
    made = holders(io, tmp_path, 2)
    made[0].file.write(b"x", 0)
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
    file.write(b"x", 0)
    late = [b"y"]
    io.before = lambda kind, path: file.write(late.pop(), 1) if late and (kind, path) == ("fdatasync", victim.path) else None
    others = [FileHolder(io, str(tmp_path / f"more{number}"), writable=True) for number in range(4)]
    for other in others:
        other.open(create=True)
    assert victim.file is not file
    assert not late
    assert io.count("fdatasync", victim.path) == 2 or victim.file.dirty


def test_a_failed_sync_is_told_to_the_device(io, tmp_path):
    told, elsewhere = [], []
    here, there = Watcher(io.device(str(tmp_path)), told.append), Watcher(-1, elsewhere.append)
    file = FileHolder(io, str(tmp_path / "a"), writable=True).open(create=True)
    file.write(b"x", 0)
    io.fail("fdatasync")
    with pytest.raises(SyncFailed) as caught:
        file.sync()
    assert file.dirty
    assert told == [caught.value]
    assert (here.device != there.device, elsewhere) == (True, [])
    io.fail("fsync_dir")
    with pytest.raises(SyncFailed, match=str(tmp_path)):
        sync_directory(io, str(tmp_path))
    assert len(told) == 2


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, WriteFailed)])
@pytest.mark.parametrize("call", ["create", "pwrite", "rename"])
def test_a_small_file_is_as_it_was(io, tmp_path, number, kind, call):
    path = str(tmp_path / "small")
    write_file(io, path, b"before")
    io.fail(call, number)
    with pytest.raises(kind, match="small"):
        replace_file(io, path, b"after and longer")
    io.heal()
    assert (tmp_path / "small").read_bytes() == b"before"
    replace_file(io, path, b"new")
    assert (tmp_path / "small").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["small"]


def test_a_small_file_is_written_over(io, tmp_path):
    path = str(tmp_path / "small")
    write_file(io, path, b"long content")
    write_file(io, path, b"short", sync=False)
    assert (tmp_path / "small").read_bytes() == b"short"
    assert io.count("fdatasync") == 1
