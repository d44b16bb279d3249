"""Answers with a file, or with the range of it that the client wants (RFC 9110, 14)."""

import asyncio
import logging
import os
import re
import threading
from collections.abc import Callable

from aiohttp import payload, web
from aiohttp.abc import AbstractStreamWriter

from logdb.disk import File
from logdb.errors import LogdbError
from logdb.io import IO
from logdb_http_api.door.request import Request
from logdb_http_api.errors import ApiError

logger = logging.getLogger(__name__)

_SLICE_BYTES = 256 << 10
_RANGE = re.compile(r"bytes=([0-9]{0,20})-([0-9]{0,20})", re.IGNORECASE)


async def file_answer(request: Request, path: str, tag: str, content_type: str, allow: Callable[[int], None]) -> web.Response:
    """A file that never changes, or a range of it.  The file is opened once: its removal meanwhile does not end the answer.

    Args:
        tag: Its ETag, without the quotes.
        allow: Is called with the size of each slice before that is sent; a LogdbError ends the answer.

    Raises:
        FileNotFoundError: There is no file.
        CorruptionError: It is a pipe, a socket or a device.
        ReadFailed: It is a symbolic link or a directory, or cannot be opened.
        ApiError: The range is outside of the file; 416.
    """
    file = await request.call(_Opened, request.session.io, path)
    request.at_end(file.close)
    start, stop, status, headers = 0, file.size_bytes, 200, {"Accept-Ranges": "bytes", "ETag": f'"{tag}"'}
    wanted = request.http.headers.get("Range", "")
    is_same_file = request.http.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
    if is_same_file and wanted[:6].lower() == "bytes=":  # other units are ignored
        start, stop = _range(wanted, file.size_bytes)
        status, headers["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{file.size_bytes}"
    return web.Response(body=_Piece(request, file, start, stop, content_type, allow), status=status, headers=headers)


def _range(wanted: str, size_bytes: int) -> tuple[int, int]:
    """The requested range of the file."""
    start = stop = size_bytes
    if found := _RANGE.fullmatch(wanted):
        first, last = found.groups()
        start = int(first) if first else max(0, size_bytes - int(last or 0))
        stop = min(int(last) + 1, size_bytes) if first and last else size_bytes
    if start < stop:
        return start, stop
    message = f"Range is {wanted[:40]!r}: must be one range within the {size_bytes} bytes of the file, such as bytes=0-99"
    raise ApiError(416, 41600, message, headers={"Content-Range": f"bytes */{size_bytes}"})


class _Opened:
    """An open file.  Each method may wait for the disk.

    Threading: any thread; ``close`` waits for a read whose client is gone.
    """

    def __init__(self, io: IO, path: str) -> None:
        self._lock, self._file = threading.Lock(), File(io, path, os.O_RDONLY)
        self.path, self.size_bytes = path, self._file.size_bytes()

    def read(self, size_bytes: int, position: int) -> bytes:
        with self._lock:
            return self._file.read(size_bytes, position)

    def close(self) -> None:
        with self._lock:
            self._file.close()


class _Piece(payload.Payload):
    """A part of a file, read a slice at a time as the client receives it and as its quotas allow."""

    size = 0  # a property of the base

    def __init__(self, request: Request, file: _Opened, start: int, stop: int, content_type: str, allow: Callable[[int], None]) -> None:
        super().__init__(file, content_type=content_type)
        self._request, self._file, self._start, self._stop, self._allow = request, file, start, stop, allow
        self.size = stop - start

    async def write(self, writer: AbstractStreamWriter) -> None:
        at = self._start
        while at < self._stop:
            wanted = min(_SLICE_BYTES, self._stop - at)
            try:
                self._allow(wanted)
            except LogdbError as error:
                raise ConnectionError(f"the client may not have the rest: {error}") from error
            await self._request.hold_back()
            data = await self._read(wanted, at)
            await writer.write(data)
            at += len(data)

    async def _read(self, size_bytes: int, position: int) -> bytes:
        """The next bytes; raises ConnectionError, which ends the answer, without them."""
        try:
            data = await asyncio.to_thread(self._file.read, size_bytes, position)
        except LogdbError as error:
            logger.error("an answer with %s breaks off: %s", self._file.path, error)
            raise ConnectionError(str(error)) from error
        if not data:
            raise ConnectionError(f"{self._file.path} ends at {position}, before {self._stop}")
        return data

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002 -- aiohttp's
        raise TypeError("a file is no text")
