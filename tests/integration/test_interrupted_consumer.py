"""A consumer with automatic commits that an exception, such as Ctrl-C, takes out of its block: what was processed is committed, and
what may be half processed is not, so that no record is passed by.
"""

import asyncio

import pytest

import logdb
from logdb import serde
from support.places import opened

RECORDS = [b"%d" % number for number in range(10)]


@pytest.fixture
def db(place, tmp_path):
    with opened(place, tmp_path / "db") as database:
        database.create_topic("t")
        database.log("t").append_many(RECORDS)
        yield database


def consumer(db, **options):
    return db.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=True, **options)


def committed(db, partition=0):
    found = {(offset.partition.topic, offset.partition.partition): offset.committed for offset in db.group_offsets("g")}
    return found[("t", partition)].offset if found.get(("t", partition)) else None


def rest(db, **options):
    """What the next member of the group gets."""
    found = []
    with consumer(db, **options) as following:
        while not (at := following.positions()) or any(at[where].offset < db.log(*where).end_offset for where in at):
            found += [record.value for records in following.poll(timeout_ms=1000).values() for record in records]
    return found


@pytest.mark.parametrize("options", [{}, {"value_deserializer": bytes.decode}, {"max_poll_records": 3}], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 10])
def test_the_record_that_iteration_is_at_comes_again(db, count, options):
    processed = []
    with pytest.raises(KeyboardInterrupt), consumer(db, **options) as interrupted:
        for record in interrupted:
            if len(processed) == count - 1:
                raise KeyboardInterrupt
            processed.append(record.offset)
    assert committed(db) in ((count - 1,) if count > 1 else (None, 0))
    assert processed == list(range(count - 1))
    assert rest(db) == RECORDS[count - 1 :]


def test_what_the_last_poll_returned_comes_again(db):
    with pytest.raises(KeyboardInterrupt), consumer(db, max_poll_records=3) as interrupted:
        interrupted.poll(timeout_ms=10_000)
        interrupted.poll(timeout_ms=10_000)
        assert interrupted.positions()["t", 0].offset == 6
        raise KeyboardInterrupt
    assert rest(db) == RECORDS[3:]


def test_what_a_poll_that_was_interrupted_itself_came_after_is_processed(db):
    with pytest.raises(KeyboardInterrupt), consumer(db, max_poll_records=3) as interrupted:
        interrupted.poll(timeout_ms=10_000)
        interrupted._wait = interrupted._tend = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        interrupted._tend_at_ms = None
        interrupted.poll(timeout_ms=10_000)
    assert rest(db) == RECORDS[3:]


def test_iteration_that_has_ended_is_processed(db):
    with pytest.raises(KeyboardInterrupt), consumer(db, iteration_timeout_ms=1000) as interrupted:
        assert len(list(interrupted)) == 10
        raise KeyboardInterrupt
    assert committed(db) == 10


def test_what_the_application_has_committed_itself_stays_so(db):
    with pytest.raises(KeyboardInterrupt), consumer(db, max_poll_records=4) as interrupted:
        interrupted.poll(timeout_ms=10_000)
        interrupted.commit()
        raise KeyboardInterrupt
    assert committed(db) == 4
    with pytest.raises(KeyboardInterrupt), consumer(db, max_poll_records=4) as interrupted:
        interrupted.poll(timeout_ms=10_000)
        interrupted.commit({("t", 0): 6})
        raise KeyboardInterrupt
    assert committed(db) == 6


def test_a_position_that_was_sought_back_to_is_committed(db):
    with pytest.raises(KeyboardInterrupt), consumer(db, max_poll_records=4) as interrupted:
        interrupted.poll(timeout_ms=10_000)
        interrupted.poll(timeout_ms=10_000)
        interrupted.seek(("t", 0), 2)
        raise KeyboardInterrupt
    assert rest(db) == RECORDS[2:]


def test_several_partitions(db):
    db.alter_topic("t", partitions=3)
    for partition in (1, 2):
        db.log("t", partition).append_many(RECORDS)
    seen = []
    with pytest.raises(KeyboardInterrupt), consumer(db) as interrupted:
        for record in interrupted:
            seen.append((record.partition, record.offset))
            if len(seen) == 15:
                raise KeyboardInterrupt
    again = rest(db)
    assert len(again) == 30 - 14


def test_offsets_that_compaction_has_left_out(db):
    db.create_topic("c", config={"cleanup.policy": "compact"})
    log = db.log("c")
    log.append_many([b"old", b"x", b"old", b"old"], keys=[b"a", b"k", b"a", b"a"])
    log.append_many([b"y", b"new"], keys=[b"l", b"a"])
    db.compact("c")
    with pytest.raises(KeyboardInterrupt), db.consumer("c", group_id="g", auto_offset_reset="earliest", enable_auto_commit=True) as first:
        for record in first:
            if record.value == b"y":
                raise KeyboardInterrupt
    with db.consumer("c", group_id="g", auto_offset_reset="earliest", iteration_timeout_ms=1000) as second:
        assert [record.value for record in second] == [b"y", b"new"]


@pytest.mark.local
@pytest.mark.parametrize("options", [{}, {"value_deserializer": serde.string}])
def test_the_same_for_asyncio(tmp_path, options):
    async def interrupted(path):
        async with logdb.aio.open(path) as db:
            await db.create_topic("t")
            await (await db.log("t")).append_many(RECORDS)
            async with db.consumer("t", group_id="g", auto_offset_reset="earliest", enable_auto_commit=True, **options) as consumer:
                async for record in consumer:
                    if record.offset == 4:
                        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(interrupted(tmp_path / "db"))
    with logdb.open(tmp_path / "db") as db:
        assert rest(db) == RECORDS[4:]
