"""The repair of one partition: contiguous segments, their indexes, and the small files beside them.

The constructor plans and changes no file; ``execute`` carries the plan out and returns the catalogue's new entries, which
the caller commits.  A kill between any two steps leaves files from which a new plan leads to the same result.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from logdb.codec import Status
from logdb.disk import File, exists, read_file, replace_file, sync_directory
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import high_watermark, producer_snapshot, recovery_point
from logdb.log.appending import GROUP_SIZE_BYTES
from logdb.log.epochs import LeaderEpochs
from logdb.log.recovery_point import NOWHERE, Point
from logdb.meta import LogEntry, SegmentEntry
from logdb.model import OFFSET_MAX, Buffer, LogConfig
from logdb.segment import transaction_index
from logdb.segment.segment import segment_path
from logdb.store import topic_file
from logdb.store.check.inventory import Partition
from logdb.store.check.partition_check import bad_slots, reach_behind, topic_file_fits
from logdb.store.check.producer_check import ProducerWalk, index_path, newest_snapshot, was_compacted, wrong_index, wrong_snapshot
from logdb.store.check.segment_rewrite import Patch, empty_batches, plan_patches, rewrite
from logdb.store.check.segment_walk import SegmentWalk, listed, log_base

_DERIVED = (".index", ".timeindex", transaction_index.SUFFIX, producer_snapshot.SUFFIX)
_SPAN_MAX = 2**31 - 1  # offsets in one segment: the indexes have 32 bits


@dataclass(kw_only=True)
class PlannedSegment:
    """One segment after the repair: its source file, and the offset after its last one (None: where its batches end)."""

    base_offset: int
    source: str | None
    limit: int | None
    walk: SegmentWalk | None = None
    patches: list[Patch] = field(default_factory=list)


class PartitionRepair:
    """The plan for one partition; ``actions`` describes it."""

    def __init__(
        self,
        io: IO,
        directory: str,
        known: Partition,
        *,
        closed: bool,
        cache_trusted: bool,
        bad_paths: set[str],
        tell: Callable[[str, int], None],
    ) -> None:
        """Plan.

        Args:
            closed: The last writer closed the database, so that no record may be missing at the end.
            cache_trusted: No sync has failed, so that the page cache has what was written under this boot.
            bad_paths: The files in which ``verify`` found a problem.
            tell: Called with a path and the number of its bytes read.
        """
        self.actions: list[str] = []
        self._io, self._directory, self._known, self._entry = io, directory, known, known.entry
        self._closed, self._bad_paths, self._tell = closed, bad_paths, tell
        self._config = LogConfig.of(known.topic.config, "interval")
        self._planned: list[PlannedSegment] = []
        self._strays: list[str] = []
        self._names = set(listed(io, directory))
        catalogued = Point(self._entry.recovery_segment, self._entry.recovery_offset, self._entry.recovery_position)
        noted = recovery_point.RecoveryPointFile(io, directory, writable=False)
        self._point = catalogued if catalogued.offset >= noted.point.offset else noted.point
        self._reached = [self._point, noted.written if cache_trusted else NOWHERE]
        self._end = max(point.offset for point in self._reached)  # the log had reached this offset; no offset is given twice
        self._epochs, self._epochs_changed = self._load_epochs(), False
        self._plan()

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _load_epochs(self) -> LeaderEpochs | None:
        try:
            return epochs_file.load(self._io, self._path(epochs_file.FILE_NAME))
        except CorruptionError:
            return None

    # ------------------------------------------------------------ the plan

    def _plan(self) -> None:
        if not exists(self._io, self._directory):
            self.actions.append(f"{self._directory}: created again")
        self._plan_segments()
        if self._epochs_to_rebuild():
            self._epochs, self._epochs_changed = self._epochs_of_batches(), True
            self._plan_segments()
            self.actions.append(f"{self._path(epochs_file.FILE_NAME)}: rebuilt from the batches: {list(self._epochs.entries)}")
        for planned in self._planned:
            path = segment_path(self._directory, planned.base_offset)
            if planned.source not in (path, None):
                self.actions.append(f"{planned.source}: continues the log; renamed to {path}")
            if planned.source is None:
                self.actions.append(f"{path}: created, with an empty batch for the lost offsets [{planned.base_offset}, {planned.limit})")
            else:
                self.actions.extend(f"{path} at byte {patch.position}: {patch.what}" for patch in planned.patches)
        self.actions.extend(f"{path}: not part of the log; set aside as .orphan" for path in self._strays)
        self.actions.extend(f"{path}: rebuilt" for path in sorted(self._bad_paths) if path.endswith(_DERIVED))
        sidecars = [path for path in sorted(self._bad_paths) if path.endswith(".parquet")]
        self.actions.extend(f"{path}: a copy of records of the log; removed from the catalogue" for path in sidecars)
        for name in (topic_file.FILE_NAME, recovery_point.FILE_NAME, high_watermark.FILE_NAME):
            if self._path(name) in self._bad_paths:
                self.actions.append(f"{self._path(name)}: rebuilt")
        if self.actions or self._bad_paths or not self._known.catalogued:
            reason = "" if self._entry.read_only_reason is None else "; the log takes records again"
            self.actions.append(f"{self._directory}: its entry in the catalogue is renewed{reason}")

    def _plan_segments(self) -> None:
        """Plan a segment, from a file or in place of a lost one, for all offsets from the log's begin to its end."""
        self._planned, self._strays = [], []
        existing = {base: segment_path(self._directory, base) for name in self._names if (base := log_base(name)) is not None}
        aside = [name for name in self._names if name.endswith(".log.orphan")]
        orphans = {base: self._path(name) for name in aside if (base := log_base(name.removesuffix(".orphan"))) is not None}
        sealed = {segment.base_offset: segment for segment in self._known.segments}
        if not existing and not orphans:
            self._plan_loss(max([self._end, *(segment.next_offset for segment in sealed.values())]))
            return
        bases = set(existing) | set(sealed) | {point.segment for point in self._reached if point.offset > point.segment}
        start = self._entry.start_offset
        offset: int | None = max((base for base in bases if base <= start), default=min(bases | set(orphans)))
        while offset is not None:
            following = self._plan_segment(offset, existing, orphans, sealed, sorted(base for base in bases if base > offset))
            offset = following if following is not None and following > offset else None  # a file without a batch ends the log

    def _plan_loss(self, end: int) -> None:
        """No segment is left: the log continues, empty, at its end offset."""
        if end > self._entry.start_offset:
            lost = f"[{self._entry.start_offset}, {end})"
            self.actions.append(f"{self._directory}: no segment is left; {lost} is lost, the log continues at offset {end}")
            self._entry = self._entry._replace(start_offset=end)
            self._point, self._end = Point(end, end, 0), end

    def _plan_segment(
        self, offset: int, existing: dict[int, str], orphans: dict[int, str], sealed: dict[int, SegmentEntry], later: list[int]
    ) -> int | None:
        """Plan the segment that begins at ``offset``; returns the base offset of the next one, None at the end of the log."""
        source = existing.get(offset) or self._fitting_orphan(offset, orphans)
        end = later[0] if later else self._end
        if source is None:
            if end <= offset:
                return None
            end = min(end, offset + _SPAN_MAX)
            empty = empty_batches(offset, end, self._epochs or LeaderEpochs())
            self._planned.append(PlannedSegment(base_offset=offset, source=None, limit=end, patches=[Patch(0, 0, empty, end, False, "")]))
            return end
        walk, ends_at = self._walk_to_end(source, offset, sealed[offset].next_offset if offset in sealed else None, later)
        if not self._closed and walk.torn is None and self._end <= walk.next_offset < (ends_at or 0):
            self._planned.append(PlannedSegment(base_offset=offset, source=source, limit=None, walk=walk))
            return None  # past the recovery point a gap ends the log; the next opening sets later segments aside
        limit = None if ends_at is None or walk.torn is not None else min(ends_at, offset + _SPAN_MAX)
        planned = PlannedSegment(base_offset=offset, source=source, limit=limit, walk=walk)
        planned.patches = plan_patches(self._io, walk, planned.limit, self._epochs or LeaderEpochs())
        self._planned.append(planned)
        if walk.torn is not None:
            return None
        following = walk.next_offset if planned.limit is None else planned.limit
        self._strays += [existing[base] for base in later if base < following and base in existing]
        return following

    def _walk_to_end(self, path: str, base_offset: int, sealed_at: int | None, later: list[int]) -> tuple[SegmentWalk, int | None]:
        """Walk a segment, and find the offset after its last: the catalogue's, the next segment's, or where its batches end."""
        if sealed_at is not None:
            return self._walk(path, base_offset, sealed_at), sealed_at
        walk, following = self._walk(path, base_offset, OFFSET_MAX), later[0] if later else max(self._end, base_offset)
        if walk.flaws:  # the next segment may show what was damaged
            bounded = self._walk(path, base_offset, following)
            if bounded.next_offset == following and bounded.batch_count >= walk.batch_count:
                return bounded, following
        ends_at = next((base for base in [*later, self._end] if base >= walk.next_offset), None)
        return walk, ends_at

    def _fitting_orphan(self, offset: int, orphans: dict[int, str]) -> str | None:
        """A file that was set aside and has a good batch at ``offset``; None without one."""
        path = orphans.get(offset)
        if path is None:
            return None
        walk = SegmentWalk(self._io, path, offset).run()
        return path if walk.batch_count and (not walk.flaws or walk.flaws[0].position) else None

    def _walk(self, path: str, base_offset: int, limit: int) -> SegmentWalk:
        """Walk a segment; an unfinished write past the recovery point, if one is known, is left to the next opening."""
        walk = self._walk_below(path, base_offset, limit, OFFSET_MAX if self._closed or not self._end else self._end)
        if walk.torn is not None and self._entry.strict and reach_behind(self._io, walk, walk.torn) > GROUP_SIZE_BYTES:
            walk = self._walk_below(path, base_offset, limit, OFFSET_MAX)
        return walk

    def _walk_below(self, path: str, base_offset: int, limit: int, strict_below: int) -> SegmentWalk:
        return SegmentWalk(
            self._io,
            path,
            base_offset,
            epochs=self._epochs,
            offset_limit=limit,
            strict_below=strict_below,
            reserve_allowed=not self._closed,
            boundary=self._point.offset,
            index_interval_bytes=self._config.index_interval_bytes,
            progress=lambda size_bytes: self._tell(path, size_bytes),
        ).run()

    def _epochs_to_rebuild(self) -> bool:
        """Whether the checkpoint is lost, or at least half of the batches contradict it."""
        walks = [planned.walk for planned in self._planned if planned.walk is not None]
        batch_count = sum(walk.batch_count for walk in walks)
        if self._epochs is None:
            path = self._path(epochs_file.FILE_NAME)
            return batch_count > 0 or self._point.offset > 0 or path in self._bad_paths
        entries = self._epochs.entries
        if batch_count and (not entries or entries[0][1] > self._planned[0].base_offset):
            return True
        forgotten = self._known.catalogued and self._epochs.latest != self._entry.leader_epoch
        if self._closed and (forgotten or (entries and entries[-1][1] > self._ends_at())):
            return True
        wrong = [flaw for walk in walks for flaw in walk.flaws if flaw.status is Status.EPOCH]
        return any(walk.epoch_begins_inside for walk in walks) or (bool(wrong) and 2 * len(wrong) >= batch_count)

    def _epochs_of_batches(self) -> LeaderEpochs:
        """The checkpoint that follows from the batches; epochs never decrease, so one above those that follow is wrong."""
        runs = [run for planned in self._planned if planned.walk is not None for run in planned.walk.epoch_runs]
        entries: list[tuple[int, int]] = []
        lowest = OFFSET_MAX
        for epoch, start in reversed(runs):
            lowest = min(lowest, epoch)
            if entries and entries[-1][0] == lowest:
                entries.pop()
            entries.append((lowest, start))
        entries.reverse()
        if entries:
            entries[0] = (entries[0][0], self._planned[0].base_offset)
        epochs = LeaderEpochs(tuple(entries))
        if self._entry.leader_epoch > epochs.latest:  # the epoch has begun, but no record was written under it
            epochs = epochs.begun(self._entry.leader_epoch, self._ends_at())
        return epochs

    def _ends_at(self) -> int:
        """The offset after the last segment."""
        if not self._planned:
            return self._entry.start_offset
        last = self._planned[-1]
        reached = last.walk.next_offset if last.walk else last.base_offset
        return reached if last.limit is None else last.limit

    def provisional_entry(self) -> LogEntry:
        """The entry for a new catalogue before the repair: of a closed log, with its end."""
        entry = self._entry._replace(producers_offset=self._producers_offset())
        if not self._closed or not self._planned:
            return entry
        last = self._planned[-1]
        position = last.walk.size_bytes if last.walk else 0
        return entry._replace(
            recovery_segment=last.base_offset, recovery_offset=self._ends_at(), recovery_position=position, segment_append_ms=0
        )

    def _producers_offset(self) -> int:
        """The offset of the producer snapshot to use: the catalogue's, or the newest; -1 where the log never had producers."""
        if self._entry.producers_offset >= 0:
            return self._entry.producers_offset
        found = newest_snapshot(self._io, self._directory, self._names, self._ends_at())
        if found is not None:
            return found
        return self._entry.start_offset if any(planned.walk.produced_count for planned in self._planned if planned.walk) else -1

    # ------------------------------------------------------------ carrying it out

    def execute(self) -> tuple[LogEntry, list[SegmentEntry]]:
        """Carry the plan out; returns the catalogue's new entries.

        Raises:
            CorruptionError: The repaired segment is not whole: a bug.
        """
        io, directory = self._io, self._directory
        if not exists(io, directory):
            io.mkdir(directory)
            sync_directory(io, os.path.dirname(directory))
        for path in self._strays:
            io.rename(path, path + ".orphan")
        for planned in self._planned:
            path = segment_path(directory, planned.base_offset)
            if planned.source not in (path, None):
                io.rename(str(planned.source), path)
            if planned.patches:
                rewrite(io, path, path, planned.patches)
        sync_directory(io, directory)
        if self._epochs_changed and self._epochs is not None:
            epochs_file.save(io, self._path(epochs_file.FILE_NAME), self._epochs)
        walks = [self._read_back(planned) for planned in self._planned]
        for walk in walks[:-1]:
            self._cut_reserve(walk)
        entry = self._entry_of(walks)
        producers = self._walk_producers(walks, min(self._producers_offset(), entry.recovery_offset))
        for planned, walk in zip(self._planned, walks, strict=True):
            self._save_indexes(planned, walk)
            self._save_transactions(walk, producers)
        sealed = self._segments_of(walks, entry)
        entry = entry._replace(producers_offset=self._save_snapshot(producers, walks[len(sealed) :]))
        self._save_other_snapshots(entry.producers_offset, walks, walks[len(sealed) :])
        self._save_topic_file(entry)
        self._save_point(entry)
        self._save_high_watermark(entry)
        return entry, sealed

    def _read_back(self, planned: PlannedSegment) -> SegmentWalk:
        path = segment_path(self._directory, planned.base_offset)
        walk = self._walk(path, planned.base_offset, OFFSET_MAX if planned.limit is None else planned.limit)
        if walk.flaws or (planned.limit is not None and walk.torn is None and walk.next_offset != planned.limit):
            flaw = walk.flaws[0] if walk.flaws else None
            reason = flaw.reason if flaw else f"it ends at offset {walk.next_offset} instead of {planned.limit}"
            raise CorruptionError(walk.path, flaw.position if flaw else walk.position, f"after the repair, {reason}")
        return walk

    def _cut_reserve(self, walk: SegmentWalk) -> None:
        """Cut preallocated zeroes off a segment that another follows."""
        with File(self._io, walk.path, os.O_RDWR) as file:
            if walk.torn is None and file.size_bytes() > walk.size_bytes:
                file.truncate(walk.size_bytes)
                file.sync()

    def _save_indexes(self, planned: PlannedSegment, walk: SegmentWalk) -> None:
        walk.scanner.close_time_index()
        for suffix, data in ((".index", walk.scanner.index), (".timeindex", walk.scanner.time_index)):
            path = segment_path(self._directory, planned.base_offset, suffix)
            if not self._holds(path, data):
                replace_file(self._io, path, bytes(data))

    def _holds(self, path: str, data: Buffer) -> bool:
        """Whether a file has exactly this content."""
        try:
            return read_file(self._io, path, len(data) + 1) == data
        except (FileNotFoundError, CorruptionError):
            return False

    def _walk_producers(self, walks: list[SegmentWalk], offset: int) -> ProducerWalk:
        """The producers at ``offset`` and at the end, from the repaired log."""
        producers = ProducerWalk(offset, self._io.clock_ms())
        for walk in walks:
            producers.begin(walk.base_offset)
            if walk.produced_count:
                SegmentWalk(
                    self._io,
                    walk.path,
                    walk.base_offset,
                    strict_below=walk.next_offset,
                    visit=producers.visit,
                ).run()
        return producers

    def _save_transactions(self, walk: SegmentWalk, producers: ProducerWalk) -> None:
        path = index_path(self._directory, walk.base_offset)
        try:
            data = transaction_index.load(self._io, path)
            wrong = wrong_index(data, producers, walk.base_offset, OFFSET_MAX, compacted=was_compacted(self._config, self._entry))
        except CorruptionError as error:
            wrong = error.reason
        if wrong is not None or path in self._bad_paths:
            replace_file(self._io, path, transaction_index.encode(producers.aborted.get(walk.base_offset, [])))

    def _save_snapshot(self, producers: ProducerWalk, unsealed: list[SegmentWalk]) -> int:
        """Rebuild the producer snapshot if it is wrong; returns its offset, -1 where the log never had producers."""
        io, directory, offset = self._io, self._directory, producers.snapshot_offset
        if offset < 0:
            return offset
        aborted = self._aborted_below(offset, unsealed)
        if wrong_snapshot(io, directory, producers, compacted=was_compacted(self._config, self._entry)) is not None:
            producer_snapshot.save(io, directory, offset, producers.at_snapshot, aborted)
        else:
            known = producer_snapshot.load(io, directory, offset)
            if any(known.aborted_in(base) != noted for base, noted in aborted.items()):
                producer_snapshot.save(io, directory, offset, known.states, aborted)
        return offset

    def _save_other_snapshots(self, counts: int, walks: list[SegmentWalk], unsealed: list[SegmentWalk]) -> None:
        """Rebuild other damaged snapshots: recovery may fall back to them."""
        for offset in producer_snapshot.offsets(self._names):
            if offset != counts and producer_snapshot.snapshot_path(self._directory, offset) in self._bad_paths:
                states = self._walk_producers(walks, offset).at_snapshot
                producer_snapshot.save(self._io, self._directory, offset, states, self._aborted_below(offset, unsealed))

    def _aborted_below(self, offset: int, unsealed: list[SegmentWalk]) -> dict[int, tuple[int, int]]:
        """The summaries, for a snapshot at ``offset``, of the indexes of segments that are not sealed."""
        indexes = {walk.base_offset: transaction_index.load(self._io, index_path(self._directory, walk.base_offset)) for walk in unsealed}
        return {base: transaction_index.summary(transaction_index.below(data, offset)) for base, data in indexes.items()}

    def _entry_of(self, walks: list[SegmentWalk]) -> LogEntry:
        """The log's new entry; its recovery point is the end if the last writer closed, otherwise the old one."""
        segment, offset, position = self._point
        if self._closed and walks:
            segment, offset, position = walks[-1].base_offset, walks[-1].next_offset, walks[-1].position
        else:
            found = next(((walk.base_offset, *walk.boundary_found) for walk in walks if walk.boundary_found is not None), None)
            if found is not None and offset > 0:
                segment, offset, position = found
        return self._entry._replace(
            generation=self._entry.generation + 1,
            recovery_segment=segment,
            recovery_offset=offset,
            recovery_position=position,
            read_only_reason=None,
            leader_epoch=0 if self._epochs is None else self._epochs.latest,
            segment_append_ms=0,
        )

    def _segments_of(self, walks: list[SegmentWalk], entry: LogEntry) -> list[SegmentEntry]:
        """The sealed segments: all below the recovery point, except the last segment of the log."""
        before = {segment.base_offset: segment for segment in self._known.segments}
        now_ms, sealed = self._io.clock_ms(), []
        for walk in walks[:-1]:
            if walk.torn is not None or walk.next_offset > entry.recovery_offset:
                break
            known = before.get(walk.base_offset)
            aborted_count, aborted_crc = transaction_index.summary(
                transaction_index.load(self._io, index_path(self._directory, walk.base_offset))
            )
            sealed.append(
                SegmentEntry(
                    topic=entry.topic,
                    partition=entry.partition,
                    base_offset=walk.base_offset,
                    size_bytes=walk.size_bytes,
                    crc=walk.crc,
                    next_offset=walk.next_offset,
                    max_timestamp=walk.max_timestamp,
                    append_ms=known.append_ms if known else now_ms,
                    aborted_count=aborted_count,
                    aborted_crc=aborted_crc,
                )
            )
        return sealed

    def _save_topic_file(self, entry: LogEntry) -> None:
        wanted = topic_file.describe(self._known.topic, entry.partition, entry.start_offset)
        try:
            fits = topic_file_fits(topic_file.load(self._io, self._directory), wanted)
        except (FileNotFoundError, CorruptionError):
            fits = False
        if not fits:
            topic_file.replace(self._io, self._directory, wanted)

    def _save_high_watermark(self, entry: LogEntry) -> None:
        """Put a wrong high watermark of a replica right: its offset as far as the log goes, the log start where it is damaged."""
        path, offset = self._path(high_watermark.FILE_NAME), 0
        if path in self._bad_paths:
            with contextlib.suppress(CorruptionError):
                offset = high_watermark.load(self._io, self._directory) or 0
            replace_file(self._io, path, high_watermark.encode(max(entry.start_offset, min(offset, self._ends_at()))))

    def _save_point(self, entry: LogEntry) -> None:
        """Renew the recovery point file, if it is wrong or a rewritten segment has moved positions."""
        path = self._path(recovery_point.FILE_NAME)
        point = Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position)
        noted = recovery_point.load(self._io, path)
        rewritten = noted.durable != point or any(planned.patches for planned in self._planned)
        if exists(self._io, path):
            data = read_file(self._io, path, 3 * recovery_point.SLOT_SIZE)
            wrong = rewritten or bool(bad_slots(data)) or len(data) > 2 * recovery_point.SLOT_SIZE
        else:
            wrong = point.offset > entry.start_offset
        if wrong:
            slots = [bytes(recovery_point.SLOT_SIZE)] * 2
            slots[(noted.sequence + 1) % 2] = recovery_point.encode(recovery_point.Slot(noted.sequence + 1, point))
            replace_file(self._io, path, b"".join(slots))
