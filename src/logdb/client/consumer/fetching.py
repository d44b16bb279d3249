"""Reading for a consumer: a cursor in each of its partitions, and records out of all of them in turn.

A cursor touches no single record: the log's C iterator makes lists, or is iterated over itself, and keeps the position.
Threading: one thread at a time, the consumer's.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from logdb.codec import Record, RecordIterator
from logdb.errors import LogdbError, LogTruncated, OffsetOutOfRange
from logdb.log.isolation import IsolationLevel
from logdb.log.protocols import PartitionLog
from logdb.model import KnownLog, OffsetAndMetadata, TopicPartition

NOWHERE = -1  # the position of a cursor before its first ``seek``


class Cursor:
    """The position of a consumer in one partition.

    Attributes:
        paused: No records are taken, the position stays.
        is_placed: It has a position: ``seek`` has given it one.
    """

    __slots__ = (
        "_checked",
        "_earned",
        "_isolation_level",
        "_leader_epoch",
        "_offset",
        "_out_of_range",
        "_records",
        "is_placed",
        "log",
        "partition",
        "paused",
    )

    def __init__(
        self,
        partition: TopicPartition,
        log: PartitionLog,
        isolation_level: IsolationLevel,
        out_of_range: "Callable[[Cursor, OffsetOutOfRange], None]",
    ) -> None:
        """Begin without a position.

        Args:
            out_of_range: Called for a position outside the log: seeks another one, or raises.
        """
        self.partition, self.log, self.paused = partition, log, False
        self._out_of_range = out_of_range
        self._isolation_level: IsolationLevel = isolation_level
        self._offset, self._leader_epoch, self.is_placed = NOWHERE, -1, False  # the first two: used while there is no iterator
        self._records: RecordIterator | None = None
        self._earned = self._checked = False

    @property
    def offset(self) -> int:
        """The offset of the next record; NOWHERE before the first ``seek``."""
        return self._offset if self._records is None else self._records.next_offset

    def position(self) -> OffsetAndMetadata:
        """The position to commit: the offset, and the leader epoch of the record before it, if known."""
        records = self._records
        epoch = self._leader_epoch if records is None or records.leader_epoch < 0 else records.leader_epoch
        return OffsetAndMetadata(self.offset, epoch)

    def known(self) -> KnownLog:
        """What is known of the log at the position."""
        return KnownLog(self.log.topic_id, self.position().leader_epoch)

    def recheck(self) -> None:
        """The next read asks the log whether it holds the position."""
        self._checked = False

    def end_offset(self) -> int:
        """The present end of reading."""
        return self.log.readable_end_offset(self._isolation_level)

    def seek(self, offset: int, leader_epoch: int = -1, *, earned: bool = False) -> None:
        """Continue from ``offset``; a present iteration ends.

        Args:
            earned: The consumer has read up to there, so that a log that ends before it has lost records.
        """
        self.stop()
        self._offset, self._leader_epoch, self.is_placed = offset, leader_epoch, offset != NOWHERE
        self._checked, self._earned = False, earned

    def stop(self) -> None:
        """End the present iteration; the position stays."""
        if self._records is not None:
            self._records.close()
            self._let_go()

    def take(self, count_max: int) -> list[Record]:
        """The next records, at most ``count_max``; empty if there are none now.

        If reading fails midway, the records before are returned, and the next call raises.

        Raises:
            OffsetOutOfRange: The position is not in the log (deleted by retention, or sought), and may not be reset.
            LogTruncated: Records before the position were lost (KIP-320).
            CorruptionError, ReadFailed, Closed, UnknownTopic: as ``Log.read``.
        """
        while (records := self._opened()) is not None:
            try:
                taken = records.take(count_max)
            except Exception:
                self._let_go()
                raise
            if len(taken) < count_max:
                self._let_go()
            if taken or records.exhausted:
                return taken  # a failure is raised again by the next call
        return []

    def run(self, count_max: int) -> Iterator[Record] | None:
        """The next records, to iterate over, at most ``count_max``; the position moves with each.  None if there are none now.

        Raises:
            as ``take``; the iteration also.
        """
        records = self._opened()
        return None if records is None else islice(records, count_max)

    def end_run(self) -> None:
        """The iteration over the run has ended."""
        if self._records is not None and self._records.exhausted:
            self._let_go()

    def _opened(self) -> RecordIterator | None:
        """An iterator at the position; None without records to read."""
        if self._records is not None:
            return self._records
        end_offset = self.log.readable_end_offset(self._isolation_level)
        if not self._checked or self._offset != end_offset:  # past the end only where the log has lost records
            try:
                records = self._read(end_offset)
            except OffsetOutOfRange as error:
                if self._earned and self._offset > error.end_offset:
                    raise self._truncated(error.end_offset) from None
                self._out_of_range(self, error)
                records = self._read(end_offset)
            self._checked = True
            if self._offset < end_offset:
                self._records = records
        return self._records

    def _truncated(self, end_offset: int) -> LogTruncated:
        """The error for a position after the end of the log."""
        epoch_end_offset = end_offset
        try:
            self.log.read(end_offset, leader_epoch=self._leader_epoch)
        except LogTruncated as error:  # the log has grown since it lost the records
            epoch_end_offset = error.epoch_end_offset
        return LogTruncated(*self.partition, self._offset, self._leader_epoch, epoch_end_offset, end_offset)

    def _read(self, end_offset: int) -> RecordIterator:
        epoch = self._leader_epoch if self._leader_epoch >= 0 else None
        return self.log.read(self._offset, end_offset=end_offset, leader_epoch=epoch, isolation_level=self._isolation_level)

    def _let_go(self) -> None:
        """Drop the iterator.

        At its end, the position moves past control records and compacted offsets: their leader epoch may be later than the last
        record's.
        """
        records = self._records
        assert records is not None
        self._offset, self._leader_epoch, _ = self.position()
        self._earned = self._earned or records.leader_epoch >= 0
        self._records = None
        if records.exhausted and records.end_offset > self._offset:
            self._offset, self._leader_epoch = records.end_offset, -1
            with contextlib.suppress(LogdbError):  # the next read raises
                self._leader_epoch = self.log.epoch_at(records.end_offset - 1)


class Fetcher:
    """The cursors of a consumer; each round continues after the last one, so that a busy partition does not delay the others."""

    def __init__(self) -> None:
        self.cursors: dict[TopicPartition, Cursor] = {}
        self._order: list[Cursor] = []
        self._turn = 0

    def set(self, cursors: Mapping[TopicPartition, Cursor]) -> None:
        """Read these partitions from now on."""
        for partition, cursor in self.cursors.items():
            if partition not in cursors:
                cursor.stop()
        self.cursors = dict(cursors)
        self._reorder()

    def pause(self, cursor: Cursor, paused: bool) -> None:
        """Pause or resume a partition."""
        cursor.stop()
        cursor.paused = paused
        self._reorder()

    def _reorder(self) -> None:
        self._order = [cursor for cursor in self.cursors.values() if not cursor.paused]
        self._turn = 0

    def round(self) -> Iterator[Cursor]:
        """Each cursor that has a position and is not paused, once; ends when the assignment changes."""
        order = self._order
        for _ in range(len(order)):
            if self._order is not order:
                return
            cursor = order[self._turn]
            self._turn = (self._turn + 1) % len(order)
            if cursor.is_placed:
                yield cursor

    def begin_with(self, cursor: Cursor) -> None:
        """Begin the next round with this cursor."""
        self._turn = self._order.index(cursor)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all cursors that have one."""
        return {partition: cursor.position() for partition, cursor in self.cursors.items() if cursor.is_placed}

    def awaited(self) -> dict[TopicPartition, int]:
        """The positions to wait for records at."""
        return {cursor.partition: cursor.offset for cursor in self._order if cursor.is_placed}

    def known(self) -> dict[TopicPartition, KnownLog]:
        """What is known of the logs that these positions lie in."""
        return {cursor.partition: cursor.known() for cursor in self._order if cursor.is_placed}

    def recheck(self) -> None:
        """Let each cursor read from its position, even where the log seems to end."""
        for cursor in self._order:
            cursor.recheck()

    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that are read, as far as they are known."""
        return {cursor.log.topic: cursor.log.topic_id for cursor in self.cursors.values() if cursor.log.topic_id}
