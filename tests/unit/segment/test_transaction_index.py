"""Indexes of aborted transactions: what a search finds, what is saved, and bytes that are none."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.codec import crc32c
from logdb.errors import CorruptionError, DiskFull, WriteFailed
from logdb.model import OFFSET_MAX, AbortedTransaction
from logdb.segment import transaction_index
from logdb.segment.transaction_index import ENTRY_SIZE_BYTES, TransactionIndex
from support.faulty_io import FaultyIO

ENTRIES = [AbortedTransaction(*numbers) for numbers in ((1, 10, 14, 12), (2, 12, 20, 16), (1, 16, 29, 30), (3, 5, 40, 41))]


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "0.txnindex")


def filled(io, path, entries=ENTRIES):
    index = TransactionIndex(io, path)
    for entry in entries:
        index.add(entry)
    return index


def test_without_any_there_is_no_file(io, path):
    index = TransactionIndex(io, path)
    assert not index and not index.unsaved
    assert index.search(0, OFFSET_MAX) == ([], False)
    assert index.checksum() == (0, 0)
    index.save()
    assert not io.exists(path)


@pytest.mark.parametrize(
    ("offset", "end", "found", "complete"),
    [
        (0, 100, ENTRIES, False),
        (0, 30, ENTRIES[:3], True),  # nothing below 30 was open any more
        (0, 12, ENTRIES[:1], True),
        (14, 15, ENTRIES[:2], True),
        (15, 16, ENTRIES[1:2], True),
        (21, 100, ENTRIES[2:], False),
        (30, 31, ENTRIES[3:], True),
        (41, 100, [], False),
    ],
)
def test_search(io, path, offset, end, found, complete):
    assert filled(io, path).search(offset, end) == (found, complete)


def test_a_marker_that_is_known_is_not_noted_again(io, path):
    index = filled(io, path)
    index.add(ENTRIES[0])
    index.add(ENTRIES[-1])
    assert index.checksum()[0] == len(ENTRIES)


def test_saved_and_read_again(io, path):
    index = filled(io, path)
    assert index.unsaved
    index.save()
    assert not index.unsaved
    data = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in ENTRIES)
    assert Path(path).read_bytes() == data
    again = TransactionIndex(io, path)
    again.expect(*index.checksum())
    assert index.checksum() == (len(ENTRIES), crc32c(data))
    assert io.count("open", path) == 0
    assert again and again.search(0, 100) == (ENTRIES, False)


def test_what_could_not_be_saved_is_still_to_be_saved(io, path):
    index = filled(io, path)
    io.fill_up()
    with pytest.raises(DiskFull):
        index.save()
    assert index.unsaved
    io.heal()
    index.save()
    assert transaction_index.load(io, path) == transaction_index.encode(ENTRIES)


def test_a_sealed_one_has_to_be_what_was_noted_of_it(io, path):
    filled(io, path).save()
    count, crc = transaction_index.summary(Path(path).read_bytes())
    for wrong in ((count - 1, crc), (count, crc ^ 1)):
        index = TransactionIndex(io, path)
        index.expect(*wrong)
        with pytest.raises(CorruptionError, match=f"{count} entries with CRC {crc:08x}; the catalogue says"):
            index.search(0, 1)
    io.unlink(path)
    index = TransactionIndex(io, path)
    index.expect(count, crc)
    with pytest.raises(CorruptionError, match="0 entries with CRC 00000000"):
        index.search(0, 1)
    index.rebuilt(ENTRIES)
    assert index.search(0, 100) == (ENTRIES, False)
    index.expect(0, 0)
    assert not index


def test_what_lies_past_a_recovery_is_cut(io, path):
    filled(io, path).save()
    index = TransactionIndex(io, path)
    index.load_below(20, *transaction_index.summary(transaction_index.encode(ENTRIES[:1])))
    assert index.unsaved and index.search(0, 100) == (ENTRIES[:1], False)
    index.add(AbortedTransaction(9, 15, 20, 21))
    index.save()
    assert transaction_index.load(io, path) == transaction_index.encode([ENTRIES[0], AbortedTransaction(9, 15, 20, 21)])
    index.load_below(0, 0, 0)
    index.save()
    assert transaction_index.load(io, path) == b""


def packed(*numbers):
    return struct.pack(">hqqqq", *numbers)


WRONG = {
    "cut off": (packed(0, 1, 2, 3, 4)[:-1], 33),
    "version": (packed(0, 1, 2, 3, 4) + packed(1, 1, 5, 6, 7), 34),
    "producer": (packed(0, -1, 2, 3, 4), 0),
    "first behind last": (packed(0, 1, 4, 3, 4), 0),
    "first negative": (packed(0, 1, -1, 3, 4), 0),
    "not rising": (packed(0, 1, 2, 3, 4) + packed(0, 2, 1, 3, 4), 34),
    "last stable offset": (packed(0, 1, 2, 3, -1), 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_bytes_that_are_no_index(name):
    data, position = WRONG[name]
    with pytest.raises(CorruptionError) as caught:
        transaction_index.check(data, "there")
    assert (caught.value.path, caught.value.position) == ("there", position)


@given(st.binary(max_size=4 * ENTRY_SIZE_BYTES))
def test_random_bytes_are_refused_or_entries(data):
    try:
        transaction_index.check(data, "x")
    except CorruptionError:
        return
    assert transaction_index.encode(transaction_index.entries(data)) == data


def test_a_file_is_never_written_over(io, path):
    """What a snapshot of producers relies on is not at stake while another transaction is noted."""
    index = filled(io, path, ENTRIES[:1])
    index.save()
    index.add(ENTRIES[1])
    io.fail("rename", path="0.txnindex")
    with pytest.raises(WriteFailed):
        index.save()
    assert transaction_index.load(io, path) == transaction_index.encode(ENTRIES[:1])
    io.heal()
    index.save()
    assert transaction_index.load(io, path) == transaction_index.encode(ENTRIES[:2])
