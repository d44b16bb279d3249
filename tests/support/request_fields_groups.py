"""Requests to coordinators of groups and of transactions, with the values of their fields that are wrong in turn.

A case has a group, a producer and a transactional id of its own, by its number.  ``PREPARED`` brings them into the state that the
request needs.
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType

from logdb.codec.batch import TRANSACTIONAL
from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch
from support.kafka_wire import Wire, produce
from support.request_fields_values import (
    BATCH,
    LIVE,
    LONG,
    MEMBER,
    MOST_32,
    MOST_64,
    NAMES,
    NOW,
    OTHER_IDS,
    PARTITION,
    PRODUCER,
    READERS,
    Bases,
    T,
    Values,
    Wrong,
    by_id,
    in_topic,
)
from support.waiting import until

# ---------------------------------------------------------------- the requests


def _join(number: int) -> Values:
    member = {"member_id": "", "group_instance_id": "me", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    return {"group_id": f"j{number}", **member, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"m"}]}


def _of_member(number: int) -> Values:
    return {"group_id": f"g{number}", "generation_id": 1, "member_id": MEMBER, "group_instance_id": "me"}


def _sync(number: int) -> Values:
    assignments = [{"member_id": MEMBER, "assignment": b"a"}]
    return {**_of_member(number), "protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}


def _leave(number: int) -> Values:
    return {"group_id": f"g{number}", "members": [{"member_id": MEMBER, "group_instance_id": "me", "reason": None}]}


_OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "m"}


def _commit(number: int) -> Values:
    return {"group_id": f"o{number}", "generation_id_or_member_epoch": -1, "member_id": "", **in_topic("t", dict(_OFFSET))}


def _commit_by_id(number: int) -> Values:
    return {**_commit(number), **by_id(T, dict(_OFFSET))}


def _of_producer(number: int) -> Values:
    return {"transactional_id": f"x{number}", "producer_id": PRODUCER, "producer_epoch": 0}


def _add_partitions(number: int) -> Values:
    return {**_of_producer(number), "topics": [{"name": "topic-marked", "partitions": [0]}]}


def _produce(number: int) -> Values:
    topic = in_topic("own", {"index": PARTITION, "records": BATCH}, "topic_data", partitions="partition_data")
    return {"transactional_id": f"x{number}", "acks": -1, "timeout_ms": 20_000, **topic}


def _commit_in_transaction(number: int) -> Values:
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    return {"group_id": f"g{number}", **_of_producer(number), **member, **in_topic("t", dict(_OFFSET))}


BASES: Bases = MappingProxyType(
    {
        "OffsetCommit": (8, _commit),
        "OffsetCommit by id": (10, _commit_by_id),
        "OffsetFetch": (
            8,
            lambda _: {"groups": [{"group_id": READERS, "topics": [{"name": "t", "partition_indexes": [0]}]}], "require_stable": False},
        ),
        "OffsetFetch by id": (
            10,
            lambda _: {"groups": [{"group_id": READERS, "topics": [{"topic_id": T, "partition_indexes": [0]}]}], "require_stable": False},
        ),
        "FindCoordinator": (4, lambda number: {"key_type": 0, "coordinator_keys": [f"f{number}"]}),
        "JoinGroup": (9, _join),
        "SyncGroup": (5, _sync),
        "Heartbeat": (4, _of_member),
        "LeaveGroup": (5, _leave),
        "DescribeGroups": (5, lambda _: {"groups": [LIVE], "include_authorized_operations": False}),
        "ListGroups": (5, lambda _: {"states_filter": [], "types_filter": []}),
        "OffsetDelete": (0, lambda number: {"group_id": f"o{number}", **in_topic("t", {"partition_index": 0})}),
        "DeleteGroups": (2, lambda number: {"groups_names": [f"o{number}"]}),
        "InitProducerId": (4, lambda number: {"transactional_id": f"i{number}", "transaction_timeout_ms": 60_000}),
        "AddPartitionsToTxn": (3, _add_partitions),
        "AddOffsetsToTxn": (4, lambda number: {**_of_producer(number), "group_id": f"g{number}"}),
        "Produce in a transaction": (12, _produce),
        "Produce in no transaction": (11, _produce),
        "TxnOffsetCommit": (5, _commit_in_transaction),
        "TxnOffsetCommit in no transaction": (4, _commit_in_transaction),
        "EndTxn": (5, lambda number: {**_of_producer(number), "committed": True}),
        "EndTxn before KIP-890": (4, lambda number: {**_of_producer(number), "committed": True}),
        "EndTxn of no transaction": (5, lambda number: {**_of_producer(number), "committed": True}),
        "DescribeTransactions": (0, lambda number: {"transactional_ids": [f"x{number}"]}),
        "ListTransactions": (1, lambda _: {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}),
        "DescribeProducers": (0, lambda number: {"topics": [{"name": f"topic-{number}", "partition_indexes": [0]}]}),
    }
)

# ---------------------------------------------------------------- the values

_MEMBERS = {
    "group_id": ("", "nobody"),
    "generation_id": (0, 2, -1),
    "member_id": ("", "nobody"),
    "group_instance_id": (None, "", "other"),
}
_PRODUCERS = {"transactional_id": ("", "nobody"), "producer_id": (5, -1), "producer_epoch": (1, -1)}
_OFFSETS = {
    "topics": ([],),
    "topics.name": NAMES,
    "topics.partitions": ([],),
    "topics.partitions.partition_index": (-1, 9999),
    "topics.partitions.committed_offset": (-1, -2, MOST_64),
    "topics.partitions.committed_leader_epoch": (9, -2),
    "topics.partitions.committed_metadata": (None, "x" * 4096, "x" * 4097),
}
WRONG: Wrong = MappingProxyType(
    {
        "OffsetCommit": {
            "group_id": ("",),
            "generation_id_or_member_epoch": (0, 5, -2),
            "member_id": ("nobody",),
            "group_instance_id": ("", "me"),
            **_OFFSETS,
        },
        "OffsetCommit by id": {
            "topics.topic_id": OTHER_IDS,
            "topics.partitions.partition_index": (-1, 9999),
            "group_id": ("",),
        },
        "OffsetFetch": {
            "groups": ([],),
            "groups.group_id": ("", "nobody"),
            "groups.topics": (None, []),
            "groups.topics.name": NAMES,
            "groups.topics.partition_indexes": ([], [-1], [9999], [0, 0]),
            "require_stable": (True,),
        },
        "OffsetFetch by id": {
            "groups.member_id": ("", "nobody"),
            "groups.member_epoch": (0, 5, -2),
            "groups.topics": (None, []),
            "groups.topics.topic_id": OTHER_IDS,
            "groups.topics.partition_indexes": ([9999],),
        },
        "FindCoordinator": {"key_type": (1, 2, 3, -1), "coordinator_keys": ([], [""], ["f", "f"])},
        "JoinGroup": {
            "group_id": ("",),
            "session_timeout_ms": (0, -1, 5999, 1_800_001),
            "rebalance_timeout_ms": (0, -1, -2),
            "member_id": ("nobody",),
            "group_instance_id": (None, "", "!", LONG),
            "protocol_type": ("", "connect"),
            "protocols": ([],),
            "protocols.name": ("",),
            "protocols.metadata": (b"",),
            "reason": ("r", LONG * 2),
        },
        "SyncGroup": {
            **_MEMBERS,
            "protocol_type": (None, "", "connect"),
            "protocol_name": (None, "", "other"),
            "assignments": ([],),
            "assignments.member_id": ("", "nobody"),
            "assignments.assignment": (b"",),
        },
        "Heartbeat": _MEMBERS,
        "LeaveGroup": {
            "group_id": ("", "nobody"),
            "members": ([],),
            "members.member_id": ("", "nobody"),
            "members.group_instance_id": (None, "", "other"),
            "members.reason": ("", "r", LONG * 2),
        },
        "DescribeGroups": {
            "groups": ([], [""], ["nobody"], [READERS], [LIVE, LIVE]),
            "include_authorized_operations": (True,),
        },
        "ListGroups": {
            "states_filter": (["Stable"], ["Empty"], ["stable"], ["nope"], [""]),
            "types_filter": (["classic"], ["Classic"], ["consumer"], ["nope"], [""]),
        },
        "OffsetDelete": {
            "group_id": ("", "nobody", LIVE),
            "topics": ([],),
            "topics.name": NAMES,
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (-1, 9999),
        },
        "DeleteGroups": {"groups_names": ([], [""], ["nobody"], ["nobody", "nobody"], [LIVE])},
        "InitProducerId": {
            "transactional_id": ("", None),
            "transaction_timeout_ms": (0, -1, 900_001, MOST_32),
            "producer_id": (5, -2),
            "producer_epoch": (5, -2),
        },
        "AddPartitionsToTxn": {
            **_PRODUCERS,
            "topics": ([],),
            "topics.name": (*NAMES, "__consumer_offsets"),
            "topics.partitions": ([], [-1], [9999], [0, 0], [0, 9999]),
        },
        "AddOffsetsToTxn": {**_PRODUCERS, "group_id": ("",)},
        "Produce in a transaction": {"transactional_id": (None, "", "nobody")},
        "Produce in no transaction": {},
        "TxnOffsetCommit": {
            **_PRODUCERS,
            "group_id": ("",),
            "generation_id": (0, 5),
            "member_id": ("nobody",),
            "group_instance_id": ("", "me"),
            **_OFFSETS,
        },
        "TxnOffsetCommit in no transaction": {},
        "EndTxn": {**_PRODUCERS, "committed": (False,)},
        "EndTxn before KIP-890": {**_PRODUCERS, "committed": (False,)},
        "EndTxn of no transaction": {"committed": (False,)},
        "DescribeTransactions": {"transactional_ids": ([], [""], ["nobody"], ["nobody", "nobody"])},
        "ListTransactions": {
            "state_filters": (["Ongoing"], ["Empty"], ["ongoing"], ["nope"], ["nope", "Ongoing"], [""]),
            "producer_id_filters": ([PRODUCER], [5], [-1]),
            "duration_filter": (MOST_64, -2),
        },
        "DescribeProducers": {
            "topics": ([],),
            "topics.name": NAMES,
            "topics.partition_indexes": ([], [-1], [9999], [0, 0]),
        },
    }
)

# ---------------------------------------------------------------- the states

_SUBSCRIPTION = struct.pack(">hih1si", 0, 1, 1, b"t", -1)  # version 0: the topic t, no data of the user


def _done(wire: Wire, api: str, version: int, values: Values) -> Values:
    """The answer of a request that succeeds in the end."""
    answer: Values = {}

    def succeeds() -> bool:
        answer.update(wire.ask(api, version, **values))
        return answer["error_code"] == Code.NONE

    until(succeeds, f"{api}: {answer}")
    return answer


def _joined(wire: Wire, number: int) -> Values:
    return {MEMBER: _done(wire, "JoinGroup", 9, {**_join(number), "group_id": f"g{number}"})["member_id"]}


def _synced(wire: Wire, number: int) -> Values:
    known = _joined(wire, number)
    _done(wire, "SyncGroup", 5, {**_sync(number), "member_id": known[MEMBER]})
    return known


def with_offset(wire: Wire, group_id: str, **member: object) -> None:
    """Let a group have an offset of ``t``; ``member``: who commits it, if the group has members."""
    values = {**_commit(0), "group_id": group_id, **member}
    until(lambda: wire.ask("OffsetCommit", 8, **values)["topics"][0]["partitions"][0]["error_code"] == Code.NONE)


def live_group(wire: Wire) -> None:
    """Let ``LIVE`` have one member, for as long as a member may be silent."""
    joining = {**_join(0), "group_id": LIVE, "session_timeout_ms": 1_800_000, "protocols": [{"name": "range", "metadata": _SUBSCRIPTION}]}
    member_id = _done(wire, "JoinGroup", 9, joining)["member_id"]
    assignments = [{"member_id": member_id, "assignment": b"a"}]
    _done(wire, "SyncGroup", 5, {**_sync(0), "group_id": LIVE, "member_id": member_id, "assignments": assignments})
    with_offset(wire, LIVE, generation_id_or_member_epoch=1, member_id=member_id)


def _empty_transaction(wire: Wire, number: int) -> Values:
    values = {"transactional_id": f"x{number}", "transaction_timeout_ms": 600_000}
    return {PRODUCER: _done(wire, "InitProducerId", 4, values)["producer_id"]}


def _ongoing_transaction(wire: Wire, number: int) -> Values:
    known = _empty_transaction(wire, number)
    values = {**_add_partitions(number), "producer_id": known[PRODUCER]}

    def is_added() -> bool:
        (topic,) = wire.ask("AddPartitionsToTxn", 3, **values)["results_by_topic"]
        return topic["results_by_partition"][0]["partition_error_code"] == Code.NONE

    until(is_added)
    return known


def _with_batch(wire: Wire, number: int) -> Values:
    known, attributes = _empty_transaction(wire, number), TRANSACTIONAL
    producer = {"producer_id": known[PRODUCER], "producer_epoch": 0, "base_sequence": 0}
    return {**known, BATCH: encode_batch([Rec(b"k", b"v")], base_timestamp=NOW, attributes=attributes, **producer)}


def _with_producer(wire: Wire, number: int) -> Values:
    producer_id = _done(wire, "InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})["producer_id"]
    batch = encode_batch([Rec(b"k", b"v")] * 2, base_timestamp=NOW, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    until(lambda: produce(wire, batch, topic=f"topic-{number}")["error_code"] == Code.NONE)
    return {PRODUCER: producer_id}


def _with_offset(wire: Wire, number: int) -> Values:
    with_offset(wire, f"o{number}")
    return {}


PREPARED: Mapping[str, Callable[[Wire, int], Values]] = MappingProxyType(
    {
        "SyncGroup": _joined,
        "Heartbeat": _synced,
        "LeaveGroup": _synced,
        "OffsetDelete": _with_offset,
        "DeleteGroups": _with_offset,
        "AddPartitionsToTxn": _empty_transaction,
        "AddOffsetsToTxn": _empty_transaction,
        "Produce in a transaction": _with_batch,
        "Produce in no transaction": _with_batch,
        "TxnOffsetCommit": _empty_transaction,
        "TxnOffsetCommit in no transaction": _empty_transaction,
        "EndTxn": _ongoing_transaction,
        "EndTxn before KIP-890": _ongoing_transaction,
        "EndTxn of no transaction": _empty_transaction,
        "DescribeTransactions": _ongoing_transaction,
        "ListTransactions": _ongoing_transaction,
        "DescribeProducers": _with_producer,
    }
)
"""By row: brings about the state, and returns what the broker has given, by the values that stand for it."""
