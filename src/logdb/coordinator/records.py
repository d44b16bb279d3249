"""The records of ``__consumer_offsets`` and ``__transaction_state``, byte for byte Kafka's.

All versions of keys and values that Kafka reads are read; those that Kafka 4 writes are written.

Keys and values begin with their version as an int16.  In ``__consumer_offsets`` it also tells the kinds apart: 0 and 1 are a
committed offset, 2 is a group.  Kinds that logdb does not write (Kafka's newer group protocols) are skipped.

Source: Kafka's OffsetCommitKey/Value, GroupMetadataKey/Value, TransactionLogKey/Value.json; KIP-915 for versions to come.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from logdb.codec.schema import BYTES, INT8, INT16, INT32, INT64, STRING, Array, Field, Message, Struct
from logdb.errors import InvalidMessage
from logdb.model import TopicPartition, by_topic

_OFFSET_KEY = Message("OffsetCommitKey", "0-1", "none", Field("group", STRING), Field("topic", STRING), Field("partition", INT32))
_OFFSET_VALUE = Message(
    "OffsetCommitValue",
    "0-4",
    "4+",
    Field("offset", INT64),
    Field("leader_epoch", INT32, "3+", default=-1),
    Field("metadata", STRING),
    Field("commit_timestamp_ms", INT64),
    Field("expire_timestamp_ms", INT64, "1", default=-1),
)
_GROUP_KEY = Message("GroupMetadataKey", "2", "none", Field("group", STRING))
_MEMBER = Struct(
    Field("member_id", STRING),
    Field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("rebalance_timeout_ms", INT32, "1+", default=-1),
    Field("session_timeout_ms", INT32),
    Field("subscription", BYTES),
    Field("assignment", BYTES),
)
_GROUP_VALUE = Message(
    "GroupMetadataValue",
    "0-4",
    "4+",
    Field("protocol_type", STRING),
    Field("generation", INT32),
    Field("protocol", STRING, nullable="0+"),
    Field("leader", STRING, nullable="0+"),
    Field("state_timestamp_ms", INT64, "2+", default=-1),
    Field("members", Array(_MEMBER)),
)
_TRANSACTION_KEY = Message("TransactionLogKey", "0", "none", Field("transactional_id", STRING))
_TRANSACTION_VALUE = Message(
    "TransactionLogValue",
    "0-1",
    "1+",
    Field("producer_id", INT64),
    Field("previous_producer_id", INT64, "1+", default=-1, tag=0),
    Field("next_producer_id", INT64, "1+", default=-1, tag=1),
    Field("producer_epoch", INT16),
    Field("timeout_ms", INT32),
    Field("status", INT8),
    Field("partitions", Array(Struct(Field("topic", STRING), Field("partitions", Array(INT32)))), nullable="0+"),
    Field("update_timestamp_ms", INT64),
    Field("start_timestamp_ms", INT64),
    Field("client_version", INT16, "1+", tag=2),
)


class OffsetKey(NamedTuple):
    """The group and partition of a committed offset."""

    group_id: str
    partition: TopicPartition


class OffsetValue(NamedTuple):
    """A committed offset; times in ms since 1970; ``expire_timestamp_ms`` (-1: by the broker's rule) was set by old clients."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1


class GroupKey(NamedTuple):
    """The group of a record."""

    group_id: str


class MemberValue(NamedTuple):
    """A member of a generation; ``subscription`` is that for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A generation of a group; without members the group is empty, and ``protocol`` and ``leader`` are None."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


class TransactionValue(NamedTuple):
    """A transactional id; ``status`` is the number of its state, ``client_version`` 2 if each transaction has its epoch."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: frozenset[TopicPartition]
    update_timestamp_ms: int
    start_timestamp_ms: int
    client_version: int


@lru_cache(maxsize=4096)
def partition_of(name: str, partition_count: int) -> int:
    """The partition of the internal topic that keeps a group, or a transactional id: Java's hashCode, as in Kafka."""
    code = 0
    data = name.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    code = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if code == -(1 << 31) else abs(code)) % partition_count


# ---------------------------------------------------------------- __consumer_offsets


@lru_cache(maxsize=4096)
def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    return _OFFSET_KEY.encode({"group": group_id, "topic": partition.topic, "partition": partition.partition}, 1, prefix=b"\0\1")


def offset_value(value: OffsetValue) -> bytes:
    """Version 3, or 1 with an expiry time of its own (which later versions lack)."""
    version = 3 if value.expire_timestamp_ms < 0 else 1
    return _OFFSET_VALUE.encode(value._asdict(), version, prefix=bytes((0, version)))


def group_key(group_id: str) -> bytes:
    return _GROUP_KEY.encode({"group": group_id}, 2, prefix=b"\0\2")


def group_value(value: GroupValue) -> bytes:
    members = [member._asdict() for member in value.members]
    return _GROUP_VALUE.encode(value._asdict() | {"members": members}, 3, prefix=b"\0\3")


def parse_group_key(key: bytes) -> OffsetKey | GroupKey | None:
    """The key of a record of ``__consumer_offsets``; None for kinds that are skipped.

    Raises:
        InvalidMessage: The bytes contradict their version.
    """
    version = _version(key)
    if version in _OFFSET_KEY.versions:
        values, _ = _OFFSET_KEY.decode(key, version, 2)
        return OffsetKey(values["group"], TopicPartition(values["topic"], values["partition"]))
    if version in _GROUP_KEY.versions:
        return GroupKey(_GROUP_KEY.decode(key, version, 2)[0]["group"])
    return None


def parse_offset_value(value: bytes) -> OffsetValue:
    """Raises: InvalidMessage."""
    return OffsetValue(**_OFFSET_VALUE.decode(value, _version(value), 2)[0])


def parse_group_value(value: bytes) -> GroupValue:
    """Raises: InvalidMessage."""
    values, _ = _GROUP_VALUE.decode(value, _version(value), 2)
    return GroupValue(**values | {"members": tuple(MemberValue(**member) for member in values["members"])})


# ---------------------------------------------------------------- __transaction_state


@lru_cache(maxsize=4096)
def transaction_key(transactional_id: str) -> bytes:
    return _TRANSACTION_KEY.encode({"transactional_id": transactional_id}, 0, prefix=b"\0\0")


def transaction_value(value: TransactionValue) -> bytes:
    """Version 1, partitions in order; null in the state Empty (0), as Kafka has it."""
    partitions = _by_topic(value.partitions) if value.status else None
    return _TRANSACTION_VALUE.encode(value._asdict() | {"partitions": partitions}, 1, prefix=b"\0\1")


@lru_cache(maxsize=1024)
def _by_topic(partitions: frozenset[TopicPartition]) -> list[dict[str, Any]]:
    """The transactions of an application have the same partitions again and again."""
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic(sorted(partitions)).items()]


def parse_transaction_key(key: bytes) -> str | None:
    """The transactional id of a record of ``__transaction_state``; None for kinds that are skipped.

    Raises:
        InvalidMessage: The bytes contradict their version.
    """
    version = _version(key)
    if version not in _TRANSACTION_KEY.versions:
        return None
    return str(_TRANSACTION_KEY.decode(key, version, 2)[0]["transactional_id"])


def parse_transaction_value(value: bytes) -> TransactionValue:
    """Raises: InvalidMessage."""
    values, _ = _TRANSACTION_VALUE.decode(value, _version(value), 2)
    return TransactionValue(**values | {"partitions": frozenset(_flat(values["partitions"] or ()))})


def _flat(topics: Iterable[Mapping[str, Any]]) -> Iterable[TopicPartition]:
    return (TopicPartition(entry["topic"], partition) for entry in topics for partition in entry["partitions"])


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise InvalidMessage(0, f"{len(data)} bytes have no room for a version")
    return int.from_bytes(data[:2], "big", signed=True)
