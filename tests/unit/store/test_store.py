import pytest

import logdb
from logdb.errors import Closed
from logdb.store.housekeeping import Housekeeping
from support.faulty_io import FaultyIO, concerns


def test_one_log_object_for_each_partition(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=2)
        assert db.log("t", 1) is db.log("t", 1)
        assert db.log("t", 0) is not db.log("t", 1)


def test_a_clean_close_leaves_nothing_to_do(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", config={"segment.bytes": 1024})
        db.log("t").append_many([b"x" * 200] * 20)
    with logdb.open(tmp_path / "db", io=io) as db:
        assert db.log("t").end_offset == 20
        assert [path for kind, path in io.calls if kind == "pwrite" and concerns("t-0", path)] == []
        assert db.reports == ()


def test_who_appends_while_the_database_is_being_closed_is_told_so(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io) as db:
        db.create_topic("t")
        log, told = db.log("t"), []
        log.append(b"x")

        def append(kind, path):
            if kind == "fdatasync" and not concerns("t-0", path) and not told:
                with pytest.raises(Closed) as refused:
                    log.append(b"y", durability="os")
                told.append(str(refused.value))

        io.before = append
    assert told == [f"the database {tmp_path / 'db'} is closed"]


def test_a_close_takes_no_records_before_it_waits_for_the_threads(tmp_path, monkeypatch):
    """With 24 threads that appended, there was always one more segment to seal, and the close did not end."""
    told, stop = [], Housekeeping.stop
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log = db.log("t")

        def stopped(self):
            with pytest.raises(Closed, match="is closed"):
                log.append_many([b"x"])
            told.append(self)
            return stop(self)

        monkeypatch.setattr(Housekeeping, "stop", stopped)
    assert told


def test_a_topic_that_is_deleted_meanwhile_keeps_no_other_from_being_flushed(tmp_path):
    io = FaultyIO()
    with logdb.open(tmp_path / "db", io=io) as db:
        for topic in ("a", "b", "c"):
            db.create_topic(topic)
            db.log(topic).append(b"x")

        def delete_b(kind, path):
            if kind == "fdatasync" and concerns("a-0", path):
                io.before = lambda kind, path: None
                db.delete_topic("b")

        io.before = delete_b
        db.flush()
        assert [db.log(topic).flushed_offset for topic in ("a", "c")] == [1, 1]
        assert [info.name for info in db.topics()] == ["a", "c"]
