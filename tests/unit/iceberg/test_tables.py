import os
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logdb
from logdb.errors import CorruptionError, ReadFailed
from logdb.io import IO
from logdb.store.tables import load_updater, table_topic_id
from support.iceberg import location, logged, rows, table
from support.waiting import until

pytest.importorskip("pyiceberg")

RAW = {"segment.bytes": 2_000, "logdb.iceberg.mode": "key_value"}


def fill(db, topic="t", partition=0, count=60, first=0, unkeyed=3):
    numbers = range(first, first + count)
    db.log(topic, partition).append_many(
        [None if n % 11 == 0 else b"value %d" % n * (n % 5) for n in numbers],
        [None if n % 3 == unkeyed - 3 else b"key %d" % (n % 7) for n in numbers],
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


def test_files_of_earlier_versions_have_no_ids(db, monkeypatch):
    from logdb.codec import parquet

    db.create_topic("t", config=RAW)
    fill(db)
    with monkeypatch.context() as earlier:
        earlier.setattr(parquet, "field", lambda name, kind, _, nullable=True: pa.field(name, kind, nullable))
        db.make_parquet("t")
    check(db, db.update_iceberg("t"))
    fill(db, first=60)
    check(db, db.update_iceberg("t"))
    data = os.path.join(db.path, "iceberg", "t", "data")
    ids = {pq.read_schema(os.path.join(data, name)).field("offset").metadata is None for name in files(db, "data")}
    assert ids == {True, False}


def test_conditions_leave_files_out(db):
    db.create_topic("t", partitions=2, config=RAW)
    fill(db)
    fill(db, partition=1)
    db.update_iceberg("t")
    found = table(db).scan(row_filter="partition = 1 and offset >= 50")
    assert len(list(found.plan_files())) == 1 and rows(found.to_arrow()).keys() == {(1, n) for n in range(50, 60)}
    late = table(db).scan(row_filter="timestamp >= '2023-11-14T22:13:19.995+00:00'")
    assert len(list(late.plan_files())) == 2 and len(rows(late.to_arrow())) == 12


def files(db, part):
    return set(os.listdir(os.path.join(db.path, "iceberg", "t", part)))


def check(db, made):
    assert rows(table(db).scan().to_arrow()) == logged(db, ends=made.end_offsets)


def test_compaction_replaces_files_in_one_snapshot(db):
    db.create_topic("t", config=RAW | {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1})
    fill(db, count=200, unkeyed=0)
    before = db.update_iceberg("t")
    old = table(db).scan().to_arrow()
    db.compact("t")
    made = db.update_iceberg("t")
    check(db, made)
    assert made.removed and made.record_count < before.record_count and made.end_offsets[0] >= before.end_offsets[0]
    assert table(db).current_snapshot().summary.operation.value == "overwrite"
    assert table(db).scan(snapshot_id=before.snapshot_id).to_arrow() == old  # its files are still there
    db.delete_records("t", 0, 197)  # inside a compacted segment
    check(db, db.update_iceberg("t"))
    fill(db, first=200, unkeyed=0)
    db.compact("t")
    db.delete_records("t", 0, 230)  # and one that has no Parquet file
    check(db, made := db.update_iceberg("t"))
    assert made.end_offsets == {0: 260} and min(rows(table(db).scan().to_arrow())) >= (0, 230)


def test_files_that_compaction_made_wait_until_all_are_there(db):
    db.create_topic("t", config=RAW | {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1})
    fill(db, count=200, unkeyed=0)
    before, content = db.update_iceberg("t"), rows(table(db).scan().to_arrow())
    db.compact("t")
    made = db._store.writer.tables._update(db._store.catalogue.topic("t"))  # no sidecar of a compacted segment is there
    assert made.snapshot_id == before.snapshot_id and rows(table(db).scan().to_arrow()) == content
    check(db, db.update_iceberg("t"))


def test_deleted_records_leave_the_table(db):
    db.create_topic("t", config=RAW)
    fill(db, count=200)
    db.update_iceberg("t")
    db.delete_records("t", 0, 101)  # inside a segment
    made = db.update_iceberg("t")
    check(db, made)
    assert min(rows(table(db).scan().to_arrow())) == (0, 101) and made.removed > made.added == 1
    db.delete_records("t", 0, 200)
    check(db, db.update_iceberg("t"))
    assert table(db).scan().to_arrow().num_rows == 0
    fill(db, first=200)
    check(db, db.update_iceberg("t"))


def test_transactions(db):
    db.create_topic("t", config=RAW)
    producer, other = db.producer(transactional_id="tx"), db.producer(transactional_id="open")
    for number, end in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        producer.send("t", b"%d" % number)
        getattr(producer, f"{end}_transaction")()
    made = db.update_iceberg("t")
    assert table(db).scan().to_arrow()["value"].to_pylist() == [b"0", b"2"] and made.record_count == 2
    other.begin_transaction()
    other.send("t", b"open")
    other.flush()
    fill(db)
    check(db, again := db.update_iceberg("t"))
    assert again.end_offsets == made.end_offsets
    other.commit_transaction()
    check(db, db.update_iceberg("t"))
    assert table(db).scan().to_arrow().num_rows == 63
    producer.close()
    other.close()


def test_the_directory_stays_bounded(db, monkeypatch):
    from logdb_iceberg import catalogue, tables

    monkeypatch.setattr(tables, "SNAPSHOT_COUNT", 3)
    monkeypatch.setattr(catalogue, "METADATA_COUNT", 4)
    db.create_topic("t", config=RAW)
    for number in range(6):
        fill(db, count=20, first=20 * number)
        db.delete_records("t", 0, 20 * number)
        made = db.update_iceberg("t")
        check(db, made)
    assert len(table(db).metadata.snapshots) == 3
    assert sum(name.endswith(".json") for name in files(db, "metadata")) == 4
    named = {
        os.path.basename(file.file.file_path)
        for one in table(db).metadata.snapshots
        for file in table(db).scan(snapshot_id=one.snapshot_id).plan_files()
    }
    assert files(db, "data") == named
    monkeypatch.setattr(tables, "SNAPSHOT_AGE_MS", -1)
    fill(db)
    check(db, db.update_iceberg("t"))
    assert len(table(db).metadata.snapshots) == 2  # the former current one goes with the next commit


def test_a_topic_that_is_deleted_takes_its_table_with_it(db):
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    first = table(db).metadata.table_uuid
    db.delete_topic("t")
    assert not os.path.exists(os.path.join(db.path, "iceberg", "t"))
    db.create_topic("t", config=RAW)
    fill(db, count=5)
    check(db, db.update_iceberg("t"))
    assert table(db).metadata.table_uuid != first


def test_a_directory_that_was_moved(db, tmp_path):
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    db.snapshot(tmp_path / "copy")
    assert os.path.exists(tmp_path / "copy" / "t-0") and not os.path.exists(tmp_path / "copy" / "iceberg")
    db.close()
    os.rename(tmp_path / "db", tmp_path / "other place")
    with logdb.open(tmp_path / "other place") as moved:
        check(moved, moved.update_iceberg("t"))
        assert table(moved).location() == f"file://{tmp_path}/other place/iceberg/t"
    assert logdb.verify(tmp_path / "other place").ok


def test_damage_is_reported_and_never_a_reason_to_delete(db):
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    with open(location(db), "r+b") as file:
        file.truncate(100)
    with pytest.raises(ValueError, match=r"v\d+\.metadata\.json is damaged .* remove .*/iceberg/t, and the table is made again"):
        db.update_iceberg("t")
    assert os.path.getsize(location(db)) == 100
    with pytest.raises(logdb.errors.PolicyViolation, match=r"u has no table: set its config logdb\.iceberg\.mode"):
        db.create_topic("u")
        db.update_iceberg("u")


def test_a_commit_that_loses_a_race_adds_no_file_twice(db, monkeypatch):
    from logdb_iceberg.catalogue import TableCatalogue

    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    fill(db, first=60)
    commit, tables, topic = TableCatalogue.commit_table, db._store.writer.tables, db._store.catalogue.topic("t")
    arguments = os.path.join(db.path, "iceberg", "t"), "t", topic.topic_id, topic.config

    def second(catalogue, *given):
        monkeypatch.setattr(TableCatalogue, "commit_table", commit)
        load_updater()(*arguments, tables._partitions(topic, raw=True))  # it commits the same files first
        return commit(catalogue, *given)

    monkeypatch.setattr(TableCatalogue, "commit_table", second)
    made = db.update_iceberg("t")
    check(db, made)
    assert made.added == 0 and len(table(db).metadata.snapshots) == 2


def test_in_the_background(db):
    db.create_topic("t", config=RAW)
    fill(db, count=200)
    db.flush()
    db._store.checkpoint([db.log("t")])
    background = db._store.writer.sidecars.background
    sealed = db._store.catalogue.segments("t", 0)[-1].next_offset

    def committed():
        background.hasten("parquet")
        background.hasten("iceberg")
        return os.path.exists(os.path.join(db.path, "iceberg", "t", "metadata", "version-hint.text")) and len(
            rows(table(db).scan().to_arrow())
        )

    until(lambda: committed() == sealed, "the sealed segments are in the table")


# ---------------------------------------------------------------- links and pipes


@pytest.mark.parametrize("name", ["", "t", "t/data", "t/metadata"])
def test_a_directory_of_a_table_that_is_a_link_is_refused_by_name(db, tmp_path, name):
    """An update deletes what it does not know, and a round the tables of topics that are gone."""
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    link, outside = os.path.join(db.path, "iceberg", name).rstrip("/"), tmp_path / "outside"
    os.rename(link, outside)
    (outside / "directory").mkdir()
    (outside / "directory" / "file").write_bytes(b"of somebody else")
    (outside / "file").write_bytes(b"of somebody else")
    os.symlink(outside, link)
    before = {str(one): one.is_file() and one.read_bytes() for one in outside.rglob("*")}
    fill(db, first=60)
    with pytest.raises(ReadFailed, match=f"{re.escape(link)}.*symbolic link"):
        db.update_iceberg("t")
    if name in {"", "t"}:
        db.delete_topic("t")
    db.close()
    assert {str(one): one.is_file() and one.read_bytes() for one in outside.rglob("*")} == before


@pytest.mark.parametrize("kind", ["pipe", "link", "sparse"])
def test_metadata_that_is_no_regular_file_hangs_nothing(db, tmp_path, kind):
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    path = os.path.join(db.path, "iceberg", "t", "metadata", "v99.metadata.json")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        os.symlink(location(db), path)
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises((CorruptionError, ReadFailed, ValueError), match=r"v99\.metadata\.json"):
        db.update_iceberg("t")
    assert table_topic_id(IO(), os.path.join(db.path, "iceberg", "t")) == ""
    db.close()


def test_a_pipe_in_place_of_the_hint_is_replaced(db):
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    hint = os.path.join(db.path, "iceberg", "t", "metadata", "version-hint.text")
    os.unlink(hint)
    os.mkfifo(hint)
    db.update_iceberg("t")
    assert os.path.isfile(location(db))


@pytest.mark.parametrize("kind", ["pipe", "link", "sparse"])
def test_a_manifest_that_is_no_regular_file_is_refused_by_name(db, kind):
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    parent = os.path.join(db.path, "iceberg", "t", "metadata")
    path = os.path.join(parent, next(name for name in os.listdir(parent) if name.startswith("snap-")))
    os.rename(path, path + ".moved")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        os.symlink(path + ".moved", path)
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    fill(db, first=60)
    with pytest.raises((CorruptionError, ReadFailed), match=re.escape(path)):
        db.update_iceberg("t")


def test_a_data_file_that_is_a_link_to_its_sidecar_is_replaced(db):
    """Else it would go with the sidecar."""
    db.create_topic("t", config=RAW)
    fill(db)
    db.update_iceberg("t")
    path = os.path.join(db.path, "iceberg", "t", "data", min(files(db, "data")))
    inode = os.stat(path).st_ino
    log = os.path.join(db.path, "t-0")
    sidecar = next(one for name in os.listdir(log) if os.stat(one := os.path.join(log, name)).st_ino == inode)
    os.unlink(path)
    os.symlink(sidecar, path)
    db.update_iceberg("t")
    assert not os.path.islink(path)
    assert os.stat(path).st_ino == inode


def test_a_sidecar_that_was_made_again_is_linked_again(db):
    """Else the table keeps the file that was damaged, and takes space of its own."""
    db.create_topic("t", config=RAW)
    fill(db)
    made = db.update_iceberg("t")
    path = os.path.join(db.path, "iceberg", "t", "data", min(files(db, "data")))
    log = os.path.join(db.path, "t-0")
    sidecar = next(one for name in os.listdir(log) if os.path.samefile(one := os.path.join(log, name), path))
    shutil.copyfile(sidecar, sidecar + ".tmp")
    os.replace(sidecar + ".tmp", sidecar)
    assert db.update_iceberg("t").snapshot_id == made.snapshot_id
    assert os.path.samefile(sidecar, path)
