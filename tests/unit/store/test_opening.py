import os

import pytest

import logdb
from logdb.errors import CatalogueDamaged
from logdb.io import IO


def test_a_new_directory_is_durable_in_those_that_hold_it(tmp_path):
    class Noted(IO):
        def __init__(self) -> None:
            self.calls: list[tuple[str, str]] = []

        def mkdir(self, path: str, **how: bool) -> None:
            self.calls.append(("mkdir", path))
            super().mkdir(path, **how)

        def fsync_dir(self, path: str) -> None:
            self.calls.append(("fsync_dir", path))
            super().fsync_dir(path)

    io, outer, inner = Noted(), tmp_path / "a", tmp_path / "a" / "b"
    with logdb.open(inner, io=io):
        pass
    assert io.calls[:4] == [("mkdir", str(outer)), ("fsync_dir", str(tmp_path)), ("mkdir", str(inner)), ("fsync_dir", str(outer))]


def test_a_lost_catalogue_is_named_and_nothing_is_touched(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"])
    before = (tmp_path / "db/t-0/00000000000000000000.log").read_bytes()
    os.unlink(tmp_path / "db/catalogue/data.mdb")
    with pytest.raises(CatalogueDamaged, match=r"data.mdb is missing; run: logdb repair"):
        logdb.open(tmp_path / "db")
    assert (tmp_path / "db/t-0/00000000000000000000.log").read_bytes() == before
