"""Record batches in and out past aiohttp: what one record costs a server is mostly the way through it.

Knows the requests that logdb's own client makes for them, to the letter.  Does not know any other: aiohttp gets those, and these
too where more is to be found out than whether the log takes the batches, such as who asks, or whether there is room.

    POST /logdb/v1/topics/t/partitions/0/batches?expected_offset=7 HTTP/1.1
    Host: localhost:8080
    Content-Type: application/vnd.logdb.batches
    Content-Length: 147

    GET /logdb/v1/topics/t/partitions/0/batches?offset=7&max_bytes=65536 HTTP/1.1
    Host: localhost:8080

What has come together with its head is appended at once, where that waits for nothing.  A longer body goes from the kernel to
where the log reads it.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, NamedTuple

from aiohttp.helpers import rfc822_formatted_time

from logdb.broker.principals import ANONYMOUS
from logdb.errors import LogdbError
from logdb.log.isolation import IsolationLevel
from logdb.model import DURABILITY_LEVELS, OFFSET_MAX, Buffer, TopicPartition
from logdb_http_api import batches
from logdb_http_api.authentication import host_name, is_at_loopback, is_of_internet
from logdb_http_api.connections import Connection
from logdb_http_api.errors import ApiError, describe, headers_of
from logdb_http_api.pipelined import Pipelined
from logdb_http_api.request import Door

logger = logging.getLogger(__name__)

_END = b"\r\n\r\n"
_PATH = r"/logdb/v1/topics/(?P<topic>[A-Za-z0-9._-]{1,249})/partitions/(?P<partition>[0-9]{1,9})/batches"
_APPEND = re.compile(
    rf"POST {_PATH}"
    r"(\?(expected_offset=(?P<expected_offset>[0-9]{1,19})(&(?=d)|(?= )))?(durability=(?P<durability>[a-z]{1,10}))?)? HTTP/1\.1"
)
_FETCH = re.compile(
    rf"GET {_PATH}\?offset=(?P<offset>[0-9]{{1,19}})&max_bytes=(?P<max_bytes>[0-9]{{1,10}})(?P<committed>&isolation_level=read_committed)?"
    r" HTTP/1\.1"
)
_HEADER = re.compile(r"(Host|Content-Type|Content-Length|Accept-Encoding): ([!-~]+)")
_LENGTH = re.compile(r"[0-9]{1,10}")
_HEAD_BYTES_MAX = 2048
_KNOWN_COUNT = 256  # heads of appends that are the same again and again
_STEP_BYTES = 1 << 20
_SPARE_BYTES_MAX = 2 << 20
_AT_SOCKETS_COUNT_MAX = 32  # threads that have a descriptor of their client's
_IN_TURN_COUNT_MAX = 16  # requests of one client that a thread takes before it is anybody's
_ALONE_BYTES = 64 << 10  # an answer from here on is not copied together with its head


class Append(NamedTuple):
    """What a head asks: where batches go, how, how many bytes of them follow, and whether of a server on the Internet."""

    where: TopicPartition
    durability: Any
    expected_offset: int | None
    size_bytes: int
    of_internet: bool


class Fetch(NamedTuple):
    """What a head asks: what is to be read, and whether of a server on the Internet."""

    wanted: batches.Wanted
    isolation_level: IsolationLevel
    of_internet: bool


def append_of(head: bytes) -> Append | None:
    """What a head asks, the empty line at its end included; None: it is none of the appends that are known here."""
    request, headers, host = _parts(_APPEND, head)
    if request is None or headers.get("Content-Type") != batches.BATCHES or not host:
        return None
    length, durability = headers.get("Content-Length", ""), request["durability"]
    expected_offset = None if request["expected_offset"] is None else int(request["expected_offset"])
    if not _LENGTH.fullmatch(length) or durability not in (None, *DURABILITY_LEVELS) or (expected_offset or 0) > OFFSET_MAX:
        return None
    where = TopicPartition(request["topic"], int(request["partition"]))
    return Append(where, durability, expected_offset, int(length), is_of_internet(host))


def fetch_of(head: bytes) -> Fetch | None:
    """As ``append_of``, of fetches."""
    request, headers, host = _parts(_FETCH, head)
    if request is None or not headers.keys() <= {"Host", "Accept-Encoding"} or not host:
        return None
    offset, max_bytes = int(request["offset"]), int(request["max_bytes"])
    if offset > OFFSET_MAX or not 1 <= max_bytes <= batches.FETCH_BYTES_MAX:
        return None
    wanted = batches.Wanted(request["topic"], int(request["partition"]), offset, max_bytes)
    return Fetch(wanted, "read_committed" if request["committed"] else "read_uncommitted", is_of_internet(host))


def _parts(request: re.Pattern[str], head: bytes) -> tuple[re.Match[str] | None, dict[str, str], str]:
    """The request line, the headers and the name of the server; None: a line is none that is known."""
    first, *lines = head[: -len(_END)].decode("latin-1").split("\r\n")
    found = [_HEADER.fullmatch(line) for line in lines]
    headers = {one[1]: one[2] for one in found if one is not None}
    if len(headers) < len(lines):
        return None, {}, ""
    try:
        return request.fullmatch(first), headers, host_name(headers.get("Host"))
    except ApiError:
        return None, {}, ""


class Express:
    """The batches of one door, in and out.  Used on its event loop."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._append_of = lru_cache(_KNOWN_COUNT)(append_of)
        self._spare = bytearray()  # of the body before

    def take(self, connection: Connection, data: bytes) -> bool:
        """Take the request that begins with ``data``; False: it is aiohttp's."""
        if data.startswith(b"POST /logdb/v1/topics/"):
            return self._take_append(connection, data, data.find(_END, 0, _HEAD_BYTES_MAX) + len(_END))
        if data.startswith(b"GET /logdb/v1/topics/") and data.find(_END) + len(_END) == len(data):
            return self._take_fetch(connection, data)
        return False

    def _take_append(self, connection: Connection, data: bytes, begin: int) -> bool:
        asked = self._append_of(data[:begin]) if begin >= len(_END) else None
        if asked is None or begin + asked.size_bytes < len(data) or not self._is_plain(connection, asked.size_bytes, asked.of_internet):
            return False
        body = memoryview(data)[begin:]
        if len(body) < asked.size_bytes or not batches.appends_at_once(self._door, asked.where, asked.durability, len(body)):
            connection.run(self._receive(connection, asked, body), asked.size_bytes - len(body))
            return True
        connection.begin()
        connection.say(self._append_and_answer(connection, asked, body))
        return True

    def _take_fetch(self, connection: Connection, head: bytes) -> bool:
        asked = fetch_of(head)
        if asked is None or not self._is_plain(connection, asked.wanted.max_bytes, asked.of_internet):
            return False
        connection.run(self._fetch(connection, asked), 0)
        return True

    def _is_plain(self, connection: Connection, size_bytes: int, of_internet: bool) -> bool:
        """Whether there is nothing to be found out but what the log says."""
        door = self._door
        return not (
            door.draining
            or door.under_way >= door.limits.requests_max
            or size_bytes > door.limits.body_bytes_max
            or not door.memory.has_room(size_bytes)
            or door.gate.authentication
            or (of_internet and is_at_loopback(connection.sockname))
        )

    async def _fetch(self, connection: Connection, asked: Fetch) -> bytes:
        """Read, and send what is more than a little; returns the end of the answer.

        Raises:
            ConnectionError: Nobody waits for it any more.
        """
        door, wanted, reading, taken_bytes = self._door, asked.wanted, batches.Reading(asked.wanted), 0
        door.under_way += 1
        try:
            try:
                await door.memory.take(wanted.max_bytes)
                taken_bytes = wanted.max_bytes
                read = partial(reading.read, door.gate.session(ANONYMOUS, connection.host), wanted.max_bytes, asked.isolation_level)
                await asyncio.get_running_loop().run_in_executor(door.executor, read)
                if reading.error is not None:
                    raise reading.error
            except Exception as error:  # noqa: BLE001 -- whoever asks is told
                return _refusal(error)
            head = _head(200, batches.BATCHES, reading.size_bytes, reading.headers())
            if reading.size_bytes < _ALONE_BYTES:
                return b"".join((head, *reading.parts))
            await connection.send(head, *reading.parts)
            return b""
        finally:
            door.memory.give_back(taken_bytes)
            door.under_way -= 1

    def _append(self, connection: Connection, asked: Append, body: Buffer) -> range:
        session = self._door.gate.session(ANONYMOUS, connection.host)
        return session.produce(*asked.where, body, durability=asked.durability, expected_offset=asked.expected_offset)

    def _append_in_turn(self, connection: Connection, asked: Append, buffer: bytearray, pipelined: Pipelined | None) -> bytes:
        """Append what was received, and what the client sends next; returns what is left to be said, which may be the end of an answer.

        Raises:
            ConnectionError: The client is gone.
        """
        answer = self._append_and_answer(connection, asked, memoryview(buffer)[: asked.size_bytes])
        if pipelined is None:
            return answer
        with contextlib.closing(pipelined):
            for _ in range(_IN_TURN_COUNT_MAX):
                try:
                    unsent = answer if self._door.draining else pipelined.answer(answer)
                    following = None if unsent else self._take_next(asked, buffer, pipelined)
                except OSError as error:  # a ConnectionError, or that its network is gone
                    raise ConnectionAbortedError(str(error)) from error
                if following is None:
                    return unsent
                answer = self._append_and_answer(connection, following, memoryview(buffer)[: following.size_bytes])
        return answer

    def _take_next(self, asked: Append, buffer: bytearray, pipelined: Pipelined) -> Append | None:
        """The next request, if it goes where the one before it went, fits into its memory, and has come."""
        head = pipelined.head()
        following = self._append_of(head) if head else None
        if following is None or following.where != asked.where or following.size_bytes > len(buffer):
            return None
        if following.of_internet != asked.of_internet or self._door.draining or self._door.gate.authentication:
            return None
        if not pipelined.has(len(head) + following.size_bytes):
            return None
        pipelined.take(len(head), memoryview(buffer)[: following.size_bytes])
        return following

    def _append_and_answer(self, connection: Connection, asked: Append, body: Buffer) -> bytes:
        try:
            return _answer(self._append(connection, asked, body))
        except Exception as error:  # noqa: BLE001 -- whoever asks is told
            return _refusal(error)

    async def _receive(self, connection: Connection, asked: Append, begun: memoryview) -> bytes:
        """Receive the rest of a body and append it; returns the answer.

        Raises:
            ConnectionError: Nobody waits for it any more.
        """
        door, size_bytes, at, taken_bytes = self._door, asked.size_bytes, len(begun), 0
        buffer, self._spare = self._spare, bytearray()
        door.under_way += 1
        try:
            if len(buffer) < size_bytes:
                buffer = bytearray(size_bytes)
            body = memoryview(buffer)[:size_bytes]
            body[:at] = begun
            while taken_bytes < size_bytes:
                step_bytes = min(_STEP_BYTES, size_bytes - taken_bytes)
                await door.memory.take(step_bytes)
                taken_bytes += step_bytes
                await connection.receive(body[at:taken_bytes])
                at = taken_bytes
            pipelined = connection.pipelined() if door.appending.total() < _AT_SOCKETS_COUNT_MAX else None
            appending = partial(self._append_in_turn, connection, asked, buffer, pipelined)
            answer = await batches.append_in_thread(door, asked.where, appending)
            if len(buffer) <= _SPARE_BYTES_MAX:
                self._spare = buffer
            return answer
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 -- as above
            return _refusal(error)
        finally:
            door.memory.give_back(taken_bytes)
            door.under_way -= 1


def _answer(offsets: range) -> bytes:
    body = b'{"base_offset":%d,"next_offset":%d}' % (offsets.start, offsets.stop)
    return _head(200, "application/json", len(body), {}) + body


def _refusal(error: Exception) -> bytes:
    if not isinstance(error, ApiError | LogdbError):
        logger.error("record batches", exc_info=error)
    status, said = describe(error)
    body = json.dumps(said).encode()
    return _head(status, "application/json", len(body), headers_of(error)) + body


def _head(status: int, content_type: str, size_bytes: int, headers: Mapping[str, str]) -> bytes:
    more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {size_bytes}\r\n{more}"
        f"Server: logdb\r\nDate: {rfc822_formatted_time()}\r\n\r\n"
    ).encode("latin-1")
