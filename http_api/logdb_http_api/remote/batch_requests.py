"""Requests of record batches: as frames of Kafka's Produce and Fetch, and as the routes of HTTP that stand for them."""

import functools
import json
import struct
from typing import Any, NamedTuple
from urllib.parse import urlencode

from logdb.codec import messages
from logdb.codec.schema import Message, Scattered, write_uvarint
from logdb.errors import Closed, InvalidAnswer
from logdb.model import Buffer, Durability, TopicPartition
from logdb.requests.error_document import rebuild
from logdb.requests.records import Produce
from logdb_http_api.protocol import BATCHES, BATCHES_PATH, FETCH_BYTES_MAX, path_of
from logdb_http_api.remote.answers import HttpAnswer, RefusedUnread
from logdb_http_api.remote.wires import HttpRequest

_CLIENT_ID = b"logdb"
_HEADER = struct.Struct(f">ihhih{len(_CLIENT_ID)}sb")  # size, key, version, correlation id, client id, no tagged fields
_SIZE = struct.Struct(">i")
_ALL_REPLICAS, _TIMEOUT_MS = -1, 30_000
_VERSION, _ELEMENTS_MAX = 12, 1_000
_OFFSETS = 0x01020304_05060708, 0x11121314_15161718  # no other eight bytes of an answer are as these
FETCH_SIZE_BYTES_MAX = (1 << 31) - 1  # a batch of any size comes whole


class Appended(NamedTuple):
    """The answer to batches: their offsets."""

    base_offset: int
    next_offset: int


class Fetched(NamedTuple):
    """The answer to a fetch: batches, where to go on, where reading ends, and the id of the topic; unchecked.

    ``nearest``: the follower at which the client is to go on, HOST:PORT; "": the leader.
    """

    url: str
    batches: Buffer
    next_offset: int
    readable_end_offset: int
    topic_id: str = ""
    nearest: str = ""


class _UsualAnswer:
    """The answer to batches that were appended: only its offsets change."""

    def __init__(self, where: TopicPartition) -> None:
        one = {"index": where.partition, "base_offset": _OFFSETS[0], "next_offset": _OFFSETS[1]}
        data = messages.PRODUCE_RESPONSE.encode({"responses": ({"name": where.topic, "partition_responses": (one,)},)}, _VERSION)
        first, second = (data.index(offset.to_bytes(8, "big")) for offset in _OFFSETS)
        self._around = data[:first], data[first + 8 : second], data[second + 8 :]
        self._layout = struct.Struct(">{}sq{}sq{}s".format(*map(len, self._around)))

    def appended(self, data: Buffer) -> Appended | None:
        """What an answer says; None: it is another one."""
        if len(data) != self._layout.size:
            return None
        begin, base_offset, middle, next_offset, end = self._layout.unpack(data)
        return Appended(base_offset, next_offset) if (begin, middle, end) == self._around else None


_usual_answer = functools.lru_cache(_UsualAnswer)


class ProduceRequest:
    """Batches for one partition."""

    into = None

    def __init__(self, request: Produce, batches: Buffer, record_count: int | None = None) -> None:
        """With batches as they are sent; ``record_count``: of their records, None: not known."""
        self.key, self._request = TopicPartition(request.topic, request.partition), request
        self._batches, self._record_count = batches, record_count

    def frame(self, correlation_id: int) -> list[Buffer]:
        request = self._request
        expected_offset = -1 if request.expected_offset is None else request.expected_offset
        before, behind = _around(self.key, request.durability, request.transactional_id, expected_offset, request.mirrored)
        begin, batches = bytearray(_HEADER.size) + before, self._batches
        write_uvarint(begin, len(batches) + 1)
        size_bytes = len(begin) + len(batches) + len(behind) - _SIZE.size
        _HEADER.pack_into(begin, 0, size_bytes, messages.PRODUCE, _VERSION, correlation_id, len(_CLIENT_ID), _CLIENT_ID, 0)
        return [begin, batches, behind]

    def decoded(self, data: Buffer) -> Appended | dict[str, Any]:
        return _usual_answer(self.key).appended(data) or _decoded(messages.PRODUCE_RESPONSE, data)

    def of_frame(self, decoded: Appended | dict[str, Any], url: str) -> Appended:
        if isinstance(decoded, dict):
            one = _partition(decoded, "partition_responses", url)
            decoded = Appended(one["base_offset"], one["next_offset"])
        return self._checked(decoded, url)

    def http(self) -> HttpRequest:
        query = self._request.arguments() | {"topic": None, "partition": None, "mirrored": "true" if self._request.mirrored else None}
        given = urlencode({name: value for name, value in query.items() if value is not None})
        return HttpRequest("POST", f"{path_of(BATCHES_PATH, self.key)}?{given}", self._batches, {"Content-Type": BATCHES})

    def of_http(self, answer: HttpAnswer) -> Appended:
        said: Appended = answer.decoded(Appended)
        return self._checked(said, answer.url)

    def _checked(self, said: Appended, url: str) -> Appended:
        count = said.next_offset - said.base_offset
        if said.base_offset < 0 or count < 0 or self._record_count not in (None, count):
            raise InvalidAnswer(url, f"offsets {tuple(said)} for {self._record_count} records")
        return said


class FetchRequest:
    """Batches of one partition from an offset on."""

    def __init__(
        self,
        where: TopicPartition,
        offset: int,
        size_bytes_max: int,
        *,
        committed: bool,
        leader_epoch: int | None = None,
        topic_id: str = "",
        into: bytearray | None = None,
        rack: str = "",
        at_follower: bool = False,
    ) -> None:
        """See ``serving.fetch.Wanted``.

        Args:
            into: Receives the answer if it fits.
            rack: The client's.
            at_follower: It goes to the follower that the leader has named.
        """
        self._rack, self._at_follower = rack, at_follower
        self.key, self._offset, self._size_bytes_max = where, offset, min(size_bytes_max, FETCH_BYTES_MAX)
        self._committed, self._leader_epoch, self._topic_id, self.into = committed, leader_epoch, topic_id, into

    def frame(self, correlation_id: int) -> list[Buffer]:
        one = {
            "partition": self.key.partition,
            "current_leader_epoch": -1,
            "fetch_offset": self._offset,
            "last_fetched_epoch": -1 if self._leader_epoch is None else self._leader_epoch,
            "partition_max_bytes": self._size_bytes_max,
        }
        values = {
            "max_bytes": self._size_bytes_max,
            "isolation_level": int(self._committed),
            "topics": ({"topic": self.key.topic, "partitions": (one,), "logdb_topic_id": self._topic_id},),
            "detailed": True,
            "rack_id": self._rack,
            "at_followers": self._at_follower,
        }
        out = bytearray(_HEADER.size)
        messages.FETCH_REQUEST.write(out, values, _VERSION)
        _HEADER.pack_into(out, 0, len(out) - _SIZE.size, messages.FETCH, _VERSION, correlation_id, len(_CLIENT_ID), _CLIENT_ID, 0)
        return [out]

    def decoded(self, data: Buffer) -> dict[str, Any]:
        return _decoded(messages.FETCH_RESPONSE, data)

    def of_frame(self, decoded: dict[str, Any], url: str) -> Fetched:
        one = _partition(decoded, "partitions", url)
        topic_id = decoded["responses"][0]["logdb_topic_id"]
        return Fetched(url, one["records"] or b"", one["next_offset"], one["readable_end_offset"], topic_id, one["nearest"])

    def http(self) -> HttpRequest:
        query: dict[str, object] = {"offset": self._offset, "max_bytes": self._size_bytes_max}
        if self._committed:
            query["isolation_level"] = "read_committed"
        if self._leader_epoch is not None:
            query["leader_epoch"] = self._leader_epoch
        if self._topic_id:
            query["topic_id"] = self._topic_id
        return HttpRequest("GET", f"{path_of(BATCHES_PATH, self.key)}?{urlencode(query)}", size_bytes_max=FETCH_SIZE_BYTES_MAX)

    def of_http(self, answer: HttpAnswer) -> Fetched:
        next_offset, end_offset = answer.number("Logdb-Next-Offset"), answer.number("Logdb-Readable-End-Offset")
        return Fetched(answer.url, answer.body, next_offset, end_offset, answer.headers.get("logdb-topic-id", ""))


@functools.lru_cache
def _around(
    where: TopicPartition, durability: Durability | None, transactional_id: str | None, expected_offset: int, mirrored: bool
) -> tuple[bytes, bytes]:
    """A Produce request up to the size of its batches, and behind them."""
    out = Scattered()
    one = {"index": where.partition, "records": b"\0", "expected_offset": expected_offset, "mirrored": mirrored}
    values = {
        "transactional_id": transactional_id,
        "acks": _ALL_REPLICAS,
        "timeout_ms": _TIMEOUT_MS,
        "topic_data": ({"name": where.topic, "partition_data": (one,)},),
        "durability": durability or "",
        "detailed": True,
    }
    messages.PRODUCE_REQUEST.write(out, values, _VERSION)
    before, _, behind = out.buffers()
    return bytes(before[:-1]), bytes(behind)  # the size of one byte is one byte


def _decoded(table: Message, data: Buffer) -> dict[str, Any]:
    return table.decode(data, _VERSION, elements_max=_ELEMENTS_MAX)[0]


def _partition(values: dict[str, Any], name: str, url: str) -> dict[str, Any]:
    """The one partition of an answer.

    Raises:
        RefusedUnread: The server is about to stop.
        InvalidAnswer: There is not one.
        LogdbError: The server's refusal.
    """
    found: list[dict[str, Any]] = [one for topic in values["responses"] for one in topic[name]]
    if len(found) != 1:
        raise InvalidAnswer(url, f"{len(found)} partitions, 1 was asked for")
    (one,) = found
    if not one["error_code"]:
        return one
    try:
        error = rebuild(json.loads(one["error"]))
    except (ValueError, RecursionError):
        error = None
    error = error or InvalidAnswer(url, f"Kafka's error code {one['error_code']} {one.get('error_message') or ''}")
    raise RefusedUnread(error) if isinstance(error, Closed) and error.offsets is None else error
