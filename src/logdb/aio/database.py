"""The database, for asyncio, and how it is opened."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from logdb.aio.consuming import Consumer
from logdb.aio.log import Log
from logdb.aio.mirror import Mirror, Opening, P, Threads, in_thread, mirrored, opened, stream
from logdb.aio.producing import Producer, Transaction, TransactionalProducer
from logdb.aio.security import SecurityAdmin
from logdb.aio.tables import Table
from logdb.aio.watching import Watch
from logdb.client import database as databases
from logdb.client import opening as openings
from logdb.client.producer import transaction
from logdb.client.ranges import Position
from logdb.codec import Record
from logdb.log.isolation import IsolationLevel
from logdb.model import Duration
from logdb.signatures import readable
from logdb.store.state import Mode

if TYPE_CHECKING:
    import pyarrow

    from logdb.client.producer.producer import ProducerOptions
    from logdb.codec import arrow


@readable
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
    enforce_retention = in_thread(databases.Database.enforce_retention)
    compact = in_thread(databases.Database.compact)
    make_parquet = in_thread(databases.Database.make_parquet)
    update_iceberg = in_thread(databases.Database.update_iceberg)
    topic_tiers = in_thread(databases.Database.topic_tiers)
    topic_dataset = in_thread(databases.Database.topic_dataset)
    scan_polars = in_thread(databases.Database.scan_polars)
    flush = in_thread(databases.Database.flush)
    verify = in_thread(databases.Database.verify)
    snapshot = in_thread(databases.Database.snapshot)
    backup = in_thread(databases.Database.backup)
    groups = in_thread(databases.Database.groups)
    describe_group = in_thread(databases.Database.describe_group)
    group_offsets = in_thread(databases.Database.group_offsets)
    reset_offsets = in_thread(databases.Database.reset_offsets)
    delete_group = in_thread(databases.Database.delete_group)
    delete_group_offsets = in_thread(databases.Database.delete_group_offsets)
    transactions = in_thread(databases.Database.transactions)
    describe_transaction = in_thread(databases.Database.describe_transaction)
    abort_transaction = in_thread(databases.Database.abort_transaction)
    log = mirrored(databases.Database.log, Log)
    table = mirrored(databases.Database.table, Table)
    consumer = opened(databases.Database.consumer, Consumer)

    def read(
        self, topic: str, *, start: Position = None, end: Position = None, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> AsyncIterator[Record]:
        """As ``logdb.Database.read``; its errors come where iteration begins."""
        return stream(self._threads, lambda: self._sync.read(topic, start=start, end=end, isolation_level=isolation_level))

    async def read_arrow(
        self,
        topic: str,
        *,
        start: Position = None,
        end: Position = None,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        schema: "arrow.ValueSchema | None" = None,
    ) -> "AsyncIterator[pyarrow.RecordBatch]":
        """As ``logdb.Database.read_arrow``; its errors come where iteration begins."""
        batches: Iterator[pyarrow.RecordBatch] = await self._threads.run(
            self._sync.read_arrow, topic, start=start, end=end, columns=columns, isolation_level=isolation_level, schema=schema
        )
        while (batch := await self._threads.run(next, batches, None)) is not None:  # each is large
            yield batch

    @property
    def path(self) -> str:
        """The directory, absolute."""
        return self._sync.path

    @property
    def mode(self) -> Mode:
        """As ``logdb.Database.mode``."""
        return self._sync.mode

    @property
    def reports(self) -> Awaitable[Sequence[str]]:
        """``await db.reports``: as ``logdb.Database.reports``."""
        return self._threads.run(lambda: self._sync.reports)

    @property
    def security(self) -> SecurityAdmin:
        """As ``logdb.Database.security``."""
        return SecurityAdmin(self._sync.security, self._threads)

    @functools.wraps(databases.Database.watch)
    async def watch(self, *, timeout_ms: Duration | None = None, stop: asyncio.Event | None = None, internal: bool = False) -> Watch:
        return Watch(await self._call(databases.Database.watch, internal=internal), self._threads, timeout_ms, stop)

    @overload
    def producer(self, *, transactional_id: None = None, **options: "Unpack[ProducerOptions]") -> Opening[Producer]: ...

    @overload
    def producer(
        self, *, transactional_id: str, transaction_timeout_ms: Duration = ..., **options: "Unpack[ProducerOptions]"
    ) -> Opening[TransactionalProducer]: ...

    @functools.wraps(databases.Database.producer)
    def producer(self, **options: Any) -> Opening[Any]:
        return Opening(functools.partial(self._producer, **options))

    async def _producer(self, **options: Any) -> Producer:
        sync = await self._call(databases.Database.producer, **options)
        return (
            TransactionalProducer(sync, self._threads)
            if isinstance(sync, transaction.TransactionalProducer)
            else Producer(sync, self._threads)
        )

    def transaction(
        self, transactional_id: str, *, transaction_timeout_ms: Duration = 60_000, **options: "Unpack[ProducerOptions]"
    ) -> Transaction:
        """As ``logdb.Database.transaction``."""
        sync = self._sync.transaction(transactional_id, transaction_timeout_ms=transaction_timeout_ms, **options)
        return Transaction(sync, self._threads)

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
        with databases.noting(error):
            await self.close()


async def _open(function: Callable[[], databases.Database]) -> Database:
    threads = Threads()
    try:
        return Database(await threads.run(function), threads)
    except BaseException:
        threads.stop()
        raise


def _opening(function: Callable[P, databases.Database]) -> Callable[P, Opening[Database]]:
    @functools.wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[Database]:
        return Opening(functools.partial(_open, functools.partial(function, *args, **kwargs)))

    return opening


open = _opening(openings.open)
"""``logdb.open`` for asyncio, with its arguments: ``async with logdb.aio.open(path) as db``, or ``await logdb.aio.open(path)``."""
