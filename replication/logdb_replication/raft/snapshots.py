"""Snapshots: the state machine up to an index, in one file, which is also what a voter that is too far behind is sent.

    file      magic 8 bytes · crc u32 · index u64 · term u64 · voters · state        big-endian

``crc`` is the CRC-32C of all that follows it.  The file is replaced as a whole, and checked before any of it is used.
"""

import os
import struct
from dataclasses import dataclass

from logdb.codec import crc32c
from logdb.disk import File, replace_file
from logdb.errors import CorruptionError, InvalidMessage
from logdb.io import IO
from logdb_replication.raft.voters import Voter, decode_voters, encode_voters

MAGIC = b"LDBSNAP1"
SIZE_BYTES_MAX = 256 << 20
_HEAD = struct.Struct(">8sIQQ")
_CRC_END = 12


@dataclass(frozen=True)
class Snapshot:
    """The state after the entry at ``index``; ``voters``: those of the last change up to there."""

    index: int
    term: int
    voters: tuple[Voter, ...]
    state: bytes


def encode(snapshot: Snapshot) -> bytes:
    voters = encode_voters(snapshot.voters)
    data = bytearray(_HEAD.pack(MAGIC, 0, snapshot.index, snapshot.term) + voters + snapshot.state)
    struct.pack_into(">I", data, 8, crc32c(memoryview(data)[_CRC_END:]))
    return bytes(data)


def decode(data: bytes, path: str) -> Snapshot:
    """The snapshot of these bytes; raises CorruptionError."""
    if len(data) < _HEAD.size or data[: len(MAGIC)] != MAGIC:
        raise CorruptionError(path, 0, "not a snapshot")
    _, crc, index, term = _HEAD.unpack_from(data)
    if crc != (computed := crc32c(memoryview(data)[_CRC_END:])):
        raise CorruptionError(path, 8, f"its CRC is {crc:08x}, computed is {computed:08x}")
    try:
        voters, position = decode_voters(data, _HEAD.size)
    except InvalidMessage as error:
        raise CorruptionError(path, error.position, error.reason) from None
    return Snapshot(index, term, voters, data[position:])


class SnapshotFile:
    """The file of the last snapshot; ``index``, ``term``, ``voters`` and ``size_bytes`` are its own, and change together."""

    def __init__(self, io: IO, path: str) -> None:
        """There is one in every voter's directory; raises FileNotFoundError, CorruptionError."""
        self._io, self.path = io, path
        self._open()

    def _open(self) -> None:
        """Check the file and keep it open, so that what is sent of it is one snapshot whatever takes its place."""
        self._file = File(self._io, self.path, os.O_RDONLY)
        snapshot = self.load()
        self.index, self.term, self.voters = snapshot.index, snapshot.term, snapshot.voters

    def load(self) -> Snapshot:
        """The snapshot, checked."""
        data = self._file.content(SIZE_BYTES_MAX)
        self.size_bytes = len(data)
        return decode(data, self.path)

    def store(self, data: bytes) -> None:
        """Replace the file by ``encode``'s bytes, durably; read back and checked.  An error is final: the node stops."""
        replace_file(self._io, self.path, data)
        self._open()

    def read(self, offset: int, size_bytes: int) -> bytes:
        return self._file.read(size_bytes, offset)

    def close(self) -> None:
        self._file.close()
