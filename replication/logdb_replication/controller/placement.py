"""Which brokers get the replicas of new partitions.  Pure: no chance.

The controller that leads places new partitions, and names the nodes in the command that it proposes (``with_places``):

    first replica     the broker that is first in the fewest partitions of the topic, then of all topics
    the others        first by rack: one with fewer replicas of the partition; then a broker with fewer replicas of the topic, with fewer
                      behind this first replica, with fewer in all

Brokers that may lead come before those that are fenced or draining; these get replicas only where there are too few others, and are not in
sync at first.  An operator may name the replicas (``assigned``).

A command without nodes, as earlier versions proposed it, stands in journals.  Each voter places its partitions in the same way for ever
(``placed``).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from logdb.errors import InvalidReassignment, InvalidReplicationFactor
from logdb.requests.nodes import PartitionState
from logdb.store.topics import check_assignment_count
from logdb_replication.controller.commands import AddPartitions, CreateTopic
from logdb_replication.controller.state import BrokerState, ClusterState

PARTITIONS_ADDED_MAX = 10_000


def with_places(state: ClusterState, command: CreateTopic | AddPartitions) -> CreateTopic | AddPartitions:
    """The command with the nodes of each new partition; as it is if it names nodes, or will be refused."""
    if command.assignments:
        return command
    known = state.topics.get(command.name)
    if isinstance(command, CreateTopic):
        partitions: tuple[PartitionState, ...] = ()
        count, factor = command.partitions, command.replication_factor
        refused = known is not None
    else:
        partitions = () if known is None else known.partitions
        count, factor = command.count - len(partitions), len(partitions[0].assignment) if partitions else 0
        refused = known is None or len(partitions) != command.known_count
    able = sum(map(_is_able, state.brokers.values()))
    if refused or not 1 <= count <= PARTITIONS_ADDED_MAX or not 1 <= factor <= len(state.brokers) or not able:
        return command
    return msgspec.structs.replace(command, assignments=tuple(_Spread(state, partitions).placed(count, factor)))


class _Spread:
    """How many replicas each broker has, of one topic and in all; of a partition that is reassigned, where they will be."""

    def __init__(self, state: ClusterState, partitions: Sequence[PartitionState]) -> None:
        self._brokers = sorted(state.brokers.values(), key=lambda broker: broker.node_id)
        self._firsts: Counter[int] = Counter()
        self._replicas: Counter[int] = Counter()
        self._topic_firsts: Counter[int] = Counter()
        self._topic_replicas: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()  # of the topic: first replica and another one
        for topic in state.topics.values():
            for partition in topic.partitions:
                self._firsts[partition.preferred_leader] += 1
                self._replicas.update(partition.assignment)
        for partition in partitions:
            self._note(partition.assignment)

    def _note(self, nodes: Sequence[int]) -> None:
        self._topic_firsts[nodes[0]] += 1
        self._topic_replicas.update(nodes)
        self._pairs.update((nodes[0], other) for other in nodes[1:])

    def placed(self, count: int, factor: int) -> Iterator[tuple[int, ...]]:
        """The nodes of each of so many new partitions of the topic."""
        able = [broker for broker in self._brokers if _is_able(broker)]
        for _ in range(count):
            first = min(able, key=lambda broker: self._burden(broker.node_id))
            chosen, left = [first], [broker for broker in self._brokers if broker is not first]
            while len(chosen) < factor:
                racks = _racks(chosen)
                best = min(left, key=lambda broker: (not _is_able(broker), racks[broker.rack], *self._share(first.node_id, broker.node_id)))
                chosen.append(best)
                left.remove(best)
            nodes = tuple(broker.node_id for broker in chosen)
            self._note(nodes)
            self._firsts[nodes[0]] += 1
            self._replicas.update(nodes)
            yield nodes

    def _burden(self, node: int) -> tuple[int, int, int, int]:
        return self._topic_firsts[node], self._firsts[node], self._topic_replicas[node], self._replicas[node]

    def _share(self, first: int, node: int) -> tuple[int, int, int]:
        return self._topic_replicas[node], self._pairs[first, node], self._replicas[node]


def placed(state: ClusterState, count: int, replication_factor: int) -> list[PartitionState]:
    """So many new partitions, as earlier versions placed them: what this gives never changes.

    Raises:
        InvalidReplicationFactor: There are fewer brokers, or none that may lead.
    """
    brokers = sorted(state.brokers.values(), key=lambda broker: broker.node_id)
    able = [broker for broker in brokers if _is_able(broker)]
    if not 1 <= replication_factor <= len(brokers) or not able:
        raise InvalidReplicationFactor(replication_factor, len(brokers) if able else 0)
    firsts: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    for topic in state.topics.values():
        for partition in topic.partitions:
            firsts[partition.replicas[0]] += 1
            replicas.update(partition.replicas)
    found = []
    for number in range(count):
        first = min(able, key=lambda broker: (firsts[broker.node_id], replicas[broker.node_id]))
        chosen = _chosen(first, brokers, replicas, replication_factor, number // len(able))
        nodes = tuple(broker.node_id for broker in chosen)
        firsts[first.node_id] += 1
        replicas.update(nodes)
        found.append(PartitionState(nodes[0], 0, nodes, tuple(broker.node_id for broker in chosen if broker in able)))
    return found


def assigned(
    state: ClusterState, topic: str, known: int, count: int, replication_factor: int, assignments: Sequence[tuple[int, ...]]
) -> list[PartitionState]:
    """So many new partitions of a topic, which has ``known`` ones, on the nodes that are named for each.

    Raises:
        InvalidReassignment: Nodes are named for another number of partitions; or of one of them none, a node twice, one that has never
            registered, another number than the replication factor, or none that may lead.

    Source: Kafka's ``ReplicationControlManager``, ``createTopic`` and ``createPartitions``.
    """
    check_assignment_count(topic, count, known, assignments)
    of_others = f"{replication_factor} in the topic's first partition" if known else f"the replication factor is {replication_factor}"
    found = []
    for number, nodes in enumerate(assignments, known):
        reason = objection_to(nodes, state.brokers)
        if not reason and len(nodes) != replication_factor:
            reason = f"they are {len(nodes)}, and {of_others}"
        able = () if reason else tuple(node for node in nodes if _is_able(state.brokers[node]))
        if reason or not able:
            raise InvalidReassignment(topic, number, nodes, reason or "none of them may lead: they are fenced, or drain")
        found.append(PartitionState(able[0], 0, nodes, able))
    return found


def objection_to(nodes: Sequence[int], brokers: Mapping[int, BrokerState]) -> str:
    """Why these cannot be the replicas of any partition; empty: they can."""
    if not nodes:
        return "one is needed at least"
    if len(set(nodes)) < len(nodes):
        return "each node has one replica at most"
    return next((f"node {node} has never registered" for node in nodes if node not in brokers), "")


def _is_able(broker: BrokerState) -> bool:
    return not broker.fenced and not broker.draining


def _chosen(first: BrokerState, brokers: list[BrokerState], replicas: Counter[int], count: int, turn: int) -> list[BrokerState]:
    """The replicas of one partition; ``turn`` moves who comes second, so that what a broker leads is spread when it dies."""
    chosen, place = [first], brokers.index(first)
    after = brokers[place + 1 :] + brokers[:place]
    shift = turn % len(after) if after else 0
    left = after[shift:] + after[:shift]
    while len(chosen) < count:
        racks = _racks(chosen)
        best = min(left, key=lambda broker: (broker.fenced or broker.draining, racks[broker.rack], replicas[broker.node_id]))
        chosen.append(best)
        left.remove(best)
    return chosen


def _racks(chosen: Iterable[BrokerState]) -> Counter[str]:
    """How often each rack is among them; a broker without one is in a rack of its own."""
    return Counter(broker.rack for broker in chosen if broker.rack)
