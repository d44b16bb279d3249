"""Writes the records that a producer accepted, in a thread of its own, and sets the results of their futures.

Keeps the order of deliveries, the memory limit, retries and deadlines.

    open ──► sealed (full, linger_ms over, flush) ──► produced ──► settled ──► called back ──► finished
                             ▲                           │
                             └── a retriable error ──────┘   until delivery_timeout_ms

Only the oldest delivery of a partition is tried, each time with the same bytes and the same sequence: so the order is kept, and the
log recognises a duplicate.  Those of a transaction are tried together.  When a delivery fails finally, it is unknown whether the log
has it; later records are sent under a new producer id, or, in a transaction, not at all.

Threading: ``lock`` guards all state.  The session and callbacks are called without it, by one thread at a time: the sender's, or
one that commits while that is idle.

Interruption: an exception of a signal handler (Ctrl-C) may leave the application's thread at any call, never between two statements
that call nothing.  So a step that must be whole calls nothing, or undoes itself, or is done again by the sender's thread.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from logdb import codec
from logdb.client.producer.accumulator import Accumulator, Delivery
from logdb.codec import convert
from logdb.errors import BufferExhausted, Closed, DeliveryTimeout, LogdbError, TransactionAborted, without_frames
from logdb.io import IO
from logdb.model import Buffer, ProducerIdAndEpoch, TopicPartition
from logdb.requests.session import Session
from logdb.threads import renewed, started

logger = logging.getLogger(__name__)

_NEVER_MS = 2**62
_NOWHERE = range(-1, -1)  # the offsets of a delivery that was not written


@dataclass(frozen=True, kw_only=True)
class SenderOptions:
    """How a producer delivers; see ``ProducerOptions``."""

    acknowledged: bool
    idempotent: bool
    linger_ms: int
    codec: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    transactional_id: str | None


class Sender:
    """Writes the content of accumulators, in a thread that starts with the first record."""

    def __init__(self, session: Session, options: SenderOptions, io: IO, name: str, clock_ms: Callable[[], int] | None = None) -> None:
        self.lock = renewed(threading.RLock())
        self._freed = renewed(threading.Condition(self.lock))  # memory was freed
        self._finished = renewed(threading.Condition(self.lock))  # an awaited delivery is finished
        self._work = renewed(threading.Condition(self.lock))  # the thread waits for it, or two: a Ctrl-C in their start hides the first
        self._wake_ms = 0  # when the thread wakes by itself; 0: it is working
        self._has_begun = False  # a delivery has begun since the thread last checked
        self._session, self._options, self._io, self._name = session, options, io, name
        self._clock_ms = clock_ms or io.clock_ms
        self._active: dict[Accumulator, None] = {}  # the accumulators with records
        self._memory_used = 0
        self._hurried = 0  # threads that wait in flush
        self._thread: threading.Thread | None = None
        self._sending: int | None = None  # the ident of the thread that is writing
        self._stopping = False
        self._given_up: LogdbError | None = None  # deliveries that are not written yet fail with it
        self._failure: BaseException | None = None  # of the first record that failed since the last flush
        self._producer: ProducerIdAndEpoch | None = None  # for deliveries that are encoded from now on
        self.has_stamped = False  # a delivery was encoded since the transaction began

    # ------------------------------------------------------------ memory

    def has_room(self, size_bytes: int) -> bool:
        """Whether there is memory for a delivery of that size now."""
        return self._memory_used + size_bytes <= self._options.buffer_memory

    def begin(self, accumulator: Accumulator, size_bytes: int) -> Delivery | None:
        """A new delivery, once there is memory for it; see ``DeliverySource``.  With ``lock`` held.

        Raises:
            BufferExhausted: There was no memory within ``max_block_ms``.
            Closed: The producer was closed meanwhile.
        """
        if self._reserve(size_bytes) and accumulator.opened_ms is not None:
            self._release(size_bytes)
            return None
        try:
            self._ensure_thread()
            now, self._io.stamped_ms = self._io.monotonic_ms(), max(self._io.stamped_ms, self._clock_ms())
            delivery = Delivery(*accumulator.partition, now, self._options.acknowledged)
            self._wake(0 if accumulator.ready else now + self._options.linger_ms)
        except BaseException:  # also a Ctrl-C
            self._release(size_bytes)
            raise
        self._active[accumulator], self._has_begun = None, True  # calls nothing until the accumulator has the delivery
        return delivery

    def _ensure_thread(self) -> None:
        """Start the thread, or another one in place of a dead one; with ``lock`` held."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = started(self._name, self._run)

    def _wake(self, at_ms: int) -> None:
        """Wake the thread at that time; with ``lock`` held."""
        if at_ms < self._wake_ms:
            self._work.notify_all()

    def _reserve(self, size_bytes: int) -> bool:
        """Take memory; returns whether it waited for it, without the lock."""
        options, until = self._options, None
        while not self._stopping and self._memory_used + size_bytes > options.buffer_memory:
            now = self._io.monotonic_ms()
            until = now + options.max_block_ms if until is None else until
            # the sender's own thread would wait for itself, and a delivery larger than the whole memory forever
            if now >= until or self._sending == threading.get_ident() or size_bytes > options.buffer_memory:
                raise BufferExhausted(size_bytes, options.buffer_memory, options.max_block_ms)
            self._freed.wait((until - now) / 1000)
        if self._stopping:
            raise Closed("the producer is closed")
        self._memory_used += size_bytes
        return until is not None

    def _release(self, size_bytes: int) -> None:
        self._memory_used -= size_bytes
        if self._memory_used <= self._options.buffer_memory * 3 // 4:  # a wake-up for each freed buffer would cost too much
            self._freed.notify_all()

    # ------------------------------------------------------------ flush, transactions, the end

    def flush(self, timeout_ms: int | None) -> int:
        """Write everything that waits now; returns the number of records that still wait when the time is over.

        Raises:
            the error of the first record since the last flush that was not written.
        """
        with self.lock:
            self._check_thread("flush()")
            self._hurried += 1
            try:
                waited = self._wait_for(self._seal_all(), timeout_ms)
            finally:
                self._hurried -= 1
            if (failure := self.take_failure()) is not None:
                raise failure.with_traceback(None)
            return 0 if waited else self._left()

    def begin_transaction(self, producer: ProducerIdAndEpoch) -> None:
        """Records from now on belong to the transaction of ``producer``; their sequences begin at 0."""
        with self.lock:
            if self._active:  # buffers opened for records that then came too late
                self._wait_for(self._seal_all(), None)
                assert not self._left(), f"{self._left()} records of the transaction before this one are not written"
            self._producer, self._given_up, self._failure, self.has_stamped = producer, None, None, False

    def finish_transaction(self) -> None:
        """Write everything that waits; no more records come.

        Raises:
            the error of the first record of the transaction.
        """
        self._send_here()
        if self._active or self._failure is not None:
            self.flush(None)
        if self._given_up is not None:
            raise self._given_up

    def drop(self, error: LogdbError) -> None:
        """Fail all deliveries that are not written yet with ``error``; returns when none is left."""
        with self.lock:
            self._check_thread("an abort")
            self._given_up = error
            self._hurried += 1
            try:
                self._wait_for(self._seal_all(), None)
            finally:
                self._hurried -= 1
            self._failure = None

    def stop(self, timeout_ms: int | None) -> int:
        """Write everything that waits, then end; returns the number of records given up when the time was over."""
        with self.lock:
            self._stopping = True
            self._freed.notify_all()  # threads that wait for memory must see the close
            last = self._seal_all()
            if self._sending == threading.get_ident():
                return 0  # a callback closes its producer: the thread ends when everything is written
            lost = 0 if self._wait_for(last, timeout_ms) else self._left()
            if lost and self._given_up is None:
                self._given_up = Closed(f"the producer was closed: the record was not written within timeout_ms={timeout_ms}")
            self._wake(0)
        if self._thread is not None and not lost:
            self._thread.join()
        return lost

    def take_failure(self) -> BaseException | None:
        """Return and clear the error of the first record since the last flush."""
        failure, self._failure = self._failure, None
        return failure

    def _left(self) -> int:
        return sum(accumulator.record_count for accumulator in self._active)

    def _check_thread(self, what: str) -> None:
        if self._sending == threading.get_ident():
            raise RuntimeError(f"{what} was called by a callback of the producer, and would wait for itself")

    def _seal_all(self) -> list[Delivery]:
        """Seal the open buffers; returns the last delivery of each partition."""
        last = [accumulator.seal() for accumulator in self._active]
        if last:
            self._wake(0)
        return [delivery for delivery in last if delivery is not None]

    def _wait_for(self, deliveries: list[Delivery], timeout_ms: int | None) -> bool:
        """Wait until these deliveries are finished; False if the time is over first."""
        until = None if timeout_ms is None else self._io.monotonic_ms() + timeout_ms
        if deliveries:
            self._ensure_thread()
        for delivery in deliveries:
            delivery.awaited = True
            while not delivery.finished:
                now = self._io.monotonic_ms()
                if until is not None and now >= until:
                    return False
                self._finished.wait(None if until is None else (until - now) / 1000)
        return True

    # ------------------------------------------------------------ sending

    def _run(self) -> None:
        with self.lock:
            if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
                return  # a Ctrl-C came out of the start of this thread, and another one was started
            self._thread = threading.current_thread()
        while due := self._due():
            if self._options.transactional_id is not None:
                self._send_together(due)
            else:
                for accumulator in due:
                    self._send(accumulator)

    def _send_here(self) -> None:
        """Write in the calling thread, unless another thread is writing.

        Handing a small transaction to the sender's thread takes longer than writing it.  Retries are left to that thread.
        """
        self._check_thread("a commit")
        me = threading.get_ident()
        try:
            with self.lock:
                if self._sending is not None:
                    return
                self._sending = me
                for accumulator in self._active:
                    accumulator.seal()
                due = list(self._active)
            while due := [accumulator for accumulator in due if accumulator.ready and not accumulator.retry_at_ms]:
                self._send_together(due)
        finally:  # also after a Ctrl-C, which leaves the rest to the thread
            with self.lock:
                if self._sending == me:
                    self._sending = None
                    if self._active or self._stopping:
                        self._work.notify_all()
                    self._finished.notify_all()

    def _due(self) -> list[Accumulator]:
        """Wait for accumulators with something to write; empty: everything is written and no more comes."""
        with self.lock:
            if self._sending == threading.get_ident():
                self._sending = None
            while True:
                if self._sending is not None:
                    self._wait_for_work(self._idle_ms())
                    continue
                now = self._io.monotonic_ms()
                times = {accumulator: self._due_ms(accumulator) for accumulator in self._active}
                due = [accumulator for accumulator, at in times.items() if at <= now]
                for accumulator in due:
                    if not accumulator.ready or accumulator.ready[0] is accumulator._open:
                        accumulator.seal()
                if due or (self._stopping and not times):
                    self._sending = threading.get_ident() if due else None
                    return due
                self._freed.notify_all()  # no more memory will be freed for now
                self._wait_for_work(min(times.values()) - now if times else self._idle_ms())

    def _idle_ms(self) -> int | None:
        """How long an idle thread waits.

        After recent deliveries, only until the next one could be due: so many small transactions need not wake the thread one by one.
        """
        has_begun, self._has_begun = self._has_begun, False
        return self._options.linger_ms or None if has_begun else None

    def _wait_for_work(self, wait_ms: int | None) -> None:
        """Wait until there may be work; with ``lock`` held."""
        self._wake_ms = _NEVER_MS if wait_ms is None else self._io.monotonic_ms() + wait_ms
        self._work.wait(None if wait_ms is None else wait_ms / 1000)
        self._wake_ms = 0

    def _due_ms(self, accumulator: Accumulator) -> int:
        if accumulator.ready:
            return 0 if self._given_up is not None else accumulator.retry_at_ms
        opened_ms = accumulator.opened_ms or 0
        return opened_ms if self._hurried or self._stopping else opened_ms + self._options.linger_ms

    def _send(self, accumulator: Accumulator) -> None:
        """Try, fail or postpone the oldest delivery of a partition."""
        delivery, now = accumulator.ready[0], self._io.monotonic_ms()
        try:
            offsets = range(0)
            if delivery.outcome is None:
                self._check(delivery, now)
                offsets = self._produce(accumulator, delivery)
        except Exception as error:  # noqa: BLE001 -- any error: the futures get it, and the thread continues
            self._fail(accumulator, delivery, error, now)
        else:
            self._finish(accumulator, delivery, offsets, None)

    def _send_together(self, accumulators: Iterable[Accumulator]) -> None:
        """As ``_send``, for the partitions of a transaction: one call of the session adds them to it and writes to them."""
        now, tried = self._io.monotonic_ms(), {accumulator: accumulator.ready[0] for accumulator in accumulators}
        stamped: dict[TopicPartition, Buffer] = {}
        answers: dict[TopicPartition, range | Exception] = {}
        for accumulator, delivery in tried.items():
            try:
                if delivery.outcome is None:
                    self._check(delivery, now)
                if delivery.record_count and delivery.outcome is None:
                    stamped[accumulator.partition] = self._stamped(accumulator, delivery)
            except Exception as error:  # noqa: BLE001 -- as in ``_send``
                answers[accumulator.partition] = without_frames(error)
        try:
            if stamped:
                answers |= self._session.produce_many(stamped, transactional_id=self._options.transactional_id or "")
        except Exception as error:  # noqa: BLE001 -- as in ``_send``
            answers |= dict.fromkeys(stamped, without_frames(error))
        for accumulator, delivery in tried.items():
            answer = answers.get(accumulator.partition, range(0))
            if isinstance(answer, Exception):
                self._fail(accumulator, delivery, answer, now)
            else:
                self._finish(accumulator, delivery, answer, None)

    def _fail(self, accumulator: Accumulator, delivery: Delivery, error: Exception, now: int) -> None:
        """Postpone a delivery that was not written, or give it up."""
        if isinstance(error, LogdbError):
            without_frames(error)  # they have the delivery, which keeps the error
            delivery.attempts += 1
            is_kept = error.offsets is not None and type(error).retriable  # the next try waits until they are written
            if (error.retriable or is_kept) and delivery.attempts <= self._options.retries:
                delivery.last_error, delivery.kept = error, error.offsets or delivery.kept
                deadline = delivery.opened_ms + self._options.delivery_timeout_ms
                accumulator.retry_at_ms = min(now + self._options.retry_backoff_ms, deadline)
                return
        self._finish(accumulator, delivery, _NOWHERE, error)

    def _check(self, delivery: Delivery, now: int) -> None:
        """Raise if the delivery may not be tried (again)."""
        if self._given_up is not None:
            raise self._given_up
        limit = self._options.delivery_timeout_ms
        if now - delivery.opened_ms >= limit:
            why = "its turn did not come" if delivery.last_error is None else str(delivery.last_error)
            where = f"{delivery.record_count} records for {delivery.topic}-{delivery.partition}"
            raise DeliveryTimeout(f"{where} could not be written within delivery_timeout_ms={limit}: {why}") from delivery.last_error

    def _produce(self, accumulator: Accumulator, delivery: Delivery) -> range:
        """One try; returns the offsets."""
        if not delivery.record_count:
            return range(0)
        if delivery.kept is not None and not self._options.idempotent:  # the log accepted the records, and would write them twice
            self._session.log(*accumulator.partition).flush()
            return delivery.kept
        return self._session.submit_batches(accumulator.request, self._stamped(accumulator, delivery))

    def _stamped(self, accumulator: Accumulator, delivery: Delivery) -> bytes | memoryview:
        """The encoded batches of a delivery, for each try the same: stamped with producer and sequence, and compressed."""
        if delivery.stamped is None:
            batches = delivery.batches
            if self._options.idempotent:
                if self._producer is None:
                    self._producer = self._session.init_producer_id()
                sequence = accumulator.sequence(delivery, self._producer)
                self.has_stamped = True
                convert.stamp_producer(batches, self._producer, sequence, transactional=self._options.transactional_id is not None)
            if self._options.codec:
                limit = accumulator.config.max_message_bytes
                delivery.stamped = convert.compress_batches(batches, self._options.codec, size_bytes_max=limit)
            else:
                delivery.stamped = batches
        return delivery.stamped

    def _append_time(self, accumulator: Accumulator, offsets: range) -> int:
        """The append time that the log stamped the records with; -1: it cannot be read."""
        with contextlib.suppress(LogdbError):  # the records are written in any case
            batches, _ = self._session.log(*accumulator.partition).read_batches(offsets.start, 1)
            header = codec.header(batches)[1]
            return -1 if header is None else header.max_timestamp
        return -1

    def _finish(self, accumulator: Accumulator, delivery: Delivery, offsets: range, error: BaseException | None) -> None:
        """Report the result of a delivery, and continue with the next one.

        If an exception from outside leaves it, the thread calls it again; the first result of the delivery stands.
        """
        if delivery.outcome is not None:
            error = delivery.outcome[2]
        elif error is not None:
            if self._options.transactional_id is None:
                self._producer = None  # it is unknown whether the sequence has a gap
            if not self._options.acknowledged:
                logger.warning("%d records for %s-%d are lost: %s", delivery.record_count, *accumulator.partition, error)
        is_stamped = accumulator.config.log_append_time and bool(offsets)
        delivery.settle(offsets.start, self._append_time(accumulator, offsets) if is_stamped else -1, error)
        with self.lock:
            accumulator.retry_at_ms = 0
            if error is not None and self._options.acknowledged:
                self._failure = self._failure or error
                if self._options.transactional_id is not None and self._given_up is None:
                    self._given_up = TransactionAborted(f"a record of the transaction could not be written: {error}")
                    self._given_up.__cause__ = error
            is_last, size_bytes = len(accumulator.ready) == 1 and accumulator.opened_ms is None, delivery.size_bytes
            delivery.finished = True  # calls nothing until all of it is done
            del accumulator.ready[0]
            if is_last:
                del self._active[accumulator]
            self._memory_used -= size_bytes
            if delivery.awaited:
                self._finished.notify_all()
            self._release(0)
