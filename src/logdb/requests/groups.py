"""Requests of members of groups, about offsets, and of administrators; ``Session`` says what each does."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from logdb.coordinator.events import GroupInfo, GroupSummary, JoinResult, SyncResult
from logdb.model import NO_TOPIC_IDS, OffsetAndMetadata, TopicPartition
from logdb.requests.request import May, Request, each_topic, listed, named
from logdb.requests.resources import CLUSTER

_READ = named("Read", "Group", "group_id")
_DESCRIBE = named("Describe", "Group", "group_id")
_DELETE = named("Delete", "Group", "group_id")

# ---------------------------------------------------------------- members


class JoinGroup(Request[Future[JoinResult]], frozen=True, kw_only=True):
    needs = (_READ,)
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Sequence[tuple[str, bytes]]
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    client_id: str = ""
    client_host: str = ""
    require_member_id: bool = False


class SyncGroup(Request[Future[SyncResult]], frozen=True, kw_only=True):
    needs = (_READ,)
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    assignments: Mapping[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None


class Heartbeat(Request[None], frozen=True, kw_only=True):
    needs = (_READ,)
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


class LeaveGroup(Request[None], frozen=True):
    needs = (_READ,)
    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None


# ---------------------------------------------------------------- offsets


class CommitOffsets(Request[Future[None]], frozen=True):
    needs = (_READ, each_topic("Read", "offsets"))
    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    topic_ids: Mapping[str, str] = NO_TOPIC_IDS


class FetchOffsets(Request[dict[TopicPartition, OffsetAndMetadata]], frozen=True):
    needs = (_DESCRIBE, each_topic("Describe", "partitions"))
    group_id: str
    partitions: tuple[TopicPartition, ...] | None = None
    require_stable: bool = False

    def visible(self, answer: dict[TopicPartition, OffsetAndMetadata], may: May) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: committed for partition, committed in answer.items() if may("Describe", "Topic", partition.topic)}


class DeleteOffsets(Request[None], frozen=True):
    needs = (_DELETE, each_topic("Read", "partitions"))
    group_id: str
    partitions: tuple[TopicPartition, ...]


# ---------------------------------------------------------------- administration


class Groups(Request[list[GroupSummary]], frozen=True):
    needs = (listed("Describe", "Group"),)

    def visible(self, answer: list[GroupSummary], may: May) -> list[GroupSummary]:
        if may("Describe", "Cluster", CLUSTER):
            return answer
        return [summary for summary in answer if may("Describe", "Group", summary.group_id)]


class DescribeGroup(Request[GroupInfo], frozen=True):
    needs = (_DESCRIBE,)
    group_id: str


class DeleteGroup(Request[None], frozen=True):
    needs = (_DELETE,)
    group_id: str
