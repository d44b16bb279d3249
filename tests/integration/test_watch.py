"""Watching topics: on a path, behind a URL, beside a writer, on an event loop."""

import asyncio
import threading

import pytest

import logdb
import logdb.aio
from logdb.errors import Closed
from support.places import opened


def told(events):
    return [(event.kind, event.topic.name, event.topic.partition_count, config_of(event.topic)) for event in events]


def config_of(topic):
    return {name: value for name, value in topic.config.items() if name != "min.insync.replicas"}  # a cluster sets it


STORY = [
    ("topic_created", "a", 1, {}),
    ("topic_created", "b", 2, {"retention.ms": 5}),
    ("partitions_added", "a", 3, {}),
    ("topic_altered", "a", 3, {"segment.bytes": 4096}),
    ("topic_deleted", "b", 2, {"retention.ms": 5}),
]


def act(db):
    db.create_topic("a")
    db.create_topic("b", partitions=2, config={"retention.ms": 5})
    db.alter_topic("a", partitions=3, config={"segment.bytes": 4096})
    db.alter_topic("a", config={"segment.bytes": 4096})  # which it is
    db.create_topic("a", if_not_exists=True)
    db.delete_topic("b")


@pytest.fixture
def db(tmp_path, place):
    with opened(place, tmp_path / "db") as database:
        database.create_topic("old")
        yield database


def test_a_story(db):
    watch = db.watch(timeout_ms=1000)
    act(db)
    assert told(next(watch) for _ in STORY) == STORY
    assert list(db.watch(timeout_ms=0)) == [], "what was before is not told"


def test_who_waits_is_woken(db):
    seen, watch = [], db.watch()
    thread = threading.Thread(target=lambda: seen.extend(next(watch) for _ in STORY))
    thread.start()
    act(db)
    thread.join(60)
    assert told(seen) == STORY


def test_it_ends_when_nothing_comes_or_it_is_stopped(db):
    assert list(db.watch(timeout_ms=10)) == []
    stop, began = threading.Event(), threading.Event()

    def run():
        began.set()
        ended.extend(db.watch(stop=stop))
        ended.append("end")

    ended = []
    thread = threading.Thread(target=run)
    thread.start()
    began.wait()
    stop.set()
    thread.join(60)
    assert ended == ["end"]


def test_closing_ends_it(db):
    watch, caught = db.watch(), []

    def run():
        with pytest.raises(Closed):
            next(watch)
        caught.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    db.close()
    thread.join(60)
    assert caught == [True]


def test_internal_topics_only_if_asked(db):
    every, others = db.watch(internal=True, timeout_ms=5000), db.watch(timeout_ms=1000)
    with db.transaction("x") as transaction:
        transaction.send("old", b"v")
    db.create_topic("last")
    assert told([next(every)])[0][:2] == ("topic_created", "__transaction_state")
    assert told([next(others)])[0][:2] == ("topic_created", "last")


def test_who_was_left_behind_is_told_what_still_matters(db):
    watch = db.watch(timeout_ms=5000)
    for number in range(600):
        db.create_topic(f"short-{number % 3}")
        db.delete_topic(f"short-{number % 3}")
    db.delete_topic("old")
    db.create_topic("new", partitions=2)
    assert told([next(watch), next(watch)]) == [("topic_created", "new", 2, {}), ("topic_deleted", "old", 1, {})]
    db.create_topic("later")
    assert told([next(watch)]) == [("topic_created", "later", 1, {})]


def test_beside_a_writer(tmp_path):
    with logdb.open(tmp_path / "db") as writer, logdb.open(tmp_path / "db", mode="r") as reader:
        watch = reader.watch(timeout_ms=10_000)
        writer.create_topic("a")
        assert told([next(watch)]) == STORY[:1]
        writer.alter_topic("a", partitions=3)
        writer.alter_topic("a", config={"segment.bytes": 4096})
        writer.delete_topic("a")
        writer.create_topic("b", partitions=2)
        seen = []
        while not seen or seen[-1][1] != "b":
            seen += told([next(watch)])
        assert seen[-1] == ("topic_created", "b", 2, {})
        assert seen[-2][:2] == ("topic_deleted", "a")


def test_on_an_event_loop(tmp_path, place):
    async def story(db):
        watch = await db.watch(timeout_ms=5000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 0.01)
        for kind in ("first", "second"):
            await db.create_topic(kind, partitions=1)
        assert told([await anext(watch), await anext(watch)]) == [("topic_created", "first", 1, {}), ("topic_created", "second", 1, {})]
        assert [event async for event in await db.watch(timeout_ms=10)] == []
        stop = asyncio.Event()
        stop.set()
        assert [event async for event in await db.watch(stop=stop)] == []

    async def main():
        with opened(place, tmp_path / "db") as database:
            if place != "path":
                async with logdb.aio.open(database.path) as db:
                    await story(db)
        if place == "path":
            async with logdb.aio.open(tmp_path / "db") as db:
                await story(db)

    asyncio.run(main())
