"""What becomes no value of a type, and what the refusal names; what does is in test_requests.py."""

import json
import subprocess
import sys
import typing
from typing import Any

import msgspec
import pytest

from logdb.model import ClusterEvent, OffsetAndMetadata, TopicEvent, TopicInfo, TopicPartition
from logdb.requests import coding


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
    with pytest.raises(msgspec.ValidationError):
        coding.decode(wanted, json.dumps(value).encode())
    with pytest.raises(msgspec.ValidationError):
        coding.convert(wanted, value)


def test_what_is_wrong_is_named():
    with pytest.raises(msgspec.ValidationError, match=r"^Object missing required field `partition` - at `\$\[0\]`$"):
        coding.decode(list[TopicPartition], b'[{"topic":"t"}]')
    with pytest.raises(msgspec.ValidationError, match=r"^Object contains unknown field `more`$"):
        coding.decode(TopicPartition, b'{"topic":"t","partition":0,"more":1}')
    with pytest.raises(msgspec.ValidationError, match=r"^Expected `array`, got `object`$"):
        coding.decode(dict[str, int], b'{"a":1}')


def test_a_field_that_has_a_default_may_be_left_out():
    assert coding.decode(OffsetAndMetadata, b'{"offset":5}') == OffsetAndMetadata(5)


@pytest.mark.parametrize("body", [b"", b"{", b"[1,]", b"NaN", b'"\\ud800"', b'"\xff"', b"\xff\xfe1\x00", b"1 2", b"[" * 100_000])
def test_what_is_no_json(body):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
        coding.decode(Any, body)


def test_an_answer_of_a_later_version_may_say_more():
    said = [{"topic": "t", "partition": 0, "rack": {"name": "a", "of": [1]}}, {"partition": 1, "topic": "u"}]
    assert coding.decode_answer(list[TopicPartition], json.dumps(said).encode()) == [TopicPartition("t", 0), TopicPartition("u", 1)]
    nested = [[said[0], {"offset": 5, "more": None}]]
    wanted = dict[TopicPartition, OffsetAndMetadata | None]
    assert coding.decode_answer(wanted, json.dumps(nested).encode()) == {TopicPartition("t", 0): OffsetAndMetadata(5)}
    with pytest.raises(msgspec.ValidationError, match=r"missing required field `partition`"):
        coding.decode_answer(TopicPartition, b'{"topic":"t","more":1}')
    with pytest.raises(msgspec.ValidationError, match=r"unknown field `rack`"):
        coding.decode(list[TopicPartition], json.dumps(said).encode())


def test_one_of_several_named_tuples():
    topic = {"name": "t", "topic_id": "i", "partition_count": 1, "config": []}
    kind = tuple[TopicEvent | ClusterEvent, ...]
    events = (
        TopicEvent("topic_created", TopicInfo("t", "i", 1, {})),
        ClusterEvent("broker_left", 3),
        ClusterEvent("leader_changed", None, TopicPartition("t", 0), 7, (1, 2)),
    )
    assert coding.decode(kind, coding.encode(events)) == events
    assert (
        coding.decode(kind, json.dumps([{"kind": "topic_created", "topic": topic}, {"kind": "broker_left", "node": 3}]).encode())
        == events[:2]
    )
    for wrong in ({"kind": "topic_created"}, {"kind": "other", "node": 1}, {"kind": "broker_left", "node": 1, "more": 1}):
        with pytest.raises(msgspec.ValidationError):
            coding.decode(kind, json.dumps([wrong]).encode())


FIRST_USES = """
import sys, threading
from typing import NamedTuple
from logdb.requests import coding
sys.setswitchinterval(1e-6)
for number in range(100):
    names = [f"f{i}" for i in range(20)]
    Inner = NamedTuple(f"Inner{number}", [(name, int) for name in names])
    Outer = NamedTuple(f"Outer{number}", [("one", Inner), ("many", list[Inner]), ("more", dict[str, Inner])])
    said = dict.fromkeys(names, 1)
    value = {"one": said, "many": [said], "more": [["a", said]]}
    inner = Inner(**said)
    wanted, data, got = Outer(inner, [inner], {"a": inner}), coding.encode(Outer(inner, [inner], {"a": inner})), []
    uses = [lambda: coding.decode(Outer, data), lambda: coding.decode_answer(Outer, data), lambda: coding.convert(Outer, value)] * 2
    barrier = threading.Barrier(len(uses))
    threads = [threading.Thread(target=lambda use: (barrier.wait(), got.append(use())), args=(use,)) for use in uses]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert got == [wanted] * len(uses), (number, got)
"""


def test_threads_that_decode_a_type_for_the_first_time_at_once():
    """msgspec crashes the process where several threads begin with a type: this runs in another one."""
    done = subprocess.run([sys.executable, "-c", FIRST_USES], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
