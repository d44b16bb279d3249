"""Requests about topics, and about the database as a whole; ``Session`` says what each does."""

from collections.abc import Mapping
from typing import TypeAlias

from logdb import model
from logdb.errors import LogdbError
from logdb.log.isolation import IsolationLevel
from logdb.model import BY_DEFAULT, NOTHING_KNOWN, ConfigValue, ExpiredRecords, KnownLog, ListChange, TopicInfo, TopicPartition
from logdb.requests.request import May, Need, Request, cluster, each_topic, listed, named
from logdb.requests.resources import CLUSTER
from logdb.store import protocols
from logdb.store.check.report import Copied, Report
from logdb.store.protocols import PartitionState, QuorumInfo

Config: TypeAlias = Mapping[str, ConfigValue | None]
Assignments: TypeAlias = tuple[tuple[int, ...], ...]
"""The nodes of each new partition, the preferred leader first."""

# ---------------------------------------------------------------- what there is


class Topics(Request[list[TopicInfo]], frozen=True):
    needs = (listed("Describe", "Topic"),)
    internal: bool = False

    def visible(self, answer: list[TopicInfo], may: May) -> list[TopicInfo]:
        return [info for info in answer if may("Describe", "Topic", info.name)]


class DescribeTopic(Request[TopicInfo], frozen=True):
    needs = (named("Describe", "Topic", "name"),)
    name: str


class DescribeAtRest(Request[TopicInfo], frozen=True):
    """As ``DescribeTopic``, at the cost of a look into the catalogue; see ``store.protocols.Storage.describe_at_rest``."""

    local = True
    needs = (named("Describe", "Topic", "name"),)
    name: str


class DescribeConfigs(Request[Mapping[str, ConfigValue]], frozen=True):
    """The configs of a topic that were set; ``name`` None: those of the node."""

    local = True
    needs = (named("DescribeConfigs", "Topic", "name"), cluster("DescribeConfigs", unless="name"))
    name: str | None


class PartitionCount(Request[int], frozen=True):
    needs = (named("Describe", "Topic", "topic"),)
    topic: str


class PartitionSizes(Request[dict[TopicPartition, int]], frozen=True):
    """How much of the disk each partition takes, of internal topics, too; ``topics`` None: of all."""

    local = True
    needs = (cluster("Describe"),)
    topics: tuple[str, ...] | None = None


class Changes(Request[model.Changes], frozen=True):
    needs = (listed("Describe", "Topic"),)
    position: str | None
    timeout_ms: int
    count_max: int

    def visible(self, answer: model.Changes, may: May) -> model.Changes:
        def shown(event: model.TopicEvent | model.ClusterEvent) -> bool:
            if isinstance(event, model.TopicEvent):
                return may("Describe", "Topic", event.topic.name)
            if event.partition is not None:
                return may("Describe", "Topic", event.partition.topic)
            return may("Describe", "Cluster", CLUSTER)

        return answer._replace(events=tuple(event for event in answer.events if shown(event)))


class ClusterNodes(Request[protocols.ClusterNodes], frozen=True):
    needs = (listed("Describe", "Topic"),)

    def visible(self, answer: protocols.ClusterNodes, may: May) -> protocols.ClusterNodes:
        shown = {name for name in {where.topic for where in answer.partitions} if may("Describe", "Topic", name)}
        partitions = {where: state for where, state in answer.partitions.items() if where.topic in shown}
        if not may("Describe", "Cluster", CLUSTER):
            return protocols.ClusterNodes((), partitions)
        return answer._replace(partitions=partitions)


class DescribeQuorum(Request[QuorumInfo], frozen=True):
    local = True
    needs = (cluster("Describe"),)


class Wait(Request[bool], frozen=True):
    needs = (each_topic("Read", "positions"),)
    positions: Mapping[TopicPartition, int]
    timeout_ms: int
    isolation_level: IsolationLevel = "read_uncommitted"
    known: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN


# ---------------------------------------------------------------- changes of topics


class CreateTopic(Request[TopicInfo], frozen=True):
    needs = (named("Create", "Topic", "name"),)
    name: str
    partitions: int = BY_DEFAULT
    config: Config | None = None
    if_not_exists: bool = False
    replication_factor: int | None = None
    assignments: Assignments | None = None

    @property
    def is_repeatable(self) -> bool:
        return self.if_not_exists


class CheckNewTopic(Request[TopicInfo], frozen=True):
    """What ``CreateTopic`` would make, or raise, without doing it."""

    local = True
    needs = CreateTopic.needs
    name: str
    partitions: int = BY_DEFAULT
    config: Config | None = None
    replication_factor: int | None = None
    assignments: Assignments | None = None


class AlterTopic(Request[TopicInfo], frozen=True):
    needs = (
        Need("Alter", "Topic", lambda request: () if request.partitions is None else (request.name,)),
        Need("AlterConfigs", "Topic", lambda request: (request.name,) if request.config or request.partitions is None else ()),
    )
    name: str
    config: Config | None = None
    partitions: int | None = None
    assignments: Assignments | None = None

    @property
    def is_repeatable(self) -> bool:
        return self.assignments is None


class CheckPartitions(Request[None], frozen=True):
    """Raise what ``AlterTopic`` would for these partitions, without adding them."""

    local = True
    needs = (named("Alter", "Topic", "name"),)
    name: str
    partitions: int
    assignments: Assignments | None = None


class CheckTopicConfigs(Request[None], frozen=True):
    """Raise what ``AlterTopic`` would, without doing it."""

    local = True
    needs = (named("AlterConfigs", "Topic", "name"),)
    name: str
    config: Config


class AlterConfigs(Request[None], frozen=True):
    """Change configs by what they are at that moment: lists by ``ListChange``, or all at once; ``name`` None: those of the node."""

    local = True
    needs = (named("AlterConfigs", "Topic", "name"), cluster("AlterConfigs", unless="name"))
    name: str | None
    config: Mapping[str, ConfigValue | ListChange | None]
    replace: bool = False
    validate_only: bool = False


class DeleteTopic(Request[None], frozen=True):
    needs = (named("Delete", "Topic", "name"),)
    name: str


class DeleteRecords(Request[int], frozen=True):
    needs = (named("Delete", "Topic", "topic"),)
    topic: str
    partition: int
    before_offset: int


class EnforceRetention(Request[list[ExpiredRecords]], frozen=True):
    """``topic`` None: on each topic that the principal may delete.  ``config``: a dry run, as if the topic had these configs."""

    needs = (named("Delete", "Topic", "topic"),)
    topic: str | None = None
    dry_run: bool = False
    config: Config | None = None


class Compact(Request[None], frozen=True):
    needs = (named("Alter", "Topic", "topic"),)
    topic: str
    partition: int | None = None


# ---------------------------------------------------------------- replicas and leaders


class Reassign(Request[dict[TopicPartition, LogdbError | None]], frozen=True):
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


class Reassignments(Request[dict[TopicPartition, PartitionState]], frozen=True):
    """The partitions that are being reassigned, those of internal topics too, of these; None: of all."""

    local = True
    needs = (cluster("Describe"),)
    partitions: tuple[TopicPartition, ...] | None = None


class ElectLeaders(Request[dict[TopicPartition, LogdbError | None]], frozen=True):
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


# ---------------------------------------------------------------- the whole


class Flush(Request[None], frozen=True):
    needs = (cluster("IdempotentWrite"),)
    sync: bool = True


class Reports(Request[tuple[str, ...]], frozen=True):
    needs = (cluster("Describe"),)


class Verify(Request[Report], frozen=True):
    needs = (cluster("ClusterAction"),)


class Backup(Request[Copied], frozen=True):
    needs = (cluster("ClusterAction"),)
    path: str
    base: str | None = None
