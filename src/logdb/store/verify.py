"""``verify``: is every byte of a database as it was written?

Knows what every file should hold and how the files agree with one another.  Changes
nothing, takes no lock, and goes on behind damage, so that one report has all of it.

How strict it may be depends on how the directory was left:

    settled      closed cleanly, and nobody writes: every byte is accounted for
    crashed      strict up to each recovery point; past it, what is not whole was never finished
    written to   the same; what contradicts the catalogue is looked at again, since it may have changed meanwhile
"""

import os
from collections.abc import Callable, Iterator, Sequence

from logdb.codec import Status
from logdb.errors import CorruptionError, NotADatabase, UnsupportedFormat
from logdb.io import IO, read_file
from logdb.log import epochs as epochs_file
from logdb.log import recovery_point
from logdb.log.epochs import LeaderEpochs
from logdb.log.log import GROUP_SIZE_BYTES
from logdb.log.reader import DECOMPRESSED_SIZE_BYTES_MAX
from logdb.log.recovery_point import Point
from logdb.meta import CatalogueDump, LogEntry, SegmentEntry, TopicEntry, file_checksum, read_in_child
from logdb.model import OFFSET_MAX, SEGMENT_SIZE_BYTES_MAX, LogConfig
from logdb.segment.segment import segment_path
from logdb.store import lock, topic_file
from logdb.store.inspect import EntryCheck, Flaw, SegmentWalk
from logdb.store.report import Progress, Report
from logdb.store.topic_file import TopicFile

_LOOK_COUNT_MAX = 5  # beside a writer
_ASIDE = (".orphan", ".torn", ".damaged")
_KNOWN = (topic_file.FILE_NAME, epochs_file.FILE_NAME, recovery_point.FILE_NAME)


def verify(path: str | os.PathLike[str], *, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Check every byte of every file of a database against its neighbours; changes nothing.

    Works on a closed database, on one left by a crash, and beside a process that writes to it.

    Args:
        path: The database's directory.
        io: What touches files; for tests.
        progress: Called now and then with bytes done, bytes in all, and what is being looked at.

    Returns:
        What was checked, and what is wrong; ``report.ok`` where nothing is.

    Raises:
        NotADatabase: Nothing of a database is there.
    """
    return Verifier(os.path.abspath(path), io or IO(), progress).run()


class Verifier:
    """One verification of one directory."""

    def __init__(self, path: str, io: IO, progress: Progress | None) -> None:
        self._path, self._io, self._progress = path, io, progress
        self._report = Report()
        self._done_bytes = self._total_bytes = 0
        lock_path = self._file("LOCK")
        self._state = lock.read_state(io, lock_path)
        alive = lock.writer_alive(io, lock_path)
        self._written_to = self._state.is_open if alive is None else alive
        self._settled = self._state.clean and not self._written_to

    def run(self) -> Report:
        names = self._names()
        self._check_lock(names)
        dump = self._check_catalogue()
        self._total_bytes = sum(self._size(path) for path in self._log_files(names))
        self._check_logs(dump)
        self._check_strays(dump)
        return self._report

    def _names(self) -> list[str]:
        try:
            names = self._io.listdir(self._path)
        except FileNotFoundError:
            raise NotADatabase(f"{self._path} does not exist") from None
        if not any(name in ("LOCK", "catalogue") or self._holds_partition(name) for name in names):
            raise NotADatabase(f"{self._path} holds no logdb database")
        return names

    def _file(self, *names: str) -> str:
        return os.path.join(self._path, *names)

    def _holds_partition(self, name: str) -> bool:
        return self._io.exists(self._file(name, topic_file.FILE_NAME))

    def _log_files(self, names: Sequence[str]) -> Iterator[str]:
        for name in names:
            if os.path.isdir(self._file(name)):
                yield from (self._file(name, file) for file in listed(self._io, self._file(name)) if file.endswith(".log"))

    def _size(self, path: str) -> int:
        try:
            fd = self._io.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return 0
        try:
            return self._io.size_bytes(fd)
        finally:
            self._io.close(fd)

    # ------------------------------------------------------------ what lies above the logs

    def _check_lock(self, names: Sequence[str]) -> None:
        path = self._file("LOCK")
        if "LOCK" not in names:
            self._report.add(path, -1, "missing", "without it, nobody knows how the last writer left")
            return
        problems: list[str] = []
        for _ in range(_LOOK_COUNT_MAX):  # a writer may be in the middle of a slot
            data = read_file(self._io, path, 2 * lock.FILE_SIZE_BYTES)
            problems = lock.verify_lock(data)
            if len(data) > lock.FILE_SIZE_BYTES:
                problems.append(f"it has {len(data)} bytes instead of {lock.FILE_SIZE_BYTES}")
            if not problems or not self._written_to:
                break
        self._report.file_count += 1
        self._report.size_bytes += len(data)
        for problem in problems:
            self._report.add(path, 0, "damaged", problem)
        if self._state.failed_sync:
            self._report.notes.append(f"{path}: an fsync failed; the next opening scans what the disk gives back")

    def _check_catalogue(self) -> CatalogueDump:
        path, state = self._file("catalogue"), self._state
        data_path = os.path.join(path, "data.mdb")
        if not self._io.exists(data_path):
            self._report.add(data_path, -1, "missing", "the catalogue is lost; logdb repair makes it anew")
            return CatalogueDump()
        size_bytes, crc = file_checksum(self._io, path)
        self._report.file_count += 1
        self._report.size_bytes += size_bytes
        if self._settled and (size_bytes, crc) != (state.catalogue_size, state.catalogue_crc):
            reason = f"{size_bytes} bytes with CRC {crc:08x}; closed with {state.catalogue_size} and {state.catalogue_crc or 0:08x}"
            self._report.add(data_path, 0, "damaged", reason)
        dump = read_in_child(path, lock=self._written_to)
        for problem in dump.problems:
            self._report.add(data_path, -1, "damaged", problem)
        return dump

    def _check_logs(self, dump: CatalogueDump) -> None:
        segments: dict[tuple[str, int], list[SegmentEntry]] = {}
        for segment in dump.segments:
            segments.setdefault((segment.topic, segment.partition), []).append(segment)
        for entry in dump.logs:
            topic = dump.topics.get(entry.topic)
            if topic is None:
                continue  # said already
            found = self._check_log(topic, entry, segments.get((entry.topic, entry.partition), []))
            if not found.ok and self._written_to:
                again = self._look_again(entry)
                found = again if again is not None else Report()
            self._report.count(found)

    def _check_log(self, topic: TopicEntry, entry: LogEntry, sealed: Sequence[SegmentEntry]) -> Report:
        check = PartitionCheck(
            self._io, self._file(f"{topic.name}-{entry.partition}"), topic, entry, sealed, settled=self._settled, written_to=self._written_to
        )
        return check.run(self._tell)

    def _look_again(self, entry: LogEntry) -> Report | None:
        """Check a log anew, by what the catalogue says now; None if it is gone."""
        found: Report | None = None
        for _ in range(_LOOK_COUNT_MAX):
            dump = read_in_child(self._file("catalogue"), lock=True)
            now = [log for log in dump.logs if (log.topic, log.partition) == (entry.topic, entry.partition)]
            if not now or entry.topic not in dump.topics:
                return None
            sealed = [segment for segment in dump.segments if (segment.topic, segment.partition) == (entry.topic, entry.partition)]
            found = self._check_log(dump.topics[entry.topic], now[0], sealed)
            if found.ok:
                break
        return found

    def _tell(self, path: str, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if self._progress is not None:
            self._progress(min(self._done_bytes, self._total_bytes), self._total_bytes, os.path.relpath(path, self._path))

    def _check_strays(self, dump: CatalogueDump) -> None:
        """What lies in the directory that the catalogue does not name."""
        known = {f"{log.topic}-{log.partition}" for log in dump.logs} | {"LOCK", "catalogue", "views"}
        unfinished = {intent.topic for _, intent in dump.intents}
        for name in sorted(set(self._names()) - known):
            path = self._file(name)
            if name.endswith((".tmp", "-delete")):
                self._report.notes.append(f"{path}: unfinished work, which the next opening finishes or removes")
            elif name.startswith("catalogue.damaged-"):
                self._report.notes.append(f"{path}: set aside by a repair")
            elif self._holds_partition(name) and not self._appeared_since(name) and name.rpartition("-")[0] not in unfinished:
                self._report.add(path, -1, "unknown", "a partition that the catalogue does not name")
            elif not self._holds_partition(name):
                self._report.notes.append(f"{path}: no part of the database")

    def _appeared_since(self, name: str) -> bool:
        """Beside a writer: whether a topic was created, or deleted, after the catalogue was read."""
        if not self._written_to:
            return False
        dump = read_in_child(self._file("catalogue"), lock=True)
        return any(name == f"{log.topic}-{log.partition}" for log in dump.logs) or not self._holds_partition(name)


class PartitionCheck:
    """One partition's directory against what the catalogue says of it."""

    def __init__(
        self,
        io: IO,
        directory: str,
        topic: TopicEntry,
        entry: LogEntry,
        sealed: Sequence[SegmentEntry],
        *,
        settled: bool,
        written_to: bool,
    ) -> None:
        self._io, self._directory, self._topic, self._entry, self._sealed = io, directory, topic, entry, sealed
        self._settled, self._written_to = settled, written_to
        self._config = LogConfig.of(topic.config, "interval")
        self._report = Report()
        self._point = Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position)
        self._epochs = LeaderEpochs()
        self._ends_at = entry.start_offset  # offset after what was walked so far
        self._log_begins_at: int | None = None
        self._torn = False

    def run(self, tell: Callable[[str, int], None]) -> Report:
        self._tell = tell
        if not self._io.exists(self._directory):
            self._report.add(self._directory, -1, "missing", "the catalogue names the partition, but its directory is not there")
            return self._report
        if self._entry.read_only_reason is not None:
            self._report.add(self._directory, -1, "read-only", self._entry.read_only_reason)
        self._check_topic_file()
        self._check_recovery_point()
        epochs_found = self._check_epochs()
        names = listed(self._io, self._directory)
        bases = sorted(base for name in names if (base := log_base(name)) is not None)
        self._check_segments(bases)
        if epochs_found:
            self._check_epoch_bounds()
        self._check_end()
        self._check_names(names, bases)
        return self._report

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _read(self, name: str, size_bytes_max: int) -> bytes | None:
        try:
            data = read_file(self._io, self._path(name), size_bytes_max)
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
            self._report.add(path, -1, "missing", "what the topic's configs are is in the catalogue alone")
            return
        try:
            found = topic_file.decode(data, path)
        except UnsupportedFormat as error:
            self._report.add(path, 0, "newer format", str(error))
        except CorruptionError as error:
            self._report.add(path, error.position, "damaged", error.reason)
        else:
            wanted = topic_file_of(self._topic, self._entry)
            if found != wanted and self._settled:
                self._report.add(path, 0, "contradiction", f"it says {found}, the catalogue {wanted}")

    def _check_recovery_point(self) -> None:
        """Both slots; the point becomes the later one of the file's and the catalogue's."""
        path, size = self._path(recovery_point.FILE_NAME), recovery_point.SLOT_SIZE
        slots: list[tuple[int, Point]] = []
        for look in range(_LOOK_COUNT_MAX):
            data = read_file(self._io, path, 3 * size) if self._io.exists(path) else None
            bad = [at for at in range(0, len(data or b""), size) if (part := (data or b"")[at : at + size]).strip(b"\0") and not recovery_point.decode(part)]
            slots = [slot for at in (0, size) if (slot := recovery_point.decode((data or b"")[at : at + size]))]
            if not bad or not self._written_to:
                break
        if data is None:
            if self._settled and self._entry.recovery_offset > self._entry.start_offset:
                self._report.add(path, -1, "missing", f"the recovery point {self._entry.recovery_offset} is in the catalogue alone")
            return
        self._report.file_count += 1
        self._report.size_bytes += len(data)
        if len(data) > 2 * size:
            self._report.add(path, 2 * size, "damaged", "it is longer than its two slots")
        for at in bad:
            if self._settled:
                self._report.add(path, at, "damaged", f"the slot's CRC does not fit: {data[at : at + size].hex()}")
            else:
                self._report.notes.append(f"{path}: the slot at byte {at} is torn; the other one counts")
        _, newest = max(slots, default=(0, recovery_point.NOWHERE))
        if newest.offset > self._point.offset:
            if self._settled:
                self._report.add(path, 0, "contradiction", f"it says {newest}, the catalogue {self._point}")
            else:
                self._point = newest

    def _check_epochs(self) -> bool:
        path = self._path(epochs_file.FILE_NAME)
        data = self._read(epochs_file.FILE_NAME, SEGMENT_SIZE_BYTES_MAX)
        if data is None:
            if self._point.offset > self._entry.start_offset:
                self._report.add(path, -1, "missing", "records' leader epochs cannot be checked")
            return False
        try:
            self._epochs = epochs_file.decode(data, path)
        except CorruptionError as error:
            if self._settled or self._point.offset > 0:
                self._report.add(path, error.position, "damaged", error.reason)
            return False
        return True

    def _check_epoch_bounds(self) -> None:
        entries, path = self._epochs.entries, self._path(epochs_file.FILE_NAME)
        begins_at = self._log_begins_at
        if begins_at is not None and self._ends_at > begins_at and (not entries or entries[0][1] > begins_at):
            first = f"begins at offset {entries[0][1]}" if entries else "has no entry"
            self._report.add(path, 0, "contradiction", f"it {first}, the log at {begins_at}")
        if entries and entries[-1][1] > self._ends_at and self._settled:
            self._report.add(path, 0, "contradiction", f"epoch {entries[-1][0]} begins at {entries[-1][1]}, the log ends at {self._ends_at}")

    # ------------------------------------------------------------ segments

    def _check_segments(self, bases: Sequence[int]) -> None:
        named = {segment.base_offset for segment in self._sealed}
        for entry in self._sealed:
            self._check_sealed(entry)
        first = self._sealed[-1].next_offset if self._sealed else self._entry.start_offset
        tail = [base for base in bases if base not in named and (base >= first or (not self._sealed and base <= first))]
        if not self._sealed:  # the one that holds the log start offset, and what follows
            tail = tail[max(0, sum(base <= first for base in tail) - 1) :]
        for base in sorted(set(bases) - named - set(tail)):
            path = segment_path(self._directory, base)
            if base < self._entry.start_offset:
                self._report.notes.append(f"{path}: below the log start offset {self._entry.start_offset}; the next opening removes it")
            else:
                self._report.add(path, -1, "unknown", "a segment that is no part of the log")
        for slot, base in enumerate(tail):
            self._check_tail(base, tail[slot + 1] if slot + 1 < len(tail) else None)

    def _check_sealed(self, entry: SegmentEntry) -> None:
        path = segment_path(self._directory, entry.base_offset)
        if self._log_begins_at is not None and entry.base_offset != self._ends_at:
            self._report.add(path, -1, "contradiction", f"it begins at offset {entry.base_offset}, the segment before ends at {self._ends_at}")
        self._ends_at = entry.base_offset
        walk = self._walk(entry.base_offset, entry.next_offset, OFFSET_MAX)
        self._ends_at = entry.next_offset
        if walk is None:
            return
        found = (walk.size_bytes, walk.crc, walk.next_offset, walk.max_timestamp)
        wanted = (entry.size_bytes, entry.crc, entry.next_offset, entry.max_timestamp)
        if found != wanted and not walk.flaws:
            reason = "size {}, CRC {:08x}, next offset {}, max timestamp {}; the catalogue says {}, {:08x}, {}, {}".format(*found, *wanted)
            self._report.add(path, 0, "contradiction", reason)
        self._check_indexes(walk, complete=True)

    def _check_tail(self, base: int, following: int | None) -> None:
        """A segment that the catalogue does not name: the active one, or one not sealed yet."""
        path = segment_path(self._directory, base)
        if self._log_begins_at is not None and base != self._ends_at:
            if self._settled or base <= self._point.segment:
                self._report.add(path, -1, "contradiction", f"it begins at offset {base}, the segment before ends at {self._ends_at}")
            else:
                self._torn = True
                self._report.notes.append(f"{path}: past what was written whole; the next opening sets it aside")
        if self._torn:
            return
        strict_below = OFFSET_MAX if self._settled else self._point.offset
        walk = self._walk(base, OFFSET_MAX if following is None else following, strict_below)
        if walk is None:
            return
        self._ends_at = walk.next_offset
        if walk.torn is not None:
            self._torn = True
            self._check_torn(walk, walk.torn)
        elif self._settled and base == self._point.segment and (walk.size_bytes, walk.next_offset) != (self._point.position, self._point.offset):
            reason = f"it ends at byte {walk.size_bytes}, offset {walk.next_offset}; closed at {self._point.position}, {self._point.offset}"
            self._report.add(path, walk.size_bytes, "contradiction", reason)
        self._check_indexes(walk, complete=self._settled)

    def _check_torn(self, walk: SegmentWalk, torn: Flaw) -> None:
        """Past the recovery point, the first batch that is not whole ends the log; unless far more follows than can be torn."""
        if self._written_to:
            return  # not there yet
        if self._entry.strict:
            reach = SegmentWalk(self._io, walk.path, walk.base_offset).run().good_end - torn.position
            if reach > GROUP_SIZE_BYTES:
                reason = f"{torn.reason}, yet whole batches follow up to {reach} bytes behind, more than one group"
                self._report.add(walk.path, torn.position, "damaged", reason)
                return
        size_bytes = walk.size_bytes - torn.position
        self._report.notes.append(
            f"{walk.path}: past the recovery point, {size_bytes} bytes from byte {torn.position} on are no whole batches ({torn.reason}); "
            "the next opening cuts them"
        )

    def _walk(self, base: int, limit: int, strict_below: int) -> SegmentWalk | None:
        """Walk one segment and report its flaws."""
        path = segment_path(self._directory, base)
        if self._log_begins_at is None:
            self._log_begins_at = base
        walk = SegmentWalk(
            self._io,
            path,
            base,
            epochs=self._epochs,
            offset_limit=limit,
            strict_below=strict_below,
            index=self._read(os.path.basename(segment_path("", base, ".index")), SEGMENT_SIZE_BYTES_MAX) or b"",
            time_index=self._read(os.path.basename(segment_path("", base, ".timeindex")), SEGMENT_SIZE_BYTES_MAX) or b"",
            index_interval_bytes=self._config.index_interval_bytes,
            decompressed_size_bytes_max=max(DECOMPRESSED_SIZE_BYTES_MAX, self._config.max_message_bytes),
            progress=lambda size_bytes: self._tell(path, size_bytes),
        )
        try:
            walk.run()
        except FileNotFoundError:
            self._report.add(path, -1, "missing", f"the segment with offsets [{base}, {limit if limit < OFFSET_MAX else '…'})")
            return None
        self._report.file_count += 1
        self._report.size_bytes += walk.size_bytes
        self._report.batch_count += walk.batch_count
        self._report.record_count += walk.record_count
        for flaw in walk.flaws:
            self._report.add(path, flaw.position, "damaged", _reason(flaw))
        if walk.codec_missing is not None:
            self._report.notes.append(f"{path}: records were not looked at: {walk.codec_missing}")
        if limit < OFFSET_MAX and walk.next_offset != limit and walk.torn is None and not walk.flaws:
            self._report.add(path, walk.position, "contradiction", f"it ends at offset {walk.next_offset}, the next segment begins at {limit}")
        return walk

    def _check_indexes(self, walk: SegmentWalk, *, complete: bool) -> None:
        """The two indexes against the log; ``complete``: all entries must be there."""
        if walk.flaws:
            return  # what should be in them cannot be told
        walk.scanner.close_time_index()
        entry, base = self._entry, walk.base_offset
        durable = base < entry.recovery_segment  # the catalogue's point moves only after the indexes are synced
        position = OFFSET_MAX if durable else entry.recovery_position if base == entry.recovery_segment else 0
        self._check_index(segment_path(self._directory, base, ".index"), walk.offsets, walk.scanner.index, position, complete)
        offset = OFFSET_MAX if durable else entry.recovery_offset - base
        self._check_index(segment_path(self._directory, base, ".timeindex"), walk.times, walk.scanner.time_index, offset, complete)

    def _check_index(self, path: str, found: EntryCheck, rebuilt: bytes | bytearray, judged_below: int, complete: bool) -> None:
        if not complete:
            if (at := found.flaw_below(judged_below)) >= 0:
                self._report.add(path, at, "damaged", f"the entry {_entry(found, at)} is not true of the log")
        elif not self._io.exists(path):
            self._report.add(path, -1, "missing", "the index of a segment that was closed")
        elif found.data != rebuilt:
            if found.at < len(found.data):
                self._report.add(path, found.at, "damaged", f"the entry {_entry(found, found.at)} is not true of the log")
            elif rebuilt.startswith(found.data) and (found.data or "index.interval.bytes" not in self._topic.config):
                self._report.add(path, len(found.data), "damaged", f"entries are missing: {len(found.data)} bytes, {len(rebuilt)} expected")
            else:
                self._report.notes.append(f"{path}: made with another index.interval.bytes than the topic's")

    # ------------------------------------------------------------ the whole

    def _check_end(self) -> None:
        point = self._point
        if self._ends_at < point.offset and self._report.ok:
            reason = f"the log ends at offset {self._ends_at}, before the recovery point {point.offset}"
            self._report.add(segment_path(self._directory, point.segment), -1, "contradiction", reason)
        elif self._settled and self._ends_at > point.offset and self._report.ok:
            reason = f"the log ends at offset {self._ends_at}; it was closed at {point.offset}"
            self._report.add(segment_path(self._directory, point.segment), -1, "contradiction", reason)

    def _check_names(self, names: Sequence[str], bases: Sequence[int]) -> None:
        segment_names = {f"{base:020d}{suffix}" for base in bases for suffix in (".log", ".index", ".timeindex")}
        for name in sorted(set(names) - segment_names - set(_KNOWN)):
            what = "set aside" if name.endswith(_ASIDE) else "unfinished work" if name.endswith(".tmp") else "no part of the log"
            self._report.notes.append(f"{self._path(name)}: {what}")


# ---------------------------------------------------------------- what repair needs too


def listed(io: IO, directory: str) -> list[str]:
    """Names in a directory; none where it is not there (any more)."""
    try:
        return io.listdir(directory)
    except FileNotFoundError:
        return []


def log_base(name: str) -> int | None:
    """The base offset in the name of a ``.log`` file; None for another name."""
    return int(name[:20]) if len(name) == 24 and name.endswith(".log") and name[:20].isdigit() else None


def topic_file_of(topic: TopicEntry, entry: LogEntry) -> TopicFile:
    """What a partition's ``topic.json`` should say."""
    return TopicFile(topic.name, topic.topic_id, entry.partition, topic.partition_count, topic.config, entry.start_offset)


def _reason(flaw: Flaw) -> str:
    if flaw.status in (Status.OFFSET, Status.EPOCH, Status.RECORD):
        return flaw.reason
    behind = "to the end of the file" if flaw.resume_offset is None else f"up to offset {flaw.resume_offset}"
    return f"{flaw.reason} ({flaw.size_bytes} bytes, from offset {flaw.expected_offset} {behind})"


def _entry(found: EntryCheck, at: int) -> str:
    return found.data[at : at + found.size].hex(" ", 4)
