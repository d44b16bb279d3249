import pytest

from logdb.errors import Closed
from logdb.log import recovery_point
from logdb.log.recovery_point import MOVE_SIZE_BYTES, NOWHERE, SLOT_SIZE, Point, RecoveryPointFile
from logdb.segment import files
from logdb.segment.files import FileCache, FileHolder
from support.faulty_io import FaultyIO


@pytest.fixture
def io():
    return FaultyIO()


def opened(io, tmp_path):
    return RecoveryPointFile(io, str(tmp_path), writable=True)


def test_the_newest_counts(io, tmp_path):
    assert opened(io, tmp_path).point == NOWHERE
    for number in range(1, 5):
        opened(io, tmp_path).note(point=Point(0, number, 100 * number))
        assert opened(io, tmp_path).point == Point(0, number, 100 * number)
    assert (tmp_path / recovery_point.FILE_NAME).stat().st_size == 2 * SLOT_SIZE
    assert io.count("fdatasync") == 0


def test_a_torn_slot_leaves_the_other(io, tmp_path):
    file = opened(io, tmp_path)
    file.note(point=Point(0, 1, 100))
    file.note(point=Point(0, 2, 200))
    path = tmp_path / recovery_point.FILE_NAME
    whole = path.read_bytes()
    for at in range(SLOT_SIZE):  # the second one written is the first slot
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert opened(io, tmp_path).point == Point(0, 1, 100), at
    opened(io, tmp_path).repair()
    assert path.read_bytes() == bytes(SLOT_SIZE) + whole[SLOT_SIZE:]


def test_where_it_cannot_be_noted_the_work_goes_on(io, tmp_path, caplog):
    file = opened(io, tmp_path)
    io.fill_up()
    file.note(point=Point(0, 1, 100))
    assert file.point == Point(0, 1, 100)
    assert "recovery-point" in caplog.text
    io.heal()
    file.note(point=Point(0, 2, 200))
    assert opened(io, tmp_path).point == Point(0, 2, 200)


def test_a_small_move_is_not_noted(io, tmp_path):
    file, first = opened(io, tmp_path), Point(0, 1, 10)
    file.move(first)
    assert opened(io, tmp_path).point == first, "the file is there"
    file.move(Point(0, 2, 10 + MOVE_SIZE_BYTES - 1))
    assert io.count("pwrite") == 1
    assert (file.point.offset, opened(io, tmp_path).point) == (2, first)
    file.move(Point(0, 2, 10 + MOVE_SIZE_BYTES))
    assert opened(io, tmp_path).point == Point(0, 2, 10 + MOVE_SIZE_BYTES)
    file.move(Point(3, 3, 10))  # of the next segment
    assert opened(io, tmp_path).point == Point(3, 3, 10)
    file.move(Point(3, 4, 20))
    file.note(written=Point(3, 5, 30))
    assert opened(io, tmp_path).point == Point(3, 4, 20)


def test_in_a_full_cache_it_takes_no_segments_place(io, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FILES", FileCache(1))
    segment = FileHolder(io, str(tmp_path / "log"), writable=True)
    segment.open(create=True)
    file = opened(io, tmp_path)
    for number in range(1, 4):
        file.note(point=Point(0, number, 100 * number))
    assert segment.file is not None
    assert file.file is None
    assert opened(io, tmp_path).point == Point(0, 3, 300)
    file.retire()
    with pytest.raises(Closed):
        file.note(point=Point(0, 4, 400))  # a truncation has put another file in its place
