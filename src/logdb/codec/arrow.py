"""Records as a stream of Arrow batches of about 64 k rows.

Chunks of record batches are collected in units.  A unit is decompressed and decoded as a whole.  If there is more than one compressed
unit of large record batches, several threads do that, while the caller's thread reads the next one.  At most ``_THREAD_COUNT`` units wait
in memory.

pyarrow is imported by the first call.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from logdb.codec import convert
from logdb.codec.batch import BATCH_SIZE_BYTES_MAX, CODEC_MASK, CONTROL, HEADER_SIZE_BYTES, attributes_at, set_uncompressed
from logdb.codec.columns import COLUMNS, NAMES, ColumnReader, count_rows, import_pyarrow, schema
from logdb.codec.typed_values import ValueSchema, typed_values
from logdb.errors import Closed, InvalidBatch, SerializationError, ThreadUnavailable
from logdb.model import Buffer
from logdb.pools import Pool

if TYPE_CHECKING:
    import pyarrow

__all__ = ["COLUMNS", "ValueSchema", "import_pyarrow", "record_batches", "schema", "topic_batches", "typed_batches"]

_ROWS = 1 << 16  # of an Arrow batch, about
_UNIT_SIZE_BYTES = 4 << 20  # of record batches as they are stored
_IMAGES_SIZE_BYTES = 16 << 20  # of decompressed record batches that become one Arrow batch
_DECODED_SIZE_BYTES = 64 << 20  # that a unit may hold decoded before its batches are taken
_THREADED_SIZE_BYTES = 16 << 10  # of a record batch as it is stored: with smaller ones threads wait for each other longer than they gain
_CPU_COUNT = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_THREAD_COUNT = min(4, _CPU_COUNT)


class _Threads:
    """The threads of all iterations; a forked child starts its own."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.pool = Pool(_THREAD_COUNT, "logdb-arrow")


_threads = _Threads()
os.register_at_fork(after_in_child=_threads.renew)


def record_batches(
    chunks: Iterable[Buffer],
    from_offset: int,
    to_offset: int,
    columns: Sequence[str] | None = None,
    *,
    size_bytes_max: int = BATCH_SIZE_BYTES_MAX,
    use_threads: bool = True,
) -> "pyarrow.RecordBatchReader":
    """Records with offsets in [``from_offset``, ``to_offset``) as Arrow batches of about 64 k rows.  Control records are left out.

    An Arrow batch has fewer rows where its columns would be larger than 2^31 bytes, its record batches than 4 MiB as they are stored, or
    than 16 MiB decompressed.

    Args:
        chunks: uint8[n] each, checked batches back to back, of any codec, less than 4 GiB; borrowed until the next one is asked for.
        columns: Any of ``COLUMNS``, and ``timestamp_type``, in any order; None: ``COLUMNS``.
        size_bytes_max: Limit of the decompressed records of one batch.
        use_threads: Decode in several threads.

    Raises:
        ValueError: See ``schema``; raised by the call, not by the first batch.
        InvalidBatch: Records contradict themselves behind a good CRC, or cannot be decompressed.  The reader gives the batches before.
    """
    kinds = schema(columns)
    decoder = _Decoder(kinds, from_offset, to_offset, size_bytes_max)
    units = _units(decoder.collector, chunks, from_offset, to_offset)
    parallel = use_threads and _CPU_COUNT > 1
    found = _in_threads(decoder, units) if parallel else (batch for unit in units for batch in decoder.batches(unit, 0))
    return import_pyarrow().RecordBatchReader.from_batches(kinds, found)


def topic_batches(
    topic: str,
    parts: "Iterable[tuple[int, Callable[[Sequence[str]], pyarrow.RecordBatchReader]]]",
    columns: Sequence[str] | None = None,
    values: ValueSchema | None = None,
    *,
    allowed: Sequence[str] = ("partition", *NAMES),
) -> "pyarrow.RecordBatchReader":
    """The batches of several partitions, one partition after the other, with a column ``partition``.

    Args:
        topic: For errors.
        parts: Each partition's number, and what makes a reader of it with the columns that it is given.
        columns: As ``record_batches``, and ``partition``; None: ``partition`` and ``COLUMNS``, with ``values`` without the value.
        values: Columns to make of values.
        allowed: What ``columns`` may name.

    Raises:
        ValueError: An unknown column, or one given twice; raised by the call.
        SerializationError: From the reader: a value does not fit ``values``.
    """
    pa = import_pyarrow()
    if columns is None:
        columns = ["partition", *(name for name in COLUMNS if values is None or name != "value")]
    names = list(columns)
    inner = [name for name in names if name != "partition"]
    wanted = inner or ["offset"]
    typed = None if values is None else typed_values(values, wanted)
    fields = [] if typed is None else [field.name for field in typed.fields]
    _check_names(names, fields, allowed)
    kinds = {field.name: field for field in (schema(inner) if inner else ())}
    kinds["partition"] = pa.field("partition", pa.int32(), nullable=False)

    def batches() -> "Iterator[pyarrow.RecordBatch]":
        for number, read in parts:
            for batch in read(wanted if typed is None else typed.source_columns):
                given = {name: batch.column(name) for name in inner}
                given["partition"] = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
                try:
                    made = [] if typed is None else typed.columns(batch)
                except SerializationError as error:
                    raise SerializationError(f"{topic}-{number}: {error}") from None
                yield pa.RecordBatch.from_arrays([*(given[name] for name in names), *made], schema=result)

    result = pa.schema([*(kinds[name] for name in names), *(() if typed is None else typed.fields)])
    return pa.RecordBatchReader.from_batches(result, batches())


def _check_names(names: Sequence[str], fields: Sequence[str], allowed: Sequence[str]) -> None:
    """Raises ValueError unless each name is a column of records, and no name of a column of the result is there twice."""
    for name in names:
        if name in fields and name not in allowed:
            raise ValueError(f"columns={list(names)!r}: {name!r} is a field of schema; leave it out: all fields come behind columns")
        if name not in allowed:
            raise ValueError(f"unknown column {name!r}; columns are {', '.join(allowed)}")
    if len({*names, *fields}) != len(names) + len(fields):
        raise ValueError(f"columns={list(names)!r} and schema={list(fields)!r}: name each column once")


def typed_batches(
    topic: str,
    partition: int,
    read: "Callable[[Sequence[str]], pyarrow.RecordBatchReader]",
    columns: Sequence[str] | None,
    values: ValueSchema,
) -> "pyarrow.RecordBatchReader":
    """As ``topic_batches``, of one partition and without its number."""
    names = [name for name in COLUMNS if name != "value"] if columns is None else list(columns)
    return topic_batches(topic, [(partition, read)], names, values, allowed=NAMES)


class _Unit(NamedTuple):
    """Record batches in a buffer that the unit owns; ``codecs``: 1 << the number of each."""

    buffer: bytearray
    size_bytes: int
    codecs: int

    @property
    def batches(self) -> memoryview:
        return memoryview(self.buffer)[: self.size_bytes]


class _Collector:
    """Copies chunks into units.  Threading: one thread, that of the iteration.

    ``spare``: buffers of former units, because the first touch of new memory is slower than the copy.
    """

    def __init__(self) -> None:
        self.spare: list[bytearray] = []
        self._begin()

    def _begin(self) -> None:
        self._buffer, self._used, self.rows, self._codecs = bytearray(), 0, 0, 0

    def add(self, chunk: Buffer, rows: int, codecs: int) -> None:
        size_bytes = memoryview(chunk).nbytes
        if not self._used:
            fits = size_bytes <= _UNIT_SIZE_BYTES
            self._buffer = (self.spare.pop() if self.spare else bytearray(_UNIT_SIZE_BYTES)) if fits else bytearray(size_bytes)
        self._buffer[self._used : self._used + size_bytes] = chunk
        self._used += size_bytes
        self.rows, self._codecs = self.rows + rows, self._codecs | codecs

    def is_full_for(self, chunk: Buffer) -> bool:
        """Whether there is a unit that has no room for another chunk."""
        return self._used > 0 and self._used + memoryview(chunk).nbytes > len(self._buffer)

    def take(self) -> Iterator[_Unit]:
        """The unit of what was added; none if nothing was."""
        if self._used:
            unit = _Unit(self._buffer, self._used, self._codecs)
            self._begin()
            yield unit

    def give_back(self, unit: _Unit) -> None:
        if len(unit.buffer) == _UNIT_SIZE_BYTES and len(self.spare) <= _THREAD_COUNT:
            self.spare.append(unit.buffer)


def _units(collector: _Collector, chunks: Iterable[Buffer], from_offset: int, to_offset: int) -> Iterator[_Unit]:
    """Copies of chunks, several together.  An error of ``chunks`` comes after the unit before it."""
    try:
        for chunk in chunks:
            rows, codecs = count_rows(chunk, from_offset, to_offset)
            if not codecs:
                continue
            if collector.is_full_for(chunk):
                yield from collector.take()
            collector.add(chunk, rows, codecs)
            del chunk  # its buffer may be reused
            if collector.rows >= _ROWS:
                yield from collector.take()
    except GeneratorExit:
        raise
    except BaseException:
        yield from collector.take()
        raise
    yield from collector.take()


class _Decoder:
    """Decodes units of one iteration.  Threading: several threads."""

    def __init__(self, kinds: "pyarrow.Schema", from_offset: int, to_offset: int, size_bytes_max: int) -> None:
        self._kinds, self._from, self._to, self._size_bytes_max = kinds, from_offset, to_offset, size_bytes_max
        self._free: list[ColumnReader] = []  # their scratch memory is reused
        self.collector = _Collector()

    def decode(self, unit: _Unit, at: int) -> "tuple[list[pyarrow.RecordBatch], int]":
        """The Arrow batches of a unit from position ``at`` on, and the position to go on from: an early one bounds the memory."""
        reader = self._free.pop() if self._free else ColumnReader(self._kinds)
        found: list[pyarrow.RecordBatch] = []
        size_bytes = 0
        try:
            for images, end in self._images(unit, at):
                batches = list(reader.read(images, self._from, self._to))
                found += batches
                at, size_bytes = end, size_bytes + sum(batch.nbytes for batch in batches)
                if size_bytes >= _DECODED_SIZE_BYTES:
                    break
        except InvalidBatch:
            if not found:
                raise  # else the call that goes on at ``at`` raises it
        finally:
            self._free.append(reader)
        return found, at

    def batches(self, unit: _Unit, at: int) -> "Iterator[pyarrow.RecordBatch]":
        """The Arrow batches of a unit from position ``at`` on; the unit's buffer is used again afterwards."""
        while at < unit.size_bytes:
            found, at = self.decode(unit, at)
            yield from found
        self.collector.give_back(unit)

    def _images(self, unit: _Unit, at: int) -> Iterator[tuple[Buffer, int]]:
        """Uncompressed record batches for one Arrow batch each, and the position behind them."""
        if not unit.codecs & ~1:
            yield unit.batches[at:], unit.size_bytes
            return
        images, rows = bytearray(), 0
        for image, batch in convert.headers(unit.batches[at:]):
            if batch.record_count and not batch.attributes & CONTROL and batch.last_offset >= self._from and batch.base_offset < self._to:
                try:
                    self._add(images, image, at)
                except InvalidBatch:
                    if images:
                        yield images, at
                    raise
                rows += batch.record_count
            at += batch.size_bytes
            if rows >= 2 * _ROWS or len(images) >= _IMAGES_SIZE_BYTES:  # a unit that is little larger stays whole
                yield images, at
                images, rows = bytearray(), 0
        yield images, at

    def _add(self, images: bytearray, image: memoryview, position: int) -> None:
        """Append one record batch, uncompressed."""
        if not attributes_at(image, 0) & CODEC_MASK:
            images += image
            return
        records = convert.decompressed(image, position, self._size_bytes_max)  # it may raise: before anything is appended
        begin = len(images)
        images += image[:HEADER_SIZE_BYTES]
        images += records
        set_uncompressed(images, begin)


def _in_threads(decoder: _Decoder, units: Iterator[_Unit]) -> "Iterator[pyarrow.RecordBatch]":
    """The Arrow batches of all units, in order, decoded in threads; a single unit in this one."""
    waiting: deque[tuple[_Unit, Future[tuple[list[pyarrow.RecordBatch], int]] | None]] = deque()

    def first() -> "Iterator[pyarrow.RecordBatch]":
        unit, future = waiting.popleft()
        found, at = decoder.decode(unit, 0) if future is None else future.result()
        yield from found
        del found
        yield from decoder.batches(unit, at)

    try:
        for unit in units:
            if not waiting and not _is_for_threads(unit):
                yield from decoder.batches(unit, 0)
                continue
            if len(waiting) == 1 and waiting[0][1] is None:  # there is a second one
                waiting.append(_submitted(decoder, waiting.popleft()[0]))
            waiting.append(_submitted(decoder, unit) if waiting else (unit, None))
            while len(waiting) > _THREAD_COUNT:
                yield from first()
    except GeneratorExit:
        raise
    except BaseException:
        while waiting:
            yield from first()
        raise
    while waiting:
        yield from first()


def _is_for_threads(unit: _Unit) -> bool:
    """Whether a unit takes less time in a thread of its own: it is compressed, and its first record batches are large."""
    if not unit.codecs & ~1:
        return False
    sizes = [batch.size_bytes for _, batch in islice(convert.headers(unit.batches), 8)]
    return sum(sizes) >= _THREADED_SIZE_BYTES * len(sizes)


def _submitted(decoder: _Decoder, unit: _Unit) -> "tuple[_Unit, Future[tuple[list[pyarrow.RecordBatch], int]] | None]":
    try:
        return unit, _threads.pool.submit(decoder.decode, unit, 0)
    except (ThreadUnavailable, Closed):  # Closed: the interpreter ends
        return unit, None
