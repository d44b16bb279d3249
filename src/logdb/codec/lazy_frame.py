"""A topic as a lazy frame of polars: a scan reads the columns, partitions and ranges that the query asks for.

A query's predicate is a polars expression.  Comparisons of ``offset``, ``partition`` and ``timestamp`` with constants, joined by "and",
narrow what is read; polars then applies the whole predicate to what was read.  So a predicate that is not understood is only slower.

Imports polars and pyarrow, so callers import this module when they need it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from polars.io.plugins import register_io_source

from logdb.codec.topic_dataset import TopicDataset
from logdb.codec.typed_values import ValueSchema, typed_values

_VERSION_MIN = (1, 36)  # an earlier one may give rows that a comparison of timestamps excludes

Since: TypeAlias = Callable[[int], Mapping[int, int]]
"""By partition, the first offset with a timestamp of so many ms since 1970, or later."""

_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Eq": lambda left, right: left == right,
    "Lt": lambda left, right: left < right,
    "LtEq": lambda left, right: left <= right,
    "Gt": lambda left, right: left > right,
    "GtEq": lambda left, right: left >= right,
}
_TURNED = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
_PER_SECOND = {"Milliseconds": 10**3, "Microseconds": 10**6, "Nanoseconds": 10**9}


class Comparison(NamedTuple):
    """``column`` compared with a number; of a timestamp, ``per_second`` is its unit."""

    column: str
    operation: str
    value: int
    per_second: int = 0

    def expression(self) -> "ds.Expression":
        if not self.per_second:
            return _COMPARISONS[self.operation](pc.field(self.column), self.value)
        unit = {10**3: "ms", 10**6: "us", 10**9: "ns"}[self.per_second]
        return _COMPARISONS[self.operation](pc.field(self.column), pa.scalar(self.value, pa.timestamp(unit, "UTC")))


def lazy_frame(dataset: TopicDataset, since: Since, values: ValueSchema | None) -> pl.LazyFrame:
    """The records of a dataset, and columns made of their values.

    Raises:
        ImportError: This polars is too old.
        ValueError: ``values`` is no schema, or has a field with the name of a column.
    """
    if tuple(map(int, pl.__version__.split(".")[:2])) < _VERSION_MIN:
        raise ImportError(f"scan_polars needs polars 1.36 or newer; {pl.__version__} is installed: pip install --upgrade polars")
    typed = [] if values is None else typed_values(values, ()).fields
    if twice := [field.name for field in typed if field.name in dataset.schema.names]:
        raise ValueError(f"schema: {twice[0]!r} is a column of the record itself; rename the field")
    names = [*dataset.schema.names, *(field.name for field in typed)]

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, row_count: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = names if columns is None else list(dict.fromkeys([*columns, *(() if predicate is None else predicate.meta.root_names())]))
        left = row_count
        narrowed, excluding = _narrowed(dataset, predicate, since)
        for batch in _batches(narrowed, wanted, values, excluding):
            frame = pl.DataFrame(pl.from_arrow(batch))
            frame = frame if predicate is None else frame.filter(predicate)
            frame = frame if columns is None else frame.select(columns)
            if left is None:
                yield frame
                continue
            yield frame.head(left)
            left -= min(left, frame.height)
            if not left:
                return

    empty = pa.schema([*dataset.schema, *typed]).empty_table()
    schema = pl.DataFrame(pl.from_arrow(empty)).schema
    return register_io_source(read, schema=dict(schema))


def _batches(
    dataset: TopicDataset, names: Sequence[str], values: ValueSchema | None, wanted: "ds.Expression | None"
) -> Iterator[pa.RecordBatch]:
    """The columns that a query uses, in any order."""
    own = [name for name in dataset.schema.names if name in names] or ["offset"]
    fields = [name for name in names if name not in dataset.schema.names]
    typed = typed_values(values, own, fields) if values is not None and fields else None
    for batch in dataset.scanner(columns=own if typed is None else typed.source_columns, filter=wanted).to_batches():
        if typed is None:
            yield batch
        elif batch.num_rows:
            made = typed.columns(batch)
            kinds = pa.schema([*(batch.schema.field(name) for name in own), *typed.fields])
            yield pa.RecordBatch.from_arrays([*(batch.column(name) for name in own), *made], schema=kinds)


def _narrowed(dataset: TopicDataset, predicate: pl.Expr | None, since: Since) -> "tuple[TopicDataset, ds.Expression | None]":
    """What is read, and what pyarrow filters that by: every row that the predicate takes, and maybe others."""
    found = [] if predicate is None else comparisons(predicate)
    expressions = [one.expression() for one in found]
    begins = [one.value * 1000 // one.per_second for one in found if one.column == "timestamp" and one.operation in {"Eq", "Gt", "GtEq"}]
    if begins:  # all records before that offset are older; behind it there may be older ones, too
        dataset = dataset.from_offsets(since(max(begins)))
    return dataset, reduce(lambda one, other: one & other, expressions) if expressions else None


def comparisons(predicate: pl.Expr) -> list[Comparison]:
    """The comparisons that all rows of a predicate's result pass; those that are not understood are left out."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 -- polars promises nothing about this form, and the frame is right without it
        return []
    return list(_found(tree))


def _found(tree: Any) -> Iterator[Comparison]:
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _found(left)
            yield from _found(right)
        case {"BinaryExpr": {"left": {"Column": str(column)}, "op": str(operation), "right": {"Literal": literal}}}:
            yield from _compared(column, operation, literal)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": str(operation), "right": {"Column": str(column)}}}:
            yield from _compared(column, _TURNED.get(operation, ""), literal)
        case {
            "Function": {
                "input": [{"Column": str(column)}, {"Literal": low}, {"Literal": high}],
                "function": {"Boolean": {"IsBetween": {"closed": str(closed)}}},
            }
        }:
            yield from _compared(column, "GtEq" if closed in {"Both", "Left"} else "Gt", low)
            yield from _compared(column, "LtEq" if closed in {"Both", "Right"} else "Lt", high)


def _compared(column: str, operation: str, literal: Any) -> Iterator[Comparison]:
    if operation not in _COMPARISONS:
        return
    while isinstance(literal, dict) and len(literal) == 1:  # Scalar, Dyn, and the name of the type
        ((kind, literal),) = literal.items()
        match column, kind, literal:
            case "timestamp", "Datetime", [int(value), str(unit), {"inner": "UTC"}] if unit in _PER_SECOND:
                yield Comparison(column, operation, value, _PER_SECOND[unit])
            case (("offset" | "partition"), _, int(value)) if -(2**31) <= value < 2**63 and not (column == "partition" and value >= 2**31):
                yield Comparison(column, operation, value)
