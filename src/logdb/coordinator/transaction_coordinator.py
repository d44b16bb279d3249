"""The transaction coordinator of one shard: the transactional ids of one partition of ``__transaction_state``.

It checks whether a producer may make a call; the states of a transaction are in ``transactions``.

A commit, in order: SyncPartitions (action) · PrepareCommit (record, synced: the commit point) · WriteMarkers (action) ·
CompleteCommit (record) · the answer.
"""

from collections.abc import Callable
from typing import Any

from logdb.coordinator.effects import ActionDone, ActionFailed, Effects, Reply, StateRecord, Submitted, SyncPartitions, Timer, TimerFired
from logdb.coordinator.records import parse_transaction_key, parse_transaction_value, transaction_key
from logdb.coordinator.transactions import Step, Transaction, TransactionConfig, TransactionState
from logdb.errors import (
    ConcurrentTransactions,
    InvalidProducer,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    LogdbError,
    without_frames,
)
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.requests.transactions import AbortTransaction, AddPartitions, EndTransaction, InitProducerId, TransactionInfo

_SWEEP = ("sweep",)


class TransactionCoordinator:
    """The transactional ids of one partition of ``__transaction_state``.

    Args:
        config: Limits and waits.
        new_producer_id: Returns a producer id that is new in this database, also over restarts.
        coordinator_epoch: The leader epoch of the partition, for the markers.
        epoch_start_offset: First offset of that epoch: a crash, and records that it lost, may lie between earlier records and it.

    Threading: none; see ``effects``.
    """

    def __init__(
        self, config: TransactionConfig, new_producer_id: Callable[[], int], coordinator_epoch: int, epoch_start_offset: int = 0
    ) -> None:
        self._config, self._new_producer_id = config, new_producer_id
        self._coordinator_epoch, self._epoch_start_offset = coordinator_epoch, epoch_start_offset
        self._transactions: dict[str, Transaction] = {}
        self._handlers: dict[type, Callable[[Step, Any], None]] = {
            InitProducerId: self._init,
            AddPartitions: self._add_partitions,
            EndTransaction: self._end,
            AbortTransaction: self._abort,
            ActionDone: self._action_done,
            ActionFailed: self._action_failed,
        }

    # ------------------------------------------------------------ the contract

    def handle(self, event: Any, now_ms: int) -> Effects:
        """The effects of an event; see ``effects.Coordinator``."""
        if event == TimerFired(_SWEEP):
            return self._sweep(now_ms)
        step = Step(self._transactions, self._coordinator_epoch, self._new_producer_id, now_ms)
        try:
            self._handlers.get(type(getattr(event, "request", event)), self._timer)(step, event)
            return step.effects()
        except LogdbError as error:
            if isinstance(event, ActionDone):  # no producer id was available
                raise
            return Effects(replies=(Reply(event.ticket, without_frames(error)),))

    def accept(self, effects: Effects, offset: int) -> None:
        """Change the state by ``effects``: to ``changes``, or, for a tombstone, without the id."""
        for record in effects.records:
            if record.value is None:
                self.apply(record.key, None, offset=offset)
        self._transactions.update(effects.changes)

    def apply(self, key: bytes, value: bytes | None, *, offset: int, producer_id: int = -1) -> None:  # noqa: ARG002  # the contract's
        """One record of the partition; see ``effects.Coordinator``."""
        transactional_id = parse_transaction_key(key)
        if transactional_id is None:
            return
        if value is None:
            self._transactions.pop(transactional_id, None)
        else:
            transaction = Transaction.of(transactional_id, parse_transaction_value(value))
            if offset < self._epoch_start_offset:
                transaction = transaction._replace(cut_off=True)
            self._transactions[transactional_id] = transaction

    def apply_marker(self, producer_id: int, *, commit: bool) -> None:
        """This topic has no control batches."""

    def recover(self, now_ms: int) -> Effects:
        """Complete prepared transactions; abort open ones, now or when they time out."""
        step = Step(self._transactions, self._coordinator_epoch, self._new_producer_id, now_ms)
        for transaction in tuple(self._transactions.values()):
            if transaction.state.prepared:
                step.write_markers(transaction)
            elif transaction.state is TransactionState.ONGOING and self._config.abort_on_recovery:
                step.fence(transaction)
            elif transaction.state is TransactionState.ONGOING:
                left_ms = transaction.start_ms + transaction.timeout_ms - now_ms
                step.timer(("transaction", transaction.transactional_id), min(max(left_ms, 0), transaction.timeout_ms))
        step.timer(_SWEEP, self._config.sweep_interval_ms)
        return step.effects()

    # ------------------------------------------------------------ questions

    def transactions(self) -> list[TransactionInfo]:
        """All transactional ids, in order."""
        return [self.describe(transactional_id) for transactional_id in sorted(self._transactions)]

    def describe(self, transactional_id: str) -> TransactionInfo:
        """One transactional id.

        Raises:
            InvalidProducer: It is unknown.
        """
        transaction = self._known(transactional_id)
        return TransactionInfo(
            transactional_id,
            transaction.state.title,
            transaction.producer,
            transaction.timeout_ms,
            transaction.start_ms,
            tuple(sorted(transaction.partitions)),
        )

    def is_open(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        """Whether a transaction of that producer, on that partition, will get its marker from here.

        If it is False, the log's leader aborts the transaction: the power failed when the log was ahead of this shard.
        """
        return any(
            transaction.producer_id == producer.producer_id
            and producer.producer_epoch <= transaction.last_epoch
            and partition in transaction.partitions
            for transaction in self._transactions.values()
        )

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise InvalidProducer.unknown(transactional_id)
        return transaction

    # ------------------------------------------------------------ requests

    def _init(self, step: Step, event: Submitted[InitProducerId]) -> None:
        if not event.request.transactional_id:
            raise InvalidProducer("a transactional id needs a name")
        timeout_ms = event.request.transaction_timeout_ms
        if not 0 < timeout_ms <= self._config.timeout_ms_max:
            allowed = f"[1, transaction.max.timeout.ms={self._config.timeout_ms_max}]"
            raise InvalidTransactionTimeout(f"transaction_timeout_ms={timeout_ms} is outside of {allowed}")
        step.init(event)

    def _add_partitions(self, step: Step, event: Submitted[AddPartitions]) -> None:
        request, partitions = event.request, frozenset(event.request.partitions)
        transaction = self._known(request.transactional_id)
        transaction.check(request.producer)
        if request.verify_only:
            _check_takes_part(transaction, partitions)
        else:
            step.add(transaction, partitions, deferred=self._config.defer_additions)
        step.reply(event.ticket, None)

    def _end(self, step: Step, event: Submitted[EndTransaction]) -> None:
        request = event.request
        transaction = self._known(request.transactional_id)
        ended = transaction.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
        if ended and transaction.is_repeated_end(request.producer):
            step.end_again(transaction, event.ticket, commit=request.commit)
            return
        transaction.check(request.producer)
        if transaction.state.prepared:
            raise ConcurrentTransactions(f"the last transaction of {request.transactional_id!r} is {transaction.state.title}")
        step.end(transaction, event.ticket, commit=request.commit, bump=request.bump_epoch)

    def _abort(self, step: Step, event: Submitted[AbortTransaction]) -> None:
        transactional_id = event.request.transactional_id
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING or transaction.pending_commit is not None:
            state = "unknown" if transaction is None else transaction.state.title
            raise InvalidTransactionState(f"transactional id {transactional_id!r} is {state}: there is nothing to abort")
        step.fence(step.keep(transaction, waiting=(*transaction.waiting, event)))

    # ------------------------------------------------------------ events of the runner

    def _action_done(self, step: Step, event: ActionDone) -> None:
        transaction = self._asking(event)
        if transaction is None:
            return
        if transaction.pending_commit is not None:
            step.synced(transaction, transaction.pending_commit)
        else:
            step.marked(transaction)

    def _action_failed(self, step: Step, event: ActionFailed) -> None:
        transaction = self._asking(event)
        if transaction is None:
            return
        if transaction.pending_commit is not None:
            step.not_synced(transaction, transaction.pending_commit, event.error)
        else:
            step.not_marked(transaction, event.error)

    def _asking(self, event: ActionDone | ActionFailed) -> Transaction | None:
        """The transaction that asked for the action, if it still waits for it."""
        transaction = self._transactions.get(event.action.transactional_id)
        if transaction is None or transaction.producer != event.action.producer:
            return None
        waits = transaction.pending_commit is not None if isinstance(event.action, SyncPartitions) else transaction.state.prepared
        return transaction if waits else None

    def _timer(self, step: Step, event: TimerFired) -> None:
        kind, transactional_id = event.key
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return
        if kind == "markers" and transaction.state.prepared:
            step.write_markers(transaction)
        elif kind == "transaction" and transaction.state is TransactionState.ONGOING and transaction.pending_commit is None:
            step.fence(transaction)

    def _sweep(self, now_ms: int) -> Effects:
        """Forget ids that have expired; their producers get InvalidProducer."""
        idle = (
            transaction.transactional_id
            for transaction in self._transactions.values()
            if transaction.state is not TransactionState.ONGOING
            and not transaction.state.prepared
            and now_ms - transaction.update_ms >= self._config.expiration_ms
        )
        return Effects(
            records=tuple(StateRecord(transaction_key(transactional_id), None) for transactional_id in sorted(idle)),
            timers=(Timer(_SWEEP, self._config.sweep_interval_ms),),
        )


def _check_takes_part(transaction: Transaction, partitions: frozenset[TopicPartition]) -> None:
    """Raise unless partitions take part in the open transaction.

    Raises:
        ConcurrentTransactions: It is being completed.
        InvalidTransactionState: There is none, or they do not.

    Source: KIP-890.
    """
    if transaction.ends:
        raise ConcurrentTransactions(f"the last transaction of {transaction.transactional_id!r} is {transaction.state.title}")
    taking_part = transaction.partitions if transaction.state is TransactionState.ONGOING else frozenset()
    if others := partitions - taking_part:
        raise InvalidTransactionState(f"{min(others)} takes no part in a transaction of {transaction.transactional_id!r} that is open")
