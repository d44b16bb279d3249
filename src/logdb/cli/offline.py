"""Files of a partition, read without opening the database: batches, records, index entries.

Continues behind damage.  Without the catalogue it cannot know which files belong to a log, nor where the log ends; ``verify``
can.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import iter_unpack
from typing import BinaryIO, NamedTuple

from logdb.codec import Header, Record, RecordIterator, Status, check, convert, explain, find_batch, header, records_check
from logdb.codec.batch import HEADER_SIZE_BYTES
from logdb.errors import InvalidBatch
from logdb.model import OFFSET_MAX

DECOMPRESSED_SIZE_BYTES_MAX = 1 << 30
_SEARCH_SIZE_BYTES = 32 << 20
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
    with open(path, "rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
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


def _batch_at(file: BinaryIO, position: int, size_bytes: int) -> Batch | tuple[Status, str]:
    """The batch at ``position``, or the reason why there is none."""
    status, found = header(_pread(file, HEADER_SIZE_BYTES, position))
    if found is None:
        return Status.SHORT, f"{size_bytes - position} bytes are fewer than a batch header has"
    if status not in (Status.OK, Status.SHORT):
        return status, explain(status, found)
    if position + found.size_bytes > size_bytes:
        return Status.SHORT, f"a batch of {found.size_bytes} bytes, of which the file has {size_bytes - position}"
    data = _pread(file, found.size_bytes, position)
    status, _, computed_crc = check(data)
    if status is Status.CRC and position + found.size_bytes < size_bytes:
        # the next header shows whether this length is true
        after, _ = header(_pread(file, HEADER_SIZE_BYTES, position + found.size_bytes))
        if after not in (Status.OK, Status.SHORT, Status.ZERO):
            return status, explain(status, found, computed_crc=computed_crc)
    return Batch(position, found, data, status, computed_crc)


def _find_next(file: BinaryIO, position: int, size_bytes: int) -> int:
    """The position of the next whole batch behind ``position``; the size of the file without one."""
    begin = position + 1
    while begin < size_bytes:
        window = _pread(file, _SEARCH_SIZE_BYTES, begin)
        found = find_batch(window, size_bytes_max=_SEARCH_BATCH_SIZE_BYTES_MAX)
        if found >= 0:
            return begin + found
        if begin + len(window) >= size_bytes:
            break
        begin += _SEARCH_SIZE_BYTES - _SEARCH_BATCH_SIZE_BYTES_MAX
    return size_bytes


def _is_zero(file: BinaryIO, position: int) -> bool:
    while part := _pread(file, 1 << 20, position):
        if part.count(0) != len(part):
            return False
        position += len(part)
    return True


def _pread(file: BinaryIO, size_bytes: int, position: int) -> bytes:
    file.seek(position)
    return file.read(size_bytes)


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


def read_index(path: str) -> list[IndexEntry]:
    """Entries of an ``.index`` file, without preallocated zeroes."""
    base, data = base_offset_of(path), _whole_entries(path, 8)
    entries = [IndexEntry(base + offset, position) for offset, position in iter_unpack(">ii", data)]
    used = next((number for number, entry in enumerate(entries) if number and entry == (base, 0)), len(entries))
    return entries[:used]


def read_time_index(path: str) -> list[TimeIndexEntry]:
    """Entries of a ``.timeindex`` file, without preallocated zeroes."""
    base, data = base_offset_of(path), _whole_entries(path, 12)
    entries = [TimeIndexEntry(timestamp, base + offset) for timestamp, offset in iter_unpack(">qi", data)]
    used = next((number for number, entry in enumerate(entries) if number and entry == (0, base)), len(entries))
    return entries[:used]


def _whole_entries(path: str, entry_size_bytes: int) -> bytes:
    with open(path, "rb") as file:
        data = file.read()
    return data[: len(data) - len(data) % entry_size_bytes]


def check_sanity(path: str) -> list[str]:
    """The problems of an index file by itself: its size, or entries that do not increase."""
    time_index = path.endswith(".timeindex")
    entry_size_bytes = 12 if time_index else 8
    problems = []
    if extra := os.path.getsize(path) % entry_size_bytes:
        problems.append(f"{os.path.getsize(path)} bytes are not whole entries of {entry_size_bytes}: {extra} too many")
    base = base_offset_of(path)
    entries: Sequence[IndexEntry | TimeIndexEntry] = read_time_index(path) if time_index else read_index(path)
    for number, (before, after) in enumerate(pairwise(entries), 1):
        # the last time entry may repeat a timestamp: it is written once more when a segment is sealed
        if not (before[0] <= after[0] and before[1] <= after[1] if time_index else before[0] < after[0] and before[1] < after[1]):
            problems.append(f"entry {number} {tuple(after)} does not follow {tuple(before)}")
    if entries and entries[0].offset < base:
        problems.append(f"entry 0 has offset {entries[0].offset}, before the segment's base offset {base}")
    return problems


def check_index(path: str) -> list[str]:
    """The entries of an index file that contradict the log beside it.

    Source: Kafka's DumpLogSegments: an entry names the last offset of the
    batch at its position; a time entry the largest timestamp up to the batch that holds its offset.
    """
    log_path = path.rsplit(".", 1)[0] + ".log"
    if not os.path.exists(log_path):
        return [f"there is no {log_path} to compare it with"]
    # headers only: a segment may have more bytes than there is memory
    batches = [(b.position, b.header) for b in read_batches(log_path) if isinstance(b, Batch) and b.status is Status.OK]
    if path.endswith(".timeindex"):
        return _check_time_index(read_time_index(path), [head for _, head in batches])
    last_offsets = {position: head.last_offset for position, head in batches}
    problems = []
    for number, entry in enumerate(read_index(path)):
        last_offset = last_offsets.get(entry.position)
        if last_offset is None:
            problems.append(f"entry {number}: no batch begins at its position {entry.position}")
        elif last_offset != entry.offset:
            problems.append(f"entry {number}: index offset {entry.offset}, log offset {last_offset}, at position {entry.position}")
    return problems


def _check_time_index(entries: Sequence[TimeIndexEntry], batches: Sequence[Header]) -> list[str]:
    last_offsets = [batch.last_offset for batch in batches]
    problems = []
    for number, (timestamp, offset) in enumerate(entries):
        slot = bisect_left(last_offsets, offset)
        if slot == len(batches):
            problems.append(f"entry {number}: no batch holds its offset {offset}")
        elif (found := batches[slot].max_timestamp) != timestamp:
            problems.append(f"entry {number}: index timestamp {timestamp}, log timestamp {found}, at offset {offset}")
    return problems
