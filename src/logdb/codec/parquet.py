"""Records as Parquet, and as a dataset of Parquet files and other records.

The columns and their layout in a file: docs/inside/format.md, "Parquet sidecars".  pyarrow is imported by the first call.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

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
    """The columns: names and types of Spark's Kafka source, except the timestamp, which has milliseconds."""
    pa = import_pyarrow()
    header = pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("timestampType", pa.int32(), nullable=False),
            pa.field("headers", pa.list_(header)),
        ]
    )


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
            "headers": self._headers(batch.column("headers")),
        }
        return pa.RecordBatch.from_arrays(
            [arrays[name] if name in arrays else batch.column(name) for name in kinds.names], schema=self._schema
        )

    def _headers(self, array: Any) -> Any:
        """Null for no headers, as Spark's Kafka source."""
        import pyarrow.compute as pc

        none = pc.equal(array.value_lengths(), 0)
        return self._pa.ListArray.from_arrays(array.offsets, array.values, type=self._schema.field("headers").type, mask=none)


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


def spilled(batches: "Iterable[pyarrow.RecordBatch]", topic: str, partition: int) -> "pyarrow.Table":
    """Rows of a partition in an unlinked temporary file, mapped into memory; the file lives as long as its last reader.

    It takes room in TMPDIR, and memory only in the system's page cache.

    Args:
        batches: With ``LOG_COLUMNS``.
    """
    import tempfile  # brings modules that `import logdb` does without

    pa, rows, kinds = import_pyarrow(), Rows(topic, partition), schema()
    descriptor, path = tempfile.mkstemp(prefix="logdb-", suffix=".arrow")
    os.close(descriptor)
    try:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, kinds) as writer:
            for batch in batches:
                writer.write_batch(rows.of(batch))
        return pa.ipc.open_file(pa.memory_map(path)).read_all()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


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

    Raises:
        ValueError: It is not a Parquet file, or is damaged.
    """
    import_pyarrow()
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield file.schema_arrow.names, (row for batch in file.iter_batches() for row in batch.to_pylist())


def dataset(paths: Sequence[str], tables: "Sequence[pyarrow.Table]") -> "pyarrow.dataset.Dataset":
    """The rows of Parquet files (page checksums are verified) and of tables, as one dataset."""
    import_pyarrow()
    import pyarrow.dataset as ds
    from pyarrow import fs

    kinds, children = schema(), []
    if paths:
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        layout = ds.ParquetFileFormat(default_fragment_scan_options=checked)
        children.append(ds.FileSystemDataset.from_paths(list(paths), schema=kinds, format=layout, filesystem=fs.LocalFileSystem()))
    if tables or not children:
        import pyarrow as pa

        children.append(ds.InMemoryDataset(pa.concat_tables(tables) if tables else kinds.empty_table()))
    return children[0] if len(children) == 1 else ds.UnionDataset(kinds, children)
