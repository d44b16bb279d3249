import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb_http_api.door.json_stream import JsonStream

TEXTS = st.text(st.sampled_from('{}[]"\\ é\N{SNOWMAN}a\n'), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), max_size=6)


def fed(stream: JsonStream, data: bytes, cuts: list[int]) -> list[object]:
    found = []
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    for begin, end in pairwise(places):
        found += stream.feed(data[begin:end])
    return found + stream.feed(b"", last=True)


@given(
    OBJECTS,
    st.sampled_from(["", "\n", " \r\n\t"]),
    st.booleans(),
    st.lists(st.integers(0, 10_000), max_size=30),
    st.sampled_from([None, 1]),
)
def test_however_it_is_cut_the_same_objects_come_out(objects, separator, ascii_only, cuts, indent):
    data = separator.join(json.dumps(one, ensure_ascii=ascii_only, indent=indent) for one in objects).encode()
    stream = JsonStream()
    assert fed(stream, data, cuts) == objects
    assert stream.failure is None


def test_byte_by_byte_an_object_comes_with_its_last_byte():
    stream, data = JsonStream(), b'{"a":"\\\\\\"}\xc3\xa9"}'
    for at in range(len(data) - 1):
        assert stream.feed(data[at : at + 1]) == []
    assert stream.feed(data[-1:]) == [{"a": '\\"}é'}]


@pytest.mark.parametrize(
    ("data", "objects", "why"),
    [
        (b'{"a":1} x {"b":2}', 1, "Expecting value"),
        (b'{"a":1}{"b":tru}', 1, "Expecting value"),
        (b'{"a":1]', 0, "delimiter"),
        (b'{"a":NaN}', 0, "NaN"),
        (b'{"a":1}{"b"', 1, "middle of an object"),
        (b'{"a":"\xff"}', 0, "utf-8"),
        (b'{"a":1}\xc3', 0, "utf-8"),
        (b'{"a":' * 100_000, 0, "nested too deeply"),
        (b'{"a":' + b"9" * 5_000 + b"}", 0, "digits"),
    ],
)
def test_what_is_no_json_ends_the_stream(data, objects, why):
    whole, pieces = JsonStream(), JsonStream()
    found = whole.feed(data, last=True)
    assert len(found) == objects
    assert whole.failure.status == 400
    assert why in str(whole.failure)
    fed(pieces, data, [3, 9])
    assert pieces.failure.status == 400


def test_an_object_without_end_is_refused_before_it_takes_much_memory():
    stream = JsonStream(1_000)
    assert stream.feed(b'{"a":"' + b"x" * 900) == []
    assert stream.failure is None
    stream.feed(b"x" * 100)
    assert stream.failure.status == 413


def test_an_object_in_many_pieces_is_looked_at_once():
    """Were it tried anew with each piece, the second would take sixteen times as long, not four."""

    def best_s(count: int) -> float:
        times = []
        for _ in range(3):
            stream, began = JsonStream(), time.process_time()
            stream.feed(b'{"a":["')
            for _ in range(count):
                stream.feed(b'}","{"]x{",')
            times.append(time.process_time() - began)
            assert stream.failure is None
        return min(times)

    best_s(1_000)
    assert best_s(20_000) < 8 * best_s(5_000)
