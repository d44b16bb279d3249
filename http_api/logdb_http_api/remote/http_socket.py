"""The client's side of HTTP/1.1 on one socket: a request goes out, its answer comes in, within bounds.

The standard library's client takes several times as long, mostly for headers.

Source: RFC 9112.
"""

import re
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

_HEAD_BYTES_MAX, _HEADER_COUNT_MAX = 64 << 10, 100
_PIECE_BYTES, _HEAD_PIECE_BYTES = 1 << 20, 4 << 10
_BELIEVED_BYTES_MAX = 8 << 20  # the most memory that is taken for an announced length before the bytes have come
_SMALL_BYTES = 16 << 10  # a body up to this size is copied behind the headers; a larger one is sent by itself
_END = b"\r\n\r\n"
_STATUS = re.compile(r"HTTP/1\.(?P<minor>[01]) (?P<status>[1-5][0-9][0-9])(?: .*)?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NUMBER, _CHUNK = re.compile(r"[0-9]{1,19}"), re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_UNPRINTABLE = re.compile(r"[^!-~]")
_UNPRINTABLE_VALUE = re.compile(r"[^ -~\x80-\xff]")


class Broken(ConnectionError):
    """The bytes are no answer of HTTP, or end too soon."""


class TooLong(Exception):
    """An answer has more bytes than the bound."""


class Head(NamedTuple):
    """The begin of an answer.

    ``headers``: by names in lower case; several of a name are joined with commas.  ``length``: bytes of the body; None: it ends with
    the connection, or in chunks.
    """

    status: int
    headers: Mapping[str, str]
    length: int | None


class HttpSocket:
    """One socket, for one request at a time.

    Attributes:
        lasts: Whether another request may follow.
    """

    def __init__(self, sock: socket.socket, headers: Mapping[str, str]) -> None:
        """Take over a connected socket.

        Args:
            headers: Sent with every request.

        Raises:
            ValueError: A header has a line break.
        """
        self._sock, self._headers, self._came = sock, _lines(headers), bytearray()
        self.lasts = True

    # ------------------------------------------------------------ out

    def send(self, method: str, target: str, body: Any, headers: Mapping[str, str], timeout_s: float) -> None:
        """Send a request; ``body``: uint8[n], or None.

        Raises:
            ValueError: Target or headers have a line break.
            OSError: The request could not be sent.
        """
        if _UNPRINTABLE.search(target):
            raise ValueError(f"{target!r} cannot be asked for")
        length = "" if body is None and method == "GET" else f"Content-Length: {0 if body is None else len(body)}\r\n"
        head = f"{method} {target} HTTP/1.1\r\n{self._headers}{length}{_lines(headers)}\r\n".encode("latin-1")
        self._sock.settimeout(timeout_s)
        if not body:
            self._sock.sendall(head)
        elif len(body) <= _SMALL_BYTES:
            self._sock.sendall(b"".join((head, body)))
        else:
            self._sock.sendall(head)
            self._sock.sendall(body)

    # ------------------------------------------------------------ in

    def head(self, on_waiting: Callable[[], object]) -> Head:
        """Wait for status and headers of the answer.

        Args:
            on_waiting: Called when the server reports (102) that the answer takes a while.

        Raises:
            Broken, OSError: The answer is invalid, or the connection broke.
        """
        while True:
            first, *lines = self._head_lines()
            found = _STATUS.fullmatch(first)
            if found is None or len(lines) > _HEADER_COUNT_MAX:
                raise Broken(f"{first[:80]!r} with {len(lines)} headers is no answer of HTTP")
            status = int(found["status"])
            if status == HTTPStatus.PROCESSING:
                on_waiting()
            if status >= HTTPStatus.OK:
                headers = _headers(lines)
                length = _length(status, headers)
                ends_with_connection = length is None and "transfer-encoding" not in headers
                self.lasts = found["minor"] == "1" and not ends_with_connection and "close" not in headers.get("connection", "").lower()
                return Head(status, headers, length)

    def _head_lines(self) -> list[str]:
        came = self._came
        while (end := came.find(_END)) < 0:
            if len(came) > _HEAD_BYTES_MAX:
                raise Broken(f"an answer's headers have more than {_HEAD_BYTES_MAX} bytes")
            self._more(_HEAD_PIECE_BYTES)
        lines = came[:end].decode("latin-1").split("\r\n")
        del came[: end + len(_END)]
        return lines

    def _more(self, size_bytes: int) -> None:
        piece = self._sock.recv(size_bytes)
        if not piece:
            raise Broken("the server has closed the connection")
        self._came += piece

    def body(self, head: Head, size_bytes_max: int, into: bytearray | None) -> bytes | memoryview:
        """The whole body of the answer with this head.

        Args:
            into: Receives the body of a success if its length is known and it fits; the result is then a view of it.

        Raises:
            TooLong: The body has more than ``size_bytes_max`` bytes.
            Broken, OSError: The answer is invalid, or the connection broke.
        """
        length = head.length
        if length is None:
            return self._chunks(size_bytes_max) if "transfer-encoding" in head.headers else self._rest(size_bytes_max)
        if length > size_bytes_max:
            raise TooLong(f"an answer of {length} bytes")
        if into is not None and length <= len(into) and head.status < HTTPStatus.BAD_REQUEST:
            return self._filled(memoryview(into)[:length])
        if _HEAD_PIECE_BYTES < length <= _BELIEVED_BYTES_MAX:
            return self._filled(memoryview(bytearray(length)))
        return self._exactly(length)

    def _filled(self, room: memoryview) -> memoryview:
        at = min(len(room), len(self._came))
        room[:at] = self._came[:at]
        del self._came[:at]
        while at < len(room):
            count = self._sock.recv_into(room[at:])
            if not count:
                raise Broken(f"{at} of {len(room)} bytes came")
            at += count
        return room

    def _exactly(self, length: int) -> bytes:
        while len(self._came) < length:
            self._more(min(_PIECE_BYTES, length - len(self._came)))
        body = bytes(memoryview(self._came)[:length])
        del self._came[:length]
        return body

    def _rest(self, size_bytes_max: int) -> bytes:
        """The bytes until the connection ends."""
        while len(self._came) <= size_bytes_max:
            piece = self._sock.recv(_PIECE_BYTES)
            if not piece:
                return bytes(self._came)
            self._came += piece
        raise TooLong("an answer without end")

    def _chunks(self, size_bytes_max: int) -> bytes:
        body = bytearray()
        while True:
            found = _CHUNK.fullmatch(self._line())
            if found is None:
                raise Broken("a chunk without a length")
            length = int(found[1], 16)
            if len(body) + length > size_bytes_max:
                raise TooLong("an answer in chunks")
            if not length:
                break
            body += self._exactly(length)
            if self._line():
                raise Broken("a chunk that is longer than it said")
        for _ in range(_HEADER_COUNT_MAX):
            if not self._line():
                return bytes(body)
        raise Broken("a trailer without end")

    def _line(self) -> bytes:
        while (end := self._came.find(b"\r\n")) < 0:
            if len(self._came) > _HEAD_BYTES_MAX:
                raise Broken("a line without end")
            self._more(_HEAD_PIECE_BYTES)
        line = bytes(memoryview(self._came)[:end])
        del self._came[: end + 2]
        return line

    # ------------------------------------------------------------ its end

    @property
    def has_more(self) -> bool:
        """Whether unread bytes have come."""
        return bool(self._came)

    def fileno(self) -> int:
        return self._sock.fileno()

    def cut(self) -> None:
        """Wake the thread that waits for bytes: none come."""
        self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.lasts = False
        self._sock.close()


def _lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _UNPRINTABLE_VALUE.search(value):
            raise ValueError(f"the header {name!r} has a value that cannot be sent")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise Broken(f"{line[:80]!r} is no header")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _length(status: int, headers: Mapping[str, str]) -> int | None:
    """The length of the body; None: unknown before its end."""
    if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        return 0
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise Broken(f"a body in the coding {coding[:40]!r}, of the length {length!r:.40}")
        return None
    if length is None:
        return None
    if not _NUMBER.fullmatch(length):
        raise Broken(f"a body of the length {length[:40]!r}")
    return int(length)
