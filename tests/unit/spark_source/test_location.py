import os
import pickle
import shutil

import pytest

import logdb
from logdb.errors import NotADatabase
from logdb_spark_source import location as module
from logdb_spark_source.location import Location


@pytest.fixture(autouse=True)
def forget():
    """Handles that a test opened are closed after it."""
    yield
    while module._opened:
        _, opened = module._opened.popitem()
        if opened.pid == os.getpid():
            opened.database.close()


def made(path, topic):
    with logdb.open(path) as db:
        db.create_topic(topic)
    return Location(path=str(path))


def test_a_process_opens_a_place_once(tmp_path):
    place = made(tmp_path / "db", "a")
    assert place.open() is place.open() is pickle.loads(pickle.dumps(place)).open()
    assert place.open().mode == "r"
    assert str(place) == str(tmp_path / "db")


def test_another_directory_of_the_same_name_is_opened_anew(tmp_path):
    place = made(tmp_path / "db", "a")
    first = place.open()
    shutil.rmtree(tmp_path / "db")
    made(tmp_path / "db", "b")
    assert [info.name for info in place.open().topics()] == ["b"]
    with pytest.raises(logdb.errors.Closed):
        first.topics()


def test_a_forked_child_opens_its_own(tmp_path):
    place = made(tmp_path / "db", "a")
    place.open()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, ",".join(info.name for info in place.open().topics()).encode())
        except BaseException as error:  # noqa: BLE001 -- it is told to the parent
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000) == b"a"
    os.close(reading), os.close(writing)


def test_what_is_no_database_says_so(tmp_path):
    place = Location(path=str(tmp_path / "db"))
    with pytest.raises(NotADatabase):
        place.open()
    made(tmp_path / "db", "a")
    assert place.open().topics()


def test_a_place_that_is_none_is_refused():
    for wrong in [{}, {"path": "/a", "urls": ("http://h",)}, {"path": "a"}, {"urls": ("http://me:secret@h",)}]:
        with pytest.raises(ValueError, match=r"exactly one|absolute|must not have a user") as caught:
            Location(**wrong)
        assert "secret" not in str(caught.value)
