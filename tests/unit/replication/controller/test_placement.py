"""Where new partitions go: leaders and second replicas are spread, racks come first."""

import random
from collections import Counter

import pytest

from logdb.errors import InvalidReassignment, InvalidReplicationFactor
from logdb.requests.nodes import PartitionState
from logdb_replication.controller.commands import AddPartitions, CreateTopic, DrainBroker, FenceBroker
from logdb_replication.controller.placement import placed, with_places
from logdb_replication.controller.state import TopicState
from support.controllers import Controllers


@pytest.mark.parametrize(("brokers", "factor"), [(1, 1), (3, 1), (3, 2), (3, 3), (5, 3)])
def test_leaders_replicas_and_who_follows_a_leader_are_spread(brokers, factor):
    made = Controllers(brokers=brokers)
    count = brokers * max(brokers - 1, 1) * 2
    partitions = made.create(partitions=count, factor=factor).partitions
    assert {len(set(partition.replicas)) for partition in partitions} == {factor}
    assert all(partition.in_sync == partition.replicas and partition.leader == partition.replicas[0] for partition in partitions)
    for spread in (
        Counter(partition.leader for partition in partitions),
        Counter(node for partition in partitions for node in partition.replicas),
        Counter(partition.replicas[:2] for partition in partitions),
    ):
        assert max(spread.values()) - min(spread.values()) <= (0 if brokers == 3 else 2)


def uneven(counts: Counter[int], nodes: range) -> int:
    """By how much they differ."""
    numbers = [counts[node] for node in nodes]
    return max(numbers) - min(numbers)


def create(made: Controllers, name: str, partitions: int, factor: int) -> TopicState:
    """As the controller that leads does it."""
    return made.apply(with_places(made.state, CreateTopic(name, f"id-of-{name}", {}, partitions, factor))).topic


def test_a_topic_of_six_partitions_has_two_leaders_on_each_of_three_nodes():
    """Whatever other topics there are: as many leaders in all is no reason for more of one topic."""
    made = Controllers(brokers=3)
    made.create("taken", partitions=4, factor=1, assignments=((1,), (1,), (2,), (2,)))
    assert Counter(partition.leader for partition in create(made, "t", 6, 3).partitions) == {1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_each_topic_and_all_topics_together_are_spread_over_the_nodes(seed, grows):
    """Topics are created, and get partitions.  Where they do, the spread of the topic comes before that of all topics."""
    drawn = random.Random(seed)
    brokers = drawn.randint(1, 6)
    nodes, made = range(1, brokers + 1), Controllers(brokers=brokers)
    for number in range(25):
        if grows and made.state.topics and drawn.random() < 0.3:
            topic = drawn.choice(list(made.state.topics.values()))
            known, added = len(topic.partitions), drawn.randint(1, 8)
            made.apply(with_places(made.state, AddPartitions(topic.name, topic.topic_id, known, known + added)))
        else:
            create(made, f"t{number}", drawn.randint(1, 12), drawn.randint(1, brokers))
        for topic in made.state.topics.values():
            assert uneven(Counter(partition.leader for partition in topic.partitions), nodes) <= 1
            assert uneven(Counter(node for partition in topic.partitions for node in partition.replicas), nodes) <= 2
            assert all(len(set(partition.replicas)) == len(partition.replicas) for partition in topic.partitions)
        everything = [partition for topic in made.state.topics.values() for partition in topic.partitions]
        assert uneven(Counter(partition.leader for partition in everything), nodes) <= (3 if grows else 1)
        assert uneven(Counter(node for partition in everything for node in partition.replicas), nodes) <= 6


def test_partitions_that_are_added_go_on_with_the_spread_over_a_new_node():
    made = Controllers(brokers=2)
    create(made, "t", 4, 1)
    made.register(3)
    made.unfence(3)
    made.apply(with_places(made.state, AddPartitions("t", "id-of-t", 4, 6)))
    assert Counter(partition.leader for partition in made.state.topics["t"].partitions) == {1: 2, 2: 2, 3: 2}


def test_leaders_are_spread_over_live_nodes_and_replicas_over_racks():
    made = Controllers(brokers=6, racks=("a", "a", "b", "b", "c", "c"))
    made.apply(FenceBroker(6, made.epochs[6]))
    racks = {node: broker.rack for node, broker in made.state.brokers.items()}
    partitions = create(made, "t", 10, 3).partitions
    assert Counter(partition.leader for partition in partitions) == dict.fromkeys(range(1, 6), 2)
    assert all({racks[node] for node in partition.replicas} == {"a", "b", "c"} for partition in partitions if 5 in partition.replicas)
    assert all(partition.in_sync == partition.replicas for partition in partitions if 6 not in partition.replicas)


def test_who_follows_a_leader_is_spread():
    made = Controllers(brokers=4)
    pairs = Counter(partition.replicas for partition in create(made, "t", 12, 2).partitions)
    assert len(pairs) == 12


@pytest.mark.parametrize("command", [
    CreateTopic("t", "id-of-t", {}, 1, 3),
    CreateTopic("new", "id", {}, 10_001, 1),
    CreateTopic("new", "id", {}, 1, 4),
    CreateTopic("new", "id", {}, 1, 1, assignments=((2,),)),
    AddPartitions("t", "id-of-t", 2, 4),
    AddPartitions("other", "id", 1, 4),
])  # fmt: skip
def test_a_command_that_names_nodes_or_is_refused_stays_as_it_is(command):
    made = Controllers(brokers=3)
    made.create()
    assert with_places(made.state, command) is command


def test_a_journal_of_an_earlier_version_gives_the_state_that_it_gave():
    """Otherwise voters of two versions, or of one before and after its restart, would know different replicas."""
    made = Controllers(brokers=3)
    made.create("taken", partitions=4, factor=1, assignments=((1,), (1,), (2,), (2,)))
    topic = made.create("t", partitions=6)
    assert [partition.replicas for partition in topic.partitions] == [
        (3, 1, 2), (3, 1, 2), (3, 1, 2), (1, 3, 2), (2, 3, 1), (3, 2, 1),
    ]  # fmt: skip


def test_topics_of_one_partition_are_spread_too():
    made = Controllers(brokers=3)
    leaders = Counter(made.create(f"t{number}").partitions[0].leader for number in range(9))
    assert leaders == {1: 3, 2: 3, 3: 3}


def test_the_replicas_of_a_partition_are_in_as_many_racks_as_there_are():
    made = Controllers(brokers=5, racks=("a", "a", "b", "b", "c"))
    racks = {node: broker.rack for node, broker in made.state.brokers.items()}
    for partition in made.create(partitions=30).partitions:
        assert {racks[node] for node in partition.replicas} == {"a", "b", "c"}


def test_fenced_and_draining_brokers_get_what_no_other_can_and_are_not_in_sync():
    made = Controllers(brokers=4)
    made.apply(FenceBroker(1, made.epochs[1]))
    made.apply(DrainBroker(2, True))
    for partition in placed(made.state, 10, 2):
        assert set(partition.replicas) == set(partition.in_sync) == {3, 4}
    for partition in placed(made.state, 10, 4):
        assert set(partition.replicas) == {1, 2, 3, 4}
        assert set(partition.in_sync) == {3, 4}
        assert partition.leader in {3, 4}
    for node in (3, 4):
        made.apply(FenceBroker(node, made.epochs[node]))
    with pytest.raises(InvalidReplicationFactor, match="available brokers: 0"):
        placed(made.state, 1, 1)


def added(made: Controllers, *assignments: tuple[int, ...], count: int | None = None) -> tuple[PartitionState, ...]:
    """The partitions that a topic of one partition gets."""
    command = AddPartitions("t", "id-of-t", 1, 1 + len(assignments) if count is None else count, assignments)
    return made.apply(command).topic.partitions[1:]


def test_partitions_that_are_added_lie_where_an_operator_says():
    made = Controllers(brokers=4)
    made.create(factor=2)
    made.apply(FenceBroker(1, made.epochs[1]))
    made.apply(DrainBroker(2, True))
    assert added(made, (4, 3), (1, 4), (2, 3)) == (
        PartitionState(4, 0, (4, 3), (4, 3)),
        PartitionState(4, 0, (1, 4), (4,)),
        PartitionState(3, 0, (2, 3), (3,)),
    )


@pytest.mark.parametrize(("assignments", "partition", "reason"), [
    (((3, 4), (3, 3)), 2, "each node has one replica at most"),
    (((3, 4), (3, 9)), 2, "node 9 has never registered"),
    (((3, 4, 2),), 1, "they are 3, and 2 in the topic's first partition"),
    (((),), 1, "one is needed at least"),
    (((1, 2),), 1, "none of them may lead: they are fenced, or drain"),
])  # fmt: skip
def test_where_they_cannot_lie_is_refused_as_a_whole(assignments, partition, reason):
    made = Controllers(brokers=4)
    made.create(factor=2)
    made.apply(FenceBroker(1, made.epochs[1]))
    made.apply(DrainBroker(2, True))
    with pytest.raises(InvalidReassignment) as refused:
        added(made, *assignments)
    assert (refused.value.partition, refused.value.replicas, refused.value.reason) == (partition, assignments[-1], reason)
    assert len(made.state.topics["t"].partitions) == 1


def test_nodes_are_named_for_each_partition_that_is_added():
    made = Controllers(brokers=3)
    made.create(factor=2)
    with pytest.raises(InvalidReassignment, match="3 partitions are added, and nodes are named for 2"):
        added(made, (1, 2), (2, 3), count=4)


def test_a_topic_is_created_where_an_operator_says():
    made = Controllers(brokers=4)
    made.apply(FenceBroker(1, made.epochs[1]))
    topic = made.create(partitions=2, factor=2, assignments=((4, 3), (1, 4)))
    assert topic.partitions == (PartitionState(4, 0, (4, 3), (4, 3)), PartitionState(4, 0, (1, 4), (4,)))


@pytest.mark.parametrize(("assignments", "partition", "reason"), [
    (((3, 4), (3, 3)), 1, "each node has one replica at most"),
    (((3, 4), (3, 9)), 1, "node 9 has never registered"),
    (((3, 4), (2, 3, 4)), 1, "they are 3, and the replication factor is 2"),
    (((),), 0, "one is needed at least"),
    (((1,),), 0, "none of them may lead: they are fenced, or drain"),
])  # fmt: skip
def test_where_a_topic_cannot_be_created(assignments, partition, reason):
    made = Controllers(brokers=4)
    made.apply(FenceBroker(1, made.epochs[1]))
    with pytest.raises(InvalidReassignment) as refused:
        made.create(partitions=len(assignments), factor=len(assignments[0]), assignments=assignments)
    assert (refused.value.partition, refused.value.replicas, refused.value.reason) == (partition, assignments[-1], reason)
    assert not made.state.topics
