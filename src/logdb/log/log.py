"""One partition's log.

Knows segments, offsets, epochs, levels and what is durable.  Does not know other
partitions, the catalogue or the threads that flush: its ``Host`` does.

Appending one record, ``append``, and ``append_many`` are C (``BatchBuilder``, the base
class); they hand full buffers of batches to ``_write`` below and, at level fsync, wait
in ``_commit``.  Reading is a C iterator over the chunks of ``log.reader``.

Threading: any number of threads.  ``_write`` runs under the builder's write lock; what it
changes is published by one assignment to ``_end``, after which readers may see it.
``_sync_lock`` is held by whoever syncs; a thread may drain the builder while it holds that,
never the other way round.  ``_segments_lock`` is held by whoever writes to the active segment or
changes which segments there are; it is taken last.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from logdb.codec import (
    FSYNC,
    INTERVAL,
    OS,
    BatchBuilder,
    Positions,
    Record,
    RecordIterator,
    arrow,
    convert,
    find_timestamp,
    last_offset,
    split,
)
from logdb.codec.control import ControlType
from logdb.errors import (
    CorruptionError,
    DiskFull,
    InvalidRecord,
    InvalidTimestamp,
    LogdbError,
    LogTruncated,
    OffsetOutOfRange,
    RecordTooLarge,
    SyncFailed,
    UnexpectedOffset,
    WriteFailed,
)
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import producer_snapshot
from logdb.log.epochs import LeaderEpochs
from logdb.log.group_commit import GroupCommit
from logdb.log.isolation import IsolationLevel, is_committed, without_aborted
from logdb.log.producers import Producer, ProducerStates
from logdb.log.reader import DECOMPRESSED_SIZE_BYTES_MAX, FileMissing, SegmentReader, read_batch, read_chunks, segment_slot
from logdb.log.recovery_point import Point, RecoveryPointFile
from logdb.log.replay import aborted_of
from logdb.log.transactions import Admission, Duplicate, Transactions
from logdb.meta import LogEntry, SegmentEntry
from logdb.model import (
    COMPRESSION_TYPES,
    DURABILITY_LEVELS,
    OFFSET_MAX,
    AbortedTransaction,
    Buffer,
    Durability,
    LogConfig,
    OpenTransaction,
    ProducerIdAndEpoch,
    TopicPartition,
)
from logdb.segment import buffers
from logdb.segment.files import sync_directory, write_error
from logdb.segment.segment import Segment

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

WRITE_SIZE_BYTES = 128 << 10  # one write(2) for each 16 KiB would halve the speed
CHECKPOINT_SIZE_BYTES = 64 << 20  # unsynced, and so to be scanned after a crash, at most
GATE_SHUT, GATE_SEALED = 1, 2  # takes no records; and writes none of those it took
NOTE_SIZE_BYTES = 8 << 20  # written, and so to be checked after a crash of the process, at most
GROUP_SIZE_BYTES = 1 << 20  # what one fdatasync makes durable at level fsync, at most
_FOLLOW_WAIT_MS_MAX = 50


class Host(Protocol):
    """What a log asks of the store that opened it."""

    def wake(self, log: "Log") -> None:
        """Something waits to be written, synced or sealed."""

    def weaken(self, log: "Log") -> None:
        """Note durably that records past the recovery point were appended below level fsync."""

    def note_producers(self, log: "Log", snapshot_offset: int) -> None:
        """Note durably that the log has producers from now on, and that the snapshot says what they were before: none."""

    def refusal(self, log: "Log") -> LogdbError:
        """Why the log takes no records."""

    def view(self, log: "Log", generation: int) -> "View | None":
        """What the catalogue says of the log and its sealed segments by now; None while that is the ``generation``.

        Raises:
            UnknownTopic: Its topic was deleted.
        """


class View(NamedTuple):
    """What the catalogue says of a log; ``pending``: a swap of its segments was committed and may not be finished."""

    entry: LogEntry
    sealed: Sequence[SegmentEntry]
    pending: bool


class End(NamedTuple):
    """Where what was written ends."""

    segment: Segment | None
    position: int
    offset: int


class Log(BatchBuilder):
    """One partition: append records, read them back.  Made by ``Database.log``."""

    def __init__(
        self,
        *,
        io: IO,
        clock: Callable[[], int] | None,
        host: Host,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        batch_size: int,
        segments: Sequence[Segment],
        epochs: LeaderEpochs,
        point: RecoveryPointFile,
        start_offset: int,
        next_offset: int,
        strict: bool,
        unsealed: Sequence[Segment] = (),
        transactions: Transactions | None = None,
        writable: bool = True,
    ) -> None:
        super().__init__(
            next_offset=next_offset,
            leader_epoch=epochs.latest,
            batch_size=min(batch_size, config.max_message_bytes),
            write_size=min(WRITE_SIZE_BYTES, config.segment_bytes),
            group_size=GROUP_SIZE_BYTES,
            clock=clock,
        )
        self.topic, self.partition, self.directory = topic, partition, directory
        self._start_offset = start_offset
        self.read_only_reason: str | None = None
        self.strict = strict
        self._io, self._clock, self._host, self._batch_size = io, clock or io.clock_ms, host, batch_size
        self._segments = tuple(segments)
        self._segments_lock = threading.Lock()
        self._replacing = threading.Lock()  # while files get other names: whoever misses one waits
        self._epochs, self._epochs_unsynced = epochs, False
        self._point = point
        last = self._segments[-1] if self._segments else None
        self._end = End(last, last.size_bytes if last else 0, next_offset)
        self._noted_position = self._end.position
        self._tried = (-1, 0, 0)  # of the buffer that is written: base offset, codec, and room in the segment when it came
        self._weak_count = 0  # of calls under way whose batches may come in below level fsync, or be more than a group
        self._transactions = transactions  # None until the first batch of a producer comes
        self._unsynced_since_ms = 0
        self._interval_wanted = False
        self._sealing: list[Segment] = list(unsealed)
        self.checkpointed, self._checkpointed_ms = point.point, io.monotonic_ms()
        self._sync_lock = threading.Lock()
        self._group_commit = GroupCommit(self._write_and_sync)
        self._positions = Positions()
        self._source = self._chunks_of_records
        self._cursor: tuple[int, Segment, int] | None = None
        self._watchers: tuple[threading.Event, ...] = ()
        self._watch_lock = threading.Lock()
        self._closed = False
        self._gate = 0 if writable else GATE_SHUT
        self.configure(config)

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition} [{self._start_offset}, {self.end_offset})>"

    # ------------------------------------------------------------ what there is

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
            transactions.expire(self._clock())
            return list(transactions.written.producers.values())

    def written_stable_offset(self) -> int:
        """As ``last_stable_offset``, of what is in the files: a marker that waits in memory does not count."""
        return self._stable_end()

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
    ) -> Iterator[Record]:
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
            columns: Some of offset, timestamp, key, value, headers, in the order wanted; None: all.
            isolation_level: As ``read``.

        Returns:
            Batches of some thousand rows.  offset: int64; timestamp: timestamp[ms, UTC]; key,
            value: binary; headers: list<struct<key: string, value: binary>>.

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
            found = read_batch(self._segments_from(offset), offset, self._epochs.entries or None, self._positions)
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
                    decompressed_size_bytes_max=max(DECOMPRESSED_SIZE_BYTES_MAX, self._config.max_message_bytes),
                )
            except FileMissing as missing:
                if not self._replaced(segments):
                    raise
                offset = missing.offset
            else:
                return

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

    def watch(self, grown: threading.Event) -> None:
        """Set ``grown`` whenever something was written, and when the log is closed, until ``unwatch``."""
        with self._watch_lock:
            self._watchers = (*self._watchers, grown)

    def unwatch(self, grown: threading.Event) -> None:
        with self._watch_lock:
            self._watchers = tuple(known for known in self._watchers if known is not grown)

    # ------------------------------------------------------------ appending

    def append_batches(
        self, batches: Buffer, *, expected_offset: int | None = None, durability: str | None = None, internal: bool = False
    ) -> range:
        """Append ready-made record batches, as a server gets them over a wire.

        They are checked once (CRC, counts, every record within bounds) and stored as they
        came, but for base offset and leader epoch and, where the topic says
        LogAppendTime, timestamp and CRC.

        Batches with a producer id are checked against what the log knows of the producer.  All of a call that are among
        its last five are not appended again: the call returns their offsets, once they are what its level asks for.
        Transactional ones begin the producer's transaction on this partition.

        Args:
            batches: RecordBatch v2, back to back, any codec.
            expected_offset: Fail unless the log ends here; but for batches that are known already.
            durability: Level of this call; None: the topic's.
            internal: They are a coordinator's own: their producer is checked, sequences they have none.

        Returns:
            The offsets given, or those of the originals.

        Raises:
            InvalidBatch: Something is wrong with them; nothing was appended.
            RecordTooLarge: A batch is over ``max.message.bytes``.
            ProducerFenced: A newer epoch of the producer was here.
            OutOfOrderSequence: Batches of it are missing before these, or they are older than its last five; or some of
                a call are known, and others not.
            InvalidTransactionState: It has a transaction open here, and these are not in it.
            UnexpectedOffset, DiskFull, SyncFailed: as ``append``.

        Source: KIP-98.
        """
        view = memoryview(batches).cast("B")
        if self._gate:
            raise self._host.refusal(self)
        if not view:
            return self.append_many((), expected_offset=expected_offset, durability=durability)
        if len(view) > GROUP_SIZE_BYTES:
            return self._append_large(view, expected_offset, durability, internal)
        return self._append_group(view, expected_offset, durability, internal)

    def _append_group(self, batches: memoryview, expected_offset: int | None, durability: str | None, internal: bool) -> range:
        """Append batches that are written as one."""
        size_bytes = len(batches)
        buffer = self._buffer(size_bytes)
        view = memoryview(buffer)[:size_bytes]
        view[:] = batches  # from here on nobody else can change them
        incoming = self._check_batches(view)
        del view  # the buffer is the builder's
        if not incoming.produced:
            return self._append_raw(buffer, size_bytes, incoming.record_count, expected_offset, durability)
        transactions = self._begun_transactions()
        admission = transactions.batches(incoming.produced, incoming.batch_count, self._clock(), sequenced=not internal)
        try:
            return self._append_admitted(buffer, size_bytes, incoming.record_count, expected_offset, durability, admission)
        except Duplicate as known:
            offsets = known.offsets
        except UnexpectedOffset:  # a try again comes too late for its own original
            found = None if internal else transactions.offsets_of(incoming.produced, incoming.batch_count)
            if found is None:
                raise
            offsets = found
        self._acknowledge(offsets.stop, durability)
        return offsets

    def append_marker(self, producer: ProducerIdAndEpoch, *, commit: bool, coordinator_epoch: int, durability: str | None = None) -> int:
        """End a producer's transaction on this partition; for the coordinator of transactions.

        Args:
            producer: Whose; an epoch newer than its batches' fences those who still send under the older one.
            commit: Its records count from now on, or never.
            coordinator_epoch: Of the coordinator, in [0, 2^31).
            durability: Level of this call; None: the topic's.

        Returns:
            The offset of the marker, which is written also where no transaction is open.

        Raises:
            ProducerFenced, CoordinatorFenced: A newer epoch of either was here.
            DiskFull, SyncFailed: as ``append``.

        Source: KIP-98, WriteTxnMarkers.
        """
        if self._gate:
            raise self._host.refusal(self)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        batch, admission = self._begun_transactions().marker(kind, producer, coordinator_epoch, self._clock())
        buffer = self._buffer(len(batch))
        buffer[: len(batch)] = batch
        return self._append_admitted(buffer, len(batch), 1, None, durability, admission)[0]

    def _begun_transactions(self) -> Transactions:
        """What is known of the producers; before the first of them comes, the catalogue has to know that there are any."""
        if self._transactions is None:
            with self._sync_lock:
                if self._transactions is None:
                    offset = self._point.point.offset
                    producer_snapshot.save(self._io, self.directory, offset, ProducerStates())
                    self._host.note_producers(self, offset)
                    self._transactions = Transactions(TopicPartition(self.topic, self.partition), ProducerStates(), (offset,), offset)
        return self._transactions

    def _append_admitted(
        self,
        buffer: bytearray,
        size_bytes: int,
        record_span: int,
        expected_offset: int | None,
        durability: str | None,
        admission: Admission,
    ) -> range:
        """Append batches if they are admitted once their offsets are known."""
        weak = durability not in (None, "fsync")  # Python runs between the builder's look at `strict` and the append
        self._weak_count += weak
        try:
            return self._append_raw(buffer, size_bytes, record_span, expected_offset, durability, admission)
        finally:
            self._weak_count -= weak

    def _acknowledge(self, next_offset: int, durability: str | None) -> None:
        """Return once what was accepted below ``next_offset`` is what an append at that level waits for."""
        level = self._level if durability is None else DURABILITY_LEVELS.index(durability)
        if level != FSYNC and self._written_offset < next_offset:
            self._drain()
        if level == FSYNC or (level == INTERVAL and self._level == OS):
            self._commit(next_offset, level)

    def _check_batches(self, view: memoryview) -> convert.Incoming:
        """Check batches from outside, stamp them where the topic wants that."""
        config = self._config
        incoming = convert.check_incoming(
            view,
            keys_required=config.compacted,
            size_bytes_max=config.max_message_bytes,
            decompressed_size_bytes_max=max(DECOMPRESSED_SIZE_BYTES_MAX, config.max_message_bytes),
        )
        if config.log_append_time:
            convert.stamp_append_time(view, self._clock())
        elif config.timestamp_after_max_ms < OFFSET_MAX and incoming.record_count:
            now = self._clock()
            if incoming.max_timestamp > now + config.timestamp_after_max_ms:
                self._reject("timestamp", incoming.max_timestamp, now, config.timestamp_before_max_ms, config.timestamp_after_max_ms)
        return incoming

    def _append_large(self, batches: memoryview, expected_offset: int | None, durability: str | None, internal: bool) -> range:
        """Append more than a group at once: for as long, recovery is told not to count on groups."""
        self._weak_count += 1
        try:
            self._weaken()
            return self._append_group(batches, expected_offset, durability, internal)
        finally:
            self._weak_count -= 1

    def flush(self, sync: bool = True) -> None:
        """Return once everything appended so far is durable, or with ``sync=False`` with the operating system.

        Raises:
            DiskFull: There is no room; what was accepted is kept and tried again.
            SyncFailed: Final; the database is read-only until reopened.
            Closed, ReadOnly, Forked: as they say.
        """
        if self._gate:
            raise self._host.refusal(self)
        if sync or self._strict_now():  # at level fsync nothing is written that the last sync has not made room for
            self._commit(self._next_offset, FSYNC)
        else:
            self._drain()

    def configure(self, config: LogConfig) -> None:
        """Work by other configs from the next batch on."""
        self._config = config
        self._level = DURABILITY_LEVELS.index(config.durability)
        self._codec = COMPRESSION_TYPES.index(config.compression_type)
        self._configure(
            level=self._level,
            gate=self._gate,
            strict=self.strict,
            keys_required=config.compacted,
            log_append_time=config.log_append_time,
            timestamp_before_max_ms=config.timestamp_before_max_ms,
            timestamp_after_max_ms=config.timestamp_after_max_ms,
            message_size_max=config.max_message_bytes,
            batch_size=min(self._batch_size, config.max_message_bytes),
        )

    # ------------------------------------------------------------ hooks of the builder

    def _write(self, batches: memoryview, base_offset: int, next_offset: int, _max_timestamp: int) -> None:
        """Write a buffer of batches; under the builder's write lock.  Tried again with the same bytes if it raises."""
        if self._gate == GATE_SEALED:
            raise self._host.refusal(self)
        with self._segments_lock:
            self._write_batches(batches, base_offset, next_offset)
        for grown in self._watchers:
            grown.set()

    def _write_batches(self, batches: memoryview, base_offset: int, next_offset: int) -> None:
        if base_offset != self._tried[0]:
            self._tried = (base_offset, self._codec, self._room())
        # A try again writes the same bytes and rolls at the same places, whatever the config is by then.
        _, codec, room = self._tried
        if codec:
            batches = memoryview(convert.compress_batches(batches, codec))
        parts = [batches] if len(batches) <= room else split(batches, room)
        for part in parts:
            part_next = next_offset if part is parts[-1] else last_offset(part) + 1
            if part_next <= self._end.offset:  # an earlier try got so far
                continue
            segment, now_ms = self._end.segment, self._clock()
            try:
                if segment is not None and not (segment.whole and segment.size_bytes == self._end.position):
                    segment.restore(self._end.position, self._end.offset)
                if segment is None or self._must_roll(segment, len(part), part_next, now_ms):
                    segment = self._roll(self._end.offset, now_ms)
                segment.append(part, part_next, preallocate=self._level == FSYNC)
            except OSError as error:
                raise write_error(segment.path if segment else self.directory, len(part), error) from error
            segment.append_ms = now_ms
            if not self._unsynced_since_ms:
                self._unsynced_since_ms = self._io.monotonic_ms()
                self._host.wake(self)
            end = End(segment, segment.size_bytes, part_next)
            if self._transactions is not None and self._transactions.pending:
                with self._transactions.lock:
                    self._transactions.advance(part_next, segment.transactions)
                    self._end = end
            else:
                self._end = end
            if segment.size_bytes - self._noted_position >= NOTE_SIZE_BYTES:
                self._noted_position = segment.size_bytes
                segment.note_indexes()
                self._point.note(written=Point(segment.base_offset, part_next, segment.size_bytes))

    def _woken(self) -> None:
        self._host.wake(self)

    def _weaken(self) -> None:
        if self.strict:
            self._host.weaken(self)
            self.strict = False
            self.configure(self._config)

    def _commit(self, next_offset: int, level: int) -> None:
        """Return once everything below ``next_offset`` is durable; concurrent callers share one sync."""
        if level != FSYNC:
            if not self._interval_wanted:
                self._interval_wanted = True
                self._host.wake(self)
            return
        if self._point.point.offset < next_offset:
            self._group_commit.commit(next_offset)

    def _write_and_sync(self) -> int:
        """What a group commit does; returns up to where everything is durable."""
        with self._sync_lock:
            self._drain()
            self._sync()
            return self._point.point.offset

    def _reject(self, reason: str, *numbers: int) -> None:
        """Raise what the builder found."""
        match reason:
            case "size":
                raise RecordTooLarge(numbers[0], numbers[1])
            case "expected_offset":
                raise UnexpectedOffset(self.topic, self.partition, numbers[0], numbers[1])
            case "timestamp":
                at, now, before, after = numbers
                allowed = f"[{max(0, now - before)}, {min(OFFSET_MAX, now + after)}]"
                raise InvalidTimestamp(at, f"{self.topic} accepts {allowed} (message.timestamp.before.max.ms and after.max.ms)")
            case "key":
                raise InvalidRecord(f"{self.topic} is compacted: every record needs a key")
        raise self._host.refusal(self)

    # ------------------------------------------------------------ segments

    def _must_roll(self, segment: Segment, size_bytes: int, next_offset: int, now_ms: int) -> bool:
        config = self._config
        scanner = segment.scanner
        return segment.size_bytes > 0 and (
            segment.size_bytes + size_bytes > config.segment_bytes
            or now_ms - segment.created_ms >= config.segment_ms
            or next_offset - segment.base_offset > 2**31 - 1
            or (scanner is not None and len(scanner.index) + 8 > config.segment_index_bytes)
        )

    def _room(self) -> int:
        """Bytes that still fit into the active segment, or all of a new one."""
        room = self._config.segment_bytes - self._end.position
        return room if room > 0 else self._config.segment_bytes

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begin a new active segment; the old one is sealed in the background.  Under ``_segments_lock``."""
        if not self._epochs.entries:
            epochs = self._epochs
            self._epochs = epochs.begun(self.leader_epoch, base_offset)
            try:
                self._save_epochs(sync=False)
            except LogdbError:
                self._epochs = epochs  # the next try begins it
                raise
        if self._segments:
            self._segments[-1].trim()
        segment = Segment(self._io, self.directory, base_offset, writable=True, index_interval_bytes=self._config.index_interval_bytes)
        segment.create(now_ms)
        older = self._segments
        while older and older[-1].base_offset >= base_offset:  # of a roll that was cut short
            older = older[:-1]
        if older and older[-1] not in self._sealing:
            self._sealing.append(older[-1])
            self._host.wake(self)
        self._noted_position = 0
        self._segments = (*older, segment)
        self._end = End(segment, 0, base_offset)
        return segment

    def roll(self, end_offset: int | None = None) -> bool:
        """Seal the active segment although it is not full, if it is not empty and ends at ``end_offset`` (None: wherever it ends).

        Returns:
            Whether it was rolled over; it and the new one are durable then.
        """
        with self._sync_lock:
            with self._segments_lock:
                end = self._end
                if end.offset != (end.offset if end_offset is None else end_offset) or not end.position:
                    return False
                try:
                    segment = self._roll(end.offset, self._clock())
                except OSError as error:
                    raise write_error(self.directory, 0, error) from error
            self._sync()
            if segment.new:
                sync_directory(self._io, self.directory)
                segment.new = False
            if self._point.point.offset == end.offset:
                self._point.note(point=Point(end.offset, end.offset, 0))
            return True

    def begin_at(self, start_offset: int) -> list[Segment]:
        """Begin at a later offset, as the catalogue says by now.

        Returns:
            The sealed segments wholly below it: no part of the log any more, but who reads them may go on.
        """
        with self._segments_lock:
            gone = [segment for segment in self._segments[:-1] if segment.next_offset <= start_offset]
            self._start_offset = start_offset
            self._segments = self._segments[len(gone) :]
            self._sealing = [segment for segment in self._sealing if segment not in gone]
        self._positions.clear()
        self._cursor = None
        return gone

    def replace(self, old: Sequence[Segment], make: Callable[[], Sequence[Segment]]) -> None:
        """Have other segments, with the same offsets, in the place of sealed ones.

        Args:
            old: Some in a row.  Who reads one of them goes on with it as long as its file is open, else with the new ones.
            make: Gives files their final names, and returns the new segments.
        """
        with self._replacing:
            made = make()
            with self._segments_lock:
                first = self._segments.index(old[0])
                self._segments = (*self._segments[:first], *made, *self._segments[first + len(old) :])
        self._positions.clear()
        self._cursor = None

    # ------------------------------------------------------------ durability

    def _sync(self) -> None:
        """Make what was written durable and move the recovery point; under ``_sync_lock``.

        Raises:
            SyncFailed: Final.
            DiskFull, WriteFailed: The epoch checkpoint could not be written; nothing was acknowledged.
        """
        if self._closed:
            raise self._host.refusal(self)
        end, point = self._end, self._point.point
        if end.segment is None or (end.offset == point.offset and not self._epochs_unsynced):
            return
        now_ms = self._io.monotonic_ms()
        tail = self._segments[segment_slot(self._segments, point.offset) :]
        for segment in tail:
            if (file := segment.file) is not None and file.dirty:
                file.sync()
        if self._epochs_unsynced:
            self._save_epochs(sync=True)
        if any(segment.new for segment in tail):
            sync_directory(self._io, self.directory)
            for segment in tail:
                segment.new = False
        self._unsynced_since_ms = 0 if self._end is end else now_ms
        self._interval_wanted = self._interval_wanted and (self._end is not end or self._pending_count > 0)
        self._point.note(point=Point(end.segment.base_offset, end.offset, end.position))

    def _save_epochs(self, *, sync: bool) -> None:
        path = os.path.join(self.directory, epochs_file.FILE_NAME)
        epochs_file.save(self._io, path, self._epochs, sync=sync)
        self._epochs_unsynced = not sync

    # ------------------------------------------------------------ what the store's threads call

    def write_lingering(self, now_ms: int, linger_ms: int) -> bool:
        """Write records that have waited for ``linger_ms``; returns whether some still wait."""
        self._dirty = False  # from here on a new record wakes the store again
        opened_ms = self._opened_ms
        if opened_ms and now_ms - opened_ms >= linger_ms and (self._broken or not self._strict_now()):
            self._drain()  # at level fsync only what a full disk left behind: appenders write their own groups
        return bool(self._opened_ms)

    def sync_due_ms(self) -> int | None:
        """On the monotonic clock, when what is unsynced is to be synced; None: never on its own."""
        since = self._unsynced_since_ms
        if not since:
            return None
        if self._end.segment is not None and self._unsynced_bytes() >= CHECKPOINT_SIZE_BYTES:
            return since
        if self._level == OS and not self._interval_wanted:
            return None
        return since + self._config.flush_ms * 3 // 4  # begun early enough to be over by flush.ms

    def sync(self) -> None:
        """Make durable what was written; what waits in the open batch is left alone."""
        with self._sync_lock:
            self._sync()

    def checkpoint_is_due(self, now_ms: int) -> bool:
        """Whether the catalogue should learn the recovery point, or of a sealed segment."""
        if self._sealing:
            return True
        point = self._point.point
        moved = point.offset - self.checkpointed.offset
        aged = now_ms - self._checkpointed_ms >= self._config.flush_ms
        return moved > 0 and (aged or point.position - self.checkpointed.position >= CHECKPOINT_SIZE_BYTES)

    def needs_tending(self) -> bool:
        """Whether there is something to sync, to seal or to tell the catalogue, now or later."""
        return self.sync_due_ms() is not None or bool(self._sealing) or self._point.point.offset > self.checkpointed.offset

    def checkpoint_done(self, point: Point, sealed: Sequence[Segment]) -> None:
        """The catalogue has ``point`` and the ``sealed`` segments."""
        self.checkpointed, self._checkpointed_ms = point, self._io.monotonic_ms()
        for segment in sealed:
            self._sealing.remove(segment)
        if self._transactions is not None:
            producer_snapshot.remove_old(self._io, self.directory, self._transactions.snapshots)

    def take_sealing(self) -> list[Segment]:
        """The segments that were rolled over and are to be sealed."""
        return list(self._sealing)

    def save_active_indexes(self) -> Point:
        """Sync the active segment's indexes, and what is known of producers; returns the recovery point they reach at least."""
        if self._transactions is not None:
            self._save_producers(self._transactions)
        point, segment = self._point.point, self._end.segment
        if segment is not None and segment.scanner is not None:
            segment.save_indexes()
        return point

    def _save_producers(self, transactions: Transactions) -> None:
        """Leave a snapshot of the producers as they are where the log ends, which is synced up to there first."""
        with transactions.lock:
            transactions.expire(self._clock())
            offset, states = self._end.offset, transactions.written.copy()
            if offset == transactions.snapshot_offset or offset < transactions.written_offset:
                return
        if self._point.point.offset < offset:
            self.sync()
        for segment in (*self._sealing, *self._segments[-1:]):
            segment.save_transactions()
        producer_snapshot.save(self._io, self.directory, offset, states)
        transactions.saved(offset)

    @property
    def producers_offset(self) -> int:
        """Offset of the newest snapshot of the producers; -1: there never were any."""
        return -1 if self._transactions is None else self._transactions.snapshot_offset

    def strengthen(self) -> bool:
        """Promise that all appends past the recovery point are at level fsync, if that is so; returns whether it is.

        From then on a weaker append asks the host first, so the catalogue may be told.
        """
        if self._level == FSYNC and not self.strict and self._is_strict():
            self.strict = True
            self.configure(self._config)
            if not self._is_strict():  # one came in between
                self.strict = False
                self.configure(self._config)
        return self.strict

    def _is_strict(self) -> bool:
        return not self._weak_count and self._point.point.offset == self._next_offset

    def refuse(self, gate: int) -> None:
        """Take no records from now on (GATE_SHUT), nor write any (GATE_SEALED); the host's ``refusal`` says why."""
        self._gate = max(gate, self._gate)
        self.configure(self._config)

    def forked(self) -> None:
        """This is a child process: what waits to be written is the parent's to write."""
        self._closed = True
        self.refuse(GATE_SEALED)

    def note_unsynced(self) -> None:
        """What lies past the recovery point was found there by a recovery: it is to be synced in time."""
        if self._end.offset > self._point.point.offset:
            self._unsynced_since_ms = self._io.monotonic_ms()

    def finish(self) -> str | None:
        """Take no more records, write and sync everything, and make the files fit for a clean open.

        Returns:
            Why that failed; None if it did not.
        """
        try:
            if self._gate != GATE_SEALED and self.read_only_reason is None:
                self.refuse(GATE_SHUT)
                with self._sync_lock:
                    self._drain()
                    self._sync()
                    self._finish_active()
                    self._point.settle()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other logs are to be closed too
            return str(error)
        return f"{self._pending_count} records were still waiting" if self._pending_count else None

    def _finish_active(self) -> None:
        segment = self._end.segment
        if segment is not None and segment.scanner is not None:
            segment.trim()
            if (file := segment.file) is not None and file.dirty:
                file.sync()
            segment.save_indexes(final=True)
            if segment.new:
                sync_directory(self._io, self.directory)
                segment.new = False

    def abandon(self) -> int:
        """Let go of everything; returns how many records waited to be written."""
        with self._sync_lock:  # whoever is at it finishes, and nobody begins
            lost = self._next_offset - self._end.offset
            self._discard()
            if self._transactions is not None:
                self._transactions.discard()
            self._closed = True
        self._positions.clear()
        for segment in self._segments:
            segment.retire()
        self._point.retire()
        for grown in self._watchers:
            grown.set()
        return lost

    def _strict_now(self) -> bool:
        return self.strict and self._level == FSYNC  # its appenders write and sync in groups themselves

    def _unsynced_bytes(self) -> int:
        end, point = self._end, self._point.point
        if end.segment is None or end.segment.base_offset != point.segment:
            return sum(segment.size_bytes for segment in self._segments[segment_slot(self._segments, point.offset) :]) - point.position
        return end.position - point.position
