"""``repair``: corrects what ``verify`` finds, and loses no good record.  It holds the directory's lock.

    catalogue lost or damaged    rebuilt from its readable entries, the directories and ``topic.json``;
                                 the old one is kept as ``catalogue.damaged-<n>``
    damage in a segment          ``segment_rewrite``: headers corrected, other bytes set aside, an empty batch takes their offsets
    a segment is missing         an empty batch takes its offsets
    other files                  rebuilt from the log

The order of the steps, so that after a kill between any two of them the next repair reaches the same result:

    a damaged catalogue is replaced -> ``LOCK`` is marked open -> segments are replaced one by one, their damaged bytes
    saved before -> the small files -> the catalogue has the result -> ``LOCK`` is marked clean, if the last writer had
    closed cleanly; otherwise the next opening recovers, as without a repair
"""

import contextlib
import os
from collections.abc import Iterator

from logdb.disk import File, exists, read_file, sync_directory, write_error
from logdb.errors import CorruptionError, ReadOnly, UnsupportedFormat
from logdb.io import IO
from logdb.meta import Catalogue, LogEntry, SegmentEntry, WriteTransaction, file_checksum
from logdb.meta.dump import CatalogueDump, read_in_child
from logdb.meta.entries import FORMAT
from logdb.model import TopicPartition
from logdb.requests.report import Progress, Report
from logdb.store import lock, replacement_intent, topic_file
from logdb.store.check.inventory import Inventory, take_inventory
from logdb.store.check.partition_check import DirectoryState
from logdb.store.check.partition_repair import PartitionRepair
from logdb.store.check.segment_walk import listed
from logdb.store.check.verify import Verifier, database_names
from logdb.store.copy import snapshot_file

Plans = dict[TopicPartition, PartitionRepair]
Renewed = dict[TopicPartition, tuple[LogEntry, list[SegmentEntry]]]


def repair(path: str | os.PathLike[str], *, execute: bool = False, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Check a database and correct what is wrong.

    Args:
        path: The database's directory; no process may be writing to it.
        execute: Carry the actions out.  Otherwise no file is changed, and the report says what would be done.
        io: What touches files; for tests.
        progress: Called now and then with the bytes done, the bytes in all, and the path of the file at hand.

    Returns:
        ``verify``'s report, with the actions that were or would be taken.

    Raises:
        NotADatabase: The directory holds no database.
        ReadOnly: It is a snapshot.
        DirectoryLocked: Another process has the database open for writing.
        UnsupportedFormat: A newer logdb wrote it, and only that version may repair it.
        DiskFull, WriteFailed, SyncFailed: The repair is not finished; run it again.
    """
    return Repairer(os.path.abspath(path), io or IO(), progress, execute=execute).run()


class Repairer:
    """One repair of one directory."""

    def __init__(self, path: str, io: IO, progress: Progress | None, *, execute: bool) -> None:
        self._path, self._io, self._progress, self._execute = path, io, progress, execute
        self._report = Report()
        self._catalogue_path = os.path.join(path, "catalogue")
        self._lock_path = os.path.join(path, "LOCK")

    def run(self) -> Report:
        if snapshot_file.FILE_NAME in database_names(self._io, self._path):
            raise ReadOnly(
                f"{self._path} is a snapshot and may share its files with a database: repair the database, then make another snapshot"
            )
        with self._locked() as held:
            if self._execute:
                self._finish_replacements()
            verifier = Verifier(self._path, self._io, self._progress, has_writer=False)
            self._report = verifier.run()
            self._report.executed = self._execute
            dump = verifier.dump
            if dump.format is not None and dump.format > FORMAT:
                raise UnsupportedFormat(self._catalogue_path, dump.format, FORMAT)
            lost = any(problem.path.startswith(self._catalogue_path + os.sep) for problem in self._report.problems)
            if lost and not dump.topics:  # an earlier repair may have been killed just before it renamed the new one
                unfinished = read_in_child(self._catalogue_path + ".tmp")
                dump = dump if unfinished.problems else unfinished
            inventory = take_inventory(self._io, self._path, dump)
            self._report.notes += inventory.notes
            plans = self._plan(inventory, verifier, lost=lost)
            if self._execute and self._report.actions and held is not None:
                try:
                    self._carry_out(held, inventory, plans, dump, lost=lost, closed=verifier.directory_state is DirectoryState.CLOSED)
                except OSError as error:
                    raise write_error(str(error.filename or self._path), 0, error) from error
        return self._report

    def _finish_replacements(self) -> None:
        """Finish the file renames of committed replacement intents first, as the next opening would."""
        for _, intent in read_in_child(self._catalogue_path).intents:
            if replacement_intent.replaces(intent):
                directory = os.path.join(self._path, f"{intent.topic}-{intent.body['partition']}")
                with contextlib.suppress(FileNotFoundError, CorruptionError):
                    if topic_file.load(self._io, directory).topic_id == intent.body["topic_id"]:
                        replacement_intent.finish(self._io, directory, intent)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[lock.LockFile | None]:
        """Hold the directory's lock.  Without ``execute``, a missing ``LOCK`` stays missing: then no process holds it."""
        if not self._execute and not exists(self._io, self._lock_path):
            yield None
            return
        held = lock.LockFile.acquire(self._io, self._lock_path)
        try:
            yield held
        finally:
            held.release()

    # ------------------------------------------------------------ the plan

    def _plan(self, inventory: Inventory, verifier: Verifier, *, lost: bool) -> Plans:
        """Add the actions to the report; returns the plans of the partitions that need a repair."""
        actions, problems = self._report.actions, self._report.problems
        if any(problem.path == self._lock_path for problem in problems):
            actions.append(f"{self._lock_path}: rewritten; the next opening recovers")
        if lost:
            aside = f"; the old one is kept as {self._free_name()}" if exists(self._io, self._catalogue_path) else ""
            actions.append(f"{self._catalogue_path}: rebuilt from its readable entries, the directories and topic.json{aside}")
        actions += inventory.inferred
        plans = {}
        for where, known in inventory.partitions.items():
            if verifier.is_unfinished(known.entry):
                continue
            directory = os.path.join(self._path, str(where))
            bad_paths = {problem.path for problem in problems if problem.path == directory or problem.path.startswith(directory + os.sep)}
            if lost and known.catalogued:  # without a catalogue verify could not check it
                bad_paths |= {problem.path for problem in verifier.check_partition(known.topic, known.entry, known.segments).problems}
            if not bad_paths and known.catalogued and not self._has_orphans(directory):
                continue
            if not self._execute and verifier.pending_replacements(*where):
                actions.append(
                    f"{directory}: a pending replacement of compacted segments is finished first; further actions are known only then"
                )
                continue
            plan = PartitionRepair(
                self._io,
                directory,
                known,
                closed=verifier.directory_state is DirectoryState.CLOSED,
                cache_trusted=verifier.cache_trusted,
                bad_paths=bad_paths,
                tell=verifier.tell,
            )
            if plan.actions:
                plans[where] = plan
                actions += plan.actions
        return plans

    def _has_orphans(self, directory: str) -> bool:
        return any(name.endswith(".orphan") for name in listed(self._io, directory))

    def _free_name(self) -> str:
        number = 1
        while exists(self._io, f"{self._catalogue_path}.damaged-{number}"):
            number += 1
        return f"{self._catalogue_path}.damaged-{number}"

    # ------------------------------------------------------------ carrying it out

    def _carry_out(
        self,
        held: lock.LockFile,
        inventory: Inventory,
        plans: Plans,
        dump: CatalogueDump,
        *,
        lost: bool,
        closed: bool,
    ) -> None:
        if lost:
            self._make_catalogue(inventory, plans, dump)
        self._cut_lock()
        held.mark_open()
        if lock.verify_lock(read_file(self._io, self._lock_path, lock.FILE_SIZE_BYTES)):
            held.mark_open()  # both slots were damaged
        renewed = {where: plan.execute() for where, plan in plans.items()}
        with Catalogue.open(self._catalogue_path, create=False, io=self._io) as catalogue:
            catalogue.write(lambda txn: _put_renewed(txn, inventory, renewed))
        if closed:
            held.mark_clean(*file_checksum(self._io, self._catalogue_path))

    def _cut_lock(self) -> None:
        """Cut ``LOCK`` behind its two slots."""
        with File(self._io, self._lock_path, os.O_RDWR) as file:
            if file.size_bytes() > lock.FILE_SIZE_BYTES:
                file.truncate(lock.FILE_SIZE_BYTES)
                file.sync()

    def _make_catalogue(self, inventory: Inventory, plans: Plans, dump: CatalogueDump) -> None:
        """Write a new catalogue beside the damaged one, and rename it into place."""
        temporary = self._catalogue_path + ".tmp"
        if exists(self._io, temporary):
            for name in self._io.listdir(temporary):
                self._io.unlink(os.path.join(temporary, name))
            self._io.rmdir(temporary)
        with Catalogue.open(temporary, create=True, io=self._io) as catalogue:
            catalogue.write(
                lambda txn: _put_inventory(txn, inventory, plans, dump.database_id or catalogue.database_id, dump.next_producer_id)
            )
        if exists(self._io, self._catalogue_path):
            self._io.rename(self._catalogue_path, self._free_name())
        self._io.rename(temporary, self._catalogue_path)
        sync_directory(self._io, self._path)


def _put_inventory(txn: WriteTransaction, inventory: Inventory, plans: Plans, database_id: str, next_producer_id: int) -> None:
    txn.put_format(database_id)
    txn.put_next_producer_id(next_producer_id)
    for topic in inventory.topics.values():
        txn.put_topic(topic)
    for where, partition in inventory.partitions.items():
        txn.put_log(partition.entry if partition.catalogued else plans[where].provisional_entry())
        for segment in partition.segments:
            txn.put_segment(segment)
    for _, intent in inventory.intents:
        txn.add_intent(intent)


def _put_renewed(txn: WriteTransaction, inventory: Inventory, renewed: Renewed) -> None:
    for topic in inventory.topics.values():
        txn.put_topic(topic)
    for where, (entry, segments) in renewed.items():
        for segment in txn.segments(*where):
            txn.delete_segment(*where, segment.base_offset)
        txn.put_log(entry)
        for segment in segments:
            txn.put_segment(segment)
