"""Subscriptions and assignments: the bytes inside JoinGroup and SyncGroup of the protocol type "consumer".

The coordinator passes these bytes on between members; of a subscription it reads only the topics.

Later versions only add fields at the end: newer bytes are read as the newest version known here, and their rest is skipped.

Source: Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json (versions 0 to 3).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from logdb.codec.schema import BYTES, INT32, STRING, Array, Field, Message, Struct
from logdb.errors import InvalidMessage
from logdb.model import Buffer, TopicPartition, by_topic

PROTOCOL_TYPE = "consumer"
VERSION = 3

_PARTITIONS = Array(Struct(Field("topic", STRING), Field("partitions", Array(INT32))))
_SUBSCRIPTION = Message(
    "ConsumerProtocolSubscription",
    "0-3",
    "none",
    Field("topics", Array(STRING)),
    Field("user_data", BYTES, nullable="0+", default=None),
    Field("owned_partitions", _PARTITIONS, "1+"),
    Field("generation", INT32, "2+", default=-1),
    Field("rack_id", STRING, "3+", nullable="3+", default=None),
)
_ASSIGNMENT = Message(
    "ConsumerProtocolAssignment",
    "0-3",
    "none",
    Field("partitions", _PARTITIONS),
    Field("user_data", BYTES, nullable="0+", default=None),
)


class Subscription(NamedTuple):
    """The topics that a member subscribes to, and the partitions that it owns since ``generation`` (-1: none)."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack_id: str | None = None

    def encode(self, version: int = VERSION) -> bytes:
        """As bytes, without the fields that ``version`` lacks."""
        values = self._asdict() | {"owned_partitions": _by_topic(self.owned_partitions)}
        return _encode(_SUBSCRIPTION, values, version)

    @staticmethod
    def decode(data: Buffer) -> "Subscription":
        """From a member's bytes.

        Raises:
            InvalidMessage: The bytes are not a subscription.
        """
        values = _decode(_SUBSCRIPTION, data)
        owned = _partitions(values.pop("owned_partitions"))
        return Subscription(**values | {"topics": tuple(values["topics"]), "owned_partitions": owned})


class Assignment(NamedTuple):
    """The partitions that a member reads."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None

    def encode(self, version: int = VERSION) -> bytes:
        """As bytes."""
        return _encode(_ASSIGNMENT, {"partitions": _by_topic(self.partitions), "user_data": self.user_data}, version)

    @staticmethod
    def decode(data: Buffer) -> "Assignment":
        """From the leader's bytes; zero bytes are an empty assignment.

        Raises:
            InvalidMessage: The bytes are not an assignment.
        """
        if not data:
            return Assignment(())
        values = _decode(_ASSIGNMENT, data)
        return Assignment(_partitions(values["partitions"]), values["user_data"])


def _encode(message: Message, values: dict[str, Any], version: int) -> bytes:
    return message.encode(values, version, prefix=version.to_bytes(2, "big"))


def _decode(message: Message, data: Buffer) -> dict[str, Any]:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise InvalidMessage(0, f"{message.name} has no version that can be: {bytes(data[:2]).hex() or 'no bytes'}")
    return message.decode(data, min(version, VERSION), 2)[0]


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()]


def _partitions(topics: list[dict[str, Any]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(entry["topic"], partition) for entry in topics for partition in entry["partitions"])
