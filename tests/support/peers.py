"""What the tests against other readers and writers of the format share: records, and how we read batches from outside."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from logdb.codec import arrow, convert
from logdb.model import OFFSET_MAX
from support.batches import BASE_TIMESTAMP, Rec

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SIZE_BYTES_MAX = 1 << 20

# What every codec has to get through: nulls, headers, text beyond ASCII, more than one block of 64 KiB.
RECORDS = [
    Rec(None, b"value", (), BASE_TIMESTAMP),
    Rec(b"key", None, (("trace", b"1"), ("trace", b"2")), BASE_TIMESTAMP + 3),
    Rec(b"", b"", (("ключ", b""),), BASE_TIMESTAMP - 1000),
    *(Rec(b"%d" % n, b"%d" % (n * n) * 40, (), BASE_TIMESTAMP + n) for n in range(600)),
]

any_records = st.lists(
    st.builds(
        Rec,
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=200),
        headers=st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, 2 * BASE_TIMESTAMP),
        offset_delta=st.none(),
    ),
    min_size=1,
    max_size=12,
)


def rows_of(batches: bytes) -> list[Row]:
    """Rows of batches from outside: checked, decompressed, read."""
    bounds = {"size_bytes_max": SIZE_BYTES_MAX, "decompressed_size_bytes_max": SIZE_BYTES_MAX}
    convert.check_incoming(bytearray(batches), keys_required=False, **bounds)
    images = convert.decompress_batches(memoryview(batches), SIZE_BYTES_MAX)
    rows = [row for batch in arrow.record_batches([images], 0, OFFSET_MAX) for row in batch.to_pylist()]
    return [(r["offset"], to_ms(r["timestamp"]), r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]]) for r in rows]


def to_ms(when: datetime) -> int:
    return (when - EPOCH) // timedelta(milliseconds=1)


def rows_expected(records: list[Rec]) -> list[Row]:
    """What ``rows_of`` makes of these records, all of which have a timestamp."""
    return [(offset, r.timestamp_ms or 0, r.key, r.value, list(r.headers)) for offset, r in enumerate(records)]  # type: ignore[arg-type]
