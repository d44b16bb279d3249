"""``verify``: is every byte of a database as it was written?

Knows what lies above the partitions: ``LOCK``, the catalogue, ``security.json``, what is in the directory.  Changes
nothing, takes no lock, and goes on behind damage, so that one report has all of it.
Beside a writer, what contradicts the catalogue is looked at again, since it may have changed meanwhile.
"""

import os
from collections.abc import Iterator, Sequence

from logdb.disk import File, exists, names_in, read_file
from logdb.errors import CorruptionError, NotADatabase, UnsupportedFormat
from logdb.io import IO
from logdb.meta import Intent, LogEntry, SegmentEntry, TopicEntry, file_checksum
from logdb.meta.dump import CatalogueDump, read_in_child
from logdb.meta.entries import FORMAT
from logdb.model import TopicPartition
from logdb.store import lock, security_line, topic_file
from logdb.store import replacement_intent as swap
from logdb.store.check.partition_check import NEWER_FORMAT, Left, PartitionCheck
from logdb.store.check.report import Progress, Report
from logdb.store.check.segment_walk import listed
from logdb.store.copy import snapshot_file
from logdb.store.directories import UNFINISHED
from logdb.store.lock import LockState

_LOOK_COUNT_MAX = 5  # at what a writer may be changing
_MOVING_LOOK_COUNT_MAX = 50  # at what it did change meanwhile


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


def database_names(io: IO, path: str) -> list[str]:
    """The names in the directory ``path``; raises NotADatabase where they are none of ours."""
    try:
        names = names_in(io, path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotADatabase(f"{path} is no directory") from None
    if not any(name in ("LOCK", "catalogue") or exists(io, os.path.join(path, name, topic_file.FILE_NAME)) for name in names):
        raise NotADatabase(f"{path} holds no logdb database")
    return names


class Verifier:
    """One verification of one directory.  ``dump`` is what the catalogue says, once it was read.

    ``left``: how the last writer left it; ``cache_trusted``: no sync of it failed.
    """

    def __init__(self, path: str, io: IO, progress: Progress | None, *, written_to: bool | None = None) -> None:
        """``written_to``: whether a process writes to it; None: find out."""
        self._path, self._io, self._progress = path, io, progress
        self._names = database_names(io, path)
        self._report = Report()
        self._done_bytes = self._total_bytes = 0
        self._state = lock.read_state(io, self._file("LOCK"))
        if self._is_snapshot():
            self._state, written_to = self._snapshot_state(), False
        if written_to is None:
            written_to = lock.writer_alive(io, self._file("LOCK"))
        if written_to is None:  # the system cannot tell
            written_to = self._state.is_open
        self.left = Left.WRITTEN_TO if written_to else Left.CLOSED if self._state.clean else Left.CRASHED
        self.cache_trusted = not self._state.failed_sync
        self.dump = CatalogueDump()

    def run(self) -> Report:
        self._check_lock()
        self._check_catalogue()
        if self.dump.format is None or self.dump.format <= FORMAT:
            self._total_bytes = sum(self._size(path) for path in self._large_files())
            self._check_logs()
            self._check_strays()
        self._check_security()
        return self._report

    def _file(self, *names: str) -> str:
        return os.path.join(self._path, *names)

    def _holds_partition(self, name: str) -> bool:
        return exists(self._io, self._file(name, topic_file.FILE_NAME))

    def _large_files(self) -> Iterator[str]:
        for name in self._names:
            if os.path.isdir(self._file(name)):
                yield from (self._file(name, file) for file in listed(self._io, self._file(name)) if file.endswith((".log", ".parquet")))

    def _size(self, path: str) -> int:
        try:
            with File(self._io, path, os.O_RDONLY) as file:
                return file.size_bytes()
        except FileNotFoundError:
            return 0

    def tell(self, path: str, size_bytes: int) -> None:
        """So many bytes more of ``path`` were looked at."""
        self._done_bytes += size_bytes
        if self._progress is not None:
            self._progress(min(self._done_bytes, self._total_bytes), self._total_bytes, os.path.relpath(path, self._path))

    # ------------------------------------------------------------ LOCK and catalogue

    def _is_snapshot(self) -> bool:
        return snapshot_file.FILE_NAME in self._names

    def _snapshot_state(self) -> LockState:
        """What a snapshot's mark says, in the words of the ``LOCK`` of a closed database."""
        try:
            mark = snapshot_file.load(self._io, self._path)
        except UnsupportedFormat as error:
            self._report.add(self._file(snapshot_file.FILE_NAME), 0, NEWER_FORMAT, str(error))
        except CorruptionError as error:
            self._report.add(error.path, error.position, "damaged", error.reason)
        else:
            if mark is not None:
                return LockState(clean=True, catalogue_size=mark.catalogue_size, catalogue_crc=mark.catalogue_crc)
        return LockState(clean=True)

    def _check_lock(self) -> None:
        if self._is_snapshot():
            self._report.file_count += 1
            self._report.size_bytes += self._size(self._file(snapshot_file.FILE_NAME))
            return
        path = self._file("LOCK")
        if "LOCK" not in self._names:
            self._report.add(path, -1, "missing", "without it, nobody knows how the last writer left")
            return
        problems, data = [""], b""
        for _ in range(_LOOK_COUNT_MAX if self.left is Left.WRITTEN_TO else 1):
            if problems:
                data = read_file(self._io, path, 2 * lock.FILE_SIZE_BYTES)
                problems = lock.verify_lock(data)
        if len(data) > lock.FILE_SIZE_BYTES:
            problems.append(f"it has {len(data)} bytes instead of {lock.FILE_SIZE_BYTES}")
        self._report.file_count += 1
        self._report.size_bytes += len(data)
        for problem in problems:
            self._report.add(path, 0, "damaged", problem)
        if self._state.failed_sync:
            self._report.notes.append(f"{path}: an fsync failed; the next opening scans what the disk gives back")

    def _check_catalogue(self) -> None:
        path, state = self._file("catalogue"), self._state
        data_path = os.path.join(path, "data.mdb")
        if not exists(self._io, data_path):
            self._report.add(data_path, -1, "missing", "the catalogue is lost; logdb repair makes it anew")
            return
        found = file_checksum(self._io, path)
        self._report.file_count += 1
        self._report.size_bytes += found[0]
        if self.left is Left.CLOSED and state.catalogue_size is not None and found != (state.catalogue_size, state.catalogue_crc):
            reason = f"{found[0]} bytes with CRC {found[1]:08x}; closed with {state.catalogue_size} and {state.catalogue_crc or 0:08x}"
            self._report.add(data_path, 0, "damaged", reason)
        self.dump = read_in_child(path, lock=self.left is Left.WRITTEN_TO)
        if self.dump.topics and not state.sequence and state.readable and exists(self._io, self._file("LOCK")):
            self._report.add(self._file("LOCK"), 0, "damaged", "it is empty, but there are topics")
        newer = self.dump.format is not None and self.dump.format > FORMAT
        for problem in self.dump.problems:
            self._report.add(data_path, -1, NEWER_FORMAT if newer else "damaged", problem)

    def _check_security(self) -> None:
        """Users, tokens and ACLs, where there are any: replaced as a whole, so also beside a writer it is all there."""
        path = self._file(security_line.FILE_NAME)
        try:
            data = read_file(self._io, path, security_line.SIZE_BYTES_MAX)
        except FileNotFoundError:
            return
        self._report.file_count += 1
        self._report.size_bytes += len(data)
        try:
            security_line.decode(data, path)
        except UnsupportedFormat as error:
            self._report.add(path, 0, NEWER_FORMAT, str(error))
        except CorruptionError as error:
            self._report.add(path, error.position, "damaged", error.reason)

    # ------------------------------------------------------------ partitions

    def _check_logs(self) -> None:
        sealed = _by_log(self.dump)
        for entry in self.dump.logs:
            topic = self.dump.topics.get(entry.topic)
            if topic is None or self.is_unfinished(entry):
                continue  # said already, or said with the strays
            found = self.check_partition(topic, entry, sealed.get((entry.topic, entry.partition), []))
            if not found.ok and self.left is Left.WRITTEN_TO:
                found = self._look_again(entry)
            self._report.count(found)

    def is_unfinished(self, entry: LogEntry) -> bool:
        """Whether the next opening will put the directory of a new partition in its place."""
        unfinished = any(intent.topic == entry.topic and intent.kind != swap.SWAP for _, intent in self.dump.intents)
        return unfinished and not exists(self._io, self._directory(entry.topic, entry.partition))

    def _directory(self, topic: str, partition: int) -> str:
        return self._file(str(TopicPartition(topic, partition)))

    def check_partition(self, topic: TopicEntry, entry: LogEntry, sealed: Sequence[SegmentEntry], left: Left | None = None) -> Report:
        """Check one partition's directory against what a catalogue says; ``left``: how it was left, if not as the database."""
        directory = self._directory(topic.name, entry.partition)
        pending = self.swaps(topic.name, entry.partition)
        check = PartitionCheck(
            self._io,
            directory,
            topic,
            entry,
            sealed,
            left=left or self.left,
            cache_trusted=self.cache_trusted,
            tell=self.tell,
            swap=swap.of(pending[0]) if pending else None,
        )
        return check.run()

    def swaps(self, topic: str, partition: int) -> list[Intent]:
        """SegmentReplacer of segments that were committed and not finished."""
        return [intent for _, intent in self.dump.intents if swap.concerns(intent, topic, partition)]

    def _look_again(self, entry: LogEntry) -> Report:
        """Check a log by what the catalogue says now, until that holds still; nothing is wrong with one that is gone."""
        where, found, looks = (entry.topic, entry.partition), Report(), 0
        for _ in range(_MOVING_LOOK_COUNT_MAX):
            self.dump = read_in_child(self._file("catalogue"), lock=True)
            now = next((log for log in self.dump.logs if (log.topic, log.partition) == where), None)
            if now is None or entry.topic not in self.dump.topics:
                return Report()
            found = self.check_partition(self.dump.topics[entry.topic], now, _by_log(self.dump).get(where, []))
            looks += now.generation == entry.generation  # else its segments were replaced while they were looked at
            if found.ok or looks == _LOOK_COUNT_MAX:
                break
            entry = now
        return found

    def _check_strays(self) -> None:
        """What lies in the directory that the catalogue does not name."""
        known = {f"{log.topic}-{log.partition}" for log in self.dump.logs} | {"LOCK", "catalogue", "views", snapshot_file.FILE_NAME}
        known |= {security_line.FILE_NAME, security_line.LOCK_NAME}
        unfinished = {intent.topic for _, intent in self.dump.intents}
        for name in sorted(set(listed(self._io, self._path)) - known):
            path = self._file(name)
            if name.endswith(UNFINISHED):
                self._report.notes.append(f"{path}: unfinished work, which the next opening finishes or removes")
            elif name.startswith("catalogue.damaged-"):
                self._report.notes.append(f"{path}: set aside by a repair")
            elif not self._holds_partition(name):
                self._report.notes.append(f"{path}: no part of the database")
            elif name.rpartition("-")[0] not in unfinished and not self._came_or_went(name):
                self._check_unknown(path)

    def _came_or_went(self, name: str) -> bool:
        """Beside a writer: whether a topic was created or deleted since the catalogue was read."""
        if self.left is not Left.WRITTEN_TO:
            return False
        dump = read_in_child(self._file("catalogue"), lock=True)
        return any(name == f"{log.topic}-{log.partition}" for log in dump.logs) or not self._holds_partition(name)

    def _check_unknown(self, path: str) -> None:
        """A partition that the catalogue does not name: by what its own files say."""
        self._report.add(path, -1, "unknown", "a partition that the catalogue does not name")
        try:
            file = topic_file.load(self._io, path)
        except UnsupportedFormat as error:
            self._report.add(os.path.join(path, topic_file.FILE_NAME), 0, NEWER_FORMAT, str(error))
            return
        except CorruptionError as error:
            self._report.add(error.path, error.position, "damaged", error.reason)
            return
        topic = TopicEntry(file.topic, file.topic_id, file.partition_count, file.config)
        entry = LogEntry(file.topic, file.partition, start_offset=file.start_offset)
        if os.path.basename(path) == f"{file.topic}-{file.partition}":
            self._report.count(self.check_partition(topic, entry, [], Left.CRASHED))


def _by_log(dump: CatalogueDump) -> dict[tuple[str, int], list[SegmentEntry]]:
    found: dict[tuple[str, int], list[SegmentEntry]] = {}
    for segment in dump.segments:
        found.setdefault((segment.topic, segment.partition), []).append(segment)
    return found
