import re
import struct

import pytest

from logdb.cli.offline import offline
from logdb.cli.offline.offline import Batch, Gap, IndexEntry, TimeIndexEntry
from logdb.codec import Status
from logdb.errors import InvalidBatch
from support.batches import BASE_TIMESTAMP, Rec, encode_batch, encode_log

pytestmark = pytest.mark.local

NAME = f"{0:020d}"


def write(tmp_path, data, suffix=".log", name=NAME):
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(data)
    return str(path)


def shape(path):
    return [
        (found.position, found.header.base_offset if isinstance(found, Batch) else found.size_bytes, found.status.name)
        for found in offline.read_batches(path)
    ]


LOG = encode_log([[b"a", b"b"], [b"c"], [b"d" * 100]])
FIRST = struct.unpack_from(">i", LOG, 8)[0] + 12
SECOND = FIRST + struct.unpack_from(">i", LOG, FIRST + 8)[0] + 12


def test_whole_log(tmp_path):
    path = write(tmp_path, LOG)
    assert shape(path) == [(0, 0, "OK"), (FIRST, 2, "OK"), (SECOND, 3, "OK")]
    assert shape(write(tmp_path, b"")) == []


def test_zeroes_at_the_end_are_reserved_room(tmp_path):
    assert shape(write(tmp_path, LOG + bytes(5_000)))[-1] == (len(LOG), 5_000, "ZERO")


def test_zeroes_before_batches_are_damage(tmp_path):
    data = LOG[:FIRST] + bytes(SECOND - FIRST) + LOG[SECOND:]
    assert shape(write(tmp_path, data)) == [(0, 0, "OK"), (FIRST, SECOND - FIRST, "MAGIC"), (SECOND, 3, "OK")]
    assert shape(write(tmp_path, LOG + bytes(100) + b"x"))[-1] == (len(LOG), 101, "MAGIC")


@pytest.mark.parametrize("cut", [1, 60, 61, 100])
def test_batch_cut_short_by_the_end(tmp_path, cut):
    path = write(tmp_path, LOG[: SECOND + cut])
    assert shape(path)[2:] == [(SECOND, cut, "SHORT")]
    (*_, gap) = offline.read_batches(path)
    assert isinstance(gap, Gap)
    assert gap.at_end


@pytest.mark.parametrize("position", range(FIRST, SECOND))
def test_a_flipped_bit_is_found_unless_nothing_in_the_batch_covers_it(tmp_path, position):
    data = bytearray(LOG)
    data[position] ^= 0x10
    found = list(offline.read_batches(write(tmp_path, bytes(data))))
    assert isinstance(found[0], Batch)
    assert (found[-1].position, found[-1].status) == (SECOND, Status.OK), "goes on behind the damage"
    outside_crc = position - FIRST in {*range(8), *range(12, 16)}  # base offset, epoch: only neighbours could tell
    damaged = [one.position for one in found if one.status is not Status.OK]
    assert damaged == ([] if outside_crc else [FIRST])


def test_records_of_a_batch(tmp_path):
    data = encode_batch([Rec(b"k", None, (("h", b"1"),), BASE_TIMESTAMP + 5), b"v"], base_offset=10)
    (batch,) = offline.read_batches(write(tmp_path, data))
    first, second = offline.read_records(batch)
    assert (first.offset, first.key, first.value, first.headers, first.timestamp_ms) == (10, b"k", None, (("h", b"1"),), BASE_TIMESTAMP + 5)
    assert (second.offset, second.key, second.value) == (11, None, b"v")


def test_records_that_contradict_their_batch(tmp_path):
    data = encode_batch([b"a"], body=b"\x7f" + bytes(9))
    (batch,) = offline.read_batches(write(tmp_path, data))
    assert batch.status is Status.OK
    with pytest.raises(InvalidBatch, match="byte 0"):
        offline.read_records(batch)


# ---------------------------------------------------------------- indexes


def index(*entries):
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_index(*entries):
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def test_index_entries_are_absolute(tmp_path):
    path = write(tmp_path, index((2, 0), (5, 4096)) + bytes(80), ".index", f"{1000:020d}")
    assert list(offline.read_index(path)) == [IndexEntry(1002, 0), IndexEntry(1005, 4096)]
    path = write(tmp_path, time_index((9, 2)) + bytes(24), ".timeindex", f"{1000:020d}")
    assert list(offline.read_time_index(path)) == [TimeIndexEntry(9, 1002)]


@pytest.mark.parametrize(
    ("suffix", "data", "problem"),
    [
        (".index", index((1, 0), (2, 100)), None),
        (".index", index((1, 0), (1, 100)), "entry 1 .1, 100. does not follow .1, 0."),
        (".index", index((1, 100), (2, 50)), "entry 1"),
        (".index", index((1, 0)) + b"abc", "11 bytes are not whole entries of 8: 3 too many"),
        (".index", index((-1, 0)), "before the segment's base offset"),
        (".timeindex", time_index((5, 1), (5, 2)), None),
        (".timeindex", time_index((5, 1), (4, 2)), "entry 1"),
        (".timeindex", time_index((5, 1)) + b"a", "13 bytes"),
    ],
)
def test_sanity(tmp_path, suffix, data, problem):
    problems = list(offline.check_sanity(write(tmp_path, data, suffix)))
    if problem is None:
        assert problems == []
    else:
        assert re.search(problem, problems[0])


def test_index_against_its_log(tmp_path):
    write(tmp_path, LOG)
    path = write(tmp_path, index((1, 0), (2, FIRST), (9, SECOND), (3, SECOND + 1)), ".index")
    assert list(offline.check_index(path)) == [
        f"entry 2: index offset 9, log offset 3, at position {SECOND}",
        f"entry 3: no batch begins at its position {SECOND + 1}",
    ]
    path = write(tmp_path, time_index((BASE_TIMESTAMP, 1), (BASE_TIMESTAMP + 1, 3), (BASE_TIMESTAMP, 4)), ".timeindex")
    assert list(offline.check_index(path)) == [
        f"entry 1: index timestamp {BASE_TIMESTAMP + 1}, log timestamp {BASE_TIMESTAMP}, at offset 3",
        "entry 2: no batch holds its offset 4",
    ]


def test_index_without_its_log(tmp_path):
    (problem,) = offline.check_index(write(tmp_path, index((1, 0)), ".index"))
    assert "there is no" in problem


def test_name_that_is_no_offset(tmp_path):
    with pytest.raises(ValueError, match="20 digits"):
        offline.base_offset_of(str(tmp_path / "5.log"))
