"""Requests and replies as bytes, and what is neither."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.errors import InvalidMessage, LogdbError, StaleBrokerEpoch
from logdb_replication.controller import messages
from logdb_replication.controller.errors import ClocksApart
from logdb_replication.controller.messages import (
    Changed,
    ChangeVoters,
    Describe,
    Described,
    Heard,
    Heartbeat,
    Propose,
    Proposed,
    Suspect,
    Suspected,
    Watch,
    Watched,
    decode_reply,
    decode_request,
    encode,
    failed,
)
from logdb_replication.raft.errors import NotQuorumLeader, TooManyCommands

REQUESTS = (
    Propose(b"x", 1),
    Watch(1, 2),
    Watch(1, 0, latest=True),
    Heartbeat(3, 4, 5),
    Suspect(3, 1),
    Describe(),
    ChangeVoters(True, 1, 2**62, "board1", 7071, 1000),
)
REPLIES = (
    Proposed(b"x"),
    Watched(1),
    Watched(7, b"s", [(7, b"c")]),
    Heard(True, False),
    Suspected(True),
    Described({"a": [1]}, [{}]),
    Changed(),
)
FAILURES = (ClocksApart(1, -61_000, 60_000), NotQuorumLeader(None), NotQuorumLeader(2), TooManyCommands(1, 2), StaleBrokerEpoch(1, 2, 3))


def test_messages_are_the_same_after_their_bytes():
    assert [decode_request(encode(request)) for request in REQUESTS] == list(REQUESTS)
    assert [decode_reply(encode(reply)) for reply in REPLIES] == list(REPLIES)
    for error in FAILURES:
        with pytest.raises(type(error)) as caught:
            decode_reply(encode(failed(error)))
        assert vars(caught.value) == vars(error)


@pytest.mark.parametrize(
    "request_",
    [
        ChangeVoters(True, 0, 1, "h", 1, 1),
        ChangeVoters(True, 1, 1, "", 1, 1),
        ChangeVoters(True, 1, 1, "h\n", 1, 1),
        ChangeVoters(True, 1, 1, "h" * 300, 1, 1),
        ChangeVoters(True, 1, 1, "h", 70_000, 1),
        Watch(-1, 0),
        Watch(0, 60_001),
        Propose(b"", 10**9),
        Suspect(1, 0),
    ],
)
def test_a_request_out_of_bounds_is_refused(request_):
    with pytest.raises(InvalidMessage):
        decode_request(encode(request_))


@pytest.mark.parametrize("name", ["Nothing", "SystemExit", "NotQuorumLeader", "StaleBrokerEpoch"])
def test_a_failure_that_is_none_of_ours_is_no_reply(name):
    with pytest.raises(InvalidMessage):
        decode_reply(encode(messages.Failed(name, ["x"])))


@given(st.sampled_from([encode(each) for each in (*REQUESTS, *REPLIES, *map(failed, FAILURES))]), st.data())
def test_changed_bytes_are_a_message_or_refused(data, chosen):
    place = chosen.draw(st.integers(0, len(data) - 1))
    changed = data[:place] + chosen.draw(st.binary(max_size=3)) + data[place + chosen.draw(st.integers(0, 3)) :]
    for decode, refusal in ((decode_request, InvalidMessage), (decode_reply, LogdbError)):
        with contextlib.suppress(refusal):
            decode(changed)
