"""Produce requests that repeat the one before them, but for their correlation id and their records; and the answers to them.  No I/O.

::

    request    api key, version | correlation id | client id, topic, partition … | size | records | tagged fields
               start                               head                                             tail
    answer     size | correlation id | topic, partition, no error | three numbers | …
                                       begin                                        end

The bytes of start, head and tail mean what they meant before, so that only the others are read.  In an answer only the numbers are new.

Threading: the event loop of the door.
"""

import struct
from collections.abc import Sequence
from typing import Any

from logdb.codec.schema import position_in, read_uvarint, write_uvarint
from logdb.errors import InvalidMessage
from logdb.model import DURABILITY_LEVELS, Buffer, TopicPartition
from logdb.requests.records import Produce
from logdb_kafka_api.errors import Code
from logdb_kafka_api.frames import RequestHeader, encode_response

Values = dict[str, Any]

_START_BYTES, _HEAD_AT = 4, 8
_INT32, _NUMBERS, _SIZE_AND_CORRELATION_ID = struct.Struct(">i"), struct.Struct(">qqq"), struct.Struct(">ii")
_MARKS = {"base_offset": 0x0101010101010102, "log_append_time_ms": 0x0101010101010103, "log_start_offset": 0x0101010101010104}
"""Numbers that are in an answer in no other place: a topic's name has none of these bytes, and an id has fewer."""
_KEPT_BYTES_MAX = 1 << 10  # of a connection, which nothing counts
_FIRST_VERSION = 5  # whose answers have all three
NO_ACKNOWLEDGEMENT, OF_ALL = 0, -1
ACKS = (OF_ALL, NO_ACKNOWLEDGEMENT, 1)
ANY_OFFSET = -1


def repeatable(header: RequestHeader, values: Values, frame: Buffer) -> TopicPartition | None:
    """Where a request for which ``RepeatedProduce`` can be made appends to; None: it is another one."""
    is_usual = values["acks"] in ACKS and values["durability"] in ("", *DURABILITY_LEVELS) and values["transactional_id"] is None
    if header.version < _FIRST_VERSION or not is_usual or values["detailed"] or len(values["topic_data"]) != 1:
        return None
    (topic,) = values["topic_data"]
    if len(topic["partition_data"]) != 1:
        return None
    if not topic["name"]:  # of an unknown id
        return None
    (part,) = topic["partition_data"]
    is_placed = part["mirrored"] or part["expected_offset"] != ANY_OFFSET
    if is_placed or not part["records"] or len(frame) - len(part["records"]) > _KEPT_BYTES_MAX:
        return None
    return TopicPartition(topic["name"], part["index"])


class RepeatedProduce:
    """What a request with records for one partition says beside them, and what answers it.

    Attributes:
        where: The partition.
        asked: What the session is asked for, each time.
        topic_id: logdb's id of the topic, where the request has one; else "".
        header: Of the request that it was made of.
        values: That request, without its records.
    """

    def __init__(self, header: RequestHeader, values: Values, frame: Buffer) -> None:
        """``header``, ``values``: what was read from ``frame``."""
        (topic,) = values["topic_data"]
        (part,) = topic["partition_data"]
        begin, size_bytes = position_in(frame, part["records"]), len(part["records"])
        self.header = header
        self.values = values | {"topic_data": [topic | {"partition_data": [part | {"records": None}]}]}  # those are borrowed
        self._is_flexible = header.is_flexible
        self._size_at = begin - len(_size(size_bytes, flexible=self._is_flexible))
        self._start, self._head = bytes(frame[:_START_BYTES]), bytes(frame[_HEAD_AT : self._size_at])
        self._tail = bytes(frame[begin + size_bytes :])
        self.where = TopicPartition(topic["name"], part["index"])
        self.topic_id = str(topic.get("logdb_topic_id", ""))
        self.asked = Produce(*self.where, durability=values["durability"] or None)
        self._around: tuple[int, bytes, bytes] | None = None  # the numbers of an answer

    def read(self, frame: Buffer) -> tuple[int, memoryview] | None:
        """The correlation id and the records of a request that repeats this one; None: it does not."""
        if frame[_HEAD_AT : self._size_at] != self._head or frame[:_START_BYTES] != self._start:
            return None
        try:
            size_bytes, begin = _read_size(frame, self._size_at, flexible=self._is_flexible)
        except (InvalidMessage, struct.error):
            return None
        end = begin + size_bytes
        if size_bytes < 1 or end + len(self._tail) != len(frame) or frame[end:] != self._tail:
            return None
        return _INT32.unpack_from(frame, _START_BYTES)[0], memoryview(frame)[begin:end]

    def encode(self, correlation_id: int, answer: Values) -> Sequence[Buffer]:
        """As ``encode_response``, of ``answer`` for the one partition; nothing if the client wants no answer."""
        if self.values["acks"] == NO_ACKNOWLEDGEMENT:
            return ()
        if answer["error_code"]:
            return self._response(correlation_id, answer)
        if self._around is None:
            self._around = self._around_numbers()
        size_bytes, begin, end = self._around
        numbers = _NUMBERS.pack(answer["base_offset"], answer["log_append_time_ms"], answer["log_start_offset"])
        return (_SIZE_AND_CORRELATION_ID.pack(size_bytes, correlation_id) + begin + numbers + end,)

    def _response(self, correlation_id: int, answer: Values) -> Sequence[Buffer]:
        (topic,) = self.values["topic_data"]
        responses = [{"name": self.where.topic, "topic_id": topic["topic_id"], "partition_responses": [answer]}]
        return encode_response(self.header._replace(correlation_id=correlation_id), {"responses": responses})

    def _around_numbers(self) -> tuple[int, bytes, bytes]:
        """The size of an answer, and its bytes between the correlation id and the numbers, and behind them."""
        marked = b"".join(self._response(0, {"index": self.where.partition, "error_code": Code.NONE} | _MARKS))
        begin, _, end = marked.partition(_NUMBERS.pack(*_MARKS.values()))
        return len(marked) - _INT32.size, begin[_SIZE_AND_CORRELATION_ID.size :], end


def _size(size_bytes: int, *, flexible: bool) -> bytes:
    """The size of records as the protocol has it, in flexible versions or in others."""
    if not flexible:
        return _INT32.pack(size_bytes)
    out = bytearray()
    write_uvarint(out, size_bytes + 1)
    return bytes(out)


def _read_size(frame: Buffer, at: int, *, flexible: bool) -> tuple[int, int]:
    """The size that lies at ``at``, and the position behind it."""
    if not flexible:
        return _INT32.unpack_from(frame, at)[0], at + _INT32.size
    number, at = read_uvarint(frame, at)
    return number - 1, at
