"""What voters send each other, authenticated before any of it is decoded.  No I/O.

A connection carries the messages of the voter that opened it, one way.  It begins with a handshake, of lengths known beforehand:

    opens       hello   magic 8 · cluster, SHA-256 of its id 32 · nonce 32 · voter that opens · voter that is wanted
    accepts     hello   magic 8 · the same · nonce 32 · voter that accepts · voter that opened   · proof 32
    opens       proof 32
    accepts     a frame: empty, or why the voter is refused
    opens       a frame for each message

    hello       length u16 · …            proof   HMAC(secret, label · both hellos)
    frame       length u32 · MAC 32 · payload          MAC   HMAC(key, sequence u64 · payload),  key  HMAC(secret, label · both hellos)

Integers are big-endian, every HMAC is HMAC-SHA-256.  Both nonces are in each key, so a recorded frame is worthless on another
connection; the sequence, counted on both sides, makes it worthless on its own.  A stranger costs a hello's bytes and nothing else.

The secret authenticates, it does not hide: over a network that others can read, the connection goes through TLS as well (``tcp``).
"""

import hashlib
import hmac
import os
import struct
from collections.abc import Iterator

from logdb.errors import InvalidMessage
from logdb_replication.raft.errors import PeerRefused
from logdb_replication.raft.voters import Voter, decode_voter, encode_voter

MAGIC = b"LDBQRM02"
SECRET_SIZE_BYTES_MIN = 16
HELLO_SIZE_BYTES_MAX = 1024
FRAME_SIZE_BYTES_MAX = 4 << 20
MAC_SIZE_BYTES = NONCE_SIZE_BYTES = 32
LENGTH, HEAD = struct.Struct(">H"), struct.Struct(f">I{MAC_SIZE_BYTES}s")
_SEQUENCE = struct.Struct(">Q")
_FIXED = struct.Struct(f">8s32s{NONCE_SIZE_BYTES}s")


def _mac(key: bytes, *parts: bytes) -> bytes:
    code = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        code.update(part)
    return code.digest()


def hello(cluster: str, sender: Voter, target: Voter) -> bytes:
    """A hello, with its length."""
    fixed = _FIXED.pack(MAGIC, hashlib.sha256(cluster.encode()).digest(), os.urandom(NONCE_SIZE_BYTES))
    data = fixed + encode_voter(sender) + encode_voter(target)
    return LENGTH.pack(len(data)) + data


def read_hello(data: bytes, cluster: str) -> tuple[Voter, Voter]:
    """Sender and target of a hello, not authenticated yet.

    Raises:
        PeerRefused: It is no hello, or one of another cluster.
    """
    try:
        magic, found, _ = _FIXED.unpack_from(data, LENGTH.size)
        sender, position = decode_voter(data, LENGTH.size + _FIXED.size)
        target, position = decode_voter(data, position)
    except (struct.error, InvalidMessage) as error:
        raise PeerRefused(f"not a voter: {error}") from None
    if magic != MAGIC or position != len(data):
        raise PeerRefused("not a voter of this version")
    if found != hashlib.sha256(cluster.encode()).digest():
        raise PeerRefused("a voter of another cluster")
    return sender, target


class Keys:
    """What both sides compute from the secret and their hellos."""

    def __init__(self, secret: bytes, opening: bytes, accepting: bytes) -> None:
        self.opens, self.accepts, self.forth, self.back = (
            _mac(secret, label, opening, accepting) for label in (b"opens", b"accepts", b"forth", b"back")
        )


def check(found: bytes, proof: bytes) -> None:
    """Raises PeerRefused where a proof is another."""
    if not hmac.compare_digest(found, proof):
        raise PeerRefused("it does not have the cluster's secret")


class FrameWriter:
    """Frames of one direction, in order."""

    def __init__(self, key: bytes) -> None:
        self._key, self._sequence = key, 0

    def frame(self, payload: bytes) -> bytes:
        mac = _mac(self._key, _SEQUENCE.pack(self._sequence), payload)
        self._sequence += 1
        return HEAD.pack(len(payload), mac) + payload


class FrameReader:
    """The other end."""

    def __init__(self, key: bytes) -> None:
        self._key, self._sequence, self._data = key, 0, bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The payloads that are whole with these bytes; each is authentic, and next.

        Raises:
            PeerRefused: A frame is too large, or not the one that comes next: nothing of it was given on.
        """
        self._data += data
        while len(self._data) >= HEAD.size:
            size_bytes, mac = HEAD.unpack_from(self._data)
            if size_bytes > FRAME_SIZE_BYTES_MAX:
                raise PeerRefused(f"a frame of {size_bytes} bytes: must be at most {FRAME_SIZE_BYTES_MAX}")
            if len(self._data) < (end := HEAD.size + size_bytes):
                return
            payload = bytes(memoryview(self._data)[HEAD.size : end])
            if not hmac.compare_digest(mac, _mac(self._key, _SEQUENCE.pack(self._sequence), payload)):
                raise PeerRefused(f"frame {self._sequence} is forged, damaged, or came before")
            del self._data[:end]
            self._sequence += 1
            yield payload
