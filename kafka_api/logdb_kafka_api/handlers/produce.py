"""Produce: the batches of each partition go to the log as they came."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from logdb.access.session import AuthorizedSession
from logdb.codec.batch import CODEC_MASK, CRC_FROM, LOG_APPEND_TIME, attributes_at, check, codec_of_usual, magic_at, size_at
from logdb.errors import CoordinatorLoading, InvalidBatch, InvalidTimestamp, LogdbError, NotAuthorized, ProducerFenced
from logdb.model import DURABILITY_LEVELS, Durability, TopicPartition
from logdb.requests.error_document import document
from logdb.requests.records import Produce
from logdb.serving.resources import ON_LOOP_COUNT_MAX, DoorResources
from logdb.store.protocols import Leadership
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, topic_code_of
from logdb_kafka_api.repeated import ACKS, ANY_OFFSET, NO_ACKNOWLEDGEMENT, OF_ALL, RepeatedProduce
from logdb_kafka_api.resources import KafkaResources

logger = logging.getLogger(__name__)

_FIRST_OF_V2, _FIRST_OF_ZSTD = 3, 7  # versions whose batches have magic 2, or may be compressed by zstd
_FIRST_OF_ADDING = 12  # whose clients leave it to Produce to add partitions to a transaction (KIP-890)
FIRST_OF_IDS = 13  # version that names topics by their ids
_ZSTD = 4  # the codec's number
_CODES: Mapping[type[LogdbError], Code] = {
    ProducerFenced: Code.INVALID_PRODUCER_EPOCH,
    CoordinatorLoading: Code.NOT_ENOUGH_REPLICAS,
}


class Append(NamedTuple):
    """The batches for one partition.

    Attributes:
        expected_offset: Where the log has to end, or nothing is appended.
        mirrored: They are another cluster's, and keep their offsets.
        topic_id: logdb's id of the topic that is meant; "": the one of that name; None: the id of the request is unknown.
    """

    where: TopicPartition
    records: memoryview
    expected_offset: int | None
    mirrored: bool
    topic_id: str | None


class Awaited(NamedTuple):
    """An append whose answer waits until its replicas have what lies below ``offset``; it keeps no memory of the request."""

    where: TopicPartition
    answer: Values
    leadership: Leadership
    offset: int


def is_named(door: KafkaResources, version: int, values: Values) -> bool:
    """Name the topics of a request that has their ids; False: look at the topics first."""
    return version < FIRST_OF_IDS or door.topics.name_at_once(values["topic_data"])


def appends_of(values: Values, version: int) -> Sequence[Append]:
    """What a request appends, in its order."""
    by_id = version >= FIRST_OF_IDS
    return [
        Append(
            TopicPartition(topic["name"], one["index"]),
            one["records"] or memoryview(b""),
            None if one["expected_offset"] == ANY_OFFSET else one["expected_offset"],
            one["mirrored"],
            (topic["logdb_topic_id"] or None) if by_id else "",
        )
        for topic in values["topic_data"]
        for one in topic["partition_data"]
    ]


def waits(door: DoorResources, transactional_id: str | None, appends: Sequence[Append], durability: Durability | None = None) -> bool:
    """Whether appends may wait for a disk, for a thread that is at a larger append, or for a coordinator; or are many."""
    if transactional_id is not None or len(appends) > ON_LOOP_COUNT_MAX:
        return True
    size_bytes = 0
    for one in appends:
        size_bytes += door.append_size(one.records)
    for one in appends:  # noqa: SIM110 -- of one append, a generator takes as long as the look
        if not door.appends_at_once(one.where, durability, size_bytes):
            return True
    return False


def durability_of(values: Values) -> Durability | None:
    """The level that the request names; None: the topic's."""
    named: Durability | None = values["durability"] or None
    return named


async def produce(call: Call) -> Values | None:
    """Append; all partitions in one thread, unless the request waits for nothing."""
    if not is_named(call.door, call.version, call.values):
        await call.call(call.door.topics.look)
        is_named(call.door, call.version, call.values)
    appends = appends_of(call.values, call.version)
    if not waits(call.door, call.values["transactional_id"], appends, durability_of(call.values)):
        return append_at_once(call, appends)
    awaited: list[Awaited] = []
    values = await call.append_in_thread([one.where for one in appends], append, call, appends, awaited)
    return _answer(call, values, awaited)


def append_at_once(call: Call, appends: Sequence[Append]) -> Values | None:
    """Append, on the loop."""
    awaited: list[Awaited] = []
    return _answer(call, call.door.append_on_loop(append, call, appends, awaited), awaited)


def append_again(
    door: DoorResources, session: AuthorizedSession, repeated: RepeatedProduce, records: memoryview
) -> tuple[int, int, int] | None:
    """Append one usual batch, on the loop: its base offset, its log append time, the log's start offset.

    Args:
        repeated: The request, which repeats the one before it.

    Returns:
        None: Nothing was done, since they are other batches, or may not be appended at once.

    Raises:
        errors of ``AuthorizedSession.append_at_once``.
    """
    codec = codec_of_usual(records)
    if codec < 0 or (codec == _ZSTD and repeated.version < _FIRST_OF_ZSTD):
        return None
    if not door.is_free(repeated.where, door.append_size(records) if codec else len(records)):
        return None
    appended = door.append_on_loop(session.append_at_once, repeated.asked, records, repeated.topic_id)
    if appended is None:
        return None
    base_offset, log = appended
    return base_offset, log.append_time_ms(base_offset), log.start_offset


def _answer(call: Call, values: Values | None, awaited: Sequence[Awaited]) -> Values | None:
    if awaited:
        call.replicated = partial(_replicated, call, awaited, call.values["timeout_ms"], detailed=call.values["detailed"])
    return values


async def _replicated(call: Call, awaited: Sequence[Awaited], timeout_ms: int, *, detailed: bool) -> None:
    """Wait until the replicas have what was appended; an answer for which they have it not is that error."""
    until = time.monotonic() + timeout_ms / 1000
    for one in awaited:
        try:
            await call.committed(one.leadership, one.offset, max(0, round((until - time.monotonic()) * 1000)))
        except LogdbError as error:
            one.answer.clear()
            one.answer.update(failed(call.session, one.where, error, detailed=detailed, by_id=call.version >= FIRST_OF_IDS))


def append(call: Call, appends: Sequence[Append], awaited: list[Awaited]) -> Values | None:
    """Append; each partition has an error of its own, and the order is that of the request.

    Args:
        awaited: On a cluster's node gets the appends whose answers are to wait for replicas.

    Raises:
        ConnectionError: An append failed whose client wants no answer: it learns of that by the end of its connection.
    """
    values = call.values
    if values["acks"] not in ACKS:
        answers = [_refused(one.where, Code.INVALID_REQUIRED_ACKS) for one in appends]
    elif values["durability"] not in ("", *DURABILITY_LEVELS):
        answers = [_refused(one.where, Code.INVALID_REQUEST) for one in appends]
    else:
        durability = durability_of(values)
        answers = [_append(call.session, one, values, durability, call.version, awaited) for one in appends]
    if values["acks"] == NO_ACKNOWLEDGEMENT:
        refused = next((one for one in answers if one["error_code"]), None)
        if refused is not None:
            raise unacknowledged(refused)
        return None
    left, topics = iter(answers), values["topic_data"]
    responses = [
        {"name": one["name"], "topic_id": one["topic_id"], "partition_responses": list(islice(left, len(one["partition_data"])))}
        for one in topics
    ]
    return {"responses": responses}


def unacknowledged(refused: Values) -> ConnectionAbortedError:
    """The error that ends the connection of a client that wants no answer."""
    return ConnectionAbortedError(f"Produce without acknowledgement failed: {Code(refused['error_code']).name}")


def _append(
    session: AuthorizedSession, one: Append, values: Values, durability: Durability | None, version: int, awaited: list[Awaited]
) -> Values:
    if one.topic_id is None:
        return _refused(one.where, Code.UNKNOWN_TOPIC_ID)
    codec = codec_of_usual(one.records)
    is_usual = codec >= 0 and (codec != _ZSTD or version >= _FIRST_OF_ZSTD) and version >= _FIRST_OF_V2 and one.expected_offset is None
    code = None if is_usual else _refusal(one, version, detailed=values["detailed"])
    try:
        if code is not None:
            session.authorize(Produce(*one.where, transactional_id=values["transactional_id"]))
            return _refused(one.where, code)
        of_all = values["acks"] == OF_ALL
        leadership = None if session.replication is None else session.leadership(*one.where, acknowledged_by_all=of_all)
        request = Produce(*one.where, durability, values["transactional_id"], one.expected_offset, one.mirrored)
        offsets, log = session.append(
            request,
            one.records,
            usual=is_usual,
            verify_only=version < _FIRST_OF_ADDING and not values["detailed"],
            topic_id=one.topic_id,
        )
        answer: Values
        if values["detailed"]:
            answer = {"index": one.where.partition, "error_code": Code.NONE, "base_offset": offsets.start, "next_offset": offsets.stop}
        else:
            log = log or session.appended_to(*one.where)
            answer = {
                "index": one.where.partition,
                "error_code": Code.NONE,
                "base_offset": offsets.start,
                "log_append_time_ms": log.append_time_ms(offsets.start),
                "log_start_offset": log.start_offset,
            }
        if leadership is not None and of_all:
            awaited.append(Awaited(one.where, answer, leadership, offsets.stop))
        return answer
    except Exception as error:  # noqa: BLE001 -- an error of ours is logged there; the other partitions, and the connection, go on
        return failed(session, one.where, error, detailed=values["detailed"], by_id=bool(one.topic_id))


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


def failed(session: AuthorizedSession, where: TopicPartition, error: Exception, *, detailed: bool = False, by_id: bool = False) -> Values:
    """The answer for an append that failed; an error of ours is logged.

    Of a fenced producer it does not say all: that learns it from its coordinator.  Where the coordinator of its transaction cannot be asked
    yet, it is told to try again as for too few replicas (KIP-890).
    """
    if not isinstance(error, LogdbError):
        logger.error("Produce to %s", where, exc_info=error)
        return _refused(where, Code.UNKNOWN_SERVER_ERROR)
    code = _CODES.get(type(error)) or topic_code_of(error, by_id=by_id)
    is_secret = by_id and isinstance(error, NotAuthorized)  # the message has the topic's name
    refused = _refused(where, code, None if is_secret else str(error)) | {"record_errors": _record_errors(error)}
    return refused | {"error": json.dumps(document(session.located(error))).encode()} if detailed else refused


def _record_errors(error: LogdbError) -> list[Values]:
    """The records of a batch that are at fault, if it can be appended without them (KIP-467)."""
    if not isinstance(error, InvalidBatch | InvalidTimestamp):
        return []
    return [{"batch_index": number, "batch_index_error_message": error.reason} for number in error.records]


def _refused(where: TopicPartition, code: Code, message: str | None = None) -> Values:
    return {"index": where.partition, "error_code": code, "base_offset": -1, "error_message": message}
