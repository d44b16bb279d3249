"""One request, as handlers see it: the principal's session, checked parameters, the body within bounds."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from logdb.errors import Closed, ThreadUnavailable
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.mistakes import must_be, one_of
from logdb.model import DURABILITY_LEVELS, Buffer, Durability
from logdb.requests import coding
from logdb.requests.principals import Principal
from logdb.requests.request import Request as SessionRequest
from logdb.serving.listener import host_and_port
from logdb.serving.resources import RequestResources
from logdb_http_api.door import documents, encoding
from logdb_http_api.door.connections import HttpConnection
from logdb_http_api.errors import ApiError

if TYPE_CHECKING:
    from logdb.access.session import AuthorizedSession
    from logdb.requests.resources import Right
    from logdb_http_api.door.door import HttpDoor

R = TypeVar("R")

PARSED_BESIDE_OTHERS_BYTES_MAX = 64 << 10
"""Few larger bodies of JSON are parsed at a time: each occupies the interpreter for milliseconds."""
_PARSED_ON_LOOP_BYTES_MAX = 4 << 10
_PROGRESS_BYTES = 64 << 10
_NAMES_IN_PATHS = {"Topic": ("topic", "topic_name"), "Group": ("group", "consumer_group_id")}
to_text = json.JSONEncoder(separators=(",", ":")).encode
"""A value as JSON."""


class Request(RequestResources):
    """The argument of a handler."""

    door: "HttpDoor"
    principal: Principal

    def __init__(self, http: web.BaseRequest, door: "HttpDoor") -> None:
        """Before authentication and routing; the door then calls ``begin``."""
        super().__init__(door, http.remote or "")
        self.http, self.began_s = http, time.perf_counter()
        self.error_type = "application/json"  # content type of an error
        self._parameters: Mapping[str, str] = {}
        self._needs: Sequence[str] = ()
        self._closing: tuple[Callable[[], None], ...] = ()

    def begin(self, session: "AuthorizedSession", parameters: Mapping[str, str], needs: Sequence[str] = ()) -> None:
        """Begin, after authentication and routing.

        Args:
            session: The principal's.
            parameters: Of the path.
            needs: The rights that the route needs, such as ``Write Topic``: at least one must be allowed before a body is read.
        """
        self.session, self.principal, self._parameters, self._needs = session, session.principal, parameters, needs
        self.owner = session.owner

    def at_end(self, close: Callable[[], None]) -> None:
        """Call ``close`` in a thread when the request ends: the close of a large file that was removed waits for the disk."""
        self._closing = (*self._closing, close)

    def end(self) -> None:
        super().end()
        for close in self._closing:
            with contextlib.suppress(Closed, ThreadUnavailable):  # its last reference closes the file
                self.door.executor.submit(close)

    @property
    def connection(self) -> HttpConnection:
        protocol = self.http.protocol
        assert isinstance(protocol, HttpConnection)
        return protocol

    @property
    def is_head(self) -> bool:
        """Whether only headers are requested: a GET route then does only what the headers need."""
        return self.http.method == "HEAD"

    def patience_ms(self, wanted_ms: int) -> int:
        """How long to wait for the first records: as the client asks, within the door's limit; HEAD does not wait."""
        return 0 if self.is_head else min(wanted_ms, self.door.limits.wait_ms_max)

    async def say_waiting(self) -> None:
        """Tell the client that its answer waits for other members (RFC 2518, 102): it can do other work meanwhile."""
        writer = self.http.writer
        with contextlib.suppress(ConnectionError):  # the client is gone: the wait will be cancelled
            await writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        writer.output_size = 0  # otherwise aiohttp counts it as a part of the answer

    def address(self) -> str:
        """The server's address of this connection, HOST:PORT; empty if the client is gone."""
        transport = self.http.transport
        return "" if transport is None else host_and_port(*transport.get_extra_info("sockname")[:2])

    # ------------------------------------------------------------ parameters

    def path(self, name: str) -> str:
        """A part of the path, decoded."""
        return self._parameters[name]

    def partition(self, name: str = "partition") -> int:
        """A partition's number in the path."""
        return _number(name, self._parameters[name], 0, 2**31 - 1)

    def path_number(self, name: str, least: int = 0) -> int:
        """A number in the path."""
        return _number(name, self.path(name), least, 2**63 - 1)

    def query(self, name: str, default: str | None = None) -> str | None:
        return self.http.query.get(name, default)

    def number(self, name: str, default: int, least: int = 0, most: int = 2**63 - 1) -> int:
        """A number in the query.

        Raises:
            ApiError: Not a number, or out of range; 422.
        """
        given = self.http.query.get(name)
        return default if given is None else _number(name, given, least, most)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> Any:
        """A word in the query; None if it is absent.

        Raises:
            ApiError: The word is not allowed; 422.
        """
        given = self.http.query.get(name)
        if given is not None and given not in allowed:
            raise ApiError(422, 422, must_be(name, given[:40], one_of(allowed)))
        return given

    def flag(self, name: str, *, default: bool) -> bool:
        """``true`` or ``false`` in the query.

        Raises:
            ApiError: Neither of them; 422.
        """
        given = self.one_of(name, ("true", "false"))
        return default if given is None else given == "true"

    def isolation_level(self) -> IsolationLevel:
        level: IsolationLevel = self.one_of("isolation_level", ISOLATION_LEVELS) or "read_uncommitted"
        return level

    def durability(self) -> Durability | None:
        level: Durability | None = self.one_of("durability", DURABILITY_LEVELS)
        return level

    # ------------------------------------------------------------ the body

    def require(self, *content_types: str) -> None:
        """Raise unless the body is of one of these types; 415."""
        given = self.http.content_type.lower()
        if given not in content_types:
            raise ApiError(415, 415, f"Content-Type is {given[:80]!r}: must be {one_of(content_types)}")

    async def body(self, size_bytes_max: int | None = None) -> bytes | bytearray:
        """The whole body, decompressed if it is compressed.

        Args:
            size_bytes_max: None: the door's limit.

        Raises:
            NotAuthorized: The principal has none of the rights that the route needs; the body was not read.
            ApiError: The body is larger (413; before it is read, if its length is given), comes too slowly (408), has an
                unknown coding (415), or breaks off (400).
        """
        most = size_bytes_max or self.door.limits.body_bytes_max
        self._authorize()
        self._check_length(most)
        content = self.http.content
        if content.is_eof() and "Content-Encoding" not in self.http.headers:
            whole = content.read_nowait()  # it came with the headers: no copy
            await self._count(len(whole), len(whole), most)
            return whole
        data = bytearray()
        async for piece in self.pieces(most):
            data += piece
        return data

    async def pieces(self, size_bytes_max: int | None = None, *, idle_ms: int | None = None) -> AsyncIterator[bytes]:
        """The body piece by piece, decompressed if it is compressed.

        Args:
            size_bytes_max: Of all pieces; memory is taken for them.  None: endless; the caller drops each piece.
            idle_ms: How long to wait for a piece; None: each 64 KiB must come within ``body_timeout_ms``.

        Raises:
            ApiError: as ``body``.
        """
        self._authorize()
        if size_bytes_max is not None:
            self._check_length(size_bytes_max)
        decoder = encoding.decoder(self.http.headers.get("Content-Encoding", ""))
        total_bytes = 0
        async for raw in self._raw_pieces(idle_ms):
            decoded: Iterable[bytes] = (raw,) if decoder is None else decoder.feed(raw)
            for piece in decoded:
                total_bytes += len(piece)
                if size_bytes_max is not None:
                    await self._count(total_bytes, len(piece), size_bytes_max)
                yield piece
                if decoder is not None:
                    await asyncio.sleep(0)  # a small piece may have become a large one: let other requests run
        if decoder is not None:
            decoder.finish()

    def _authorize(self) -> None:
        """Raise NotAuthorized if a body is not small, and the principal has none of the rights that the route needs.

        The rights are those to the resource in the path, or to any resource.  The session authorizes the request itself.
        """
        length = self.http.content_length
        if length is not None and length <= _PARSED_ON_LOOP_BYTES_MAX and "Content-Encoding" not in self.http.headers:
            return
        needs = []
        for need in self._needs:
            operation, resource_type = need.split()
            named = (self._parameters[name] for name in _NAMES_IN_PATHS.get(resource_type, ()) if name in self._parameters)
            needs.append((operation, resource_type, next(named, None)))
        self.session.need_any(cast("list[Right]", needs))

    def _check_length(self, size_bytes_max: int) -> None:
        length = self.http.content_length
        if length is not None and length > size_bytes_max:
            raise ApiError(413, 413, f"the body has {length} bytes: must be at most {size_bytes_max}")

    async def _count(self, total_bytes: int, size_bytes: int, size_bytes_max: int) -> None:
        if total_bytes > size_bytes_max:
            raise ApiError(413, 413, f"the body is too large: must be at most {size_bytes_max} bytes")
        await self.take_memory(size_bytes)

    async def _raw_pieces(self, idle_ms: int | None) -> AsyncIterator[bytes]:
        """The body as received, not decompressed."""
        await self._continue()
        loop, content = asyncio.get_running_loop(), self.http.content
        allowed_s = (idle_ms or self.door.limits.body_timeout_ms) / 1000
        came_bytes, until = 0, loop.time() + allowed_s
        while True:
            try:
                with self.waiting():
                    async with asyncio.timeout_at(until):
                        piece = await content.readany()
            except TimeoutError:
                raise ApiError(408, 408, f"the body did not come: {came_bytes} bytes in {allowed_s:g} s") from None
            except (HttpProcessingError, web.RequestPayloadError) as error:
                raise ApiError(400, 400, f"the body breaks off, or is not framed as HTTP wants it: {error}") from None
            if not piece:
                return
            came_bytes += len(piece)
            if idle_ms is not None or came_bytes >= _PROGRESS_BYTES:
                came_bytes, until = 0, loop.time() + allowed_s
            yield piece

    async def _continue(self) -> None:
        """Tell a client that expects 100-continue (RFC 9110, 10.1.1) to send the body."""
        if self.http.headers.get("Expect", "").lower() == "100-continue" and not self.http.content.is_eof():
            await self.http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.http.writer.output_size = 0

    async def json(self, make: Callable[[Any], R]) -> R:
        """Pass the JSON value of the body, without records, to ``make``, perhaps in a thread; raises as ``document``."""
        return await self.document(lambda data: make(documents.parse(data)))

    async def document(self, parse: Callable[[Buffer], R]) -> R:
        """Parse the body, which is JSON without records.

        Args:
            parse: Takes the bytes, perhaps in a thread.

        Raises:
            ApiError: The body is not JSON (400), or of another content type (415); and as ``body`` and ``parse``.
        """
        if "Content-Type" in self.http.headers:
            self.require("application/json")
        return await self.parsed(await self.body(self.door.limits.call_bytes_max), parse)

    async def parsed(self, data: Buffer, parse: Callable[[Buffer], R]) -> R:
        """Parse JSON: the smallest bodies on the loop, the others in threads, and large ones few at a time."""
        if len(data) <= _PARSED_ON_LOOP_BYTES_MAX:
            return parse(data)
        if len(data) <= PARSED_BESIDE_OTHERS_BYTES_MAX:
            return await self.call(parse, data)
        return await self._in_thread(partial(parse, data), self.door.decoding, self.door.threads)

    async def decoded(self, kind: type[R]) -> R:
        """The body as a value of that type, decoded from JSON by ``requests.coding``.

        Raises:
            ApiError: No such value; 422; and as ``document``.
        """
        what = kind.method if issubclass(kind, SessionRequest) else "the body"
        return await self.document(lambda data: documents.decode(kind, data, what))


def _number(name: str, given: str, least: int, most: int) -> int:
    if given.isascii() and given.removeprefix("-").isdigit() and len(given) <= 20 and least <= int(given) <= most:
        return int(given)
    raise ApiError(422, 422, must_be(name, given[:40], f"a whole number in [{least}, {most}]"))


def no_content() -> web.Response:
    """Status 204."""
    return web.Response(status=204)


def answer(
    value: Any, *, status: int = 200, content_type: str = "application/json", headers: Mapping[str, str] | None = None
) -> web.Response:
    """A response of JSON."""
    return web.Response(body=to_text(value).encode(), status=status, content_type=content_type, headers=headers)


def encoded(value: Any, *, status: int = 200) -> web.Response:
    """A response of JSON, encoded by ``requests.coding``."""
    return web.Response(body=coding.encode(value), status=status, content_type="application/json")
