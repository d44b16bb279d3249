"""Coroutines that call synchronous methods: their threads, and waits for other threads."""

import asyncio
import contextlib
import contextvars
import datetime
import functools
import operator
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from itertools import islice
from math import inf
from types import TracebackType
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar, get_args

from logdb.errors import Closed
from logdb.handles import Handle, refusing
from logdb.model import duration_ms
from logdb.pools import Pool
from logdb.signatures import readable

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
M = TypeVar("M")
C = TypeVar("C", bound="Closing")

TAKE_COUNT = 512  # records of one call in a thread
WAIT_MS_MAX = 100  # until a consumer, or a reader that follows a log, looks again without a signal
_THREAD_COUNT = 32  # at most; they are started when needed

listened: contextvars.ContextVar[object] = contextvars.ContextVar("listened", default=None)
"""The consumer whose listener runs in this context, while a thread waits for it."""


class Threads:
    """The threads for calls that may wait."""

    def __init__(self) -> None:
        self._pool = Pool(_THREAD_COUNT, "logdb-aio")
        self._listeners = Pool(_THREAD_COUNT, "logdb-aio-listener")  # the threads of the other pool wait for its calls
        self._stopped = False

    def start(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[R]":
        """Call ``function`` in a thread.

        Raises:
            Closed: The database is closed.
            ThreadUnavailable: No thread is free, and none could be started.
        """
        if self._stopped:
            raise Closed("the database is closed")
        pool = self._pool if listened.get() is None else self._listeners
        return asyncio.get_running_loop().run_in_executor(pool, functools.partial(function, *args, **kwargs))

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """As ``start``, and wait for the result."""
        return await self.start(function, *args, **kwargs)

    def stop(self) -> None:
        """Refuse later calls."""
        self._stopped = True
        self._pool.shutdown(wait=False)
        self._listeners.shutdown(wait=False)


_RIGHT_CALLS = {
    "__iter__": "a {} of logdb.aio is read by: async for … in …",
    "__next__": "the next one of a {} of logdb.aio is: await anext(…)",
    "__contains__": "`in` would block the event loop. Use: await {}.contains(key)",
    "__len__": "len() and bool() would block the event loop. Use: await {}.count()",
    "__enter__": "a {} of logdb.aio is entered by: async with …",
    "__exit__": "a {} of logdb.aio is entered by: async with …",
}
"""What stands in the error for the synchronous habit, by special method."""


@readable
class Mirror(Handle, Generic[S]):
    """An object of ``logdb`` and the threads that its methods are called in.

    A special method that the synchronous class has, and that would wait, raises TypeError with the right call.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        (sync,) = [get_args(base)[0] for base in getattr(cls, "__orig_bases__", ()) if get_args(base)] or [object]
        for name, call in _RIGHT_CALLS.items():
            if hasattr(sync, name) and not hasattr(cls, name):
                setattr(cls, name, refusing(name, call))

    def __new__(cls, *args: Any, **_options: Any) -> Self:
        if len(args) < 2:  # by a user
            raise TypeError(f"a {cls.__name__} of logdb.aio is made by: logdb.aio.open(PATH or URL), or a call of the database it opens")
        return super().__new__(cls)

    def __init__(self, sync: S, threads: Threads) -> None:
        self._sync, self._threads = sync, threads

    def __repr__(self) -> str:
        return f"<aio {self._sync!r}>"

    async def _call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return await self._threads.run(function, self._sync, *args, **kwargs)


def in_thread(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The method of that name as a coroutine that calls it in a thread."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._call(operator.methodcaller(name, *args, **kwargs))
        return result

    return call


def at_once(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The method of that name as it is: it only reads memory."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = getattr(self._sync, name)(*args, **kwargs)
        return result

    return call


class Closing(Protocol):
    """An asynchronous context manager that closes itself."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


_OPENING = "use: async with … as x, or x = await …"


class Opening(Handle, Generic[C]):
    """An object that is being opened: ``async with`` it, or ``await`` it."""

    __enter__, __exit__, __iter__ = (refusing(name, _OPENING) for name in ("__enter__", "__exit__", "__iter__"))

    def __init__(self, make: Callable[[], Coroutine[Any, Any, C]]) -> None:
        self._make, self._made = make, contextlib.AsyncExitStack()

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name!r}: the object is not open yet; {_OPENING}", name=name, obj=self)

    def __await__(self) -> Generator[Any, None, C]:
        return self._make().__await__()

    async def __aenter__(self) -> C:
        made = await self._make()
        await self._made.enter_async_context(made)
        return made

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._made.__aexit__(kind, error, trace)


def opened(method: Callable[Concatenate[Any, P], S], mirror: Callable[[S, Threads], C]) -> Callable[Concatenate[Any, P], Opening[C]]:
    """As ``mirrored``, for an object that closes itself."""
    make = mirrored(method, mirror)

    @functools.wraps(method)
    def call(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> Opening[C]:
        return Opening(functools.partial(make, self, *args, **kwargs))

    return call


def mirrored(
    method: Callable[Concatenate[Any, P], S], mirror: Callable[[S, Threads], M]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, M]]:
    """The method of that name as a coroutine that returns the ``mirror`` of its result."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Mirror[Any], /, *args: P.args, **kwargs: P.kwargs) -> M:
        return mirror(await self._threads.run(getattr(self._sync, name), *args, **kwargs), self._threads)

    return call


class Wake(threading.Event):
    """An event that threads set and a coroutine waits for."""

    def __init__(self) -> None:
        super().__init__()
        self._loop, self._woken = asyncio.get_running_loop(), asyncio.Event()

    def set(self) -> None:
        """Called in any thread, by each append: only the first one since the last look calls the loop."""
        if self.is_set():
            return
        super().set()
        with contextlib.suppress(RuntimeError):  # the loop was closed: no coroutine waits
            self._loop.call_soon_threadsafe(self._woken.set)

    def clear(self) -> None:
        super().clear()
        self._woken.clear()

    async def wait_for(self, timeout_ms: float) -> None:
        """Return when it was set, or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), None if timeout_ms == inf else timeout_ms / 1000)


async def stream(threads: Threads, make: Callable[[], Iterator[R]]) -> AsyncIterator[R]:
    """The items of an iterator, several for each call in a thread."""
    iterator = await threads.run(make)
    while taken := await threads.run(lambda: list(islice(iterator, TAKE_COUNT))):
        for item in taken:
            yield item


class Deadline:
    """How much of a timeout is left; None: it never ends."""

    def __init__(self, timeout_ms: float | datetime.timedelta | None) -> None:
        self._loop = asyncio.get_running_loop()
        timeout_ms = duration_ms(timeout_ms) if isinstance(timeout_ms, datetime.timedelta) else timeout_ms
        self._until = None if timeout_ms is None else self._loop.time() + timeout_ms / 1000

    @property
    def left_ms(self) -> float:
        return inf if self._until is None else (self._until - self._loop.time()) * 1000
