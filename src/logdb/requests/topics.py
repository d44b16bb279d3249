"""Requests about topics, and about the database as a whole; ``Session`` says what each does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from logdb import model
from logdb.log.isolation import IsolationLevel
from logdb.model import ConfigValue, ExpiredRecords, KnownLog, TopicInfo, TopicPartition
from logdb.requests import nodes
from logdb.requests.report import Copied, Report
from logdb.requests.request import May, Request, cluster, each_topic, listed, named
from logdb.requests.resources import CLUSTER
from logdb.requests.topic_changes import Config

# ---------------------------------------------------------------- what there is


@dataclass(frozen=True, slots=True)
class Topics(Request[list[TopicInfo]]):
    needs = (listed("Describe", "Topic"),)
    internal: bool = False

    def visible(self, answer: list[TopicInfo], may: May) -> list[TopicInfo]:
        return [info for info in answer if may("Describe", "Topic", info.name)]


@dataclass(frozen=True, slots=True)
class DescribeTopic(Request[TopicInfo]):
    needs = (named("Describe", "Topic", "name"),)
    name: str


@dataclass(frozen=True, slots=True)
class DescribeAtRest(Request[TopicInfo]):
    """As ``DescribeTopic``, at the cost of a look into the catalogue; see ``store.protocols.Storage.describe_at_rest``."""

    local = True
    needs = (named("Describe", "Topic", "name"),)
    name: str


@dataclass(frozen=True, slots=True)
class DescribeConfigs(Request[Mapping[str, ConfigValue]]):
    """The configs of a topic that were set; ``name`` None: those of the node."""

    local = True
    needs = (named("DescribeConfigs", "Topic", "name"), cluster("DescribeConfigs", unless="name"))
    name: str | None


@dataclass(frozen=True, slots=True)
class PartitionCount(Request[int]):
    needs = (named("Describe", "Topic", "topic"),)
    topic: str


@dataclass(frozen=True, slots=True)
class PartitionSizes(Request[dict[TopicPartition, int]]):
    """How much of the disk each partition takes, of internal topics, too; ``topics`` None: of all."""

    local = True
    needs = (cluster("Describe"),)
    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Changes(Request[model.Changes]):
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


@dataclass(frozen=True, slots=True)
class ClusterNodes(Request[nodes.ClusterNodes]):
    needs = (listed("Describe", "Topic"),)

    def visible(self, answer: nodes.ClusterNodes, may: May) -> nodes.ClusterNodes:
        shown = {name for name in {where.topic for where in answer.partitions} if may("Describe", "Topic", name)}
        partitions = {where: state for where, state in answer.partitions.items() if where.topic in shown}
        if not may("Describe", "Cluster", CLUSTER):
            return nodes.ClusterNodes((), partitions)
        return answer._replace(partitions=partitions)


@dataclass(frozen=True, slots=True)
class Wait(Request[bool]):
    needs = (each_topic("Read", "positions"),)
    positions: Mapping[TopicPartition, int]
    timeout_ms: int
    isolation_level: IsolationLevel = "read_uncommitted"
    known: Mapping[TopicPartition, KnownLog] = field(default_factory=dict)


# ---------------------------------------------------------------- work on records


@dataclass(frozen=True, slots=True)
class DeleteRecords(Request[int]):
    needs = (named("Delete", "Topic", "topic"),)
    topic: str
    partition: int
    before_offset: int


@dataclass(frozen=True, slots=True)
class EnforceRetention(Request[list[ExpiredRecords]]):
    """``topic`` None: on each topic that the principal may delete.  ``config``: a dry run, as if the topic had these configs."""

    needs = (named("Delete", "Topic", "topic"),)
    topic: str | None = None
    dry_run: bool = False
    config: Config | None = None


@dataclass(frozen=True, slots=True)
class Compact(Request[None]):
    needs = (named("Alter", "Topic", "topic"),)
    topic: str
    partition: int | None = None


# ---------------------------------------------------------------- the whole


@dataclass(frozen=True, slots=True)
class Flush(Request[None]):
    needs = (cluster("IdempotentWrite"),)
    sync: bool = True


@dataclass(frozen=True, slots=True)
class Reports(Request[tuple[str, ...]]):
    needs = (cluster("Describe"),)


@dataclass(frozen=True, slots=True)
class Verify(Request[Report]):
    needs = (cluster("ClusterAction"),)


@dataclass(frozen=True, slots=True)
class Backup(Request[Copied]):
    needs = (cluster("ClusterAction"),)
    path: str
    base: str | None = None
