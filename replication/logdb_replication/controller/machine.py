"""The replicated state machine: commands applied to the metadata, in one order, on each controller and in each broker.

    machine.apply(index, command)          the answer, as bytes; the state is then at ``index``
    machine.snapshot() · restore(index, …) the state as bytes
    machine.state                          a value: it stays as it is

``apply`` depends on nothing but the state and its arguments, so all copies are equal at equal indexes.  A refused command changes the index
and nothing else.

Threading: ``apply`` and ``restore`` from one thread at a time; ``state`` and ``snapshot`` from any.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from logdb.errors import (
    FencedLeaderEpoch,
    InvalidPartitions,
    InvalidReassignment,
    StaleBrokerEpoch,
    TopicExists,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)
from logdb.model import IN_SYNC_MIN, PARTITION_COUNT_MAX, check_topic_name, in_sync_count_min
from logdb.requests.nodes import PartitionState
from logdb_replication.controller import commands
from logdb_replication.controller import state as states
from logdb_replication.controller.commands import (
    AddPartitions,
    AlterInSync,
    AlterTopic,
    Answer,
    ChangeSecurity,
    Command,
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
    Promote,
    Reassign,
    RegisterBroker,
    Registered,
    ResignLeader,
    SecurityIs,
    TakeProducerIds,
    TopicIs,
    UnfenceBroker,
)
from logdb_replication.controller.elections import (
    each_partition,
    elected,
    elected_preferred,
    electing,
    finished,
    in_new_epochs,
    in_sync_needed,
    reassigned,
    relieved,
    without,
)
from logdb_replication.controller.errors import (
    ClusterNotEmpty,
    IneligibleReplica,
    PartitionChanged,
    StateChanged,
    UnknownBroker,
)
from logdb_replication.controller.placement import PARTITIONS_ADDED_MAX, assigned, objection_to, placed
from logdb_replication.controller.state import BrokerState, ClusterState, TopicState


class Machine:
    """The metadata at some index."""

    def __init__(self, cluster_id: str) -> None:
        self.state = ClusterState(cluster_id)

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply a command; returns its answer.

        Raises:
            UnknownCommand: A newer logdb proposed it: what applies it goes on with a state that others have not, so it stops.
        """
        state, answer = applied(self.state, index, commands.decode(command))
        self.state = state
        return commands.encode_answer(answer)

    def snapshot(self) -> bytes:
        return states.encode(self.state)

    def restore(self, index: int, state: bytes) -> None:
        """Take a snapshot's state, which is at ``index`` or before: the entries between are none of a state machine's.

        Raises:
            ValueError: It is none, or another cluster's.
        """
        try:
            found = states.decode(state)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"the snapshot at index {index} is no state: {error}") from None
        if found.cluster_id != self.state.cluster_id:
            raise ValueError(f"the snapshot is of cluster {found.cluster_id}: must be of {self.state.cluster_id}")
        self.state = found


def applied(state: ClusterState, index: int, command: Command) -> tuple[ClusterState, Answer | commands.Refused]:
    """The state after a command, and its answer."""
    assert index > state.index, (index, state.index)
    state = replace(state, index=index)
    try:
        return _BY_COMMAND[type(command)](state, command)
    except commands.REFUSALS.kinds as error:
        return state, commands.Refused(index, *commands.REFUSALS.written(error))


def answered(state: ClusterState, command: Command) -> Answer:
    """What a command would be answered at this state, which stays as it is; raises what it would be refused for."""
    _, answer = applied(state, state.index + 1, command)
    if isinstance(answer, commands.Refused):
        raise commands.REFUSALS.error(answer.error, answer.values)
    return answer


# ---------------------------------------------------------------- brokers


def _register(state: ClusterState, command: RegisterBroker) -> tuple[ClusterState, Answer]:
    known = state.brokers.get(command.node_id)
    if known is not None and known.incarnation == command.incarnation:
        return state, Registered(state.index, known.epoch)
    epoch = state.next_broker_epoch
    broker = BrokerState(command.node_id, command.incarnation, epoch, command.addresses, command.rack, directory_id=command.directory_id)
    state = replace(_with_broker(state, broker), next_broker_epoch=epoch + 1)
    if known is not None:
        is_older = command.former is not None and known.incarnation not in command.former
        unclean = command.unclean or is_older or command.directory_id != known.directory_id
        state = each_partition(state, lambda topic, partition: without(topic, partition, broker.node_id, state.brokers, unclean=unclean))
    return state, Registered(state.index, epoch)


def _unfence(state: ClusterState, command: UnfenceBroker) -> tuple[ClusterState, Answer]:
    broker = _broker(state, command.node_id, command.epoch)
    if broker.fenced:
        state = _with_broker(state, replace(broker, fenced=False))
        state = each_partition(state, lambda _, partition: _back(partition, state.brokers))
    return state, Done(state.index)


def _back(partition: PartitionState, brokers: Mapping[int, BrokerState]) -> PartitionState:
    """After a broker has come back: led, where that is possible, and reassigned, where only that broker was missing."""
    after = finished(elected(partition, brokers), brokers)
    return partition if after is partition else in_new_epochs(partition, after)


def _fence(state: ClusterState, command: FenceBroker) -> tuple[ClusterState, Answer]:
    broker = _broker(state, command.node_id, command.epoch)
    if not broker.fenced:
        state = _with_broker(state, replace(broker, fenced=True))
        state = each_partition(state, lambda topic, partition: without(topic, partition, broker.node_id, state.brokers))
    return state, Done(state.index)


def _drain(state: ClusterState, command: DrainBroker) -> tuple[ClusterState, Answer]:
    broker = _broker(state, command.node_id)
    if broker.draining != command.draining:
        state = _with_broker(state, replace(broker, draining=command.draining))
    if command.draining and not command.in_order:
        state = each_partition(state, lambda _, partition: relieved(partition, broker.node_id, state.brokers, draining=True))
    return state, Done(state.index)


def _broker(state: ClusterState, node_id: int, epoch: int | None = None) -> BrokerState:
    broker = state.brokers.get(node_id)
    if broker is None:
        raise UnknownBroker(node_id)
    if epoch is not None and epoch != broker.epoch:
        raise StaleBrokerEpoch(node_id, epoch, broker.epoch)
    return broker


def _with_broker(state: ClusterState, broker: BrokerState) -> ClusterState:
    return replace(state, brokers={**state.brokers, broker.node_id: broker})


# ---------------------------------------------------------------- topics


def _create(state: ClusterState, command: CreateTopic) -> tuple[ClusterState, Answer]:
    check_topic_name(command.name)
    known = state.topics.get(command.name)
    if known is not None:
        if not command.if_not_exists and known.topic_id != command.topic_id:
            raise TopicExists(command.name)
        return state, TopicIs(state.index, known)
    _check_count(state, command.name, command.partitions, 1, command.partitions)
    factor, named = command.replication_factor, command.assignments
    found = assigned(state, command.name, 0, command.partitions, factor, named) if named else placed(state, command.partitions, factor)
    return _with_topic(state, TopicState(command.name, command.topic_id, command.config, tuple(found)))


def _promote(state: ClusterState, command: Promote) -> tuple[ClusterState, Answer]:
    _broker(state, command.node_id, command.broker_epoch)
    if state.promoted == command.directory_id:
        return state, Done(state.index)
    if state.topics or state.promoted or state.security is not None:
        raise ClusterNotEmpty("topics" if state.topics else "the data of another directory" if state.promoted else "users")
    _check_count(state, "of the directory", sum(len(topic.leader_epochs) for topic in command.topics) or 1, 1, 0)
    topics = {}
    for topic in command.topics:
        check_topic_name(topic.name)
        partitions = tuple(_imported(command, number, epoch) for number, epoch in enumerate(topic.leader_epochs))
        topics[topic.name] = TopicState(topic.name, topic.topic_id, topic.config, partitions)
    state = replace(
        state,
        topics=topics,
        promoted=command.directory_id,
        security=command.security,
        security_version=state.security_version + 1,
        next_producer_id=max(state.next_producer_id, command.next_producer_id),
    )
    return each_partition(state, lambda _, partition: elected(partition, state.brokers)), Done(state.index)


def _imported(command: Promote, number: int, leader_epoch: int) -> PartitionState:
    """A partition that only the broker has; its preferred leaders are spread over the nodes."""
    own, factor = command.node_id, command.replication_factor
    nodes = [own, *(node for node in command.nodes if node != own)]
    turn = number % len(nodes) if factor > 1 else 0
    members = tuple(dict.fromkeys((nodes[turn], own, *nodes[turn:], *nodes[:turn])))
    return PartitionState(None, leader_epoch, members[:factor], (own,))


def _alter(state: ClusterState, command: AlterTopic) -> tuple[ClusterState, Answer]:
    topic = _topic(state, command.name, command.topic_id)
    if topic.config == command.config:
        return state, TopicIs(state.index, topic)
    if topic.config != command.expected_config:
        raise StateChanged(f"the config of topic {topic.name!r}")
    return _with_topic(state, replace(topic, config=command.config))


def _add_partitions(state: ClusterState, command: AddPartitions) -> tuple[ClusterState, Answer]:
    topic = _topic(state, command.name, command.topic_id)
    known = len(topic.partitions)
    if known == command.count:
        return state, TopicIs(state.index, topic)
    if known != command.known_count:
        raise StateChanged(f"the number of partitions of topic {topic.name!r}")
    _check_count(state, topic.name, command.count, known, command.count - known)
    added, factor = command.count - known, len(topic.partitions[0].assignment)
    named = command.assignments
    found = assigned(state, topic.name, known, added, factor, named) if named else placed(state, added, factor)
    return _with_topic(state, replace(topic, partitions=(*topic.partitions, *found)))


def _check_count(state: ClusterState, name: str, count: int, least: int, added: int) -> None:
    if not least <= count <= PARTITION_COUNT_MAX:
        raise InvalidPartitions(name, count, f"must be {least} to {PARTITION_COUNT_MAX}; the number of partitions can only grow")
    if added > PARTITIONS_ADDED_MAX:
        raise InvalidPartitions(name, count, f"one call adds {PARTITIONS_ADDED_MAX} at most, as the controllers do nothing else meanwhile")
    there = sum(len(topic.partitions) for topic in state.topics.values())
    if there + added > PARTITION_COUNT_MAX:
        raise InvalidPartitions(name, count, f"the cluster has {there} partitions, of {PARTITION_COUNT_MAX}")


def _delete(state: ClusterState, command: DeleteTopic) -> tuple[ClusterState, Answer]:
    topic = state.topics.get(command.name)
    if topic is not None and topic.topic_id == command.topic_id:
        state = replace(state, topics={name: other for name, other in state.topics.items() if other is not topic})
    return state, Done(state.index)


def _topic(state: ClusterState, name: str, topic_id: str | None = None) -> TopicState:
    topic = state.topics.get(name)
    if topic is None or topic_id not in {None, topic.topic_id}:
        raise UnknownTopic(name)
    return topic


def _with_topic(state: ClusterState, topic: TopicState) -> tuple[ClusterState, Answer]:
    return replace(state, topics={**state.topics, topic.name: topic}), TopicIs(state.index, topic)


# ---------------------------------------------------------------- partitions


def _alter_in_sync(state: ClusterState, command: AlterInSync) -> tuple[ClusterState, Answer]:
    _broker(state, command.node_id, command.broker_epoch)
    topic = _topic(state, command.topic, command.topic_id)
    partition = _partition(topic, command.partition)
    if command.leader_epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch(topic.name, command.partition, command.leader_epoch, partition.leader_epoch)
    if command.leader_epoch < partition.leader_epoch or partition.leader != command.node_id:
        raise FencedLeaderEpoch(topic.name, command.partition, command.leader_epoch, partition.leader_epoch)
    wanted = {replica.node_id for replica in command.in_sync}
    in_sync = tuple(node for node in partition.replicas if node in wanted)
    if in_sync != partition.in_sync or command.partition_epoch == partition.partition_epoch:  # the same set ends what was proposed before
        if command.partition_epoch != partition.partition_epoch:
            raise PartitionChanged(topic.name, command.partition, partition)
        _check_members(state, command, partition)
        partition = in_new_epochs(partition, finished(partition._replace(in_sync=in_sync), state.brokers, by_leader=True))
        state = _with_partition(state, topic, command.partition, partition)
    return state, PartitionIs(state.index, partition)


def _check_members(state: ClusterState, command: AlterInSync, partition: PartitionState) -> None:
    """Raise unless each is a replica whose broker is the one that the leader knows, and each new one is unfenced."""
    if command.node_id not in [replica.node_id for replica in command.in_sync]:
        raise IneligibleReplica(command.topic, command.partition, command.node_id, "the leader, and not a member of the set")
    for replica in command.in_sync:
        if replica.node_id not in partition.replicas:
            raise IneligibleReplica(command.topic, command.partition, replica.node_id, "no replica")
        if _broker(state, replica.node_id, replica.broker_epoch).fenced and replica.node_id not in partition.in_sync:
            raise IneligibleReplica(command.topic, command.partition, replica.node_id, "fenced")


def _resign(state: ClusterState, command: ResignLeader) -> tuple[ClusterState, Answer]:
    topic = _topic(state, command.topic)
    partition = _partition(topic, command.partition)
    if partition.leader is not None and partition.leader_epoch == command.leader_epoch:
        moved = relieved(partition, partition.leader, state.brokers)
        if moved is not partition:
            state, partition = _with_partition(state, topic, command.partition, moved), moved
    return state, PartitionIs(state.index, partition)


def _elect_preferred(state: ClusterState, command: ElectPreferred) -> tuple[ClusterState, Answer]:
    topic = _topic(state, command.topic, command.topic_id)
    partition = _partition(topic, command.partition)
    if partition.leader_epoch == command.leader_epoch:
        moved = (electing if command.in_order else elected_preferred)(partition, state.brokers)
        if moved is not partition:
            state, partition = _with_partition(state, topic, command.partition, moved), moved
    return state, PartitionIs(state.index, partition)


def _elect_unclean(state: ClusterState, command: ElectUnclean) -> tuple[ClusterState, Answer]:
    topic = _topic(state, command.topic, command.topic_id)
    partition = _partition(topic, command.partition)
    if partition.leader is None and partition.leader_epoch == command.leader_epoch:
        if command.node_id not in partition.replicas:
            raise IneligibleReplica(topic.name, command.partition, command.node_id, "no replica")
        if _broker(state, command.node_id).fenced:
            raise IneligibleReplica(topic.name, command.partition, command.node_id, "fenced")
        alone = partition._replace(leader=command.node_id, in_sync=(command.node_id,))
        partition = in_new_epochs(partition, finished(alone, state.brokers))
        state = _with_partition(state, topic, command.partition, partition)
    return state, PartitionIs(state.index, partition)


def _reassign(state: ClusterState, command: Reassign) -> tuple[ClusterState, Answer]:
    topic = _topic(state, command.topic, command.topic_id)
    partition = _partition(topic, command.partition)
    target = command.target or partition.original
    if target != partition.assignment:
        if command.known != partition.replicas:
            raise PartitionChanged(topic.name, command.partition, partition)
        if reason := _objection(state, topic, partition, target):
            raise InvalidReassignment(topic.name, command.partition, target, reason)
        partition = reassigned(partition, target, state.brokers)
        _check_reassigned(topic, command.partition, partition)
        state = _with_partition(state, topic, command.partition, partition)
    return state, PartitionIs(state.index, partition)


def _objection(state: ClusterState, topic: TopicState, partition: PartitionState, target: tuple[int, ...]) -> str:
    """Why these cannot be the replicas of a partition; empty: they can."""
    if reason := objection_to(target, state.brokers):
        return reason
    least = in_sync_count_min(topic.config)
    if len(target) < min(least, len(partition.original)):
        return f"{IN_SYNC_MIN} is {least}, so no record would be acknowledged by all; lower it first"
    return ""


def _check_reassigned(topic: TopicState, number: int, partition: PartitionState) -> None:
    """Raise if replicas that go at once would leave what is acknowledged on too few, or without a leader."""
    before = topic.partitions[number]
    least = min(in_sync_needed(topic, before), len(before.in_sync))
    if len(partition.in_sync) < min(least, len(partition.replicas)):
        reason = f"{len(partition.in_sync)} of them are in sync, {least} are needed before others go"
        raise InvalidReassignment(topic.name, number, partition.assignment, reason)
    if before.leader is not None and partition.leader is None:
        raise InvalidReassignment(topic.name, number, partition.assignment, "none that is in sync could lead")


def _limit_reassignments(state: ClusterState, command: LimitReassignments) -> tuple[ClusterState, Answer]:
    return replace(state, reassignment_bytes_per_s=command.bytes_per_s), Done(state.index)


def _prefer_leaders(state: ClusterState, command: PreferLeaders) -> tuple[ClusterState, Answer]:
    change = electing if command.in_order else elected_preferred
    state = each_partition(state, lambda _, partition: change(partition, state.brokers))
    return state, Done(state.index)


def _partition(topic: TopicState, partition: int) -> PartitionState:
    if partition >= len(topic.partitions):
        raise UnknownPartition(topic.name, partition, len(topic.partitions))
    return topic.partitions[partition]


def _with_partition(state: ClusterState, topic: TopicState, number: int, partition: PartitionState) -> ClusterState:
    partitions = (*topic.partitions[:number], partition, *topic.partitions[number + 1 :])
    return replace(state, topics={**state.topics, topic.name: replace(topic, partitions=partitions)})


# ---------------------------------------------------------------- the rest


def _take_producer_ids(state: ClusterState, command: TakeProducerIds) -> tuple[ClusterState, Answer]:
    first = max(state.next_producer_id, command.least)
    return replace(state, next_producer_id=first + command.count), ProducerIds(state.index, first, command.count)


def _change_security(state: ClusterState, command: ChangeSecurity) -> tuple[ClusterState, Answer]:
    if state.security_version == command.known_version:
        state = replace(state, security=command.document, security_version=command.known_version + 1)
    elif state.security_version != command.known_version + 1 or state.security != command.document:
        raise StateChanged("the document of users, tokens and ACLs")
    return state, SecurityIs(state.index, state.security_version)


_BY_COMMAND: dict[type[Any], Callable[[ClusterState, Any], tuple[ClusterState, Answer]]] = {
    RegisterBroker: _register,
    UnfenceBroker: _unfence,
    FenceBroker: _fence,
    DrainBroker: _drain,
    CreateTopic: _create,
    Promote: _promote,
    AlterTopic: _alter,
    AddPartitions: _add_partitions,
    DeleteTopic: _delete,
    AlterInSync: _alter_in_sync,
    ResignLeader: _resign,
    ElectPreferred: _elect_preferred,
    ElectUnclean: _elect_unclean,
    Reassign: _reassign,
    LimitReassignments: _limit_reassignments,
    PreferLeaders: _prefer_leaders,
    TakeProducerIds: _take_producer_ids,
    ChangeSecurity: _change_security,
}
