"""``db.backup``: writes a database, or the changes since an earlier backup, to one file.

``backup_file`` and ``backup_list`` have the format.

    1. the database is frozen (``snapshot.held``; beside a writer ``beside.held``): its files no longer change
    2. the base's list says which files the base has; the others are read, checked against their CRC, and written to ``<file>.tmp``
    3. list and trailer are written, the file is synced
    4. the file is renamed, the directory synced: the commit point
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from logdb.codec import crc32c
from logdb.disk import File, changing, exists, sync_directory
from logdb.errors import BackupMismatch, CorruptionError, DirectoryLocked, SyncFailed, TargetNotEmpty
from logdb.io import IO
from logdb.meta import SegmentEntry
from logdb.requests.report import Copied, Progress
from logdb.segment.segment import segment_path
from logdb.segment.transaction_index import ENTRY_SIZE_BYTES
from logdb.store.copy import backup_list, beside
from logdb.store.copy.backup_file import FORMAT, FORMAT_CONTINUED, PIECE_SIZE_BYTES, BackupReader, BackupWriter, FileName, Info
from logdb.store.copy.backup_list import Continued, ListedLog, LogKey, Part
from logdb.store.copy.frozen import Frozen, FrozenLog, check_tail
from logdb.store.copy.moment import TransactionStep
from logdb.store.copy.snapshot import held
from logdb.store.directories import is_private

if TYPE_CHECKING:
    from logdb.store.store import Store


def backup(
    store: "Store",
    path: str,
    base: str | None = None,
    progress: Progress | None = None,
    *,
    step_of: Callable[[bytes], TransactionStep] | None = None,
) -> Copied:
    """Write a backup of an open database to the new file ``path``; see ``Database.backup``.

    Args:
        step_of: Parses records of ``__transaction_state``, for a store with mode "r".
    """
    io, path = store.io, os.path.abspath(path)
    if exists(io, path):
        raise TargetNotEmpty(path)
    onto: tuple[str, str] | None = None
    known: dict[LogKey, ListedLog] = {}
    if base is not None:
        with BackupReader(io, os.path.abspath(base)) as reader:
            if reader.info.database_id != store.database_id:
                raise BackupMismatch(base, f"it is a backup of the database {reader.info.database_id}, this one is {store.database_id}")
            known = {log.key: log for log in listed(reader)}
            onto = reader.info.backup_id, reader.checksum
    with _held(store, known, step_of) as frozen, new_file(io, path, private=is_private(io, store.path)) as file:
        plan = [_plan(io, log, known.get((log.topic.topic_id, log.entry.partition))) for log in frozen.logs]
        info = Info(store.database_id, str(uuid.uuid4()), store.clock_ms(), frozen.next_producer_id, onto)
        continues = any(log.continued is not None for log in plan)
        writer = BackupWriter(file, info, format_number=FORMAT_CONTINUED if continues else FORMAT)
        tell = _teller(plan, progress)
        for source, log in zip(frozen.logs, plan, strict=True):
            _write_log(io, writer, source, log, tell)
        writer.finish(backup_list.encode(plan))
        return Copied(path, info.backup_id, len(plan), frozen.size_bytes, writer.size_bytes)


def _held(
    store: "Store", known: Mapping[LogKey, ListedLog], step_of: Callable[[bytes], TransactionStep] | None
) -> contextlib.AbstractContextManager[Frozen]:
    """The database at this moment, with files that stay."""
    if store.mode == "r" and store.snapshot is None and step_of is not None:
        return beside.held(store, step_of, {key: log.rows.keys() for key, log in known.items()})
    return held(store)


def listed(reader: BackupReader) -> list[ListedLog]:
    """The logs in a backup's list; raises BackupDamaged."""
    try:
        return backup_list.decode(reader.content)
    except ValueError as error:
        raise reader.damaged(reader.list_position, f"its list contradicts itself: {error}") from None


def _plan(io: IO, log: FrozenLog, base: ListedLog | None) -> ListedLog:
    """The files of ``log`` to store; ``base`` is what the base has of the log."""
    known = set() if base is None else {part._replace(stored=True) for part in base.parts}
    rows = {} if base is None else base.rows
    stored = frozenset(row for row, segment in enumerate(log.sealed) if segment not in rows)
    continued = None if base is None else _continued(io, log, [log.sealed[row] for row in stored], base)
    parts = _parts(io, log, continued)
    if continued is not None and any(part in known for part in parts if part.kind == "log" and part.base_offset == continued.base_offset):
        continued = None  # it has not grown
    return ListedLog(
        topic=log.topic,
        entry=log.entry,
        epochs=log.epochs,
        sealed=log.sealed,
        stored=stored,
        parts=tuple(part._replace(stored=part not in known) for part in parts),
        continued=continued,
        high_watermark=log.high_watermark,
    )


def _continued(io: IO, log: FrozenLog, sealed: Iterable[SegmentEntry], base: ListedLog) -> Continued | None:
    """The ``.log`` that has grown, or was sealed, since the base was made, if it still begins with the bytes that the base has."""
    former = next((part for part in base.parts if part.kind == "log" and part.size_bytes), None)
    if former is None:
        return None
    sizes = {segment.base_offset: (segment.size_bytes, _path(log, segment)) for segment in sealed}
    if log.tail_path is not None:
        sizes[log.end.segment] = (log.end.position, log.tail_path)
    size_bytes, path = sizes.get(former.base_offset, (0, ""))
    if size_bytes < former.size_bytes or _checksum(_pieces(io, log, path, former.size_bytes)) != former.crc:
        return None
    return Continued(former.base_offset, former.size_bytes, former.crc)


def _parts(io: IO, log: FrozenLog, continued: Continued | None) -> list[Part]:
    end, parts = log.end, []
    if log.tail_path is not None:
        check_tail(io, log, log.tail_path).retire()
        start, crc = continued[1:] if continued is not None and continued.base_offset == end.segment else (0, 0)
        crc = _checksum(_pieces(io, log, log.tail_path, end.position, start), crc)
        parts.append(Part("log", end.segment, end.position, crc, True))
    if log.tail_aborted:
        parts.append(Part("txnindex", end.segment, len(log.tail_aborted), crc32c(log.tail_aborted), True))
    if log.producers is not None:
        parts.append(Part("snapshot", end.offset, len(log.producers), crc32c(log.producers), True))
    return parts


def _path(log: FrozenLog, segment: SegmentEntry, kind: str = "log") -> str:
    return segment_path(log.directory, segment.base_offset, f".{kind}")


def _write_log(io: IO, writer: BackupWriter, source: FrozenLog, log: ListedLog, tell: Callable[[str, int], None]) -> None:
    for row in sorted(log.stored):
        segment = log.sealed[row]
        begin = log.begin_of(segment)
        pieces = _pieces(io, source, _path(source, segment), segment.size_bytes, 0 if begin is None else begin.size_bytes)
        _write_file(writer, log, Part("log", segment.base_offset, segment.size_bytes, segment.crc, True), source.origin, pieces, tell)
        if segment.aborted_count:
            size_bytes = segment.aborted_count * ENTRY_SIZE_BYTES
            pieces = _pieces(io, source, _path(source, segment, "txnindex"), size_bytes)
            index = Part("txnindex", segment.base_offset, size_bytes, segment.aborted_crc, True)
            _write_file(writer, log, index, source.origin, pieces, tell)
    for part in log.parts:
        if part.stored:
            match part.kind:
                case "log":
                    begin = log.begin_of(part)
                    pieces = _pieces(io, source, source.tail_path or "", part.size_bytes, 0 if begin is None else begin.size_bytes)
                case "txnindex":
                    pieces = _cut(source.tail_aborted)
                case "snapshot":
                    pieces = _cut(source.producers or b"")
            _write_file(writer, log, part, source.origin, pieces, tell)


def _write_file(
    writer: BackupWriter, log: ListedLog, file: Part, directory: str, pieces: Iterable[bytes], tell: Callable[[str, int], None]
) -> None:
    """Store a file of ``log``, whose directory in the database is ``directory``, or the bytes that continue it."""
    path = segment_path(directory, file.base_offset, f".{file.kind}")
    begin = log.begin_of(file)
    start, crc = (0, 0) if begin is None else begin[1:]
    writer.begin_file(FileName(*log.key, file.base_offset, file.kind), file.size_bytes - start)
    for piece in pieces:
        writer.add(piece)
        crc = crc32c(piece, crc)
        tell(path, len(piece))
    if crc != file.crc:
        raise CorruptionError(path, 0, f"the CRC of the file is {crc:08x}, it was sealed with {file.crc:08x}; run logdb repair")


def _cut(data: bytes) -> Iterator[bytes]:
    """The pieces of ``data``."""
    return (data[start : start + PIECE_SIZE_BYTES] for start in range(0, len(data), PIECE_SIZE_BYTES))


def _checksum(pieces: Iterable[bytes], crc: int = 0) -> int:
    """The CRC-32C of bytes behind others, whose CRC is ``crc``."""
    for piece in pieces:
        crc = crc32c(piece, crc)
    return crc


def _pieces(io: IO, log: FrozenLog, path: str, size_bytes: int, position: int = 0) -> Iterator[bytes]:
    """The bytes [``position``, ``size_bytes``) of a file of ``log``, piece by piece."""
    held = log.held.get(path)
    if isinstance(held, bytes):
        yield from _cut(held[position:])
        return
    try:
        file = held or File(io, path, os.O_RDONLY)
    except FileNotFoundError:
        raise CorruptionError(path, 0, "the file is missing") from None
    for piece in file.pieces(PIECE_SIZE_BYTES, position, stop=size_bytes):
        yield piece
        position += len(piece)
    if position < size_bytes:
        raise CorruptionError(path, position, f"the file ends before its {size_bytes} bytes")


@contextlib.contextmanager
def new_file(io: IO, path: str, *, private: bool = False) -> Iterator[File]:
    """Yield a file that becomes ``path``, durably, when the block ends; after an error there is no such file.

    Args:
        private: Only its owner may read it, as the source.
    """
    name = temporary = f"{path}.tmp"
    with changing(temporary):
        file = File(io, temporary, os.O_RDWR | os.O_CREAT, 0o600 if private else 0o644)
    with file:
        if not file.lock():
            raise DirectoryLocked(temporary, pid=0, host="", since="")
        if private:  # it may be there from a call that was killed
            with changing(temporary):
                io.chmod(temporary, 0o600)
        file.truncate(0)
        try:
            yield file
            file.sync()
            with changing(path):
                io.rename(temporary, path)
            name = path
            sync_directory(io, os.path.dirname(path))
        except BaseException as error:
            if not isinstance(error, SyncFailed) or name == temporary:  # after a failed sync of the directory it may be durable
                with contextlib.suppress(OSError):
                    io.unlink(name)
            raise


def _teller(plan: list[ListedLog], progress: Progress | None) -> Callable[[str, int], None]:
    """A function that counts the stored bytes for ``progress``."""
    total = sum(log.sealed[row].size_bytes for log in plan for row in log.stored)
    total += sum(part.size_bytes for log in plan for part in log.parts if part.stored)
    total -= sum(log.continued.size_bytes for log in plan if log.continued is not None)
    done = 0

    def tell(file: str, size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        if progress is not None:
            progress(min(done, total), total, os.path.join(*file.rsplit(os.sep, 2)[1:]))

    return tell
