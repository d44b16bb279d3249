"""log/segment_reader.py: the one batch that a point read wants; what reading in general does is in test_log.py and tests/crash."""

import pytest

from logdb.codec import Positions, RecordIterator
from logdb.errors import CorruptionError
from logdb.log.segment_reader import read_batch, read_chunks
from logdb.segment.segment import Segment
from support.batches import Rec, encode_batch, encode_log
from support.faulty_io import FaultyIO

BASE, BATCHES, EACH = 100, 12, 5
END = BASE + BATCHES * EACH
EPOCHS = ((3, BASE), (4, BASE + 6 * EACH))
BASE_OFFSET, LENGTH, LEADER_EPOCH, CRC, ATTRIBUTES, LAST_DELTA, RECORDS = 0, 8, 12, 17, 21, 23, 70


def epoch_at(offset):
    return 3 if offset < BASE + 6 * EACH else 4


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def segment(io, tmp_path):
    made = Segment(io, str(tmp_path), BASE, writable=True, index_interval_bytes=100)
    made.create(5)
    for at in range(BASE, END, EACH):
        batch = encode_log([[b"%03d" % offset * 20 for offset in range(at, at + EACH)]], base_offset=at, leader_epoch=epoch_at(at))
        made.append(memoryview(batch), at + EACH)
    made.seal()
    return made


def straight(segment, offset, epochs=EPOCHS):
    """The record at ``offset`` by ``read_batch``; None if that leaves it to others."""
    found = read_batch([segment], offset, epochs, Positions())
    if found is None:
        return None
    batch, next_offset = found
    assert next_offset % EACH == 0
    return next(RecordIterator(lambda *_: (batch,), offset, next_offset, "t", 0)).value


def anyhow(segment, offset, epochs=EPOCHS):
    """The same by ``read_chunks``, which tells what is wrong."""
    return next(RecordIterator(lambda *range_: read_chunks([segment], *range_, epochs), offset, END, "t", 0)).value


def position_of(segment, offset):
    """Where the batch begins that holds ``offset``; all have one size."""
    return (offset - BASE) // EACH * (segment.size_bytes // BATCHES)


def flip(path, position, mask=1):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def test_all_but_the_first_two_batches_are_read_straight(segment):
    for offset in range(BASE, END):
        assert anyhow(segment, offset) == b"%03d" % offset * 20
        assert straight(segment, offset) == (None if offset < BASE + 2 * EACH else b"%03d" % offset * 20)


def test_it_is_one_read_of_the_batch_and_leaves_positions(segment, io):
    straight(segment, BASE + 22)  # which loads the index
    before, positions = len(io.calls), Positions()
    batch, next_offset = read_batch([segment], BASE + 22, EPOCHS, positions)
    assert [call[0] for call in io.calls[before:]] == ["pread"]
    assert (len(batch), next_offset) == (segment.size_bytes // BATCHES, BASE + 25)
    assert positions.size_bytes > 0


@pytest.mark.parametrize("mask", [1, 0x80])
@pytest.mark.parametrize(
    "at", [*range(BASE_OFFSET, BASE_OFFSET + 8), LENGTH + 3, LEADER_EPOCH + 3, CRC, ATTRIBUTES + 1, LAST_DELTA, LAST_DELTA + 3, RECORDS]
)
def test_a_damaged_batch_is_never_served(segment, at, mask):
    offset = BASE + 22
    flip(segment.path, position_of(segment, offset) + at, mask)
    assert straight(segment, offset) is None
    with pytest.raises(CorruptionError):
        anyhow(segment, offset)
    assert straight(segment, offset - EACH) == b"%03d" % (offset - EACH) * 20


@pytest.mark.parametrize("mask", [1, 2, 4, 8, 0x10, 0x40, 0x80])
def test_whatever_the_index_says_no_neighbour_is_served(segment, mask):
    path = segment.path[:-4] + ".index"
    with open(path, "rb") as file:
        size_bytes = len(file.read())
    for byte in range(size_bytes):
        flip(path, byte, mask)
        segment.file = None  # with the index as it was
        for offset in range(BASE, END):
            assert straight(segment, offset) in (None, b"%03d" % offset * 20)
            assert anyhow(segment, offset) == b"%03d" % offset * 20
        flip(path, byte, mask)


def test_an_index_made_of_a_damaged_log_is_not_believed(segment):
    flip(segment.path, position_of(segment, END - 1) + BASE_OFFSET + 7, 0x40)  # moves the last batch up
    for suffix in (".index", ".timeindex"):
        segment.io.unlink(segment.path[:-4] + suffix)
    segment.file = None
    assert [straight(segment, offset) for offset in range(END - EACH, END)] == [None] * EACH
    with pytest.raises(CorruptionError):
        anyhow(segment, END - 1)


def test_the_epoch_is_the_checkpoints(segment):
    assert straight(segment, BASE + 22, None) is not None
    for epochs in (((2, BASE),), ((3, BASE), (4, BASE + 20)), ((3, BASE + 23),)):
        assert straight(segment, BASE + 22, epochs) is None


@pytest.mark.parametrize("how", ["short", "missing"])
def test_a_file_that_is_not_all_there(segment, how):
    if how == "short":
        segment.open().truncate(position_of(segment, BASE + 22) + 100)
    else:
        segment.io.unlink(segment.path)
        segment.file = None
    assert straight(segment, BASE + 22) is None
    with pytest.raises(CorruptionError):
        anyhow(segment, BASE + 22)


def test_compressed_small_and_empty_batches_are_left_to_the_general_path(io, tmp_path):
    small = Segment(io, str(tmp_path), 0, writable=True, index_interval_bytes=400)
    small.create(5)
    for at in range(50):
        small.append(memoryview(encode_log([[b"x"]], base_offset=at)), at + 1)
    assert all(read_batch([small], offset, None, Positions()) is None for offset in range(50))
    large = Segment(io, str(tmp_path), 50, writable=True, index_interval_bytes=10)
    large.create(5)
    for at in range(50, 60, 2):
        records = [Rec(None, b"y"), Rec(None, b"z")] if at != 54 else []
        batch = encode_batch(records, base_offset=at, last_offset_delta=1, codec=4 if at == 56 else 0)
        large.append(memoryview(batch), at + 2)
    found = {offset: read_batch([small, large], offset, None, Positions()) for offset in range(50, 60)}
    assert [offset for offset, batch in found.items() if batch is not None] == [54, 55, 58, 59]
    empty, next_offset = found[55]
    assert (list(RecordIterator(lambda *_: (empty,), 55, 56, "t", 0)), next_offset) == ([], 56)
