"""Partitions get other replicas, and are led by their preferred leaders."""

from collections import Counter
from collections.abc import Iterable, Mapping

from logdb.errors import LogdbError
from logdb.model import TopicPartition, by_topic
from logdb.requests.nodes import PartitionState
from logdb.requests.replicas import ElectLeaders, Reassign, Reassignments
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.messages.replicas import (
    ALTER_PARTITION_REASSIGNMENTS_REQUEST,
    ALTER_PARTITION_REASSIGNMENTS_RESPONSE,
    ELECT_LEADERS_REQUEST,
    ELECT_LEADERS_RESPONSE,
    LIST_PARTITION_REASSIGNMENTS_REQUEST,
    LIST_PARTITION_REASSIGNMENTS_RESPONSE,
)

_PREFERRED, _UNCLEAN = 0, 1  # types of elections


def _outcome(error: LogdbError | None) -> Values:
    """What is told of a partition, or of a request."""
    return {"error_code": code_of(error) if error else Code.NONE, "error_message": str(error) if error else None}


def _invalid(message: str) -> Values:
    return {"error_code": Code.INVALID_REQUEST, "error_message": message}


# ---------------------------------------------------------------- leaders


@answers(43, ELECT_LEADERS_REQUEST, ELECT_LEADERS_RESPONSE)
async def elect_leaders(call: Call) -> Values:
    """Let partitions be led by their preferred leaders; of all, those that are led by them already are not in the answer."""
    asked, kind = call.values["topic_partitions"], call.values["election_type"]
    wanted = None if asked is None else _partitions(asked, "topic", "partitions")
    if kind not in (_PREFERRED, _UNCLEAN):
        return _not_elected(wanted, _invalid(f"election type {kind}: must be {_PREFERRED} (preferred) or {_UNCLEAN} (unclean)"))
    try:
        found = await call.call(call.session.submit, ElectLeaders(wanted, kind == _UNCLEAN, call.values["timeout_ms"]))
    except LogdbError as error:
        return _not_elected(wanted, _outcome(error))
    return {"error_code": Code.NONE, "replica_election_results": _elections({where: _outcome(error) for where, error in found.items()})}


def _not_elected(wanted: Iterable[TopicPartition] | None, outcome: Values) -> Values:
    """The answer to a request that is refused as a whole, which version 0 reads at each partition alone."""
    return {"error_code": outcome["error_code"], "replica_election_results": _elections(dict.fromkeys(wanted or (), outcome))}


def _elections(outcomes: Mapping[TopicPartition, Values]) -> list[Values]:
    return [
        {"topic": topic, "partition_result": [{"partition_id": one, **outcomes[TopicPartition(topic, one)]} for one in partitions]}
        for topic, partitions in by_topic(outcomes).items()
    ]


# ---------------------------------------------------------------- replicas


@answers(45, ALTER_PARTITION_REASSIGNMENTS_REQUEST, ALTER_PARTITION_REASSIGNMENTS_RESPONSE)
async def alter_partition_reassignments(call: Call) -> Values:
    """Let each partition have other replicas, null: those of before; answered while the new ones fetch."""
    may_change_count = call.values["allow_replication_factor_change"]
    asked = [
        (TopicPartition(topic["name"], one["partition_index"]), one["replicas"])
        for topic in call.values["topics"]
        for one in topic["partitions"]
    ]
    counts = Counter(where for where, _ in asked)
    targets = {where: None if nodes is None else tuple(nodes) for where, nodes in asked if counts[where] == 1}
    answer: Values = {"allow_replication_factor_change": may_change_count}
    try:
        found = await call.call(call.session.submit, Reassign(targets, may_change_count, call.values["timeout_ms"]))
    except LogdbError as error:
        return {**answer, **_outcome(error)}
    twice = dict.fromkeys(counts.keys() - found.keys(), _invalid("the partition is named twice"))
    return {**answer, **_outcome(None), "responses": _reassigned(twice | {where: _outcome(error) for where, error in found.items()})}


def _reassigned(outcomes: Mapping[TopicPartition, Values]) -> list[Values]:
    return [
        {"name": topic, "partitions": [{"partition_index": one, **outcomes[TopicPartition(topic, one)]} for one in partitions]}
        for topic, partitions in by_topic(outcomes).items()
    ]


@answers(46, LIST_PARTITION_REASSIGNMENTS_REQUEST, LIST_PARTITION_REASSIGNMENTS_RESPONSE)
async def list_partition_reassignments(call: Call) -> Values:
    """The partitions that are being reassigned, of those that are named, or of all.

    This broker's copy of the metadata answers, so that ``timeout_ms`` bounds nothing, as in Kafka.
    """
    asked = call.values["topics"]
    wanted = None if asked is None else _partitions(asked, "name", "partition_indexes")
    try:
        found = await call.call(call.session.submit, Reassignments(wanted))
    except LogdbError as error:
        return _outcome(error)
    topics = by_topic(found).items()
    return {
        **_outcome(None),
        "topics": [{"name": topic, "partitions": [_ongoing(found, topic, one) for one in partitions]} for topic, partitions in topics],
    }


def _ongoing(found: Mapping[TopicPartition, PartitionState], topic: str, partition: int) -> Values:
    state = found[TopicPartition(topic, partition)]
    return {
        "partition_index": partition,
        "replicas": state.replicas,
        "adding_replicas": state.adding,
        "removing_replicas": state.removing,
    }


def _partitions(asked: Iterable[Values], name: str, numbers: str) -> tuple[TopicPartition, ...]:
    """Each partition once, in the order of the request."""
    return tuple(dict.fromkeys(TopicPartition(topic[name], one) for topic in asked for one in topic[numbers]))
