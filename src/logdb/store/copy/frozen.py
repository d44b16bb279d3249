"""A database frozen at one moment: the state of its partitions, and files that no longer change.

The base of snapshots and backups: captures all partitions at once, links the files, and writes directories as after a clean close.

    sealed segment      linked: it never changes, and a link outlives its removal
    active segment      linked as ``<base>.log.live``: it still grows, and counts up to the captured end only
    sidecars            left out: the copy can build them again
    everything else     written from the captured state
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from logdb.codec import Status, explain
from logdb.disk import File, changing, copy_file, link_file, sync_directory, write_file
from logdb.errors import CorruptionError, UnknownTopic
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import high_watermark, producer_snapshot, recovery_point
from logdb.log.epochs import LeaderEpochs
from logdb.log.host import Captured
from logdb.log.log import Log
from logdb.log.recovery_point import Point, Slot
from logdb.meta import Catalogue, LogEntry, ReadTransaction, SegmentEntry, TopicEntry, WriteTransaction, file_checksum
from logdb.model import OFFSET_MAX, LogConfig, TopicPartition
from logdb.segment import transaction_index
from logdb.segment.segment import Segment, segment_path
from logdb.store import topic_file

ROLL_SIZE_BYTES = 64 << 20  # a larger active segment is rolled, so that it need not be copied
_CAPTURE_ORDER = {"__consumer_offsets": 0, "__transaction_state": 2}
SEALED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
_LIVE = ".live"

if TYPE_CHECKING:
    from logdb.store.store import Store

Tell = Callable[[str, int], None]
"""Called with a path and the number of its bytes copied since the last call."""


@dataclass(frozen=True, kw_only=True)
class FrozenLog:
    """One partition at one moment.

    ``entry``: its recovery point is the end.  ``origin``: the partition's directory in the database, for messages.  ``directory``:
    where the files of ``sealed`` are.  ``tail_path``: the file of the segment with the end, which counts up to the end only; None
    for a log without segments.  ``tail_aborted``: that segment's ``.txnindex``.  ``producers``: the producer ``.snapshot`` at the
    end; None where the log never had producers.  Both are empty if ``directory`` has the files already.  ``high_watermark``: of a
    replica; OFFSET_MAX: it is none.  ``held``: open files, and contents, that are read instead of what their paths name now.
    """

    topic: TopicEntry
    entry: LogEntry
    epochs: LeaderEpochs
    sealed: tuple[SegmentEntry, ...]
    origin: str
    directory: str
    tail_path: str | None
    tail_aborted: bytes = b""
    producers: bytes | None = None
    high_watermark: int = OFFSET_MAX
    held: Mapping[str, File | bytes] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its directory in a database."""
        return str(TopicPartition(self.topic.name, self.entry.partition))

    @property
    def end(self) -> Point:
        return Point(self.entry.recovery_segment, self.entry.recovery_offset, self.entry.recovery_position)

    @property
    def size_bytes(self) -> int:
        """The size of its records."""
        return sum(segment.size_bytes for segment in self.sealed) + (self.end.position if self.tail_path else 0)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A whole database at one moment.

    ``next_producer_id``: this producer id and larger ones are not given out yet.
    """

    database_id: str
    next_producer_id: int
    logs: Sequence[FrozenLog]

    @property
    def size_bytes(self) -> int:
        """The size of all records."""
        return sum(log.size_bytes for log in self.logs)


# ---------------------------------------------------------------- where everything ends


@contextlib.contextmanager
def freeze(store: "Store") -> Iterator[Frozen]:
    """The database at one moment: no transaction's marker lies between the ends of two partitions.

    Until the block ends no file is removed or replaced.  Appends continue, behind the captured ends.

    Raises:
        CorruptionError: A partition is read-only because it is damaged.
        DiskFull, WriteFailed, SyncFailed: A rolled segment could not be sealed.
        ReadOnly: With mode "r": a process writes to the directory, has done so meanwhile, or the last one did not close it cleanly.
    """
    if store.mode == "r":
        sequence = store.check_unchanging()
        yield _frozen(store, _capture(store))
        store.check_unchanging(sequence)  # otherwise a writer that came meanwhile may have replaced files
        return
    store.check_writable()
    while True:
        store.complete_transactions()  # otherwise a transaction could be complete in one partition and open forever in another
        logs = _logs(store)
        for log in logs:
            if log.catch_up().written_position > ROLL_SIZE_BYTES:
                log.roll()
        store.checkpoint([log for log in logs if log.take_sealing()])  # the slow part, before appends have to wait
        with store.still(lambda: None if store.has_partial_markers() else _capture(store)) as captured:
            if captured is not None:
                yield _frozen(store, captured)
                return


def _logs(store: "Store") -> list[Log]:
    """Every log, in the order in which their ends are captured.

    Committed offsets come first, so that none lies behind the captured end of its partition; transaction states come last, so that
    there is one for every transaction with captured records.
    """
    topics, logs = sorted(store.catalogue.topics().values(), key=lambda topic: (_CAPTURE_ORDER.get(topic.name, 1), topic.name)), []
    for topic in topics:
        with contextlib.suppress(UnknownTopic):  # deleted meanwhile
            logs += [store.open_log(topic.name, partition) for partition in range(topic.partition_count)]
    return logs


def _capture(store: "Store") -> list[tuple[Log, Captured]]:
    return [(log, log.capture()) for log in _logs(store)]


def _frozen(store: "Store", captured: Sequence[tuple[Log, Captured]]) -> Frozen:
    def read(txn: ReadTransaction) -> tuple[dict[str, TopicEntry], list[LogEntry], list[list[SegmentEntry]], int]:
        return txn.topics(), txn.logs(), [txn.segments(log.topic, log.partition) for log, _ in captured], txn.next_producer_id()

    topics, logs, sealed, next_producer_id = store.catalogue.read(read)
    entries = {(entry.topic, entry.partition): entry for entry in logs}
    frozen = []
    for (log, state), segments in zip(captured, sealed, strict=True):
        if log.read_only_reason is not None:
            raise CorruptionError(log.directory, 0, f"the partition is damaged ({log.read_only_reason}); run logdb repair first")
        last = -1 if state.view.active is None else state.view.active.base_offset  # it may have been rolled and sealed meanwhile
        known = tuple(segment._replace(sidecar=None) for segment in segments if segment.base_offset < last)
        frozen.append(freeze_log(topics[log.topic], entries[log.topic, log.partition], log.directory, state, known))
    return Frozen(database_id=store.database_id, next_producer_id=next_producer_id, logs=frozen)


def freeze_log(topic: TopicEntry, entry: LogEntry, directory: str, state: Captured, sealed: tuple[SegmentEntry, ...]) -> FrozenLog:
    """One captured log; ``sealed`` are the segments before the one with its end."""
    view, segment, epochs = state.view, state.view.active, state.view.epochs
    producers = None if segment is None else state.producers
    aborted = {} if segment is None else {segment.base_offset: transaction_index.summary(state.aborted)}
    point = Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position)
    if segment is not None:
        point = Point(segment.base_offset, view.written_offset, view.written_position)
    return FrozenLog(
        topic=topic,
        entry=entry._replace(
            recovery_segment=point.segment,
            recovery_offset=point.offset,
            recovery_position=point.position,
            strict=False,
            leader_epoch=epochs.latest,
            producers_offset=-1 if producers is None else point.offset,
            segment_created_ms=0 if segment is None else segment.created_ms,
            segment_append_ms=0 if segment is None else segment.append_ms,
        ),
        epochs=epochs,
        sealed=sealed,
        origin=directory,
        directory=directory,
        tail_path=None if segment is None else segment.path,
        tail_aborted=state.aborted,
        producers=None if producers is None else producer_snapshot.encode(producers, aborted),
        high_watermark=view.high_watermark,
    )


# ---------------------------------------------------------------- holding the files


def hold(io: IO, log: FrozenLog, directory: str) -> FrozenLog:
    """Link the files of ``log`` into the new directory ``directory``, or copy them where they cannot be linked.

    Raises:
        CorruptionError: A file is missing.
        DiskFull, WriteFailed, SyncFailed: see ``logdb.errors``.
    """
    names = _make_beside(io, log, directory)
    for segment in log.sealed:
        for suffix in _suffixes(segment, names):
            source, target = (segment_path(where, segment.base_offset, suffix) for where in (log.directory, directory))
            linked = _link_or_copy(io, source, target)
            if suffix == ".log" and not linked:
                _check_sealed(io, log, segment, directory)
    tail_path = None
    if log.tail_path is not None:
        tail_path = segment_path(directory, log.end.segment, ".log" + _LIVE)
        _link_or_copy(io, log.tail_path, tail_path, log.end.position)
    return replace(log, directory=directory, tail_path=tail_path)


def _make_beside(io: IO, log: FrozenLog, directory: str) -> set[str]:
    """Make the directory for the files of ``log``; returns the names in its present one."""
    with changing(directory):
        io.mkdir(directory)
        return set(io.listdir(log.directory))


def _suffixes(segment: SegmentEntry, names: set[str]) -> list[str]:
    """The suffixes of a sealed segment's files; ``.log`` even if it is missing."""
    return [suffix for suffix in SEALED_SUFFIXES if suffix == ".log" or segment_path("", segment.base_offset, suffix) in names]


def _link_or_copy(io: IO, source: str, target: str, size_bytes: int | None = None) -> bool:
    """Whether the file was linked; otherwise it was copied."""
    try:
        linked = link_file(io, source, target)
    except FileNotFoundError:
        raise CorruptionError(source, 0, "the file is missing") from None
    if not linked:
        _copy_whole(io, source, target, size_bytes)
    return linked


def _size(io: IO, path: str) -> int:
    with File(io, path, os.O_RDONLY) as file:
        return file.size_bytes()


# ---------------------------------------------------------------- a directory as after a clean close


def copy(io: IO, log: FrozenLog, directory: str, tell: Tell) -> None:
    """Make ``directory`` with a copy of the whole partition; the CRC of each sealed segment is checked.

    Raises:
        CorruptionError: A file is damaged, or missing.
        DiskFull, WriteFailed, SyncFailed: see ``logdb.errors``.
    """
    names = _make_beside(io, log, directory)
    for segment in log.sealed:
        for suffix in _suffixes(segment, names):
            source, target = (segment_path(where, segment.base_offset, suffix) for where in (log.directory, directory))
            _copy_whole(io, source, target, segment.size_bytes if suffix == ".log" else None, partial(tell, target))
        _check_sealed(io, log, segment, directory)
    complete(io, log, directory, tell)


def _copy_whole(io: IO, source: str, target: str, size_bytes: int | None, tell: Callable[[int], None] | None = None) -> None:
    try:
        copy_file(io, source, target, _size(io, source) if size_bytes is None else size_bytes, tell)
    except FileNotFoundError:
        raise CorruptionError(source, 0, "the file is missing") from None


def _check_sealed(io: IO, log: FrozenLog, named: SegmentEntry, directory: str) -> None:
    segment = Segment(io, directory, named.base_offset, writable=False)
    segment.size_bytes = named.size_bytes
    crc = segment.checksum()
    segment.retire()
    if crc != named.crc:
        path = segment_path(log.origin, named.base_offset)
        raise CorruptionError(path, 0, f"the CRC of the file is {crc:08x}, it was sealed with {named.crc:08x}")


def complete(io: IO, log: FrozenLog, directory: str, tell: Tell) -> None:
    """Write the rest of a partition into ``directory``, which has the sealed segments; all of it is synced.

    Raises:
        CorruptionError: A batch of the active segment is damaged.
        DiskFull, WriteFailed, SyncFailed: see ``logdb.errors``.
    """
    end = log.end
    if log.tail_path is not None:
        path = segment_path(directory, end.segment)
        if log.tail_path != path:
            copy_file(io, log.tail_path, path, end.position, partial(tell, path))
        segment = check_tail(io, log, path)
        segment.save_indexes(final=True)
        segment.retire()
        if os.path.dirname(log.tail_path) == directory and log.tail_path != path:
            with changing(log.tail_path):
                io.unlink(log.tail_path)
    if log.tail_aborted:
        write_file(io, segment_path(directory, end.segment, ".txnindex"), log.tail_aborted)
    if log.producers:
        write_file(io, producer_snapshot.snapshot_path(directory, end.offset), log.producers)
    if log.epochs.entries:
        write_file(io, os.path.join(directory, epochs_file.FILE_NAME), epochs_file.encode(log.epochs))
    if end.offset:
        slots = bytes(recovery_point.SLOT_SIZE) + recovery_point.encode(Slot(1, end))
        write_file(io, os.path.join(directory, recovery_point.FILE_NAME), slots)
    if log.high_watermark < OFFSET_MAX:
        write_file(io, os.path.join(directory, high_watermark.FILE_NAME), high_watermark.encode(log.high_watermark))
    topic_file.create(io, directory, topic_file.describe(log.topic, log.entry.partition, log.entry.start_offset))
    sync_directory(io, directory)


def index_sealed(io: IO, directory: str, named: SegmentEntry, config: LogConfig) -> None:
    """Walk a sealed segment and write its indexes; raises CorruptionError where a batch is damaged."""
    segment = Segment(io, directory, named.base_offset, writable=False, index_interval_bytes=config.index_interval_bytes)
    try:
        segment.size_bytes = named.size_bytes
        index, time_index = segment.rebuild_indexes()
    finally:
        segment.retire()
    write_file(io, segment_path(directory, named.base_offset, ".index"), index)
    write_file(io, segment_path(directory, named.base_offset, ".timeindex"), time_index)


def check_tail(io: IO, log: FrozenLog, path: str) -> Segment:
    """Check every batch of the active segment in the file ``path``, up to the end; the segment returned has its indexes in memory.

    Raises:
        CorruptionError: A batch is damaged, or the batches do not end at the captured end.
    """
    end, config = log.end, LogConfig.of(log.topic.config, "interval")
    segment = Segment(io, os.path.dirname(path), end.segment, writable=False, index_interval_bytes=config.index_interval_bytes)
    segment.path = path  # the file may have another name
    if isinstance(opened := log.held.get(path), File):
        segment.file = opened
    segment.begin_at(0, end.segment)
    scanner = segment.scanner
    assert scanner is not None
    scanner.require(check_crc=True, epochs=log.epochs.entries or None)
    status = segment.scan_to(scanner, end.position)
    if (scanner.position, scanner.next_offset) != (end.position, end.offset):
        found = f"the batches end at offset {scanner.next_offset} instead of {end.offset}"
        reason = found if status is Status.OK else explain(status, scanner)
        raise CorruptionError(segment_path(log.origin, end.segment), scanner.position, reason)
    segment.adopt(scanner)
    return segment


def write_catalogue(io: IO, path: str, frozen: Frozen) -> tuple[int, int]:
    """Write the catalogue of the database in ``path``, synced, without LMDB's lock file; returns size and CRC of its file."""
    topics = {log.topic.name: log.topic for log in frozen.logs}

    def fill(txn: WriteTransaction) -> None:
        txn.put_format(frozen.database_id)
        txn.put_next_producer_id(frozen.next_producer_id)
        for topic in topics.values():
            txn.put_topic(topic)
        for log in frozen.logs:
            txn.put_log(log.entry)
            txn.put_segments(log.sealed)

    directory = os.path.join(path, "catalogue")
    with Catalogue.open(directory, create=True, io=io) as catalogue:
        catalogue.write(fill)
    with changing(directory):
        io.unlink(os.path.join(directory, "lock.mdb"))
    sync_directory(io, directory)
    return file_checksum(io, directory)
