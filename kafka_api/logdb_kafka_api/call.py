"""One request on its way through its handler: its values, the session of its principal, and what it may wait for.

Threading: the event loop of the door; ``in_thread`` calls functions elsewhere.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from logdb.log.isolation import IsolationLevel
from logdb.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from logdb.access.session import AuthorizedSession
    from logdb.serving.shares import Owner, Shares
    from logdb_kafka_api.connection import Connection
    from logdb_kafka_api.door import KafkaDoor
    from logdb_kafka_api.frames import RequestHeader

R = TypeVar("R")
Values: TypeAlias = dict[str, Any]
Handler: TypeAlias = "Callable[[Call], Awaitable[Values | None]]"
"""Answers a request with the values of its response; None: the client wants no answer."""


class Call:
    """What a handler is given.

    Attributes:
        version: Of the request, and of its answer.
        client_id: The client's name for itself.
        values: The request, decoded.
        session: Of the principal that the connection was authenticated as.
        owner: For whom shared resources are counted.
    """

    __slots__ = ("_taken_bytes", "client_id", "connection", "door", "owner", "session", "values", "version")

    def __init__(
        self, door: "KafkaDoor", connection: "Connection", header: "RequestHeader", values: Values, session: "AuthorizedSession"
    ) -> None:
        self.door, self.connection, self.session, self.values = door, connection, session, values
        self.version, self.client_id = header.version, header.client_id
        self.owner: Owner = door.owner_of(connection)
        self._taken_bytes = 0

    @contextlib.asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Be one of the requests in progress, once there is room."""
        await self.door.requests.take(1, self.owner)
        try:
            yield
        finally:
            self.door.requests.give_back(1, self.owner)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """While the request waits for records or other clients, another may be in progress in its stead."""
        self.door.requests.give_back(1, self.owner)
        try:
            yield
        finally:
            self.door.requests.take_now(1, self.owner)

    async def keep_memory(self, size_bytes: int) -> None:
        """Have so much of the memory that all connections share, whatever was taken before; waits for room."""
        if size_bytes > self._taken_bytes:
            await self.door.memory.take(size_bytes - self._taken_bytes, self.owner)
        else:
            self.door.memory.give_back(self._taken_bytes - size_bytes, self.owner)
        self._taken_bytes = size_bytes

    def end(self) -> None:
        """Give back the memory of the answer, which was sent, or never will be."""
        self.door.memory.give_back(self._taken_bytes, self.owner)
        self._taken_bytes = 0

    async def in_thread(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Call what may wait for a disk or a lock."""
        return await self._in_thread(partial(function, *args, **kwargs), self.door.threads)

    async def change(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """As ``in_thread``, of what changes topics: one at a time, since others would only wait for it in threads."""
        return await self._in_thread(partial(function, *args, **kwargs), self.door.changing, self.door.threads)

    async def _in_thread(self, function: Callable[[], R], *shares: "Shares") -> R:
        """Call in a thread, with one of each share; a call whose client is gone has them until the thread is done."""
        taken: list[Shares] = []
        try:
            for one in shares:
                await one.take(1, self.owner)
                taken.append(one)
            work = self.door.executor.submit(function)
        except BaseException:
            _give_back(taken, self.owner)
            raise
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            self.session.give_up()
            raise
        finally:
            if work.done():
                _give_back(taken, self.owner)
            else:
                work.add_done_callback(partial(_give_back_later, asyncio.get_running_loop(), taken, self.owner))

    async def wait(self, positions: Mapping[TopicPartition, int], timeout_ms: int, isolation_level: IsolationLevel) -> bool:
        """Wait, without a thread, until one of the partitions has a record at its position.

        Raises:
            AuthenticationFailed: The credential of the client is no longer valid.
            UnknownTopic, UnknownPartition, Closed: A partition is gone.
        """
        timeout_ms = min(timeout_ms, self.door.limits.wait_ms_max)
        with self._waiting():
            found = await self.door.waits.wait(positions, timeout_ms, isolation_level=isolation_level)
        self.session.check()
        return found

    async def outcome(self, future: "Future[R]") -> R:
        """Wait, without a thread, for a call that other clients end.

        Raises:
            Closed: The door is draining.
            whatever the future says.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[R] = loop.create_future()
        future.add_done_callback(partial(_tell, loop, told))
        with self._waiting(), self.door.drained_by(told):
            return await told


def _give_back(taken: "Iterable[Shares]", owner: "Owner") -> None:
    for one in taken:
        one.give_back(1, owner)


def _give_back_later(loop: asyncio.AbstractEventLoop, taken: "Iterable[Shares]", owner: "Owner", _work: "Future[Any]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(_give_back, taken, owner)


def _tell(loop: asyncio.AbstractEventLoop, told: "asyncio.Future[R]", future: "Future[R]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(_settle, told, future)


def _settle(told: "asyncio.Future[R]", future: "Future[R]") -> None:
    if told.done():
        return
    error = future.exception()
    if error is None:
        told.set_result(future.result())
    else:
        told.set_exception(error)
