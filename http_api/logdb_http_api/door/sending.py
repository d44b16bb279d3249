"""Sends answers: compressed if the client accepts that, and only as fast as it reads.  ``connections`` ends slow clients.

At most the transport's high water (64 KiB) and one slice are buffered.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

from logdb.model import Buffer
from logdb_http_api.door import encoding

_SLICE_BYTES = 256 << 10
_ALONE_BYTES = 64 << 10  # a body of at least this size is not copied behind the headers
_COMPRESS_BYTES_MIN = 1 << 10
_OFF_LOOP_BYTES = 64 << 10


class Parts(payload.Payload):
    """A body of several buffers, sent as they lie: each slice goes to the kernel without a copy, unless the kernel's buffer is full."""

    size, autoclose = 0, True  # properties of the base

    def __init__(self, parts: Iterable[Buffer], content_type: str) -> None:
        self._parts = [memoryview(part) for part in parts]
        super().__init__(self._parts, content_type=content_type)
        self.size = sum(map(len, self._parts))

    async def write(self, writer: AbstractStreamWriter) -> None:
        if self.size >= _ALONE_BYTES:
            writer.send_headers()
        for part in self._parts:
            for at in range(0, len(part), _SLICE_BYTES):
                await writer.write(part[at : at + _SLICE_BYTES])

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._parts).decode(encoding, errors)


class Sent(web.StreamResponse):
    """A response that was sent already: tells aiohttp whether the connection stays open."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__()
        self._stays_open = response.keep_alive

    @property
    def keep_alive(self) -> bool | None:
        return self._stays_open

    async def prepare(self, _request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, _data: bytes = b"") -> None:
        return None


async def send(http: web.BaseRequest, response: web.StreamResponse) -> Sent:
    """Send a handler's response, unless the handler has sent it; raises ConnectionError if the client is gone."""
    if not response.prepared:
        response.headers["Server"] = "logdb"
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            await _compress(http, response, response.body)
        await response.prepare(http)
    await response.write_eof()
    return Sent(response)


async def _compress(http: web.BaseRequest, response: Any, body: bytes) -> None:
    """Send JSON in a coding that the client accepts."""
    if len(body) < _COMPRESS_BYTES_MIN or "json" not in response.content_type or "Content-Encoding" in response.headers:
        return
    response.headers["Vary"] = "Accept-Encoding"
    coding = encoding.negotiate(http.headers.get("Accept-Encoding", ""))
    if coding is None:
        return
    if len(body) < _OFF_LOOP_BYTES:
        response.body = encoding.encode(coding, body)
    else:
        response.body = await asyncio.to_thread(encoding.encode, coding, body)
    response.headers["Content-Encoding"] = coding
