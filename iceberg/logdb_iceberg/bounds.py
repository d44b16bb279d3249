"""What a manifest says of a data file: the numbers of values, and the bounds of its columns.

pyiceberg reads the bounds of dates and times as objects of Python, which hold the years 1 to 9999.  So these are read here, as numbers.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, TimestampType, TimestamptzType, TimeType

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

_TIMES = (DateType, TimestampType, TimestamptzType, TimeType)
_COUNTS = MetricsMode(MetricModeTypes.COUNTS)


def statistics_of(metadata: "FileMetaData", schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a data file in a manifest that its own metadata gives; ``schema``, ``properties``: of the table."""
    ids, plan = parquet_path_to_id_mapping(schema), compute_statistics_plan(schema, dict(properties))
    times = {number: one for number, one in plan.items() if isinstance(one.iceberg_type, _TIMES) and one.mode.type == MetricModeTypes.FULL}
    counted = {number: dataclasses.replace(one, mode=_COUNTS) for number, one in times.items()}
    found = data_file_statistics_from_parquet_metadata(metadata, plan | counted, ids).to_serialized_dict()
    for field in metadata.schema.to_arrow_schema():
        column = times.get(ids.get(field.name, -1))  # nested ones have no bounds
        if column is not None and (bounds := bounds_of(metadata, field.name)) is not None:
            per_unit = 1000 if getattr(field.type, "unit", "us") == "ms" else 1  # in microseconds, as the table; a date is in days
            for name, bound in zip(("lower_bounds", "upper_bounds"), bounds, strict=True):
                found[name][column.field_id] = to_bytes(column.iceberg_type, per_unit * bound)
    return found


def bounds_of(metadata: "FileMetaData", name: str) -> tuple[int, int] | None:
    """The least and the largest number in a column that is stored as numbers; None if it has none, or the file does not say."""
    place = [metadata.schema.column(number).path for number in range(metadata.num_columns)].index(name)
    groups = [metadata.row_group(number).column(place).statistics for number in range(metadata.num_row_groups)]
    found = [one for one in groups if one is not None and one.has_min_max]
    if not found or any(one is None for one in groups):
        return None
    return min(one.min_raw for one in found), max(one.max_raw for one in found)


def times_of(file: DataFile, field_id: int) -> tuple[int, int] | None:
    """The bounds of a column of times that a manifest has for a data file, in microseconds; None if it has none."""
    found = [bounds.get(field_id) for bounds in (file.lower_bounds or {}, file.upper_bounds or {})]
    lower, upper = (None if one is None else int(from_bytes(TimestamptzType(), one)) for one in found)
    return None if lower is None or upper is None else (lower, upper)
