"""The database, for asyncio, and how it is opened."""

import functools
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from logdb.aio.consuming import Consumer
from logdb.aio.log import Log
from logdb.aio.mirror import Mirror, P, Threads, in_thread, mirrored
from logdb.aio.producing import Producer, Transaction, TransactionalProducer
from logdb.aio.tables import Table
from logdb.client import database as databases
from logdb.client import transaction
from logdb.store.store import Mode

if TYPE_CHECKING:
    from logdb.client.producer import ProducerOptions


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

    @overload
    async def producer(self, *, transactional_id: None = None, **options: "Unpack[ProducerOptions]") -> Producer: ...

    @overload
    async def producer(
        self, *, transactional_id: str, transaction_timeout_ms: int = ..., **options: "Unpack[ProducerOptions]"
    ) -> TransactionalProducer: ...

    @functools.wraps(databases.Database.producer)
    async def producer(self, **options: Any) -> Producer:
        sync = await self._call(databases.Database.producer, **options)
        return (
            TransactionalProducer(sync, self._threads)
            if isinstance(sync, transaction.TransactionalProducer)
            else Producer(sync, self._threads)
        )

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


open_database = _opening(databases.open_database)
