"""Commands and answers as bytes, and what is no command."""

import msgspec
import pytest

from logdb.errors import FencedLeaderEpoch, InvalidReassignment, StaleBrokerEpoch, UnknownTopic
from logdb.requests.nodes import PartitionState
from logdb_replication.controller import commands
from logdb_replication.controller.commands import (
    AddPartitions,
    AlterInSync,
    AlterTopic,
    ChangeSecurity,
    CreateTopic,
    DeleteTopic,
    Done,
    DrainBroker,
    ElectPreferred,
    ElectUnclean,
    FenceBroker,
    LimitReassignments,
    PartitionIs,
    PreferLeaders,
    ProducerIds,
    Reassign,
    RegisterBroker,
    Registered,
    Replica,
    ResignLeader,
    SecurityIs,
    TakeProducerIds,
    TopicIs,
    UnfenceBroker,
)
from logdb_replication.controller.errors import (
    IneligibleReplica,
    PartitionChanged,
    StateChanged,
    UnknownBroker,
    UnknownCommand,
)
from logdb_replication.controller.state import TopicState

PARTITION = PartitionState(1, 3, (1, 2, 3), (1, 3), 7)
TOPIC = TopicState("t", "id", {"retention.ms": 5, "cleanup.policy": "compact", "x": True, "y": 0.5}, (PARTITION,))
COMMANDS = (
    RegisterBroker(1, "a", {"http": ("localhost", 80), "kafka": ("::1", 9092)}, "r1", True, "d"),
    UnfenceBroker(1, 5),
    FenceBroker(1, 5),
    DrainBroker(2, True),
    DrainBroker(2, True, in_order=True),
    CreateTopic("t", "id", TOPIC.config, 3, 2, True),
    CreateTopic("t", "id", TOPIC.config, 2, 2, False, ((2, 3), (3, 1))),
    AlterTopic("t", "id", {}, TOPIC.config),
    AddPartitions("t", "id", 3, 6),
    AddPartitions("t", "id", 3, 5, ((2, 3), (3, 1))),
    DeleteTopic("t", "id"),
    AlterInSync(1, 5, "t", "id", 0, 3, 7, (Replica(1, 5), Replica(3, 9))),
    ResignLeader("t", 0, 3),
    ElectPreferred("t", "id", 0, 3),
    ElectPreferred("t", "id", 0, 3, in_order=True),
    ElectUnclean("t", "id", 0, 3, 2),
    Reassign("t", "id", 0, (2, 3), (1, 2, 3)),
    Reassign("t", "id", 0, (), (1, 2, 3)),
    LimitReassignments(10**6),
    LimitReassignments(None),
    PreferLeaders(),
    PreferLeaders(in_order=True),
    TakeProducerIds(1000),
    TakeProducerIds(1000, 1 << 61),
    ChangeSecurity(4, b"{}"),
    ChangeSecurity(4, None),
)


@pytest.mark.parametrize(
    "command",
    [TakeProducerIds(1000), AddPartitions("t", TOPIC.topic_id, 2, 4), CreateTopic("t", TOPIC.topic_id, {}, 2, 1)],
    ids=lambda command: type(command).__name__,
)
def test_an_older_controller_is_sent_no_field_that_it_does_not_know(command):
    encoded = commands.encode(command)
    assert b"least" not in encoded
    assert b"assignments" not in encoded


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_is_the_same_after_its_bytes(command):
    assert commands.decode(commands.encode(command)) == command


@pytest.mark.parametrize(
    "answer", [Done(1), Registered(2, 7), TopicIs(3, TOPIC), PartitionIs(4, PARTITION), ProducerIds(5, 0, 1000), SecurityIs(6, 2)]
)
def test_an_answer_is_the_same_after_its_bytes(answer):
    found = commands.decode_answer(commands.encode_answer(answer))
    assert found == answer
    assert not isinstance(found, PartitionIs) or isinstance(found.state, PartitionState)


@pytest.mark.parametrize(
    "error",
    [
        UnknownTopic("t"),
        FencedLeaderEpoch("t", 1, 2, 3),
        StaleBrokerEpoch(1, 2, 3),
        UnknownBroker(4),
        IneligibleReplica("t", 0, 3, "fenced"),
        StateChanged("topic 't'"),
        PartitionChanged("t", 0, PARTITION),
        PartitionChanged("t", 0, PARTITION._replace(target=(2, 4), adding=(4,))),
        InvalidReassignment("t", 0, (2, 2), "each node has one replica at most"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_is_raised_with_what_it_says(error):
    with pytest.raises(type(error)) as caught:
        commands.decode_answer(commands.encode_answer(commands.Refused(9, *commands.REFUSALS.written(error))))
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x80\x04.",
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode({"type": "Nothing"}),
        msgspec.msgpack.encode({"type": "FenceBroker", "node_id": 1}),
        msgspec.msgpack.encode({"type": "FenceBroker", "node_id": 0, "epoch": 1}),
        msgspec.msgpack.encode({"type": "FenceBroker", "node_id": 1, "epoch": -1}),
        msgspec.msgpack.encode({"type": "FenceBroker", "node_id": 1, "epoch": 1, "more": 1}),
        msgspec.msgpack.encode({"type": "DeleteTopic", "name": "t" * 250, "topic_id": "i"}),
        msgspec.msgpack.encode({"type": "DeleteTopic", "name": "t", "topic_id": "../i"}),
        commands.encode(COMMANDS[0]) + b"\0",
        commands.encode(COMMANDS[0])[:-1],
        b"\x91" * 100_000,
    ],
)
def test_what_is_no_command_is_refused(data):
    with pytest.raises(UnknownCommand):
        commands.decode(data)


def test_a_command_that_no_controller_would_take_is_refused_where_it_is_made():
    with pytest.raises(UnknownCommand, match="epoch"):
        commands.encode(FenceBroker(1, -1))
