import os

import pytest

import logdb
from support.iceberg import location, logged, rows, table

pytest.importorskip("pyiceberg")

RAW = {"segment.bytes": 2_000, "logdb.iceberg.mode": "key_value"}


def fill(db, topic="t", partition=0, count=60, first=0):
    numbers = range(first, first + count)
    db.log(topic, partition).append_many(
        [None if n % 11 == 0 else b"value %d" % n * (n % 5) for n in numbers],
        [None if n % 3 == 0 else b"key %d" % (n % 7) for n in numbers],
        headers=[[("a", b"1"), ("b", None)][: n % 3] for n in numbers],
        timestamps_ms=[1_700_000_000_000 - n for n in numbers],
    )


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db", batch_size=300) as db:
        yield db


def test_a_table_has_the_records_of_the_log(db):
    db.create_topic("t", partitions=2, config=RAW)
    fill(db, count=60)
    fill(db, partition=1, count=20)
    made = db.update_iceberg("t")
    read = rows(table(db).scan().to_arrow())
    assert read == logged(db) and len(read) == 80 == made.record_count
    assert made.end_offsets == {0: 60, 1: 20} and made.added == made.file_count > 2
    assert made.metadata_location == "file://" + location(db)
    fill(db, first=60)
    assert rows(table(db).scan().to_arrow()) == read
    again = db.update_iceberg("t")
    assert rows(table(db).scan().to_arrow()) == logged(db) and again.removed == 0 and again.end_offsets == {0: 120, 1: 20}
    assert db.update_iceberg("t")._replace(added=again.added) == again._replace(metadata_location=again.metadata_location)


def test_a_data_file_takes_no_space(db):
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    data = os.path.join(db.path, "iceberg", "t", "data")
    assert {os.stat(os.path.join(data, name)).st_nlink for name in os.listdir(data)} == {2}


def test_conditions_leave_files_out(db):
    db.create_topic("t", partitions=2, config=RAW)
    fill(db)
    fill(db, partition=1)
    db.update_iceberg("t")
    found = table(db).scan(row_filter="partition = 1 and offset >= 50")
    assert len(list(found.plan_files())) == 1 and rows(found.to_arrow()).keys() == {(1, n) for n in range(50, 60)}
    late = table(db).scan(row_filter="timestamp >= '2023-11-14T22:13:19.995+00:00'")
    assert len(list(late.plan_files())) == 2 and len(rows(late.to_arrow())) == 12
