"""codec/batch.py: the Python face of the core; what the core finds is in tests/unit/native."""

import struct

import pytest

from logdb._native import lib
from logdb.codec import batch as module
from logdb.codec import crc32c
from logdb.codec.batch import (
    Header,
    Scanner,
    Status,
    check,
    explain,
    find_batch,
    header,
    index_search,
    place,
    records_check,
    seal,
    time_index_search,
)
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log
from support.batches import crc32c as crc32c_by_hand

THREE = [Rec(b"k", b"v"), Rec(b"l", b"w", timestamp_ms=BASE_TIMESTAMP + 9), Rec(None, b"x")]
DATA = encode_batch(THREE, base_offset=7, leader_epoch=3)


def test_statuses_are_the_cores() -> None:
    for status in Status:
        assert getattr(lib, "LOGDB_OK" if status == Status.OK else f"LOGDB_E_{status.name}") == status
    assert len(Status) == sum(name.startswith(("LOGDB_OK", "LOGDB_E_")) for name in dir(lib))


def test_attributes_are_the_cores() -> None:
    for name in ("CODEC_MASK", "LOG_APPEND_TIME", "TRANSACTIONAL", "CONTROL", "DELETE_HORIZON"):
        assert getattr(lib, f"LOGDB_{name}") == getattr(module, name)


# ---------------------------------------------------------------- one batch


def test_header() -> None:
    status, batch = header(DATA)
    crc = struct.unpack_from(">I", DATA, 17)[0]
    assert status is Status.OK
    assert batch == Header(7, 9, BASE_TIMESTAMP, BASE_TIMESTAMP + 9, -1, len(DATA), 3, -1, 3, crc, 0, -1, 2)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(kind: type) -> None:
    assert header(kind(DATA))[0] is Status.OK
    assert check(kind(DATA))[0] is Status.OK
    assert crc32c(kind(DATA)) == crc32c_by_hand(DATA)
    assert find_batch(kind(DATA)) == 0
    assert Scanner(segment_base_offset=7).scan(kind(DATA)) is Status.OK


def test_header_of_too_few_bytes() -> None:
    assert header(DATA[:60]) == (Status.SHORT, None)
    assert header(b"") == (Status.SHORT, None)
    status, batch = header(DATA[:61])
    assert status is Status.SHORT
    assert batch is not None
    assert batch.size_bytes == len(DATA)


def test_check() -> None:
    assert check(DATA) == (*header(DATA), struct.unpack_from(">I", DATA, 17)[0])
    assert check(DATA[:-1])[::2] == (Status.SHORT, 0)
    assert check(DATA, len(DATA) - 1)[0] is Status.LENGTH


def test_records_check_takes_the_header_back() -> None:
    _, batch = header(DATA)
    assert batch is not None
    assert records_check(DATA[61:], batch) is Status.OK
    assert records_check(DATA[61:], batch, keys_required=True) is Status.KEY
    assert records_check(DATA[61:], batch._replace(max_timestamp=1)) is Status.TIMESTAMP
    assert records_check(DATA[61:], batch._replace(crc=2**32 - 1, attributes=8, max_timestamp=1)) is Status.OK


def test_place() -> None:
    buf = bytearray(b"?" * 10 + DATA)
    place(buf, 10, 2**40, 9)
    place(memoryview(buf), 10, 2**41, 9)
    assert buf == b"?" * 10 + encode_batch(THREE, base_offset=2**41, leader_epoch=9)


@pytest.mark.parametrize("position", [-1, len(DATA) - 60, 2**63])
def test_place_beyond_the_buffer(position: int) -> None:
    with pytest.raises(ValueError, match="no batch header fits"):
        place(bytearray(DATA), position, 0, 0)


def test_seal() -> None:
    buf = bytearray(DATA + encode_batch([])[61:])
    seal(buf, 8, 5)
    assert buf == encode_batch(THREE, base_offset=7, leader_epoch=3, attributes=8, max_timestamp=5)
    with pytest.raises(ValueError, match="60 bytes are not one batch"):
        seal(bytearray(60), 0, 0)


def test_only_writable_buffers_are_written() -> None:
    with pytest.raises(BufferError):
        place(DATA, 0, 0, 0)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        seal(memoryview(DATA), 0, 0)


def test_crc32c_continues() -> None:
    assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283


def test_searches_do_not_leave_the_index() -> None:
    for search, size in ((index_search, 8), (time_index_search, 12)):
        for count in (-1, 3):
            with pytest.raises(ValueError, match="entries in"):
                search(bytes(2 * size), count, 0)


# ---------------------------------------------------------------- Scanner


def test_a_scanner_that_is_resumed_goes_on_as_one_that_never_stopped() -> None:
    log = encode_log([[b"x" * 3000]] * 9)
    cut = len(log) // 9 * 4
    one = Scanner(segment_base_offset=0)
    one.scan(log)
    first = Scanner(segment_base_offset=0)
    first.scan(log, cut)
    second = Scanner(segment_base_offset=0, next_offset=first.next_offset, position=first.position)
    for name in ("max_timestamp", "max_timestamp_offset", "unindexed_bytes", "indexed_timestamp"):
        setattr(second, name, getattr(first, name))
    second.scan(memoryview(log)[cut:])
    assert first.index + second.index == one.index
    assert first.time_index + second.time_index == one.time_index
    assert (second.next_offset, second.position, second.unindexed_bytes) == (one.next_offset, one.position, one.unindexed_bytes)


def test_more_entries_than_one_call_of_the_core_has_room_for() -> None:
    batches = [encode_batch([b""], base_offset=at, base_timestamp=at, attributes=(16, 64)[at % 2]) for at in range(300)]
    log = b"".join(batches)
    scan = Scanner(segment_base_offset=0, index_interval_bytes=0)
    assert scan.scan(log + b"more") is Status.SHORT
    assert (scan.used, scan.batch_count, scan.record_count, scan.attributes, scan.codecs) == (len(log), 300, 300, 80, 1)
    assert scan.index == b"".join(struct.pack(">ii", at, at * len(batches[0])) for at in range(1, 300))
    assert scan.time_index == b"".join(struct.pack(">qi", at, at) for at in range(1, 300))


def test_exactly_as_many_entries_as_there_is_room() -> None:
    log = encode_log([[b""]] * (Scanner._ROOM + 1))
    scan = Scanner(segment_base_offset=0, index_interval_bytes=0)
    assert scan.scan(log) is Status.OK
    assert len(scan.index) == Scanner._ROOM * 8


def test_without_index() -> None:
    scan = Scanner(segment_base_offset=0, with_index=False, index_interval_bytes=0)
    assert scan.scan(encode_log([[b""]] * 9)) is Status.OK
    assert (scan.index, scan.time_index, scan.position) == (b"", b"", 9 * len(encode_batch([b""])))


def test_size_bytes_outside_the_buffer() -> None:
    for size_bytes in (-1, len(DATA) + 1):
        with pytest.raises(ValueError, match="of a buffer of"):
            Scanner(segment_base_offset=7).scan(DATA, size_bytes)


def test_a_scanner_begins_anywhere() -> None:
    scan = Scanner(segment_base_offset=0, next_offset=7, position=2**20)
    assert (scan.max_timestamp, scan.max_timestamp_offset, scan.indexed_timestamp, scan.last_base_offset) == (-1, -1, -1, -1)
    assert scan.scan(DATA) is Status.OK
    assert (scan.next_offset, scan.position) == (10, 2**20 + len(DATA))
    scan.next_offset, scan.end_offset = 7, 7
    assert scan.scan(DATA) is Status.OK
    assert scan.used == 0


# ---------------------------------------------------------------- words


@pytest.mark.parametrize("status", Status)
def test_every_status_has_words(status: Status) -> None:
    _, batch = header(DATA)
    assert explain(status)
    assert explain(status, batch).startswith(explain(status))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (DATA[:-1], f"the batch is cut off: it has {len(DATA)} bytes"),
        (DATA[:9], "the batch is cut off"),
        (
            encode_batch(THREE, base_offset=8, leader_epoch=3),
            "the offsets do not follow those before or overflow: offsets 8 to 10, expected 7",
        ),
        (encode_batch(THREE, base_offset=7, leader_epoch=4), "the leader epoch is not the checkpoint's: 4, expected 3"),
        (encode_batch(THREE, magic=1), "the magic byte is not 2: it is 1"),
        (encode_batch(THREE, attributes=-(2**15)), "an unknown codec or attribute: attributes 0x8000"),
        (encode_batch(THREE, length=2**31 - 1), f"the length of the batch is out of bounds: {2**31 + 11} bytes"),
        (encode_batch(THREE, record_count=9, base_offset=7), f"9 records, offsets 7 to 9, {len(DATA)} bytes"),
    ],
)
def test_reasons_of_a_scanner_have_both_values(data: bytes, reason: str) -> None:
    scan = Scanner(segment_base_offset=7, epochs=[(3, 0)])
    assert reason in explain(scan.scan(data), scan)


def test_both_crcs_are_shown() -> None:
    bad = encode_batch(THREE, base_offset=7, leader_epoch=3, crc=0xAB)
    computed = struct.unpack_from(">I", DATA, 17)[0]
    scan = Scanner(segment_base_offset=7)
    assert explain(scan.scan(bad), scan) == f"the CRC does not match: stored 0x000000ab, computed {computed:#010x}"
    status, batch, crc = check(bad)
    assert explain(status, batch, computed_crc=crc) == f"the CRC does not match: stored 0x000000ab, computed {computed:#010x}"
