import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.requests.groups import CommitOffsets
from logdb.requests.security import AddAcls
from logdb.requests.topic_changes import DeleteTopic
from logdb_http_api.door import documents
from logdb_http_api.errors import ApiError

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=50,
)


@given(JSON, st.booleans())
def test_a_document_is_what_it_says(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "surrogatepass")
    assert documents.parse(data) == value
    assert documents.parse(memoryview(bytearray(data))) == value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"name":"t","partition":1}', "delete_topic has the unknown field 'partition'; known fields: name"),
        (b'{"partition":1}', "delete_topic has the unknown field 'partition'; known fields: name"),
        (b"[]", "delete_topic is []: must be an object with the fields name"),
        (b'{"name":1}', "delete_topic: Expected `str`, got `int` - at `$.name`"),
    ],
)
def test_the_fields_of_a_request_are_named(body, reason):
    with pytest.raises(ApiError) as caught:
        documents.decode(DeleteTopic, body, "delete_topic")
    assert (caught.value.status, str(caught.value)) == (422, reason)


OFFSETS = {"group_id": "g", "member_id": "", "generation": -1}


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (DeleteTopic, {"name": "t", "a": 1, "b": 2}, "has the unknown fields 'a', 'b'; known fields: name"),
        (
            CommitOffsets,
            {**OFFSETS, "offsets": [[{"topic": "t", "partition": 0, "p": 1}, {"offset": 1, "o": 1, "q": 2}]], "more": 1},
            (
                "has the unknown field 'more'; known fields: group_id, offsets, member_id, generation, group_instance_id, topic_ids; "
                "the unknown field 'offsets[0][0].p'; known fields: topic, partition; "
                "the unknown fields 'offsets[0][1].o', 'offsets[0][1].q'; known fields: offset, leader_epoch, metadata"
            ),
        ),
        (AddAcls, {"acls": [{"x": 1}] * 100}, None),
        (DeleteTopic, {"name": "t", **dict.fromkeys(map(str, range(1000)), 1)}, None),
    ],
)
def test_all_unknown_fields_are_named_with_their_path(kind, body, reason):
    with pytest.raises(ApiError) as caught:
        documents.decode(kind, json.dumps(body).encode(), "the call")
    said = str(caught.value)
    assert caught.value.status == 422
    assert said == f"the call {reason}" if reason else len(said) < 2_000


def deep(depth, opening, closing, inner=b""):
    return opening * depth + inner + closing * depth


@pytest.mark.parametrize(
    ("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":', b"}]"), (b'["\\"[",', b"]"), (b"[[],{},", b"]")]
)
def test_depth_is_counted_whatever_is_between(opening, closing):
    levels = 2 if opening.startswith(b"[{") else 1
    most = documents.DEPTH_MAX // levels - (opening == b"[[],{},")
    assert documents.parse(deep(most, opening, closing, b"1")) is not None
    with pytest.raises(ApiError, match="deeper than 64") as caught:
        documents.parse(deep(documents.DEPTH_MAX // levels + 1, opening, closing, b"1"))
    assert caught.value.status == 400


def test_brackets_in_strings_are_no_depth():
    value = ["[" * 500, "\\", '"[{', "\\\\" * 9 + '"' + "{" * 500]
    assert documents.parse(json.dumps(value).encode()) == value


def test_halves_of_characters():
    with pytest.raises(ApiError):
        documents.parse(b'["\\uD800"]')
    assert documents.parse(b'["\\uD800"]', surrogates=True) == ["\ud800"]
    assert documents.parse(b'["\\ud83d\\ude00"]') == ["😀"]


@pytest.mark.parametrize("item", [b"{},", b"[],", b'{"a":1},', b'"ab",', b"1.5,", b"[[]],", b'{"k":[1,2]},', b"12345,"])
def test_memory_is_within_what_is_counted(monkeypatch, item):
    """Documents are refused, or take no more than is allowed; a 32nd of the real sizes."""
    monkeypatch.setattr(documents, "MEMORY_BYTES_MAX", documents.MEMORY_BYTES_MAX >> 5)
    size_bytes = 8 << 20 >> 5
    data = b"[" + item * (size_bytes // len(item) - 1) + b"1]"
    tracemalloc.start()
    try:
        value, allowed_bytes = documents.parse(data), documents.MEMORY_BYTES_MAX
    except ApiError as error:
        value, allowed_bytes = error.status, 0  # refused before memory is taken
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert value == 413 or len(value) > 1000
    assert peak < allowed_bytes + 3 * size_bytes
