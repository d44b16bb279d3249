"""Events of coordinators, and their answers.

A request carries a ``ticket``, a number by which its runner finds the waiting caller; the reply may come with the effects of a later
event.  The docstring of an event names the type of its result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition

# ---------------------------------------------------------------- groups: events


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinGroup:
    """A member joins, or joins again with what it supports now.  Replies JoinResult once all others have joined too.

    ``protocols`` are (name of an assignor, subscription) in the member's order of preference.  ``require_member_id``
    (KIP-394, what doors set for clients that know it): a new dynamic member gets MemberIdRequired with the id to join with.
    ``client_host`` is empty for members in this process: they do not outlive it, unless they are static.

    Raises:
        UnknownMember, FencedInstance, InconsistentProtocol, MemberIdRequired, GroupFull, InvalidGroup (name or timeout).
    """

    ticket: int
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncGroup:
    """A member asks for its assignment; the leader brings those of all members.  Replies SyncResult once the leader has synced.

    ``protocol_type`` and ``protocol`` are checked where they are given (KIP-559).

    Raises:
        UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress, InconsistentProtocol.
    """

    ticket: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    assignments: Mapping[str, bytes]
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat:
    """A sign of life.  Replies None.

    Raises:
        UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress (join again).
    """

    ticket: int
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaveGroup:
    """A member leaves: a dynamic one by its id, a static one by its instance (then the member id may be empty).  Replies None.

    Raises:
        UnknownMember, FencedInstance.
    """

    ticket: int
    group_id: str
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitOffsets:
    """Commit offsets of a group.  Replies None.

    Without a member (generation -1, member id "") only while the group has none: it is then a plain store of offsets.

    Raises:
        UnknownMember, FencedInstance, IllegalGeneration, RebalanceInProgress (the assignment is not known yet),
        OffsetMetadataTooLarge, InvalidGroup (an offset below 0).
    """

    ticket: int
    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitTransactionOffsets:
    """Like CommitOffsets, as a part of the producer's transaction: pending until its marker.  Replies None.

    The group's partition is part of the transaction already (AddPartitions).  Without a member (older clients) the group
    may have members.

    ``verified``: what ``GroupCoordinator.verification`` gave before that was said; None: whoever asks knows.

    Raises:
        ConcurrentTransactions: The transaction has ended since.  The others are those of CommitOffsets.
    """

    ticket: int
    group_id: str
    producer: ProducerIdAndEpoch
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    verified: object | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteGroup:
    """Forget a group without members, and its offsets.  Replies None.  Raises: UnknownGroup, GroupNotEmpty."""

    ticket: int
    group_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteOffsets:
    """Forget offsets of topics that no member subscribes to.

    Replies a dict of the partitions that were not deleted to their error (GroupNotEmpty: its topic is subscribed to).

    Raises:
        UnknownGroup.
    """

    ticket: int
    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicsDeleted:
    """These topics were deleted: their offsets are forgotten.  No reply.

    ``before_offset``: only those whose records lie before it; later ones are of a new topic of the same name.  None: all.
    """

    topics: frozenset[str]
    before_offset: int | None = None


# ---------------------------------------------------------------- groups: answers


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


# ---------------------------------------------------------------- transactions: events


@dataclass(frozen=True, kw_only=True, slots=True)
class InitProducerId:
    """Take over a transactional id: older instances are fenced, an open transaction of theirs is aborted first.

    Replies ProducerIdAndEpoch, after that abort is complete.  ``producer`` (KIP-360) is the one that the caller had, to
    go on with a higher epoch after an error; it is refused if another producer has taken over.

    Producers without a transactional id need no coordinator: they get a new producer id and epoch 0.

    Raises:
        InvalidTransactionTimeout, ProducerFenced, InvalidProducer.
    """

    ticket: int
    transactional_id: str
    transaction_timeout_ms: int
    producer: ProducerIdAndEpoch | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AddPartitions:
    """Partitions take part in the transaction from now on; the first ones begin it.  Replies None.

    Offsets of a group: add the partition of ``__consumer_offsets`` that ``records.partition_of`` names.  ``verify_only``: they have to
    take part already (KIP-890).

    Raises:
        InvalidProducer, ProducerFenced, ConcurrentTransactions (the last one is being completed), InvalidTransactionState.
    """

    ticket: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    verify_only: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EndTransaction:
    """Commit or abort.  Replies ProducerIdAndEpoch to go on with, once the markers are written.

    ``bump_epoch`` (KIP-890 part 2) is for clients that learn the new epoch from the answer; for others it stays.  A
    repeated call whose first answer was lost gets the same answer.

    Raises:
        InvalidProducer, ProducerFenced, ConcurrentTransactions, InvalidTransactionState; or the error
        of writing the markers (the transaction is decided nevertheless, and the call may be repeated).
    """

    ticket: int
    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    bump_epoch: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class AbortTransaction:
    """An administrator aborts the open transaction of a producer, and fences it.  Replies None.

    Raises:
        InvalidTransactionState: None is open, or the id is unknown.
    """

    ticket: int
    transactional_id: str


# ---------------------------------------------------------------- transactions: answers


class TransactionInfo(NamedTuple):
    """A transactional id and its last transaction; times in ms since 1970, -1 where there is none."""

    transactional_id: str
    state: str  # Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence
    producer: ProducerIdAndEpoch
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]
