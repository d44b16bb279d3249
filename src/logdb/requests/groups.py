"""Requests of members of groups, about offsets, and of administrators; ``Session`` says what each does."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import field
from typing import NamedTuple

from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests.request import May, Request, each_topic, listed, named, value
from logdb.requests.resources import CLUSTER

_READ = named("Read", "Group", "group_id")
_DESCRIBE = named("Describe", "Group", "group_id")
_DELETE = named("Delete", "Group", "group_id")

# ---------------------------------------------------------------- answers


class JoinedMember(NamedTuple):
    """A member as its group's leader sees it: what it subscribes to under the protocol that was chosen."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The new generation; ``members`` is empty for all but the leader.

    ``skip_assignment``: the leader has been here before and nothing changed (KIP-814): it syncs without assignments.  Clients
    before version 9 of JoinGroup lack this field: a door names ``former_leader_id`` to them, so that they assign nothing.
    ``former_leader_id``: the member id that the leader had before it came back; "" unless the leader may skip the assignment.
    """

    generation: int
    protocol: str
    leader_id: str
    member_id: str
    members: tuple[JoinedMember, ...]
    protocol_type: str = "consumer"
    skip_assignment: bool = False
    former_leader_id: str = ""


class SyncResult(NamedTuple):
    """The member's assignment, as its protocol writes it (``consumer_protocol.Assignment`` for consumers)."""

    protocol: str
    assignment: bytes
    protocol_type: str = "consumer"


class GroupSummary(NamedTuple):
    """One row of a list of groups."""

    group_id: str
    state: str  # Empty, PreparingRebalance, CompletingRebalance, Stable
    protocol_type: str


class MemberInfo(NamedTuple):
    """One member; metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupInfo(NamedTuple):
    """A group; ``protocol`` is empty unless it is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    generation: int
    leader_id: str
    members: tuple[MemberInfo, ...]


# ---------------------------------------------------------------- members


@value(kw_only=True)
class JoinGroup(Request[Future[JoinResult]]):
    needs = (_READ,)
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = "consumer"
    client_id: str = ""
    client_host: str = ""
    require_member_id: bool = False


@value(kw_only=True)
class SyncGroup(Request[Future[SyncResult]]):
    needs = (_READ,)
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    assignments: Mapping[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None


@value(kw_only=True)
class Heartbeat(Request[None]):
    needs = (_READ,)
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


@value
class LeaveGroup(Request[None]):
    needs = (_READ,)
    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None


# ---------------------------------------------------------------- offsets


@value
class CommitOffsets(Request[Future[None]]):
    needs = (_READ, each_topic("Read", "offsets"))
    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@value
class FetchOffsets(Request[dict[TopicPartition, OffsetAndMetadata]]):
    needs = (_DESCRIBE, each_topic("Describe", "partitions"))
    group_id: str
    partitions: tuple[TopicPartition, ...] | None = None
    require_stable: bool = False

    def visible(self, answer: dict[TopicPartition, OffsetAndMetadata], may: May) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: committed for partition, committed in answer.items() if may("Describe", "Topic", partition.topic)}


@value
class DeleteOffsets(Request[None]):
    needs = (_DELETE, each_topic("Read", "partitions"))
    group_id: str
    partitions: tuple[TopicPartition, ...]


# ---------------------------------------------------------------- administration


@value
class Groups(Request[list[GroupSummary]]):
    needs = (listed("Describe", "Group"),)

    def visible(self, answer: list[GroupSummary], may: May) -> list[GroupSummary]:
        if may("Describe", "Cluster", CLUSTER):
            return answer
        return [summary for summary in answer if may("Describe", "Group", summary.group_id)]


@value
class DescribeGroup(Request[GroupInfo]):
    needs = (_DESCRIBE,)
    group_id: str


@value
class DeleteGroup(Request[None]):
    needs = (_DELETE,)
    group_id: str
