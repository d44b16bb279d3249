"""``verify``: checks that every byte of a database is as it was written.

This module checks ``LOCK``, the catalogue, ``security.json``, ``cluster.json`` and the names in the directory;
``partition_check`` checks the partitions.
It changes no file, takes no lock, and continues behind damage, so that one report has all of it.
Beside a writer, a partition that contradicts the catalogue is checked again, because the writer may have changed both meanwhile.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from logdb.disk import File, exists, names_in, read_file
from logdb.errors import CorruptionError, NotADatabase, UnsupportedFormat
from logdb.io import IO
from logdb.meta import Intent, LogEntry, SegmentEntry, TopicEntry, file_checksum
from logdb.meta.dump import CatalogueDump, read_in_child
from logdb.meta.entries import FORMAT
from logdb.model import TopicPartition
from logdb.requests.report import Progress, Report
from logdb.store import cluster_file, json_line, lock, replacement_intent, reserve, topic_file
from logdb.store.check.partition_check import NEWER_FORMAT, DirectoryState, PartitionCheck
from logdb.store.check.segment_walk import listed
from logdb.store.copy import snapshot_file
from logdb.store.directories import UNFINISHED
from logdb.store.lock import LockState

_LOOK_COUNT_MAX = 5  # checks of a file that a writer may be changing
_MOVING_LOOK_COUNT_MAX = 50  # checks of a log whose entry the writer changed between two of them


def verify(path: str | os.PathLike[str], *, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Check every byte of every file of a database; changes no file.

    Works on a closed database, on one left by a crash, and beside a process that writes to it.

    Args:
        path: The database's directory.
        io: What touches files; for tests.
        progress: Called now and then with the bytes done, the bytes in all, and the path of the file at hand.

    Returns:
        How much was checked, and the problems; ``report.ok`` without a problem.

    Raises:
        NotADatabase: The directory holds no database.
    """
    return Verifier(os.path.abspath(path), io or IO(), progress).run()


def database_names(io: IO, path: str) -> list[str]:
    """The names in the directory ``path``; raises NotADatabase if none of them is a database's."""
    try:
        names = names_in(io, path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotADatabase(f"{path} is no directory") from None
    if not any(name in ("LOCK", "catalogue") or exists(io, os.path.join(path, name, topic_file.FILE_NAME)) for name in names):
        raise NotADatabase(f"{path} holds no logdb database")
    return names


class Verifier:
    """One verification of one directory.

    ``dump``: the catalogue's readable entries.  ``directory_state``: how the last writer left the directory.
    ``cache_trusted``: no sync of that writer failed.
    """

    def __init__(self, path: str, io: IO, progress: Progress | None, *, has_writer: bool | None = None) -> None:
        """``has_writer``: whether a process has it open for writing; None: find out."""
        self._path, self._io, self._progress = path, io, progress
        self._names = database_names(io, path)
        self._report = Report()
        self._done_bytes = self._total_bytes = 0
        self._state = lock.read_state(io, self._file("LOCK"))
        if self._is_snapshot():
            self._state, has_writer = self._snapshot_state(), False
        if has_writer is None:
            has_writer = lock.writer_alive(io, self._file("LOCK"))
        if has_writer is None:  # the system cannot tell
            has_writer = self._state.is_open
        self.directory_state = (
            DirectoryState.HAS_WRITER if has_writer else DirectoryState.CLOSED if self._state.clean else DirectoryState.CRASHED
        )
        self.cache_trusted = not self._state.failed_sync
        self.dump = CatalogueDump()

    def run(self) -> Report:
        self._check_lock()
        self._check_catalogue()
        if self.dump.format is None or self.dump.format <= FORMAT:
            self._total_bytes = sum(self._size(path) for path in self._large_files())
            self._check_logs()
            self._check_strays()
        self._check_small(json_line.SECURITY_FILE_NAME, json_line.SECURITY_SIZE_BYTES_MAX, json_line.check_security)
        self._check_small(cluster_file.FILE_NAME, cluster_file.SIZE_BYTES_MAX, cluster_file.decode)
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
        """``size_bytes`` more bytes of ``path`` were checked."""
        self._done_bytes += size_bytes
        if self._progress is not None:
            self._progress(min(self._done_bytes, self._total_bytes), self._total_bytes, os.path.relpath(path, self._path))

    # ------------------------------------------------------------ LOCK and catalogue

    def _is_snapshot(self) -> bool:
        return snapshot_file.FILE_NAME in self._names

    def _snapshot_state(self) -> LockState:
        """The content of the file ``SNAPSHOT``, as the ``LOCK`` state of a closed database."""
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
            self._report.add(path, -1, "missing", "without it, the state in which the last writer left the database is unknown")
            return
        problems, data = [""], b""
        for _ in range(_LOOK_COUNT_MAX if self.directory_state is DirectoryState.HAS_WRITER else 1):
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
            self._report.notes.append(f"{path}: an fsync failed; the next opening rereads the logs from the disk")

    def _check_catalogue(self) -> None:
        path, state = self._file("catalogue"), self._state
        data_path = os.path.join(path, "data.mdb")
        if not exists(self._io, data_path):
            self._report.add(data_path, -1, "missing", "the catalogue is lost; logdb repair rebuilds it")
            return
        found = file_checksum(self._io, path)
        self._report.file_count += 1
        self._report.size_bytes += found[0]
        if (
            self.directory_state is DirectoryState.CLOSED
            and state.catalogue_size is not None
            and found != (state.catalogue_size, state.catalogue_crc)
        ):
            reason = f"{found[0]} bytes with CRC {found[1]:08x}; closed with {state.catalogue_size} and {state.catalogue_crc or 0:08x}"
            self._report.add(data_path, 0, "damaged", reason)
        self.dump = read_in_child(path, lock=self.directory_state is DirectoryState.HAS_WRITER)
        if self.dump.topics and not state.sequence and state.readable and exists(self._io, self._file("LOCK")):
            self._report.add(self._file("LOCK"), 0, "damaged", "it is empty, but there are topics")
        newer = self.dump.format is not None and self.dump.format > FORMAT
        for problem in self.dump.problems:
            self._report.add(data_path, -1, NEWER_FORMAT if newer else "damaged", problem)

    def _check_small(self, name: str, size_bytes_max: int, decode: Callable[[bytes, str], object]) -> None:
        """Check a file of one line, if it is there; it is replaced as a whole, so beside a writer it is whole, too."""
        path = self._file(name)
        try:
            data = read_file(self._io, path, size_bytes_max)
        except FileNotFoundError:
            return
        self._report.file_count += 1
        self._report.size_bytes += len(data)
        try:
            decode(data, path)
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
                continue  # reported with the catalogue, or by ``_check_strays``
            found = self.check_partition(topic, entry, sealed.get((entry.topic, entry.partition), []))
            if not found.ok and self.directory_state is DirectoryState.HAS_WRITER:
                found = self._look_again(entry)
            self._report.count(found)

    def is_unfinished(self, entry: LogEntry) -> bool:
        """Whether the next opening will create the directory of a new partition."""
        unfinished = any(intent.topic == entry.topic and not replacement_intent.replaces(intent) for _, intent in self.dump.intents)
        return unfinished and not exists(self._io, self._directory(entry.topic, entry.partition))

    def _directory(self, topic: str, partition: int) -> str:
        return self._file(str(TopicPartition(topic, partition)))

    def check_partition(
        self, topic: TopicEntry, entry: LogEntry, sealed: Sequence[SegmentEntry], state: DirectoryState | None = None
    ) -> Report:
        """Check one partition's directory against its entries; ``state``: its own, where it differs from the database's."""
        directory = self._directory(topic.name, entry.partition)
        pending = self.pending_replacements(topic.name, entry.partition)
        check = PartitionCheck(
            self._io,
            directory,
            topic,
            entry,
            sealed,
            directory_state=state or self.directory_state,
            cache_trusted=self.cache_trusted,
            tell=self.tell,
            pending=replacement_intent.decode(pending[0]) if pending else None,
        )
        return check.run()

    def pending_replacements(self, topic: str, partition: int) -> list[Intent]:
        """Replacements of the log's segments that are committed and not finished."""
        return [intent for _, intent in self.dump.intents if replacement_intent.concerns(intent, topic, partition)]

    def _look_again(self, entry: LogEntry) -> Report:
        """Check a log again against the newest catalogue, until its entry stays the same; a log deleted meanwhile has no problem.

        Segments that the writer replaces during each check, until the checks end, cannot be told from missing ones: a note says so.
        """
        where, found, looks = (entry.topic, entry.partition), Report(), 0
        for _ in range(_MOVING_LOOK_COUNT_MAX):
            self.dump = read_in_child(self._file("catalogue"), lock=True)
            now = next((log for log in self.dump.logs if (log.topic, log.partition) == where), None)
            if now is None or entry.topic not in self.dump.topics:
                return Report()
            found = self.check_partition(self.dump.topics[entry.topic], now, _by_log(self.dump).get(where, []))
            looks += now.generation == entry.generation  # another generation: its segments were replaced during the check
            if found.ok or looks == _LOOK_COUNT_MAX:
                return found
            entry = now
        moving = Report()
        reason = f"its writer replaced segments during each of {_MOVING_LOOK_COUNT_MAX} checks; try again"
        moving.notes.append(f"{self._directory(*where)}: not checked: {reason}")
        return moving

    def _check_strays(self) -> None:
        """Check names in the directory that the catalogue does not have."""
        known = {f"{log.topic}-{log.partition}" for log in self.dump.logs} | {"LOCK", "catalogue", "views", snapshot_file.FILE_NAME}
        known |= {json_line.SECURITY_FILE_NAME, json_line.SECURITY_LOCK_NAME, cluster_file.FILE_NAME, cluster_file.QUORUM_NAME}
        known.add(reserve.FILE_NAME)
        known.add(cluster_file.BROKER_NAME)
        unfinished = {intent.topic for _, intent in self.dump.intents}
        for name in sorted(set(listed(self._io, self._path)) - known):
            path = self._file(name)
            if name.endswith(UNFINISHED):
                self._report.notes.append(f"{path}: unfinished work; the next opening finishes or removes it")
            elif name.startswith("catalogue.damaged-"):
                self._report.notes.append(f"{path}: set aside by a repair")
            elif not self._holds_partition(name):
                self._report.notes.append(f"{path}: not part of the database")
            elif name.rpartition("-")[0] not in unfinished and not self._came_or_went(name):
                self._check_unknown(path)

    def _came_or_went(self, name: str) -> bool:
        """Beside a writer: whether the topic was created or deleted since the catalogue was read."""
        if self.directory_state is not DirectoryState.HAS_WRITER:
            return False
        dump = read_in_child(self._file("catalogue"), lock=True)
        return any(name == f"{log.topic}-{log.partition}" for log in dump.logs) or not self._holds_partition(name)

    def _check_unknown(self, path: str) -> None:
        """Check a partition that the catalogue does not name, against its own ``topic.json``."""
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
            self._report.count(self.check_partition(topic, entry, [], DirectoryState.CRASHED))


def _by_log(dump: CatalogueDump) -> dict[tuple[str, int], list[SegmentEntry]]:
    found: dict[tuple[str, int], list[SegmentEntry]] = {}
    for segment in dump.segments:
        found.setdefault((segment.topic, segment.partition), []).append(segment)
    return found
