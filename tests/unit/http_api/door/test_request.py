"""request.py: what HTTP's request adds to the resources of any request (serving/resources.py)."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logdb.requests.principals import Principal
from logdb.serving.shares import Shares
from logdb_http_api.door.request import Request

ANN, BEN = Principal("User", "ann"), Principal("User", "ben")


class Door:
    """As much of a door as requests need here."""

    def __init__(self) -> None:
        self.requests, self.memory, self.threads, self.decoding = (Shares(4, what) for what in ("requests", "bytes", "threads", "bodies"))
        self.executor = ThreadPoolExecutor(4)


def of(door: Door, principal: Principal = ANN, host: str = "10.0.0.7") -> Request:
    request = Request(cast(Any, SimpleNamespace(remote=host)), cast(Any, door))
    request.begin(cast(Any, SimpleNamespace(principal=principal, host=host, owner=principal)), {})
    return request


def run(story: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    door = Door()
    try:
        asyncio.run(story(door))
    finally:
        door.executor.shutdown()
    assert [shares.taken for shares in (door.requests, door.memory, door.threads, door.decoding)] == [0, 0, 0, 0]


def test_a_large_body_whose_client_is_gone_keeps_its_turn() -> None:
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


@pytest.mark.parametrize(("size_bytes", "on_loop", "decoding"), [(4 << 10, True, 0), (64 << 10, False, 0), (65 << 10, False, 1)])
def test_json_is_parsed_off_the_loop_and_large_json_few_at_a_time(size_bytes: int, on_loop: bool, decoding: int) -> None:
    async def story(door: Door) -> None:
        def parse(data: Any) -> tuple[int, bool, int]:
            return len(data), threading.current_thread() is threading.main_thread(), door.decoding.taken

        assert await of(door).parsed(bytes(size_bytes), parse) == (size_bytes, on_loop, decoding)

    run(story)
