"""columns.c: the two passes, by hand, against the records that went in."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb._native import ffi, lib
from logdb.codec.batch import Status
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, varint

OFFSET, TIMESTAMP, KEY, VALUE, HEADERS = 1, 2, 4, 8, 16
ALL = 31


class Columns:
    """Buffers of the exact sizes, each with a guard behind it that must stay as it is."""

    GUARD = b"\xa5" * 16

    def __init__(self, wanted: int, row_room: int) -> None:
        self.wanted, self.buffers, self.out = wanted, {}, ffi.new("logdb_columns *")
        self.rows = ffi.new("logdb_row[]", max(row_room, 1))
        self.row_room = row_room
        for flag, name, size in (
            (OFFSET, "offset", 8 * row_room),
            (TIMESTAMP, "timestamp", 8 * row_room),
            (KEY, "key_offsets", 4 * (row_room + 1)),
            (KEY, "key_validity", (row_room + 7) // 8),
            (VALUE, "value_offsets", 4 * (row_room + 1)),
            (VALUE, "value_validity", (row_room + 7) // 8),
            (HEADERS, "header_offsets", 4 * (row_room + 1)),
        ):
            self._add(flag, name, size)

    def _add(self, flag: int, name: str, size: int) -> None:
        if self.wanted & flag:
            self.buffers[name] = buffer = bytearray(size) + self.GUARD
            kind = "int64_t *" if name in ("offset", "timestamp") else "int32_t *" if name.endswith("offsets") else "uint8_t *"
            setattr(self.out, name, ffi.cast(kind, ffi.from_buffer(buffer)))

    def add_second(self, sizes: Any) -> None:
        self._add(KEY, "key", sizes.key_bytes)
        self._add(VALUE, "value", sizes.value_bytes)
        self._add(HEADERS, "header_key_offsets", 4 * (sizes.header_count + 1))
        self._add(HEADERS, "header_key", sizes.header_key_bytes)
        self._add(HEADERS, "header_value_offsets", 4 * (sizes.header_count + 1))
        self._add(HEADERS, "header_value_validity", (sizes.header_count + 7) // 8)
        self._add(HEADERS, "header_value", sizes.header_value_bytes)

    def ints(self, name: str, count: int) -> list[int]:
        return memoryview(self.buffers[name])[:-16].cast("q" if name in ("offset", "timestamp") else "i").tolist()[:count]

    def binary(self, name: str, count: int) -> list[bytes | None]:
        offsets = self.ints(f"{name}_offsets", count + 1)
        bits = self.buffers.get(f"{name}_validity")
        valid = [bits is None or bool(bits[at >> 3] >> (at & 7) & 1) for at in range(count)]
        return [bytes(self.buffers[name][a:b]) if ok else None for ok, (a, b) in zip(valid, itertools.pairwise(offsets), strict=True)]

    def check_guards(self) -> None:
        assert all(buffer.endswith(self.GUARD) for buffer in self.buffers.values())


def walk(
    data: bytes, wanted: int = ALL, *, start: int = 0, end: int = 2**63 - 1, row_room: int | None = None
) -> tuple[Status, Any, Columns]:
    """Both passes; the second only where the first was OK."""
    sizes = ffi.new("logdb_column_sizes *")
    columns = Columns(wanted, len(data) // 7 if row_room is None else row_room)
    source = ffi.from_buffer(data)
    status = Status(lib.logdb_columns_walk(source, len(data), start, end, wanted, columns.rows, columns.row_room, columns.out, sizes))
    if status is Status.OK:
        columns.add_second(sizes)
        lib.logdb_columns_gather(source, columns.rows, wanted, sizes, columns.out)
    columns.check_guards()
    return status, sizes, columns


def table(data: bytes, wanted: int = ALL, **options: Any) -> list[tuple[Any, ...]]:
    """Rows as tuples of the wanted columns."""
    status, sizes, columns = walk(data, wanted, **options)
    assert status is Status.OK
    count = sizes.row_count
    parts: list[list[Any]] = []
    parts += [columns.ints("offset", count)] if wanted & OFFSET else []
    parts += [columns.ints("timestamp", count)] if wanted & TIMESTAMP else []
    parts += [columns.binary("key", count)] if wanted & KEY else []
    parts += [columns.binary("value", count)] if wanted & VALUE else []
    if wanted & HEADERS:
        keys, values = columns.binary("header_key", sizes.header_count), columns.binary("header_value", sizes.header_count)
        pairs = [(key.decode(), value) for key, value in zip(keys, values, strict=True) if key is not None]
        offsets = columns.ints("header_offsets", count + 1)
        parts.append([tuple(pairs[a:b]) for a, b in itertools.pairwise(offsets)])
    return list(zip(*parts, strict=True))


RECORDS = [
    Rec(b"k1", b"v1", (("a", b"1"), ("b", None), ("", b"")), BASE_TIMESTAMP + 5),
    Rec(None, b"v2", (), BASE_TIMESTAMP - 5),
    Rec(b"", None),
    Rec(b"k4", b"", (("ü€😀", b"x" * 300),)),
]
ROWS = [(100 + at, BASE_TIMESTAMP if r.timestamp_ms is None else r.timestamp_ms, r.key, r.value, r.headers) for at, r in enumerate(RECORDS)]
LOG = encode_batch(RECORDS[:3], base_offset=100) + encode_batch(RECORDS[3:], base_offset=103)


@pytest.mark.parametrize("wanted", range(1, 32))
def test_any_choice_of_columns(wanted: int) -> None:
    picked = [tuple(value for at, value in enumerate(row) if wanted >> at & 1) for row in ROWS]
    assert table(LOG, wanted) == picked


def test_sizes() -> None:
    _, sizes, _ = walk(LOG)
    assert (sizes.row_count, sizes.key_bytes, sizes.key_null_count) == (4, 4, 1)
    assert (sizes.value_bytes, sizes.value_null_count) == (4, 1)
    assert (sizes.header_count, sizes.header_key_bytes, sizes.header_value_bytes, sizes.header_value_null_count) == (4, 11, 301, 1)


@pytest.mark.parametrize("start", [0, 100, 101, 103, 104, 2**62])
@pytest.mark.parametrize("end", [0, 100, 102, 103, 104, 2**63 - 1])
def test_a_range_of_offsets(start: int, end: int) -> None:
    assert table(LOG, start=start, end=end) == [row for row in ROWS if start <= row[0] < end]


def test_nothing_in_nothing_out() -> None:
    assert table(b"") == []
    assert table(encode_batch([], base_offset=1, last_offset_delta=8)) == []


def test_control_batches_are_left_out() -> None:
    control = encode_batch([Rec(b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=104, attributes=32 | 16)
    assert table(LOG + control + encode_batch([b"x"], base_offset=105), OFFSET) == [(offset,) for offset in (100, 101, 102, 103, 105)]


def test_log_append_time_is_every_records() -> None:
    data = encode_batch(RECORDS, max_timestamp=77, attributes=8)
    assert table(data, TIMESTAMP) == [(77,)] * 4


def test_compacted_offsets() -> None:
    data = encode_batch([Rec(offset_delta=3), Rec(offset_delta=9)], base_offset=10, last_offset_delta=20)
    assert table(data, OFFSET) == [(13,), (19,)]
    assert table(data, OFFSET, start=14, end=19) == []


def test_header_keys_that_are_not_utf8_become_question_marks() -> None:
    keys = [
        b"\xff",
        b"a\x80b",
        b"\xc3",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe0\x80\x80",
        b"\xf0\x80\x80\x80",
        b"\xc3\xbc\xe2\x82",
    ]
    data = encode_batch([Rec(headers=tuple((key, b"") for key in keys))])
    [(headers,)] = table(data, HEADERS)
    assert [key for key, _ in headers] == ["?", "a?b", "?", "??", "???", "????", "???", "????", "ü??"]


@given(key=st.binary(max_size=12) | st.text(max_size=4).map(str.encode))
def test_header_keys_are_always_utf8_of_the_same_size(key: bytes) -> None:
    [(((shown, _),),)] = table(encode_batch([Rec(headers=((key, b""),))]), HEADERS)
    assert len(shown.encode()) == len(key)
    try:
        assert shown == key.decode()
    except UnicodeDecodeError:
        assert "?" in shown


def test_row_room() -> None:
    for room in range(4):
        status, sizes, _ = walk(LOG, row_room=room)
        assert status is Status.ROOM
        assert sizes.row_count == 4
    assert walk(LOG, row_room=4)[0] is Status.OK
    assert walk(LOG, row_room=2, start=0, end=100)[1].row_count == 0


def test_more_than_positions_can_hold() -> None:
    sizes = ffi.new("logdb_column_sizes *")  # refused before anything is read
    assert lib.logdb_columns_walk(ffi.NULL, 2**32, 0, 1, VALUE, ffi.NULL, 0, ffi.NULL, sizes) == Status.COUNT


def with_headers(count: int, headers: bytes = b"") -> bytes:
    body = bytes(3) + varint(-1) * 2 + varint(count) + headers
    return encode_batch([b""], body=varint(len(body)) + body)


WRONG = {
    "compressed": (Status.ATTRIBUTES, encode_batch([b"a"], codec=4)),
    "cut off": (Status.SHORT, LOG[:-1]),
    "zeroes": (Status.ZERO, LOG + bytes(70)),
    "a record that overruns": (Status.RECORD, encode_batch([b"a"], body=b"\x7f" * 9)),
    "a header that overruns": (Status.RECORD, with_headers(1, varint(1) + b"h" + varint(1))),
    "2^62 headers": (Status.RECORD, with_headers(2**62, varint(0) + varint(-1))),
    "bytes after the records": (Status.COUNT, encode_batch([b"a"], body=encode_batch([b"a"])[61:] + b"\0")),
    "an offset outside": (Status.DELTA, encode_batch([Rec(offset_delta=5)], last_offset_delta=4)),
    "an offset before": (Status.DELTA, encode_batch([Rec(offset_delta=-1)], last_offset_delta=4)),
    "an offset at 2^63": (Status.DELTA, encode_batch([Rec(offset_delta=2**63 - 1)], base_offset=2**62, last_offset_delta=4)),
}


@pytest.mark.parametrize(("status", "data"), WRONG.values(), ids=WRONG)
def test_what_is_not_checked_batches(status: Status, data: bytes) -> None:
    assert walk(data)[0] is status


def test_timestamps_wrap_instead_of_failing() -> None:
    body = b"\0" + varint(2**63 - 1) + b"\0\1\1\0"
    assert table(encode_batch([b""], base_timestamp=1, body=varint(len(body)) + body), TIMESTAMP) == [(-(2**63),)]


@given(changes=st.lists(st.tuples(st.integers(0, len(LOG) - 1), st.integers(0, 255)), max_size=6), wanted=st.integers(1, ALL))
def test_any_bytes_stay_within_their_buffers(changes: list[tuple[int, int]], wanted: int) -> None:
    data = bytearray(LOG)
    for position, byte in changes:
        data[position] = byte
    walk(bytes(data), wanted)


record = st.builds(
    Rec,
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    st.integers(0, 2**40),
    st.none(),
)


@given(batches=st.lists(st.lists(record, min_size=1, max_size=20), max_size=5))
def test_round_trip(batches: list[list[Rec]]) -> None:
    data, rows = b"", []
    for records in batches:
        data += encode_batch(records, base_offset=len(rows))
        rows += [(len(rows) + at, r.timestamp_ms, r.key, r.value, r.headers) for at, r in enumerate(records)]
    assert table(data) == rows
