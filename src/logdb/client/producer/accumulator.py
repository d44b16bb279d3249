"""The records that a producer has accepted and not yet written, partition by partition.

``client.producer.sender`` writes them.  Records go in through C (``codec.Accumulator``), which asks for the next buffer by ``_refill``.

Threading: records come from any thread; all Python methods are called with the lock of ``DeliverySource`` held.
"""

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from logdb import codec
from logdb.client.batches import BATCHES_MAX, refusal
from logdb.errors import Forked, LogdbError
from logdb.model import LogConfig, ProducerIdAndEpoch, TopicPartition
from logdb.requests.records import Produce

if TYPE_CHECKING:
    from logdb.codec import SendFuture

logger = logging.getLogger(__name__)


class DeliverySource(Protocol):
    """The part of the sender that an accumulator uses."""

    lock: threading.RLock

    def begin(self, accumulator: "Accumulator", size_bytes: int) -> "Delivery | None":
        """Wait for memory, take it, and schedule the new delivery.

        Returns:
            A new delivery; None if another thread has begun one meanwhile.
        """


class Delivery(codec.Delivery):
    """A buffer of records on its way to the log; see the C type for its records."""

    def __init__(self, topic: str, partition: int, opened_ms: int, acknowledged: bool) -> None:
        super().__init__(topic, partition, opened_ms, acknowledged)
        self.attempts = 0
        self.stamped: bytes | memoryview | None = None  # the encoded batches; every try sends the same bytes
        self.last_error: LogdbError | None = None
        self.kept: range | None = None  # offsets that the log gave the records, though it could not write them yet
        self.awaited = self.finished = False  # finished: its callbacks were called and its memory is free
        self.outcome: tuple[int, int, BaseException | None] | None = None  # what ``settle`` was first called with
        self._settled: threading.Event | None = None
        self._owner = os.getpid()

    def settle(self, base_offset: int, timestamp_ms: int, error: BaseException | None) -> None:
        """Set the result of the futures, then call the callbacks.

        Args:
            base_offset: Of the first record.
            timestamp_ms: The log's append time; -1: the records keep their own.
            error: Why the records were not written; then the other two are -1.
        """
        if self.outcome is None:  # else an exception from outside left the first call
            self.outcome = base_offset, timestamp_ms, error
        base_offset, timestamp_ms, error = self.outcome
        if self.stamped is not None:
            if isinstance(self.stamped, memoryview):
                self.stamped.release()
            self.stamped = None
        self._settle(base_offset, timestamp_ms, error)
        if self._settled is not None:
            self._settled.set()
        self._call_back(error, self._report)

    def _wait(self, timeout: float | None) -> None:
        """Wait for the result; ``SendFuture.result`` calls it while there is none."""
        if self._owner != os.getpid():
            raise Forked(f"the record was sent by process {self._owner}, this is its child {os.getpid()}")
        if self._settled is None:
            self._settled = threading.Event()
        if not self.done and not self._settled.wait(timeout):
            raise TimeoutError(f"the record for {self.topic}-{self.partition} has no result after {timeout} s")

    def _call(self, function: "Callable[[SendFuture], object]", future: "SendFuture") -> None:
        """Call a callback that was added after the result."""
        try:
            function(future)
        except Exception as error:  # noqa: BLE001 -- as if it had come before
            self._report(function, error)

    def _report(self, function: object, error: BaseException) -> None:
        with contextlib.suppress(Exception):  # a handler of the application's logging may raise
            logger.error("the callback %r for records of %s-%d failed", function, self.topic, self.partition, exc_info=error)


class Accumulator(codec.Accumulator):
    """The records of one partition that wait to be written; numbered from 0, which gives their sequences."""

    def __init__(
        self, deliveries: DeliverySource, partition: TopicPartition, config: LogConfig, *, batch_size: int, clock: Callable[[], int] | None
    ) -> None:
        super().__init__(next_offset=0, leader_epoch=-1, batch_size=batch_size, write_size=batch_size, group_size=batch_size, clock=clock)
        self._deliveries, self._batch_size, self._batches = deliveries, batch_size, 1
        self.partition, self.request = partition, Produce(*partition)
        self.ready: deque[Delivery] = deque()  # sealed, oldest first; only the sender takes the head away
        self.retry_at_ms = 0
        self._producer: ProducerIdAndEpoch | None = None
        self._first = 0  # number of the record that has sequence 0
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Apply the topic's present configs."""
        self.config = config
        self._configure(
            keys_required=config.compacted,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            message_size_max=config.max_message_bytes,
        )

    @property
    def opened_ms(self) -> int | None:
        """When the oldest record of the open buffer was accepted (monotonic); None: the buffer is empty."""
        return None if self._open is None else self._open.opened_ms

    @property
    def record_count(self) -> int:
        """Records that wait to be written."""
        return self._pending_count + sum(delivery.record_count for delivery in self.ready)

    def seal(self) -> Delivery | None:
        """Seal the open buffer; returns the last delivery that waits now.

        If an exception from outside leaves it, the delivery is ready and may be open; the next call seals it.
        """
        opened = self._open
        if opened is not None:
            assert isinstance(opened, Delivery)
            if not (self.ready and self.ready[-1] is opened):
                self.ready.append(opened)
            self._seal()
        return self.ready[-1] if self.ready else None

    def sequence(self, delivery: Delivery, producer: ProducerIdAndEpoch) -> int:
        """The sequence of a delivery's first record; a new producer id begins at 0."""
        if producer != self._producer:
            self._producer, self._first = producer, delivery.first
        return (delivery.first - self._first) & 0x7FFFFFFF

    def _refill(self, size_bytes: int) -> None:
        """Hook: a batch of ``size_bytes`` has no room.  Buffers grow to five batches while the sender is slower than the application."""
        with self._deliveries.lock:
            behind = bool(self.ready)
            if self._open is not None:
                self.seal()
            self._batches = min(2 * self._batches, BATCHES_MAX) if behind else 1
            capacity = max(size_bytes, self._batches * self._batch_size)
            opened = self._deliveries.begin(self, capacity)
            if opened is not None:
                self._begin(opened, capacity)

    def _reject(self, reason: str, *numbers: int) -> None:
        """Hook: raise why the topic does not accept a record."""
        raise refusal(self.partition.topic, reason, *numbers)
