"""Snapshots of producers: there and back, and no bytes that are none are taken for one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.codec import crc32c
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.log.producers import BATCH_COUNT_MAX, SEQUENCE_MASK, Batch, Producer, ProducerStates
from logdb.model import OFFSET_MAX

offsets = st.integers(0, OFFSET_MAX - 1)


@st.composite
def producers(draw):
    batches, end = [], draw(st.integers(0, OFFSET_MAX // 2))
    for _ in range(draw(st.integers(0, BATCH_COUNT_MAX))):
        delta = draw(st.integers(0, SEQUENCE_MASK))
        end += delta + draw(st.integers(1, 9))
        batches.append(Batch(draw(st.integers(-1, SEQUENCE_MASK)), end, delta))
    timestamp, first = draw(st.integers(-1, OFFSET_MAX)), draw(st.one_of(st.just(-1), offsets))
    started = timestamp if first >= 0 else -1
    return Producer(
        draw(offsets), draw(st.integers(0, 2**15 - 1)), tuple(batches), timestamp, draw(st.integers(-1, 2**31 - 1)), first, started
    )


@given(st.lists(producers(), max_size=5, unique_by=lambda producer: producer.producer_id))
def test_there_and_back(found):
    states = ProducerStates(found)
    data = producer_snapshot.encode(states, {})
    assert len(data) == 10 + sum(46 + 24 * max(0, len(producer.batches) - 1) for producer in found)
    again = producer_snapshot.decode(data, "x").states
    assert again.producers == states.producers
    assert again.first_unstable == states.first_unstable


def test_all_of_the_last_batches_are_kept_and_the_last_one_where_kafka_looks(tmp_path):
    known = Producer(7, 1, (Batch(4, 4, 4), Batch(6, 9, 1)), 99, 3, 8, 50)
    producer_snapshot.save(IO(), str(tmp_path), 10, ProducerStates([known, Producer(8, 0)]), {})
    found = producer_snapshot.load(IO(), str(tmp_path), 10).states.producers
    assert found == {7: known._replace(started_ms=99), 8: Producer(8, 0)}
    data = (tmp_path / f"{10:020d}.snapshot").read_bytes()
    assert struct.unpack(">qhiqiqiq", data[10:56]) == (7, 1, 6, 9, 1, 99, 3, 8)
    assert struct.unpack(">qiqi", data[102:]) == (7, 4, 4, 4)


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


ENTRY = (7, 0, 4, 9, 1, 99, 3, 8)
WRONG = {
    "empty": b"",
    "version": sealed(bytes(4), 2),
    "CRC": sealed(bytes(4))[:-1] + b"\1",
    "count too high": sealed((2).to_bytes(4, "big") + struct.pack(">qhiqiqiq", *ENTRY)),
    "earlier batch of no producer": sealed(bytes(4) + struct.pack(">qiqi", 7, 0, 0, 0)),
    "earlier batch behind the last": sealed((1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", *ENTRY) + struct.pack(">qiqi", 7, 0, 8, 0)),
    "earlier batch, and no last one": sealed(
        (1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", 7, 0, -1, -1, 0, 9, -1, -1) + struct.pack(">qiqi", 7, 0, 0, 0)
    ),
    "six batches": sealed(
        (1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", *ENTRY) + b"".join(struct.pack(">qiqi", 7, n, n, 0) for n in range(5))
    ),
    "count negative": sealed(b"\xff" * 4),
    "more behind": sealed(bytes(4) + b"x"),
    "twice the same": sealed((2).to_bytes(4, "big") + 2 * struct.pack(">qhiqiqiq", *ENTRY)),
    "id": sealed((1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", -1, *ENTRY[1:])),
    "epoch": sealed((1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", 7, -1, *ENTRY[2:])),
    "sequence": sealed((1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", 7, 0, -2, *ENTRY[3:])),
    "delta over the offset": sealed((1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", 7, 0, 4, 9, 10, *ENTRY[5:])),
    "delta negative": sealed((1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", 7, 0, 4, 9, -1, *ENTRY[5:])),
    "first offset": sealed((1).to_bytes(4, "big") + struct.pack(">qhiqiqiq", *ENTRY[:7], -2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_bytes_that_are_no_snapshot(name):
    with pytest.raises(CorruptionError) as caught:
        producer_snapshot.decode(WRONG[name], "there")
    assert caught.value.path == "there"


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_by_name(data):
    with pytest.raises(CorruptionError):
        producer_snapshot.decode(data, "x")


@given(st.binary(max_size=150))
def test_hostile_bytes_with_a_good_crc_are_refused_or_sound(body):
    try:
        states = producer_snapshot.decode(sealed(body), "x").states
    except CorruptionError:
        return
    assert producer_snapshot.encode(states, {})[6:] == body


def test_names_and_what_is_removed(tmp_path):
    io, directory = IO(), str(tmp_path)
    assert producer_snapshot.offsets(["5.snapshot", "0" * 19 + "5.snapshot", "0" * 20 + ".snapshot", "0" * 20 + ".log"]) == [0, 5]
    for offset in (1, 2, 3):
        producer_snapshot.save(io, directory, offset, ProducerStates(), {})
    known = [0, 1, 2, 3]  # 0 is gone already: no harm
    producer_snapshot.remove_old(io, directory, known)
    assert known == [2, 3] == producer_snapshot.offsets(io.listdir(directory))
    with pytest.raises(FileNotFoundError):
        producer_snapshot.load(io, directory, 1)


def test_of_a_log_that_may_be_cut_off_the_newest_in_each_segment_stays(tmp_path):
    io, directory = IO(), str(tmp_path)
    known = [5, 12, 15, 30, 31, 32, 33]
    for offset in known:
        producer_snapshot.save(io, directory, offset, ProducerStates(), {})
    producer_snapshot.remove_old(io, directory, known, [10, 20, 30])
    assert known == [15, 32, 33] == producer_snapshot.offsets(io.listdir(directory))
