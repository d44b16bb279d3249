"""Committed offsets of consumer groups."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from logdb.errors import GroupNotEmpty, LogdbError, OffsetMetadataTooLarge, UnstableOffsets, without_frames
from logdb.model import OffsetAndMetadata, TopicPartition, by_topic
from logdb.requests.groups import CommitOffsets, DeleteOffsets, FetchOffsets
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values, each_once
from logdb_kafka_api.errors import Code, code_of, coordinator_code_of
from logdb_kafka_api.handlers.partitions import possible
from logdb_kafka_api.messages.group_offsets import (
    OFFSET_COMMIT_REQUEST,
    OFFSET_COMMIT_RESPONSE,
    OFFSET_DELETE_REQUEST,
    OFFSET_DELETE_RESPONSE,
    OFFSET_FETCH_REQUEST,
    OFFSET_FETCH_RESPONSE,
)
from logdb_kafka_api.topic_ids import NO_ID

_FIRST_OF_ERROR, _FIRST_OF_GROUPS = 2, 8  # versions of OffsetFetch
_FIRST_OF_IDS = 10  # version of OffsetCommit and OffsetFetch that names topics by their ids
_NO_OFFSET = -1
_ASK_AGAIN = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)


def given(topics: Sequence[Values]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of OffsetCommit and of TxnOffsetCommit; without those of unknown ids."""
    return {
        TopicPartition(topic["name"], one["partition_index"]): OffsetAndMetadata(
            one["committed_offset"], one["committed_leader_epoch"], one["committed_metadata"] or ""
        )
        for topic in topics
        if not _is_unknown(topic)
        for one in topic["partitions"]
    }


def _is_unknown(topic: Values) -> bool:
    """Whether a request names a topic by an id that no topic has."""
    return topic.get("logdb_topic_id") == ""


def told(topics: Sequence[Values], codes: Mapping[TopicPartition, Code]) -> Values:
    """The answer to either; ``codes``: of partitions whose offsets were not committed."""

    def code(topic: Values, partition: int) -> Code:
        return Code.UNKNOWN_TOPIC_ID if _is_unknown(topic) else codes.get(TopicPartition(topic["name"], partition), Code.NONE)

    return {
        "topics": [
            {
                "name": topic["name"],
                "topic_id": topic.get("topic_id", NO_ID),
                "partitions": [
                    {"partition_index": one["partition_index"], "error_code": code(topic, one["partition_index"])}
                    for one in topic["partitions"]
                ],
            }
            for topic in topics
        ]
    }


@answers(8, OFFSET_COMMIT_REQUEST, OFFSET_COMMIT_RESPONSE)
async def offset_commit(call: Call) -> Values:
    """Commit offsets of the partitions that there are, that the principal may read, and whose metadata are not too large."""
    values = call.values
    member = (values["member_id"], values["generation_id_or_member_epoch"], values["group_instance_id"])
    topic_ids: dict[str, str] = {}
    if call.version >= _FIRST_OF_IDS:
        await call.call(call.door.topics.name, values["topics"])
        topic_ids = {topic["name"]: topic["logdb_topic_id"] for topic in values["topics"]}
    request = CommitOffsets(values["group_id"], await call.aside(given, values["topics"]), *member, topic_ids)
    return await call.aside(told, values["topics"], await _commit(call, request))


async def _commit(call: Call, request: CommitOffsets) -> dict[TopicPartition, Code]:
    """Commit the offsets of a request; the codes of partitions whose offsets were not committed."""
    request, codes, committed = await call.call(_begin_commit, call, request)
    try:
        await call.outcome(committed)
    except OffsetMetadataTooLarge as error:  # none is committed: the others once more
        refused = too_large(request.offsets, error)
        codes |= refused | await _commit(call, request.without(refused))
    except LogdbError as error:
        codes |= dict.fromkeys(request.offsets, coordinator_code_of(error))
    finally:
        del committed  # it has the error, whose traceback has this frame
    return codes


def too_large(offsets: Iterable[TopicPartition], error: OffsetMetadataTooLarge) -> dict[TopicPartition, Code]:
    """The codes of partitions whose metadata are too large."""
    return {one: code_of(error) for one in offsets if one in error.partitions}


def _begin_commit(call: Call, request: CommitOffsets) -> "tuple[CommitOffsets, dict[TopicPartition, Code], Future[None]]":
    """The request for the partitions whose offsets are committed, the codes of the others, and what becomes of it."""
    codes, committed = dict[TopicPartition, Code](), Future[None]()
    try:
        request, codes = possible(call.session, request)
        committed = call.session.submit(request)
    except LogdbError as error:
        committed.set_exception(without_frames(error))
    return request, codes, committed


# ---------------------------------------------------------------- reading


@answers(9, OFFSET_FETCH_REQUEST, OFFSET_FETCH_RESPONSE)
async def offset_fetch(call: Call) -> Values:
    """The offsets of one group, or from version 8 on of several."""
    values = call.values
    if call.version >= _FIRST_OF_GROUPS:
        return {"groups": await call.call(lambda: [_fetched(call, one) for one in each_once(values["groups"], "group_id")])}
    found = await call.call(_fetched, call, values)
    if found["error_code"] and call.version < _FIRST_OF_ERROR:
        return {"topics": _each(values["topics"], found["error_code"])}
    return found


def _fetched(call: Call, asked: Values) -> Values:
    """The offsets of one group; all of them if no topics are named."""
    group_id, topics, by_id = asked["group_id"], asked["topics"], call.version >= _FIRST_OF_IDS
    if by_id:
        call.door.topics.name(topics or ())
    unknown = [topic for topic in topics or () if _is_unknown(topic)]
    named = [TopicPartition(topic["name"], one) for topic in topics or () if not _is_unknown(topic) for one in topic["partition_indexes"]]
    answer = {"group_id": group_id, "error_code": Code.NONE}
    request = FetchOffsets(group_id, None if topics is None else tuple(named), call.values["require_stable"])
    try:
        request, refused = call.session.permitted(request)
        try:
            offsets, code = call.session.submit(request), Code.NONE
        except UnstableOffsets:
            offsets, code = call.session.fetch_offsets(group_id, request.partitions), Code.UNSTABLE_OFFSET_COMMIT
    except LogdbError as error:
        return _refused(call, asked, coordinator_code_of(error))
    codes = {one: coordinator_code_of(error) for one, error in refused.items()}

    def found(partition: TopicPartition) -> Values:
        return _offset(partition.partition, offsets.get(partition), codes.get(partition, code))

    by_name = by_topic(offsets if topics is None else named)
    ids = {topic["name"]: topic["topic_id"] for topic in topics or ()} if by_id else {}
    if by_id and topics is None:
        ids = {name: call.door.topics.of(name) for name in by_name}
    return {
        **answer,
        "topics": [
            *_each(unknown, Code.UNKNOWN_TOPIC_ID),
            *(
                {"name": name, "topic_id": ids.get(name), "partitions": [found(TopicPartition(name, one)) for one in partitions]}
                for name, partitions in by_name.items()
                if not by_id or ids[name] != NO_ID
            ),
        ],
    }


def _refused(call: Call, asked: Values, code: Code) -> Values:
    """The answer of a node that does not coordinate the group, or may not tell its offsets.

    Kafka's names no partitions.  librdkafka then never asks again, and its consumer reads nothing; what it takes for unstable it asks
    for again.  Other clients look at the code of the group first.

    Source: librdkafka's issue 5586.
    """
    repeated = _each(asked["topics"] or (), Code.UNSTABLE_OFFSET_COMMIT) if code in _ASK_AGAIN and call.version >= _FIRST_OF_GROUPS else []
    return {"group_id": asked["group_id"], "error_code": code, "topics": repeated}


def _offset(partition: int, committed: OffsetAndMetadata | None, code: Code) -> Values:
    offset, leader_epoch, metadata = committed or OffsetAndMetadata(_NO_OFFSET)
    if code:
        offset, leader_epoch, metadata = OffsetAndMetadata(_NO_OFFSET)
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": leader_epoch,
        "metadata": metadata,
        "error_code": code,
    }


def _each(topics: Sequence[Values], code: Code) -> list[Values]:
    return [
        {
            "name": one["name"],
            "topic_id": one.get("topic_id"),
            "partitions": [_offset(at, None, code) for at in one["partition_indexes"]],
        }
        for one in topics
    ]


# ---------------------------------------------------------------- deleting


@answers(47, OFFSET_DELETE_REQUEST, OFFSET_DELETE_RESPONSE)
async def offset_delete(call: Call) -> Values:
    """Delete offsets topic by topic; those of a topic that a member subscribes to stay."""
    group_id, topics = call.values["group_id"], call.values["topics"]
    if not group_id:
        return {"error_code": Code.INVALID_GROUP_ID}
    asked = (TopicPartition(topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"])
    request = DeleteOffsets(group_id, tuple(asked))
    try:
        await call.call(call.session.delete_offsets, group_id, ())
        request, codes = await call.call(possible, call.session, request)
    except LogdbError as error:
        return {"error_code": coordinator_code_of(error)}
    for name, partitions in by_topic(request.partitions).items():
        there = [TopicPartition(name, partition) for partition in partitions]
        try:
            await call.call(call.session.delete_offsets, group_id, there)
        except GroupNotEmpty:
            codes |= dict.fromkeys(there, Code.GROUP_SUBSCRIBED_TO_TOPIC)
        except LogdbError as error:
            codes |= dict.fromkeys(there, coordinator_code_of(error))
    return {"error_code": Code.NONE, **told(topics, codes)}
