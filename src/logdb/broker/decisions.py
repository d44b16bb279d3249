"""The decision on an earlier transaction, looked up in ``__transaction_state`` after its coordinator has gone on.

The decision of a transaction has the epoch after that of its records (KIP-890).

A decision is durable before any marker is written, and stays in the log until all of its markers are durable: the
partition is not compacted before everything else is synced (``store.writer``).  It is in force above the high watermark, too: the next
coordinator completes it.
"""

from collections.abc import Iterable
from typing import Protocol

from logdb.broker.transaction_peers import Decision
from logdb.coordinator.records import parse_transaction_value
from logdb.coordinator.transactions import TransactionState
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.store.copy.moment import TransactionStep

_PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_OWN_EPOCHS = 2  # client_version from which on each transaction has an epoch of its own
_PRODUCER_ID_AT = slice(2, 10)


class _Record(Protocol):
    @property
    def value(self) -> bytes | None: ...


def find(partitions: Iterable[tuple[int, Iterable[_Record]]], producer: ProducerIdAndEpoch, partition: TopicPartition) -> Decision:
    """The decision on what ``producer`` has written to ``partition`` under its epoch; without a decision, an abort.

    A client whose epoch stays has several transactions in one epoch.  Their decisions are never looked up: the markers of one are
    synced before the next begins.

    Args:
        partitions: Of ``__transaction_state``: the leader epoch of each, and its records up to the log end.
    """
    wanted, epoch, coordinator_epoch = producer.producer_id.to_bytes(8, "big"), producer.producer_epoch + 1, 0
    for leader_epoch, records in partitions:
        for record in records:
            if record.value is None or record.value[_PRODUCER_ID_AT] != wanted:
                continue
            coordinator_epoch = leader_epoch
            value = parse_transaction_value(record.value)
            if value.producer_epoch == epoch and value.status in _PREPARED and partition in value.partitions:
                commit = value.status == TransactionState.PREPARE_COMMIT
                if commit and value.client_version < _OWN_EPOCHS:
                    continue
                return Decision(ProducerIdAndEpoch(value.producer_id, epoch), commit, coordinator_epoch)
    return Decision(producer, False, coordinator_epoch)


def step_of(value: bytes) -> TransactionStep:
    """What the value of a record of ``__transaction_state`` says; raises InvalidMessage."""
    found = parse_transaction_value(value)
    own_epoch = found.client_version >= _OWN_EPOCHS
    return TransactionStep(found.producer_id, found.producer_epoch, own_epoch, found.status in _PREPARED, found.partitions)
