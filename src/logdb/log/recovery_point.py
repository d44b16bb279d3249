"""The exact recovery point of one log: the file ``recovery-point``.

The file is written without a sync after each fdatasync of the log: it is exact after a process crash, and never ahead after a power
cut.  A sync that many logs share notes it for those that have grown by ``MOVE_SIZE_BYTES``; the next checkpoint names it for the others.
It is also written after every few MiB, with the written end: while the machine stays up, its page cache has these bytes, and
recovery need not check them.  Two slots of 64 bytes take turns, so a torn write leaves the other; big-endian:

    0   4   magic "LRP1"
    4   8   sequence, from 1 on; the slot is sequence % 2
    12  8   durable: base offset of the segment
    20  8            offset after the last durable record
    28  8            position in that segment's file
    36  8   written: base offset of the segment
    44  8            offset
    52  4            position
    56  4   boot: CRC-32C of the machine's boot id; "written" is valid only under the same boot
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
MOVE_SIZE_BYTES = 64 << 10
"""What a recovery may check once more, so that a small file is not written for each of thousands of logs that share a sync."""
_SLOT = struct.Struct(">4sQqqqqqII")
_MAGIC = b"LRP1"


class Point(NamedTuple):
    """A place in a log: ``offset`` is at ``position`` of the segment with that base offset."""

    segment: int
    offset: int
    position: int


NOWHERE = Point(0, 0, 0)


class Slot(NamedTuple):
    """One slot: the durable end, and the written end under the boot with that tag."""

    sequence: int
    durable: Point
    written: Point = NOWHERE
    boot: int = 0


def encode(slot: Slot) -> bytes:
    body = _SLOT.pack(_MAGIC, slot.sequence, *slot.durable, *slot.written, slot.boot)
    return body + crc32c(body).to_bytes(4, "big")


def decode(data: bytes) -> Slot | None:
    """The content of a slot; None unless it is whole and its CRC is right."""
    if len(data) != SLOT_SIZE or crc32c(data[:60]) != int.from_bytes(data[60:], "big"):
        return None
    magic, sequence, *numbers, boot = _SLOT.unpack(data[:60])
    return Slot(sequence, Point(*numbers[:3]), Point(*numbers[3:]), boot) if magic == _MAGIC else None


class RecoveryPointFile(FileHolder):
    """Reads the file once and keeps writing it.

    ``point``: the durable end; the file says it, or less after ``move``.  ``written``: the written end that was last noted under this
    boot; NOWHERE after a reboot.
    """

    __slots__ = ("_boot", "_noted", "_noted_point", "_noting", "_sequence", "point", "written")

    def __init__(self, io: IO, directory: str, *, writable: bool) -> None:
        super().__init__(io, os.path.join(directory, FILE_NAME), writable=writable)
        self._noting = threading.Lock()  # the log's writer and its syncing threads both note
        self._noted = False
        self._boot = crc32c(io.boot_id().encode())
        self._sequence, self.point, written, boot = load(io, self.path)
        self.written, self._noted_point = written if boot == self._boot != 0 else NOWHERE, self.point

    def repair(self) -> None:
        """After a crash: zero a torn slot, and create the file if it was lost; raises ReadFailed, DiskFull, WriteFailed."""
        if not exists(self.io, self.path):
            if self.point.offset:
                self.note()
            return
        data = read_file(self.io, self.path, 2 * SLOT_SIZE)
        for at in (0, SLOT_SIZE):
            slot = data[at : at + SLOT_SIZE]
            if slot and decode(slot) is None:
                self.open().write(bytes(SLOT_SIZE), at)

    def move(self, point: Point) -> None:
        """Move ``point``; note it if that saves a recovery much work, or if the file says nothing yet."""
        with self._noting:
            self.point, noted = point, self._noted_point
        if not self._sequence or point.segment != noted.segment or point.position - noted.position >= MOVE_SIZE_BYTES:
            self.note()

    def note(self, *, point: Point | None = None, written: Point | None = None) -> None:
        """Move ``point``, ``written`` or both, and note them in the older slot, unsynced.

        If that fails, a recovery begins earlier: it takes longer, but loses no data.
        """
        with self._noting:
            self.point, self.written = point or self.point, written or self.written
            self._sequence += 1
            slot = encode(Slot(self._sequence, self.point, self.written, self._boot))
            try:
                file = self.file or self.open_briefly(create=not exists(self.io, self.path))
                file.write(slot, self._sequence % 2 * SLOT_SIZE)
                self._noted, self._noted_point = True, self.point
            except (OSError, DiskFull, WriteFailed, ReadFailed) as error:
                logger.warning("noting the recovery point in %s: %s", self.path, error)

    @property
    def unsynced(self) -> bool:
        """Whether a slot was noted that no sync has covered."""
        return self._noted

    def slots_synced(self) -> None:
        """A sync of the file system has covered the slots, and the file's directory entry."""
        self._noted = False

    def sync_slots(self) -> None:
        """Sync the slots, so that a clean close leaves no torn one.

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
