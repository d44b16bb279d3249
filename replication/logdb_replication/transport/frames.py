"""Frames between nodes: each is authenticated before any of it is decoded.  No I/O.

    frame       length u32 · MAC 32 · payload          MAC   HMAC(key, sequence u64 · payload),  key  HMAC(secret, label · both hellos)

Integers are big-endian, every HMAC is HMAC-SHA-256.  The nonces of both hellos (``handshake``) are in each key, so a recorded frame is
worthless on another connection.  Both sides count the sequence, so a frame that comes again is refused.

The secret authenticates, it does not hide: over a network that others can read, the connection goes through TLS as well.
"""

import hashlib
import hmac
import struct
from collections.abc import Iterator

from logdb_replication.transport.errors import PeerRefused

FRAME_SIZE_BYTES_MAX = 4 << 20
MAC_SIZE_BYTES = 32
HEAD = struct.Struct(f">I{MAC_SIZE_BYTES}s")
_SEQUENCE = struct.Struct(">Q")


def _mac(key: bytes, *parts: bytes) -> bytes:
    code = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        code.update(part)
    return code.digest()


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
