"""Transactions: records of several partitions, and a consumer's offsets, all or nothing.

This module has the states of a transactional producer, and moves consumers back whose offsets were aborted.  The session ends
transactions.

A transactional producer:

                            begin                       commit, abort
    idle ──────────────────► in transaction ───────────────► idle
     │                          │      │ a record failed
     │                          │      └────────────► to be aborted ── abort ──► idle
     └──────────────────────────┴── fenced, at any call; closed ───────► of no further use

``Transaction`` is the same as a context manager.  ``IdleProducers`` keeps the idle producers of a database, so that
``db.transaction("id")`` in a loop fences the id's former producer once, not every time.

Threading: one thread at a time begins and ends; any thread may send in between, and any may close.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from logdb.client.producer.producer import Headers, OnDelivery, Producer
from logdb.errors import Closed, InvalidTransactionState, LogdbError, ProducerFenced, TransactionAborted
from logdb.handles import Handle
from logdb.mistakes import must_be
from logdb.model import Duration, OffsetAndMetadata, ProducerIdAndEpoch, Timestamp, TopicPartition
from logdb.requests.session import Session
from logdb.signatures import readable
from logdb.threads import renewed

if TYPE_CHECKING:
    from logdb.client.consumer.consumer import Consumer
    from logdb.client.consumer.membership import GroupMetadata
    from logdb.codec import SendFuture

logger = logging.getLogger(__name__)

_IDLE_COUNT_MAX = 16  # producers kept; each has a thread


@readable
class TransactionalProducer(Producer):
    """A producer whose records become visible when their transaction is committed.

    Made by ``Database.producer`` with a ``transactional_id``.  A newer producer of the same id fences this one.
    """

    def __init__(self, session: Session, *, transactional_id: str, **options: Any) -> None:
        if not isinstance(transactional_id, str):
            raise TypeError(must_be("transactional_id", transactional_id, "a str"))
        if not options.get("enable_idempotence", True):
            raise ValueError("enable_idempotence=False: a producer with a transactional_id is always idempotent")
        super().__init__(session, transactional_id=transactional_id, **options)
        self._id = transactional_id
        self._identity: ProducerIdAndEpoch | None = None
        self.in_transaction = self._has_offsets = self._given_up = False
        self._commit_sent = False  # all of the transaction is written, and its commit may be decided
        self._fenced: ProducerFenced | None = None
        self._closed = False
        self._ending = renewed(threading.RLock())  # its holder decides how the transaction ends
        self._consumers: list[Consumer] = []  # whose offsets are part of the transaction

    @property
    def id(self) -> str:
        """The transactional id."""
        return self._id

    @property
    def usable(self) -> bool:
        """Whether the next transaction can begin."""
        return not (self.in_transaction or self._fenced or self._given_up or self._closed)

    def init_transactions(self) -> None:
        """Claim the transactional id: its former producer is fenced, and the transaction that it left open is aborted.

        ``begin_transaction`` calls it if necessary.

        Raises:
            InvalidTransactionTimeout: ``transaction_timeout_ms`` is not allowed.
        """
        if self._identity is None:
            self._identity = self._session.init_producer_id(self._id, transaction_timeout_ms=self.transaction_timeout_ms)

    def begin_transaction(self) -> None:
        """Begin: records sent from now on become visible with the commit.

        Raises:
            InvalidTransactionState: A transaction has already begun.
            ProducerFenced: Another producer has the transactional id now.
            Closed: The producer was closed.
        """
        self._check_usable()
        if self.in_transaction:
            raise InvalidTransactionState(f"transactional id {self._id!r}: a transaction has already begun")
        self.init_transactions()
        self._begin_transaction(self._known())
        self.in_transaction, self._has_offsets, self._commit_sent = True, False, False

    def send_offsets(self, consumer: "Consumer") -> None:
        """Commit the position of ``consumer`` with the transaction, instead of by ``consumer.commit``.

        After an abort, the consumer goes back to its last committed offsets.

        Raises:
            IllegalGeneration, UnknownMember, FencedInstance: The group was rebalanced, or the consumer replaced, after it got
            the records: abort.
            TopicDeleted: A topic that the consumer has read was deleted and created again: abort.
            InvalidGroup: The consumer has no group.
            InvalidTransactionState, ProducerFenced: as ``commit_transaction``.
        """
        self._check_begun()
        group_metadata = consumer.group_metadata()
        if consumer not in self._consumers:
            self._consumers.append(consumer)
        self.send_offsets_to_transaction(consumer.positions(), group_metadata)

    def send_offsets_to_transaction(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: "GroupMetadata") -> None:
        """As ``send_offsets``, with given offsets.

        Args:
            group_metadata: ``consumer.group_metadata()`` of the consumer that read up to them.
        """
        self._check_begun()
        if offsets:
            self._has_offsets = True
            try:
                self._session.commit_transaction_offsets(
                    self._id,
                    self._known(),
                    group_metadata.group_id,
                    offsets,
                    member_id=group_metadata.member_id,
                    generation=group_metadata.generation,
                    group_instance_id=group_metadata.group_instance_id,
                    topic_ids=group_metadata.topic_ids,
                )
            except LogdbError as error:
                self._note_fence(error)
                raise

    def commit_transaction(self) -> None:
        """Commit; when this returns, consumers with isolation level ``read_committed`` see the whole transaction.

        Raises:
            the error of the first of its records that was not written: abort.
            ProducerFenced: Another producer has the id; the transaction was aborted.
            InvalidTransactionState: No transaction has begun.
            Closed: The producer was closed before the commit was decided; the transaction was aborted.
            LogdbError: The commit failed otherwise (a full disk, for example): call again, or abort.
        """
        self._check_begun()
        try:
            if not self._commit_sent:  # else an abort may have been refused since: it has dropped nothing
                self._finish_transaction()
            with self._ending:
                self._check_begun()
                self._commit_sent = True
                self._end(commit=True)
                self._over(committed=True)
        except (InvalidTransactionState, TransactionAborted) as error:
            if self._closed:
                raise Closed("the producer was closed before its transaction was committed: the transaction was aborted") from error
            raise
        except LogdbError as error:
            self._note_fence(error)
            raise

    def abort_transaction(self) -> None:
        """Abort: the transaction's records stay invisible, and those that are not written yet are dropped.

        Raises:
            ProducerFenced, InvalidTransactionState, Closed: as ``commit_transaction``.
        """
        with self._ending:
            self._check_begun()
            self._drop_transaction(TransactionAborted(f"the transaction of {self._id!r} was aborted"))
            try:
                self._end(commit=False)
            except LogdbError as error:
                self._note_fence(error)
                raise
            self._over(committed=False)

    def give_up(self) -> None:
        """Give up a transaction that can be neither committed nor aborted now; the next producer of the id ends it.

        Its consumers go back to the offsets committed by then; this producer is of no further use.
        """
        self._given_up = True
        self._over(committed=False)

    def close(self, timeout_ms: Duration | None = None) -> None:
        """Abort an open transaction, then end; waits for another thread that is committing it.

        Raises:
            LogdbError: See ``Producer.close``.
        """
        self._closed = True
        try:
            if os.getpid() == self._owner:
                with self._ending, contextlib.suppress(ProducerFenced):  # then the newer producer has ended the transaction
                    if self.in_transaction:
                        self.abort_transaction()
        finally:
            super().close(timeout_ms)

    def _over(self, *, committed: bool) -> None:
        """After an abort: consumers whose offsets were part of it go back to their group's committed offsets."""
        consumers, self._consumers, self.in_transaction = self._consumers, [], False
        if not committed:
            for consumer in consumers:
                consumer.seek_to_committed()

    def _known(self) -> ProducerIdAndEpoch:
        assert self._identity is not None, "the id was taken over when the transaction began"
        return self._identity

    def _end(self, *, commit: bool) -> None:
        """Tell the session of the abort, if anything of the transaction was sent there."""
        if self._has_offsets or self._sender.has_stamped:
            self._identity = self._session.end_transaction(self._id, self._known(), commit=commit)

    def _check_begun(self) -> None:
        if not self.in_transaction:
            self._check_usable()
            raise InvalidTransactionState(f"transactional id {self._id!r}: no transaction has begun")

    def _check_usable(self) -> None:
        if self._fenced is not None:
            raise self._fenced.with_traceback(None)
        if self._closed:
            raise Closed("the producer is closed")

    def _refuse(self, reason: int) -> None:
        if os.getpid() == self._owner:
            self._check_usable()  # a close ends the transaction first
        super()._refuse(reason)

    def _note_fence(self, error: LogdbError) -> None:
        """A fenced producer's transaction is over: the newer producer's id has ended it."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ProducerFenced):
            cause = cause.__cause__
        if cause is not None:
            self._fenced = cause
            self._over(committed=False)


@readable
class Transaction(Handle):
    """One transaction as a context manager: committed at the end of the block, aborted when an exception leaves it.

    Made by ``Database.transaction``.
    """

    def __init__(
        self, transactional_id: str, take: Callable[[], TransactionalProducer], give_back: Callable[[TransactionalProducer], None]
    ) -> None:
        self._id, self._take, self._give_back = transactional_id, take, give_back
        self._producer: TransactionalProducer | None = None

    def __repr__(self) -> str:
        return f"<Transaction {self._id!r}{' begun' if self._producer is not None else ''}>"

    def __enter__(self) -> Self:
        if self._producer is not None:
            raise InvalidTransactionState("the transaction has already begun")
        producer = self._take()
        try:
            producer.begin_transaction()
        except BaseException:
            self._give_back(producer)
            raise
        self._producer = producer
        self.__dict__["send"] = producer.send  # the method in C, without a Python frame per record
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        producer, self._producer = self._begun(), None
        del self.__dict__["send"]
        try:
            if error is None:
                self._commit(producer)
            else:
                self._abort(producer, error)
        finally:
            self._give_back(producer)

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: Timestamp | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> "SendFuture":
        """Send a record as part of the transaction; see ``Producer.send``."""
        return self._begun().send(
            topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms, on_delivery=on_delivery
        )

    def send_offsets(self, consumer: "Consumer") -> None:
        """Commit the position of ``consumer`` with the transaction; see ``TransactionalProducer.send_offsets``."""
        self._begun().send_offsets(consumer)

    def would_wait(self, topic: str) -> bool:
        """As ``Producer.would_wait``."""
        return self._begun().would_wait(topic)

    def flush(self, timeout_ms: Duration | None = None) -> None:
        """Return when everything sent so far is written (and still part of the open transaction)."""
        self._begun().flush(timeout_ms)

    def _begun(self) -> TransactionalProducer:
        if self._producer is None:
            raise InvalidTransactionState("no transaction has begun: use it in a with statement")
        return self._producer

    def _commit(self, producer: TransactionalProducer) -> None:
        try:
            producer.commit_transaction()
        except BaseException as error:
            self._abort(producer, error)
            raise

    def _abort(self, producer: TransactionalProducer, error: BaseException) -> None:
        """Abort because of ``error``, which is raised; a failure of the abort becomes a note on it."""
        if not producer.in_transaction:
            return
        try:
            producer.abort_transaction()
        except Closed:
            producer.give_up()  # close has aborted it, or the next producer of the id does
        except LogdbError as failure:
            error.add_note(f"and the transaction could not be aborted: {failure}")
            producer.give_up()


class IdleProducers:
    """The idle producers of a database, by transactional id.

    Threading: any thread.  A second thread that uses an id at the same time gets another producer, which fences the first.
    """

    def __init__(self, make: Callable[..., TransactionalProducer]) -> None:
        self._make = make
        self._idle: dict[str, tuple[TransactionalProducer, dict[str, Any]]] = {}  # oldest first
        self._lock = renewed(threading.Lock())
        self._closed = False

    def transaction(self, transactional_id: str, options: dict[str, Any]) -> Transaction:
        """A transaction that begins when its block is entered."""
        return Transaction(transactional_id, partial(self._take, transactional_id, options), partial(self._give_back, options))

    def close(self) -> None:
        """Close all producers, and keep none from now on."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, {}, True
        for producer, _ in idle.values():
            _close(producer)

    def _take(self, transactional_id: str, options: dict[str, Any]) -> TransactionalProducer:
        with self._lock:
            producer, made_with = self._idle.pop(transactional_id, (None, None))
        if producer is not None and made_with == options:
            return producer
        if producer is not None:
            _close(producer)
        return self._make(transactional_id=transactional_id, **options)

    def _give_back(self, options: dict[str, Any], producer: TransactionalProducer) -> None:
        with self._lock:
            surplus: TransactionalProducer | None = producer
            if producer.usable and producer.id not in self._idle and not self._closed:
                self._idle[producer.id] = (producer, options)
                surplus = self._idle.pop(next(iter(self._idle)))[0] if len(self._idle) > _IDLE_COUNT_MAX else None
        if surplus is not None:
            _close(surplus)


def _close(producer: TransactionalProducer) -> None:
    try:
        producer.close()
    except LogdbError as error:  # the next producer of the id ends the transaction
        logger.debug("closing a producer: %s", error)
