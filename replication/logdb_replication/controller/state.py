"""The metadata of a cluster as one value: what each controller and each broker has of it at some index.

A change makes a new ``ClusterState``, which shares what is the same with the one before: ``is`` tells whether a topic has changed.
A value never changes, nor does a mapping in it.
"""

from typing import Annotated

import msgspec

from logdb.model import ConfigValue
from logdb.requests.nodes import PartitionState

NODE_ID_MAX = 2**31 - 1
NodeId = Annotated[int, msgspec.Meta(ge=1, le=NODE_ID_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=255)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Addresses = Annotated[dict[Text, tuple[Text, Port]], msgspec.Meta(max_length=16)]
"""Host and port by the name of the door: ``http``, ``kafka``."""


class BrokerState(msgspec.Struct, frozen=True):
    """One broker.

    Attributes:
        incarnation: Drawn by its process; another one registers anew.
        epoch: Of its registration: grows from one to the next, over all brokers.
        fenced: It leads nothing, and is in no in-sync set but one that it is the last member of.
        draining: It gets no leadership that another can have.
        directory_id: Of the directory that its replicas are in.
    """

    node_id: int
    incarnation: str
    epoch: int
    addresses: dict[str, tuple[str, int]]
    rack: str = ""
    fenced: bool = True
    draining: bool = False
    directory_id: str = ""


class TopicState(msgspec.Struct, frozen=True):
    """One topic; ``config`` has what was set."""

    name: str
    topic_id: str
    config: dict[str, ConfigValue]
    partitions: tuple[PartitionState, ...]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


class ClusterState(msgspec.Struct, frozen=True):
    """All of it.

    Attributes:
        index: Of the last command that was applied.
        brokers: By node id; fenced ones too.
        topics: By name.
        security: The document of users, tokens and ACLs; None: authentication is off.
        security_version: Grows with each change of it.
        promoted: The directory whose topics the cluster began with; empty: none.
        reassignment_bytes_per_s: What a broker may fetch for replicas that are being added; None: any number.
    """

    cluster_id: str
    index: int = 0
    brokers: dict[int, BrokerState] = {}
    topics: dict[str, TopicState] = {}
    security: bytes | None = None
    security_version: int = 0
    next_producer_id: int = 0
    next_broker_epoch: int = 1
    promoted: str = ""
    reassignment_bytes_per_s: int | None = None

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """A partition; None where there is no such topic, or no such partition."""
        found = self.topics.get(topic)
        return found.partitions[partition] if found is not None and 0 <= partition < len(found.partitions) else None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ClusterState)


def encode(state: ClusterState) -> bytes:
    return _encoder.encode(state)


def decode(data: bytes) -> ClusterState:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(data)
