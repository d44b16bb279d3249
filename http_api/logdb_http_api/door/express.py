"""Record batches in and out past aiohttp: what one record costs a server is mostly the way through it.

Knows the requests that logdb's own client makes for them, to the letter.  Does not know any other: aiohttp gets those, and these
too where more is to be found out than whether the log takes the batches, such as whether a password is right, or whether there is room.

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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from aiohttp.helpers import rfc822_formatted_time

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError
from logdb.log.isolation import IsolationLevel
from logdb.model import DURABILITY_LEVELS, OFFSET_MAX, Buffer, Durability, TopicPartition
from logdb.requests.records import Produce
from logdb.serving.fetch import Wanted, held_bytes
from logdb.serving.resources import RequestResources, owner_of
from logdb.serving.shares import Owner
from logdb_http_api.door import batches
from logdb_http_api.door.authentication import Authenticator, host_name, is_at_loopback, is_of_internet
from logdb_http_api.door.connections import Connection
from logdb_http_api.door.pipelined import HEAD_BYTES_MAX, Pipelined
from logdb_http_api.errors import REFUSALS, ApiError, describe, headers_of

if TYPE_CHECKING:
    from logdb_http_api.door.door import HttpDoor

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
_HEADER = re.compile(r"(Host|Content-Type|Content-Length|Accept-Encoding): ([!-~]+)|(Authorization): ((?:Basic|Bearer) [!-~]+)")
_AUTHORIZATION = b"authorization"  # in lower case
_LENGTH = re.compile(r"[0-9]{1,10}")
_KNOWN_COUNT = 256  # heads of appends that are the same again and again
_FIRST_STEP_BYTES, _STEP_BYTES = 64 << 10, 1 << 20
_SPARE_BYTES_MAX = 2 << 20
_AT_SOCKETS_COUNT_MAX = 32  # threads that have a descriptor of their client's
_IN_TURN_COUNT_MAX = 16  # requests of one client that a thread takes before it is anybody's
_ALONE_BYTES = 64 << 10  # an answer from here on is not copied together with its head


class Append(NamedTuple):
    """What a head asks: where batches go, how, and how many bytes of them follow; of a server on the Internet or not, and for whom."""

    where: TopicPartition
    durability: Durability | None
    expected_offset: int | None
    size_bytes: int
    of_internet: bool
    authorization: str | None = None


class Fetch(NamedTuple):
    """What a head asks: what is to be read; of a server on the Internet or not, and for whom."""

    wanted: Wanted
    isolation_level: IsolationLevel
    of_internet: bool
    authorization: str | None = None


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
    return Append(where, durability, expected_offset, int(length), is_of_internet(host), headers.get("Authorization"))


def fetch_of(head: bytes) -> Fetch | None:
    """As ``append_of``, of fetches."""
    request, headers, host = _parts(_FETCH, head)
    if request is None or not headers.keys() <= {"Host", "Accept-Encoding", "Authorization"} or not host:
        return None
    offset, max_bytes = int(request["offset"]), int(request["max_bytes"])
    if offset > OFFSET_MAX or not 1 <= max_bytes <= batches.FETCH_BYTES_MAX:
        return None
    wanted = Wanted(request["topic"], int(request["partition"]), offset, max_bytes)
    isolation_level: IsolationLevel = "read_committed" if request["committed"] else "read_uncommitted"
    return Fetch(wanted, isolation_level, is_of_internet(host), headers.get("Authorization"))


def _parts(request: re.Pattern[str], head: bytes) -> tuple[re.Match[str] | None, dict[str, str], str]:
    """The request line, the headers and the name of the server; None: a line is none that is known."""
    first, *lines = head[: -len(_END)].decode("latin-1").split("\r\n")
    found = [_HEADER.fullmatch(line) for line in lines]
    headers = {one[1] or one[3]: one[2] or one[4] for one in found if one is not None}
    if len(headers) < len(lines):
        return None, {}, ""
    try:
        return request.fullmatch(first), headers, host_name(headers.get("Host"))
    except ApiError:
        return None, {}, ""


class Express:
    """The batches of one door, in and out.

    Threading: the door's event loop, but for ``_append_in_turn``, ``_fetch_in_turn`` and what they call, which are a thread's.
    """

    def __init__(self, door: "HttpDoor", authenticator: Authenticator) -> None:
        self._door, self._authenticator = door, authenticator
        self._known = lru_cache(_KNOWN_COUNT)(append_of)
        self._spare = bytearray()  # of the body before

    def take(self, connection: Connection, data: bytes) -> bool:
        """Take the request that begins with ``data``; False: it is aiohttp's."""
        if data.startswith(b"POST /logdb/v1/topics/"):
            return self._take_append(connection, data, data.find(_END, 0, HEAD_BYTES_MAX) + len(_END))
        if data.startswith(b"GET /logdb/v1/topics/") and data.find(_END) + len(_END) == len(data):
            return self._take_fetch(connection, data)
        return False

    def _take_append(self, connection: Connection, data: bytes, begin: int) -> bool:
        asked = self._append_of(data[:begin]) if begin >= len(_END) else None
        if asked is None or begin + asked.size_bytes < len(data) or asked.size_bytes > self._door.limits.body_bytes_max:
            return False
        session = self._session(connection, asked)
        if session is None or not self._has_room(session, min(asked.size_bytes, _STEP_BYTES)):
            return False
        body = memoryview(data)[begin:]
        if len(body) < asked.size_bytes or not self._door.appends_at_once(asked.where, asked.durability, len(body)):
            connection.run(self._receive(connection, session, asked, body), asked.size_bytes - len(body))
            return True
        connection.begin()
        connection.say(_append(session, asked, body))
        return True

    def _take_fetch(self, connection: Connection, head: bytes) -> bool:
        asked = fetch_of(head)
        if asked is None:
            return False
        session = self._session(connection, asked)
        if session is None or not self._has_room(session, asked.wanted.max_bytes):
            return False
        connection.run(self._fetch(connection, session, asked), 0)
        return True

    def _append_of(self, head: bytes) -> Append | None:
        return append_of(head) if _AUTHORIZATION in head.lower() else self._known(head)  # nobody's password is kept

    def _has_room(self, session: AuthorizedSession, size_bytes: int) -> bool:
        """Whether a request that takes so much memory waits for no others."""
        door, owner = self._door, owner_of(session)
        return not door.draining and door.requests.has_room(1, owner) and door.memory.has_room(size_bytes, owner)

    def _session(self, connection: Connection, asked: Append | Fetch) -> AuthorizedSession | None:
        """For whoever asks; None: it takes longer to find out who that is, they are refused, or have quotas."""
        access = self._door.access
        if asked.of_internet and not access.authentication and is_at_loopback(connection.sockname):
            return None
        known = self._authenticator.recognized(asked.authorization, connection.certificate)
        if known is None or access.quotas.limits(known.principal):
            return None
        return access.session(known.principal, connection.host, known.credential)

    def _pipelined(self, connection: Connection) -> Pipelined | None:
        return connection.pipelined() if self._door.requests.taken <= _AT_SOCKETS_COUNT_MAX else None

    async def _fetch(self, connection: Connection, session: AuthorizedSession, asked: Fetch) -> bytes:
        """Read and send; returns the end of the answer.

        Raises:
            ConnectionError: Nobody waits for it any more.
        """
        door, owner, taken_bytes = self._door, owner_of(session), 0
        try:
            await door.memory.take(asked.wanted.max_bytes, owner)
            taken_bytes = asked.wanted.max_bytes
            with self._slot(owner):
                fetch = partial(self._fetch_in_turn, connection, session, asked, self._pipelined(connection))
                unsent = await asyncio.get_running_loop().run_in_executor(door.executor, fetch)
            door.memory.give_back(taken_bytes, owner)
            taken_bytes = held_bytes(unsent)
            door.memory.take_now(taken_bytes, owner)
            await connection.send(*unsent)
            return b""
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 -- whoever asks is told
            return _refusal(error)
        finally:
            door.memory.give_back(taken_bytes, owner)

    @contextlib.contextmanager
    def _slot(self, owner: Owner) -> Iterator[None]:
        """While a request is worked on."""
        self._door.requests.take_now(1, owner)
        try:
            yield
        finally:
            self._door.requests.give_back(1, owner)

    def _fetch_in_turn(
        self, connection: Connection, session: AuthorizedSession, asked: Fetch, pipelined: Pipelined | None
    ) -> Sequence[Buffer]:
        """Read and send what was asked, and what the client asks next; returns what of an answer is left to be sent.

        Raises:
            ConnectionError: The client is gone.
        """
        answer, room_bytes = _read(session, asked), asked.wanted.max_bytes
        if pipelined is None:
            return answer
        with pipelined:
            for _ in range(_IN_TURN_COUNT_MAX):
                unsent = answer if self._door.draining else pipelined.send(answer)
                is_last = bool(unsent) or len(answer) == 1  # whoever got little asks for no more, or later
                following = None if is_last else self._next_fetch(connection, room_bytes, pipelined)
                if following is None:
                    return unsent
                answer = _read(*following)
        return answer

    def _next_fetch(self, connection: Connection, room_bytes: int, pipelined: Pipelined) -> tuple[AuthorizedSession, Fetch] | None:
        """The next request, if it is a fetch of no more than there is memory for, and has come."""
        head = pipelined.head()
        following = fetch_of(head) if head.startswith(b"GET ") else None
        if following is None or following.wanted.max_bytes > room_bytes or self._door.draining:
            return None
        session = self._session(connection, following)
        if session is None:
            return None
        pipelined.take(len(head), memoryview(b""))
        return session, following

    def _append_in_turn(
        self, connection: Connection, session: AuthorizedSession, asked: Append, buffer: bytearray, pipelined: Pipelined | None
    ) -> bytes:
        """Append what was received, and what the client sends next; returns what is left to be said, which may be the end of an answer.

        Raises:
            ConnectionError: The client is gone.
        """
        answer = _append(session, asked, memoryview(buffer)[: asked.size_bytes])
        if pipelined is None:
            return answer
        with pipelined:
            for _ in range(_IN_TURN_COUNT_MAX):
                unsent = answer if self._door.draining else pipelined.answer(answer)
                following = None if unsent else self._next_append(connection, asked, buffer, pipelined)
                if following is None:
                    return unsent
                answer = _append(*following, memoryview(buffer)[: following[1].size_bytes])
        return answer

    def _next_append(
        self, connection: Connection, asked: Append, buffer: bytearray, pipelined: Pipelined
    ) -> tuple[AuthorizedSession, Append] | None:
        """The next request, if it goes where the one before it went, fits into its memory, and has come."""
        head = pipelined.head()
        following = self._append_of(head) if head else None
        if following is None or following.where != asked.where or following.size_bytes > len(buffer) or self._door.draining:
            return None
        if not pipelined.has(len(head) + following.size_bytes):
            return None
        session = self._session(connection, following)
        if session is None:
            return None
        pipelined.take(len(head), memoryview(buffer)[: following.size_bytes])
        return session, following

    async def _receive(self, connection: Connection, session: AuthorizedSession, asked: Append, begun: memoryview) -> bytes:
        """Receive the rest of a body and append it; returns the answer.

        Raises:
            ConnectionError: Nobody waits for it any more.
        """
        door, owner, size_bytes, at, taken_bytes = self._door, owner_of(session), asked.size_bytes, len(begun), 0
        buffer, self._spare = self._spare, bytearray()
        try:
            session.authorize(Produce(*asked.where))
            if len(buffer) < size_bytes:
                buffer = bytearray(begun)
            else:
                buffer[:at] = begun
            while taken_bytes < size_bytes:
                # What a head promises costs nothing before it comes: what is taken is at most four times as much as that, and a little.
                most_bytes = _STEP_BYTES if len(buffer) >= size_bytes else max(_FIRST_STEP_BYTES, 3 * at)
                step_bytes = min(most_bytes, size_bytes - taken_bytes)
                await door.memory.take(step_bytes, owner)
                taken_bytes += step_bytes
                if len(buffer) < taken_bytes:
                    buffer = _grown(buffer, taken_bytes)
                await connection.receive(memoryview(buffer)[at:taken_bytes])
                at = max(at, taken_bytes)
            with self._slot(owner):
                appending = partial(self._append_in_turn, connection, session, asked, buffer, self._pipelined(connection))
                request = RequestResources(door, owner)
                request.session = session
                answer = await request.append_in_thread(asked.where, appending)
            if len(buffer) <= _SPARE_BYTES_MAX:
                self._spare = buffer
            return answer
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 -- as above
            return _refusal(error)
        finally:
            door.memory.give_back(taken_bytes, owner)


def _grown(buffer: bytearray, size_bytes: int) -> bytearray:
    """A larger one that begins alike; not the same, for a transport may still have a view of that."""
    grown = bytearray(size_bytes)
    grown[: len(buffer)] = buffer
    return grown


def _append(session: AuthorizedSession, asked: Append, body: Buffer) -> bytes:
    """Append; returns the answer."""
    try:
        offsets = session.produce(*asked.where, body, durability=asked.durability, expected_offset=asked.expected_offset)
    except Exception as error:  # noqa: BLE001 -- whoever asks is told
        return _refusal(error)
    body = b'{"base_offset":%d,"next_offset":%d}' % (offsets.start, offsets.stop)
    return _head(200, "application/json", len(body), {}) + body


def _read(session: AuthorizedSession, asked: Fetch) -> Sequence[Buffer]:
    """Read; returns the answer, in one part where there is little."""
    reading = batches.Reading(asked.wanted)
    try:
        reading.read(session, asked.wanted.max_bytes, asked.isolation_level)
        if reading.error is not None:
            raise reading.error
    except Exception as error:  # noqa: BLE001 -- whoever asks is told
        return (_refusal(error),)
    parts = (_head(200, batches.BATCHES, reading.size_bytes, reading.headers()), *reading.parts)
    return (b"".join(parts),) if reading.size_bytes < _ALONE_BYTES else parts


def _refusal(error: Exception) -> bytes:
    if not isinstance(error, (*REFUSALS, LogdbError)):
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
