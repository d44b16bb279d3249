"""Errors of the system by name, what a failed sync is, and small files."""

import ast
import errno
import os
import threading
import time
import tracemalloc
import weakref
from pathlib import Path

import pytest

import logdb
from logdb import disk
from logdb.disk import File, Watcher, copy_file, link_file, read_file, replace_file, sync_directory, write_file
from logdb.errors import DiskFull, LogdbError, ReadFailed, SyncFailed, WriteFailed, release_frames
from logdb.io import IO
from logdb.model import SEGMENT_SIZE_BYTES_MAX
from support.faulty_io import FaultyIO

NOT_OF_THE_DISK = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES]  # of an open; none says what the disk holds
ANY = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.EROFS]


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def told(io, tmp_path):
    """What is told to a store on the device."""
    heard = []
    watcher = Watcher(io.device(str(tmp_path)), heard.append)
    yield heard
    del watcher


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOMEM])
def test_what_cannot_be_looked_at_is_neither_there_nor_missing(io, tmp_path, number):
    (tmp_path / "file").touch()
    assert disk.exists(io, str(tmp_path / "file"))
    assert not disk.exists(io, str(tmp_path / "none"))
    assert not disk.exists(io, str(tmp_path / "file" / "below"))
    io.fail("exists", number)
    with pytest.raises(ReadFailed):
        disk.exists(io, str(tmp_path / "file"))


def test_the_system_itself_is_asked_what_a_name_is(tmp_path, monkeypatch):
    def failing(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "lstat", failing)
    with pytest.raises(OSError, match="Input/output error"):
        logdb.IO().exists(str(tmp_path))


# ---------------------------------------------------------------- descriptors


def test_no_other_module_has_a_descriptor():
    """No ``.fd`` anywhere; an ``_fd`` only of an object's own, and a call of ``IO.open``, in the modules that own one and close it."""
    owners, found = {"disk.py", "store/lock.py"}, []
    root = Path(logdb.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ("fd", "_fd"):
                own = isinstance(node.value, ast.Name) and (node.value.id == "self" or path.name == "disk.py")
                if node.attr == "fd" or not own or str(path.relative_to(root)) not in owners:
                    found.append(f"{path}:{node.lineno}")
            opens = isinstance(node, ast.Attribute) and node.attr == "open" and ast.unparse(node.value).rpartition(".")[2] in ("io", "_io")
            if opens and str(path.relative_to(root)) not in owners:
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_a_file_is_closed_with_its_last_reference(io, tmp_path):
    file = File(io, str(tmp_path / "x"), os.O_RDWR | os.O_CREAT)
    fd = file._fd
    again = file
    del file
    os.fstat(fd)
    del again
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_file_is_closed_once(io, tmp_path):
    with File(io, str(tmp_path / "x"), os.O_RDWR | os.O_CREAT) as file:
        fd = file._fd
    other = os.open(tmp_path / "y", os.O_RDWR | os.O_CREAT)
    assert other == fd
    file.close()
    del file
    os.fstat(other)
    os.close(other)


def test_the_bytes_of_a_file(io, tmp_path):
    with File(io, str(tmp_path / "x"), os.O_RDWR | os.O_CREAT) as file:
        file.write(b"0123456789", 0)
        assert (file.read(4, 3), file.read(9, 5), file.read(9, 10), file.size_bytes()) == (b"3456", b"56789", b"", 10)
        assert list(file.pieces(4)) == [b"0123", b"4567", b"89"]
        assert list(file.pieces(4, 1, stop=7)) == [b"1234", b"56"]
        view = memoryview(bytearray(12))
        assert (file.fill(view, 2), bytes(view[:8])) == (8, b"23456789")


# ---------------------------------------------------------------- errors by name


@pytest.mark.parametrize("number", ANY)
def test_each_call_on_a_file_has_a_named_error(io, tmp_path, number):
    file = File(io, str(tmp_path / "x"), os.O_RDWR | os.O_CREAT)
    written = DiskFull if number in (errno.ENOSPC, errno.EDQUOT) else WriteFailed
    calls = {
        "pread": (lambda: file.read(1, 0), ReadFailed),
        "preadinto": (lambda: file.fill(memoryview(bytearray(1)), 0), ReadFailed),
        "drop_cache": (file.drop_cache, ReadFailed),
        "pwrite": (lambda: file.write(b"x", 0), written),
        "truncate": (lambda: file.truncate(0), written),
        "allocate": (lambda: file.allocate(0, 1), written),
        "open": (lambda: File(io, str(tmp_path / "x"), os.O_RDWR), ReadFailed),
        "create": (lambda: File(io, str(tmp_path / "new"), os.O_RDWR | os.O_CREAT), written),
        "link": (lambda: link_file(io, str(tmp_path / "x"), str(tmp_path / "other")), written),
        "copy_range": (lambda: copy_file(io, str(tmp_path / "x"), str(tmp_path / "copy"), 1), written),
    }
    for kind, (call, expected) in calls.items():
        io.fail(kind, number)
        with pytest.raises(expected) as caught:
            call()
        assert type(caught.value) is expected, kind
        assert str(tmp_path) in caught.value.path
        io.heal()


def test_what_is_not_there_is_pythons_error(io, tmp_path):
    with pytest.raises(FileNotFoundError):
        read_file(io, str(tmp_path / "x"), 10)
    with pytest.raises(FileNotFoundError):
        disk.names_in(io, str(tmp_path / "x"))
    with pytest.raises(WriteFailed, match="nowhere"):
        write_file(io, str(tmp_path / "nowhere" / "x"), b"")


def test_reading_a_small_file_takes_memory_for_what_it_holds(io, tmp_path):
    write_file(io, str(tmp_path / "small"), b"content")
    tracemalloc.start()  # counts a buffer by its size, touched or not
    try:
        assert read_file(io, str(tmp_path / "small"), SEGMENT_SIZE_BYTES_MAX) == b"content"
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert read_file(io, str(tmp_path / "small"), 4) == b"cont"


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


# ---------------------------------------------------------------- failed syncs


def test_a_failed_sync_is_told_to_the_device(io, tmp_path, told):
    elsewhere = []
    there = Watcher(-1, elsewhere.append)
    file = File(io, str(tmp_path / "a"), os.O_RDWR | os.O_CREAT)
    io.fail("fdatasync")
    with pytest.raises(SyncFailed) as caught:
        file.sync()
    assert told == [caught.value]
    assert (there.device, elsewhere) == (-1, [])
    io.fail("fsync_dir")
    with pytest.raises(SyncFailed, match=str(tmp_path)):
        sync_directory(io, str(tmp_path))
    assert len(told) == 2


def test_a_directory_that_cannot_be_closed_was_synced(tmp_path, told, monkeypatch):
    def failing(fd):
        close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    io, close = logdb.IO(), os.close
    monkeypatch.setattr(os, "close", failing)
    sync_directory(io, str(tmp_path))
    assert told == []


@pytest.mark.parametrize("number", ANY)
@pytest.mark.parametrize("call", ["fdatasync", "fsync_dir"])
def test_a_sync_that_was_called_is_final_whatever_it_says(io, tmp_path, told, number, call):
    file = File(io, str(tmp_path / "a"), os.O_RDWR | os.O_CREAT)
    io.fail(call, number)
    with pytest.raises(SyncFailed):
        file.sync() if call == "fdatasync" else sync_directory(io, str(tmp_path))
    assert len(told) == 1
    assert io.count(call) == 1, "it is not tried again"


@pytest.mark.parametrize("number", [*NOT_OF_THE_DISK, errno.EIO])
def test_a_directory_that_cannot_be_opened_is_no_failed_sync(io, tmp_path, told, number):
    io.fail("open", number, str(tmp_path))
    with pytest.raises(WriteFailed, match=str(tmp_path)):
        sync_directory(io, str(tmp_path))
    io.heal()
    sync_directory(io, str(tmp_path))
    assert told == []


def test_a_directory_that_is_gone_is_no_failed_sync(io, tmp_path, told):
    with pytest.raises(WriteFailed, match="No such file"):
        sync_directory(io, str(tmp_path / "gone"))
    assert told == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("what", ["directory", "file"])
def test_without_descriptors_others_give_way(io, tmp_path, monkeypatch, told, number, what):
    (tmp_path / "x").write_bytes(b"small")
    monkeypatch.setattr(disk, "_spared", [io.heal])
    io.fail("open", number)
    if what == "directory":
        sync_directory(io, str(tmp_path))
    else:
        assert read_file(io, str(tmp_path / "x"), 100) == b"small"
    assert told == []


@pytest.mark.parametrize("number", ANY)
@pytest.mark.parametrize("call", ["create", "pwrite", "rename", "allocate", "truncate"])
def test_no_other_call_is_a_failed_sync(io, tmp_path, told, number, call):
    write_file(io, str(tmp_path / "x"), b"before, and longer")
    io.fail(call, number)
    with pytest.raises(LogdbError) as caught:
        if call == "allocate":
            File(io, str(tmp_path / "x"), os.O_RDWR).allocate(0, 10)
        elif call == "truncate":
            write_file(io, str(tmp_path / "x"), b"shorter")
        else:
            replace_file(io, str(tmp_path / "x"), b"other")
    assert isinstance(caught.value, (DiskFull, WriteFailed))
    assert told == []


def test_an_error_that_is_kept_keeps_no_file_open(tmp_path):
    class Full(IO):
        def pwrite(self, fd, view, position):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = File(Full(), str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    try:
        file.write(b"data", 0)
    except DiskFull as error:
        kept = error
    gone = weakref.ref(file)
    del file
    assert gone() is not None
    release_frames(kept)
    assert gone() is None


class _Hanging(FaultyIO):
    """A disk whose syncs wait for ``gate``."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.now_ms = threading.Event(), 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def fdatasync(self, fd: int) -> None:
        self.gate.wait()

    def fsync_dir(self, path: str) -> None:
        self.gate.wait()


def test_a_sync_that_hangs_is_seen_from_the_directories_above_it(tmp_path):
    io, root = _Hanging(), tmp_path / "data"
    (root / "t-0").mkdir(parents=True)
    file = File(io, str(root / "t-0" / "f"), os.O_RDWR | os.O_CREAT)
    calls = [threading.Thread(target=file.sync), threading.Thread(target=sync_directory, args=(io, str(root)))]
    for call in calls:
        call.start()
    while len(disk._syncs) < len(calls):
        time.sleep(0.001)
    io.now_ms = 700
    assert disk.longest_sync_ms(io, str(root)) == 700
    assert disk.longest_sync_ms(io, str(root / "t-0")) == 700
    assert disk.longest_sync_ms(io, str(root / "t")) == 0
    io.gate.set()
    for call in calls:
        call.join()
    assert disk.longest_sync_ms(io, str(root)) == 0
    file.close()
