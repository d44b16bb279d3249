"""scan.c: buffers of batches against Kafka's rules for offsets, epochs and indexes.

Through ``codec.batch``, whose functions are one call each.
"""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.codec.batch import Scanner, Status, find_batch, find_timestamp, header, index_search, time_index_search
from logdb.errors import InvalidBatch
from support.batches import BASE_TIMESTAMP, HEADER, Rec, encode_batch, encode_log

LOG = encode_log([[b"a", b"b"], [b"c"], [b"d", b"e", b"f"]])
SIZES = [len(encode_batch([b"a", b"b"])), len(encode_batch([b"c"])), len(encode_batch([b"d", b"e", b"f"]))]


def scanner(**options: Any) -> Scanner:
    return Scanner(**{"segment_base_offset": 0} | options)


# ---------------------------------------------------------------- scan


def test_whole_batches() -> None:
    scan = scanner(position=1000)
    assert scan.scan(LOG) is Status.OK
    assert (scan.next_offset, scan.position, scan.used, scan.batch_count, scan.record_count) == (6, 1000 + len(LOG), len(LOG), 3, 6)
    assert (scan.last_base_offset, scan.last_size_bytes) == (3, SIZES[2])
    assert (scan.max_timestamp, scan.max_timestamp_offset) == (BASE_TIMESTAMP, 1)
    assert scan.unindexed_bytes == len(LOG)


def test_an_empty_buffer_is_whole() -> None:
    scan = scanner()
    assert scan.scan(b"") is Status.OK
    assert (scan.used, scan.next_offset) == (0, 0)


@pytest.mark.parametrize("size", range(len(LOG)))
def test_a_buffer_cut_anywhere_is_short_behind_whole_batches(size: int) -> None:
    ends = [0, SIZES[0], SIZES[0] + SIZES[1], len(LOG)]
    scan = scanner()
    status = scan.scan(LOG, size)
    assert scan.used == max(end for end in ends if end <= size)
    assert status is (Status.OK if size in ends else Status.SHORT)
    assert scan.scan(LOG[scan.used :]) is Status.OK  # and goes on from there
    assert (scan.next_offset, scan.position) == (6, len(LOG))


def test_a_flipped_byte_ends_the_scan_before_its_batch() -> None:
    for position in range(SIZES[0], SIZES[0] + SIZES[1]):
        bad = bytearray(LOG)
        bad[position] ^= 0x40
        scan = scanner(epochs=[(0, 0)])
        status = scan.scan(bad)
        assert status is not Status.OK, position
        assert (scan.used, scan.next_offset) == (SIZES[0], 2)


def test_without_crc_only_the_header_is_believed() -> None:
    bad = bytearray(LOG)
    bad[SIZES[0] - 1] ^= 1
    assert scanner().scan(bad) is Status.CRC
    assert scanner(check_crc=False).scan(bad) is Status.OK


def test_crc_shows_both_values() -> None:
    scan = scanner()
    assert scan.scan(encode_batch([b"a"], crc=77)) is Status.CRC
    stopped = scan.stopped()
    assert stopped is not None
    assert (stopped.crc, scan.computed_crc) == (77, struct.unpack_from(">I", encode_batch([b"a"]), 17)[0])


def test_offsets_follow_one_another() -> None:
    assert scanner(next_offset=1).scan(LOG) is Status.OFFSET
    gap = encode_batch([b"a"]) + encode_batch([b"b"], base_offset=5)
    assert scanner().scan(gap) is Status.OFFSET
    assert scanner(gaps=True).scan(gap) is Status.OK
    assert scanner(gaps=True, next_offset=1).scan(gap) is Status.OFFSET
    assert scanner(gaps=True).scan(encode_batch([b"a", b"b"]) + encode_batch([b"c"], base_offset=1)) is Status.OFFSET


def test_a_short_batch_with_the_wrong_offset_is_wrong_not_short() -> None:
    assert scanner(next_offset=1).scan(LOG, SIZES[0] - 1) is Status.OFFSET


def test_zeroes_and_limits() -> None:
    assert scanner().scan(LOG + bytes(100)) is Status.ZERO
    assert scanner().scan(LOG + bytes(60)) is Status.SHORT
    assert scanner(batch_size_max=max(SIZES)).scan(LOG) is Status.OK
    assert scanner(batch_size_max=max(SIZES) - 1).scan(LOG) is Status.LENGTH


@pytest.mark.parametrize(
    ("end_offset", "used"), [(0, 0), (1, SIZES[0]), (2, SIZES[0]), (3, SIZES[0] + SIZES[1]), (6, len(LOG)), (9, len(LOG))]
)
def test_end_offset(end_offset: int, used: int) -> None:
    scan = scanner(end_offset=end_offset)
    assert scan.scan(LOG + b"\xff" * 200 if end_offset <= 6 else LOG) is Status.OK
    assert scan.used == used


def test_end_offset_in_a_gap() -> None:
    scan = scanner(end_offset=3, gaps=True)
    assert scan.scan(encode_batch([b"a"]) + encode_batch([b"b"], base_offset=5)) is Status.OK
    assert scan.next_offset == 1


def test_epochs() -> None:
    def log(*epochs: int) -> bytes:
        return b"".join(encode_batch([b""], base_offset=offset, leader_epoch=epoch) for offset, epoch in enumerate(epochs))

    epochs = [(0, 0), (2, 2), (7, 3)]
    assert scanner(epochs=epochs).scan(log(0, 0, 2, 7)) is Status.OK
    assert scanner(epochs=[]).scan(log(5, 4)) is Status.OK
    for wrong, used in (((1,), 0), ((0, 2), 1), ((0, 0, 0), 2), ((0, 0, 7), 2), ((0, 0, 2, 2), 3), ((0, 0, 2, 8), 3)):
        scan = scanner(epochs=epochs)
        assert scan.scan(log(*wrong)) is Status.EPOCH
        assert scan.batch_count == used
        assert scan.expected_epoch == (0, 0, 2, 7)[used]
    before = scanner(epochs=[(5, 2)])  # the checkpoint begins at the log start offset
    assert before.scan(log(1, 3, 5)) is Status.OK
    assert scanner(epochs=[(5, 2)]).scan(log(6)) is Status.EPOCH


def test_attributes_and_codecs_are_gathered() -> None:
    scan = scanner()
    plain, packed = encode_batch([b""]), encode_batch([b""], base_offset=1, codec=4, attributes=16, body=b"anything")
    assert scan.scan(plain + packed) is Status.OK
    assert (scan.attributes, scan.codecs) == (20, 0b10001)
    assert scan.scan(encode_batch([b""], base_offset=2)) is Status.OK
    assert (scan.attributes, scan.codecs) == (0, 1)


def test_batches_of_producers_are_counted() -> None:
    # More than there is room for entries in one call of the core.
    log = b"".join(encode_batch([bytes(20)], base_offset=number, producer_id=number if number % 3 else -1) for number in range(200))
    scan = Scanner(segment_base_offset=0, index_interval_bytes=0)
    assert (scan.scan(log), scan.batch_count, scan.produced_count) == (Status.OK, 200, 133)
    assert (scan.scan(encode_batch([b"plain"], base_offset=200)), scan.produced_count) == (Status.OK, 0)


def test_the_largest_timestamp_and_its_batch() -> None:
    stamps = [5, 9, 9, 3]
    log = b"".join(encode_batch([b"", b""], base_offset=2 * at, base_timestamp=stamp) for at, stamp in enumerate(stamps))
    scan = scanner()
    scan.scan(log)
    assert (scan.max_timestamp, scan.max_timestamp_offset) == (9, 3)


@given(data=st.binary(max_size=400), flags=st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_any_bytes_get_a_status(data: bytes, flags: tuple[bool, bool, bool]) -> None:
    gaps, check_crc, with_index = flags
    scan = scanner(gaps=gaps, check_crc=check_crc, with_index=with_index, index_interval_bytes=0)
    scan.scan(data)
    scan.scan(LOG + data)
    find_batch(data)


# ---------------------------------------------------------------- index entries


def kafka_indexes(batches: list[bytes], base: int, interval: int) -> tuple[bytes, bytes]:
    """Kafka's LogSegment.append, a batch at a time."""
    index = time_index = b""
    position = since = 0
    max_timestamp, max_offset, indexed = -1, -1, -1
    for data in batches:
        _, batch = header(data)
        assert batch is not None
        if batch.max_timestamp > max_timestamp:
            max_timestamp, max_offset = batch.max_timestamp, batch.last_offset
        if since > interval:
            index += struct.pack(">ii", batch.last_offset - base, position)
            if max_timestamp > indexed:
                time_index += struct.pack(">qi", max_timestamp, max_offset - base)
                indexed = max_timestamp
            since = 0
        since += len(data)
        position += len(data)
    return index, time_index


@given(
    shape=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 300), st.integers(0, 5)), max_size=40),
    interval=st.integers(0, 700),
    cuts=st.lists(st.integers(0, 20_000), max_size=4),
)
def test_entries_are_kafkas_however_the_buffers_are_cut(shape: list[tuple[int, int, int]], interval: int, cuts: list[int]) -> None:
    base = offset = 10**10
    batches = []
    for count, size, stamp in shape:
        batches.append(encode_batch([bytes(size)] * count, base_offset=offset, base_timestamp=stamp))
        offset += count
    log = b"".join(batches)
    scan = scanner(segment_base_offset=base, index_interval_bytes=interval)
    for cut in sorted(cuts):
        scan.scan(log[scan.position : cut])
    assert scan.scan(log[scan.position :]) is Status.OK
    assert (scan.index, scan.time_index) == kafka_indexes(batches, base, interval)


def test_offsets_and_positions_that_no_entry_can_hold() -> None:
    far = encode_batch([b""], base_offset=2**31)
    assert scanner(gaps=True).scan(far) is Status.OFFSET
    assert scanner(gaps=True, with_index=False).scan(far) is Status.OK
    assert scanner(gaps=True).scan(encode_batch([b""], base_offset=2**31 - 1)) is Status.OK
    assert scanner(segment_base_offset=2, next_offset=0).scan(LOG) is Status.OFFSET
    assert scanner(position=2**31 - 1).scan(LOG, SIZES[0]) is Status.OK
    assert scanner(position=2**31).scan(LOG) is Status.OFFSET


def test_index_search() -> None:
    index = b"".join(struct.pack(">ii", offset, 0) for offset in (3, 7, 7, 12))
    assert [index_search(index, 4, offset) for offset in (-1, 0, 3, 4, 7, 8, 12, 13, 2**40)] == [0, 0, 0, 1, 1, 3, 3, 4, 4]
    assert index_search(index, 2, 12) == 2
    assert index_search(b"", 0, 1) == 0


def test_time_index_search() -> None:
    index = b"".join(struct.pack(">qi", stamp, 0) for stamp in (30, 70, 120))
    assert [time_index_search(index, 3, stamp) for stamp in (-(2**63), 30, 31, 70, 71, 120, 121, 2**63 - 1)] == [-1, -1, 0, 0, 1, 1, 2, 2]
    assert time_index_search(b"", 0, 1) == -1


@given(data=st.binary(max_size=240), wanted=st.integers(-(2**63), 2**63 - 1))
def test_searches_survive_any_index(data: bytes, wanted: int) -> None:
    assert 0 <= index_search(data, len(data) // 8, wanted) <= len(data) // 8
    assert -1 <= time_index_search(data, len(data) // 12, wanted) < max(len(data) // 12, 1)


# ---------------------------------------------------------------- find


@pytest.mark.parametrize("before", [0, 1, 2, 61, 1000])
def test_find_batch_anywhere(before: int) -> None:
    batch = encode_batch([b"a"], base_offset=9)
    noise = bytes((at * 7 + 2) & 255 for at in range(before))
    assert find_batch(noise + batch) == before
    assert find_batch(noise + batch + noise, offset_min=9) == before
    assert find_batch(noise + batch, offset_min=10) == -1
    assert find_batch(noise + batch[:-1]) == -1
    assert find_batch(noise + batch, size_bytes_max=len(batch) - 1) == -1


def test_find_batch_where_there_is_none() -> None:
    assert find_batch(b"") == -1
    assert find_batch(b"\2" * 1000) == -1
    assert find_batch(bytes(1000)) == -1
    bad = bytearray(encode_batch([b"a"]))
    bad[-1] ^= 1
    assert find_batch(bad) == -1


STAMPED = b"".join(
    [
        encode_batch([Rec(timestamp_ms=100), Rec(timestamp_ms=300), Rec(timestamp_ms=200)], base_timestamp=100),
        encode_batch([Rec(timestamp_ms=900)], base_offset=3, base_timestamp=900, attributes=32 | 16),
        encode_batch([Rec(timestamp_ms=1), Rec(timestamp_ms=2)], base_offset=4, base_timestamp=1, max_timestamp=500, attributes=8),
        encode_batch([Rec(timestamp_ms=600, offset_delta=4)], base_offset=6, base_timestamp=600),
    ]
)


@pytest.mark.parametrize(
    ("from_offset", "timestamp", "found"),
    [
        (0, -1, (0, 100)),
        (0, 100, (0, 100)),
        (0, 101, (1, 300)),
        (2, 101, (2, 200)),
        (2, 201, (4, 500)),  # log append time: the batch's, for all records; control records do not count
        (5, 201, (5, 500)),
        (0, 501, (10, 600)),
        (10, 0, (10, 600)),
        (11, 0, None),
        (0, 601, None),
    ],
)
def test_find_timestamp(from_offset: int, timestamp: int, found: tuple[int, int] | None) -> None:
    assert find_timestamp(STAMPED, from_offset, timestamp) == found


def test_find_timestamp_leaves_out_what_is_cut_off() -> None:
    assert find_timestamp(STAMPED[:-1], 0, 501) is None
    assert find_timestamp(b"", 0, 0) is None


@pytest.mark.parametrize(
    "data",
    [
        encode_batch([b"a"], codec=1),
        encode_batch([b"a"], body=b"\xff" * 7),
        encode_batch([Rec(offset_delta=3)], last_offset_delta=2),
        encode_batch([Rec(offset_delta=-1)], last_offset_delta=2),
        encode_batch([Rec(offset_delta=2**63 - 1)], last_offset_delta=2),
        bytes(HEADER.size),
    ],
)
def test_find_timestamp_in_what_is_not_checked_batches(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        find_timestamp(data, 0, 0)
