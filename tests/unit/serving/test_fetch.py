"""fetch.py: batches of several partitions, within bounds, once there are enough."""

import asyncio
import threading

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.errors import OffsetNotAvailable, TopicDeleted, UnknownTopic
from logdb.requests.principals import ANONYMOUS
from logdb.serving.fetch import PartitionRead, Wanted, fetch
from logdb.serving.limits import Limits
from logdb.serving.resources import ON_LOOP_COUNT_MAX, DoorResources, RequestResources
from support.followers import open_replica


@pytest.fixture
def db(tmp_path):
    with logdb.open(tmp_path / "db") as db:
        db.create_topic("t", partitions=3)
        yield db


def run(db, story, **limits):
    """Run a story with a request, which gives back what it has taken."""

    async def main():
        access = AccessControl(db._session)
        door = DoorResources(access, Limits(**limits), "logdb-test")
        door.begin_waits()
        request = RequestResources(door, "10.0.0.1")
        request.session = access.session(ANONYMOUS, "10.0.0.1")
        request.take_slot()
        try:
            return await story(request)
        finally:
            request.end()
            door.end_waits()
            door.executor.shutdown()
            access.close()
            assert (door.requests.taken, door.memory.taken, door.threads.taken) == (0, 0, 0)

    return asyncio.run(asyncio.wait_for(main(), 60))


def fill(db, *sizes):
    """A batch of each size in each partition."""
    for partition, size in enumerate(sizes):
        db.log("t", partition).append(bytes(size))
        db.log("t", partition).flush()


def bounds(**given):
    return {"max_bytes": 1 << 20, "min_bytes": 1, "wait_ms": 0, "isolation_level": "read_uncommitted"} | given


def test_partitions_are_read_in_order_up_to_the_bound_and_the_first_always(db):
    fill(db, 5_000, 5_000, 5_000)

    async def story(request):
        reads = [PartitionRead(Wanted("t", partition, 0)) for partition in range(3)]
        await fetch(request, reads, **bounds(max_bytes=6_000))
        assert [bool(read.parts) for read in reads] == [True, False, False]
        assert [read.marks["end_offset"] for read in reads] == [1, 1, 1], "each says where its log ends"
        small = PartitionRead(Wanted("t", 0, 0, max_bytes=1))
        await fetch(request, [small], **bounds())
        assert small.next_offset == 1

    run(db, story)


@pytest.mark.parametrize(("count", "on_loop"), [(ON_LOOP_COUNT_MAX, True), (ON_LOOP_COUNT_MAX + 1, False)])
def test_only_few_partitions_are_read_on_the_loop(db, count, on_loop):
    threads = set()

    class Noted(PartitionRead):
        def read(self, *args, **kwargs):
            threads.add(threading.get_ident())
            super().read(*args, **kwargs)

    async def story(request):
        db.log("t", 0)
        await fetch(request, [Noted(Wanted("t", 0, 0)) for _ in range(count)], **bounds())
        assert (threads == {threading.get_ident()}) == on_loop

    run(db, story)


def test_it_waits_for_enough_of_any_partition(db):
    async def story(request):
        reads = [PartitionRead(Wanted("t", partition, 0)) for partition in range(3)]
        fetching = asyncio.create_task(fetch(request, reads, **bounds(min_bytes=6_000, wait_ms=60_000)))
        for partition in (2, 1):
            while not request.door.waits._bells:
                await asyncio.sleep(0)
            assert not fetching.done()
            await asyncio.to_thread(db.log("t", partition).append, bytes(5_000), durability="os")
            await asyncio.to_thread(db.log("t", partition).flush)
            for _ in range(3):
                await asyncio.sleep(0)
        await fetching
        assert [read.next_offset for read in reads] == [0, 1, 1]
        assert request.door.requests.taken == 1

    run(db, story)


def test_after_a_wait_the_partitions_that_have_grown_are_read_alone(db):
    fill(db, 10, 10, 10)

    class Counted(PartitionRead):
        count = 0

        def read(self, *args, **kwargs):
            self.count += 1
            super().read(*args, **kwargs)

    async def story(request):
        reads = [Counted(Wanted("t", partition, 1)) for partition in range(3)]
        await fetch(request, reads, **bounds(wait_ms=50))
        assert [read.count for read in reads] == [1, 1, 1], "nothing has come: nothing is read again"
        fetching = asyncio.create_task(fetch(request, reads, **bounds(wait_ms=30_000)))
        while not request.door.waits._bells:
            await asyncio.sleep(0)
        db.log("t", 1).append(b"new")
        db.log("t", 1).flush()
        await fetching
        assert [read.count for read in reads] == [2, 3, 2]
        assert [read.next_offset for read in reads] == [1, 2, 1]

    run(db, story)


def test_the_end_of_a_log_in_use_is_read_on_the_loop(db):
    fill(db, 500)

    async def story(request):
        submitted, submit = [], request.door.executor.submit
        request.door.executor.submit = lambda function: submitted.append(function) or submit(function)
        read = PartitionRead(Wanted("t", 0, 1))
        fetching = asyncio.create_task(fetch(request, [read], **bounds(wait_ms=60_000)))
        while not request.door.waits._bells:
            await asyncio.sleep(0)
        db.log("t").append(bytes(500))
        db.log("t").flush(sync=False)
        await fetching
        assert (read.next_offset, len(submitted)) == (2, 0)
        await fetch(request, [PartitionRead(Wanted("t", 0, 0))], **bounds())
        assert len(submitted) == 1, "what lies before the end may be on the disk alone"

    run(db, story)


def test_an_error_of_one_partition_is_kept_and_ends_the_fetch_at_once(db):
    async def story(request):
        reads = [PartitionRead(Wanted("nosuch", 0, 0)), PartitionRead(Wanted("t", 0, 0))]
        await fetch(request, reads, **bounds(wait_ms=60_000))
        assert isinstance(reads[0].error, UnknownTopic)
        assert reads[1].error is None

    run(db, story)


@pytest.mark.parametrize("count", [0, 1, 2], ids=["shorter", "equal", "longer"])
def test_a_topic_that_is_created_again_is_not_read_on(db, count):
    fill(db, 10, 10)

    async def story(request):
        reads = [PartitionRead(Wanted("t", partition, 1)) for partition in range(2)]
        fetching = asyncio.create_task(fetch(request, reads, **bounds(wait_ms=60_000)))
        while not request.door.waits._bells:
            await asyncio.sleep(0)
        db.delete_topic("t")
        db.create_topic("t", partitions=2)
        for partition in range(2):
            db.log("t", partition).append_many([b"new"] * count)
        await fetching
        assert [(type(read.error), read.parts) for read in reads] == [(TopicDeleted, [])] * 2
        of_deleted = PartitionRead(Wanted("t", 0, 0, topic_id=reads[0].topic_id))
        await fetch(request, [of_deleted], **bounds())
        assert isinstance(of_deleted.error, TopicDeleted), "a request that names it is refused, too"

    run(db, story)


def test_it_waits_for_nothing_that_would_not_fit(db):
    fill(db, 500)

    async def story(request):
        read = PartitionRead(Wanted("t", 0, 0, max_bytes=4_000))
        fetching = asyncio.create_task(fetch(request, [read], **bounds(min_bytes=3_000, wait_ms=60_000)))
        while not request.door.waits._bells:
            await asyncio.sleep(0)
        await asyncio.to_thread(db.log("t").append, bytes(5_000))
        await fetching
        assert (read.next_offset, read.is_full) == (1, True)

    run(db, story)


def test_draining_ends_it(db):
    async def story(request):
        read = PartitionRead(Wanted("t", 0, 0))
        fetching = asyncio.create_task(fetch(request, [read], **bounds(wait_ms=60_000)))
        while not request.door.waits._bells:
            await asyncio.sleep(0)
        request.door.end_waits()
        await fetching
        assert (read.parts, read.error) == ([], None)

    run(db, story)


def test_what_a_door_leaves_out_says_where_to_go_on(db):
    fill(db, 100)

    class Nothing(PartitionRead):
        def selected(self, page):
            return ()

    async def story(request):
        read = Nothing(Wanted("t", 0, 0))
        await fetch(request, [read], **bounds(wait_ms=60_000))
        assert (read.next_offset, read.size_bytes, read.is_over) == (1, 0, True)

    run(db, story)


def test_it_takes_at_most_half_of_the_memory(db):
    fill(db, 500)

    async def story(request):
        asked = []
        request.keep_memory = lambda size_bytes: asked.append(size_bytes) or asyncio.sleep(0)
        await fetch(request, [PartitionRead(Wanted("t", 0, 0))], **bounds())
        assert asked[0] == 50_000
        assert asked[1] < 5_000

    run(db, story, memory_bytes_max=100_000)


class Leading:
    """The session of a node that leads the logs of a store."""

    replication = object()

    def __init__(self, store):
        self.log = store.log

    def log_to_read(self, topic, partition, **_):
        return self.log(topic, partition)

    def located(self, error):
        return error


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_a_new_leader_tells_no_end_below_what_was_shown_before(tmp_path, isolation_level):
    def read(offset, **options):
        read = PartitionRead(Wanted("t", 0, offset))
        read.read(Leading(db), 1 << 20, isolation_level, **options)
        return read

    with open_replica(tmp_path / "db", limited=True, batch_size=200) as db:
        db.create_topic("t")
        log = db.log("t")
        log.begin_epoch(1)
        for number in range(12):
            log.append_many([b"%d" % number])
        log.move_high_watermark(5, leader_epoch=1)
        assert read(0).marks["readable_end_offset"] == 5
        log.begin_epoch(2)
        first, full, behind = read(0), read(0, at_least_one=False), read(5)
        assert (first.next_offset, first.marks["readable_end_offset"]) == (5, 12), "up to 12 records may have been acknowledged"
        assert full.next_offset == 5
        assert isinstance(behind.error, OffsetNotAvailable), "the reader asks again"
        log.move_high_watermark(12, leader_epoch=2)
        end = read(12)
        assert (read(5).next_offset, end.error, end.marks["readable_end_offset"]) == (12, None, 12)


def test_a_topic_that_is_created_again_during_a_read_is_another_one(db, monkeypatch):
    """Its log is shorter: the offset is out of range, which says nothing about the topic that is read."""
    read = PartitionRead(Wanted("t", 0, 1, topic_id=db.log("t", 0).topic_id))
    db.delete_topic("t")
    db.create_topic("t")

    async def story(request):
        monkeypatch.setattr(PartitionRead, "_meet", lambda *_: monkeypatch.undo())  # the first look was before that
        read.read(request.session, 1 << 20, "read_uncommitted")

    run(db, story)
    assert isinstance(read.error, TopicDeleted)
