"""logdb for asyncio: the whole API, and a loop that nothing holds up."""

import asyncio
import contextlib
import functools
import inspect
import threading
import time
import traceback

import pytest

import logdb
import logdb.aio
from logdb.aio.mirror import Wake
from logdb.aio.security import SecurityAdmin
from logdb.client import security_admin
from logdb.client.consumer import consumer as consumers
from logdb.client.producer import producer as producers
from logdb.client.producer import transaction as transactions
from logdb.client.table import table as tables
from logdb.errors import Closed, CorruptionError, InvalidTransactionState, OffsetOutOfRange, ReadOnly, UnknownTopic
from logdb.model import OffsetAndMetadata, TopicPartition
from logdb_http_api.remote import connections
from support.serving import served

T0 = TopicPartition("t", 0)


def run(place, tmp_path, story, **options):
    """Run a coroutine function with a new database, in a directory or behind a URL, of which no loop's thread asks anything."""

    async def main(where, **options):
        async with logdb.aio.open(where, **options) as db:
            await db.create_topic("t", partitions=2, if_not_exists=True)
            await story(db)

    take, held_up = connections.Connections.take, []

    def off_the_loop(self, timeout_s, **options):
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            held_up.append("".join(traceback.format_stack(limit=8)))
        return take(self, timeout_s, **options)

    if place == "path":
        asyncio.run(main(tmp_path / "db", **options))
    else:
        with served(tmp_path / "db") as server, pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections.Connections, "take", off_the_loop)
            asyncio.run(main(server.url))
    assert not held_up, held_up[0]


# ---------------------------------------------------------------- the mirror

_LEFT_OUT = {
    "Database": {"on_close", "session"},
    "Log": {"durability", "epoch_at", "readable_end_offset", "unwatch", "watch"},
    "Producer": {"refresh", "would_wait"},
    "TransactionalProducer": {"give_up", "id", "refresh", "usable", "would_wait"},
    "Transaction": {"would_wait"},
    "Table": set(),
    "Consumer": {"commit_async", "watch"},
}


@pytest.mark.parametrize(
    ("own", "sync"),
    [
        (logdb.aio.Database, logdb.Database),
        (logdb.aio.Log, logdb.Log),
        (logdb.aio.Producer, producers.Producer),
        (logdb.aio.TransactionalProducer, transactions.TransactionalProducer),
        (logdb.aio.Transaction, transactions.Transaction),
        (logdb.aio.Consumer, consumers.Consumer),
        (logdb.aio.Table, tables.Table),
        (SecurityAdmin, security_admin.SecurityAdmin),
    ],
)
def test_everything_is_there_and_documented(own, sync):
    def public(of):
        return {name for name in dir(of) if not name.startswith("_")}

    assert public(sync) - public(own) == _LEFT_OUT.get(own.__name__, set())
    for name in public(own) & public(sync):
        member = inspect.getattr_static(own, name)
        if callable(member):
            assert member.__doc__, name


# ---------------------------------------------------------------- logs


def test_a_log(place, tmp_path):
    async def story(db):
        log = await db.log("t")
        assert (log.topic, log.partition, await log.start_offset) == ("t", 0, 0)
        assert await log.append(b"0", b"k", timestamp_ms=0) == 0
        assert await log.append_many([b"%d" % number for number in range(1, 2000)], timestamps_ms=range(1, 2000)) == range(1, 2000)
        await log.flush()
        assert (await log.end_offset, await log.last_stable_offset, await log.offset_for_timestamp(1999)) == (2000, 2000, 1999)
        assert [record.value async for record in log.read(0)] == [b"%d" % number for number in range(2000)]
        assert [record.offset async for record in log.read(5, end_offset=8)] == [5, 6, 7]
        batches, next_offset = await log.read_batches(0)
        assert len(batches) > 2000 and next_offset > 0
        assert sum([batch.num_rows async for batch in log.read_arrow(columns=["value"])]) == 2000
        assert [record.offset async for record in db.read("t", start={0: 1998})] == [1998, 1999]
        assert [batch.num_rows async for batch in db.read_arrow("t", columns=["value"], end=7)] == [7]
        assert ((await log.get(3)).value, [record.offset for record in await log.tail(2)]) == (b"3", [1998, 1999])
        with pytest.raises(OffsetOutOfRange):
            await anext(log.read(5000))
        with pytest.raises(UnknownTopic):
            await db.log("nosuch")
        info = await db.describe_topic("t")
        assert info.partitions[0].end_offset == 2000 and await log.size_bytes > 2000
        assert repr(log).startswith(("<aio <Log t-0", "<aio <RemoteLog t-0"))

    run(place, tmp_path, story)


def test_reading_comes_to_damage(tmp_path):
    async def story(db):
        log = await db.log("t")
        for first in (0, 300):
            await log.append_many([b"%d" % number for number in range(first, first + 300)])
            await log.flush()
        with open(tmp_path / "db" / "t-0" / f"{0:020}.log", "r+b") as file:
            file.seek(-1, 2)
            file.write(b"!")
        seen = []
        with pytest.raises(CorruptionError):
            async for record in log.read(0):
                seen.append(record.offset)  # noqa: PERF401  # a comprehension would lose them
        assert seen == list(range(300))

    run("path", tmp_path, story)


def test_following_a_log(place, tmp_path):
    async def story(db):
        log, stop, seen = await db.log("t"), asyncio.Event(), []

        async def follow():
            async for record in log.follow(0, stop=stop):
                seen.append(record.value)
                if record.value == b"9":
                    stop.set()

        task = asyncio.create_task(follow())
        for number in range(10):
            await log.append(b"%d" % number)
            await asyncio.sleep(0)
        await asyncio.wait_for(task, 30)
        assert seen == [b"%d" % number for number in range(10)]
        assert [record.offset async for record in log.follow(8, timeout_ms=10)] == [8, 9]

    run(place, tmp_path, story)


# ---------------------------------------------------------------- producers and transactions


def test_producing(place, tmp_path):
    async def story(db):
        async with db.producer() as producer:
            futures = [await producer.send("t", b"%d" % number, key=b"k%d" % (number % 7)) for number in range(2000)]
            metadata = [await future for future in futures]
            assert len({(one.partition, one.offset) for one in metadata}) == 2000
            assert futures[0].done() and futures[0].result() == metadata[0] == await futures[0]
            with pytest.raises(UnknownTopic):
                await producer.send("nosuch", b"")
        with pytest.raises(Closed):
            await producer.send("t", b"")

    run(place, tmp_path, story)


def test_a_producer_without_room_holds_up_its_sender_and_not_the_loop(place, tmp_path):
    async def story(db):
        held, ticks = threading.Event(), 0
        async with db.producer(buffer_memory=131_072, linger_ms=0) as producer:
            await (await producer.send("t", b"", partition=0))
            append = db._sync._session.submit_batches
            db._sync._session.submit_batches = lambda *args: (held.wait(30), append(*args))[1]

            async def send():
                return [await producer.send("t", bytes(1000), partition=0) for _ in range(200)]

            sending = asyncio.create_task(send())
            while ticks < 20:
                await asyncio.sleep(0.001)
                ticks += 1
            assert not sending.done()
            held.set()
            assert max([(await future).offset for future in await sending]) == 200

    run(place, tmp_path, story)


def test_consume_transform_produce(place, tmp_path):
    async def story(db):
        await db.create_topic("out")
        await db.append_many("t", [b"%d" % number for number in range(500)])
        async with db.consumer("t", group_id="g", auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
            seen = 0
            while seen < 500:
                async with db.transaction("etl") as tx:
                    for records in (await consumer.poll(1000, 100)).values():
                        for record in records:
                            await tx.send("out", record.value)
                            seen += 1
                    await tx.send_offsets(consumer)
            before = consumer.positions()
            await db.append("t", b"late")
            with contextlib.suppress(KeyError):
                async with db.transaction("etl") as tx:
                    (records,) = (await consumer.poll(1000)).values()
                    await tx.send("out", records[0].value)
                    await tx.send_offsets(consumer)
                    raise KeyError
            assert {partition: await consumer.position(partition) for partition in before} == {p: at.offset for p, at in before.items()}
        log = await db.log("out")
        values = [int(record.value) async for record in log.read(0, isolation_level="read_committed")]
        assert sorted(values) == list(range(500))

    run(place, tmp_path, story)


def test_a_transactional_producer(place, tmp_path):
    async def story(db):
        async with db.producer(transactional_id="x") as producer:
            await producer.init_transactions()
            for commit in (True, False):
                await producer.begin_transaction()
                await producer.send("t", b"%d" % commit, partition=0)
                await producer.flush()
                await (producer.commit_transaction() if commit else producer.abort_transaction())
        log = await db.log("t")
        assert [record.value async for record in log.read(0, isolation_level="read_committed")] == [b"1"]
        assert len(await log.aborted_transactions(0, await log.end_offset)) == 1 and await log.open_transactions() == []

    run(place, tmp_path, story)


def test_a_producer_without_an_id_says_how_to_get_transactions(place, tmp_path):
    async def story(db):
        async with db.producer() as producer:
            for wrong in (producer.begin_transaction, producer.commit_transaction, functools.partial(producer.send_offsets, None)):
                with pytest.raises(InvalidTransactionState, match="transactional_id="):
                    await wrong()

    run(place, tmp_path, story)


# ---------------------------------------------------------------- consumers


def test_a_consumer(place, tmp_path):
    async def story(db):
        log = await db.log("t")
        await log.append_many([b"%d" % number for number in range(1000)], timestamps_ms=range(1000))
        async with db.consumer("t", group_id="g", auto_offset_reset="earliest", iteration_timeout_ms=0) as consumer:
            taken = await consumer.poll(1000, 10)
            assert [record.offset for record in taken[T0]] == list(range(10))
            assert (consumer.assignment(), consumer.subscription(), consumer.paused()) == ([T0, ("t", 1)], ("t",), [])
            await consumer.commit()
            assert await consumer.committed(T0) == OffsetAndMetadata(10, 0)
            count = 0
            async for record in consumer:
                count += 1
                assert record.offset == 9 + count
                if count in (1, 490, 491):
                    assert consumer.positions()[T0].offset == 10 + count
            assert count == 990 and await consumer.lag(T0) == 0
            await consumer.seek_to_timestamp(500, T0)
            await consumer.pause(T0)
            assert await consumer.poll(20) == {}
            await consumer.resume(T0)
            assert (await consumer.poll(1000, 1))[T0][0].offset == 500
            assert await consumer.offsets_for_times({T0: 7}) == {T0: 7}
            assert (await consumer.beginning_offsets([T0]), await consumer.end_offsets([T0])) == ({T0: 0}, {T0: 1000})
            assert consumer.group_metadata().group_id == "g"

    run(place, tmp_path, story)


def test_poll_waits_without_a_thread(place, tmp_path):
    async def story(db):
        consumers_ = [await db.consumer("t") for _ in range(100)]
        polls = [asyncio.create_task(consumer.poll(30_000)) for consumer in consumers_]
        began = time.monotonic()
        while time.monotonic() - began < 0.2:
            await asyncio.sleep(0.01)
        assert not any(poll.done() for poll in polls)
        await db.append("t", b"x", b"k")
        for poll in polls:
            (records,) = (await poll).values()
            assert [record.value for record in records] == [b"x"]
        assert sum(thread.name.startswith("logdb-aio") for thread in threading.enumerate()) <= 32

    run(place, tmp_path, story)


def test_calls_of_a_consumer_are_carried_out_one_after_the_other(place, tmp_path):
    asked, looked = threading.Event(), threading.Event()

    def deserialize(data):
        asked.set()
        assert looked.wait(60)
        return data

    async def story(db):
        await db.append("t", b"1", partitioner=lambda _key, _count: 0)
        consumer = await db.consumer(auto_offset_reset="earliest", value_deserializer=deserialize)
        await consumer.assign([T0])
        polling = asyncio.create_task(consumer.poll(timeout_ms=10_000))
        await asyncio.to_thread(asked.wait)
        asking = asyncio.create_task(consumer.position(T0))
        while not (consumer.turn._waiters or asking.done()):
            await asyncio.sleep(0.001)
        overtaken = asking.done()
        looked.set()
        assert (overtaken, await asking) == (False, 1)
        await polling

    run(place, tmp_path, story)


def test_a_cancelled_poll_loses_nothing(place, tmp_path):
    async def story(db):
        log = await db.log("t")
        await log.append_many([b"%d" % number for number in range(300)])
        async with db.consumer("t", auto_offset_reset="earliest", max_poll_records=1) as consumer:
            numbers = []
            for number in range(300):
                task = asyncio.create_task(consumer.poll())
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    numbers += [int(record.value) for records in (await task).values() for record in records]
            while taken := await consumer.poll(20):
                numbers += [int(record.value) for records in taken.values() for record in records]
            assert numbers == list(range(300))

    run(place, tmp_path, story)


def test_more_listeners_than_threads(place, tmp_path):
    """Each waits, in its group's rebalance, until all of them do: none of them may take what the others need."""

    async def story(db):
        groups = [[await db.consumer(group_id=f"g{number}", auto_offset_reset="earliest") for _ in range(2)] for number in range(40)]
        revoked, all_revoked = 0, asyncio.Event()

        async def on_revoked(consumer):
            nonlocal revoked
            await consumer.commit()
            revoked += 1
            if revoked == 32:
                all_revoked.set()
            await asyncio.wait_for(all_revoked.wait(), 30)
            await consumer.commit()

        for first, second in groups:
            await first.subscribe("t", on_revoked=lambda _, consumer=first: on_revoked(consumer))
            await first.poll()
            await second.subscribe("t")
            await second.poll()
        await asyncio.wait_for(asyncio.gather(*(first.poll() for first, _ in groups)), 20)
        assert revoked == 40

    run(place, tmp_path, story)


def test_members_of_a_group_with_listeners_that_commit(place, tmp_path):
    async def story(db):
        await db.append_many("t", [b"%d" % number for number in range(3000)])
        numbers, done = [], asyncio.Event()

        async def member():
            consumer = await db.consumer(group_id="g", auto_offset_reset="earliest", max_poll_records=50)

            async def commit(_):
                await consumer.commit()

            async with consumer:
                await consumer.subscribe("t", on_revoked=commit, on_assigned=lambda _: None)
                while not done.is_set():
                    for records in (await consumer.poll(20)).values():
                        numbers.extend(int(record.value) for record in records)
                    if len(numbers) >= 3000:
                        done.set()

        await asyncio.wait_for(asyncio.gather(*(member() for _ in range(3))), 60)
        assert sorted(numbers) == list(range(3000))

    run(place, tmp_path, story)


# ---------------------------------------------------------------- tables, administration


def test_a_table(place, tmp_path):
    async def story(db):
        await db.append_many("t", [b"%d" % number for number in range(2000)], [b"k%04d" % (number % 1000) for number in range(2000)])
        table = await db.table("t", value_deserializer=int)
        assert (table.topic, await table.count(), await table["k0007"], await table.get("nosuch", 5)) == ("t", 1000, 1007, 5)
        assert await table.contains("k0999") and not await table.contains("k1000")
        with pytest.raises(KeyError):
            await table["nosuch"]
        model = {b"k%04d" % number: 1000 + number for number in range(1000)}
        assert {key: value async for key, value in table.items()} == model
        assert [key async for key in table] == [key async for key in table.keys()] == sorted(model)  # noqa: SIM118
        assert [value async for value in table.values()] == [entry.value async for entry in table.entries()] == sorted(model.values())
        metadata = await db.append("t", b"5", b"k0007")
        assert await table.wait_for({TopicPartition("t", metadata.partition): metadata.offset}, 10_000)
        entry = await table.entry("k0007")
        assert (entry.value, entry.offset) == (5, metadata.offset)

    run(place, tmp_path, story)


def test_administration(place, tmp_path):
    async def story(db):
        await db.append("t", b"x", b"k")
        async with db.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
            await consumer.poll(1000)
            await consumer.commit()
            assert [member.client_id for member in (await db.describe_group("g")).members] == ["logdb"]
        assert [group.group_id for group in await db.groups()] == ["g"]
        await db.reset_offsets("g", {T0: 0})
        assert {row.partition: row.committed.offset for row in await db.group_offsets("g")}[T0] == 0
        await db.delete_group("g")
        assert await db.groups() == [] and await db.transactions() == [] and await db.reports == ()
        await db.security.add_user("root", "secret", super_user=True)

    run(place, tmp_path, story)


# ---------------------------------------------------------------- opening, closing, the loop


def test_opening_and_closing(tmp_path):
    async def main():
        db = await logdb.aio.open(tmp_path / "db")
        assert (db.mode, db.path, await db.reports) == ("a", str(tmp_path / "db"), ())
        await db.create_topic("t")
        await db.append("t", b"x")
        await db.flush()
        assert [topic.name for topic in await db.topics()] == ["t"]
        assert (await db.verify()).ok
        async with logdb.aio.open(tmp_path / "db", mode="r") as reader:
            log = await reader.log("t")
            assert [record.value async for record in log.read(0)] == [b"x"]
            with pytest.raises(ReadOnly):
                await log.append(b"y")
            async with await reader.consumer("t", auto_offset_reset="earliest") as consumer:
                assert len(await consumer.poll(1000)) == 1
                await db.append("t", b"y")
                await db.flush()
                assert len(await consumer.poll(10_000)) == 1
        await db.close()
        await db.close()
        with pytest.raises(Closed):
            await db.topics()
        with pytest.raises(logdb.errors.NotADatabase):
            await logdb.aio.open(tmp_path / "nosuch", mode="r")

    asyncio.run(main())


def test_the_loop_is_not_held_up_by_a_disk(tmp_path):
    """All syncs wait for an event that the loop itself sets."""
    slow = threading.Event()

    class SlowDisk(logdb.IO):
        def fdatasync(self, fd):
            slow.wait(30)
            super().fdatasync(fd)

    async def story(db):
        log = await db.log("t")
        slow.clear()
        appends = [asyncio.create_task(log.append(b"%d" % number, durability="fsync")) for number in range(5)]
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not any(append.done() for append in appends)
        slow.set()
        assert sorted([await append for append in appends]) == list(range(5))

    slow.set()
    run("path", tmp_path, story, io=SlowDisk())


def test_many_appends_call_the_loop_once_before_it_looks(monkeypatch):
    """Each call costs the thread that appends a call of the system, for each coroutine that waits."""

    async def main():
        wake, loop, called = Wake(), asyncio.get_running_loop(), []
        told = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *args: (called.append(args), told(*args)))
        for count in (1, 2):
            for _ in range(100):
                wake.set()
            await wake.wait_for(60_000)
            assert len(called) == count
            wake.clear()

    asyncio.run(main())
