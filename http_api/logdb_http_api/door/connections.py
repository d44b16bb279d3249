"""Connections of the door: how many there may be, how long they may be silent, and how they end."""

import asyncio
import json
import logging
from typing import Any

from aiohttp import web

from logdb.serving.connection_slots import ConnectionSlot, ConnectionSlots, host_of
from logdb.serving.loop_time import LoopTime
from logdb_http_api.door.boundaries import HEAD_END, Boundaries
from logdb_http_api.door.limits import HttpLimits

logger = logging.getLogger(__name__)

_LINGERING_S = 5.0  # how long what a refused client still sends is read and dropped, so that it gets to read why


class HttpConnection(web.RequestHandler):
    """One client's connection.

    field         meaning                                                          changed by
    busy          a request is in progress                                         begin, end
    asked_s       since when a request is awaited whose headers have not all       data_received, end
                  come; 0: none has begun, or it waits for its turn, or another
                  is in progress
    full_s        since when no more fits into the buffer to the client; 0: some   pause_writing, resume_writing
                  does
    said_s        when the last answer was handed to that buffer                   end
    has_more      bytes came that may be the next request's                        data_received, begin, end
    _http         the request in progress                                          begin, end
    _wire         the transport, also while it is closing                          connection_made

    Times are those of ``Connections.now_s``.
    """

    __slots__ = ("_all", "_boundaries", "_http", "_place", "_wire", "asked_s", "busy", "full_s", "said_s")

    def __init__(self, connections: "Connections", server: web.Server, place: ConnectionSlot | None, **options: Any) -> None:
        super().__init__(server, **options)
        self._all, self._place, self._boundaries = connections, place, Boundaries()
        self._wire: asyncio.Transport | None = None
        self._http: web.BaseRequest | None = None
        self.busy = False
        self.asked_s = self.full_s = self.said_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not self._has_place(transport):
            transport.set_protocol(refusing := _Refusing())
            refusing.connection_made(transport)
            return
        self._wire = transport
        super().connection_made(transport)
        self.asked_s = self._all.now_s()
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
        if not data:  # aiohttp's own call: it goes on with what it kept
            super().data_received(data)
            return
        self._follow(data)
        if not self.busy:
            self._await_head()
        end = data.find(HEAD_END) + len(HEAD_END)
        if self.busy or end < len(HEAD_END):
            super().data_received(data)
            return
        super().data_received(data[:end])  # or what is wrong behind a head would hide the request from aiohttp
        if end < len(data):
            super().data_received(data[end:])

    def _await_head(self) -> None:
        """Time the client until all headers have come, not until the server gets to handle them."""
        self.asked_s = 0.0 if self._boundaries.has_head else self.asked_s or self._all.now_s()
        if self.asked_s:
            self._all.watch()

    def _follow(self, data: bytes) -> None:
        try:
            self._boundaries.came(data)
        except ValueError:
            self._break_body()

    def _break_body(self) -> None:
        """What came is no chunks, of which aiohttp tells the body's reader nothing."""
        if self._http is not None and self._http.content.exception() is None:
            self._http.content.set_exception(web.RequestPayloadError("chunks without an end"))
            self.close()

    def pause_writing(self) -> None:
        self.full_s = self._all.now_s()
        self._all.watch()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.full_s = 0.0
        super().resume_writing()

    @property
    def has_more(self) -> bool:
        return self._boundaries.has_more

    def begin(self, http: web.BaseRequest) -> None:
        """A request has come with all its headers."""
        self.busy, self.asked_s, self._http = True, 0.0, http
        length = http.content_length
        try:
            self._boundaries.begin(None if length is None and http.body_exists else length or 0)
        except ValueError:
            self._break_body()

    def end(self) -> None:
        """It is answered."""
        if self._http is not None and self._http.content.exception() is not None:
            self._http.content.feed_eof()  # nothing of it is to be read any more
        self.busy, self._http, self.said_s = False, None, self._all.now_s()
        self._boundaries.end()
        self.asked_s = self.said_s if self.has_more and not self._boundaries.has_head else 0.0
        self._all.watch()

    def give_to(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol have the transport; the request in progress lasts until it calls ``connection_lost``."""
        assert self._wire is not None
        self._wire.set_protocol(protocol)
        protocol.connection_made(self._wire)
        if self.full_s:  # the transport tells it once
            self.full_s = 0.0
            protocol.pause_writing()

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


class Connections:
    """All connections of a door.  Used on one event loop."""

    def __init__(self, server: web.Server, limits: HttpLimits, loop: asyncio.AbstractEventLoop) -> None:
        """With none yet."""
        self.loop, self.open, self.limits, self._server = loop, set[HttpConnection](), limits, server
        self.slots = ConnectionSlots(limits.connections_max, limits.connections_per_address_max)
        self._none_left = asyncio.Event()
        self._sweeper: asyncio.TimerHandle | None = None  # while there is a connection that keeps to a time, or may
        self._time = LoopTime(loop)

    def accept(self, place: ConnectionSlot | None = None) -> "HttpConnection":
        """The protocol for a connection that was accepted; ``place``: the one it has already."""
        return HttpConnection(
            self,
            self._server,
            place,
            loop=self.loop,
            keepalive_timeout=self.limits.keep_alive_ms / 1000,
            auto_decompress=False,
            access_log=None,
            lingering_time=_LINGERING_S,
        )

    def lost(self, connection: HttpConnection) -> None:
        self.open.discard(connection)
        if not self.open:
            self._none_left.set()

    def now_s(self) -> float:
        """See ``LoopTime``."""
        return self._time.now_s()

    def watch(self) -> None:
        """A connection may keep to a time from now on: look now and then who is too slow."""
        if self._sweeper is None:
            timeout_ms = min(self.limits.header_timeout_ms, self.limits.write_timeout_ms)
            self._sweeper = self.loop.call_later(timeout_ms / LoopTime.LOOKS / 1000, self._sweep)

    def _sweep(self) -> None:
        """Close connections that are too slow; look again later unless all are idle."""
        if self._sweeper is not None:
            self._time.came(self._sweeper)
        self._sweeper, now_s = None, self.now_s()
        for connection in list(self.open):
            if connection.is_too_slow(now_s, self.limits):
                connection.abort()
            elif connection.is_timed():
                self.watch()

    def close_idle(self) -> None:
        """Close those on which nothing is asked; the others close themselves when they have answered."""
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
