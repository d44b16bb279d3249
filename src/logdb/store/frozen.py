"""A database frozen at one moment: what its partitions are, and files that no longer change.

Knows which files of a partition never change (sealed segments and their indexes) and what a partition's directory
has after a clean close.  Does not know what it is frozen for: a snapshot, or a backup.

    sealed segment      linked: it is never changed in place, and a link outlives its removal
    active segment      linked as ``<base>.log.live``: it goes on growing, and counts up to the captured end only
    everything else     written anew from what was captured
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import producer_snapshot, recovery_point
from logdb.log.epochs import LeaderEpochs
from logdb.log.recovery_point import Point, Slot
from logdb.meta import Catalogue, LogEntry, SegmentEntry, TopicEntry, WriteTransaction, file_checksum
from logdb.model import LogConfig, TopicPartition
from logdb.segment.files import copy_file, link_file, sync_directory, write_file
from logdb.segment.segment import Segment, segment_path
from logdb.store import topic_file
from logdb.store.directories import named_errors
from logdb.store.topic_file import TopicFile

SEALED_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
_LIVE = ".live"

Tell = Callable[[str, int], None]
"""Called with a path and how many bytes of it were copied since the last call."""


@dataclass(frozen=True, kw_only=True)
class FrozenLog:
    """One partition as of one moment.

    ``entry``: its recovery point is the end.  ``directory``: where the files of ``sealed`` are.  ``tail_path``: the
    file of the segment that the end lies in, which counts up to the end only; None for a log without segments.
    ``tail_aborted``: that segment's ``.txnindex``.  ``producers``: the ``.snapshot`` of producers at the end; None where
    there never were any.  Both are empty where the files are there already.
    """

    topic: TopicEntry
    entry: LogEntry
    epochs: LeaderEpochs
    sealed: tuple[SegmentEntry, ...]
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
    """All of a database as of one moment."""

    database_id: str
    logs: Sequence[FrozenLog]

    @property
    def size_bytes(self) -> int:
        """Of all records."""
        return sum(log.size_bytes for log in self.logs)


# ---------------------------------------------------------------- holding the files


def hold(io: IO, log: FrozenLog, directory: str) -> FrozenLog:
    """Link the files of ``log`` into the new directory ``directory``, or copy them where they cannot be linked.

    Raises:
        CorruptionError: A file is missing.
        DiskFull, WriteFailed, SyncFailed: as they say.
    """
    with named_errors(directory):
        io.mkdir(directory)
        names = set(io.listdir(log.directory))
    for segment in log.sealed:
        for suffix in SEALED_SUFFIXES:
            source = segment_path(log.directory, segment.base_offset, suffix)
            if os.path.basename(source) in names or suffix == ".log":
                _link_or_copy(io, source, segment_path(directory, segment.base_offset, suffix))
    tail_path = None
    if log.tail_path is not None:
        tail_path = segment_path(directory, log.end.segment, ".log" + _LIVE)
        _link_or_copy(io, log.tail_path, tail_path, log.end.position)
    return replace(log, directory=directory, tail_path=tail_path)


def _link_or_copy(io: IO, source: str, target: str, size_bytes: int | None = None) -> None:
    try:
        linked = link_file(io, source, target)
    except FileNotFoundError:
        raise CorruptionError(source, 0, "the file is missing") from None
    if not linked:
        _copy_whole(io, source, target, size_bytes)


def _size(io: IO, path: str) -> int:
    fd = io.open(path, os.O_RDONLY)
    try:
        return io.size_bytes(fd)
    finally:
        io.close(fd)


# ---------------------------------------------------------------- a directory as after a clean close


def copy(io: IO, log: FrozenLog, directory: str, tell: Tell) -> None:
    """Make ``directory``, with a copy of all that a partition has; sealed segments are held against their CRC.

    Raises:
        CorruptionError: A file is damaged, or missing.
        DiskFull, WriteFailed, SyncFailed: as they say.
    """
    with named_errors(directory):
        io.mkdir(directory)
        names = set(io.listdir(log.directory))
    for segment in log.sealed:
        for suffix in SEALED_SUFFIXES:
            source = segment_path(log.directory, segment.base_offset, suffix)
            if suffix == ".log" or os.path.basename(source) in names:
                target = segment_path(directory, segment.base_offset, suffix)
                _copy_whole(io, source, target, segment.size_bytes if suffix == ".log" else None, partial(tell, target))
        _check_sealed(io, directory, segment)
    complete(io, log, directory, tell)


def _copy_whole(io: IO, source: str, target: str, size_bytes: int | None, tell: Callable[[int], None] | None = None) -> None:
    try:
        copy_file(io, source, target, _size(io, source) if size_bytes is None else size_bytes, tell)
    except FileNotFoundError:
        raise CorruptionError(source, 0, "the file is missing") from None


def _check_sealed(io: IO, directory: str, named: SegmentEntry) -> None:
    segment = Segment(io, directory, named.base_offset, writable=False)
    segment.size_bytes = named.size_bytes
    crc = segment.checksum()
    segment.retire()
    if crc != named.crc:
        raise CorruptionError(segment.path, 0, f"the CRC of the file is {crc:08x}, it was sealed with {named.crc:08x}")


def complete(io: IO, log: FrozenLog, directory: str, tell: Tell) -> None:
    """Write into ``directory``, which has the sealed segments, all that a partition has besides; all of it is synced.

    Raises:
        CorruptionError: The active segment's batches do not lead to the captured end.
        DiskFull, WriteFailed, SyncFailed: as they say.
    """
    end = log.end
    if log.tail_path is not None:
        path = segment_path(directory, end.segment)
        if log.tail_path != path:
            copy_file(io, log.tail_path, path, end.position, partial(tell, path))
        index_tail(io, directory, end, LogConfig.of(log.topic.config, "interval"))
        if os.path.dirname(log.tail_path) == directory and log.tail_path != path:
            with named_errors(log.tail_path):
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
    topic = log.topic
    content = TopicFile(topic.name, topic.topic_id, log.entry.partition, topic.partition_count, topic.config, log.entry.start_offset)
    topic_file.create(io, directory, content)
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


def index_tail(io: IO, directory: str, end: Point, config: LogConfig) -> None:
    """Write the indexes of an active segment, as a close does, after walking its batches to ``end``."""
    segment = Segment(io, directory, end.segment, writable=True, index_interval_bytes=config.index_interval_bytes)
    try:
        segment.resume(end.position, end.offset)
        segment.save_indexes(final=True)
    finally:
        segment.retire()


def write_catalogue(io: IO, path: str, frozen: Frozen) -> tuple[int, int]:
    """Make the catalogue of the database in ``path``, synced, without LMDB's lock file; returns size and CRC of its file."""
    topics = {log.topic.name: log.topic for log in frozen.logs}

    def fill(txn: WriteTransaction) -> None:
        txn.put_format(frozen.database_id)
        for topic in topics.values():
            txn.put_topic(topic)
        for log in frozen.logs:
            txn.put_log(log.entry)
            txn.put_segments(log.sealed)

    directory = os.path.join(path, "catalogue")
    with Catalogue.open(directory, create=True, io=io) as catalogue:
        catalogue.write(fill)
    with named_errors(directory):
        io.unlink(os.path.join(directory, "lock.mdb"))
    sync_directory(io, directory)
    return file_checksum(io, directory)
