"""Each command: what it changes, what it is answered, and what it is refused for."""

import msgspec
import pytest

from logdb.errors import (
    FencedLeaderEpoch,
    InvalidPartitions,
    InvalidReassignment,
    InvalidReplicationFactor,
    InvalidTopic,
    StaleBrokerEpoch,
    TopicExists,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)
from logdb.requests.nodes import PartitionState
from logdb_replication.controller.commands import (
    AddPartitions,
    AlterTopic,
    ChangeSecurity,
    DeleteTopic,
    DrainBroker,
    ElectPreferred,
    ElectUnclean,
    FenceBroker,
    LimitReassignments,
    PartitionIs,
    PreferLeaders,
    ProducerIds,
    Reassign,
    Replica,
    ResignLeader,
    SecurityIs,
    TakeProducerIds,
    UnfenceBroker,
)
from logdb_replication.controller.errors import (
    IneligibleReplica,
    PartitionChanged,
    StateChanged,
    UnknownBroker,
    UnknownCommand,
)
from logdb_replication.controller.machine import Machine
from support.controllers import CLUSTER, Controllers


def three() -> Controllers:
    """Three brokers, one partition, led by 1."""
    made = Controllers(brokers=3)
    made.create()
    return made


# ---------------------------------------------------------------- brokers


def test_a_broker_is_fenced_until_it_is_unfenced_and_its_epoch_grows_with_each_incarnation():
    made = Controllers()
    assert made.register(1) == 1
    assert made.state.brokers[1].fenced
    made.unfence(1)
    assert not made.state.brokers[1].fenced
    assert made.register(1) == 1  # the same incarnation
    assert not made.state.brokers[1].fenced
    assert made.register(2) == 2
    assert made.register(1, "b") == 3
    assert made.state.brokers[1].fenced


def test_a_new_incarnation_leads_nothing_and_leaves_the_in_sync_sets():
    made = three()
    made.register(1, "b")
    assert made.state.partition("t", 0) == PartitionState(2, 1, (1, 2, 3), (2, 3), 1)


@pytest.mark.parametrize(("unclean", "in_sync"), [(False, (1,)), (True, ())])
def test_the_last_member_stays_unless_it_comes_back_unclean(unclean, in_sync):
    made = three()
    for node in (2, 3):
        made.apply(FenceBroker(node, made.epochs[node]))
    assert made.state.partition("t", 0).in_sync == (1,)
    made.register(1, "b", unclean=unclean)
    assert made.state.partition("t", 0)[0:4:3] == (None, in_sync)
    for node in (1, 2, 3):
        made.unfence(node)
    assert made.state.partition("t", 0)[0:4:3] == ((1, (1,)) if in_sync else (None, ()))  # unclean election is off


def test_another_directory_is_unclean_whatever_it_says():
    made = Controllers()
    made.register(1, directory_id="i")
    made.register(2)
    for node in (1, 2):
        made.unfence(node)
    made.create(factor=2)
    made.apply(FenceBroker(2, made.epochs[2]))
    made.register(1, "b", directory_id="i")
    assert made.state.partition("t", 0).in_sync == (1,)
    made.register(1, "c", directory_id="j")
    made.unfence(1)
    assert made.state.partition("t", 0)[0:4:3] == (None, ())


def test_an_older_copy_of_a_directory_is_unclean():
    made = Controllers()
    for node in (1, 2):
        made.register(node)
        made.unfence(node)
    made.create(factor=2)
    first = made.state.brokers[1].incarnation
    made.register(1, "b", former=(first,))
    made.unfence(1)
    assert made.state.partition("t", 0).in_sync in ((1, 2), (2,))
    made.apply(FenceBroker(2, made.epochs[2]))
    made.register(1, "c", former=("x", "b", first))
    made.unfence(1)
    before = made.state.partition("t", 0)
    made.register(1, "d", former=("c",))
    assert made.state.partition("t", 0).in_sync == before.in_sync
    made.register(1, "e", former=("b", first))  # as before "c" came
    assert made.state.partition("t", 0).in_sync == tuple(node for node in before.in_sync if node != 1)


def test_the_only_replica_leads_again_after_an_unclean_stop():
    made = Controllers(brokers=3)
    made.create(factor=1)
    made.register(1, "b", unclean=True)
    assert made.state.partition("t", 0).leader is None
    made.unfence(1)
    assert made.state.partition("t", 0) == PartitionState(1, 2, (1,), (1,), 2)


def test_a_fenced_leader_is_followed_by_the_next_replica_in_sync():
    made = three()
    made.apply(made.in_sync(1, 3))
    made.apply(FenceBroker(1, made.epochs[1]))
    assert made.state.partition("t", 0) == PartitionState(3, 1, (1, 2, 3), (3,), 2)
    made.apply(FenceBroker(3, made.epochs[3]))
    assert made.state.partition("t", 0) == PartitionState(None, 2, (1, 2, 3), (3,), 3)
    made.unfence(1)  # it is not in sync
    assert made.state.partition("t", 0).leader is None
    made.unfence(3)
    assert made.state.partition("t", 0) == PartitionState(3, 3, (1, 2, 3), (3,), 4)


def test_a_broker_that_drains_hands_over_where_another_can_lead():
    made = three()
    made.create("alone", factor=1, partitions=3)
    made.apply(DrainBroker(1, True))
    assert made.state.partition("t", 0) == PartitionState(2, 1, (1, 2, 3), (1, 2, 3), 1)
    leaders = [partition.leader for partition in made.state.topics["alone"].partitions]
    assert sorted(leaders) == [1, 2, 3]  # it is the only replica of one
    made.apply(DrainBroker(2, True))
    made.apply(DrainBroker(3, True))
    assert made.state.partition("t", 0).leader == 3  # all drain
    made.apply(FenceBroker(3, made.epochs[3]))
    assert made.state.partition("t", 0).leader == 1
    made.apply(DrainBroker(1, False))
    assert not made.state.brokers[1].draining
    made.register(2, "b")
    assert not made.state.brokers[2].draining


def test_commands_of_an_earlier_registration_and_of_no_broker_are_refused():
    made = three()
    made.register(1, "b")
    for command in (FenceBroker(1, 1), UnfenceBroker(1, 1), made.in_sync(2, node_id=1, broker_epoch=1)):
        with pytest.raises(StaleBrokerEpoch):
            made.apply(command)
    for command in (FenceBroker(9, 1), UnfenceBroker(9, 1), DrainBroker(9, True), made.in_sync(2, node_id=9)):
        with pytest.raises(UnknownBroker, match="node 9"):
            made.apply(command)


# ---------------------------------------------------------------- topics


def test_a_topic_is_created_once():
    made = Controllers(brokers=3)
    topic = made.create(config={"retention.ms": 1}, partitions=2)
    assert topic is not None
    assert made.create(config={"retention.ms": 1}, partitions=2) == topic  # the same id: a repeat
    assert made.create(topic_id="other", if_not_exists=True) == topic
    with pytest.raises(TopicExists):
        made.create(topic_id="other")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "a/b"}, InvalidTopic),
        ({"partitions": 0}, InvalidPartitions),
        ({"partitions": -1}, InvalidPartitions),
        ({"partitions": 100_001}, InvalidPartitions),
        ({"partitions": 10_001}, InvalidPartitions),
        ({"factor": 0}, InvalidReplicationFactor),
        ({"factor": 4}, InvalidReplicationFactor),
    ],
)
def test_a_topic_that_cannot_be_is_refused(arguments, error):
    made = Controllers(brokers=3)
    with pytest.raises(error):
        made.create(**arguments)
    assert not made.state.topics


def test_the_cluster_has_so_many_partitions(monkeypatch):
    monkeypatch.setattr("logdb_replication.controller.machine.PARTITION_COUNT_MAX", 5)
    made = Controllers(brokers=1)
    made.create(partitions=3, factor=1)
    with pytest.raises(InvalidPartitions, match="the cluster has 3"):
        made.create("u", partitions=3, factor=1)
    with pytest.raises(InvalidPartitions, match="must be 3 to 5"):
        made.apply(AddPartitions("t", "id-of-t", 3, 6))


def test_configs_are_replaced_if_they_are_what_was_expected():
    made = three()
    made.apply(AlterTopic("t", "id-of-t", {}, {"retention.ms": 1}))
    made.apply(AlterTopic("t", "id-of-t", {}, {"retention.ms": 1}))  # a repeat
    with pytest.raises(StateChanged, match="config of topic 't'"):
        made.apply(AlterTopic("t", "id-of-t", {}, {"retention.ms": 2}))
    assert made.state.topics["t"].config == {"retention.ms": 1}
    with pytest.raises(UnknownTopic):
        made.apply(AlterTopic("t", "id-of-another", {"retention.ms": 1}, {}))


def test_partitions_are_added_once():
    made = three()
    before = made.state.topics["t"].partitions
    for _ in range(2):
        made.apply(AddPartitions("t", "id-of-t", 1, 4))
        assert len(made.state.topics["t"].partitions) == 4
    assert made.state.topics["t"].partitions[:1] == before
    assert [partition.leader for partition in made.state.topics["t"].partitions].count(1) == 2
    with pytest.raises(StateChanged):
        made.apply(AddPartitions("t", "id-of-t", 1, 5))
    with pytest.raises(InvalidPartitions, match="can only grow"):
        made.apply(AddPartitions("t", "id-of-t", 4, 3))


def test_a_topic_is_deleted_by_its_id():
    made = three()
    made.apply(DeleteTopic("t", "id-of-another"))
    assert "t" in made.state.topics
    for _ in range(2):
        made.apply(DeleteTopic("t", "id-of-t"))
        assert not made.state.topics


# ---------------------------------------------------------------- partitions


def test_a_leader_changes_its_in_sync_set():
    made = three()
    command = made.in_sync(3, 1)
    answer = made.apply(command)
    assert isinstance(answer, PartitionIs)
    assert answer.state == PartitionState(1, 0, (1, 2, 3), (1, 3), 1)
    assert made.apply(command).state == answer.state  # a repeat


def test_the_same_set_on_the_same_partition_epoch_ends_what_was_proposed_on_it():
    made = three()
    command = made.in_sync(1, 2, 3)
    answer = made.apply(command)
    assert answer.state == PartitionState(1, 0, (1, 2, 3), (1, 2, 3), 1)
    assert made.apply(command).state == answer.state  # a repeat
    with pytest.raises(PartitionChanged):
        made.apply(made.in_sync(1, 2, partition_epoch=0))


@pytest.mark.parametrize(
    ("nodes", "changes", "error"),
    [
        ((1, 2), {"topic_id": "another"}, UnknownTopic),
        ((1, 2), {"topic": "u"}, UnknownTopic),
        ((1, 2), {"partition": 1}, UnknownPartition),
        ((1, 2), {"node_id": 2, "broker_epoch": 2}, FencedLeaderEpoch),
        ((1, 2), {"leader_epoch": 0}, FencedLeaderEpoch),
        ((1, 2), {"leader_epoch": 3}, UnknownLeaderEpoch),
        ((1, 2), {"partition_epoch": 7}, PartitionChanged),
        ((2, 3), {}, IneligibleReplica),
        ((), {}, IneligibleReplica),
        ((1, 4), {}, IneligibleReplica),
        ((1, 5), {}, IneligibleReplica),
        ((1,), {"in_sync": (Replica(1, 1), Replica(2, 1))}, StaleBrokerEpoch),
    ],
)
def test_what_an_in_sync_set_is_refused_for(nodes, changes, error):
    made = Controllers(brokers=4)
    made.create()
    made.apply(ResignLeader("t", 0, 0))
    made.apply(ResignLeader("t", 0, 1))
    assert made.state.partition("t", 0) == PartitionState(1, 2, (1, 2, 3), (1, 2, 3), 2)
    before = made.state
    with pytest.raises(error):
        made.apply(made.in_sync(*nodes, **{"partition_epoch": 2, **changes}))
    assert msgspec.structs.replace(made.state, index=before.index) == before


def test_a_fenced_replica_does_not_come_back_into_the_set():
    made = three()
    made.apply(FenceBroker(2, made.epochs[2]))
    with pytest.raises(IneligibleReplica, match="fenced"):
        made.apply(made.in_sync(1, 2, 3))
    made.unfence(2)
    made.apply(made.in_sync(1, 2, 3))
    old = made.in_sync(1, 2, 3)
    made.register(2, "b")
    made.unfence(2)
    with pytest.raises(StaleBrokerEpoch):  # the leader heard the incarnation before
        made.apply(msgspec.structs.replace(old, partition_epoch=made.state.partition("t", 0).partition_epoch))


def test_a_compare_and_set_that_fails_tells_the_partition():
    made = three()
    stale = made.in_sync(1, 2)
    made.apply(made.in_sync(1, 3))
    with pytest.raises(PartitionChanged) as caught:
        made.apply(stale)
    assert caught.value.state == made.state.partition("t", 0)


def test_a_leader_resigns_to_another_in_sync():
    made = three()
    made.apply(ResignLeader("t", 0, 0))
    assert made.state.partition("t", 0) == PartitionState(2, 1, (1, 2, 3), (1, 2, 3), 1)
    made.apply(ResignLeader("t", 0, 0))  # a repeat
    assert made.state.partition("t", 0).leader == 2
    made.apply(made.in_sync(2))
    made.apply(ResignLeader("t", 0, 1))  # there is no other
    assert made.state.partition("t", 0) == PartitionState(2, 1, (1, 2, 3), (2,), 2)
    for topic, partition, error in (("u", 0, UnknownTopic), ("t", 1, UnknownPartition)):
        with pytest.raises(error):
            made.apply(ResignLeader(topic, partition, 0))


def test_an_operator_chooses_a_leader_where_no_replica_in_sync_can_lead():
    made = three()
    made.apply(made.in_sync(1))
    made.apply(ElectUnclean("t", "id-of-t", 0, 0, 2))  # it has a leader
    assert made.state.partition("t", 0).leader == 1
    made.apply(FenceBroker(1, made.epochs[1]))
    for node in (1, 9):
        with pytest.raises(IneligibleReplica):
            made.apply(ElectUnclean("t", "id-of-t", 0, 1, node))
    made.apply(ElectUnclean("t", "id-of-t", 0, 0, 2))  # of another epoch
    assert made.state.partition("t", 0).leader is None
    for _ in range(2):
        made.apply(ElectUnclean("t", "id-of-t", 0, 1, 2))
        assert made.state.partition("t", 0) == PartitionState(2, 2, (1, 2, 3), (2,), 3)


def test_first_replicas_lead_again_where_they_can():
    made = three()
    made.create("u", partitions=3, factor=3)
    made.apply(PreferLeaders())
    even = made.state.topics
    assert {partition.leader_epoch for partition in even["u"].partitions} == {0}
    made.apply(FenceBroker(1, made.epochs[1]))
    made.unfence(1)
    made.apply(PreferLeaders())  # it is not in sync yet
    assert made.state.partition("t", 0).leader == 2
    made.apply(made.in_sync(1, 2, 3))
    made.apply(DrainBroker(1, True))
    made.apply(PreferLeaders())
    assert made.state.partition("t", 0).leader == 2
    made.apply(DrainBroker(1, False))
    made.apply(PreferLeaders())
    assert made.state.partition("t", 0)[:2] == (1, 2)


def test_a_leader_is_asked_to_hand_over_to_the_first_replica():
    made, ask = three(), ElectPreferred("t", "id-of-t", 0, 1, in_order=True)
    made.apply(FenceBroker(1, made.epochs[1]))
    made.unfence(1)
    assert not made.apply(ask).state.electing  # it is not in sync yet
    asked = made.apply(made.in_sync(1, 2, 3)).state._replace(electing=True, partition_epoch=3)
    for command in (ask, ask, PreferLeaders(in_order=True)):
        made.apply(command)
        assert made.state.partition("t", 0) == asked
    made.apply(made.in_sync(2, 3))
    assert made.state.partition("t", 0).electing
    assert made.apply(ElectPreferred("t", "id-of-t", 0, 1)).state[:2] == (2, 1)
    assert not made.state.partition("t", 0).electing
    made.apply(made.in_sync(1, 2, 3))
    made.apply(ask)
    assert made.apply(ElectPreferred("t", "id-of-t", 0, 1)).state[:2] == (1, 2)
    assert not made.state.partition("t", 0).electing


def test_a_broker_that_drains_in_order_leads_until_it_has_handed_over():
    made = three()
    made.apply(DrainBroker(1, True, in_order=True))
    assert made.state.brokers[1].draining
    assert made.state.partition("t", 0).leader == 1
    made.apply(DrainBroker(1, True))
    assert made.state.partition("t", 0).leader == 2


def test_the_first_replica_of_one_partition_leads_again():
    made = three()
    made.create("u")
    made.apply(FenceBroker(1, made.epochs[1]))
    made.unfence(1)
    before = made.state.partition("t", 0)
    assert made.apply(ElectPreferred("t", "id-of-t", 0, 1)).state == before  # it is not in sync yet
    made.apply(made.in_sync(1, 2, 3))
    assert made.apply(ElectPreferred("t", "id-of-t", 0, 0)).state.leader == 2  # of another epoch
    for _ in range(2):
        assert made.apply(ElectPreferred("t", "id-of-t", 0, 1)).state[:2] == (1, 2)
    assert made.state.partition("u", 0).leader == 2
    for topic, partition, error in (("v", 0, UnknownTopic), ("t", 1, UnknownPartition)):
        with pytest.raises(error):
            made.apply(ElectPreferred(topic, f"id-of-{topic}", partition, 2))


# ---------------------------------------------------------------- the rest


def test_producer_ids_are_given_once():
    made = Controllers()
    found = [made.apply(TakeProducerIds(count)) for count in (10, 1000, 1)]
    assert found == [ProducerIds(1, 0, 10), ProducerIds(2, 10, 1000), ProducerIds(3, 1010, 1)]
    assert [made.apply(TakeProducerIds(5, least)).first for least in (1 << 40, 1 << 40, 7)] == [1 << 40, (1 << 40) + 5, (1 << 40) + 10]


def test_security_is_changed_by_its_version():
    made = Controllers()
    assert made.apply(ChangeSecurity(0, b"a")) == SecurityIs(1, 1)
    assert made.apply(ChangeSecurity(0, b"a")) == SecurityIs(2, 1)  # a repeat
    with pytest.raises(StateChanged, match="users, tokens and ACLs"):
        made.apply(ChangeSecurity(0, b"b"))
    assert made.state.security == b"a"


def test_what_is_no_command_changes_nothing():
    made = three()
    before = made.state
    with pytest.raises(UnknownCommand):
        made.machine.apply(before.index + 1, b"\xc1")
    assert made.state is before


def test_a_snapshot_of_another_cluster_or_of_nothing_is_refused():
    made = three()
    with pytest.raises(ValueError, match="must be of other"):
        Machine("other").restore(99, made.machine.snapshot())
    with pytest.raises(ValueError, match="no state"):
        Machine(CLUSTER).restore(99, b"\xff")


def test_what_has_not_changed_is_the_same_object():
    made = Controllers(brokers=3)
    made.create("t")
    made.create("u", factor=1)
    topics = made.state.topics
    made.apply(made.in_sync(1, 2))
    assert made.state.topics["u"] is topics["u"]
    other = {1, 2, 3} - {1, made.state.partition("u", 0).leader}
    made.apply(FenceBroker(other.pop(), 99) if not other else FenceBroker(1, made.epochs[1]))
    assert made.state.topics["u"] is topics["u"]


# ---------------------------------------------------------------- reassignment


def reassign(made, *target, known=None):
    state = made.state.partition("t", 0)
    return made.apply(Reassign("t", made.state.topics["t"].topic_id, 0, target, state.replicas if known is None else known)).state


def reassignable(brokers=5, factor=3, **config):
    made = Controllers(brokers=brokers)
    made.create(factor=factor, config={"min.insync.replicas": 2} | config)
    return made


def test_replicas_go_once_all_new_ones_are_in_sync():
    made = reassignable()
    assert made.state.partition("t", 0).replicas == (1, 2, 3)
    state = reassign(made, 3, 4, 5)
    assert state == PartitionState(1, 0, (1, 2, 3, 4, 5), (1, 2, 3), 1, (3, 4, 5), (4, 5))
    assert (state.original, state.removing) == ((1, 2, 3), (1, 2))
    state = made.apply(made.in_sync(1, 2, 3, 4)).state
    assert (state.replicas, state.in_sync, state.leader_epoch) == ((1, 2, 3, 4, 5), (1, 2, 3, 4), 0)
    state = made.apply(made.in_sync(1, 2, 3, 4, 5)).state
    assert state == PartitionState(3, 1, (3, 4, 5), (3, 4, 5), 3)  # the leader that goes has handed over


def test_a_leader_that_stays_begins_a_new_epoch_where_replicas_go():
    made = reassignable()
    reassign(made, 1, 4)
    assert made.apply(made.in_sync(1, 2, 3, 4)).state == PartitionState(1, 1, (1, 4), (1, 4), 2)


def test_more_replicas_of_one():
    made = reassignable(factor=1)
    reassign(made, 1, 2, 3)
    made.apply(made.in_sync(1, 2))
    assert made.apply(made.in_sync(1, 2, 3)).state == PartitionState(1, 0, (1, 2, 3), (1, 2, 3), 3)


def test_another_order_and_fewer_replicas_are_there_at_once():
    made = reassignable(**{"min.insync.replicas": 1})
    assert reassign(made, 2, 1, 3) == PartitionState(1, 0, (2, 1, 3), (2, 1, 3), 1)
    assert reassign(made, 1, 3) == PartitionState(1, 1, (1, 3), (1, 3), 2)


def test_a_leader_that_goes_leads_until_it_has_handed_over():
    made = reassignable(**{"min.insync.replicas": 1})
    assert reassign(made, 3) == PartitionState(1, 0, (1, 2, 3), (1, 2, 3), 1, (3,))
    made.apply(FenceBroker(3, made.epochs[3]))
    made.unfence(3)
    assert made.state.partition("t", 0)[:2] == (1, 0)
    made.apply(made.in_sync(1, 2, 3))
    assert made.state.partition("t", 0)[:3] == (3, 1, (3,))
    dead = reassignable(**{"min.insync.replicas": 1})
    reassign(dead, 3)
    dead.apply(FenceBroker(1, dead.epochs[1]))
    assert dead.state.partition("t", 0)[:2] == (2, 1)
    assert dead.apply(dead.in_sync(2, 3)).state[:3] == (3, 2, (3,))


def test_a_reassignment_is_cancelled_and_replaced():
    made = reassignable()
    reassign(made, 4, 5, 1)
    made.apply(made.in_sync(1, 2, 3, 4))
    state = reassign(made, 5, 2)
    assert state == PartitionState(1, 1, (1, 2, 3, 5), (1, 2, 3), 3, (5, 2), (5,))
    assert reassign(made) == PartitionState(1, 2, (1, 2, 3), (1, 2, 3), 4)
    assert reassign(made) == PartitionState(1, 2, (1, 2, 3), (1, 2, 3), 4)


def test_what_was_decided_upon_other_replicas_is_refused():
    made = reassignable()
    reassign(made, 4, 5, 1)
    with pytest.raises(PartitionChanged):
        reassign(made, 2, 3, 4, known=(1, 2, 3))


@pytest.mark.parametrize(("target", "reason"), [
    ((2, 3, 9), "node 9 has never registered"),
    ((2, 3, 2**31 - 1), "node 2147483647 has never registered"),
    ((2, 2), "each node has one replica at most"),
    ((4,), "min.insync.replicas is 2, so no record would be acknowledged by all; lower it first"),
])  # fmt: skip
def test_replicas_that_cannot_be_are_refused(target, reason):
    made = reassignable()
    before = made.state.topics
    with pytest.raises(InvalidReassignment) as refused:
        reassign(made, *target)
    assert (refused.value.replicas, refused.value.reason) == (target, reason)
    assert made.state.topics is before


def test_as_few_replicas_as_before_are_allowed_where_acknowledgements_need_more():
    made = reassignable(factor=1)
    assert reassign(made, 4).target == (4,)
    assert reassign(made).replicas == (1,)


def test_a_cancel_that_would_lose_records_is_refused():
    made = reassignable()
    reassign(made, 4, 5)
    made.apply(made.in_sync(1, 2, 3, 4))
    for node in (2, 3):
        made.apply(FenceBroker(node, made.epochs[node]))
    assert made.state.partition("t", 0).in_sync == (1, 4)
    with pytest.raises(InvalidReassignment, match="1 of them are in sync, 2 are needed"):
        reassign(made)


def test_a_target_that_is_fenced_is_waited_for():
    made = reassignable()
    reassign(made, 2, 3)
    made = reassignable(factor=2)
    made.apply(FenceBroker(2, made.epochs[2]))
    assert made.state.partition("t", 0).in_sync == (1, 2)  # with fewer nothing is committed
    assert reassign(made, 2, 1).target == (2, 1)
    made.unfence(2)
    assert made.state.partition("t", 0) == PartitionState(1, 0, (2, 1), (2, 1), 2)


def test_partitions_that_are_added_have_as_many_replicas_as_the_target():
    made = reassignable(factor=1)
    reassign(made, 2, 3, 4)
    made.apply(AddPartitions("t", made.state.topics["t"].topic_id, 1, 2))
    assert len(made.state.partition("t", 1).replicas) == 3


def test_reassignments_are_limited():
    made = reassignable()
    made.apply(LimitReassignments(1_000))
    assert made.state.reassignment_bytes_per_s == 1_000
    made.apply(LimitReassignments(None))
    assert made.state.reassignment_bytes_per_s is None
