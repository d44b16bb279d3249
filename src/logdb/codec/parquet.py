"""Records as Parquet.

The columns and their layout in a file: docs/inside/format.md, "Parquet sidecars".  pyarrow is imported by the first call.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from logdb.codec.arrow import import_pyarrow
from logdb.model import Buffer

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.dataset

LOG_COLUMNS = ("key", "value", "offset", "timestamp", "timestamp_type", "headers")
"""The columns to read from a log for a row."""

ROW_GROUP_SIZE_BYTES = 64 << 20
ROW_GROUP_ROW_COUNT = 512 << 10
_END_SIZE_BYTES = 8  # the footer's size, little-endian, and the magic
_HEADER_PARTS = ("headers.list.element.key", "headers.list.element.value")
_CODECS = {  # values are most of a file: Spark is a fifth slower to read them from zstd, which makes half the size of them
    **dict.fromkeys(("key", "topic", "partition", "offset", "timestamp", "timestampType", *_HEADER_PARTS), "zstd"),
    "value": "lz4",
}
_DICTIONARY_COLUMNS = ["key", "topic", "partition", "timestampType"]
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}  # units of timestamps; one in nanoseconds is in the years 1677 to 2262
_STATISTICS_COLUMNS = ["key", "topic", "partition", "offset", "timestamp", "timestampType"]


class Sink(Protocol):
    """The target of a file, with the methods that pyarrow calls."""

    @property
    def closed(self) -> bool: ...

    def write(self, data: Buffer) -> int: ...

    def tell(self) -> int: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def schema() -> "pyarrow.Schema":
    """The columns: names and types of Spark's Kafka source, except the timestamp, which has milliseconds.

    They have the ids of the columns of an Iceberg table.
    """
    pa = import_pyarrow()
    return pa.schema(
        [
            field("key", pa.binary(), 1),
            field("value", pa.binary(), 2),
            field("topic", pa.string(), 3, nullable=False),
            field("partition", pa.int32(), 4, nullable=False),
            field("offset", pa.int64(), 5, nullable=False),
            field("timestamp", pa.timestamp("ms", tz="UTC"), 6, nullable=False),
            field("timestampType", pa.int32(), 7, nullable=False),
            field("headers", headers_type(9), 8),
        ]
    )


def field(name: str, kind: "pyarrow.DataType", field_id: int, *, nullable: bool = True) -> "pyarrow.Field":
    """A field with an id in files."""
    return import_pyarrow().field(name, kind, nullable, {"PARQUET:field_id": str(field_id)})


def headers_type(first_id: int) -> "pyarrow.DataType":
    """The type of a record's headers; its three fields have ids from ``first_id`` on."""
    pa = import_pyarrow()
    parts = [field("key", pa.string(), first_id + 1), field("value", pa.binary(), first_id + 2)]
    return pa.list_(field("element", pa.struct(parts), first_id))


class Rows:
    """Makes rows of one partition out of batches with ``LOG_COLUMNS``."""

    def __init__(self, topic: str, partition: int) -> None:
        self._pa, self._schema, self._topic, self._partition = import_pyarrow(), schema(), topic, partition

    def of(self, batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
        pa, kinds, count = self._pa, self._schema, batch.num_rows
        arrays = {
            "topic": pa.repeat(pa.scalar(self._topic, pa.string()), count),
            "partition": pa.repeat(pa.scalar(self._partition, pa.int32()), count),
            "timestampType": batch.column("timestamp_type"),
            "headers": null_without_headers(batch.column("headers")),
        }
        return pa.RecordBatch.from_arrays(
            [arrays[name] if name in arrays else batch.column(name) for name in kinds.names], schema=self._schema
        )


def null_without_headers(array: Any) -> Any:
    """A column of headers as Spark's Kafka source has it: null for no headers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    begin = array.offsets[0]
    offsets = pc.subtract(array.offsets, begin) if array.offset else array.offsets  # a mask goes with whole arrays only
    values = array.values.slice(begin.as_py()) if array.offset else array.values
    return pa.ListArray.from_arrays(offsets, values, type=schema().field("headers").type, mask=pc.equal(array.value_lengths(), 0))


def write(sink: Sink, batches: "Iterable[pyarrow.RecordBatch]", topic: str, partition: int, metadata: Mapping[str, str]) -> int:
    """Write one partition's records into a Parquet file, one row group at a time; returns the number of rows.

    Args:
        batches: With ``LOG_COLUMNS``.
        metadata: Of the file.

    Raises:
        Errors of ``sink`` and ``batches``.
    """
    pa, rows = import_pyarrow(), Rows(topic, partition)
    import pyarrow.parquet as pq

    kinds, group_bytes, group_rows, row_count = schema(), 0, 0, 0
    group: list[pyarrow.RecordBatch] = []
    writer = pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        kinds,
        compression=_CODECS,
        compression_level=dict.fromkeys((name for name, codec in _CODECS.items() if codec == "zstd"), 1),
        use_dictionary=_DICTIONARY_COLUMNS,
        write_statistics=_STATISTICS_COLUMNS,
        write_page_checksum=True,
        store_schema=False,
    )

    def finish_group() -> None:
        writer.write_table(pa.Table.from_batches(group, kinds), row_group_size=ROW_GROUP_ROW_COUNT)
        group.clear()

    for batch in map(rows.of, batches):
        group.append(batch)
        row_count, group_rows, group_bytes = row_count + batch.num_rows, group_rows + batch.num_rows, group_bytes + batch.nbytes
        if group_bytes >= ROW_GROUP_SIZE_BYTES or group_rows >= ROW_GROUP_ROW_COUNT:
            finish_group()
            group_bytes = group_rows = 0
    if group:
        finish_group()
    writer.add_key_value_metadata(dict(metadata))
    writer.close()
    return row_count


def footer_size(end: bytes) -> int:
    """Bytes from the footer's begin to the end of a file, by its last 8 bytes; 0 if they are not Parquet's.

    Source: https://parquet.apache.org/docs/file-format/
    """
    if len(end) != _END_SIZE_BYTES or end[4:] != b"PAR1":
        return 0
    return int.from_bytes(end[:4], "little") + _END_SIZE_BYTES


def write_file(sink: IO[bytes], reader: "pyarrow.RecordBatchReader") -> int:
    """Write the batches of a reader into one Parquet file; returns the number of rows."""
    import_pyarrow()
    import pyarrow.parquet as pq

    count = 0
    with pq.ParquetWriter(sink, reader.schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in reader:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


@contextlib.contextmanager
def reading(path: str) -> "Iterator[tuple[list[str], Iterator[dict[str, Any]]]]":
    """Within the block: the names of a Parquet file's columns, and its rows.

    A time outside of the years 1 to 9999 is a number of milliseconds since 1970: ``datetime`` does not hold it.

    Raises:
        ValueError: It is not a Parquet file, or is damaged; from the rows: Python cannot hold the value of a cell.
    """
    import_pyarrow()
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield file.schema_arrow.names, (row for batch in file.iter_batches() for row in _rows_of(batch))


def _rows_of(batch: "pyarrow.RecordBatch") -> "Iterator[dict[str, Any]]":
    names = batch.schema.names
    columns = [_cells_of(name, column) for name, column in zip(names, batch.columns, strict=True)]
    return (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))


def _cells_of(name: str, column: Any) -> list[Any]:
    try:
        return cast(list[Any], column.to_pylist())
    except (OverflowError, ValueError):
        return [_cell_of(name, cell) for cell in column]


def _cell_of(name: str, cell: Any) -> Any:
    try:
        return cell.as_py()
    except (OverflowError, ValueError) as error:
        per_second = _PER_SECOND.get(getattr(cell.type, "unit", ""))
        if per_second is None or not import_pyarrow().types.is_timestamp(cell.type):
            raise ValueError(f"{name}: Python cannot hold a value of it: {error}") from None
        return cell.value * 1000 // per_second
