"""The exact recovery point of one log: the file ``recovery-point``.

Knows up to where fdatasync has returned.  Does not know what lies there.

Written without a sync after each fdatasync of the log, so it is exact after a
process crash and never ahead after a power cut.  Two slots of 64 bytes take turns,
so a torn write leaves the other; big-endian:

    0   4   magic "LRP1"
    4   8   sequence, from 1 on; the slot is sequence % 2
    12  8   base offset of the segment
    20  8   offset: the next one after what is durable
    28  8   position in that segment's file
    36  24  zeroes
    60  4   CRC-32C of bytes 0 to 59

A slot that was never used is all zeroes.
"""

import logging
import os
import struct
from typing import NamedTuple

from logdb.codec import crc32c
from logdb.io import IO, pwrite_all, read_file
from logdb.segment.files import FileHolder

logger = logging.getLogger(__name__)

FILE_NAME = "recovery-point"
SLOT_SIZE = 64
_SLOT = struct.Struct(">4sQqqq24x")
_MAGIC = b"LRP1"


class Point(NamedTuple):
    """All before ``offset``, which is at ``position`` of the segment, is durable."""

    segment: int
    offset: int
    position: int


NOWHERE = Point(0, 0, 0)


def encode(sequence: int, point: Point) -> bytes:
    body = _SLOT.pack(_MAGIC, sequence, *point)
    return body + crc32c(body).to_bytes(4, "big")


def decode(slot: bytes) -> tuple[int, Point] | None:
    """The sequence and the point of a slot; None unless it is whole and good."""
    if len(slot) != SLOT_SIZE or crc32c(slot[:60]) != int.from_bytes(slot[60:], "big"):
        return None
    magic, sequence, segment, offset, position = _SLOT.unpack(slot[:60])
    return (sequence, Point(segment, offset, position)) if magic == _MAGIC else None


class RecoveryPointFile(FileHolder):
    """Reads the file once and keeps writing it."""

    __slots__ = ("_sequence", "point")

    def __init__(self, io: IO, directory: str, *, writable: bool) -> None:
        super().__init__(io, os.path.join(directory, FILE_NAME), writable=writable)
        self._sequence, self.point = load(io, self.path)

    def mend(self) -> None:
        """After a crash: zero a slot that was torn, and make the file if it was lost; raises OSError."""
        if not self.io.exists(self.path):
            if self.point.offset:
                self.write(self.point)
            return
        data = read_file(self.io, self.path, 2 * SLOT_SIZE)
        for at in (0, SLOT_SIZE):
            slot = data[at : at + SLOT_SIZE]
            if slot and decode(slot) is None:
                pwrite_all(self.io, self.open().fd, bytes(SLOT_SIZE), at)

    def write(self, point: Point) -> None:
        """Move to ``point``, and note it in the older slot, unsynced.

        Where it cannot be noted, a recovery begins earlier: a loss of time, not of data.
        """
        self._sequence += 1
        self.point = point
        try:
            file = self.file or self.open(create=not self.io.exists(self.path))
            pwrite_all(self.io, file.fd, encode(self._sequence, point), self._sequence % 2 * SLOT_SIZE)
        except OSError as error:
            logger.warning("noting the recovery point in %s: %s", self.path, error)


def load(io: IO, path: str) -> tuple[int, Point]:
    """The newest good slot: its sequence, 0 for none, and its point."""
    try:
        data = read_file(io, path, 2 * SLOT_SIZE)
    except FileNotFoundError:
        data = b""
    slots = [slot for at in (0, SLOT_SIZE) if (slot := decode(data[at : at + SLOT_SIZE]))]
    return max(slots, default=(0, NOWHERE))
