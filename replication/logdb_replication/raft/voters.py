"""Who votes: numbers, incarnations and addresses, and their bytes in journal, snapshot and handshake.

A voter that lost its disk comes back under the same number and a new incarnation, so that what the old one has promised is
not expected of the new one.

    voter     number u32 · incarnation u64 · port u16 · length of host u8 · host        big-endian
    voters    count u8 · voter …
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from logdb.errors import InvalidMessage

_VOTER = struct.Struct(">IQHB")
VOTERS_MAX = 9
HOST_SIZE_BYTES_MAX = 253


class Voter(NamedTuple):
    """One voter.

    Attributes:
        number: Its node in the cluster's configuration, from 1.
        incarnation: Drawn when its directory was made.
    """

    number: int
    incarnation: int
    host: str
    port: int

    @property
    def id(self) -> tuple[int, int]:
        return self.number, self.incarnation

    def __str__(self) -> str:
        return f"{self.number} ({self.host}:{self.port}, incarnation {self.incarnation:016x})"


class Peer:
    """A voter as one end of a connection: equal by ``id``, whose hash is the same in every process."""

    def __init__(self, voter: Voter) -> None:
        self.id, self.voter = voter.id, voter

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Peer) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return str(self.voter)


def encode_voter(voter: Voter) -> bytes:
    host = voter.host.encode()
    if not 0 < len(host) <= HOST_SIZE_BYTES_MAX:
        raise ValueError(f"the host {voter.host!r} has {len(host)} bytes: must be 1 to {HOST_SIZE_BYTES_MAX}")
    return _VOTER.pack(voter.number, voter.incarnation, voter.port, len(host)) + host


def decode_voter(data: bytes, position: int = 0) -> tuple[Voter, int]:
    """A voter, and where it ends; raises InvalidMessage."""
    try:
        number, incarnation, port, host_size = _VOTER.unpack_from(data, position)
    except struct.error as error:
        raise InvalidMessage(position, str(error)) from None
    end = position + _VOTER.size + host_size
    host = data[position + _VOTER.size : end]
    if len(host) != host_size or not 0 < host_size <= HOST_SIZE_BYTES_MAX or not host.isascii():
        raise InvalidMessage(position, "a voter's host is cut off or no host name")
    return Voter(number, incarnation, host.decode(), port), end


def encode_voters(voters: Iterable[Voter]) -> bytes:
    known = sorted(voters)
    if len(known) > VOTERS_MAX:
        raise ValueError(f"{len(known)} voters: must be at most {VOTERS_MAX}")
    return bytes((len(known),)) + b"".join(map(encode_voter, known))


def decode_voters(data: bytes, position: int = 0) -> tuple[tuple[Voter, ...], int]:
    """Voters, and where they end; raises InvalidMessage."""
    count = data[position] if position < len(data) else VOTERS_MAX + 1
    if count > VOTERS_MAX:
        raise InvalidMessage(position, f"a list of at most {VOTERS_MAX} voters was expected")
    voters, position = [], position + 1
    for _ in range(count):
        voter, position = decode_voter(data, position)
        voters.append(voter)
    return tuple(voters), position
