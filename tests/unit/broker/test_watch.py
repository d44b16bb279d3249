import contextlib
import threading
from typing import ClassVar

import pytest

from logdb.broker.broker import Broker
from logdb.broker.watch import CHANGE_COUNT_MAX, Events, PolledEvents, by_name, differences
from logdb.errors import Closed
from logdb.io import IO
from logdb.model import TopicEvent, TopicInfo
from logdb.requests.topic_changes import CreateTopic
from logdb.store.store import Store


def topic(name, topic_id="1", partition_count=1, **config):
    return TopicInfo(name, topic_id, partition_count, config)


def event(number):
    return TopicEvent("topic_created", topic(f"t{number}"))


def test_each_position_is_followed_by_what_came_after_it():
    events = Events()
    positions = [events.since(None).position]
    for number in range(5):
        events.add(event(number))
        positions.append(events.since(None).position)
    for number, position in enumerate(positions):
        changes = events.since(position)
        assert changes.events == tuple(event(after) for after in range(number, 5))
        assert changes.complete and changes.position == positions[-1]
        few = events.since(position, 2)
        assert few == (changes.events[:2], positions[min(number + 2, 5)], True)


def test_a_position_that_is_not_known_any_more():
    events = Events()
    begin = events.since(None).position
    for number in range(CHANGE_COUNT_MAX):
        events.add(event(number))
    assert len(events.since(begin).events) == CHANGE_COUNT_MAX
    events.add(event(CHANGE_COUNT_MAX))
    here = events.since(None).position
    assert events.since(begin) == ((), here, False)
    run = begin.partition("-")[0]
    wrong = (f"{CHANGE_COUNT_MAX + 2}", "-1", "", "9" * 30, "²")
    for unknown in (Events().since(None).position, *(f"{run}-{number}" for number in wrong), "", "-", "💥"):
        assert events.since(unknown) == ((), here, False), unknown


def test_who_waits_is_told_at_once_and_at_the_end():
    events, found = Events(), []
    position = events.since(None).position

    def wait():
        found.append(events.wait(position, 60_000, io=IO()).events)
        with pytest.raises(Closed):
            events.wait(events.since(None).position, 60_000, io=IO())
        found.append("closed")

    thread = threading.Thread(target=wait)
    thread.start()
    events.add(event(1))
    while not found:
        thread.join(0.001)
    events.close()
    thread.join(60)
    assert found == [(event(1),), "closed"]
    assert not events.signals._all, "who has gone is not told any more"


def test_nothing_within_the_time():
    events = Events()
    assert events.wait(events.since(None).position, 1, io=IO()).events == ()


def test_looks_are_made_only_where_something_changed():
    version, topics, looks = 1, [topic("a")], []

    def look():
        looks.append(version)
        return topics

    events = PolledEvents(lambda: version, look)
    position = events.since(None).position
    for _ in range(3):
        assert events.since(position).events == ()
    assert looks == [1]
    version, topics = 2, [topic("a"), topic("b")]
    assert events.since(position).events == (TopicEvent("topic_created", topic("b")),)
    assert events.since(position).events == (TopicEvent("topic_created", topic("b")),)
    assert looks == [1, 2]


@pytest.mark.parametrize(
    ("former", "now", "expected"),
    [
        ([], [], []),
        ([], [topic("a")], [("topic_created", topic("a"))]),
        ([topic("a")], [], [("topic_deleted", topic("a"))]),
        ([topic("a")], [topic("a", "2")], [("topic_deleted", topic("a")), ("topic_created", topic("a", "2"))]),
        ([topic("a")], [topic("a", partition_count=3)], [("partitions_added", topic("a", partition_count=3))]),
        ([topic("a")], [topic("a", k=1)], [("topic_altered", topic("a", k=1))]),
        (
            [topic("a")],
            [topic("a", "1", 2, k=1)],
            [("partitions_added", topic("a", "1", 2, k=1)), ("topic_altered", topic("a", "1", 2, k=1))],
        ),
    ],
)
def test_differences(former, now, expected):
    assert differences(by_name(former), by_name(now)) == expected


def test_what_is_remembered_of_other_nodes_is_right_before_a_watcher_hears_of_a_change(tmp_path):
    class Nodes:
        counts: ClassVar[list[int]] = []

        def learn(self, _event):
            self.counts.append(broker.events.count)

    with contextlib.closing(Store.open(tmp_path / "db")) as store:
        broker = Broker(store, store, nodes=Nodes())
        store.submit(CreateTopic("t"))
    assert Nodes.counts == [0]
    assert broker.events.count == 1
