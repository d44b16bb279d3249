"""v2/instances.py: whose instances are, how many there may be, and when they end."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.access.access_control import AccessControl
from logdb.client.consumer.config import ConsumerConfig
from logdb.io import IO
from logdb.requests.principals import ANONYMOUS, Principal
from logdb.requests.users import Quota
from logdb.serving.shares import Shares
from logdb_http_api.door.limits import HttpLimits
from logdb_http_api.errors import ApiError
from logdb_http_api.v2.formats import JSON, RecordsAnswer
from logdb_http_api.v2.instances import Id, Instance, Instances, Reading

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
READING = Reading(JSON, 0, None)


async def nothing() -> None:
    """What is to be done with the records."""


class Clock(IO):
    """Stands still unless it is told to go on."""

    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class Some:
    """Instances on a real session, with limits that are soon reached."""

    def __init__(self, database: logdb.Database, clock: Clock) -> None:
        self.all = Instances(HttpLimits(instances_max=3, instances_per_principal_max=2, instance_idle_ms=1_000), Shares(1 << 30, "bytes"))
        self.clock, self.session = clock, AccessControl(database._session).session(ANONYMOUS, "")  # type: ignore[arg-type]

    def add(self, principal: Principal, name: str, reading: Reading = READING) -> Instance:
        config = ConsumerConfig(group_id="g", auto_offset_reset="earliest", iteration_timeout_ms=0)
        self.all.add(Id(principal, "g", name), self.session, config, reading)
        return self.all.get(Id(principal, "g", name))

    def refusal(self, principal: Principal, name: str) -> int:
        with pytest.raises(ApiError) as refused:
            self.add(principal, name)
        return refused.value.code


def run(path: Path, test: "Coroutine[Any, Any, None] | Any") -> None:
    clock = Clock()

    @asynccontextmanager
    async def some() -> AsyncIterator[Some]:
        with logdb.open(path / "db", io=clock) as database:
            database.create_topic("t")
            database.log("t", 0).append_many([b"1", b"2", b"3"])
            instances = Some(database, clock)
            try:
                yield instances
            finally:
                await instances.all.close()

    async def main() -> None:
        async with some() as instances:
            await test(instances)

    asyncio.run(main())


def test_an_instance_is_its_makers_alone(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        mine = some.add(ALICE, "i")
        with pytest.raises(ApiError, match="not found"):
            some.all.get(Id(BOB, "g", "i"))
        with pytest.raises(ApiError, match="not found"):
            await some.all.remove(Id(BOB, "g", "i"))
        assert some.add(BOB, "i") is not mine
        assert some.refusal(ALICE, "i") == 40902

    run(tmp_path, test)


def test_there_are_so_many_and_no_more(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        some.add(ALICE, "a")
        some.add(ALICE, "b")
        assert some.refusal(ALICE, "c") == 50301
        some.add(BOB, "a")
        assert some.refusal(BOB, "b") == 50301
        await some.all.remove(Id(ALICE, "g", "a"))
        some.add(BOB, "b")
        assert len(some.all) == 3

    run(tmp_path, test)


def test_what_is_left_alone_goes_and_makes_room(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        some.add(ALICE, "old")
        some.clock.now_ms = 999
        used = some.add(ALICE, "used")
        some.clock.now_ms = 1_000
        some.add(ALICE, "new")
        await used.use(used.consumer.assign([("t", 0)]))
        some.clock.now_ms = 1_999
        some.all.sweep()
        assert len(some.all) == 2
        some.clock.now_ms = 2_000
        some.all.sweep()
        assert len(some.all) == 0

    run(tmp_path, test)


def test_what_is_left_alone_goes_by_itself(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        some.add(ALICE, "i")
        some.clock.now_ms = 1_000
        async with asyncio.timeout(30):
            while len(some.all):
                await asyncio.sleep(0.01)

    run(tmp_path, test)


def test_an_instance_that_waits_is_not_idle(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        waiting = some.add(ALICE, "i", Reading(JSON, 1_000_000, None))
        await waiting.use(waiting.consumer.assign([("t", 0)]))
        waiting.mode = "partitions"
        task = asyncio.create_task(waiting.use(waiting.read(RecordsAnswer(JSON, 1_000_000), 60_000, nothing)))
        await asyncio.sleep(0)
        some.clock.now_ms = 5_000
        some.all.sweep()
        assert len(some.all) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = RecordsAnswer(JSON, 1_000_000)
        await waiting.use(waiting.read(found, 0, nothing))
        assert [record.split(b'"value":')[1][:1] for record in found.body().split(b"},{")] == [b"1", b"2", b"3"], "all was given back"

    run(tmp_path, test)


def test_a_read_that_is_cancelled_gives_back_at_any_moment(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        instance = some.add(ALICE, "i", Reading(JSON, 1_000_000, None))
        await instance.use(instance.consumer.assign([("t", 0)]))
        instance.mode = "partitions"
        for turns in range(1, 12):
            task = asyncio.create_task(instance.use(instance.read(RecordsAnswer(JSON, 1_000_000), 60_000, nothing)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await instance.consumer.position(("t", 0)) == 0, f"after {turns} turns"

    run(tmp_path, test)


def test_a_read_that_is_cancelled_while_another_call_is_under_way_gives_back_after_it(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        instance = some.add(ALICE, "i", Reading(JSON, 1_000_000, None))
        await instance.use(instance.consumer.assign([("t", 0)]))
        instance.mode = "partitions"
        found = RecordsAnswer(JSON, 1_000_000)
        task = asyncio.create_task(instance.use(instance.read(found, 60_000, nothing)))
        while not len(found):
            await asyncio.sleep(0)
        async with instance.consumer.turn:
            some.session.log("t", 0).append(b"4")  # wakes the read, which waits for its turn
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await instance.consumer.position(("t", 0)) == 0

    run(tmp_path, test)


def test_what_a_quota_holds_back_is_answered_when_all_are_closed(tmp_path: Path) -> None:
    async def test(some: Some) -> None:
        access = some.session._access
        access.quotas.configure({None: Quota(fetch_bytes=1)})
        instance = some.add(ALICE, "i")
        await instance.use(instance.consumer.assign([("t", 0)]))
        instance.mode = "partitions"
        found = RecordsAnswer(JSON, 1_000_000)
        reading = asyncio.create_task(instance.use(instance.read(found, 0, nothing)))
        while not access.metrics.counts().throttled_ms:
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await some.all.close()
            await reading
        assert len(found) == 3

    run(tmp_path, test)


def test_what_cannot_be_finished_is_given_back(tmp_path: Path) -> None:
    async def no_room() -> None:
        raise ApiError(503, 503, "no room")

    async def test(some: Some) -> None:
        instance = some.add(ALICE, "i")
        await instance.use(instance.consumer.assign([("t", 0)]))
        instance.mode = "partitions"
        with pytest.raises(ApiError, match="no room"):
            await instance.use(instance.read(RecordsAnswer(JSON, 1_000_000), 60_000, no_room))
        assert await instance.consumer.position(("t", 0)) == 0

    run(tmp_path, test)
