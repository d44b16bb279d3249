"""Produce: the batches of each partition go to the log as they came."""

import json
from collections.abc import Sequence
from typing import NamedTuple, cast

from logdb.access.session import AuthorizedSession
from logdb.codec.batch import CODEC_MASK, CRC_FROM, LOG_APPEND_TIME, attributes_at, check, magic_at, size_at
from logdb.errors import LogdbError, ProducerFenced
from logdb.model import DURABILITY_LEVELS, Durability, TopicPartition
from logdb.requests.error_document import document
from logdb.requests.records import Produce
from logdb.serving.resources import ON_LOOP_COUNT_MAX, DoorResources
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of

_NO_ACKNOWLEDGEMENT, _ACKS = 0, (-1, 0, 1)
_FIRST_OF_V2, _FIRST_OF_ZSTD = 3, 7  # versions whose batches have magic 2, or may be compressed by zstd
_ZSTD = 4  # the codec's number
_ANY_OFFSET = -1


class Append(NamedTuple):
    """The batches for one partition; ``expected_offset``: where the log has to end, or nothing is appended."""

    where: TopicPartition
    records: memoryview
    expected_offset: int | None


def appends_of(values: Values) -> Sequence[Append]:
    """What a request appends, in its order."""
    return [
        Append(
            TopicPartition(topic["name"], one["index"]),
            one["records"] or memoryview(b""),
            None if one["expected_offset"] == _ANY_OFFSET else one["expected_offset"],
        )
        for topic in values["topic_data"]
        for one in topic["partition_data"]
    ]


def waits(door: DoorResources, transactional_id: str | None, appends: Sequence[Append], durability: Durability | None = None) -> bool:
    """Whether appends may wait for a disk, for a thread that is at a larger append, or for a coordinator; or are many."""
    if transactional_id is not None or len(appends) > ON_LOOP_COUNT_MAX:
        return True
    size_bytes = sum(door.append_size(one.records) for one in appends)
    return not all(door.appends_at_once(one.where, durability, size_bytes) for one in appends)


def durability_of(values: Values) -> Durability | None:
    """The level that the request names; None: the topic's."""
    return cast("Durability | None", values["durability"] or None)


async def produce(call: Call) -> Values | None:
    """Append; all partitions in one thread, unless the request waits for nothing."""
    appends = appends_of(call.values)
    if not waits(call.door, call.values["transactional_id"], appends, durability_of(call.values)):
        return append(call, appends)
    with call.door.appending_to([one.where for one in appends]):
        return await call.call(append, call, appends)


def append(call: Call, appends: Sequence[Append]) -> Values | None:
    """Append; each partition has an error of its own, and the order is that of the request.

    Raises:
        ConnectionError: An append failed whose client wants no answer: it learns of that by the end of its connection.
    """
    values = call.values
    if values["acks"] not in _ACKS:
        answers = [_refused(one, Code.INVALID_REQUIRED_ACKS) for one in appends]
    elif values["durability"] not in ("", *DURABILITY_LEVELS):
        answers = [_refused(one, Code.INVALID_REQUEST) for one in appends]
    else:
        answers = [_append(call.session, one, values, call.version) for one in appends]
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


def _append(session: AuthorizedSession, one: Append, values: Values, version: int) -> Values:
    code = _refusal(one, version, detailed=values["detailed"])
    try:
        if code is not None:
            session.authorize(Produce(*one.where, transactional_id=values["transactional_id"]))
            return _refused(one, code)
        offsets = session.produce(
            *one.where,
            one.records,
            durability=durability_of(values),
            transactional_id=values["transactional_id"],
            expected_offset=one.expected_offset,
        )
        if values["detailed"]:
            return {"index": one.where.partition, "error_code": Code.NONE, "base_offset": offsets.start, "next_offset": offsets.stop}
        log = session.appended_to(*one.where)
        return {
            "index": one.where.partition,
            "error_code": Code.NONE,
            "base_offset": offsets.start,
            "log_append_time_ms": log.append_time_ms(offsets.start),
            "log_start_offset": log.start_offset,
        }
    except LogdbError as error:
        # of a fenced one, the producer learns from its coordinator
        code = Code.INVALID_PRODUCER_EPOCH if isinstance(error, ProducerFenced) else code_of(error)
        refused = _refused(one, code, str(error))
        return refused | {"error": json.dumps(document(error)).encode()} if values["detailed"] else refused


def _refusal(one: Append, version: int, *, detailed: bool) -> Code | None:
    """Why the records are no batch that a client may send in that version, by its header; None: they are one, or are damaged.

    A ``detailed`` request may bring several batches, as one over HTTP.

    Source: Kafka's ``ProduceRequest.validateRecords`` and ``LogValidator.validateTimestamp``.
    """
    records = one.records
    if one.expected_offset is not None and one.expected_offset < 0:
        return Code.INVALID_REQUEST
    if detailed:
        return None
    if version < _FIRST_OF_V2:
        return Code.UNSUPPORTED_VERSION
    if len(records) < CRC_FROM + 2 or magic_at(records, 0) != 2:
        return Code.INVALID_RECORD
    attributes = attributes_at(records, 0)
    if version < _FIRST_OF_ZSTD and attributes & CODEC_MASK == _ZSTD:
        return Code.UNSUPPORTED_COMPRESSION_TYPE
    are_more, is_stamped = size_at(records, 0) < len(records), attributes & LOG_APPEND_TIME
    if not (are_more or is_stamped) or check(records)[0]:  # a damaged header may say anything: the log tells the client to try again
        return None
    return Code.INVALID_RECORD if are_more else Code.INVALID_TIMESTAMP


def _refused(one: Append, code: Code, message: str | None = None) -> Values:
    return {"index": one.where.partition, "error_code": code, "base_offset": -1, "error_message": message}
