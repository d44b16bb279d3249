"""Reading for a consumer: a cursor in each of its partitions, and records out of all of them in turn.

Knows logs, positions and isolation levels.  Does not know groups, nor where reading begins: ``positions`` does.

Nothing here touches a single record: lists are sliced out of the log's C iterator, and the last record of a list says
where the next one begins.

Threading: one thread at a time, the consumer's.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from logdb.codec import Record
from logdb.errors import LogTruncated, OffsetOutOfRange
from logdb.log.isolation import IsolationLevel
from logdb.log.log import Log
from logdb.model import OffsetAndMetadata, TopicPartition

NOWHERE = -1  # the position of a cursor that was not told where to begin


class Cursor:
    """Where a consumer stands in one partition.

    Attributes:
        offset: Of the next record to be taken; NOWHERE before the first ``seek``.
        leader_epoch: Of the record before it, -1 where that is not known.
        paused: Nothing is taken from it, and it stays where it is.
    """

    __slots__ = (
        "_checked",
        "_earned",
        "_end_offset",
        "_isolation_level",
        "_records",
        "leader_epoch",
        "log",
        "offset",
        "partition",
        "paused",
    )

    def __init__(self, partition: TopicPartition, log: Log, isolation_level: IsolationLevel) -> None:
        self.partition, self.log = partition, log
        self.offset, self.leader_epoch, self.paused = NOWHERE, -1, False
        self._isolation_level: IsolationLevel = isolation_level
        self._records: Iterator[Record] | None = None
        self._end_offset = 0  # where they end
        self._earned = self._checked = False

    def seek(self, offset: int, leader_epoch: int = -1, *, earned: bool = False) -> None:
        """Go on from ``offset``; ``earned``: it was read up to there once, so that a log that ends before it has lost records."""
        self.offset, self.leader_epoch = offset, leader_epoch
        self._records, self._checked, self._earned = None, False, earned

    def take(self, count_max: int) -> list[Record]:
        """The next records, at most ``count_max``; none where there are none now.

        Where reading fails midway, what came before is returned, and the next call fails.

        Raises:
            OffsetOutOfRange: The position is not in the log: retention was faster, or it was sought.
            LogTruncated: Records before the position were lost (KIP-320).
            CorruptionError, ReadFailed, Closed, UnknownTopic: as ``Log.read``.
        """
        if self._records is None and not self._open():
            return []
        assert self._records is not None
        records: list[Record] = []
        try:
            records.extend(islice(self._records, count_max))
        except Exception:
            self._records = None
            if not records:
                raise
            self._move_behind(records[-1])
            return records
        if records:
            self._move_behind(records[-1])
        if len(records) < count_max:
            self._records = None
            self.offset = max(self.offset, self._end_offset)  # past control records, and what compaction left out
        return records

    def _move_behind(self, record: Record) -> None:
        self.offset, self.leader_epoch, self._earned = record.offset + 1, record.leader_epoch, True

    def _open(self) -> bool:
        """Begin an iterator at the position; False if there is nothing to read."""
        end_offset = self.end_offset()
        if self._checked and self.offset >= end_offset:
            return False
        try:
            epoch = self.leader_epoch if self.leader_epoch >= 0 else None
            records = self.log.read(self.offset, end_offset=end_offset, leader_epoch=epoch, isolation_level=self._isolation_level)
        except OffsetOutOfRange as error:
            if self._earned and self.offset > error.end_offset:
                raise LogTruncated(
                    *self.partition, self.offset, self.leader_epoch, epoch_end_offset=error.end_offset, end_offset=error.end_offset
                ) from None
            raise
        self._checked = True
        if self.offset >= end_offset:
            return False
        self._records, self._end_offset = records, end_offset
        return True

    def end_offset(self) -> int:
        """Where reading ends now."""
        return self.log.readable_end_offset(self._isolation_level)

    def position(self) -> OffsetAndMetadata:
        """What to commit to go on from here."""
        return OffsetAndMetadata(self.offset, self.leader_epoch)


class Fetcher:
    """The cursors of a consumer; each round goes on where the last one ended, so that a busy partition holds up no other."""

    def __init__(self) -> None:
        self.cursors: dict[TopicPartition, Cursor] = {}
        self._order: list[Cursor] = []
        self._turn = 0

    def set(self, cursors: Mapping[TopicPartition, Cursor]) -> None:
        """Read these partitions from now on."""
        self.cursors = dict(cursors)
        self.reorder()

    def reorder(self) -> None:
        """Some cursor was paused or resumed."""
        self._order = [cursor for cursor in self.cursors.values() if not cursor.paused]
        self._turn = 0

    def round(self) -> Iterator[Cursor]:
        """Each cursor that has a position and is not paused, once."""
        order = self._order
        for _ in range(len(order)):
            cursor = order[self._turn]
            self._turn = (self._turn + 1) % len(order)
            if cursor.offset != NOWHERE:
                yield cursor

    def begin_with(self, cursor: Cursor) -> None:
        """The next round begins with this one."""
        self._turn = self._order.index(cursor)

    def waiting(self) -> dict[TopicPartition, int]:
        """The positions at which records are waited for."""
        return {cursor.partition: cursor.offset for cursor in self._order if cursor.offset != NOWHERE}


def each(cursors: Iterable[Cursor]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {cursor.partition: cursor.position() for cursor in cursors if cursor.offset != NOWHERE}
