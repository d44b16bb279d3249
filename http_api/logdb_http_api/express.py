"""Appends of record batches past aiohttp: what one record costs a server is mostly the way through it.

Knows the requests that logdb's own client makes for them, to the letter.  Does not know any other: aiohttp gets those, and these
too where more is to be found out than whether the log takes the batches, such as who asks, or whether there is room.

    POST /logdb/v1/topics/t/partitions/0/batches?expected_offset=7 HTTP/1.1
    Host: localhost:8080
    Content-Type: application/vnd.logdb.batches
    Content-Length: 147

What has come together with its head is appended at once, where that waits for nothing.  A longer body goes from the kernel to
where the log reads it.
"""

import json
import logging
import re
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, NamedTuple

from aiohttp.helpers import rfc822_formatted_time

from logdb.broker.principals import ANONYMOUS
from logdb.errors import LogdbError
from logdb.model import DURABILITY_LEVELS, OFFSET_MAX, Buffer, TopicPartition
from logdb_http_api import batches
from logdb_http_api.authentication import host_name, is_at_loopback, is_of_internet
from logdb_http_api.connections import Connection
from logdb_http_api.errors import ApiError, describe, headers_of
from logdb_http_api.request import Door

logger = logging.getLogger(__name__)

_BEGIN, _END = b"POST /logdb/v1/topics/", b"\r\n\r\n"
_REQUEST = re.compile(
    r"POST /logdb/v1/topics/(?P<topic>[A-Za-z0-9._-]{1,249})/partitions/(?P<partition>[0-9]{1,9})/batches"
    r"(\?(expected_offset=(?P<expected_offset>[0-9]{1,19})(&(?=d)|(?= )))?(durability=(?P<durability>[a-z]{1,10}))?)? HTTP/1\.1"
)
_HEADER = re.compile(r"(Host|Content-Type|Content-Length|Accept-Encoding): ([!-~]+)")
_LENGTH = re.compile(r"[0-9]{1,10}")
_KNOWN_COUNT = 256  # heads that are the same again and again
_STEP_BYTES = 1 << 20
_SPARE_BYTES_MAX = 2 << 20


class Asked(NamedTuple):
    """What a head says: where batches go, how, how many bytes of them follow, and whether to a server on the Internet."""

    where: TopicPartition
    durability: Any
    expected_offset: int | None
    size_bytes: int
    of_internet: bool


def asked_of(head: bytes) -> Asked | None:
    """What a head asks, the empty line at its end included; None: it is none of those that are known here."""
    first, *lines = head[: -len(_END)].decode("latin-1").split("\r\n")
    request, found = _REQUEST.fullmatch(first), [_HEADER.fullmatch(line) for line in lines]
    headers = {one[1]: one[2] for one in found if one is not None}
    if request is None or len(headers) < len(lines) or headers.get("Content-Type") != batches.BATCHES:
        return None
    length, durability = headers.get("Content-Length", ""), request["durability"]
    expected_offset = None if request["expected_offset"] is None else int(request["expected_offset"])
    if not _LENGTH.fullmatch(length) or durability not in (None, *DURABILITY_LEVELS) or (expected_offset or 0) > OFFSET_MAX:
        return None
    try:
        host = host_name(headers.get("Host"))
    except ApiError:
        return None
    where = TopicPartition(request["topic"], int(request["partition"]))
    return Asked(where, durability, expected_offset, int(length), is_of_internet(host)) if host else None


class Express:
    """The appends of one door.  Used on its event loop."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._asked_of = lru_cache(_KNOWN_COUNT)(asked_of)
        self._spare = bytearray()  # of the body before

    def take(self, connection: Connection, data: bytes) -> bool:
        """Take the request that begins with ``data``; False: it is aiohttp's."""
        if not data.startswith(_BEGIN):
            return False
        begin = data.find(_END) + len(_END)
        asked = self._asked_of(data[:begin]) if begin > len(_END) else None
        if asked is None or begin + asked.size_bytes < len(data) or not self._is_plain(connection, asked):
            return False
        body = memoryview(data)[begin:]
        if len(body) < asked.size_bytes or not batches.appends_at_once(self._door, asked.where, asked.durability, len(body)):
            connection.run(self._receive(connection, asked, body), asked.size_bytes - len(body))
            return True
        connection.begin()
        try:
            answer = _answer(self._append(connection, asked, body))
        except Exception as error:  # noqa: BLE001 -- whoever asks is told
            answer = _refusal(error)
        connection.say(answer)
        return True

    def _is_plain(self, connection: Connection, asked: Asked) -> bool:
        """Whether there is nothing to be found out but whether the log takes the batches."""
        door = self._door
        return not (
            door.draining
            or door.under_way >= door.limits.requests_max
            or asked.size_bytes > door.limits.body_bytes_max
            or not door.memory.has_room(asked.size_bytes)
            or door.gate.authentication
            or (asked.of_internet and is_at_loopback(connection.sockname))
        )

    def _append(self, connection: Connection, asked: Asked, body: Buffer) -> range:
        session = self._door.gate.session(ANONYMOUS, connection.host)
        return session.produce(*asked.where, body, durability=asked.durability, expected_offset=asked.expected_offset)

    async def _receive(self, connection: Connection, asked: Asked, begun: memoryview) -> bytes:
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
            offsets = await batches.append_in_thread(door, asked.where, partial(self._append, connection, asked, body))
            if len(buffer) <= _SPARE_BYTES_MAX:
                self._spare = buffer
            return _answer(offsets)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 -- as above
            return _refusal(error)
        finally:
            door.memory.give_back(taken_bytes)
            door.under_way -= 1


def _answer(offsets: range) -> bytes:
    return _message(200, b'{"base_offset":%d,"next_offset":%d}' % (offsets.start, offsets.stop))


def _refusal(error: Exception) -> bytes:
    if not isinstance(error, ApiError | LogdbError):
        logger.error("an append", exc_info=error)
    status, body = describe(error)
    return _message(status, json.dumps(body).encode(), "".join(f"{name}: {value}\r\n" for name, value in headers_of(error).items()))


def _message(status: int, body: bytes, headers: str = "") -> bytes:
    phrase, date = HTTPStatus(status).phrase, rfc822_formatted_time()
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nServer: logdb\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{headers}Date: {date}\r\n\r\n".encode("latin-1") + body
