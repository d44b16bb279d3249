"""Server-sent events: the frames, and an answer that goes on until one side ends it.

Knows the format, and that a client may read slowly or not at all.  Does not know what is told (``events``).

    id: 42                  where to go on from, should the connection break: the client sends it as Last-Event-ID
    event: topic_created    what it is; without it, a message
    data: {…}               one line of JSON

What is not read is not made: nothing is buffered beyond the transport's high water and the frames of one ``send``, which are as
small as those of a topic's changes, or count as the memory of requests does (``events``).

Source: WHATWG HTML, 9.2 Server-sent events.
"""

import asyncio
from typing import Self

from aiohttp import web

from logdb_http_api.door.request import Request

CONTENT_TYPE = "text/event-stream"
KEEP_ALIVE_MS = 15_000
_HEADERS = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_SLICE_BYTES = 64 << 10


def headers_alone() -> web.StreamResponse:
    """What HEAD is answered: no stream begins."""
    return web.StreamResponse(headers=_HEADERS)


def frame(data: str, *, identity: object = None, event: str | None = None) -> bytes:
    """One event; ``data``: JSON in one line."""
    head = ("" if identity is None else f"id: {identity}\n") + ("" if event is None else f"event: {event}\n")
    return f"{head}data: {data}\n\n".encode()


class EventStream:
    """The answer to one request."""

    def __init__(self, request: Request) -> None:
        self._request, self.response = request, web.StreamResponse(headers=_HEADERS)

    @classmethod
    async def open(cls, request: Request) -> Self:
        """Send the headers.  Not for HEAD: see ``headers_alone``."""
        stream = cls(request)
        stream.response.force_close()
        await stream.response.prepare(request.http)
        await stream.keep_alive()  # what is between here and there sends the headers on
        return stream

    async def send(self, frames: bytes) -> None:
        """Send frames as fast as the client reads.

        Raises:
            ConnectionError: It is gone, or does not read.
        """
        for at in range(0, len(frames), _SLICE_BYTES):
            await self._write(frames[at : at + _SLICE_BYTES])
        self._request.give_memory_back()
        await self._request.hold_back()

    async def keep_alive(self) -> None:
        """Send a comment, so that both sides learn whether the other is there."""
        await self._write(b":\n\n")

    async def _write(self, data: bytes) -> None:
        try:
            with self._request.waiting():
                async with asyncio.timeout(self._request.door.limits.write_timeout_ms / 1000):
                    await self.response.write(data)
        except TimeoutError:
            if self._request.http.transport is not None:
                self._request.http.transport.abort()
            raise ConnectionResetError("the client does not read its events") from None
