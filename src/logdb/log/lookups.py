"""Reads of single records and of the end of a log, by ``read``; shared by logs of all kinds."""

from logdb.codec import Record, RecordIterator
from logdb.errors import OffsetOutOfRange
from logdb.log.isolation import IsolationLevel
from logdb.mistakes import checked_call

_TAIL_SPAN_MAX = 1 << 20  # offsets that one step of ``tail`` reads


class Lookups:
    """``get`` and ``tail``, for a class with ``read`` and the ends of a log."""

    topic: str
    partition: int

    @property
    def start_offset(self) -> int:
        raise NotImplementedError

    @property
    def end_offset(self) -> int:
        raise NotImplementedError

    def readable_end_offset(self, isolation_level: IsolationLevel = "read_uncommitted") -> int:
        raise NotImplementedError

    def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> RecordIterator:
        raise NotImplementedError

    @checked_call
    def get(self, offset: int, *, isolation_level: IsolationLevel = "read_uncommitted") -> Record | None:
        """The record at an offset; None if compaction removed it, or a transaction's marker is there.

        Args:
            isolation_level: As ``read``; with ``"read_committed"`` also None for a record of an aborted or open transaction.

        Raises:
            OffsetOutOfRange: The offset is before the start or not yet written.
            CorruptionError: Its batch is damaged.
        """
        record = next(self.read(offset, end_offset=offset + 1, isolation_level=isolation_level), None)
        if record is None and offset >= (end := self.end_offset):
            raise OffsetOutOfRange(self.topic, self.partition, offset, self.start_offset, end)
        return record

    @checked_call
    def tail(self, count: int, *, isolation_level: IsolationLevel = "read_uncommitted") -> list[Record]:
        """The last records, in the order of their offsets; fewer if the log has fewer.

        Args:
            count: How many, 0 or more.
            isolation_level: As ``read``.

        Raises:
            ValueError: ``count`` is negative.
            CorruptionError: As ``read``.
        """
        if count < 0:
            raise ValueError(f"count={count}: must be 0 or more")
        end, span = self.readable_end_offset(isolation_level), count
        found: list[Record] = []
        while len(found) < count:
            start = max(self.start_offset, end - span)
            if start >= end:
                break
            try:
                records = list(self.read(start, end_offset=end, isolation_level=isolation_level))
            except OffsetOutOfRange as gone:  # retention deleted records meanwhile
                if gone.start_offset <= start:
                    raise
                continue
            found[:0] = records[max(0, len(records) - count + len(found)) :]
            end, span = start, min(2 * span, _TAIL_SPAN_MAX)  # compaction and markers leave offsets without a record
        return found
