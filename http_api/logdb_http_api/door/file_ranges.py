"""Answers with a file, or with the range of it that the client wants (RFC 9110, 14)."""

import asyncio
import os
from collections.abc import Callable

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

from logdb.errors import LogdbError
from logdb_http_api.door.request import Request
from logdb_http_api.errors import ApiError

_SLICE_BYTES = 256 << 10


async def file_answer(request: Request, path: str, tag: str, content_type: str, allow: Callable[[int], None]) -> web.Response:
    """A file that never changes, or a range of it.

    Args:
        tag: Its ETag, without the quotes.
        allow: Is called with the size of each slice before that is sent; a LogdbError ends the answer.

    Raises:
        FileNotFoundError: There is no file.
        ApiError: The range is outside of the file; 416.
    """
    size_bytes, quoted = (await request.call(os.stat, path)).st_size, f'"{tag}"'
    headers = {"Accept-Ranges": "bytes", "ETag": quoted}
    if "Range" not in request.http.headers or request.http.headers.get("If-Range", quoted) != quoted:  # it began with another file
        return web.Response(body=_Piece(path, 0, size_bytes, content_type, allow), headers=headers)
    start, stop = _range(request, size_bytes)
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size_bytes}"
    return web.Response(body=_Piece(path, start, stop, content_type, allow), status=206, headers=headers)


def _range(request: Request, size_bytes: int) -> tuple[int, int]:
    """The requested range of the file."""
    try:
        start, stop, _ = request.http.http_range.indices(size_bytes)
    except ValueError:
        start = stop = size_bytes
    if start >= stop:
        raise ApiError(
            416, 41600, f"Range is {request.http.headers.get('Range', '')[:40]!r}: must lie within the {size_bytes} bytes of the file"
        )
    return start, stop


class _Piece(payload.Payload):
    """A part of a file, read a slice at a time as the client receives it."""

    def __init__(self, path: str, start: int, stop: int, content_type: str, allow: Callable[[int], None]) -> None:
        super().__init__(path, content_type=content_type)
        self._path, self._start, self._stop, self._allow = path, start, stop, allow
        self._size = stop - start

    async def write(self, writer: AbstractStreamWriter) -> None:
        fd = await asyncio.to_thread(os.open, self._path, os.O_RDONLY)
        try:
            at = self._start
            while at < self._stop:
                wanted = min(_SLICE_BYTES, self._stop - at)
                try:
                    self._allow(wanted)
                except LogdbError as error:
                    raise ConnectionError(f"the client may not have the rest: {error}") from error
                data = await asyncio.to_thread(os.pread, fd, wanted, at)
                if not data:
                    raise ConnectionError(f"{self._path} ends at {at}, before {self._stop}")
                await writer.write(data)
                at += len(data)
        finally:
            os.close(fd)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 -- aiohttp's
        raise TypeError("a file is no text")
