"""batch.c: what a header, a CRC and records may say, and every way of lying."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb._native import ffi, lib
from logdb.codec.batch import Status
from support.batches import BASE_TIMESTAMP, HEADER, Rec, encode_batch, encode_records, varint

MAX = 2**31 - 1
THREE = [Rec(b"k", b"v"), Rec(b"k", None, (("h", b"x"), ("i", None))), Rec(b"", b"", timestamp_ms=BASE_TIMESTAMP + 9)]


def header(data: bytes, batch_size_max: int = MAX) -> tuple[Status, Any]:
    batch = ffi.new("logdb_batch *")
    return Status(lib.logdb_batch_header(data, len(data), batch_size_max, batch)), batch


def check(data: bytes) -> tuple[Status, Any, int]:
    batch, crc = ffi.new("logdb_batch *"), ffi.new("uint32_t *")
    return Status(lib.logdb_batch_check(data, len(data), MAX, batch, crc)), batch, crc[0]


def records_check(data: bytes, records: bytes | None = None, *, keys_required: bool = False) -> Status:
    _, batch = header(data)
    records = data[HEADER.size :] if records is None else records
    return Status(lib.logdb_records_check(records, len(records), batch, keys_required, ffi.NULL))


# ---------------------------------------------------------------- header


def test_a_whole_header() -> None:
    data = encode_batch(
        THREE, base_offset=7, leader_epoch=3, producer_id=2**40, producer_epoch=5, base_sequence=6, attributes=lib.LOGDB_TRANSACTIONAL
    )
    status, batch = header(data)
    assert status is Status.OK
    assert (batch.base_offset, batch.last_offset, batch.record_count, batch.size_bytes) == (7, 9, 3, len(data))
    assert (batch.base_timestamp, batch.max_timestamp) == (BASE_TIMESTAMP, BASE_TIMESTAMP + 9)
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (3, 2**40, 5, 6)
    assert (batch.magic, batch.attributes, batch.crc) == (2, 16, struct.unpack_from(">I", data, 17)[0])


def test_negative_fields_keep_their_sign() -> None:
    _, batch = header(encode_batch(THREE, leader_epoch=-1, base_timestamp=-1, max_timestamp=-1))
    assert (batch.leader_epoch, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1, -1)
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, -1)


@pytest.mark.parametrize("size", [0, 1, 60])
def test_less_than_a_header_is_short_and_decodes_nothing(size: int) -> None:
    status, batch = header(encode_batch(THREE)[:size])
    assert status is Status.SHORT
    assert batch.size_bytes == 0


@pytest.mark.parametrize("missing", [1, 20])
def test_less_than_the_batch_is_short_and_decodes_the_header(missing: int) -> None:
    data = encode_batch(THREE)
    status, batch = header(data[:-missing])
    assert status is Status.SHORT
    assert batch.size_bytes == len(data)


def test_bytes_after_the_batch_are_not_its_own() -> None:
    data = encode_batch(THREE)
    assert header(data + b"\xff" * 100)[0] is Status.OK


def test_an_empty_batch_left_by_compaction() -> None:
    status, batch = header(encode_batch([], base_offset=5, last_offset_delta=9, producer_id=1))
    assert status is Status.OK
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (5, 14, 0)


def test_fewer_records_than_offsets_after_compaction() -> None:
    assert header(encode_batch(THREE, last_offset_delta=99))[0] is Status.OK


LIES = {
    "zeroes": (Status.ZERO, bytes(61)),
    "zeroes, then data": (Status.MAGIC, bytes(60) + b"\1"),
    "magic 1": (Status.MAGIC, encode_batch(THREE, magic=1)),
    "magic -1": (Status.MAGIC, encode_batch(THREE, magic=-1)),
    "length below a header": (Status.LENGTH, encode_batch(THREE, length=48)),
    "length 0": (Status.LENGTH, encode_batch(THREE, length=0)),
    "length negative": (Status.LENGTH, encode_batch(THREE, length=-(2**31))),
    "length over the limit": (Status.LENGTH, encode_batch(THREE, length=2**31 - 1)),
    "length beyond the buffer": (Status.SHORT, encode_batch(THREE, length=2**31 - 13)),
    "codec 5": (Status.ATTRIBUTES, encode_batch(THREE, codec=5)),
    "codec 7": (Status.ATTRIBUTES, encode_batch(THREE, codec=7)),
    "attribute bit 7": (Status.ATTRIBUTES, encode_batch(THREE, attributes=128)),
    "attribute bit 15": (Status.ATTRIBUTES, encode_batch(THREE, attributes=-(2**15))),
    "negative base offset": (Status.OFFSET, encode_batch(THREE, base_offset=-1)),
    "smallest base offset": (Status.OFFSET, encode_batch(THREE, base_offset=-(2**63))),
    "negative last offset delta": (Status.OFFSET, encode_batch(THREE, last_offset_delta=-1, record_count=0)),
    "smallest last offset delta": (Status.OFFSET, encode_batch(THREE, last_offset_delta=-(2**31))),
    "last offset 2^63 - 1": (Status.OFFSET, encode_batch(THREE, base_offset=2**63 - 3)),
    "last offset 2^63": (Status.OFFSET, encode_batch(THREE, base_offset=2**63 - 2)),
    "negative count": (Status.COUNT, encode_batch(THREE, record_count=-1)),
    "smallest count": (Status.COUNT, encode_batch(THREE, record_count=-(2**31))),
    "more records than offsets": (Status.COUNT, encode_batch(THREE, record_count=4)),
    "more records than bytes": (Status.COUNT, encode_batch(THREE, record_count=2**31 - 1, last_offset_delta=2**31 - 1)),
    "bytes without records": (Status.COUNT, encode_batch(THREE, record_count=0)),
}


@pytest.mark.parametrize(("status", "data"), LIES.values(), ids=LIES)
def test_a_header_that_lies(status: Status, data: bytes) -> None:
    assert header(data)[0] is status
    assert check(data)[0] is status


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("attributes", [0, 8, 16, 32, 64, 120])
def test_known_attributes(codec: int, attributes: int) -> None:
    assert header(encode_batch(THREE, codec=codec, attributes=attributes))[0] is Status.OK


def test_the_largest_offset() -> None:
    status, batch = header(encode_batch(THREE, base_offset=2**63 - 4))
    assert status is Status.OK
    assert batch.last_offset == 2**63 - 2


def test_a_batch_at_and_over_the_limit() -> None:
    data = encode_batch(THREE)
    assert header(data, len(data))[0] is Status.OK
    assert header(data, len(data) - 1)[0] is Status.LENGTH


def test_how_many_a_compressed_batch_holds_is_not_known_from_its_size() -> None:
    assert header(encode_batch(THREE, codec=4, record_count=2**31 - 1, last_offset_delta=2**31 - 1))[0] is Status.OK


# ---------------------------------------------------------------- CRC


def test_the_crc_covers_all_behind_it() -> None:
    data = encode_batch(THREE)
    status, batch, crc = check(data)
    assert status is Status.OK
    assert crc == batch.crc
    for position in range(21, len(data)):
        bad = bytearray(data)
        bad[position] ^= 0x10
        assert check(bytes(bad))[0] is not Status.OK, position


def test_a_wrong_crc_shows_both() -> None:
    data = encode_batch(THREE)
    status, batch, crc = check(encode_batch(THREE, crc=1))
    assert status is Status.CRC
    assert (batch.crc, crc) == (1, struct.unpack_from(">I", data, 17)[0])


# ---------------------------------------------------------------- records from outside


def test_good_records() -> None:
    assert records_check(encode_batch(THREE)) is Status.OK
    assert records_check(encode_batch(THREE), keys_required=True) is Status.OK
    assert records_check(encode_batch([])) is Status.OK


def test_offsets_may_have_gaps_inside() -> None:
    assert records_check(encode_batch([Rec(offset_delta=2), Rec(offset_delta=7)])) is Status.OK


def test_log_append_time_says_nothing_of_the_records() -> None:
    assert records_check(encode_batch(THREE, max_timestamp=1)) is Status.TIMESTAMP
    assert records_check(encode_batch(THREE, max_timestamp=1, attributes=lib.LOGDB_LOG_APPEND_TIME)) is Status.OK


@pytest.mark.parametrize("offset_deltas", [(0, 0, 2), (1, 0, 2), (-1, 0, 2), (0, 1, 3), (0, 1, 1), (0, 1, 2**31), (0, 1, 2**63 - 1)])
def test_offset_deltas_that_do_not_lead_to_the_last(offset_deltas: tuple[int, ...]) -> None:
    records = [Rec(offset_delta=delta) for delta in offset_deltas]
    assert records_check(encode_batch(records, last_offset_delta=2)) is Status.DELTA


def test_a_null_key_where_keys_are_required() -> None:
    data = encode_batch([Rec(b"", b""), Rec(None, b"")])
    assert records_check(data) is Status.OK
    assert records_check(data, keys_required=True) is Status.KEY


@pytest.mark.parametrize("delta", [2**63 - 1 - BASE_TIMESTAMP, 2**63 - BASE_TIMESTAMP, 2**63 - 1, -(2**63)])
def test_timestamps_near_the_end_of_time(delta: int) -> None:
    """A sum that does not fit wraps, as it does for readers."""
    timestamp = (BASE_TIMESTAMP + delta + 2**63) % 2**64 - 2**63
    body = b"\0" + varint(delta) + varint(0) + varint(-1) + varint(-1) + varint(0)
    data = encode_batch([Rec()], body=varint(len(body)) + body, max_timestamp=timestamp)
    assert records_check(data) is Status.OK


def test_records_that_are_missing_or_too_many() -> None:
    records = encode_records(THREE)
    data = encode_batch(THREE)
    assert records_check(data, records + b"\0") is Status.COUNT
    assert records_check(data, records + encode_records([Rec()])) is Status.COUNT
    assert records_check(data, b"") is Status.RECORD
    for size in range(len(records)):
        assert records_check(data, records[:size]) is not Status.OK


FIELDS = (b"\0", varint(0), varint(0), varint(1), b"k", varint(1), b"v", varint(1), varint(1), b"h", varint(1), b"x")


def one_record(**fields: bytes) -> bytes:
    """A record with fields (at0 to at11) replaced, under a length that fits."""
    body = b"".join(fields.get(f"at{at}", field) for at, field in enumerate(FIELDS))
    return fields.get("length", varint(len(body))) + body


NEVER_ENDS = b"\x80" * 10 + b"\0"
RECORD_LIES = {
    "length 0": one_record(length=varint(0)),
    "length negative": one_record(length=varint(-1)),
    "length one short": one_record(length=varint(11)),
    "length one long": one_record(length=varint(13)),
    "length 2^31 - 1": one_record(length=varint(2**31 - 1)),
    "length 2^63 - 1": one_record(length=varint(2**63 - 1)),
    "length -2^63": one_record(length=varint(-(2**63))),
    "length that never ends": one_record(length=NEVER_ENDS),
    "timestamp that never ends": one_record(at1=NEVER_ENDS),
    "offset that never ends": one_record(at2=NEVER_ENDS),
    "key below null": one_record(at3=varint(-2)),
    "key -2^63": one_record(at3=varint(-(2**63))),
    "key over the record": one_record(at3=varint(11)),
    "key 2^63 - 1": one_record(at3=varint(2**63 - 1)),
    "value below null": one_record(at5=varint(-2)),
    "value over the record": one_record(at5=varint(2**31 - 1)),
    "headers negative": one_record(at7=varint(-1)),
    "headers fewer than there are": one_record(at7=varint(0)),
    "headers more than there are": one_record(at7=varint(2)),
    "headers 2^63 - 1": one_record(at7=varint(2**63 - 1)),
    "header without a key": one_record(at8=varint(-1)),
    "header key over the record": one_record(at8=varint(9)),
    "header value below null": one_record(at10=varint(-2)),
    "header value over the record": one_record(at10=varint(2)),
    "header value short of the record": one_record(at10=varint(0)),
}


@pytest.mark.parametrize("body", RECORD_LIES.values(), ids=RECORD_LIES)
def test_a_record_that_contradicts_itself(body: bytes) -> None:
    assert records_check(encode_batch([Rec()], body=one_record())) is Status.OK
    assert records_check(encode_batch([Rec()], body=body)) is Status.RECORD


@given(data=st.binary(max_size=300), seed=st.integers(0, 2**32 - 1))
def test_any_bytes_get_a_status(data: bytes, seed: int) -> None:
    check(data)
    good = bytearray(encode_batch(THREE))
    good[seed % len(good)] = seed >> 24
    records_check(bytes(good))
    records_check(bytes(good), data)


# ---------------------------------------------------------------- changing a batch


def test_place_changes_nothing_that_the_crc_covers() -> None:
    data = bytearray(encode_batch(THREE))
    lib.logdb_batch_place(ffi.from_buffer(data), 2**62, 2**31 - 1)
    assert data == encode_batch(THREE, base_offset=2**62, leader_epoch=2**31 - 1)


def test_seal_makes_a_batch_whole() -> None:
    data = bytearray(encode_batch(THREE, length=7, crc=0))
    lib.logdb_batch_seal(ffi.from_buffer(data), len(data), 8, BASE_TIMESTAMP + 99)
    assert data == encode_batch(THREE, attributes=8, max_timestamp=BASE_TIMESTAMP + 99)
