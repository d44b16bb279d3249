"""Committed offsets of consumer groups."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from logdb.errors import GroupNotEmpty, LogdbError, OffsetMetadataTooLarge, UnstableOffsets
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb_kafka_api.call import Call, Values, each_once
from logdb_kafka_api.errors import Code, code_of, coordinator_code_of
from logdb_kafka_api.handlers.partitions import by_topic, checked

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_FIRST_OF_ERROR, _FIRST_OF_GROUPS = 2, 8  # versions of OffsetFetch
_NO_OFFSET = -1


def given(topics: Sequence[Values]) -> Offsets:
    """The offsets of OffsetCommit and of TxnOffsetCommit."""
    return {
        TopicPartition(topic["name"], one["partition_index"]): OffsetAndMetadata(
            one["committed_offset"], one["committed_leader_epoch"], one["committed_metadata"] or ""
        )
        for topic in topics
        for one in topic["partitions"]
    }


def told(topics: Sequence[Values], codes: Mapping[TopicPartition, Code]) -> Values:
    """The answer to either."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": one["partition_index"], "error_code": codes[TopicPartition(topic["name"], one["partition_index"])]}
                    for one in topic["partitions"]
                ],
            }
            for topic in topics
        ]
    }


async def offset_commit(call: Call) -> Values:
    return told(call.values["topics"], await _commit(call, given(call.values["topics"])))


async def _commit(call: Call, offsets: Offsets) -> dict[TopicPartition, Code]:
    """Commit offsets of the partitions that there are, that the principal may read, and whose metadata are not too large."""
    codes, offsets, committed = await call.call(_begin_commit, call, offsets)
    try:
        await call.outcome(committed)
    except OffsetMetadataTooLarge as error:  # none is committed: the others once more
        codes |= dict.fromkeys(offsets, code_of(error)) | await _commit(call, without(offsets, error))
    except LogdbError as error:
        codes |= dict.fromkeys(offsets, coordinator_code_of(error))
    return codes


def without(offsets: Offsets, error: OffsetMetadataTooLarge) -> Offsets:
    """The offsets whose metadata are not too large."""
    return {partition: offset for partition, offset in offsets.items() if partition not in error.partitions}


def _begin_commit(call: Call, offsets: Offsets) -> "tuple[dict[TopicPartition, Code], Offsets, Future[None]]":
    """The codes of partitions, the offsets that are committed of the others, and what that comes to."""
    values, committed = call.values, Future[None]()
    codes = dict.fromkeys(offsets, Code.NONE)
    try:
        call.session.need("Read", "Group", values["group_id"])
        codes = checked(call.session, "Read", offsets)
        offsets = {partition: offset for partition, offset in offsets.items() if not codes[partition]}
        committed = call.session.commit_offsets(
            values["group_id"],
            offsets,
            member_id=values["member_id"],
            generation=values["generation_id_or_member_epoch"],
            group_instance_id=values["group_instance_id"],
        )
    except LogdbError as error:
        committed.set_exception(error)
    return codes, offsets, committed


# ---------------------------------------------------------------- reading


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
    group_id, topics = asked["group_id"], asked["topics"]
    named = [TopicPartition(topic["name"], one) for topic in topics or () for one in topic["partition_indexes"]]
    wanted = None if topics is None else by_topic(named)
    answer = {"group_id": group_id, "error_code": Code.NONE}
    try:
        call.session.need("Describe", "Group", group_id)
        codes = {} if wanted is None else {name: _code(call, name) for name in wanted}
        partitions = None if wanted is None else [one for one in named if not codes[one.topic]]
        try:
            offsets = call.session.fetch_offsets(group_id, partitions, require_stable=call.values["require_stable"])
            code = Code.NONE
        except UnstableOffsets:
            offsets, code = call.session.fetch_offsets(group_id, partitions), Code.UNSTABLE_OFFSET_COMMIT
    except LogdbError as error:
        return {**answer, "error_code": coordinator_code_of(error), "topics": []}
    return {
        **answer,
        "topics": [
            {
                "name": name,
                "partitions": [_offset(one, offsets.get(TopicPartition(name, one)), codes.get(name) or code) for one in partitions],
            }
            for name, partitions in (by_topic(offsets) if wanted is None else wanted).items()
        ],
    }


def _code(call: Call, topic: str) -> Code:
    """Whether the principal may know of a topic; one that there is not has no offsets."""
    try:
        call.session.need("Describe", "Topic", topic)
    except LogdbError as error:
        return coordinator_code_of(error)
    return Code.NONE


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
    return [{"name": one["name"], "partitions": [_offset(at, None, code) for at in one["partition_indexes"]]} for one in topics]


# ---------------------------------------------------------------- deleting


async def offset_delete(call: Call) -> Values:
    """Delete offsets topic by topic; those of a topic that a member subscribes to stay."""
    group_id, topics = call.values["group_id"], call.values["topics"]
    try:
        await call.call(call.session.delete_offsets, group_id, ())
    except LogdbError as error:
        return {"error_code": coordinator_code_of(error)}
    asked = [TopicPartition(topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"]]
    codes = await call.call(checked, call.session, "Read", asked)
    for name, partitions in by_topic(one for one in asked if not codes[one]).items():
        there = [TopicPartition(name, partition) for partition in partitions]
        try:
            await call.call(call.session.delete_offsets, group_id, there)
        except GroupNotEmpty:
            codes |= dict.fromkeys(there, Code.GROUP_SUBSCRIBED_TO_TOPIC)
        except LogdbError as error:
            codes |= dict.fromkeys(there, coordinator_code_of(error))
    return {"error_code": Code.NONE, **told(topics, codes)}
