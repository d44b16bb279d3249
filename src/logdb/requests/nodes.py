"""Brokers, controllers, and who has a partition: what requests about a cluster are answered with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from logdb.model import (
    TopicPartition,
)

if TYPE_CHECKING:
    pass


class PartitionState(NamedTuple):
    """Who has a partition, by the ids of nodes; ``leader`` is None where no node leads it.

    ``partition_epoch`` grows with each change of the rest; a change is a compare-and-set on it.

    While the partition is reassigned (KIP-455) ``replicas`` are those of before and then ``adding``; they will be ``target``, which is
    empty otherwise.  ``electing``: the leader is asked to hand over to the preferred leader.
    """

    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    partition_epoch: int = 0
    target: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    electing: bool = False

    @property
    def removing(self) -> tuple[int, ...]:
        """The replicas that go once all of ``target`` are in sync."""
        return tuple(node for node in self.replicas if self.target and node not in self.target)

    def is_elsewhere(self, node: int) -> bool:
        """Whether a node has no replica, and all replicas are in sync: a log that it has here is of no use to anyone."""
        return node not in self.replicas and not self.target and set(self.in_sync) == set(self.replicas)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas without those that are being added."""
        return tuple(node for node in self.replicas if node not in self.adding)

    @property
    def assignment(self) -> tuple[int, ...]:
        """The replicas once no reassignment is under way."""
        return self.target or self.replicas

    @property
    def preferred_leader(self) -> int:
        return self.assignment[0]

    @property
    def is_led_as_preferred(self) -> bool:
        """Whether an election of the preferred leader would change nothing."""
        return self.leader == self.preferred_leader


def host_and_port(host: str, port: int) -> str:
    """HOST:PORT, as in URLs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class BrokerInfo(NamedTuple):
    """One broker of a cluster; ``addresses``: host and port by name of the door, none where a node is on its own."""

    node_id: int
    addresses: Mapping[str, tuple[str, int]]
    rack: str = ""
    fenced: bool = False

    def address(self, door: str) -> str | None:
        """Where a door is, HOST:PORT as in URLs; None: it has none."""
        host, port = self.addresses.get(door, ("", 0))
        return host_and_port(host, port) if host else None


class QuorumVoter(NamedTuple):
    """One controller that votes, as the leader of the quorum knows it.

    ``end``: behind the last command that it has, None: unknown; ``answered_ms_ago``: when it answered the leader, None: it has not, or
    it is the leader.  ``address``: where the other controllers reach it; none where a node is on its own.
    """

    node_id: int
    incarnation: int = 0
    end: int | None = None
    answered_ms_ago: int | None = None
    address: tuple[str, int] | None = None


class QuorumInfo(NamedTuple):
    """The controllers that decide on the metadata; ``committed``: behind the last command that a majority has."""

    leader: int | None
    term: int
    committed: int
    voters: tuple[QuorumVoter, ...]


class ClusterNodes(NamedTuple):
    """What changes in ``ClusterEvent``: the brokers that serve, and who leads each partition and is in sync with it.

    ``addresses``: each broker and its HOST:PORT, where Kafka's clients reach it, or without a Kafka door HTTP's; a server of an earlier
    version tells none.
    ``database_id``: of the cluster, or of the single database.  Kafka's clients know it as the cluster's id.  Empty: the server is earlier.
    """

    serving: tuple[int, ...]
    partitions: Mapping[TopicPartition, PartitionState]
    addresses: tuple[tuple[int, str], ...] = ()
    database_id: str = ""
