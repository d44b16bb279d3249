"""What those that watch are given, and when."""

import threading

import pytest

from logdb_replication.controller import commands
from logdb_replication.controller import feed as feeds
from logdb_replication.controller.commands import TakeProducerIds
from logdb_replication.controller.errors import UnknownCommand
from logdb_replication.controller.feed import Feed
from logdb_replication.controller.machine import Machine
from support.controllers import CLUSTER

TAKE = commands.encode(TakeProducerIds(1))


def fed(*indexes: int) -> Feed:
    made = Feed(CLUSTER)
    for index in indexes:
        made.apply(index, TAKE)
    return made


def test_commands_come_with_their_indexes():
    feed = fed(3, 4, 9)
    assert feed.after(0, 0).commands == [(3, TAKE), (4, TAKE), (9, TAKE)]
    assert feed.after(3, 0) == feed.after(3, 10)
    assert feed.after(3, 0).commands == [(4, TAKE), (9, TAKE)]
    assert feed.after(5, 0).commands == [(9, TAKE)]
    assert (feed.after(9, 0).index, feed.after(9, 0).commands, feed.after(20, 0.01).index) == (9, [], 20)


def test_who_waits_is_woken():
    feed = fed(1)
    found = []
    thread = threading.Thread(target=lambda: found.append(feed.after(1, 30)))
    thread.start()
    feed.apply(2, TAKE)
    thread.join(10)
    assert found[0].commands == [(2, TAKE)]


def test_a_reply_is_bounded_and_has_one_command_at_least(monkeypatch):
    monkeypatch.setattr(feeds, "REPLY_SIZE_BYTES_MAX", 2 * len(TAKE))
    feed = fed(*range(1, 8))
    seen, at = [], 0
    while (found := feed.after(at, 0)).commands:
        assert len(found.commands) <= 3
        seen += [index for index, _ in found.commands]
        at = found.index
    assert seen == list(range(1, 8))


def test_what_is_no_longer_kept_comes_as_a_snapshot(monkeypatch):
    monkeypatch.setattr(feeds, "KEPT_SIZE_BYTES_MAX", 2 * len(TAKE))
    feed = fed(1, 2, 3, 4)
    assert feed.after(2, 0).commands == [(3, TAKE), (4, TAKE)]
    found = feed.after(1, 0)
    assert (found.index, found.commands) == (4, [])
    machine = Machine(CLUSTER)
    machine.restore(found.index, found.snapshot)
    assert machine.state == feed.state


def test_after_a_restore_all_is_a_snapshot():
    feed, other = fed(1, 2), fed(1, 2, 3, 4, 5)
    feed.restore(6, other.snapshot())
    assert feed.state == other.state
    assert feed.after(2, 0).snapshot == other.snapshot()
    assert feed.after(5, 0).index == 5
    feed.apply(7, TAKE)
    assert feed.after(5, 0).commands == [(7, TAKE)]


def test_a_command_of_a_newer_version_changes_nothing():
    feed = fed(1)
    with pytest.raises(UnknownCommand):
        feed.apply(2, b"\xc1")
    assert feed.after(1, 0).index == 1
