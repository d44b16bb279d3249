"""What a connection to a server carries: HTTP's requests, or Kafka's frames after an upgrade (docs/reference/http.md).

Threading: one thread at a time for one wire.
"""

import itertools
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol, TypeVar

import h11

from logdb.errors import InvalidAnswer, InvalidMessage
from logdb.model import Buffer
from logdb_http_api.protocol import KAFKA_PATH, KAFKA_PROTOCOL
from logdb_http_api.remote.answers import HttpAnswer

R_co = TypeVar("R_co", covariant=True)

ANSWER_SIZE_BYTES_MAX = 64 << 20
_HEAD_BYTES_MAX, _HEADER_COUNT_MAX = 64 << 10, 100
_PIECE_BYTES = 1 << 20
_BELIEVED_BYTES_MAX = 8 << 20  # the most memory that is taken for an announced length before the bytes have come
_SMALL_BYTES = 16 << 10  # up to this size what is sent is copied together
_BYTES_PER_S = 64 << 10  # a server that sends more slowly is not waited for
_HEADER = struct.Struct(">iib")  # size, correlation id, count of tagged fields
_ANNOUNCED = struct.Struct(">bbq")
_BEGIN_BYTES = 512  # of an answer: most are shorter
_NEXT_OFFSET = (100, 8)  # the tag and the size of the field that announces it


class Broken(ConnectionError):
    """The bytes are no answer, or end too soon."""


class Request(Protocol[R_co]):
    """What an exchange asks.

    ``key``: what the answering node has to lead; the node of an earlier request with the same key is asked first.  None: any node.
    """

    @property
    def key(self) -> Hashable | None: ...

    def http(self) -> "HttpRequest":
        """As a request of HTTP."""

    def of_http(self, answer: HttpAnswer) -> R_co:
        """The result of the answer to that; raises InvalidAnswer."""


class HttpRequest(NamedTuple):
    """A request of HTTP; ``size_bytes_max``: of the answer's body."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}
    size_bytes_max: int = ANSWER_SIZE_BYTES_MAX
    key: Hashable | None = None

    def http(self) -> "HttpRequest":
        return self

    def of_http(self, answer: HttpAnswer) -> HttpAnswer:
        return answer


class FrameRequest(Request[R_co], Protocol[R_co]):
    """A request that is a frame of Kafka's where the server lets it."""

    @property
    def into(self) -> bytearray | None:
        """Receives the answer if it fits; None: memory of its own."""

    def frame(self, correlation_id: int) -> Sequence[Buffer]: ...

    def decoded(self, data: Buffer) -> Any:
        """The answer, decoded; raises InvalidMessage."""

    def of_frame(self, decoded: Any, url: str) -> R_co:
        """The result of the answer; raises the server's refusal, and InvalidAnswer."""


class _Wire:
    """A connected socket with a timeout.

    Attributes:
        until: When an answer has to have come, by ``time.monotonic``; each ``_BYTES_PER_S`` of it give it another second.
    """

    def __init__(self, sock: socket.socket, url: str) -> None:
        self.sock, self._url = sock, url
        self.until = time.monotonic() + (sock.gettimeout() or 0.0)

    def set_timeout(self) -> None:
        """Have the socket raise TimeoutError where the next bytes are not sent, or do not come, in time, to a tenth."""
        left_s = max(1e-3, self.until - time.monotonic())
        if not 0.9 * left_s <= (self.sock.gettimeout() or 0.0) <= 1.1 * left_s:  # to set it is a system call
            self.sock.settimeout(left_s)

    def _received(self, size_bytes_max: int) -> bytes:
        """The next bytes, none at the end."""
        self.set_timeout()
        piece = self.sock.recv(size_bytes_max)
        self.until += len(piece) / _BYTES_PER_S
        return piece


class HttpWire(_Wire):
    """HTTP/1.1: one request at a time.

    Attributes:
        lasts: Whether another request may follow.
    """

    pipelines = False

    def __init__(self, sock: socket.socket, url: str, headers: Mapping[str, str]) -> None:
        """On a connected socket; ``headers`` are sent with every request."""
        super().__init__(sock, url)
        self._headers = list(headers.items())
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._response: h11.Response | None = None
        self.lasts = True

    @property
    def has_more(self) -> bool:
        """Whether unread bytes have come."""
        return bool(self._http.trailing_data[0])

    # ------------------------------------------------------------ out

    def send(self, request: HttpRequest, prefix: str) -> None:
        """Send a request; ``prefix``: of its path.

        Raises:
            ValueError: HTTP cannot carry the path or a header.
            OSError: The request could not be sent.
        """
        body = request.body
        headers = [*self._headers, *request.headers.items()]
        if body is not None or request.method != "GET":
            headers.append(("Content-Length", str(0 if body is None else len(body))))
        try:
            parts = [self._http.send(h11.Request(method=request.method, target=prefix + request.path, headers=headers)) or b""]
        except (h11.LocalProtocolError, UnicodeEncodeError):
            raise ValueError(f"{request.method} {request.path!r}: its path, or a header, cannot be sent") from None
        if body:
            parts += self._http.send_with_data_passthrough(h11.Data(data=body)) or ()
        self._http.send(h11.EndOfMessage())
        _send(self.sock, parts)

    # ------------------------------------------------------------ in

    def begin(self, on_waiting: Callable[[], object]) -> None:
        """Wait for the head of the answer; ``on_waiting`` is called when the server reports (102) that the answer takes a while."""
        while True:
            event = self._event()
            if isinstance(event, h11.InformationalResponse) and event.status_code == HTTPStatus.PROCESSING:
                on_waiting()
            if isinstance(event, h11.Response):
                size_bytes = sum(len(name) + len(value) for name, value in event.headers)
                if len(event.headers) > _HEADER_COUNT_MAX or size_bytes > _HEAD_BYTES_MAX:
                    raise Broken(f"an answer with {len(event.headers)} headers of {size_bytes} bytes")
                self._response = event
                return

    def _event(self) -> Any:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data = self._received(_PIECE_BYTES)
                if not data and self._http.their_state is h11.SEND_RESPONSE:
                    raise Broken("the server has closed the connection")
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise Broken(f"no answer of HTTP: {error}") from None
        if isinstance(event, h11.ConnectionClosed):
            raise Broken("the server has closed the connection")
        return event

    def receive(self, request: HttpRequest) -> HttpAnswer:
        """The whole answer.

        Raises:
            InvalidAnswer: The body is too long.
        """
        response, self._response = self._response, None
        assert response is not None
        headers: dict[str, str] = {}
        for raw_name, raw_value in response.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._check_size(int(headers.get("content-length", 0)), request)
        body = bytearray()
        while isinstance(event := self._event(), h11.Data):
            body += event.data
            self._check_size(len(body), request)
        self.lasts = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if self.lasts:
            self._http.start_next_cycle()
        return HttpAnswer(self._url, response.status_code, headers, memoryview(body))

    def _check_size(self, size_bytes: int, request: HttpRequest) -> None:
        if size_bytes > request.size_bytes_max:
            self.lasts = False
            raise InvalidAnswer(self._url, f"an answer of {size_bytes} bytes, at most {request.size_bytes_max} bytes are taken")

    def upgrade(self, prefix: str) -> "FrameWire | None":
        """Ask the server to go on in Kafka's protocol; None: it does not."""
        request = HttpRequest("GET", KAFKA_PATH, headers={"Connection": "Upgrade", "Upgrade": KAFKA_PROTOCOL})
        self.send(request, prefix)
        while not isinstance(event := self._event(), h11.Response):
            if event.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
                if (b"upgrade", KAFKA_PROTOCOL.encode()) not in event.headers:
                    raise Broken(f"the server changed to another protocol than {KAFKA_PROTOCOL}")
                return FrameWire(self.sock, self._url)
        self._response = event
        self.receive(request)
        return None


class FrameWire(_Wire):
    """Kafka's protocol: the answers to requests come in the order of the requests.

    Attributes:
        lasts: Always: a server that cannot go on closes the connection.
    """

    pipelines, lasts = True, True

    def __init__(self, sock: socket.socket, url: str) -> None:
        super().__init__(sock, url)
        self._ids, self._awaited = itertools.cycle(range(1 << 31)), deque[int]()
        self._size = 0  # of the answer that has begun, behind its header
        self._begun = b""  # what has come and was not read

    @property
    def has_more(self) -> bool:
        """Whether unread bytes have come."""
        return bool(self._begun)

    def send(self, request: FrameRequest[Any]) -> None:
        """Send a request; raises OSError if it could not be sent."""
        correlation_id = next(self._ids)
        _send(self.sock, request.frame(correlation_id))
        self._awaited.append(correlation_id)

    def begin(self) -> int | None:
        """Wait for the header of the next answer; returns the offset that it announces, if it does."""
        size, correlation_id, count = _HEADER.unpack(self._taken(_HEADER.size))
        self._size = size + 4 - _HEADER.size - count * _ANNOUNCED.size
        if self._size <= 0 or count not in (0, 1) or correlation_id != self._awaited.popleft():
            raise Broken(f"an answer of {size} bytes with the id {correlation_id}")
        if not count:
            return None
        *field, offset = _ANNOUNCED.unpack(self._taken(_ANNOUNCED.size))
        if tuple(field) != _NEXT_OFFSET:
            raise Broken("an answer with another tagged field")
        return int(offset)

    def receive(self, request: FrameRequest[Any]) -> Any:
        """The whole answer, decoded; its records are a view of ``request.into``, if it fits there.

        Raises:
            InvalidAnswer: The answer is none to this request.
        """
        size, into = self._size, request.into
        data: Buffer
        if size <= len(self._begun):
            data, self._begun = self._begun[:size], self._begun[size:]
        elif into is not None and size <= len(into):
            data = self._filled(memoryview(into)[:size])
        elif size <= _BELIEVED_BYTES_MAX:
            data = self._filled(memoryview(bytearray(size)))
        else:
            data = self._grown(size)
        try:
            return request.decoded(data)
        except InvalidMessage as error:
            raise InvalidAnswer(self._url, str(error)) from None

    def _taken(self, size_bytes: int) -> bytes:
        """The next bytes, few; others that have come with them stay for later."""
        while len(self._begun) < size_bytes:
            piece = self._received(_BEGIN_BYTES)
            if not piece:
                raise Broken("the server has closed the connection")
            self._begun += piece
        taken, self._begun = self._begun[:size_bytes], self._begun[size_bytes:]
        return taken

    def _filled(self, room: memoryview) -> memoryview:
        begun, self._begun = self._begun, b""
        room[: len(begun)] = begun
        view = room[len(begun) :]
        while view:
            self.set_timeout()
            count = self.sock.recv_into(view)
            self.until += count / _BYTES_PER_S
            if not count:
                raise Broken("the server has closed the connection")
            view = view[count:]
        return room

    def _grown(self, size_bytes: int) -> memoryview:
        room, self._begun = bytearray(self._begun), b""
        while len(room) < size_bytes:
            piece = self._received(min(_PIECE_BYTES, size_bytes - len(room)))
            if not piece:
                raise Broken("the server has closed the connection")
            room += piece
        return memoryview(room)


def _send(sock: socket.socket, parts: Sequence[Buffer]) -> None:
    """Send buffers, few in number."""
    if sum(map(len, parts)) <= _SMALL_BYTES:
        sock.sendall(b"".join(parts))
    elif isinstance(sock, ssl.SSLSocket):
        for part in parts:
            sock.sendall(part)
    else:
        left = [memoryview(part) for part in parts]
        while left:
            sent_bytes = sock.sendmsg(left)
            while left and sent_bytes >= len(left[0]):
                sent_bytes -= len(left.pop(0))
            if left:
                left[0] = left[0][sent_bytes:]
