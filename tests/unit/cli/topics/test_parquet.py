import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.cli.terminal.session import Session

pytestmark = pytest.mark.local
pytest.importorskip("pyarrow")


def test_files_are_made_once(filled):
    made = filled.json("parquet", "three", "one")
    assert [(row["topic"], row["partition"]) for row in made] == [("three", 0), ("three", 1), ("three", 2), ("one", 0)]
    assert all(row["made"] == row["file_count"] == 1 and row["size_bytes"] and not row["damaged"] for row in made)
    assert [row["made"] for row in filled.json("parquet", "three", "one")] == [0, 0, 0, 0]
    with filled.open() as db:
        assert db.topic_dataset("one").count_rows() == 100
    assert filled("verify").exit_code == 0


def test_one_partition_shown(filled):
    shown = filled("parquet", "three", "-p", "1")
    assert shown.stdout.splitlines()[0].split() == ["TOPIC", "PARTITION", "MADE", "DAMAGED", "FILES", "SIZE"]
    assert shown.stdout.splitlines()[1].split()[:5] == ["three", "1", "1", "0", "1"]
    assert "1 file made" in shown.stderr


@pytest.mark.parametrize(("args", "words"), [(["none"], "none"), (["three", "-p", "3"], "no partition 3"), ([], "TOPIC")])
def test_what_is_refused(filled, args, words):
    assert words in filled("parquet", *args, code=2).stderr


def test_where_the_files_are_not(filled):
    assert "on the machine of the files" in filled("-b", "http://127.0.0.1:9", "parquet", "one", code=2).stderr
    with logdb.open(filled.data_dir) as db, logdb.serve(db, http="127.0.0.1:0") as server:
        environment = {"LOGDB_BOOTSTRAP": server.addresses[0], "LOGDB_DATA_DIR": ""}
        found = CliRunner().invoke(cli, ["parquet", "one"], obj=Session(), env=environment)
        assert found.exit_code == 2 and "needs the files" in found.stderr
        assert "logdb.parquet=true" in filled("parquet", "one", code=2).stderr  # the process that has the lock may do it
