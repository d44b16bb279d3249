"""How two nodes begin a connection: both prove the cluster's secret before anything else of them is decoded.

    opens       hello   magic 8 · cluster, SHA-256 of its id 32 · nonce 32 · who opens · who is wanted
    accepts     hello   magic 8 · the same · nonce 32 · who accepts · who opened                       · proof 32
    opens       proof 32
    accepts     a frame: empty, or why the other side is refused
    both        frames, as the protocol says

    proof       HMAC-SHA-256(secret, label · both hellos)

A protocol says what "who" is.  Where its size varies, the hello has its length before it, as u16.  Integers are big-endian.
A stranger costs a hello's bytes and nothing else.  Sockets block, each until a deadline on the monotonic clock.
"""

import hashlib
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from logdb.errors import InvalidMessage
from logdb_replication.transport import frames
from logdb_replication.transport.errors import PeerRefused
from logdb_replication.transport.frames import FrameReader, FrameWriter, Keys

HANDSHAKE_TIMEOUT_S = 3.0
SECRET_SIZE_BYTES_MIN = 16
HELLO_SIZE_BYTES_MAX = 1024
_NONCE_SIZE_BYTES = 32
_REASON_SIZE_BYTES_MAX = 1024
_LENGTH = struct.Struct(">H")
_FIXED = struct.Struct(f">8s32s{_NONCE_SIZE_BYTES}s")
W = TypeVar("W")


@dataclass(frozen=True)
class Protocol(Generic[W]):
    """Who speaks.

    ``decode``: gives who, and where it ends; raises InvalidMessage.  ``size_bytes``: of who; None: it varies.
    """

    magic: bytes
    who: str
    encode: Callable[[W], bytes]
    decode: Callable[[bytes, int], tuple[W, int]]
    size_bytes: int | None = None


class Framed:
    """A connection that has shaken hands: whole payloads, on a socket that blocks.  One thread at a time."""

    def __init__(self, sock: socket.socket, writer: FrameWriter, reader: FrameReader) -> None:
        self.sock, self.writer, self.reader = sock, writer, reader
        self._payloads: list[bytes] = []

    def send(self, payload: bytes, timeout_s: float) -> None:
        """Raises TimeoutError, OSError."""
        self.sock.settimeout(timeout_s)
        self.sock.sendall(self.writer.frame(payload))

    def receive(self, timeout_s: float) -> bytes | None:
        """The next payload; None where the other side has closed.  Raises PeerRefused, TimeoutError, OSError."""
        deadline = time.monotonic() + timeout_s
        while not self._payloads:
            self.sock.settimeout(left_s(deadline))
            if not (data := self.sock.recv(256 << 10)):
                return None
            self._payloads += self.reader.feed(data)
        return self._payloads.pop(0)


class Handshake(Generic[W]):
    """Both sides of the handshake of one protocol and cluster."""

    def __init__(self, protocol: Protocol[W], cluster: str, secret: bytes) -> None:
        if len(secret) < SECRET_SIZE_BYTES_MIN:
            raise ValueError(f"a secret of {len(secret)} bytes; at least {SECRET_SIZE_BYTES_MIN} are needed")
        self._protocol, self._secret = protocol, secret
        self._cluster = hashlib.sha256(cluster.encode()).digest()

    def open(self, sock: socket.socket, mine: W, wanted: W, deadline: float) -> tuple[W, Framed]:
        """Shake hands on a connection that this side has opened; who has accepted.

        Raises:
            PeerRefused: The other side is no node of this cluster, or it refuses.
            OSError: It is too slow, or gone.
        """
        send(sock, opening := self.hello(mine, wanted), deadline)
        accepting = self.receive_hello(sock, deadline)
        found, _ = self.read_hello(accepting)
        keys = Keys(self._secret, opening, accepting)
        frames.check(receive(sock, frames.MAC_SIZE_BYTES, deadline), keys.accepts)
        send(sock, keys.opens, deadline)
        size_bytes, _ = frames.HEAD.unpack(head := receive(sock, frames.HEAD.size, deadline))
        if size_bytes > _REASON_SIZE_BYTES_MAX:
            raise PeerRefused(f"its answer has {size_bytes} bytes: must be at most {_REASON_SIZE_BYTES_MAX}")
        framed = Framed(sock, FrameWriter(keys.forth), FrameReader(keys.back))
        (reason,) = framed.reader.feed(head + receive(sock, size_bytes, deadline))
        if reason:
            raise PeerRefused(f"{self._protocol.who} {found} says: {reason.decode(errors='replace')}")
        return found, framed

    def accept(self, sock: socket.socket, mine: W, reason: Callable[[W, W], str], deadline: float) -> tuple[W, Framed]:
        """Shake hands on a connection that was accepted; who has opened it.

        Args:
            reason: Why one that has the secret is refused, from who opened and who was wanted; empty: it is not.

        Raises:
            PeerRefused: It has proven nothing, or was refused.
            OSError: It is too slow, or gone.
        """
        found, wanted = self.read_hello(opening := self.receive_hello(sock, deadline))
        accepting = self.hello(mine, found)
        keys = Keys(self._secret, opening, accepting)
        send(sock, accepting + keys.accepts, deadline)
        frames.check(receive(sock, frames.MAC_SIZE_BYTES, deadline), keys.opens)
        framed, said = Framed(sock, FrameWriter(keys.back), FrameReader(keys.forth)), reason(found, wanted)
        framed.send(said.encode()[:_REASON_SIZE_BYTES_MAX], left_s(deadline))
        if said:
            raise PeerRefused(f"{self._protocol.who} {found}: {said}")
        return found, framed

    def hello(self, sender: W, target: W) -> bytes:
        """A hello, with its length where it varies."""
        of = self._protocol
        data = _FIXED.pack(of.magic, self._cluster, os.urandom(_NONCE_SIZE_BYTES)) + of.encode(sender) + of.encode(target)
        return data if of.size_bytes is not None else _LENGTH.pack(len(data)) + data

    def read_hello(self, data: bytes) -> tuple[W, W]:
        """Sender and target of a hello, not authenticated yet; raises PeerRefused: it is none, or one of another cluster."""
        of = self._protocol
        begin = 0 if of.size_bytes is not None else _LENGTH.size
        try:
            magic, cluster, _ = _FIXED.unpack_from(data, begin)
            sender, position = of.decode(data, begin + _FIXED.size)
            target, position = of.decode(data, position)
        except (struct.error, InvalidMessage) as error:
            raise PeerRefused(f"not a {of.who}: {error}") from None
        if magic != of.magic or position != len(data):
            raise PeerRefused(f"not a {of.who} of this version of logdb")
        if cluster != self._cluster:
            raise PeerRefused(f"a {of.who} of another cluster")
        return sender, target

    def receive_hello(self, sock: socket.socket, deadline: float) -> bytes:
        """The bytes of the other side's hello; raises PeerRefused, OSError."""
        if (size_bytes := self._protocol.size_bytes) is not None:
            return receive(sock, _FIXED.size + 2 * size_bytes, deadline)
        length = receive(sock, _LENGTH.size, deadline)
        if (size_bytes := _LENGTH.unpack(length)[0]) > HELLO_SIZE_BYTES_MAX:
            raise PeerRefused(f"a hello of {size_bytes} bytes: must be at most {HELLO_SIZE_BYTES_MAX}")
        return length + receive(sock, size_bytes, deadline)


def left_s(deadline: float) -> float:
    """How long a socket may still block, in seconds."""
    return max(deadline - time.monotonic(), 0.001)


def send(sock: socket.socket, data: bytes, deadline: float) -> None:
    """Raises TimeoutError, OSError."""
    sock.settimeout(left_s(deadline))
    sock.sendall(data)


def receive(sock: socket.socket, size_bytes: int, deadline: float) -> bytes:
    """So many bytes; raises PeerRefused, TimeoutError, OSError."""
    data = b""
    while len(data) < size_bytes:
        sock.settimeout(left_s(deadline))
        if not (part := sock.recv(size_bytes - len(data))):
            raise PeerRefused("it closed the connection")
        data += part
    return data
