"""resources.py: what a request has of the resources that all requests share, and when it gives them back."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logdb.codec.batch import HEADER_SIZE_BYTES, build_batch
from logdb.codec.compression import ZSTD, compress
from logdb.model import TopicPartition
from logdb.requests.principals import ANONYMOUS, Principal
from logdb.serving.limits import Limits
from logdb.serving.resources import DoorResources, RequestResources
from logdb.serving.shares import NoRoom, Shares

ANN, BEN = Principal("User", "ann"), Principal("User", "ben")


class Door:
    """As much of a door as requests need here."""

    def __init__(self) -> None:
        self.requests, self.memory, self.threads = (Shares(4, what) for what in ("requests", "bytes", "threads"))
        self.executor = ThreadPoolExecutor(4)


def of(door: Door, principal: Principal = ANN, host: str = "10.0.0.7") -> RequestResources:
    session = cast(Any, SimpleNamespace(principal=principal, host=host, give_up=lambda: None))
    request = RequestResources(cast(Any, door), host if principal == ANONYMOUS else principal)
    request.session = session
    return request


def run(story: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    door = Door()
    try:
        asyncio.run(story(door))
    finally:
        door.executor.shutdown()
    assert [shares.taken for shares in (door.requests, door.memory, door.threads)] == [0, 0, 0]


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


def test_memory_is_kept_down_to_what_is_held() -> None:
    async def story(door: Door) -> None:
        request = of(door)
        for size_bytes in (2, 1, 2, 0):
            await request.keep_memory(size_bytes)
            assert door.memory.taken == size_bytes
        await request.take_memory(2)
        request.end()

    run(story)


def drained(story: Callable[[DoorResources, RequestResources], Coroutine[Any, Any, None]], **session: Any) -> None:
    """Run a story with a whole door, of which it is the only request."""

    async def main() -> None:
        access = SimpleNamespace(waits=lambda: SimpleNamespace(release=lambda: None), appends_at_once=lambda *_: True)
        door = DoorResources(cast(Any, access), Limits(), "logdb-test")
        door.begin_waits()
        request = RequestResources(door, ANN)
        request.session = cast(Any, SimpleNamespace(**session))
        try:
            await asyncio.wait_for(story(door, request), 60)
        finally:
            door.executor.shutdown()

    asyncio.run(main())


def test_draining_ends_what_waits_for_other_clients() -> None:
    async def story(door: DoorResources, request: RequestResources) -> None:
        request.take_slot()
        waiting = asyncio.create_task(request.outcome(Future()))
        await asyncio.sleep(0)
        assert door.requests.taken == 0
        door.end_waits()
        with pytest.raises(NoRoom, match="the server is draining"):
            await waiting
        with pytest.raises(NoRoom, match="the server is draining"):
            await request.outcome(Future())
        done: Future[str] = Future()
        done.set_result("done")
        with pytest.raises(NoRoom):
            await request.outcome(done)
        request.end()
        assert not door._pending

    drained(story)


def test_draining_ends_a_delay_by_quotas() -> None:
    async def story(door: DoorResources, request: RequestResources) -> None:
        held = asyncio.create_task(request.hold_back())
        await asyncio.sleep(0)
        assert not held.done()
        door.end_waits()
        assert await held == 60_000

    drained(story, take_throttle_ms=lambda: 60_000)


def of_codec(codec: int, size_bytes: int) -> bytes:
    """A batch of a size, which says that it is compressed unless ``codec`` is 0."""
    fields = {"base_offset": 0, "last_offset": 0, "leader_epoch": 0, "timestamp": 0, "record_count": 1}
    return build_batch(bytes(size_bytes - HEADER_SIZE_BYTES), attributes=codec, **fields)


def test_compressed_batches_count_as_larger_ones() -> None:
    """4 KiB that expand to 4 MiB take as long as 256 KiB that do not."""
    plain, compressed = of_codec(0, 3_000), of_codec(2, 3_000)
    size = DoorResources.append_size
    assert [size(b""), size(plain), size(compressed), size(plain + compressed)] == [0, 3_000, 64 * 3_000, 64 * 6_000]
    assert size(of_codec(2, 4 << 10)) == 256 << 10
    assert size(of_codec(2, 300_000)) == 300_000


def test_zstd_counts_as_what_its_blocks_may_hold() -> None:
    """2 MiB of them take as long as 256 KiB that are not compressed; by the ratio of others, 64 MiB in 2 KiB would be made on the loop."""

    def zstd(size_bytes: int) -> bytes:
        fields = {"base_offset": 0, "last_offset": 0, "leader_epoch": 0, "timestamp": 0, "record_count": 1}
        return build_batch(compress(ZSTD, bytes(size_bytes)), attributes=ZSTD, **fields)

    size = DoorResources.append_size
    assert size(zstd(1_000)) == 64 * len(zstd(1_000))
    assert size(zstd(2 << 20)) == 256 << 10 < size(zstd(3 << 20)) == 384 << 10
    assert size(zstd(1 << 20) + zstd(2 << 20)) == 384 << 10
    assert len(zstd(64 << 20)) < 4 << 10
    assert size(zstd(64 << 20)) == 8 << 20
    fields = {"base_offset": 0, "last_offset": 0, "leader_epoch": 0, "timestamp": 0, "record_count": 1}
    assert size(build_batch(b"\x80\x80\x80\x20" + bytes(9), attributes=2, **fields)) == 8 << 20  # snappy, which says 64 MiB


def test_a_thousand_small_batches_count_as_a_large_one() -> None:
    assert DoorResources.append_size(1_024 * of_codec(0, 70)) <= 256 << 10 < DoorResources.append_size(1_026 * of_codec(0, 70))


def test_a_small_append_is_made_on_the_loop_unless_a_thread_appends_to_the_same_partition() -> None:
    async def story(door: DoorResources, request: RequestResources) -> None:
        where, go_on = TopicPartition("t", 0), threading.Event()
        assert door.appends_at_once(where, None, 256 << 10)
        assert not door.appends_at_once(where, None, (256 << 10) + 1)
        appending = asyncio.create_task(request.append_in_thread((where,), lambda: go_on.wait(30)))
        await asyncio.sleep(0)
        assert not door.appends_at_once(where, None, 1)
        assert door.threads.taken == 1
        assert door.appends_at_once(TopicPartition("t", 1), None, 1)
        appending.cancel()
        await asyncio.wait([appending])
        assert not door.appends_at_once(where, None, 1), "its client has gone, and the thread appends still"
        go_on.set()
        while door.threads.taken:
            await asyncio.sleep(0)
        assert door.appends_at_once(where, None, 1) and not door.appending

    drained(story)


def test_after_an_append_that_waited_for_the_disk_threads_append_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(door: DoorResources, _: RequestResources) -> None:
        now, where = 100.0, TopicPartition("t", 0)
        monkeypatch.setattr("time.monotonic", lambda: now)

        def append(seconds: float) -> str:
            nonlocal now
            now += seconds
            return "done"

        assert door.append_on_loop(append, 0.09) == "done"
        assert door.appends_at_once(where, None, 1)
        door.append_on_loop(append, 0.11)
        now += 0.99
        assert not door.appends_at_once(where, None, 1)
        now += 0.02
        assert door.appends_at_once(where, None, 1)

    drained(story)
