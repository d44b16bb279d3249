"""codec.compaction and compact.c: what stays of a log, rule by rule, and against a model."""

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb.codec import RecordIterator, Status, check, compression, convert, header, records_check
from logdb.codec.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Header
from logdb.codec.compaction import BatchRetention, Copy, KeyMap
from logdb.errors import InvalidBatch
from support.batches import BASE_TIMESTAMP, Rec, encode_batch

NOW = BASE_TIMESTAMP + 1_000_000
HORIZON = NOW + 86_400_000
BOUND = 1 << 20
FAR = 100_000  # an offset for which a small map has no bit


def key_map(data: bytes = b"", *, size_bytes: int = 1 << 16, **options: int) -> KeyMap:
    made = KeyMap(size_bytes, **options)
    assert made.add(memoryview(data), decompressed_size_bytes_max=BOUND) == (len(data), False)
    return made


def copy(
    data: bytes,
    keys: KeyMap | None = None,
    retentions: list[int] | None = None,
    *,
    base_offset: int = 0,
    end_offset: int = 1 << 40,
    now_ms: int = NOW,
    room_bytes: int = 1 << 16,
) -> bytes:
    """All of the copy, the empty batch at its end included."""
    made = Copy(
        keys if keys is not None else key_map(data),
        base_offset=base_offset,
        end_offset=end_offset,
        now_ms=now_ms,
        horizon_ms=now_ms + HORIZON - NOW,
        room_bytes=room_bytes,
    )
    parts = [bytes(view) for view, _ in made.feed(memoryview(data), retentions, decompressed_size_bytes_max=BOUND)]
    return b"".join(parts) + made.finish()


def heads(data: bytes) -> list[Header]:
    """The headers of batches that follow each other without a gap, each whole and good, its records too."""
    found, at = [], 0
    while at < len(data):
        status, head, _ = check(data[at:])
        assert status is Status.OK and head is not None, (at, status)
        assert not found or head.base_offset == found[-1].last_offset + 1
        image = convert.decompress_batches(memoryview(data[at : at + head.size_bytes]), BOUND)
        assert records_check(image[61:], head) is Status.OK
        found.append(head)
        at += head.size_bytes
    return found


def rows(data: bytes) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Offset, key, value, timestamp of each record."""
    image = convert.decompress_batches(memoryview(data), BOUND)
    records = RecordIterator(lambda _from, _to: iter((image,)), 0, 1 << 62, "t", 0)
    return [(record.offset, record.key, record.value, record.timestamp_ms) for record in records]


def offsets(data: bytes) -> list[int]:
    return [row[0] for row in rows(data)]


def log(*batches: list[Rec | tuple[bytes | None, bytes | None]], **options: object) -> bytes:
    """Batches back to back from offset 0 on."""
    parts, base_offset = [], 0
    for records in batches:
        parts.append(encode_batch(records, base_offset=base_offset, **options))
        base_offset += len(records)
    return b"".join(parts)


# ---------------------------------------------------------------- the key map


def test_the_latest_offset_of_each_key() -> None:
    keys = key_map(log([(b"a", b"1"), (b"b", b"2")], [(b"a", b"3"), (b"", b"4")]))
    assert [keys.find(key) for key in (b"a", b"b", b"", b"c")] == [2, 1, 3, None]
    assert len(keys) == 3


def test_records_before_the_first_offset_and_without_a_key_are_left_out() -> None:
    keys = key_map(log([(b"a", b"1"), (b"b", b"2")], [(None, b"3"), (b"c", b"4")]), first_offset=1)
    assert [keys.find(key) for key in (b"a", b"b", b"c")] == [None, 1, 3]


def test_discarded_and_control_batches_are_left_out() -> None:
    data = log([(b"a", b"1")], [(b"b", b"2")]) + encode_batch([(b"c", b"")], base_offset=2, attributes=CONTROL)
    keys = KeyMap(1 << 12)
    assert keys.add(memoryview(data), [BatchRetention.DISCARD, 0, 0], decompressed_size_bytes_max=BOUND) == (len(data), False)
    assert [keys.find(key) for key in (b"a", b"b", b"c")] == [None, 1, None]


@pytest.mark.parametrize("bits", [0, 1, 8, 64])
def test_colliding_hashes_are_told_apart(bits: int) -> None:
    names = [b"key %d" % n for n in range(300)]
    data = log(*([(name, b"old") for name in names], [(name, b"new") for name in reversed(names)]))
    keys = key_map(data, hash_mask=(1 << bits) - 1 if bits < 64 else 2**64 - 1)
    assert [keys.find(name) for name in names] == [599 - n for n in range(300)]
    assert offsets(copy(data, keys)) == list(range(300, 600))


def test_a_full_map_stops_at_a_batch_and_what_it_has_of_it_does_no_harm() -> None:
    batches = [[(b"key %03d" % (n * 4 + m), b"v") for m in range(4)] for n in range(40)]
    data, size = log(*batches), len(log(batches[0]))
    keys = KeyMap(1024)
    used, full = keys.add(memoryview(data), decompressed_size_bytes_max=BOUND)
    assert full and 0 < used < len(data) and used % size == 0
    assert len(keys) >= used // size * 4
    assert all(keys.find(b"key %03d" % n) == n for n in range(used // size * 4))
    assert offsets(copy(data, keys)) == list(range(160))


def test_the_map_is_full_by_its_slots_as_by_its_keys() -> None:
    many, long = KeyMap(1024, offset_count=10), KeyMap(1024)
    for n in range(20):
        data = encode_batch([(b"%d" % n, b"")], base_offset=n)
        if many.add(memoryview(data), decompressed_size_bytes_max=BOUND)[1]:
            break
    assert 10 <= len(many) < 20
    assert long.add(memoryview(encode_batch([(bytes(900), b"")])), decompressed_size_bytes_max=BOUND) == (0, True)


def test_keys_of_every_size_have_their_own_place() -> None:
    names = [bytes([65 + n % 26]) * n for n in range(40)]
    keys = key_map(log([(name, b"") for name in names]))
    assert [keys.find(name) for name in names] == list(range(40))


# ---------------------------------------------------------------- which records stay


def test_a_batch_that_keeps_all_is_copied_as_it_is() -> None:
    data = log([(b"a", b"1"), (b"b", b"2")], [(b"c", b"3")])
    assert copy(data) == data


def test_a_batch_that_loses_some_keeps_offsets_and_sequence() -> None:
    first = [Rec(b"a", b"1", timestamp_ms=BASE_TIMESTAMP + 50), Rec(b"b", b"2", (("h", b"x"),)), Rec(b"a", b"3")]
    data = encode_batch([*first, Rec(b"c", b"4"), Rec(b"d", b"5")], producer_id=7, producer_epoch=2, base_sequence=40)
    data += encode_batch([(b"d", b"6")], base_offset=5)
    out = copy(data)
    assert rows(out) == [
        (n, key, value, BASE_TIMESTAMP) for n, key, value in [(1, b"b", b"2"), (2, b"a", b"3"), (3, b"c", b"4"), (5, b"d", b"6")]
    ]
    head = heads(out)[0]
    assert (head.base_offset, head.last_offset, head.record_count) == (0, 4, 3)
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (7, 2, 40)
    assert (head.base_timestamp, head.max_timestamp) == (BASE_TIMESTAMP, BASE_TIMESTAMP)


def test_batches_that_lose_all_give_way_to_one_empty_batch_a_run() -> None:
    data = log([(b"a", b"1")], [(b"b", b"1")], [(b"c", b"1")], [(b"a", b"2"), (b"b", b"2")], [(b"d", b"1")], [(b"d", b"2")])
    found = heads(copy(data))
    assert [(head.base_offset, head.last_offset, head.record_count) for head in found] == [
        (0, 1, 0), (2, 2, 1), (3, 4, 2), (5, 5, 0), (6, 6, 1),
    ]  # fmt: skip
    empty = found[0]
    assert (empty.producer_id, empty.max_timestamp, empty.attributes, empty.size_bytes) == (-1, -1, 0, 61)


def test_an_empty_batch_has_one_leader_epoch_and_at_most_2_31_offsets() -> None:
    later = encode_batch([(b"a", b"9"), (b"b", b"9")], base_offset=3, leader_epoch=2)
    data = b"".join(encode_batch([(b"a", b"%d" % n)], base_offset=n, leader_epoch=n // 2) for n in range(3)) + later
    assert [(head.base_offset, head.last_offset, head.leader_epoch) for head in heads(copy(data))] == [(0, 1, 0), (2, 2, 1), (3, 4, 2)]
    wide = encode_batch([], last_offset_delta=2**31 - 1) + encode_batch([], base_offset=2**31, last_offset_delta=0)
    assert [head.base_offset for head in heads(copy(wide))] == [0, 2**31]


def test_the_last_offsets_are_taken_too() -> None:
    data = log([(b"a", b"1")], [(b"b", b"1")])
    keys = key_map(data + encode_batch([(b"b", b"2")], base_offset=2))
    assert [(head.base_offset, head.last_offset) for head in heads(copy(data, keys))] == [(0, 0), (1, 1)]


def test_records_without_a_key_go() -> None:
    assert offsets(copy(log([(None, b"1"), (b"a", b"2")], [(None, b"3")]))) == [1]


def test_batches_past_the_end_are_copied_as_they_are() -> None:
    data = log([(b"a", b"1")], [(b"a", None)], [(b"a", b"3")])
    assert offsets(copy(data, end_offset=1)) == [1, 2]
    assert not any(head.attributes for head in heads(copy(data, end_offset=1)))


def test_log_append_time_stays() -> None:
    data = encode_batch([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], attributes=LOG_APPEND_TIME, max_timestamp=NOW)
    out = copy(data)
    assert [row[3] for row in rows(out)] == [NOW, NOW]
    assert heads(out)[0].max_timestamp == NOW


# ---------------------------------------------------------------- tombstones


def test_a_tombstone_gets_a_delete_horizon_and_keeps_its_time() -> None:
    data = encode_batch([Rec(b"a", b"1"), Rec(b"b", None, timestamp_ms=BASE_TIMESTAMP + 7), Rec(b"c", b"3", (("h", None),))])
    out = copy(data)
    head = heads(out)[0]
    assert head.attributes == DELETE_HORIZON
    assert (head.base_timestamp, head.max_timestamp) == (HORIZON, BASE_TIMESTAMP + 7)
    assert rows(out) == rows(data)


def test_a_tombstone_goes_at_its_horizon_and_not_before() -> None:
    first = copy(log([(b"a", None), (b"b", b"1")]))
    before = copy(first, now_ms=HORIZON - 1)
    assert before == first
    assert offsets(copy(first, now_ms=HORIZON)) == [1]
    assert heads(copy(first, now_ms=HORIZON))[0].base_timestamp == HORIZON


def test_a_tombstone_stays_while_older_records_of_its_key_may_be_there() -> None:
    first = copy(log([(b"a", None), (b"b", b"1")]))
    assert offsets(copy(first, KeyMap(1 << 12, first_offset=1), now_ms=HORIZON)) == [1]
    far = copy(encode_batch([(b"a", None), (b"b", b"1")], base_offset=FAR), KeyMap(1 << 12), base_offset=FAR)
    assert offsets(copy(far, KeyMap(1 << 12), base_offset=FAR, now_ms=HORIZON)) == [FAR, FAR + 1]
    assert offsets(copy(far, KeyMap(1 << 12, first_offset=FAR + 1), base_offset=FAR, now_ms=HORIZON)) == [FAR + 1]


def test_a_superseded_tombstone_goes_at_once() -> None:
    data = log([(b"a", None)], [(b"a", b"2")])
    assert offsets(copy(data)) == [1]


def test_the_earliest_horizon_is_known() -> None:
    data = copy(log([(b"a", None)])) + encode_batch([(b"b", None)], base_offset=1)
    made = Copy(key_map(data), base_offset=0, end_offset=9, now_ms=NOW + 5, horizon_ms=HORIZON + 5)
    assert made.horizon_min_ms is None
    assert sum(len(view) for view, _ in made.feed(memoryview(data), decompressed_size_bytes_max=BOUND))
    assert made.horizon_min_ms == HORIZON


def test_a_horizon_counts_no_more_once_its_tombstones_went() -> None:
    data = copy(log([(b"a", None), (b"b", b"1")]))
    left = copy(data, now_ms=HORIZON)
    assert heads(left)[0].attributes == DELETE_HORIZON
    made = Copy(key_map(left), base_offset=0, end_offset=9, now_ms=HORIZON, horizon_ms=HORIZON)
    assert sum(len(view) for view, _ in made.feed(memoryview(left), decompressed_size_bytes_max=BOUND))
    assert made.horizon_min_ms is None


@pytest.mark.parametrize("time", [0, BASE_TIMESTAMP, 2**62, -(2**62)])
def test_deltas_to_a_far_horizon_fit(time: int) -> None:
    data = encode_batch([Rec(b"a", None, timestamp_ms=time), Rec(b"b", b"v" * 100, timestamp_ms=time + 1)], base_timestamp=time)
    assert rows(copy(data)) == rows(data)


# ---------------------------------------------------------------- retentions


def test_a_discarded_batch_goes_and_supersedes_nothing() -> None:
    data = log([(b"a", b"1")], [(b"a", b"2"), (b"b", b"2")])
    keys = KeyMap(1 << 12)
    keys.add(memoryview(data), [0, BatchRetention.DISCARD], decompressed_size_bytes_max=BOUND)
    assert offsets(copy(data, keys, [0, BatchRetention.DISCARD])) == [0]


def test_a_retained_batch_stays_without_records() -> None:
    options = {"attributes": TRANSACTIONAL, "producer_id": 5, "producer_epoch": 3, "base_sequence": 9}
    data = encode_batch([(b"a", b"1"), (b"a", b"2")], **options) + encode_batch([(b"a", b"3")], base_offset=2)
    for retention in (BatchRetention.RETAIN, BatchRetention.RETAIN | BatchRetention.DISCARD):
        out = copy(data, retentions=[retention, 0])
        head = heads(out)[0]
        assert (head.base_offset, head.last_offset, head.record_count, head.size_bytes) == (0, 1, 0, 61)
        assert (head.producer_id, head.producer_epoch, head.base_sequence) == (5, 3, 9)
        assert (head.attributes, head.base_timestamp, head.max_timestamp) == (TRANSACTIONAL, -1, BASE_TIMESTAMP)
        assert copy(out, retentions=[retention, 0]) == out
        assert [found.producer_id for found in heads(copy(out))] == [-1, -1]


def test_a_control_batch_stays_until_it_is_discarded() -> None:
    marker = encode_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0")], attributes=CONTROL | TRANSACTIONAL, producer_id=5, producer_epoch=0)
    assert copy(marker) == marker
    out = copy(marker, retentions=[BatchRetention.EXPIRES])
    head = heads(out)[0]
    assert head.attributes == CONTROL | TRANSACTIONAL | DELETE_HORIZON
    assert (head.base_timestamp, head.max_timestamp, head.record_count) == (HORIZON, BASE_TIMESTAMP, 1)
    assert copy(out, retentions=[BatchRetention.EXPIRES], now_ms=NOW + 10) == out
    assert [found.producer_id for found in heads(copy(out, retentions=[BatchRetention.DISCARD]))] == [-1]


# ---------------------------------------------------------------- codecs and buffers


@pytest.mark.parametrize("codec", [1, 4])
def test_compressed_batches_are_compressed_again(codec: int) -> None:
    batches = [[(b"a", b"x" * 300), (b"b", b"y" * 300)], [(b"a", b"z" * 300)], [(b"c", None)], [(b"d", b"1")], [(b"d", b"2")]]
    data = log(*batches, codec=codec, compress=lambda body: compression.compress(codec, body))
    out = copy(data)
    assert [(row[0], row[1], row[2]) for row in rows(out)] == [
        (1, b"b", b"y" * 300), (2, b"a", b"z" * 300), (3, b"c", None), (5, b"d", b"2"),
    ]  # fmt: skip
    assert [head.attributes for head in heads(out)] == [codec, codec, codec | DELETE_HORIZON, 0, codec]
    assert copy(out, now_ms=NOW + 1) == out
    assert offsets(copy(out, now_ms=HORIZON)) == [1, 2, 5]


def test_plain_and_compressed_batches_side_by_side() -> None:
    data = log([(b"a", b"1")], [(b"b", b"1")])
    data += encode_batch([(b"a", b"2"), (b"c", b"2")], base_offset=2, codec=4, compress=lambda body: compression.compress(4, body))
    out = copy(data + encode_batch([(b"c", b"3")], base_offset=4))
    assert [(row[0], row[1]) for row in rows(out)] == [(1, b"b"), (2, b"a"), (4, b"c")]


@pytest.mark.parametrize("room_bytes", [1, 300, 1000])
def test_a_small_buffer_takes_more_calls(room_bytes: int) -> None:
    data = log(*([(b"k%d" % (n * m % 7), b"v%d" % n) for m in range(5)] for n in range(30)))
    whole = copy(data)
    assert copy(data, room_bytes=room_bytes) == whole
    retentions = [BatchRetention.DISCARD if n % 3 == 0 else 0 for n in range(30)]
    assert copy(data, retentions=retentions, room_bytes=room_bytes) == copy(data, retentions=retentions)


def test_bytes_that_contradict_themselves_are_refused() -> None:
    good, keys = log([(b"a", b"1"), (b"b", b"2")]), KeyMap(1 << 12)
    for bad in (good[:-1], encode_batch([(b"a", b"")], record_count=0), encode_batch([], body=b"\x0e" * 9, record_count=1)):
        with pytest.raises(InvalidBatch):
            keys.add(memoryview(bad), decompressed_size_bytes_max=BOUND)
        with pytest.raises(InvalidBatch):
            copy(bad, keys)
    with pytest.raises(InvalidBatch):
        copy(good, keys, base_offset=1)
    left = encode_batch([Rec(b"a", b"", offset_delta=5)], last_offset_delta=2)
    with pytest.raises(InvalidBatch):
        keys.add(memoryview(left), decompressed_size_bytes_max=BOUND)


def test_a_long_way_to_write_a_number_is_read_as_the_number() -> None:
    body = b"\x16\0\x80\0\0\x82\0a\x01\0\0\0"[:1] + b"\0" + b"\x80\0" + b"\0" + b"\x82\0" + b"a" + b"\x81\0" + b"\0"
    record = bytes([2 * (len(body) - 1)]) + body[1:]
    data = encode_batch([Rec(b"a", None)], body=record)
    assert [row[:3] for row in rows(data)] == [(0, b"a", None)]
    assert rows(copy(data)) == rows(data)


# ---------------------------------------------------------------- against a model

KEYS = st.sampled_from([b"a", b"b", b"c", b"dd", b""])
RECORDS = st.builds(
    Rec,
    key=KEYS,
    value=st.none() | st.binary(max_size=9),
    headers=st.sampled_from([(), (("h", b"1"), ("i", None))]),
    timestamp_ms=st.integers(BASE_TIMESTAMP - 5, BASE_TIMESTAMP + 5),
    offset_delta=st.none(),
)
CODECS = st.sampled_from([0, 0, 4])


def passes(data: bytes, hash_mask: int, begin: int) -> Iterator[bytes]:
    """A log after each of some passes, a day and more apart; every other one knows the first half of it as clean."""
    half = heads(data)[len(heads(data)) // 2].base_offset
    for day in range(5):
        first_offset = half if day % 2 else 0
        keys = key_map(data, size_bytes=1 << 12, hash_mask=hash_mask, first_offset=first_offset)
        data = copy(data, keys, base_offset=begin, now_ms=NOW + day * 100_000_000, room_bytes=200)
        yield data


@settings(max_examples=5 * settings().max_examples)
@given(
    st.lists(st.tuples(st.lists(RECORDS, min_size=1, max_size=6), CODECS), min_size=1, max_size=8),
    st.sampled_from([0, 3, 2**64 - 1]),
    st.sampled_from([0, 4090, FAR]),
)
def test_a_replay_gives_the_same_before_and_after(batches: list[tuple[list[Rec], int]], hash_mask: int, begin: int) -> None:
    data = b""
    for records, codec in batches:
        base_offset = heads(data)[-1].last_offset + 1 if data else begin
        data += encode_batch(
            records, base_offset=base_offset, codec=codec, compress=lambda body, codec=codec: compression.compress(codec, body)
        )
    before = {key: (offset, value, time) for offset, key, value, time in rows(data)}
    end = heads(data)[-1].last_offset
    for day, left in enumerate(passes(data, hash_mask, begin)):
        after = {key: (offset, value, time) for offset, key, value, time in rows(left)}
        alive = {key: row for key, row in before.items() if row[1] is not None}
        assert {key: row for key, row in after.items() if row[1] is not None} == alive
        assert len(rows(left)) == len(after) and set(after.items()) <= set(before.items())
        assert (set(after) == set(before)) if day == 0 else set(after) == set(alive)
        assert heads(left)[0].base_offset == begin and heads(left)[-1].last_offset == end


def test_the_header_of_an_empty_batch_by_hand() -> None:
    data = log([(b"a", b"1")], [(b"a", b"2")])
    out = copy(data)
    assert struct.unpack_from(">qiib", out) == (0, 49, 0, 2)
    assert out[21:61] == bytes(6) + b"\xff" * 30 + bytes(4)
    assert header(out)[0] is Status.OK
