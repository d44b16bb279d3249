"""Compaction of one log: the latest record of each key is kept.

A pass copies the segments that may be compacted, a group at a time.  The caller (``store.cleaner``) decides when, and puts each copy
in the place of its group.

    begin        clean_offset         end_offset   limit: active segment, last stable offset, min.compaction.lag.ms
      | clean segments | dirty segments   | not yet ...
      |                [ keys go into the map )
      [ group ][ group ][ group ][ group  )           each copied to .cleaned, then put in place

If the map fills up, the pass ends earlier, at a batch.  Records past its end are copied as they are.
The records that a batch keeps are chosen in C (``_native/compact.h``).

Source: Kafka's LogCleaner; KIP-534 for delete horizons.
"""

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from logdb.codec.batch import BATCH_SIZE_BYTES_MAX
from logdb.codec.compaction import Copy, KeyMap
from logdb.disk import write_error
from logdb.errors import LogdbError
from logdb.io import IO
from logdb.log.aborted_ranges import AbortedRanges, LastBatch
from logdb.log.log import Log
from logdb.log.sealed import Sealed
from logdb.log.segment_reader import FileMissing, SegmentReader
from logdb.model import SEGMENT_SIZE_BYTES_MAX, LogConfig
from logdb.segment import buffers
from logdb.segment.segment import CLEANED, Segment

_SYNC_SIZE_BYTES = 16 << 20  # written between two syncs of a copy, so that no sync keeps the disk busy for long
_SPAN_MAX = 2**31 - 1  # offsets in one segment: the indexes have 32 bits


S = TypeVar("S", bound=Sealed)


@dataclass(frozen=True, kw_only=True)
class Cleanable(Generic[S]):
    """The segments of a log that may be compacted, and their dirty part.

    ``segments`` are all from the log's begin on; those that hold offsets at or past
    ``clean_offset`` are dirty.
    """

    segments: tuple[S, ...]
    clean_offset: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        """Share of the bytes that are dirty, in [0, 1]."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


def cleanable(sealed: Sequence[S], *, clean_offset: int, limit_offset: int, now_ms: int, min_lag_ms: int) -> Cleanable[S]:
    """The sealed segments of a log that may be compacted now.

    Args:
        clean_offset: The end of the last compaction.
        limit_offset: The last stable offset or the recovery point; records from it on are not compacted.
        min_lag_ms: ``min.compaction.lag.ms``: how old the newest record of a segment has to be.
    """
    taken = []
    for segment in sealed:
        newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.append_ms  # as in Kafka: of records without timestamps
        young = min_lag_ms > 0 and newest_ms > now_ms - min_lag_ms
        if segment.next_offset > limit_offset or (young and segment.next_offset > clean_offset):
            break
        taken.append(segment)
    clean = sum(segment.size_bytes for segment in taken if segment.next_offset <= clean_offset)
    return Cleanable(
        segments=tuple(taken),
        clean_offset=clean_offset,
        clean_bytes=clean,
        dirty_bytes=sum(segment.size_bytes for segment in taken) - clean,
    )


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A group of segments, and their sealed, synced copies, whose names end in ``.cleaned``.

    ``crcs`` are the checksums of the copies' logs.
    """

    old: tuple[Segment, ...]
    new: tuple[Segment, ...]
    crcs: tuple[int, ...]

    def discard(self) -> None:
        """Remove the copies."""
        _discard(self.new)


class Compaction:
    """One pass over one log.  ``end_offset``, where the pass ends, is set by ``run``."""

    def __init__(
        self,
        log: Log,
        work: Cleanable[Segment],
        *,
        io: IO,
        config: LogConfig,
        now_ms: int,
        spend: Callable[[int], None],
        key_map_size_bytes: int,
    ) -> None:
        """Prepare a pass.

        Args:
            spend: Called with the number of bytes read or written; it waits to keep a rate, or raises to end the pass.
            key_map_size_bytes: Memory of the key map; one that cannot hold a single batch is enlarged.
        """
        self._log, self._work, self._io, self._config, self._now_ms = log, work, io, config, now_ms
        self._spend, self._key_map_size_bytes = spend, key_map_size_bytes
        self._aborted: AbortedRanges | None = None  # None: no batch has a producer
        self.end_offset = work.clean_offset
        self.delete_horizon_ms: int | None = None

    def run(self) -> Iterator[Replacement]:
        """Compact group by group; the caller replaces the segments of one before it asks for the next.

        Raises:
            CorruptionError: A batch is damaged; its group is not replaced.
            DiskFull, WriteFailed, SyncFailed: A copy could not be written; it was removed.
        """
        log, segments = self._log, self._work.segments
        if log.had_producers and segments:
            aborted = log.aborted_transactions(segments[0].base_offset, segments[-1].next_offset)
            last = {
                producer.producer_id: LastBatch(producer.batches[-1].last_offset if producer.batches else -1, producer.epoch)
                for producer in log.producers()
            }
            self._aborted = AbortedRanges(aborted, last, self._now_ms)
        keys = self._map_keys()
        for group in self._groups():
            replacement = self._copy(keys, group)
            if replacement is not None:
                yield replacement

    # ------------------------------------------------------------ which keys

    def _map_keys(self) -> KeyMap:
        """The latest offset of each key of the dirty segments, until the map is full."""
        size_bytes, work = self._key_map_size_bytes, self._work
        count = work.segments[-1].next_offset - work.clean_offset if work.segments else 0
        while True:
            keys = KeyMap(size_bytes, first_offset=work.clean_offset, offset_count=max(count, 0))
            self.end_offset = self._fill(keys)
            if self.end_offset > work.clean_offset or count <= 0:
                return keys
            size_bytes *= 2  # one batch has more keys than the map can hold

    def _fill(self, keys: KeyMap) -> int:
        """Map keys; returns the offset up to which all are in the map."""
        work, reached = self._work, self._work.clean_offset
        for segment in work.segments:
            if segment.next_offset <= work.clean_offset:
                continue
            for chunk in self._chunks(segment, max(work.clean_offset, segment.base_offset)):
                retentions = self._aborted.discards(chunk) if self._aborted is not None else None
                used, full = keys.add(chunk, retentions, decompressed_size_bytes_max=BATCH_SIZE_BYTES_MAX)
                if full:
                    return max(reached, int.from_bytes(chunk[used : used + 8], "big"))
                del chunk  # its buffer may be reused
            reached = segment.next_offset
        return reached

    def _chunks(self, segment: Segment, offset: int) -> Iterator[memoryview]:
        """The checked batches of a segment from the one that holds ``offset`` on, as they are stored."""
        reader = SegmentReader(segment, offset, segment.next_offset, self._log.epochs.entries or None)
        while (chunk := reader.read(buffers.READ_SIZE_BYTES)) is not None:
            self._spend(len(chunk))
            yield chunk
            del chunk

    # ------------------------------------------------------------ group by group

    def _groups(self) -> Iterator[tuple[Segment, ...]]:
        """The segments that reach below the end, in runs that fit into one segment each."""
        group: list[Segment] = []
        for segment in self._work.segments:
            if segment.base_offset >= self.end_offset:
                break
            if group and not self._fits(group, segment):
                yield tuple(group)
                group = []
            group.append(segment)
        if group:
            yield tuple(group)

    def _fits(self, group: Sequence[Segment], segment: Segment) -> bool:
        config = self._config
        return (
            sum(member.size_bytes for member in group) + segment.size_bytes <= config.segment_bytes
            and sum(map(_index_size_bytes, (*group, segment))) <= config.segment_index_bytes
            and segment.next_offset - group[0].base_offset <= _SPAN_MAX
        )

    def _copy(self, keys: KeyMap, group: tuple[Segment, ...]) -> Replacement | None:
        """Copy one group; None if the copy equals it."""
        made: list[Segment] = []
        try:
            copied = self._write(keys, group, made)
            self._note_horizon(copied.horizon_min_ms)
            if len(group) > 1 or copied.changed or made[-1].size_bytes != group[-1].size_bytes:
                return Replacement(old=group, new=tuple(made), crcs=tuple(segment.seal() for segment in made))
        except OSError as error:
            _discard(made)
            raise write_error(made[-1].path if made else self._log.directory, 0, error) from error
        except BaseException:
            _discard(made)
            raise
        _discard(made)
        return None

    def _write(self, keys: KeyMap, group: tuple[Segment, ...], made: list[Segment]) -> Copy:
        copied = Copy(
            keys,
            base_offset=group[0].base_offset,
            end_offset=self.end_offset,
            now_ms=self._now_ms,
            horizon_ms=self._now_ms + self._config.delete_retention_ms,
        )
        append_ms = max(segment.append_ms for segment in group)
        self._begin(made, group[0].base_offset, append_ms)
        for segment in group:
            for chunk in self._chunks(segment, segment.base_offset):
                retentions = self._aborted.of(chunk) if self._aborted is not None else None
                for piece, next_offset in copied.feed(chunk, retentions, decompressed_size_bytes_max=BATCH_SIZE_BYTES_MAX):
                    self._append(made, piece, next_offset, append_ms)
                del chunk
        if last := copied.finish():
            self._append(made, memoryview(last), group[-1].next_offset, append_ms)
        if self._aborted is not None:
            _copy_aborted(group, made, self._aborted.discarded)
        return copied

    def _begin(self, made: list[Segment], base_offset: int, append_ms: int) -> None:
        interval = self._config.index_interval_bytes
        segment = Segment(self._io, self._log.directory, base_offset, writable=True, index_interval_bytes=interval, suffix=CLEANED)
        segment.remove()  # of an earlier try
        made.append(segment)
        segment.create(append_ms)

    def _append(self, made: list[Segment], batches: memoryview, next_offset: int, append_ms: int) -> None:
        """Append batches to the last copy, or to a new one if delete horizons made it too large."""
        target = made[-1]
        if target.size_bytes and target.size_bytes + len(batches) > SEGMENT_SIZE_BYTES_MAX:
            self._begin(made, target.next_offset, append_ms)
            target = made[-1]
        target.append(batches, next_offset)
        if target.size_bytes // _SYNC_SIZE_BYTES != (target.size_bytes - len(batches)) // _SYNC_SIZE_BYTES:
            target.sync()
        self._spend(len(batches))

    def _note_horizon(self, horizon_ms: int | None) -> None:
        if horizon_ms is not None:
            self.delete_horizon_ms = min(horizon_ms, self.delete_horizon_ms or horizon_ms)


def _index_size_bytes(segment: Segment) -> int:
    """Raises CorruptionError, also where the segment's file is missing."""
    try:
        return segment.index_size_bytes
    except FileNotFoundError:
        raise FileMissing(segment.path, segment.base_offset) from None


def _discard(made: Sequence[Segment]) -> None:
    """Remove copies; the next try or opening removes those that cannot be removed now."""
    for segment in made:
        with contextlib.suppress(LogdbError):
            segment.remove()


def _copy_aborted(group: Sequence[Segment], made: Sequence[Segment], discarded: Container[int]) -> None:
    """Copy the index entries of aborted transactions whose markers are kept: readers of the old segments may still need them."""
    entries = [entry for segment in group for entry in segment.transactions.entries() if entry.last_offset not in discarded]
    for segment in made:
        inside = [entry for entry in entries if segment.base_offset <= entry.last_offset < segment.next_offset]
        segment.transactions.rebuilt(inside)
        segment.transactions.unsaved = bool(inside)
