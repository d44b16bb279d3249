"""``logdb.restore``: makes a database from a snapshot, or from a backup and its increments.

Order and commit point: docs/inside/backup.md, "Reading it".  ``backup_file`` and ``backup_list`` have the format.
"""

import contextlib
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from logdb.codec import crc32c
from logdb.disk import File, changing
from logdb.errors import BackupMismatch, CorruptionError
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.meta import SegmentEntry
from logdb.model import Buffer, LogConfig, TopicPartition
from logdb.requests.report import Copied, Progress
from logdb.segment import transaction_index
from logdb.segment.segment import segment_path
from logdb.segment.transaction_index import ENTRY_SIZE_BYTES
from logdb.store.copy import frozen as freezing
from logdb.store.copy.backup import listed
from logdb.store.copy.backup_file import BackupReader, FileName
from logdb.store.copy.backup_list import ListedLog, Part
from logdb.store.copy.frozen import Frozen, FrozenLog
from logdb.store.directories import building, is_private
from logdb.store.lock import LockFile
from logdb.store.store import Store

_CLOCK_BEGIN_S, _CLOCK_END_S = 1_767_225_600, (1 << 31) - (1 << 24)  # seconds since 2026 fit the 31 bits of a leader epoch until 2093
_SAME_SECOND_COUNT = 16
_EPOCH_COUNT = 1 << 16


def restore(sources: Sequence[str], target: str, *, io: IO | None = None, progress: Progress | None = None) -> Copied:
    """Make a database in the new directory ``target``; see ``logdb.restore``."""
    io, target = io or IO(), os.path.abspath(target)
    if not sources:
        raise ValueError("name a snapshot or backups to restore from")
    if len(sources) == 1 and os.path.isdir(sources[0]):
        return _restore_directory(io, os.path.abspath(sources[0]), target, progress)
    with contextlib.ExitStack() as opened:
        chain = _chain([opened.enter_context(BackupReader(io, os.path.abspath(source))) for source in sources])
        return Restoration(io, chain, progress).run(target)


def _restore_directory(io: IO, source: str, target: str, progress: Progress | None) -> Copied:
    store = Store.open(source, mode="r", io=io)
    try:
        with freezing.freeze(store) as frozen, building(io, target, private=is_private(io, source)) as path:
            done, total = 0, sum(log.size_bytes for log in frozen.logs)

            def tell(file: str, size_bytes: int) -> None:
                nonlocal done
                done += size_bytes
                if progress is not None:
                    progress(min(done, total), total, os.path.relpath(file, path))

            by_clock = _epoch_now(io)
            logs = [_begun(log, by_clock) for log in frozen.logs]
            for log in logs:
                freezing.copy(io, log, os.path.join(path, log.name), tell)
            return _finish(io, path, replace(frozen, logs=logs))._replace(path=target)
    finally:
        store.close()


def _begun(log: FrozenLog, by_clock: int) -> FrozenLog:
    """A log with a new leader epoch at its end, which separates lost records of the source from new ones of the copy."""
    epochs = log.epochs.begun(_next_epoch(log.epochs.latest, by_clock), log.end.offset)
    return replace(log, epochs=epochs, entry=log.entry._replace(leader_epoch=epochs.latest))


def _epoch_now(io: IO) -> int:
    """The epoch of a whole restore, by the clock: seconds since 2026, and a little by chance."""
    return io.clock_ms() // 1000 - _CLOCK_BEGIN_S + secrets.randbelow(_SAME_SECOND_COUNT)


def _next_epoch(latest: int, by_clock: int) -> int:
    """An epoch that no other history has there: an opening after a crash, and another restore, begin epochs at the same end.

    It grows from restore to restore: Kafka's Java client ignores a lower epoch of a topic that it knows, and cannot read until it is
    restarted.  So it is the time, unless the clock is wrong.
    """
    if latest < by_clock <= _CLOCK_END_S:
        return by_clock
    return latest + 1 + secrets.randbelow(_EPOCH_COUNT)


def _finish(io: IO, path: str, frozen: Frozen) -> Copied:
    """Write the catalogue, and the ``LOCK`` of a closed database."""
    size_bytes, crc = freezing.write_catalogue(io, path, frozen)
    lock = LockFile.acquire(io, os.path.join(path, "LOCK"))
    try:
        lock.mark_open()
        lock.mark_clean(size_bytes, crc)
    finally:
        lock.release()
    return Copied(path, frozen.database_id, len(frozen.logs), frozen.size_bytes, frozen.size_bytes)


# ---------------------------------------------------------------- the chain


def _chain(readers: list[BackupReader]) -> list[BackupReader]:
    """The backups in order, the full one first.

    Raises:
        BackupMismatch: They are not one full backup and increments, each onto the one before.
    """
    full = [reader for reader in readers if reader.info.base is None]
    if len(full) != 1:
        where = full[1].path if full else readers[0].path
        raise BackupMismatch(where, f"{len(full)} of the files are full backups; name exactly one, and its increments")
    chain, left = full, [reader for reader in readers if reader.info.base is not None]
    while left:
        last = chain[-1]
        following = [reader for reader in left if reader.info.base == (last.info.backup_id, last.checksum)]
        if len(following) != 1 or following[0].info.database_id != last.info.database_id:
            reason = f"{len(following)} increments onto {last.path} were given" if following else f"it is not an increment onto {last.path}"
            raise BackupMismatch((following or left)[-1].path, reason)
        chain.append(following[0])
        left.remove(following[0])
    return chain


class Wanted(NamedTuple):
    """A file to read from a backup; ``crc`` is that of its whole content, which ends at ``size_bytes``.

    ``begin``: where the bytes that the backup has begin, and the CRC of those before, which an earlier backup has.
    """

    log: ListedLog
    size_bytes: int
    crc: int
    begin: tuple[int, int] = (0, 0)


def _name(log: ListedLog) -> str:
    """The name of the log's directory in a database."""
    return str(TopicPartition(log.topic.name, log.entry.partition))


def _check_part(io: IO, directory: str, part: Part) -> None:
    """Check a file's content by its kind; raises CorruptionError.  ``freezing.complete`` walks the active segment."""
    if part.kind == "txnindex":
        transaction_index.load(io, segment_path(directory, part.base_offset, ".txnindex"))
    elif part.kind == "snapshot":
        producer_snapshot.load(io, directory, part.base_offset)


class Restoration:
    """One restore of one chain of backups."""

    def __init__(self, io: IO, chain: Sequence[BackupReader], progress: Progress | None) -> None:
        self._io, self._chain, self._progress, self._by_clock = io, chain, progress, _epoch_now(io)
        self._lists = [{log.key: log for log in listed(reader)} for reader in chain]
        self._logs = list(self._lists[-1].values())
        self._done, self._total = 0, sum(reader.size_bytes for reader in chain)

    def run(self, target: str) -> Copied:
        wanted = self._wanted()
        private = any(is_private(self._io, reader.path) for reader in self._chain)
        with building(self._io, target, private=private) as path:
            for log in self._logs:
                directory = os.path.join(path, _name(log))
                with changing(directory):
                    self._io.mkdir(directory)
            for reader, names in zip(self._chain, wanted, strict=True):
                self._take(reader, names, path)
            logs = [self._complete(log, os.path.join(path, _name(log))) for log in self._logs]
            info = self._chain[-1].info
            frozen = Frozen(database_id=info.database_id, next_producer_id=info.next_producer_id, logs=logs)
            return _finish(self._io, path, frozen)._replace(path=target)

    # ------------------------------------------------------------ which file of the chain has what

    def _wanted(self) -> list[dict[FileName, Wanted]]:
        """For each backup of the chain, the files to read from it."""
        wanted: list[dict[FileName, Wanted]] = [{} for _ in self._chain]
        for log in self._logs:
            for segment in log.sealed:
                number = self._want_log(wanted, log, segment)
                if segment.aborted_count:
                    size_bytes = segment.aborted_count * ENTRY_SIZE_BYTES
                    index = FileName(*log.key, segment.base_offset, "txnindex")
                    wanted[number][index] = Wanted(log, size_bytes, segment.aborted_crc)
            for part in log.parts:
                if part.kind == "log":
                    self._want_log(wanted, log, part)
                else:
                    files = wanted[self._holder(log, part, len(wanted))]
                    files[FileName(*log.key, part.base_offset, part.kind)] = Wanted(log, part.size_bytes, part.crc)
        return wanted

    def _want_log(self, wanted: list[dict[FileName, Wanted]], log: ListedLog, file: SegmentEntry | Part) -> int:
        """Note which backups have the bytes of a ``.log``; returns the number of the newest of these."""
        newest = stop = self._holder(log, file, len(wanted))
        left: SegmentEntry | Part | None = file
        while left is not None:
            begin = self._lists[stop][log.key].begin_of(left)
            before = (0, 0) if begin is None else (begin.size_bytes, begin.crc)
            wanted[stop][FileName(*log.key, left.base_offset, "log")] = Wanted(log, left.size_bytes, left.crc, before)
            left = None if begin is None else begin.part
            stop = stop if left is None else self._holder(log, left, stop)
        return newest

    def _holder(self, log: ListedLog, file: SegmentEntry | Part, stop: int) -> int:
        """The number of the newest backup before ``stop`` that has ``file`` of ``log``, or its last bytes."""
        number = stop
        for number in range(stop - 1, -1, -1):
            known = self._lists[number].get(log.key)
            stored = None if known is None else known.has(file)
            if stored:
                return number
            if stored is None:
                break
        reader = self._chain[min(number, len(self._chain) - 1)]
        raise reader.damaged(reader.list_position, f"{_name(log)}: no file has {file}")

    # ------------------------------------------------------------ the files themselves

    def _take(self, reader: BackupReader, wanted: dict[FileName, Wanted], path: str) -> None:
        """Read a whole backup, and write the wanted files."""
        left = dict(wanted)
        for name, size_bytes, pieces in reader.files():
            found = left.pop(name, None)
            if found is None:
                for piece in pieces:
                    self._tell(len(piece), "checking")
                continue
            start = found.begin[0]
            if size_bytes != found.size_bytes - start:
                raise reader.damaged(reader.list_position, f"{name} has {size_bytes} bytes, the list says {found.size_bytes - start}")
            target = segment_path(os.path.join(path, _name(found.log)), name.base_offset, f".{name.kind}")
            crc = self._write(target, pieces, *found.begin)
            if crc != found.crc:
                raise reader.damaged(reader.list_position, f"{name} has the CRC {crc:08x}, the list says {found.crc:08x}")
        if left:
            raise reader.damaged(reader.list_position, f"{next(iter(left))} is in the list, but not in the file")

    def _write(self, target: str, pieces: Iterable[Buffer], position: int, crc: int) -> int:
        """Write a file from ``position`` on, synced; ``crc`` is that of what precedes.  Returns the CRC-32C of all."""
        with changing(target):
            file = File(self._io, target, os.O_RDWR | (0 if position else os.O_CREAT | os.O_EXCL))
        with file:
            for piece in pieces:
                file.write(piece, position)
                position, crc = position + len(piece), crc32c(piece, crc)
                self._tell(len(piece), os.path.basename(os.path.dirname(target)))
            file.sync()
        return crc

    def _complete(self, listed_log: ListedLog, directory: str) -> FrozenLog:
        """Write the rest of a partition into ``directory``, which has the segments."""
        entry, topic = listed_log.entry, listed_log.topic
        tail_path = segment_path(directory, listed_log.end.segment) if listed_log.has_segments else None
        log = _begun(
            FrozenLog(
                topic=topic,
                entry=entry,
                epochs=listed_log.epochs,
                sealed=listed_log.sealed,
                origin=directory,
                directory=directory,
                tail_path=tail_path,
                high_watermark=listed_log.high_watermark,
            ),
            self._by_clock,
        )
        try:
            for part in listed_log.parts:
                _check_part(self._io, directory, part)
            for segment in log.sealed:
                if segment.aborted_count:
                    transaction_index.load(self._io, segment_path(directory, segment.base_offset, ".txnindex"))
                freezing.index_sealed(self._io, directory, segment, LogConfig.of(topic.config, "interval"))
            freezing.complete(self._io, log, directory, lambda *_: None)
        except CorruptionError as error:
            last = self._chain[-1]
            raise last.damaged(last.list_position, f"{_name(listed_log)}/{os.path.basename(error.path)}: {error.reason}") from error
        return log

    def _tell(self, size_bytes: int, what: str) -> None:
        self._done += size_bytes
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total, what)
