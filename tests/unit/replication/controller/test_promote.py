"""A directory's topics become a cluster's, once."""

import pytest

from logdb.errors import StaleBrokerEpoch
from logdb_replication.controller import commands
from logdb_replication.controller.commands import (
    ChangeSecurity,
    CreateTopic,
    DeleteTopic,
    ImportedTopic,
    Promote,
    RegisterBroker,
    UnfenceBroker,
)
from logdb_replication.controller.errors import ClusterNotEmpty
from logdb_replication.controller.machine import Machine

ID = "0123456789abcdefABCDEF"


def apply(machine, command):
    return commands.decode_answer(machine.apply(machine.state.index + 1, commands.encode(command)))


def registered(node=1, count=3):
    machine = Machine("c")
    for number in range(1, count + 1):
        apply(machine, RegisterBroker(number, f"i{number}", {}))
    return machine


def promote(node=1, epoch=1, count=3, directory="d", security=b"users", **changed):
    topics = (ImportedTopic("t", ID, {"retention.ms": 5}, (7, 0, 3)),)
    return Promote(node, epoch, directory, topics, tuple(range(1, count + 1)), min(3, count), 5_000, security)


def test_topics_users_and_producer_ids():
    machine = registered()
    apply(machine, promote())
    topic = machine.state.topics["t"]
    assert (topic.topic_id, topic.config) == (ID, {"retention.ms": 5})
    assert [(one.leader, one.leader_epoch, one.in_sync) for one in topic.partitions] == [(None, 7, (1,)), (None, 0, (1,)), (None, 3, (1,))]
    assert [one.replicas[0] for one in topic.partitions] == [1, 2, 3], "preferred leaders are spread"
    assert all(set(one.replicas) == {1, 2, 3} for one in topic.partitions)
    assert (machine.state.security, machine.state.next_producer_id) == (b"users", 5_000)
    apply(machine, UnfenceBroker(2, 2))
    assert all(one.leader is None for one in machine.state.topics["t"].partitions), "only the directory's node has the records"
    apply(machine, UnfenceBroker(1, 1))
    assert [(one.leader, one.leader_epoch) for one in machine.state.topics["t"].partitions] == [(1, 8), (1, 1), (1, 4)]


def test_a_repeat_changes_nothing():
    machine = registered()
    apply(machine, promote())
    apply(machine, DeleteTopic("t", ID))
    apply(machine, promote())
    assert not machine.state.topics
    restored = Machine("c")
    restored.restore(machine.state.index, machine.snapshot())
    assert restored.state == machine.state


def test_what_is_refused():
    machine = registered()
    with pytest.raises(StaleBrokerEpoch):
        apply(machine, promote(epoch=2))
    apply(machine, promote())
    with pytest.raises(ClusterNotEmpty, match=r"has topics already.*logdb cluster leave DATA --yes"):
        apply(machine, promote(directory="other"))
    apply(machine, DeleteTopic("t", ID))
    with pytest.raises(ClusterNotEmpty, match="the data of another directory"):
        apply(machine, promote(directory="other"))
    machine = registered()
    apply(machine, UnfenceBroker(1, 1))
    apply(machine, CreateTopic("own", ID, {}, 1, 1))
    with pytest.raises(ClusterNotEmpty, match="has topics already"):
        apply(machine, promote())
    machine = registered()
    apply(machine, ChangeSecurity(0, b"theirs"))
    with pytest.raises(ClusterNotEmpty, match="has users already"):
        apply(machine, promote())


@pytest.mark.parametrize("count", [1, 5])
def test_other_numbers_of_nodes(count):
    machine = registered(count=count)
    apply(machine, promote(count=count))
    for one in machine.state.topics["t"].partitions:
        assert len(one.replicas) == min(3, count) and 1 in one.replicas
