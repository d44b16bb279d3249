"""``LOCK``: one writer to a directory, and how the last one left it.

Exclusion is ``flock`` on the file, held for life; it goes with the process.
What the file says never refuses an opening: it names the holder to whoever is
refused, and tells the next writer how to recover.

The file is two slots of 512 bytes, each one line that people can read:

    [0, 503)    JSON, compact, filled up with spaces
    [503, 511)  CRC-32C of those 503 bytes, 8 hexadecimal digits in lower case
    [511]       newline

    {"format":1,"sequence":8,"state":"clean","pid":4711,"host":"box","since":"2025-11-21T13:41:07.123Z",
     "boot_id":"8d2c…","failed_sync":false,"catalogue_size":32768,"catalogue_crc":305419896,
     "closed_at":"2025-11-21T13:55:00.000Z"}       (on one line; the last three are null unless "clean")

The slot with the higher sequence counts.  A write goes to the other one and is
synced, so there is a valid state at any moment; the first write of all goes to
the first slot.  If a slot is there but not valid, the file is unreadable: it may
have been the newer one.  Then the last stop counts as unclean and the machine
as restarted.

    state  written by                          says
    open   mark_open, before any other write   boot_id, failed_sync
    clean  mark_clean, after all other writes  the catalogue's size and CRC as well

``boot_id`` names the start of the machine whose page cache holds all that was
written.  It is empty, and an earlier ``failed_sync`` stays, as long as an
earlier stop is not recovered from: until ``mark_recovered``.

Knows the file.  Does not know what recovery does.
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

from logdb.codec.batch import crc32c
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
    """What ``LOCK`` says; the defaults are those of an empty or missing file.

    ``readable``: no slot is damaged; else only the holder is told, if anything.
    ``is_open``: a writer is in there, or stopped uncleanly, or who knows.
    ``clean``: the last writer closed, with no failed sync.  ``since`` and
    ``closed_at`` are ISO times in UTC.
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
        ValueError: how it is damaged.
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
    """What a whole ``LOCK`` says; never raises."""
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
    """Everything that is wrong with the bytes of a ``LOCK``; after a clean close no flipped byte escapes."""
    slots, problems = _slots(data)
    sequences = sorted(int(fields["sequence"]) for fields in slots)
    if len(sequences) == 2 and sequences[1] != sequences[0] + 1:
        problems.append(f"the slots have sequences {sequences[0]} and {sequences[1]}, which do not follow each other")
    if len(sequences) == 1 and not problems and slots[0].get("state") == "clean":
        problems.append("it was closed, but only one slot is there")
    return problems


def _slots(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """The valid slots, and what is wrong with those that are there but not valid."""
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
    """What the ``LOCK`` at ``path`` says, without locking anything."""
    state = LockState()
    for _ in range(_READ_COUNT_MAX):  # a writer may be in the middle of a slot
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

    Asking takes no lock, so it never makes a writer's opening fail.
    """
    try:
        with looking(path):
            fd = io.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        with looking(path):
            return _mark_is_held(fd)
    finally:
        close(io, path, fd)


# flock cannot be asked about without trying it, which would refuse a writer that comes at that moment.
# So a writer also holds an open-file-description lock, which excludes nobody but can be seen.
_FLOCK = "hhqqi0q"  # struct flock: type, whence, start, length, pid


def _mark(fd: int, kind: int) -> None:
    """Set it (``F_WRLCK``) or clear it (``F_UNLCK``)."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        with contextlib.suppress(OSError):  # a file system without them: writer_alive says False there
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0))


def _mark_is_held(fd: int) -> bool | None:
    if not hasattr(fcntl, "F_OFD_GETLK"):
        return None
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


# ---------------------------------------------------------------- the writer's


class LockFile:
    """The writer's hold on a directory.  ``previous`` is what the file said when it was taken."""

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
        """Take the ``LOCK`` at ``path`` (made if missing) without waiting; nothing is written yet.

        Raises:
            DirectoryLocked: Another handle, in this process too, has it; with its pid, or 0 if that is not known.
            ReadOnly, DiskFull, WriteFailed: It cannot be opened for writing, or made.
            UnsupportedFormat: A newer logdb wrote it.
        """
        try:
            fd = io.open(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _write_error(path, error) from error
        try:
            if not io.lock(fd):
                raise _refused(path, _read(io, fd))
            _mark(fd, fcntl.F_WRLCK)
            lock = LockFile(io, path, fd)
            check_format(path, lock.previous)
        except BaseException as error:
            close(io, path, fd)
            if isinstance(error, OSError):
                raise _write_error(path, error) from error
            raise
        _held[id(lock)] = lock
        return lock

    def mark_open(self) -> None:
        """Say that a writer is in there: synced before it writes anything else.

        Raises:
            DiskFull, WriteFailed, SyncFailed: The directory cannot be opened for writing.
        """
        self._write({}, fsync_dir=self.previous.sequence == 0)

    def mark_recovered(self) -> None:
        """Say that nothing of an earlier stop is left to recover: from here on the page cache holds all."""
        if self._fields["boot_id"] != self._io.boot_id() or self._fields["failed_sync"]:
            self._write({"boot_id": self._io.boot_id(), "failed_sync": False})

    def mark_failed_sync(self) -> None:
        """Say that an fsync failed, so that the next opening does not believe the page cache; as well as can be."""
        self._fields["failed_sync"] = True
        try:
            self._write({})
        except LogdbError as error:
            _log.warning("%s: the failed sync could not be noted: %s", self.path, error)

    def mark_clean(self, catalogue_size: int, catalogue_crc: int) -> None:
        """Say that all is recovered, written, synced and closed: the last write.  A failed sync outlives it.

        Raises:
            DiskFull, WriteFailed, SyncFailed: The stop will count as unclean.
        """
        closed_at = max(_iso(self._io.clock_ms()), str(self._fields["since"]), self.previous.closed_at)
        self._write({"state": "clean", "catalogue_size": catalogue_size, "catalogue_crc": catalogue_crc, "closed_at": closed_at})

    def release(self) -> None:
        """Let the next writer in.  Doing so twice is no error."""
        with self._guard:
            _held.pop(id(self), None)
            if self._fd is not None:
                fd, self._fd = self._fd, None
                _mark(fd, fcntl.F_UNLCK)
                try:
                    self._io.unlock(fd)
                except OSError as error:  # all is said and synced by now, and to close it unlocks it, too
                    _log.warning("letting go of %s: %s", self.path, error)
                close(self._io, self.path, fd)

    def after_fork_in_child(self) -> None:
        """Drop the descriptor that the child inherited, or the lock would outlive the parent."""
        self._forked, self._guard = True, threading.Lock()
        if self._fd is not None:
            fd, self._fd = self._fd, None
            close(self._io, self.path, fd)

    def _boot_id_to_claim(self) -> str:
        """This boot's id if the page cache is known to hold all that was written, else empty."""
        now, previous = self._io.boot_id(), self.previous
        return now if previous.clean or (previous.boot_id == now and not previous.failed_sync) else ""

    def _write(self, changes: Mapping[str, object], *, fsync_dir: bool = False) -> None:
        if (failed := self._write_slot(changes)) is not None:  # who is told of it may write a slot: hence not under the guard
            raise condemn(self._io, self.path, failed) from failed
        if fsync_dir:
            sync_directory(self._io, os.path.dirname(self.path) or ".")

    def _write_slot(self, changes: Mapping[str, object]) -> OSError | None:
        """Write and sync the next slot; returns what the sync failed with."""
        with self._guard:
            if self._forked:
                raise Forked(f"{self.path} was locked by the parent process: open the database anew")
            if self._fd is None:
                raise Closed(f"{self.path} was released")
            # After a failure the same slot is written again: the other one is known to be good.
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
    """The number of the slot that says less: damaged, missing, or older than the other."""
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


_held: dict[int, LockFile] = {}  # what this process holds, by id


def _refused(path: str, holder: LockState) -> DirectoryLocked:
    if any(os.path.realpath(lock.path) == os.path.realpath(path) for lock in list(_held.values())):
        return DirectoryLocked(os.path.dirname(path), pid=os.getpid(), host=os.uname().nodename, since=holder.since)
    known = holder.readable and holder.is_open  # else the holder has not marked it yet, and it speaks of the one before
    return DirectoryLocked(os.path.dirname(path), pid=holder.pid if known else 0, host=holder.host, since=holder.since)


def _after_fork_in_child() -> None:
    for lock in list(_held.values()):
        lock.after_fork_in_child()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
