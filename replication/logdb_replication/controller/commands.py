"""What changes the metadata, as data; and what each change is answered.

A command is a compare-and-set: it names what it was decided upon.  Applied again it changes nothing and has the same answer, so one whose
outcome is unknown is sent again.  Two are exceptions: a repeat of ``TakeProducerIds`` wastes ids, and one of an ``AlterInSync`` that has
ended a reassignment is refused, for the leader epoch is over.

A command that is refused changes nothing.  Its answer is ``Refused``, which ``decode_answer`` raises as the error that it names.
"""

import typing
from typing import Annotated, Any, TypeAlias

import msgspec

from logdb import errors
from logdb.model import PARTITION_COUNT_MAX, ConfigValue
from logdb.requests.nodes import PartitionState
from logdb_replication.controller.errors import (
    ClusterNotEmpty,
    IneligibleReplica,
    PartitionChanged,
    StateChanged,
    UnknownBroker,
    UnknownCommand,
)
from logdb_replication.controller.refusals import Refusals
from logdb_replication.controller.state import Addresses, NodeId, Text, TopicState

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Number = Annotated[int, msgspec.Meta(ge=0, lt=PARTITION_COUNT_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=249)]
TopicId = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z_-]{1,64}\Z")]
Config = dict[Text, ConfigValue]
FORMER_COUNT_MAX, REPLICA_COUNT_MAX = 100, 64
Nodes = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=REPLICA_COUNT_MAX)]
Assignments = Annotated[tuple[Nodes, ...], msgspec.Meta(max_length=PARTITION_COUNT_MAX)]


class _Command(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """One change; the tag is the name of its class."""


# ---------------------------------------------------------------- brokers


class RegisterBroker(_Command, frozen=True):
    """A broker's process begins: answered by its ``Registered`` epoch.

    A new incarnation is fenced first: it leads nothing, and leaves the in-sync sets that have another member.

    Attributes:
        unclean: Its replicas may lack what was flushed: it leaves every in-sync set, but those of partitions that have no other replica.
        directory_id: Drawn when its directory was made: in another one it is unclean, whatever it says.
        former: The incarnations that its directory knows; None: any.  Without the registered one it is an older copy, and unclean.
    """

    node_id: NodeId
    incarnation: Text
    addresses: Addresses
    rack: Text = ""
    unclean: bool = False
    directory_id: Text = ""
    former: Annotated[tuple[Text, ...], msgspec.Meta(max_length=FORMER_COUNT_MAX)] | None = None


class UnfenceBroker(_Command, frozen=True):
    """It may lead: partitions without a leader that it is in sync with get it."""

    node_id: NodeId
    epoch: Count


class FenceBroker(_Command, frozen=True):
    """It is gone, or goes: what it leads is led by others."""

    node_id: NodeId
    epoch: Count


class DrainBroker(_Command, frozen=True, omit_defaults=True):
    """Whether a broker's leaderships go to others, where there are any; a registration ends it.

    ``in_order``: the broker hands them over itself; otherwise they go at once.  An older version has no such field.
    """

    node_id: NodeId
    draining: bool
    in_order: bool = False


# ---------------------------------------------------------------- topics


class CreateTopic(_Command, frozen=True, omit_defaults=True):
    """Answered by ``TopicIs``; ``topic_id``: drawn by the one who asks, so that a repeat is told from another topic.

    ``assignments``: as of ``AddPartitions``.
    """

    name: Name
    topic_id: TopicId
    config: Config
    partitions: Annotated[int, msgspec.Meta(le=2**31 - 1)]
    replication_factor: Annotated[int, msgspec.Meta(le=2**15 - 1)]
    if_not_exists: bool = False
    assignments: Assignments = ()


class ImportedTopic(typing.NamedTuple):
    """A topic of a directory that is promoted, with the latest leader epoch of each partition."""

    name: Name
    topic_id: TopicId
    config: Config
    leader_epochs: Annotated[tuple[Epoch, ...], msgspec.Meta(min_length=1, max_length=PARTITION_COUNT_MAX)]


class Promote(_Command, frozen=True):
    """A broker's directory, used embedded so far, gives the cluster its topics, users and producer ids.  Answered by ``Done``.

    The broker alone is in sync with each partition; other replicas are added at once, and have to catch up.  A cluster that has topics
    already refuses it; one that has begun with this directory changes nothing.

    Attributes:
        node_id, broker_epoch: The broker's.
        directory_id: Of its directory.
        replication_factor: Of its partitions.
        nodes: All nodes of the cluster, of which the replicas are.
        next_producer_id: None was given from here on.
    """

    node_id: NodeId
    broker_epoch: Count
    directory_id: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    topics: tuple[ImportedTopic, ...]
    nodes: Annotated[tuple[NodeId, ...], msgspec.Meta(min_length=1, max_length=64)]
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=64)]
    next_producer_id: Count
    security: bytes | None


class AlterTopic(_Command, frozen=True):
    """Answered by ``TopicIs``; the configs are replaced as a whole."""

    name: Name
    topic_id: TopicId
    expected_config: Config
    config: Config


class AddPartitions(_Command, frozen=True, omit_defaults=True):
    """Answered by ``TopicIs``; ``count``: how many there are afterwards, ``known_count`` before.

    ``assignments``: the nodes of each that is added, the preferred leader first; none: as they are placed.  An older version has no such
    field, and understands the command without it.
    """

    name: Name
    topic_id: TopicId
    known_count: Count
    count: Count
    assignments: Assignments = ()


class DeleteTopic(_Command, frozen=True):
    """Answered by ``Done``, also where no topic has the id."""

    name: Name
    topic_id: TopicId


# ---------------------------------------------------------------- partitions


class Replica(typing.NamedTuple):
    """A member of an in-sync set, as the leader knows it."""

    node_id: int
    broker_epoch: int


class AlterInSync(_Command, frozen=True):
    """A leader's change of its in-sync set: answered by ``PartitionIs``.

    Attributes:
        node_id, broker_epoch: The leader's.
        leader_epoch, partition_epoch: As the leader knows them.
        in_sync: The new set, the leader among it, each with its broker epoch (KIP-903).
    """

    node_id: NodeId
    broker_epoch: Count
    topic: Name
    topic_id: TopicId
    partition: Number
    leader_epoch: Epoch
    partition_epoch: Epoch
    in_sync: Annotated[tuple[Replica, ...], msgspec.Meta(max_length=64)]


class ResignLeader(_Command, frozen=True):
    """Another member of the in-sync set leads; without one, or after the epoch, nothing changes.  Answered by ``PartitionIs``."""

    topic: Name
    partition: Number
    leader_epoch: Epoch


class ElectPreferred(_Command, frozen=True, omit_defaults=True):
    """A partition is led by its first replica, where that is in sync, unfenced and does not drain.  Answered by ``PartitionIs``.

    Attributes:
        leader_epoch: At which it was chosen; later, nothing changes.
        in_order: The leader is asked to hand over; otherwise the election is at once.  An older version has no such field.
    """

    topic: Name
    topic_id: TopicId
    partition: Number
    leader_epoch: Epoch
    in_order: bool = False


class ElectUnclean(_Command, frozen=True):
    """An operator's choice for a partition without a leader: a replica leads with what it has; the rest is lost.  Answer: ``PartitionIs``.

    Attributes:
        node_id: An unfenced replica: the in-sync set is it alone.
        leader_epoch: At which it was chosen; later, nothing changes.
    """

    topic: Name
    topic_id: TopicId
    partition: Number
    leader_epoch: Epoch
    node_id: NodeId


class Reassign(_Command, frozen=True):
    """An operator's choice of a partition's replicas (KIP-455): those that are new follow, and once all are in sync the others go.

    Answered by ``PartitionIs``.  A reassignment that is under way is replaced: its new replicas that are not wanted any more go at once.

    Attributes:
        target: The replicas, the preferred leader first; none: what is under way is cancelled.
        known: All replicas, upon which this was decided.
    """

    topic: Name
    topic_id: TopicId
    partition: Number
    target: Nodes
    known: Nodes


class LimitReassignments(_Command, frozen=True):
    """How many bytes a second a broker fetches for replicas that are being added; None: any number.  Answered by ``Done``."""

    bytes_per_s: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None


class PreferLeaders(_Command, frozen=True, omit_defaults=True):
    """Each partition is led by its first replica, where that is in sync, unfenced and does not drain: leaders are spread again.

    ``in_order``: see ``ElectPreferred``.
    """

    in_order: bool = False


# ---------------------------------------------------------------- the rest


class TakeProducerIds(_Command, frozen=True, omit_defaults=True):
    """Answered by ``ProducerIds``.

    Attributes:
        least: The first of them is no smaller; an older version has no such field.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    least: Annotated[int, msgspec.Meta(ge=0, lt=2**62)] = 0


class ChangeSecurity(_Command, frozen=True):
    """Answered by ``SecurityIs``; ``known_version``: of the document that was changed."""

    known_version: Count
    document: bytes | None


Command: TypeAlias = (
    RegisterBroker | UnfenceBroker | FenceBroker | DrainBroker
    | CreateTopic | Promote | AlterTopic | AddPartitions | DeleteTopic
    | AlterInSync | ResignLeader | ElectPreferred | ElectUnclean | Reassign | LimitReassignments | PreferLeaders
    | TakeProducerIds | ChangeSecurity
)  # fmt: skip


# ---------------------------------------------------------------- answers


class _Answer(msgspec.Struct, frozen=True, tag=True):
    """What a command is answered.

    Attributes:
        index: Of the command: a state of this index, or a later one, has its change.
    """

    index: int


class Done(_Answer, frozen=True):
    """It is so."""


class Registered(_Answer, frozen=True):
    """The epoch of the registration."""

    broker_epoch: int


class TopicIs(_Answer, frozen=True):
    """The topic as it is now."""

    topic: TopicState


class PartitionIs(_Answer, frozen=True):
    """The partition as it is now."""

    state: PartitionState


class ProducerIds(_Answer, frozen=True):
    """A block of producer ids that no other answer has."""

    first: int
    count: int


class SecurityIs(_Answer, frozen=True):
    """The version of the document."""

    version: int


class Refused(_Answer, frozen=True):
    """An error, as ``REFUSALS`` writes it."""

    error: str
    values: list[Any]


Answer: TypeAlias = Done | Registered | TopicIs | PartitionIs | ProducerIds | SecurityIs

REFUSALS = Refusals(
    errors.UnknownTopic, errors.UnknownPartition, errors.TopicExists, errors.InvalidTopic, errors.InvalidPartitions,
    errors.InvalidReplicationFactor, errors.FencedLeaderEpoch, errors.UnknownLeaderEpoch, errors.StaleBrokerEpoch,
    errors.InvalidReassignment, UnknownBroker, IneligibleReplica, PartitionChanged, StateChanged, ClusterNotEmpty,
)  # fmt: skip
"""What a command may be refused for."""

_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(Command)
_answers = msgspec.msgpack.Decoder(Answer | Refused)


def encode(command: Command) -> bytes:
    """Raises what ``decode`` does, where a field of it is none."""
    data = _encoder.encode(command)
    decode(data)
    return data


def decode(data: bytes) -> Command:
    """Raises UnknownCommand."""
    try:
        found: Command = _commands.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnknownCommand(str(error)) from None
    return found


def encode_answer(answer: "Answer | Refused") -> bytes:
    return _encoder.encode(answer)


def decode_answer(data: bytes) -> Answer:
    """The answer of these bytes.

    Raises:
        LogdbError: The command was refused.
        msgspec.DecodeError: They are none.
    """
    answer = _answers.decode(data)
    if isinstance(answer, Refused):
        raise REFUSALS.error(answer.error, answer.values)
    return typing.cast("Answer", answer)
