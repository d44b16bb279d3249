"""The check of one partition: every file of its directory against the catalogue and against the other files.

The check changes no file and continues behind damage, so that one report has all of it.
"""

import os
from collections.abc import Callable, Sequence
from enum import Enum

from logdb.codec import Status
from logdb.disk import File, exists, read_file
from logdb.errors import CorruptionError, UnsupportedFormat
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import high_watermark, producer_snapshot, recovery_point
from logdb.log.appending import GROUP_SIZE_BYTES
from logdb.log.epochs import LeaderEpochs
from logdb.log.producer_snapshot import Snapshot
from logdb.log.recovery_point import NOWHERE, Point
from logdb.log.sealed import sidecar_path, sidecar_paths, unnamed_sidecars
from logdb.meta import LogEntry, SegmentEntry, TopicEntry
from logdb.model import OFFSET_MAX, LogConfig
from logdb.requests.report import Report
from logdb.segment import transaction_index
from logdb.segment.segment import CLEANED, INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE, read_index, segment_path
from logdb.store import topic_file
from logdb.store.check.producer_check import ProducerWalk, was_compacted, wrong_index, wrong_snapshot
from logdb.store.check.segment_walk import EntryCheck, Flaw, SegmentWalk, listed, log_base
from logdb.store.replacement_intent import ReplacementIntent
from logdb.store.sidecars import damage
from logdb.store.topic_file import TopicFile

NEWER_FORMAT = "newer format"  # the one kind of problem that is not damage

_LOOK_COUNT_MAX = 5  # reads of a file that a writer may be changing
_ASIDE = (".orphan", ".torn", ".damaged")
_SMALL_FILES = (topic_file.FILE_NAME, epochs_file.FILE_NAME, recovery_point.FILE_NAME, high_watermark.FILE_NAME)
_INDEX_INTERVAL_DEFAULT = 4096


class DirectoryState(Enum):
    """How the last writer left the directory, which decides how strict the check is."""

    CLOSED = "closed cleanly, no writer: every byte must be right"
    CRASHED = "a crash: every byte up to the recovery point must be right; past it, a batch that is not whole is an unfinished write"
    HAS_WRITER = "a process writes to it: as after a crash, but a batch that is not whole may still become so"


class PartitionCheck:
    """A check of one partition; ``run`` once."""

    def __init__(
        self,
        io: IO,
        directory: str,
        topic: TopicEntry,
        entry: LogEntry,
        sealed: Sequence[SegmentEntry],
        *,
        directory_state: DirectoryState,
        cache_trusted: bool,
        tell: Callable[[str, int], None],
        pending: ReplacementIntent | None = None,
    ) -> None:
        """Prepare a check.

        Args:
            topic, entry, sealed: The catalogue's entries.
            pending: A replacement of segments that is committed and not finished.
            cache_trusted: No sync has failed, so that the page cache has what was written under this boot.
            tell: Called with a path and the number of its bytes read since the last call.
        """
        self._io, self._directory, self._topic, self._entry, self._sealed = io, directory, topic, entry, sealed
        self._closed, self._has_writer = directory_state is DirectoryState.CLOSED, directory_state is DirectoryState.HAS_WRITER
        self._cache_trusted, self._tell = cache_trusted, tell
        self._config = LogConfig.of(topic.config, "interval")
        self._compacted = was_compacted(self._config, entry)
        self._pending = pending or ReplacementIntent((), ())
        self._report = Report()
        self._point = Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position)
        self._intact = self._point  # up to here no byte may be missing
        self._epochs = LeaderEpochs()
        self._begins_at: int | None = None  # the first segment
        self._ends_at = entry.start_offset  # the segments walked so far
        self._torn = False
        self._producers = ProducerWalk(entry.producers_offset, io.clock_ms())

    def run(self) -> Report:
        """Check every file."""
        if not exists(self._io, self._directory):
            self._wrong(self._directory, -1, "missing", "the catalogue names the partition, but its directory is not there")
            return self._report
        if self._entry.read_only_reason is not None:
            self._wrong(self._directory, -1, "read-only", self._entry.read_only_reason)
        self._check_topic_file()
        self._check_recovery_point()
        epochs_found = self._check_epochs()
        names = listed(self._io, self._directory)
        bases = sorted(base for name in names if (base := log_base(name)) is not None and name not in self._pending.removed)
        self._check_segments(bases)
        self._check_sidecars()
        if epochs_found:
            self._check_epoch_bounds()
        self._check_end()
        self._check_high_watermark()
        self._check_producers(names)
        self._check_names(names, bases)
        return self._report

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _segment_path(self, base: int, suffix: str = ".log") -> str:
        """The path of a segment's file: while a replacement is pending it may still end in ``.cleaned``."""
        path = segment_path(self._directory, base, suffix)
        return path + CLEANED if os.path.basename(path) in self._pending.renamed and exists(self._io, path + CLEANED) else path

    def _wrong(self, path: str, position: int, kind: str, reason: str) -> None:
        self._report.add(path, position, kind, reason)

    def _read(self, name: str, size_bytes_max: int) -> bytes | None:
        """All of a small file, which counts as checked; None where it is missing."""
        return self._taken(name, lambda path: read_file(self._io, path, size_bytes_max))

    def _read_index(self, name: str, entry_size_bytes: int, log_size_bytes: int) -> bytes:
        data = self._taken(name, lambda path: read_index(self._io, path, entry_size_bytes, log_size_bytes)) or b""
        path = self._path(name)
        if (size_bytes := self._size_bytes(path)) > len(data) and not self._has_writer:
            reason = f"{size_bytes} bytes, of which {len(data)} can be entries of a log of {log_size_bytes} bytes"
            if self._closed:
                self._wrong(path, len(data), "damaged", reason)
            else:
                self._report.notes.append(f"{path}: {reason}; the next opening cuts it")
        return data

    def _taken(self, name: str, read: Callable[[str], bytes]) -> bytes | None:
        """What ``read`` makes of a file, which counts as checked; None where it is missing.  One that it cannot read is reported."""
        try:
            return self._taken_or_raise(name, read)
        except CorruptionError as error:
            self._wrong(error.path, error.position, "damaged", error.reason)
            return b""

    def _taken_or_raise(self, name: str, read: Callable[[str], bytes]) -> bytes | None:
        """As ``_taken``; raises CorruptionError instead of a report."""
        try:
            data = read(self._path(name))
        except FileNotFoundError:
            return None
        self._report.file_count += 1
        self._report.size_bytes += len(data)
        return data

    # ------------------------------------------------------------ the small files

    def _check_topic_file(self) -> None:
        path = self._path(topic_file.FILE_NAME)
        data = self._read(topic_file.FILE_NAME, 1 << 20)
        if data is None:
            self._wrong(path, -1, "missing", "only the catalogue has the topic's id and configs")
            return
        try:
            found = topic_file.decode(data, path)
        except UnsupportedFormat as error:
            self._wrong(path, 0, NEWER_FORMAT, str(error))
        except CorruptionError as error:
            self._wrong(path, error.position, "damaged", error.reason)
        else:
            wanted = topic_file.describe(self._topic, self._entry.partition, self._entry.start_offset)
            if self._closed and not topic_file_fits(found, wanted):
                self._wrong(path, 0, "contradiction", f"it says {found}, the catalogue {wanted}")

    def _check_recovery_point(self) -> None:
        """Check both slots; of the file's point and the catalogue's, the later one counts."""
        path, size = self._path(recovery_point.FILE_NAME), recovery_point.SLOT_SIZE
        data = self._read(recovery_point.FILE_NAME, 3 * size)
        if data is None:
            if self._closed and self._entry.recovery_offset > self._entry.start_offset:
                self._wrong(path, -1, "missing", f"only the catalogue has the recovery point {self._entry.recovery_offset}")
            return
        for _ in range(_LOOK_COUNT_MAX if self._has_writer else 0):
            if not bad_slots(data):
                break
            data = read_file(self._io, path, 3 * size)
        for at in bad_slots(data):
            if self._closed:
                self._wrong(path, at, "damaged", f"the CRC of the slot does not fit: {data[at : at + size].hex()}")
            else:
                self._report.notes.append(f"{path}: the slot at byte {at} is torn; the other one counts")
        if len(data) > 2 * size:
            self._wrong(path, 2 * size, "damaged", "it is longer than its two slots")
        if not any(recovery_point.decode(data[at : at + size]) for at in (0, size)) and self._point.offset > self._entry.start_offset:
            self._report.notes.append(f"{path}: no slot is in use; the catalogue's point counts")
        noted = recovery_point.RecoveryPointFile(self._io, self._directory, writable=False)
        if noted.point.offset > self._point.offset:
            if self._closed:
                self._wrong(path, 0, "contradiction", f"it says {noted.point}, the catalogue {self._point}")
            else:
                self._point = noted.point
        self._intact = max(self._point, noted.written if self._cache_trusted else NOWHERE, key=lambda point: point.offset)

    def _check_epochs(self) -> bool:
        """Check the leader epoch checkpoint; whether it can be read."""
        path = self._path(epochs_file.FILE_NAME)
        data = self._read(epochs_file.FILE_NAME, epochs_file.SIZE_BYTES_MAX)
        if data is None:
            if self._point.offset > self._entry.start_offset or (self._closed and self._entry.leader_epoch):
                self._wrong(path, -1, "missing", "the leader epochs of records cannot be checked")
            return False
        try:
            self._epochs = epochs_file.decode(data, path)
        except CorruptionError as error:
            if self._closed or self._point.offset > 0:  # at point 0 the file need not be durable yet
                self._wrong(path, error.position, "damaged", error.reason)
            return False
        return True

    def _check_epoch_bounds(self) -> None:
        """The checkpoint's first epoch begins with the log or before, its last one begins before the log's end."""
        entries, path = self._epochs.entries, self._path(epochs_file.FILE_NAME)
        begins_at = self._begins_at
        if begins_at is not None and self._ends_at > begins_at and (not entries or entries[0][1] > begins_at):
            first = f"begins at offset {entries[0][1]}" if entries else "has no entry"
            self._wrong(path, 0, "contradiction", f"it {first}, the log begins at {begins_at}")
        latest = self._epochs.latest
        if self._closed and latest != self._entry.leader_epoch and self._entry.read_only_reason is None:
            self._wrong(path, 0, "contradiction", f"the latest epoch is {latest}, the catalogue says {self._entry.leader_epoch}")
        if entries and entries[-1][1] > self._ends_at and self._closed:
            epoch, start = entries[-1]
            self._wrong(path, 0, "contradiction", f"epoch {epoch} begins at offset {start}, the log ends at {self._ends_at}")

    # ------------------------------------------------------------ segments

    def _check_segments(self, bases: Sequence[int]) -> None:
        for named in self._sealed:
            self._check_sealed(named)
        tail = self._tail(bases)
        sealed = {named.base_offset for named in self._sealed}
        for base in sorted(set(bases) - sealed - set(tail)):
            path = segment_path(self._directory, base)
            if base < self._entry.start_offset:
                self._report.notes.append(f"{path}: below the log start offset {self._entry.start_offset}; the next opening removes it")
            else:
                self._wrong(path, -1, "unknown", "a segment that is no part of the log")
        for slot, base in enumerate(tail):
            if not self._torn:
                self._check_unsealed(base, tail[slot + 1] if slot + 1 < len(tail) else None)

    def _tail(self, bases: Sequence[int]) -> list[int]:
        """The segments behind the sealed ones, as recovery chooses them."""
        if self._sealed:
            return [base for base in bases if base >= self._sealed[-1].next_offset]
        below = [base for base in bases if base <= self._entry.start_offset]
        return [*below[-1:], *bases[len(below) :]]

    def _check_sealed(self, named: SegmentEntry) -> None:
        path = self._segment_path(named.base_offset)
        self._check_follows(path, named.base_offset)
        walk = self._walk(named.base_offset, named.next_offset, OFFSET_MAX)
        self._ends_at = named.next_offset
        if walk is None:
            return
        found = (walk.size_bytes, walk.crc, walk.next_offset, walk.max_timestamp)
        wanted = (named.size_bytes, named.crc, named.next_offset, named.max_timestamp)
        if found != wanted and not walk.flaws:
            form = "size {}, CRC {:08x}, next offset {}, max timestamp {}"
            self._wrong(path, 0, "contradiction", f"{form.format(*found)}; the catalogue says {form.format(*wanted)}")
        self._check_indexes(walk, complete=True)
        self._check_transactions(walk, named)

    def _check_sidecars(self) -> None:
        for named in self._sealed:
            if named.sidecar is None:
                continue
            path, wrong = sidecar_path(self._directory, named), damage(self._io, self._directory, named)
            if wrong is not None:
                self._wrong(path, -1, "damaged" if exists(self._io, path) else "missing", wrong)
            else:
                self._report.file_count += 1
                self._report.size_bytes += named.sidecar.size_bytes
                self._tell(path, named.sidecar.size_bytes)

    def _check_unsealed(self, base: int, following: int | None) -> None:
        """Check a segment that the catalogue does not name: the active one, or one that is not sealed yet."""
        path, point = segment_path(self._directory, base), self._point
        if self._begins_at is not None and base != self._ends_at and not self._closed and base > self._intact.segment:
            self._torn = True
            self._report.notes.append(f"{path}: it lies past the written end of the log; the next opening sets it aside")
            return
        self._check_follows(path, base)
        limit, strict_below = OFFSET_MAX if following is None else following, OFFSET_MAX if self._closed else self._intact.offset
        walk = self._walk(base, limit, strict_below)
        if walk is None:
            return
        self._ends_at = walk.next_offset
        if walk.torn is not None:
            self._torn = True
            self._check_torn(walk, walk.torn)
        at = (walk.position, walk.next_offset) if self._closed else (walk.boundary_found or (point.offset, point.position))[::-1]
        if base == point.segment and at != (point.position, point.offset) and not walk.flaws:
            reason = f"byte {at[0]} is offset {at[1]}; the recovery point says byte {point.position}, offset {point.offset}"
            self._wrong(path, at[0], "contradiction", reason)
        self._check_indexes(walk, complete=self._closed)
        self._check_transactions(walk, None)

    def _check_follows(self, path: str, base: int) -> None:
        if self._begins_at is None:
            self._begins_at = base
        elif base != self._ends_at:
            self._wrong(path, -1, "contradiction", f"it begins at offset {base}, the segment before it ends at {self._ends_at}")

    def _check_torn(self, walk: SegmentWalk, torn: Flaw) -> None:
        """Past the recovery point, the first batch that is not whole ends the log, unless more than one group follows it."""
        if self._has_writer:
            return
        if self._entry.strict and (reach := reach_behind(self._io, walk, torn)) > GROUP_SIZE_BYTES:
            reason = f"{torn.reason}, but whole batches follow up to {reach} bytes behind it: more than one group"
            self._wrong(walk.path, torn.position, "damaged", reason)
            return
        size_bytes = walk.size_bytes - torn.position
        self._report.notes.append(
            f"{walk.path}: {size_bytes} bytes from byte {torn.position} on, past the recovery point, were not finished ({torn.reason}); "
            "the next opening cuts them"
        )

    def _size_bytes(self, path: str) -> int:
        """The size of a file; 0 where it is missing or is not a regular file, which its reader reports."""
        try:
            with File(self._io, path, os.O_RDONLY) as file:
                return file.size_bytes()
        except (FileNotFoundError, CorruptionError):
            return 0

    def _walk(self, base: int, limit: int, strict_below: int) -> SegmentWalk | None:
        """Walk one segment and report its flaws; None if its file is missing."""
        path = self._segment_path(base)
        index, time_index = (os.path.basename(self._segment_path(base, suffix)) for suffix in (".index", ".timeindex"))
        size_bytes = self._size_bytes(path)
        walk = SegmentWalk(
            self._io,
            path,
            base,
            epochs=self._epochs,
            offset_limit=limit,
            strict_below=strict_below,
            reserve_allowed=strict_below < OFFSET_MAX,
            boundary=self._point.offset,
            index=self._read_index(index, INDEX_ENTRY_SIZE, size_bytes),
            time_index=self._read_index(time_index, TIME_INDEX_ENTRY_SIZE, size_bytes),
            index_interval_bytes=self._config.index_interval_bytes,
            progress=lambda size_bytes: self._tell(path, size_bytes),
            visit=self._producers.visit,
        )
        self._producers.begin(base)
        try:
            walk.run()
        except FileNotFoundError:
            self._wrong(path, -1, "missing", f"the segment of the offsets [{base}, {'…' if limit == OFFSET_MAX else limit})")
            return None
        except CorruptionError as error:
            self._wrong(path, error.position, "damaged", error.reason)
            return None
        self._report.file_count += 1
        self._report.size_bytes += walk.size_bytes
        self._report.batch_count += walk.batch_count
        self._report.record_count += walk.record_count
        for flaw in walk.flaws:
            self._wrong(path, flaw.position, "damaged", _words(flaw))
        if walk.codec_missing is not None:
            self._report.notes.append(f"{path}: its records were not checked: {walk.codec_missing}")
        sound = walk.torn is None and not walk.flaws
        if limit < OFFSET_MAX and walk.next_offset != limit and sound and walk.next_offset < strict_below:
            self._wrong(path, walk.position, "contradiction", f"it ends at offset {walk.next_offset}, expected {limit}")
        return walk

    # ------------------------------------------------------------ indexes

    def _check_indexes(self, walk: SegmentWalk, *, complete: bool) -> None:
        """Check both indexes against the log; ``complete``: no entry may be missing."""
        if walk.flaws:
            return  # the flaws leave their right content unknown
        walk.scanner.close_time_index()
        entry, base = self._entry, walk.base_offset
        durable = base < entry.recovery_segment  # the indexes are synced before the catalogue's point moves
        position = OFFSET_MAX if durable else entry.recovery_position if base == entry.recovery_segment else 0
        offset = OFFSET_MAX if durable else entry.recovery_offset - base
        for suffix, found, judged_below in ((".index", walk.offsets, position), (".timeindex", walk.times, offset)):
            path = self._segment_path(base, suffix)
            if complete:
                self._check_whole_index(path, found, walk)
            elif found.is_false_below(judged_below):
                self._wrong(path, found.at, "damaged", f"the entry {found.entry_hex()} is not true of the log")

    def _check_whole_index(self, path: str, found: EntryCheck, walk: SegmentWalk) -> None:
        """Check a finished index, which an earlier ``index.interval.bytes`` may have made."""
        offsets = found is walk.offsets
        rebuilt = walk.scanner.index if offsets else walk.scanner.time_index
        if not exists(self._io, path):
            self._wrong(path, -1, "missing", "the index of a closed segment")
        elif found.data == rebuilt:
            return
        elif found.at < len(found.data):
            self._wrong(path, found.at, "damaged", f"the entry {found.entry_hex()} is not true of the log")
        elif rebuilt.startswith(found.data) and not (offsets and not found.data and walk.size_bytes <= _INDEX_INTERVAL_DEFAULT):
            self._wrong(path, len(found.data), "damaged", f"entries are missing: {len(found.data)} bytes, {len(rebuilt)} expected")
        else:
            self._report.notes.append(f"{path}: written at another index.interval.bytes than the topic has now")

    # ------------------------------------------------------------ producers

    def _check_transactions(self, walk: SegmentWalk, named: SegmentEntry | None) -> None:
        """Check the index of aborted transactions against the catalogue and against the log."""
        path = self._segment_path(walk.base_offset, transaction_index.SUFFIX)
        try:
            data = self._taken_or_raise(os.path.basename(path), lambda path: transaction_index.read(self._io, path))
        except CorruptionError as error:
            if walk.flaws:
                return
            if named is None and not self._closed:  # a crash may have interrupted its writing
                self._report.notes.append(f"{path}: {error.reason}; the next opening rebuilds it")
            else:
                self._wrong(path, error.position, "damaged", error.reason)
            return
        if walk.flaws:
            return  # the flaws leave its right content unknown
        try:
            if named is not None:
                noted = named.aborted_count, named.aborted_crc
                transaction_index.compare(path, transaction_index.summary(data or b""), noted, "the catalogue")
            elif (snapshot := self._counting_snapshot()) is not None:
                noted, known = snapshot.aborted_in(walk.base_offset), transaction_index.below(data or b"", self._entry.producers_offset)
                transaction_index.compare(path, transaction_index.summary(known), noted, "the snapshot of producers")
        except CorruptionError as error:
            self._wrong(path, 0, "missing" if data is None else "damaged", error.reason)
            return
        judged_below = OFFSET_MAX if named is not None else self._entry.producers_offset
        reason = wrong_index(data or b"", self._producers, walk.base_offset, judged_below, compacted=self._compacted)
        if reason is not None:
            self._wrong(path, 0, "missing" if data is None else "contradiction", reason)

    def _counting_snapshot(self) -> Snapshot | None:
        """The producer snapshot that the catalogue names; None if it is missing or damaged."""
        if self._entry.producers_offset < 0:
            return None
        try:
            return producer_snapshot.load(self._io, self._directory, self._entry.producers_offset)
        except (FileNotFoundError, CorruptionError):
            return None  # ``_check_producers`` reports it

    def _check_producers(self, names: Sequence[str]) -> None:
        """Check the snapshot that the catalogue names against the log; of others, to which recovery may fall back, the checksums."""
        counts = self._entry.producers_offset
        if counts < 0 and self._producers.any:
            self._wrong(
                self._directory, -1, "contradiction", "the log has batches of producers, the catalogue names no snapshot of producers"
            )
        for offset in producer_snapshot.offsets(names):
            path = producer_snapshot.snapshot_path(self._directory, offset)
            data = self._taken(os.path.basename(path), lambda path: producer_snapshot.read(self._io, path))
            try:
                if data and offset != counts:
                    producer_snapshot.decode(data, path)
            except CorruptionError as error:
                self._wrong(path, error.position, "damaged", error.reason)
        if counts < 0:
            return
        wrong = wrong_snapshot(self._io, self._directory, self._producers, compacted=self._compacted, damaged=not self._report.ok)
        if wrong is not None:
            self._wrong(producer_snapshot.snapshot_path(self._directory, counts), 0 if wrong[0] != "missing" else -1, *wrong)

    # ------------------------------------------------------------ the whole

    def _check_end(self) -> None:
        intact = self._intact
        too_long = self._closed and self._ends_at > intact.offset
        if self._report.ok and (self._ends_at < intact.offset or too_long):
            path = segment_path(self._directory, intact.segment)
            kind = "contradiction" if exists(self._io, path) else "missing"
            self._wrong(path, -1, kind, f"the log ends at offset {self._ends_at}; it was synced or written up to {intact.offset}")

    def _check_high_watermark(self) -> None:
        """Check the high watermark of a replica; after a crash the next opening puts it right."""
        path, data = self._path(high_watermark.FILE_NAME), self._read(high_watermark.FILE_NAME, 2 * high_watermark.SIZE_BYTES)
        if data is None:
            return
        try:
            offset = high_watermark.decode(data, path)
        except CorruptionError as error:
            if self._closed:
                self._wrong(path, error.position, "damaged", error.reason)
            elif not self._has_writer:  # which may be writing it
                self._report.notes.append(f"{path}: {error.reason}; readers see nothing until the leader moves the high watermark")
            return
        if self._closed and offset > self._ends_at:
            self._wrong(path, 0, "contradiction", f"it says {offset}, the log ends at offset {self._ends_at}")

    def _check_names(self, names: Sequence[str], bases: Sequence[int]) -> None:
        suffixes = (".log", ".index", ".timeindex", transaction_index.SUFFIX)
        known = {f"{base:020d}{suffix}" for base in bases for suffix in suffixes} | set(_SMALL_FILES)
        known |= {os.path.basename(producer_snapshot.snapshot_path("", offset)) for offset in producer_snapshot.offsets(names)}
        known |= set(sidecar_paths("", self._sealed))
        unnamed = unnamed_sidecars(names, self._sealed)
        for name in sorted(set(names) - known):
            unfinished = name.endswith((".tmp", CLEANED)) or name in self._pending.removed or name in unnamed
            what = "set aside" if name.endswith(_ASIDE) else "unfinished work" if unfinished else "no part of the log"
            self._report.notes.append(f"{self._path(name)}: {what}")


# ---------------------------------------------------------------- for repair too


def topic_file_fits(found: TopicFile, wanted: TopicFile) -> bool:
    """Whether a ``topic.json`` is right; one of an older partition may not count partitions that were added later."""
    return found.partition_count <= wanted.partition_count and found._replace(partition_count=wanted.partition_count) == wanted


def reach_behind(io: IO, walk: SegmentWalk, torn: Flaw) -> int:
    """How many bytes behind a torn batch the last whole batch of its segment ends."""
    return SegmentWalk(io, walk.path, walk.base_offset).run().good_end - torn.position


def bad_slots(data: bytes) -> list[int]:
    """Positions of the damaged slots of a recovery point file."""
    size = recovery_point.SLOT_SIZE
    slots = {at: data[at : at + size] for at in range(0, min(len(data), 2 * size), size)}
    return [at for at, slot in slots.items() if slot.strip(b"\0") and recovery_point.decode(slot) is None]


def _words(flaw: Flaw) -> str:
    if flaw.status in (Status.OFFSET, Status.EPOCH, Status.RECORD):
        return flaw.reason
    behind = "to the end of the file" if flaw.resume_offset is None else f"up to offset {flaw.resume_offset}"
    return f"{flaw.reason} ({flaw.size_bytes} bytes, from offset {flaw.expected_offset} {behind})"
