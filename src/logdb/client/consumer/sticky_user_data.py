"""What a member tells the leader under the assignor "sticky": what it had, and since when.

Knows the bytes.  Source: KIP-54, KIP-341; Kafka's StickyAssignorUserData.json (versions 0 and 1, which have no mark).
"""

from typing import NamedTuple

from logdb.codec.schema import INT32, STRING, Array, Field, Message, Struct
from logdb.errors import InvalidMessage
from logdb.model import Buffer, TopicPartition

_MESSAGE = Message(
    "StickyAssignorUserData",
    "0-1",
    "none",
    Field("partitions", Array(Struct(Field("topic", STRING), Field("partitions", Array(INT32))))),
    Field("generation", INT32, "1+", default=-1),
)


class StickyUserData(NamedTuple):
    """The partitions that a member had in a generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int = -1

    def encode(self) -> bytes:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            topics.setdefault(topic, []).append(partition)
        entries = [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
        return _MESSAGE.encode({"partitions": entries, "generation": self.generation}, 1)

    @staticmethod
    def decode(data: Buffer) -> "StickyUserData | None":
        """From a member's bytes; None where they are something else, which then counts as nothing."""
        for version in (1, 0):
            try:
                values, size_bytes = _MESSAGE.decode(data, version)
            except InvalidMessage:
                continue
            if size_bytes == len(data):
                partitions = (TopicPartition(entry["topic"], number) for entry in values["partitions"] for number in entry["partitions"])
                return StickyUserData(tuple(partitions), values["generation"])
        return None
