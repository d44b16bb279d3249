"""What is reported between two states of a cluster."""

from msgspec.structs import replace

from logdb.model import ClusterEvent, TopicPartition
from logdb.requests.nodes import PartitionState
from logdb_replication.changes_of_nodes import changes_of_nodes
from logdb_replication.controller.state import BrokerState, ClusterState, TopicState


def broker(node, *, fenced=False):
    return BrokerState(node, "i", node, {}, fenced=fenced)


def topic(*partitions, topic_id="1"):
    return TopicState("t", topic_id, {}, partitions)


def partition(leader, in_sync, epoch=1):
    return PartitionState(leader, epoch, (1, 2, 3), in_sync)


def told(former, now):
    return list(changes_of_nodes(former, now))


STATE = ClusterState("c", 5, {1: broker(1), 2: broker(2, fenced=True)}, {"t": topic(partition(1, (1, 2)))})
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_same_state_tells_nothing():
    assert told(STATE, replace(STATE, index=6)) == []


def test_brokers_that_come_and_go():
    now = replace(STATE, brokers={1: broker(1, fenced=True), 2: broker(2), 3: broker(3, fenced=True)})
    assert told(STATE, now) == [ClusterEvent("broker_left", 1), ClusterEvent("broker_joined", 2)]
    assert told(now, replace(now, brokers={1: broker(1)})) == [ClusterEvent("broker_joined", 1), ClusterEvent("broker_left", 2)]


def test_leaders_and_in_sync_sets():
    now = replace(STATE, topics={"t": topic(partition(2, (2,), 2))})
    assert told(STATE, now) == [ClusterEvent("leader_changed", 2, T0, 2, (2,)), ClusterEvent("in_sync_changed", 2, T0, 2, (2,))]
    assert told(now, replace(STATE, topics={"t": topic(partition(None, (2,), 3))})) == [ClusterEvent("leader_changed", None, T0, 3, (2,))]
    swapped = replace(STATE, topics={"t": topic(partition(1, (2, 1)))})
    assert told(STATE, swapped) == [], "the order of a set says nothing"


def test_new_partitions_have_leaders_and_deleted_topics_are_the_topics_event():
    more = replace(STATE, topics={"t": topic(partition(1, (1, 2)), partition(3, (3,)))})
    assert told(STATE, more) == [ClusterEvent("leader_changed", 3, T1, 1, (3,))]
    assert told(STATE, replace(STATE, topics={})) == []
    again = replace(STATE, topics={"t": topic(partition(1, (1,)), topic_id="2")})
    assert told(STATE, again) == [ClusterEvent("leader_changed", 1, T0, 1, (1,))]
