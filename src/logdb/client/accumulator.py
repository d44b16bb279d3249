"""What a producer has taken and not yet written, partition by partition, and the futures of it.

Knows records, buffers and results.  Does not know when or how buffers are written: ``client.sender`` does.

Threading: an accumulator's methods are called with the sender's lock held.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from logdb.codec import BatchBuilder
from logdb.errors import Forked, InvalidRecord, InvalidTimestamp, LogdbError, RecordTooLarge
from logdb.model import LogConfig, ProducerIdAndEpoch, RecordMetadata, TopicPartition


class Delivery:
    """Records of one partition that are written together, and what becomes of them."""

    def __init__(self, partition: TopicPartition, first: int, opened_ms: int) -> None:
        self.partition, self.first, self.opened_ms = partition, first, opened_ms
        self.batches: bytearray | bytes = bytearray()
        self.record_count, self.attempts, self.size_bytes, self.stamped = 0, 0, 0, False
        self.last_error: LogdbError | None = None
        self.done = self.finished = False
        self.base_offset, self.timestamp_ms = -1, -1
        self.error: BaseException | None = None
        self._event: threading.Event | None = None
        self._callbacks: list[tuple[Callable[..., object], SendFuture, bool]] = []
        self._owner = os.getpid()

    def wait(self, timeout: float | None) -> None:
        if self._event is None:
            self._event = threading.Event()
        if self._owner != os.getpid():
            raise Forked(f"the record was sent by process {self._owner}, this is its child {os.getpid()}")
        if not self.done and not self._event.wait(timeout):
            raise TimeoutError(f"no result within {timeout} s")

    def resolve(self, base_offset: int, timestamp_ms: int, error: BaseException | None) -> list[tuple[Callable[..., object], "SendFuture", bool]]:
        self.base_offset, self.timestamp_ms, self.error = base_offset, timestamp_ms, error
        self.done = True
        if self._event is not None:
            self._event.set()
        callbacks, self._callbacks = self._callbacks, []
        return callbacks


class SendFuture:
    """What becomes of one record."""

    __slots__ = ("_delivery", "_index", "_timestamp_ms")

    def __init__(self, delivery: Delivery, index: int, timestamp_ms: int) -> None:
        self._delivery, self._index, self._timestamp_ms = delivery, index, timestamp_ms

    def done(self) -> bool:
        return self._delivery.done

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._delivery.wait(timeout)
        return self._delivery.error

    def result(self, timeout: float | None = None) -> RecordMetadata:
        if (error := self.exception(timeout)) is not None:
            raise error
        return self._metadata()

    def add_done_callback(self, function: Callable[["SendFuture"], object]) -> None:
        self._delivery._callbacks.append((function, self, False))

    def _metadata(self) -> RecordMetadata:
        delivery = self._delivery
        offset = delivery.base_offset + self._index if delivery.base_offset >= 0 else -1
        return RecordMetadata(*delivery.partition, offset, delivery.timestamp_ms if delivery.timestamp_ms >= 0 else self._timestamp_ms)


class Accumulator(BatchBuilder):
    """The records of one partition that wait to be written; its offsets count them, so they are the sequence."""

    def __init__(self, partition: TopicPartition, config: LogConfig, *, batch_size: int, clock: Callable[[], int] | None) -> None:
        batch_size = min(batch_size, config.max_message_bytes)
        super().__init__(next_offset=0, leader_epoch=-1, batch_size=batch_size, write_size=batch_size, group_size=1 << 20, clock=clock)
        self._configure(
            keys_required=config.compacted,
            log_append_time=False,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            message_size_max=config.max_message_bytes,
        )
        self._dirty = True
        self.partition, self.config = partition, config
        self.ready: deque[Delivery] = deque()
        self.retry_at_ms = 0
        self.producer: ProducerIdAndEpoch | None = None
        self.sequence_base = 0
        self.open = Delivery(partition, 0, 0)

    def put(self, value: Any, key: Any, headers: Any, timestamp_ms: int, now_ms: int, size_bytes: int) -> SendFuture:
        sequence = self.append(value, key, headers=headers, timestamp_ms=timestamp_ms)
        if not self.open.opened_ms:
            self.open.opened_ms = now_ms
        self.open.size_bytes += size_bytes
        return SendFuture(self.open, sequence - self.open.first, timestamp_ms)

    @property
    def record_count(self) -> int:
        return self._pending_count + sum(delivery.record_count for delivery in self.ready)

    def due_ms(self, linger_ms: int) -> int:
        if self.ready:
            return self.retry_at_ms
        return self.open.opened_ms + linger_ms

    def seal(self) -> Delivery | None:
        self._drain()
        return self.ready[-1] if self.ready else None

    def _write(self, batches: memoryview, base_offset: int, next_offset: int, _max_timestamp: int) -> None:
        sealed = self.open
        sealed.batches, sealed.record_count = bytearray(batches), next_offset - base_offset
        self.ready.append(sealed)
        self.open = Delivery(self.partition, next_offset, 0)

    def _reject(self, reason: str, *numbers: int) -> None:
        match reason:
            case "size":
                raise RecordTooLarge(numbers[0], numbers[1])
            case "timestamp":
                at, now, before, after = numbers
                allowed = f"[{max(0, now - before)}, {now + after}]"
                raise InvalidTimestamp(at, f"{self.partition.topic} accepts {allowed} (message.timestamp.before.max.ms and after.max.ms)")
            case "key":
                raise InvalidRecord(f"{self.partition.topic} is compacted: every record needs a key")
        raise AssertionError(reason)
