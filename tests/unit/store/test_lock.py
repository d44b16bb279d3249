"""store/lock.py: one writer at a time, and no doubt about how the last one left."""

import contextlib
import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logdb
from logdb import errors
from logdb.io import IO
from logdb.model import Buffer
from logdb.store.lock import (
    FILE_SIZE_BYTES,
    SLOT_SIZE_BYTES,
    LockFile,
    LockState,
    decode_slot,
    decode_state,
    encode_slot,
    read_state,
    verify_lock,
    writer_alive,
)
from support.interrupts import Interrupted

# pytest's own timer is a thread; from 3.12 on, Python warns of forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

TEARS = range(0, SLOT_SIZE_BYTES - 1, 7)  # the last byte is a newline before and after
NOW_MS = 1_763_732_467_123  # 2025-11-21T13:41:07.123Z


class Machine(IO):
    """A machine whose clock stands, that can be restarted, and whose disk can fail."""

    def __init__(self) -> None:
        self.now_ms, self.boot = NOW_MS, "boot-1"
        self.calls: list[str] = []
        self.write_error: OSError | None = None
        self.sync_error: OSError | None = None
        self.write_size_bytes_max = SLOT_SIZE_BYTES

    def clock_ms(self) -> int:
        return self.now_ms

    def boot_id(self) -> str:
        return self.boot

    def pwrite(self, fd: int, view: Buffer, position: int) -> int:
        self.calls.append("pwrite")
        if self.write_error is not None:
            if self.write_size_bytes_max:
                super().pwrite(fd, memoryview(view)[: self.write_size_bytes_max], position)
            raise self.write_error
        return super().pwrite(fd, view, position)

    def fdatasync(self, fd: int) -> None:
        self.calls.append("fdatasync")
        if self.sync_error is not None:
            raise self.sync_error
        super().fdatasync(fd)

    def fsync_dir(self, path: str) -> None:
        self.calls.append("fsync_dir")
        super().fsync_dir(path)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "LOCK")


def session(machine: Machine, path: str, *, clean: bool = True, recovered: bool = True) -> LockState:
    """Open, perhaps recover, and close; what was found at opening."""
    lock = LockFile.acquire(machine, path)
    try:
        lock.mark_open()
        if recovered:
            lock.mark_recovered()
        if clean:
            lock.mark_clean(32_768, 0x12345678)
    finally:
        lock.release()
    return lock.previous


def flip(data: bytes, position: int, mask: int) -> bytes:
    return data[:position] + bytes([data[position] ^ mask]) + data[position + 1 :]


@contextlib.contextmanager
def child_beside(function: Callable[[], None]) -> Iterator[int]:
    """Run a function in a forked child beside the block; it must end well."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  # nothing may leave the child
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    yield pid
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---------------------------------------------------------------- exclusion

HOLD = """
import sys
from logdb.io import IO
from logdb.store.lock import LockFile
lock = LockFile.acquire(IO(), sys.argv[1])
lock.mark_open()
print("held", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def held_elsewhere(path: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


def test_who_comes_second_is_told_who_was_first(machine: Machine, path: str) -> None:
    with held_elsewhere(path) as holder:
        with pytest.raises(errors.DirectoryLocked, match=f"process {holder.pid} on {socket.gethostname()} since 20") as caught:
            LockFile.acquire(machine, path)
        assert caught.value.path == os.path.dirname(path)
        assert caught.value.retriable


def test_the_same_process_is_refused_too(machine: Machine, path: str, tmp_path: Path) -> None:
    first = LockFile.acquire(machine, path)
    (tmp_path / "alias").symlink_to(tmp_path)
    for marked in (False, True):
        if marked:
            first.mark_open()
        for other in (path, str(tmp_path / "alias" / "LOCK")):
            with pytest.raises(errors.DirectoryLocked) as caught:
                LockFile.acquire(machine, other)
            assert caught.value.pid == os.getpid()
    first.release()
    first.release()
    LockFile.acquire(machine, path).release()


@pytest.mark.parametrize("fails", ["unlock", "close"])
def test_letting_go_is_tried_by_either_way(machine: Machine, path: str, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = LockFile.acquire(machine, path)

    def failing(fd: int) -> None:
        if fails == "close":  # which closes all the same
            os.close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(machine, fails, failing)
        lock.release()
    LockFile.acquire(machine, path).release()


def test_unreadable_content_refuses_with_pid_0_only_while_it_is_held(machine: Machine, path: str) -> None:
    with held_elsewhere(path):
        data = Path(path).read_bytes()
        Path(path).write_bytes(flip(data, 50, 1))
        with pytest.raises(errors.DirectoryLocked, match="in another process") as caught:
            LockFile.acquire(machine, path)
        assert caught.value.pid == 0
    assert not session(machine, path).readable


def test_a_killed_holder_holds_nothing(machine: Machine, path: str) -> None:
    with held_elsewhere(path) as holder:
        assert writer_alive(machine, path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert not writer_alive(machine, path)
        previous = session(machine, path)
    assert previous.is_open
    assert not previous.clean
    assert previous.pid == holder.pid


def test_asking_for_a_writer_disturbs_none(machine: Machine, path: str) -> None:
    assert writer_alive(machine, path) is False
    lock = LockFile.acquire(machine, path)
    assert writer_alive(machine, path)
    lock.release()
    assert writer_alive(machine, path) is False
    asking = machine.open(path, os.O_RDONLY)  # a reader that asks holds no more than this
    LockFile.acquire(machine, path).release()
    machine.close(asking)


def test_asking_for_a_writer_goes_on_after_a_close_that_failed(path: str) -> None:
    class Broken(Machine):
        def close(self, fd: int) -> None:
            super().close(fd)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    machine = Broken()
    lock = LockFile.acquire(machine, path)
    assert writer_alive(machine, path)
    with pytest.raises(errors.DirectoryLocked):
        LockFile.acquire(machine, path)
    lock.release()
    assert writer_alive(machine, path) is False


def test_a_lock_that_may_not_be_written_is_read_only(path: str) -> None:
    class ReadOnlyDisk(Machine):
        def open(self, path: str, flags: int, mode: int = 0o644) -> int:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with pytest.raises(errors.ReadOnly, match="mode='r'"):
        LockFile.acquire(ReadOnlyDisk(), path)


def test_a_lock_that_cannot_be_read_has_a_name_and_lets_go(machine: Machine, path: str) -> None:
    class Broken(Machine):
        def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(errors.WriteFailed, match="Input/output error"):
        LockFile.acquire(Broken(), path)
    LockFile.acquire(machine, path).release()


# ---------------------------------------------------------------- forks


def test_a_forked_child_neither_uses_nor_keeps_the_lock(machine: Machine, path: str) -> None:
    lock = LockFile.acquire(machine, path)
    lock.mark_open()
    go, gone = os.pipe()

    def child() -> None:
        os.close(gone)
        os.close(heard)
        with pytest.raises(errors.Forked):
            lock.mark_clean(1, 2)
        lock.release()
        with pytest.raises(errors.DirectoryLocked) as caught:
            LockFile.acquire(machine, path)
        assert caught.value.pid == os.getppid()
        os.write(report, b"!")
        os.read(go, 1)  # alive until the parent has let go
        LockFile.acquire(machine, path).release()

    heard, report = os.pipe()
    with child_beside(child):
        os.close(report)
        assert os.read(heard, 1)
        lock.mark_clean(1, 2)
        lock.release()
        LockFile.acquire(machine, path).release()  # though the child lives
        os.close(gone)
    for fd in (go, heard):
        os.close(fd)


# ---------------------------------------------------------------- how the last writer left


def test_a_new_file_says_nothing_and_is_made_durable_first(machine: Machine, path: str) -> None:
    lock = LockFile.acquire(machine, path)
    assert lock.previous == LockState()
    assert machine.calls == []
    assert os.path.getsize(path) == 0
    lock.mark_open()
    assert machine.calls == ["pwrite", "fdatasync", "fsync_dir"]
    lock.release()


def test_a_clean_close_is_found_with_the_catalogue(machine: Machine, path: str) -> None:
    session(machine, path)
    machine.now_ms += 1_000
    state = read_state(machine, path)
    assert state.clean
    assert not state.is_open
    assert (state.catalogue_size, state.catalogue_crc) == (32_768, 0x12345678)
    assert (state.pid, state.host, state.boot_id) == (os.getpid(), socket.gethostname(), "boot-1")
    assert state.since == state.closed_at == "2025-11-21T13:41:07.123Z"
    assert session(machine, path) == state
    assert verify_lock(Path(path).read_bytes()) == []


def test_a_clock_that_goes_back_does_not_take_the_close_with_it(machine: Machine, path: str) -> None:
    session(machine, path)
    machine.now_ms -= 86_400_000
    session(machine, path)
    assert read_state(machine, path).closed_at == "2025-11-21T13:41:07.123Z"


def test_each_mark_is_synced(machine: Machine, path: str) -> None:
    session(machine, path)
    lock = LockFile.acquire(machine, path)
    for mark in (lock.mark_open, lock.mark_failed_sync, lock.mark_recovered, lambda: lock.mark_clean(1, 2)):
        machine.calls.clear()
        mark()
        assert machine.calls == ["pwrite", "fdatasync"]
    machine.calls.clear()
    lock.mark_recovered()
    assert machine.calls == []  # nothing new
    lock.release()


@pytest.mark.parametrize("restarted", [False, True])
def test_the_boot_id_is_claimed_only_once_all_is_recovered(machine: Machine, path: str, restarted: bool) -> None:
    session(machine, path)
    assert session(machine, path, clean=False).clean
    assert read_state(machine, path).boot_id == "boot-1"
    machine.boot = "boot-2" if restarted else "boot-1"
    for _ in range(2):  # a recovery that does not end leaves the next opening as wise as this one
        previous = session(machine, path, clean=False, recovered=False)
        assert not previous.clean
    assert previous.boot_id == ("" if restarted else "boot-1")
    session(machine, path, clean=False)
    assert read_state(machine, path).boot_id == machine.boot


def test_an_unknown_boot_is_never_the_same(machine: Machine, path: str) -> None:
    machine.boot = ""
    session(machine, path, clean=False)
    assert session(machine, path, clean=False).boot_id == ""


def test_a_failed_sync_is_remembered_until_recovered_from(machine: Machine, path: str) -> None:
    session(machine, path)
    lock = LockFile.acquire(machine, path)
    lock.mark_open()
    lock.mark_failed_sync()
    lock.mark_clean(1, 2)
    lock.release()
    for _ in range(2):
        previous = session(machine, path, clean=False, recovered=False)
        assert previous.failed_sync
        assert not previous.clean
    session(machine, path)
    previous = session(machine, path)
    assert previous.clean
    assert not previous.failed_sync


def test_a_failed_sync_that_cannot_be_synced_is_still_in_the_page_cache(machine: Machine, path: str) -> None:
    lock = LockFile.acquire(machine, path)
    lock.mark_open()
    machine.sync_error = OSError(errno.EIO, "Input/output error")
    lock.mark_failed_sync()
    lock.release()
    assert read_state(machine, path).failed_sync


# ---------------------------------------------------------------- a disk that fails


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, errors.DiskFull), (errno.EDQUOT, errors.DiskFull), (errno.EIO, errors.WriteFailed)]
)
def test_a_write_that_fails_has_a_name_and_can_be_repeated(
    machine: Machine, path: str, number: int, expected: type[errors.LogdbError]
) -> None:
    session(machine, path)
    lock = LockFile.acquire(machine, path)
    lock.mark_open()
    machine.write_error, machine.write_size_bytes_max = OSError(number, os.strerror(number)), 100
    with pytest.raises(expected, match=os.strerror(number)):
        lock.mark_clean(1, 2)
    state = read_state(machine, path)
    assert not state.clean
    assert not state.readable
    machine.write_error = None
    lock.mark_clean(1, 2)
    lock.release()
    assert read_state(machine, path).clean
    assert verify_lock(Path(path).read_bytes()) == []


def test_a_sync_that_fails_is_final_by_name(machine: Machine, path: str) -> None:
    lock = LockFile.acquire(machine, path)
    machine.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(errors.SyncFailed, match="read-only until reopened"):
        lock.mark_open()
    lock.release()
    with pytest.raises(errors.Closed):
        lock.mark_open()


@pytest.mark.parametrize("size_bytes", TEARS)
def test_a_torn_close_is_no_close(machine: Machine, path: str, size_bytes: int) -> None:
    session(machine, path)
    lock = LockFile.acquire(machine, path)
    lock.mark_open()
    machine.write_error, machine.write_size_bytes_max = OSError(errno.EIO, "cut"), size_bytes
    with pytest.raises(errors.WriteFailed):
        lock.mark_clean(1, 2)
    lock.release()
    machine.write_error = None
    previous = session(machine, path)
    assert not previous.clean
    assert previous.is_open
    assert session(machine, path).clean  # one session makes both slots good again
    assert verify_lock(Path(path).read_bytes()) == []


@pytest.mark.parametrize("size_bytes", TEARS)
@pytest.mark.parametrize("first", [False, True])
def test_a_torn_open_leaves_what_was_or_doubt(machine: Machine, path: str, size_bytes: int, first: bool) -> None:
    if not first:
        session(machine, path)
    before = read_state(machine, path)
    lock = LockFile.acquire(machine, path)
    machine.write_error, machine.write_size_bytes_max = OSError(errno.EIO, "cut"), size_bytes
    with pytest.raises(errors.WriteFailed):
        lock.mark_open()
    lock.release()
    after = read_state(machine, path)
    assert after == before or not (after.readable or after.clean or after.boot_id)


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_no_flipped_byte_of_a_clean_file_escapes(machine: Machine, path: str, mask: int) -> None:
    session(machine, path)
    data = Path(path).read_bytes()
    assert len(data) == FILE_SIZE_BYTES
    for position in range(len(data)):
        flipped = flip(data, position, mask)
        assert verify_lock(flipped), position
        state = decode_state(flipped)
        assert not (state.clean or state.readable or state.boot_id or state.failed_sync)


@pytest.mark.parametrize("size_bytes", [0, 1, 511, 512, 513, 1023])
def test_a_clean_file_cut_short_is_not_clean(machine: Machine, path: str, size_bytes: int) -> None:
    session(machine, path, recovered=False)  # the close is in the second slot
    state = decode_state(Path(path).read_bytes()[:size_bytes])
    assert not state.clean
    assert state.readable == (size_bytes in (0, 512))


@pytest.mark.parametrize("data", [b"not a lock\n", b"\0" * FILE_SIZE_BYTES, b"\xff" * 5_000, b"{}" * 512])
def test_damaged_content_never_refuses_an_opening(machine: Machine, path: str, data: bytes) -> None:
    Path(path).write_bytes(data)
    assert verify_lock(data)
    previous = session(machine, path)
    assert previous == LockState(readable=False, is_open=True)
    assert session(machine, path).clean
    assert verify_lock(Path(path).read_bytes()) == []


def test_slots_of_different_times_are_reported(machine: Machine, path: str) -> None:
    session(machine, path)
    data = Path(path).read_bytes()
    for _ in range(2):
        session(machine, path)
    mixed = Path(path).read_bytes()[:SLOT_SIZE_BYTES] + data[SLOT_SIZE_BYTES:]
    assert "do not follow each other" in verify_lock(mixed)[0]


def test_a_slot_is_a_line_that_people_can_read(machine: Machine, path: str) -> None:
    session(machine, path)
    lines = Path(path).read_text(encoding="ascii").split("\n")
    assert [len(line) for line in lines] == [511, 511, 0]
    assert all(line.startswith('{"format":1,"sequence":') for line in lines[:2])


def test_the_largest_slot_fits() -> None:
    lock = {
        "format": 1,
        "sequence": 2**63,
        "state": "clean",
        "pid": 2**31,
        "host": "h" * 64,
        "since": "2025-11-21T13:41:07.123Z",
        "boot_id": "b" * 36,
        "failed_sync": False,
        "catalogue_size": 2**48,
        "catalogue_crc": 2**32 - 1,
        "closed_at": "2025-11-21T13:41:07.123Z",
    }
    assert decode_slot(encode_slot(lock)) == lock


def test_a_newer_format_is_refused(tmp_path):
    path = tmp_path / "LOCK"
    path.write_bytes(encode_slot({"format": 2, "sequence": 1, "state": "clean"}))
    with pytest.raises(errors.UnsupportedFormat, match="has format 2; this logdb knows up to 1"):
        LockFile.acquire(IO(), str(path))
    with pytest.raises(errors.UnsupportedFormat):
        logdb.open(tmp_path, mode="r")


def test_an_interrupt_in_a_release_leaves_the_directory_free(tmp_path: Path) -> None:
    """A Ctrl-C between two of its steps; one at its very begin is a call that was not made."""
    path = str(tmp_path / "LOCK")
    for number in itertools.count(2):
        lock = LockFile.acquire(IO(), path)
        interrupted = Interrupted(number, lock.release)
        assert interrupted.error is None or isinstance(interrupted.error, KeyboardInterrupt), interrupted.place
        LockFile.acquire(IO(), path).release()
        assert not writer_alive(IO(), path), interrupted.place
        lock.release()
        if interrupted.place is None:
            assert number > 8
            break
