import pytest

from logdb.log import recovery_point
from logdb.log.recovery_point import NOWHERE, SLOT_SIZE, Point, RecoveryPointFile
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
