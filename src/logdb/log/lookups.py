"""Reads of single records, of the end of a log and of columns; shared by logs of all kinds."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from logdb.codec import Record, RecordIterator, arrow
from logdb.errors import LogdbError, OffsetOutOfRange
from logdb.log.isolation import IsolationLevel
from logdb.mistakes import checked_call

if TYPE_CHECKING:
    import pyarrow

_TAIL_SPAN_MAX = 1 << 20  # offsets that one step of ``tail`` reads
_SHOWN_COUNT = 5  # records in a notebook


class Lookups:
    """``get``, ``tail`` and ``read_arrow``, for a class with ``read``, ``_columns`` and the ends of a log."""

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

    def _columns(
        self, offset: int | None, end_offset: int | None, isolation_level: IsolationLevel, use_threads: bool, columns: Sequence[str] | None
    ) -> "pyarrow.RecordBatchReader":
        """``read_arrow`` without a schema."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """For notebooks: the offsets, and the last records."""
        from logdb import notebook  # few programs need it

        title, rows = f"log {self.topic}-{self.partition}", []
        with contextlib.suppress(LogdbError):  # it is closed, damaged, or its server does not answer
            title += f": offsets {self.start_offset:,} to {self.end_offset:,}"
            rows = [(one.offset, notebook.moment(one.timestamp_ms), one.key, one.value) for one in self.tail(_SHOWN_COUNT)]
        return notebook.html_table(title, ("offset", "time", "key", "value"), rows)

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

    @checked_call
    def read_arrow(
        self,
        offset: int | None = None,
        *,
        end_offset: int | None = None,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        schema: "arrow.ValueSchema | None" = None,
        use_threads: bool = True,
    ) -> "pyarrow.RecordBatchReader":
        """Read records as Arrow batches, decoded in C.

        A batch has about 64 k rows.  Of large records it has fewer: about 4 MiB of what the log stores, and 16 MiB decompressed at most.

        Args:
            offset: The first offset to read; None: the log start.
            end_offset: Stop before this one; None: where the log ends now.
            columns: Some of offset, timestamp, timestamp_type, key, value, headers, in the order wanted; None: all but the type, and
                with ``schema`` all but the value, too.
            isolation_level: As ``read``.
            schema: Columns to make of values, as ``Database.read_arrow``.
            use_threads: Decompress and decode in several threads, where record batches are large (16 KiB or more, as they are stored).

        Returns:
            A reader, which duckdb, polars and pandas take as it is, once: a second query on it finds no rows.  ``read_all`` gives a
            table, which is read as often as you like.  offset: int64; timestamp:
            timestamp[ms, UTC]; timestamp_type: int32, 0 CreateTime, 1 LogAppendTime; key, value: binary; headers: list<struct<key:
            string, value: binary>>.

        Raises:
            ValueError: An unknown column.
            OffsetOutOfRange, CorruptionError: as ``read``.
        """
        if schema is not None:
            read = partial(self._columns, offset, end_offset, isolation_level, use_threads)
            return arrow.typed_batches(self.topic, self.partition, read, columns, schema)
        return self._columns(offset, end_offset, isolation_level, use_threads, columns)
