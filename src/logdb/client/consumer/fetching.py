"""Reading for a consumer: a cursor in each of its partitions, and records out of all of them in turn.

Knows logs, positions and isolation levels.  Does not know groups, nor where reading begins: ``positions`` does.

Nothing here touches a single record: the log's C iterator makes lists of them, or is iterated over itself, and knows where
it is.

Threading: one thread at a time, the consumer's.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from logdb.codec import Record, RecordIterator
from logdb.errors import LogTruncated, OffsetOutOfRange
from logdb.log.isolation import IsolationLevel
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb.requests.session import PartitionLog

NOWHERE = -1  # the position of a cursor that was not told where to begin


class Cursor:
    """Where a consumer stands in one partition.

    Attributes:
        paused: Nothing is taken from it, and it stays where it is.
    """

    __slots__ = (
        "_checked",
        "_earned",
        "_end_offset",
        "_isolation_level",
        "_leader_epoch",
        "_offset",
        "_out_of_range",
        "_records",
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
        """Stand nowhere yet.

        Args:
            out_of_range: Seeks another position, or raises, where the log does not hold this one.
        """
        self.partition, self.log, self.paused = partition, log, False
        self._out_of_range = out_of_range
        self._isolation_level: IsolationLevel = isolation_level
        self._offset, self._leader_epoch = NOWHERE, -1  # unless there is an iterator
        self._records: RecordIterator | None = None
        self._end_offset = 0  # where it ends
        self._earned = self._checked = False

    @property
    def offset(self) -> int:
        """Of the next record; NOWHERE before the first ``seek``."""
        return self._offset if self._records is None else self._records.next_offset

    def position(self) -> OffsetAndMetadata:
        """What to commit to go on from here: the offset, and the leader epoch of the record before it, if that is known."""
        records = self._records
        epoch = self._leader_epoch if records is None or records.leader_epoch < 0 else records.leader_epoch
        return OffsetAndMetadata(self.offset, epoch)

    def end_offset(self) -> int:
        """Where reading ends now."""
        return self.log.readable_end_offset(self._isolation_level)

    def seek(self, offset: int, leader_epoch: int = -1, *, earned: bool = False) -> None:
        """Go on from ``offset``; whatever is being iterated over ends.

        Args:
            earned: It was read up to there once, so that a log that ends before it has lost records.
        """
        self.stop()
        self._offset, self._leader_epoch = offset, leader_epoch
        self._checked, self._earned = False, earned

    def stop(self) -> None:
        """End whatever is being iterated over, and stay here."""
        if self._records is not None:
            self._records.close()
            self._let_go()

    def take(self, count_max: int) -> list[Record]:
        """The next records, at most ``count_max``; none where there are none now.

        Where reading fails midway, what came before is returned, and the next call fails.

        Raises:
            OffsetOutOfRange: The position is not in the log (retention was faster, or it was sought), and is not to be reset.
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
                return taken  # otherwise it had failed when it was iterated over: here it fails again
        return []

    def run(self, count_max: int) -> Iterator[Record] | None:
        """The next records, to iterate over, at most ``count_max``; the position moves with each.  None where there are none now.

        Raises:
            as ``take``; what is iterated over also.
        """
        records = self._opened()
        return None if records is None else islice(records, count_max)

    def end_run(self) -> None:
        """The run was iterated over to its end."""
        if self._records is not None and self._records.exhausted:
            self._let_go()

    def _opened(self) -> RecordIterator | None:
        """An iterator at the position; None if there is nothing to read."""
        if self._records is not None:
            return self._records
        end_offset = self.end_offset()
        if not self._checked or self._offset < end_offset:
            try:
                records = self._read(end_offset)
            except OffsetOutOfRange as error:
                if self._earned and self._offset > error.end_offset:
                    raise LogTruncated(*self.partition, self._offset, self._leader_epoch, error.end_offset, error.end_offset) from None
                self._out_of_range(self, error)
                records = self._read(end_offset)
            self._checked = True
            if self._offset < end_offset:
                self._records, self._end_offset = records, end_offset
        return self._records

    def _read(self, end_offset: int) -> RecordIterator:
        epoch = self._leader_epoch if self._leader_epoch >= 0 else None
        return self.log.read(self._offset, end_offset=end_offset, leader_epoch=epoch, isolation_level=self._isolation_level)

    def _let_go(self) -> None:
        """Drop the iterator.  If it came to its end, that is the position: past control records, and what compaction left out."""
        records = self._records
        assert records is not None
        self._offset, self._leader_epoch, _ = self.position()
        self._earned = self._earned or records.leader_epoch >= 0
        self._records = None
        if records.exhausted:
            self._offset = max(self._offset, self._end_offset)


class Fetcher:
    """The cursors of a consumer; each round goes on where the last one ended, so that a busy partition holds up no other."""

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
        """Leave a partition out, or read it again."""
        cursor.stop()
        cursor.paused = paused
        self._reorder()

    def _reorder(self) -> None:
        self._order = [cursor for cursor in self.cursors.values() if not cursor.paused]
        self._turn = 0

    def round(self) -> Iterator[Cursor]:
        """Each cursor that has a position and is not paused, once; ends when others are to be read."""
        order = self._order
        for _ in range(len(order)):
            if self._order is not order:
                return
            cursor = order[self._turn]
            self._turn = (self._turn + 1) % len(order)
            if cursor.offset != NOWHERE:
                yield cursor

    def begin_with(self, cursor: Cursor) -> None:
        """The next round begins with this one."""
        self._turn = self._order.index(cursor)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of all cursors that have one."""
        return {partition: cursor.position() for partition, cursor in self.cursors.items() if cursor.offset != NOWHERE}

    def awaited(self) -> dict[TopicPartition, int]:
        """The positions at which records are waited for."""
        return {cursor.partition: cursor.offset for cursor in self._order if cursor.offset != NOWHERE}
