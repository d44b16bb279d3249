"""Ctrl-C between the commit of a change of topics and the steps that follow it: the next change finishes it."""

import pytest

from support.produced import open_bare


@pytest.fixture
def db(tmp_path):
    with open_bare(tmp_path / "db") as database:
        yield database


def interrupted_behind(monkeypatch, owner, name):
    """Let a call be interrupted once, behind its work."""
    real = getattr(owner, name)

    def call(*args, **kwargs):
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
