import asyncio
import time

import pytest

from logdb_http_api import memory
from logdb_http_api.errors import ApiError
from logdb_http_api.memory import Memory


def run(story):
    asyncio.run(story())


def test_whoever_finds_no_room_waits_for_it_in_turn():
    async def story():
        shared, order = Memory(100), []

        async def take(size_bytes, name):
            await shared.take(size_bytes)
            order.append(name)

        await shared.take(80)
        waiting = [asyncio.create_task(take(*each)) for each in ((50, "first"), (10, "second"), (100, "third"))]
        await asyncio.sleep(0)
        assert (order, shared.taken_bytes) == ([], 80), "the second would fit, and waits for its turn"
        shared.give_back(80)
        await asyncio.gather(*waiting[:2])
        assert (order, shared.taken_bytes) == (["first", "second"], 60)
        shared.give_back(60)
        await waiting[2]
        assert shared.taken_bytes == 100

    run(story)


def test_what_is_larger_than_all_there_is_is_taken_alone():
    async def story():
        shared = Memory(100)
        await shared.take(500)
        assert shared.taken_bytes == 500
        shared.give_back(500)
        await shared.take(1)

    run(story)


def test_whoever_waits_too_long_is_refused_and_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(memory, "_WAIT_S", 0.01)

    async def story():
        shared = Memory(100)
        await shared.take(60)
        with pytest.raises(ApiError, match="no room for 50 bytes") as caught:
            await shared.take(50)
        assert caught.value.status == 503
        await shared.take(40)
        shared.give_back(100)
        assert shared.taken_bytes == 0

    run(story)


def test_whoever_goes_while_waiting_takes_nothing():
    async def story():
        shared = Memory(100)
        await shared.take(100)
        waiting = [asyncio.create_task(shared.take(100)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        shared.give_back(100)  # given to the first, which is gone
        await asyncio.wait(waiting)
        assert waiting[0].cancelled()
        assert shared.taken_bytes == 100
        shared.give_back(100)
        assert shared.taken_bytes == 0

    run(story)


def test_a_turn_that_comes_in_the_moment_of_the_refusal_is_given_back(monkeypatch):
    monkeypatch.setattr(memory, "_WAIT_S", 0.01)

    async def story():
        shared, loop = Memory(100), asyncio.get_running_loop()
        await shared.take(100)

        def stall():
            loop.call_soon(shared.give_back, 100)  # before the timer, which has run out when the loop goes on
            time.sleep(0.05)

        waiting = asyncio.create_task(shared.take(50))
        await asyncio.sleep(0)
        loop.call_soon(stall)
        with pytest.raises(ApiError, match="no room for 50 bytes"):
            await waiting
        assert shared.taken_bytes == 0

    run(story)
