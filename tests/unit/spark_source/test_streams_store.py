import subprocess
import sys

import pytest

import logdb
from logdb.client.table.view import TopicView
from logdb_spark_source import location, streams_store
from logdb_spark_source.location import Location
from support.serving import served

WORKER = """
import sys
from logdb_spark_source.location import Location
from logdb_spark_source.streams_store import table_of
place = Location(path=sys.argv[1]) if sys.argv[1].startswith("/") else Location(urls=(sys.argv[1],))
print(*(key.decode() for key in table_of(place, "t", sys.argv[2])), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def forget():
    yield
    streams_store._slots.clear()
    while location._opened:
        location._opened.popitem()[1].database.close()


@pytest.fixture
def begins(monkeypatch):
    """The offset from which each read of a topic began."""
    found, read = [], TopicView._read
    monkeypatch.setattr(
        TopicView,
        "_read",
        lambda self, state, partition, *rest: (found.append(state.positions[partition].offset), read(self, state, partition, *rest)),
    )
    return found


def put(path, *keys):
    with logdb.open(path) as db:
        db.create_topic("t", if_not_exists=True)
        db.append_many("t", [b"value"] * len(keys), [key.encode() for key in keys])


def slots(store):
    return sorted(str(path.relative_to(store)).split("/", 2)[2] for path in store.glob("logdb-tables/*/*"))


def test_a_worker_takes_a_slot_and_the_next_one_continues_in_it(tmp_path, begins):
    put(tmp_path / "db", "a", "b")
    store, place = tmp_path / "store", Location(path=str(tmp_path / "db"))
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "db"), str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout.readline() == "a b\n"
        table = streams_store.table_of(place, "t", str(store))
        assert sorted(table) == [b"a", b"b"]
        assert begins == [0]
        assert slots(store) == ["0", "0.lock", "1", "1.lock"]
        worker.kill()
    put(tmp_path / "db", "c")
    streams_store._slots.clear()  # as another process
    begins.clear()
    assert streams_store.table_of(place, "t", str(store)).get_many([b"a", b"c", b"d"]) == [b"value", b"value", None]
    assert begins == [2]
    assert slots(store) == ["0", "0.lock", "1", "1.lock"]


def test_a_process_has_one_slot_for_a_place(tmp_path):
    put(tmp_path / "db", "a")
    place = Location(path=str(tmp_path / "db"))
    for _ in range(2):
        assert list(streams_store.table_of(place, "t", str(tmp_path / "store"))) == [b"a"]
    assert slots(tmp_path / "store") == ["0", "0.lock"]


def test_another_database_at_the_place(tmp_path):
    put(tmp_path / "db", "a")
    place = Location(path=str(tmp_path / "db"))
    assert list(streams_store.table_of(place, "t", str(tmp_path / "store"))) == [b"a"]
    (tmp_path / "db").rename(tmp_path / "old")
    put(tmp_path / "db", "b")
    assert list(streams_store.table_of(place, "t", str(tmp_path / "store"))) == [b"b"]


def test_behind_a_url(tmp_path, begins):
    with served(tmp_path / "db") as server:
        server.database.create_topic("t")
        server.database.append("t", b"1", b"a")
        table = streams_store.table_of(Location(urls=(server.url,)), "t", str(tmp_path / "store"))
        assert table.get_many([b"a", b"b"]) == [b"1", None]
        server.database.append("t", None, b"a")
        assert table.get_many([b"a"]) == [None]
        assert begins == [0, 1]


def test_the_store_of_spark_is_the_default(tmp_path, monkeypatch):
    put(tmp_path / "db", "a")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/first,{tmp_path}/second")
    assert list(streams_store.table_of(Location(path=str(tmp_path / "db")), "t", None)) == [b"a"]
    assert slots(tmp_path / "first") == ["0", "0.lock"]
