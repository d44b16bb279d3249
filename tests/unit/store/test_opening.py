import os

import pytest

import logdb
from logdb.errors import CatalogueDamaged, CorruptionError, ReadOnly
from logdb.io import IO
from logdb.requests.topic_changes import CreateTopic
from logdb.store import cluster_file
from logdb.store.cluster_file import ClusterFile
from logdb.store.store import Store


def test_a_new_directory_is_durable_in_those_that_hold_it(tmp_path):
    class Noted(IO):
        def __init__(self) -> None:
            self.calls: list[tuple[str, str]] = []

        def mkdir(self, path: str, **how: bool) -> None:
            self.calls.append(("mkdir", path))
            super().mkdir(path, **how)

        def fsync_dir(self, path: str) -> None:
            self.calls.append(("fsync_dir", path))
            super().fsync_dir(path)

    io, outer, inner = Noted(), tmp_path / "a", tmp_path / "a" / "b"
    with logdb.open(inner, io=io):
        pass
    assert io.calls[:4] == [("mkdir", str(outer)), ("fsync_dir", str(tmp_path)), ("mkdir", str(inner)), ("fsync_dir", str(outer))]


def test_a_lost_catalogue_is_named_and_nothing_is_touched(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        db.log("t").append_many([b"x"])
    before = (tmp_path / "db/t-0/00000000000000000000.log").read_bytes()
    os.unlink(tmp_path / "db/catalogue/data.mdb")
    with pytest.raises(CatalogueDamaged, match=r"data.mdb is missing; run: logdb repair"):
        logdb.open(tmp_path / "db")
    assert (tmp_path / "db/t-0/00000000000000000000.log").read_bytes() == before


def marked(tmp_path) -> str:
    """A database that a node has used, closed."""
    path = str(tmp_path / "db")
    os.mkdir(path)
    os.mkdir(os.path.join(path, "quorum"))
    cluster_file.create(IO(), path, ClusterFile("6c1f9d0e-8a57-4a26-9c0c-6b8f4f0f3a11", 2))
    store = Store.open(path, replicated=True)
    store.submit(CreateTopic("t"))
    store.close()
    return path


def test_the_directory_of_a_node_is_new_with_its_mark_and_quorum_alone(tmp_path):
    with logdb.open(marked(tmp_path), mode="r") as db:
        assert [topic.name for topic in db.topics()] == ["t"]


def test_a_cluster_s_directory_is_not_opened_embedded_to_write(tmp_path):
    path = marked(tmp_path)
    before = sorted(os.listdir(path))
    with pytest.raises(ReadOnly, match=r"node 2 of the cluster 6c1f9d0e.*logdb serve --cluster.*logdb cluster leave"):
        logdb.open(path)
    assert sorted(os.listdir(path)) == before


def test_with_a_damaged_mark_it_is_not_opened_either(tmp_path):
    path = marked(tmp_path)
    with open(os.path.join(path, "cluster.json"), "r+b") as file:
        file.write(b"?")
    with pytest.raises(CorruptionError, match=r"cluster\.json"):
        logdb.open(path)
