import os

import pytest

from logdb.errors import CorruptionError, DiskFull
from logdb.segment.segment import Segment
from support.batches import BASE_TIMESTAMP, encode_batch, encode_log
from support.faulty_io import FaultyIO


@pytest.fixture
def io():
    return FaultyIO()


@pytest.fixture
def segment(io, tmp_path):
    made = Segment(io, str(tmp_path), 100, writable=True, index_interval_bytes=200)
    made.create(5)
    for at in range(100, 200, 10):
        made.append(memoryview(encode_log([[b"x" * 50] * 5, [b"y" * 50] * 5], base_offset=at)), at + 10)
    return made


def test_it_grows(segment, tmp_path):
    assert (segment.base_offset, segment.next_offset) == (100, 200)
    assert segment.size_bytes == (tmp_path / "00000000000000000100.log").stat().st_size
    assert "active [100, 200)" in repr(segment)
    assert segment.new


def test_locate_leads_to_the_batch_or_before_it(segment):
    for offset in range(100, 200):
        place = segment.locate(offset)
        assert 0 <= place.position < segment.size_bytes
        assert place.last_offset is None or place.last_offset < offset
        assert place.size_bytes > 61


def test_sealed_it_reads_its_indexes(segment, io, tmp_path):
    places = [segment.locate(offset) for offset in range(100, 200)]
    crc = segment.seal()
    assert segment.scanner is None
    assert "sealed" in repr(segment)
    assert [segment.locate(offset).position for offset in range(100, 200)] == [place.position for place in places]
    assert segment.seal() == crc == segment.checksum()
    for name in ("index", "timeindex"):
        assert (tmp_path / f"00000000000000000100.{name}").stat().st_size > 0


def test_sealing_is_tried_again(segment, io, tmp_path):
    io.fail("create", 28, ".timeindex")
    with pytest.raises(DiskFull, match="timeindex"):
        segment.seal()
    io.heal()
    crc = segment.seal()
    again = Segment(io, str(tmp_path), 100, writable=False, index_interval_bytes=200)
    again.size_bytes, again.next_offset = segment.size_bytes, segment.next_offset
    index, time_index = again.rebuild_indexes()
    assert (tmp_path / "00000000000000000100.index").read_bytes() == index
    assert (tmp_path / "00000000000000000100.timeindex").read_bytes() == time_index
    assert again.checksum() == crc


@pytest.mark.parametrize("saved", [True, False])
def test_resume(segment, io, tmp_path, saved):
    if saved:
        segment.save_indexes()
    again = Segment(io, str(tmp_path), 100, writable=True, index_interval_bytes=200)
    again.resume(segment.size_bytes, 200)
    assert (again.size_bytes, again.next_offset, again.max_timestamp) == (segment.size_bytes, 200, segment.max_timestamp)
    assert again.scanner.index == segment.scanner.index
    again.append(memoryview(encode_log([[b"z"]], base_offset=200)), 201)
    assert again.next_offset == 201


INDEXES = ("00000000000000000100.index", "00000000000000000100.timeindex")


def grow(segment, count=10):
    """So many calls, each of two batches and of entries of its own in both indexes."""
    for at in range(segment.next_offset, segment.next_offset + 10 * count, 10):
        batches = (encode_batch([b"x" * 50] * 5, base_offset=offset, base_timestamp=BASE_TIMESTAMP + offset) for offset in (at, at + 5))
        segment.append(memoryview(b"".join(batches)), at + 10)


def resumed(segment, io):
    """The segment as the next opening has it."""
    again = Segment(io, os.path.dirname(segment.path), 100, writable=True, index_interval_bytes=200)
    again.size_bytes = segment.size_bytes
    again.resume(segment.size_bytes, segment.next_offset)
    assert again.saved_bytes != (0, 0)
    return again


def sync_count(io):
    return sum(io.count("fdatasync", name) for name in INDEXES)


def check_indexes(segment, tmp_path):
    """The files hold what an opening would make of the log."""
    again = Segment(FaultyIO(), os.path.dirname(segment.path), 100, writable=False, index_interval_bytes=200)
    again.size_bytes, again.next_offset = segment.size_bytes, segment.next_offset
    assert [(tmp_path / name).read_bytes() for name in INDEXES] == [bytes(data) for data in again.rebuild_indexes()]


def test_a_save_writes_only_what_came_since_the_last_one(segment, io, tmp_path):
    grow(segment, 300)
    segment.save_indexes()
    before = dict(io.written_bytes)
    assert all(before[name] > 2_000 for name in INDEXES)
    grow(segment, 1)
    segment.save_indexes()
    assert [0 < io.written_bytes[name] - before[name] <= 48 for name in INDEXES] == [True, True]
    synced, before = sync_count(io), dict(io.written_bytes)
    segment.save_indexes()
    assert (sync_count(io), io.written_bytes) == (synced, before), "nothing came"
    grow(segment, 1)
    segment.seal()
    assert [0 < io.written_bytes[name] - before[name] <= 48 for name in INDEXES] == [True, True]
    check_indexes(segment, tmp_path)


def test_an_opening_goes_on_behind_what_was_saved(segment, io, tmp_path):
    grow(segment, 300)
    segment.save_indexes()
    again = resumed(segment, io)
    before = dict(io.written_bytes)
    grow(again, 1)
    again.seal()
    assert all(io.written_bytes[name] - before[name] <= 60 for name in INDEXES)
    check_indexes(again, tmp_path)


@pytest.mark.parametrize("died", [False, True])
def test_what_was_only_noted_is_synced_by_the_next_save(segment, io, tmp_path, died):
    segment.save_indexes()
    grow(segment)
    segment.note_indexes()
    if died:  # by a process that came after the one that noted it
        segment = resumed(segment, io)
    for name in INDEXES:
        assert (tmp_path / name).stat().st_size == len(segment.scanner.index if name == INDEXES[0] else segment.scanner.time_index)
    before = sync_count(io)
    segment.save_indexes()
    assert sync_count(io) == before + 2, "no entry came since, but none is durable"
    segment.seal()
    check_indexes(segment, tmp_path)


@pytest.mark.parametrize("name", ["0100.index", "0100.timeindex"])
@pytest.mark.parametrize("noted", [False, True])
def test_a_short_write_leaves_nothing_behind(segment, io, tmp_path, name, noted):
    segment.save_indexes()
    grow(segment)
    io.room = 13 if name.endswith("timeindex") else len(segment.scanner.time_index) - segment.saved_bytes[1] + 13
    if noted:
        segment.note_indexes()
    else:
        with pytest.raises(DiskFull, match=name):
            segment.save_indexes()
    io.heal()
    grow(segment)
    segment.save_indexes()
    segment.seal()
    check_indexes(segment, tmp_path)


def test_index_files_that_an_earlier_log_left_behind_are_cut(io, tmp_path):
    for name in INDEXES:
        (tmp_path / name).write_bytes(b"\xff" * 10_000)
    made = Segment(io, str(tmp_path), 100, writable=True, index_interval_bytes=200)
    made.create(5)
    grow(made)
    made.save_indexes()
    made.seal()
    check_indexes(made, tmp_path)


def test_index_files_that_were_removed_are_written_anew(segment, tmp_path):
    grow(segment)
    segment.save_indexes()
    for name in INDEXES:
        (tmp_path / name).unlink()
    grow(segment)
    segment.save_indexes()
    segment.seal()
    check_indexes(segment, tmp_path)


def test_resume_at_a_wrong_place(segment, io, tmp_path):
    again = Segment(io, str(tmp_path), 100, writable=True)
    with pytest.raises(CorruptionError, match="expected offset 199") as caught:
        again.resume(segment.size_bytes, 199)
    assert caught.value.path == segment.path


def test_a_reader_that_searches_does_not_stop_the_writer(segment):
    with memoryview(segment.scanner.index), memoryview(segment.scanner.time_index):
        for at in range(200, 300, 10):
            segment.append(memoryview(encode_log([[b"x" * 50] * 10], base_offset=at)), at + 10)
    assert segment.next_offset == 300
    assert segment.locate(299).position > segment.locate(199).position


def test_remove(segment, tmp_path):
    segment.seal()
    segment.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_an_entry_that_a_power_cut_has_zeroed_is_not_taken_for_the_first_batch(io, tmp_path, kept):
    """The first batch has one record: a zeroed entry says what is true of it."""
    segment = Segment(io, str(tmp_path), 100, writable=True, index_interval_bytes=200)
    segment.create(0)
    segment.append(memoryview(encode_batch([b"x" * 50], base_offset=100)), 101)
    at = 101
    for _ in range(8):
        segment.append(memoryview(encode_batch([b"x" * 50] * 5, base_offset=at)), at + 5)
        at += 5
    segment.save_indexes()
    with open(tmp_path / INDEXES[0], "r+b") as file:
        file.seek(8 * kept)
        file.write(bytes(8))
        file.truncate()
    again = Segment(io, str(tmp_path), 100, writable=True, index_interval_bytes=200)
    again.size_bytes = segment.size_bytes
    again.resume(segment.size_bytes, segment.next_offset)
    assert again.scanner.index == segment.scanner.index
