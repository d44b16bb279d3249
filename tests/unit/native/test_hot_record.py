"""hot_record.c: what a record shows, equals and keeps."""

import gc
import pickle
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb._native._hot import Record, RecordIterator, murmur2
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_bytes, varint


def records(*recs: Rec, base_offset: int = 0, leader_epoch: int = 0, topic: str = "t", partition: int = 0) -> list[Record]:
    data = encode_batch(recs, base_offset=base_offset, leader_epoch=leader_epoch)
    return list(RecordIterator(lambda offset, end: (data,), 0, 2**63 - 1, topic, partition))


SAMPLE = Rec(b"k", b"v", (("h", b"1"),))


def record(rec: Rec = SAMPLE, **batch: Any) -> Record:
    (only,) = records(rec, **batch)
    return only


def test_what_it_shows() -> None:
    r = record(Rec(b"k", None, (("ä", b"1"), ("b", None)), BASE_TIMESTAMP), base_offset=2**62, leader_epoch=9, topic="trades", partition=2)
    assert (r.offset, r.key, r.value, r.timestamp_ms, r.leader_epoch) == (2**62, b"k", None, BASE_TIMESTAMP, 9)
    assert (r.topic, r.partition, r.headers) == ("trades", 2, (("ä", b"1"), ("b", None)))
    assert r.headers is r.headers
    assert repr(r) == (
        f"Record(topic='trades', partition=2, offset={2**62}, timestamp_ms={BASE_TIMESTAMP}, key=b'k', value=None, "
        "headers=(('ä', b'1'), ('b', None)), leader_epoch=9)"
    )


def test_equal_timestamps_in_a_row_are_one_object() -> None:
    times = [BASE_TIMESTAMP, BASE_TIMESTAMP, BASE_TIMESTAMP + 1, BASE_TIMESTAMP]
    first, second, third, fourth = records(*(Rec(b"k", b"v", timestamp_ms=at) for at in times))
    assert [r.timestamp_ms for r in (first, second, third, fourth)] == times
    assert first.timestamp_ms is second.timestamp_ms
    assert fourth.timestamp_ms is not first.timestamp_ms
    del first, second, third
    assert fourth.timestamp_ms == BASE_TIMESTAMP


def test_it_is_immutable_and_final() -> None:
    r: Any = record()
    for name in ("offset", "timestamp_ms", "key", "value", "headers", "leader_epoch", "topic", "partition", "other"):
        with pytest.raises(AttributeError):
            setattr(r, name, b"x")
        with pytest.raises(AttributeError):
            delattr(r, name)
    with pytest.raises(TypeError):
        type("Sub", (Record,), {})


def test_a_test_can_make_one() -> None:
    given = {"topic": "t", "partition": 2, "offset": 7, "timestamp_ms": 5, "headers": (("h", b"1"), ("n", None)), "leader_epoch": 3}
    made = Record(bytearray(b"v"), memoryview(b"k"), **given)
    read = record(Rec(b"k", b"v", given["headers"], 5), topic="t", partition=2, base_offset=7, leader_epoch=3)
    assert made == read == pickle.loads(pickle.dumps(made))
    assert (Record().value, Record().key, Record().topic, Record().timestamp_ms, Record().leader_epoch) == (None, None, "", -1, -1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"value": "v"}, "value='v': must be bytes or None"),
        ({"key": 1}, "key=1: must be bytes or None"),
        ({"headers": [["h", b"1"]]}, r"headers\[0\]=\['h', b'1'\]: must be a tuple"),
        ({"headers": [("h", "1")]}, r"headers\[0\]"),
        ({"topic": b"t"}, "str"),
        ({"offset": "1"}, "int"),
    ],
)
def test_a_wrong_field_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Record(**wrong)


def test_equality_and_hash_are_over_all_fields() -> None:
    base = Rec(b"k", b"v", (("h", b"1"),), BASE_TIMESTAMP + 5)
    same, others = (
        record(base),
        [
            record(base, base_offset=1),
            record(base, leader_epoch=1),
            record(base, topic="u"),
            record(base, partition=1),
            record(base._replace(key=None)),
            record(base._replace(value=b"")),
            record(base._replace(headers=())),
            record(base._replace(timestamp_ms=BASE_TIMESTAMP)),
        ],
    )
    assert record(base) == same and hash(record(base)) == hash(same)
    assert (record(base) != same) is False
    assert all(other != same for other in others)
    assert len({same, record(base), *others}) == 1 + len(others)
    assert same != "x" and (same == None) is False  # noqa: E711 - the operator is what is tested
    with pytest.raises(TypeError):
        same < same  # type: ignore[operator]  # noqa: B015, PLR0124


def test_headers_are_decoded_when_looked_at() -> None:
    bad = record(Rec(b"k", b"v", ((b"\xff\x80n", b"1"),)))
    assert bad.headers == (("\udcff\udc80n", b"1"),)
    pair = encode_bytes(b"a") + encode_bytes(b"b")
    for count, tail in ((2, pair), (1, varint(5) + b"a"), (1, pair + b"x")):
        body = b"\0" + varint(0) + varint(0) + encode_bytes(b"k") + encode_bytes(b"v") + varint(count) + tail
        data = encode_batch([], body=varint(len(body)) + body, record_count=1, last_offset_delta=0)
        (broken,) = RecordIterator(lambda offset, end, data=data: (data,), 0, 10, "t", 0)
        assert (broken.key, broken.value) == (b"k", b"v")
        for look in (lambda r: r.headers, repr, hash, lambda r: r == record(Rec(b"k", b"v"))):
            with pytest.raises(ValueError, match=r"record 0|header \d of record 0"):
                look(broken)


def test_references() -> None:
    topic = "a topic of its own"
    before = sys.getrefcount(topic)
    some = records(*[Rec(b"k%d" % i, b"v%d" % i, (("h", b"1"),)) for i in range(1000)], topic=topic)
    for r in some:
        assert r.headers and r.topic is topic and hash(r) and repr(r)
    del r
    some += some[:500]
    del some
    gc.collect()
    assert sys.getrefcount(topic) == before


def test_nothing_grows_with_time() -> None:
    data = encode_batch([Rec(b"k", b"v", (("h", b"1"),))] * 500)

    def work() -> None:
        for r in RecordIterator(lambda offset, end: (data,), 0, 2**62, "t", 0):
            assert r.headers and r == r and repr(r)  # noqa: PLR0124

    work()
    tracemalloc.start()
    try:
        work()
        first = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            work()
        assert tracemalloc.get_traced_memory()[0] - first < 1000
    finally:
        tracemalloc.stop()


@given(st.lists(st.tuples(st.text(max_size=50), st.one_of(st.none(), st.binary(max_size=50))), max_size=20))
def test_headers_round_trip(headers: list[tuple[str, bytes | None]]) -> None:
    assert record(Rec(headers=tuple(headers))).headers == tuple(headers)


def test_murmur2_takes_bytes() -> None:
    # Kafka's own test vectors (UtilsTest.testMurmur2)
    for key, expected in ((b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)):
        assert murmur2(key) == murmur2(bytearray(key)) == murmur2(memoryview(key)) == expected % 2**32
    with pytest.raises(TypeError, match="key must be bytes-like or None, not str"):
        murmur2("a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not None"):
        murmur2(None)  # type: ignore[arg-type]
