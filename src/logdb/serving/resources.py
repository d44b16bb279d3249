"""What the requests of a server share, and what one request has of it: threads, memory, slots, and waits without a thread.

A request counts as one in progress (``requests``) while it is worked on.  It gives its slot back while it waits: for its body, for
records, for other members of a group, for its answer to be sent.  What a request has taken is counted for its ``owner``.

Threading: the event loop of the server.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from logdb.access.access_control import AccessControl
from logdb.access.session import AuthorizedSession
from logdb.broker.async_waiting import Changing, Waits
from logdb.broker.waiting import COMMIT_WAIT_MS_MAX
from logdb.codec import convert
from logdb.codec.batch import CODEC_MASK, count_and_attributes
from logdb.errors import CommitTimeout, NotLeaderOrFollower
from logdb.log.isolation import IsolationLevel
from logdb.model import NOTHING_KNOWN, Buffer, Durability, KnownLog, TopicPartition
from logdb.pools import Pool
from logdb.serving.limits import Limits
from logdb.serving.shares import NoRoom, Owner, Shares
from logdb.store.protocols import Leadership

if TYPE_CHECKING:
    from logdb.serving.server import Upgrade

P = ParamSpec("P")
R = TypeVar("R")

_LOOK_ELSEWHERE_MS = 50
MEMORY_WAIT_S = 5.0
"""How long a request waits for memory before it is refused."""
ON_LOOP_COUNT_MAX = 64
"""Partitions that one request reads or appends to on the loop; more of them hold up all other clients."""
_THREAD_COUNT = 64  # of all doors; one owner has half
_CHANGING_COUNT = 2
_APPENDED_ON_LOOP_BYTES_MAX = 256 << 10  # an append of that size takes less than the way to a thread and back
_EXPANSION = 64  # a compressed batch of 4 KiB may take as long: by gzip and lz4 it expands to 4 MiB at most
_BATCH_BYTES = 256  # and so may a thousand small batches
_SLOW_S, _IN_THREADS_S = 0.1, 1.0


class ServerShares:
    """What the requests of all doors of a server share: a client that comes to two of them has no more than by one.

    field         meaning                                                        changed by
    requests      requests in progress                                           RequestResources
    memory        bytes of requests and answers                                  RequestResources, the doors
    threads       threads of the doors                                           RequestResources
    changing      changes of topics                                              RequestResources.change
    appending     appends in threads, by partition: an append on the loop        DoorResources.appending_to
                  would wait for them
    slow_until_s  until then no append is made on the loop: one took longer      DoorResources.append_on_loop
                  than memory does, so writes wait for the disk
    """

    def __init__(self, limits: Limits) -> None:
        self.requests = Shares(limits.requests_max, "requests")
        self.memory = Shares(limits.memory_bytes_max, "bytes of memory", wait_s=MEMORY_WAIT_S)
        self.threads = Shares(_THREAD_COUNT, "threads")
        self.changing = Shares(_CHANGING_COUNT, "changes of topics")
        self.appending: Counter[TopicPartition] = Counter()
        self.slow_until_s = 0.0


class DoorResources:
    """What the requests of one door share.

    field         meaning                                                        changed by
    executor      threads for calls that may wait for a disk or a lock
    shares        what all doors have together; its fields are the door's        the server, before the door opens
    waits         waits for records                                              begin_waits, when the door opens
    hand_over     gives a connection to another door                             the server, before the door opens
    upgrade       makes another door's protocol for a connection                 the same
    draining      no request is to go on waiting                                 end_waits, for good
    ending        set when that begins                                           end_waits, for good
    _pending      futures of calls that wait for other clients                   drained_by
    """

    waits: Waits
    hand_over: Callable[[str, asyncio.Transport, bytes], None]
    upgrade: "Upgrade"

    def __init__(self, access: AccessControl, limits: Limits, threads_name: str) -> None:
        self.access, self.limits = access, limits
        self.executor = Pool(_THREAD_COUNT, threads_name)
        self.shares = ServerShares(limits)
        self.draining = False
        self.ending = asyncio.Event()
        self._pending: set[asyncio.Future[Any]] = set()

    @property
    def shares(self) -> ServerShares:
        return self._shares

    @shares.setter
    def shares(self, shares: ServerShares) -> None:
        self._shares = shares
        self.requests, self.memory, self.threads, self.changing = shares.requests, shares.memory, shares.threads, shares.changing
        self.appending = shares.appending

    def begin_waits(self) -> None:
        """The running event loop is the door's."""
        self.waits = self.access.waits()

    def end_waits(self) -> None:
        """Drain: each wait ends now, and so does each that begins from now on."""
        self.draining = True
        self.ending.set()
        self.waits.release()
        for told in self._pending:
            _end(told)

    @contextlib.contextmanager
    def drained_by(self, told: "asyncio.Future[Any]") -> Iterator[None]:
        """While a call waits for ``told``, draining ends that with NoRoom."""
        self._pending.add(told)
        if self.draining:
            _end(told)
        try:
            yield
        finally:
            self._pending.discard(told)

    # ------------------------------------------------------------ appends of record batches

    def appends_at_once(self, where: TopicPartition, durability: Durability | None, size_bytes: int) -> bool:
        """Whether an append may be made on the loop: it waits neither for a disk nor for a thread that appends more."""
        return self.is_free(where, size_bytes) and self.access.appends_at_once(*where, durability)

    def is_free(self, where: TopicPartition, size_bytes: int) -> bool:
        """Whether an append of that size is short enough for the loop, and waits for no thread that appends more."""
        is_fast = time.monotonic() >= self._shares.slow_until_s
        return is_fast and size_bytes <= _APPENDED_ON_LOOP_BYTES_MAX and where not in self.appending

    def append_on_loop(self, append: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Append on the loop; after one that waited for the disk, threads append for a while."""
        began_s = time.monotonic()
        try:
            return append(*args, **kwargs)
        finally:
            ended_s = time.monotonic()
            if ended_s - began_s > _SLOW_S:
                self.shares.slow_until_s = ended_s + _IN_THREADS_S

    def is_at_end(self, where: TopicPartition, offset: int) -> bool:
        """Whether nothing is to be read from ``offset`` on, so that a read waits for no disk."""
        return where not in self.appending and self.access.is_at_end(*where, offset)

    @staticmethod
    def append_size(batches: Buffer) -> int:
        """The size in bytes by which an append counts.

        That of compressed batches is a multiple, since they are expanded to be checked; a batch has a least one.  A few bytes of zstd
        may expand to 64 MiB, or of snappy say so: where blocks may hold more than 2 MiB, they count as too many for the loop.
        """
        if len(batches) > _APPENDED_ON_LOOP_BYTES_MAX:
            return len(batches)
        count, attributes = count_and_attributes(batches)
        size_bytes = max(len(batches), _BATCH_BYTES * (count - 1))
        if not attributes & CODEC_MASK:
            return size_bytes
        size_bytes *= _EXPANSION
        if size_bytes > _APPENDED_ON_LOOP_BYTES_MAX:
            return size_bytes
        return max(size_bytes, convert.expanded_bytes(batches) * _APPENDED_ON_LOOP_BYTES_MAX // convert.HELD_BYTES_MAX)

    @contextlib.contextmanager
    def appending_to(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Within the block a thread appends to the partitions, or will."""
        self.appending.update(partitions)
        try:
            yield
        finally:
            for where in partitions:
                self.appending[where] -= 1
                if not self.appending[where]:
                    del self.appending[where]


class RequestResources:
    """One request of a door; what it has taken is given back by ``end``.

    field          meaning                                                       changed by
    session        of the principal that makes the request                       the door, once it is authenticated
    owner          for whom shares are counted                                   the same
    _taken_bytes   memory that it has                                            take_memory, keep_memory, give_memory_back
    _slot_count    1: it is one of the requests in progress, or waits            take_slot
    _wait_count    how many blocks of ``waiting`` it is in                       waiting
    """

    door: DoorResources
    session: AuthorizedSession

    def __init__(self, door: DoorResources, owner: Owner) -> None:
        self.door, self.owner = door, owner
        self._taken_bytes = self._slot_count = self._wait_count = 0

    def end(self) -> None:
        """The request is answered, or cannot be any more."""
        self.give_memory_back()
        self.door.requests.give_back(self._slot_count, self.owner)

    # ------------------------------------------------------------ slots

    def take_slot(self) -> None:
        """Be one of the requests in progress, until ``end``.

        Raises:
            NoRoom: There are too many.
        """
        if not self.door.requests.take_if_room(1, self.owner):
            raise self.door.requests.refusal(1, self.owner)
        self._slot_count = 1

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Within the block another request may have the slot of this one."""
        self._wait_count += 1
        if self._wait_count == 1:
            self.door.requests.give_back(self._slot_count, self.owner)
        try:
            yield
        finally:
            self._wait_count -= 1
            if not self._wait_count:
                self.door.requests.take_now(self._slot_count, self.owner)

    # ------------------------------------------------------------ threads

    @contextlib.asynccontextmanager
    async def share(self, shares: Shares) -> AsyncIterator[None]:
        """Have one of a share within the block, once it is this request's turn."""
        await shares.take(1, self.owner)
        try:
            yield
        finally:
            shares.give_back(1, self.owner)

    def call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
        """Call what may wait for a disk, off the loop."""
        return self._in_thread(partial(function, *args, **kwargs), self.door.threads)

    def append_in_thread(
        self, partitions: Collection[TopicPartition], append: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Append off the loop, to these partitions."""
        appending = self.door.appending_to(partitions)
        return self._in_thread(partial(append, *args, **kwargs), self.door.threads, within=appending)

    def change(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
        """As ``call``, of what changes topics: one change runs at a time, others would only wait for it in threads."""
        return self._in_thread(partial(function, *args, **kwargs), self.door.changing, self.door.threads)

    async def _in_thread(
        self, function: Callable[[], R], *shares: Shares, within: contextlib.AbstractContextManager[None] | None = None
    ) -> R:
        """Call in a thread, with one of each of the shares; a cancelled request has them until the thread is done.

        Args:
            within: Entered before shares are waited for, left with them.
        """
        taken = contextlib.ExitStack()
        try:
            if within is not None:
                taken.enter_context(within)
            for one in shares:
                await one.take(1, self.owner)
                taken.callback(one.give_back, 1, self.owner)
            work = self.door.executor.submit(function)
        except BaseException:
            taken.close()
            raise
        try:
            return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            self.session.give_up()
            raise
        finally:
            if work.done():
                taken.close()
            else:
                work.add_done_callback(partial(_give_back_later, asyncio.get_running_loop(), taken))
            del work  # it has the error, whose traceback has this frame

    # ------------------------------------------------------------ memory

    async def take_memory(self, size_bytes: int) -> None:
        """Take memory until the request ends.

        Raises:
            NoRoom: There is none.
        """
        await self.door.memory.take(size_bytes, self.owner)
        self._taken_bytes += size_bytes

    async def keep_memory(self, size_bytes: int) -> None:
        """Have so much memory from now on, whatever was taken before; raises as ``take_memory``."""
        more_bytes = size_bytes - self._taken_bytes
        if more_bytes > 0:
            await self.door.memory.take(more_bytes, self.owner)
        else:
            self.door.memory.give_back(-more_bytes, self.owner)
        self._taken_bytes += more_bytes

    def give_memory_back(self) -> None:
        """Give back all memory that the request has taken."""
        if self._taken_bytes:
            self.door.memory.give_back(self._taken_bytes, self.owner)
            self._taken_bytes = 0

    # ------------------------------------------------------------ waits, without a thread

    async def hold_back(self) -> int:
        """Wait for as long as the principal's quotas demand, or until the door drains: before an answer, and in streams.

        Returns:
            The wait that the quotas demand, in ms.
        """
        delay_ms = self.session.take_throttle_ms() if hasattr(self, "session") else 0
        if delay_ms:
            with self.waiting(), contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.door.ending.wait(), delay_ms / 1000)
        return delay_ms

    async def wait(
        self,
        positions: Mapping[TopicPartition, int],
        timeout_ms: int,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        replica: bool = False,
        at_followers: bool = False,
        known: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN,
    ) -> bool:
        """As ``Session.wait``; the caller has authorized the principal to read the partitions.

        Args:
            replica, at_followers: See ``Waits.wait``.

        Raises:
            AuthenticationFailed: The credential of the client is no longer valid.
            errors of ``Waits.wait``.
        """
        with self.waiting():
            timeout_ms = min(timeout_ms, self.door.limits.wait_ms_max)
            try:
                found = await self.door.waits.wait(
                    positions, timeout_ms, isolation_level=isolation_level, replica=replica, at_followers=at_followers, known=known
                )
            except NotLeaderOrFollower:
                if not self.session.forwards:
                    raise
                found = await self._pause(min(timeout_ms, _LOOK_ELSEWHERE_MS))
        self.session.check()
        return found

    async def changed(self, source: Changing, seen: int, timeout_ms: int) -> bool:
        """As ``Waits.wait_for_change``; raises AuthenticationFailed if the credential of the client is no longer valid."""
        with self.waiting():
            found = await self.door.waits.wait_for_change(source, seen, timeout_ms)
        self.session.check()
        return found

    async def _pause(self, wait_ms: int) -> bool:
        """Another node leads a partition: wait a moment, or until the door drains, then let the caller look there."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.door.ending.wait(), wait_ms / 1000)
        return True

    async def committed(self, leadership: Leadership, offset: int, timeout_ms: int = COMMIT_WAIT_MS_MAX) -> None:
        """Wait until the in-sync replicas have what lies below ``offset``.

        Raises:
            NotLeaderAfterAppend, NotEnoughReplicasAfterAppend: as ``Leadership.is_committed``.
            CommitTimeout: They have not within ``timeout_ms``.
        """
        timeout_ms = min(timeout_ms, COMMIT_WAIT_MS_MAX)
        until = time.monotonic() + timeout_ms / 1000
        with self.waiting():
            while not leadership.is_committed(offset):
                left_ms = round((until - time.monotonic()) * 1000)
                if left_ms <= 0 or self.door.draining:
                    raise CommitTimeout(leadership.log.topic, leadership.log.partition, timeout_ms)
                await self.door.waits.wait_for_commit(leadership, offset, left_ms)

    async def outcome(self, future: "Future[R]") -> R:
        """The result of a call that waits for other clients.

        Raises:
            NoRoom: The server drains before there is one.
            errors of the future.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Future[R] = loop.create_future()
        future.add_done_callback(partial(_tell, loop, told))
        try:
            with self.waiting(), self.door.drained_by(told):
                return await told
        finally:
            del future, told  # they have the error, whose traceback has this frame


def _give_back_later(loop: asyncio.AbstractEventLoop, taken: contextlib.ExitStack, _work: "Future[Any]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed
        loop.call_soon_threadsafe(taken.close)


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


def _end(told: "asyncio.Future[Any]") -> None:
    if not told.done():
        told.set_exception(NoRoom("the server is draining"))
