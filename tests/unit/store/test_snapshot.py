import os

import pytest

import logdb
from logdb.errors import ReadOnly, TargetNotEmpty
from support import damage

CONFIG = {"segment.bytes": 2048, "index.interval.bytes": 200}


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as opened:
        opened.create_topic("t", partitions=2, config=CONFIG)
        opened.create_topic("empty")
        fill(opened, 0, 200)
        yield opened


def fill(db, first, stop):
    for partition in (0, 1):
        db.log("t", partition).append_many([b"value %d " % row * 9 for row in range(first, stop)], timestamps_ms=range(first, stop))


def test_holds_what_was_appended_before_and_nothing_later(db, tmp_path):
    db.log("t").append(b"not flushed")
    db.snapshot(tmp_path / "snapshot")
    fill(db, 200, 300)
    content = damage.content(tmp_path / "snapshot")
    assert [len(rows) for rows in content.values()] == [0, 201, 200]
    assert content["t", 0][-1][3] == b"not flushed"
    report = logdb.verify(tmp_path / "snapshot")
    assert report.ok, report.problems
    assert not report.notes


def test_opens_for_reading_only(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    before = damage.snapshot(tmp_path / "snapshot")
    with pytest.raises(ReadOnly, match="restore"):
        logdb.open(tmp_path / "snapshot")
    with pytest.raises(ReadOnly, match="restore"):
        logdb.repair(tmp_path / "snapshot", execute=True)
    assert damage.snapshot(tmp_path / "snapshot") == before
    assert not os.path.exists(tmp_path / "snapshot" / "catalogue" / "lock.mdb")


def test_sealed_segments_are_linked(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    *sealed, active = damage.logs(tmp_path / "snapshot", 0)
    assert sealed
    for path in sealed:
        for suffix in (".log", ".index", ".timeindex"):
            assert os.path.samefile(path.with_suffix(suffix), tmp_path / "db" / "t-0" / (path.stem + suffix))
    assert os.stat(active).st_nlink == 1


def test_target_that_is_not_empty(db, tmp_path):
    db.snapshot(tmp_path / "snapshot")
    before = damage.snapshot(tmp_path / "snapshot")
    with pytest.raises(TargetNotEmpty):
        db.snapshot(tmp_path / "snapshot")
    assert damage.snapshot(tmp_path / "snapshot") == before
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(TargetNotEmpty):
        db.snapshot(tmp_path / "file")
    (tmp_path / "there").mkdir()
    db.snapshot(tmp_path / "there")
    assert logdb.verify(tmp_path / "there").ok
