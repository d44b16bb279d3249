"""Requests of the nodes of a cluster to one another; ``broker.transaction_peers`` says what each does.

Each goes to the leader of the partition that its key names.
"""

from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.requests.request import Request, cluster, value

_NEEDS = (cluster("ClusterAction"),)


@value
class WriteTransactionMarker(Request[None]):
    """``leader_of``: the partition that gets the marker; the rest as in ``coordinator.effects.WriteMarkers``."""

    needs = _NEEDS
    leader_of: TopicPartition
    producer: ProducerIdAndEpoch
    last_epoch: int
    commit: bool
    coordinator_epoch: int


@value
class WillEndTransaction(Request[bool]):
    """``leader_of``: a partition of ``__transaction_state``, whose coordinator is asked."""

    needs = _NEEDS
    leader_of: TopicPartition
    producer: ProducerIdAndEpoch
    partition: TopicPartition


@value
class EndMirroredTransactions(Request[None]):
    """``leader_of``: a partition that is a mirror no more; the answer comes once those are ended that no coordinator has."""

    needs = _NEEDS
    leader_of: TopicPartition


@value
class CommittedEnd(Request[int]):
    """``leader_of``: a partition; the answer: where its log ended at this request, once the records below are committed."""

    needs = _NEEDS
    leader_of: TopicPartition


@value
class FindDecision(Request[tuple[ProducerIdAndEpoch, bool, int]]):
    """``leader_of``: a partition of ``__transaction_state``; the answer: producer, whether to commit, epoch of the coordinator."""

    needs = _NEEDS
    leader_of: TopicPartition
    producer: ProducerIdAndEpoch
    partition: TopicPartition
