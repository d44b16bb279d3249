"""A process is killed at steps of a commit; the next one finds a table that readers can read, and finishes.

Every second step, or each where ``LOGDB_TEST_SCALE`` is more than 1.
"""

import os
import random

import pytest
from pyiceberg.table import StaticTable

import logdb
from support.iceberg import killed_commits, location, logged, rows, table

CONFIG = {"segment.bytes": 2_000, "logdb.iceberg.mode": "key_value"}
COMPACTED = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 1}  # by the test, and not in the background
STEPS_MIN = {"append": 20, "compact": 25}
STRIDE = 1 if int(os.environ.get("LOGDB_TEST_SCALE", "1")) > 1 else 2


def fill(db, count=30):
    for partition in (0, 1):
        first = db.log("t", partition).end_offset
        numbers = range(first, first + count)
        db.log("t", partition).append_many([b"value %d" % n * (n % 5) for n in numbers], [b"key %d" % (n % 7) for n in numbers])


@pytest.fixture
def forking():
    with killed_commits() as killed:
        yield killed


def data_files_named(db):
    found = table(db)
    return {
        os.path.basename(entry.data_file.file_path)
        for snapshot in found.metadata.snapshots
        for manifest in snapshot.manifests(found.io)
        for entry in manifest.fetch_manifest_entry(found.io)
    }


@pytest.mark.parametrize("kind", ["append", "compact"])
def test_a_kill_at_each_step_of_a_commit(tmp_path, forking, monkeypatch, kind):
    from logdb_iceberg import tables

    monkeypatch.setattr(tables, "SNAPSHOT_COUNT", 3)
    path = str(tmp_path / "db")
    with logdb.open(path, batch_size=300) as db:
        db.create_topic("t", partitions=2, config=CONFIG | (COMPACTED if kind == "compact" else {}))
        fill(db)
        db.update_iceberg("t")
        metadata, data = os.path.dirname(location(db)), os.path.join(path, "iceberg", "t", "data")
    first = random.randrange(STRIDE) + 1
    step, commits, seen = first, 0, None
    while True:
        if seen is None:  # the last one came past its commit: the next one needs something to commit
            with logdb.open(path, batch_size=300) as db:
                made = db.update_iceberg("t")
                assert made.end_offsets == {partition: db.log("t", partition).end_offset for partition in (0, 1)}
                seen = rows(table(db).scan().to_arrow())
                assert seen == logged(db), step
                assert set(os.listdir(data)) == data_files_named(db), step
                assert not [name for name in os.listdir(metadata) if name.endswith(".tmp")], step
                fill(db)
                if kind == "compact":
                    db.compact("t")
                    db.delete_records("t", 1, db.log("t", 1).end_offset - 5)
        if not forking(path, step):
            break
        if (reached := rows(read(metadata))) != seen:
            with logdb.open(path, mode="r") as db:
                assert reached == logged(db), step
            commits, seen = commits + 1, None
        step += STRIDE
    assert step > STEPS_MIN[kind] and commits > 5 // STRIDE, f"from step {first}"
    with logdb.open(path, mode="r") as db:
        assert rows(read(metadata)) == logged(db)


def read(metadata):
    """The table as the readers of the catalogue find it: its latest metadata."""
    latest = max(int(name[1:].split(".")[0]) for name in os.listdir(metadata) if name.endswith(".metadata.json"))
    return StaticTable.from_metadata(os.path.join(metadata, f"v{latest}.metadata.json")).scan().to_arrow()
