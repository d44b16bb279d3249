"""Views of a log: one value for where it ends; the high watermark as a limit of what reads, compacts and removes; waiting for ends."""

import asyncio
import threading

import pytest

import logdb
from logdb.errors import OffsetOutOfRange
from logdb.model import OFFSET_MAX, TopicPartition
from support.produced import Sender, open_bare, values

T0 = TopicPartition("t", 0)
WAIT_S = 30


@pytest.fixture
def db(tmp_path):
    with open_bare(tmp_path / "db", durability="os", linger_ms=60_000) as database:
        yield database


@pytest.fixture
def log(db):
    db.create_topic("t")
    return filled(db.log("t"))


def filled(log, count=10):
    """A batch for each offset; the value is the offset, the timestamp a hundred times that."""
    for offset in range(log.end_offset, log.end_offset + count):
        log.append_many([b"%d" % offset], timestamps_ms=[100 * offset])
    return log


def offsets(records):
    return [record.offset for record in records]


def all_of(log, offset):
    """Everything that ``read_batches`` gives from an offset on, as offsets to go on from."""
    found = []
    while True:
        batches, following = log.read_batches(offset, 1)
        if not batches:
            return found
        found.append(following)
        offset = following


def test_a_view_is_a_value(log):
    view = log.view
    assert (view.start_offset, view.written_offset, view.flushed.offset, view.high_watermark) == (0, 10, 0, OFFSET_MAX)
    assert view.active is log.segments[-1] and view.written_position == view.active.size_bytes
    log.append(b"waits")
    assert log.view is view and log.end_offset == 11, "what waits in memory is in no view"
    log.flush()
    assert (view.written_offset, view.flushed.offset) == (10, 0)
    assert (log.view.written_offset, log.view.flushed.offset) == (11, 11)


def test_a_log_of_its_own_is_read_to_its_end(log):
    log.append(b"waits")
    assert log.high_watermark == log.last_stable_offset == log.end_offset == 11
    assert log.readable_end_offset() == 11


def test_what_is_not_replicated_is_not_read(log):
    assert log.move_high_watermark(4, leader_epoch=0) == 4
    log.append(b"waits")
    assert (log.high_watermark, log.last_stable_offset, log.readable_end_offset(), log.end_offset) == (4, 4, 4, 11)
    assert offsets(log.read(0)) == offsets(log.read(0, end_offset=9)) == [0, 1, 2, 3]
    assert offsets(log.read(0, isolation_level="read_committed")) == [0, 1, 2, 3]
    assert all_of(log, 0) == [1, 2, 3, 4]
    assert sum(batch.num_rows for batch in log.read_arrow(0)) == 4
    assert offsets(log.follow(0, timeout_ms=0)) == [0, 1, 2, 3]
    assert (log.offset_for_timestamp(300), log.offset_for_timestamp(400)) == (3, None)


def test_past_the_high_watermark_there_is_nothing_yet(log):
    log.move_high_watermark(4, leader_epoch=0)
    for offset in (4, 7, 10):
        assert offsets(log.read(offset)) == all_of(log, offset) == list(log.read_arrow(offset)) == []
        assert offsets(log.follow(offset, timeout_ms=0)) == []
    with pytest.raises(OffsetOutOfRange):
        log.read(11)


def test_a_read_that_has_begun_ends_where_it_was_to_end(log):
    log.move_high_watermark(4, leader_epoch=0)
    begun = log.read(0)
    log.move_high_watermark(8, leader_epoch=0)
    assert offsets(begun) == [0, 1, 2, 3]
    assert offsets(log.read(0)) == list(range(8))


def test_it_rises_within_an_epoch_and_is_no_further_than_the_log(log):
    assert log.move_high_watermark(4, leader_epoch=1) == 4
    assert log.move_high_watermark(3, leader_epoch=1) == 4
    assert log.move_high_watermark(9, leader_epoch=0) == 4, "an older leader"
    assert log.move_high_watermark(2, leader_epoch=2) == 2
    assert log.move_high_watermark(99, leader_epoch=2) == 10
    filled(log, 1)
    assert (log.high_watermark, log.end_offset) == (10, 11)


def test_it_is_not_below_the_log_start(db, log):
    log.move_high_watermark(4, leader_epoch=0)
    with pytest.raises(OffsetOutOfRange):
        db.delete_records("t", 0, 5)
    assert db.delete_records("t", 0, -1) == 4
    assert log.move_high_watermark(2, leader_epoch=1) == 4


def test_the_last_stable_offset_is_at_most_there(log):
    sender = Sender(log, transactional=True)
    sender.send(b"open")
    log.move_high_watermark(6, leader_epoch=0)
    assert (log.last_stable_offset, log.view.last_stable_offset) == (6, 6)
    log.move_high_watermark(11, leader_epoch=0)
    filled(log, 2)
    assert (log.last_stable_offset, log.view.last_stable_offset) == (10, 10)
    sender.end(commit=True)
    assert (log.last_stable_offset, log.view.last_stable_offset) == (11, 11), "the marker is not replicated, the records are"
    assert values(log, 10, isolation_level="read_committed") == [b"open"]


def test_who_follows_is_woken_when_it_moves(log):
    log.move_high_watermark(4, leader_epoch=0)
    seen, came = [], threading.Semaphore(0)

    def follow():
        for record in log.follow(0, timeout_ms=1000 * WAIT_S):
            seen.append(record.offset)
            came.release()
            if record.offset == 6:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    assert all(came.acquire(timeout=WAIT_S) for _ in range(4))
    assert not came.acquire(timeout=0.1) and seen == [0, 1, 2, 3]
    log.move_high_watermark(7, leader_epoch=0)
    thread.join(WAIT_S)
    assert seen == list(range(7))


def test_what_watches_is_woken_when_an_end_moves(log):
    woken = threading.Event()
    log.watch(woken)
    for move in (lambda: filled(log, 1), log.flush, lambda: log.move_high_watermark(4, leader_epoch=0)):
        woken.clear()
        move()
        assert woken.is_set()
    woken.clear()
    log.flush()
    log.move_high_watermark(3, leader_epoch=0)
    assert not woken.is_set(), "nothing has moved"
    log.unwatch(woken)


def test_a_consumer_waits_for_it(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log = filled(db.log("t", 0))
        log.move_high_watermark(4, leader_epoch=0)
        with db.consumer() as consumer:
            consumer.assign([T0])
            consumer.seek_to_beginning()
            assert offsets(consumer.poll(timeout_ms=0)[T0]) == [0, 1, 2, 3]
            assert (consumer.poll(timeout_ms=0), consumer.lag(T0), consumer.end_offsets([T0])) == ({}, 0, {T0: 4})
            moved = threading.Timer(0.05, log.move_high_watermark, (6,), {"leader_epoch": 0})
            moved.start()
            assert offsets(consumer.poll(timeout_ms=1000 * WAIT_S)[T0]) == [4, 5]
            moved.join()


def test_a_wait_on_an_event_loop_is_for_it(tmp_path):
    async def story(db, log):
        waits = db._session.waits()
        waiting = asyncio.ensure_future(waits.wait({T0: 4}, 1000 * WAIT_S, isolation_level="read_uncommitted"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await asyncio.to_thread(log.move_high_watermark, 5, leader_epoch=0)
        assert await asyncio.wait_for(waiting, WAIT_S)

    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t")
        log = filled(db.log("t", 0))
        log.move_high_watermark(4, leader_epoch=0)
        asyncio.run(story(db, log))


def test_compaction_and_retention_stop_there(tmp_path):
    with open_bare(tmp_path / "db", batch_size=101, retention_check_interval_ms=10**9) as db:
        db.create_topic("t", config={"cleanup.policy": "compact,delete", "segment.bytes": 1024})
        log = db.log("t")
        for number in range(100):
            log.append_many([b"%d" % number], [b"key"])
        middle = log.segments[len(log.segments) // 2].base_offset
        log.move_high_watermark(middle, leader_epoch=0)
        db.compact("t")
        log.move_high_watermark(100, leader_epoch=0)
        assert offsets(log.read(0)) == list(range(middle - 1, 100)), "the key's latest below the high watermark, and all past it"

        log.move_high_watermark(middle, leader_epoch=1)
        db.alter_topic("t", config={"retention.bytes": 0})
        db.enforce_retention("t")
        assert log.start_offset == middle
        log.move_high_watermark(100, leader_epoch=1)
        assert offsets(log.read(middle)) == list(range(middle, 100))
