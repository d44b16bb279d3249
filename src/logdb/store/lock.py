"""``LOCK``: excludes a second writer, and says how the last writer left the directory.

``flock`` on the file is the exclusion; it is held as long as the directory is open, and ends with the process.
The file's content never refuses an opening: it names the holder in ``DirectoryLocked``, and tells the next writer how to recover.

The file has two slots of 512 bytes, each one line of text:

    [0, 503)    JSON, compact, padded with spaces
    [503, 511)  CRC-32C of those 503 bytes, 8 lower-case hexadecimal digits
    [511]       newline

    {"format":1,"sequence":8,"state":"clean","pid":4711,"host":"box","since":"2025-11-21T13:41:07.123Z",
     "boot_id":"8d2c…","failed_sync":false,"catalogue_size":32768,"catalogue_crc":305419896,
     "closed_at":"2025-11-21T13:55:00.000Z"}       (on one line; the last three are null unless "clean")

The slot with the higher sequence counts.  A write goes to the other slot and is synced, so that one slot is always valid; the
first write goes to the first slot.  If a slot is not empty and not valid, the file counts as unreadable, because the damaged slot
may have been the newer one; then the last stop counts as unclean and the machine as restarted.

    state  written by                          says
    open   mark_open, before any other write   boot_id, failed_sync
    clean  mark_clean, after all other writes  the catalogue's size and CRC as well

``boot_id`` names the boot of the machine whose page cache holds everything that was written.  Until ``mark_recovered`` it is
empty, and an earlier ``failed_sync`` stays, if an earlier stop still needs recovery.
Threading: any method from any thread.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from logdb.codec import crc32c
from logdb.disk import close, condemn, looking, read_file, sync_directory
from logdb.errors import Closed, DirectoryLocked, DiskFull, Forked, LogdbError, ReadOnly, UnsupportedFormat, WriteFailed
from logdb.io import IO, pread_exact, pwrite_all

_log = logging.getLogger(__name__)

FORMAT = 1
SLOT_SIZE_BYTES = 512
FILE_SIZE_BYTES = 2 * SLOT_SIZE_BYTES
_TEXT_SIZE_BYTES = 503
_HOST_LENGTH_MAX = 64  # Linux's limit; keeps the JSON within the slot
_READ_COUNT_MAX = 3


class LockState(NamedTuple):
    """The content of ``LOCK``; the defaults are those of an empty or missing file.

    ``readable``: no slot is damaged; if one is, only the holder is set, if it is known.
    ``is_open``: a writer has it open or stopped uncleanly, or the file is unreadable.
    ``clean``: the last writer closed, and no sync failed.  ``since`` and ``closed_at`` are ISO times in UTC.
    """

    readable: bool = True
    format: int = FORMAT
    sequence: int = 0
    is_open: bool = False
    clean: bool = False
    pid: int = 0
    host: str = ""
    since: str = ""
    boot_id: str = ""
    failed_sync: bool = False
    catalogue_size: int | None = None
    catalogue_crc: int | None = None
    closed_at: str = ""


# ---------------------------------------------------------------- the format


def encode_slot(fields: Mapping[str, object]) -> bytes:
    text = json.dumps(fields, separators=(",", ":")).encode("ascii").ljust(_TEXT_SIZE_BYTES)
    assert len(text) == _TEXT_SIZE_BYTES, f"LOCK would need {len(text)} bytes a slot"
    return text + f"{crc32c(text):08x}\n".encode("ascii")


def decode_slot(slot: bytes) -> dict[str, Any]:
    """The fields of a slot.

    Raises:
        ValueError: The slot is damaged; the text says how.
    """
    if len(slot) != SLOT_SIZE_BYTES:
        raise ValueError(f"it has {len(slot)} bytes instead of {SLOT_SIZE_BYTES}")
    text, end = slot[:_TEXT_SIZE_BYTES], slot[_TEXT_SIZE_BYTES:]
    if end != f"{crc32c(text):08x}\n".encode("ascii"):
        raise ValueError(f"it ends in {end!r}, its CRC is {crc32c(text):08x}")
    fields = json.loads(text)
    if not isinstance(fields, dict) or not all(isinstance(fields.get(name), int) for name in ("sequence", "format")):
        raise ValueError(f"it holds {fields!r}")
    return fields


def decode_state(data: bytes) -> LockState:
    """The state in a whole ``LOCK``; never raises."""
    slots, problems = _slots(data)
    newest = max(slots, key=lambda fields: int(fields["sequence"]), default=None)
    if newest is None:
        return LockState(readable=not problems, is_open=bool(problems))
    holder = {name: newest.get(name) or "" for name in ("host", "since", "closed_at")}
    common = {"format": newest.get("format"), "sequence": newest["sequence"], "pid": newest.get("pid") or 0, **holder}
    if problems:
        return LockState(readable=False, is_open=True, **common)
    closed, failed_sync = newest.get("state") == "clean", bool(newest.get("failed_sync"))
    return LockState(
        is_open=not closed,
        clean=closed and not failed_sync,
        boot_id=newest.get("boot_id") or "",
        failed_sync=failed_sync,
        catalogue_size=newest.get("catalogue_size"),
        catalogue_crc=newest.get("catalogue_crc"),
        **common,
    )


def verify_lock(data: bytes) -> list[str]:
    """The problems in the bytes of a ``LOCK``; after a clean close every flipped byte is one."""
    slots, problems = _slots(data)
    sequences = sorted(int(fields["sequence"]) for fields in slots)
    if len(sequences) == 2 and sequences[1] != sequences[0] + 1:
        problems.append(f"the slots have sequences {sequences[0]} and {sequences[1]}, which do not follow each other")
    if len(sequences) == 1 and not problems and slots[0].get("state") == "clean":
        problems.append("it was closed, but only one slot is there")
    return problems


def _slots(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """The valid slots, and the problems of slots that are neither valid nor empty."""
    slots, problems = [], []
    for position in range(0, min(len(data), FILE_SIZE_BYTES), SLOT_SIZE_BYTES):
        try:
            slots.append(decode_slot(data[position : position + SLOT_SIZE_BYTES]))
        except ValueError as error:
            problems.append(f"the slot at byte {position} is damaged: {error}")
    return slots, problems


# ---------------------------------------------------------------- for readers


def _read(io: IO, fd: int) -> LockState:
    return decode_state(pread_exact(io, fd, FILE_SIZE_BYTES, 0))


def read_state(io: IO, path: str) -> LockState:
    """The state in the ``LOCK`` at ``path``; takes no lock."""
    state = LockState()
    for _ in range(_READ_COUNT_MAX):  # a writer may be writing a slot
        try:
            state = decode_state(read_file(io, path, FILE_SIZE_BYTES))
        except FileNotFoundError:
            return LockState()
        if state.readable:
            break
    return state


def check_format(path: str, state: LockState) -> None:
    """Raise UnsupportedFormat if a newer logdb wrote the ``LOCK`` at ``path``."""
    if state.format > FORMAT:
        raise UnsupportedFormat(path, state.format, FORMAT)


def writer_alive(io: IO, path: str) -> bool | None:
    """Whether a writer holds the ``LOCK`` at ``path`` now; None where the system cannot tell.

    The test takes no lock, so a writer's opening never fails because of it.
    """
    try:
        with looking(path):
            fd = io.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        with looking(path):
            return _mark_is_held(fd)
    finally:
        close(io, path, fd)


# flock can only be tested by taking it, which would refuse a writer that opens at that moment.
# So a writer also holds an open-file-description lock, which excludes no process and can be queried.
_FLOCK = "hhqqi0q"  # struct flock: type, whence, start, length, pid


def _mark(fd: int, kind: int) -> None:
    """Set the open-file-description lock (``F_WRLCK``) or clear it (``F_UNLCK``)."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        with contextlib.suppress(OSError):  # the file system has no such locks: writer_alive returns False there
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0))


def _mark_is_held(fd: int) -> bool | None:
    if not hasattr(fcntl, "F_OFD_GETLK"):
        return None
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


# ---------------------------------------------------------------- the writer's


class LockFile:
    """The writer's hold on a directory.  ``previous``: the state in the file before."""

    def __init__(self, io: IO, path: str, fd: int) -> None:
        self.path = path
        self._io = io
        self._fd: int | None = fd
        self._forked = False
        self._guard = threading.Lock()
        data = pread_exact(io, fd, FILE_SIZE_BYTES, 0)
        self.previous = decode_state(data)
        self._slot = _slot_to_write(data)
        self._sequence = self.previous.sequence
        self._fields: dict[str, object] = {
            "format": FORMAT,
            "sequence": self._sequence,
            "state": "open",
            "pid": os.getpid(),
            "host": os.uname().nodename[:_HOST_LENGTH_MAX],
            "since": _iso(io.clock_ms()),
            "boot_id": self._boot_id_to_claim(),
            "failed_sync": self.previous.failed_sync,
            "catalogue_size": None,
            "catalogue_crc": None,
            "closed_at": None,
        }

    @staticmethod
    def acquire(io: IO, path: str) -> "LockFile":
        """Take the ``LOCK`` at ``path`` (created if missing) without waiting; writes nothing yet.

        Raises:
            DirectoryLocked: Another handle has it, maybe one of this process; with the holder's pid, or 0 if that is unknown.
            ReadOnly, DiskFull, WriteFailed: The file cannot be opened for writing, or created.
            UnsupportedFormat: A newer logdb wrote it.
        """
        try:
            fd = io.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        except OSError as error:
            raise _write_error(path, error) from error
        try:
            if not io.lock(fd):
                raise _refused(path, _read(io, fd))
            _mark(fd, fcntl.F_WRLCK)
            lock = LockFile(io, path, fd)
            check_format(path, lock.previous)
            _held[id(lock)] = lock
        except BaseException as error:
            close(io, path, fd)
            if isinstance(error, OSError):
                raise _write_error(path, error) from error
            raise
        return lock

    def mark_open(self) -> None:
        """Write state "open", synced, before the writer changes any other file.

        Raises:
            DiskFull, WriteFailed, SyncFailed: The directory cannot be opened for writing.
        """
        self._write({}, fsync_dir=self.previous.sequence == 0)

    def mark_recovered(self) -> None:
        """Note that no earlier stop needs recovery: from here on the page cache holds everything."""
        if self._fields["boot_id"] != self._io.boot_id() or self._fields["failed_sync"]:
            self._write({"boot_id": self._io.boot_id(), "failed_sync": False})

    def mark_failed_sync(self) -> None:
        """Note that an fsync failed, so that the next opening distrusts the page cache; a failure to write this is only logged."""
        self._fields["failed_sync"] = True
        try:
            self._write({})
        except LogdbError as error:
            _log.warning("%s: the failed sync could not be written down: %s", self.path, error)

    def mark_clean(self, catalogue_size: int, catalogue_crc: int) -> None:
        """Write state "clean" after everything is recovered, written, synced and closed.  A failed sync stays noted.

        Raises:
            DiskFull, WriteFailed, SyncFailed: The stop will count as unclean.
        """
        closed_at = max(_iso(self._io.clock_ms()), str(self._fields["since"]), self.previous.closed_at)
        self._write({"state": "clean", "catalogue_size": catalogue_size, "catalogue_crc": catalogue_crc, "closed_at": closed_at})

    @property
    def released(self) -> bool:
        return self._fd is None

    def release(self) -> None:
        """Release the lock.  A second call does nothing.

        An exception from outside (Ctrl-C) that comes in a step leaves the others to be done: one of them alone releases it.
        """
        with self._guard:
            try:
                if self._fd is not None:
                    _mark(self._fd, fcntl.F_UNLCK)
            finally:
                try:
                    if self._fd is not None:
                        self._io.unlock(self._fd)
                except OSError as error:  # everything is written and synced, and closing unlocks it, too
                    _log.warning("releasing %s: %s", self.path, error)
                finally:
                    fd, self._fd = self._fd, None
                    if fd is not None:
                        close(self._io, self.path, fd)
                    _held.pop(id(self), None)

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptor, which would keep the lock after the parent has ended."""
        self._forked, self._guard = True, threading.Lock()
        if self._fd is not None:
            fd, self._fd = self._fd, None
            close(self._io, self.path, fd)

    def _boot_id_to_claim(self) -> str:
        """This boot's id if the page cache is known to hold everything that was written, otherwise empty."""
        now, previous = self._io.boot_id(), self.previous
        return now if previous.clean or (previous.boot_id == now and not previous.failed_sync) else ""

    def _write(self, changes: Mapping[str, object], *, fsync_dir: bool = False) -> None:
        if (failed := self._write_slot(changes)) is not None:  # condemn calls back, which may write a slot: so not under the guard
            raise condemn(self._io, self.path, failed) from failed
        if fsync_dir:
            sync_directory(self._io, os.path.dirname(self.path) or ".")

    def _write_slot(self, changes: Mapping[str, object]) -> OSError | None:
        """Write and sync the next slot; returns the error of the sync."""
        with self._guard:
            if self._forked:
                raise Forked(f"{self.path} was locked by the parent process: open the database again")
            if self._fd is None:
                raise Closed(f"{self.path} was released")
            # After a failure the same slot is written again: the other one is known to be valid.
            fields = {**self._fields, **changes, "sequence": self._sequence + 1}
            try:
                pwrite_all(self._io, self._fd, encode_slot(fields), self._slot * SLOT_SIZE_BYTES)
            except OSError as error:
                raise _write_error(self.path, error) from error
            try:
                self._io.fdatasync(self._fd)
            except OSError as error:
                return error
            self._fields, self._sequence, self._slot = fields, self._sequence + 1, 1 - self._slot
            return None


def _slot_to_write(data: bytes) -> int:
    """The number of the slot to overwrite: the damaged, missing or older one."""
    sequences = []
    for position in (0, SLOT_SIZE_BYTES):
        try:
            sequences.append(int(decode_slot(data[position : position + SLOT_SIZE_BYTES])["sequence"]))
        except ValueError:
            sequences.append(-1)
    return 1 if sequences[1] < sequences[0] else 0


def _iso(time_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ms // 1000)) + f".{time_ms % 1000:03d}Z"


def _write_error(path: str, error: OSError) -> LogdbError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(path, SLOT_SIZE_BYTES, str(error))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnly(f"{path} cannot be opened for writing: {error}; mode='r' reads without it")
    return WriteFailed(path, str(error))


_held: dict[int, LockFile] = {}  # the locks of this process, by id


def _refused(path: str, holder: LockState) -> DirectoryLocked:
    if any(os.path.realpath(lock.path) == os.path.realpath(path) for lock in list(_held.values())):
        return DirectoryLocked(os.path.dirname(path), pid=os.getpid(), host=os.uname().nodename, since=holder.since)
    known = holder.readable and holder.is_open  # otherwise the holder has not written its slot yet, and the file names the one before
    return DirectoryLocked(os.path.dirname(path), pid=holder.pid if known else 0, host=holder.host, since=holder.since)


def _after_fork_in_child() -> None:
    for lock in list(_held.values()):
        lock.after_fork_in_child()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
