"""Requests about the replicas and the leaders of a cluster's partitions, and about its controllers."""

from collections.abc import Mapping

from logdb.errors import LogdbError
from logdb.model import TopicPartition
from logdb.requests.nodes import PartitionState, QuorumInfo
from logdb.requests.request import Request, cluster, value


@value
class DescribeQuorum(Request[QuorumInfo]):
    """The controllers, as the one that leads them knows them; a single node is its own only one.  Raises MetadataTimeout."""

    local = True
    needs = (cluster("Describe"),)


@value
class Reassign(Request[dict[TopicPartition, LogdbError | None]]):
    """Let partitions have other replicas (KIP-455), each by itself; answered, while new replicas fetch, by the error of each.

    Attributes:
        targets: The nodes of each, the preferred leader first; None: what is under way is cancelled.
        may_change_count: A partition may get another number of replicas (KIP-860).
        timeout_ms: How long to wait for the controllers, for all partitions together; None: as for every change of topics.
    """

    local = True
    needs = (cluster("Alter"),)
    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    may_change_count: bool = True
    timeout_ms: int | None = None


@value
class Reassignments(Request[dict[TopicPartition, PartitionState]]):
    """The partitions that are being reassigned, those of internal topics too, of these; None: of all."""

    local = True
    needs = (cluster("Describe"),)
    partitions: tuple[TopicPartition, ...] | None = None


@value
class ElectLeaders(Request[dict[TopicPartition, LogdbError | None]]):
    """Let each partition be led by its first replica (KIP-460), each by itself; answered by the error of each.

    Attributes:
        partitions: None: all, and those for which no election is needed are left out of the answer.
        unclean: Of those without a leader the first replica that is alive leads, with what it has: what it lacks is lost.
        timeout_ms: As of ``Reassign``.
    """

    local = True
    needs = (cluster("Alter"),)
    partitions: tuple[TopicPartition, ...] | None
    unclean: bool = False
    timeout_ms: int | None = None
