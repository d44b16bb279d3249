"""The committed offsets of a deleted topic: each node drops those of the groups that it coordinates."""

import contextlib
import threading

import pytest

from logdb.broker import runner
from logdb.broker.broker import Broker
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.store.store import Store
from support.clustered import NODES, Cluster, ClusterMetadata, NodeStorage
from support.waiting import until

WHERE = TopicPartition("t", 0)
FIVE, NINE = OffsetAndMetadata(5), OffsetAndMetadata(9)


class Brokers(dict):
    """By the numbers of their nodes."""

    def __init__(self, brokers, cluster):
        super().__init__(brokers)
        self.cluster = cluster


@pytest.fixture
def brokers(tmp_path):
    """Those of three nodes over one store."""
    with contextlib.closing(Store.open(tmp_path / "db")) as store, contextlib.ExitStack() as closing:
        cluster = Cluster(store)
        made = {number: Broker(NodeStorage(cluster, number), ClusterMetadata(cluster, number)) for number in NODES}
        for broker in made.values():
            closing.callback(broker.close)
        made[1].create_topic("t", partitions=1)
        yield Brokers(made, cluster)


def groups_of(brokers):
    """A group for each node that coordinates it."""
    found = {}
    for name in map(str, range(64)):
        found.setdefault(brokers[1].coordinator("__consumer_offsets", name), name)
    return {number: found[number] for number in NODES}


def test_each_node_drops_the_offsets_of_its_groups(brokers):
    groups = groups_of(brokers)
    for number, group in groups.items():
        brokers[number].commit_offsets(group, {WHERE: FIVE}).result()
    brokers[2].delete_topic("t")
    brokers[3].create_topic("t")
    assert [brokers[number].fetch_offsets(group) for number, group in groups.items()] == [{}, {}, {}]


def test_offsets_of_the_next_topic_of_that_name_stay(brokers):
    groups = groups_of(brokers)
    for number, group in groups.items():
        brokers[number].commit_offsets(group, {WHERE: FIVE}).result()
    brokers[2].delete_topic("t")
    brokers[3].create_topic("t")
    for number, group in groups.items():
        brokers[number].commit_offsets(group, {WHERE: NINE}).result()
    for number, group in groups.items():
        assert brokers[number].fetch_offsets(group) == {WHERE: NINE}
        log = brokers[number]._groups.find(group).log
        values = [record.value is None for record in log.read(0)]
        assert values == [False, True, False], "the old offset was dropped before the new one came"


def test_they_are_dropped_though_nobody_asks(brokers):
    groups = groups_of(brokers)
    brokers[1].commit_offsets(groups[1], {WHERE: FIVE}).result()
    log = brokers[1]._groups.find(groups[1]).log
    brokers[2].delete_topic("t")
    until(lambda: log.end_offset == 2)


def test_a_topic_is_deleted_while_a_coordinator_is_loaded(brokers, monkeypatch):
    """As after a restart; it answered COORDINATOR_LOAD_IN_PROGRESS, and no client repeats a deletion for that."""
    groups, broker = groups_of(brokers), brokers[1]
    broker.commit_offsets(groups[1], {WHERE: FIVE}).result()
    where = TopicPartition("__consumer_offsets", broker._groups.partition_of(groups[1]))
    begun, deleted, replay = threading.Event(), threading.Event(), runner.replay

    def slow(*arguments):
        begun.set()
        assert deleted.wait(20)
        return replay(*arguments)

    monkeypatch.setattr(runner, "replay", slow)
    loading = threading.Thread(target=broker.load_coordinator, args=(where, brokers.cluster.lead(*where, 1)))
    loading.start()
    assert begun.wait(20)
    try:
        broker.delete_topic("t")
    finally:
        deleted.set()
        loading.join()
    assert broker.fetch_offsets(groups[1]) == {}


def test_the_next_coordinator_drops_what_no_coordinator_heard_of(brokers):
    """As when the leader is stopped while a topic is deleted."""
    brokers[1].create_topic("kept", partitions=1)
    group, kept = groups_of(brokers)[1], TopicPartition("kept", 0)
    where = TopicPartition("__consumer_offsets", brokers[1]._groups.partition_of(group))
    brokers[1].commit_offsets(group, {WHERE: FIVE, kept: FIVE}).result()
    brokers[1].resign_coordinator(where, brokers.cluster.lead(*where, None))
    brokers[3].delete_topic("t")
    brokers[2].load_coordinator(where, brokers.cluster.lead(*where, 2))
    assert brokers[2].fetch_offsets(group) == {kept: FIVE}


class Behind:
    """The metadata of a node, as they were before ``t`` was made and another leader elected, until it is told of both."""

    def __init__(self, metadata, where):
        self._metadata, self._former = metadata, metadata.partition_state(*where)
        self.was_asked, self.is_told = threading.Event(), threading.Event()

    def partition_state(self, *where):
        self.was_asked.set()
        return self._metadata.partition_state(*where) if self.is_told.is_set() else self._former

    def topic_names(self):
        return self._metadata.topic_names() if self.is_told.is_set() else ()

    def __getattr__(self, name):
        return getattr(self._metadata, name)


def test_a_coordinator_drops_nothing_before_its_metadata_knows_that_it_leads(brokers):
    """In older metadata a topic may be missing that exists."""
    group = groups_of(brokers)[1]
    where = TopicPartition("__consumer_offsets", brokers[1]._groups.partition_of(group))
    brokers[1].commit_offsets(group, {WHERE: FIVE}).result()
    brokers[1].resign_coordinator(where, brokers.cluster.lead(*where, None))
    behind = brokers[2].metadata = Behind(brokers[2].metadata, where)
    loading = threading.Thread(target=brokers[2].load_coordinator, args=(where, brokers.cluster.lead(*where, 2)))
    loading.start()
    assert behind.was_asked.wait(20)
    assert loading.is_alive()
    behind.is_told.set()
    loading.join()
    assert brokers[2].fetch_offsets(group) == {WHERE: FIVE}
