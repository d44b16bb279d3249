"""The metadata of one node over the real state machine and a real store; what stands between them is called directly."""

import threading
from types import SimpleNamespace

import pytest

import logdb
from logdb.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidTopic,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from logdb.store.store import Store
from logdb_replication.controller import commands
from logdb_replication.controller.commands import AlterTopic, ChangeSecurity, RegisterBroker, UnfenceBroker
from logdb_replication.controller.errors import ControllerUnavailable
from logdb_replication.controller.machine import Machine
from logdb_replication.local_topics import LocalTopics
from logdb_replication.metadata import ClusterMetadata


class Controller:
    """The state machine of a cluster, and the nodes that follow it at once."""

    def __init__(self) -> None:
        self.machine, self.index, self.nodes = Machine("c"), 0, []
        for node in (1, 2, 3):
            self.propose(RegisterBroker(node, f"i{node}", {"http": ("127.0.0.1", 8000 + node)}, f"rack{node}"))
            self.propose(UnfenceBroker(node, node))

    leader = 3

    def propose(self, command, timeout_s=1.0):
        self.index += 1
        answer = self.machine.apply(self.index, commands.encode(command))
        for node in self.nodes:
            node.take(self.machine.state)
        return commands.decode_answer(answer)


class Node:
    """A store that has the topics of the cluster, and its metadata."""

    def __init__(self, path, controller: Controller, number: int) -> None:
        self.store = Store.open(path, replicated=True, durability="fsync")
        self.topics = LocalTopics(self.store)
        self.metadata = ClusterMetadata(SimpleNamespace(cluster="c", node=number, nodes=(1, 2, 3)), self.store, controller)
        controller.nodes.append(self)
        self.take(controller.machine.state)

    def take(self, state) -> None:
        self.topics.bring(state)
        self.topics.drop(state)
        self.metadata.publish(state)


def led(node: Node, topic: str):
    """The log of a topic's first partition, which takes records."""
    log = node.store.log(topic)
    log.begin_epoch(0)
    return log


@pytest.fixture
def controller():
    return Controller()


@pytest.fixture
def nodes(tmp_path, controller):
    nodes = [Node(tmp_path / f"node-{number}", controller, number) for number in (1, 2)]
    yield nodes
    for node in nodes:
        node.store.close()


def test_a_topic_has_one_id_on_each_node_and_the_cluster_s_defaults(nodes):
    one, two = nodes
    info = one.metadata.create_topic("t", config={"flush.ms": "7"})
    assert (info.partition_count, info.config) == (6, {"flush.ms": 7, "min.insync.replicas": 2})
    assert one.store.describe_topic("t").topic_id == two.store.describe_topic("t").topic_id == info.topic_id
    assert one.metadata.topics() == two.metadata.topics() == [info]
    assert {len(two.metadata.partition_state("t", number).replicas) for number in range(6)} == {3}
    assert two.store.log("t", 5).durability == "fsync"


def test_with_fewer_replicas_one_in_sync_is_enough(nodes):
    info = nodes[0].metadata.create_topic("t", partitions=1, replication_factor=2)
    assert (info.config, nodes[0].metadata.partition_state("t", 0).replicas) == ({}, (1, 2))


@pytest.mark.parametrize(("name", "given", "error"), [
    ("a/b", {}, InvalidTopic), ("t", {"partitions": 0}, InvalidPartitions), ("t", {"config": {"flush.mss": 1}}, InvalidConfig),
])  # fmt: skip
def test_a_wrong_topic_is_refused_before_it_is_proposed(nodes, controller, name, given, error):
    index = controller.index
    for refused in (nodes[0].metadata.create_topic, nodes[0].metadata.check_new_topic):
        with pytest.raises(error):
            refused(name, **given)
    assert controller.index == index


def test_a_topic_exists_once(nodes):
    one, two = nodes
    made = one.metadata.create_topic("t")
    for refused in (two.metadata.create_topic, two.metadata.check_new_topic):
        with pytest.raises(TopicExists):
            refused("t")
        for factor in (0, 4, 1 << 20):
            with pytest.raises(InvalidReplicationFactor):
                refused("u", replication_factor=factor)
    assert two.metadata.create_topic("t", if_not_exists=True).topic_id == made.topic_id


def test_configs_and_partitions_change_everywhere(nodes):
    one, two = nodes
    one.metadata.create_topic("t", partitions=1, replication_factor=1, config={"flush.ms": 7, "segment.ms": 100})
    assert two.metadata.alter_topic("t", config={"flush.ms": None, "retention.ms": 5}, partitions=2).config == {
        "segment.ms": 100,
        "retention.ms": 5,
    }
    assert one.store.describe_topic("t").config == {"segment.ms": 100, "retention.ms": 5}
    assert one.store.describe_topic("t").partition_count == 2
    one.metadata.alter_topic("t", config={"flush.ms": 8}, replace=True)
    assert two.store.describe_topic("t").config == {"flush.ms": 8}
    with pytest.raises(InvalidPartitions):
        one.metadata.alter_topic("t", partitions=1)
    with pytest.raises(InvalidConfig):
        one.metadata.alter_topic("t", config={"flush.ms": "often"})


def test_another_change_of_the_configs_comes_between(nodes, controller):
    metadata = nodes[0].metadata
    topic_id = metadata.create_topic("t", replication_factor=1).topic_id
    propose, between = controller.propose, [AlterTopic("t", topic_id, {}, {"segment.ms": 100})]

    def interrupted(command, timeout_s):
        if between:
            propose(between.pop())
        return propose(command)

    controller.propose = interrupted
    assert metadata.alter_topic("t", config={"flush.ms": 7}).config == {"segment.ms": 100, "flush.ms": 7}


def test_a_deleted_topic_is_gone_everywhere_and_its_name_is_free(nodes):
    one, two = nodes
    first = one.metadata.create_topic("t", replication_factor=1)
    led(two, "t").append(b"x")
    two.metadata.delete_topic("t")
    with pytest.raises(UnknownTopic):
        one.store.describe_topic("t")
    with pytest.raises(UnknownTopic):
        one.metadata.partition_count("t")
    assert one.metadata.create_topic("t").topic_id != first.topic_id
    assert two.store.log("t").end_offset == 0


def test_a_node_that_was_away_has_the_present_topics(tmp_path, nodes, controller):
    away = Node(tmp_path / "node-3", controller, 3)
    metadata = nodes[0].metadata
    for name in ("kept", "deleted", "again"):
        metadata.create_topic(name, replication_factor=1)
        led(away, name).append(b"x")
    controller.nodes.remove(away)
    away.store.close()
    metadata.delete_topic("deleted")
    metadata.delete_topic("again")
    metadata.create_topic("again", replication_factor=1)
    back = Node(tmp_path / "node-3", controller, 3)
    assert back.store.topic_names() == ("again", "kept")
    assert (back.store.log("kept").end_offset, back.store.log("again").end_offset) == (1, 0)
    back.store.close()


def test_what_cannot_be_made_here_is_tried_again(nodes, monkeypatch, caplog):
    one, two = nodes
    real, left = Store.create_topic, [logdb.errors.DiskFull("t", 1, "full")]

    def failing(store, *arguments, **given):
        if store is two.store and left:
            raise left.pop()
        return real(store, *arguments, **given)

    monkeypatch.setattr(Store, "create_topic", failing)
    one.metadata.create_topic("t")
    assert "topic t of this node is not as the cluster has it" in caplog.text
    assert two.store.topic_names() == ()
    one.metadata.create_topic("u")
    assert two.store.topic_names() == ("t", "u")


def test_a_change_that_this_node_does_not_see_is_no_success(nodes, controller, monkeypatch):
    monkeypatch.setattr("logdb_replication.metadata.TIMEOUT_S", 0.01)
    controller.nodes.clear()
    with pytest.raises(ControllerUnavailable, match="not heard of it yet"):
        nodes[0].metadata.create_topic("t")


def test_brokers_and_unknown_partitions(nodes):
    metadata = nodes[1].metadata
    assert [(broker.node_id, broker.rack, broker.fenced) for broker in metadata.brokers()] == [
        (1, "rack1", False), (2, "rack2", False), (3, "rack3", False),
    ]  # fmt: skip
    metadata.create_topic("t", partitions=1)
    with pytest.raises(UnknownPartition):
        metadata.partition_state("t", 1)
    assert (metadata.node_id, metadata.database_id, metadata.controller_id) == (2, "c", 3)


def test_producer_ids_are_given_once(nodes):
    one, two = nodes
    taken = [*one.metadata.take_producer_ids(10), *two.metadata.take_producer_ids(10)]
    assert len(set(taken)) == 20


# ---------------------------------------------------------------- users, tokens and ACLs


def test_the_document_is_the_same_everywhere(nodes):
    one, two = nodes
    taken = []
    following = two.metadata.security.follow(taken.append)
    following.refresh()
    assert (taken, following.is_there) == ([None], False)
    assert one.metadata.security.change(lambda document: (b"first", document)) is None
    following.refresh()
    following.refresh()
    assert (taken, following.is_there, two.metadata.security.read()) == ([None, b"first"], True, b"first")


def test_another_change_of_the_document_comes_between(nodes, controller):
    security, given = nodes[0].metadata.security, []

    def edit(document):
        given.append(document)
        if len(given) == 1:
            controller.propose(ChangeSecurity(0, b"theirs"))
        return (document or b"") + b" and mine", len(given)

    assert security.change(edit) == 2
    assert (given, security.read()) == ([None, b"theirs"], b"theirs and mine")


def test_a_damaged_document_is_taken_once(nodes):
    def refuse(document):
        taken.append(document)
        raise ValueError

    taken = []
    following = nodes[0].metadata.security.follow(refuse)
    with pytest.raises(ValueError, match=r"^$"):
        following.refresh()
    following.refresh()
    assert taken == [None]


def test_a_topic_waits_for_the_first_start_of_the_brokers(tmp_path, nodes, controller):
    controller.machine = Machine("c")
    controller.index = 0
    for node in nodes:
        node.take(controller.machine.state)
    made = []
    thread = threading.Thread(target=lambda: made.append(nodes[0].metadata.create_topic("t")))
    thread.start()
    for node in (1, 2, 3):
        controller.propose(RegisterBroker(node, f"i{node}", {}))
        controller.propose(UnfenceBroker(node, node))
    thread.join(10)
    assert len(made) == 1
