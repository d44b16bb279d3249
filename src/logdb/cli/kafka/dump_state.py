"""What kafka-dump-log makes of the records of ``__consumer_offsets`` and ``__transaction_state``: JSON, under Kafka's names of fields."""

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from logdb.cli.terminal.output import json_text
from logdb.coordinator import records
from logdb.coordinator.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription
from logdb.coordinator.records import GroupValue, MemberValue, OffsetKey
from logdb.errors import InvalidMessage
from logdb.model import TopicPartition, by_topic

Text = tuple[str | None, str | None]
_ABSENT = -1


class _Field(NamedTuple):
    """A field of a document: the attribute it comes from, and the versions that have it; ``optional``: only where it is set."""

    attribute: str
    first: int = 0
    last: int = 99
    optional: bool = False


_OFFSET = {
    "offset": _Field("offset"),
    "leaderEpoch": _Field("leader_epoch", 3),
    "metadata": _Field("metadata"),
    "commitTimestamp": _Field("commit_timestamp_ms"),
    "expireTimestamp": _Field("expire_timestamp_ms", 1, 1),
}
_GROUP = {
    "protocolType": _Field("protocol_type"),
    "generation": _Field("generation"),
    "protocol": _Field("protocol"),
    "leader": _Field("leader"),
    "currentStateTimestamp": _Field("state_timestamp_ms", 2),
    "members": _Field("members"),
}
_MEMBER = {
    "memberId": _Field("member_id"),
    "groupInstanceId": _Field("group_instance_id", 3),
    "clientId": _Field("client_id"),
    "clientHost": _Field("client_host"),
    "rebalanceTimeout": _Field("rebalance_timeout_ms", 1),
    "sessionTimeout": _Field("session_timeout_ms"),
    "subscription": _Field("subscription"),
    "assignment": _Field("assignment"),
}
_TRANSACTION = {
    "producerId": _Field("producer_id"),
    "previousProducerId": _Field("previous_producer_id", 1, optional=True),
    "nextProducerId": _Field("next_producer_id", 1, optional=True),
    "producerEpoch": _Field("producer_epoch"),
    "transactionTimeoutMs": _Field("timeout_ms"),
    "transactionStatus": _Field("status"),
    "transactionPartitions": _Field("partitions"),
    "transactionLastUpdateTimestampMs": _Field("update_timestamp_ms"),
    "transactionStartTimestampMs": _Field("start_timestamp_ms"),
    "clientTransactionVersion": _Field("client_version", 1, optional=True),
}


def offsets(key: bytes, value: bytes | None) -> Text:
    """A record of ``__consumer_offsets``; None for a kind that logdb does not know.  Raises InvalidMessage."""
    found = records.parse_group_key(key)
    if found is None:
        return None, None
    if isinstance(found, OffsetKey):
        group, (topic, partition) = found
        named = _text(key, {"group": group, "topic": topic, "partition": partition}, "type")
        return named, _told(value, lambda data: _document(_OFFSET, records.parse_offset_value(data), data))
    return _text(key, {"group": found.group_id}, "type"), _told(value, _group)


def transactions(key: bytes, value: bytes | None) -> Text:
    """A record of ``__transaction_state``; None for a kind that logdb does not know.  Raises InvalidMessage."""
    name = records.parse_transaction_key(key)
    if name is None:
        return None, None
    return _text(key, {"transactionalId": name}, "type"), _told(value, _transaction)


def _transaction(data: bytes) -> dict[str, Any]:
    found = records.parse_transaction_value(data)
    partitions = _by_topic(found.partitions, "partitionIds") if found.status else None
    return _document(_TRANSACTION, found, data) | {"transactionPartitions": partitions}


DECODERS: Mapping[str, Callable[[bytes, bytes | None], Text]] = {"offsets": offsets, "transactions": transactions}


def _text(data: bytes, document: Mapping[str, Any], version: str = "version") -> str:
    number = str(int.from_bytes(data[:2], "big"))
    return json_text({version: number, "data": document}, compact=True)


def _told(value: bytes | None, parse: Callable[[bytes], Mapping[str, Any]]) -> str:
    return "<DELETE>" if value is None else _text(value, parse(value))


def _document(fields: Mapping[str, _Field], of: object, data: bytes) -> dict[str, Any]:
    version = int.from_bytes(data[:2], "big")
    known = {name: (field, getattr(of, field.attribute)) for name, field in fields.items() if field.first <= version <= field.last}
    return {name: value for name, (field, value) in known.items() if not (field.optional and value in {_ABSENT, 0})}


def _group(data: bytes) -> dict[str, Any]:
    found: GroupValue = records.parse_group_value(data)
    parse = _consumer if found.protocol_type == PROTOCOL_TYPE else _opaque
    members = [_document(_MEMBER, member, data) | parse(member) for member in found.members]
    return _document(_GROUP, found, data) | {"members": members}


def _opaque(member: MemberValue) -> dict[str, Any]:
    return {"subscription": _encoded(member.subscription), "assignment": _encoded(member.assignment)}


def _consumer(member: MemberValue) -> dict[str, Any]:
    """Of a consumer Kafka shows what its bytes say."""
    try:
        told, given = Subscription.decode(member.subscription), Assignment.decode(member.assignment)
    except InvalidMessage:
        return _opaque(member)
    subscription = {
        "topics": list(told.topics),
        "userData": _encoded(told.user_data),
        "ownedPartitions": _by_topic(told.owned_partitions, "partitions"),
        "generationId": told.generation,
        "rackId": told.rack_id,
    }
    assignment = {"assignedPartitions": _by_topic(given.partitions, "partitions"), "userData": _encoded(given.user_data)}
    return {"subscription": subscription, "assignment": assignment}


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _by_topic(partitions: Iterable[TopicPartition], name: str) -> list[dict[str, Any]]:
    return [{"topic": topic, name: numbers} for topic, numbers in by_topic(sorted(partitions)).items()]
