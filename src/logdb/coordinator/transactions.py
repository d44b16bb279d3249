"""One transactional id: the states of its transactions, their transitions, and their epochs.

A ``Step`` applies one event, and collects records, replies, timers and actions.

::

             add partitions                 end: commit, once its data is synced
    Empty ──────────────────► Ongoing ──────────────────────────────────────────► PrepareCommit ──► CompleteCommit
      ▲   ◄── Complete*  ───►    │                                                      markers written
      │       add partitions     │  end: abort; timeout; a new instance; an administrator
      │                          └──────────────────────────────────────────────► PrepareAbort ───► CompleteAbort
      │  init: a new epoch                                                              markers written   │
      └────────────────────────────────────────────────────────────────────────────────────────◄────────┘

A transaction with a recorded PrepareX is decided: even after failures its markers are written, and CompleteX follows.  Kafka's other
two states are not needed: an id that expires (Dead) is forgotten, and a fence (PrepareEpochFence) is one record, PrepareAbort with
the next epoch.

Epochs.  Each instance has its own, so a new one fences the old.  With ``bump`` (KIP-890 part 2) each transaction has its own
too: PrepareX records the next one, the markers carry it, and the answer gives it to the producer; so no late batch of the
last transaction can become part of the next.  Epoch 32767 is reserved for fencing; after 32766 the id gets a new producer id with
epoch 0.

Source: Kafka's TransactionMetadata and TransactionCoordinator; KIP-98, KIP-360 (an instance goes on after an error), KIP-890.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

from logdb.coordinator.effects import (
    RETRY_MS,
    Action,
    Effects,
    Reply,
    StateRecord,
    Submitted,
    SyncPartitions,
    Timer,
    TimerKey,
    WriteMarkers,
)
from logdb.coordinator.records import TransactionValue, transaction_key, transaction_value
from logdb.errors import ConcurrentTransactions, InvalidMessage, InvalidProducer, InvalidTransactionState, LogdbError, ProducerFenced
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.requests.transactions import AbortTransaction, InitProducerId

EPOCH_MAX = 2**15 - 2
"""The last epoch that a producer gets; the one above it only fences."""


class TransactionState(IntEnum):
    """Kafka's numbers; its 6 (Dead) and 7 (PrepareEpochFence) are never written.

    Attributes:
        prepared: Whether the transaction is decided, and not complete.
        commits: Whether it is decided to commit.
    """

    prepared: bool
    commits: bool

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    def __init__(self, number: int) -> None:
        self.prepared, self.commits = number in (2, 3), number in (2, 4)

    @property
    def title(self) -> str:
        """Kafka's name."""
        return self.name.title().replace("_", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionConfig:
    """Limits and waits; Kafka's keys in parentheses."""

    timeout_ms_max: int = 900_000  # (transaction.max.timeout.ms)
    expiration_ms: int = 604_800_000  # (transactional.id.expiration.ms)
    sweep_interval_ms: int = 3_600_000  # (transaction.remove.expired.transaction.cleanup.interval.ms)
    abort_on_recovery: bool = True  # open transactions; a server whose machine did not stop leaves them to their producers, which still run
    defer_additions: bool = False  # partitions after the first are recorded with the next record, or soon; only with abort_on_recovery


class PendingCommit(NamedTuple):
    """A commit that waits for its partitions to be synced; not recorded yet."""

    bump: bool
    tickets: tuple[int, ...]


Waiting: TypeAlias = Submitted[InitProducerId] | Submitted[AbortTransaction]


class Transaction(NamedTuple):
    """The state of a transactional id.  The fields below ``bump`` are not recorded."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1  # after this transaction is complete; -1: the same
    bump: bool = False  # the last ended transaction had an epoch of its own

    last_producer_epoch: int = -1  # the epoch that the same instance had before (KIP-360)
    pending_commit: PendingCommit | None = None
    end_tickets: tuple[int, ...] = ()
    waiting: tuple[Waiting, ...] = ()  # for the completion of the last transaction
    cut_off: bool = False  # a crash since its last transaction ended may have lost the begin of another

    @staticmethod
    def of(transactional_id: str, value: TransactionValue) -> "Transaction":
        """As it was recorded.

        Raises:
            InvalidMessage: A state that is never written.
        """
        if value.status not in tuple(TransactionState):
            raise InvalidMessage(0, f"transactional id {transactional_id!r} has the state {value.status}")
        complete = value.status in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        return Transaction(
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.timeout_ms,
            state=TransactionState(value.status),
            partitions=value.partitions,
            start_ms=value.start_timestamp_ms,
            update_ms=value.update_timestamp_ms,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            bump=value.client_version >= 2,
            cut_off=complete and value.start_timestamp_ms < 0,
        )

    def record(self) -> StateRecord:
        """As it is recorded."""
        value = TransactionValue(
            self.producer_id,
            self.previous_producer_id,
            self.next_producer_id,
            self.producer_epoch,
            self.timeout_ms,
            int(self.state),
            self.partitions,
            self.update_ms,
            self.start_ms,
            2 if self.bump else 0,
        )
        return StateRecord(transaction_key(self.transactional_id), transaction_value(value))

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def ends(self) -> bool:
        """Whether its end was requested and is not complete."""
        return self.pending_commit is not None or self.state.prepared

    def check(self, producer: ProducerIdAndEpoch) -> None:
        """Raise unless the caller is the current instance.

        Raises:
            InvalidProducer: Another producer id, or a later epoch than the current one.
            ProducerFenced: An older instance.
        """
        producer_id, epoch = producer
        if producer_id != self.producer_id or epoch > self.producer_epoch:
            raise InvalidProducer(
                f"transactional id {self.transactional_id!r} belongs to producer {self.producer_id} with epoch {self.producer_epoch}, "
                f"not to {producer_id} with {epoch}"
            )
        if epoch < self.producer_epoch:
            raise self.fenced(producer)

    def fenced(self, producer: ProducerIdAndEpoch) -> ProducerFenced:
        current_epoch = max(self.producer_epoch, producer.producer_epoch + 1)
        return ProducerFenced(*producer, current_epoch, transactional_id=self.transactional_id)

    def is_repeated_end(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether the request repeats the end of the last transaction, as after a lost answer."""
        if not self.bump:
            return producer == self.producer
        return producer == (self.producer_id, self.producer_epoch - 1) or (
            producer == (self.previous_producer_id, EPOCH_MAX) and self.producer_epoch == 0 and not self.state.prepared
        )

    @property
    def last_epoch(self) -> int:
        """The highest epoch that records of the open or prepared transaction can have."""
        return self.producer_epoch - 1 if self.bump and self.state.prepared else self.producer_epoch

    def markers(self, coordinator_epoch: int) -> WriteMarkers:
        """The action that a prepared transaction asks for."""
        commit = self.state.commits
        return WriteMarkers(self.transactional_id, self.producer, self.partitions, commit, coordinator_epoch, self.last_epoch)


@dataclass(slots=True)
class Step:
    """Applies one event to copies of transactional ids, and collects the effects."""

    _current: Mapping[str, Transaction]
    _coordinator_epoch: int
    _new_producer_id: Callable[[], int]
    _now_ms: int
    _changes: dict[str, Transaction] = field(default_factory=dict)
    _recorded: list[Transaction] = field(default_factory=list)
    _replies: list[Reply] = field(default_factory=list)
    _timers: dict[TimerKey, int | None] = field(default_factory=dict)
    _actions: list[Action] = field(default_factory=list)
    _sync: bool = False
    _deferred: bool = False

    def effects(self) -> Effects:
        return Effects(
            records=tuple(map(Transaction.record, self._recorded)),
            sync=self._sync,
            deferred=self._deferred,
            replies=tuple(self._replies),
            timers=tuple(starmap(Timer, self._timers.items())),
            actions=tuple(self._actions),
            changes=self._changes,
        )

    def get(self, transactional_id: str) -> Transaction | None:
        return self._changes.get(transactional_id) or self._current.get(transactional_id)

    def reply(self, ticket: int, result: Any) -> None:
        self._replies.append(Reply(ticket, result))

    def timer(self, key: TimerKey, delay_ms: int | None) -> None:
        self._timers[key] = delay_ms

    def keep(self, transaction: Transaction, **changes: Any) -> Transaction:
        """Change fields that are not recorded."""
        transaction = transaction._replace(**changes)
        self._changes[transaction.transactional_id] = transaction
        return transaction

    def record(self, transaction: Transaction, *, sync: bool, **changes: Any) -> Transaction:
        """Change recorded fields."""
        transaction = self.keep(transaction, update_ms=self._now_ms, **{"cut_off": False} | changes)
        self._recorded.append(transaction)
        self._sync |= sync
        return transaction

    # ------------------------------------------------------------ init

    def init(self, event: Submitted[InitProducerId]) -> None:
        """A producer takes over its id, once the last transaction has ended."""
        request, transactional_id = event.request, event.request.transactional_id or ""
        transaction = self.get(transactional_id)
        if transaction is None:
            transaction = Transaction(
                transactional_id=transactional_id,
                producer_id=self._new_producer_id(),
                producer_epoch=0,
                timeout_ms=request.transaction_timeout_ms,
            )
            self.reply(event.ticket, self.record(transaction, sync=False).producer)  # this producer id is never assigned again
            return
        _check_goes_on(transaction, request.producer)
        checked = event._replace(request=replace(request, producer=None))  # it fences later producers
        waiting = (*transaction.waiting, checked)
        if transaction.ends:
            self.keep(transaction, waiting=waiting)
        elif transaction.state is TransactionState.ONGOING:
            self.fence(self.keep(transaction, waiting=waiting))
        else:
            self._new_epoch(transaction, event)

    def _new_epoch(self, transaction: Transaction, event: Submitted[InitProducerId]) -> None:
        """Give this instance the next epoch.  Sync: two instances must never share one."""
        producer, epoch = event.request.producer, transaction.producer_epoch
        if producer is not None and producer.producer_epoch == transaction.last_producer_epoch != epoch:
            self.reply(event.ticket, transaction.producer)  # repeated: the answer was lost
            return
        ids = {"producer_id": transaction.producer_id, "producer_epoch": epoch + 1}
        if epoch >= EPOCH_MAX:
            ids = {"producer_id": self._new_producer_id(), "producer_epoch": 0}
        transaction = self.record(
            transaction,
            sync=True,
            **ids,
            previous_producer_id=transaction.producer_id,
            last_producer_epoch=epoch if producer is not None else -1,
            timeout_ms=event.request.transaction_timeout_ms,
            state=TransactionState.EMPTY,
            start_ms=-1,
            bump=False,
        )
        self.reply(event.ticket, transaction.producer)

    # ------------------------------------------------------------ begin

    def add(self, transaction: Transaction, partitions: frozenset[TopicPartition], *, deferred: bool) -> None:
        """Partitions take part; the first ones begin the transaction, unless it may have begun before a crash: then its
        records were aborted, and later ones must not be committed alone.

        Args:
            deferred: The record of partitions after the first may wait.  A crash that takes it aborts the transaction: its begin is
                recorded, and the logs of the other partitions have it open.
        """
        if transaction.ends:
            raise ConcurrentTransactions(f"the last transaction of {transaction.transactional_id!r} is {transaction.state.title}")
        begins = transaction.state is not TransactionState.ONGOING
        if partitions <= (frozenset() if begins else transaction.partitions):
            return
        if begins and transaction.cut_off:
            raise transaction.fenced(transaction.producer)
        if begins:
            self.timer(("transaction", transaction.transactional_id), transaction.timeout_ms)
            transaction = transaction._replace(partitions=frozenset(), start_ms=self._now_ms, state=TransactionState.ONGOING)
        self.record(transaction, sync=False, partitions=transaction.partitions | partitions)
        self._deferred = deferred and not begins

    # ------------------------------------------------------------ end

    def end(self, transaction: Transaction, ticket: int, *, commit: bool, bump: bool) -> None:
        """The current instance ends its transaction; or it has asked for that before."""
        if transaction.pending_commit is not None:
            if not commit:
                raise _refused(transaction, "aborted")
            tickets = (*transaction.pending_commit.tickets, ticket)
            self.keep(transaction, pending_commit=transaction.pending_commit._replace(tickets=tickets))
        elif transaction.state is not TransactionState.ONGOING and (commit or not bump):
            raise _refused(transaction, "committed" if commit else "aborted")
        elif commit:
            self.keep(transaction, pending_commit=PendingCommit(bump, (ticket,)))
            self._actions.append(SyncPartitions(transaction.transactional_id, transaction.producer, transaction.partitions))
        else:  # aborted records need no sync; a transaction with an epoch of its own ends even without partitions
            self.prepare(self.keep(transaction, end_tickets=(ticket,)), commit=False, bump=bump)

    def end_again(self, transaction: Transaction, ticket: int, *, commit: bool) -> None:
        """The request repeats the end of the last transaction: give the same answer, once it is known.  If the epoch stays,
        the request may, after a crash, end another transaction, which is lost.
        """
        if transaction.state.commits != commit:
            raise _refused(transaction, "committed" if commit else "aborted")
        if transaction.cut_off and not transaction.bump and not transaction.state.prepared:
            raise transaction.fenced(transaction.producer)
        if transaction.state.prepared:
            self.keep(transaction, end_tickets=(*transaction.end_tickets, ticket))
        else:
            self.reply(ticket, self.keep(transaction, cut_off=False).producer)  # it has begun no transaction since

    def fence(self, transaction: Transaction) -> None:
        """Abort an open transaction, and fence its instance by the next epoch."""
        self.prepare(transaction, commit=False, bump=False, producer_epoch=transaction.producer_epoch + 1)

    def prepare(self, transaction: Transaction, *, commit: bool, bump: bool, **changes: Any) -> None:
        """Decide.  Sync: the decision is durable before any marker."""
        epoch = transaction.producer_epoch
        if bump:
            changes = {"producer_epoch": epoch + 1, "next_producer_id": self._new_producer_id() if epoch >= EPOCH_MAX else -1}
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        partitions = transaction.partitions if transaction.state is TransactionState.ONGOING else frozenset()
        start_ms = transaction.start_ms if transaction.state is TransactionState.ONGOING else self._now_ms
        transaction = self.record(
            transaction, sync=True, state=state, partitions=partitions, start_ms=start_ms, bump=bump, pending_commit=None, **changes
        )
        self.timer(("transaction", transaction.transactional_id), None)
        self._actions.append(transaction.markers(self._coordinator_epoch))

    def synced(self, transaction: Transaction, commit: PendingCommit) -> None:
        """The partitions of a commit are synced."""
        self.prepare(self.keep(transaction, end_tickets=commit.tickets), commit=True, bump=commit.bump)

    def not_synced(self, transaction: Transaction, commit: PendingCommit, error: LogdbError) -> None:
        """The transaction is still open; its producer may ask again."""
        for ticket in commit.tickets:
            self.reply(ticket, error)
        left_ms = transaction.start_ms + transaction.timeout_ms - self._now_ms
        self.timer(("transaction", transaction.transactional_id), min(max(left_ms, RETRY_MS), transaction.timeout_ms))
        self._answer_waiting(self.keep(transaction, pending_commit=None), error)

    def write_markers(self, transaction: Transaction) -> None:
        """Ask for the markers of a prepared transaction (again).  Sync: the writer of the decision may have been killed before its sync."""
        self._sync = True
        self._actions.append(transaction.markers(self._coordinator_epoch))

    def marked(self, transaction: Transaction) -> None:
        """All markers are written: the transaction is complete, and the waiting requests go on.

        Sync if the next transaction has the same epoch: if this record were lost, the markers would be repeated, and end the next
        transaction.  Otherwise repeated markers do no harm, and the record is deferred to that of the next transaction.
        """
        tickets, waiting = transaction.end_tickets, transaction.waiting
        changes: dict[str, Any] = {"last_producer_epoch": -1}
        if transaction.cut_off and transaction.bump and not tickets:
            changes |= {"cut_off": True, "start_ms": -1}  # a later restart reads this
        if transaction.next_producer_id >= 0:
            changes |= {"producer_id": transaction.next_producer_id, "producer_epoch": 0}
        state = TransactionState.COMPLETE_COMMIT if transaction.state.commits else TransactionState.COMPLETE_ABORT
        transaction = self.record(
            transaction,
            sync=not transaction.bump,
            **changes,
            previous_producer_id=transaction.producer_id,
            next_producer_id=-1,
            state=state,
            partitions=frozenset(),
            end_tickets=(),
            waiting=(),
        )
        self._deferred = transaction.bump and not waiting
        for ticket in tickets:
            self.reply(ticket, transaction.producer)
        for event in waiting:
            try:
                self.reply(event.ticket, None) if isinstance(event.request, AbortTransaction) else self.init(event)
            except LogdbError as error:
                self.reply(event.ticket, error)

    def not_marked(self, transaction: Transaction, error: LogdbError) -> None:
        """The decision stays: the markers are tried again."""
        for ticket in transaction.end_tickets:
            self.reply(ticket, error)
        self.timer(("markers", transaction.transactional_id), RETRY_MS)
        self._answer_waiting(self.keep(transaction, end_tickets=()), error)

    def _answer_waiting(self, transaction: Transaction, error: LogdbError) -> None:
        for event in transaction.waiting:
            self.reply(event.ticket, error)
        self.keep(transaction, waiting=())


def _check_goes_on(transaction: Transaction, producer: ProducerIdAndEpoch | None) -> None:
    """Raise unless an instance may go on with a new epoch (KIP-360): it is the current one, or it was before a lost answer.

    Raises:
        ProducerFenced: Another instance has taken over.
    """
    if producer is None:
        return
    taken_over = any(isinstance(event.request, InitProducerId) for event in transaction.waiting)
    last_id = transaction.producer_id if transaction.producer_epoch > 0 else transaction.previous_producer_id
    was = transaction.last_producer_epoch >= 0 and producer == (last_id, transaction.last_producer_epoch)
    ended = transaction.bump and transaction.is_repeated_end(producer)  # only this instance can have ended it so
    if taken_over or not (was or ended or producer == transaction.producer):
        raise transaction.fenced(producer)


def _refused(transaction: Transaction, done: str) -> InvalidTransactionState:
    state = "being committed" if transaction.pending_commit is not None else transaction.state.title
    return InvalidTransactionState(f"the transaction of {transaction.transactional_id!r} is {state}: it cannot be {done}")
