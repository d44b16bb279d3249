"""Consumers, for asyncio."""

import asyncio
import datetime
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from logdb.aio.mirror import WAIT_MS_MAX, Deadline, Mirror, R, Threads, Wake, at_once, in_thread, listened
from logdb.client.consumer import consumer as consumers
from logdb.client.consumer.assignment import Listener as SyncListener
from logdb.client.records import AnyRecord
from logdb.model import Duration, TopicPartition
from logdb.signatures import readable

Listener: TypeAlias = Callable[[list[TopicPartition]], Awaitable[object] | None]


@readable
class Consumer(Mirror[consumers.Consumer]):
    """As ``logdb.client.consumer.consumer.Consumer``.  Made by ``Database.consumer``; an asynchronous context manager and iterator.

    Its calls are carried out one after the other.  While ``poll`` waits for records, no thread does.
    """

    unsubscribe = in_thread(consumers.Consumer.unsubscribe)
    assign = in_thread(consumers.Consumer.assign)
    position = in_thread(consumers.Consumer.position)
    seek = in_thread(consumers.Consumer.seek)
    seek_to_beginning = in_thread(consumers.Consumer.seek_to_beginning)
    seek_to_end = in_thread(consumers.Consumer.seek_to_end)
    seek_to_timestamp = in_thread(consumers.Consumer.seek_to_timestamp)
    seek_to_committed = in_thread(consumers.Consumer.seek_to_committed)
    offsets_for_times = in_thread(consumers.Consumer.offsets_for_times)
    beginning_offsets = in_thread(consumers.Consumer.beginning_offsets)
    end_offsets = in_thread(consumers.Consumer.end_offsets)
    lag = in_thread(consumers.Consumer.lag)
    pause = in_thread(consumers.Consumer.pause)
    resume = in_thread(consumers.Consumer.resume)
    commit = in_thread(consumers.Consumer.commit)
    committed = in_thread(consumers.Consumer.committed)
    close = in_thread(consumers.Consumer.close)
    assignment = at_once(consumers.Consumer.assignment)
    subscription = at_once(consumers.Consumer.subscription)
    positions = at_once(consumers.Consumer.positions)
    paused = at_once(consumers.Consumer.paused)
    group_metadata = at_once(consumers.Consumer.group_metadata)

    def __init__(self, sync: consumers.Consumer, threads: Threads) -> None:
        super().__init__(sync, threads)
        self.turn = asyncio.Lock()

    async def _call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return await self.in_turn(functools.partial(function, self._sync, *args, **kwargs))

    async def in_turn(self, function: Callable[[], R], take_back: Callable[[R], object] | None = None) -> R:
        """Call in a thread, one call at a time; ``take_back`` takes the result if the caller was cancelled."""
        if listened.get() is self:  # a listener, whose call has the turn
            return await self._threads.start(function)
        await self.turn.acquire()
        try:
            future = self._threads.start(function)
        except BaseException:
            self.turn.release()
            raise
        future.add_done_callback(lambda _: self.turn.release())  # also of a call whose task was cancelled
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if take_back is not None:
                future.add_done_callback(lambda done: done.cancelled() or done.exception() or take_back(done.result()))
            raise

    async def subscribe(
        self,
        *topics: str,
        pattern: "str | re.Pattern[str] | None" = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """As ``logdb``'s.  Listeners are called in the loop, and may be coroutines that call the consumer."""
        subscribed = functools.partial(
            self._sync.subscribe,
            *topics,
            pattern=pattern,
            on_assigned=self._listening(on_assigned),
            on_revoked=self._listening(on_revoked),
            on_lost=self._listening(on_lost),
        )
        await self.in_turn(subscribed)

    def _listening(self, listener: Listener | None) -> SyncListener | None:
        """A listener for the thread, which waits for the coroutine of ``listener``."""
        if listener is None:
            return None
        loop = asyncio.get_running_loop()

        async def listen(partitions: list[TopicPartition]) -> None:
            listened.set(self)
            if (coroutine := listener(partitions)) is not None:
                await coroutine

        return lambda partitions: asyncio.run_coroutine_threadsafe(listen(partitions), loop).result()

    async def poll(self, timeout_ms: Duration = 0, max_records: int | None = None) -> dict[TopicPartition, list[AnyRecord]]:
        """As ``logdb``'s."""
        found = await self._waited_for(lambda: self._sync.poll(0, max_records), timeout_ms, self._sync._give_back)
        return found or {}

    async def _waited_for(
        self, function: Callable[[], R], timeout_ms: float | datetime.timedelta | None, take_back: Callable[[R], object]
    ) -> R | None:
        """The first result of ``function`` that is not empty; None after the timeout."""
        deadline = Deadline(timeout_ms)
        if found := await self.in_turn(function, take_back):
            return found
        wake = Wake()
        while deadline.left_ms > 0:
            wake.clear()
            unwatch = self._sync.watch(wake)
            try:
                if found := await self.in_turn(function, take_back):
                    return found
                await wake.wait_for(min(deadline.left_ms, max(WAIT_MS_MAX, self._sync._look_interval_ms)))
            finally:
                unwatch()
        return await self.in_turn(function, take_back) or None

    async def __aiter__(self) -> AsyncIterator[AnyRecord]:
        """As ``logdb``'s: the position is behind the last record that was yielded."""
        while True:
            handed = await self._waited_for(self._sync._hand_out, self._sync._iteration_timeout_ms, lambda _: None)
            if handed is None:
                return
            for record in handed.iterator:
                yield record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._call(consumers.Consumer.__exit__, kind, error, trace)
