"""Any commands in any order: what holds of the state after each of them."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from logdb.errors import FencedLeaderEpoch, LogdbError
from logdb_replication.controller import commands
from logdb_replication.controller.commands import (
    AddPartitions,
    AlterInSync,
    AlterTopic,
    ChangeSecurity,
    CreateTopic,
    DeleteTopic,
    DrainBroker,
    ElectPreferred,
    ElectUnclean,
    FenceBroker,
    LimitReassignments,
    PreferLeaders,
    Reassign,
    RegisterBroker,
    Replica,
    ResignLeader,
    TakeProducerIds,
    UnfenceBroker,
)
from logdb_replication.controller.machine import Machine
from support.controllers import CLUSTER

SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
nodes, epochs, small = st.integers(1, 4), st.integers(1, 12), st.integers(0, 3)
names, ids = st.sampled_from("tu"), st.sampled_from("ij")
configs = st.dictionaries(st.sampled_from("ab"), st.integers(0, 1), max_size=2)
assignments = st.lists(st.lists(nodes, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple)

COMMANDS = st.one_of(
    st.builds(
        RegisterBroker, nodes, st.sampled_from("xyz"), st.just({}), st.sampled_from(["", "r", "s"]), st.booleans(), st.sampled_from("dde")
    ),
    st.builds(UnfenceBroker, nodes, epochs),
    st.builds(UnfenceBroker, nodes, epochs),
    st.builds(FenceBroker, nodes, epochs),
    st.builds(DrainBroker, nodes, st.booleans(), st.booleans()),
    st.builds(CreateTopic, names, ids, configs, st.integers(0, 3), st.integers(1, 3), st.booleans()),
    st.builds(AlterTopic, names, ids, configs, configs),
    st.builds(AddPartitions, names, ids, small, st.integers(0, 5)),
    assignments.map(lambda named: CreateTopic("t", "i", {}, len(named), len(named[0]), False, named)),
    st.builds(lambda known, named: AddPartitions("t", "i", known, known + len(named), named), small, assignments),
    st.builds(DeleteTopic, names, ids),
    st.builds(
        AlterInSync, nodes, epochs, names, ids, small, small, small, st.lists(st.builds(Replica, nodes, epochs), max_size=4).map(tuple)
    ),
    st.builds(ResignLeader, names, small, small),
    st.builds(ElectPreferred, names, ids, small, small, st.booleans()),
    st.builds(PreferLeaders, st.booleans()),
    st.builds(LimitReassignments, st.none() | st.integers(1, 9)),
    st.builds(TakeProducerIds, st.integers(1, 9)),
    st.builds(ChangeSecurity, small, st.sampled_from([None, b"a", b"b"])),
)
WISHES = st.one_of(
    COMMANDS,
    st.tuples(st.just("in sync"), names, small, st.sets(nodes)),
    st.tuples(st.just("reassign"), names, small, st.lists(nodes, max_size=3).map(tuple)),
    st.tuples(st.just("current"), nodes, st.booleans()),
)


def aimed(machine: Machine, wish):
    """A wish as a command that fits the state, so that more than refusals happens."""
    if not isinstance(wish, tuple):
        return wish
    brokers = machine.state.brokers
    if wish[0] == "current":
        kind = UnfenceBroker if wish[2] else FenceBroker
        return kind(wish[1], brokers[wish[1]].epoch if wish[1] in brokers else 1)
    _, name, number, members = wish
    known = machine.state.partition(name, number)
    if known is None:
        return ResignLeader(name, number, 0)
    if wish[0] == "reassign":
        return Reassign(name, machine.state.topics[name].topic_id, number, members, known.replicas)
    if known.leader is None:
        return ElectUnclean(name, machine.state.topics[name].topic_id, number, known.leader_epoch, min(members, default=1))
    in_sync = tuple(Replica(node, brokers[node].epoch) for node in sorted(members | {known.leader}) if node in brokers)
    topic_id = machine.state.topics[name].topic_id
    return AlterInSync(
        known.leader, brokers[known.leader].epoch, name, topic_id, number, known.leader_epoch, known.partition_epoch, in_sync
    )


def check(state) -> None:
    for topic in state.topics.values():
        for partition in topic.partitions:
            in_sync = set(partition.in_sync)
            assert in_sync <= set(partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas)
            assert partition.leader is None or partition.leader in in_sync
            assert partition.leader is None or not state.brokers[partition.leader].fenced
            assert len(in_sync) <= 1 or not any(state.brokers[node].fenced for node in in_sync)
            assert partition.leader is not None or all(state.brokers[node].fenced for node in in_sync)
            check_reassignment(partition)


def check_reassignment(partition) -> None:
    """While it is reassigned, each replica is one of before or of the target; afterwards nothing is left of it."""
    if partition.target:
        assert set(partition.replicas) == {*partition.original, *partition.target}
        assert set(partition.adding) == set(partition.target) - set(partition.original)
        assert set(partition.removing) == set(partition.original) - set(partition.target)
        assert partition.original
    else:
        assert not partition.adding
        assert not partition.removing


def check_step(before, after, command) -> None:
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            continue
        for old, new in zip(known.partitions, topic.partitions, strict=False):
            assert new.leader in {old.leader, None, *old.in_sync} or isinstance(command, ElectUnclean)
            gone = set(old.replicas) - set(new.replicas)
            assert new.leader_epoch - old.leader_epoch == (new.leader != old.leader or bool(gone))
            assert new.partition_epoch - old.partition_epoch == (new != old)
            if isinstance(command, Reassign):
                assert gone <= set(old.adding) or set(new.in_sync) == set(new.replicas)
                assert len(new.in_sync) >= min(len(old.in_sync), len(new.replicas), 1)
            else:
                assert new.original == old.original or (new.replicas == old.target and set(new.in_sync) == set(new.replicas))
                assert not gone or gone == set(old.removing)
    for node, broker in before.brokers.items():
        assert after.brokers[node].epoch >= broker.epoch
    assert after.next_producer_id >= before.next_producer_id
    assert after.security_version - before.security_version == (after.security_version != before.security_version)


@settings(max_examples=60 * SCALE)
@given(st.lists(WISHES, max_size=40))
def test_any_commands(wishes):
    machine = Machine(CLUSTER)
    for node in (1, 2, 3):
        machine.apply(node, commands.encode(RegisterBroker(node, "x", {})))
    for wish in wishes:
        command = aimed(machine, wish)
        data = commands.encode(command)
        before, index = machine.state, machine.state.index + 1
        restored = Machine(CLUSTER)
        restored.restore(index - 1, machine.snapshot())
        answer = machine.apply(index, data)
        assert restored.apply(index, data) == answer
        assert restored.state == machine.state
        check(machine.state)
        check_step(before, machine.state, command)
        try:
            commands.decode_answer(answer)
        except LogdbError:
            assert machine.state == replace(before, index=index)
            continue
        if not isinstance(command, TakeProducerIds):
            once = machine.state
            try:
                again = commands.decode_answer(machine.apply(index + 1, data))
                assert replace(again, index=index) == commands.decode_answer(answer)
            except FencedLeaderEpoch:
                assert isinstance(command, AlterInSync)  # it has ended a reassignment
            assert machine.state == replace(once, index=index + 1)
