"""request.py: what a request has of what all requests share, and when it gives it back."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logdb.access.principals import ANONYMOUS, Principal
from logdb.serving.resources import owner_of
from logdb.serving.shares import NoRoom, Shares
from logdb_http_api.door.request import Request

ANN, BEN = Principal("User", "ann"), Principal("User", "ben")


class Door:
    """As much of a door as requests need here."""

    def __init__(self) -> None:
        self.requests, self.memory, self.threads, self.decoding = (Shares(4, what) for what in ("requests", "bytes", "threads", "bodies"))
        self.executor = ThreadPoolExecutor(4)


def of(door: Door, principal: Principal = ANN, host: str = "10.0.0.7") -> Request:
    request = Request(cast(Any, SimpleNamespace(remote=host)), cast(Any, door))
    request.begin(cast(Any, SimpleNamespace(principal=principal, host=host)), {})
    return request


def run(story: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    door = Door()
    try:
        asyncio.run(story(door))
    finally:
        door.executor.shutdown()
    assert [shares.taken for shares in (door.requests, door.memory, door.threads, door.decoding)] == [0, 0, 0, 0]


def test_what_is_shared_is_counted_for_principals_or_for_addresses_where_nobody_says_who_they_are() -> None:
    def owner(principal: Principal, host: str) -> Any:
        return owner_of(cast(Any, SimpleNamespace(principal=principal, host=host)))

    assert owner(ANN, "10.0.0.7") == owner(ANN, "10.0.0.8") != owner(BEN, "10.0.0.7")
    assert owner(ANONYMOUS, "10.0.0.7") != owner(ANONYMOUS, "10.0.0.8")
    assert owner(ANONYMOUS, "2001:db8::1") == owner(ANONYMOUS, "2001:db8::2") != owner(ANONYMOUS, "2001:db8:1::1")


def test_a_principal_has_half_of_the_slots_and_another_finds_one() -> None:
    async def story(door: Door) -> None:
        requests = [of(door) for _ in range(3)]
        for request in requests[:2]:
            request.take_slot()
        with pytest.raises(NoRoom, match="no room for 1 requests: 2 of 4 are taken, 2 of them by you"):
            requests[2].take_slot()
        other = of(door, BEN)
        other.take_slot()
        for request in (*requests, other):
            request.end()

    run(story)


def test_a_request_that_waits_has_no_slot_however_deep_it_waits() -> None:
    async def story(door: Door) -> None:
        request = of(door)
        request.take_slot()
        with request.waiting():
            assert door.requests.taken == 0
            with request.waiting():
                assert door.requests.taken == 0
            assert door.requests.taken == 0
        assert door.requests.taken == 1
        request.end()
        with of(door).waiting():
            assert door.requests.taken == 0, "it had none"

    run(story)


def test_a_thread_is_not_free_before_it_is_done_whatever_becomes_of_the_request() -> None:
    async def story(door: Door) -> None:
        began, go_on = threading.Semaphore(0), threading.Event()

        def work() -> None:
            began.release()
            go_on.wait(30)

        tasks = [asyncio.ensure_future(of(door).call(work)) for _ in range(3)]
        await asyncio.to_thread(lambda: (began.acquire(timeout=30), began.acquire(timeout=30)))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert door.threads.taken == 2, "the third had none yet"
        assert await of(door, BEN).call(lambda: "done") == "done"
        go_on.set()
        while door.threads.taken:
            await asyncio.sleep(0)

    run(story)


def test_a_large_body_that_is_parsed_for_nobody_keeps_its_turn() -> None:
    """Who hangs up and comes again would have as many parsed at once as there are threads."""

    async def story(door: Door) -> None:
        began, go_on = threading.Event(), threading.Event()

        def parse(_: Any) -> None:
            began.set()
            go_on.wait(30)

        door.decoding = Shares(2, "bodies")
        task = asyncio.ensure_future(of(door).parsed(bytes(100_000), parse))
        await asyncio.to_thread(began.wait, 30)
        task.cancel()
        await asyncio.wait((task,))
        assert not door.decoding.has_room(1, ANN)
        assert await of(door, BEN).parsed(bytes(100_000), len) == 100_000
        go_on.set()
        while door.threads.taken:
            await asyncio.sleep(0)

    run(story)


def test_memory_is_kept_down_to_what_is_held() -> None:
    async def story(door: Door) -> None:
        request = of(door)
        for size_bytes in (2, 1, 2, 0):
            await request.keep_memory(size_bytes)
            assert door.memory.taken == size_bytes
        await request.take_memory(2)
        request.end()

    run(story)


@pytest.mark.parametrize(("size_bytes", "on_loop", "decoding"), [(4 << 10, True, 0), (64 << 10, False, 0), (65 << 10, False, 1)])
def test_json_is_parsed_off_the_loop_and_large_json_few_at_a_time(size_bytes: int, on_loop: bool, decoding: int) -> None:
    async def story(door: Door) -> None:
        def parse(data: Any) -> tuple[int, bool, int]:
            return len(data), threading.current_thread() is threading.main_thread(), door.decoding.taken

        assert await of(door).parsed(bytes(size_bytes), parse) == (size_bytes, on_loop, decoding)

    run(story)
