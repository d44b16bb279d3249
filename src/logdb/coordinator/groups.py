"""One group of the classic protocol: its members, and what joins, syncs and departures do to it.

A ``Step`` applies one event to one group, and collects replies, timers and records.

::

              join                        all joined, or rebalance timeout
    Empty ─────────────► PreparingRebalance ──────────────────────────────► CompletingRebalance
      ▲                   │   ▲   ▲                                           │           │
      │  no members left  │   │   │   join, leave, a member is silent          │           │ the leader
      └───────────────────┘   │   └───────────────────────────────────────────┘           │ syncs
                              │   join that changes something, leave, a member is silent  ▼
                              └──────────────────────────────────────────────────────── Stable

A group that is empty, has no offsets and is swept or deleted is forgotten: Kafka's state Dead.

=====================  ==================================================================================================
state                  invariant
=====================  ==================================================================================================
Empty                  no members; the last generation that had some is one lower
PreparingRebalance     members that joined wait (``join_ticket``) for the others; the generation is still the last one
CompletingRebalance    all members have the new generation, its protocol and leader; members that synced wait for the leader
Stable                 the generation is recorded, with an assignment for each member
=====================  ==================================================================================================

Source: Kafka's ClassicGroup and GroupMetadataManager; KIP-62 (timeouts), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (member ids first), KIP-814 (a static leader that comes back).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from logdb.coordinator.consumer_protocol import PROTOCOL_TYPE, Subscription
from logdb.coordinator.effects import Effects, Reply, StateRecord, Timer, TimerKey
from logdb.coordinator.records import GroupValue, MemberValue, group_key, group_value
from logdb.errors import FencedInstance, InvalidMessage, LogdbError, RebalanceInProgress, UnknownMember
from logdb.requests.groups import JoinedMember, JoinResult, SyncResult


class GroupState(StrEnum):
    """Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig:
    """Limits and waits; Kafka's keys in parentheses.

    The defaults are those of an embedded database: no initial delay, any timeout, and offsets that do not expire.
    """

    session_timeout_ms_min: int = 1  # (group.min.session.timeout.ms)
    session_timeout_ms_max: int = 2**31 - 1  # (group.max.session.timeout.ms)
    initial_rebalance_delay_ms: int = 0  # (group.initial.rebalance.delay.ms)
    member_count_max: int = 2**31 - 1  # (group.max.size)
    new_member_timeout_ms: int = 300_000  # how long a new member may wait for the others
    invited_timeout_ms: int = 45_000  # how long the others wait for a new member that was given its id, if its session is longer
    member_bytes_max: int = 128 << 20  # of all members of other processes, of all groups
    offset_metadata_bytes_max: int = 4_096  # (offset.metadata.max.bytes)
    offsets_retention_ms: int = -1  # (offsets.retention.minutes) -1: for ever
    sweep_interval_ms: int = 600_000  # (offsets.retention.check.interval.ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A member; ``protocols`` in its order of preference.  It has a ticket while it waits for an answer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    new: bool = False  # it has not been in a generation yet

    @property
    def size_bytes(self) -> int:
        """What it takes of memory, about."""
        return len(self.member_id) + len(self.client_id) + size_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """The subscription for one protocol; empty if the member does not support it."""
        return dict(self.protocols).get(protocol or "", b"")


@dataclass(kw_only=True, slots=True)
class Group:
    """The state of a group.  Only ``Step`` changes groups, and it changes a copy."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    protocol_type: str = ""
    protocol: str | None = None
    generation: int = 0
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    members: dict[str, Member] = field(default_factory=dict)
    invited: Mapping[str, str] = field(default_factory=dict)  # hosts by the ids that have not joined yet (KIP-394)
    unsynced: frozenset[str] = frozenset()  # members of the generation that have not synced yet
    delay_left_ms: int | None = None  # of the initial delay; None: not an initial rebalance
    grown: bool = False  # a member joined during the last initial delay

    @staticmethod
    def of(group_id: str, value: GroupValue) -> "Group":
        """As it was recorded."""
        return Group(
            group_id=group_id,
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            protocol_type=value.protocol_type,
            protocol=value.protocol,
            generation=value.generation,
            leader_id=value.leader,
            state_timestamp_ms=value.state_timestamp_ms,
            members={
                member.member_id: Member(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms if member.rebalance_timeout_ms >= 0 else member.session_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    protocols=((value.protocol or "", member.subscription),),
                    assignment=member.assignment,
                )
                for member in value.members
            },
        )

    def value(self) -> GroupValue:
        """As it is recorded."""
        members = (
            MemberValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol),
                member.assignment,
            )
            for member in self.members.values()
        )
        return GroupValue(self.protocol_type, self.generation, self.protocol, self.leader_id, self.state_timestamp_ms, tuple(members))

    def holder(self, group_instance_id: str) -> Member | None:
        """The current member of a static instance."""
        return next((member for member in self.members.values() if member.group_instance_id == group_instance_id), None)

    def member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member that calls.

        Raises:
            UnknownMember: The group lacks this member.
            FencedInstance: Another member has taken over the instance.
        """
        member = self.members.get(member_id)
        if group_instance_id is not None and (member is None or member.group_instance_id != group_instance_id):
            if self.holder(group_instance_id) is not None:
                raise FencedInstance(self.group_id, group_instance_id)
            member = None
        if member is None:
            raise UnknownMember(self.group_id, member_id)
        return member

    def candidates(self) -> set[str]:
        """The protocols that all members support."""
        supported = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*supported) if supported else set()

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether a member with these protocols may join."""
        names = {name for name, _ in protocols}
        if self.state is GroupState.EMPTY or not self.members:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and bool(names & self.candidates())

    def vote(self) -> str:
        """Of the protocols that all members support, the one that most prefer; the first of equals."""
        candidates, votes = self.candidates(), dict[str, int]()
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None if they are unknown: it may be any."""
        if self.members and self.protocol_type != PROTOCOL_TYPE:
            return None
        try:
            return frozenset(topic for member in self.members.values() for topic in topics_of(member.metadata(self.protocol)))
        except InvalidMessage:
            return None

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def all_joined(self) -> bool:
        return not self.invited and all(member.join_ticket is not None for member in self.members.values())


def size_of(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def topics_of(metadata: bytes) -> tuple[str, ...]:
    """The topics of a consumer's subscription.  Raises: InvalidMessage."""
    return Subscription.decode(metadata).topics


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


class Step:
    """Applies one event to a copy of one group, and collects the effects."""

    def __init__(self, group: Group, config: GroupConfig, now_ms: int) -> None:
        self.group = replace(group, members=dict(group.members))
        self._config, self._now_ms = config, now_ms
        self._has_departed = False
        self._replies: list[Reply] = []
        self._timers: dict[TimerKey, int | None] = {}
        self._records: list[StateRecord] = []

    def effects(self) -> Effects:
        return Effects(
            records=tuple(self._records),
            replies=tuple(self._replies),
            timers=tuple(Timer(key, delay_ms) for key, delay_ms in self._timers.items()),
            changes={self.group.group_id: self.group},
        )

    def reply(self, ticket: int | None, result: Any) -> None:
        if ticket is not None:
            self._replies.append(Reply(ticket, result))

    # ------------------------------------------------------------ members

    def put(self, member: Member, **changes: Any) -> Member:
        """Add or change a member."""
        member = replace(member, **changes)
        self.group.members[member.member_id] = member
        return member

    def renew_session(self, member: Member) -> None:
        """Restart the session timer of a member."""
        self._timers[session_timer(self.group.group_id, member.member_id)] = member.session_timeout_ms

    def invite(self, member_id: str, host: str, session_timeout_ms: int) -> None:
        """Wait for a member that was given its id."""
        self.group.invited = {**self.group.invited, member_id: host}
        self._timers[session_timer(self.group.group_id, member_id)] = min(session_timeout_ms, self._config.invited_timeout_ms)

    def uninvite(self, member_id: str) -> None:
        self._joined(member_id)
        self._timers[session_timer(self.group.group_id, member_id)] = None

    def _joined(self, member_id: str) -> None:
        """The id is waited for no more."""
        self.group.invited = {other: host for other, host in self.group.invited.items() if other != member_id}

    def add(self, member: Member, protocol_type: str) -> None:
        """A new member joins: a rebalance begins, or the current one includes it."""
        group = self.group
        group.protocol_type = protocol_type
        self._joined(member.member_id)
        group.leader_id = group.leader_id or member.member_id
        self.put(member, new=True)
        group.grown = group.delay_left_ms is not None
        self._timers[session_timer(group.group_id, member.member_id)] = self._config.new_member_timeout_ms
        self.rebalance()

    def remove(self, member: Member, error: LogdbError | None = None) -> None:
        """Remove a member and answer its waiting requests; ``rebalance_after_departure`` follows."""
        self._has_departed, group = True, self.group
        error = error or UnknownMember(group.group_id, member.member_id)
        self.reply(member.join_ticket, error)
        self.reply(member.sync_ticket, error)
        del group.members[member.member_id]
        group.unsynced -= {member.member_id}
        if group.leader_id == member.member_id:
            group.leader_id = next(iter(group.members), None)
        self._timers[session_timer(group.group_id, member.member_id)] = None

    def rebalance_after_departure(self) -> None:
        """Begin or complete a rebalance after members were removed; one that was only invited held up a rebalance at most."""
        if self._has_departed and self.group.state in (GroupState.STABLE, GroupState.COMPLETING):
            self.rebalance()
        else:
            self.complete_join_if_all_joined()

    # ------------------------------------------------------------ joining

    def rebalance(self) -> None:
        """Enter PreparingRebalance, if the group is in another state, and leave it if all members have joined."""
        group = self.group
        if group.state is GroupState.PREPARING:
            self.complete_join_if_all_joined()
            return
        if group.state is GroupState.COMPLETING:
            for member in list(group.members.values()):
                rejoining = self.put(member, sync_ticket=None, assignment=b"")
                if member.sync_ticket is not None:
                    self.reply(member.sync_ticket, RebalanceInProgress(group.group_id))
                    self.renew_session(rejoining)
        group.unsynced = frozenset()
        self._timers["sync", group.group_id] = None
        initial = group.state is GroupState.EMPTY and self._config.initial_rebalance_delay_ms > 0
        self._enter(GroupState.PREPARING)
        if initial:
            delay_ms = self._config.initial_rebalance_delay_ms
            group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._timers["join", group.group_id] = delay_ms
        elif not self.complete_join_if_all_joined():
            self._timers["join", group.group_id] = group.rebalance_timeout_ms

    def complete_join_if_all_joined(self) -> bool:
        group = self.group
        if group.state is not GroupState.PREPARING or group.delay_left_ms is not None or not group.all_joined():
            return False
        self.complete_join()
        return True

    def join_timeout(self) -> None:
        """The time to join is over; an initial rebalance waits on while new members join."""
        group = self.group
        if group.state is not GroupState.PREPARING:
            return
        if group.grown and group.delay_left_ms:
            delay_ms = min(self._config.initial_rebalance_delay_ms, group.delay_left_ms)
            group.grown, group.delay_left_ms = False, group.delay_left_ms - delay_ms
            self._timers["join", group.group_id] = delay_ms
        else:
            self.complete_join()

    def complete_join(self) -> None:
        """Leave PreparingRebalance: dynamic members that have not joined are removed; the others learn the new generation."""
        group = self.group
        group.delay_left_ms, group.grown = None, False
        self._timers["join", group.group_id] = None
        for member in list(group.members.values()):
            if member.join_ticket is None and member.group_instance_id is None:
                self.remove(member)
        joined = [member.member_id for member in group.members.values() if member.join_ticket is not None]
        if group.members and not joined:  # static members alone, all silent: their sessions decide
            self._timers["join", group.group_id] = group.rebalance_timeout_ms
            return
        group.generation += 1
        if not joined:
            group.protocol = group.leader_id = None
            self._enter(GroupState.EMPTY)
            self.record()
            return
        if group.leader_id not in joined:
            group.leader_id = joined[0]
        group.protocol = group.vote()
        self._enter(GroupState.COMPLETING)
        group.unsynced = frozenset(group.members)
        self._timers["sync", group.group_id] = group.rebalance_timeout_ms
        for member in list(group.members.values()):
            self.reply(member.join_ticket, self.join_result(member))
            self.renew_session(self.put(member, join_ticket=None, new=False))

    def join_result(self, member: Member, *, replaced: str = "") -> JoinResult:
        """The answer to a member's join; the leader's lists all members.

        Args:
            replaced: The former member id of a static member that came back without a change.
        """
        group = self.group
        is_leader = member.member_id == group.leader_id
        return JoinResult(
            generation=group.generation,
            protocol=group.protocol or "",
            leader_id=group.leader_id or "",
            member_id=member.member_id,
            members=tuple(
                JoinedMember(other.member_id, other.group_instance_id, other.metadata(group.protocol)) for other in group.members.values()
            )
            if is_leader
            else (),
            protocol_type=group.protocol_type,
            skip_assignment=is_leader and bool(replaced),
            former_leader_id=replaced if is_leader else "",
        )

    # ------------------------------------------------------------ syncing

    def sync(self, member: Member, ticket: int, assignments: Mapping[str, bytes]) -> None:
        """A member of the generation syncs; the leader's assignments make the group stable."""
        group = self.group
        self.reply(member.sync_ticket, RebalanceInProgress(group.group_id))  # its caller has given up
        self.put(member, sync_ticket=ticket)
        group.unsynced -= {member.member_id}
        if not group.unsynced:
            self._timers["sync", group.group_id] = None
        if group.state is GroupState.COMPLETING and member.member_id == group.leader_id:
            for other in list(group.members.values()):
                self.put(other, assignment=assignments.get(other.member_id, b""))
            self._enter(GroupState.STABLE)
            self.record()
        if group.state is GroupState.STABLE:
            for other in list(group.members.values()):
                if other.sync_ticket is not None:
                    self.reply(other.sync_ticket, SyncResult(group.protocol or "", other.assignment, group.protocol_type))
                    self.renew_session(self.put(other, sync_ticket=None))

    def sync_timeout(self) -> None:
        """Remove members of the generation that have not asked for their assignment."""
        if self.group.state in (GroupState.COMPLETING, GroupState.STABLE) and self.group.unsynced:
            for member_id in sorted(self.group.unsynced):
                self.remove(self.group.members[member_id])
            self.rebalance_after_departure()

    # ------------------------------------------------------------ the record

    def record(self) -> None:
        """Record the group."""
        self._records.append(StateRecord(group_key(self.group.group_id), group_value(self.group.value())))

    def _enter(self, state: GroupState) -> None:
        self.group.state, self.group.state_timestamp_ms = state, self._now_ms
