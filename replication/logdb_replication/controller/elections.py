"""Who leads a partition, and who stays in sync with it, when brokers come and go, or it is reassigned.  Pure functions.

    leader     the first replica, in the order of placement, that is in sync and unfenced; those that drain come last
    in sync    a fenced broker leaves the set, as long as ``min.insync.replicas`` members are left: with fewer nothing is committed, so that
               those who stay have all that ever was.  When all stop at once, any of them can lead again (as KIP-966 has it)

Invariants:
    - A leader is in the in-sync set: an unclean election is an operator's command alone.  Without a candidate there is no leader.
    - Each change of the leader, also to none, is a new leader epoch; each change at all is a new partition epoch.
    - A replica that goes is a new leader epoch, too: what it has reported of its log is believed no more, should it come back empty.
    - A leader that lives hands over before a preferred election or the end of a reassignment takes its role (``replica.handover``).
"""

from collections.abc import Callable, Mapping
from math import inf

from msgspec.structs import replace

from logdb.model import TopicPartition, in_sync_count_min
from logdb.requests.nodes import PartitionState
from logdb_replication.controller.state import BrokerState, ClusterState, TopicState

HAND_OVER_S, HAND_OVERS_S = 5.0, 30.0
"""How long an operator or a client lets leaders hand over without any progress, and in all, before others lead at once."""


class HandOverWait:
    """The wait for the leaders of many partitions: it ends when they make no progress, and after ``HAND_OVERS_S`` in any case."""

    def __init__(self, count: int, now_s: float, until_s: float = inf) -> None:
        """Begin to wait for so many partitions, until a time at most."""
        self._least, self._until_s, self._end_s = count, now_s + HAND_OVER_S, min(now_s + HAND_OVERS_S, until_s)

    def left_s(self, count: int, now_s: float) -> float:
        """How long to wait on for so many partitions; 0: no longer."""
        if count < self._least:
            self._least, self._until_s = count, now_s + HAND_OVER_S
        return max(0.0, min(self._until_s, self._end_s) - now_s) if count else 0.0


def changed(partition: PartitionState, leader: int | None, in_sync: tuple[int, ...]) -> PartitionState:
    """The partition with that leader and that set, in new epochs; the same object if both are the same."""
    if leader == partition.leader and in_sync == partition.in_sync:
        return partition
    return in_new_epochs(partition, partition._replace(leader=leader, in_sync=in_sync))


def in_new_epochs(before: PartitionState, after: PartitionState) -> PartitionState:
    """What a change has made of a partition, in the epochs that follow those of before."""
    is_new = after.leader != before.leader or not set(before.replicas) <= set(after.replicas)
    electing = after.electing and after.leader == before.leader
    return after._replace(leader_epoch=before.leader_epoch + is_new, partition_epoch=before.partition_epoch + 1, electing=electing)


def candidate(partition: PartitionState, brokers: Mapping[int, BrokerState], avoided: int | None = None) -> int | None:
    """The next leader; None: no replica can lead.  ``avoided`` cannot."""
    able = [node for node in partition.replicas if node in partition.in_sync and node != avoided and not brokers[node].fenced]
    return min(able, key=lambda node: brokers[node].draining, default=None)


def in_sync_needed(topic: TopicState, partition: PartitionState) -> int:
    """How many members of the in-sync set an acknowledgement by all needs."""
    return min(in_sync_count_min(topic.config), len(partition.replicas))


def without(
    topic: TopicState, partition: PartitionState, node: int, brokers: Mapping[int, BrokerState], *, unclean: bool = False
) -> PartitionState:
    """After a broker was fenced; ``unclean``: it may have lost what was flushed, and stays only where it has the only replica."""
    others = tuple(member for member in partition.in_sync if member != node)
    stays = not others and len(partition.original) == 1 if unclean else len(others) < in_sync_needed(topic, partition)
    rest = partition if stays else partition._replace(in_sync=others)
    leader = candidate(rest, brokers) if partition.leader == node else partition.leader
    return changed(partition, leader, rest.in_sync)


def elected(partition: PartitionState, brokers: Mapping[int, BrokerState]) -> PartitionState:
    """With a leader, where it had none and can have one."""
    return partition if partition.leader is not None else changed(partition, candidate(partition, brokers), partition.in_sync)


def relieved(partition: PartitionState, node: int, brokers: Mapping[int, BrokerState], *, draining: bool = False) -> PartitionState:
    """Led by another than ``node``, where another can; ``draining``: by one that does not drain itself."""
    leader = candidate(partition, brokers, avoided=node)
    if partition.leader != node or leader is None or (draining and brokers[leader].draining):
        return partition
    return changed(partition, leader, partition.in_sync)


def preferred(partition: PartitionState, brokers: Mapping[int, BrokerState]) -> PartitionState:
    """Led by its first replica, where that can lead and another one does."""
    first = partition.preferred_leader
    able = first in partition.in_sync and not brokers[first].fenced and not brokers[first].draining
    return changed(partition, first, partition.in_sync) if able and partition.leader is not None else partition


def electing(partition: PartitionState, brokers: Mapping[int, BrokerState]) -> PartitionState:
    """With a leader that is asked to hand over to the first replica, where ``preferred`` would elect that."""
    if partition.electing or preferred(partition, brokers) is partition:
        return partition
    return in_new_epochs(partition, partition._replace(electing=True))


def is_electing(state: ClusterState, where: TopicPartition) -> bool:
    """Whether the leader of a partition is asked to hand over."""
    partition = state.partition(*where)
    return partition is not None and partition.electing


def elected_preferred(partition: PartitionState, brokers: Mapping[int, BrokerState]) -> PartitionState:
    """``preferred``; no leader is asked to hand over any more."""
    moved = preferred(partition, brokers)
    return in_new_epochs(partition, partition._replace(electing=False)) if moved is partition and partition.electing else moved


def reassigned(partition: PartitionState, target: tuple[int, ...], brokers: Mapping[int, BrokerState]) -> PartitionState:
    """On the way to other replicas, or there already; the in-sync set loses the members that are no replicas any more."""
    original = partition.original
    adding = tuple(node for node in target if node not in original)
    moved = _of_replicas(partition, (*original, *adding), brokers)
    moved = moved._replace(target=() if target == original else target, adding=adding)
    return in_new_epochs(partition, finished(moved, brokers))


def finished(partition: PartitionState, brokers: Mapping[int, BrokerState], *, by_leader: bool = False) -> PartitionState:
    """With its target as its replicas, where all of them are in sync and alive: only then others go.  In the same epochs.

    A leader that goes finishes it itself (``by_leader``), once it has handed over.
    """
    target = partition.target
    if not target or any(node not in partition.in_sync or brokers[node].fenced for node in target):
        return partition
    if partition.leader not in {None, *target} and not by_leader:
        return partition
    return _of_replicas(partition, target, brokers)._replace(target=(), adding=())


def _of_replicas(partition: PartitionState, replicas: tuple[int, ...], brokers: Mapping[int, BrokerState]) -> PartitionState:
    left = partition._replace(replicas=replicas, in_sync=tuple(node for node in replicas if node in partition.in_sync))
    return left if left.leader in {None, *replicas} else left._replace(leader=candidate(left, brokers))


def each_partition(state: ClusterState, change: Callable[[TopicState, PartitionState], PartitionState]) -> ClusterState:
    """The state with all partitions changed; a topic of which none has changed is the same object."""
    return replace(state, topics={name: _each(topic, change) for name, topic in state.topics.items()})


def _each(topic: TopicState, change: Callable[[TopicState, PartitionState], PartitionState]) -> TopicState:
    partitions = tuple(change(topic, partition) for partition in topic.partitions)
    same = all(new is old for new, old in zip(partitions, topic.partitions, strict=True))
    return topic if same else replace(topic, partitions=partitions)
