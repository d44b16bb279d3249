import pytest

import logdb
from support.iceberg import table

pytestmark = pytest.mark.local
pytest.importorskip("pyiceberg")


def test_a_commit(filled):
    assert "one has no table: set its config logdb.iceberg.mode" in filled("iceberg", "one", code=2).stderr
    with filled.open() as db:
        db.alter_topic("one", config={"logdb.iceberg.mode": "key_value"})
    (made,) = filled.json("iceberg", "one")
    assert (made["topic"], made["added"], made["record_count"]) == ("one", 1, 100)
    shown = filled("iceberg", "one")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["TOPIC", "ADDED", "REMOVED", "FILES", "RECORDS"],
        ["one", "0", "0", "1", "100"],
    ]
    with filled.open() as db:
        assert "file://" + table(db, "one").metadata_location in shown.stderr


def test_beside_the_process_that_writes(filled):
    with logdb.open(filled.data_dir):
        assert "db.update_iceberg(TOPIC)" in filled("iceberg", "one", code=2).stderr
