"""A database frozen at one moment: what its partitions are, and files that no longer change.

Knows how all partitions are captured at once, which files of a partition never change (sealed segments and
their indexes), and what its directory has after a clean close.  Does not know what a database is frozen for: a
snapshot, or a backup.

    sealed segment      linked: it is never changed in place, and a link outlives its removal
    active segment      linked as ``<base>.log.live``: it goes on growing, and counts up to the captured end only
    sidecars            left out: whoever needs them has them made of a copy
    everything else     written anew from what was captured
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from logdb.codec import Status, explain
from logdb.disk import File, changing, copy_file, link_file, sync_directory, write_file
from logdb.errors import CorruptionError, UnknownTopic
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import producer_snapshot, recovery_point
from logdb.log.epochs import LeaderEpochs
from logdb.log.host import Captured
from logdb.log.log import Log
from logdb.log.recovery_point import Point, Slot
from logdb.meta import Catalogue, LogEntry, ReadTransaction, SegmentEntry, TopicEntry, WriteTransaction, file_checksum
from logdb.model import LogConfig, TopicPartition
from logdb.segment import transaction_index
from logdb.segment.segment import Segment, segment_path
from logdb.store import topic_file

ROLL_SIZE_BYTES = 64 << 20  # an active segment over that is rolled, so that it need not be copied
_CAPTURE_ORDER = {"__consumer_offsets": 0, "__transaction_state": 2}
SEALED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
_LIVE = ".live"

if TYPE_CHECKING:
    from logdb.store.store import Store

Tell = Callable[[str, int], None]
"""Called with a path and how many bytes of it were copied since the last call."""


@dataclass(frozen=True, kw_only=True)
class FrozenLog:
    """One partition as of one moment.

    ``entry``: its recovery point is the end.  ``origin``: its directory in the database, for messages.  ``directory``: where
    the files of ``sealed`` are.  ``tail_path``: the
    file of the segment that the end lies in, which counts up to the end only; None for a log without segments.
    ``tail_aborted``: that segment's ``.txnindex``.  ``producers``: the ``.snapshot`` of producers at the end; None where
    there never were any.  Both are empty where the files are there already.
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

    @property
    def name(self) -> str:
        """Of its directory in a database."""
        return str(TopicPartition(self.topic.name, self.entry.partition))

    @property
    def end(self) -> Point:
        return Point(self.entry.recovery_segment, self.entry.recovery_offset, self.entry.recovery_position)

    @property
    def size_bytes(self) -> int:
        """Of its records."""
        return sum(segment.size_bytes for segment in self.sealed) + (self.end.position if self.tail_path else 0)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """All of a database as of one moment.

    ``next_producer_id``: nobody has been given that one yet, nor a larger one.
    """

    database_id: str
    next_producer_id: int
    logs: Sequence[FrozenLog]

    @property
    def size_bytes(self) -> int:
        """Of all records."""
        return sum(log.size_bytes for log in self.logs)


# ---------------------------------------------------------------- where everything ends


@contextlib.contextmanager
def freeze(store: "Store") -> Iterator[Frozen]:
    """The database as of one moment: no transaction's marker lies between the ends of two partitions.

    While it lasts no file is removed or replaced.  Appends go on, and what they add lies behind the ends.

    Raises:
        CorruptionError: A partition is read-only because it is damaged.
        DiskFull, WriteFailed, SyncFailed: What was rolled could not be sealed.
        ReadOnly: With mode "r": the directory is written to, or was not closed cleanly.
    """
    if store.mode == "r":
        store.check_unchanging()
        yield _frozen(store, _capture(store))
        return
    store.check_open(writable=True)
    store.settle()  # else a transaction would be whole in one partition, and open for good in another
    logs = _logs(store)
    for log in logs:
        if log.catch_up().written_position > ROLL_SIZE_BYTES:
            log.roll()
    store.checkpoint([log for log in logs if log.take_sealing()])  # what takes long, before others have to wait
    with store.still(lambda: _capture(store)) as captured:
        yield _frozen(store, captured)


def _logs(store: "Store") -> list[Log]:
    """Every log, in the order in which their ends are to be captured.

    Committed offsets come first, so that none lies behind the end of what it speaks of; the states of
    transactions come last, so that there is one for every transaction that has written something.
    """
    topics, logs = sorted(store.catalogue.topics().values(), key=lambda topic: (_CAPTURE_ORDER.get(topic.name, 1), topic.name)), []
    for topic in topics:
        with contextlib.suppress(UnknownTopic):  # deleted meanwhile
            logs += [store.log(topic.name, partition) for partition in range(topic.partition_count)]
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
        last = -1 if state.view.active is None else state.view.active.base_offset  # it may have been rolled and sealed since
        known = tuple(segment._replace(sidecar=None) for segment in segments if segment.base_offset < last)
        frozen.append(_freeze(topics[log.topic], entries[log.topic, log.partition], log.directory, state, known))
    return Frozen(database_id=store.database_id, next_producer_id=next_producer_id, logs=frozen)


def _freeze(topic: TopicEntry, entry: LogEntry, directory: str, state: Captured, sealed: tuple[SegmentEntry, ...]) -> FrozenLog:
    """One log as it was captured; ``sealed`` are the segments that lie before the one it ends in."""
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
    )


# ---------------------------------------------------------------- holding the files


def hold(io: IO, log: FrozenLog, directory: str) -> FrozenLog:
    """Link the files of ``log`` into the new directory ``directory``, or copy them where they cannot be linked.

    Raises:
        CorruptionError: A file is missing.
        DiskFull, WriteFailed, SyncFailed: as they say.
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
    """Make the directory that the files of ``log`` are to be in; returns the names of those that there are."""
    with changing(directory):
        io.mkdir(directory)
        return set(io.listdir(log.directory))


def _suffixes(segment: SegmentEntry, names: set[str]) -> list[str]:
    """Of the files of a sealed segment; it has to have a log, though it may not be there."""
    return [suffix for suffix in SEALED_SUFFIXES if suffix == ".log" or segment_path("", segment.base_offset, suffix) in names]


def _link_or_copy(io: IO, source: str, target: str, size_bytes: int | None = None) -> bool:
    """Whether it was linked; else it was copied."""
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
    """Make ``directory``, with a copy of all that a partition has; sealed segments are held against their CRC.

    Raises:
        CorruptionError: A file is damaged, or missing.
        DiskFull, WriteFailed, SyncFailed: as they say.
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
    """Write into ``directory``, which has the sealed segments, all that a partition has besides; all of it is synced.

    Raises:
        CorruptionError: A batch of the active segment is damaged.
        DiskFull, WriteFailed, SyncFailed: as they say.
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
    topic_file.create(io, directory, topic_file.describe(log.topic, log.entry.partition, log.entry.start_offset))
    sync_directory(io, directory)


def index_sealed(io: IO, directory: str, named: SegmentEntry, config: LogConfig) -> None:
    """Write the indexes of a sealed segment, after walking its batches; raises CorruptionError where those are damaged."""
    segment = Segment(io, directory, named.base_offset, writable=False, index_interval_bytes=config.index_interval_bytes)
    try:
        segment.size_bytes = named.size_bytes
        index, time_index = segment.rebuild_indexes()
    finally:
        segment.retire()
    write_file(io, segment_path(directory, named.base_offset, ".index"), index)
    write_file(io, segment_path(directory, named.base_offset, ".timeindex"), time_index)


def check_tail(io: IO, log: FrozenLog, path: str) -> Segment:
    """Check every batch of an active segment, whose file is at ``path``, up to the end; the segment has its indexes in memory.

    Raises:
        CorruptionError: A batch is damaged, or they do not lead to the end.
    """
    end, config = log.end, LogConfig.of(log.topic.config, "interval")
    segment = Segment(io, os.path.dirname(path), end.segment, writable=False, index_interval_bytes=config.index_interval_bytes)
    segment.path = path  # it may have another name
    segment.begin_at(0, end.segment)
    scanner = segment.scanner
    assert scanner is not None
    scanner.require(check_crc=True, epochs=log.epochs.entries or None)
    status = segment.scan_to(scanner, end.position)
    if (scanner.position, scanner.next_offset) != (end.position, end.offset):
        reason = explain(status, scanner) if status is not Status.OK else f"offset {scanner.next_offset} instead of {end.offset} follows"
        raise CorruptionError(segment_path(log.origin, end.segment), scanner.position, reason)
    segment.adopt(scanner)
    return segment


def write_catalogue(io: IO, path: str, frozen: Frozen) -> tuple[int, int]:
    """Make the catalogue of the database in ``path``, synced, without LMDB's lock file; returns size and CRC of its file."""
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
