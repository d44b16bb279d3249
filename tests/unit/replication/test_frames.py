import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb_replication.raft import frames
from logdb_replication.raft.errors import PeerRefused
from logdb_replication.raft.frames import FRAME_SIZE_BYTES_MAX, HEAD, FrameReader, FrameWriter, Keys, hello, read_hello
from logdb_replication.raft.voters import Voter

A, B = Voter(1, 11, "a.example", 9001), Voter(2, 22, "b.example", 9002)
SECRET = b"s" * 32


def test_a_hello_comes_back():
    data = hello("c", A, B)
    assert read_hello(data, "c") == (A, B)
    assert data != hello("c", A, B)  # its nonce
    with pytest.raises(PeerRefused, match="another cluster"):
        read_hello(data, "d")


@given(st.binary(max_size=300))
def test_any_bytes_are_no_hello(data):
    with pytest.raises(PeerRefused):
        read_hello(data, "c")


def test_each_part_of_a_hello_is_refused():
    data = hello("c", A, B)
    for end in range(len(data)):
        with pytest.raises(PeerRefused):
            read_hello(data[:end], "c")


def test_frames_come_in_any_pieces():
    writer, reader = FrameWriter(b"k"), FrameReader(b"k")
    payloads = [b"", b"a", b"b" * 100_000]
    data = b"".join(writer.frame(payload) for payload in payloads)
    rng, got = random.Random(1), []
    while data:
        cut = rng.randrange(1, 5_000)
        got += reader.feed(data[:cut])
        data = data[cut:]
    assert got == payloads


def test_every_flipped_byte_of_a_frame_is_refused():
    whole = FrameWriter(b"k").frame(b"payload")
    for place in range(len(whole)):
        flipped = whole[:place] + bytes((whole[place] ^ 1,)) + whole[place + 1 :]
        try:
            assert list(FrameReader(b"k").feed(flipped + bytes(300))) == []
        except PeerRefused:
            continue
        assert place < 4  # a length within the limit, of which not all has come


def test_a_frame_is_good_once_and_in_its_place():
    writer = FrameWriter(b"k")
    first, second = writer.frame(b"1"), writer.frame(b"2")
    reader = FrameReader(b"k")
    assert list(reader.feed(first)) == [b"1"]
    with pytest.raises(PeerRefused, match="came before"):
        list(reader.feed(first))
    with pytest.raises(PeerRefused):
        list(FrameReader(b"k").feed(second))


def test_a_huge_length_is_refused_before_anything_comes():
    for size_bytes in (FRAME_SIZE_BYTES_MAX + 1, 2**31 - 1, 2**32 - 1):
        with pytest.raises(PeerRefused, match="must be at most"):
            list(FrameReader(b"k").feed(HEAD.pack(size_bytes, bytes(32))))


def test_keys_are_those_of_one_connection():
    one, two = hello("c", A, B), hello("c", B, A)
    keys = Keys(SECRET, one, two)
    assert len({keys.opens, keys.accepts, keys.forth, keys.back}) == 4
    other = Keys(SECRET, hello("c", A, B), two)
    assert not {keys.opens, keys.accepts, keys.forth, keys.back} & {other.opens, other.accepts, other.forth, other.back}
    with pytest.raises(PeerRefused, match="secret"):
        frames.check(Keys(b"t" * 32, one, two).opens, keys.opens)
