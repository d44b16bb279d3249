"""Connections of brokers to controllers: requests and replies in turn, after the handshake of ``transport.handshake``.

    who           a node's number u32
    broker        a request, one frame
    controller    its reply, frames whose first byte is 1 where another one follows, and 0 in the last

Sockets block, each for a time.

Threading: one thread at a time; ``close``: any.
"""

import socket
import ssl
import struct
import time

from logdb_replication.controller.messages import Reply, Request, decode_reply, decode_request, encode
from logdb_replication.transport.errors import PeerRefused
from logdb_replication.transport.handshake import HANDSHAKE_TIMEOUT_S, Handshake, Protocol, left_s
from logdb_replication.transport.sockets import close, connected

_NODE = struct.Struct(">I")
_PIECE_SIZE_BYTES = 1 << 20
REPLY_SIZE_BYTES_MAX = 256 << 20
_MORE, _LAST = b"\1", b"\0"


def _decode_node(data: bytes, position: int) -> tuple[int, int]:
    return _NODE.unpack_from(data, position)[0], position + _NODE.size


PROTOCOL = Protocol(b"LDBCTL01", "node", _NODE.pack, _decode_node, _NODE.size)


# ---------------------------------------------------------------- a broker's side


class ControllerConnection:
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
        self._sock = connected(address, timeout_s, tls)
        try:
            found, self._framed = Handshake(PROTOCOL, cluster, secret).open(self._sock, sender, target, deadline)
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
            piece = self._framed.receive(left_s(deadline))
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

        def reason_against(_: int, wanted: int) -> str:
            return reason if wanted == number else f"this is the controller of node {number}, not of node {wanted}"

        deadline = time.monotonic() + HANDSHAKE_TIMEOUT_S
        self.node, self._framed = Handshake(PROTOCOL, cluster, secret).accept(sock, number, reason_against, deadline)

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
