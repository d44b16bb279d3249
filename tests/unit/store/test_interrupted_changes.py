"""Ctrl-C between the commit of a change and the steps that follow it: the open database goes on with what was committed."""

import os

import pytest

import logdb
from logdb.io import IO
from logdb.model import TopicPartition
from logdb.store import topic_file
from support.produced import open_bare


@pytest.fixture
def db(tmp_path):
    with open_bare(tmp_path / "db") as database:
        yield database


def interrupted_behind(monkeypatch, owner, name, *, is_done=True):
    """Let a call be interrupted once, behind its work, or before it."""
    real = getattr(owner, name)

    def call(*args, **kwargs):
        if is_done:
            real(*args, **kwargs)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, call)


def test_a_deletion_that_was_cut_off_leaves_no_log_to_the_next_topic_of_the_name(db, monkeypatch, tmp_path):
    db.create_topic("t", partitions=2)
    db.log("t", 1).append(b"old")
    interrupted_behind(monkeypatch, db._store.writer.entries, "forget")
    with pytest.raises(KeyboardInterrupt):
        db.delete_topic("t")
    db.create_topic("t", partitions=2)
    db.log("t", 1).append(b"new", durability="fsync")
    assert [record.value for record in db.log("t", 1).read(0)] == [b"new"]
    db.close()
    with open_bare(tmp_path / "db") as again:
        assert [record.value for record in again.log("t", 1).read(0)] == [b"new"]


def test_listeners_hear_of_changes_that_were_cut_off(db, monkeypatch):
    heard = []
    db._store._state.tell = lambda event: heard.append((event.kind, event.topic.name))
    entries = db._store.writer.entries
    interrupted_behind(monkeypatch, entries, "change")
    with pytest.raises(KeyboardInterrupt):
        db.create_topic("t")
    db.create_topic("other")
    assert heard == [("topic_created", "t"), ("topic_created", "other")]
    interrupted_behind(monkeypatch, entries, "forget")
    with pytest.raises(KeyboardInterrupt):
        db.delete_topic("t")
    db.delete_topic("other")
    assert heard[2:] == [("topic_deleted", "t"), ("topic_deleted", "other")]


def test_an_altered_topic_that_was_cut_off_has_its_new_configs(db, monkeypatch):
    heard = []
    db._store._state.tell = lambda event: heard.append((event.kind, event.topic.config))
    db.create_topic("t")
    log = db.log("t")
    interrupted_behind(monkeypatch, db._store.catalogue, "write")
    with pytest.raises(KeyboardInterrupt):
        db.alter_topic("t", config={"segment.bytes": 2_000})
    assert log.config.segment_bytes == 2_000
    interrupted_behind(monkeypatch, db._store.catalogue, "write", is_done=False)
    with pytest.raises(KeyboardInterrupt):
        db.alter_topic("t", config={"segment.bytes": 3_000})
    assert log.config.segment_bytes == 2_000
    db.create_topic("other")
    assert heard == [("topic_created", {}), ("topic_altered", {"segment.bytes": 2_000}), ("topic_created", {})]


def test_a_deletion_that_was_cut_off_keeps_no_close_from_being_clean(db, monkeypatch, tmp_path):
    db.create_topic("t")
    log = db.log("t")
    log.append(b"old")
    interrupted_behind(monkeypatch, db._store.catalogue, "write")
    with pytest.raises(KeyboardInterrupt):
        db.delete_topic("t")
    db.flush()
    db._store.checkpoint([log])
    assert db._store.catalogue.logs() == []
    db.close()
    assert logdb.verify(tmp_path / "db").ok
    with open_bare(tmp_path / "db") as again:
        assert again._store._state.clean
        assert again.topics() == []


# ---------------------------------------------------------------- changes of logs


def filled(db, **config):
    db.create_topic("t", config={"segment.bytes": 1_024, **config})
    log = db.log("t")
    for at in range(24):
        log.append(b"%d" % at + bytes(300), b"%d" % (at % 3))
        log.flush(sync=False)
    return log


def latest(log):
    return {record.key: record.value.rstrip(b"\0") for record in log.read(log.start_offset)}


def bases_agree(db, log):
    named = [entry.base_offset for entry in db._store.catalogue.segments("t")]
    return named == [segment.base_offset for segment in log.segments if segment.scanner is None]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_compaction_that_was_cut_off_shows_the_segments_that_it_committed(db, monkeypatch, is_done):
    log = filled(db, **{"cleanup.policy": "compact"})
    replaced = log.segments[0]
    interrupted_behind(monkeypatch, db._store.writer.replacer, "_commit", is_done=is_done)
    with pytest.raises(KeyboardInterrupt):
        db.compact("t")
    assert (replaced in log.segments) == (not is_done)
    assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    assert bases_agree(db, log)
    for _ in range(2):
        for segment in log.segments[:-1]:
            segment.file = None  # as if it was evicted
        assert latest(log) == {b"0": b"21", b"1": b"22", b"2": b"23"}
        db.compact("t")
    assert len(list(log.read(0))) == 3
    assert not db._store.catalogue.intents()


@pytest.mark.parametrize("is_done", [True, False])
def test_a_log_start_that_was_cut_off_is_the_one_that_was_committed(db, monkeypatch, tmp_path, is_done):
    log, name = filled(db), TopicPartition("t", 0)
    db._store.checkpoint([log])
    interrupted_behind(monkeypatch, db._store.catalogue, "write", is_done=is_done)
    with pytest.raises(KeyboardInterrupt):
        db.delete_records("t", 0, 10)
    start = 10 if is_done else 0
    assert (log.start_offset, topic_file.load(IO(), log.directory).start_offset) == (start, start)
    log.append(b"more")
    db._store.checkpoint([log])
    assert db._store.catalogue.log(*name) == db._store.writer.entries.get(name)
    assert db._store.catalogue.log(*name).start_offset == start
    assert bases_agree(db, log)
    db.alter_topic("t", config={"retention.bytes": 2_000})
    db.enforce_retention("t")
    assert log.start_offset > 10
    db.close()
    assert logdb.verify(tmp_path / "db").ok
    with open_bare(tmp_path / "db") as again:
        assert again.log("t").start_offset == log.start_offset
