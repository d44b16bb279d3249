import os

import pytest

import logdb
from logdb.errors import CatalogueDamaged, WriteFailed
from logdb.io import IO
from support.faulty_io import FaultyIO
from support.power_cut import die


@pytest.fixture
def io():
    return FaultyIO()


def test_a_new_directory_is_durable_in_those_that_hold_it(tmp_path):
    class Noted(IO):
        def __init__(self) -> None:
            self.calls: list[tuple[str, str]] = []

        def mkdir(self, path: str) -> None:
            self.calls.append(("mkdir", path))
            super().mkdir(path)

        def fsync_dir(self, path: str) -> None:
            self.calls.append(("fsync_dir", path))
            super().fsync_dir(path)

    io, outer, inner = Noted(), tmp_path / "a", tmp_path / "a" / "b"
    with logdb.open(inner, io=io):
        pass
    assert io.calls[:4] == [("mkdir", str(outer)), ("fsync_dir", str(tmp_path)), ("mkdir", str(inner)), ("fsync_dir", str(outer))]


def test_one_log_object_for_each_partition(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        assert db.log("t", 1) is db.log("t", 1)
        assert db.log("t", 0) is not db.log("t", 1)


def test_creation_that_was_cut_off_after_its_commit_is_finished(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io)
    io.fail("rename")
    with pytest.raises(WriteFailed):
        db.create_topic("t", partitions=2)
    die(db)
    with logdb.open(tmp_path / "db") as db:
        assert db.describe_topic("t").partition_count == 2
        assert db.log("t", 1).append(b"x") == 0
    assert logdb.verify(tmp_path / "db").ok


def test_deletion_that_was_cut_off_is_finished(tmp_path, io):
    db = logdb.open(tmp_path / "db", io=io)
    db.create_topic("t", partitions=2)
    db.log("t").append_many([b"x"])
    io.fail("unlink")
    with pytest.raises(WriteFailed):
        db.delete_topic("t")
    die(db)
    with logdb.open(tmp_path / "db") as db:
        assert db.topics() == []
        assert sorted(os.listdir(tmp_path / "db")) == ["LOCK", "catalogue"]


def test_a_lost_catalogue_is_named_and_nothing_is_touched(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"])
    before = (tmp_path / "db/t-0/00000000000000000000.log").read_bytes()
    os.unlink(tmp_path / "db/catalogue/data.mdb")
    with pytest.raises(CatalogueDamaged, match=r"data.mdb is missing; run: logdb repair"):
        logdb.open(tmp_path / "db")
    assert (tmp_path / "db/t-0/00000000000000000000.log").read_bytes() == before


def test_a_clean_close_leaves_nothing_to_do(tmp_path, io):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 1024})
        db.log("t").append_many([b"x" * 200] * 20)
    with logdb.open(tmp_path / "db", io=io) as db:
        assert db.log("t").end_offset == 20
        assert [path for kind, path in io.calls if kind == "pwrite" and "t-0" in path] == []
        assert db.reports == ()


def test_logs_nobody_asks_for_are_recovered_in_the_background(tmp_path):
    db = logdb.open(tmp_path / "db")
    db.create_topic("t", partitions=5)
    for partition in range(5):
        db.log("t", partition).append_many([b"x"])
    die(db)
    with logdb.open(tmp_path / "db") as db:
        db._store._recovery.join(60)
        assert len(db._store._logs) == 5
    with logdb.open(tmp_path / "db") as db:
        assert [db.log("t", partition).leader_epoch for partition in range(5)] == [1] * 5


def test_internal_topics_are_hidden(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("__consumer_offsets")
        assert db.topics() == []
        assert [topic.internal for topic in db.topics(internal=True)] == [True]


def test_partitions_grow(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"flush.ms": 7})
        assert db.alter_topic("t", partitions=4, config={"flush.ms": "9"}).partition_count == 4
    with logdb.open(tmp_path / "db") as db:
        info = db.describe_topic("t")
        assert (len(info.partitions), info.config) == (4, {"flush.ms": 9})
        assert [part.partition for part in info.partitions] == [0, 1, 2, 3]
