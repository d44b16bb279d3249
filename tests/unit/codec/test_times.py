"""The range of times that every engine holds and shows."""

import pyarrow as pa
import pytest

from logdb.codec.times import EARLIEST_MS, LATEST_MS, clamped


def column(*numbers):
    return pa.array(numbers, pa.int64()).cast(pa.timestamp("ms", "UTC"))


def test_a_time_outside_of_the_range_becomes_the_nearest_inside():
    given = column(-(2**63), EARLIEST_MS - 1, EARLIEST_MS, -1, None, LATEST_MS, LATEST_MS + 1, 2**63 - 1)
    found = clamped(given)
    assert found.type == given.type
    assert found.cast(pa.int64()).to_pylist() == [*[EARLIEST_MS] * 3, -1, None, *[LATEST_MS] * 3]


@pytest.mark.parametrize("numbers", [(), (None,), (EARLIEST_MS, -1, 0, LATEST_MS)])
def test_other_columns_stay(numbers):
    given = column(*numbers)
    assert clamped(given) is given


@pytest.mark.parametrize("at_ms", [EARLIEST_MS, LATEST_MS])
def test_the_engines_show_both_ends(at_ms):
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    found = pa.table({"at": column(at_ms)})
    assert "262" in duckdb.sql("select * from found").fetchall()[0][0]
    assert "262" in str(pl.from_arrow(found))
    assert found["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() == [1000 * at_ms]
