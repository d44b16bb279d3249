"""Server-sent events: their frames, and an answer that lasts until one side ends it.

    id: 42.3                the position: after a broken connection the client sends it as Last-Event-ID
    event: topic_created    the type; without it, a message
    data: {…}               one line of JSON

A client may read slowly, or not at all.  At most the transport's high water and the frames of one ``send`` are buffered; these frames are
small, as those of topic changes, or their memory is taken as that of requests (``events``).

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
    """The answer to HEAD, without a stream."""
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
        await stream.keep_alive()  # proxies pass the headers on
        return stream

    async def send(self, frames: bytes) -> None:
        """Send frames as fast as the client reads.

        Raises:
            ConnectionError: The client is gone, or does not read.
        """
        for at in range(0, len(frames), _SLICE_BYTES):
            await self._write(frames[at : at + _SLICE_BYTES])
        self._request.give_memory_back()
        await self._request.hold_back()

    async def keep_alive(self) -> None:
        """Send a comment, so that each side notices if the other is gone."""
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
