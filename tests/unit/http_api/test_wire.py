"""What a call takes and returns, as JSON and back; and what no JSON may become."""

import contextlib
import inspect
import json
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.access.security import CredentialStore
from logdb.client.session import Session
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb_http_api import wire
from logdb_http_api.door.calls import NEEDS, SHAPES
from support.typed import values

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=12,
)


def there_and_back(wanted, value):
    return wire.decode(wanted, json.loads(json.dumps(wire.encode(value))))


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_arguments_and_results_come_back_as_they_were(name):
    shape = SHAPES[name]

    @given(st.fixed_dictionaries({key: values(wanted) for key, wanted in shape.parameters.items()}), values(shape.result))
    def check(arguments, result):
        for key, value in arguments.items():
            assert there_and_back(shape.parameters[key], value) == value
        assert there_and_back(shape.result, result) == result
        assert type(there_and_back(shape.result, result)) is type(result)

    check()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_any_json_is_decoded_or_malformed(name):
    @given(JSON)
    def check(value):
        for wanted in (*SHAPES[name].parameters.values(), SHAPES[name].result):
            with contextlib.suppress(wire.Malformed):
                wire.encode(wire.decode(wanted, value, "it"))

    check()


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        (int, True), (int, 1.0), (int, 2**63), (int, "1"), (bool, 1), (bool, None), (str, 1), (bytes, "é"), (bytes, "a"), (bytes, "a b="),
        (object, [1]), (object, {}), (list[int], "12"), (tuple[int, str], [1]), (dict[str, int], {"a": 1}), (dict[str, int], [["a"]]),
        (TopicPartition, ["t", 0]), (TopicPartition, {"topic": "t"}), (TopicPartition, {"topic": "t", "partition": 0, "more": 1}),
        (OffsetAndMetadata, {"offset": None}), (typing.Literal["a"], "b"), (typing.Literal["a"], ["a"]), (int | None, "x"),
    ],
)  # fmt: skip
def test_what_is_malformed(wanted, value):
    with pytest.raises(wire.Malformed, match="it"):
        wire.decode(wanted, value, "it")


def test_what_is_wrong_is_named():
    with pytest.raises(wire.Malformed, match=r"^it is \{'topic': 't'\}, wanted is an object with partition, too$"):
        wire.decode(TopicPartition, {"topic": "t"}, "it")
    with pytest.raises(wire.Malformed, match=r"wanted is a list of pairs, \[\[name, value\], …\]$"):
        wire.decode(dict[str, int], {"a": 1}, "it")


def test_a_field_that_has_a_default_may_be_left_out():
    assert wire.decode(OffsetAndMetadata, {"offset": 5}) == OffsetAndMetadata(5)


def test_every_call_of_a_session_is_a_route_or_has_another_one():
    of_the_handle = {"check_open", "close", "io", "clock", "closed", "look_interval_ms_max"}
    elsewhere = of_the_handle | {"produce", "log", "reports", "verify", "backup", "changes"}
    calls = {name for kind in (Session, CredentialStore) for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
    assert calls - elsewhere == set(NEEDS)
