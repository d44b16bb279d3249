"""Where new partitions go: leaders and second replicas are spread, racks come first."""

from collections import Counter

import pytest

from logdb.errors import InvalidReassignment, InvalidReplicationFactor
from logdb.store.protocols import PartitionState
from logdb_replication.controller.commands import AddPartitions, DrainBroker, FenceBroker
from logdb_replication.controller.placement import placed
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
