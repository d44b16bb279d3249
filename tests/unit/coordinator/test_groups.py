from typing import Any

import pytest

from logdb.coordinator.consumer_protocol import Subscription
from logdb.coordinator.records import GroupKey, parse_group_key, parse_group_value
from logdb.errors import (
    DiskFull,
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroup,
    MemberIdRequired,
    MemberMemoryFull,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from logdb.requests.groups import DeleteGroup, Heartbeat, JoinGroup, JoinResult, LeaveGroup, SyncGroup, SyncResult
from support.coordination import Entry, group_runner

SESSION_MS, REBALANCE_MS = 10_000, 60_000
REMOTE = "/10.0.0.7"


def protocols(*names: str, topics: tuple[str, ...] = ("t",)) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, Subscription(topics).encode()) for name in names or ("range",))


class Groups:
    """The group g, asked in the shortest way."""

    def __init__(self, **config: Any) -> None:
        self.runner = group_runner(**config)

    def start_join(self, member_id: str = "", **fields: Any) -> int:
        defaults = {
            "group_id": "g",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocols": protocols(),
            "client_id": "c",
            "client_host": REMOTE,
        }
        return self.runner.start(JoinGroup, member_id=member_id, **defaults | fields)

    def join(self, member_id: str = "", **fields: Any) -> JoinResult:
        return self.runner.answer(self.start_join(member_id, **fields))  # type: ignore[no-any-return]

    def start_sync(self, joined: JoinResult, assignments: dict[str, bytes] | None = None, **fields: Any) -> int:
        return self.runner.start(
            SyncGroup,
            group_id="g",
            **{"generation": joined.generation, "member_id": joined.member_id, "assignments": assignments or {}} | fields,
        )

    def sync(self, joined: JoinResult, assignments: dict[str, bytes] | None = None, **fields: Any) -> SyncResult:
        return self.runner.answer(self.start_sync(joined, assignments, **fields))  # type: ignore[no-any-return]

    def heartbeat(self, joined: JoinResult, **fields: Any) -> None:
        self.runner.call(Heartbeat, group_id="g", **{"generation": joined.generation, "member_id": joined.member_id} | fields)

    def leave(self, member_id: str = "", **fields: Any) -> None:
        self.runner.call(LeaveGroup, group_id="g", member_id=member_id, **fields)

    def leave_id(self, joined: JoinResult) -> None:
        self.leave(joined.member_id)

    @property
    def state(self) -> str:
        return next((group.state for group in self.runner.coordinator.groups() if group.group_id == "g"), "none")

    @property
    def info(self) -> Any:
        return self.runner.coordinator.describe("g")

    def recorded(self) -> list[Any]:
        """What was written down of the group."""
        return [
            entry.record.value and parse_group_value(entry.record.value)
            for entry in self.runner.log
            if isinstance(entry, Entry) and isinstance(parse_group_key(entry.record.key), GroupKey)
        ]

    def stable(self, count: int = 1, **fields: Any) -> list[JoinResult]:
        """Members of a stable group, the leader first; member i has the assignment b"i"."""
        joined = [self.join(**fields)]
        for _ in range(count - 1):
            ticket = self.start_join(**fields)
            others = [self.start_join(member.member_id, **fields) for member in joined]
            joined = [*map(self.runner.answer, others), self.runner.answer(ticket)]
        assignments = {member.member_id: b"%d" % number for number, member in enumerate(joined)}
        for member in reversed(joined):
            self.start_sync(member, assignments if member is joined[0] else None)
        assert self.state == "Stable"
        return joined

    def completing(self, count: int) -> list[JoinResult]:
        """Members of the next generation of a stable group, the leader first; none has synced."""
        joins = [self.start_join(member.member_id) for member in self.stable(count)]
        assert self.state == "CompletingRebalance"
        return [*map(self.runner.answer, joins)]


@pytest.fixture
def groups() -> Groups:
    return Groups()


# ---------------------------------------------------------------- joining


def test_empty_to_completing_the_first_member_leads_at_once(groups: Groups) -> None:
    joined = groups.join()
    assert groups.state == "CompletingRebalance"
    assert joined.leader_id == joined.member_id == "c-1"
    assert (joined.generation, joined.protocol, joined.protocol_type) == (1, "range", "consumer")
    assert [(member.member_id, member.metadata) for member in joined.members] == [("c-1", protocols()[0][1])]


def test_empty_to_preparing_waits_for_the_initial_delay() -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    first = groups.start_join()
    assert groups.state == "PreparingRebalance"
    groups.runner.advance(2_000)
    second = groups.start_join()
    groups.runner.advance(1_000)  # a member came: it waits on
    assert groups.runner.waits(first)
    groups.runner.advance(3_000)
    results = [groups.runner.answer(ticket) for ticket in (first, second)]
    assert [result.generation for result in results] == [1, 1]
    assert [len(result.members) for result in results] == [2, 0]


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    groups = Groups(initial_rebalance_delay_ms=3_000)
    first = groups.start_join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        groups.runner.advance(1_000)
        groups.start_join(rebalance_timeout_ms=7_000)
    assert groups.runner.waits(first)
    groups.runner.advance(1_000)
    assert len(groups.runner.answer(first).members) == 7


def test_stable_to_preparing_a_new_member_joins(groups: Groups) -> None:
    (leader,) = groups.stable()
    ticket = groups.start_join()
    assert groups.state == "PreparingRebalance"
    assert groups.runner.waits(ticket)
    with pytest.raises(RebalanceInProgress):
        groups.heartbeat(leader)


def test_preparing_to_completing_when_all_have_joined(groups: Groups) -> None:
    (leader,) = groups.stable()
    ticket = groups.start_join()
    again = groups.join(leader.member_id)
    assert groups.state == "CompletingRebalance"
    assert again.generation == groups.runner.answer(ticket).generation == 2
    assert [member.member_id for member in again.members] == ["c-1", "c-2"]
    assert groups.runner.answer(ticket).members == ()


def test_preparing_to_completing_without_who_is_silent(groups: Groups) -> None:
    leader, other = groups.stable(2)
    ticket = groups.start_join(leader.member_id, rebalance_timeout_ms=5_000)
    groups.runner.advance(SESSION_MS)  # the other is silent: it is not waited for longer than its session
    assert [member.member_id for member in groups.runner.answer(ticket).members] == [leader.member_id]
    with pytest.raises(UnknownMember):
        groups.heartbeat(other)


def test_preparing_to_completing_a_member_that_beats_but_does_not_join_is_removed(groups: Groups) -> None:
    leader, other = groups.stable(2)
    ticket = groups.start_join(leader.member_id)
    for _ in range(REBALANCE_MS // 5_000):
        assert groups.runner.waits(ticket)
        with pytest.raises(RebalanceInProgress):
            groups.heartbeat(other)
        groups.runner.advance(5_000)
    assert groups.runner.answer(ticket).generation == leader.generation + 1
    with pytest.raises(UnknownMember):
        groups.heartbeat(other)


def test_preparing_a_leader_that_does_not_join_is_replaced(groups: Groups) -> None:
    leader, other = groups.stable(2)
    ticket = groups.start_join(other.member_id, protocols=protocols("range", "extra"))  # something changed
    groups.runner.advance(SESSION_MS)
    result = groups.runner.answer(ticket)
    assert result.leader_id == other.member_id
    assert len(result.members) == 1
    assert leader.member_id not in {member.member_id for member in groups.info.members}


def test_stable_to_preparing_the_leader_joins_again(groups: Groups) -> None:
    leader, _ = groups.stable(2)
    ticket = groups.start_join(leader.member_id)
    assert groups.runner.waits(ticket)
    assert groups.state == "PreparingRebalance"


def test_stable_to_preparing_a_member_changes_its_subscription(groups: Groups) -> None:
    _, other = groups.stable(2)
    ticket = groups.start_join(other.member_id, protocols=protocols(topics=("t", "u")))
    assert groups.runner.waits(ticket)
    assert groups.state == "PreparingRebalance"


def test_stable_a_follower_that_joins_unchanged_gets_the_generation_again(groups: Groups) -> None:
    _, other = groups.stable(2)
    assert groups.join(other.member_id) == other
    assert groups.state == "Stable"


def test_completing_a_member_that_lost_its_answer_gets_it_again(groups: Groups) -> None:
    joined = groups.join()
    assert groups.join(joined.member_id) == joined
    assert groups.state == "CompletingRebalance"


def test_completing_to_preparing_a_new_member_joins(groups: Groups) -> None:
    leader = groups.join()
    ticket = groups.start_join()
    assert groups.state == "PreparingRebalance"
    follower = groups.start_sync(leader)
    with pytest.raises(RebalanceInProgress):
        groups.runner.answer(follower)
    assert groups.join(leader.member_id).generation == groups.runner.answer(ticket).generation == 2


def test_completing_to_preparing_a_member_changes_its_subscription(groups: Groups) -> None:
    leader, other = groups.completing(2)
    ticket = groups.start_join(other.member_id, protocols=protocols(topics=("t", "u")))
    assert groups.runner.waits(ticket)
    assert groups.state == "PreparingRebalance"
    assert groups.join(leader.member_id).generation == leader.generation + 1


def test_completing_to_preparing_answers_who_waits_for_the_leader(groups: Groups) -> None:
    leader, other = groups.stable(2)
    groups.start_join(leader.member_id)
    joined = groups.join(other.member_id)
    ticket = groups.start_sync(joined)
    assert groups.runner.waits(ticket)
    groups.start_join()
    with pytest.raises(RebalanceInProgress):
        groups.runner.answer(ticket)


def test_a_join_that_was_given_up_is_answered(groups: Groups) -> None:
    groups.stable(2)
    joins = [groups.start_join("c-1") for _ in range(2)]
    with pytest.raises(RebalanceInProgress):
        groups.runner.answer(joins[0])
    assert groups.runner.waits(joins[1])


def test_a_new_member_does_not_wait_for_ever() -> None:
    groups = Groups(new_member_timeout_ms=20_000)
    (leader,) = groups.stable()
    ticket = groups.start_join()
    for _ in range(4):
        with pytest.raises(RebalanceInProgress):
            groups.heartbeat(leader)
        groups.runner.advance(5_000)
    with pytest.raises(UnknownMember):
        groups.runner.answer(ticket)


def test_a_member_that_waits_is_not_silent(groups: Groups) -> None:
    leader, other = groups.stable(2)
    ticket = groups.start_join(leader.member_id)
    for _ in range(5):
        with pytest.raises(RebalanceInProgress):
            groups.heartbeat(other)
        groups.runner.advance(SESSION_MS - 1_000)
    assert groups.runner.waits(ticket)
    groups.join(other.member_id)
    assert groups.runner.answer(ticket).generation == leader.generation + 1


def test_generations_grow(groups: Groups) -> None:
    (joined,) = groups.stable()
    for generation in range(2, 5):
        joined = groups.join(joined.member_id)
        groups.sync(joined)
        assert joined.generation == generation
    groups.leave_id(joined)
    assert groups.join().generation == 6  # to be empty is a generation, too


# ---------------------------------------------------------------- what a join is refused for


@pytest.mark.parametrize("timeout_ms", [5_999, 30_001])
def test_a_session_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    groups = Groups(session_timeout_ms_min=6_000, session_timeout_ms_max=30_000)
    with pytest.raises(InvalidGroup, match=str(timeout_ms)):
        groups.join(session_timeout_ms=timeout_ms)
    assert groups.state == "none"


def test_a_group_needs_a_name(groups: Groups) -> None:
    with pytest.raises(InvalidGroup):
        groups.join(group_id="")


@pytest.mark.parametrize("field", ["group_id", "group_instance_id", "client_id", "client_host", "protocol_type"])
def test_a_name_that_no_record_could_hold_is_refused(groups: Groups, field: str) -> None:
    with pytest.raises(InvalidGroup, match="32001"):
        groups.join(**{field: "x" * 32_001})
    with pytest.raises(InvalidGroup, match="32001"):
        groups.join(protocols=(("range", b""), ("ü" * 16_000 + "x", b"")))
    joined = groups.join(client_id="x" * 32_000, client_host="x" * 32_000)
    groups.sync(joined)


def test_an_unknown_member_is_refused(groups: Groups) -> None:
    with pytest.raises(UnknownMember):
        groups.join("nobody")
    assert groups.state == "none"


def test_nothing_in_common_is_refused(groups: Groups) -> None:
    groups.stable(protocols=protocols("range", "sticky"))
    for fields in ({"protocols": protocols("roundrobin")}, {"protocol_type": "connect"}, {"protocols": ()}):
        with pytest.raises(InconsistentProtocol):
            groups.join(**fields)
    assert groups.state == "Stable"


def test_a_full_group_takes_no_other_member() -> None:
    groups = Groups(member_count_max=2)
    leader, _ = groups.stable(2)
    with pytest.raises(GroupFull):
        groups.join()
    groups.start_join(leader.member_id)
    assert groups.state == "PreparingRebalance"


def test_members_of_one_host_have_half_of_the_memory_and_leave_it_with_their_sessions() -> None:
    groups = Groups(member_bytes_max=100_000, new_member_timeout_ms=5_000)
    large = (("range", bytes(20_000)),)
    for name in ("a", "b"):
        groups.join(group_id=name, protocols=large)
    with pytest.raises(MemberMemoryFull):
        groups.join(group_id="c", protocols=large)
    groups.join(group_id="d", protocols=large, client_host="/10.0.0.8")
    groups.join(group_id="e", protocols=large * 3, client_host="")  # in this process
    groups.runner.advance(SESSION_MS)
    groups.join(group_id="c", protocols=large)


def test_ids_of_members_that_have_not_joined_are_counted() -> None:
    groups = Groups(member_bytes_max=100_000)
    with pytest.raises(MemberIdRequired) as first:
        groups.join(client_id="c" * 30_000, require_member_id=True)
    with pytest.raises(MemberMemoryFull):
        groups.join(group_id="other", client_id="c" * 30_000, require_member_id=True)
    groups.leave(first.value.member_id)
    with pytest.raises(MemberIdRequired):
        groups.join(group_id="other", client_id="c" * 30_000, require_member_id=True)
    groups.runner.advance(SESSION_MS)
    assert groups.runner.coordinator._member_count.total == 0


def test_short_ids_of_members_that_have_not_joined_are_counted_as_what_they_take() -> None:
    groups = Groups(member_bytes_max=100_000)
    for _ in range(48):
        with pytest.raises(MemberIdRequired):
            groups.join(require_member_id=True)
    with pytest.raises(MemberMemoryFull):
        groups.join(require_member_id=True, protocols=(("range", bytes(1_000)),))


def test_assignments_are_counted_and_a_group_that_ends_gives_all_of_it_back() -> None:
    groups = Groups(member_bytes_max=100_000)
    for _ in range(5):
        joined = groups.join()
        with pytest.raises(MemberMemoryFull):
            groups.sync(joined, {joined.member_id: bytes(60_000)})
        groups.sync(joined, {joined.member_id: bytes(40_000)})
        groups.leave_id(joined)
        groups.runner.call(DeleteGroup, group_id="g")
    count = groups.runner.coordinator._member_count
    assert (count.total, dict(count.of_host)) == (0, {})


def test_the_protocol_most_like_is_chosen(groups: Groups) -> None:
    wishes = [("range", "sticky"), ("sticky", "roundrobin", "range"), ("sticky", "range", "other")]
    first = groups.join(protocols=protocols(*wishes[0]))
    others = [groups.start_join(protocols=protocols(*wish)) for wish in wishes[1:]]
    leader = groups.join(first.member_id, protocols=protocols(*wishes[0]))
    assert leader.protocol == "sticky"
    assert [groups.runner.answer(ticket).protocol for ticket in others] == ["sticky"] * 2


def test_the_leader_sees_the_subscriptions_for_the_protocol_that_was_chosen(groups: Groups) -> None:
    joined = groups.join(protocols=(("range", b"r"), ("sticky", b"s")))
    ticket = groups.start_join(protocols=(("sticky", b"S"),))
    leader = groups.join(joined.member_id, protocols=(("range", b"r"), ("sticky", b"s")))
    assert [member.metadata for member in leader.members] == [b"s", b"S"]
    assert groups.runner.answer(ticket).protocol == "sticky"


# ---------------------------------------------------------------- member ids first (KIP-394)


def test_a_new_member_gets_its_id_first(groups: Groups) -> None:
    with pytest.raises(MemberIdRequired) as required:
        groups.join(require_member_id=True)
    assert groups.info.members == ()
    assert groups.join(required.value.member_id, require_member_id=True).member_id == required.value.member_id


def test_a_rebalance_waits_for_who_got_an_id_until_its_session_ends(groups: Groups) -> None:
    (leader,) = groups.stable()
    with pytest.raises(MemberIdRequired):
        groups.join(require_member_id=True)
    assert groups.state == "Stable"
    ticket = groups.start_join(leader.member_id)
    assert groups.runner.waits(ticket)
    groups.runner.advance(SESSION_MS)
    assert groups.runner.answer(ticket).generation == 2


def test_a_rebalance_waits_for_who_got_an_id_only_a_while(groups: Groups) -> None:
    """A consumer of logdb has a session of five minutes; it may die before it joins with its id."""
    (leader,) = groups.stable()
    with pytest.raises(MemberIdRequired):
        groups.join(require_member_id=True, session_timeout_ms=300_000)
    ticket = groups.start_join(leader.member_id, rebalance_timeout_ms=300_000)
    groups.runner.advance(45_000)
    assert groups.runner.answer(ticket).generation == 2


def test_an_id_that_was_given_out_may_leave(groups: Groups) -> None:
    (leader,) = groups.stable()
    with pytest.raises(MemberIdRequired) as required:
        groups.join(require_member_id=True)
    ticket = groups.start_join(leader.member_id)
    groups.leave(required.value.member_id)
    assert groups.runner.answer(ticket).generation == 2


@pytest.mark.parametrize("ends", ["leaves", "expires"])
@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
def test_an_id_that_was_given_out_and_is_not_used_rebalances_nobody(groups: Groups, ends: str, state: str) -> None:
    """As ``removePendingMemberAndUpdateClassicGroup`` of Kafka."""
    members = groups.stable(2) if state == "Stable" else groups.completing(2)
    with pytest.raises(MemberIdRequired) as required:
        groups.join(require_member_id=True)
    if ends == "leaves":
        groups.leave(required.value.member_id)
    else:
        groups.runner.advance(SESSION_MS - 1)
        for member in members:
            groups.heartbeat(member)
        groups.runner.advance(1)
    assert groups.state == state
    with pytest.raises(UnknownMember):
        groups.join(required.value.member_id)


def test_an_id_that_was_given_out_takes_no_instance_of_another(groups: Groups) -> None:
    (holder,) = groups.stable(group_instance_id="i")
    with pytest.raises(MemberIdRequired) as required:
        groups.join(require_member_id=True)
    for instance, error in (("i", FencedInstance), ("another", UnknownMember)):
        with pytest.raises(error):
            groups.join(required.value.member_id, group_instance_id=instance)
        with pytest.raises(error):
            groups.leave(required.value.member_id, group_instance_id=instance)
    assert [member.member_id for member in groups.info.members] == [holder.member_id]


def test_a_member_that_waited_to_sync_when_a_rebalance_began_has_a_session(groups: Groups) -> None:
    """Its timer fired while it waited, which counts for nothing; a static one would stay for good."""
    (leader,) = groups.stable()
    joins = [groups.start_join(group_instance_id="i"), groups.start_join(leader.member_id)]
    other, leader = map(groups.runner.answer, joins)
    ticket = groups.start_sync(other, group_instance_id="i")
    for _ in range(2):
        groups.runner.advance(SESSION_MS - 1)
        groups.heartbeat(leader)
    groups.leave_id(leader)
    with pytest.raises(RebalanceInProgress):
        groups.runner.answer(ticket)
    groups.runner.advance(2 * REBALANCE_MS)
    assert groups.state == "Empty"


# ---------------------------------------------------------------- syncing


def test_completing_to_stable_the_leader_brings_the_assignments(groups: Groups) -> None:
    leader, other = groups.completing(2)
    follower = groups.start_sync(other)
    assert groups.runner.waits(follower)
    assert groups.sync(leader, {leader.member_id: b"one", other.member_id: b"two"}) == SyncResult("range", b"one")
    assert groups.runner.answer(follower) == SyncResult("range", b"two")
    assert groups.state == "Stable"


def test_stable_a_late_sync_gets_its_assignment(groups: Groups) -> None:
    leader, other = groups.stable(2)
    assert groups.sync(other).assignment == b"1"
    assert groups.sync(leader, {other.member_id: b"other"}).assignment == b"0"


def test_who_is_left_out_by_the_leader_gets_nothing(groups: Groups) -> None:
    leader = groups.join()
    assert groups.sync(leader, {"somebody": b"x"}).assignment == b""


def test_a_stable_generation_is_recorded(groups: Groups) -> None:
    leader, other = groups.stable(2)
    value = groups.recorded()[-1]
    assert (value.generation, value.protocol, value.leader, value.protocol_type) == (2, "range", leader.member_id, "consumer")
    assert value.state_timestamp_ms == groups.runner.now_ms
    assert [
        (m.member_id, m.client_id, m.client_host, m.session_timeout_ms, m.rebalance_timeout_ms, m.assignment) for m in value.members
    ] == [
        (leader.member_id, "c", REMOTE, SESSION_MS, REBALANCE_MS, b"0"),
        (other.member_id, "c", REMOTE, SESSION_MS, REBALANCE_MS, b"1"),
    ]


def test_preparing_a_sync_is_refused(groups: Groups) -> None:
    (leader,) = groups.stable()
    groups.start_join()
    with pytest.raises(RebalanceInProgress):
        groups.sync(leader)


def test_an_old_generation_is_refused(groups: Groups) -> None:
    (leader,) = groups.stable()
    groups.join(leader.member_id)
    for call in (groups.sync, groups.heartbeat):
        with pytest.raises(IllegalGeneration) as refused:
            call(leader)
        assert (refused.value.generation, refused.value.current) == (1, 2)


def test_another_protocol_is_refused(groups: Groups) -> None:
    leader = groups.join()
    for fields in ({"protocol": "sticky"}, {"protocol_type": "connect"}):
        with pytest.raises(InconsistentProtocol):
            groups.sync(leader, **fields)
    assert groups.sync(leader, protocol="range", protocol_type="consumer").protocol == "range"


def test_completing_to_preparing_who_never_syncs_is_removed(groups: Groups) -> None:
    leader, other = groups.completing(2)
    ticket = groups.start_sync(other)
    for _ in range(REBALANCE_MS // 5_000):
        groups.heartbeat(leader)
        groups.runner.advance(5_000)
    with pytest.raises(RebalanceInProgress):
        groups.runner.answer(ticket)
    assert [member.member_id for member in groups.info.members] == [other.member_id]


def test_stable_to_preparing_who_never_fetches_its_assignment_is_removed(groups: Groups) -> None:
    leader, other = groups.completing(2)
    groups.sync(leader)
    for _ in range(REBALANCE_MS // 5_000):
        groups.heartbeat(leader)
        groups.heartbeat(other)
        groups.runner.advance(5_000)
    assert groups.state == "PreparingRebalance"
    assert [member.member_id for member in groups.info.members] == [leader.member_id]


def test_a_refused_append_leaves_the_group_as_it_was(groups: Groups) -> None:
    leader, other = groups.completing(2)
    waiting = groups.start_sync(other)
    groups.runner.refuses = True
    with pytest.raises(DiskFull):
        groups.sync(leader, {leader.member_id: b"x"})
    with pytest.raises(DiskFull):
        groups.runner.answer(waiting)
    assert groups.state == "CompletingRebalance"
    groups.runner.refuses = False
    assert groups.sync(leader, {leader.member_id: b"x"}).assignment == b"x"
    assert groups.sync(other).assignment == b""


def test_a_refused_append_at_a_timeout_is_tried_again(groups: Groups) -> None:
    groups.stable()
    groups.runner.refuses = True
    groups.runner.advance(SESSION_MS)
    assert groups.state == "Stable"
    groups.runner.refuses = False
    groups.runner.advance(1_000)
    assert groups.state == "Empty"


# ---------------------------------------------------------------- staying and leaving


def test_heartbeats_keep_a_member(groups: Groups) -> None:
    (leader,) = groups.stable()
    for _ in range(10):
        groups.runner.advance(SESSION_MS - 1)
        groups.heartbeat(leader)
    assert groups.state == "Stable"


def test_stable_to_empty_a_silent_member_is_removed(groups: Groups) -> None:
    (leader,) = groups.stable()
    groups.runner.advance(SESSION_MS - 1)
    assert groups.state == "Stable"
    groups.runner.advance(1)
    assert groups.state == "Empty"
    with pytest.raises(UnknownMember):
        groups.heartbeat(leader)


def test_stable_to_preparing_one_of_two_is_silent(groups: Groups) -> None:
    leader, _ = groups.stable(2)
    groups.runner.advance(SESSION_MS - 1)
    groups.heartbeat(leader)
    groups.runner.advance(1)
    assert groups.state == "PreparingRebalance"
    assert [member.member_id for member in groups.join(leader.member_id).members] == [leader.member_id]


def test_stable_to_empty_the_last_member_leaves(groups: Groups) -> None:
    (leader,) = groups.stable()
    assert groups.leave_id(leader) is None
    assert groups.state == "Empty"
    value = groups.recorded()[-1]
    assert (value.generation, value.members, value.protocol, value.leader, value.protocol_type) == (2, (), None, None, "consumer")


def test_stable_to_preparing_a_member_leaves(groups: Groups) -> None:
    leader, other = groups.stable(2)
    groups.leave_id(leader)
    assert (groups.state, groups.info.leader_id) == ("PreparingRebalance", other.member_id)
    assert groups.join(other.member_id).leader_id == other.member_id


def test_completing_to_empty_the_last_member_leaves(groups: Groups) -> None:
    groups.leave_id(groups.join())
    assert groups.state == "Empty"


def test_completing_to_empty_the_last_member_is_silent(groups: Groups) -> None:
    groups.join()
    groups.runner.advance(SESSION_MS - 1)
    assert groups.state == "CompletingRebalance"
    groups.runner.advance(1)
    assert (groups.state, groups.recorded()[-1].generation) == ("Empty", 2)


def test_completing_to_preparing_one_of_two_is_silent(groups: Groups) -> None:
    leader, _ = groups.completing(2)
    groups.runner.advance(SESSION_MS - 1)
    groups.heartbeat(leader)
    assert groups.state == "CompletingRebalance"
    groups.runner.advance(1)
    assert groups.state == "PreparingRebalance"
    assert [member.member_id for member in groups.join(leader.member_id).members] == [leader.member_id]


def test_completing_to_preparing_a_member_leaves_while_it_waits(groups: Groups) -> None:
    _, other = groups.completing(2)
    ticket = groups.start_sync(other)
    groups.leave_id(other)
    with pytest.raises(UnknownMember):
        groups.runner.answer(ticket)
    assert groups.state == "PreparingRebalance"


def test_preparing_to_completing_the_one_that_was_missing_leaves(groups: Groups) -> None:
    leader, other = groups.stable(2)
    ticket = groups.start_join(leader.member_id)
    groups.leave_id(other)
    assert groups.runner.answer(ticket).generation == leader.generation + 1


def test_preparing_to_empty_all_leave(groups: Groups) -> None:
    leader, other = groups.stable(2)
    groups.leave_id(leader)
    assert groups.state == "PreparingRebalance"
    groups.leave_id(other)
    assert groups.state == "Empty"
    value = groups.recorded()[-1]
    assert (value.generation, value.members, value.protocol, value.leader) == (leader.generation + 1, (), None, None)


def test_preparing_to_empty_all_are_silent(groups: Groups) -> None:
    leader, _ = groups.stable(2)
    groups.leave_id(leader)
    groups.runner.advance(SESSION_MS - 1)
    assert groups.state == "PreparingRebalance"
    groups.runner.advance(1)
    assert (groups.state, groups.recorded()[-1].generation) == ("Empty", leader.generation + 1)


@pytest.mark.parametrize(
    "who", [{}, {"member_id": "nobody"}, {"group_instance_id": "none"}, {"member_id": "nobody", "group_instance_id": "none"}]
)
def test_nobody_leaves(groups: Groups, who: dict[str, str]) -> None:
    groups.stable(2)
    with pytest.raises(UnknownMember):
        groups.leave(**who)
    assert groups.state == "Stable"


def test_leaving_a_group_that_is_not_there_makes_none(groups: Groups) -> None:
    with pytest.raises(UnknownMember):
        groups.leave("x")
    assert groups.state == "none"


def test_a_heartbeat_to_an_empty_group_is_of_an_unknown_member(groups: Groups) -> None:
    (leader,) = groups.stable()
    groups.leave_id(leader)
    with pytest.raises(UnknownMember):
        groups.heartbeat(leader)


# ---------------------------------------------------------------- static members (KIP-345)


def test_stable_a_static_member_comes_back_without_a_rebalance(groups: Groups) -> None:
    leader, other = groups.stable(2)
    groups.leave_id(other)
    groups.start_join(leader.member_id)
    ticket = groups.start_join(group_instance_id="i")
    old = groups.runner.answer(groups.start_join(leader.member_id)), groups.runner.answer(ticket)
    groups.sync(old[0], {old[0].member_id: b"a", old[1].member_id: b"b"})
    assert groups.sync(old[1], group_instance_id="i").assignment == b"b"

    back = groups.join(group_instance_id="i", client_id="elsewhere")
    assert groups.state == "Stable"
    assert (back.generation, back.leader_id, back.members) == (old[1].generation, old[0].member_id, ())
    assert back.member_id != old[1].member_id
    assert groups.sync(back, group_instance_id="i").assignment == b"b"
    assert [member.member_id for member in groups.recorded()[-1].members] == [old[0].member_id, back.member_id]
    for call in (groups.heartbeat, groups.sync):
        with pytest.raises(FencedInstance):
            call(old[1], group_instance_id="i")
        with pytest.raises(UnknownMember):
            call(old[1])


def test_stable_a_static_leader_comes_back_and_need_not_assign(groups: Groups) -> None:
    (old,) = groups.stable(group_instance_id="i")
    back = groups.join(group_instance_id="i")
    assert back.skip_assignment
    assert (back.leader_id, back.former_leader_id) == (back.member_id, old.member_id)
    assert [member.group_instance_id for member in back.members] == ["i"]
    assert back.generation == old.generation
    groups.heartbeat(back, group_instance_id="i")


@pytest.mark.parametrize(
    "fields", [{"protocols": protocols(topics=("u",))}, {"protocols": protocols("sticky", "range")}], ids=["topics", "protocol"]
)
def test_stable_to_completing_a_static_member_comes_back_with_a_change(groups: Groups, fields: Any) -> None:
    wishes = {"protocols": protocols("range", "sticky")}
    (old,) = groups.stable(group_instance_id="i", **wishes)
    back = groups.join(group_instance_id="i", **fields)
    assert back.generation == old.generation + 1
    assert groups.state == "CompletingRebalance"


def test_stable_a_static_member_that_owns_other_partitions_changes_nothing(groups: Groups) -> None:
    (old,) = groups.stable(group_instance_id="i")
    again = (("range", Subscription(("t",), generation=4, user_data=b"owned").encode()),)
    assert groups.join(group_instance_id="i", protocols=again).generation == old.generation


def test_stable_a_static_member_whose_subscription_cannot_be_read_changes_nothing(groups: Groups) -> None:
    (old,) = groups.stable(group_instance_id="i", protocols=(("range", b"?"),))
    assert groups.join(group_instance_id="i", protocols=(("range", b"!"),)).generation == old.generation


def test_completing_to_completing_a_static_member_comes_back(groups: Groups) -> None:
    old = groups.join(group_instance_id="i")
    ticket = groups.start_sync(old, group_instance_id="i", generation=old.generation)
    assert not groups.runner.waits(ticket)  # it leads, so the group was stable; once more, from the begin
    groups.leave(group_instance_id="i")
    old = groups.join(group_instance_id="i")
    back = groups.join(group_instance_id="i")
    assert (groups.state, back.generation) == ("CompletingRebalance", old.generation + 1)


def test_preparing_a_static_member_comes_back_and_waits(groups: Groups) -> None:
    (old,) = groups.stable(group_instance_id="i")
    new = groups.start_join()
    lost = groups.start_join(old.member_id, group_instance_id="i")
    assert groups.runner.answer(lost).generation == 2
    groups.start_join()
    tickets = [groups.start_join(group_instance_id="i") for _ in range(2)]
    with pytest.raises(FencedInstance):
        groups.runner.answer(tickets[0])
    groups.join(groups.runner.answer(new).member_id)
    assert groups.runner.answer(tickets[1]).generation == 3


def test_a_static_member_is_waited_for_until_its_session_ends(groups: Groups) -> None:
    leader = groups.join(group_instance_id="i", session_timeout_ms=REBALANCE_MS * 3)
    groups.sync(leader, group_instance_id="i")
    ticket = groups.start_join()
    groups.runner.advance(REBALANCE_MS)  # the rebalance goes on without its join, but it stays a member
    joined = groups.runner.answer(ticket)
    assert joined.leader_id == joined.member_id
    assert {member.group_instance_id for member in joined.members} == {"i", None}


def test_static_members_alone_and_silent_are_waited_for(groups: Groups) -> None:
    fields = {"session_timeout_ms": REBALANCE_MS * 3}
    leader = groups.join(group_instance_id="i", **fields)
    groups.sync(leader, group_instance_id="i")
    ticket = groups.start_join()
    groups.leave_id(JoinResult(0, "", "", "c-2", (), ""))
    with pytest.raises(UnknownMember):
        groups.runner.answer(ticket)
    groups.runner.advance(2 * REBALANCE_MS)
    assert groups.state == "PreparingRebalance"
    groups.runner.advance(REBALANCE_MS)
    assert groups.state == "Empty"


def test_a_static_member_leaves_by_its_instance(groups: Groups) -> None:
    leader, other = groups.stable(2)
    groups.leave_id(other)
    groups.start_join(group_instance_id="i")
    groups.join(leader.member_id)
    groups.leave(group_instance_id="i")
    assert [member.member_id for member in groups.info.members] == [leader.member_id]


def test_a_fenced_instance_cannot_leave(groups: Groups) -> None:
    (old,) = groups.stable(group_instance_id="i")
    groups.join(group_instance_id="i")
    with pytest.raises(FencedInstance):
        groups.leave(old.member_id, group_instance_id="i")
    assert groups.state == "Stable"


# ---------------------------------------------------------------- describing and deleting


def test_a_stable_group_is_described(groups: Groups) -> None:
    leader, other = groups.stable(2)
    info = groups.info
    assert (info.group_id, info.state, info.protocol_type, info.protocol, info.generation) == ("g", "Stable", "consumer", "range", 2)
    assert info.leader_id == leader.member_id
    assert [(member.member_id, member.metadata, member.assignment) for member in info.members] == [
        (leader.member_id, protocols()[0][1], b"0"),
        (other.member_id, protocols()[0][1], b"1"),
    ]


def test_no_group_is_an_error(groups: Groups) -> None:
    with pytest.raises(UnknownGroup):
        groups.info  # noqa: B018  # it raises
    with pytest.raises(UnknownGroup):
        groups.runner.call(DeleteGroup, group_id="g")


def test_groups_are_listed_in_order() -> None:
    groups = Groups()
    for name in ("b", "a"):
        groups.join(group_id=name)
    assert [(group.group_id, group.state, group.protocol_type) for group in groups.runner.coordinator.groups()] == [
        ("a", "CompletingRebalance", "consumer"),
        ("b", "CompletingRebalance", "consumer"),
    ]


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance", "PreparingRebalance"])
def test_a_group_with_members_is_not_deleted(groups: Groups, state: str) -> None:
    (leader,) = groups.stable()
    if state == "PreparingRebalance":
        groups.start_join()
    elif state == "CompletingRebalance":
        groups.join(leader.member_id)
    assert groups.state == state
    with pytest.raises(GroupNotEmpty):
        groups.runner.call(DeleteGroup, group_id="g")


def test_empty_to_dead_by_deletion(groups: Groups) -> None:
    (leader,) = groups.stable()
    groups.leave_id(leader)
    groups.runner.call(DeleteGroup, group_id="g")
    assert groups.state == "none"
    assert groups.recorded()[-1] is None
    assert groups.join().generation == 1


def test_empty_to_dead_by_the_sweep() -> None:
    groups = Groups(sweep_interval_ms=1_000)
    (leader,) = groups.stable()
    groups.runner.advance(2_000)
    groups.leave_id(leader)
    groups.runner.advance(1_000)
    assert groups.state == "none"
    groups.runner.reopen()
    assert groups.state == "none"


def test_a_timer_of_a_group_that_is_gone_does_nothing(groups: Groups) -> None:
    (leader,) = groups.stable()
    groups.runner.timers["join", "g"] = groups.runner.timers["sync", "g"] = groups.runner.now_ms + 1
    groups.runner.timers["session", "g", "nobody"] = groups.runner.now_ms + 1
    groups.runner.timers["session", "h", "nobody"] = groups.runner.now_ms + 1
    groups.runner.advance(1)
    groups.heartbeat(leader)


# ---------------------------------------------------------------- starting again


def test_a_stable_group_is_there_after_a_restart(groups: Groups) -> None:
    leader, other = groups.stable(2)
    before = groups.info
    groups.runner.reopen()
    assert groups.info == before
    groups.heartbeat(leader)
    assert groups.sync(other).assignment == b"1"
    groups.runner.advance(SESSION_MS)
    assert groups.state == "Empty"


def test_a_rebalance_is_forgotten_by_a_restart(groups: Groups) -> None:
    leader, other = groups.stable(2)
    groups.start_join()
    groups.runner.reopen()
    assert groups.state == "Stable"
    groups.heartbeat(leader)
    groups.heartbeat(other)


def test_members_in_the_process_do_not_outlive_it(groups: Groups) -> None:
    groups.stable(2, client_host="")
    groups.runner.reopen()
    assert (groups.state, groups.info.generation) == ("Empty", 3)
    assert groups.join(client_host="").generation == 4


def test_static_members_in_the_process_are_waited_for(groups: Groups) -> None:
    (leader,) = groups.stable(client_host="", group_instance_id="i")
    groups.runner.reopen()
    assert groups.state == "Stable"
    back = groups.join(client_host="", group_instance_id="i")
    assert back.generation == leader.generation
    assert groups.sync(back, group_instance_id="i").assignment == b"0"


def test_others_take_over_from_members_that_died_with_the_process(groups: Groups) -> None:
    remote = groups.join()
    local = groups.start_join(client_host="")
    remote = groups.join(remote.member_id)
    groups.sync(remote)
    groups.sync(groups.runner.answer(local))
    groups.runner.reopen()
    assert groups.state == "PreparingRebalance"
    assert [member.member_id for member in groups.join(remote.member_id).members] == [remote.member_id]


def test_many_groups_do_not_meet() -> None:
    groups = Groups()
    for name in map(str, range(100)):
        tickets = [groups.start_join(group_id=name) for _ in range(3)]
        leader = groups.join(groups.runner.answer(tickets[0]).member_id, group_id=name)
        assert {groups.runner.answer(ticket).generation for ticket in tickets[1:]} == {leader.generation}
        assert len(leader.members) == 3
    assert len(groups.runner.coordinator.groups()) == 100
