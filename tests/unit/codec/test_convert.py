"""Whole buffers of batches: what is refused on the way in, and that conversions keep all that they should."""

import struct
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb._native import ffi, lib
from logdb.codec import compression, convert
from logdb.codec.batch import Status, check, place
from logdb.errors import InvalidBatch, RecordTooLarge
from logdb.model import COMPRESSION_TYPES, OFFSET_MAX, ProducerIdAndEpoch
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log, encode_records, varint

CODECS = pytest.mark.parametrize("codec", range(5), ids=COMPRESSION_TYPES)
RECORDS = [Rec(b"key", b"value", (("h", b"x"), ("n", None)), BASE_TIMESTAMP + 5), Rec(None, None), Rec(b"", b"", (), BASE_TIMESTAMP - 9)]
MIB = 1 << 20


def check_incoming(batches: bytes, **given: Any) -> convert.Incoming:
    options = {"keys_required": False, "size_bytes_max": MIB, "decompressed_size_bytes_max": MIB}
    return convert.check_incoming(bytearray(batches), **{**options, **given})


def encode_compressed(records: list[Rec], codec: int, **given: Any) -> bytes:
    return encode_batch(records, codec=codec, compress=lambda data: compression.compress(codec, data), **given)


def without_crc(batches: bytes | bytearray | memoryview) -> bytes:
    image, position = bytearray(batches), 0
    while position < len(image):
        image[position + 17 : position + 21] = bytes(4)
        position += 12 + struct.unpack_from(">i", image, position + 8)[0]
    return bytes(image)


records_of_one = st.builds(
    Rec,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    timestamp_ms=st.none() | st.integers(0, 2 * BASE_TIMESTAMP),
    offset_delta=st.none(),
)
logs = st.lists(st.lists(records_of_one, min_size=1, max_size=8), max_size=6).map(encode_log)


# ---------------------------------------------------------------- check_incoming


@CODECS
def test_good_batches_are_summed_up(codec: int) -> None:
    one = encode_compressed(RECORDS, codec, base_offset=0)
    sender = {"producer_id": 5, "producer_epoch": 2, "base_sequence": 9}
    two = encode_compressed(RECORDS[1:2], codec, base_offset=0, attributes=16, base_timestamp=BASE_TIMESTAMP - 7, **sender)
    found = check_incoming(one + two)
    assert found == convert.Incoming(2, 4, BASE_TIMESTAMP - 9, BASE_TIMESTAMP + 5, codec | 16, [(3, check(two)[1])])


def test_an_empty_buffer_has_nothing_wrong() -> None:
    assert check_incoming(b"") == convert.Incoming(0, 0, OFFSET_MAX, -OFFSET_MAX, 0, [])


def test_offsets_between_batches_are_free() -> None:
    batches = b"".join(encode_batch(RECORDS, base_offset=offset) for offset in (100, 0, 0, 2**62))
    assert check_incoming(batches).record_count == 12


@given(logs, st.integers(0, 4))
def test_what_is_well_formed_is_taken(log: bytes, codec: int) -> None:
    found = check_incoming(convert.compress_batches(log, codec))
    assert found.record_count == check_incoming(log).record_count
    assert found.attributes in (0, codec)


FORGED = {
    "magic": ({"magic": 1}, "magic byte is not 2: it is 1"),
    "crc": ({"crc": 7}, "stored 0x00000007, computed 0x"),
    "short header": ({"length": 48}, "length of the batch is out of bounds: 60 bytes"),
    "negative length": ({"length": -1}, "out of bounds: 11 bytes"),
    "goes on": ({"length": 500}, "cut off: it has 512 bytes"),
    "codec": ({"attributes": 5}, "unknown codec or attribute: attributes 0x0005"),
    "attribute": ({"attributes": 128}, "unknown codec or attribute: attributes 0x0080"),
    "count 0": ({"record_count": 0, "body": b""}, "0 records for the offset deltas 0 to 2"),
    "count low": ({"record_count": 2}, "2 records for the offset deltas 0 to 2"),
    "count high": ({"record_count": 4}, "record count does not fit"),
    "count negative": ({"record_count": -1}, "record count does not fit"),
    "deltas beyond the count": ({"last_offset_delta": 3}, "3 records for the offset deltas 0 to 3"),
    "offset overflow": ({"base_offset": OFFSET_MAX - 1}, "offsets do not follow those before or overflow"),
    "negative offset": ({"base_offset": -1}, "offsets do not follow those before or overflow"),
    "control": ({"attributes": 48}, "a control batch: only a broker writes those"),
    "transactional": ({"attributes": 16}, "a transactional batch without a producer id"),
    "garbage behind": ({"body": encode_records(RECORDS) + b"x"}, "record count does not fit"),
    "records cut off": ({"body": encode_records(RECORDS)[:-1]}, "a record overruns the batch"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_batch_is_refused_with_its_position(name: str) -> None:
    fields, reason = FORGED[name]
    good = encode_batch(RECORDS)
    with pytest.raises(InvalidBatch) as caught:
        check_incoming(good + encode_batch(RECORDS, **fields))
    assert caught.value.position == len(good)
    assert reason in caught.value.reason


@CODECS
def test_forged_records_are_refused_in_every_codec(codec: int) -> None:
    gap = [Rec(value=b"a"), Rec(value=b"b", offset_delta=2)]
    back = [Rec(value=b"a", offset_delta=1), Rec(value=b"b", offset_delta=0)]
    late = encode_records([Rec(value=b"a")]) + encode_records([Rec(value=b"b", offset_delta=2)])
    for records, fields in ((gap, {}), (back, {"last_offset_delta": 1}), (gap, {"body": compression.compress(codec, late)})):
        with pytest.raises(InvalidBatch, match=r"offset deltas"):
            check_incoming(encode_compressed(records, codec, **fields))
    with pytest.raises(InvalidBatch, match="contradicts itself"):
        check_incoming(encode_batch(RECORDS, codec=codec, body=compression.compress(codec, varint(40) + bytes(40))))


@CODECS
@pytest.mark.parametrize("stored_ms", [-1, BASE_TIMESTAMP, OFFSET_MAX])
def test_the_max_timestamp_becomes_the_records(codec: int, stored_ms: int) -> None:
    """sarama before 1.45.1 leaves it -1."""
    good, given = encode_compressed(RECORDS, codec), {"producer_id": 5, "producer_epoch": 2, "base_sequence": 9, "attributes": 16}
    images = bytearray(good + encode_compressed(RECORDS, codec, max_timestamp=stored_ms, **given) + good)
    found = convert.check_incoming(images, keys_required=False, size_bytes_max=MIB, decompressed_size_bytes_max=MIB)
    assert images == good + encode_compressed(RECORDS, codec, **given) + good
    assert (found.max_timestamp, found.produced[0].header.max_timestamp) == (BASE_TIMESTAMP + 5, BASE_TIMESTAMP + 5)


@CODECS
@pytest.mark.parametrize("times", [[-1], [-2, -1], [-62_135_596_800_000], [-(2**63), -1], [5, -(2**62)]])
def test_timestamps_before_1970_are_taken_as_they_are(codec: int, times: list[int]) -> None:
    image = encode_compressed([Rec(b"k", timestamp_ms=at) for at in times], codec, base_timestamp=times[0], max_timestamp=0)
    found = check_incoming(image)
    assert (found.min_timestamp, found.max_timestamp) == (min(times), max(times))


@CODECS
@pytest.mark.parametrize(("attributes", "numbers"), [(0, [1, 3]), (8, [0, 1, 2, 3])])
def test_records_with_other_timestamps_than_a_topic_accepts_are_found(codec: int, attributes: int, numbers: list[int]) -> None:
    """Of a batch with the time of its append all have that one."""
    image = encode_compressed([Rec(b"k", timestamp_ms=at) for at in (10, 9, -1, 21)], codec, attributes=attributes)
    bounds = {"timestamp_min": 10, "timestamp_max": 20, "decompressed_size_bytes_max": MIB}
    assert convert.refused_records(memoryview(image), keys_required=False, **bounds) == numbers


@CODECS
def test_keys_are_required_of_compacted_topics(codec: int) -> None:
    keyed = encode_compressed([Rec(b"", b"v"), Rec(b"k", None)], codec)
    assert check_incoming(keyed, keys_required=True).record_count == 2
    with pytest.raises(InvalidBatch, match="without a key"):
        check_incoming(encode_compressed([Rec(b"k", b"v"), Rec(None, b"v")], codec), keys_required=True)


def test_the_bound_on_a_batch_is_exact() -> None:
    batch = encode_batch(RECORDS)
    assert check_incoming(batch, size_bytes_max=len(batch)).batch_count == 1
    with pytest.raises(RecordTooLarge) as caught:
        check_incoming(batch, size_bytes_max=len(batch) - 1)
    assert (caught.value.size_bytes, caught.value.size_bytes_max) == (len(batch), len(batch) - 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=COMPRESSION_TYPES[1:])
def test_the_bound_on_decompressed_records_is_exact(codec: int) -> None:
    records = [Rec(value=bytes(10_000))] * 9
    size, batch = len(encode_records(records)), encode_compressed(records, codec)
    good = encode_batch(RECORDS)
    assert check_incoming(good + batch, decompressed_size_bytes_max=size).record_count == 12
    with pytest.raises(InvalidBatch, match=f"{COMPRESSION_TYPES[codec]}: at most {size - 1} bytes") as caught:
        check_incoming(good + batch, decompressed_size_bytes_max=size - 1)
    assert caught.value.position == len(good)


def test_append_time_is_the_batch_own() -> None:
    assert check_incoming(encode_batch(RECORDS, attributes=8, max_timestamp=5)).max_timestamp == 5


def test_half_a_batch_is_refused_wherever_it_ends() -> None:
    log = encode_log([RECORDS, RECORDS])
    for size in range(len(log) // 2 + 1, len(log)):
        with pytest.raises(InvalidBatch, match="cut off") as caught:
            check_incoming(log[:size])
        assert caught.value.position == len(log) // 2


@given(codec=st.integers(0, 4), position=st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused(codec: int, position: int, bit: int) -> None:
    batch = bytearray(encode_compressed(RECORDS, codec))
    at_stake = [*range(8, 12), *range(16, len(batch))]  # not base offset and epoch, which the log sets
    batch[at_stake[position % len(at_stake)]] ^= 1 << bit
    with pytest.raises((InvalidBatch, RecordTooLarge)):
        check_incoming(bytes(batch))


def walked(records: bytes, cuts: list[int], batch: Any, *, keys_required: int) -> int:
    """What the walk over pieces says, which are cut there."""
    walk = ffi.new("logdb_records_walk *")
    ends = sorted(cut % (len(records) + 1) for cut in cuts)
    for begin, end in pairwise([0, *ends, len(records)]):
        if status := lib.logdb_records_take(walk, ffi.from_buffer(records[begin:end]), end - begin, batch, keys_required):
            return int(status)
    return int(lib.logdb_records_end(walk, batch, ffi.NULL))


@given(
    records=st.lists(records_of_one, min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 1 << 12), max_size=40),
    change=st.none() | st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)),
    extra=st.binary(max_size=3),
    keys_required=st.integers(0, 1),
)
def test_records_in_pieces_are_checked_as_a_whole(
    records: list[Rec], cuts: list[int], change: tuple[int, int] | None, extra: bytes, keys_required: int
) -> None:
    image = encode_batch(records)
    batch, crc = ffi.new("logdb_batch *"), ffi.new("uint32_t *")
    assert lib.logdb_batch_check(ffi.from_buffer(image), len(image), MIB, batch, crc) == 0
    body = bytearray(image[61:])
    if change is not None:
        body[change[0] % len(body)] = change[1]
    body += extra
    whole = lib.logdb_records_check(ffi.from_buffer(body), len(body), batch, keys_required, ffi.NULL)
    in_pieces = walked(bytes(body), cuts, batch, keys_required=keys_required)
    assert (in_pieces == 0) == (whole == 0)
    if not cuts:
        assert in_pieces == whole or change is not None


def test_every_cut_of_a_record_is_read() -> None:
    image = encode_batch([Rec(b"k" * 200, b"v" * 300, ((("h", b"x" * 100)), ("g", None))), Rec(None, None), Rec(b"", b"")])
    batch, crc = ffi.new("logdb_batch *"), ffi.new("uint32_t *")
    assert lib.logdb_batch_check(ffi.from_buffer(image), len(image), MIB, batch, crc) == 0
    body = image[61:]
    assert walked(body, list(range(len(body))), batch, keys_required=0) == 0
    for cut in range(len(body) + 1):
        assert walked(body, [cut], batch, keys_required=0) == 0
        assert cut == len(body) or walked(body[:cut], [], batch, keys_required=0) != 0


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=COMPRESSION_TYPES[1:])
def test_many_bombs_take_the_memory_of_one(codec: int) -> None:
    """In a process of its own, in threads; each batch decompresses to 24 MiB, the bound."""
    script = """if 1:
        import sys
        from concurrent.futures import ThreadPoolExecutor
        from logdb.codec import convert

        def peak():
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) << 10

        options = {"keys_required": False, "size_bytes_max": 1 << 24, "decompressed_size_bytes_max": int(sys.argv[1])}
        warm, batches = bytearray(sys.stdin.buffer.read(int(sys.argv[2]))), bytearray(sys.stdin.buffer.read())
        convert.check_incoming(warm, **options)
        before = peak()
        with ThreadPoolExecutor(8) as pool:
            for found in pool.map(lambda _: convert.check_incoming(batches, **options), range(8)):
                assert found.record_count == 4
        print(peak() - before)
    """
    records = [Rec(value=bytes(24 * MIB - 20))]
    bound = len(encode_records(records))
    warm, bomb = encode_compressed([Rec(value=b"warm")], codec), encode_compressed(records, codec)
    command = [sys.executable, "-c", script, str(bound), str(len(warm))]
    done = subprocess.run(command, input=warm + 4 * bomb, stdout=subprocess.PIPE, check=True)
    assert int(done.stdout) <= bound + 12 * MIB


# ---------------------------------------------------------------- check_followed

MARKER = {"attributes": 48, "producer_id": 5, "producer_epoch": 2}
MARKER_RECORD = Rec(b"\0\0\0\1", b"\0\0\0\0\0\5")


@CODECS
def test_a_leaders_batches_are_summed_up(codec: int) -> None:
    one = encode_compressed(RECORDS, codec, base_offset=7, leader_epoch=1)
    two = encode_compressed(RECORDS[:1], codec, base_offset=10, leader_epoch=4, attributes=16, producer_id=5, producer_epoch=2)
    three = encode_batch([MARKER_RECORD], base_offset=11, leader_epoch=4, **MARKER)
    assert convert.check_followed(one + two + three) == convert.Followed(
        range(7, 12), [(1, 7), (4, 10)], [(check(two)[1], b""), (check(three)[1], three)]
    )


@CODECS
def test_what_compaction_leaves_is_taken_from_a_leader(codec: int) -> None:
    thinned = encode_compressed(
        [Rec(b"k", b"v", offset_delta=2), Rec(b"l", b"v", offset_delta=5)], codec, base_offset=3, last_offset_delta=9
    )
    emptied = encode_batch([], base_offset=13, last_offset_delta=4, codec=codec, producer_id=5, producer_epoch=0, base_sequence=3)
    empty_marker = encode_batch([], base_offset=18, **MARKER)
    found = convert.check_followed(thinned + emptied + empty_marker)
    assert (found.offsets, [head.record_count for head, _ in found.produced]) == (range(3, 19), [0, 0])


@pytest.mark.parametrize(
    ("batch", "what"),
    [
        (encode_batch(RECORDS, base_offset=2), "it begins at offset 2, the batch before it ends at 3"),
        (encode_batch(RECORDS, base_offset=4), "it begins at offset 4, the batch before it ends at 3"),
        (encode_batch(RECORDS, base_offset=3, leader_epoch=-1), "its leader epoch is -1, that of the batch before it 0"),
        (encode_batch(RECORDS, base_offset=3, crc=5), "CRC"),
        (encode_batch(RECORDS, base_offset=3, max_timestamp=5), "timestamp"),
        (encode_batch(RECORDS, base_offset=3, attributes=16), "without a producer id"),
        (encode_batch(RECORDS, base_offset=3, **MARKER), "not a control batch"),
        (encode_batch([Rec(b"", b"")], base_offset=3, **MARKER), "control record's key has 0 bytes"),
        (encode_batch(RECORDS, base_offset=3)[:-1], "cut off"),
        (encode_batch(RECORDS, base_offset=3)[:60], "cut off"),
        (encode_batch([Rec(b"", b"", offset_delta=1), Rec(b"", b"", offset_delta=1)], base_offset=3, last_offset_delta=1), "deltas"),
    ],
)
def test_what_a_leader_cannot_have_is_refused(batch: bytes, what: str) -> None:
    good = encode_batch(RECORDS)
    with pytest.raises(InvalidBatch, match=what) as caught:
        convert.check_followed(good + batch)
    assert caught.value.position == len(good)
    with pytest.raises(InvalidBatch, match="cut off"):
        convert.check_followed(b"")


def test_an_empty_batch_begins_later() -> None:
    image = bytearray(encode_batch([], base_offset=3, last_offset_delta=9, leader_epoch=6, base_timestamp=-1, max_timestamp=-1))
    head = check(image)[1]
    convert.begin_empty_batch_at(memoryview(image), head, 8)
    assert image == encode_batch([], base_offset=8, last_offset_delta=4, leader_epoch=6, base_timestamp=-1, max_timestamp=-1)


# ---------------------------------------------------------------- compress_batches, decompress_batches


@CODECS
def test_compressed_batches_keep_their_header(codec: int) -> None:
    batch = encode_batch(
        RECORDS, base_offset=70, leader_epoch=3, attributes=8 | 16, max_timestamp=9, producer_id=5, producer_epoch=2, base_sequence=11
    )
    image = convert.compress_batches(batch, codec)
    status, header, _ = check(image)
    assert (status, header is not None) == (Status.OK, True)
    _, before, _ = check(batch)
    assert header == before._replace(size_bytes=len(image), crc=header.crc, attributes=8 | 16 | codec)
    assert compression.decompress(codec, image[61:], MIB) == batch[61:]


@given(logs, st.integers(1, 4))
def test_decompression_undoes_compression(log: bytes, codec: int) -> None:
    image = convert.decompress_batches(memoryview(convert.compress_batches(log, codec)), MIB)
    assert without_crc(image) == without_crc(log)


def test_mixed_codecs_in_one_buffer() -> None:
    plain = [encode_batch(RECORDS, base_offset=3 * n) for n in range(5)]
    mixed = b"".join(convert.compress_batches(batch, codec) for codec, batch in enumerate(plain))
    assert without_crc(convert.decompress_batches(memoryview(mixed), MIB)) == without_crc(b"".join(plain))


def test_uncompressed_batches_are_handed_back() -> None:
    for batches in (memoryview(b""), memoryview(bytearray(encode_log([RECORDS] * 3)))):
        assert convert.decompress_batches(batches, 0) is batches


def test_control_empty_and_compressed_batches_pass_through_compression() -> None:
    control = encode_batch([Rec(b"\0\0\0\1", b"\0\0\0\0\0\5")], attributes=48)
    empty = encode_batch([], last_offset_delta=9, base_offset=1)
    gzipped = encode_compressed(RECORDS, 1, base_offset=20)
    buffer = control + empty + gzipped
    assert convert.compress_batches(buffer, 4) == buffer
    assert convert.compress_batches(memoryview(buffer), 0) == buffer


@CODECS
def test_an_empty_batch_with_a_codec_is_only_its_header(codec: int) -> None:
    for body in (b"", compression.compress(codec, b"")):
        image = convert.decompress_batches(memoryview(encode_batch([], codec=codec, body=body, last_offset_delta=4)), MIB)
        assert without_crc(image) == without_crc(encode_batch([], last_offset_delta=4))


def test_decompression_is_bounded_per_batch() -> None:
    records = [Rec(value=bytes(10_000))]
    size = len(encode_records(records))
    one, two = (encode_compressed(records, 1, base_offset=offset) for offset in (0, 1))
    assert len(convert.decompress_batches(memoryview(one + two), size)) == 2 * (61 + size)
    with pytest.raises(InvalidBatch, match=f"at most {size - 1} bytes") as caught:
        convert.decompress_batches(memoryview(encode_batch(RECORDS) + encode_compressed(records, 1, base_offset=3)), size - 1)
    assert caught.value.position == len(encode_batch(RECORDS))


def test_an_image_that_no_length_field_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_RECORDS_SIZE_BYTES_MAX", 100)  # for 2 GiB
    with pytest.raises(InvalidBatch, match="at most 100 bytes"):
        convert.decompress_batches(memoryview(encode_compressed([Rec(value=bytes(200))], 1)), MIB)


def test_half_a_batch_is_refused_by_conversions() -> None:
    cut = encode_log([RECORDS, RECORDS])[:-1]
    for convert_it in (
        lambda: convert.compress_batches(cut, 1),
        lambda: convert.decompress_batches(memoryview(cut), MIB),
        lambda: convert.stamp_append_time(bytearray(cut), 5),
    ):
        with pytest.raises(InvalidBatch, match="cut off") as caught:
            convert_it()
        assert caught.value.position == (len(cut) + 1) // 2


# ---------------------------------------------------------------- stamp_append_time


@CODECS
def test_append_time_is_stamped_on_every_batch(codec: int) -> None:
    one = encode_compressed(RECORDS, codec, attributes=16, producer_id=5, producer_epoch=2, base_sequence=0)
    batches = bytearray(one + encode_compressed(RECORDS, codec, base_offset=3))
    convert.stamp_append_time(memoryview(batches), 12_345)
    for position, attributes in ((0, codec | 16 | 8), (len(one), codec | 8)):
        status, header, _ = check(memoryview(batches)[position:])
        assert status == Status.OK
        assert header is not None
        assert (header.max_timestamp, header.attributes, header.base_timestamp) == (12_345, attributes, BASE_TIMESTAMP)
    assert check_incoming(bytes(batches)).max_timestamp == 12_345


@pytest.mark.parametrize("timestamp", [-1, 1 << 63])
def test_no_time_outside_its_range(timestamp: int) -> None:
    with pytest.raises(ValueError, match=f"timestamp_ms={timestamp}"):
        convert.stamp_append_time(bytearray(encode_batch(RECORDS)), timestamp)


# ---------------------------------------------------------------- stamp_producer


@CODECS
def test_a_producers_stamp(codec: int) -> None:
    before = [encode_compressed(RECORDS, codec, base_offset=base, attributes=attributes) for base, attributes in ((0, 0), (3, 8), (6, 0))]
    for transactional in (True, False):
        batches = bytearray(b"".join(before))
        assert convert.stamp_producer(batches, ProducerIdAndEpoch(2**62, 2**15 - 1), 41, transactional=transactional) == 50
        for number, (image, head) in enumerate(convert.headers(memoryview(batches))):
            status, found, _ = check(image)
            assert (status, found) == (Status.OK, head)
            assert (head.producer_id, head.producer_epoch, head.base_sequence) == (2**62, 2**15 - 1, 41 + 3 * number)
            assert head.attributes == codec | (8 if number == 1 else 0) | 16 * transactional
            assert image[61:] == before[number][61:]
    assert convert.stamp_producer(batches, ProducerIdAndEpoch(1, 0), 0, transactional=False) == 9  # again, as another's
    assert check_incoming(bytes(batches)).produced[2] == (6, check(memoryview(batches)[-len(before[2]) :])[1])


@pytest.mark.parametrize(("base", "following"), [(2**31 - 3, 0), (2**31 - 2, 1), (2**31 - 1, 2), (2**31 - 4, 2**31 - 1)])
def test_sequences_of_a_stamp_wrap_around(base: int, following: int) -> None:
    batches = bytearray(encode_batch(RECORDS))
    assert convert.stamp_producer(batches, ProducerIdAndEpoch(1, 0), base, transactional=False) == following


def test_what_cannot_be_stamped() -> None:
    good = encode_batch(RECORDS)
    for position, bad in ((0, b"x" * 70), (len(good), good + good[:-1]), (len(good), good + b"x")):
        with pytest.raises(InvalidBatch) as caught:
            convert.stamp_producer(bytearray(bad), ProducerIdAndEpoch(1, 0), 0, transactional=False)
        assert caught.value.position == position
    assert convert.stamp_producer(bytearray(), ProducerIdAndEpoch(1, 0), 5, transactional=False) == 5
    for producer, sequence in (
        (ProducerIdAndEpoch(-1, 0), 0),
        (ProducerIdAndEpoch(1, -1), 0),
        (ProducerIdAndEpoch(1, 2**15), 0),
        (ProducerIdAndEpoch(1, 0), 2**31),
    ):
        with pytest.raises(ValueError, match="out of range"):
            convert.stamp_producer(bytearray(good), producer, sequence, transactional=False)
    with pytest.raises(BufferError):
        convert.stamp_producer(memoryview(good), ProducerIdAndEpoch(1, 0), 0, transactional=False)


# ---------------------------------------------------------------- headers


def headed(count: int, codec: int = 0) -> bytes:
    return encode_compressed([Rec(b"k", b"v", (("h", b""),) * count)], codec)


@pytest.mark.parametrize(("codec", "records_before"), [(0, 9), (1, 0)])
def test_a_record_from_outside_has_at_most_as_many_headers_as_librdkafka_reads(codec: int, records_before: int) -> None:
    assert check_incoming(headed(100_000, codec)).record_count == 1
    some = encode_compressed([*[Rec(b"k", b"v")] * records_before, Rec(b"k", b"v", (("h", b""),) * 100_001)], codec)
    with pytest.raises(InvalidBatch, match="more than 100000 headers"):
        check_incoming(some)


def test_a_log_may_have_more_headers_in_a_record() -> None:
    """An earlier version took them in."""
    batch = bytearray(headed(100_001))
    place(batch, 0, 0, 0)
    assert len(convert.check_followed(bytes(batch)).offsets) == 1
