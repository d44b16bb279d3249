"""A batch builder that writes into memory and can be told to fail, and a plain decoder of what it wrote."""

import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from logdb._native._hot import FSYNC, BatchBuilder
from logdb.codec import crc32c
from support.batches import HEADER


class Row(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Batch(NamedTuple):
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    size_bytes: int
    rows: list[Row]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = data[at]
        zigzag |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (zigzag >> 1) ^ -(zigzag & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _row(data: bytes, base_offset: int, base_timestamp: int) -> Row:
    assert data[0] == 0, "attributes of a record"
    timestamp, at = _varint(data, 1)
    offset, at = _varint(data, at)
    key, at = _bytes(data, at)
    value, at = _bytes(data, at)
    count, at = _varint(data, at)
    headers = []
    for _ in range(count):
        name, at = _bytes(data, at)
        content, at = _bytes(data, at)
        assert name is not None
        headers.append((name, content))
    assert at == len(data), "bytes after the last header"
    return Row(base_offset + offset, base_timestamp + timestamp, key, value, tuple(headers))


def decode(data: bytes | bytearray) -> list[Batch]:
    """The batches that lie back to back in ``data``; everything that a header states is checked."""
    data, at, batches = bytes(data), 0, []
    while at < len(data):
        fields = HEADER.unpack_from(data, at)
        base_offset, length, epoch, magic, crc, attributes, last_delta, base_timestamp, max_timestamp, *producer, count = fields
        end = at + 12 + length
        assert (magic, producer) == (2, [-1, -1, -1])
        assert crc == crc32c(data[at + 21 : end])
        rows, record_at = [], at + HEADER.size
        while record_at < end:
            size, record_at = _varint(data, record_at)
            rows.append(_row(data[record_at : record_at + size], base_offset, base_timestamp))
            record_at += size
        assert record_at == end and count == len(rows)
        deltas = [row.offset - base_offset for row in rows]
        assert deltas == sorted(set(deltas) & set(range(last_delta + 1))), "offsets"
        batches.append(Batch(base_offset, epoch, attributes, base_offset + last_delta, base_timestamp, max_timestamp, end - at, rows))
        at = end
    return batches


class Rejected(Exception):
    """What a builder refused, as it came to the hook."""


class Sink(BatchBuilder):
    """Collects what is written in ``out`` and what is called in ``calls``.

    ``failures`` is an iterator asked at each write: an exception in it is raised.
    """

    def __init__(self, *, failures: Iterator[Exception | None] | None = None, **options: Any) -> None:
        defaults = {"next_offset": 0, "leader_epoch": 0, "batch_size": 1000, "write_size": 4000, "group_size": 16_000, "clock": None}
        super().__init__(**defaults | {name: options.pop(name) for name in list(options) if name in defaults})
        self._configure(**options)
        self.out = bytearray()
        self.calls: list[tuple[Any, ...]] = []
        self.failures = failures
        self.written_ms: list[int] = []

    def _write(self, batches: memoryview, base_offset: int, next_offset: int, now_ms: int) -> None:
        if self.failures is not None and (error := next(self.failures, None)) is not None:
            raise error
        self.calls.append(("write", base_offset, next_offset, len(batches)))
        self.written_ms.append(now_ms)
        self.out += batches

    def _woken(self) -> None:
        self.calls.append(("woken",))

    def _commit(self, next_offset: int, level: int) -> None:
        self.calls.append(("commit", next_offset, level))
        if level == FSYNC:
            self._drain()

    def _end_fsync_only(self) -> None:
        self.calls.append(("end_fsync_only",))
        self._configure(fsync_only=False)

    def _reject(self, reason: str, *numbers: int) -> None:
        raise Rejected(reason, *numbers)

    def batches(self) -> list[Batch]:
        """What was written, after a drain."""
        self._drain()
        return decode(self.out)

    def rows(self) -> list[Row]:
        return [row for batch in self.batches() for row in batch.rows]

    def called(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]


def place(data: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Batches with the offsets and the epoch that a log gives them."""
    out, at = bytearray(data), 0
    while at < len(out):
        struct.pack_into(">q", out, at, base_offset)
        struct.pack_into(">i", out, at + 12, leader_epoch)
        base_offset += struct.unpack_from(">i", out, at + 23)[0] + 1
        at += struct.unpack_from(">i", out, at + 8)[0] + 12
    return bytes(out)


def raw(sink: Sink, data: bytes, span: int, **options: Any) -> range:
    """Append raw batches, as a log does."""
    buffer = sink._buffer(len(data))
    buffer[: len(data)] = data
    return sink._append_raw(buffer, len(data), span, **options)


NOW = 1_700_000_000_000


def at_now() -> int:
    return NOW


def fail(*tries: int) -> Iterator[Exception | None]:
    """Failures at the writes numbered, from 0."""
    return (OSError(28, f"write {n}") if n in tries else None for n in itertools.count())
