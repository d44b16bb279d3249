"""Content codings gzip and zstd: of request bodies, within bounds, and of answers.

A body is hostile.  gzip decompresses a piece of it into at most ``_PIECE`` bytes at a time.  zstd announces no sizes: a piece may become
as much as 64 blocks of 128 KiB, because a block takes at least 4 bytes.
"""

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from logdb_http_api.errors import ApiError

_PIECE = 1 << 18
_ZSTD_STEP = 256
_ZSTD_WINDOW_MAX = 8 << 20  # every decoder should support it (RFC 8878); the memory is taken before the first byte is decoded
_MEMBERS_MAX = 1024
_ZSTD_LEVEL, _GZIP_LEVEL = 3, 5
_GZIP_WINDOW = 31  # tells zlib to use gzip's header and trailer


class Decoder(Protocol):
    """Decodes one coding, piece by piece."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode the next bytes; raises ApiError (400) if they are not of that coding."""

    def finish(self) -> None:
        """Raise ApiError (400) unless the stream ends here."""


def decoder(coding: str) -> Decoder | None:
    """The decoder of a ``Content-Encoding``; None: the body is not encoded.

    Raises:
        ApiError: An unknown coding; 415.
    """
    match coding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Gunzip()
        case "zstd":
            return _Unzstd()
    raise ApiError(415, 415, f"Content-Encoding {coding[:40]!r} is not known; gzip and zstd are", headers={"Accept-Encoding": "gzip, zstd"})


class _Gunzip:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        self._member_count, self._fed = 1, False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream.eof:
                self._next_member()
            self._fed = True
            try:
                piece = self._stream.decompress(data, _PIECE)
            except zlib.error as error:
                raise ApiError(400, 400, f"the body is not gzip: {error}") from None
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if piece:
                yield piece

    def _next_member(self) -> None:
        self._member_count += 1
        if self._member_count > _MEMBERS_MAX:
            raise ApiError(400, 400, f"the body has more than {_MEMBERS_MAX} members of gzip")
        self._stream = zlib.decompressobj(_GZIP_WINDOW)

    def finish(self) -> None:
        if self._fed and not self._stream.eof:
            raise ApiError(400, 400, "the body's gzip does not end")


class _Unzstd:
    def __init__(self) -> None:
        import zstandard  # few requests need it

        self._error = zstandard.ZstdError
        self._new = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).decompressobj
        self._stream: Any = self._new()
        self._frame_count, self._fed = 1, False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _ZSTD_STEP):
            rest = data[at : at + _ZSTD_STEP]
            while rest:
                if self._stream.eof:
                    self._next_frame()
                self._fed = True
                try:
                    piece = self._stream.decompress(rest)
                except self._error as error:
                    raise ApiError(400, 400, f"the body is not zstd: {error}") from None
                rest = self._stream.unused_data if self._stream.eof else b""
                if piece:
                    yield piece

    def _next_frame(self) -> None:
        self._frame_count += 1
        if self._frame_count > _MEMBERS_MAX:
            raise ApiError(400, 400, f"the body has more than {_MEMBERS_MAX} frames of zstd")
        self._stream = self._new()

    def finish(self) -> None:
        if self._fed and not self._stream.eof:
            raise ApiError(400, 400, "the body's zstd does not end")


def negotiate(accepted: str) -> str | None:
    """The coding for an answer, by an ``Accept-Encoding``; None: no coding."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameter = part.partition(";")
        _, _, weight = parameter.partition("=")
        try:
            weights[name.strip()] = float(weight) if weight else 1.0
        except ValueError:
            continue
    offered = {coding: weights.get(coding, 0.0) for coding in ("zstd", "gzip")}
    best = max(offered, key=lambda coding: offered[coding])
    return best if offered[best] > 0 else None


def encode(coding: str, data: bytes) -> bytes:
    """``data`` in a coding that ``negotiate`` chose."""
    if coding == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(data)
    compressor = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()
