"""Kafka's ``.txnindex``: the aborted transactions whose marker is in one segment.  Format: docs/inside/format.md, "Aborted transactions".

While the segment is active, entries are kept in memory and saved at checkpoints.  A sealed segment's are read when needed; the
catalogue has their count and CRC.  At an opening, the producer snapshot has those of the active segment; entries behind the
snapshot's offset are found in the log.

Threading: one writer at a time (the log's); any number of readers, since ``_data`` is only ever replaced.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from logdb.codec import crc32c
from logdb.disk import exists, read_while, replace_file
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.model import SEGMENT_SIZE_BYTES_MAX, AbortedTransaction

SUFFIX = ".txnindex"
ENTRY_SIZE_BYTES = 34
_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">18xq8x")


class TransactionIndex:
    """The aborted transactions of one segment, by the offset of their marker."""

    __slots__ = ("_data", "_io", "_noted", "_path", "unsaved")

    def __init__(self, io: IO, path: str) -> None:
        self._io, self._path = io, path
        self._data: bytes | None = b""
        self._noted: tuple[int, int] | None = None  # expected count and CRC of a file that is not loaded; None: unknown
        self.unsaved = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._data != b""

    # ------------------------------------------------------------ what there is

    def expect(self, count: int, crc: int) -> None:
        """The segment is sealed with these count and CRC: the entries are read when needed."""
        self._noted, self._data = (count, crc), None if count else b""

    def search(self, offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap [offset, end_offset), and whether later segments can have no more of them.

        Raises:
            CorruptionError: The file does not have the expected count and CRC.

        Source: Kafka's TransactionIndex.collectAbortedTxns.
        """
        data, found = self._loaded(), []
        for entry in entries(data[_size_below(data, offset) :]):
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def entries(self) -> list[AbortedTransaction]:
        """All entries, by marker; raises CorruptionError as ``search``."""
        return [AbortedTransaction(*numbers) for _, *numbers in _ENTRY.iter_unpack(self._loaded())]

    def checksum(self) -> tuple[int, int]:
        """Count of the entries, and CRC-32C of the file that holds them; 0 and 0 without any."""
        return summary(self._loaded())

    def below(self, offset: int) -> bytes:
        """The file's content if the log ended at ``offset``; raises CorruptionError."""
        return below(self._loaded(), offset)

    def _loaded(self) -> bytes:
        data = self._data
        if data is None:
            data = load(self._io, self._path)
            if self._noted is None:
                raise CorruptionError(self._path, 0, f"{len(data) // ENTRY_SIZE_BYTES} entries without a checksum to compare with")
            compare(self._path, summary(data), self._noted, "the catalogue")
            self._data = data
        return data

    # ------------------------------------------------------------ changes

    def load_below(self, offset: int, count: int, crc: int) -> None:
        """Load the entries of markers below ``offset``; the others must be found in the log.

        Args:
            count, crc: The summary of these entries in a producer snapshot.

        Raises:
            CorruptionError: The entries differ from it, or the file contradicts itself.  Searches raise it too, until ``rebuilt``.
        """
        self._data = self._noted = None
        data = load(self._io, self._path)
        known = below(data, offset)
        compare(self._path, summary(known), (count, crc), f"the snapshot of producers at offset {offset}")
        self._data, self.unsaved = known, len(known) != len(data)

    def add(self, entry: AbortedTransaction) -> None:
        """Add a marker behind all others; ignored if it is present already."""
        data = self._loaded()
        if not data or _last_offset(data, len(data) // ENTRY_SIZE_BYTES - 1) < entry.last_offset:
            self._data, self.unsaved = data + _ENTRY.pack(0, *entry), True

    def rebuilt(self, found: Iterable[AbortedTransaction]) -> None:
        """Take these entries, found in the log, instead of a file with a wrong checksum."""
        self._data = encode(found)

    def save(self) -> None:
        """Save the file, atomically: it never has less than a producer snapshot relies on.

        Raises:
            DiskFull, WriteFailed, SyncFailed: as ``replace_file``.
        """
        self.unsaved = False  # set again by the next marker
        data = self._loaded()
        try:
            if data or exists(self._io, self._path):
                replace_file(self._io, self._path, data)
        except BaseException:
            self.unsaved = True
            raise


def summary(data: bytes) -> tuple[int, int]:
    """Count of a file's entries, and its CRC-32C; 0 and 0 without entries."""
    return len(data) // ENTRY_SIZE_BYTES, crc32c(data)


def encode(found: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(0, *entry) for entry in found)


def entries(data: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a whole file, or of its end."""
    return (AbortedTransaction(*numbers) for _, *numbers in _ENTRY.iter_unpack(data))


def load(io: IO, path: str) -> bytes:
    """The entries in a file; none where there is no file.

    Raises:
        CorruptionError: As ``check``.
    """
    try:
        return read(io, path)
    except FileNotFoundError:
        return b""


def read(io: IO, path: str) -> bytes:
    """The entries in a file, each piece checked before the next one is read.

    Raises:
        FileNotFoundError: There is none.
        CorruptionError: As ``check``.
    """
    position, before = 0, -1

    def is_sound(piece: bytes) -> bool:
        nonlocal position, before
        before = _check(piece, path, position, before)
        position += len(piece)
        return True

    return read_while(io, path, SEGMENT_SIZE_BYTES_MAX, is_sound)


def check(data: bytes, path: str) -> None:
    """Check the form of a file.

    Raises:
        CorruptionError: It has a partial entry, or entries that are not in the order of their markers.
    """
    _check(data, path, 0, -1)


def _check(data: bytes, path: str, position: int, before: int) -> int:
    """Check the bytes of a file from ``position`` on, where ``before`` is the last marker below it; returns the last marker."""
    if len(data) % ENTRY_SIZE_BYTES:
        size_bytes = position + len(data)
        raise CorruptionError(path, size_bytes, f"{size_bytes} bytes are no whole entries of {ENTRY_SIZE_BYTES}")
    for at, (version, producer_id, first, last, stable) in enumerate(_ENTRY.iter_unpack(data)):
        if version != 0 or producer_id < 0 or not (0 <= first <= last and before < last) or stable < 0:
            numbers = f"version {version}, producer {producer_id}, offsets {first} to {last} after {before}, stable {stable}"
            raise CorruptionError(path, position + at * ENTRY_SIZE_BYTES, f"an invalid entry: {numbers}")
        before = last
    return before


def below(data: bytes, offset: int) -> bytes:
    """The entries of a whole file whose marker is below ``offset``."""
    return data[: _size_below(data, offset)]


def _size_below(data: bytes, offset: int) -> int:
    return ENTRY_SIZE_BYTES * bisect_left(range(len(data) // ENTRY_SIZE_BYTES), offset, key=lambda at: _last_offset(data, at))


def compare(path: str, found: tuple[int, int], wanted: tuple[int, int], witness: str) -> None:
    """Compare two summaries; raises CorruptionError if they differ."""
    if found != wanted:
        form = "{} entries with CRC {:08x}"
        raise CorruptionError(path, 0, f"{form.format(*found)}; {witness} says {form.format(*wanted)}")


def _last_offset(data: bytes, slot: int) -> int:
    offset: int = _LAST_OFFSET.unpack_from(data, slot * ENTRY_SIZE_BYTES)[0]
    return offset
