import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb_http_api import framing

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
FRAMES = st.lists(
    st.tuples(TEXT, st.integers(0, 2**31 - 1), st.binary(max_size=50), st.dictionaries(TEXT.map("x-{}".format), st.integers(), max_size=3))
)


@given(FRAMES)
def test_frames_come_back_as_they_were(given_frames):
    body = b"".join(framing.head(topic, partition, len(data), header) + data for topic, partition, data, header in given_frames)
    assert [(one.topic, one.partition, bytes(one.batches), one.header) for one in framing.frames(body)] == given_frames


@given(FRAMES.filter(len), st.data())
def test_frames_that_break_off_are_malformed(given_frames, data):
    parts = [framing.head(topic, partition, len(batches), header) + batches for topic, partition, batches, header in given_frames]
    body = b"".join(parts)
    at = data.draw(st.integers(0, len(body) - 1))
    whole = {sum(map(len, parts[:count])) for count in range(len(parts) + 1)}
    if at in whole:
        assert len(list(framing.frames(body[:at]))) < len(parts)
    else:
        with pytest.raises(framing.Malformed):
            list(framing.frames(body[:at]))


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_malformed(body):
    try:
        found = b"".join(one.batches for one in framing.frames(body))
    except framing.Malformed:
        found = b""
    assert found in body


def test_the_example_of_the_specification():
    assert framing.head("t", 0, 0, {}) == b"\0\0\0\x2a" + b'{"topic":"t","partition":0,"size_bytes":0}'
