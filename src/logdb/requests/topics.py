"""Requests about topics, and about the database as a whole; ``Session`` says what each does."""

from collections.abc import Mapping
from dataclasses import field

from logdb import model
from logdb.log.isolation import IsolationLevel
from logdb.model import ConfigValue, ExpiredRecords, KnownLog, TopicInfo, TopicPartition
from logdb.requests import nodes
from logdb.requests.report import Copied, Report
from logdb.requests.request import May, Request, cluster, each_topic, listed, named, value
from logdb.requests.resources import CLUSTER

# ---------------------------------------------------------------- what there is


@value
class Topics(Request[list[TopicInfo]]):
    needs = (listed("Describe", "Topic"),)
    internal: bool = False

    def visible(self, answer: list[TopicInfo], may: May) -> list[TopicInfo]:
        return [info for info in answer if may("Describe", "Topic", info.name)]


@value
class DescribeTopic(Request[TopicInfo]):
    needs = (named("Describe", "Topic", "name"),)
    name: str


@value
class DescribeAtRest(Request[TopicInfo]):
    """As ``DescribeTopic``, without ``disk_bytes``; once no recovery is due, no log is opened."""

    local = True
    needs = (named("Describe", "Topic", "name"),)
    name: str


@value
class DescribeConfigs(Request[Mapping[str, ConfigValue]]):
    """The configs of a topic that were set; ``name`` None: those of the node."""

    local = True
    needs = (named("DescribeConfigs", "Topic", "name"), cluster("DescribeConfigs", unless="name"))
    name: str | None


@value
class PartitionCount(Request[int]):
    needs = (named("Describe", "Topic", "topic"),)
    topic: str


@value
class PartitionSizes(Request[dict[TopicPartition, int]]):
    """How much of the disk each partition takes, of internal topics, too; ``topics`` None: of all."""

    local = True
    needs = (cluster("Describe"),)
    topics: tuple[str, ...] | None = None


@value
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


@value
class ClusterNodes(Request[nodes.ClusterNodes]):
    needs = (listed("Describe", "Topic"),)

    def visible(self, answer: nodes.ClusterNodes, may: May) -> nodes.ClusterNodes:
        shown = {name for name in {where.topic for where in answer.partitions} if may("Describe", "Topic", name)}
        partitions = {where: state for where, state in answer.partitions.items() if where.topic in shown}
        if not may("Describe", "Cluster", CLUSTER):
            return nodes.ClusterNodes((), partitions, database_id=answer.database_id)
        return answer._replace(partitions=partitions)


@value
class Wait(Request[bool]):
    needs = (each_topic("Read", "positions"),)
    positions: Mapping[TopicPartition, int]
    timeout_ms: int
    isolation_level: IsolationLevel = "read_uncommitted"
    known: Mapping[TopicPartition, KnownLog] = field(default_factory=dict)


# ---------------------------------------------------------------- work on records


@value
class DeleteRecords(Request[int]):
    needs = (named("Delete", "Topic", "topic"),)
    topic: str
    partition: int
    before_offset: int


@value
class EnforceRetention(Request[list[ExpiredRecords]]):
    """``topic`` None: on each topic that the principal may delete.  ``config``: a dry run, as if the topic had these configs."""

    needs = (named("Delete", "Topic", "topic"),)
    topic: str | None = None
    dry_run: bool = False
    config: Mapping[str, ConfigValue | None] | None = None


@value
class Compact(Request[None]):
    needs = (named("Alter", "Topic", "topic"),)
    topic: str
    partition: int | None = None


# ---------------------------------------------------------------- the whole


@value
class Flush(Request[None]):
    needs = (cluster("IdempotentWrite"),)
    sync: bool = True


@value
class Reports(Request[tuple[str, ...]]):
    needs = (cluster("Describe"),)


@value
class Verify(Request[Report]):
    needs = (cluster("ClusterAction"),)


@value
class Backup(Request[Copied]):
    needs = (cluster("ClusterAction"),)
    path: str
    base: str | None = None
