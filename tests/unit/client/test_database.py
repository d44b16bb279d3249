import pytest

from logdb.model import RecordMetadata
from support.places import opened


@pytest.fixture
def db(place, tmp_path):
    with opened(place, tmp_path / "db") as database:
        database.create_topic("t", partitions=3)
        yield database


def test_append_says_where(db):
    metadata = db.append("t", b"v", b"k", headers=[("h", b"1")], timestamp_ms=5)
    assert metadata == RecordMetadata("t", metadata.partition, 0, 5)
    record = next(db.log("t", metadata.partition).read(0))
    assert (record.value, record.key, record.headers, record.timestamp_ms) == (b"v", b"k", (("h", b"1"),), 5)
    assert db.append("t", b"v", b"k").timestamp_ms == -1


def test_append_many_answers_in_the_order_given(db):
    keys = [b"k%d" % (number % 10) for number in range(100)]
    values = [b"%d" % number for number in range(100)]
    placed = db.append_many("t", iter(values), iter(keys), timestamps_ms=range(100), headers=[[("n", value)] for value in values])
    assert len(placed) == 100
    for number, metadata in enumerate(placed):
        record = next(db.log("t", metadata.partition).read(metadata.offset))
        assert (record.value, record.key, record.timestamp_ms) == (values[number], keys[number], number)
        assert record.headers == (("n", values[number]),)
    assert db.append_many("t", []) == []


@pytest.mark.local
def test_what_it_says_of_itself(db, tmp_path):
    assert (db.path, db.mode, db.reports) == (str(tmp_path / "db"), "a", ())
    assert repr(db) == f"<Database {tmp_path}/db mode=a>"
    assert db.verify().ok
    info = db.describe_topic("t")
    assert (info.name, info.partition_count, len(info.partitions), info.internal) == ("t", 3, 3, False)
    assert [topic.name for topic in db.topics()] == ["t"]


def test_verify_beside_the_writer(db):
    db.append_many("t", [b"x"] * 1000)
    db.append("t", b"waits")
    assert db.verify().ok
    db.flush()
    assert db.verify().ok
