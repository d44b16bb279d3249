"""Changes of topics and of a cluster's nodes, for asyncio."""

import asyncio
from typing import Self

from logdb.aio.mirror import WAIT_MS_MAX, Deadline, Mirror, Threads
from logdb.client import watching
from logdb.model import ClusterEvent, Duration, TopicEvent
from logdb.signatures import readable

_WAIT_MS_MAX = 1_000  # in a thread, which cannot be interrupted


@readable
class Watch(Mirror[watching.Watch]):
    """An asynchronous iterator of changes.  Made by ``Database.watch``; what a cancelled wait would have returned comes next."""

    def __init__(self, sync: watching.Watch, threads: Threads, timeout_ms: Duration | None, stop: asyncio.Event | None) -> None:
        super().__init__(sync, threads)
        self._timeout_ms, self._stop = timeout_ms, stop
        self._waiting: asyncio.Future[TopicEvent | ClusterEvent | None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TopicEvent | ClusterEvent:
        deadline = Deadline(self._timeout_ms)
        wait_ms_max = _WAIT_MS_MAX if self._stop is None else WAIT_MS_MAX
        while self._stop is None or not self._stop.is_set():
            event = await self._next_within(round(max(0, min(deadline.left_ms, wait_ms_max))))
            if event is not None:
                return event
            if deadline.left_ms <= 0:
                break
        raise StopAsyncIteration

    async def _next_within(self, timeout_ms: int) -> TopicEvent | ClusterEvent | None:
        if self._waiting is None:
            self._waiting = self._threads.start(self._sync.next_within, timeout_ms)
        try:
            event = await asyncio.shield(self._waiting)
        except asyncio.CancelledError:
            raise  # what it comes to is for the next call
        except BaseException:
            self._waiting = None
            raise
        self._waiting = None
        return event
