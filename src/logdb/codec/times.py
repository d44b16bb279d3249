"""The times that engines can hold: fewer than a log, whose timestamps are any 64-bit number of milliseconds.

A column of microseconds holds the years -290308 to 294247.  duckdb begins at the first whole day of them, and polars cannot show the years
outside of -262143 to 262142.
"""

from typing import Any

from logdb.codec.columns import import_pyarrow

EARLIEST_MS, LATEST_MS = -8_334_601_228_800_000, 8_210_266_876_799_999
"""The first and the last millisecond that Spark, duckdb and polars all hold and show, since 1970."""


def clamped(times: Any) -> Any:
    """A column of milliseconds in which each time outside of the range is the nearest one inside."""
    pa = import_pyarrow()
    import pyarrow.compute as pc

    numbers = times.cast(pa.int64())
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or is_within(found["min"], found["max"]):
        return times
    early_enough = pc.min_element_wise(numbers, LATEST_MS, skip_nulls=False)
    return pc.max_element_wise(early_enough, EARLIEST_MS, skip_nulls=False).cast(times.type)


def is_within(earliest_ms: int, latest_ms: int) -> bool:
    """Whether the times between two are all in the range."""
    return earliest_ms >= EARLIEST_MS and latest_ms <= LATEST_MS
