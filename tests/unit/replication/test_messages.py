import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.errors import InvalidMessage
from logdb_replication.raft.messages import _IDS, _LAYOUTS, NUMBER_END, decode, encode
from logdb_replication.raft.starts import IDS_MAX

IDS = st.integers(0, 2**64 - 1)
NUMBERS = st.integers(0, NUMBER_END - 1)


@st.composite
def messages(draw):
    layout = draw(st.sampled_from(_LAYOUTS))
    message = {"type": layout.name, **{name: draw(IDS if name in _IDS else NUMBERS) for name in layout.numbers}}
    message |= {name: draw(st.booleans()) for name in layout.flags}
    if layout.tail == "data":
        message["data"] = draw(st.binary(max_size=50))
    elif layout.tail == "ids":
        message["ids"] = tuple(draw(st.lists(IDS, max_size=4)))
    elif layout.tail == "entries":
        first = message["prevLogIdx"] = draw(NUMBERS)
        commands = draw(st.lists(st.tuples(st.binary(min_size=1, max_size=20), NUMBERS), max_size=4))
        message["entries"] = [(command, first + 1 + place, term) for place, (command, term) in enumerate(commands)]
    return message


@given(messages())
def test_a_message_comes_back(message):
    assert decode(encode(message)) == message


@given(messages(), st.data())
def test_a_part_of_a_message_is_refused_or_another_message(message, data):
    whole = encode(message)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    if "data" in message and len(cut) >= len(whole) - len(message["data"]):
        assert message["data"].startswith(decode(cut)["data"])
    elif "ids" in message and (left := len(cut) - (len(whole) - 8 * len(message["ids"]))) >= 0 and not left % 8:
        assert decode(cut)["ids"] == message["ids"][: left // 8]
    else:
        with pytest.raises(InvalidMessage):
            decode(cut)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data):
    try:
        message = decode(data)
    except InvalidMessage:
        return
    assert encode(message) == data


def test_a_worked_example():
    message = {"type": "request_vote", "start_id": 5, "term": 7, "last_log_index": 258, "last_log_term": 6}
    assert encode(message).hex() == "04" + "0000000000000005" + "0000000000000007" + "0000000000000102" + "0000000000000006" + "00"


NO_ENTRIES = {
    "type": "append_entries",
    "start_id": 1,
    "term": 1,
    "round": 0,
    "commit_index": 1,
    "prevLogIdx": 1,
    "prevLogTerm": 1,
    "entries": [],
}
START = {"type": "start", "start_id": 1, "number": 40, "term": 1, "durable": 1, "voted": True, "ids": tuple(range(IDS_MAX - 1))}


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"type": "request_vote"}),
        b"",
        b"\xff",
        encode({"type": "request_vote", "start_id": 1, "term": 1, "last_log_index": 1, "last_log_term": 1}) + b"x",
        encode({"type": "response_vote", "start_id": 1, "term": 1, "granted": True})[:-1] + b"\x02",
        encode(NO_ENTRIES)[:-4] + struct.pack(">I", 2**32 - 1),
        encode(NO_ENTRIES)[:-4] + struct.pack(">IQI", 1, 1, 2**32 - 1),
        encode(START) + struct.pack(">Q", 1),
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(InvalidMessage):
        decode(data)


@pytest.mark.parametrize("layout", _LAYOUTS, ids=lambda layout: layout.name)
def test_a_number_that_leaves_no_room_for_the_next_is_refused(layout):
    message = {"type": layout.name, **dict.fromkeys(layout.numbers, 1), **dict.fromkeys(layout.flags, False)}
    message |= {"data": {"data": b""}, "ids": {"ids": ()}, "entries": {"entries": [(b"x", 2, 1)]}}.get(layout.tail, {})
    for name in layout.numbers:
        if name in _IDS:
            assert decode(encode(message | {name: 2**64 - 1}))[name] == 2**64 - 1
            continue
        for number in (NUMBER_END, 2**64 - 1):
            with pytest.raises(InvalidMessage, match=f"{name} is {number}: must be less than"):
                decode(encode(message | {name: number}))
    if layout.tail == "entries":
        with pytest.raises(InvalidMessage, match="the term at index 2 is"):
            decode(encode(message | {"entries": [(b"x", 2, NUMBER_END)]}))


def test_so_many_ids_are_told():
    assert decode(encode(START)) == START
