"""Produce: the batches of each partition go to the log as they came."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError, ProducerFenced
from logdb.model import TopicPartition
from logdb.serving.resources import DoorResources
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of

_NO_ACKNOWLEDGEMENT, _ACKS = 0, (-1, 0, 1)
_FIRST_OF_V2, _FIRST_OF_ZSTD = 3, 7  # versions whose batches have magic 2, or may be compressed by zstd
_MAGIC_AT, _ATTRIBUTES_AT = 16, 22  # the low byte of the attributes
_CODEC_MASK, _ZSTD = 7, 4
_LOG_APPEND_TIME = 8
_AT_ONCE_COUNT_MAX = 100  # appends; more of them would hold up other connections


class Append(NamedTuple):
    """The batches for one partition."""

    where: TopicPartition
    records: memoryview


def waits(door: DoorResources, values: Values) -> bool:
    """Whether a request waits for a disk, for a thread that is at a larger append, or for a coordinator, or takes long."""
    if values["transactional_id"] is not None:
        return True
    appends = _appends(values)
    size_bytes = sum(len(one.records) for one in appends)
    return len(appends) > _AT_ONCE_COUNT_MAX or not all(door.appends_at_once(one.where, None, size_bytes) for one in appends)


async def produce(call: Call) -> Values | None:
    """Append; all partitions in one thread, unless the request waits for nothing."""
    if not waits(call.door, call.values):
        return append(call)
    return await _append_in_thread(call, _appends(call.values), partial(append, call))


def append(call: Call) -> Values | None:
    """Append; each partition has an error of its own, and the order is that of the request.

    Raises:
        ConnectionError: An append failed whose client wants no answer: it learns of that by the end of its connection.
    """
    values, appends = call.values, _appends(call.values)
    if values["acks"] in _ACKS:
        answers = [_append(call.session, one, values["transactional_id"], call.version) for one in appends]
    else:
        answers = [_refused(one, Code.INVALID_REQUIRED_ACKS) for one in appends]
    if values["acks"] == _NO_ACKNOWLEDGEMENT:
        failed = next((one for one in answers if one["error_code"]), None)
        if failed is not None:
            raise ConnectionAbortedError(f"Produce without acknowledgement failed: {Code(failed['error_code']).name}")
        return None
    left = iter(answers)
    return {
        "responses": [
            {"name": topic["name"], "partition_responses": [next(left) for _ in topic["partition_data"]]} for topic in values["topic_data"]
        ]
    }


def _appends(values: Values) -> list[Append]:
    return [
        Append(TopicPartition(topic["name"], one["index"]), one["records"] or memoryview(b""))
        for topic in values["topic_data"]
        for one in topic["partition_data"]
    ]


async def _append_in_thread(call: Call, appends: Sequence[Append], append: Callable[[], Values | None]) -> Values | None:
    appending = call.door.appending
    for one in appends:
        appending[one.where] += 1
    try:
        return await call.call(append)
    finally:
        for one in appends:
            appending[one.where] -= 1
            if not appending[one.where]:
                del appending[one.where]


def _append(session: AuthorizedSession, one: Append, transactional_id: str | None, version: int) -> Values:
    code = _refusal(one.records, version)
    try:
        if code is not None:
            session.need("Write", "Topic", one.where.topic)
            return _refused(one, code)
        offsets = session.produce(*one.where, one.records, transactional_id=transactional_id)
        log = session.log(*one.where)
        return {
            "index": one.where.partition,
            "error_code": Code.NONE,
            "base_offset": offsets.start,
            "log_append_time_ms": log.append_time_ms(offsets.start),
            "log_start_offset": log.start_offset,
        }
    except ProducerFenced as error:
        return _refused(one, Code.INVALID_PRODUCER_EPOCH, str(error))  # the producer learns from its coordinator that it is fenced
    except LogdbError as error:
        return _refused(one, code_of(error), str(error))


def _refusal(records: memoryview, version: int) -> Code | None:
    """Why the first batch is none that a client may send in that version; None: it is one.

    Source: Kafka's ``ProduceRequest.validateRecords`` and ``LogValidator.validateTimestamp``.
    """
    if version < _FIRST_OF_V2:
        return Code.UNSUPPORTED_VERSION
    if len(records) <= _ATTRIBUTES_AT or records[_MAGIC_AT] != 2:
        return Code.INVALID_RECORD
    if version < _FIRST_OF_ZSTD and records[_ATTRIBUTES_AT] & _CODEC_MASK == _ZSTD:
        return Code.UNSUPPORTED_COMPRESSION_TYPE
    if records[_ATTRIBUTES_AT] & _LOG_APPEND_TIME:
        return Code.INVALID_TIMESTAMP
    return None


def _refused(one: Append, code: Code, message: str | None = None) -> Values:
    return {"index": one.where.partition, "error_code": code, "base_offset": -1, "error_message": message}
