"""A connection's socket in the thread that answers a request, for what its client sends next.

Knows a socket, and what lies ready in it.  Does not know what is asked.  Waits for so short a time that a client gains nothing by
being slow: what is not there by then is the event loop's, which reads nothing of the connection while a thread is at it.
"""

import array
import fcntl
import select
import socket
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from logdb.model import Buffer

_SEND_S = 0.05  # how long a thread sends an answer, however steadily the client takes it
_WAIT_MS = 2  # by then a client that has the next request ready has sent it
HEAD_BYTES_MAX = 2048
_END = b"\r\n\r\n"


class Pipelined:
    """Answers and requests of one connection.  Used by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        """With a descriptor of its own, which stays open whatever becomes of the connection meanwhile."""
        self._sock, self._poll, self._ready_bytes = sock, select.poll(), array.array("i", [0])
        self._poll.register(sock, select.POLLIN)

    def answer(self, answer: bytes) -> bytes:
        """Answer the request that is under way; returns what of it could not be sent, for the client does not read.

        Raises:
            OSError: The client is gone.
        """
        try:
            return answer[self._sock.send(answer, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            return answer

    def send(self, parts: Sequence[Buffer]) -> list[memoryview]:
        """Send a longer answer while the client takes it; returns what of it could not be sent.

        Raises:
            OSError: The client is gone.
        """
        left = [memoryview(part) for part in parts]
        until_s = time.monotonic() + _SEND_S
        while left:
            try:
                sent_bytes = self._sock.sendmsg(left, (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                if time.monotonic() > until_s or not self._has_room():
                    break
                continue
            while left and sent_bytes >= len(left[0]):
                sent_bytes -= len(left.pop(0))
            if sent_bytes:
                left[0] = left[0][sent_bytes:]
        return left

    def _has_room(self) -> bool:
        """Whether the client takes more; waits for that."""
        self._poll.modify(self._sock, select.POLLOUT)
        try:
            return bool(self._poll.poll(_WAIT_MS))
        finally:
            self._poll.modify(self._sock, select.POLLIN)

    def head(self) -> bytes:
        """The head of the next request with the empty line at its end, which stays where it is; empty: it did not come, or is long."""
        if not self._poll.poll(_WAIT_MS):
            return b""
        data = self._sock.recv(HEAD_BYTES_MAX, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return data[: data.find(_END) + len(_END)] if _END in data else b""

    def has(self, size_bytes: int) -> bool:
        """Whether so many bytes have come."""
        if self._count() >= size_bytes:
            return True
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)
        try:
            self._poll.poll(_WAIT_MS)
        finally:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return self._count() >= size_bytes

    def _count(self) -> int:
        fcntl.ioctl(self._sock, termios.FIONREAD, self._ready_bytes)
        return self._ready_bytes[0]

    def take(self, head_bytes: int, body: memoryview) -> None:
        """Take the next request, all of which has come.

        Raises:
            OSError: It has not.
        """
        self._fill(memoryview(bytearray(head_bytes)))
        self._fill(body)

    def _fill(self, room: memoryview) -> None:
        while room:
            size_bytes = self._sock.recv_into(room, flags=socket.MSG_DONTWAIT)
            if not size_bytes:
                raise ConnectionResetError("the client is gone")
            room = room[size_bytes:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Close; whatever the socket says of a client that cannot be reached is a ConnectionError."""
        self._sock.close()
        if isinstance(error, OSError):
            raise ConnectionAbortedError(str(error)) from error
