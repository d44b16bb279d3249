"""Batches built from records, for callers that send them to a log themselves."""

from collections.abc import Callable

from logdb.codec import BatchBuilder
from logdb.errors import InvalidRecord, InvalidTimestamp, LogdbError, RecordTooLarge
from logdb.model import LogConfig, accepted_timestamps

BATCHES_MAX = 5
"""Batches of a producer that may be in flight: the log remembers as many."""


def refusal(topic: str, reason: str, *numbers: int) -> LogdbError:
    """The error for a record that a topic (its configs are ``topic``'s) does not accept; see ``BatchBuilder._reject``."""
    match reason:
        case "size":
            return RecordTooLarge(numbers[0], numbers[1])
        case "timestamp":
            at, now, before, after = numbers
            return InvalidTimestamp(at, accepted_timestamps(topic, now, before, after))
    return InvalidRecord(f"topic {topic} is compacted: every record needs a key (config cleanup.policy)")


class Batches(BatchBuilder):
    """Builds batches, and passes each full buffer to ``take``: uint8[n], borrowed, and the number of records.

    Args:
        batch_count: Full batches in a buffer.
    """

    def __init__(
        self, topic: str, config: LogConfig, batch_size: int, clock: Callable[[], int] | None, *, batch_count: int = BATCHES_MAX
    ) -> None:
        write_size = batch_count * batch_size
        super().__init__(next_offset=0, leader_epoch=-1, batch_size=batch_size, write_size=write_size, group_size=1 << 30, clock=clock)
        self._topic, self._batch_size = topic, batch_size
        self.take: Callable[[memoryview, int], None] | None = None
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Raise the topic's reason to refuse a record."""
        self._configure(
            keys_required=config.compacted,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            message_size_max=config.max_message_bytes,
            batch_size=min(self._batch_size, config.max_message_bytes),
        )

    def _write(self, batches: memoryview, base_offset: int, next_offset: int, _max_timestamp: int) -> None:
        assert self.take is not None, "records are appended only while take is set"
        self.take(batches, next_offset - base_offset)

    def _withdraw(self, _first: int, _next_offset: int) -> bool:
        return True  # who sends the batches says what the log keeps of them

    def _reject(self, reason: str, *numbers: int) -> None:
        raise refusal(self._topic, reason, *numbers)
