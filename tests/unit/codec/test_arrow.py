"""Arrow columns against the records that went in, read back by pyarrow with full validation."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.codec import arrow, convert
from logdb.codec import columns as columns_of_c
from logdb.errors import CorruptionError, InvalidBatch
from logdb.model import OFFSET_MAX
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONTROL = encode_batch([Rec(b"\0\0\0\1", b"\0\0\0\0\0\5")], attributes=48, base_offset=3)


def row_of(offset: int, record: Rec) -> dict[str, Any]:
    timestamp = BASE_TIMESTAMP if record.timestamp_ms is None else record.timestamp_ms
    headers = [{"key": key, "value": value} for key, value in record.headers]
    when = EPOCH + timedelta(milliseconds=timestamp)
    return {"offset": offset, "timestamp": when, "key": record.key, "value": record.value, "headers": headers}


def read(
    chunks: Iterable[bytes | bytearray | memoryview],
    from_offset: int = 0,
    to_offset: int = OFFSET_MAX,
    columns: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """All rows; every batch is validated."""
    rows = []
    for batch in arrow.record_batches(chunks, from_offset, to_offset, columns):
        batch.validate(full=True)
        assert batch.schema.equals(arrow.schema(columns))
        assert batch.num_rows > 0
        rows += batch.to_pylist()
    return rows


records_of_one = st.builds(
    Rec,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    timestamp_ms=st.none() | st.integers(0, 2 * BASE_TIMESTAMP),
    offset_delta=st.none(),
)
chunks_of_batches = st.lists(st.lists(st.lists(records_of_one, min_size=1, max_size=12), max_size=4), max_size=4)


# ---------------------------------------------------------------- schema


def test_the_schema_is_the_documented_one() -> None:
    assert str(arrow.schema()).split("\n") == [
        "offset: int64 not null",
        "timestamp: timestamp[ms, tz=UTC] not null",
        "key: binary",
        "value: binary",
        "headers: list<item: struct<key: string, value: binary>>",
        "  child 0, item: struct<key: string, value: binary>",
        "      child 0, key: string",
        "      child 1, value: binary",
    ]


def test_columns_come_in_the_order_asked_for() -> None:
    assert arrow.schema(["value", "offset"]).names == ["value", "offset"]
    assert read([encode_log([[b"a", b"b"]])], columns=("value", "offset")) == [{"value": b"a", "offset": 0}, {"value": b"b", "offset": 1}]


def test_the_kind_of_each_timestamp_is_read_by_name() -> None:
    log_append_time = encode_batch([Rec(b"k", b"b"), Rec(b"k", b"c")], attributes=8, base_offset=1)
    rows = read([encode_log([[b"a"]]) + log_append_time], columns=("timestamp_type", "value"))
    assert [(row["timestamp_type"], row["value"]) for row in rows] == [(0, b"a"), (1, b"b"), (1, b"c")]
    assert str(arrow.schema(["timestamp_type"])) == "timestamp_type: int32 not null"


@pytest.mark.parametrize("columns", [["value", "nope"], [], ["key", "key"]], ids=["unknown", "none", "twice"])
def test_other_columns_are_refused_by_the_call(columns: list[str]) -> None:
    with pytest.raises(ValueError, match="offset, timestamp, key, value, headers") as caught:
        arrow.record_batches([], 0, 1, columns)
    assert "'nope'" in str(caught.value) or columns != ["value", "nope"]


# ---------------------------------------------------------------- rows


@given(chunks_of_batches, st.data())
def test_rows_are_the_records(chunks: list[list[list[Rec]]], data: st.DataObject) -> None:
    encoded, expected, offset = [], [], 0
    for batches in chunks:
        encoded.append(encode_log(batches, base_offset=offset))
        for record in (record for batch in batches for record in batch):
            expected.append(row_of(offset, record))
            offset += 1
    columns = data.draw(st.none() | st.permutations(arrow.COLUMNS).flatmap(lambda p: st.integers(1, 5).map(lambda n: p[:n])))
    begin, end = data.draw(st.integers(0, offset + 1)), data.draw(st.integers(0, offset + 1))
    wanted = [{name: row[name] for name in columns or arrow.COLUMNS} for row in expected[begin:end]]
    assert read(encoded, begin, end, columns) == wanted


def test_null_is_not_empty() -> None:
    records = [Rec(None, b""), Rec(b"", None), Rec(b"", b"", (("", None), ("", b"")))]
    assert read([encode_batch(records)]) == [row_of(offset, record) for offset, record in enumerate(records)]


def test_nothing_in_range_gives_no_batches() -> None:
    chunk = encode_log([[b"a", b"b"], [b"c"]])
    for chunks, begin, end in (([], 0, 9), ([b""], 0, 9), ([chunk], 3, 9), ([chunk], 1, 1), ([chunk], 2, 1), ([CONTROL], 0, 9)):
        assert read(chunks, begin, end) == []


def test_an_offset_that_compaction_took_gives_no_batch() -> None:
    gappy = encode_batch([Rec(value=b"a"), Rec(value=b"b", offset_delta=5)])
    assert read([gappy], 1, 5) == []
    assert [row["offset"] for row in read([gappy], 0, 6)] == [0, 5]


def test_control_records_are_left_out() -> None:
    chunk = encode_log([[b"a", b"b", b"c"]]) + CONTROL + encode_batch([b"d"], base_offset=4)
    assert [row["offset"] for row in read([chunk])] == [0, 1, 2, 4]


def test_append_time_is_every_records_time() -> None:
    chunk = encode_batch([Rec(timestamp_ms=BASE_TIMESTAMP - 5), Rec(timestamp_ms=7)], attributes=8, max_timestamp=BASE_TIMESTAMP + 1)
    assert {row["timestamp"] for row in read([chunk])} == {EPOCH + timedelta(milliseconds=BASE_TIMESTAMP + 1)}


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88", b"\xc0\x80"])
def test_header_keys_that_are_no_text_stay_readable(bad: bytes) -> None:
    headers = ((b"a" + bad, b"1"), (b"\xa9", b"2"), ("é€😀", b"3"))
    (row,) = read([encode_batch([Rec(headers=headers)])])
    assert row["headers"] == [{"key": "a" + "?" * len(bad), "value": b"1"}, {"key": "?", "value": b"2"}, {"key": "é€😀", "value": b"3"}]


def test_contradicting_records_raise() -> None:
    short = encode_batch([b"a"], body=b"\x14" + bytes(9))
    compressed = encode_batch([b"a"], codec=1)
    for chunk in (short, compressed, encode_log([[b"a"]])[:-1]):
        with pytest.raises(InvalidBatch):
            read([chunk])


# ---------------------------------------------------------------- memory


def test_chunks_become_batches_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_ROWS", 650)
    chunks = [encode_log([[b"x"] * 10] * 10, base_offset=100 * n) for n in range(20)]
    assert [batch.num_rows for batch in arrow.record_batches(chunks, 0, OFFSET_MAX)] == [700, 700, 600]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("use_threads", [False, True])
def test_compressed_batches_are_decoded_beside_others(codec: int, use_threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_ROWS", 650)
    monkeypatch.setattr(arrow, "_THREADED_SIZE_BYTES", 0)
    values = [b"value %d" % n for n in range(2000)]
    chunks = []
    for at in range(0, len(values), 50):
        chunk = encode_log([values[at : at + 25], values[at + 25 : at + 50]], base_offset=at)
        chunks.append(convert.compress_batches(chunk, codec if at % 200 else 0))
    reader = arrow.record_batches(chunks, 10, 1990, ["offset", "value"], use_threads=use_threads)
    table = reader.read_all()
    table.validate(full=True)
    assert table["offset"].to_pylist() == list(range(10, 1990))
    assert table["value"].to_pylist() == values[10:1990]
    assert table["value"].num_chunks == 4


@pytest.mark.parametrize(("size_bytes", "is_threaded"), [(100, False), (60_000, True)])
def test_large_record_batches_are_decoded_in_threads(size_bytes: int, is_threaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_CPU_COUNT", 2)
    monkeypatch.setattr(arrow, "_ROWS", 1)
    asked = []
    monkeypatch.setattr(arrow._threads.pool, "submit", lambda *given: asked.append(given) or _done(given))
    chunks = [convert.compress_batches(encode_log([[random.randbytes(size_bytes)]], base_offset=at), 4) for at in range(4)]
    assert arrow.record_batches(chunks, 0, OFFSET_MAX, ["offset"]).read_all()["offset"].to_pylist() == [0, 1, 2, 3]
    assert bool(asked) == is_threaded


def _done(given: tuple[Callable[..., object], Any, Any]) -> Future[object]:
    decode, *arguments = given
    future = Future[object]()
    future.set_result(decode(*arguments))
    return future


@pytest.mark.parametrize("use_threads", [False, True])
def test_rows_before_the_damage_are_given(use_threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_ROWS", 50)
    monkeypatch.setattr(arrow, "_THREADED_SIZE_BYTES", 0)

    def chunks() -> Iterator[bytes]:
        for at in range(0, 150, 10):
            yield convert.compress_batches(encode_log([[b"v" * 20] * 10], base_offset=at), 4)
        raise CorruptionError("a file", 7, "the CRC is wrong")

    damaged = bytearray(convert.compress_batches(encode_log([[b"v" * 20] * 10], base_offset=150), 4))
    damaged[63:73] = bytes(10)  # behind the header
    for source, error in ((chunks(), CorruptionError), (chain(islice(chunks(), 15), [damaged]), InvalidBatch)):
        rows = 0
        with pytest.raises(error):
            for batch in arrow.record_batches(source, 0, OFFSET_MAX, ["offset"], use_threads=use_threads):
                rows += batch.num_rows
        assert rows == 150


def test_a_batch_that_expands_too_much_is_refused() -> None:
    chunk = convert.compress_batches(encode_log([[b"v" * 5000]]), 1)
    with pytest.raises(InvalidBatch, match="at most 4000 bytes may be decompressed"):
        arrow.record_batches([chunk], 0, 9, size_bytes_max=4000).read_all()


def test_what_expands_much_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_IMAGES_SIZE_BYTES", 20_000)
    monkeypatch.setattr(arrow, "_DECODED_SIZE_BYTES", 50_000)
    monkeypatch.setattr(arrow, "_THREADED_SIZE_BYTES", 0)
    chunk = b"".join(convert.compress_batches(encode_log([[b"v" * 10_000]], base_offset=n), 4) for n in range(50))
    counts = [batch.num_rows for batch in arrow.record_batches([chunk, chunk], 0, 99, ["value"])]
    assert counts == [2] * 50


def test_an_empty_range_gives_the_schema_alone() -> None:
    reader = arrow.record_batches([], 0, 0)
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema.equals(arrow.schema())
    assert reader.read_all().num_rows == 0


def test_chunks_may_be_overwritten() -> None:
    def reused() -> Iterator[bytearray]:
        chunk = bytearray()
        for number in range(3):
            chunk.clear()  # refused while anything still borrows it
            chunk += encode_log([[Rec(b"key %d" % number, b"value %d" % number, (("h", b"%d" % number),))]], base_offset=number)
            yield chunk
        chunk.clear()

    rows = [row for batch in arrow.record_batches(reused(), 0, 9) for row in batch.to_pylist()]
    assert rows == [row_of(n, Rec(b"key %d" % n, b"value %d" % n, (("h", b"%d" % n),))) for n in range(3)]


def test_memory_is_given_back() -> None:
    before = pa.total_allocated_bytes()
    batches = list(arrow.record_batches([encode_log([[Rec(b"k", b"v" * 1000, (("h", b"x"),))] * 50])] * 20, 0, 99))
    assert pa.total_allocated_bytes() > before + 20 * 50_000
    del batches
    assert pa.total_allocated_bytes() == before


@given(chunks_of_batches, st.integers(1, 60), st.none() | st.just(["value"]) | st.just(["headers", "key"]))
def test_a_column_that_is_too_large_is_split(chunks: list[list[list[Rec]]], most: int, columns: list[str] | None) -> None:
    records = [record for batches in chunks for batch in batches for record in batch]
    chunk = encode_log([batch for batches in chunks for batch in batches])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_of_c, "_COLUMN_BYTES_MAX", most)
        names = columns or arrow.COLUMNS
        counts = [record_sizes(record, names) for record in records]
        if any(max(sizes) > most for sizes in counts):
            with pytest.raises(InvalidBatch, match=f"one record is over {most} bytes"):
                read([chunk], columns=columns)
            return
        rows = []
        for batch in arrow.record_batches([chunk], 0, 999, columns):
            rows += batch.to_pylist()
            sizes = counts[len(rows) - batch.num_rows : len(rows)]
            assert max(sum(column) for column in zip(*sizes, strict=True)) <= most
    assert rows == [{name: row_of(offset, record)[name] for name in names} for offset, record in enumerate(records)]


def record_sizes(record: Rec, names: Sequence[str]) -> tuple[int, ...]:
    """What one record adds to each array that has 32-bit offsets."""
    key = len(record.key or b"") if "key" in names else 0
    value = len(record.value or b"") if "value" in names else 0
    headers = record.headers if "headers" in names else ()
    keys = sum(len(k.encode() if isinstance(k, str) else k) for k, _ in headers)
    return key, value, len(headers), keys, sum(len(v or b"") for _, v in headers)


def test_a_chunk_of_4_gib_is_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_of_c, "_CHUNK_BYTES_MAX", 100)
        with pytest.raises(ValueError, match="a chunk of 101 bytes; at most 100"):
            read([bytes(101)])


# ---------------------------------------------------------------- the package


def test_pyarrow_is_imported_when_it_is_used() -> None:
    script = """if 1:
        import sys
        from logdb.codec import arrow
        assert "pyarrow" not in sys.modules
        sys.modules["pyarrow"] = None
        try:
            arrow.schema()
        except ImportError as error:
            assert "pip install 'pyarrow>=17'" in str(error)
        else:
            raise SystemExit("no ImportError")
    """
    subprocess.run([sys.executable, "-c", script], check=True)
