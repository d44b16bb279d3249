"""The thread that writes what a producer has taken, and tells the futures.

Knows deliveries, their order, memory, retries and deadlines.  Does not know records or serializers.

    open ──► sealed (full, linger_ms over, flush) ──► ready ──► produced ──► resolved ──► callbacks ──► finished
                                                        ▲           │
                                                        └── retry ──┘  until delivery_timeout_ms

Only the head of a partition is ever tried, with the bytes and the sequence of the first try, so order holds and the log
knows a duplicate.  Where a head fails for good nobody knows whether it is in the log; what follows it goes out under
a new producer id, as the old one's sequence has a gap.

Threading: ``changed`` guards all state; the session and callbacks are called without it, by the one thread.
"""

import logging
import threading
from dataclasses import dataclass

from logdb.client.accumulator import Accumulator, Delivery
from logdb.client.session import Session
from logdb import codec
from logdb.codec import convert, header
from logdb.errors import BufferExhausted, Closed, DeliveryTimeout, LogdbError
from logdb.io import IO
from logdb.model import ProducerIdAndEpoch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SenderOptions:
    """How a producer delivers; see ``Database.producer``."""

    linger_ms: int
    codec: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    retries: int
    retry_backoff_ms: int
    idempotent: bool
    acks: int
    transactional_id: str | None = None


class Sender:
    """Takes what accumulators hold and has it written, in a thread that begins with the first record."""

    def __init__(self, session: Session, options: SenderOptions, io: IO, name: str) -> None:
        self.changed = threading.Condition()
        self._session, self._options, self._io, self._name = session, options, io, name
        self._active: dict[Accumulator, None] = {}  # those that hold something
        self._memory_used = 0
        self._hurried = 0  # threads that wait in flush
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._abandoned: LogdbError | None = None  # what is left fails with it
        self._failure: BaseException | None = None  # the first since the last flush
        self.producer: ProducerIdAndEpoch | None = None  # of all partitions, where the producer is transactional

    # ------------------------------------------------------------ what senders of records call

    def reserve(self, size_bytes: int) -> None:
        """Wait until there is room for a buffer, and take it; with ``changed`` held.

        Raises:
            BufferExhausted: There was none within ``max_block_ms``.
        """
        options = self._options
        until = None
        while self._memory_used and self._memory_used + size_bytes > options.buffer_memory:
            now = self._io.monotonic_ms()
            until = now + options.max_block_ms if until is None else until
            if now >= until or threading.current_thread() is self._thread:
                raise BufferExhausted(size_bytes, options.buffer_memory, options.max_block_ms)
            self.changed.wait((until - now) / 1000)
        self._memory_used += size_bytes

    def activate(self, accumulator: Accumulator) -> None:
        """The accumulator has begun a buffer; with ``changed`` held."""
        self._active[accumulator] = None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self.changed.notify_all()

    def flush(self, timeout_ms: int | None) -> int:
        """Write all that is there now; returns how many records still wait where the time is over.

        Raises:
            what the first record failed with, since this was last called.
        """
        with self.changed:
            if threading.current_thread() is self._thread:
                raise RuntimeError("flush() was called by a callback of the producer, which it would wait for")
            waiting = [last for accumulator in list(self._active) if (last := accumulator.seal()) is not None]
            until = None if timeout_ms is None else self._io.monotonic_ms() + timeout_ms
            self._hurried += 1
            self.changed.notify_all()
            try:
                while not all(delivery.finished for delivery in waiting):
                    now = self._io.monotonic_ms()
                    if until is not None and now >= until:
                        break
                    self.changed.wait(None if until is None else (until - now) / 1000)
            finally:
                self._hurried -= 1
            failure, self._failure = self._failure, None
            left = sum(accumulator.record_count for accumulator in self._active)
        if failure is not None:
            raise failure
        return left

    def stop(self, timeout_ms: int | None) -> int:
        """Write what is left and end the thread; returns how many records were given up when the time was over."""
        with self.changed:
            self._stopping = True
            for accumulator in list(self._active):
                accumulator.seal()
            self.changed.notify_all()
        thread, lost = self._thread, 0
        if thread is not None and thread is not threading.current_thread():
            thread.join(None if timeout_ms is None else timeout_ms / 1000)
            if thread.is_alive():
                with self.changed:
                    lost = sum(accumulator.record_count for accumulator in self._active)
                    self._abandoned = Closed(f"the producer was closed before the record was written: timeout_ms={timeout_ms} were over")
                    self.changed.notify_all()
        return lost

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while due := self._due():
            for accumulator in due:
                self._send_head(accumulator)

    def _due(self) -> list[Accumulator]:
        """Wait until something is to be sent; empty: all is sent, and nothing more comes."""
        with self.changed:
            while True:
                now = self._io.monotonic_ms()
                hurry = self._hurried > 0 or self._stopping
                times = {accumulator: accumulator.due_ms(0 if hurry else self._options.linger_ms) for accumulator in self._active}
                due = [accumulator for accumulator, at in times.items() if at <= now]
                for accumulator in due:
                    if not accumulator.ready:
                        accumulator.seal()
                if due or (self._stopping and not times):
                    return due
                self.changed.wait((min(times.values()) - now) / 1000 if times else None)

    def _send_head(self, accumulator: Accumulator) -> None:
        delivery, now = accumulator.ready[0], self._io.monotonic_ms()
        error: BaseException
        try:
            self._check_time(delivery, now)
            offsets = self._produce(accumulator, delivery)
            timestamp_ms = self._append_time(accumulator, offsets)
        except LogdbError as caught:
            delivery.attempts += 1
            if caught.retriable and delivery.attempts <= self._options.retries and self._abandoned is None:
                delivery.last_error = caught
                accumulator.retry_at_ms = min(now + self._options.retry_backoff_ms, delivery.opened_ms + self._options.delivery_timeout_ms)
                return
            error = caught
        except Exception as caught:  # noqa: BLE001 -- whatever it is, the futures are told, and the thread goes on
            error = caught
        else:
            self._finish(accumulator, delivery, offsets.start, timestamp_ms, None)
            return
        accumulator.producer = None
        self._finish(accumulator, delivery, -1, -1, error)

    def _check_time(self, delivery: Delivery, now: int) -> None:
        if self._abandoned is not None:
            raise self._abandoned
        limit = self._options.delivery_timeout_ms
        if now - delivery.opened_ms >= limit:
            why = f"the last try failed: {delivery.last_error}" if delivery.last_error else "those before it took so long"
            raise DeliveryTimeout(
                f"{delivery.record_count} records for {delivery.partition} were not written within delivery_timeout_ms={limit}: {why}"
            ) from delivery.last_error

    def _produce(self, accumulator: Accumulator, delivery: Delivery) -> range:
        options, (topic, partition) = self._options, accumulator.partition
        kept: range | None = getattr(delivery.last_error, "offsets", None)
        if kept is not None and not options.idempotent:  # the log has accepted them: they need only be written
            self._session.log(topic, partition).flush()
            return kept
        if not delivery.stamped:
            self._stamp(accumulator, delivery)
        return self._session.produce(topic, partition, delivery.batches, transactional_id=options.transactional_id)

    def _stamp(self, accumulator: Accumulator, delivery: Delivery) -> None:
        """Give the batches their producer and sequence, and compress them: once, whatever happens then."""
        options = self._options
        if options.idempotent:
            producer = accumulator.producer
            if producer is None:
                producer = accumulator.producer = self.producer or self._session.init_producer_id()
                accumulator.sequence_base = delivery.first
            sequence = (delivery.first - accumulator.sequence_base) & 0x7FFFFFFF
            codec.stamp_producer(delivery.batches, producer, sequence, transactional=options.transactional_id is not None)
        if options.codec:
            delivery.batches = convert.compress_batches(delivery.batches, options.codec)
        delivery.stamped = True

    def _append_time(self, accumulator: Accumulator, offsets: range) -> int:
        """What the log has stamped the records with, where it does; -1: they keep their own time."""
        if not accumulator.config.log_append_time:
            return -1
        batches, _ = self._session.log(*accumulator.partition).read_batches(offsets.start, 1)
        found = header(batches)[1]
        return -1 if found is None else found.max_timestamp

    def _finish(
        self, accumulator: Accumulator, delivery: Delivery, base_offset: int, timestamp_ms: int, error: BaseException | None
    ) -> None:
        for function, future, plain in delivery.resolve(base_offset, timestamp_ms, error):
            try:
                if plain:
                    function(future)
                else:
                    function(error, None if error is not None else future.result())
            except Exception:
                logger.exception("a delivery callback of %s failed", delivery.partition)
        if error is not None and not self._options.acks:
            logger.warning("%d records for %s were lost: %s", delivery.record_count, delivery.partition, error)
        with self.changed:
            accumulator.ready.popleft()
            accumulator.retry_at_ms = 0
            if not accumulator.record_count:
                del self._active[accumulator]
            self._memory_used -= delivery.size_bytes
            if self._options.acks:
                self._failure = self._failure or error
            delivery.finished = True
            self.changed.notify_all()
