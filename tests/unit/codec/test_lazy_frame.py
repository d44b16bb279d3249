"""What a predicate of polars narrows: only comparisons that every row of the result passes."""

import datetime
from datetime import UTC

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("pyarrow")
from logdb.codec.lazy_frame import comparisons, lazy_frame  # noqa: E402 -- it needs both

AT = datetime.datetime(2024, 1, 1, tzinfo=UTC)
MS = int(AT.timestamp() * 1000)
OFFSET, PARTITION, TIMESTAMP, VALUE = (pl.col(name) for name in ("offset", "partition", "timestamp", "value"))


def optimized(predicate):
    """As a scan gets it: the optimizer has given the constants the types of the columns."""
    found = []

    def read(columns, predicate, row_count, batch_size):
        found.append(predicate)
        yield pl.DataFrame(schema=kinds)

    kinds = {"offset": pl.Int64, "partition": pl.Int32, "timestamp": pl.Datetime("ms", "UTC"), "value": pl.Binary}
    pl.io.plugins.register_io_source(read, schema=kinds).filter(predicate).collect()
    return found[0]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (OFFSET >= 5, {("offset", "GtEq", 5)}),
        (OFFSET < 7, {("offset", "Lt", 7)}),
        (5 < OFFSET, {("offset", "Gt", 5)}),  # noqa: SIM300 -- the constant comes first
        ((OFFSET == 5) & (PARTITION == 1) & (VALUE == b"v"), {("offset", "Eq", 5), ("partition", "Eq", 1)}),
        (OFFSET.is_between(3, 9, closed="left"), {("offset", "GtEq", 3), ("offset", "Lt", 9)}),
        (TIMESTAMP >= AT, {("timestamp", "GtEq", MS)}),
        ((OFFSET >= 5) | (PARTITION == 1), set()),
        (~(OFFSET >= 5) & (VALUE == b"v"), None),
        (OFFSET + 1 >= 5, None),
        (OFFSET != 5, set()),
        (OFFSET.is_in([1, 2]), None),
        (OFFSET >= 1.5, None),
        (PARTITION >= 2**40, None),
        (TIMESTAMP.dt.year() == 2024, set()),
        (OFFSET.cast(pl.Int8) > 3, None),
        (VALUE.bin.size() > OFFSET, set()),
    ],
)
def test_what_is_understood(predicate, expected):
    rows = pl.DataFrame(
        {"offset": range(20), "partition": [n % 3 for n in range(20)], "value": [b"v", b"w"] * 10},
        schema={"offset": pl.Int64, "partition": pl.Int32, "value": pl.Binary},
    ).with_columns(timestamp=pl.lit(AT).cast(pl.Datetime("ms", "UTC")) + pl.duration(hours=pl.col("offset") - 10))
    found = comparisons(optimized(predicate))
    if expected is not None:
        assert {one[:3] for one in found} == expected
    kept = rows.filter(predicate)
    for column, operation, value, _ in found:  # no row of the result is lost
        numbers = kept[column].dt.epoch("ms") if column == "timestamp" else kept[column]
        passed = {"Eq": numbers == value, "Lt": numbers < value, "LtEq": numbers <= value, "Gt": numbers > value, "GtEq": numbers >= value}
        assert passed[operation].all()


def test_an_old_polars_is_refused(monkeypatch):
    monkeypatch.setattr(pl, "__version__", "1.35.2")
    with pytest.raises(ImportError, match=r"scan_polars needs polars 1.36 or newer; 1.35.2 is installed"):
        lazy_frame(None, None, None)


def test_a_form_that_polars_has_changed_narrows_nothing(monkeypatch):
    predicate = OFFSET >= 5
    monkeypatch.setattr(type(predicate.meta), "serialize", lambda *_, **__: "{")
    assert comparisons(predicate) == []
