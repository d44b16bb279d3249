"""Producers and transactions, for asyncio."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Generator
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Self

from logdb.aio.consuming import Consumer
from logdb.aio.mirror import Mirror, P, Threads, Wake, in_thread
from logdb.client.producer import producer as producers
from logdb.client.producer import transaction as transactions
from logdb.codec import SendFuture as SyncSendFuture
from logdb.errors import Closed
from logdb.handles import Handle
from logdb.model import RecordMetadata
from logdb.signatures import readable


class SendFuture(Handle):
    """The outcome of ``send``: ``metadata = await future``, as often as you like."""

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
            LogdbError: The record was not written.
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


@readable
class Producer(Mirror[producers.Producer]):
    """As ``logdb.client.producer.producer.Producer``.  Made by ``Database.producer``; an asynchronous context manager."""

    send = sending(producers.Producer.send)
    flush = in_thread(producers.Producer.flush)
    close = in_thread(producers.Producer.close)

    if not TYPE_CHECKING:
        init_transactions = begin_transaction = commit_transaction = abort_transaction = in_thread(producers.Producer.begin_transaction)
        send_offsets = send_offsets_to_transaction = begin_transaction

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._call(type(self._sync).__exit__, kind, error, trace)


@readable
class TransactionalProducer(Producer):
    """As ``logdb``'s producer with a ``transactional_id``.  Aborting sends consumers back: let none be in use meanwhile."""

    _sync: transactions.TransactionalProducer

    init_transactions = in_thread(transactions.TransactionalProducer.init_transactions)
    begin_transaction = in_thread(transactions.TransactionalProducer.begin_transaction)
    commit_transaction = in_thread(transactions.TransactionalProducer.commit_transaction)
    abort_transaction = in_thread(transactions.TransactionalProducer.abort_transaction)
    send_offsets_to_transaction = in_thread(transactions.TransactionalProducer.send_offsets_to_transaction)

    async def send_offsets(self, consumer: Consumer) -> None:
        """As ``logdb``'s."""
        await consumer.in_turn(functools.partial(self._sync.send_offsets, consumer._sync))


@readable
class Transaction(Mirror[transactions.Transaction]):
    """As ``logdb``'s.  Made by ``Database.transaction``; an asynchronous context manager."""

    send = sending(transactions.Transaction.send)
    flush = in_thread(transactions.Transaction.flush)

    def __init__(self, sync: transactions.Transaction, threads: Threads) -> None:
        super().__init__(sync, threads)
        self._consumers: set[Consumer] = set()  # whose offsets are part of it: an abort sends them back

    async def send_offsets(self, consumer: Consumer) -> None:
        """As ``logdb``'s."""
        self._consumers.add(consumer)
        await consumer.in_turn(functools.partial(self._sync.send_offsets, consumer._sync))

    async def __aenter__(self) -> Self:
        entering = self._threads.start(transactions.Transaction.__enter__, self._sync)
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError as error:  # no block will end what the thread begins
            entering.add_done_callback(functools.partial(self._left, error))
            raise
        return self

    def _left(self, error: BaseException, entered: "asyncio.Future[Any]") -> None:
        if not entered.cancelled() and entered.exception() is None:
            with contextlib.suppress(Closed):  # the close has aborted it
                self._threads.start(transactions.Transaction.__exit__, self._sync, type(error), error, None)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        async with contextlib.AsyncExitStack() as turns:
            for consumer in self._consumers:
                await turns.enter_async_context(consumer.turn)
            await self._call(transactions.Transaction.__exit__, kind, error, trace)
