"""The readable side of one partition's log: its ends, its records, and waits for more.

``Log`` writes and publishes views, ``TailLog`` looks at the files beside a writer and publishes views.  Both are read through this
class, by the functions of ``log.reading`` over the latest view and a limit.

Threading: any number of threads.  A read takes the view, which is one value, and then opens files, which may be removed meanwhile; a
reader that misses a file goes on with a later view.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Literal

from logdb.codec import Positions, Record, RecordIterator, arrow, convert
from logdb.errors import (
    Closed,
    CorruptionError,
    FencedLeaderEpoch,
    LogdbError,
    LogTruncated,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from logdb.handles import Handle
from logdb.log import reading
from logdb.log.epochs import EpochEnd, LeaderEpochs
from logdb.log.host import Captured, Host
from logdb.log.isolation import IsolationLevel, is_committed, without_aborted
from logdb.log.lookups import Lookups
from logdb.log.reading import Cursor, Lineage
from logdb.log.segment_reader import FileMissing, read_batch, read_chunks
from logdb.log.view import Ends, LogView, Page
from logdb.mistakes import checked_call, explained
from logdb.model import (
    AbortedTransaction,
    Buffer,
    Durability,
    Duration,
    LogConfig,
    OpenTransaction,
    Signal,
    Timestamp,
    duration_ms,
    timestamp_ms_of,
)
from logdb.segment import buffers
from logdb.segment.segment import Segment

if TYPE_CHECKING:
    import pyarrow

_FOLLOW_WAIT_MS_MAX = 50


class ReadableLog(Lookups, Handle):
    """A log that publishes views, for its readers.

    | field                  | who changes it                        | under which lock | when it may be trusted               |
    |------------------------|---------------------------------------|------------------|--------------------------------------|
    | ``view``               | see ``log.view``                      | see there        | always: it is one value              |
    | ``_next_offset``       | the C builder; of a tail its view     | see there        | at once                              |
    | ``read_only_reason``   | the opening; a truncation that was    | of a written log:| until the truncation is finished     |
    |                        | interrupted, or is finished           | the append lock  |                                      |
    | ``damage``             | the opening; a read; ``store.scrub``; | none             | not None: a range of it is lost here |
    |                        | ``restart``                           |                  |                                      |
    | ``follows``            | see ``FollowingLog``                  | the append lock  | true: records of clients are refused |
    | ``_closed``            | ``abandon``, ``forked``; of a written | ``LogSync.lock`` | once true it stays so                |
    |                        | log: with its state (``log.states``)  |                  |                                      |
    | ``_config``            | ``configure``                         | none             | from the next batch on               |
    | ``_positions``,        | readers; a replacement and a new log  | none             | hints: the segment is compared, and  |
    | ``_cursor``            | start clear them                      |                  | batches are checked                  |
    | ``_lineage``,          | a truncation, for reads that begin    | that of the view | a read takes it before anything else |
    | ``_source``            | behind it                             |                  |                                      |
    | ``_watchers``          | ``watch``, ``unwatch``                | ``_watch_lock``  | always: a tuple, replaced as a whole |
    """

    _next_offset: int

    def __init__(
        self,
        *,
        host: Host,
        directory: str,
        topic: str,
        topic_id: str,
        partition: int,
        config: LogConfig,
        view: LogView,
        read_only_reason: str | None,
    ) -> None:
        self.topic, self.topic_id, self.partition, self.directory = topic, topic_id, partition, directory
        self.view, self.read_only_reason, self.follows = view, read_only_reason, False
        self.damage = read_only_reason
        self._host, self._config, self._closed = host, config, False
        self._positions = Positions()
        self._cursor: Cursor | None = None
        self._begin_lineage(Lineage())
        self._watchers: tuple[Signal, ...] = ()
        self._watch_lock = threading.Lock()

    def _begin_lineage(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._source = partial(self._chunks_of_records, lineage)

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} [{self.view.start_offset}, {self.end_offset})>"

    # ------------------------------------------------------------ of the publishers of views

    def catch_up(self) -> LogView:
        """The latest view, once it includes the records appended so far, if these can be written."""
        raise NotImplementedError

    def _decided(self) -> LogView:
        """The latest view, with the transactions below its end known."""
        raise NotImplementedError

    def stable_view(self) -> LogView:
        """``catch_up``, then ``_decided``."""
        self.catch_up()
        return self._decided()

    def _replaced(self, view: LogView) -> bool:
        """Whether the log now has other segments than ``view``, of which a file is missing."""
        raise NotImplementedError

    # ------------------------------------------------------------ ends and states

    @property
    def closed(self) -> bool:
        """Whether the database was closed, or the topic deleted."""
        return self._closed

    @property
    def start_offset(self) -> int:
        """The first offset that can be read; retention and ``delete_records`` move it."""
        return self.view.start_offset

    @property
    def end_offset(self) -> int:
        """The log end offset: the next offset; counts records in the open batch."""
        return self._next_offset

    @property
    def high_watermark(self) -> int:
        """Where reading ends: records below it are replicated.  Of a log that is not replicated: the log end offset."""
        return min(self._next_offset, self.view.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, or else the high watermark."""
        raise NotImplementedError

    def readable_end_offset(self, isolation_level: IsolationLevel = "read_uncommitted") -> int:
        """Where reading ends now; the records appended so far are written first, if they can be.

        Unlike ``high_watermark`` it counts no record that waits because the disk is full.
        """
        if self._closed:
            raise self._host.refusal(self)
        committed, view = is_committed(isolation_level), self.catch_up()
        return (self._decided() if committed else view).limit(committed)

    def check_end_known(self) -> None:
        """Return if a leader can tell where reading ends.

        Raises:
            OffsetNotAvailable: Its high watermark has not reached the start of its epoch.

        Source: KIP-207.
        """
        high_watermark, start_offset = self.view.high_watermark, self.view.epochs.latest_start
        if high_watermark < start_offset:
            raise OffsetNotAvailable(self.topic, self.partition, high_watermark, start_offset)

    def open_transactions(self) -> list[OpenTransaction]:
        """The open transactions of this partition, by their first offsets."""
        raise NotImplementedError

    def capture(self) -> Captured:
        """A lasting copy of the log's state, as written.

        Raises:
            WriteFailed: A write was interrupted, and finishing it fails.
            CorruptionError: Only of a log that another process writes to.
        """
        raise NotImplementedError

    def ends(self, *, committed: bool = False) -> Ends:
        """Where the log begins and ends now, for a reader; the records appended so far are written first, if they can be."""
        if self._closed:
            raise self._host.refusal(self)
        return Ends.of(self.stable_view(), committed)

    @checked_call
    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with batches in [``offset``, ``end_offset``), by their markers.

        Args:
            offset: Where reading began.
            end_offset: Where it ended, at most the last stable offset: open transactions are not in the list.

        Source: KIP-98, the list that goes with a fetch.
        """
        while True:
            view = self._decided()
            try:
                return self._aborted(view, offset, end_offset)
            except FileMissing:
                if not self._replaced(view):
                    raise

    def _aborted(self, view: LogView, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """As ``aborted_transactions``, as of a view of which the transactions are known; raises FileMissing."""
        return reading.aborted_transactions(view, offset, end_offset, self._replaced)

    @property
    def durability(self) -> Durability:
        """The level of appends without a level of their own."""
        return self._config.durability

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, as written."""
        return sum(segment.size_bytes for segment in self.view.segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.view.segments

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def epoch_start_offset(self) -> int:
        """The start offset of the latest leader epoch."""
        return self.view.epochs.latest_start

    @property
    def flushed_offset(self) -> int:
        """Records below it are durable."""
        return self.view.flushed.offset

    @property
    def epochs(self) -> LeaderEpochs:
        return self.view.epochs

    @property
    def lineage(self) -> Lineage:
        """The log as it is until the next truncation; for calls that read one after the other."""
        return self._lineage

    @checked_call
    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at ``offset``; -1: unknown."""
        return self.view.epochs.at(offset)

    # ------------------------------------------------------------ reading

    def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> RecordIterator:
        """Read records from ``offset`` to where the log ends now.

        Args:
            offset: The first offset to read, in [start_offset, end_offset].
            end_offset: Stop before this one.
            leader_epoch: Epoch of the record before ``offset``, as the reader saw it;
                an offset lost since then is an error instead of other records.  Below 0: no check.
            isolation_level: ``"read_committed"`` ends at the last stable offset, and leaves out aborted transactions.

        Returns:
            An iterator that holds no lock and no file; it sees everything appended
            by this process before the call.

        Raises:
            OffsetOutOfRange: ``offset`` is not in the log; it carries the range.
            LogTruncated: ``offset`` was lost (KIP-320); from the iterator: the records that it would give next were cut off.
            CorruptionError: When iteration comes to a damaged batch.
        """
        try:
            source = self._source
            end = self._readable_end(offset)
            if leader_epoch is not None and leader_epoch >= 0:
                self._check_epoch(offset, leader_epoch)
            if end_offset is not None and end_offset < end:
                end = end_offset
            if isolation_level != "read_uncommitted" and is_committed(isolation_level):
                end, aborted = self._committed(offset, end)
                if aborted and source is self._source:

                    def committed(offset: int, end_offset: int) -> Iterator[Buffer]:
                        return without_aborted(self._chunks(source.args[0], offset, end_offset), aborted)

                    return RecordIterator(committed, offset, end, self.topic, self.partition)
            positions = self._positions
            if source is not self._source:  # the log was cut off meanwhile, or a look has found that it was
                return self.read(offset, end_offset=end_offset, leader_epoch=leader_epoch, isolation_level=isolation_level)
            return RecordIterator(source, offset, end, self.topic, self.partition, positions)
        except TypeError as error:
            raise explained(error, ReadableLog.read, offset=offset, end_offset=end_offset, leader_epoch=leader_epoch) from error.__cause__

    def read_batches(
        self,
        offset: int,
        size_bytes_max: int = buffers.READ_SIZE_BYTES,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        replica: bool = False,
        lineage: Lineage | None = None,
    ) -> tuple[memoryview, int]:
        """Read whole record batches, as stored, from the one that holds ``offset``.

        The first batch may begin below ``offset``: batches are never split.

        Args:
            offset: The first offset to read, in [start_offset, end_offset].
            size_bytes_max: Soft limit.  One batch is returned even if it alone is larger,
                or the reader could never advance.
            isolation_level: ``"read_committed"`` ends at the last stable offset; ``aborted_transactions`` lists the
                transactions to leave out.
            replica: For a follower: read past the high watermark, up to what is written.
            lineage: ``lineage`` before the first of several calls: together they give records of one log.

        Returns:
            Batches (compressed as they are, CRC checked) and the offset to continue at.
            The memory is the caller's for as long as the view, or one made from it, is alive.

        Raises:
            OffsetOutOfRange, CorruptionError: as ``read``.
            LogTruncated: The records of ``lineage`` from ``offset`` on were cut off.

        Source: KIP-74 for the "at least one batch" rule.
        """
        try:
            self._readable_end(offset)
            committed = is_committed(isolation_level)
            view = self._decided() if committed else self.view
            limit = view.written_offset if replica else view.limit(committed)
            if offset >= limit:
                view = self.catch_up()
                view = self._decided() if committed else view
                limit = view.written_offset if replica else view.limit(committed)
            while True:
                known, view = view, self._view_from(offset)
                if view is not known:  # it may be of a log that was cut off since, and has grown again
                    limit = min(limit, view.written_offset if replica else view.limit(committed))
                if lineage is not None:
                    limit = min(limit, self._cut(lineage, offset))
                try:
                    batches, next_offset, self._cursor = reading.batches(view, offset, limit, size_bytes_max, self._cursor)
                    return batches, next_offset
                except CorruptionError as error:
                    self._raise_damage(view, error)
        except TypeError as error:
            raise explained(error, ReadableLog.read_batches, offset=offset, size_bytes_max=size_bytes_max) from error.__cause__

    def page(self, offset: int, size_bytes_max: int, *, committed: bool = False, lineage: Lineage | None = None) -> Page:
        """As ``read_batches``, after the records appended so far are written; with what a reader is told beside: all of one view."""
        if self._closed:
            raise self._host.refusal(self)
        while True:
            view = self.stable_view()
            if not view.start_offset <= offset <= self._next_offset:
                raise OffsetOutOfRange(self.topic, self.partition, offset, view.start_offset, self._next_offset)
            ends = Ends.of(view, committed)
            limit = ends.last_stable_offset if committed else ends.high_watermark
            if lineage is not None:
                limit = min(limit, self._cut(lineage, offset))
            try:
                batches, next_offset, self._cursor = reading.batches(view, offset, limit, size_bytes_max, self._cursor)
                aborted = self._aborted(view, offset, next_offset) if committed and batches else []
                return Page(batches, next_offset, aborted, ends)
            except CorruptionError as error:
                self._raise_damage(view, error)

    def _columns(
        self, offset: int | None, end_offset: int | None, isolation_level: IsolationLevel, use_threads: bool, columns: Sequence[str] | None
    ) -> "pyarrow.RecordBatchReader":
        lineage = self._lineage
        first = self.start_offset if offset is None else offset
        end = self._readable_end(first)
        end = end if end_offset is None else min(end, end_offset)
        aborted: list[AbortedTransaction] = []
        if is_committed(isolation_level):
            end, aborted = self._committed(first, end)
        if lineage is not self._lineage:  # as in ``read``
            return self._columns(offset, end_offset, isolation_level, use_threads, columns)
        chunks = self._chunks(lineage, first, end, positions=None, as_stored=True)
        chunks = without_aborted(chunks, aborted) if aborted else chunks
        return arrow.record_batches(chunks, first, end, columns, use_threads=use_threads)

    @checked_call
    def follow(
        self,
        offset: int,
        *,
        timeout_ms: Duration | None = None,
        stop: threading.Event | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[Record]:
        """Read records from ``offset`` on, and wait for more.

        Args:
            offset: The first offset to read, in [start_offset, end_offset].
            timeout_ms: End after so long without a record, milliseconds or a ``timedelta``; None: never.
            stop: End soon after it is set.
            isolation_level: As ``read``.

        Raises:
            OffsetOutOfRange, LogTruncated, CorruptionError: as ``read``, from the iterator.
            Closed: The database was closed meanwhile.
        """
        committed, view = is_committed(isolation_level), self.view
        while stop is None or not stop.is_set():
            self._readable_end(offset)
            self._check_lineage(view, offset)
            limit = self._limit(committed)
            # Before the caller holds a record: meanwhile the log may be truncated, and grow again.  Its segments would stay open.
            view = self.view._replace(segments=())
            for record in self.read(offset, end_offset=limit, isolation_level=isolation_level):
                yield record
                offset = record.offset + 1
                if stop is not None and stop.is_set():
                    return
            offset = max(offset, limit, self.view.start_offset)  # past offsets without records
            if not self._wait_for(offset, duration_ms(timeout_ms), stop, committed):
                return

    @checked_call
    def offset_for_timestamp(self, timestamp_ms: Timestamp) -> int | None:
        """The first offset whose record is as old as ``timestamp_ms`` or younger; None if there is none.

        Args:
            timestamp_ms: Milliseconds since 1970, or a ``datetime`` with a time zone.
        """
        found = self.record_since(timestamp_ms_of(timestamp_ms))
        return None if found is None else found[0]

    def record_since(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is as old as ``timestamp_ms`` or younger; None if there is none."""
        return self._sought(partial(reading.record_since, timestamp_ms=timestamp_ms))

    def _sought(self, seek: "Callable[[LogView, int], tuple[int, int] | None]", committed: bool = False) -> tuple[int, int] | None:
        self._readable_end(self.start_offset)
        self.catch_up()
        while True:
            view = self.view
            try:
                return seek(view, view.limit(committed))
            except FileMissing:
                if not self._replaced(view):
                    raise

    @checked_call
    def latest_record(self, *, isolation_level: IsolationLevel = "read_uncommitted") -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the largest timestamp, or of a transaction's marker; None if there is neither."""
        return self._sought(reading.latest, is_committed(isolation_level))

    def append_time_ms(self, offset: int) -> int:
        """When the batch at ``offset`` was appended, in ms since 1970; -1 unless records have that time (LogAppendTime) and it is there."""
        if not self._config.log_append_time:
            return -1
        try:
            _, batch = next(convert.headers(self.read_batches(offset, 1)[0]))
        except OffsetOutOfRange:
            return -1
        return batch.max_timestamp

    def epoch_end(self, epoch: int, *, current_epoch: int | None = None) -> EpochEnd | None:
        """What a leader answers to a reader that asks where ``epoch`` ends; see ``LeaderEpochs.answer``.

        Args:
            epoch: The latest epoch of what the reader has.
            current_epoch: Whose leader the reader takes this for; None: it does not say.

        Raises:
            FencedLeaderEpoch, UnknownLeaderEpoch: ``current_epoch`` is not this log's latest.

        Source: OffsetsForLeaderEpoch; KIP-101, KIP-279, KIP-320.
        """
        end_offset = self.end_offset  # read first: records of an epoch that begins in between are not the epoch's before it
        epochs = self.view.epochs
        if current_epoch is not None and current_epoch < epochs.latest:
            raise FencedLeaderEpoch(self.topic, self.partition, current_epoch, epochs.latest)
        if current_epoch is not None and current_epoch > epochs.latest:
            raise UnknownLeaderEpoch(self.topic, self.partition, current_epoch, epochs.latest)
        return epochs.answer(epoch, end_offset)

    def _readable_end(self, offset: int) -> int:
        """Where a read from ``offset`` ends; raises unless that is in the log."""
        if self._closed:
            raise self._host.refusal(self)
        end, view = self._next_offset, self.view
        if not view.start_offset <= offset <= end:
            raise OffsetOutOfRange(self.topic, self.partition, offset, view.start_offset, end)
        high_watermark = view.high_watermark
        return end if end <= high_watermark else high_watermark  # noqa: FURB136 -- each read comes here, and min() takes longer

    def _limit(self, committed: bool) -> int:
        """Where reading ends, once the records appended so far are written."""
        view = self.catch_up()
        return (self._decided() if committed else view).limit(committed)

    def _view_from(self, offset: int) -> LogView:
        """The latest view; raises unless it still holds ``offset``."""
        view = self.view
        if not view.start_offset <= offset <= self._next_offset:
            raise OffsetOutOfRange(self.topic, self.partition, offset, view.start_offset, self._next_offset)
        return view

    def _committed(self, offset: int, end_offset: int) -> tuple[int, list[AbortedTransaction]]:
        """The end of a read of committed records, at most ``end_offset``, and the aborted transactions that it leaves out."""
        end = min(end_offset, self._limit(True))
        return end, self.aborted_transactions(offset, end) if offset < end else []

    def _raise_damage(self, view: LogView, error: CorruptionError) -> FileMissing:
        """Raise what a read of a view has found, and remember it; returned: the file was only replaced meanwhile."""
        try:
            if not self._replaced(view):
                self.damage = self.damage or str(error)
                raise error
            if not isinstance(error, FileMissing):
                raise error
            return error
        finally:
            del error  # its traceback has this frame

    def _chunks_of_records(self, lineage: Lineage, offset: int, end_offset: int) -> Iterable[Buffer]:
        """The chunks of a record iterator; the first is one batch, which is enough for a read of one record."""
        view = self.view
        if view.start_offset <= offset < view.written_offset and view.high_watermark > offset < end_offset and lineage is self._lineage:
            try:
                found = read_batch(view.segments, offset, view.epochs.entries or None, self._positions)
            except Closed as error:
                raise self._closed_under(error) from None
            if found is not None:
                batch, offset = found
                return chain((batch,), self._chunks(lineage, offset, end_offset, positions=None))
        return self._chunks(lineage, offset, end_offset)

    def _chunks(
        self,
        lineage: Lineage,
        offset: int,
        end_offset: int,
        positions: Positions | Literal["own"] | None = "own",
        *,
        as_stored: bool = False,
    ) -> Iterator[Buffer]:
        if end_offset > self.view.written_offset:
            self.catch_up()
        return self._chunks_below(lineage, offset, end_offset, self._positions if positions == "own" else positions, as_stored)

    def _chunks_below(
        self, lineage: Lineage, offset: int, end_offset: int, positions: Positions | None, as_stored: bool
    ) -> Iterator[Buffer]:
        """``read_chunks``; where segments were removed or replaced under it, goes on with the current ones."""
        while True:
            view = self._view_from(offset)
            cut_offset = lineage.cut_offset if offset >= end_offset else self._cut(lineage, offset)
            limit = min(end_offset, view.written_offset, cut_offset)
            try:
                epochs = view.epochs.entries or None
                yield from read_chunks(view.segments, offset, limit, epochs, positions=positions, as_stored=as_stored)
            except CorruptionError as error:
                offset = self._raise_damage(view, error).offset
            except Closed as error:
                raise self._closed_under(error) from None
            else:
                if cut_offset < end_offset:
                    raise self._truncated(lineage, cut_offset, cut_offset)
                return

    def _cut(self, lineage: Lineage, offset: int) -> int:
        """Up to where the log has the records of ``lineage``, asked after a view was taken; raises unless that is past ``offset``."""
        cut_offset = lineage.cut_offset
        if cut_offset <= offset:
            raise self._truncated(lineage, offset, cut_offset)
        return cut_offset

    def _truncated(self, lineage: Lineage, offset: int, cut_offset: int) -> LogTruncated:
        return LogTruncated(self.topic, self.partition, offset, lineage.epoch_before(offset), cut_offset, self._next_offset)

    def _closed_under(self, error: Closed) -> LogdbError:
        """The error for a file that was closed under a reader: the database was closed, or the topic deleted."""
        return self._host.refusal(self) if self._closed else error

    def _check_epoch(self, offset: int, leader_epoch: int) -> None:
        log_end = self._next_offset
        end = self.view.epochs.end_of(leader_epoch, log_end)
        if end is None or offset > end:
            raise LogTruncated(self.topic, self.partition, offset, leader_epoch, log_end if end is None else end, log_end)

    def _check_lineage(self, view: LogView, offset: int) -> None:
        """Raise unless the records before ``offset`` are those of a former view, by their leader epochs."""
        if view.start_offset < offset <= view.written_offset and view.epochs.entries:
            self._check_epoch(offset, view.epochs.at(offset - 1))

    # ------------------------------------------------------------ waiting for more

    def _wait_for(self, offset: int, timeout_ms: int | None, stop: threading.Event | None, committed: bool) -> bool:
        """Wait until reading ends behind ``offset``; False after the timeout."""
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        grown = threading.Event()
        self.watch(grown)
        try:
            while True:
                grown.clear()
                limit = self._limit(committed)
                if self._closed:
                    raise self._host.refusal(self)
                if limit > offset:
                    return True
                self._view_from(offset)
                left = _FOLLOW_WAIT_MS_MAX / 1000 if until is None else until - time.monotonic()
                if left <= 0 or (stop is not None and stop.is_set()):
                    return False
                grown.wait(min(left, _FOLLOW_WAIT_MS_MAX / 1000))
        finally:
            self.unwatch(grown)

    def watch(self, grown: Signal) -> None:
        """Set ``grown`` whenever an end of the view moves, and when the log is closed, until ``unwatch``."""
        with self._watch_lock:
            self._watchers = (*self._watchers, grown)

    def unwatch(self, grown: Signal) -> None:
        with self._watch_lock:
            self._watchers = tuple(known for known in self._watchers if known is not grown)

    def wake(self) -> None:
        """Set all watching signals."""
        for grown in self._watchers:
            grown.set()
