"""A topic as a dataset of pyarrow: Parquet files and ranges of logs, of which a scan reads what it needs.

Imports pyarrow, so callers import this module when they need it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from logdb.codec import parquet

Read: TypeAlias = Callable[[int, int, int, Sequence[str]], pa.RecordBatchReader]
"""The batches of a partition from one offset to another, with some columns of its log."""

_SLICE_ROW_COUNT, _SLICE_COUNT_MAX = 1 << 16, 1000  # of a range, that a filter may leave out
_PHYSICAL = {"timestamp_type": "timestampType"}  # the names in Parquet files, where they differ
_CONSTANTS = ("topic", "partition")


class Part(NamedTuple):
    """Offsets [``start``, ``end``) of a partition; in a Parquet file, or with ``path`` None in its log.

    ``clipped``: the file has other records, too.
    """

    partition: int
    start: int
    end: int
    path: str | None = None
    clipped: bool = False


def schema() -> pa.Schema:
    """Of all columns: as ``Database.read_arrow``, and the topic."""
    kinds = parquet.schema()
    names = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    return pa.schema([kinds.field(_PHYSICAL.get(name, name)).with_name(name) for name in names])


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """Reads when it is scanned, and only the columns, partitions and ranges of offsets that the scan asks for.

    pandas, polars (``scan_pyarrow_dataset``) and duckdb take it as any dataset.
    """

    def __init__(self, topic: str, parts: Sequence[Part], read: Read, filters: "ds.Expression | None" = None) -> None:
        self._topic, self._parts, self._read, self._filters = topic, tuple(parts), read, filters

    @property
    def schema(self) -> pa.Schema:
        return schema()

    def __repr__(self) -> str:
        return f"<TopicDataset {self._topic}>"

    def filter(self, expression: "ds.Expression | None") -> "TopicDataset":
        return TopicDataset(self._topic, self._parts, self._read, _both(self._filters, expression))

    def from_offsets(self, offsets: Mapping[int, int]) -> "TopicDataset":
        """Without what ends before these offsets, by partition: ranges of logs begin there, files stay whole."""
        parts = [part._replace(start=max(part.start, offsets[part.partition])) if part.path is None else part for part in self._parts]
        kept = [part for part in parts if max(part.start, offsets[part.partition]) < part.end]
        return TopicDataset(self._topic, kept, self._read, self._filters)

    def scanner(
        self,
        columns: "Sequence[str] | Mapping[str, ds.Expression] | None" = None,
        filter: "ds.Expression | None" = None,  # noqa: A002 -- pyarrow's name
        **options: Any,
    ) -> ds.Scanner:
        wanted = _both(self._filters, filter)
        kinds = schema()
        names = list(kinds.names) if columns is None else [name for name in kinds.names if _mentions(columns, name)]
        read = [name for name in kinds.names if name in names or _mentions(wanted, name)] or ["offset"]
        kept = pa.schema([kinds.field(name) for name in read])
        reader = pa.RecordBatchReader.from_batches(kept, self._batches(kept, wanted))
        return ds.Scanner.from_batches(reader, columns=kinds.names if columns is None else columns, filter=wanted, **options)

    # ------------------------------------------------------------ what a scan reads

    def _batches(self, kinds: pa.Schema, wanted: "ds.Expression | None") -> "Iterator[pa.RecordBatch]":
        parts = self._pruned(wanted)
        files = [part.path for part in parts if part.path is not None and not part.clipped]
        if files:
            yield from _of_files(files, kinds, wanted)
        for part in parts:
            if part.path is None:
                yield from self._of_log(part, kinds)
            elif part.clipped:
                yield from _of_files([part.path], kinds, _both(wanted, _covers(self._topic, part)))

    def _pruned(self, wanted: "ds.Expression | None") -> list[Part]:
        """The parts that may have records that a filter wants; those of one log that follow on each other are one.

        pyarrow itself compares the filter with the range of each part, as it does with directories of partitioned files.
        """
        parts = [piece for part in self._parts for piece in _sliced(part)]
        if wanted is not None:
            layout, where = ds.ParquetFileFormat(), fs.LocalFileSystem()
            pieces = [layout.make_fragment(str(n), where, _covers(self._topic, part)) for n, part in enumerate(parts)]
            known = ds.FileSystemDataset(pieces, self.schema, layout, where)
            parts = [parts[int(found.path)] for found in known.get_fragments(filter=wanted)]
        return reduce(_joined, sorted(parts), [])

    def _of_log(self, part: Part, kinds: pa.Schema) -> "Iterator[pa.RecordBatch]":
        names = [name for name in kinds.names if name not in _CONSTANTS]
        for batch in self._read(part.partition, part.start, part.end, names or ["offset"]):
            arrays = {name: batch.column(name) for name in names}
            arrays["topic"] = pa.repeat(pa.scalar(self._topic), batch.num_rows)
            arrays["partition"] = pa.repeat(pa.scalar(part.partition, pa.int32()), batch.num_rows)
            if "headers" in names:
                arrays["headers"] = parquet.null_without_headers(arrays["headers"])
            yield pa.RecordBatch.from_arrays([arrays[name] for name in kinds.names], schema=kinds)

    # ------------------------------------------------------------ what needs pyarrow's own datasets

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("a dataset of a topic is read by scanner, to_table, to_batches, head, take and count_rows")

    get_fragments = _get_fragments = replace_schema = sort_by = join = join_asof = __reduce__ = _refuse
    partition_expression = property(_refuse)


def _both(one: "ds.Expression | None", other: "ds.Expression | None") -> "ds.Expression | None":
    return other if one is None else one if other is None else one & other


def _mentions(given: Any, name: str) -> bool:
    """Whether columns, or a filter, may use a field."""
    if given is None:
        return False
    if isinstance(given, Mapping):
        return any(_mentions(expression, name) for expression in given.values())
    if not isinstance(given, ds.Expression):
        return name in given
    text = str(given)
    return "FieldPath" in text or re.search(rf"(?<!\w){name}(?!\w)", text) is not None


def _covers(topic: str, part: Part) -> "ds.Expression":
    offset = pc.field("offset")
    return (pc.field("topic") == topic) & (pc.field("partition") == part.partition) & (offset >= part.start) & (offset < part.end)


def _sliced(part: Part) -> Iterator[Part]:
    if part.path is not None:
        yield part
        return
    size = max(_SLICE_ROW_COUNT, -(-(part.end - part.start) // _SLICE_COUNT_MAX))
    for start, end in pairwise([*range(part.start, part.end, size), part.end]):
        yield part._replace(start=start, end=end)


def _joined(parts: list[Part], part: Part) -> list[Part]:
    last = parts[-1] if parts else None
    if last is not None and last.path is None is part.path and (last.partition, last.end) == (part.partition, part.start):
        return [*parts[:-1], last._replace(end=part.end)]
    return [*parts, part]


def _of_files(paths: Sequence[str], kinds: pa.Schema, wanted: "ds.Expression | None") -> "Iterator[pa.RecordBatch]":
    """The rows of Parquet files; page checksums are verified."""
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    layout = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    rows = ds.FileSystemDataset.from_paths(list(paths), schema=parquet.schema(), format=layout, filesystem=fs.LocalFileSystem())
    columns = {name: pc.field(_PHYSICAL.get(name, name)) for name in kinds.names}
    renamed = any(_mentions(wanted, name) for name in _PHYSICAL)  # the filter has names that the files lack: it is applied later
    for batch in rows.scanner(columns=columns, filter=None if renamed else wanted).to_reader():
        yield pa.RecordBatch.from_arrays(batch.columns, schema=kinds)
