"""How the parties of a transaction call one another, on this node or on others.

    coordinator of a transaction ──► leaders of its partitions              sync, write_markers
    leader of a partition ──► coordinators of transactions                  will_end, decision

``broker.local_peers`` is all of it on a single node.  In a cluster these are requests to other nodes (``broker.cluster_peers``).
A partition of ``__consumer_offsets`` and its group coordinator are on one node: the marker goes through the coordinator.
"""

import contextlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from logdb.coordinator.effects import WriteMarkers
from logdb.errors import UnknownPartition, UnknownTopic
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.store.protocols import Metadata


class Decision(NamedTuple):
    """The outcome of a transaction: the producer that its markers carry, and the epoch of the coordinator that decided."""

    producer: ProducerIdAndEpoch
    commit: bool
    coordinator_epoch: int


class TransactionPeers(Protocol):
    """A call may go to other nodes: it covers all partitions, and raises errors of any of these nodes.

    Threading: any thread.
    """

    def sync(self, partitions: Iterable[TopicPartition]) -> None:
        """Make durable what these partitions hold now, except those of level ``os``; see ``effects.SyncPartitions``.

        Raises:
            LogdbError: Some of them could not be synced; the others were.
        """

    def write_markers(self, markers: WriteMarkers) -> None:
        """Write the markers of one transaction; see ``effects.WriteMarkers``.

        Raises:
            LogdbError: Some of them could not be written; the others were.
        """

    def will_end(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """Whether a coordinator has an open transaction of ``producer`` on ``partition``, and will write its marker.

        The coordinators are loaded first, which may end the transaction.
        """

    def decision(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> Decision:
        """The decision on what ``producer`` has written to ``partition`` under its epoch; without a decision, an abort."""


def leader_address(metadata: Metadata, where: TopicPartition) -> str | None:
    """Where the HTTP listener of a partition's leader is, HOST:PORT; None: no node leads it, or without a cluster."""
    with contextlib.suppress(UnknownTopic, UnknownPartition):
        leader = metadata.partition_state(*where).leader
        return None if leader is None else node_address(metadata, leader, "http")
    return None


def node_address(metadata: Metadata, node_id: int, listener: str) -> str | None:
    """Where a node's listener is, HOST:PORT; None: it has none, or there is no such node."""
    return next((broker.address(listener) for broker in metadata.brokers() if broker.node_id == node_id), None)
