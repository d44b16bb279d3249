"""Files of a partition, read without opening the database: batches, records, index entries.

Continues behind damage.  Without the catalogue it cannot know which files belong to a log, nor where the log ends; ``verify``
can.
"""

import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from logdb.codec import Header, Record, RecordIterator, Status, check, convert, crc32c, explain, find_batch, header, records_check
from logdb.codec.batch import CRC_FROM, HEADER_SIZE_BYTES
from logdb.disk import File
from logdb.errors import InvalidBatch
from logdb.io import IO
from logdb.model import OFFSET_MAX

DECOMPRESSED_SIZE_BYTES_MAX = 1 << 30
_SEARCH_SIZE_BYTES = 32 << 20
_TRUSTED_SIZE_BYTES_MAX = 64 << 20  # a longer batch is read into memory only if its CRC proves its length
_PIECE_ENTRY_COUNT = 1 << 16  # of an index file in memory
_NO_BATCH = -1, None
_SEARCH_BATCH_SIZE_BYTES_MAX = 16 << 20  # behind damage, a larger batch may be missed


class Batch(NamedTuple):
    """One batch with a valid header; ``status`` is OK or the first problem with it."""

    position: int
    header: Header
    data: bytes
    status: Status
    computed_crc: int


class Gap(NamedTuple):
    """Bytes that are not a batch: zeroes up to the end of the file (preallocated), a batch cut off there, or damage."""

    position: int
    size_bytes: int
    status: Status
    reason: str
    at_end: bool


class IndexEntry(NamedTuple):
    """One entry of an offset index: the batch at ``position`` ends with ``offset``."""

    offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """One entry of a time index: up to the batch that holds ``offset``, no timestamp is larger."""

    timestamp: int
    offset: int


# ---------------------------------------------------------------- log files


def read_batches(path: str) -> Iterator[Batch | Gap]:
    """The content of a ``.log`` file, in order; damage is reported and skipped, up to the next whole batch."""
    with File(IO(), path, os.O_RDONLY) as file:
        size_bytes = file.size_bytes()
        position = 0
        while position < size_bytes:
            found = _batch_at(file, position, size_bytes)
            if isinstance(found, Batch):
                yield found
                position += found.header.size_bytes
                continue
            status, reason = found
            beyond = _find_next(file, position, size_bytes)
            if status is Status.ZERO and not (beyond == size_bytes and _is_zero(file, position)):
                reason = f"zeroes where a batch should be, and {'batches' if beyond < size_bytes else 'other bytes'} behind them"
                status = Status.MAGIC
            yield Gap(position, beyond - position, status, reason, beyond == size_bytes)
            position = beyond


def _batch_at(file: File, position: int, size_bytes: int) -> Batch | tuple[Status, str]:
    """The batch at ``position``, or the reason why there is none."""
    status, found = header(file.read(HEADER_SIZE_BYTES, position))
    if found is None:
        return Status.SHORT, f"{size_bytes - position} bytes are fewer than a batch header has"
    if status not in (Status.OK, Status.SHORT):
        return status, explain(status, found)
    if position + found.size_bytes > size_bytes:
        return Status.SHORT, f"a batch of {found.size_bytes} bytes, of which the file has {size_bytes - position}"
    if found.size_bytes > _TRUSTED_SIZE_BYTES_MAX and (crc := _crc(file, position, found)) != found.crc:
        data, status, computed_crc = b"", Status.CRC, crc
    else:
        data = file.read(found.size_bytes, position)
        status, _, computed_crc = check(data)
    if status is Status.CRC and position + found.size_bytes < size_bytes:
        # the next header shows whether this length is true
        after, _ = header(file.read(HEADER_SIZE_BYTES, position + found.size_bytes))
        if after not in (Status.OK, Status.SHORT, Status.ZERO):
            return status, explain(status, found, computed_crc=computed_crc)
    return Batch(position, found, data, status, computed_crc)


def _find_next(file: File, position: int, size_bytes: int) -> int:
    """The position of the next whole batch behind ``position``; the size of the file without one."""
    begin = position + 1
    while begin < size_bytes:
        window = file.read(_SEARCH_SIZE_BYTES, begin)
        found = find_batch(window, size_bytes_max=_SEARCH_BATCH_SIZE_BYTES_MAX)
        if found >= 0:
            return begin + found
        if begin + len(window) >= size_bytes:
            break
        begin += _SEARCH_SIZE_BYTES - _SEARCH_BATCH_SIZE_BYTES_MAX
    return size_bytes


def _is_zero(file: File, position: int) -> bool:
    return all(piece.count(0) == len(piece) for piece in file.pieces(1 << 20, position))


def _crc(file: File, position: int, head: Header) -> int:
    """The CRC of a batch, of which only a piece is in memory at a time."""
    crc = 0
    for piece in file.pieces(1 << 20, position + CRC_FROM, stop=position + head.size_bytes):
        crc = crc32c(piece, crc)
    return crc


def read_records(batch: Batch) -> list[Record]:
    """The records of a batch with a good CRC, decompressed; without control records.

    Raises:
        InvalidBatch: They cannot be decompressed, or contradict the header.
        CodecMissing: The codec's package is not installed.
    """
    image = convert.decompress_batches(memoryview(batch.data), DECOMPRESSED_SIZE_BYTES_MAX)
    status = records_check(image[HEADER_SIZE_BYTES:], batch.header)
    if status is not Status.OK:
        raise InvalidBatch(batch.position, explain(status, batch.header))
    return list(RecordIterator(lambda _begin, _end: iter([image]), batch.header.base_offset, OFFSET_MAX, "", 0))


# ---------------------------------------------------------------- index files


def base_offset_of(path: str) -> int:
    """The base offset in the name of a segment's file.

    Raises:
        ValueError: It is not such a name.
    """
    stem = os.path.basename(path).split(".")[0]
    if len(stem) != 20 or not stem.isdigit():
        raise ValueError(f"{path} is not named after an offset of 20 digits")
    return int(stem)


def read_index(path: str) -> Iterator[IndexEntry]:
    """Entries of an ``.index`` file, without preallocated zeroes."""
    base = base_offset_of(path)
    for number, (offset, position) in enumerate(_entries(path, ">ii")):
        if number and (offset, position) == (0, 0):
            return
        yield IndexEntry(base + offset, position)


def read_time_index(path: str) -> Iterator[TimeIndexEntry]:
    """Entries of a ``.timeindex`` file, without preallocated zeroes."""
    base = base_offset_of(path)
    for number, (timestamp, offset) in enumerate(_entries(path, ">qi")):
        if number and (timestamp, offset) == (0, 0):
            return
        yield TimeIndexEntry(timestamp, base + offset)


def _entries(path: str, form: str) -> Iterator[tuple[int, int]]:
    """The whole entries of a file, of which only a piece is in memory at a time."""
    entry = Struct(form)
    with File(IO(), path, os.O_RDONLY) as file:
        for piece in file.pieces(entry.size * _PIECE_ENTRY_COUNT):
            yield from entry.iter_unpack(piece[: len(piece) - len(piece) % entry.size])


def check_sanity(path: str) -> Iterator[str]:
    """The problems of an index file by itself: its size, or entries that do not increase."""
    time_index = path.endswith(".timeindex")
    entry_size_bytes = 12 if time_index else 8
    with File(IO(), path, os.O_RDONLY) as file:
        size_bytes = file.size_bytes()
    if extra := size_bytes % entry_size_bytes:
        yield f"{size_bytes} bytes are not whole entries of {entry_size_bytes}: {extra} too many"
    base = base_offset_of(path)
    before: IndexEntry | TimeIndexEntry | None = None
    found: Iterator[IndexEntry | TimeIndexEntry] = read_time_index(path) if time_index else read_index(path)
    for number, after in enumerate(found):
        # the last time entry may repeat a timestamp: it is written once more when a segment is sealed
        if before is None:
            if after.offset < base:
                yield f"entry 0 has offset {after.offset}, before the segment's base offset {base}"
        elif not (before[0] <= after[0] and before[1] <= after[1] if time_index else before[0] < after[0] and before[1] < after[1]):
            yield f"entry {number} {tuple(after)} does not follow {tuple(before)}"
        before = after


def check_index(path: str) -> Iterator[str]:
    """The entries of an index file that contradict the log beside it.  Entries out of order are problems of ``check_sanity``.

    Source: Kafka's DumpLogSegments: an entry names the last offset of the
    batch at its position; a time entry the largest timestamp up to the batch that holds its offset.
    """
    log_path = path.rsplit(".", 1)[0] + ".log"
    if not os.path.exists(log_path):
        yield f"there is no {log_path} to compare it with"
        return
    # one batch at a time: a segment may have more bytes, or batches, than there is memory
    batches = ((b.position, b.header) for b in read_batches(log_path) if isinstance(b, Batch) and b.status is Status.OK)
    yield from _check_time_index(path, batches) if path.endswith(".timeindex") else _check_offset_index(path, batches)


def _check_offset_index(path: str, batches: Iterator[tuple[int, Header]]) -> Iterator[str]:
    here, head = next(batches, _NO_BATCH)
    reached = 0
    for number, entry in enumerate(read_index(path)):
        if entry.position < reached:
            continue
        reached = entry.position
        while head is not None and here < entry.position:
            here, head = next(batches, _NO_BATCH)
        if head is None or here != entry.position:
            yield f"entry {number}: no batch begins at its position {entry.position}"
        elif head.last_offset != entry.offset:
            yield f"entry {number}: index offset {entry.offset}, log offset {head.last_offset}, at position {entry.position}"


def _check_time_index(path: str, batches: Iterator[tuple[int, Header]]) -> Iterator[str]:
    _, head = next(batches, _NO_BATCH)
    reached = 0
    for number, (timestamp, offset) in enumerate(read_time_index(path)):
        if offset < reached:
            continue
        reached = offset
        while head is not None and head.last_offset < offset:
            _, head = next(batches, _NO_BATCH)
        if head is None:
            yield f"entry {number}: no batch holds its offset {offset}"
        elif head.max_timestamp != timestamp:
            yield f"entry {number}: index timestamp {timestamp}, log timestamp {head.max_timestamp}, at offset {offset}"
