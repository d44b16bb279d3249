"""``repair``: makes a damaged database whole again, and loses nothing that is good.

Knows what to do about what ``verify`` finds.  Needs the directory for itself.

    catalogue lost or damaged    made anew from what of it can be read, the directories and ``topic.json``;
                                 the old one stays as ``catalogue.damaged-<n>``
    damage in a segment          ``mend``: headers put right, the rest set aside, its offsets taken by an empty batch
    a segment is missing         an empty batch in its place
    other files                  made anew from what is left

The order of the steps, so that being killed between any two of them leaves a database that the
next repair makes whole: a damaged catalogue is replaced first; ``LOCK`` then says that a writer is in
there; segments are replaced one by one, their damaged bytes saved before; then the small files; then the
catalogue learns the result; and only where the last writer had closed cleanly does ``LOCK`` say so
again.  Otherwise the next opening recovers, as it would have without a repair.
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
from logdb.store import lock, topic_file
from logdb.store import replacement_intent as swap
from logdb.store.check.inventory import Inventory, take_inventory
from logdb.store.check.partition_check import Left
from logdb.store.check.partition_repair import PartitionRepair
from logdb.store.check.report import Progress, Report
from logdb.store.check.segment_walk import listed
from logdb.store.check.verify import Verifier, database_names
from logdb.store.copy import snapshot_file

Plans = dict[TopicPartition, PartitionRepair]
Renewed = dict[TopicPartition, tuple[LogEntry, list[SegmentEntry]]]


def repair(path: str | os.PathLike[str], *, execute: bool = False, io: IO | None = None, progress: Progress | None = None) -> Report:
    """Find out what is wrong with a database, and put it right.

    Args:
        path: The database's directory; nobody may be writing to it.
        execute: Do it.  Otherwise nothing is changed, and the report says what would be done.
        io: What touches files; for tests.
        progress: Called now and then with bytes done, bytes in all, and what is being looked at.

    Returns:
        ``verify``'s report of what was found, and what was or would be done about it.

    Raises:
        NotADatabase: Nothing of a database is there.
        ReadOnly: It is a snapshot.
        DirectoryLocked: Someone writes to it.
        UnsupportedFormat: A newer logdb wrote it; only that one may repair it.
        DiskFull, WriteFailed, SyncFailed: It could not be finished; run it again.
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
            raise ReadOnly(f"{self._path} is a snapshot and may share its files with a database: restore it, and repair the copy")
        with self._locked() as held:
            if self._execute:
                self._finish_swaps()
            verifier = Verifier(self._path, self._io, self._progress, written_to=False)
            self._report = verifier.run()
            self._report.executed = self._execute
            dump = verifier.dump
            if dump.format is not None and dump.format > FORMAT:
                raise UnsupportedFormat(self._catalogue_path, dump.format, FORMAT)
            lost = any(problem.path.startswith(self._catalogue_path + os.sep) for problem in self._report.problems)
            if lost and not dump.topics:  # an earlier repair may have been killed just before it put the new one in place
                unfinished = read_in_child(self._catalogue_path + ".tmp")
                dump = dump if unfinished.problems else unfinished
            census = take_inventory(self._io, self._path, dump)
            self._report.notes += census.notes
            plans = self._plan(census, verifier, lost=lost)
            if self._execute and self._report.actions and held is not None:
                try:
                    self._carry_out(held, census, plans, dump, lost=lost, closed=verifier.left is Left.CLOSED)
                except OSError as error:
                    raise write_error(str(error.filename or self._path), 0, error) from error
        return self._report

    def _finish_swaps(self) -> None:
        """Give the files of committed swaps their names, which the next opening would do, before anything else is looked at."""
        for _, intent in read_in_child(self._catalogue_path).intents:
            if intent.kind == swap.SWAP:
                directory = os.path.join(self._path, f"{intent.topic}-{intent.body['partition']}")
                with contextlib.suppress(FileNotFoundError, CorruptionError):
                    if topic_file.load(self._io, directory).topic_id == intent.body["topic_id"]:
                        swap.rename(self._io, directory, swap.of(intent))
                        swap.remove(self._io, directory, swap.of(intent))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[lock.LockFile | None]:
        """Hold the directory.  Without ``execute``, a missing ``LOCK`` stays missing: then nobody holds it."""
        if not self._execute and not exists(self._io, self._lock_path):
            yield None
            return
        held = lock.LockFile.acquire(self._io, self._lock_path)
        try:
            yield held
        finally:
            held.release()

    # ------------------------------------------------------------ the plan

    def _plan(self, census: Inventory, verifier: Verifier, *, lost: bool) -> Plans:
        """What is to be done, as actions of the report; and the plans of the partitions that need it."""
        actions, problems = self._report.actions, self._report.problems
        if any(problem.path == self._lock_path for problem in problems):
            actions.append(f"{self._lock_path}: written anew; the next opening recovers")
        if lost:
            aside = f"; the old one is kept as {self._free_name()}" if exists(self._io, self._catalogue_path) else ""
            actions.append(f"{self._catalogue_path}: made anew from what is left of it, the directories and topic.json{aside}")
        actions += census.found
        plans = {}
        for where, known in census.partitions.items():
            if verifier.is_unfinished(known.entry):
                continue
            directory = os.path.join(self._path, str(where))
            bad_paths = {problem.path for problem in problems if problem.path == directory or problem.path.startswith(directory + os.sep)}
            if lost and known.catalogued:  # verify had no catalogue to go by
                bad_paths |= {problem.path for problem in verifier.check_partition(known.topic, known.entry, known.segments).problems}
            if not bad_paths and known.catalogued and not self._has_orphans(directory):
                continue
            if not self._execute and verifier.swaps(*where):
                actions.append(
                    f"{directory}: a swap of compacted segments is finished first; only then what else is to be done can be told"
                )
                continue
            plan = PartitionRepair(
                self._io,
                directory,
                known,
                closed=verifier.left is Left.CLOSED,
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
        census: Inventory,
        plans: Plans,
        dump: CatalogueDump,
        *,
        lost: bool,
        closed: bool,
    ) -> None:
        if lost:
            self._make_catalogue(census, plans, dump)
        self._cut_lock()
        held.mark_open()
        if lock.verify_lock(read_file(self._io, self._lock_path, lock.FILE_SIZE_BYTES)):
            held.mark_open()  # both slots were damaged
        renewed = {where: plan.execute() for where, plan in plans.items()}
        with Catalogue.open(self._catalogue_path, create=False, io=self._io) as catalogue:
            catalogue.write(lambda txn: _put_renewed(txn, census, renewed))
        if closed:
            held.mark_clean(*file_checksum(self._io, self._catalogue_path))

    def _cut_lock(self) -> None:
        """Nothing follows the two slots."""
        with File(self._io, self._lock_path, os.O_RDWR) as file:
            if file.size_bytes() > lock.FILE_SIZE_BYTES:
                file.truncate(lock.FILE_SIZE_BYTES)
                file.sync()

    def _make_catalogue(self, census: Inventory, plans: Plans, dump: CatalogueDump) -> None:
        """Make a catalogue beside the damaged one, of what is known so far, and put it in its place."""
        temporary = self._catalogue_path + ".tmp"
        if exists(self._io, temporary):
            for name in self._io.listdir(temporary):
                self._io.unlink(os.path.join(temporary, name))
            self._io.rmdir(temporary)
        with Catalogue.open(temporary, create=True, io=self._io) as catalogue:
            catalogue.write(lambda txn: _put_census(txn, census, plans, dump.database_id or catalogue.database_id, dump.next_producer_id))
        if exists(self._io, self._catalogue_path):
            self._io.rename(self._catalogue_path, self._free_name())
        self._io.rename(temporary, self._catalogue_path)
        sync_directory(self._io, self._path)


def _put_census(txn: WriteTransaction, census: Inventory, plans: Plans, database_id: str, next_producer_id: int) -> None:
    txn.put_format(database_id)
    txn.put_next_producer_id(next_producer_id)
    for topic in census.topics.values():
        txn.put_topic(topic)
    for where, partition in census.partitions.items():
        txn.put_log(partition.entry if partition.catalogued else plans[where].provisional_entry())
        for segment in partition.segments:
            txn.put_segment(segment)
    for _, intent in census.intents:
        txn.add_intent(intent)


def _put_renewed(txn: WriteTransaction, census: Inventory, renewed: Renewed) -> None:
    for topic in census.topics.values():
        txn.put_topic(topic)
    for where, (entry, segments) in renewed.items():
        for segment in txn.segments(*where):
            txn.delete_segment(*where, segment.base_offset)
        txn.put_log(entry)
        for segment in segments:
            txn.put_segment(segment)
