import threading
import time

import pytest

import logdb
from logdb import errors
from logdb.model import TopicPartition
from support.transactional import Writer

T = [TopicPartition("t", partition) for partition in range(3)]


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=3)
        yield db


def later(function):
    """Call it while a thread waits; how long it takes until it does, is not the test's to say."""
    thread = threading.Timer(0.02, function)
    thread.start()
    return thread


def wait(db, positions, timeout_ms=60_000, **options):
    began = time.monotonic()
    try:
        return db._session.wait(positions, timeout_ms, **options)
    finally:
        assert time.monotonic() - began < 30, "woken, not timed out"


def test_what_is_there_is_not_waited_for(db):
    db.log("t", 1).append(b"x")
    assert wait(db, dict.fromkeys(T, 0))
    assert not db._session.wait({T[1]: 1}, 0)
    assert not db._session.wait({}, 1)


def test_any_of_several_logs_wakes(db):
    for partition in (2, 0):
        thread = later(lambda partition=partition: db.log("t", partition).append(b"x"))
        assert wait(db, {where: db.log(*where).end_offset for where in T})
        thread.join()


def test_nothing_comes(db):
    db.log("t", 0).append(b"x")
    assert not db._session.wait({T[0]: 1, T[1]: 0}, 20)
    assert db.log("t", 0)._watchers == ()


def test_committed_records_wake_when_they_are(db):
    writer = Writer(db._session)
    writer.write(T[0], b"x")
    assert wait(db, {T[0]: 0})
    assert not db._session.wait({T[0]: 0}, 10, isolation_level="read_committed")
    thread = later(lambda: writer.end(commit=True))
    assert wait(db, {T[0]: 0}, isolation_level="read_committed")
    thread.join()


def test_a_record_that_lingers_is_seen_all_the_same(tmp_path):
    with logdb.open(tmp_path / "long", linger_ms=60_000) as db:
        db.create_topic("t", partitions=3)
        thread = later(lambda: db.log("t", 0).append(b"x"))
        assert wait(db, {T[0]: 0})
        thread.join()


def test_another_process_is_asked(db):
    with logdb.open(db.path, mode="r") as reader:
        assert not reader._session.wait({T[0]: 0}, 5)
        thread = later(lambda: (db.log("t", 0).append(b"x"), db.log("t", 0).flush()))
        assert wait(reader, {T[0]: 0})
        thread.join()


def test_the_end_of_the_database_and_of_a_topic_wakes(db):
    for end, error in ((lambda: db.delete_topic("t"), errors.UnknownTopic), (db.close, errors.Closed)):
        db.create_topic("u", if_not_exists=True)
        positions = {T[0]: 0} if error is errors.UnknownTopic else {TopicPartition("u", 0): 0}
        thread = later(end)
        with pytest.raises(error):
            wait(db, positions)
        thread.join()
