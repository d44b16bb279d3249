"""broker.json: the processes that a directory knows of."""

import pytest

from logdb.io import IO
from logdb_replication import incarnations
from logdb_replication.controller.commands import FORMER_COUNT_MAX


def test_what_was_saved_is_loaded(tmp_path):
    assert incarnations.load(IO(), str(tmp_path)) == ()
    incarnations.save(IO(), str(tmp_path), ("b", "a"))
    assert incarnations.load(IO(), str(tmp_path)) == ("b", "a")


def test_the_one_that_has_registered_is_kept(tmp_path):
    names = tuple(f"{number:032x}" for number in range(150))
    incarnations.save(IO(), str(tmp_path), names)
    found = incarnations.load(IO(), str(tmp_path))
    assert found == (*names[: FORMER_COUNT_MAX - 1], names[-1])


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format":1,"incarnations":["a"],"crc":"00000000"}\n'], ids=["empty", "bare", "crc"])
def test_a_damaged_file_knows_none(tmp_path, data, caplog):
    (tmp_path / "broker.json").write_bytes(data)
    assert incarnations.load(IO(), str(tmp_path)) == ()
    assert "is corrupt" in caplog.text
