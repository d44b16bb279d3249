"""What a task reads, and what becomes of offsets, topics and bytes that were deleted."""

import pytest

import logdb
from logdb.codec import arrow
from logdb.errors import CorruptionError
from logdb.segment import files
from logdb_spark_source.columns import NAMES
from logdb_spark_source.location import Location
from logdb_spark_source.loss import DataLoss
from logdb_spark_source.planning import Range, Task
from logdb_spark_source.reading import TaskReader
from support.damage import flip

SMALL = {"segment.bytes": 1024}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


def filled(path, count=60, *, close=True):
    """A topic of several segments; value and offset agree."""
    db = logdb.open(path)
    db.create_topic("t", config=SMALL)
    for at in range(0, count, 5):
        db.log("t").append_many([b"%04d" % (at + one) + b"x" * 20 for one in range(5)])
        db.flush()
    return db


def reader(path, **options):
    given = {"columns": ("offset", "value"), "isolation_level": "read_uncommitted", "fail_on_data_loss": True}
    return TaskReader(place=Location(path=str(path)), **given | options)


def offsets(batches):
    found = []
    for batch in batches:
        assert [int(value[:4]) for value in batch.column("value").to_pylist()] == batch.column("offset").to_pylist()
        found += batch.column("offset").to_pylist()
    return found


def range_of(db, start, end, topic="t"):
    return Range(topic, db.describe_topic(topic).topic_id, 0, start, end)


def test_ranges_are_read_one_after_the_other(path):
    with filled(path) as db:
        assert offsets(reader(path).read(Task([range_of(db, 7, 23), range_of(db, 41, 42)]))) == [*range(7, 23), 41]
        assert list(reader(path).read(Task(()))) == []
        (batch,) = reader(path, columns=("topic", "partition")).read(Task([range_of(db, 0, 3)]))
        assert batch.to_pylist() == [{"topic": "t", "partition": 0}] * 3
        first = next(reader(path, columns=NAMES).read(Task([range_of(db, 0, 3)])))
        assert first.schema.names == list(NAMES)


def test_records_appended_later_are_not_part_of_a_range_and_of_a_later_one_are(path):
    with filled(path) as db:
        task = Task([range_of(db, 50, 60)])
        db.log("t").append_many([b"%04d" % at for at in range(60, 70)])
        db.flush()
        assert offsets(reader(path).read(task)) == list(range(50, 60))
        assert offsets(reader(path).read(Task([range_of(db, 55, 70)]))) == list(range(55, 70))


def test_offsets_that_retention_removed_are_a_loss(path):
    with filled(path) as db:
        task = Task([range_of(db, 0, 60)])
        db.delete_records("t", 0, 30)
        with pytest.raises(DataLoss, match=r"offsets \[0, 30\) of t-0 were deleted.*failOnDataLoss=false"):
            list(reader(path).read(task))
        assert offsets(reader(path, fail_on_data_loss=False).read(task)) == list(range(30, 60))


def test_records_that_were_deleted_are_not_read_though_they_lie_there_still(path):
    """A worker has the log open from earlier tasks, and the segment stays until all of it is deleted."""
    with filled(path, 10) as db:
        task = Task([range_of(db, 2, 10)])
        assert offsets(reader(path).read(task)) == list(range(2, 10))
        db.delete_records("t", 0, 5)
        with pytest.raises(DataLoss, match=r"offsets \[2, 5\) of t-0"):
            list(reader(path).read(task))
        assert offsets(reader(path, fail_on_data_loss=False).read(task)) == list(range(5, 10))


def test_offsets_that_go_while_they_are_read_are_a_loss(path, monkeypatch):
    """Files that a reader has open are there for it still; two of the ten are, here."""
    monkeypatch.setattr(files, "FILES", files.FileCache(2))
    monkeypatch.setattr(arrow, "_ROWS", 1)  # a batch for each chunk, so that most are not read yet
    with filled(path, 200) as db:
        task = Task([range_of(db, 0, 200)])
        readers = [reader(path, fail_on_data_loss=fail) for fail in (True, False)]
        strict, lenient = (one._read(one.place.open(), task.ranges[0]) for one in readers)  # before small batches are joined
        first = [offsets([next(strict)]), offsets([next(lenient)])]
        db.delete_records("t", 0, 150)
        gone = 1 + first[0][-1]
        with pytest.raises(DataLoss, match=rf"offsets \[{gone}, 150\) of t-0 were deleted"):
            list(strict)
        assert first[1] + offsets(lenient) == [*range(gone), *range(150, 200)]


def test_a_log_that_ends_too_early_is_a_loss(path):
    with filled(path) as db:
        task = Task([range_of(db, 50, 90)])
        with pytest.raises(DataLoss, match="t-0 ends at offset 60, but ended at 90 or later before"):
            list(reader(path).read(task))
        assert offsets(reader(path, fail_on_data_loss=False).read(task)) == list(range(50, 60))


def test_a_topic_that_was_deleted_or_made_anew_is_a_loss(path):
    with filled(path) as db:
        task = Task([range_of(db, 0, 10)])
        db.delete_topic("t")
        with pytest.raises(DataLoss, match="topic 't' was deleted since"):
            list(reader(path).read(task))
        db.create_topic("t")
        db.log("t").append_many([b"0000"] * 20)
        db.flush()
        with pytest.raises(DataLoss, match="topic 't' was deleted and created again since"):
            list(reader(path).read(task))
        assert list(reader(path, fail_on_data_loss=False).read(task)) == []


@pytest.mark.parametrize("fail", [True, False])
def test_damage_is_never_skipped(path, fail):
    with filled(path) as db:
        task = Task([range_of(db, 0, 60)])
    segment = sorted((path / "t-0").glob("*.log"))[1]
    flip(segment, 100)
    read = []
    with pytest.raises(CorruptionError) as caught:
        for batch in reader(path, fail_on_data_loss=fail).read(task):
            read += offsets([batch])
    assert caught.value.path == str(segment)
    assert read == list(range(len(read))) and len(read) <= int(segment.name[:20])


def test_aborted_records_are_left_out_if_only_committed_ones_are_wanted(path):
    with filled(path, 5) as db:
        for at, end in [(5, "abort"), (7, "commit")]:
            with db.producer(transactional_id="x") as producer:
                producer.begin_transaction()
                producer.send("t", b"%04d" % at).result()
                (producer.abort_transaction if end == "abort" else producer.commit_transaction)()
        task = Task([range_of(db, 0, 9)])
        assert offsets(reader(path).read(task)) == [0, 1, 2, 3, 4, 5, 7]
        assert offsets(reader(path, isolation_level="read_committed").read(task)) == [0, 1, 2, 3, 4, 7]
