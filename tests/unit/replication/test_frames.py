import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb_replication.controller import connections
from logdb_replication.raft import tcp
from logdb_replication.raft.voters import Voter
from logdb_replication.transport import frames
from logdb_replication.transport.errors import PeerRefused
from logdb_replication.transport.frames import FRAME_SIZE_BYTES_MAX, HEAD, FrameReader, FrameWriter, Keys
from logdb_replication.transport.handshake import Handshake

A, B = Voter(1, 11, "a.example", 9001), Voter(2, 22, "b.example", 9002)
SECRET = b"s" * 32
PROTOCOLS = {"voters": (tcp.PROTOCOL, A, B), "controllers": (connections.PROTOCOL, 1, 2)}


@pytest.fixture(params=PROTOCOLS)
def speakers(request):
    """A protocol, and two that speak it."""
    return PROTOCOLS[request.param]


def hello(cluster, sender, target):
    return Handshake(tcp.PROTOCOL, cluster, SECRET).hello(sender, target)


def test_a_hello_comes_back(speakers):
    protocol, one, two = speakers
    ours, others = Handshake(protocol, "c", SECRET), Handshake(protocol, "d", SECRET)
    data = ours.hello(one, two)
    assert ours.read_hello(data) == (one, two)
    assert data != ours.hello(one, two)  # its nonce
    with pytest.raises(PeerRefused, match="another cluster"):
        others.read_hello(data)


@given(st.binary(max_size=300), st.sampled_from([of for of, _, _ in PROTOCOLS.values()]))
def test_any_bytes_are_no_hello(data, protocol):
    with pytest.raises(PeerRefused):
        Handshake(protocol, "c", SECRET).read_hello(data)


def test_each_part_of_a_hello_and_more_than_one_is_refused(speakers):
    protocol, one, two = speakers
    handshake = Handshake(protocol, "c", SECRET)
    data = handshake.hello(one, two)
    for wrong in (*(data[:end] for end in range(len(data))), data + b"\0"):
        with pytest.raises(PeerRefused):
            handshake.read_hello(wrong)


def test_a_hello_of_the_other_protocol_is_refused():
    (of_voters, one, two), (of_nodes, _, _) = PROTOCOLS.values()
    with pytest.raises(PeerRefused):
        Handshake(of_nodes, "c", SECRET).read_hello(Handshake(of_voters, "c", SECRET).hello(one, two))


def test_a_short_secret_is_refused(speakers):
    with pytest.raises(ValueError, match="at least 16"):
        Handshake(speakers[0], "c", b"short")


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
