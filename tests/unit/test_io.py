import os

import pytest

from logdb import disk
from logdb.io import IO, pread_exact, pwrite_all


class Dribbling(IO):
    """Writes and reads three bytes at a time."""

    def pwrite(self, fd, view, position):
        return super().pwrite(fd, memoryview(view)[:3], position)

    def pread(self, fd, size_bytes, position):
        return super().pread(fd, min(size_bytes, 3), position)


@pytest.fixture
def fd(tmp_path):
    made = IO().open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    yield made
    IO().close(made)


def test_short_writes_and_reads_go_on(fd, tmp_path):
    pwrite_all(Dribbling(), fd, b"0123456789", 5)
    assert pread_exact(Dribbling(), fd, 10, 5) == b"0123456789"
    assert pread_exact(Dribbling(), fd, 100, 5) == b"0123456789"
    assert pread_exact(Dribbling(), fd, 4, 100) == b""
    assert disk.read_file(Dribbling(), str(tmp_path / "file"), 8) == bytes(5) + b"012"


def test_a_write_of_nothing_is_an_error(fd):
    class Stuck(IO):
        def pwrite(self, fd, view, position):
            return 0

    with pytest.raises(OSError, match="returned 0"):
        pwrite_all(Stuck(), fd, b"x", 0)


def test_files_are_not_inherited(fd):
    assert not os.get_inheritable(fd)


def test_lock(tmp_path):
    io = IO()
    first, second = (io.open(str(tmp_path / "lock"), os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert io.lock(first)
    assert not io.lock(second)
    io.close(first)
    assert io.lock(second)
    io.close(second)


def test_allocate_and_truncate(fd):
    IO().allocate(fd, 0, 10_000)
    IO().truncate(fd, 10)
    assert IO().size_bytes(fd) == 10


def test_clocks():
    io = IO()
    assert io.monotonic_ms() <= io.monotonic_ms()
    assert io.clock_ms() > 1_700_000_000_000
    assert io.boot_id() == io.boot_id()


def test_what_is_made_while_its_directory_is_closed_is_closed_too(tmp_path, monkeypatch):
    def closes_first(call):
        def closing(path, *args):
            os.chmod(tmp_path, 0o700)
            return call(path, *args)

        return closing

    monkeypatch.setattr("logdb.io.os.open", closes_first(os.open))
    monkeypatch.setattr("logdb.io.os.mkdir", closes_first(os.mkdir))
    os.chmod(tmp_path, 0o755)
    os.close(IO().open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT))
    os.chmod(tmp_path, 0o755)
    IO().mkdir(str(tmp_path / "directory"))
    assert not [one for one in tmp_path.iterdir() if one.stat().st_mode & 0o077]
