"""The metadata of one node over the real state machine and a real store; what stands between them is called directly."""

import threading
import time
import uuid
from types import SimpleNamespace

import msgspec
import pytest

import logdb
from logdb.errors import (
    ControllerUnavailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidConfig,
    InvalidPartitions,
    InvalidReassignment,
    InvalidReplicationFactor,
    InvalidTopic,
    MetadataTimeout,
    NoReassignment,
    PreferredLeaderNotAvailable,
    ReplicaCountChanged,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from logdb.model import TopicPartition
from logdb.requests import replicas, topic_changes
from logdb.requests.topics import Topics
from logdb.store.writer import Writer
from logdb_replication import metadata
from logdb_replication.controller import commands, elections
from logdb_replication.controller.commands import (
    AlterInSync,
    AlterTopic,
    ChangeSecurity,
    ElectPreferred,
    FenceBroker,
    LimitReassignments,
    Reassign,
    RegisterBroker,
    Replica,
    UnfenceBroker,
)
from logdb_replication.controller.elections import is_electing
from logdb_replication.controller.machine import Machine
from logdb_replication.metadata import first_producer_id
from support.metadata_nodes import Controller, Node
from support.watched_lock import WatchedLock


def led(node: Node, topic: str):
    """The log of a topic's first partition, which takes records."""
    log = node.store.open_log(topic)
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
    info = one.metadata.submit(topic_changes.CreateTopic("t", config={"flush.ms": "7"}))
    assert (info.partition_count, info.config) == (6, {"flush.ms": 7, "min.insync.replicas": 2})
    assert one.store.topic("t").topic_id == two.store.topic("t").topic_id == info.topic_id
    assert one.metadata.submit(Topics()) == two.metadata.submit(Topics()) == [info]
    assert {len(two.metadata.partition_state("t", number).replicas) for number in range(6)} == {3}
    assert two.store.open_log("t", 5).durability == "fsync"


def test_with_fewer_replicas_one_in_sync_is_enough(nodes):
    info = nodes[0].metadata.submit(topic_changes.CreateTopic("t", partitions=1, replication_factor=2))
    assert (info.config, nodes[0].metadata.partition_state("t", 0).replicas) == ({}, (1, 2))


@pytest.mark.parametrize(("name", "given", "error"), [
    ("a/b", {}, InvalidTopic), ("t", {"partitions": 0}, InvalidPartitions), ("t", {"config": {"flush.mss": 1}}, InvalidConfig),
])  # fmt: skip
def test_a_wrong_topic_is_refused_before_it_is_proposed(nodes, controller, name, given, error):
    index = controller.index
    for kind in (topic_changes.CreateTopic, topic_changes.CheckNewTopic):
        with pytest.raises(error):
            nodes[0].metadata.submit(kind(name, **given))
    assert controller.index == index


def test_a_topic_lies_on_the_nodes_that_are_named_for_it(nodes):
    one, two = nodes
    checked = one.metadata.submit(topic_changes.CheckNewTopic("t", assignments=((2, 3), (3, 1))))
    made = two.metadata.submit(topic_changes.CreateTopic("t", assignments=((2, 3), (3, 1))))
    assert checked._replace(topic_id="") == made._replace(topic_id="")
    assert [one.metadata.partition_state("t", number).replicas for number in (0, 1)] == [(2, 3), (3, 1)]
    for kind in (topic_changes.CreateTopic, topic_changes.CheckNewTopic):
        for named in ([0, 1], [9, 1], [1, 1], [2**20, 1], [*range(1, 66)], []):
            with pytest.raises(InvalidReassignment):
                one.metadata.submit(kind("u", assignments=(named,)))


def test_at_the_first_start_the_nodes_that_are_named_are_waited_for(nodes, controller):
    metadata, machine = nodes[0].metadata, Machine("c")
    machine.apply(1, commands.encode(RegisterBroker(1, "i1", {})))
    metadata.publish(machine.state)
    asked, wait = [], metadata.wait

    def come(condition, timeout_s):
        asked.append(condition(metadata.state))
        metadata.publish(controller.machine.state)
        return wait(condition, timeout_s)

    metadata.wait = come
    assert metadata.submit(topic_changes.CreateTopic("t", assignments=[[3]])).partition_count == 1
    assert asked[0] is False


def test_a_topic_exists_once(nodes):
    one, two = nodes
    made = one.metadata.submit(topic_changes.CreateTopic("t"))
    for kind in (topic_changes.CreateTopic, topic_changes.CheckNewTopic):
        with pytest.raises(TopicExists):
            two.metadata.submit(kind("t"))
        for factor in (0, 4, 1 << 20):
            with pytest.raises(InvalidReplicationFactor):
                two.metadata.submit(kind("u", replication_factor=factor))
    assert two.metadata.submit(topic_changes.CreateTopic("t", if_not_exists=True)).topic_id == made.topic_id


def test_configs_and_partitions_change_everywhere(nodes):
    one, two = nodes
    one.metadata.submit(topic_changes.CreateTopic("t", partitions=1, replication_factor=1, config={"flush.ms": 7, "segment.ms": 100}))
    assert two.metadata.submit(topic_changes.AlterTopic("t", config={"flush.ms": None, "retention.ms": 5}, partitions=2)).config == {
        "segment.ms": 100,
        "retention.ms": 5,
    }
    assert one.store.topic("t").config == {"segment.ms": 100, "retention.ms": 5}
    assert one.store.topic("t").partition_count == 2
    one.metadata.submit(topic_changes.AlterConfigs("t", {"flush.ms": 8}, replace=True))
    assert two.store.topic("t").config == {"flush.ms": 8}
    with pytest.raises(InvalidPartitions):
        one.metadata.submit(topic_changes.AlterTopic("t", partitions=1))
    with pytest.raises(InvalidConfig):
        one.metadata.submit(topic_changes.AlterTopic("t", config={"flush.ms": "often"}))


def test_another_change_of_the_configs_comes_between(nodes, controller):
    metadata = nodes[0].metadata
    topic_id = metadata.submit(topic_changes.CreateTopic("t", replication_factor=1)).topic_id
    propose, between = controller.propose, [AlterTopic("t", topic_id, {}, {"segment.ms": 100})]

    def interrupted(command, timeout_s):
        if between:
            propose(between.pop())
        return propose(command)

    controller.propose = interrupted
    assert metadata.submit(topic_changes.AlterTopic("t", config={"flush.ms": 7})).config == {"segment.ms": 100, "flush.ms": 7}


def test_a_deleted_topic_is_gone_everywhere_and_its_name_is_free(nodes):
    one, two = nodes
    first = one.metadata.submit(topic_changes.CreateTopic("t", replication_factor=1))
    led(two, "t").append(b"x")
    two.metadata.submit(topic_changes.DeleteTopic("t"))
    with pytest.raises(UnknownTopic):
        one.store.topic("t")
    with pytest.raises(UnknownTopic):
        one.metadata.topic("t")
    assert one.metadata.submit(topic_changes.CreateTopic("t")).topic_id != first.topic_id
    assert two.store.open_log("t").end_offset == 0


def test_a_node_that_was_away_has_the_present_topics(tmp_path, nodes, controller):
    away = Node(tmp_path / "node-3", controller, 3)
    metadata = nodes[0].metadata
    for name in ("kept", "deleted", "again"):
        metadata.submit(topic_changes.CreateTopic(name, replication_factor=1))
        led(away, name).append(b"x")
    controller.nodes.remove(away)
    away.store.close()
    metadata.submit(topic_changes.DeleteTopic("deleted"))
    metadata.submit(topic_changes.DeleteTopic("again"))
    metadata.submit(topic_changes.CreateTopic("again", replication_factor=1))
    back = Node(tmp_path / "node-3", controller, 3)
    assert back.store.topic_names() == ("again", "kept")
    assert (back.store.open_log("kept").end_offset, back.store.open_log("again").end_offset) == (1, 0)
    back.store.close()


def test_what_cannot_be_made_here_is_tried_again(nodes, monkeypatch, caplog):
    one, two = nodes
    real, left = Writer.create, [logdb.errors.DiskFull("t", 1, "full")]

    def failing(writer, *arguments, **given):
        if writer is two.store.writer and left:
            raise left.pop()
        return real(writer, *arguments, **given)

    monkeypatch.setattr(Writer, "create", failing)
    one.metadata.submit(topic_changes.CreateTopic("t"))
    assert "topic t of this node is not as the cluster has it" in caplog.text
    assert two.store.topic_names() == ()
    one.metadata.submit(topic_changes.CreateTopic("u"))
    assert two.store.topic_names() == ("t", "u")


def test_a_change_that_this_node_does_not_see_is_no_success(nodes, controller, monkeypatch):
    monkeypatch.setattr("logdb_replication.metadata.TIMEOUT_S", 0.01)
    controller.nodes.clear()
    with pytest.raises(MetadataTimeout, match="not received it yet"):
        nodes[0].metadata.submit(topic_changes.CreateTopic("t"))


def test_brokers_and_unknown_partitions(nodes):
    metadata = nodes[1].metadata
    assert [(broker.node_id, broker.rack, broker.fenced) for broker in metadata.brokers()] == [
        (1, "rack1", False), (2, "rack2", False), (3, "rack3", False),
    ]  # fmt: skip
    metadata.submit(topic_changes.CreateTopic("t", partitions=1))
    with pytest.raises(UnknownPartition):
        metadata.partition_state("t", 1)
    assert (metadata.node_id, metadata.database_id, metadata.controller_id) == (2, "c", 3)


def test_producer_ids_are_given_once(nodes):
    one, two = nodes
    taken = [*one.metadata.take_producer_ids(10), *two.metadata.take_producer_ids(10)]
    assert len(set(taken)) == 20


def test_producer_ids_of_two_clusters_and_of_a_directory_differ(nodes):
    first = nodes[0].metadata.take_producer_ids(1).start
    assert first == first_producer_id(nodes[0].metadata.database_id)
    others = [first_producer_id(str(uuid.uuid4())) for _ in range(1000)]
    assert len({first >> 20, *(one >> 20 for one in others)}) == 1001
    assert nodes[0].store.take_producer_ids(1).start < min(first, *others)


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


def test_no_thread_goes_on_with_the_former_document_while_the_next_is_taken(nodes):
    threads, seen, is_taken = [], [], []

    def take(_document):
        threads.append(threading.Thread(target=lambda: (following.refresh(), seen.append(bool(is_taken)))))
        threads[0].start()
        following._lock.until_awaited_by(threads[0])
        is_taken.append(True)

    following = nodes[0].metadata.security.follow(take)
    following._lock = WatchedLock(following._lock)
    following.refresh()
    threads[0].join()
    assert seen == [True]


def test_a_topic_waits_for_the_first_start_of_the_brokers(tmp_path, nodes, controller):
    controller.machine = Machine("c")
    controller.index = 0
    for node in nodes:
        node.take(controller.machine.state)
    made = []
    thread = threading.Thread(target=lambda: made.append(nodes[0].metadata.submit(topic_changes.CreateTopic("t"))))
    thread.start()
    for node in (1, 2, 3):
        controller.propose(RegisterBroker(node, f"i{node}", {}))
        controller.propose(UnfenceBroker(node, node))
    thread.join(10)
    assert len(made) == 1


# ---------------------------------------------------------------- replicas and leaders


HERE = TopicPartition("t", 0)


@pytest.fixture
def led_by_one(nodes, controller):
    """The metadata of node 2; the partition t-0 is on nodes 1 and 2, and led by 1."""
    metadata = nodes[1].metadata
    metadata.submit(topic_changes.CreateTopic("t", partitions=1, replication_factor=2))
    return metadata


def in_sync(controller, *members):
    """Let the leader of t-0 report its in-sync set."""
    state = controller.machine.state
    known, topic = state.partition("t", 0), state.topics["t"]
    replicas = tuple(Replica(node, state.brokers[node].epoch) for node in members)
    epoch = state.brokers[known.leader].epoch
    controller.propose(AlterInSync(known.leader, epoch, "t", topic.topic_id, 0, known.leader_epoch, known.partition_epoch, replicas))


def elect(controller):
    """Let the leader of t-0 hand over."""
    topic = controller.machine.state.topics["t"]
    controller.propose(ElectPreferred("t", topic.topic_id, 0, topic.partitions[0].leader_epoch))


def refused(answer):
    """What an answer says of its one partition."""
    ((where, error),) = answer.items()
    assert where == HERE
    return error


def test_a_partition_is_reassigned_and_the_reassignment_cancelled(led_by_one, controller):
    assert refused(led_by_one.submit(replicas.Reassign({HERE: (3, 1)}))) is None
    state = led_by_one.partition_state(*HERE)
    assert (state.replicas, state.target, state.adding, state.removing) == ((1, 2, 3), (3, 1), (3,), (2,))
    assert refused(led_by_one.submit(replicas.Reassign({HERE: None}))) is None
    assert led_by_one.partition_state(*HERE).replicas == (1, 2)
    assert isinstance(refused(led_by_one.submit(replicas.Reassign({HERE: None}))), NoReassignment)
    assert refused(led_by_one.submit(replicas.Reassign({HERE: (3, 1)}))) is None
    in_sync(controller, 1, 2, 3)
    assert led_by_one.partition_state(*HERE)[2:4] == ((3, 1), (3, 1))


def test_a_repeat_of_a_reassignment_is_not_proposed(led_by_one, controller):
    led_by_one.submit(replicas.Reassign({HERE: (3, 1)}))
    index = controller.index
    assert refused(led_by_one.submit(replicas.Reassign({HERE: (3, 1)}))) is None
    in_sync(controller, 1, 2, 3)
    assert refused(led_by_one.submit(replicas.Reassign({HERE: (3, 1)}))) is None
    assert controller.index == index + 1  # the in-sync set


def test_the_replicas_of_another_change_come_between(led_by_one, controller, monkeypatch):
    real, others = controller.propose, [Reassign("t", controller.machine.state.topics["t"].topic_id, 0, (1, 2, 3), (1, 2))]

    def propose(command, timeout_s=1.0):
        if others:
            real(others.pop())
        return real(command, timeout_s)

    monkeypatch.setattr(controller, "propose", propose)
    assert refused(led_by_one.submit(replicas.Reassign({HERE: (3,)}))) is None
    assert led_by_one.partition_state(*HERE).target == (3,)


@pytest.mark.parametrize(("nodes_of_it", "kind", "reason"), [
    ((), InvalidReassignment, "one is needed at least"),
    ((1, 9), InvalidReassignment, "node 9 has never registered"),
    ((1, -1), InvalidReassignment, "node -1 has never registered"),
    ((3, 3), InvalidReassignment, "each node has one replica at most"),
    ((1, 2, 3), ReplicaCountChanged, "they are 3 in place of 2"),
])  # fmt: skip
def test_replicas_that_cannot_be_are_refused(led_by_one, controller, nodes_of_it, kind, reason):
    before = controller.machine.state.topics
    error = refused(led_by_one.submit(replicas.Reassign({HERE: nodes_of_it}, may_change_count=False)))
    assert type(error) is kind
    assert reason in str(error)
    assert controller.machine.state.topics is before


def test_more_nodes_than_a_command_holds_are_refused(led_by_one):
    for many in (tuple(range(1, 100)), (2**31,), (10**30,), (0,)):
        assert isinstance(refused(led_by_one.submit(replicas.Reassign({HERE: many}))), InvalidReassignment)


def test_what_is_refused_of_one_partition_is_done_of_another(led_by_one):
    wanted = {TopicPartition("t", 1): (1,), TopicPartition("t", -1): (1,), TopicPartition("u", 0): (1,), HERE: (1,)}
    found = led_by_one.submit(replicas.Reassign(wanted))
    assert list(map(type, found.values())) == [UnknownPartition, UnknownPartition, UnknownTopic, type(None)]
    assert "there are" not in str(found[TopicPartition("u", 0)])  # the names of others are not told
    assert led_by_one.partition_state(*HERE).replicas == (1,)


def test_without_a_quorum_a_call_of_many_partitions_ends(nodes, controller, monkeypatch):
    metadata, tried = nodes[0].metadata, []
    metadata.submit(topic_changes.CreateTopic("t", partitions=50, replication_factor=1))

    def propose(command, timeout_s=1.0):
        tried.append(command)
        raise ControllerUnavailable(1, "no quorum")

    monkeypatch.setattr(controller, "propose", propose)
    with pytest.raises(MetadataTimeout):
        metadata.submit(replicas.Reassign({TopicPartition("t", number): (1, 2, 3) for number in range(50)}))
    assert len(tried) < 50


def test_the_controllers_and_the_state_that_tells_of_a_change_have_so_long_together(nodes, controller, monkeypatch):
    real, now_s, waited = controller.propose, 0.0, []

    def propose(command, timeout_s):
        nonlocal now_s
        now_s += 3.0
        return real(command, timeout_s)

    monkeypatch.setattr(metadata, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(controller, "propose", propose)
    monkeypatch.setattr(nodes[0].metadata, "wait", lambda _condition, timeout_s: waited.append(timeout_s) or True)
    nodes[0].metadata.propose(LimitReassignments(5), 4.0)
    assert waited == [1.0]


def test_the_preferred_leader_is_elected_once_it_can_lead(led_by_one, controller):
    assert isinstance(refused(led_by_one.submit(replicas.ElectLeaders((HERE,)))), ElectionNotNeeded)
    assert led_by_one.submit(replicas.ElectLeaders(None)) == {}
    controller.propose(FenceBroker(1, 1))
    index = controller.index
    assert isinstance(refused(led_by_one.submit(replicas.ElectLeaders((HERE,)))), PreferredLeaderNotAvailable)
    assert isinstance(refused(led_by_one.submit(replicas.ElectLeaders(None))), PreferredLeaderNotAvailable)
    assert controller.index == index
    controller.propose(UnfenceBroker(1, 1))
    in_sync(controller, 1, 2)
    hand_over = threading.Thread(target=lambda: led_by_one.wait(lambda state: is_electing(state, HERE), 60) and elect(controller))
    hand_over.start()
    assert refused(led_by_one.submit(replicas.ElectLeaders(None))) is None
    hand_over.join()
    assert led_by_one.partition_state(*HERE).leader == 1


def test_a_leader_that_does_not_hand_over_is_replaced(led_by_one, controller, monkeypatch):
    controller.propose(FenceBroker(1, 1))
    controller.propose(UnfenceBroker(1, 1))
    in_sync(controller, 1, 2)
    monkeypatch.setattr(elections, "HAND_OVER_S", 0.01)
    assert refused(led_by_one.submit(replicas.ElectLeaders((HERE,)))) is None
    assert led_by_one.partition_state(*HERE).leader == 1


def test_leaders_that_hang_are_waited_for_once_for_all_partitions(nodes, controller, monkeypatch):
    db = nodes[1].metadata
    db.submit(topic_changes.CreateTopic("t", partitions=48, replication_factor=2))
    led_by_first = [TopicPartition("t", number) for number in range(48) if db.partition_state("t", number).leader == 1]
    controller.propose(FenceBroker(1, 1))
    controller.propose(UnfenceBroker(1, 1))
    state = controller.machine.state
    for topic, number in led_by_first:
        known = state.partition(topic, number)
        pairs = tuple(Replica(node, state.brokers[node].epoch) for node in known.replicas)
        epoch, topic_id = state.brokers[known.leader].epoch, state.topics[topic].topic_id
        controller.propose(AlterInSync(known.leader, epoch, topic, topic_id, number, known.leader_epoch, known.partition_epoch, pairs))
    monkeypatch.setattr(elections, "HAND_OVER_S", 1.0)
    began = time.monotonic()
    assert set(db.submit(replicas.ElectLeaders(tuple(led_by_first))).values()) == {None}
    assert time.monotonic() - began < 1.8
    assert {db.partition_state(*where).leader for where in led_by_first} == {1}


def test_of_a_partition_without_a_leader_a_replica_is_elected_that_is_alive(led_by_one, controller):
    assert isinstance(refused(led_by_one.submit(replicas.ElectLeaders((HERE,), unclean=True))), ElectionNotNeeded)
    in_sync(controller, 1)
    for node in (1, 2):
        controller.propose(FenceBroker(node, node))
    assert isinstance(refused(led_by_one.submit(replicas.ElectLeaders((HERE,), unclean=True))), EligibleLeadersNotAvailable)
    controller.propose(UnfenceBroker(2, 2))
    assert isinstance(refused(led_by_one.submit(replicas.ElectLeaders((HERE,)))), PreferredLeaderNotAvailable)
    assert refused(led_by_one.submit(replicas.ElectLeaders(None, unclean=True))) is None
    assert led_by_one.partition_state(*HERE)[:1] + led_by_one.partition_state(*HERE)[3:4] == (2, (2,))


def test_the_rate_of_reassignments_is_the_cluster_s(nodes):
    one, two = nodes
    assert two.metadata.reassignment_bytes_per_s is None
    one.metadata.limit_reassignments(1_000)
    assert two.metadata.reassignment_bytes_per_s == 1_000
    two.metadata.limit_reassignments(None)
    assert one.metadata.reassignment_bytes_per_s is None


def test_what_another_node_leads_is_seen_before_the_state_is_published(nodes, controller):
    """To publish it, the node waits for its disk; clients that ask meanwhile find the leader."""
    one, two = nodes
    one.metadata.submit(topic_changes.CreateTopic("t", replication_factor=2))
    before = controller.machine.state
    of_one = before.partition("t", 0).leader == 1
    behind, other = (one, 2) if of_one else (two, 1)
    now = before.partition("t", 0)._replace(leader=other, leader_epoch=9)
    topic = msgspec.structs.replace(before.topics["t"], partitions=(now, *before.topics["t"].partitions[1:]))
    later = msgspec.structs.replace(before, index=before.index + 2, topics={**before.topics, "t": topic, "new": topic})
    behind.metadata.foresee(later)
    assert behind.metadata.partition_state("t", 0) == now
    assert "new" not in behind.metadata.topic_names()
    assert behind.metadata.state is before
    between = msgspec.structs.replace(before, index=before.index + 1, topics=dict(before.topics))
    behind.metadata.publish(between)
    assert behind.metadata.partition_state("t", 0) == now
    behind.metadata.publish(later)
    assert behind.metadata.state is later
