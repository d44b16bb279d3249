"""logdb for asyncio: the same classes, with coroutines for whatever may wait.

>>> import asyncio, logdb.aio
>>> async def main():
...     async with logdb.aio.open("events") as db:
...         await db.create_topic("clicks", if_not_exists=True)
...         log = await db.log("clicks")
...         offset = await log.append(b"value", b"key")
...         async for record in log.read(offset):
...             print(record.key, record.value)
>>> asyncio.run(main())
b'key' b'value'

Each method is the one of the same name in ``logdb``, called in a thread of the database's own pool, because it may wait
for a disk; its documentation is that one's.  What only looks at memory is called at once.  Iterators are asynchronous,
context managers too; ``end_offset`` and ``last_stable_offset`` of a log are awaited like calls, since beside a writer
they look at its files.

A call that is cancelled goes on in its thread, and its result is dropped; a consumer takes back the records that a
cancelled ``poll`` would have returned.

Threading: one event loop.
"""

import asyncio
import contextlib
import contextvars
import functools
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar

from logdb.client import consumer as consumers
from logdb.client import database as databases
from logdb.client import producer as producers
from logdb.client import transaction as transactions
from logdb.client.assignment import Listener as SyncListener
from logdb.client.records import AnyRecord
from logdb.codec import Record
from logdb.codec import SendFuture as SyncSendFuture
from logdb.errors import Closed
from logdb.log import log as logs
from logdb.log.isolation import IsolationLevel
from logdb.model import RecordMetadata, TopicPartition
from logdb.store.store import Mode

if TYPE_CHECKING:
    import pyarrow

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
M = TypeVar("M")

Listener: TypeAlias = Callable[[list[TopicPartition]], Awaitable[object] | None]

_THREAD_COUNT = 32  # at most; they are started when needed
_TAKE_COUNT = 512  # records that one hop to a thread brings
_WAIT_MS_MAX = 100  # until a consumer, or who follows a log, looks again without having been told


# ---------------------------------------------------------------- the wrapper


class Threads:
    """Where calls go that may wait."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREAD_COUNT, thread_name_prefix="logdb-aio")
        self._stopped = False

    def start(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[R]":
        if self._stopped:
            raise Closed("the database is closed")
        return asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(function, *args, **kwargs))

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.start(function, *args, **kwargs)

    def stop(self) -> None:
        """Take no more calls."""
        self._stopped = True
        self._pool.shutdown(wait=False)


class Mirror(Generic[S]):
    """An object of ``logdb`` and the threads that its methods are called in."""

    def __init__(self, sync: S, threads: Threads) -> None:
        self._sync, self._threads = sync, threads

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"

    async def _call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return await self._threads.run(function, self._sync, *args, **kwargs)


def in_thread(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method as a coroutine that calls it in a thread."""

    @functools.wraps(method)
    async def call(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._call(method, *args, **kwargs)

    return call


def at_once(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The method as it is: it only looks at memory."""

    @functools.wraps(method)
    def call(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._sync, *args, **kwargs)

    return call


def mirrored(
    method: Callable[Concatenate[Any, P], S], mirror: Callable[[S, Threads], M]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, M]]:
    """The method as a coroutine that returns the ``mirror`` of what it returns."""

    @functools.wraps(method)
    async def call(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> M:
        return mirror(await self._call(method, *args, **kwargs), self._threads)

    return call


class Wake(threading.Event):
    """An event that threads set and a coroutine waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._loop, self._woken = asyncio.get_running_loop(), asyncio.Event()

    def set(self) -> None:
        """Called in any thread."""
        super().set()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def clear(self) -> None:
        super().clear()
        self._woken.clear()

    async def wait_for(self, timeout_ms: float) -> None:
        """Return when it was set, or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), None if timeout_ms == inf else timeout_ms / 1000)


class Deadline:
    """How much of a timeout is left; None: it never ends."""

    def __init__(self, timeout_ms: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000

    @property
    def left_ms(self) -> float:
        return inf if self._until is None else (self._until - self._loop.time()) * 1000


# ---------------------------------------------------------------- one partition


class Log(Mirror[logs.Log]):
    """As ``logdb.Log``.  Made by ``Database.log``."""

    append = in_thread(logs.Log.append)
    append_many = in_thread(logs.Log.append_many)
    append_batches = in_thread(logs.Log.append_batches)
    flush = in_thread(logs.Log.flush)
    read_batches = in_thread(logs.Log.read_batches)
    offset_for_timestamp = in_thread(logs.Log.offset_for_timestamp)
    aborted_transactions = in_thread(logs.Log.aborted_transactions)
    open_transactions = at_once(logs.Log.open_transactions)

    @property
    def topic(self) -> str:
        return self._sync.topic

    @property
    def partition(self) -> int:
        return self._sync.partition

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._sync.start_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, as written."""
        return self._sync.size_bytes

    @property
    def end_offset(self) -> Awaitable[int]:
        """``await log.end_offset``: the next offset to be written."""
        return self._threads.run(lambda: self._sync.end_offset)

    @property
    def last_stable_offset(self) -> Awaitable[int]:
        """``await log.last_stable_offset``: the first offset of an open transaction, or else the end."""
        return self._threads.run(lambda: self._sync.last_stable_offset)

    async def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> AsyncIterator[Record]:
        """As ``logdb.Log.read``; its errors come where iteration begins."""
        while True:
            records = await self._threads.run(
                self._sync.read, offset, end_offset=end_offset, leader_epoch=leader_epoch, isolation_level=isolation_level
            )
            while taken := await self._threads.run(records.take, _TAKE_COUNT):
                for record in taken:
                    yield record
            if records.exhausted:
                return
            offset, leader_epoch = records.next_offset, None  # reading failed there, and does so again

    async def read_arrow(
        self,
        offset: int | None = None,
        *,
        end_offset: int | None = None,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> "AsyncIterator[pyarrow.RecordBatch]":
        """As ``logdb.Log.read_arrow``; its errors come where iteration begins."""
        batches = await self._threads.run(
            self._sync.read_arrow, offset, end_offset=end_offset, columns=columns, isolation_level=isolation_level
        )
        while (batch := await self._threads.run(next, batches, None)) is not None:
            yield batch

    async def follow(
        self,
        offset: int,
        *,
        timeout_ms: int | None = None,
        stop: asyncio.Event | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> AsyncIterator[Record]:
        """As ``logdb.Log.follow``; cancelling the task ends it, too, and no thread waits meanwhile."""
        wake, deadline = Wake(), Deadline(timeout_ms)
        self._sync.watch(wake)
        try:
            while stop is None or not stop.is_set():
                wake.clear()
                end_offset = await self._threads.run(self._sync.readable_end_offset, isolation_level)
                async for record in self.read(offset, end_offset=end_offset, isolation_level=isolation_level):
                    yield record
                    offset, deadline = record.offset + 1, Deadline(timeout_ms)
                    if stop is not None and stop.is_set():
                        return
                offset = max(offset, end_offset)
                if deadline.left_ms <= 0:
                    return
                await wake.wait_for(min(deadline.left_ms, _WAIT_MS_MAX))
        finally:
            self._sync.unwatch(wake)


# ---------------------------------------------------------------- producing


class SendFuture:
    """What becomes of a record that was sent: ``metadata = await future``, as often as wanted, or not at all."""

    __slots__ = ("_sync",)

    def __init__(self, sync: SyncSendFuture) -> None:
        self._sync = sync

    def done(self) -> bool:
        """Whether the result is known."""
        return self._sync.done()

    def result(self) -> RecordMetadata:
        """Where the record lies.

        Raises:
            TimeoutError: It is not known yet: await it.
            whatever the record could not be written for.
        """
        return self._sync.result(timeout=0)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._sync.done():
            yield from self._known().__await__()
        return self._sync.result(timeout=0)

    async def _known(self) -> None:
        wake = Wake()
        self._sync.add_done_callback(lambda _: wake.set())
        await wake.wait_for(inf)


def sending(method: Callable[Concatenate[Any, P], SyncSendFuture]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, SendFuture]]:
    """The method as a coroutine that calls it in the loop, which costs less than a hop to a thread, unless it might wait."""

    @functools.wraps(method)
    async def send(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> SendFuture:
        topic = args[0] if args else kwargs.get("topic")
        if isinstance(topic, str) and not self._sync.would_wait(topic):
            return SendFuture(method(self._sync, *args, **kwargs))
        return SendFuture(await self._call(method, *args, **kwargs))

    return send


class Producer(Mirror[producers.Producer]):
    """As ``logdb.client.producer.Producer``.  Made by ``Database.producer``; an asynchronous context manager."""

    send = sending(producers.Producer.send)
    flush = in_thread(producers.Producer.flush)
    close = in_thread(producers.Producer.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._call(type(self._sync).__exit__, kind, error, trace)


class TransactionalProducer(Producer):
    """As ``logdb``'s producer with a ``transactional_id``.  Aborting sends consumers back: let none be in use meanwhile."""

    _sync: transactions.TransactionalProducer

    init_transactions = in_thread(transactions.TransactionalProducer.init_transactions)
    begin_transaction = in_thread(transactions.TransactionalProducer.begin_transaction)
    commit_transaction = in_thread(transactions.TransactionalProducer.commit_transaction)
    abort_transaction = in_thread(transactions.TransactionalProducer.abort_transaction)
    send_offsets_to_transaction = in_thread(transactions.TransactionalProducer.send_offsets_to_transaction)

    async def send_offsets(self, consumer: "Consumer") -> None:
        """As ``logdb``'s."""
        await consumer.in_turn(functools.partial(self._sync.send_offsets, consumer._sync))


def _producer(sync: producers.Producer, threads: Threads) -> Producer:
    if isinstance(sync, transactions.TransactionalProducer):
        return TransactionalProducer(sync, threads)
    return Producer(sync, threads)


class Transaction(Mirror[transactions.Transaction]):
    """As ``logdb``'s.  Made by ``Database.transaction``; an asynchronous context manager."""

    send = sending(transactions.Transaction.send)
    flush = in_thread(transactions.Transaction.flush)

    def __init__(self, sync: transactions.Transaction, threads: Threads) -> None:
        super().__init__(sync, threads)
        self._consumers: set[Consumer] = set()  # whose offsets are part of it: an abort sends them back

    async def send_offsets(self, consumer: "Consumer") -> None:
        """As ``logdb``'s."""
        self._consumers.add(consumer)
        await consumer.in_turn(functools.partial(self._sync.send_offsets, consumer._sync))

    async def __aenter__(self) -> Self:
        await self._call(transactions.Transaction.__enter__)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        async with contextlib.AsyncExitStack() as turns:
            for consumer in self._consumers:
                await turns.enter_async_context(consumer.turn)
            await self._call(transactions.Transaction.__exit__, kind, error, trace)


# ---------------------------------------------------------------- consuming

_called_by: "contextvars.ContextVar[Consumer | None]" = contextvars.ContextVar("called_by", default=None)
"""The consumer whose listener runs in this context."""


class Consumer(Mirror[consumers.Consumer]):
    """As ``logdb.client.consumer.Consumer``.  Made by ``Database.consumer``; an asynchronous context manager and iterator.

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
        """Call in a thread, one call at a time; ``take_back`` is given the result if nobody is there any more to take it."""
        if _called_by.get() is self:  # a listener, whose call has the turn
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
        on_assigned: "Listener | None" = None,
        on_revoked: "Listener | None" = None,
        on_lost: "Listener | None" = None,
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

    def _listening(self, listener: "Listener | None") -> SyncListener | None:
        """What a thread calls, and goes on when the listener's coroutine is over."""
        if listener is None:
            return None
        loop = asyncio.get_running_loop()

        async def listen(partitions: list[TopicPartition]) -> None:
            _called_by.set(self)
            if (coroutine := listener(partitions)) is not None:
                await coroutine

        return lambda partitions: asyncio.run_coroutine_threadsafe(listen(partitions), loop).result()

    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[AnyRecord]]:
        """As ``logdb``'s."""
        found = await self._waited_for(lambda: self._sync.poll(0, max_records), timeout_ms, self._sync.give_back)
        return found or {}

    async def _waited_for(self, function: Callable[[], R], timeout_ms: float | None, take_back: Callable[[R], object]) -> R | None:
        """What ``function`` returns once that is something; None if it was nothing until the time was over."""
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
                await wake.wait_for(min(deadline.left_ms, _WAIT_MS_MAX))
            finally:
                unwatch()
        return await self.in_turn(function, take_back) or None

    async def __aiter__(self) -> AsyncIterator[AnyRecord]:
        """As ``logdb``'s: the position is behind the record that was looked at last."""
        while True:
            handed = await self._waited_for(self._sync.hand_out, self._sync.iteration_timeout_ms, lambda _: None)
            if handed is None:
                return
            for record in handed.iterator:
                yield record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._call(consumers.Consumer.__exit__, kind, error, trace)


# ---------------------------------------------------------------- the database


class Database(Mirror[databases.Database]):
    """As ``logdb.Database``.  Made by ``logdb.aio.open``; an asynchronous context manager."""

    _closed = False

    create_topic = in_thread(databases.Database.create_topic)
    alter_topic = in_thread(databases.Database.alter_topic)
    delete_topic = in_thread(databases.Database.delete_topic)
    topics = in_thread(databases.Database.topics)
    describe_topic = in_thread(databases.Database.describe_topic)
    append = in_thread(databases.Database.append)
    append_many = in_thread(databases.Database.append_many)
    delete_records = in_thread(databases.Database.delete_records)
    compact = in_thread(databases.Database.compact)
    flush = in_thread(databases.Database.flush)
    verify = in_thread(databases.Database.verify)
    snapshot = in_thread(databases.Database.snapshot)
    backup = in_thread(databases.Database.backup)
    log = mirrored(databases.Database.log, Log)
    producer = mirrored(databases.Database.producer, _producer)
    consumer = mirrored(databases.Database.consumer, Consumer)

    @property
    def path(self) -> str:
        """The directory, absolute."""
        return self._sync.path

    @property
    def mode(self) -> Mode:
        """As ``logdb.Database.mode``."""
        return self._sync.mode

    @property
    def reports(self) -> Sequence[str]:
        """As ``logdb.Database.reports``."""
        return self._sync.reports

    @functools.wraps(databases.Database.transaction)
    def transaction(self, transactional_id: str, **options: Any) -> Transaction:
        return Transaction(self._sync.transaction(transactional_id, **options), self._threads)

    async def close(self) -> None:
        """As ``logdb.Database.close``."""
        if not self._closed:
            try:
                await self._call(databases.Database.close)
            finally:
                self._closed = True
                self._threads.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class Opening:
    """A database that is being opened: ``async with`` it, or ``await`` it."""

    def __init__(self, function: Callable[[], databases.Database]) -> None:
        self._function = function
        self._database: Database | None = None

    async def _open(self) -> Database:
        threads = Threads()
        try:
            return Database(await threads.run(self._function), threads)
        except BaseException:
            threads.stop()
            raise

    def __await__(self) -> Generator[Any, None, Database]:
        return self._open().__await__()

    async def __aenter__(self) -> Database:
        self._database = await self._open()
        return self._database

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._database is not None:
            await self._database.close()


def _opening(function: Callable[P, databases.Database]) -> Callable[P, Opening]:
    @functools.wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening:
        return Opening(functools.partial(function, *args, **kwargs))

    return opening


open = _opening(databases.open_database)  # noqa: A001 -- logdb.aio.open is the front door
