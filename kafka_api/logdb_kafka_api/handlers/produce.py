"""Produce: the batches of each partition go to the log as they came."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from logdb.access.session import AuthorizedSession
from logdb.codec.batch import CODEC_MASK, CRC_FROM, LOG_APPEND_TIME, attributes_at, check, codec_of_usual, first_batch, magic_at, size_at
from logdb.codec.messages import PRODUCE_REQUEST, PRODUCE_RESPONSE
from logdb.errors import (
    Closed,
    CoordinatorLoading,
    InvalidBatch,
    InvalidTimestamp,
    InvalidTransactionState,
    LogdbError,
    NotAuthorized,
    ProducerFenced,
)
from logdb.log.protocols import ReplicaLog
from logdb.model import DURABILITY_LEVELS, Buffer, TopicPartition
from logdb.requests.error_document import document
from logdb.requests.records import Produce
from logdb.serving.resources import ON_LOOP_COUNT_MAX, DoorResources
from logdb.store.protocols import Leadership
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, topic_code_of
from logdb_kafka_api.repeated import ACKS, ANY_OFFSET, NO_ACKNOWLEDGEMENT, OF_ALL, RepeatedProduce

logger = logging.getLogger(__name__)

_FIRST_OF_V2, FIRST_OF_ZSTD = 3, 7  # versions whose batches have magic 2, or may be compressed by zstd
_FIRST_OF_ABORTABLE = 11  # whose clients know TRANSACTION_ABORTABLE
_FIRST_OF_ADDING = 12  # whose clients leave it to Produce to add partitions to a transaction (KIP-890)
FIRST_OF_IDS = 13  # version that names topics by their ids
_ZSTD = 4  # the codec's number
_CODES: Mapping[type[LogdbError], Code] = {
    ProducerFenced: Code.INVALID_PRODUCER_EPOCH,
    CoordinatorLoading: Code.NOT_ENOUGH_REPLICAS,
    Closed: Code.NOT_LEADER_OR_FOLLOWER,
}
"""Of the codes that clients send the same batch again after: librdkafka takes a new producer epoch after others, as NETWORK_EXCEPTION."""


class Target(Protocol):
    """The partition that an append goes to: an ``Append``, or a request that repeats another."""

    @property
    def where(self) -> TopicPartition: ...

    @property
    def asked(self) -> Produce:
        """What the session is asked for."""

    @property
    def topic_id(self) -> str | None:
        """logdb's id of the topic that is meant; "": the one of that name; None: the id of the request is unknown."""


class Append(NamedTuple):
    """The batches for one partition; a ``Target``.

    Attributes:
        codec: The codec of one usual batch, see ``codec_of_usual``; -1: there is more to look at.
        log: The log that takes the batch as it is; None: it is not at hand.
    """

    where: TopicPartition
    asked: Produce
    records: memoryview
    codec: int
    topic_id: str | None
    log: ReplicaLog | None = None


class Awaited(NamedTuple):
    """An append whose answer waits until its replicas have what lies below ``offset``; it keeps no memory of the request."""

    where: TopicPartition
    answer: Values
    leadership: Leadership
    offset: int


def _is_named(call: Call) -> bool:
    """Name the topics of a request that has their ids; False: look at the topics first."""
    return call.version < FIRST_OF_IDS or call.door.topics.name_at_once(call.values["topic_data"])


def appends_of(values: Values, version: int) -> Sequence[Append]:
    """What a request appends, in its order."""
    by_id, durability, transactional_id = version >= FIRST_OF_IDS, values["durability"] or None, values["transactional_id"]
    appends = []
    for topic in values["topic_data"]:
        topic_id = (topic["logdb_topic_id"] or None) if by_id else ""
        for one in topic["partition_data"]:
            where, records = TopicPartition(topic["name"], one["index"]), one["records"] or memoryview(b"")
            expected_offset = None if one["expected_offset"] == ANY_OFFSET else one["expected_offset"]
            asked = Produce(*where, durability, transactional_id, expected_offset, one["mirrored"])
            codec = -1 if one["mirrored"] or expected_offset is not None else _codec(records, version)
            appends.append(Append(where, asked, records, codec, topic_id))
    return appends


def _codec(records: Buffer, version: int) -> int:
    """As ``codec_of_usual``; -1 also for what clients may not send in that version."""
    codec = codec_of_usual(records)
    return codec if version >= FIRST_OF_ZSTD or (version >= _FIRST_OF_V2 and codec != _ZSTD) else -1


def at_once(door: DoorResources, session: AuthorizedSession, appends: Sequence[Append]) -> Sequence[Append] | None:
    """The appends, with their logs, if all wait for nothing: no disk, no coordinator, no thread that is at a larger append.

    Returns:
        None: They may wait, or are many.
    """
    if len(appends) > ON_LOOP_COUNT_MAX:
        return None
    size_bytes, found = 0, []
    for one in appends:
        asked = one.asked
        if asked.transactional_id is not None:
            return None
        size_bytes += len(one.records) if not one.codec else door.append_size(one.records)
        if not door.is_free(one.where, size_bytes):
            return None
        log = session.usual_log(one.where, asked.durability, one.topic_id) if one.codec >= 0 and one.topic_id is not None else None
        if log is None and not door.access.appends_at_once(*one.where, asked.durability):
            return None
        found.append(one if log is None else one._replace(log=log))
    return found


def append_again(door: DoorResources, session: AuthorizedSession, repeated: RepeatedProduce, records: memoryview) -> Values | None:
    """Append the batch of a request that repeats another, on the loop: the answer for its partition; None: nothing was done, it may wait.

    On a node of a cluster it may always wait, for replicas.

    Raises:
        ConnectionError: as ``append``.
    """
    if session.replication is not None:
        return None
    version, where = repeated.header.version, repeated.where
    codec = codec_of_usual(records)
    if (
        codec < 0
        or (codec == _ZSTD and version < FIRST_OF_ZSTD)
        or not door.is_free(where, door.append_size(records) if codec else len(records))
    ):
        return None
    log = session.usual_log(where, repeated.asked.durability, repeated.topic_id)
    if log is None:
        return None
    answer = door.append_on_loop(_append, session, repeated, records, codec, log, repeated.values, version, [])
    if answer["error_code"] and repeated.values["acks"] == NO_ACKNOWLEDGEMENT:
        raise unacknowledged(answer)
    return answer


def produce_at_once(call: Call) -> tuple[Values | None] | None:
    """Append on the loop if that waits for nothing: the answer; None: nothing was done."""
    if not _is_named(call):
        return None
    appends = at_once(call.door, call.session, appends_of(call.values, call.version))
    if appends is None:
        return None
    awaited: list[Awaited] = []
    values = call.door.append_on_loop(append, call, appends, awaited)
    return (_answer(call, values, awaited),)


@answers(0, PRODUCE_REQUEST, PRODUCE_RESPONSE, at_once=produce_at_once)
async def produce(call: Call) -> Values | None:
    """Append; all partitions in one thread, unless the request waits for nothing."""
    if not _is_named(call):
        await call.call(call.door.topics.look)
        _is_named(call)
    if (answer := produce_at_once(call)) is not None:
        return answer[0]
    appends, awaited = appends_of(call.values, call.version), list[Awaited]()
    values = await call.append_in_thread([one.where for one in appends], append, call, appends, awaited)
    return _answer(call, values, awaited)


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
        answers = [_append(call.session, one, one.records, one.codec, one.log, values, call.version, awaited) for one in appends]
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
    session: AuthorizedSession,
    to: Target,
    records: memoryview,
    codec: int,
    log: ReplicaLog | None,
    values: Values,
    version: int,
    awaited: list[Awaited],
) -> Values:
    where, topic_id, detailed = to.where, to.topic_id, values["detailed"]
    if topic_id is None:
        return _refused(where, Code.UNKNOWN_TOPIC_ID)
    code = None if codec >= 0 else _refusal(to.asked, records, version, detailed=detailed)
    verify_only = version < _FIRST_OF_ADDING and not detailed
    try:
        if code is not None:
            session.authorize(Produce(*where, transactional_id=values["transactional_id"]))
            return _refused(where, code)
        of_all = values["acks"] == OF_ALL
        leadership = None
        if session.replication is not None:
            leadership = session.leadership(*where, acknowledged_by_all=of_all, first=partial(first_batch, records))
        if log is None and codec >= 0:
            log = session.usual_log(where, to.asked.durability, topic_id)
        offsets = session.append(to.asked, records, log=log, verify_only=verify_only, topic_id=topic_id)
        answer: Values
        if detailed:
            answer = {"index": where.partition, "error_code": Code.NONE, "base_offset": offsets.start, "next_offset": offsets.stop}
        else:
            log = log or session.appended_to(*where)
            answer = {
                "index": where.partition,
                "error_code": Code.NONE,
                "base_offset": offsets.start,
                "log_append_time_ms": log.append_time_ms(offsets.start),
                "log_start_offset": log.start_offset,
            }
        if leadership is not None and of_all:
            awaited.append(Awaited(where, answer, leadership, offsets.stop))
        return answer
    except Exception as error:  # noqa: BLE001 -- an error of ours is logged there; the other partitions, and the connection, go on
        refused = failed(session, where, error, detailed=detailed, by_id=bool(topic_id))
        if isinstance(error, InvalidTransactionState) and verify_only and values["transactional_id"] and version >= _FIRST_OF_ABORTABLE:
            refused["error_code"] = Code.TRANSACTION_ABORTABLE  # the client aborts; after INVALID_TXN_STATE it gives up its producer
        return refused


def _refusal(asked: Produce, records: memoryview, version: int, *, detailed: bool) -> Code | None:
    """Why the records are no batch that a client may send in that version, by its header; None: they are one, or are damaged.

    A ``detailed`` request may bring several batches, as one over HTTP.

    Source: Kafka's ``ProduceRequest.validateRecords`` and ``LogValidator.validateTimestamp``.
    """
    if asked.expected_offset is not None and asked.expected_offset < 0:
        return Code.INVALID_REQUEST
    if detailed:
        return None
    if version < _FIRST_OF_V2:
        return Code.UNSUPPORTED_VERSION
    if len(records) < CRC_FROM + 2 or magic_at(records, 0) != 2:
        return Code.INVALID_RECORD
    attributes = attributes_at(records, 0)
    if version < FIRST_OF_ZSTD and attributes & CODEC_MASK == _ZSTD:
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
