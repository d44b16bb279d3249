"""Consumer instances of REST v2: consumers at the server that outlive a client's HTTP connection.

Keeps the owners of instances, their number and idle time; a read gives back its records if its client goes away.

Only the principal that made an instance can reach it.  Its calls run one after the other, each with the address and the credentials of
the request that makes it; a waiting read holds neither a thread nor the turn of other calls.
"""

import asyncio
import contextlib
import contextvars
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import Literal, NamedTuple, TypeAlias, TypeVar, cast

from logdb.access.session import AuthorizedSession
from logdb.aio.consuming import Consumer as AsyncConsumer
from logdb.aio.mirror import Deadline, Threads, Wake
from logdb.client.consumer.config import ConsumerConfig
from logdb.client.consumer.consumer import Consumer
from logdb.codec import Record
from logdb.errors import Closed, LogdbError, NotAssigned, ReadOnly
from logdb.requests.principals import Principal
from logdb.serving.shares import Shares
from logdb_http_api.door.limits import HttpLimits
from logdb_http_api.errors import DRAINING, REFUSALS, ApiError
from logdb_http_api.v2.formats import RecordsAnswer

logger = logging.getLogger(__name__)

R = TypeVar("R")
Mode: TypeAlias = Literal["topics", "a pattern", "partitions"]

HEARTBEAT_MS = 3_000  # between two checks of the group by a waiting read
_ASK_MS = 50  # between two checks of logs that another process writes, and which do not report growth
_SWEEP_S = 1.0


asking: contextvars.ContextVar[AuthorizedSession | None] = contextvars.ContextVar("asking", default=None)
"""The session of the present request, by context; None: no request."""


class _InTurn(AsyncConsumer):
    """A consumer that uses the session of the present request."""

    def __init__(self, sync: Consumer, threads: Threads, session: AuthorizedSession) -> None:
        super().__init__(sync, threads)
        self._session = session

    async def in_turn(self, function: Callable[[], R], take_back: Callable[[R], object] | None = None) -> R:
        who = asking.get()
        return await super().in_turn(function if who is None else functools.partial(self._for, who, function), take_back)

    def _for(self, who: AuthorizedSession, function: Callable[[], R]) -> R:
        self._session.go_on_for(who)
        return function()


class Id(NamedTuple):
    """The key of an instance."""

    principal: Principal
    group_id: str
    name: str


class Reading(NamedTuple):
    """How an instance reads.

    Attributes:
        content_type: The embedded format of its keys and values.
        size_bytes_min: A read waits for so many bytes; 0: for the first record.
        timeout_ms: The longest wait of a read; None: as the read asks.
    """

    content_type: str
    size_bytes_min: int
    timeout_ms: int | None


class Instance:
    """One consumer with the state of its instance.

    Attributes:
        consumer: Runs calls in threads, one after the other.
        mode: What it was told to read; None: nothing yet.
    """

    def __init__(self, session: AuthorizedSession, config: ConsumerConfig, reading: Reading, threads: Threads, memory: Shares) -> None:
        self._session, self.reading, self._monotonic_ms, self._memory = session, reading, session.io.monotonic_ms, memory
        self._sync = Consumer(session, config, self._monotonic_ms)
        self.consumer = _InTurn(self._sync, threads, session)
        self.mode: Mode | None = None
        self._closed = asyncio.Event()
        self._busy_count, self._used_ms = 0, self._monotonic_ms()
        self._waiting: set[Wake] = set()
        self._giving_back: set[asyncio.Task[None]] = set()

    def idle_ms(self) -> int:
        """The time since the last call."""
        return 0 if self._busy_count else self._monotonic_ms() - self._used_ms

    async def use(self, call: Awaitable[R]) -> R:
        """Run a call of the consumer; meanwhile the instance is not idle.

        Raises:
            ApiError: The instance was deleted meanwhile; 404.
        """
        self._busy_count += 1
        try:
            result = await call
            await self._hold_back()
            return result
        except Closed:
            if self._closed.is_set():
                raise not_found() from None
            raise
        finally:
            self._busy_count -= 1
            self._used_ms = self._monotonic_ms()

    async def _hold_back(self) -> None:
        """Wait as long as the quotas of its principal demand, or until it is closed."""
        if delay_ms := self._session.take_throttle_ms():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), delay_ms / 1000)

    def check_mode(self, mode: Mode) -> None:
        """Check that it reads nothing yet, or the same kind: topics, a pattern, or partitions.

        Raises:
            ApiError: It reads another kind; 409.
        """
        if self.mode not in (None, mode):
            exclusive = "Subscription to topics, partitions and pattern are mutually exclusive"
            raise ApiError(409, 40903, f"Illegal state: {exclusive}: the consumer reads {self.mode}, unsubscribe it first")

    async def read(self, found: RecordsAnswer, timeout_ms: int, finish: Callable[[], Awaitable[R]]) -> R:
        """Take records into ``found`` until it has ``size_bytes_min``, or one record, or ``timeout_ms`` are over; then ``finish``.

        After a failure, or a cancellation, the records are given back.

        Returns:
            The result of ``finish``.

        Raises:
            ApiError: It has no subscription or assignment (409), or was deleted (404).
            SerializationError: The first record cannot be embedded; it stays the next one.
            exceptions of ``Consumer.poll`` and ``finish``.
        """
        if self.mode is None:
            raise ApiError(409, 40903, "Illegal state: Consumer is not subscribed to any topics or assigned any partitions")
        wake = Wake()
        self._waiting.add(wake)
        try:
            await self._read(found, Deadline(timeout_ms), wake)
            await self._hold_back()
            return await finish()
        except REFUSALS:
            await self._give_back(found)
            raise
        except asyncio.CancelledError:
            task = asyncio.get_running_loop().create_task(self._give_back(found))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)
            raise
        finally:
            self._waiting.discard(wake)

    async def _give_back(self, found: RecordsAnswer) -> None:
        """Wait until the thread of a running call has ended."""
        with contextlib.suppress(Closed):
            await self.consumer.in_turn(functools.partial(_give_back, self._sync, found))

    async def _read(self, found: RecordsAnswer, deadline: Deadline, wake: Wake) -> None:
        while not self._closed.is_set():
            wake.clear()
            if await self._take(found) or deadline.left_ms <= 0:
                return
            unwatch = self._sync.watch(wake)  # the partitions and the group as of now
            try:
                if await self._take(found):
                    return
                await wake.wait_for(min(deadline.left_ms, self._look_again_ms()))
            finally:
                unwatch()
        if not len(found):
            raise not_found()

    def _look_again_ms(self) -> float:
        """The time after which there may be more records without a notification."""
        try:
            self._session.check_open(writable=True)
        except ReadOnly:
            return _ASK_MS
        return inf if self.mode == "partitions" else HEARTBEAT_MS

    async def _take(self, found: RecordsAnswer) -> bool:
        """Take the available records; returns whether they are enough."""
        owner = self._session.owner
        await self._memory.take(found.memory_bytes_max, owner)
        try:
            await self.consumer.in_turn(functools.partial(_take, self._sync, found))
        finally:
            self._memory.give_back(found.memory_bytes_max, owner)
        return found.full or (len(found) > 0 and found.size_bytes >= self.reading.size_bytes_min)

    async def close(self) -> None:
        """Commit, if automatic commits are on, and leave the group; waiting reads end."""
        self._closed.set()
        for wake in self._waiting:
            wake.set()
        await asyncio.gather(*self._giving_back, return_exceptions=True)
        await self.consumer.close()


def _take(consumer: Consumer, found: RecordsAnswer) -> None:
    """Take the available records; the consumer's position is behind them."""
    try:
        left_out = found.add(cast(Iterator[Record], iter(consumer)))  # there are no deserializers
    except LogdbError:
        for partition, position in consumer.positions().items():
            consumer.seek(partition, position.offset)  # iteration would skip the failed record
        if not len(found):
            raise
        found.full = True
        return
    if left_out is not None:
        consumer.seek((left_out.topic, left_out.partition), left_out.offset)
    if found.refused is not None:
        raise found.refused


def _give_back(consumer: Consumer, found: RecordsAnswer) -> None:
    for partition, offset in found.firsts.items():
        try:
            consumer.seek(partition, offset)
        except (NotAssigned, Closed):
            continue  # another member reads it, from the committed offset


def not_found(which: str = "it") -> ApiError:
    """The instance does not exist: never made, deleted, expired, or made by another principal."""
    return ApiError(404, 40403, f"Consumer instance not found. {which} was deleted, expired, or never made by this principal")


class Instances:
    """All instances of a door.  Used on its loop."""

    def __init__(self, limits: HttpLimits, memory: Shares) -> None:
        self._limits, self._memory = limits, memory
        self._all: dict[Id, Instance] = {}
        self._threads = Threads()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._all)

    def add(self, name: Id, session: AuthorizedSession, config: ConsumerConfig, reading: Reading) -> None:
        """Make an instance.

        Raises:
            ApiError: One of that name exists (409), or there are too many (503).
        """
        if self._stopped:
            raise ApiError(503, DRAINING, "the server is draining")
        self.sweep()
        if name in self._all:
            raise ApiError(409, 40902, f"Consumer with specified consumer ID already exists in the specified consumer group: {name.name!r}")
        own_count = sum(one.principal == name.principal for one in self._all)
        for whose, count, count_max in (
            ("this server", len(self._all), self._limits.instances_max),
            (str(name.principal), own_count, self._limits.instances_per_principal_max),
        ):
            if count >= count_max:
                raise ApiError(
                    503, 50301, f"{whose} has {count} consumer instances: must be at most {count_max}; delete one, or retry later"
                )
        self._all[name] = Instance(session, config, reading, self._threads, self._memory)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_again)

    def get(self, name: Id) -> Instance:
        """The instance.

        Raises:
            ApiError: It does not exist; 404.
        """
        instance = self._all.get(name)
        if instance is None or self._has_expired(name, instance):
            raise not_found(f"{name.name!r} of group {name.group_id!r}")
        return instance

    async def remove(self, name: Id) -> None:
        """Close an instance; raises as ``get``."""
        instance = self.get(name)
        del self._all[name]
        await instance.close()

    def sweep(self) -> None:
        """Close idle instances."""
        for name, instance in list(self._all.items()):
            self._has_expired(name, instance)

    def _has_expired(self, name: Id, instance: Instance) -> bool:
        if instance.idle_ms() < self._limits.instance_idle_ms:
            return False
        del self._all[name]
        task = asyncio.get_running_loop().create_task(_end(name, instance))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return True

    def _sweep_again(self) -> None:
        self.sweep()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep_again) if self._all else None

    async def close(self) -> None:
        """Close all of them, and accept no new ones."""
        self._stopped = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        instances = list(self._all.items())
        self._all.clear()
        await asyncio.gather(*(_end(name, instance) for name, instance in instances), *self._closing)
        self._threads.stop()


async def _end(name: Id, instance: Instance) -> None:
    """Close an instance without a request; a failure is logged."""
    asking.set(None)
    try:
        await instance.close()
    except LogdbError as error:
        logger.warning("consumer instance %r of group %r was closed with an error: %s", name.name, name.group_id, error)
