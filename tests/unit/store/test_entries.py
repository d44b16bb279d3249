import threading

import pytest

import logdb
from logdb.errors import UnknownTopic
from logdb.io import IO
from logdb.meta import Catalogue, Intent, LogEntry
from logdb.model import TopicPartition
from logdb.store.entries import Entries

NAME = TopicPartition("t", 0)


@pytest.fixture
def catalogue(tmp_path):
    with Catalogue.open(str(tmp_path / "catalogue"), create=True, io=IO()) as opened:
        yield opened


@pytest.fixture
def entries(catalogue):
    known = Entries(catalogue)
    known.change(lambda: [LogEntry("t", 0)], lambda _txn: None)
    return known


def test_memory_and_catalogue_change_together(entries, catalogue):
    number = entries.change(lambda: [entries.get(NAME)._replace(generation=3), LogEntry("t", 1)], lambda txn: txn.next_producer_id())
    assert number == 0
    assert entries.names() == [NAME, TopicPartition("t", 1)]
    assert [entries.get(name) for name in entries.names()] == catalogue.logs()
    again = Entries(catalogue)
    again.load()
    assert again.get(NAME).generation == 3


def test_what_is_not_committed_is_not_known(entries, catalogue):
    def fail(_txn):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        entries.change(lambda: [entries.get(NAME)._replace(generation=3)], fail)
    assert entries.get(NAME).generation == 0
    assert catalogue.log("t", 0).generation == 0


def test_a_commit_that_is_interrupted_is_known(entries, catalogue, monkeypatch):
    write = catalogue.write

    def interrupted(function):
        write(function)
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        entries.change(lambda: [entries.get(NAME)._replace(generation=3)], lambda _txn: None)
    assert entries.get(NAME).generation == 3
    with pytest.raises(KeyboardInterrupt):
        entries.forget("t", Intent("delete", "t", {}))
    assert entries.names() == []


def test_changes_of_many_threads_all_count(entries, catalogue):
    def grow():
        for _ in range(25):
            entries.change(lambda: [entries.get(NAME)._replace(generation=entries.get(NAME).generation + 1)], lambda _txn: None)

    threads = [threading.Thread(target=grow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entries.get(NAME).generation == catalogue.log("t", 0).generation == 100


def test_nothing_is_noted_of_a_log_whose_topic_was_deleted(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log, entries = db.log("t"), db._store.writer.entries
        db.delete_topic("t")
        assert NAME not in entries
        with pytest.raises(UnknownTopic):
            entries.note(log, strict=False)
        assert db._store.catalogue.logs() == []
