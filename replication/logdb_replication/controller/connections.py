"""Connections of brokers to controllers: a handshake that proves the cluster's secret, then requests and replies in turn.

    broker        hello        magic 8 · cluster, SHA-256 of its id 32 · nonce 32 · its node u32 · the node that it wants u32
    controller    hello        the same, the other way round                 · proof 32
    broker        proof 32
    controller    a frame: empty, or why the broker is refused
    then          broker: a request, one frame
                  controller: its reply, frames whose first byte is 1 where another one follows, and 0 in the last

Proofs, frames and keys are those of ``raft.frames``: nothing is decoded before it is authenticated.  Sockets block, each for a time.

Threading: one thread at a time; ``close``: any.
"""

import contextlib
import hashlib
import os
import socket
import ssl
import struct
import time

from logdb_replication.controller.messages import Reply, Request, decode_reply, decode_request, encode
from logdb_replication.raft import frames
from logdb_replication.raft.errors import PeerRefused
from logdb_replication.raft.frames import FrameReader, FrameWriter, Keys

_HELLO = struct.Struct(f">8s32s{frames.NONCE_SIZE_BYTES}sII")
_MAGIC = b"LDBCTL01"
_PIECE_SIZE_BYTES = 1 << 20
_REASON_SIZE_BYTES_MAX = 1024
REPLY_SIZE_BYTES_MAX = 256 << 20
HANDSHAKE_TIMEOUT_S = 3.0
_MORE, _LAST = b"\1", b"\0"


def _hello(cluster: str, sender: int, target: int) -> bytes:
    return _HELLO.pack(_MAGIC, hashlib.sha256(cluster.encode()).digest(), os.urandom(frames.NONCE_SIZE_BYTES), sender, target)


def _read_hello(data: bytes, cluster: str) -> tuple[int, int]:
    """Sender and target, not authenticated yet; raises PeerRefused."""
    magic, found, _, sender, target = _HELLO.unpack(data)
    if magic != _MAGIC:
        raise PeerRefused("not a node of this version of logdb")
    if found != hashlib.sha256(cluster.encode()).digest():
        raise PeerRefused("a node of another cluster")
    return sender, target


def prepare(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _receive(sock: socket.socket, size_bytes: int, deadline: float) -> bytes:
    """So many bytes; raises PeerRefused, TimeoutError."""
    data = b""
    while len(data) < size_bytes:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        if not (part := sock.recv(size_bytes - len(data))):
            raise PeerRefused("it closed the connection")
        data += part
    return data


def close(sock: socket.socket) -> None:
    """Close it; a thread that reads it wakes."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


class _Framed:
    """Whole payloads on a socket that has shaken hands."""

    def __init__(self, sock: socket.socket, writer: FrameWriter, reader: FrameReader) -> None:
        self.sock, self._writer, self._reader = sock, writer, reader
        self._payloads: list[bytes] = []

    def send(self, payload: bytes, timeout_s: float) -> None:
        self.sock.settimeout(timeout_s)
        self.sock.sendall(self._writer.frame(payload))

    def receive(self, timeout_s: float) -> bytes | None:
        """The next payload; None where the other side has closed.  Raises PeerRefused, TimeoutError, OSError."""
        deadline = time.monotonic() + timeout_s
        while not self._payloads:
            self.sock.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (data := self.sock.recv(256 << 10)):
                return None
            self._payloads += self._reader.feed(data)
        return self._payloads.pop(0)


# ---------------------------------------------------------------- a broker's side


class Connection:
    """A broker's connection to the controller of a node."""

    def __init__(
        self, address: tuple[str, int], cluster: str, secret: bytes, sender: int, target: int, timeout_s: float, tls: ssl.SSLContext | None
    ) -> None:
        """Connect, and shake hands.

        Raises:
            PeerRefused: There is no controller of that node and cluster, or it refuses.
            OSError: It cannot be reached in time.
        """
        deadline = time.monotonic() + timeout_s
        self._sock = socket.create_connection(address, timeout_s)
        try:
            prepare(self._sock)
            if tls is not None:
                self._sock = tls.wrap_socket(self._sock, server_hostname=address[0])
            opening = _hello(cluster, sender, target)
            self._sock.sendall(opening)
            accepting = _receive(self._sock, _HELLO.size, deadline)
            keys = Keys(secret, opening, accepting)
            found, _ = _read_hello(accepting, cluster)
            frames.check(_receive(self._sock, frames.MAC_SIZE_BYTES, deadline), keys.accepts)
            self._sock.sendall(keys.opens)
            self._framed = _Framed(self._sock, FrameWriter(keys.forth), FrameReader(keys.back))
            reason = self._framed.receive(max(deadline - time.monotonic(), 0.001))
            if reason is None or reason:
                raise PeerRefused("it closed the connection" if reason is None else reason.decode(errors="replace"))
            if found != target:
                raise PeerRefused(f"the controller of node {found} answered")
        except BaseException:
            self.close()
            raise

    def ask(self, request: Request, timeout_s: float) -> Reply:
        """The reply to a request.

        Raises:
            LogdbError: The request has failed, and the connection is good.
            PeerRefused, InvalidMessage, OSError: The connection has failed: what became of the request is unknown.
        """
        deadline = time.monotonic() + timeout_s
        self._framed.send(encode(request), timeout_s)
        data = bytearray()
        while True:
            piece = self._framed.receive(max(deadline - time.monotonic(), 0.001))
            if not piece or len(data) + len(piece) > REPLY_SIZE_BYTES_MAX:
                raise PeerRefused("it closed the connection" if piece is None else "its reply is empty, or too large")
            data += piece[1:]
            if piece[:1] == _LAST:
                return decode_reply(bytes(data))

    def close(self) -> None:
        close(self._sock)


# ---------------------------------------------------------------- a controller's side


class Accepted:
    """A connection that a controller has accepted, and a node has proven the secret on; ``node``: its number."""

    def __init__(self, sock: socket.socket, cluster: str, secret: bytes, number: int, reason: str) -> None:
        """Shake hands; ``reason``: why the node is refused, if it has the secret.

        Raises:
            PeerRefused: It has proven nothing, or was refused.
            OSError: It is too slow, or gone.
        """
        deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S
        opening = _receive(sock, _HELLO.size, deadline)
        self.node, target = _read_hello(opening, cluster)
        accepting = _hello(cluster, number, self.node)
        keys = Keys(secret, opening, accepting)
        sock.sendall(accepting + keys.accepts)
        frames.check(_receive(sock, frames.MAC_SIZE_BYTES, deadline), keys.opens)
        if target != number:
            reason = f"this is the controller of node {number}, not of node {target}"
        self._framed = _Framed(sock, FrameWriter(keys.back), FrameReader(keys.forth))
        self._framed.send(reason[:_REASON_SIZE_BYTES_MAX].encode(), HANDSHAKE_TIMEOUT_S)
        if reason:
            raise PeerRefused(f"node {self.node}: {reason}")

    def request(self, timeout_s: float) -> Request | None:
        """The next request; None where the broker has closed.  Raises PeerRefused, InvalidMessage, OSError: the connection ends."""
        data = self._framed.receive(timeout_s)
        return None if data is None else decode_request(data)

    def reply(self, reply: Reply, timeout_s: float) -> None:
        """Send a reply; raises OSError."""
        data = encode(reply)
        for position in range(0, len(data), _PIECE_SIZE_BYTES):
            piece = data[position : position + _PIECE_SIZE_BYTES]
            self._framed.send((_MORE if position + len(piece) < len(data) else _LAST) + piece, timeout_s)
