"""The group coordinator of one shard: the groups and offsets of one partition of ``__consumer_offsets``.

It checks whether a group's state allows a call; rebalances are in ``groups``.

A group exists while it has members, offsets or a recorded generation.  A group with offsets alone (committed without a member) is a
plain store of offsets, in the state Empty.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from logdb.coordinator.consumer_protocol import PROTOCOL_TYPE
from logdb.coordinator.effects import Effects, Reply, StateRecord, Submitted, Timer, TimerFired
from logdb.coordinator.groups import Group, GroupConfig, GroupState, Member, Step, session_timer, size_of, topics_of
from logdb.coordinator.member_memory import MemberMemory
from logdb.coordinator.offsets import Offsets
from logdb.coordinator.records import (
    GroupKey,
    OffsetKey,
    OffsetValue,
    group_key,
    offset_key,
    offset_value,
    parse_group_key,
    parse_group_value,
    parse_offset_value,
)
from logdb.errors import (
    ConcurrentTransactions,
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroup,
    InvalidMessage,
    LogdbError,
    MemberIdRequired,
    MemberMemoryFull,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
    without_frames,
)
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests.groups import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    FetchOffsets,
    GroupInfo,
    GroupSummary,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MemberInfo,
    SyncGroup,
)
from logdb.requests.transactions import CommitTransactionOffsets
from logdb.verifications import Verifications

_SWEEP = ("sweep",)
_NAME_SIZE_BYTES_MAX = 32_000  # a recorded string has 32,767 bytes at most, and a member's id is a name and some more


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicsDeleted:
    """Event: these topics were deleted: their offsets are forgotten.  No reply.

    ``before_offset``: only those whose records lie before it; later ones are of a new topic of the same name.  None: all.
    """

    topics: frozenset[str]
    before_offset: int | None = None


class GroupCoordinator:
    """The groups of one partition of ``__consumer_offsets``.

    Args:
        config: Limits and waits.
        new_id: Returns a new unique string (a UUID) for a member id.
        memory: What the members of all coordinators of a broker share; None: this one has its own.

    Threading: none; see ``effects``.
    """

    def __init__(self, config: GroupConfig, new_id: Callable[[], str], memory: MemberMemory | None = None) -> None:
        self._config, self._new_id = config, new_id
        self._memory = memory or MemberMemory(config.member_bytes_max)
        self._member_count = self._memory.count()
        self._groups: dict[str, Group] = {}
        self._offsets = Offsets()
        self._verifying = Verifications()
        self._handlers: dict[type, Callable[[Any, int], Effects]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            Heartbeat: self._heartbeat,
            LeaveGroup: self._leave,
            CommitOffsets: self._commit,
            CommitTransactionOffsets: self._commit_transaction,
            DeleteGroup: self._delete_group,
            DeleteOffsets: self._delete_offsets,
            TopicsDeleted: self._topics_deleted,
            TimerFired: self._timer,
        }

    # ------------------------------------------------------------ the contract

    def handle(self, event: Any, now_ms: int) -> Effects:
        """The effects of an event; see ``effects.Coordinator``."""
        try:
            return self._handlers[type(getattr(event, "request", event))](event, now_ms)
        except LogdbError as error:
            return Effects(replies=(Reply(event.ticket, without_frames(error)),))

    def accept(self, effects: Effects, offset: int) -> None:
        """Make the effects current; their records were appended from ``offset`` on."""
        producer_id = effects.producer.producer_id if effects.producer else -1
        if effects.parsed:
            for at, (key, committed) in enumerate(effects.parsed, offset):
                self._offsets.put(key, committed, offset=at, producer_id=producer_id)
        else:
            for at, record in enumerate(effects.records, offset):
                self.apply(record.key, record.value, offset=at, producer_id=producer_id)
        for group_id, group in effects.changes.items():
            self._put(group_id, group)

    def apply(self, key: bytes, value: bytes | None, *, offset: int, producer_id: int = -1) -> None:
        """One record of the partition; see ``effects.Coordinator``."""
        parsed = parse_group_key(key)
        if isinstance(parsed, GroupKey):
            if value is None:
                self._member_count.replace(self._group(parsed.group_id), Group(group_id=parsed.group_id))
                self._groups.pop(parsed.group_id, None)
            else:
                self._put(parsed.group_id, Group.of(parsed.group_id, parse_group_value(value)))
        elif parsed is not None:
            if value is None:
                self._offsets.remove(parsed)
            else:
                self._offsets.put(parsed, parse_offset_value(value), offset=offset, producer_id=producer_id)

    def _put(self, group_id: str, group: Group) -> None:
        self._member_count.replace(self._group(group_id), group)
        self._groups[group_id] = group

    def apply_marker(self, producer_id: int, *, commit: bool) -> None:
        """A transaction ended: its offsets are committed, or dropped."""
        self._verifying.end(producer_id)
        self._offsets.end_transaction(producer_id, commit=commit)

    def verification(self, producer_id: int) -> object:
        """What the offsets of a producer's next transaction are begun with: see ``CommitTransactionOffsets``."""
        return self._verifying.give(producer_id)

    def recover(self, now_ms: int) -> Effects:
        """Sessions begin anew; dynamic members of a process that has ended are removed."""
        steps = []
        for group in self._groups.values():
            step = Step(group, self._config, now_ms)
            gone = [member for member in group.members.values() if not member.client_host and member.group_instance_id is None]
            for member in step.group.members.values():
                step.renew_session(member)
            for member in gone:
                step.remove(member)
            if gone:
                step.rebalance_after_departure()
            steps.append(step.effects())
        return _together(steps, Timer(_SWEEP, self._config.sweep_interval_ms))

    # ------------------------------------------------------------ questions

    def groups(self) -> list[GroupSummary]:
        """All groups, in order of their names."""
        return [
            GroupSummary(group.group_id, group.state.value, group.protocol_type)
            for group in map(self._group, sorted(self._groups.keys() | self._offsets.groups()))
        ]

    def topics_with_offsets(self) -> set[str]:
        """The topics of all offsets, committed or pending."""
        return {key.partition.topic for key in self._offsets.listed()}

    def describe(self, group_id: str) -> GroupInfo:
        """One group.

        Raises:
            UnknownGroup.
        """
        group = self._known(group_id)
        stable = group.state is GroupState.STABLE
        members = (
            MemberInfo(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if stable else b"",
                member.assignment if stable else b"",
            )
            for member in group.members.values()
        )
        protocol = group.protocol if stable else None
        return GroupInfo(
            group_id, group.state.value, group.protocol_type, protocol or "", group.generation, group.leader_id or "", tuple(members)
        )

    def fetch_offsets(self, request: FetchOffsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, of the partitions that have one.

        Raises:
            UnstableOffsets: ``require_stable``, and a transaction that may change one of them has not ended yet.
        """
        return self._offsets.fetch(request.group_id, request.partitions, require_stable=request.require_stable)

    def _group(self, group_id: str) -> Group:
        return self._groups.get(group_id) or Group(group_id=group_id)

    def _known(self, group_id: str) -> Group:
        if group_id not in self._groups and not self._offsets.has(group_id):
            raise UnknownGroup(group_id)
        return self._group(group_id)

    # ------------------------------------------------------------ members

    def _join(self, event: Submitted[JoinGroup], now_ms: int) -> Effects:
        request = event.request
        self._check_join(request)
        step = Step(self._group(request.group_id), self._config, now_ms)
        if not request.member_id:
            self._join_new(step, event)
        elif request.member_id in step.group.invited and request.group_instance_id is None:
            step.add(_member(event, request.member_id), request.protocol_type)
        else:
            _rejoin(step, event)
        return step.effects()

    def _check_join(self, request: JoinGroup) -> None:
        config, group = self._config, self._group(request.group_id)
        if not request.group_id:
            raise InvalidGroup("a group needs a name")
        names = (request.group_id, request.group_instance_id or "", request.client_id, request.client_host, request.protocol_type)
        if (size_bytes := max(len(name.encode()) for name in (*names, *dict(request.protocols)))) > _NAME_SIZE_BYTES_MAX:
            raise InvalidGroup(f"a name of {size_bytes} bytes, the limit is {_NAME_SIZE_BYTES_MAX}")
        if not config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max:
            allowed = f"[{config.session_timeout_ms_min}, {config.session_timeout_ms_max}]"
            raise InvalidGroup(f"session_timeout_ms={request.session_timeout_ms} is outside of {allowed}")
        if request.member_id and request.member_id not in group.members and request.member_id not in group.invited:
            group.member(request.member_id, request.group_instance_id)  # raises the fitting error
        full = len(group.members) >= config.member_count_max
        replaces = request.group_instance_id is not None and group.holder(request.group_instance_id) is not None
        if full and request.member_id not in group.members and not replaces:
            raise GroupFull(request.group_id, len(group.members), config.member_count_max)
        former, size_bytes = group.members.get(request.member_id), size_of(request.protocols)
        more = size_bytes - size_of(former.protocols) if former else size_bytes + len(request.client_id)
        self._check_memory(group, more, request.client_host)
        if not group.supports(request.protocol_type, request.protocols):
            supported = ", ".join(name for name, _ in request.protocols)
            raise InconsistentProtocol(
                f"group {request.group_id!r} of type {group.protocol_type!r} shares {', '.join(sorted(group.candidates())) or 'nothing'}; "
                f"the member of type {request.protocol_type!r} supports {supported or 'nothing'}"
            )

    def _check_memory(self, group: Group, size_bytes: int, host: str) -> None:
        if not self._memory.has_room(size_bytes, host):
            raise MemberMemoryFull(group.group_id, size_bytes, self._memory.bytes_max)

    def _join_new(self, step: Step, event: Submitted[JoinGroup]) -> None:
        request = event.request
        member_id = f"{request.client_id if request.group_instance_id is None else request.group_instance_id}-{self._new_id()}"
        if request.group_instance_id is not None and (holder := step.group.holder(request.group_instance_id)) is not None:
            _replace_static(step, event, holder, member_id)
        elif request.group_instance_id is None and request.require_member_id:
            step.invite(member_id, request.client_host, request.session_timeout_ms)
            step.reply(event.ticket, MemberIdRequired(request.group_id, member_id))
        else:
            step.add(_member(event, member_id), request.protocol_type)

    def _sync(self, event: Submitted[SyncGroup], now_ms: int) -> Effects:
        request, group = event.request, self._group(event.request.group_id)
        member = self._of_generation(group, request)
        for given, chosen in ((request.protocol_type, group.protocol_type), (request.protocol, group.protocol)):
            if given is not None and given != chosen:
                raise InconsistentProtocol(f"group {request.group_id!r} has chosen {chosen!r}, not {given!r}")
        if group.state is GroupState.PREPARING:
            raise RebalanceInProgress(request.group_id)
        if member.member_id == group.leader_id:
            more = sum(len(request.assignments.get(one.member_id, b"")) - len(one.assignment) for one in group.members.values())
            self._check_memory(group, more, member.client_host)
        step = Step(group, self._config, now_ms)
        step.sync(member, event.ticket, request.assignments)
        return step.effects()

    def _heartbeat(self, event: Submitted[Heartbeat], _: int) -> Effects:
        request, group = event.request, self._group(event.request.group_id)
        member = self._of_generation(group, request)
        answer = RebalanceInProgress(request.group_id) if group.state is GroupState.PREPARING else None
        return Effects(replies=(Reply(event.ticket, answer),), timers=(_renewal(group, member),))

    def _of_generation(self, group: Group, request: SyncGroup | Heartbeat | CommitOffsets | CommitTransactionOffsets) -> Member:
        member = group.member(request.member_id, request.group_instance_id)
        if request.generation != group.generation:
            raise IllegalGeneration(request.group_id, request.generation, group.generation)
        return member

    def _leave(self, event: Submitted[LeaveGroup], now_ms: int) -> Effects:
        request = event.request
        step = Step(self._group(request.group_id), self._config, now_ms)
        if request.member_id in step.group.invited and request.group_instance_id is None:
            step.uninvite(request.member_id)
        elif request.member_id or request.group_instance_id is None:
            step.remove(step.group.member(request.member_id, request.group_instance_id))
        elif (holder := step.group.holder(request.group_instance_id)) is not None:
            step.remove(holder)
        else:
            raise UnknownMember(request.group_id, "")
        step.reply(event.ticket, None)
        step.rebalance_after_departure()
        return step.effects()

    def _timer(self, event: TimerFired, now_ms: int) -> Effects:
        if event.key == _SWEEP:
            return self._sweep(now_ms)
        kind, group_id, *rest = event.key
        if group_id not in self._groups:
            return Effects()
        step = Step(self._groups[group_id], self._config, now_ms)
        if kind == "join":
            step.join_timeout()
        elif kind == "sync":
            step.sync_timeout()
        else:
            _session_timeout(step, rest[0])
        return step.effects()

    # ------------------------------------------------------------ offsets

    def _commit(self, event: Submitted[CommitOffsets], now_ms: int) -> Effects:
        request, group = event.request, self._group(event.request.group_id)
        timers: tuple[Timer, ...] = ()
        if request.generation >= 0 or group.state is not GroupState.EMPTY:
            member = self._of_generation(group, request)
            if group.state is GroupState.COMPLETING:
                raise RebalanceInProgress(request.group_id)
            timers = (_renewal(group, member),)
        records, parsed = self._offset_records(request, now_ms)
        return Effects(records=records, parsed=parsed, replies=(Reply(event.ticket, None),), timers=timers)

    def _commit_transaction(self, event: Submitted[CommitTransactionOffsets], now_ms: int) -> Effects:
        request, group = event.request, self._group(event.request.group_id)
        named = request.generation >= 0 or request.member_id or request.group_instance_id is not None
        if named and not (request.generation < 0 and group.state is GroupState.EMPTY):
            self._of_generation(group, request)
        producer_id = request.producer.producer_id
        if not (event.verified is None or self._offsets.is_writing(producer_id) or self._verifying.holds(producer_id, event.verified)):
            raise ConcurrentTransactions(f"the transaction of producer {producer_id} ended before its offsets arrived")
        records, parsed = self._offset_records(request, now_ms)
        producer = request.producer if records else None
        return Effects(records=records, parsed=parsed, producer=producer, replies=(Reply(event.ticket, None),))

    def _offset_records(
        self, request: CommitOffsets | CommitTransactionOffsets, now_ms: int
    ) -> tuple[tuple[StateRecord, ...], tuple[tuple[OffsetKey, OffsetValue], ...]]:
        """The records of a commit, and their parsed form."""
        records, parsed, too_large, size_bytes_max = [], [], {}, self._config.offset_metadata_bytes_max
        for partition, (offset, leader_epoch, metadata) in request.offsets.items():
            if (size_bytes := len(metadata.encode())) > size_bytes_max:
                too_large[partition] = size_bytes
                continue
            encoded = offset_value(OffsetValue(offset, leader_epoch, metadata, now_ms))
            value = OffsetValue(int(offset), int(leader_epoch), metadata, now_ms)  # numbers of other libraries are taken, too
            records.append(StateRecord(offset_key(request.group_id, partition), encoded))
            parsed.append((OffsetKey(request.group_id, partition), value))
        if too_large:
            raise OffsetMetadataTooLarge(tuple(too_large), next(iter(too_large.values())), size_bytes_max)
        return tuple(records), tuple(parsed)

    def _delete_group(self, event: Submitted[DeleteGroup], _: int) -> Effects:
        request, group = event.request, self._known(event.request.group_id)
        if group.state is not GroupState.EMPTY:
            raise GroupNotEmpty(request.group_id, len(group.members))
        keys = self._offsets.listed(request.group_id)
        return Effects(records=(*_tombstones(keys), _forget(request.group_id)), replies=(Reply(event.ticket, None),))

    def _delete_offsets(self, event: Submitted[DeleteOffsets], _: int) -> Effects:
        request, group = event.request, self._known(event.request.group_id)
        if group.members and group.protocol_type != PROTOCOL_TYPE:
            raise GroupNotEmpty(request.group_id, len(group.members))
        topics = group.topics()
        used = {partition for partition in request.partitions if topics is None or partition.topic in topics}
        wanted = {OffsetKey(request.group_id, partition) for partition in request.partitions if partition not in used}
        errors = {partition: GroupNotEmpty(request.group_id, len(group.members)) for partition in used}
        return Effects(records=_tombstones(wanted & self._offsets.listed(request.group_id)), replies=(Reply(event.ticket, errors),))

    def _topics_deleted(self, event: TopicsDeleted, _: int) -> Effects:
        gone = {key for key in self._offsets.listed() if key.partition.topic in event.topics}
        if event.before_offset is not None:
            gone = {key for key in gone if self._offsets.latest(key) < event.before_offset}
        return Effects(records=_tombstones(gone))

    def _sweep(self, now_ms: int) -> Effects:
        """Forget expired offsets, and groups that have neither members nor offsets left."""
        records: list[StateRecord] = []
        for group_id in sorted(self._groups.keys() | self._offsets.groups()):
            group = self._group(group_id)
            expired = {OffsetKey(group_id, partition) for partition in self._expired(group, now_ms)}
            records += _tombstones(expired)
            if group.state is GroupState.EMPTY and not group.invited and self._offsets.listed(group_id) == expired:
                records.append(_forget(group_id))
        return Effects(records=tuple(records), timers=(Timer(_SWEEP, self._config.sweep_interval_ms),))

    def _expired(self, group: Group, now_ms: int) -> list[TopicPartition]:
        topics = group.topics()
        if topics is None or group.state in (GroupState.PREPARING, GroupState.COMPLETING):
            return []
        idle_since_ms = group.state_timestamp_ms if group.protocol_type and not group.members and group.state_timestamp_ms >= 0 else None
        expired = self._offsets.expired(group.group_id, now_ms, self._config.offsets_retention_ms, idle_since_ms)
        return [partition for partition in expired if partition.topic not in topics]


# ---------------------------------------------------------------- parts of the handlers


def _member(event: Submitted[JoinGroup], member_id: str) -> Member:
    request = event.request
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        join_ticket=event.ticket,
    )


def _update(step: Step, member: Member, event: Submitted[JoinGroup]) -> Member:
    """The member joins with what it supports now."""
    request = event.request
    step.reply(member.join_ticket, RebalanceInProgress(request.group_id))  # its caller has given up
    return step.put(
        member,
        protocols=request.protocols,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        join_ticket=event.ticket,
    )


def _rejoin(step: Step, event: Submitted[JoinGroup]) -> None:
    """A member joins again: for a rebalance, to begin one, or because the answer was lost."""
    request = event.request
    group = step.group
    member = group.member(request.member_id, request.group_instance_id)
    same = member.protocols == request.protocols
    if same and (group.state is GroupState.COMPLETING or (group.state is GroupState.STABLE and member.member_id != group.leader_id)):
        step.renew_session(member)
        step.reply(event.ticket, step.join_result(member))
        return
    _update(step, member, event)
    step.rebalance()


def _replace_static(step: Step, event: Submitted[JoinGroup], old: Member, member_id: str) -> None:
    """A static member comes back: it takes its instance's place, without a rebalance if its subscription is the same."""
    request = event.request
    group, was_leader = step.group, step.group.leader_id == old.member_id
    step.remove(old, FencedInstance(request.group_id, old.group_instance_id or ""))
    if was_leader:
        group.leader_id = member_id
    member = step.put(_member(event, member_id), assignment=old.assignment)
    step.renew_session(member)
    if group.state is not GroupState.STABLE or group.vote() != group.protocol or _topics(group, old) != _topics(group, member):
        step.rebalance()
        return
    member = step.put(member, join_ticket=None)
    step.record()
    step.reply(event.ticket, step.join_result(member, replaced=old.member_id))


def _topics(group: Group, member: Member) -> frozenset[str] | None:
    """The topics that a consumer subscribes to; None if they are unknown."""
    try:
        return frozenset(topics_of(member.metadata(group.protocol))) if group.protocol_type == PROTOCOL_TYPE else None
    except InvalidMessage:
        return None


def _session_timeout(step: Step, member_id: str) -> None:
    """The session of a member expired: remove it, unless it waits for an answer (a new member only for so long)."""
    group = step.group
    if member_id in group.invited:
        step.uninvite(member_id)
    elif (member := group.members.get(member_id)) is None or (
        not member.new and (member.join_ticket is not None or member.sync_ticket is not None)
    ):
        return
    else:
        step.remove(member)
    step.rebalance_after_departure()


def _renewal(group: Group, member: Member) -> Timer:
    return Timer(session_timer(group.group_id, member.member_id), member.session_timeout_ms)


def _tombstones(keys: Iterable[OffsetKey]) -> tuple[StateRecord, ...]:
    return tuple(StateRecord(offset_key(key.group_id, key.partition), None) for key in sorted(keys))


def _forget(group_id: str) -> StateRecord:
    return StateRecord(group_key(group_id), None)


def _together(steps: list[Effects], *timers: Timer) -> Effects:
    return Effects(
        records=tuple(record for step in steps for record in step.records),
        replies=tuple(reply for step in steps for reply in step.replies),
        timers=tuple(timer for step in steps for timer in step.timers) + timers,
        changes={group_id: group for step in steps for group_id, group in step.changes.items()},
    )
