"""Where a request ends in what a client sends: what follows is the begin of the next one, which has ``header_timeout_ms`` to be whole.

aiohttp parses requests, and does not say how far it is.  It says of each whether its body has a length or comes in chunks; from that the
end follows.  Where more than one request has come, the place is lost for good: the connection then always counts as one that has begun
the next request.
"""

from typing import Protocol

HEAD_END = b"\r\n\r\n"
_KEPT_BYTES_MAX = 64 << 10
_SIZE_LINE_BYTES_MAX = 4 << 10
_HEX_DIGITS = b"0123456789abcdefABCDEF"


class Boundaries:
    """The place in the requests of one connection.

    field      meaning                                                      changed by
    _kept      what came since the end of the last request, until aiohttp   came, begin, end
               has parsed the head that it begins with
    _body      the body of the request in progress; None: there is none     begin, end
    _is_lost   the place is not known                                       for good
    """

    def __init__(self) -> None:
        self._kept = b""
        self._body: _Body | None = None
        self._is_lost = False

    @property
    def has_more(self) -> bool:
        """Whether bytes came that may be the next request's."""
        return bool(self._kept) or self._is_lost

    @property
    def has_head(self) -> bool:
        """Whether all headers of the next request have come: the client has sent what it has to send in ``header_timeout_ms``."""
        return HEAD_END in self._kept.lstrip(b"\r\n")

    def came(self, data: bytes) -> None:
        """Bytes of the client.

        Raises:
            ValueError: They are no chunks, where chunks are due.
        """
        if self._is_lost:
            return
        behind = data if self._body is None else self._body.take(data)
        self._kept += behind
        if len(self._kept) > _KEPT_BYTES_MAX:
            self._lose()

    def begin(self, body_bytes: int | None) -> None:
        """A head was parsed; ``body_bytes``: of its body, None: it comes in chunks.  Raises as ``came``."""
        kept, self._kept = self._kept.lstrip(b"\r\n"), b""
        end = kept.find(HEAD_END)
        if end < 0:
            self._lose()
            return
        self._body = _Chunks() if body_bytes is None else _Sized(body_bytes)
        self.came(kept[end + len(HEAD_END) :])

    def end(self) -> None:
        """The request is answered."""
        if self._body is not None and not self._body.is_over:
            self._lose()
        self._body = None

    def _lose(self) -> None:
        self._is_lost, self._kept = True, b""


class _Body(Protocol):
    """A body; ``is_over``: all of it has come."""

    @property
    def is_over(self) -> bool: ...

    def take(self, data: bytes) -> bytes:
        """What is behind the body in the next bytes."""


class _Sized:
    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes

    @property
    def is_over(self) -> bool:
        return not self._left_bytes

    def take(self, data: bytes) -> bytes:
        taken_bytes = min(self._left_bytes, len(data))
        self._left_bytes -= taken_bytes
        return data[taken_bytes:]


class _Chunks:
    """RFC 9112, section 7.1: size, bytes, size, bytes, …, 0, trailers, an empty line."""

    def __init__(self) -> None:
        self._line, self._left_bytes, self._is_last, self.is_over = b"", 0, False, False

    def take(self, data: bytes) -> bytes:
        while data and not self.is_over:
            if self._left_bytes:
                taken_bytes = min(self._left_bytes, len(data))
                self._left_bytes -= taken_bytes
                data = data[taken_bytes:]
                continue
            line, newline, data = data.partition(b"\n")
            self._line += line + newline
            if len(self._line) > _SIZE_LINE_BYTES_MAX:
                raise ValueError("the size of a chunk without end")
            if newline:
                self._end_line(self._line.rstrip(b"\r\n"))
                self._line = b""
        return data

    def _end_line(self, line: bytes) -> None:
        if self._is_last:
            self.is_over = not line  # others are trailers
            return
        digits = line.partition(b";")[0].strip()
        if not digits or digits.strip(_HEX_DIGITS):
            raise ValueError(f"{line[:20]!r} is no size of a chunk")
        size_bytes = int(digits, 16)
        self._is_last = not size_bytes
        self._left_bytes = size_bytes + len(b"\r\n") if size_bytes else 0
