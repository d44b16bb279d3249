"""One partition made whole: its segments in a row without a gap, and the small files beside them.

Knows one directory, and what the catalogue says or said of it.  Does not write the catalogue:
it hands back the entries that fit what it made.

A plan is made first, by looking only; ``execute`` carries it out.  Every step leaves the files such that a
new plan, made after a kill, comes to the same end.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from logdb.codec import Status
from logdb.errors import CorruptionError
from logdb.io import IO, read_file, replace_file
from logdb.log import epochs as epochs_file
from logdb.log import recovery_point
from logdb.log.epochs import LeaderEpochs
from logdb.log.log import sync_directory
from logdb.log.reader import DECOMPRESSED_SIZE_BYTES_MAX
from logdb.log.recovery_point import Point
from logdb.meta import LogEntry, SegmentEntry
from logdb.model import OFFSET_MAX, SEGMENT_SIZE_BYTES_MAX, LogConfig
from logdb.segment.segment import segment_path
from logdb.store import topic_file
from logdb.store.census import Partition
from logdb.store.inspect import SegmentWalk
from logdb.store.mend import Edit, edits_of, empty_batch, rewrite
from logdb.store.verify import listed, log_base, topic_file_fits, topic_file_of

_SPAN_MAX = 2**31 - 1  # offsets in one segment: the indexes have 32 bits


@dataclass(kw_only=True)
class Slot:
    """One segment of the log as it will be: what it is made of, and the offset after its last (None: where its batches end)."""

    base_offset: int
    source: str | None
    limit: int | None
    walk: SegmentWalk | None = None
    edits: list[Edit] = field(default_factory=list)


class PartitionRepair:
    """The plan for one partition, in ``actions``; made when the object is."""

    def __init__(
        self,
        io: IO,
        directory: str,
        known: Partition,
        *,
        settled: bool,
        bad_paths: set[str],
        tell: Callable[[str, int], None],
    ) -> None:
        """Look and plan.

        Args:
            settled: The last writer closed: nothing may be missing at the end.
            bad_paths: The files of which ``verify`` said something.
            tell: Called with a path and how many bytes of it were read.
        """
        self.actions: list[str] = []
        self._io, self._directory, self._known, self._entry = io, directory, known, known.entry
        self._settled, self._bad_paths, self._tell = settled, bad_paths, tell
        self._config = LogConfig.of(known.topic.config, "interval")
        self._slots: list[Slot] = []
        self._strays: list[str] = []
        self._names = set(listed(io, directory))
        catalogued = Point(self._entry.recovery_segment, self._entry.recovery_offset, self._entry.recovery_position)
        self._point_sequence, self._point = recovery_point.load(io, self._path(recovery_point.FILE_NAME))
        if catalogued.offset >= self._point.offset:
            self._point = catalogued
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
        if not self._io.exists(self._directory):
            self.actions.append(f"{self._directory}: made anew")
        self._plan_segments()
        if self._epochs_to_rebuild():
            self._epochs, self._epochs_changed = self._epochs_of_batches(), True
            self._plan_segments()
            self.actions.append(f"{self._path(epochs_file.FILE_NAME)}: made anew from the batches: {list(self._epochs.entries)}")
        for slot in self._slots:
            path = segment_path(self._directory, slot.base_offset)
            if slot.source not in (path, None):
                self.actions.append(f"{slot.source}: continues the log; becomes {path} again")
            if slot.source is None:
                self.actions.append(f"{path}: made with an empty batch for the lost offsets [{slot.base_offset}, {slot.limit})")
            else:
                self.actions.extend(f"{path} at byte {edit.position}: {edit.what}" for edit in slot.edits)
        self.actions.extend(f"{path}: no part of the log; set aside as .orphan" for path in self._strays)
        self.actions.extend(f"{path}: made anew" for path in sorted(self._bad_paths) if path.endswith((".index", ".timeindex")))
        for name in (topic_file.FILE_NAME, recovery_point.FILE_NAME):
            if self._path(name) in self._bad_paths:
                self.actions.append(f"{self._path(name)}: made anew")
        if self.actions or self._bad_paths or not self._known.catalogued:
            reason = "" if self._entry.read_only_reason is None else "; it takes records again"
            self.actions.append(f"{self._directory}: its entry in the catalogue is renewed{reason}")

    def _plan_segments(self) -> None:
        """Find the file, or what is to take its place, for every stretch of offsets from the log's begin to its end."""
        self._slots, self._strays = [], []
        existing = {base: segment_path(self._directory, base) for name in self._names if (base := log_base(name)) is not None}
        orphans = {base: self._path(name) for name in self._names if (base := log_base(name.removesuffix(".orphan"))) is not None and name.endswith(".orphan")}
        sealed = {segment.base_offset: segment for segment in self._known.segments}
        end = self._point.offset
        if not existing and not orphans:
            self._plan_loss(max([end, *(segment.next_offset for segment in sealed.values())]))
            return
        bases = set(existing) | set(sealed) | ({self._point.segment} if end > self._point.segment else set())
        start = self._entry.start_offset
        offset: int | None = max((base for base in bases if base <= start), default=min(bases | set(orphans)))
        while offset is not None:
            offset = self._plan_slot(offset, existing, orphans, sealed, sorted(base for base in bases if base > offset))

    def _plan_loss(self, end: int) -> None:
        """No segment is left: the log goes on, empty, where it ended."""
        if end > self._entry.start_offset:
            self.actions.append(f"{self._directory}: no segment is left; the log goes on at offset {end}, after the lost [{self._entry.start_offset}, {end})")
            self._entry = self._entry._replace(start_offset=end)
            self._point = Point(end, end, 0)

    def _plan_slot(
        self, offset: int, existing: dict[int, str], orphans: dict[int, str], sealed: dict[int, SegmentEntry], later: list[int]
    ) -> int | None:
        """Add the segment that begins at ``offset``; returns where the next one does, None where the log ends."""
        source = existing.get(offset) or self._fitting_orphan(offset, orphans)
        end = later[0] if later else self._point.offset
        if source is None:
            if end <= offset:
                return None
            end = min(end, offset + _SPAN_MAX)
            filler = empty_batch(offset, end, (self._epochs or LeaderEpochs()).at(offset))
            self._slots.append(Slot(base_offset=offset, source=None, limit=end, edits=[Edit(0, 0, filler, False, "")]))
            return end
        walk = self._walk(source, offset, sealed[offset].next_offset if offset in sealed else OFFSET_MAX)
        ends_at: int | None
        if offset in sealed:
            ends_at = sealed[offset].next_offset
        else:
            ends_at = next((base for base in later if base >= walk.next_offset), None)
            if ends_at is None and self._point.offset >= walk.next_offset:
                ends_at = self._point.offset
            if walk.flaws and ends_at is not None:
                walk = self._walk(source, offset, ends_at)
        limit = None if ends_at is None or walk.torn is not None else min(ends_at, offset + _SPAN_MAX)
        slot = Slot(base_offset=offset, source=source, limit=limit, walk=walk)
        slot.edits = edits_of(self._io, walk, slot.limit, self._epochs or LeaderEpochs())
        self._slots.append(slot)
        if walk.torn is not None:
            return None
        following = walk.next_offset if slot.limit is None else slot.limit
        self._strays += [existing[base] for base in later if base < following and base in existing]
        return following

    def _fitting_orphan(self, offset: int, orphans: dict[int, str]) -> str | None:
        """A file that was set aside, and begins with a good batch where the log has nothing."""
        path = orphans.get(offset)
        if path is None:
            return None
        walk = SegmentWalk(self._io, path, offset).run()
        return path if walk.batch_count and (not walk.flaws or walk.flaws[0].position) else None

    def _walk(self, path: str, base_offset: int, limit: int) -> SegmentWalk:
        """Walk a segment; past the recovery point after a crash, what is not whole is left to the next opening."""
        walk = self._walk_below(path, base_offset, limit, OFFSET_MAX if self._settled else self._point.offset)
        if walk.torn is not None and self._entry.strict and reaches_past_group(self._io, walk):
            self._settled_anyway = True
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
            boundary=self._point.offset,
            index_interval_bytes=self._config.index_interval_bytes,
            decompressed_size_bytes_max=max(DECOMPRESSED_SIZE_BYTES_MAX, self._config.max_message_bytes),
            progress=lambda size_bytes: self._tell(path, size_bytes),
        ).run()
