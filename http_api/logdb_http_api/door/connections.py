"""Connections of the door: how many there may be, how long they may be silent, and how they end.

Knows asyncio's protocols and aiohttp's.  Does not know requests.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from enum import Enum
from typing import Any

from aiohttp import EMPTY_PAYLOAD, StreamReader, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from logdb.model import Buffer
from logdb.serving.connection_slots import ConnectionSlot, ConnectionSlots, host_of
from logdb_http_api.door.limits import HttpLimits
from logdb_http_api.door.pipelined import Pipelined
from logdb_http_api.errors import ApiError

logger = logging.getLogger(__name__)

_PROGRESS_BYTES, _SLICE_BYTES = 64 << 10, 256 << 10
_STATUS, _END, _EMPTY_LINES = b"HTTP/1.1 ", b"\r\n\r\n", b"\r\n"
_LINGERING_S = 5.0  # how long what a refused client still sends is read and dropped, so that it gets to read why


class _At(Enum):
    """What the next byte of a client's belongs to, after those that aiohttp was given."""

    REQUEST = 1  # the begin of one
    HEAD = 2
    BODY = 3  # of a length that its head says
    CHUNKS = 4  # up to their end
    UNKNOWN = 5  # from here on


class Connection(RequestHandler):
    """One client's connection."""

    __slots__ = (
        "_all",
        "_at",
        "_body",
        "_last",
        "_left_bytes",
        "_place",
        "_running",
        "_unread_bytes",
        "_wire",
        "asked_s",
        "busy",
        "full_s",
        "said_s",
    )

    def __init__(self, connections: "Connections", server: web.Server, place: ConnectionSlot | None, **options: Any) -> None:
        super().__init__(server, **options)
        self._all, self._place = connections, place
        self._wire: asyncio.Transport | None = None  # also while it is closing
        self._running: asyncio.Task[None] | None = None
        self._unread_bytes = 0  # of the body that is received past aiohttp
        self._at = _At.REQUEST
        self._last = b""  # the last bytes of a head that is not all there, or of chunks
        self._body: StreamReader = EMPTY_PAYLOAD  # of the request that came last
        self._left_bytes = 0  # of that body
        self.busy = False
        self.asked_s = 0.0  # since when a request is waited for whose headers are not all there; 0: none has begun, or another is under way
        self.full_s = 0.0  # since when no more fits into the buffer to the client; 0: some does
        self.said_s = 0.0  # when the last answer was handed to that buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not self._has_place(transport):
            transport.set_protocol(refusing := _Refusing())
            refusing.connection_made(transport)
            return
        self._wire = transport
        super().connection_made(transport)
        self.asked_s = self._all.loop.time()
        self._all.open.add(self)
        self._all.watch()

    def _has_place(self, transport: asyncio.Transport) -> bool:
        slots = self._all.slots
        if self._place is None:
            self._place = slots.take(host_of(transport))
        elif slots.is_overfull:
            self._place.give_back()
            return False
        return self._place is not None

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._place is not None:
            self._place.give_back()
        self._all.lost(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._at is _At.REQUEST and not self.busy:
            if self._is_idle() and self._all.express is not None and self._all.express(self, data):
                return
            self.asked_s = self.asked_s or self._all.loop.time()
            self._all.watch()
        self._give(data)

    def _is_idle(self) -> bool:
        """Whether aiohttp waits for a request."""
        return self._waiter is not None and not self._waiter.done() and not (self._paused or self._close or self._upgraded)

    def _give(self, data: bytes) -> None:
        """Give aiohttp what came, part by part, so that it is known where a request ends: only there one may go past aiohttp."""
        if not data:  # aiohttp's own call: it goes on with what it kept
            super().data_received(data)
        while data:
            if self._at is _At.REQUEST:
                data = data.lstrip(_EMPTY_LINES)  # RFC 9112, 2.2
                self._at = _At.HEAD if data else _At.REQUEST
            elif self._at is _At.HEAD:
                data = self._give_head(data)
            elif self._at is _At.BODY:
                part, data = data[: self._left_bytes], data[self._left_bytes :]
                self._left_bytes -= len(part)
                super().data_received(part)
                self._at = _At.BODY if self._left_bytes else _At.REQUEST
            else:
                data = self._give_chunks(data)

    def _give_head(self, data: bytes) -> bytes:
        """Give what is of a head; returns what is behind it."""
        known_count, begun, seen = self._request_count, len(self._last), self._last + data
        end = seen.find(_END)
        if end < 0:
            super().data_received(data)
            self._last = seen[1 - len(_END) :]
            return b""
        end += len(_END) - begun
        super().data_received(data[:end])
        self._last, self._at = b"", _At.UNKNOWN
        if self._request_count == known_count + 1 and not (self._close or self._force_close or self._upgraded):
            message, self._body = self._messages[-1]
            if self._body.is_eof():
                self._at = _At.REQUEST
            elif isinstance(message, RawRequestMessage) and message.chunked:
                self._at = _At.CHUNKS
            elif isinstance(message, RawRequestMessage) and "Content-Length" in message.headers:
                self._at, self._left_bytes = _At.BODY, int(message.headers["Content-Length"])
        return data[end:]

    def _give_chunks(self, data: bytes) -> bytes:
        """Give all there is; it is known where chunks end if nothing is behind them."""
        known_count, seen = self._request_count, self._last + data
        super().data_received(data)
        self._last = seen[1 - len(_END) :]
        if not self._body.is_eof() and self._request_count > known_count:  # an error, of which aiohttp tells the body's reader nothing
            error, _ = self._messages.pop()
            self._body.set_exception(web.RequestPayloadError(error.message if isinstance(error, _ErrInfo) else "chunks without an end"))
            self._lingering_time = 0.0  # nothing of it is to be read any more
            self.close()
        if self._at is _At.CHUNKS and self._body.is_eof():
            # An end of a head behind the chunks would be that of one more request.
            alone = self._request_count == known_count and seen.endswith(_END)
            self._at, self._last = (_At.REQUEST if alone else _At.UNKNOWN), b""
        return b""

    def pause_writing(self) -> None:
        self.full_s = self._all.loop.time()
        self._all.watch()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.full_s = 0.0
        super().resume_writing()

    def begin(self) -> None:
        """A request has come with all its headers."""
        self.busy, self.asked_s = True, 0.0

    def end(self) -> None:
        """It is answered."""
        self.busy, self.said_s = False, self._all.loop.time()
        self.asked_s = self.said_s if self._at in (_At.HEAD, _At.UNKNOWN) else 0.0
        self._all.watch()

    # ------------------------------------------------------------ requests that aiohttp is told nothing of

    @property
    def host(self) -> str:
        """The client's address."""
        name = self.peername
        return name[0] if isinstance(name, tuple) else ""

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's, as ``SSLSocket.getpeercert`` returns it."""
        return None if self._wire is None else self._wire.get_extra_info("peercert")

    def say(self, answer: bytes) -> None:
        """Answer the request that began; nothing can follow one whose body was not read to its end.

        Args:
            answer: The whole, or the end of one that was sent by other ways.
        """
        self.end()
        self._next_keepalive_close_time = self.said_s + self._keepalive_timeout
        if self.transport is None:
            return
        if not self._unread_bytes and not self._all.draining:
            self.transport.write(answer)
            return
        self.transport.write(answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) if answer.startswith(_STATUS) else answer)
        if self._unread_bytes:
            self.transport.set_protocol(_Dropping(self, self._unread_bytes))
            self.transport.resume_reading()
            self._all.loop.call_later(_LINGERING_S, self.force_close)
        else:
            self.force_close()

    def run(self, answering: Coroutine[Any, Any, bytes], unread_bytes: int) -> None:
        """Begin a request whose answer takes a while; nothing is read meanwhile but by ``receive``, which is to be ``unread_bytes``."""
        assert self.transport is not None
        self.begin()
        self._unread_bytes = unread_bytes
        self.transport.pause_reading()
        self._running = self._all.loop.create_task(self._run(answering))

    async def _run(self, answering: Coroutine[Any, Any, bytes]) -> None:
        try:
            answer = await answering
        except ConnectionError:
            self.abort()
            return
        self.say(answer)
        if self.transport is not None:
            self.transport.resume_reading()

    async def send(self, *parts: Buffer) -> None:
        """Send the begin of the answer, as fast as the client reads.

        Raises:
            ConnectionError: The client is gone.
        """
        for part in parts:
            view = memoryview(part)
            for at in range(0, len(view), _SLICE_BYTES):
                if self.transport is None or self.transport.is_closing():
                    raise ConnectionResetError("the client is gone")
                self.transport.write(view[at : at + _SLICE_BYTES])
                await self._drain_helper()

    async def receive(self, room: memoryview) -> None:
        """Have the next bytes come to where they are wanted.

        Raises:
            ApiError: Fewer than 64 KiB came in ``body_timeout_ms``; 408.
            ConnectionError: The client is gone.
        """
        if room:
            if self.transport is None:
                raise ConnectionResetError("the client is gone")
            await _Receiving(self, self.transport, room, self._all.limits.body_timeout_ms / 1000).over
            self._unread_bytes -= len(room)

    def pipelined(self) -> Pipelined | None:
        """The socket for a thread; None: there is none, or it is of no use past the loop, for TLS or for answers not sent yet."""
        if self.transport is None or self.transport.get_extra_info("sslcontext") is not None or self.transport.get_write_buffer_size():
            return None
        try:
            return Pipelined(self.transport.get_extra_info("socket").dup())
        except OSError:  # no descriptor is left
            return None

    def _process_keepalive(self) -> None:
        if self.busy:  # of which aiohttp may not know
            self._next_keepalive_close_time = self._all.loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    # ------------------------------------------------------------ its end

    def abort(self) -> None:
        """Close, whatever is still to be sent."""
        if self._wire is not None:
            self._wire.abort()

    def is_timed(self) -> bool:
        """Whether something is waited for that the client is to send, or to read."""
        return bool(self.asked_s or self.full_s) or self._has_unread()

    def _has_unread(self) -> bool:
        """Whether the client has not read all of the last answer."""
        return not self.busy and self._wire is not None and self._wire.get_write_buffer_size() > 0

    def is_too_slow(self, now_s: float, limits: HttpLimits) -> bool:
        """Whether the client keeps to none of the times for what it sends, or reads."""
        header_s, write_s = limits.header_timeout_ms / 1000, limits.write_timeout_ms / 1000
        if self.asked_s and now_s - self.asked_s > header_s:
            return True
        if self.full_s:
            return now_s - self.full_s > write_s
        return self._has_unread() and now_s - self.said_s > write_s

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What aiohttp answers to what is no HTTP, and where an answer failed before anything of it was sent.

        Raises:
            ConnectionError: Some of an answer was sent: what followed would be taken for the rest of it.
        """
        logger.debug("%s: %s", request.remote, exc)
        if request.writer.output_size:
            raise ConnectionError("an answer broke off")
        reason = (message or "").partition("\n")[0].rstrip(":")
        said = {"error_code": status, "message": "internal error" if status >= 500 else f"not HTTP as it should be: {reason}"}
        answer = web.Response(status=status, body=json.dumps(said).encode(), content_type="application/json")
        answer.force_close()
        return answer


class _Receiving(asyncio.BufferedProtocol):
    """Takes bytes of a connection from the kernel to where they are wanted.

    Attributes:
        over: Done once all have come.
    """

    def __init__(self, connection: Connection, transport: asyncio.Transport, room: memoryview, allowed_s: float) -> None:
        self._connection, self._transport, self._room, self._allowed_s = connection, transport, room, allowed_s
        self._loop = asyncio.get_running_loop()
        self._at, self._seen = 0, 0
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._timer = self._loop.call_later(allowed_s, self._look)
        transport.set_protocol(self)
        transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._room[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        self._at += nbytes
        if self._at == len(self._room):
            self._end(None)

    def _look(self) -> None:
        """Whether the bytes come fast enough."""
        came_bytes, self._seen = self._at - self._seen, self._at
        if came_bytes < _PROGRESS_BYTES:
            self._end(ApiError(408, 408, f"the body did not come: {came_bytes} bytes in {self._allowed_s:g} s"))
        else:
            self._timer = self._loop.call_later(self._allowed_s, self._look)

    def _end(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._transport.pause_reading()
        self._transport.set_protocol(self._connection)
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionResetError("the client is gone"))
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


class _Dropping(asyncio.Protocol):
    """Reads what a refused client still sends, and drops it: closed at once, the connection would take the answer with it."""

    def __init__(self, connection: Connection, unread_bytes: int) -> None:
        self._connection, self._unread_bytes = connection, unread_bytes

    def data_received(self, data: bytes) -> None:
        self._unread_bytes -= len(data)
        if self._unread_bytes <= 0:
            self._connection.force_close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


class Connections:
    """All connections of a door.  Used on one event loop."""

    def __init__(
        self,
        server: web.Server,
        limits: HttpLimits,
        loop: asyncio.AbstractEventLoop,
        express: Callable[[Connection, bytes], bool] | None = None,
    ) -> None:
        """With none yet.

        Args:
            express: Is shown what a request begins with before aiohttp is; True: it has taken it.
        """
        self.loop, self.open, self.limits, self.express, self._server = loop, set[Connection](), limits, express, server
        self.slots, self.draining = ConnectionSlots(limits.connections_max, limits.connections_per_address_max), False
        self._none_left = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None  # while there is a connection that keeps to a time, or may

    def accept(self, place: ConnectionSlot | None = None) -> "Connection":
        """The protocol for a connection that was accepted; ``place``: the one it has already."""
        return Connection(
            self,
            self._server,
            place,
            loop=self.loop,
            keepalive_timeout=self.limits.keep_alive_ms / 1000,
            auto_decompress=False,
            access_log=None,
            lingering_time=_LINGERING_S,
        )

    def lost(self, connection: Connection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._none_left.set()

    def watch(self) -> None:
        """A connection may keep to a time from now on: look now and then who is too slow."""
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(min(self.limits.header_timeout_ms, self.limits.write_timeout_ms) / 4000, self._sweep)

    def _sweep(self) -> None:
        """Cut off who is too slow; nobody looks again while all connections are idle."""
        self._sweeper, now_s = None, self.loop.time()
        for connection in list(self.open):
            if connection.is_too_slow(now_s, self.limits):
                connection.abort()
            elif connection.is_timed():
                self.watch()

    def close_idle(self) -> None:
        """Close those on which nothing is asked; the others close themselves when they have answered."""
        self.draining = True
        for connection in list(self.open):
            if not connection.busy:
                connection.force_close()

    async def all_closed(self) -> None:
        if self.open:
            self._none_left.clear()
            await self._none_left.wait()

    def abort(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.open):
            connection.abort()


class _Refusing(asyncio.Protocol):
    """Says that there are too many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        body = b'{"error_code":503,"message":"too many connections"}'
        head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
        transport.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        transport.close()


def _plain_answer(status: str, said: dict[str, object]) -> bytes:
    body = json.dumps(said).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


ASK_TLS = _plain_answer("400 Bad Request", {"error_code": 400, "message": "this port speaks TLS: ask https://, not http://"})
"""The answer to a client that asks without TLS at a door with a certificate."""
