"""Decodes record batches into Arrow's columns.

The C core fills Arrow's arrays in two passes: it parses each record once, then copies keys, values and headers into Arrow's memory
at their exact size.  The columns share no memory with the record batches.

A header's key is text in Arrow and arbitrary bytes in Kafka: each byte of a key that is not UTF-8 becomes ``?``, so that one bad
record does not make a topic unreadable.
"""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from logdb._native import ffi, lib
from logdb.codec.batch import Status, explain
from logdb.errors import InvalidBatch, missing_package
from logdb.model import Buffer

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
"""The columns by default; ``timestamp_type`` (0 CreateTime, 1 LogAppendTime) must be named."""

_WANTED = {
    "offset": lib.LOGDB_COLUMN_OFFSET,
    "timestamp": lib.LOGDB_COLUMN_TIMESTAMP,
    "key": lib.LOGDB_COLUMN_KEY,
    "value": lib.LOGDB_COLUMN_VALUE,
    "headers": lib.LOGDB_COLUMN_HEADERS,
    "timestamp_type": lib.LOGDB_COLUMN_TIMESTAMP_TYPE,
}
NAMES = tuple(_WANTED)
"""All columns of records."""

_COLUMN_BYTES_MAX = 2**31 - 1  # Arrow's 32-bit offsets
_CHUNK_BYTES_MAX = 2**32 - 1  # positions in the core's scratch rows are 32-bit


def import_pyarrow() -> ModuleType:
    """The package; raises ModuleNotFoundError with what to install."""
    try:
        import pyarrow as pa
    except ImportError:
        raise missing_package("Arrow", "pyarrow") from None
    module: ModuleType = pa
    return module


def schema(columns: Sequence[str] | None = None) -> "pyarrow.Schema":
    """The Arrow schema of some columns, in the order given; None: ``COLUMNS``.

    Raises:
        ValueError: An unknown column, one given twice, or none at all.
    """
    pa = import_pyarrow()
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    fields = {
        "offset": pa.field("offset", pa.int64(), nullable=False),
        "timestamp": pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        "key": pa.field("key", pa.binary()),
        "value": pa.field("value", pa.binary()),
        "headers": pa.field("headers", pa.list_(header)),
        "timestamp_type": pa.field("timestamp_type", pa.int32(), nullable=False),
    }
    names = COLUMNS if columns is None else tuple(columns)
    for name in names:
        if name not in fields:
            raise ValueError(f"unknown column {name!r}; columns are {', '.join(NAMES)}")
    if not names or len(set(names)) != len(names):
        raise ValueError(f"columns={list(names)!r}: name at least one, and each once, of {', '.join(NAMES)}")
    return pa.schema([fields[name] for name in names])


def count_rows(chunk: Buffer, from_offset: int, to_offset: int) -> tuple[int, int]:
    """How many rows checked batches have at most, by their headers, and their codecs: 1 << the number of each.

    Raises:
        ValueError: The chunk is too large.
        InvalidBatch: A header is invalid.
    """
    if memoryview(chunk).nbytes > _CHUNK_BYTES_MAX:
        raise ValueError(f"a chunk of {memoryview(chunk).nbytes} bytes; at most {_CHUNK_BYTES_MAX} are taken")
    data, rows, codecs = ffi.from_buffer(chunk), ffi.new("int64_t *"), ffi.new("int32_t *")
    status = lib.logdb_columns_count(data, len(data), from_offset, to_offset, rows, codecs)
    if status != Status.OK:
        raise InvalidBatch(0, explain(Status(status)))
    return int(rows[0]), int(codecs[0])


class ColumnReader:
    """Scratch memory and C structures for one thread, used from chunk to chunk."""

    def __init__(self, schema: "pyarrow.Schema") -> None:
        self._pa = import_pyarrow()
        self._schema = schema
        self._wanted = sum(_WANTED[name] for name in schema.names)
        self._build = [(getattr(self, f"_{name}_array"), schema.field(name).type) for name in schema.names]
        self._columns = ffi.new("logdb_columns *")
        self._sizes = ffi.new("logdb_column_sizes *")
        self._rows, self._row_room = ffi.NULL, 0
        self._buffers: dict[str, Any] = {}

    def read(self, chunk: Buffer, from_offset: int, to_offset: int) -> Iterator["pyarrow.RecordBatch"]:
        room = self._walk(chunk, from_offset, to_offset, wanted=0, room=0)
        if not room:
            return
        self._allocate_rows(room)
        row_count = self._walk(chunk, from_offset, to_offset, wanted=self._wanted, room=room)
        if self._too_large():
            middle = self._middle(chunk, from_offset, to_offset, row_count, room)
            yield from self.read(chunk, from_offset, middle)
            yield from self.read(chunk, middle, to_offset)
        elif row_count:
            self._allocate_bytes()
            lib.logdb_columns_gather(ffi.from_buffer(chunk), self._rows, self._wanted, self._sizes, self._columns)
            arrays = [build(kind) for build, kind in self._build]
            self._buffers.clear()  # they belong to the arrays now
            yield self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    # ------------------------------------------------------------ the two passes

    def _walk(self, chunk: Buffer, from_offset: int, to_offset: int, *, wanted: int, room: int) -> int:
        """Pass 1; returns the number of rows; if the memory is too small, an upper bound of it.

        Raises:
            InvalidBatch: The chunk is invalid.  (The caller handles a column that is too large.)
        """
        data = ffi.from_buffer(chunk)
        status = lib.logdb_columns_walk(data, len(data), from_offset, to_offset, wanted, self._rows, room, self._columns, self._sizes)
        good = status == Status.OK or (status == Status.ROOM and not room) or (status == Status.COUNT and self._too_large())
        if not good:
            raise InvalidBatch(0, explain(Status(status)))
        return int(self._sizes.row_count)

    def _too_large(self) -> bool:
        sizes = self._sizes
        largest: int = max(sizes.key_bytes, sizes.value_bytes, sizes.header_count, sizes.header_key_bytes, sizes.header_value_bytes)
        return largest > _COLUMN_BYTES_MAX

    def _middle(self, chunk: Buffer, from_offset: int, to_offset: int, row_count: int, room: int) -> int:
        """Offset of the middle row, at which a chunk with too large a column is split."""
        if row_count < 2:
            raise InvalidBatch(0, f"one record is over {_COLUMN_BYTES_MAX} bytes")
        offsets = self._columns.offset = ffi.new("int64_t[]", room)
        self._walk(chunk, from_offset, to_offset, wanted=lib.LOGDB_COLUMN_OFFSET, room=room)
        return int(offsets[row_count // 2])

    # ------------------------------------------------------------ memory

    def _allocate(self, name: str, size_bytes: int) -> None:
        """Arrow's memory for one of the arrays of ``logdb_columns``."""
        buffer = self._buffers[name] = self._pa.allocate_buffer(size_bytes)
        setattr(self._columns, name, ffi.cast("void *", buffer.address))

    def _allocate_rows(self, row_count: int) -> None:
        """The arrays of pass 1: everything with a fixed size per row."""
        if row_count > self._row_room:
            self._rows, self._row_room = ffi.new("logdb_row[]", row_count), row_count
        for name in ("offset", "timestamp"):
            if self._wanted & _WANTED[name]:
                self._allocate(name, row_count * 8)
        if self._wanted & lib.LOGDB_COLUMN_TIMESTAMP_TYPE:
            self._allocate("timestamp_type", row_count * 4)
        for name in ("key", "value"):
            if self._wanted & _WANTED[name]:
                self._allocate(f"{name}_offsets", (row_count + 1) * 4)
                self._allocate(f"{name}_validity", (row_count + 7) // 8)
        if self._wanted & lib.LOGDB_COLUMN_HEADERS:
            self._allocate("header_offsets", (row_count + 1) * 4)

    def _allocate_bytes(self) -> None:
        """The arrays of pass 2, with the sizes that pass 1 computed."""
        sizes = self._sizes
        if self._wanted & lib.LOGDB_COLUMN_KEY:
            self._allocate("key", sizes.key_bytes)
        if self._wanted & lib.LOGDB_COLUMN_VALUE:
            self._allocate("value", sizes.value_bytes)
        if self._wanted & lib.LOGDB_COLUMN_HEADERS:
            self._allocate("header_key_offsets", (sizes.header_count + 1) * 4)
            self._allocate("header_key", sizes.header_key_bytes)
            self._allocate("header_value_offsets", (sizes.header_count + 1) * 4)
            self._allocate("header_value_validity", (sizes.header_count + 7) // 8)
            self._allocate("header_value", sizes.header_value_bytes)

    # ------------------------------------------------------------ arrays

    def _fixed(self, kind: Any, name: str) -> Any:
        return self._pa.Array.from_buffers(kind, self._sizes.row_count, [None, self._buffers[name]], 0)

    def _bytes(self, kind: Any, name: str, count: int, null_count: int) -> Any:
        validity = self._buffers[f"{name}_validity"] if null_count else None
        buffers = [validity, self._buffers[f"{name}_offsets"], self._buffers[name]]
        return self._pa.Array.from_buffers(kind, count, buffers, null_count)

    def _offset_array(self, kind: Any) -> Any:
        return self._fixed(kind, "offset")

    def _timestamp_array(self, kind: Any) -> Any:
        return self._fixed(kind, "timestamp")

    def _timestamp_type_array(self, kind: Any) -> Any:
        return self._fixed(kind, "timestamp_type")

    def _key_array(self, kind: Any) -> Any:
        return self._bytes(kind, "key", self._sizes.row_count, self._sizes.key_null_count)

    def _value_array(self, kind: Any) -> Any:
        return self._bytes(kind, "value", self._sizes.row_count, self._sizes.value_null_count)

    def _headers_array(self, kind: Any) -> Any:
        count, struct = self._sizes.header_count, kind.value_type
        keys = self._bytes(struct.field("key").type, "header_key", count, 0)
        values = self._bytes(struct.field("value").type, "header_value", count, self._sizes.header_value_null_count)
        pairs = self._pa.Array.from_buffers(struct, count, [None], 0, children=[keys, values])
        return self._pa.Array.from_buffers(kind, self._sizes.row_count, [None, self._buffers["header_offsets"]], 0, children=[pairs])
