import asyncio
import threading
import time

import pytest

import logdb
from logdb import errors
from logdb.model import KnownLog, TopicPartition
from support.transactional import Writer

T = [TopicPartition("t", partition) for partition in range(3)]
FOREVER_MS = 60_000


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=3)
        yield db


def run(db, story):
    """Tell a story with the waits of a loop; nothing is left waiting at its end."""

    async def main():
        waits = db._session.waits()
        await asyncio.wait_for(story(waits), 30)
        assert not waits._bells
        assert all(db._session.log(*where)._watchers == () for where in T if any(topic.name == "t" for topic in db.topics()))

    asyncio.run(main())


def wait(waits, positions, timeout_ms=FOREVER_MS, isolation_level="read_uncommitted"):
    return asyncio.ensure_future(waits.wait(positions, timeout_ms, isolation_level=isolation_level))


def for_commit(waits, log, position):
    """A wait for a record that is not written yet; a reader does not wait past the end of a log."""

    class Leads:
        def __init__(self):
            self.log, self.awaited_end = log, end

    return asyncio.ensure_future(waits.wait_for_commit(Leads(), position + 1, FOREVER_MS))


def end(log):
    return log.end_offset


async def in_thread(function):
    await asyncio.get_running_loop().run_in_executor(None, function)


async def begun():
    """Let those that were made wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_is_there_is_not_waited_for(db):
    async def story(waits):
        db.log("t", 1).append(b"x")
        assert await wait(waits, dict.fromkeys(T, 0))
        assert not await wait(waits, {T[1]: 1}, 0)
        assert not await wait(waits, {}, 1)

    run(db, story)


def test_any_of_several_logs_wakes(db):
    async def story(waits):
        for partition in (2, 0):
            waiting = wait(waits, {where: db.log(*where).end_offset for where in T})
            await begun()
            assert not waiting.done()
            await in_thread(lambda partition=partition: db.log("t", partition).append(b"x"))
            assert await waiting

    run(db, story)


def test_one_watcher_for_all_who_wait(db):
    async def story(waits):
        waiting = [wait(waits, {T[0]: 0}) for _ in range(1_000)]
        await begun()
        assert len(db.log("t", 0)._watchers) == 1
        await in_thread(lambda: db.log("t", 0).append_many([b"x"]))
        assert all(await asyncio.gather(*waiting))

    run(db, story)


def test_only_those_wake_whose_record_is_there(db):
    async def story(waits):
        early, late = (for_commit(waits, db.log("t", 0), position) for position in (0, 1))
        await begun()
        await in_thread(lambda: db.log("t", 0).append_many([b"x"]))
        assert await early
        await begun()
        assert not late.done()
        await in_thread(lambda: db.log("t", 0).append_many([b"x"]))
        assert await late

    run(db, story)


def test_a_thread_wakes_the_loop_only_for_what_is_awaited(db, monkeypatch):
    async def story(waits):
        log, loop, woken = db.log("t", 0), asyncio.get_running_loop(), []
        log.append_many([b"x"] * 5)
        waiting = [for_commit(waits, log, position) for position in (7, 5)]
        await begun()
        (bell,) = waits._bells.values()
        told = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda call, *args: (woken.append(call), told(call, *args)))

        def rung(move):
            thread = threading.Thread(target=move)
            thread.start()
            thread.join()
            return woken.count(bell._look)

        assert rung(log.flush) == rung(bell.set) == 0, "the log ends where it did"
        assert rung(lambda: (log.append(b"x"), log.flush())) == 1
        assert await waiting[1]
        await begun()
        assert rung(log.flush) == 1, "the other one waits for more"
        assert rung(lambda: (log.append_many([b"x"] * 2), log.flush())) == 2
        assert await waiting[0]

    run(db, story)


@pytest.mark.parametrize(
    ("offset", "known"),
    [(4, {}), (3, {T[0]: KnownLog("of another topic")}), (3, {T[0]: KnownLog("", 1)})],
    ids=["past the end", "of another topic", "of an epoch that it lacks"],
)
def test_a_position_in_another_log_is_not_waited_for(db, offset, known):
    async def story(waits):
        db.log("t", 0).append_many([b"x"] * 3)
        assert await waits.wait({T[0]: offset, T[1]: 0}, FOREVER_MS, isolation_level="read_uncommitted", known=known)
        assert db._session.wait({T[0]: offset, T[1]: 0}, FOREVER_MS, known=known)
        known_well = {T[0]: KnownLog(db.log("t", 0).topic_id, 0)}
        assert not await waits.wait({T[0]: 3}, 1, isolation_level="read_uncommitted", known=known_well)
        assert not db._session.wait({T[0]: 3}, 1, known=known_well)

    run(db, story)


def test_a_topic_that_is_created_again_ends_a_wait(db):
    async def story(waits):
        waiting = wait(waits, {T[1]: 0, T[0]: 0})
        await begun()
        deleted = db.log("t", 0).topic_id
        db.delete_topic("t")
        db.create_topic("t", partitions=3)
        with pytest.raises(errors.TopicDeleted) as caught:
            await waiting
        assert (caught.value.topic_id, caught.value.current_id) == (deleted, db.log("t", 0).topic_id)

    run(db, story)


def test_time_goes_by(db):
    async def story(waits):
        db.log("t", 0).append(b"x")
        began = time.monotonic()
        assert not await wait(waits, {T[0]: 1, T[1]: 0}, 20)
        assert time.monotonic() - began > 0.015

    run(db, story)


def test_a_cancelled_wait_leaves_nothing_behind(db):
    async def story(waits):
        gone, stays = wait(waits, {T[0]: 0, T[1]: 0}), wait(waits, {T[0]: 0})
        await begun()
        gone.cancel()
        await begun()
        assert [bell.key.log.partition for bell in waits._bells.values()] == [0]
        await in_thread(lambda: db.log("t", 0).append_many([b"x"]))
        assert await stays
        assert gone.cancelled()

    run(db, story)


def test_release_ends_all_waits_and_later_ones(db):
    async def story(waits):
        waiting = [wait(waits, {where: 0}) for where in T]
        await begun()
        waits.release()
        assert await asyncio.gather(*waiting) == [False] * 3
        assert not await wait(waits, {T[0]: 0})
        db.log("t", 0).append(b"x")
        assert await wait(waits, {T[0]: 0})

    run(db, story)


def test_committed_records_wake_when_they_are(db):
    async def story(waits):
        writer = Writer(db._session)
        plain, committed = wait(waits, {T[0]: 0}), wait(waits, {T[0]: 0}, isolation_level="read_committed")
        await begun()
        await in_thread(lambda: writer.write(T[0], b"x"))
        assert await plain
        await begun()
        assert not committed.done()
        await in_thread(lambda: writer.end(commit=True))
        assert await committed

    run(db, story)


def test_a_record_that_lingers_is_seen_all_the_same(tmp_path):
    async def story(waits):
        waiting = wait(waits, {T[0]: 0})
        await begun()
        await in_thread(lambda: db.log("t", 0).append(b"x"))
        assert await waiting

    with logdb.open(tmp_path / "long", linger_ms=60_000) as db:
        db.create_topic("t", partitions=3)
        run(db, story)


def test_another_process_is_asked(db):
    async def story(waits):
        assert not await wait(waits, {T[0]: 0}, 5)
        waiting = [wait(waits, {T[0]: 0}), wait(waits, {T[1]: 0})]
        await begun()
        for partition in (0, 1):
            await in_thread(lambda partition=partition: (db.log("t", partition).append(b"x"), db.log("t", partition).flush()))
            assert await waiting[partition]

    with logdb.open(db.path, mode="r") as reader:
        run(reader, story)


@pytest.mark.parametrize("end", ["topic", "database"])
def test_the_end_of_a_topic_and_of_the_database_wakes(db, end):
    async def story(waits):
        waiting = wait(waits, {T[0]: 0})
        await begun()
        await in_thread((lambda: db.delete_topic("t")) if end == "topic" else db.close)
        with pytest.raises(errors.UnknownTopic if end == "topic" else errors.Closed):
            await waiting

    if end == "topic":
        run(db, story)
    else:
        asyncio.run(story(db._session.waits()))


def test_nothing_is_missed_beside_many_appenders(db):
    """A reader that waits for each next record, while four threads append: it sees each, and never waits in vain."""

    async def story(waits):
        log, position = db.log("t", 0), 0
        threads = [threading.Thread(target=lambda: [log.append_many([b"x"]) for _ in range(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        while position < 2_000:
            assert await wait(waits, {T[0]: position})
            position = log.end_offset
        for thread in threads:
            thread.join()

    run(db, story)


def answered_to(waiting):
    """Tasks that wait, and the order in which they go on, with the results."""
    order = []

    async def answer(number, one):
        order.append((number, await one))

    return [asyncio.ensure_future(answer(number, one)) for number, one in enumerate(waiting)], order


def test_those_who_wait_are_woken_a_few_in_a_turn_of_the_loop_and_in_order(db):
    """Else whoever appended is answered behind all of them."""

    async def story(waits):
        tasks, order = answered_to(wait(waits, {T[0]: 0}) for _ in range(1_000))
        await begun()
        db.log("t", 0).append_many([b"x"])
        seen = []
        while len(order) < 1_000:
            before = len(order)
            await asyncio.sleep(0)  # whatever else the loop has to do
            seen.append(len(order) - before)
        assert max(seen) <= 8, "others have their turn in between"
        assert order == [(number, True) for number in range(1_000)]
        await asyncio.gather(*tasks)

    run(db, story)


def test_appends_meanwhile_neither_repeat_nor_delay_what_is_due(db):
    async def story(waits):
        tasks, order = answered_to(wait(waits, {T[0]: 0, T[1]: 0}) for _ in range(100))
        await begun()
        turns = 0
        while len(order) < 100:
            for partition in (0, 1):
                db.log("t", partition).append_many([b"x"])
            await asyncio.sleep(0)
            turns += 1
        assert [number for number, _ in order] == list(range(100))
        assert turns < 40
        assert not waits._turns._ready
        await asyncio.gather(*tasks)

    run(db, story)


def test_waits_that_end_by_their_time_come_in_turn_too(db):
    async def story(waits):
        tasks, order = answered_to(wait(waits, {T[0]: 0}, 20) for _ in range(200))
        await begun()
        time.sleep(0.05)  # the loop is late: all times are over at once
        seen = []
        while len(order) < 200:
            before = len(order)
            await asyncio.sleep(0)
            seen.append(len(order) - before)
        assert max(seen) <= 8
        assert {result for _, result in order} == {False}
        await asyncio.gather(*tasks)

    run(db, story)


def test_a_commit_and_a_follower_wait_behind_no_reader(db):
    async def story(waits):
        tasks, order = answered_to(wait(waits, {T[0]: 0}) for _ in range(500))
        await begun()
        log = db.log("t", 0)
        committed = for_commit(waits, log, 0)
        follower = asyncio.ensure_future(waits.wait({T[0]: 0}, FOREVER_MS, isolation_level="read_uncommitted", replica=True))
        await begun()
        log.append_many([b"x"])
        assert await committed
        assert await follower
        assert len(order) < 100
        await asyncio.gather(*tasks)

    run(db, story)
