"""Bytes in any pieces become the frames that were sent; answers leave in the order of their requests.  No socket, no loop."""

import struct
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logdb_kafka_api.limits import SMALL_BYTES
from logdb_kafka_api.wire import OWED_COUNT_MAX, PRODUCE, QUEUED_COUNT_MAX, UNAUTHENTICATED_COUNT_MAX, Frames, Ready, Request, State, Turns

OTHER = 3
PRODUCE_MAX, OTHER_MAX, ANY_MAX = 700_000, 100_000, 5_000
keys = st.sampled_from((PRODUCE, OTHER))


def size_max(key):
    return PRODUCE_MAX if key == PRODUCE else OTHER_MAX


def frames_of(**options):
    return Frames(size_max, ANY_MAX, **options)


def frame(key, size):
    """Its bytes tell where they belong."""
    return (struct.pack(">h", key) + bytes(at % 251 for at in range(min(size, 251) - 2)) * (size // 200 + 1))[:size].ljust(size, b"x")


def sent(frame):
    return struct.pack(">i", len(frame)) + frame


def receive(frames, data, buffer, *, take=None):
    """Give bytes to ``frames`` as a loop does, by a buffer that is overwritten; returns the frames that are whole.

    ``take``: how many frames are taken between two reads; the others wait.
    """
    found = []
    while data and frames.state in {State.BETWEEN, State.FILLING}:
        if frames.state is State.FILLING:
            target = frames.unfilled
            count = min(len(target), len(data))
            assert count, "no room, and none is asked for"
            target[:count], data = data[:count], data[count:]
            whole = frames.filled(count)
            found += [(frames.key, bytes(whole))] if whole is not None else []
        else:
            count = min(len(buffer), len(data))
            buffer[:count], data = data[:count], data[count:]
            frames.receive(memoryview(buffer)[:count])
            found += taken(frames, take)
            frames.keep()
        grow(frames)
        buffer[:] = bytes(len(buffer))
    return found


def taken(frames, most=None):
    found = []
    while (most is None or len(found) < most) and (one := frames.next_frame()) is not None:
        found.append((frames.key, bytes(one)))
    return found


def grow(frames):
    if frames.state is State.BEGUN:
        assert len(frames.begun) < frames.room_bytes <= max(SMALL_BYTES, 5 * len(frames.begun)), "memory grows with what has come"
        frames.own_begun()
        frames.fill(bytearray(frames.room_bytes))


@st.composite
def cut(draw, data):
    """``data`` in pieces."""
    pieces = []
    while data:
        size = draw(st.one_of(st.integers(1, 12), st.integers(1, 1 << 18)))
        pieces.append(data[:size])
        data = data[size:]
    return pieces


sizes = st.one_of(st.integers(2, 40), st.sampled_from((4_096, 4_097, ANY_MAX, ANY_MAX + 1, SMALL_BYTES, SMALL_BYTES + 1, OTHER_MAX)))


@given(st.data(), st.lists(st.tuples(keys, sizes), max_size=6), st.sampled_from((7, 4 << 10, 272 << 10)), st.sampled_from((None, 0, 1)))
def test_frames_in_any_pieces_are_whole(data, wanted, buffer_bytes, take):
    expected, frames, buffer, found = [(key, frame(key, size)) for key, size in wanted], frames_of(), bytearray(buffer_bytes), []
    for piece in data.draw(cut(b"".join(sent(one) for _, one in expected))):
        found += receive(frames, piece, buffer, take=take)
    while found != expected:
        grow(frames)
        more = taken(frames)
        assert more, "a frame that has come is not found"
        found += more
    assert frames.state is State.BETWEEN and not frames.left and not frames.is_begun


@given(st.data(), keys, st.integers(-(1 << 31), (1 << 31) - 1), st.booleans())
def test_a_size_that_is_not_allowed_ends_the_frames_before_memory_is_asked_for(data, key, size, follows):
    frames, before = frames_of(), [(OTHER, frame(OTHER, 9))] * follows
    whole = b"".join(sent(one) for _, one in before) + struct.pack(">ih", size, key)
    found = [one for piece in data.draw(cut(whole)) for one in receive(frames, piece, bytearray(64))]
    assert found == before
    if 2 < size <= size_max(key):
        assert frames.state is State.FILLING and len(frames.unfilled) <= SMALL_BYTES
    elif size == 2:
        assert frames.state is State.BETWEEN
    else:
        assert frames.state is State.REFUSED and str(size) in frames.reason and frames.next_frame() is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_begin_of_an_http_request_is_foreign_as_the_first_bytes_alone(method):
    begun = f"{method} / HTTP/1.1\r\n".encode()
    frames = frames_of()
    frames.receive(memoryview(begun[:5]))
    assert frames.next_frame() is None and frames.is_begun
    frames.keep()
    frames.receive(memoryview(begun[5:]))
    assert frames.next_frame() is None and frames.state is State.FOREIGN and bytes(frames.unread) == begun

    for frames in (frames_of(may_be_foreign=False), frames_of()):
        if frames._may_be_foreign:
            assert receive(frames, sent(frame(OTHER, 9)), bytearray(64))
        frames.receive(memoryview(begun))
        assert frames.next_frame() is None and frames.state is State.REFUSED


class Answer:
    """One that comes when it is set."""

    def __init__(self, number):
        self.number, self.is_there = number, False

    def done(self):
        return self.is_there

    def result(self):
        return self.number

    def cancel(self):
        raise AssertionError("the connection does that")


class Requests(RuleBasedStateMachine):
    """``Turns`` beside the list of all requests."""

    def __init__(self):
        super().__init__()
        self.turns, self.received, self.begun, self.answered = Turns(), [], 0, []
        self.owed = deque()
        self.bytes = {}

    @precondition(lambda self: not self.turns.is_full(is_known=True))
    @rule(key=keys, size=st.integers(2, 40_000), owner=st.sampled_from((None, "alice")))
    def come(self, key, size, owner):
        number = len(self.received)
        self.turns.put(Request(frame(key, size), owner))
        self.received.append(key)
        self.bytes[number] = size, owner

    @rule(is_raw=st.booleans(), is_later=st.booleans())
    def begin(self, is_raw, is_later):
        number = self.begun
        waits = bool(self.owed) and (is_raw or len(self.owed) >= OWED_COUNT_MAX or self.received[number : number + 1] != [PRODUCE])
        if bool(self.owed) and (self.owed[0] is None or self.owed[0].is_there):
            return  # that answer is sent first
        request = self.turns.next(is_raw=is_raw)
        assert (request is not None) == (number < len(self.received) and not waits)
        if request is not None:
            assert len(request.data) == self.bytes[number][0]
            self.begun += 1
            self.turns.done(request)
            del self.bytes[number]
            self.owe(number, is_later=is_later and self.received[number] == PRODUCE)

    def owe(self, number, *, is_later):
        if is_later:
            self.owed.append(Answer(number))
            self.turns.owe(self.owed[-1])
        else:
            self.owed.append(None)
            self.turns.owe(Ready(number))

    @precondition(lambda self: any(self.owed))
    @rule(data=st.data())
    def replicated(self, data):
        data.draw(st.sampled_from([one for one in self.owed if one is not None])).is_there = True

    @rule()
    def send(self):
        if bool(self.owed) and (self.owed[0] is None or self.owed[0].is_there):
            self.owed.popleft()
            self.answered.append(self.turns.next(is_raw=False))

    @invariant()
    def answers_leave_in_order_and_bytes_are_counted(self):
        assert self.answered == list(range(len(self.answered)))
        assert len(self.turns.owed) == len(self.owed)
        assert self.turns.queued_bytes == sum(size for size, _ in self.bytes.values())
        small_bytes = sum(size for size, owner in self.bytes.values() if owner is None)
        count = len(self.received) - self.begun
        for is_known, most in ((True, QUEUED_COUNT_MAX), (False, UNAUTHENTICATED_COUNT_MAX)):
            assert self.turns.is_full(is_known=is_known) == (
                small_bytes >= SMALL_BYTES or self.turns.queued_bytes >= 1 << 20 or count >= most
            )


test_turns = Requests.TestCase
