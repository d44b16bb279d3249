"""An embedded directory is made a node's; a crash at any step, and again."""

import os

import pytest

import logdb
from logdb.errors import ReadOnly
from logdb.store import cluster_file
from logdb_replication import promotion
from logdb_replication.directory import init
from logdb_replication.raft.errors import WrongDirectory

STEPS = ["_end_and_sync", "_copy_voter", "remove", "sync_directory", "cluster_file.create", "remove_tree"]


@pytest.fixture
def sides(tmp_path):
    with logdb.open(tmp_path / "data") as db:
        db.create_topic("t")
        db.log("t").append_many([b"1", b"2"])
    init(str(tmp_path / "c"), 3, [8081, 8082, 8083])
    return str(tmp_path / "data"), tmp_path / "c" / "node-1"


def prepare(data, node, *, execute=True):
    return promotion.prepare(data, str(node / "cluster.toml"), execute=execute)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_crash_at_each_step(sides, monkeypatch, step, done):
    data, node = sides

    def crash(*args, **kwargs):
        if done:
            original(*args, **kwargs)
        raise KeyboardInterrupt

    owner, _, name = step.rpartition(".")
    place = cluster_file if owner else promotion
    original = getattr(place, name)
    monkeypatch.setattr(place, name, crash)
    with pytest.raises(KeyboardInterrupt):
        prepare(data, node)
    monkeypatch.undo()
    is_marked = [os.path.exists(os.path.join(path, cluster_file.FILE_NAME)) for path in (data, node / "data")]
    assert is_marked != [True, True], "never two directories of one node"
    prepare(data, node)
    assert not os.path.exists(node / "data")
    assert cluster_file.load(logdb.IO(), data).promoting
    assert {"journal", "vote", "snapshot"} <= set(os.listdir(os.path.join(data, "quorum")))
    with pytest.raises(ReadOnly):
        logdb.open(data)
    with logdb.open(data, mode="r") as db:
        assert [record.value for record in db.log("t").read(0)] == [b"1", b"2"]


def test_what_is_refused(sides, tmp_path):
    data, node = sides
    prepare(data, node, execute=False)
    assert not os.path.exists(os.path.join(data, cluster_file.FILE_NAME))
    (tmp_path / "none").mkdir()
    with pytest.raises(WrongDirectory, match="it holds no database"):
        prepare(str(tmp_path / "none"), node)
    with pytest.raises(WrongDirectory, match="node 1 of the cluster"):
        prepare(str(node / "data"), node)
    (node / "data" / "LOCK").touch()
    with pytest.raises(WrongDirectory, match="node 1 has run with it"):
        prepare(data, node)


def test_a_repeat_leaves_what_was_made_since_where_the_empty_directory_was(sides):
    data, node = sides
    prepare(data, node)
    with logdb.open(node / "data") as db:  # as after 'cluster join', or of another application
        db.create_topic("t")
        db.append("t", b"precious")
    assert prepare(data, node).promoting
    with logdb.open(node / "data") as db:
        assert [record.value for record in db.log("t").read(0)] == [b"precious"]


@pytest.mark.parametrize("execute", [False, True])
def test_a_second_directory_of_a_node_is_refused_and_stays_as_it_is(sides, tmp_path, execute):
    data, node = sides
    with logdb.open(tmp_path / "second") as db:
        db.create_topic("t")
    prepare(data, node)
    before = sorted(os.listdir(tmp_path / "second"))
    with pytest.raises(WrongDirectory, match="another directory is this node's already"):
        prepare(str(tmp_path / "second"), node, execute=execute)
    assert sorted(os.listdir(tmp_path / "second")) == before
