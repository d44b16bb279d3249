"""The parties of a transaction in a cluster: each partition's part is played by the node that leads it.

A marker is committed when the call returns: all in-sync replicas have it, flushed, as they have everything that a producer was
acknowledged.  So there is nothing to sync.

Threading: any thread.
"""

import contextlib
from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

from logdb.broker.local_peers import LocalPeers
from logdb.broker.transaction_peers import Decision, leader_address
from logdb.broker.waiting import commit
from logdb.coordinator.effects import WriteMarkers
from logdb.errors import LogdbError, UnknownPartition, UnknownTopic
from logdb.model import INTERNAL_TOPICS, ClusterEvent, ProducerIdAndEpoch, TopicEvent, TopicPartition
from logdb.requests.cluster import FindDecision, WillEndTransaction, WriteTransactionMarker
from logdb.requests.request import Request
from logdb.requests.session import Session
from logdb.store.protocols import Leadership, Metadata, Replication

A = TypeVar("A")
K = TypeVar("K", bound=Hashable)
_TRANSACTIONS = INTERNAL_TOPICS[1]
_DELETED = (UnknownTopic, UnknownPartition)
"""Behind the decision a deleted partition counts as done, whichever node has led it."""


class OtherNodes(Session, Protocol):
    """A session with the nodes of this cluster, as one of them: each request is carried out by the node that leads what it is about."""

    def ask(self, requests: Mapping[K, Request[A]], places: Mapping[K, str | None]) -> dict[K, A | LogdbError]:
        """The answers to requests that are made side by side; of each an answer, or its error.

        Args:
            places: Where each goes first, HOST:PORT of an HTTP door; None: to any node.
        """

    def learn(self, event: TopicEvent | ClusterEvent) -> None:
        """Know what has become of a topic: what is remembered of it must not outlive a change."""


class ClusterPeers:
    """``TransactionPeers`` of a node that is one of a cluster."""

    def __init__(self, local: LocalPeers, replication: Replication | None, metadata: Metadata, nodes: OtherNodes) -> None:
        self._local, self._replication, self._metadata, self._nodes = local, replication, metadata, nodes

    def sync(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing: see above."""

    def write_markers(self, markers: WriteMarkers) -> None:
        own = frozenset(where for where in markers.partitions if self._leads(where))
        requests = {
            where: WriteTransactionMarker(where, markers.producer, markers.last_epoch, markers.commit, markers.coordinator_epoch)
            for where in markers.partitions - own
        }
        answers: dict[TopicPartition, LogdbError | None] = self._asked(requests)
        if own:
            self.write_here(markers._replace(partitions=own))
        for answer in answers.values():
            if isinstance(answer, LogdbError) and not isinstance(answer, _DELETED):
                raise answer

    def write_here(self, markers: WriteMarkers) -> None:
        """Write markers on partitions that this node leads; when it returns they are committed.

        Raises:
            NotLeaderOrFollower: It does not lead one of them, or its epoch ended meanwhile.
            CommitTimeout, NotEnoughReplicasAfterAppend: as ``waiting.commit``.
        """
        leaderships = self._leaderships(markers.partitions)
        self._local.write_markers(markers)
        for leadership in leaderships:
            with contextlib.suppress(*_DELETED):
                commit(leadership, leadership.log.end_offset)

    def _leaderships(self, partitions: Iterable[TopicPartition]) -> list[Leadership]:
        found: list[Leadership] = []
        if self._replication is not None:
            for where in partitions:
                with contextlib.suppress(*_DELETED):
                    found.append(self._replication.leads(*where))
        return found

    def will_end(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        own, others = self._transaction_partitions()
        if any(self._local.will_end_in(where.partition, producer, partition) for where in own):
            return True
        answers = self._asked({where: WillEndTransaction(where, producer, partition) for where in others})
        return any(map(_raised, answers.values()))

    def decision(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> Decision:
        own, others = self._transaction_partitions()
        answers = self._asked({where: FindDecision(where, producer, partition) for where in others})
        found = [self._local.decision_in(where.partition, producer, partition) for where in own]
        found += [Decision(*_raised(answer)) for answer in answers.values()]
        epoch = max((one.coordinator_epoch for one in found), default=0)
        return next((one for one in found if one.producer != producer), Decision(producer, False, epoch))

    def _transaction_partitions(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """The partitions of ``__transaction_state`` that this node leads, and the others."""
        count = 0
        with contextlib.suppress(UnknownTopic):  # no client has had a transactional id
            count = self._metadata.topic(_TRANSACTIONS).partition_count
        each = [TopicPartition(_TRANSACTIONS, number) for number in range(count)]
        return [where for where in each if self._leads(where)], [where for where in each if not self._leads(where)]

    def _asked(self, requests: Mapping[TopicPartition, Request[A]]) -> dict[TopicPartition, A | LogdbError]:
        """The answers of the leaders of partitions."""
        return self._nodes.ask(requests, {where: leader_address(self._metadata, where) for where in requests})

    def _leads(self, where: TopicPartition) -> bool:
        try:
            return self._metadata.partition_state(*where).leader == self._metadata.node_id
        except (UnknownTopic, UnknownPartition):
            return False


def _raised(answer: A | LogdbError) -> A:
    if isinstance(answer, LogdbError):
        raise answer
    return answer
