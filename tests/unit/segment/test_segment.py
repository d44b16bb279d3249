import pytest

from logdb.errors import CorruptionError, DiskFull
from logdb.segment.segment import Segment
from support.batches import encode_log
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
