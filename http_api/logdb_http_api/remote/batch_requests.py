"""Requests of record batches: as frames of Kafka's Produce and Fetch, and as the routes of HTTP that stand for them."""

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from logdb.codec import messages
from logdb.codec.schema import Message, Scattered
from logdb.errors import Closed, InvalidAnswer, LogdbError
from logdb.model import Buffer, Durability, TopicPartition
from logdb.requests.error_document import rebuild
from logdb_http_api.protocol import BATCHES, BATCHES_PATH, FETCH_BYTES_MAX, path_of
from logdb_http_api.remote.answers import Answer, RefusedUnread
from logdb_http_api.remote.wires import HttpRequest

_CLIENT_ID = b"logdb"
_HEADER = struct.Struct(f">ihhih{len(_CLIENT_ID)}sb")  # size, key, version, correlation id, client id, no tagged fields
_SIZE = struct.Struct(">i")
_ALL_REPLICAS, _TIMEOUT_MS = -1, 30_000
_ELEMENTS_MAX = 1_000
FETCH_SIZE_BYTES_MAX = (1 << 31) - 1  # a batch of any size comes whole


class Appended(NamedTuple):
    """The answer to batches: their offsets."""

    base_offset: int
    next_offset: int


class Fetched(NamedTuple):
    """The answer to a fetch: batches, where to go on, and where reading ends; unchecked."""

    url: str
    batches: Buffer
    next_offset: int
    readable_end_offset: int


class ProduceRequest:
    """Batches for one partition."""

    response, version, into, elements_max = messages.PRODUCE_RESPONSE, 12, None, _ELEMENTS_MAX

    def __init__(
        self,
        where: TopicPartition,
        batches: Buffer,
        record_count: int | None = None,
        *,
        durability: Durability | None = None,
        transactional_id: str | None = None,
        expected_offset: int | None = None,
        mirrored: bool = False,
    ) -> None:
        """With batches as they are sent; ``record_count``: of their records, None: not known."""
        self.key, self._batches, self._record_count = where, batches, record_count
        self._durability, self._transactional_id, self._expected_offset = durability, transactional_id, expected_offset
        self._mirrored = mirrored

    def frame(self, correlation_id: int) -> list[Buffer]:
        expected_offset = -1 if self._expected_offset is None else self._expected_offset
        one = {"index": self.key.partition, "records": self._batches, "expected_offset": expected_offset, "mirrored": self._mirrored}
        return _frame(
            messages.PRODUCE,
            messages.PRODUCE_REQUEST,
            self.version,
            correlation_id,
            {
                "transactional_id": self._transactional_id,
                "acks": _ALL_REPLICAS,
                "timeout_ms": _TIMEOUT_MS,
                "topic_data": ({"name": self.key.topic, "partition_data": (one,)},),
                "durability": self._durability or "",
                "detailed": True,
            },
        )

    def of_frame(self, values: dict[str, Any], url: str) -> Appended:
        one = _partition(values, "partition_responses", url)
        return self._checked(Appended(one["base_offset"], one["next_offset"]), url)

    def http(self) -> HttpRequest:
        query = {
            "durability": self._durability,
            "transactional_id": self._transactional_id,
            "expected_offset": self._expected_offset,
            "mirrored": "true" if self._mirrored else None,
        }
        given = urlencode({name: value for name, value in query.items() if value is not None})
        return HttpRequest("POST", f"{path_of(BATCHES_PATH, self.key)}?{given}", self._batches, {"Content-Type": BATCHES})

    def of_http(self, answer: Answer) -> Appended:
        said: Appended = answer.decoded(Appended)
        return self._checked(said, answer.url)

    def _checked(self, said: Appended, url: str) -> Appended:
        count = said.next_offset - said.base_offset
        if said.base_offset < 0 or count < 0 or self._record_count not in (None, count):
            raise InvalidAnswer(url, f"offsets {tuple(said)} for {self._record_count} records")
        return said


class FetchRequest:
    """Batches of one partition from an offset on."""

    response, version, elements_max = messages.FETCH_RESPONSE, 12, _ELEMENTS_MAX

    def __init__(
        self,
        where: TopicPartition,
        offset: int,
        size_bytes_max: int,
        *,
        committed: bool,
        leader_epoch: int | None = None,
        into: bytearray | None = None,
    ) -> None:
        """See ``serving.fetch.Wanted``; ``into``: receives the answer if it fits."""
        self.key, self._offset, self._size_bytes_max = where, offset, min(size_bytes_max, FETCH_BYTES_MAX)
        self._committed, self._leader_epoch, self.into = committed, leader_epoch, into

    def frame(self, correlation_id: int) -> list[Buffer]:
        one = {
            "partition": self.key.partition,
            "current_leader_epoch": -1,
            "fetch_offset": self._offset,
            "last_fetched_epoch": -1 if self._leader_epoch is None else self._leader_epoch,
            "partition_max_bytes": self._size_bytes_max,
        }
        return _frame(
            messages.FETCH,
            messages.FETCH_REQUEST,
            self.version,
            correlation_id,
            {
                "max_bytes": self._size_bytes_max,
                "isolation_level": int(self._committed),
                "topics": ({"topic": self.key.topic, "partitions": (one,)},),
                "detailed": True,
            },
        )

    def of_frame(self, values: dict[str, Any], url: str) -> Fetched:
        one = _partition(values, "partitions", url)
        return Fetched(url, one["records"] or b"", one["next_offset"], one["readable_end_offset"])

    def http(self) -> HttpRequest:
        query: dict[str, object] = {"offset": self._offset, "max_bytes": self._size_bytes_max}
        if self._committed:
            query["isolation_level"] = "read_committed"
        if self._leader_epoch is not None:
            query["leader_epoch"] = self._leader_epoch
        return HttpRequest("GET", f"{path_of(BATCHES_PATH, self.key)}?{urlencode(query)}", size_bytes_max=FETCH_SIZE_BYTES_MAX)

    def of_http(self, answer: Answer) -> Fetched:
        return Fetched(answer.url, answer.body, answer.number("Logdb-Next-Offset"), answer.number("Logdb-Readable-End-Offset"))


def _frame(key: int, table: Message, version: int, correlation_id: int, values: Mapping[str, Any]) -> list[Buffer]:
    """A request of Kafka's; record batches are borrowed."""
    out = Scattered()
    out += _HEADER.pack(0, key, version, correlation_id, len(_CLIENT_ID), _CLIENT_ID, 0)
    table.write(out, values, version)
    _SIZE.pack_into(out, 0, out.size_bytes - _SIZE.size)
    return out.buffers()


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
    error = error or LogdbError(f"the server refused the request: Kafka's error code {one['error_code']} {one.get('error_message') or ''}")
    raise RefusedUnread(error) if isinstance(error, Closed) else error
