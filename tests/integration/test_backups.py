"""Backups and increments onto them, of a directory and through a server."""

import os

import pytest

import logdb
from logdb.errors import BackupDamaged, BackupMismatch, ReadFailed, TargetNotEmpty
from support.places import opened

UNCHANGED_SIZE_BYTES_MAX = 64 << 10


@pytest.fixture
def db(place, tmp_path):
    """A database with a topic of many sealed segments, and what groups and transactions leave behind."""
    with opened(place, tmp_path / "db") as db:
        db.create_topic("t", partitions=2, config={"segment.bytes": 65_536})
        fill(db)
        with db.transaction("tx") as transaction:
            transaction.send("t", b"transactional", partition=1)
        with db.consumer(group_id="g") as consumer:
            consumer.assign([("t", 0)])
            consumer.commit({("t", 0): 7})
        db.flush()
        yield db


def fill(db, count=3_000):
    db.log("t", 0).append_many([os.urandom(1_000) for _ in range(count)])


def contents(db):
    return [[(record.offset, record.value) for record in db.log("t", partition).read(0)] for partition in range(2)]


def restored(tmp_path, *files):
    target = tmp_path / "-".join(("restored", *files))
    logdb.restore([tmp_path / file for file in files], target)
    return logdb.open(target)


def test_a_chain_is_restored_at_each_of_its_ends(db, tmp_path):
    first = contents(db)
    full = db.backup(tmp_path / "full")
    fill(db, 100)
    second = contents(db)
    middle = db.backup(tmp_path / "middle", base=tmp_path / "full")
    db.create_topic("later")
    db.log("later").append(b"x")
    db.flush()
    last = db.backup(tmp_path / "last", base=tmp_path / "middle")
    for files, wanted in ((["full"], first), (["full", "middle"], second), (["last", "full", "middle"], second)):
        with restored(tmp_path, *files) as again:
            assert contents(again) == wanted
            assert again.group_offsets("g")[0].committed.offset == 7
            assert again.verify().ok
    assert full.written_bytes > 3_000_000
    assert 100_000 < middle.written_bytes < 600_000
    assert last.written_bytes < UNCHANGED_SIZE_BYTES_MAX
    assert [os.path.getsize(one.path) for one in (full, middle, last)] == [one.written_bytes for one in (full, middle, last)]


def test_an_increment_of_what_has_not_changed_is_small(db, tmp_path, record_property):
    db.backup(tmp_path / "full")
    increment = db.backup(tmp_path / "increment", base=tmp_path / "full")
    assert increment.written_bytes < UNCHANGED_SIZE_BYTES_MAX
    assert increment.size_bytes > 3_000_000
    told = f"an increment of {increment.size_bytes} bytes that have not changed: {increment.written_bytes} bytes"
    record_property("told", told)
    with restored(tmp_path, "full", "increment") as again:
        assert contents(again) == contents(db)


def test_a_base_that_does_not_fit(db, tmp_path):
    with logdb.open(tmp_path / "other") as other:
        other.create_topic("t")
        other.backup(tmp_path / "stranger")
    (tmp_path / "junk").write_bytes(b"junk" * 100)
    db.backup(tmp_path / "full")
    for base, error in (("stranger", BackupMismatch), ("junk", BackupDamaged), ("nothing", ReadFailed)):
        with pytest.raises(error, match=str(tmp_path / base)):
            db.backup(tmp_path / "increment", base=tmp_path / base)
    with pytest.raises(TargetNotEmpty):
        db.backup(tmp_path / "full", base=tmp_path / "full")
    assert not [name for name in os.listdir(tmp_path) if name.startswith("increment")]
    assert not [name for name in os.listdir(tmp_path / "db") if name.endswith(".tmp")]
