"""The exact recovery point of one log: the file ``recovery-point``.

Knows up to where fdatasync has returned, and how far writing had come.  Does not know
what lies there.

Written without a sync after each fdatasync of the log, so it is exact after a process
crash and never ahead after a power cut; and after every few MiB that were written, since
while the machine stays up its page cache has what was written, and need not be checked.
Two slots of 64 bytes take turns, so a torn write leaves the other; big-endian:

    0   4   magic "LRP1"
    4   8   sequence, from 1 on; the slot is sequence % 2
    12  8   durable: base offset of the segment
    20  8            offset, the next one after what is durable
    28  8            position in that segment's file
    36  8   written: base offset of the segment
    44  8            offset
    52  4            position
    56  4   boot: CRC-32C of the machine's boot id; "written" counts only while that is the same
    60  4   CRC-32C of bytes 0 to 59

A slot that was never used is all zeroes.
"""

import logging
import os
import struct
import threading
from typing import NamedTuple

from logdb.codec import crc32c
from logdb.disk import exists, read_file, sync_directory
from logdb.errors import DiskFull, ReadFailed, WriteFailed
from logdb.io import IO
from logdb.segment.files import FileHolder

logger = logging.getLogger(__name__)

FILE_NAME = "recovery-point"
SLOT_SIZE = 64
_SLOT = struct.Struct(">4sQqqqqqII")
_MAGIC = b"LRP1"


class Point(NamedTuple):
    """A place in a log: ``offset`` is at ``position`` of the segment with that base offset."""

    segment: int
    offset: int
    position: int


NOWHERE = Point(0, 0, 0)


class Slot(NamedTuple):
    """One slot: what is durable, and what was written under the boot with that tag."""

    sequence: int
    durable: Point
    written: Point = NOWHERE
    boot: int = 0


def encode(slot: Slot) -> bytes:
    body = _SLOT.pack(_MAGIC, slot.sequence, *slot.durable, *slot.written, slot.boot)
    return body + crc32c(body).to_bytes(4, "big")


def decode(data: bytes) -> Slot | None:
    """What a slot says; None unless it is whole and good."""
    if len(data) != SLOT_SIZE or crc32c(data[:60]) != int.from_bytes(data[60:], "big"):
        return None
    magic, sequence, *numbers, boot = _SLOT.unpack(data[:60])
    return Slot(sequence, Point(*numbers[:3]), Point(*numbers[3:]), boot) if magic == _MAGIC else None


class RecoveryPointFile(FileHolder):
    """Reads the file once and keeps writing it.

    ``point``: where what is durable ends.  ``written``: how far writing had come under this
    boot, as noted last; NOWHERE if the machine was started anew since.
    """

    __slots__ = ("_boot", "_noted", "_noting", "_sequence", "point", "written")

    def __init__(self, io: IO, directory: str, *, writable: bool) -> None:
        super().__init__(io, os.path.join(directory, FILE_NAME), writable=writable)
        self._noting = threading.Lock()  # the log's writer and whoever syncs both note
        self._noted = False
        self._boot = crc32c(io.boot_id().encode())
        self._sequence, self.point, written, boot = load(io, self.path)
        self.written = written if boot == self._boot != 0 else NOWHERE

    def mend(self) -> None:
        """After a crash: zero a slot that was torn, and make the file if it was lost; raises ReadFailed, DiskFull, WriteFailed."""
        if not exists(self.io, self.path):
            if self.point.offset:
                self.note()
            return
        data = read_file(self.io, self.path, 2 * SLOT_SIZE)
        for at in (0, SLOT_SIZE):
            slot = data[at : at + SLOT_SIZE]
            if slot and decode(slot) is None:
                self.open().write(bytes(SLOT_SIZE), at)

    def note(self, *, point: Point | None = None, written: Point | None = None) -> None:
        """Move ``point``, ``written`` or both, and note them in the older slot, unsynced.

        Where that fails, a recovery begins earlier: a loss of time, not of data.
        """
        with self._noting:
            self.point, self.written = point or self.point, written or self.written
            self._sequence += 1
            self._noted = True
            slot = encode(Slot(self._sequence, self.point, self.written, self._boot))
            try:
                file = self.file or self.open(create=not exists(self.io, self.path))
                file.write(slot, self._sequence % 2 * SLOT_SIZE)
            except (OSError, DiskFull, WriteFailed, ReadFailed) as error:
                logger.warning("noting the recovery point in %s: %s", self.path, error)

    def settle(self) -> None:
        """Sync what was noted since the file was opened, so that a clean close leaves no torn slot behind.

        Raises:
            SyncFailed: Final.
        """
        if self._noted:
            self.sync()
            sync_directory(self.io, os.path.dirname(self.path))
            self._noted = False


def load(io: IO, path: str) -> Slot:
    """The newest good slot; sequence 0 if there is none."""
    try:
        data = read_file(io, path, 2 * SLOT_SIZE)
    except FileNotFoundError:
        data = b""
    slots = [slot for at in (0, SLOT_SIZE) if (slot := decode(data[at : at + SLOT_SIZE]))]
    return max(slots, default=Slot(0, NOWHERE))
