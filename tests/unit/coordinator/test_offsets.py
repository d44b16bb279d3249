from typing import Any

import pytest

from logdb.coordinator.consumer_protocol import Subscription
from logdb.coordinator.group_coordinator import TopicsDeleted
from logdb.coordinator.records import OffsetKey, OffsetValue, offset_key, offset_value, parse_group_key
from logdb.errors import (
    ConcurrentTransactions,
    DiskFull,
    FencedInstance,
    GroupNotEmpty,
    IllegalGeneration,
    InvalidGroup,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
    UnstableOffsets,
)
from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.requests.groups import CommitOffsets, DeleteGroup, DeleteOffsets, FetchOffsets, JoinGroup, LeaveGroup, SyncGroup
from logdb.requests.transactions import CommitTransactionOffsets
from support.coordination import Entry, Runner, group_runner

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ONE, TWO = ProducerIdAndEpoch(1, 0), ProducerIdAndEpoch(2, 0)
DAY_MS = 86_400_000


@pytest.fixture
def runner() -> Runner:
    return group_runner()


def commit(runner: Runner, offsets: dict[TopicPartition, int], group_id: str = "g", **fields: Any) -> None:
    values = {partition: OffsetAndMetadata(offset, 3, "note") for partition, offset in offsets.items()}
    runner.call(CommitOffsets, group_id=group_id, offsets=values, **fields)


def commit_in(runner: Runner, producer: ProducerIdAndEpoch, offsets: dict[TopicPartition, int], **fields: Any) -> None:
    values = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    runner.call(CommitTransactionOffsets, transactional_id="x", group_id="g", producer=producer, offsets=values, **fields)


def fetch(runner: Runner, *partitions: TopicPartition, group_id: str = "g", **fields: Any) -> dict[TopicPartition, int]:
    found = runner.coordinator.fetch_offsets(FetchOffsets(group_id, partitions or None, **fields))
    return {partition: value.offset for partition, value in found.items()}


def join(runner: Runner, topics: tuple[str, ...] = ("t",), **fields: Any) -> dict[str, Any]:
    """The one member of the stable group g, as fields of a commit."""
    protocols = (("range", Subscription(topics).encode()),)
    defaults = {"client_host": "/h", "protocols": protocols, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    joined = runner.call(JoinGroup, group_id="g", **defaults | fields)
    member = {"member_id": joined.member_id, "generation": joined.generation}
    runner.call(SyncGroup, group_id="g", assignments={}, **member)
    return member


def leave(runner: Runner, member: dict[str, Any]) -> None:
    runner.call(LeaveGroup, group_id="g", member_id=member["member_id"])


def states(runner: Runner) -> dict[str, str]:
    return {group.group_id: group.state for group in runner.coordinator.groups()}


# ---------------------------------------------------------------- committing


def test_a_group_without_members_is_a_store_of_offsets(runner: Runner) -> None:
    commit(runner, {T0: 5, T1: 6})
    commit(runner, {T0: 7})
    assert fetch(runner) == {T0: 7, T1: 6}
    assert fetch(runner, T0, U0) == {T0: 7}
    assert runner.coordinator.fetch_offsets(FetchOffsets("g", (T0,))) == {T0: OffsetAndMetadata(7, 3, "note")}
    assert states(runner) == {"g": "Empty"}
    assert runner.coordinator.describe("g").protocol_type == ""


def test_groups_do_not_see_each_other(runner: Runner) -> None:
    commit(runner, {T0: 5})
    commit(runner, {T0: 6}, group_id="h")
    assert (fetch(runner), fetch(runner, group_id="h"), fetch(runner, group_id="i")) == ({T0: 5}, {T0: 6}, {})


def test_what_is_accepted_is_what_a_replay_finds(runner: Runner) -> None:
    commit(runner, {T0: 5, TopicPartition("täglich", 3): 2**62})
    accepted = fetch(runner)
    runner.open()
    assert fetch(runner) == accepted
    assert runner.coordinator._offsets._committed["g"][T0].value == OffsetValue(5, 3, "note", runner.now_ms)


def test_a_commit_is_recorded_as_kafka_does(runner: Runner) -> None:
    commit(runner, {T0: 5})
    (entry,) = runner.log
    assert isinstance(entry, Entry)
    assert entry.record == (offset_key("g", T0), offset_value(OffsetValue(5, 3, "note", runner.now_ms)))


def test_a_member_commits(runner: Runner) -> None:
    member = join(runner)
    commit(runner, {T0: 5}, **member)
    assert fetch(runner) == {T0: 5}


def test_a_commit_is_a_sign_of_life(runner: Runner) -> None:
    member = join(runner)
    for offset in range(5):
        runner.advance(9_999)
        commit(runner, {T0: offset}, **member)
    assert states(runner) == {"g": "Stable"}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, UnknownMember),
        ({"member_id": "nobody", "generation": 1}, UnknownMember),
        ({"generation": 0}, IllegalGeneration),
        ({"generation": 2}, IllegalGeneration),
        ({"generation": -1}, IllegalGeneration),
        ({"group_instance_id": "x"}, UnknownMember),
    ],
    ids=["no member", "another member", "old", "from the future", "none", "no such instance"],
)
def test_who_is_no_member_of_the_generation_commits_nothing(runner: Runner, fields: Any, error: type) -> None:
    member = join(runner)
    with pytest.raises(error):
        commit(runner, {T0: 5}, **(member | fields if fields and "member_id" not in fields else fields))
    assert fetch(runner) == {}


def test_a_commit_of_the_last_generation_is_refused_after_a_rebalance(runner: Runner) -> None:
    member = join(runner)
    again = join(runner, member_id=member["member_id"])
    with pytest.raises(IllegalGeneration):
        commit(runner, {T0: 5}, **member)
    commit(runner, {T0: 6}, **again)


def test_a_fenced_instance_commits_nothing(runner: Runner) -> None:
    old = join(runner, group_instance_id="i")
    join(runner, group_instance_id="i")
    with pytest.raises(FencedInstance):
        commit(runner, {T0: 5}, group_instance_id="i", **old)


def test_preparing_a_member_may_commit_what_it_gives_up(runner: Runner) -> None:
    member = join(runner)
    runner.start(JoinGroup, group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, protocols=(("range", b""),))
    assert states(runner) == {"g": "PreparingRebalance"}
    commit(runner, {T0: 5}, **member)
    assert fetch(runner) == {T0: 5}


def test_completing_no_member_commits_before_the_assignment_is_known(runner: Runner) -> None:
    protocols = (("range", Subscription(("t",)).encode()),)
    joined = runner.call(JoinGroup, group_id="g", session_timeout_ms=1_000, rebalance_timeout_ms=1_000, protocols=protocols)
    with pytest.raises(RebalanceInProgress):
        commit(runner, {T0: 5}, member_id=joined.member_id, generation=joined.generation)


def test_a_member_of_a_group_that_is_gone_commits_nothing(runner: Runner) -> None:
    with pytest.raises(UnknownMember):
        commit(runner, {T0: 5}, member_id="c-1", generation=3)


def test_bad_values_commit_nothing(runner: Runner) -> None:
    long = {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(1, metadata="ü" * 2_049)}
    with pytest.raises(InvalidGroup, match=r"t-1 has 4098 bytes.*4096"):
        runner.call(CommitOffsets, group_id="g", offsets=long)
    assert (fetch(runner), states(runner)) == ({}, {})


def test_a_negative_offset_is_stored_as_kafka_stores_it(runner: Runner) -> None:
    commit(runner, {T0: -2})
    assert fetch(runner) == {T0: -2}


def test_a_refused_append_commits_nothing(runner: Runner) -> None:
    runner.refuses = True
    with pytest.raises(DiskFull):
        commit(runner, {T0: 5})
    assert fetch(runner) == {}


# ---------------------------------------------------------------- in transactions


def test_offsets_of_a_transaction_count_once_it_commits(runner: Runner) -> None:
    commit(runner, {T0: 5})
    commit_in(runner, ONE, {T0: 9, T1: 1})
    assert fetch(runner) == {T0: 5}
    runner.mark(1, commit=True)
    assert fetch(runner) == {T0: 9, T1: 1}


def test_offsets_of_an_aborted_transaction_were_never_there(runner: Runner) -> None:
    commit(runner, {T0: 5})
    commit_in(runner, ONE, {T0: 9})
    runner.mark(1, commit=False)
    assert fetch(runner, require_stable=True) == {T0: 5}


def test_stable_offsets_wait_for_the_transaction(runner: Runner) -> None:
    commit(runner, {T0: 5, T1: 5})
    commit_in(runner, ONE, {T0: 9, U0: 9})
    assert fetch(runner, T1, require_stable=True) == {T1: 5}
    for partitions, count in (((T0,), 1), ((), 2), ((U0,), 1)):
        with pytest.raises(UnstableOffsets) as unstable:
            fetch(runner, *partitions, require_stable=True)
        assert unstable.value.count == count
    assert fetch(runner) == {T0: 5, T1: 5}


def test_a_later_commit_outlives_an_older_transaction(runner: Runner) -> None:
    commit_in(runner, ONE, {T0: 9})
    commit(runner, {T0: 20})
    runner.mark(1, commit=True)
    assert fetch(runner) == {T0: 20}


def test_the_later_of_two_transactions_counts(runner: Runner) -> None:
    commit_in(runner, ONE, {T0: 1})
    commit_in(runner, TWO, {T0: 2})
    runner.mark(2, commit=True)
    assert fetch(runner) == {T0: 2}
    with pytest.raises(UnstableOffsets):
        fetch(runner, require_stable=True)
    runner.mark(1, commit=True)
    assert fetch(runner, require_stable=True) == {T0: 2}


def test_a_marker_of_another_producer_changes_nothing(runner: Runner) -> None:
    commit_in(runner, ONE, {T0: 1})
    runner.mark(2, commit=True)
    assert fetch(runner) == {}


def test_offsets_whose_transaction_ended_since_it_was_verified_are_refused(runner: Runner) -> None:
    """KIP-890; with offsets of the open transaction there, no verification is needed."""
    verified = runner.coordinator.verification(ONE.producer_id)
    runner.mark(1, commit=False)
    with pytest.raises(ConcurrentTransactions):
        commit_in(runner, ONE, {T0: 1}, verified=verified)
    commit_in(runner, ONE, {T0: 1}, verified=runner.coordinator.verification(ONE.producer_id))
    commit_in(runner, ONE, {T1: 1}, verified=verified)
    runner.mark(1, commit=True)
    assert fetch(runner) == {T0: 1, T1: 1}
    with pytest.raises(ConcurrentTransactions):
        commit_in(runner, ONE, {T0: 9}, verified=verified)


def test_a_transaction_is_of_the_generation_it_names(runner: Runner) -> None:
    member = join(runner)
    with pytest.raises(IllegalGeneration):
        commit_in(runner, ONE, {T0: 1}, **member | {"generation": 7})
    with pytest.raises(UnknownMember):
        commit_in(runner, ONE, {T0: 1}, member_id="nobody", generation=1)
    commit_in(runner, ONE, {T0: 1}, **member)
    commit_in(runner, ONE, {T1: 1})  # older clients name none
    runner.mark(1, commit=True)
    assert fetch(runner) == {T0: 1, T1: 1}


def test_a_transaction_without_offsets_writes_nothing(runner: Runner) -> None:
    commit_in(runner, ONE, {})
    assert runner.log == []


def test_pending_offsets_are_there_after_a_restart(runner: Runner) -> None:
    commit_in(runner, ONE, {T0: 1})
    runner.reopen()
    assert states(runner) == {"g": "Empty"}
    with pytest.raises(UnstableOffsets):
        fetch(runner, require_stable=True)
    runner.mark(1, commit=True)
    runner.reopen()
    assert fetch(runner, require_stable=True) == {T0: 1}


# ---------------------------------------------------------------- deleting


def test_a_deleted_group_has_no_offsets(runner: Runner) -> None:
    commit(runner, {T0: 5})
    commit_in(runner, ONE, {T1: 5})
    runner.call(DeleteGroup, group_id="g")
    runner.mark(1, commit=True)
    assert (fetch(runner), states(runner)) == ({}, {})
    runner.reopen()
    assert (fetch(runner), states(runner)) == ({}, {})


def test_offsets_that_no_member_reads_can_be_deleted(runner: Runner) -> None:
    member = join(runner)
    commit(runner, {T0: 5, U0: 5}, **member)
    errors = runner.call(DeleteOffsets, group_id="g", partitions=(T0, T1, U0))
    assert {partition: type(error) for partition, error in errors.items()} == {T0: GroupNotEmpty, T1: GroupNotEmpty}
    assert fetch(runner) == {T0: 5}
    leave(runner, member)
    assert runner.call(DeleteOffsets, group_id="g", partitions=(T0, T1)) == {}
    assert fetch(runner) == {}


def test_offsets_of_a_group_of_another_kind_are_left_alone(runner: Runner) -> None:
    member = join(runner, protocol_type="connect")
    commit(runner, {U0: 5}, **member)
    with pytest.raises(GroupNotEmpty):
        runner.call(DeleteOffsets, group_id="g", partitions=(U0,))
    with pytest.raises(UnknownGroup):
        runner.call(DeleteOffsets, group_id="nobody", partitions=(U0,))


def test_offsets_of_a_deleted_topic_go(runner: Runner) -> None:
    commit(runner, {T0: 5, U0: 5})
    commit(runner, {T1: 5}, group_id="h")
    commit_in(runner, ONE, {T1: 7})
    runner.handle(TopicsDeleted(topics=frozenset({"t"})))
    runner.mark(1, commit=True)
    runner.reopen()
    assert (fetch(runner), fetch(runner, group_id="h")) == ({U0: 5}, {})


def test_offsets_of_the_next_topic_of_the_same_name_stay(runner: Runner) -> None:
    commit(runner, {T0: 5, T1: 5})
    end_offset = 2
    commit(runner, {T0: 7})
    commit_in(runner, ONE, {T1: 8})
    runner.handle(TopicsDeleted(topics=frozenset({"t"}), before_offset=end_offset))
    assert fetch(runner) == {T0: 7, T1: 5}
    runner.mark(1, commit=True)
    runner.reopen()
    assert fetch(runner) == {T0: 7, T1: 8}


# ---------------------------------------------------------------- expiry, as KIP-211 has it


def expiring() -> Runner:
    return group_runner(offsets_retention_ms=7 * DAY_MS, sweep_interval_ms=60_000)


def beat(runner: Runner, member: dict[str, Any], days: float) -> None:
    """Days go by, and the member commits nothing but stays."""
    for _ in range(int(days * 24)):
        runner.timers.pop(("session", "g", member["member_id"]), None)
        runner.advance(DAY_MS // 24)


def test_an_embedded_database_does_not_forget(runner: Runner) -> None:
    commit(runner, {T0: 5})
    runner.advance(100 * DAY_MS)
    assert fetch(runner) == {T0: 5}


def test_offsets_without_a_group_expire_by_their_commit() -> None:
    runner = expiring()
    commit(runner, {T0: 5})
    runner.advance(3 * DAY_MS)
    commit(runner, {T1: 5})
    runner.advance(4 * DAY_MS + 60_000)
    assert fetch(runner) == {T1: 5}
    runner.advance(3 * DAY_MS)
    assert states(runner) == {}
    runner.reopen()
    assert states(runner) == {}


def test_offsets_of_a_group_expire_since_it_is_empty() -> None:
    runner = expiring()
    member = join(runner)
    commit(runner, {T0: 5}, **member)
    beat(runner, member, 10)
    assert fetch(runner) == {T0: 5}
    leave(runner, member)
    runner.advance(7 * DAY_MS - 60_000)
    assert fetch(runner) == {T0: 5}
    runner.advance(2 * 60_000)
    assert (fetch(runner), states(runner)) == ({}, {})


def test_the_time_a_group_is_empty_goes_on_over_a_restart() -> None:
    runner = expiring()
    member = join(runner, client_host="")
    commit(runner, {T0: 5}, **member)
    runner.reopen()
    for _ in range(8):
        runner.advance(DAY_MS)
        runner.reopen()
    runner.advance(60_000)
    assert states(runner) == {}


def test_offsets_of_topics_that_a_stable_group_left_expire() -> None:
    runner = expiring()
    member = join(runner)
    commit(runner, {T0: 5, U0: 5}, **member)
    beat(runner, member, 8)
    assert fetch(runner) == {T0: 5}


def test_a_subscription_that_cannot_be_read_keeps_all() -> None:
    runner = expiring()
    member = join(runner, protocols=(("range", b"\0"),))
    commit(runner, {U0: 5}, **member)
    beat(runner, member, 8)
    assert fetch(runner) == {U0: 5}


def test_a_group_of_another_kind_keeps_all() -> None:
    runner = expiring()
    member = join(runner, protocol_type="connect")
    commit(runner, {U0: 5}, **member)
    beat(runner, member, 8)
    assert fetch(runner) == {U0: 5}


def test_a_pending_offset_keeps_its_partition() -> None:
    runner = expiring()
    commit(runner, {T0: 5, T1: 5})
    commit_in(runner, ONE, {T0: 6})
    runner.advance(8 * DAY_MS)
    assert fetch(runner) == {T0: 5}


def test_a_time_of_its_own_counts(runner: Runner) -> None:
    runner = group_runner(sweep_interval_ms=60_000)
    value = OffsetValue(5, -1, "", runner.now_ms, runner.now_ms + DAY_MS)
    runner.coordinator.apply(offset_key("g", T0), offset_value(value), offset=0)
    runner.advance(DAY_MS - 60_000)
    assert fetch(runner) == {T0: 5}
    runner.advance(2 * 60_000)
    assert fetch(runner) == {}


# ---------------------------------------------------------------- replay


def test_kinds_of_records_that_are_not_known_are_passed_over(runner: Runner) -> None:
    runner.coordinator.apply(b"\0\3\0\1g", b"\0\0", offset=0)
    assert states(runner) == {}


def test_a_tombstone_removes_what_was_replayed(runner: Runner) -> None:
    key = offset_key("g", T0)
    assert parse_group_key(key) == OffsetKey("g", T0)
    runner.coordinator.apply(key, offset_value(OffsetValue(5, -1, "", 0)), offset=0)
    runner.coordinator.apply(key, None, offset=1)
    runner.coordinator.apply(offset_key("g", T1), None, offset=2)
    assert states(runner) == {}
