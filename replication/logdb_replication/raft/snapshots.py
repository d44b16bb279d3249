"""Snapshots: the state machine up to an index, in one file, which is also what a voter that is too far behind is sent.

    file      magic 8 bytes · crc u32 · index u64 · term u64 · voters · state        big-endian

``crc`` is the CRC-32C of all that follows it.  ``snapshot_file`` has the file.
"""

import struct
from dataclasses import dataclass

from logdb.codec import crc32c
from logdb.errors import CorruptionError, InvalidMessage
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
