"""The parties of a transaction on a single node: it leads all partitions, and has all coordinators."""

from collections.abc import Iterator

from logdb.broker import decisions
from logdb.broker.marker_writer import MarkerWriter
from logdb.broker.replay import records
from logdb.broker.runner import Shard
from logdb.broker.shards import Shards
from logdb.broker.transaction_peers import Decision
from logdb.coordinator.group_coordinator import GroupCoordinator
from logdb.coordinator.transaction_coordinator import TransactionCoordinator
from logdb.errors import NotCoordinator
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.store.protocols import Storage


class LocalPeers:
    """``TransactionPeers`` within one broker.  ``markers`` writes the markers of the partitions that this node leads."""

    def __init__(self, storage: Storage, groups: Shards[GroupCoordinator], transactions: Shards[TransactionCoordinator]) -> None:
        self._transactions = transactions
        self.markers = MarkerWriter(storage, self, groups)
        self.sync, self.write_markers = self.markers.sync, self.markers.write

    def will_end(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        return any(shard.query(lambda coordinator: coordinator.is_open(producer, partition)) for shard in self._all_transactions())

    def decision(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> Decision:
        logs = (shard.log for shard in self._all_transactions())
        return decisions.find(((log.leader_epoch, records(log)) for log in logs), producer, partition)

    def will_end_in(self, number: int, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """``will_end`` as far as one partition of ``__transaction_state`` says; raises NotCoordinator."""
        return self._transactions.at(number).query(lambda coordinator: coordinator.is_open(producer, partition))

    def decision_in(self, number: int, producer: ProducerIdAndEpoch, partition: TopicPartition) -> Decision:
        """``decision`` as far as one partition of ``__transaction_state`` says; raises NotCoordinator."""
        log = self._transactions.at(number).log
        return decisions.find([(log.leader_epoch, records(log))], producer, partition)

    def _all_transactions(self) -> Iterator[Shard[TransactionCoordinator]]:
        """The shards of transactions, one after the other; a transaction that is found in one needs no look at the others.

        Raises:
            NotCoordinator: At the end, if this node does not coordinate all of them: another node's may have the transaction.
        """
        absent: NotCoordinator | None = None
        for number in self._transactions.partitions():
            try:
                shard = self._transactions.at(number)
            except NotCoordinator as error:
                absent = error
            else:
                yield shard
        if absent is not None:
            raise absent
