"""One segment: a file of record batches plus two sparse indexes.

Threading: one writer at a time (the caller's lock); any number of readers, which
see the batches below ``size_bytes``.

    <base offset, 20 digits>.log        batches back to back
    <base offset, 20 digits>.index      last offset of a batch -> its position
    <base offset, 20 digits>.timeindex  largest timestamp so far -> offset
    <base offset, 20 digits>.txnindex   aborted transactions whose marker is in it, if any

An active segment grows, and keeps its indexes in memory; a sealed one never changes, and reads them when they are needed.  The
indexes are hints: each entry is checked against the batch it points to.  Format: docs/inside/format.md.
"""

import contextlib
import logging
import os
import struct
import threading
from bisect import bisect_left, bisect_right
from errno import ENOENT
from typing import NamedTuple

from logdb.codec import Scanner, Status, crc32c, explain, header, index_search, time_index_search
from logdb.codec.batch import HEADER_SIZE_BYTES
from logdb.disk import File, Write, changing, exists, path_id, read_while, remove, write_file
from logdb.errors import CorruptionError, DiskFull, LogdbError, WriteFailed
from logdb.io import IO
from logdb.model import SEGMENT_SIZE_BYTES_MAX, Buffer
from logdb.segment import buffers
from logdb.segment.files import FileHolder
from logdb.segment.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)

INDEX_SUFFIXES = ("index", "timeindex", "txnindex")  # of the files beside a .log file
INDEX_ENTRY_SIZE = 8
_ENTRY = struct.Struct(">II")  # last offset of a batch, less the segment's base offset; its position
_TWO_ENTRIES = struct.Struct(">iiii")  # each: last offset of a batch, less the segment's base offset; its position
TIME_INDEX_ENTRY_SIZE = 12
CLEANED = ".cleaned"  # suffix of files that compaction has written, until they replace the old ones


def segment_path(directory: str, base_offset: int, suffix: str = ".log") -> str:
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


def read_index(io: IO, path: str, entry_size_bytes: int, log_size_bytes: int) -> bytes:
    """The entries of an offset or time index, as many as a log of so many bytes can have.

    Each piece that is read must lead further into the log; the first one that does not is the last one read.

    Raises:
        FileNotFoundError: There is none.
        CorruptionError: It is not a regular file.
        ReadFailed: see ``logdb.errors``.
    """
    place = -1

    def leads_on(piece: bytes) -> bool:
        nonlocal place
        before, place = place, int.from_bytes(piece[-4:], "big")  # of both kinds of entries the last four bytes increase
        return place > before

    entry_count_max = log_size_bytes // HEADER_SIZE_BYTES + 2  # one for each batch, and one that closes a time index
    return read_while(io, path, entry_count_max * entry_size_bytes, leads_on)


class ReadStart(NamedTuple):
    """The position to read from for an offset, by the index.

    A batch that ends at ``last_offset`` should begin at ``position`` (None: there is no entry, position 0); the next
    ``size_bytes`` should have the wanted batch.
    """

    position: int
    size_bytes: int
    last_offset: int | None


READ_FROM_BEGIN = ReadStart(0, buffers.READ_SIZE_BYTES, None)


class Segment(FileHolder):
    """One segment of one partition.

    ``size_bytes`` and ``next_offset`` are where its batches end; ``scanner`` is there while it is active.
    """

    __slots__ = (
        "_untaken_timestamp",
        "append_ms",
        "base_offset",
        "created_ms",
        "entry_count",
        "index_interval_bytes",
        "indexes_made",
        "indexes_unsynced",
        "latest",
        "max_timestamp",
        "next_offset",
        "room_bytes",
        "saved_bytes",
        "saving",
        "scanner",
        "size_bytes",
        "suffix",
        "synced_entry_count",
        "transactions",
        "whole",
    )

    def __init__(
        self, io: IO, directory: str, base_offset: int, *, writable: bool, index_interval_bytes: int = 4096, suffix: str = ""
    ) -> None:
        super().__init__(io, segment_path(directory, base_offset, ".log" + suffix), writable=writable)
        self.suffix = suffix
        self.base_offset = self.next_offset = base_offset
        self.size_bytes = 0
        self.room_bytes = 0  # up to here disk space is reserved; less than ``size_bytes``: none is
        self.max_timestamp = self._untaken_timestamp = -1
        self.append_ms = self.created_ms = 0
        self.latest: tuple[int, int, tuple[int, int] | None] = (-1, -1, None)  # what ``log.reading.latest`` found, in which offsets
        self.index_interval_bytes = index_interval_bytes
        self.scanner: Scanner | None = None
        self.transactions = TransactionIndex(io, self._path_of("txnindex"))
        self.saved_bytes = (0, 0)  # of the offset and the time index: this much of their files is final
        self.indexes_made = False  # their files are there: a sync of ours has covered them
        self.indexes_unsynced = False  # their files hold entries that no sync of ours has covered
        self.saving = threading.Lock()  # held while the index files are written
        self.entry_count = self.synced_entry_count = 0  # of its files' directory entries: made, and made before the directory was synced
        self.whole = True  # False during a write, and after one that was interrupted

    @property
    def new(self) -> bool:
        """Whether a directory entry of its files is not synced yet."""
        return self.entry_count != self.synced_entry_count

    def entries_synced(self, entry_count: int) -> None:
        """The directory was synced when so many entries had been made."""
        self.synced_entry_count = max(self.synced_entry_count, entry_count)

    def __repr__(self) -> str:
        kind = "sealed" if self.scanner is None else "active"
        return f"<Segment {self.path} {kind} [{self.base_offset}, {self.next_offset}) {self.size_bytes} bytes>"

    # ------------------------------------------------------------ writing

    def create(self, now_ms: int) -> None:
        """Create the file and become active; the caller syncs the directory."""
        try:
            self.open(create=True)
        except FileExistsError:  # from an interrupted try: the log ends before it
            if self.open().size_bytes():
                raise
        self.entry_count += 1
        self.created_ms = self.append_ms = now_ms
        self.scanner = self._new_scanner(check_crc=False)

    def append(self, batches: memoryview, next_offset: int) -> None:
        """Write checked batches at the end.

        Raises DiskFull or WriteFailed with nothing changed but bytes past ``size_bytes``; the
        caller writes the same bytes to the same place when it tries again.
        """
        scanner = self.scanner
        assert scanner is not None, f"{self} is sealed"
        size_bytes = len(batches)
        file = self.file or self.open()
        file.used = True
        end = self.size_bytes + size_bytes
        self.write_count += 1
        file.write(batches, end - size_bytes)
        self.write_count += 1  # a sync that began meanwhile may have come too early
        self.whole = False
        status = scanner.scan(batches, size_bytes)
        if status is not Status.OK or scanner.next_offset != next_offset:
            reason = f"batches that end at offset {scanner.next_offset} ({status.name}) were written for ones up to {next_offset}"
            raise CorruptionError(self.path, end - size_bytes, reason)
        self.max_timestamp = scanner.max_timestamp
        self.next_offset = next_offset
        self.size_bytes = end
        self.whole = True

    def restore(self, position: int, next_offset: int) -> None:
        """Restore the state before an ``append`` that an exception from outside (Ctrl-C) interrupted."""
        self.size_bytes = position
        self.resume(position, next_offset)
        self.whole = True

    def reserve(self, position: int) -> bool:
        """Reserve disk space behind the last batch, up to a position, so that a sync need not extend the file.

        False: the disk has not so much, or the file system cannot.  The file is as before: a full disk may have given a part.
        """
        position = min(position, SEGMENT_SIZE_BYTES_MAX)
        file = self.file or self.open()
        try:
            file.allocate(self.size_bytes, position - self.size_bytes)
        except (DiskFull, WriteFailed) as error:
            logger.debug("preallocating %s: %s", self.path, error)
        else:
            self.room_bytes = position
            return True
        with contextlib.suppress(LogdbError):  # the next write will report it
            self.trim()
        return False

    def trim(self) -> None:
        """Free the disk space that is reserved behind the last batch."""
        with changing(self.path):
            file = self.open()
        if file.size_bytes() != self.size_bytes:
            self.write_count += 1
            file.truncate(self.size_bytes)
            self.write_count += 1
        self.room_bytes = self.size_bytes

    def save_indexes(self, *, final: bool = False) -> None:
        """Append the missing entries to the index files, and sync them."""
        scanner = self.scanner
        assert scanner is not None, f"{self} is sealed"
        with self.saving:
            if final:
                scanner.close_time_index()
            if not self._has_saved(scanner, final=final):
                self.saved_bytes = self._write_indexes(scanner, sync=True)
                self.indexes_made, self.indexes_unsynced = True, False
        self.save_transactions()

    def _has_saved(self, scanner: Scanner, *, final: bool) -> bool:
        """Whether the index files are durable and have all entries; but for ``final``, one of the time index may be missing."""
        if self.indexes_unsynced or len(scanner.index) != self.saved_bytes[0]:
            return False
        return not final or (self.indexes_made and len(scanner.time_index) == self.saved_bytes[1])

    def begin_saving(self, *, final: bool = False) -> tuple[list[Write], tuple[int, int]] | None:
        """What ``save_indexes`` writes, for a caller that makes it durable and then calls ``indexes_saved`` with the sizes."""
        self.save_transactions()
        scanner = self.scanner
        assert scanner is not None, f"{self} is sealed"
        with self.saving:
            if final:
                scanner.close_time_index()
            if self._has_saved(scanner, final=final):
                return None
            self.indexes_unsynced = True
            return self._index_writes(scanner)

    def indexes_saved(self, sizes: tuple[int, int]) -> None:
        """The files are durable up to these sizes."""
        with self.saving:
            self.saved_bytes, self.indexes_made, self.indexes_unsynced = sizes, True, False

    def save_transactions(self) -> None:
        """Bring the index of aborted transactions up to date, and sync it."""
        if self.transactions.unsaved:
            self.entry_count += 1
            self.transactions.save()

    def note_indexes(self) -> None:
        """Write the newest index entries, unsynced.

        After a process crash, recovery need not walk the batches that they cover.  Does not wait, and only logs a failure.
        """
        scanner = self.scanner
        assert scanner is not None, f"{self} is sealed"
        if not self.saving.acquire(blocking=False):
            return
        try:
            self.indexes_unsynced = True
            self._write_indexes(scanner, sync=False)
        except (OSError, LogdbError) as error:
            logger.debug("noting the indexes of %s: %s", self.path, error)
        finally:
            self.saving.release()

    def _write_indexes(self, scanner: Scanner, *, sync: bool) -> tuple[int, int]:
        """Append the unsaved entries to both files; returns the sizes of the files.  Under ``saving``.

        The files never shrink.  The time index goes first, because resuming at an entry of the offset index needs all earlier entries of
        the time index.
        """
        writes, sizes = self._index_writes(scanner)
        for write in writes:
            write_file(self.io, write.path, write.data, position=write.position, sync=sync)
        return sizes

    def _index_writes(self, scanner: Scanner) -> tuple[list[Write], tuple[int, int]]:
        index, time_index = scanner.index, scanner.time_index
        ends = len(index), len(time_index)  # in this order, for the same reason: appends continue
        if not exists(self.io, self._index_path()):
            self.entry_count, self.saved_bytes, self.indexes_made = self.entry_count + 1, (0, 0), False
        saved, saved_times = self.saved_bytes
        times = Write(self._time_index_path(), time_index[saved_times : ends[1]], saved_times)
        return [times, Write(self._index_path(), index[saved : ends[0]], saved)], ends

    def seal(self) -> int:
        """Seal the segment: trimmed, synced, its indexes complete.  Returns the CRC-32C of the file.

        May be called again if a later step of the caller fails.
        """
        if self.scanner is not None:
            self.trim()
            self.sync()
            self.save_indexes(final=True)
            self.scanner = None
        return self.checksum()

    def checksum(self) -> int:
        """CRC-32C of the whole file, read back from the operating system."""
        file, crc, position = self.open(), 0, 0
        buffer = memoryview(buffers.take(buffers.READ_SIZE_BYTES))
        while position < self.size_bytes:
            wanted = min(len(buffer), self.size_bytes - position)
            read = file.fill(buffer[:wanted], position)
            if not read:
                raise CorruptionError(self.path, position, f"the file ends before its {self.size_bytes} bytes")
            crc = crc32c(buffer[:read], crc)
            position += read
        return crc

    def remove(self) -> None:
        """Unlink the files; open readers continue."""
        for path in self.paths():
            if exists(self.io, path):
                remove(self.io, path)

    def paths(self) -> list[str]:
        """The paths of its files, the log first; some may not exist."""
        return [self._path_of(kind) for kind in ("log", *INDEX_SUFFIXES)]

    # ------------------------------------------------------------ finding

    def locate(self, offset: int) -> ReadStart:
        """Where to read for the batch that holds ``offset``, in [base_offset, next_offset)."""
        index, _ = self._indexes()
        count = len(index) // INDEX_ENTRY_SIZE
        slot = index_search(index, count, offset - self.base_offset)
        stop = _position(index, slot + 1) if slot + 1 < count else self.size_bytes
        if slot == 0:
            return ReadStart(0, _read_size(stop), None)
        position, last_offset = _position(index, slot - 1), self.base_offset + _offset(index, slot - 1)
        if last_offset >= offset or not 0 < position < self.size_bytes:
            return READ_FROM_BEGIN
        return ReadStart(position, _read_size(stop - position), last_offset)

    def locate_batch(self, offset: int) -> tuple[int, int, int] | None:
        """The batch that should hold ``offset``: its position, the bytes to the next index entry, its last offset.

        None if the index has no such entry, or its entries are so dense that some batches have none.
        """
        index, _ = self._indexes()
        count, relative = len(index) // INDEX_ENTRY_SIZE, offset - self.base_offset
        slot = index_search(index, count, relative)
        if not 0 < slot < count:
            return None
        before, position_before, last, position = _TWO_ENTRIES.unpack_from(index, (slot - 1) * INDEX_ENTRY_SIZE)
        stop = _position(index, slot + 1) if slot + 1 < count else self.size_bytes
        in_order = before < relative <= last < self.next_offset - self.base_offset and position < stop <= self.size_bytes
        if not in_order or position - position_before < 2 * self.index_interval_bytes:
            return None
        return position, stop - position, self.base_offset + last

    def offset_before_timestamp(self, timestamp_ms: int) -> int:
        """An offset at or below every record of that age: where a search by ``timestamp_ms`` begins."""
        index, time_index = self._indexes()
        slot = time_index_search(time_index, len(time_index) // TIME_INDEX_ENTRY_SIZE, timestamp_ms)
        if slot < 0:
            return self.base_offset
        if not self._is_time_entry(index, time_index, slot):
            logger.warning("%s: entry %d is wrong; the segment is read from its beginning", self._time_index_path(), slot)
            return self.base_offset
        return self.base_offset + _time(time_index, slot)[1]

    @property
    def index_size_bytes(self) -> int:
        """The size of the offset index.  Raises FileNotFoundError, CorruptionError."""
        return len(self._indexes()[0])

    def first_timestamp(self) -> int:
        """Base timestamp of the first batch, ms; -1 without one.  Raises FileNotFoundError."""
        _, found = header(self._pread(HEADER_SIZE_BYTES, 0))
        return -1 if found is None else found.base_timestamp

    def first_epoch(self) -> int:
        """Leader epoch of the first batch.  The segment must have one."""
        _, found = header(self._pread(HEADER_SIZE_BYTES, 0))
        return 0 if found is None else found.leader_epoch

    def _is_batch(self, position: int, last_offset: int) -> bool:
        """Whether a batch that begins at ``position`` ends at ``last_offset``."""
        if position + HEADER_SIZE_BYTES > self.size_bytes:
            return False
        status, found = header(self._pread(HEADER_SIZE_BYTES, position))
        return status in (Status.OK, Status.SHORT) and found is not None and found.last_offset == last_offset

    def _is_time_entry(self, index: Buffer, time_index: Buffer, slot: int) -> bool:
        """Whether the batch that an entry of the time index names has that timestamp, and the next entry follows on it.

        A changed entry may name another batch with the same timestamp; but then the batches in between are older, or have an entry, which
        contradicts this one.
        """
        timestamp, offset = _time(time_index, slot)
        if slot + 1 < len(time_index) // TIME_INDEX_ENTRY_SIZE:
            later, behind = _time(time_index, slot + 1)
            if later <= timestamp or behind <= offset:
                return False
        before = index_search(index, len(index) // INDEX_ENTRY_SIZE, offset)
        position = _position(index, before - 1) if before else 0
        while 0 <= position <= self.size_bytes - HEADER_SIZE_BYTES:
            _, found = header(self._pread(HEADER_SIZE_BYTES, position))
            if found is None or found.last_offset >= self.base_offset + offset:
                return found is not None and (found.last_offset, found.max_timestamp) == (self.base_offset + offset, timestamp)
            position += found.size_bytes
        return False

    def _indexes(self) -> tuple[Buffer, Buffer]:
        """The offset and the time index, from memory or from their files."""
        scanner = self.scanner
        if scanner is not None:
            return scanner.index, scanner.time_index
        file = self.open()
        if file.indexes is None:
            file.indexes = self._load_indexes()
        return file.indexes

    def _load_indexes(self) -> tuple[bytes, bytes]:
        try:
            index, time_index = self._read_indexes(self.size_bytes)
        except FileNotFoundError:
            index = time_index = b""
        except CorruptionError as error:
            logger.warning("%s", error)
            index = time_index = b""
        if path_id(self.io, self.path) not in (None, self.file_id):  # a replacement of segments renames the log first
            raise FileNotFoundError(ENOENT, "another file has its name", self.path)
        if index or self.size_bytes <= self.index_interval_bytes:
            return index, time_index
        rebuilt = self.rebuild_indexes()
        if rebuilt[0]:  # one large batch, or two, have no entry
            logger.warning("%s has no index; made one in memory", self.path)
        return rebuilt

    def _read_indexes(self, log_size_bytes: int) -> tuple[bytes, bytes]:
        """The two index files of a log of so many bytes; raises as ``read_index``."""
        return (
            read_index(self.io, self._index_path(), INDEX_ENTRY_SIZE, log_size_bytes),
            read_index(self.io, self._time_index_path(), TIME_INDEX_ENTRY_SIZE, log_size_bytes),
        )

    def rebuild_indexes(self) -> tuple[bytes, bytes]:
        """Rebuild both indexes from the batches; raises CorruptionError where a batch is damaged."""
        scanner = self._new_scanner(check_crc=False)
        self.scan_to(scanner, self.size_bytes)
        if scanner.position != self.size_bytes:
            raise CorruptionError(self.path, scanner.position, "no whole batch where the log continues")
        scanner.close_time_index()
        return bytes(scanner.index), bytes(scanner.time_index)

    # ------------------------------------------------------------ scanning

    def resume(self, position: int, next_offset: int, *, indexed_to: int | None = None) -> None:
        """Become active again with batches up to ``position``, which ``next_offset`` follows.

        Takes the index files as far as they agree with the log and walks the batch headers from there.  Entries of batches at
        ``indexed_to`` and behind are ignored; None: none is.

        Raises:
            CorruptionError: The headers do not end at ``position`` and ``next_offset``.
        """
        self.saved_bytes, self._untaken_timestamp = (0, 0), -1
        believed = position if indexed_to is None else min(position, indexed_to)
        scanner = self._resume_from_indexes(believed) or self._new_scanner(check_crc=False)
        status = self.scan_to(scanner, position)
        if status is Status.ZERO and scanner.next_offset == next_offset:
            position = scanner.position  # preallocated zeroes, not trimmed yet
        if scanner.position != position or scanner.next_offset != next_offset:
            sound = status in (Status.OK, Status.SHORT)
            reason = "the batches do not lead to the recovery point" if sound else explain(status, scanner)
            raise CorruptionError(
                self.path, scanner.position, f"{reason}; expected offset {next_offset} at byte {position}, got to {scanner.next_offset}"
            )
        self.adopt(scanner)
        if self.writable:
            self._cut_indexes()
            self.indexes_unsynced = True  # the writer of these entries may have died before its sync

    def _cut_indexes(self) -> None:
        """Cut the index files behind the entries taken: the batches of later ones may have been cut."""
        saved, saved_times = self.saved_bytes
        for path, size_bytes in ((self._index_path(), saved), (self._time_index_path(), saved_times)):
            if exists(self.io, path):
                with File(self.io, path, os.O_RDWR) as file:
                    if file.size_bytes() > size_bytes:
                        file.truncate(size_bytes)

    def check_timestamps(self) -> None:
        """After all batches were scanned: rebuild the indexes if the time index file has a timestamp that no batch has.

        A damaged entry may name an offset behind the others: then it was not taken, and the index lacks the right one.

        Raises:
            CorruptionError: The headers do not lead to the end.
        """
        if self._untaken_timestamp > self.max_timestamp:
            logger.warning("%s: timestamp %d is not in the log; the index is rebuilt", self._time_index_path(), self._untaken_timestamp)
            self.resume(self.size_bytes, self.next_offset, indexed_to=0)

    def adopt(self, scanner: Scanner) -> None:
        """Become active with the state of a scan from position 0."""
        self.scanner = scanner
        self.size_bytes, self.next_offset = scanner.position, scanner.next_offset
        self.max_timestamp = scanner.max_timestamp

    def begin_at(self, position: int, next_offset: int) -> None:
        """Become active at a trusted position, without indexes of earlier batches."""
        scanner = self._new_scanner(check_crc=False)
        scanner.position, scanner.next_offset = position, next_offset
        self.adopt(scanner)

    def _resume_from_indexes(self, position: int) -> Scanner | None:
        """A scan that begins at the last valid index entry below ``position``; None without one."""
        try:
            index, time_index = self._read_indexes(position)
        except FileNotFoundError:
            return None
        except CorruptionError as error:
            logger.warning("%s", error)
            return None
        count = bisect_left(range(len(index) // INDEX_ENTRY_SIZE), position, key=lambda slot: _position(index, slot))
        if not count:
            return None
        at, last_offset = _position(index, count - 1), _offset(index, count - 1)
        before = (_position(index, count - 2), _offset(index, count - 2)) if count > 1 else (0, -1)
        rising = at > before[0] and last_offset > before[1]  # an entry that a power cut has zeroed points to the first batch
        if not rising or not self._is_batch(at, self.base_offset + last_offset):
            return None
        time_slots = range(len(time_index) // TIME_INDEX_ENTRY_SIZE)
        times = bisect_right(time_slots, last_offset, key=lambda slot: _int32(time_index, slot * TIME_INDEX_ENTRY_SIZE + 8))
        if times and not self._is_time_entry(index[: count * INDEX_ENTRY_SIZE], time_index[: times * TIME_INDEX_ENTRY_SIZE], times - 1):
            logger.warning("%s: entry %d is wrong; rebuilt from the log", self._time_index_path(), times - 1)
            return None
        self._untaken_timestamp = max((_time(time_index, slot)[0] for slot in time_slots[times:]), default=-1)
        base_offset = int.from_bytes(self._pread(8, at), "big")
        self.saved_bytes = count * INDEX_ENTRY_SIZE, times * TIME_INDEX_ENTRY_SIZE
        scanner = self._new_scanner(check_crc=False)
        scanner.next_offset, scanner.position = base_offset, at
        scanner.resume(index[: count * INDEX_ENTRY_SIZE], time_index[: times * TIME_INDEX_ENTRY_SIZE])
        return scanner

    def _new_scanner(self, *, check_crc: bool) -> Scanner:
        return Scanner(
            segment_base_offset=self.base_offset,
            check_crc=check_crc,
            gaps=not check_crc,
            index_interval_bytes=self.index_interval_bytes,
        )

    def scan_to(self, scanner: Scanner, stop: int) -> Status:
        """Advance ``scanner`` to ``stop``, or to the first batch that is not whole and good.

        Returns the status of that batch, OK at ``stop``; SHORT also if the file ends first.
        """
        size_bytes = buffers.READ_SIZE_BYTES
        file = self.open()
        while scanner.position < stop:
            view, position = memoryview(buffers.take(size_bytes)), scanner.position
            read = file.fill(view[: min(size_bytes, stop - position)], position)
            status = scanner.scan(view, read)
            if scanner.used:
                continue
            _, found = header(view[:read])
            if status is not Status.SHORT or found is None or position + found.size_bytes > stop or read < min(size_bytes, stop - position):
                return status
            size_bytes = found.size_bytes
        return Status.OK

    def _pread(self, size_bytes: int, position: int) -> bytes:
        """New bytes from the file; fewer only at its end.

        The record iterator calls it for point reads.
        """
        file = self.file or self.open()
        file.used = True
        return file.read(size_bytes, position)

    def _path_of(self, kind: str) -> str:
        return self.path.removesuffix(self.suffix)[: -len("log")] + kind + self.suffix

    def _index_path(self) -> str:
        return self._path_of("index")

    def _time_index_path(self) -> str:
        return self._path_of("timeindex")


def _int32(buffer: Buffer, at: int) -> int:
    return int.from_bytes(buffer[at : at + 4], "big")


def _time(time_index: Buffer, slot: int) -> tuple[int, int]:
    """Timestamp, and the offset less the segment's base offset."""
    at = slot * TIME_INDEX_ENTRY_SIZE
    return int.from_bytes(time_index[at : at + 8], "big", signed=True), _int32(time_index, at + 8)


def _position(index: Buffer, slot: int) -> int:
    position: int = _ENTRY.unpack_from(index, slot * INDEX_ENTRY_SIZE)[1]
    return position


def _offset(index: Buffer, slot: int) -> int:
    """Less the segment's base offset."""
    offset: int = _ENTRY.unpack_from(index, slot * INDEX_ENTRY_SIZE)[0]
    return offset


def _read_size(size_bytes: int) -> int:
    return min(max(size_bytes, HEADER_SIZE_BYTES), buffers.READ_SIZE_BYTES)
