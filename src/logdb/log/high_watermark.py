"""The high watermark of a replica: below it all in-sync replicas have the records, and none of them is cut off any more.

It moves in memory, with what the leader says.  The file ``high-watermark`` has it for the next opening and for readers in other
processes: one record of 16 bytes, overwritten in place (docs/inside/format.md, "high-watermark").

    0   4   magic "LHW1"
    4   8   offset
    12  4   CRC-32C of bytes 0 to 11

The file is a lower bound.  A move forward is written later, unsynced, at most twice a second.  A move back, by a truncation or by an
opening that finds the log shorter, is synced before a record of another leader can take the place of what is gone.  A damaged
file says nothing: then only the leader knows the high watermark, and until it says so readers see nothing.

A log that is not replicated has no such file; readers see it up to its end.

Threading: ``note`` and ``lower`` exclude each other by ``LogSync.lock``, and by ``Log.alone``.
"""

import os
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from logdb.codec import crc32c
from logdb.disk import exists, read_file, remove, sync_directory, write_file
from logdb.errors import CorruptionError, FencedLeaderEpoch, UnknownLeaderEpoch
from logdb.io import IO

if TYPE_CHECKING:
    from logdb.log.log import Log

FILE_NAME = "high-watermark"
SIZE_BYTES = 16
NOTE_INTERVAL_MS = 500
_RECORD = struct.Struct(">4sq")
_MAGIC = b"LHW1"


def encode(offset: int) -> bytes:
    body = _RECORD.pack(_MAGIC, offset)
    return body + crc32c(body).to_bytes(4, "big")


def decode(data: bytes, path: str) -> int:
    """The offset that the file says; raises CorruptionError unless it is exactly what ``encode`` writes."""
    if len(data) != SIZE_BYTES:
        raise CorruptionError(path, len(data), f"{len(data)} bytes are no high watermark")
    stored, computed = int.from_bytes(data[12:], "big"), crc32c(data[:12])
    magic, offset = _RECORD.unpack_from(data)
    if stored != computed or magic != _MAGIC or offset < 0:
        raise CorruptionError(path, 0, f"magic {magic!r}, offset {offset}, stored CRC {stored:08x}, computed {computed:08x}")
    return int(offset)


def load(io: IO, directory: str) -> int | None:
    """The high watermark of the file; None without a file.  Raises CorruptionError."""
    path = os.path.join(directory, FILE_NAME)
    try:
        return decode(read_file(io, path, SIZE_BYTES + 1), path)
    except FileNotFoundError:
        return None


class HighWatermarkFile:
    """The file of one log that is open as a replica.

    | field      | who changes it | under which lock                   | when it may be trusted      |
    |------------|----------------|------------------------------------|-----------------------------|
    | ``offset`` | ``write``      | ``LogSync.lock``, ``alone``        | always: the file says it    |
    | ``due_ms`` | ``write``      | the same                           | a hint for the flusher      |
    | ``synced`` | ``write``,     | the same                           | true: ``offset`` is durable |
    |            | a shared sync  |                                    |                             |
    """

    def __init__(self, io: IO, directory: str, offset: int) -> None:
        self._io, self._path = io, os.path.join(directory, FILE_NAME)
        self.offset, self.due_ms, self.synced = offset, 0, False

    def write(self, offset: int, *, sync: bool = False) -> None:
        """Let the file say another offset; raises DiskFull, WriteFailed, SyncFailed."""
        self.due_ms, self.synced = self._io.monotonic_ms() + NOTE_INTERVAL_MS, False
        write_file(self._io, self._path, encode(offset), sync=sync)
        self.offset, self.synced = offset, sync


def open_replica(io: IO, directory: str, start_offset: int, end_offset: int, report: Callable[[str], None]) -> HighWatermarkFile:
    """The file of a log that is opened as a replica.  A log that has none gets one, durably, before it takes a record.

    What is past the file's offset may be cut off by the next leader, so readers do not see it.  Without a good file that is
    all of the log.

    Raises:
        DiskFull, WriteFailed, SyncFailed: The file could not be put right.
    """
    known: int | None = None
    try:
        known = load(io, directory)
    except CorruptionError as error:
        report(f"{error}; nothing is shown of the log until its leader moves the high watermark")
    file = HighWatermarkFile(io, directory, max(start_offset, min(known or 0, end_offset)))
    if known is None or known > end_offset:
        file.write(file.offset, sync=True)
        sync_directory(io, directory)
    return file


def forget(io: IO, directory: str) -> None:
    """Remove the file of a log that is opened on its own, durably; raises WriteFailed, SyncFailed."""
    path = os.path.join(directory, FILE_NAME)
    if exists(io, path):
        remove(io, path)
        sync_directory(io, directory)


# ---------------------------------------------------------------- in a log


def due_ms(log: "Log") -> int | None:
    """On the monotonic clock, when the file is to be written; None: it says what the log does, or must not."""
    file = log.high_watermark_file
    return None if file is None or file.offset == log.view.high_watermark or log.refuses_writes else file.due_ms


def note(log: "Log", *, sync: bool = False) -> None:
    """Let the file say what the log does; under ``LogSync.lock``.  A log that is being cut off has lowered it."""
    file = log.high_watermark_file
    is_noted = file is not None and file.synced and file.offset == log.view.high_watermark
    if file is not None and not (is_noted or log.closed or log.is_held or log.refuses_writes):
        file.write(log.view.high_watermark, sync=sync)


def lower(log: "Log", offset: int) -> None:
    """Let the file say no more than ``offset``, durably: the log is about to end there.  The caller is ``alone``."""
    file = log.high_watermark_file
    if file is not None:
        file.write(min(log.view.high_watermark, offset), sync=True)


def wait(log: "Log", offset: int, leader_epoch: int | None, go_on: Callable[[], object] | None) -> None:
    """Return once the high watermark has reached ``offset``; see ``Log.commit_to``.

    A leader does not cut its log off.  So what lies below ``offset`` stays the same until another epoch begins.
    """
    epoch, moved = log.view.epochs.latest if leader_epoch is None else leader_epoch, threading.Event()
    log.watch(moved)
    try:
        while True:
            moved.clear()
            if go_on is not None:
                go_on()
            if log.closed or log.refuses_writes:
                raise log.refusal()
            if log.follows:
                raise log.not_leader()
            view = log.view
            if epoch != view.epochs.latest:
                ended = FencedLeaderEpoch if epoch < view.epochs.latest else UnknownLeaderEpoch
                raise ended(log.topic, log.partition, epoch, view.epochs.latest)
            if offset <= view.high_watermark:
                return
            moved.wait()
    finally:
        log.unwatch(moved)
