"""What there is of one partition's log, and reading it.

Knows segments and where what was written ends.  Does not know how it came there.  Reading is a C iterator over the
chunks of ``log.reader``.

Threading: any number of threads.  What is read is found in two steps: ``_segments``, replaced as a whole, and files that
may be gone by then; whoever misses one looks whether there are other segments by now, and goes on with those.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

from logdb.codec import FSYNC, BatchBuilder, Positions, Record, RecordIterator, arrow, find_timestamp
from logdb.errors import Closed, CorruptionError, DiskFull, LogdbError, LogTruncated, OffsetOutOfRange, SyncFailed, WriteFailed
from logdb.log.epochs import LeaderEpochs
from logdb.log.host import Captured, End, Host
from logdb.log.isolation import IsolationLevel, is_committed, without_aborted
from logdb.log.producers import Producer
from logdb.log.recovery_point import Point, RecoveryPointFile
from logdb.log.replay import aborted_of
from logdb.log.segment_reader import FileMissing, SegmentReader, read_batch, read_chunks, segment_slot
from logdb.log.transactions import Transactions
from logdb.mistakes import door, explained
from logdb.model import AbortedTransaction, Buffer, Durability, LogConfig, OpenTransaction, Signal
from logdb.segment import buffers
from logdb.segment.segment import Segment

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

_FOLLOW_WAIT_MS_MAX = 50


class ReadableLog(BatchBuilder):
    """The part of a ``Log`` that only looks; ``Log`` makes what it looks at."""

    topic: str
    partition: int
    directory: str
    read_only_reason: str | None
    strict: bool
    _clock: Callable[[], int]
    _host: Host
    _config: LogConfig
    _level: int
    _gate: int
    _closed: bool
    _start_offset: int
    _segments: tuple[Segment, ...]
    _replacing: threading.Lock
    _epochs: LeaderEpochs
    _end: End
    _point: RecoveryPointFile
    _transactions: Transactions | None
    _positions: Positions
    _source: Callable[[int, int], Iterable[Buffer]]
    _cursor: tuple[int, Segment, int] | None
    _watchers: tuple[Signal, ...]
    _watch_lock: threading.Lock

    # ------------------------------------------------------------ what there is

    @property
    def closed(self) -> bool:
        """Whether the database, or its topic, is gone."""
        return self._closed

    @property
    def start_offset(self) -> int:
        """The first offset that can be read; retention and ``delete_records`` move it."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The next offset to be written; counts records that wait in the open batch."""
        return self._next_offset

    @property
    def durability(self) -> Durability:
        """The level of appends that name none."""
        return self._config.durability

    @property
    def last_stable_offset(self) -> int:
        """Where what is decided ends: the first offset of an open transaction, or else the end."""
        end, transactions = self._next_offset, self._transactions  # the end first: what is below it is known to be open
        first = None if transactions is None else transactions.accepted.first_unstable
        return end if first is None else min(max(first, self._start_offset), end)

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that were begun on this partition and not ended, by their first offsets."""
        return [] if self._transactions is None else self._transactions.accepted.open_transactions()

    @property
    def had_producers(self) -> bool:
        """Whether a batch of a producer was ever accepted."""
        return self._transactions is not None

    def producers(self) -> list[Producer]:
        """The producers that are known, as of what is written; those that sent nothing for long are forgotten first."""
        transactions = self._transactions
        if transactions is None:
            return []
        with transactions.lock:
            transactions.written.expire(self._clock())
            return list(transactions.written.producers.values())

    def written_stable_offset(self) -> int:
        """As ``last_stable_offset``, of what is in the files: a marker that waits in memory does not count."""
        return self._stable_end()

    @door
    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with batches in [``offset``, ``end_offset``), by their markers.

        Args:
            offset: Where reading began.
            end_offset: Where it ended, at most the last stable offset: what is still open is not in the list.

        Source: KIP-98, the list that goes with a fetch.
        """
        while True:
            segments = self._segments
            try:
                return self._find_aborted(segments, offset, end_offset)
            except FileMissing:
                if not self._replaced(segments):
                    raise

    def _find_aborted(self, segments: Sequence[Segment], offset: int, end_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for slot in range(segment_slot(segments, offset), len(segments)):
            transactions = segments[slot].transactions
            if not transactions:
                continue
            try:
                entries, complete = transactions.search(offset, end_offset)
            except CorruptionError as error:
                if self._replaced(segments):
                    raise FileMissing(segments[slot].path, offset) from error
                logger.warning("%s; made anew in memory", error)
                transactions.rebuilt(aborted_of(segments, slot, self._epochs.entries or None))
                entries, complete = transactions.search(offset, end_offset)
            found += entries
            if complete:
                break
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, as written."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def config(self) -> LogConfig:
        return self._config

    @property
    def epochs(self) -> LeaderEpochs:
        return self._epochs

    @door
    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at ``offset``; -1: unknown."""
        return self._epochs.at(offset)

    def written_end(self) -> End:
        """Where what was written ends, after a try to write what waits (what finds no room is not there yet)."""
        self._catch_up()
        return self._end

    def capture(self) -> Captured:
        """What was written by now, as a copy that stays.

        Raises:
            WriteFailed: A write was interrupted, and finishing it fails.
            CorruptionError: Only of a log that another process writes to.
        """
        end = self.written_end()
        transactions = self._transactions
        if transactions is None:  # looked at after the end: none of the batches before it has a producer
            return Captured(end, self._epochs, None, b"")
        with transactions.lock:
            end, producers = self._end, transactions.written.copy()
            if end.offset < transactions.written_offset:
                raise WriteFailed(self.directory, f"writing up to offset {transactions.written_offset} was interrupted at {end.offset}")
            aborted = b"" if end.segment is None else end.segment.transactions.below(end.offset)
            return Captured(end, self._epochs, producers, aborted)

    @property
    def epoch_start_offset(self) -> int:
        """Where the latest leader epoch begins."""
        return self._epochs.latest_start

    @property
    def flushed_offset(self) -> int:
        """Where what is known to be durable ends."""
        return self._point.point.offset

    @property
    def point(self) -> Point:
        """Where what is known to be durable ends."""
        return self._point.point

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
            offset: First offset wanted, in [start_offset, end_offset].
            end_offset: Stop before this one.
            leader_epoch: Epoch of the record before ``offset``, as the reader saw it;
                an offset lost since then is an error instead of other records.
            isolation_level: ``"read_committed"`` ends at the last stable offset, and leaves out aborted transactions.

        Returns:
            An iterator that holds no lock and no file; it sees everything appended
            by this process before the call.

        Raises:
            OffsetOutOfRange: ``offset`` is not in the log; it carries the range.
            LogTruncated: ``offset`` was lost (KIP-320).
            CorruptionError: When iteration comes to a damaged batch.
        """
        try:
            end = self._readable_end(offset)
            if leader_epoch is not None:
                self._check_epoch(offset, leader_epoch)
            if end_offset is not None and end_offset < end:
                end = end_offset
            if isolation_level != "read_uncommitted" and is_committed(isolation_level):
                end, aborted = self._committed(offset, end)
                if aborted:

                    def source(offset: int, end_offset: int) -> Iterator[Buffer]:
                        return without_aborted(self._chunks(offset, end_offset), aborted)

                    return RecordIterator(source, offset, end, self.topic, self.partition)
            return RecordIterator(self._source, offset, end, self.topic, self.partition, self._positions)
        except TypeError as error:
            raise explained(error, ReadableLog.read, offset=offset, end_offset=end_offset, leader_epoch=leader_epoch) from error.__cause__

    def read_batches(
        self, offset: int, size_bytes_max: int = buffers.READ_SIZE_BYTES, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> tuple[memoryview, int]:
        """Read whole record batches, as stored, from the one that holds ``offset``.

        The first batch may begin below ``offset``: batches are never split.

        Args:
            offset: First offset wanted, in [start_offset, end_offset].
            size_bytes_max: Soft limit.  One batch is returned even if it alone is larger,
                or the reader could never advance.
            isolation_level: ``"read_committed"`` ends at the last stable offset; ``aborted_transactions`` says what of the
                batches does not count.

        Returns:
            Batches (compressed as they are, CRC checked) and the offset to go on from.
            The memory is the caller's for as long as the view, or one made from it, is alive.

        Raises:
            OffsetOutOfRange, CorruptionError: as ``read``.

        Source: KIP-74 for the "at least one batch" rule.
        """
        try:
            self._readable_end(offset)
            end_of = self._stable_end if is_committed(isolation_level) else self._written_end
            end = end_of()
            if offset >= end:
                self._catch_up()
                end = end_of()
            while True:
                segments = self._segments_from(offset)
                try:
                    return self._read_batches(segments, offset, end, size_bytes_max)
                except FileMissing:
                    if not self._replaced(segments):
                        raise
        except TypeError as error:
            raise explained(error, ReadableLog.read_batches, offset=offset, size_bytes_max=size_bytes_max) from error.__cause__

    def _read_batches(self, segments: Sequence[Segment], offset: int, end: int, size_bytes_max: int) -> tuple[memoryview, int]:
        epochs, cursor = self._epochs.entries or None, self._cursor
        slot = segment_slot(segments, offset) if segments else 0
        while slot < len(segments) and offset < end:
            segment = segments[slot]
            if cursor is not None and cursor[0] == offset and cursor[1] is segment:
                reader = SegmentReader.resume(segment, offset, cursor[2], end, epochs)
            else:
                reader = SegmentReader(segment, max(offset, segment.base_offset), end, epochs)
            view = reader.read(max(size_bytes_max, 1))
            while view is not None and reader.next_offset <= offset:  # the index led to far before it
                view = reader.read(max(size_bytes_max, 1))
            if view is not None:
                self._cursor = (reader.next_offset, segment, reader.position)
                return view, reader.next_offset
            slot += 1
        return memoryview(b""), offset

    @door
    def read_arrow(
        self,
        offset: int | None = None,
        *,
        end_offset: int | None = None,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> "Iterator[pyarrow.RecordBatch]":
        """Read records as Arrow batches, decoded in C.

        Args:
            offset: First offset wanted; None: the log start.
            end_offset: Stop before this one; None: where the log ends now.
            columns: Some of offset, timestamp, timestamp_type, key, value, headers, in the order wanted; None: all but the type.
            isolation_level: As ``read``.

        Returns:
            Batches of some thousand rows.  offset: int64; timestamp: timestamp[ms, UTC]; timestamp_type: int32, 0
            CreateTime, 1 LogAppendTime; key, value: binary; headers: list<struct<key: string, value: binary>>.

        Raises:
            ValueError: An unknown column.
            OffsetOutOfRange, CorruptionError: as ``read``.
        """
        if offset is None:
            offset = self.start_offset
        end = self._readable_end(offset)
        end = end if end_offset is None else min(end, end_offset)
        aborted: list[AbortedTransaction] = []
        if is_committed(isolation_level):
            end, aborted = self._committed(offset, end)
        chunks = self._chunks(offset, end, positions=None)
        return arrow.record_batches(without_aborted(chunks, aborted) if aborted else chunks, offset, end, columns)

    @door
    def follow(
        self,
        offset: int,
        *,
        timeout_ms: int | None = None,
        stop: threading.Event | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[Record]:
        """Read records from ``offset`` on, and wait for more.

        Args:
            offset: First offset wanted, in [start_offset, end_offset].
            timeout_ms: End after so long without a record; None: never.
            stop: End soon after it is set.
            isolation_level: As ``read``.

        Raises:
            OffsetOutOfRange, CorruptionError: as ``read``, from the iterator.
            Closed: The database was closed meanwhile.
        """
        end_of = self._stable_end if is_committed(isolation_level) else self._written_end
        while stop is None or not stop.is_set():
            self._readable_end(offset)
            self._catch_up()
            end = end_of()
            for record in self.read(offset, end_offset=end, isolation_level=isolation_level):
                yield record
                offset = record.offset + 1
                if stop is not None and stop.is_set():
                    return
            offset = max(offset, end, self._start_offset)  # past what is never handed out
            if not self._wait_for(offset, timeout_ms, stop, end_of):
                return

    @door
    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """The first offset whose record is as old as ``timestamp_ms`` (milliseconds since 1970) or younger; None if there is none."""
        self._readable_end(self.start_offset)
        self._catch_up()
        while True:
            segments = self._segments
            try:
                return self._find_timestamp(segments, timestamp_ms)
            except FileMissing:
                if not self._replaced(segments):
                    raise

    def _find_timestamp(self, segments: Sequence[Segment], timestamp_ms: int) -> int | None:
        end, start_offset = self._end.offset, self._start_offset
        for slot, segment in enumerate(segments):
            if segment.max_timestamp < timestamp_ms:
                continue
            try:
                offset = max(segment.offset_before_timestamp(timestamp_ms), start_offset)
            except FileNotFoundError:
                raise FileMissing(segment.path, start_offset) from None
            for chunk in read_chunks(segments[slot:], offset, end, self._epochs.entries or None):
                if found := find_timestamp(chunk, offset, timestamp_ms):
                    return found[0]
        return None

    def readable_end_offset(self, isolation_level: IsolationLevel = "read_uncommitted") -> int:
        """Where reading ends now; everything appended so far is written first, if it can be.

        Unlike ``end_offset`` it counts no record that still waits because the disk is full.
        """
        if self._closed:
            raise self._host.refusal(self)
        self._catch_up()
        return self._stable_end() if is_committed(isolation_level) else self._written_end()

    def _readable_end(self, offset: int) -> int:
        """Where a read from ``offset`` ends; raises unless that is in the log."""
        if self._closed:
            raise self._host.refusal(self)
        end = self._next_offset
        if not self._start_offset <= offset <= end:
            raise OffsetOutOfRange(self.topic, self.partition, offset, self._start_offset, end)
        return end

    def _segments_from(self, offset: int) -> tuple[Segment, ...]:
        """The segments as they are now; raises unless they still hold ``offset``."""
        segments = self._segments
        if offset < self._start_offset:  # which moves before the segments go
            raise OffsetOutOfRange(self.topic, self.partition, offset, self._start_offset, self._next_offset)
        return segments

    def _replaced(self, segments: Sequence[Segment]) -> bool:
        """Whether the log has other segments by now than ``segments``, of which a file is missing."""
        with self._replacing:
            return self._segments is not segments

    def _written_end(self) -> int:
        return self._end.offset

    def _stable_end(self) -> int:
        """Where what is written and decided ends."""
        end, transactions = self._end.offset, self._transactions
        first = None if transactions is None else transactions.written.first_unstable
        return end if first is None else min(first, end)

    def _committed(self, offset: int, end_offset: int) -> tuple[int, list[AbortedTransaction]]:
        """Where a read of committed records ends, at most ``end_offset``, and which transactions it leaves out."""
        self._catch_up()
        end = min(end_offset, self._stable_end())
        return end, self.aborted_transactions(offset, end) if offset < end else []

    def _catch_up(self) -> None:
        """Let everything appended so far be written, so that it can be read.

        What cannot be written now is not there to be read yet; the rest is.  At level fsync
        a group goes out when the one before it is durable, so readers join the next sync.
        """
        if self._next_offset > self._end.offset:
            with contextlib.suppress(DiskFull, WriteFailed, SyncFailed):
                if self._strict_now() and not self._gate:
                    self._commit(self._next_offset, FSYNC)
                else:
                    self._drain()

    def _chunks_of_records(self, offset: int, end_offset: int) -> Iterable[Buffer]:
        """What a record iterator reads: first, for who wants no more, one batch."""
        if offset < min(self._end.offset, end_offset):
            try:
                found = read_batch(self._segments_from(offset), offset, self._epochs.entries or None, self._positions)
            except Closed as error:
                raise self._closed_under(error) from None
            if found is not None:
                batch, offset = found
                return chain((batch,), self._chunks(offset, end_offset, positions=None))
        return self._chunks(offset, end_offset)

    def _chunks(self, offset: int, end_offset: int, positions: Positions | Literal["own"] | None = "own") -> Iterator[Buffer]:
        if end_offset > self._end.offset:
            self._catch_up()
        return self._chunks_below(offset, min(end_offset, self._end.offset), self._positions if positions == "own" else positions)

    def _chunks_below(self, offset: int, end_offset: int, positions: Positions | None) -> Iterator[Buffer]:
        """``read_chunks``; where segments were removed or replaced under it, goes on with those that are there now."""
        while True:
            segments = self._segments_from(offset)
            try:
                yield from read_chunks(
                    segments,
                    offset,
                    end_offset,
                    self._epochs.entries or None,
                    positions=positions,
                )
            except FileMissing as missing:
                if not self._replaced(segments):
                    raise
                offset = missing.offset
            except Closed as error:
                raise self._closed_under(error) from None
            else:
                return

    def _closed_under(self, error: Closed) -> LogdbError:
        """Why a file that a reader needs was closed: the database was, or the topic was deleted."""
        return self._host.refusal(self) if self._closed else error

    def _check_epoch(self, offset: int, leader_epoch: int) -> None:
        end = self._epochs.end_of(leader_epoch, self._next_offset)
        if end is None or offset > end:
            ends = self._next_offset if end is None else end
            raise LogTruncated(self.topic, self.partition, offset, leader_epoch, ends, self._next_offset)

    def _wait_for(self, offset: int, timeout_ms: int | None, stop: threading.Event | None, end_of: Callable[[], int]) -> bool:
        """Wait until the end, ``end_of``, is behind ``offset``; False if that did not come in time."""
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        grown = threading.Event()
        self.watch(grown)
        try:
            while True:
                grown.clear()
                self._catch_up()
                if self._closed:
                    raise self._host.refusal(self)
                if end_of() > offset:
                    return True
                left = _FOLLOW_WAIT_MS_MAX / 1000 if until is None else until - time.monotonic()
                if left <= 0 or (stop is not None and stop.is_set()):
                    return False
                grown.wait(min(left, _FOLLOW_WAIT_MS_MAX / 1000))
        finally:
            self.unwatch(grown)

    def watch(self, grown: Signal) -> None:
        """Set ``grown`` whenever something was written, and when the log is closed, until ``unwatch``."""
        with self._watch_lock:
            self._watchers = (*self._watchers, grown)

    def wake(self) -> None:
        """Set what watches: there is something to be looked at."""
        for grown in self._watchers:
            grown.set()

    def unwatch(self, grown: Signal) -> None:
        with self._watch_lock:
            self._watchers = tuple(known for known in self._watchers if known is not grown)

    def _strict_now(self) -> bool:
        return self.strict and self._level == FSYNC  # its appenders write and sync in groups themselves
