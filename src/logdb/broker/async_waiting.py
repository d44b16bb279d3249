"""Waiting on an event loop until one of several logs has more: any number of waits, and no thread for any of them.

Each awaited log has one bell for all its waits.  An appending thread rings it.  The first ring since the loop last looked schedules
a look; a later one only tests a flag.  The look compares the end of the log with the awaited offsets.

Thousands of readers may wait for one record, or until the same moment.  They are woken in the order in which their waits ended, a few in
each turn of the loop: the answer to whoever appended the record, and all other work, comes in between.  Waits of followers and for a
commit end at once, because appends wait for them.

A log of this process rings; a log that another process writes is polled.  Records that linger in memory are seen as in
``broker.waiting``.

Threading: one event loop; only ``_Bell.set`` is called by other threads.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from logdb.broker.waiting import POLL_MS_MAX, POLL_MS_MIN, Awaited, end_of
from logdb.errors import Closed, LogdbError, TopicDeleted, UnknownTopic
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.log.protocols import ReplicaLog
from logdb.model import NOTHING_KNOWN, OFFSET_MAX, KnownLog, TopicPartition
from logdb.store.protocols import Leadership

_WOKEN_IN_A_TURN = 8
"""Readers that are woken in one turn of the loop: the answers of so many take a few milliseconds."""


class _Turns:
    """Ends waits in order, a few in each turn of the loop; of a wait that is there twice, or has ended, nothing is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._ready = loop, deque[tuple[asyncio.Future[bool], bool]]()

    def end(self, woken: "asyncio.Future[bool]", found: bool) -> None:
        """End a wait, with its result, once it is its turn."""
        if not self._ready:
            self._loop.call_soon(self._go)
        self._ready.append((woken, found))

    def _go(self) -> None:
        left = _WOKEN_IN_A_TURN
        while self._ready and left:
            woken, found = self._ready.popleft()
            if not woken.done():
                woken.set_result(found)
                left -= 1
        if self._ready:
            self._loop.call_soon(self._go)


def _end_at_once(woken: "asyncio.Future[bool]", found: bool) -> None:
    if not woken.done():
        woken.set_result(found)


class _Key(NamedTuple):
    """The waits with one key share one bell.

    ``end``: which end of the log they wait for; ``may_follow``: they go on while the log follows.
    """

    log: ReplicaLog
    end: Callable[[ReplicaLog], int]
    may_follow: bool = False


_ENDS: Mapping[IsolationLevel, Callable[[ReplicaLog], int]] = {level: partial(end_of, isolation_level=level) for level in ISOLATION_LEVELS}


def written_end(log: ReplicaLog) -> int:
    """The end for a follower, which reads past the high watermark."""
    return log.end_offset


def _high_watermark(log: ReplicaLog) -> int:
    return log.high_watermark


NO_MARKS: Mapping[TopicPartition, int] = MappingProxyType({})


class _Bell:
    """Rung by a log when it has grown, or is closed."""

    __slots__ = ("_end", "_loop", "_rung", "_thread", "key", "lowest", "waiting")

    def __init__(self, key: _Key, loop: asyncio.AbstractEventLoop, end: Callable[["asyncio.Future[bool]", bool], None]) -> None:
        self.key, self._loop, self._end = key, loop, end
        self._rung, self._thread = False, threading.get_ident()  # the loop's
        self.waiting: dict[asyncio.Future[bool], int] = {}  # the awaited offset of each wait; OFFSET_MAX once it is told to end
        self.lowest = OFFSET_MAX  # of them, or less

    def set(self) -> None:
        """Ring; from any thread."""
        if not self._rung:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                if threading.get_ident() == self._thread:
                    self._rung = True
                    self._loop.call_soon(self._look)  # which costs no call of the system
                elif _end_of(self.key) > self.lowest:  # a wait that begins now looks itself, behind this move
                    self._rung = True
                    self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._rung = False
        self.wake(_end_of(self.key))
        self.lowest = min(self.waiting.values(), default=OFFSET_MAX)

    def enter(self, woken: "asyncio.Future[bool]", position: int) -> None:
        """Wake a wait once there is a record at its position; the caller looks whether there is one already."""
        self.waiting[woken] = position
        self.lowest = min(self.lowest, position)

    def wake(self, end_offset: int) -> None:
        """End the waits for a record below ``end_offset``."""
        for woken, position in self.waiting.items():
            if position < end_offset:
                self.waiting[woken] = OFFSET_MAX
                self._end(woken, True)


class Waits:
    """All waits of one event loop; made by ``AccessControl.waits``."""

    def __init__(
        self, find: Callable[[str, int], ReplicaLog], find_replica: Callable[[str, int], ReplicaLog], *, lingers_ms: int | None
    ) -> None:
        """Begin without waits.

        Args:
            find: Returns the log of a partition; raises if it was deleted.
            find_replica: The same, also of a partition that this node follows in sync.
            lingers_ms: How long a record may linger in memory; None: another process writes the logs.
        """
        self._find, self._find_replica, self._elsewhere = find, find_replica, lingers_ms is None
        self._asks = lingers_ms is None or lingers_ms > POLL_MS_MAX
        self._bells: dict[_Key, _Bell] = {}
        self._asking: asyncio.Task[None] | None = None
        self._turns: _Turns | None = None  # of the loop, from the first wait on
        self._released = False

    async def wait(
        self,
        positions: Mapping[TopicPartition, int],
        timeout_ms: int,
        *,
        isolation_level: IsolationLevel,
        replica: bool = False,
        at_followers: bool = False,
        known: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN,
        high_watermarks: Mapping[TopicPartition, int] = NO_MARKS,
    ) -> bool:
        """Wait until one of the partitions has a record at its position, for ``timeout_ms`` at most.

        Args:
            replica: Wait as a follower, for what is written.
            at_followers: Wait also at replicas of this node that follow in sync.
            known: What the reader knows of its positions.
            high_watermarks: A ``replica`` waits also until one of these is higher.

        Returns:
            Whether one has, or a position is elsewhere (``broker.waiting.Awaited``).

        Raises:
            TopicDeleted, UnknownTopic, UnknownPartition, Closed: A log was deleted or closed.
            NotLeaderOrFollower: Another node leads a partition.
        """
        end, find = written_end if replica else _ENDS[isolation_level], self._find_replica if at_followers else self._find
        awaited = [Awaited(self._log(find, where), offset, known.get(where, KnownLog())) for where, offset in positions.items()]
        keys = [(_Key(one.log, end, at_followers), one.offset) for one in awaited]
        keys += [(_Key(self._log(find, where), _high_watermark), known_offset) for where, known_offset in high_watermarks.items()]
        found = await (self._wait(keys, timeout_ms) if replica else self._wait(keys, timeout_ms, awaited, in_turn=True))
        for where, (log, _, _) in zip(positions, awaited, strict=True):
            current = self._log(find, where)
            if current.topic_id != log.topic_id:
                raise TopicDeleted(where.topic, log.topic_id, current.topic_id)
            if current.closed:  # which wakes, too
                raise Closed(f"{where} is being closed")
        return found

    async def wait_for_commit(self, leadership: Leadership, offset: int, timeout_ms: int) -> bool:
        """Wait until ``leadership.is_committed(offset)`` is true, or raises; False after ``timeout_ms``."""
        return await self._wait([(_Key(leadership.log, leadership.awaited_end), offset - 1)], timeout_ms)

    async def _wait(
        self, wanted: Sequence[tuple[_Key, int]], timeout_ms: int, awaited: Iterable[Awaited] = (), *, in_turn: bool = False
    ) -> bool:
        """``in_turn``: the wait ends behind others that have ended before."""
        ends = await self._ends([key for key, _ in wanted])
        if any(position < end for (_, position), end in zip(wanted, ends, strict=True)):
            return True
        if await asyncio.to_thread(_any_elsewhere, awaited) if self._elsewhere else _any_elsewhere(awaited):
            return True
        if self._released or timeout_ms <= 0:
            return False
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        self._turns = self._turns or _Turns(loop)
        end = self._turns.end if in_turn else _end_at_once
        timer = loop.call_later(timeout_ms / 1000, end, woken, False)
        try:
            for key, position in wanted:
                self._enter(key, position, woken, loop, end)
            return await woken
        finally:
            timer.cancel()
            for key, _ in wanted:
                self._leave(key, woken)

    @staticmethod
    def _log(find: Callable[[str, int], ReplicaLog], partition: TopicPartition) -> ReplicaLog:
        try:
            return find(*partition)
        except UnknownTopic as error:
            raise UnknownTopic(error.topic) from None  # the caller need not be authorized for the other topics

    def release(self) -> None:
        """End all waits as if their timeout were over, and later ones at once."""
        self._released = True
        for bell in self._bells.values():
            for woken in bell.waiting:
                _end_at_once(woken, False)

    def _enter(
        self,
        key: _Key,
        position: int,
        woken: "asyncio.Future[bool]",
        loop: asyncio.AbstractEventLoop,
        end: Callable[["asyncio.Future[bool]", bool], None],
    ) -> None:
        bell = self._bells.get(key)
        if bell is None:
            bell = self._bells[key] = _Bell(key, loop, end)
            key.log.watch(bell)
        bell.enter(woken, position)
        if not self._elsewhere and position < _end_of(key) and not woken.done():  # the record came before the bell
            woken.set_result(True)
        if self._asks and self._asking is None:
            self._asking = loop.create_task(self._ask())

    def _leave(self, key: _Key, woken: "asyncio.Future[bool]") -> None:
        bell = self._bells.get(key)
        if bell is not None and bell.waiting.pop(woken, None) is not None and not bell.waiting:
            del self._bells[key]
            key.log.unwatch(bell)

    # ------------------------------------------------------------ logs without a bell, or with a late one

    async def _ask(self) -> None:
        """Poll the logs while there are waits."""
        poll_ms = POLL_MS_MIN if self._elsewhere else POLL_MS_MAX
        while self._bells:
            await asyncio.sleep(poll_ms / 1000)
            poll_ms = min(2 * poll_ms, POLL_MS_MAX)
            bells = list(self._bells.values())
            for bell, end in zip(bells, await self._ends([bell.key for bell in bells]), strict=True):
                bell.wake(end)
        self._asking = None

    async def _ends(self, keys: Sequence[_Key]) -> list[int]:
        """The ends of logs; in a directory of another process this reads its files."""
        if self._elsewhere:
            return await asyncio.to_thread(_ends, keys)
        return _ends(keys)


def _ends(keys: Sequence[_Key]) -> list[int]:
    return [_end_of(key) for key in keys]


def _any_elsewhere(awaited: Iterable[Awaited]) -> bool:
    return any(one.is_elsewhere for one in awaited)


def _end_of(key: _Key) -> int:
    """The end of a log; beyond all offsets if the log was deleted, or follows where it must not, so that its waits end."""
    try:
        return OFFSET_MAX if key.log.closed or (key.log.follows and not key.may_follow) else key.end(key.log)
    except LogdbError:
        return OFFSET_MAX
