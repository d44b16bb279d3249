"""The assignors, beside kafka-python's, and what each promises."""

import logging
import warnings
from collections import Counter
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from logdb.client.consumer.assignors import (
    ASSIGNORS,
    Assignor,
    Member,
    assign_cooperatively,
    assign_range,
    assign_round_robin,
    assign_sticky,
    chosen,
)
from logdb.errors import InvalidConfig
from logdb.model import TopicPartition

pytest.importorskip("kafka")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    from kafka.coordinator.assignors import cooperative_sticky
    from kafka.coordinator.assignors import range as kafka_range
    from kafka.coordinator.assignors import roundrobin as kafka_roundrobin
    from kafka.coordinator.assignors.sticky import partition_movements, sticky_assignor
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

THEIRS: dict[str, Any] = {
    "range": kafka_range.RangePartitionAssignor,
    "roundrobin": kafka_roundrobin.RoundRobinPartitionAssignor,
    "sticky": sticky_assignor.StickyPartitionAssignor,
    "cooperative-sticky": cooperative_sticky.CooperativeStickyAssignor,
}


class SmallestFirst(set):
    """A set whose choices don't depend on hashes: theirs then chooses as ours."""

    def __iter__(self):
        return iter(sorted(super().__iter__()))

    def pop(self):
        smallest = min(super().__iter__())
        self.remove(smallest)
        return smallest

    def intersection(self, *others):
        return SmallestFirst(super().intersection(*others))


@pytest.fixture(autouse=True, scope="module")
def _deterministic():
    patch = pytest.MonkeyPatch()
    patch.setattr(logging.getLogger("kafka"), "level", logging.CRITICAL)  # it has much to say of topics without partitions
    for module in (sticky_assignor, partition_movements):
        patch.setattr(module, "set", SmallestFirst, raising=False)
    yield
    patch.undo()


def theirs(name: str, members: list[Member], counts: dict[str, int]) -> dict[str, list[TopicPartition]]:
    """What kafka-python's assignor makes of the same members."""
    cluster = SimpleNamespace(
        topics=lambda: sorted({topic for member in members for topic in member.topics}),
        partitions_for_topic=lambda topic: set(range(counts[topic])) if counts.get(topic) else None,
    )
    made = THEIRS[name]().assign(cluster, [_as_theirs(name, member) for member in members])
    return {member_id: sorted(TopicPartition(*partition) for partition in found.partitions()) for member_id, found in made.items()}


def _as_theirs(name: str, member: Member) -> Any:
    owned: dict[str, list[int]] = {}
    for topic, partition in member.owned:
        owned.setdefault(topic, []).append(partition)
    metadata = SimpleNamespace(
        topics=list(member.topics),
        user_data=StickyAssignorUserData(list(owned.items()), member.generation) if name == "sticky" and owned else b"",
        owned_partitions=[SimpleNamespace(topic=topic, partitions=partitions) for topic, partitions in owned.items()],
        generation_id=member.generation,
    )
    return SimpleNamespace(member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=metadata)


def partitions_of(counts: dict[str, int], topics: set[str]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic, partition) for topic in topics for partition in range(counts.get(topic, 0)))


def check_whole(members: list[Member], counts: dict[str, int], assigned: dict[str, list[TopicPartition]]) -> None:
    """Each partition that a member wants has one owner, which wants it."""
    wanted = {member.member_id: set(member.topics) for member in members}
    assert assigned.keys() == wanted.keys()
    given_out = sorted(partition for partitions in assigned.values() for partition in partitions)
    assert given_out == partitions_of(counts, set().union(*wanted.values()))
    assert all(partition.topic in wanted[member_id] for member_id, partitions in assigned.items() for partition in partitions)


# ---------------------------------------------------------------- groups for hypothesis

TOPICS = ["a", "b", "c", "d"]
some_counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
some_topics = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda topics: tuple(sorted(topics)))
names = st.lists(st.sampled_from([f"m{number:02}" for number in range(20)]), min_size=1, max_size=7, unique=True)


@st.composite
def fresh_members(draw: Any, *, same_topics: bool = False) -> list[Member]:
    shared = draw(some_topics) if same_topics else None
    members = []
    for name in draw(names):
        instance = draw(st.none() | st.just("instance-" + name))
        members.append(Member(name, shared or draw(some_topics), instance))
    # kafka-python loses members whose instances are not all at one end of the list
    return sorted(members, key=lambda member: member.group_instance_id is None)


class Change(NamedTuple):
    """What happens to a group between two generations."""

    leave: set[int]
    join: int
    resubscribe: dict[int, tuple[str, ...]]
    late: set[int]  # members that missed this generation, and report an earlier one in the next
    counts: dict[str, int]


changes = st.builds(
    Change,
    leave=st.sets(st.integers(0, 6), max_size=2),
    join=st.integers(0, 2),
    resubscribe=st.dictionaries(st.integers(0, 6), some_topics, max_size=2),
    late=st.sets(st.integers(0, 6), max_size=1),
    counts=some_counts,
)


def changed(members: list[Member], change: Change, assigned: dict[str, list[TopicPartition]], generation: int) -> list[Member]:
    """The members of the next generation, and what they report to have had."""
    following = []
    for number, member in enumerate(members):
        if number in change.leave and len(members) > len(change.leave):
            continue
        told = {} if number in change.late else {"owned": tuple(assigned[member.member_id]), "generation": generation}
        following.append(member._replace(topics=change.resubscribe.get(number, member.topics), **told))
    fresh = [Member(f"n{generation:02}-{number}", members[0].topics) for number in range(change.join)]
    return following + fresh


# ---------------------------------------------------------------- the same as kafka-python's


@given(members=fresh_members(), counts=some_counts)
def test_range_as_kafka_python(members, counts):
    assigned = assign_range(members, counts)
    assert assigned == theirs("range", members, counts)
    check_whole(members, counts, assigned)


@given(members=fresh_members(same_topics=True), counts=some_counts)
def test_round_robin_as_kafka_python(members, counts):
    assert assign_round_robin(members, counts) == theirs("roundrobin", members, counts)


@given(members=fresh_members(), counts=some_counts)
def test_round_robin_over_different_subscriptions(members, counts):  # kafka-python's raises KeyError
    check_whole(members, counts, assign_round_robin(members, counts))


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@given(
    members=st.booleans().flatmap(lambda same: fresh_members(same_topics=same)), counts=some_counts, history=st.lists(changes, max_size=5)
)
def test_sticky_as_kafka_python(name, members, counts, history):
    assigned = ASSIGNORS[name].assign(members, counts)
    assert assigned == theirs(name, members, counts)
    for generation, change in enumerate(history, 1):
        members, counts = changed(members, change, assigned, generation), change.counts
        assume(name == "sticky" or no_partition_claimed_twice(members))  # theirs then takes the last, not the latest
        assigned = ASSIGNORS[name].assign(members, counts)
        try:
            expected = theirs(name, members, counts)
            check_owners_want(members, expected)
        except (AssertionError, AttributeError, KeyError, ValueError):
            assume(False)  # theirs gives a partition back to a former owner that wants it no more, and may come to grief
        assert assigned == expected


def no_partition_claimed_twice(members: list[Member]) -> bool:
    return max(Counter(partition for member in members for partition in member.owned).values(), default=1) == 1


def check_owners_want(members: list[Member], assigned: dict[str, list[TopicPartition]]) -> None:
    wanted = {member.member_id: member.topics for member in members}
    assert all(partition.topic in wanted[member_id] for member_id, partitions in assigned.items() for partition in partitions)


# ---------------------------------------------------------------- what they promise


def members_of(**topics: str) -> list[Member]:
    return [Member(name, tuple(wanted.split())) for name, wanted in topics.items()]


def shown(assigned: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {member_id: " ".join(f"{topic}{partition}" for topic, partition in partitions) for member_id, partitions in assigned.items()}


def test_range_example():
    assert shown(assign_range(members_of(c0="a b", c1="a b"), {"a": 3, "b": 3})) == {"c0": "a0 a1 b0 b1", "c1": "a2 b2"}


def test_round_robin_examples():
    assert shown(assign_round_robin(members_of(c0="a b", c1="a b"), {"a": 3, "b": 3})) == {"c0": "a0 a2 b1", "c1": "a1 b0 b2"}
    uneven = members_of(c0="a", c1="a b", c2="a b c")
    assert shown(assign_round_robin(uneven, {"a": 1, "b": 2, "c": 3})) == {"c0": "a0", "c1": "b0", "c2": "b1 c0 c1 c2"}


def test_sticky_example():
    members = members_of(c0="a b c d", c1="a b c d", c2="a b c d")
    counts = dict.fromkeys("abcd", 2)
    first = assign_sticky(members, counts)
    assert shown(first) == {"c0": "a0 b1 d0", "c1": "a1 c0 d1", "c2": "b0 c1"}
    left = [member._replace(owned=tuple(first[member.member_id]), generation=1) for member in members if member.member_id != "c1"]
    assert shown(assign_sticky(left, counts)) == {"c0": "a0 b1 c0 d0", "c2": "a1 b0 c1 d1"}


def test_an_instance_keeps_its_place_under_another_member_id():
    counts = {"a": 3}
    for assign in (assign_range, assign_round_robin):
        before = assign([Member("z", ("a",), "one"), Member("y", ("a",), "two"), Member("a", ("a",))], counts)
        after = assign([Member("b", ("a",)), Member("x", ("a",), "two"), Member("w", ("a",), "one")], counts)
        assert shown(before) == {"z": "a0", "y": "a1", "a": "a2"}
        assert shown(after) == {"w": "a0", "x": "a1", "b": "a2"}


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=lambda assignor: assignor.name)
def test_nothing_to_share_out(assignor):
    assert assignor.assign(members_of(c0="a", c1="gone"), {"a": 1}) == {"c0": [TopicPartition("a", 0)], "c1": []}
    assert assignor.assign(members_of(c0="gone"), {}) == {"c0": []}


@given(members=fresh_members(), counts=some_counts, change=changes)
def test_sticky_is_balanced_and_moves_no_more_than_it_must(members, counts, change):
    before = assign_sticky(members, counts)
    members = changed(members, change, before, 1)
    assigned = assign_sticky(members, counts)
    check_whole(members, counts, assigned)
    owner = {partition: member_id for member_id, partitions in assigned.items() for partition in partitions}
    for member in members:
        for partition in partitions_of(counts, set(member.topics)):
            assert len(assigned[owner[partition]]) - len(assigned[member.member_id]) < 2, "this one could have it"


@given(members=fresh_members(same_topics=True), counts=some_counts, leave=st.integers(0, 6), join=st.integers(0, 2))
def test_sticky_takes_away_only_what_is_too_much(members, counts, leave, join):
    before = assign_sticky(members, counts)
    members = changed(members, Change({leave}, join, {}, set(), counts), before, 1)
    assigned = assign_sticky(members, counts)
    most = -(-len(partitions_of(counts, set(members[0].topics))) // len(members))
    for member in members:
        kept = set(before.get(member.member_id, ())) & set(assigned[member.member_id])
        assert len(kept) >= min(len(before.get(member.member_id, ())), most - 1)


@given(members=fresh_members(), counts=some_counts, change=changes)
def test_cooperative_sticky_moves_in_two_rounds(members, counts, change):
    members = changed(members, change, assign_cooperatively(members, counts), 1)
    for generation in range(2, 12):
        held = {member.member_id: set(member.owned) for member in members if member.generation == generation - 1}
        assigned = assign_cooperatively(members, change.counts)
        for member_id, partitions in assigned.items():
            others = set().union(*(owned for other, owned in held.items() if other != member_id))
            assert not others & set(partitions), "no member gets what another one has not given up"
        if all(set(member.owned) == set(assigned[member.member_id]) for member in members):
            break
        members = [member._replace(owned=tuple(assigned[member.member_id]), generation=generation) for member in members]
    else:
        pytest.fail("it never comes to rest")
    check_whole(members, change.counts, assigned)
    if len({member.topics for member in members}) == 1:
        assert generation <= 4, "one round to give up, one to take, one that changes nothing"


def test_a_later_generation_has_the_better_claim():
    claimed = (TopicPartition("a", 0),)
    late, latest = Member("m0", ("a",), None, claimed, 1), Member("m1", ("a",), None, claimed, 2)
    for members in ([late, latest], [latest, late]):
        assert shown(assign_sticky(members, {"a": 1})) == {"m0": "", "m1": "a0"}
        assert shown(assign_cooperatively(members, {"a": 1})) == {"m0": "", "m1": "a0"}


def test_a_large_group_is_assigned_in_time():
    members = [Member(f"m{number:03}", ("a", "b") if number % 2 else ("b", "c")) for number in range(100)]
    counts = {"a": 500, "b": 300, "c": 100}
    assigned = assign_sticky(members, counts)
    members = [member._replace(owned=tuple(assigned[member.member_id]), generation=1) for member in members[10:]]
    check_whole(members, counts, assign_sticky(members, counts))


# ---------------------------------------------------------------- choosing them


def test_assignors_by_name_and_of_ones_own():
    own = Assignor("own", assign_range)
    assert chosen(["range", own]) == (ASSIGNORS["range"], own)
    for wrong in ([], ["nosuch"], ["range", "range"], [own, own]):
        with pytest.raises(InvalidConfig, match="partition_assignment_strategy"):
            chosen(wrong)
