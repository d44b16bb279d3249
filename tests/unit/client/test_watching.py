"""What a watch reports after it lost its place: what has changed since its last event, once."""

import pytest

from logdb.client.watching import Watch
from logdb.model import Changes, ClusterEvent, TopicEvent, TopicInfo, TopicPartition
from logdb.requests.nodes import ClusterNodes, PartitionState

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def topic(name, topic_id="1"):
    return TopicInfo(name, topic_id, 1, {})


def partition(leader, leader_epoch, in_sync):
    return PartitionState(leader, leader_epoch, (1, 2, 3), in_sync)


def led(kind, where, state):
    return ClusterEvent(kind, state.leader, where, state.leader_epoch, state.in_sync)


class FakeSession:
    """What the node in use knows, and what it tells next; without more to tell its run is unknown to the watch."""

    def __init__(self, topics, serving, partitions):
        self.present, self.nodes, self.events = topics, ClusterNodes(serving, partitions), []
        self.fails = False

    def changes(self, position, timeout_ms):
        if position is None or self.events:
            told, self.events = tuple(self.events), []
            return Changes(told, "run-1")
        return Changes((), "run-2", complete=position == "run-2")

    def topics(self, *, internal):
        return self.present

    def cluster_nodes(self):
        if self.fails:
            raise ConnectionError("the next node is gone, too")
        return self.nodes


def watching(session, *, cluster=True, internal=False):
    return Watch(session, timeout_ms=0, stop=None, internal=internal, cluster=cluster)


def led_by_one(*in_sync):
    return partition(1, 4, in_sync)


def test_differences_of_brokers_and_partitions_are_events_once_each():
    session = FakeSession([topic("t")], (1, 2), {T0: led_by_one(1, 2), T1: led_by_one(1, 2, 3)})
    watch = watching(session)
    now = {T0: partition(2, 5, (2,)), T1: led_by_one(1, 3)}
    session.nodes = ClusterNodes((2, 3), now)
    assert list(watch) == [
        ClusterEvent("broker_left", 1),
        ClusterEvent("broker_joined", 3),
        led("leader_changed", T0, now[T0]),
        led("in_sync_changed", T0, now[T0]),
        led("in_sync_changed", T1, now[T1]),
    ]
    assert list(watch) == []


def test_what_the_watch_has_reported_is_no_difference():
    session = FakeSession([topic("t")], (1, 2), {T0: led_by_one(1, 2)})
    watch = watching(session)
    after = partition(2, 5, (2,))
    told = [ClusterEvent("broker_left", 1), led("leader_changed", T0, after), led("in_sync_changed", T0, after)]
    session.events = told
    assert [next(watch) for _ in told] == told
    session.nodes = ClusterNodes((2,), {T0: after})
    assert list(watch) == []


def test_what_the_comparison_has_reported_is_no_news_when_the_node_tells_it():
    session = FakeSession([topic("t")], (1, 2), {T0: led_by_one(1, 2)})
    watch = watching(session)
    now = partition(None, 6, (2,))
    session.nodes = ClusterNodes((2,), {T0: now})
    told = list(watch)
    assert [event.kind for event in told] == ["broker_left", "leader_changed", "in_sync_changed"]
    before = partition(2, 5, (2,))
    session.events = [led("leader_changed", T0, before), led("in_sync_changed", T0, before), *told]
    assert list(watch) == []
    session.events = [led("leader_changed", T0, partition(2, 7, (2,)))]
    assert list(watch) == [led("leader_changed", T0, partition(2, 7, (2,)))]


def test_a_node_that_is_behind_takes_nothing_back():
    session = FakeSession([topic("t")], (1,), {T0: partition(2, 5, (2,))})
    watch = watching(session)
    session.nodes = ClusterNodes((1,), {T0: led_by_one(1, 2)})
    assert list(watch) == []


def test_the_order_of_an_in_sync_set_says_nothing():
    session = FakeSession([topic("t")], (1,), {T0: led_by_one(1, 2)})
    watch = watching(session)
    session.nodes = ClusterNodes((1,), {T0: led_by_one(2, 1)})
    assert list(watch) == []


def test_topics_come_before_the_leaders_of_their_partitions():
    session = FakeSession([topic("t")], (1,), {T0: partition(1, 7, (1,))})
    watch = watching(session)
    session.present = [topic("t", "2"), topic("u")]
    session.nodes = ClusterNodes((1,), {T0: partition(1, 0, (1,)), U0: partition(2, 0, (2,))})
    assert list(watch) == [
        TopicEvent("topic_deleted", topic("t")),
        TopicEvent("topic_created", topic("t", "2")),
        TopicEvent("topic_created", topic("u")),
        led("leader_changed", T0, partition(1, 0, (1,))),
        led("leader_changed", U0, partition(2, 0, (2,))),
    ]


def test_a_partition_that_was_never_led_is_no_news_until_it_is():
    session = FakeSession([topic("t")], (1,), {})
    watch = watching(session)
    session.nodes = ClusterNodes((1,), {T0: partition(None, 0, (1,))})
    assert list(watch) == []
    session.events = [led("leader_changed", T0, partition(1, 1, (1,)))]
    assert list(watch) == [led("leader_changed", T0, partition(1, 1, (1,)))]


def test_a_comparison_that_fails_is_made_again():
    session = FakeSession([topic("t")], (1, 2), {})
    watch = watching(session)
    session.nodes, session.fails = ClusterNodes((2,), {}), True
    with pytest.raises(ConnectionError):
        next(watch)
    session.fails = False
    session.present = [topic("u")]
    assert [event.kind for event in watch] == ["topic_deleted", "topic_created", "broker_left"]


def test_internal_topics_only_if_asked():
    where = TopicPartition("__consumer_offsets", 0)
    for internal in (False, True):
        session = FakeSession([topic("__consumer_offsets")], (1,), {where: led_by_one(1)})
        watch = watching(session, internal=internal)
        session.nodes = ClusterNodes((1,), {where: partition(2, 5, (1,))})
        assert [event.kind for event in watch] == ["leader_changed"] * internal


def test_who_asks_for_topics_alone_asks_for_no_nodes():
    session = FakeSession([topic("t")], (1,), {})
    session.fails = True
    watch = watching(session, cluster=False)
    session.present, session.events = [], [ClusterEvent("broker_left", 1)]
    assert list(watch) == []
    assert [event.kind for event in watch] == ["topic_deleted"]
