"""What a store does now and then, beside everything else: retention, compaction.

Knows when a task is due, and for which topics it is needed at all.  Does not know what it does.

A task is named by the store with an interval and a question: does a topic with these configs
need you?  The one thread (``logdb-housekeeper``) begins with the first topic that needs a
task, so a store without such topics has none.  Tasks run one after the other.  A round says when
the next one is needed; where nothing is to do before somebody asks for it, the thread sleeps until then.

Threading: all methods, from any thread.  A task that takes long asks ``pause`` or ``stopping``
now and then, and returns when they say so: closing the store waits for it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from math import inf

from logdb.io import IO
from logdb.model import ConfigValue
from logdb.threads import renewed, started

logger = logging.getLogger(__name__)

UNTIL_ASKED = inf  # what a round returns that leaves nothing to do
Round = Callable[[], float | None]


class _Task:
    """``due_ms``: when the next round begins.  ``ended_ms``: when the last one ended, or the thread began; infinite while one runs.
    ``asked``: for a round, since the last one began.
    """

    def __init__(
        self, name: str, work: Round, interval_ms: int, first_ms: float, needed: Callable[[Mapping[str, ConfigValue]], bool]
    ) -> None:
        self.name, self.work, self.interval_ms, self.first_ms, self.needed = name, work, interval_ms, first_ms, needed
        self.due_ms = self.ended_ms = inf
        self.asked = False
        self.failure = ""  # the last one, said once


class Housekeeping:
    """The tasks of one store, and the thread that does them."""

    def __init__(self, io: IO, thread_name: str = "logdb-housekeeper") -> None:
        self._io, self._thread_name = io, thread_name
        self._tasks: dict[str, _Task] = {}
        self._thread: threading.Thread | None = None
        self._lock = renewed(threading.Lock())
        self._wake, self._stopped = renewed(threading.Event()), renewed(threading.Event())

    def add(
        self,
        name: str,
        work: Round,
        *,
        interval_ms: int,
        first_ms: float | None = None,
        needed: Callable[[Mapping[str, ConfigValue]], bool],
    ) -> None:
        """Name a task; before the first ``consider``.

        Args:
            work: One round over everything that may be due.  Returns how many ms later the next one is needed, perhaps
                ``UNTIL_ASKED``; None: after the interval.  What it raises is logged, and the next round tries again.
            interval_ms: From the end of one round to the begin of the next, at least; 1 or more.
            first_ms: From the begin of the thread to that of the first round; ``UNTIL_ASKED``: there is none before; None: the interval.
            needed: Whether a topic with these configs (only those that were set) gives the task something to do.
        """
        self._tasks[name] = _Task(name, work, interval_ms, interval_ms if first_ms is None else first_ms, needed)

    def consider(self, config: Mapping[str, ConfigValue]) -> bool:
        """There is a topic with these configs: begin, unless begun, if a task is needed for it; returns whether it runs.

        Raises:
            ThreadUnavailable: There is no thread for it; the next call tries again.
        """
        if self._thread is None and any(task.needed(config) for task in self._tasks.values()):
            self._begin()
        return self._thread is not None

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                now_ms = self._io.monotonic_ms()
                for task in self._tasks.values():
                    task.ended_ms = now_ms
                    task.due_ms = now_ms if task.asked else now_ms + task.first_ms
                self._thread = started(self._thread_name, self._loop)

    def ask(self, name: str) -> None:
        """There may be something to do: a round begins once the interval since the last one is over; the caller does not wait for it."""
        with self._lock:
            task = self._tasks[name]
            task.asked = True
            task.due_ms = min(task.due_ms, task.ended_ms + task.interval_ms)
        self._wake.set()

    def hasten(self, name: str) -> None:
        """Let the next round of a task begin at once, if the thread runs; the caller does not wait for it."""
        self._tasks[name].due_ms = self._io.monotonic_ms()
        self._wake.set()

    def stop(self) -> bool:
        """End the thread, after what it is at; nothing begins any more.  Returns whether it had begun."""
        with self._lock:
            self._stopped.set()
            self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return self._thread is not None

    @property
    def stopping(self) -> bool:
        """Whether the store is being closed: a task ends as soon as it can."""
        return self._stopped.is_set()

    def pause(self, wait_ms: float) -> bool:
        """Let others have the disk for a while; False if the store is being closed meanwhile."""
        return not self._stopped.wait(wait_ms / 1000)

    def _loop(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()  # before looking: what comes later sets it again
            for task in self._tasks.values():
                if task.due_ms <= self._io.monotonic_ms() and not self._stopped.is_set():
                    self._do(task)
            left_ms = min(task.due_ms for task in self._tasks.values()) - self._io.monotonic_ms()
            self._wake.wait(None if left_ms == inf else min(max(left_ms, 0) / 1000, threading.TIMEOUT_MAX))

    def _do(self, task: _Task) -> None:
        with self._lock:
            task.due_ms = task.ended_ms = inf  # `hasten` may overrule it while the task runs
            task.asked = False
        rest_ms: float | None = None
        try:
            rest_ms = task.work()
            task.failure = ""
        except Exception as error:  # noqa: BLE001 -- a thread that ended of one task would leave the others undone
            if str(error) != task.failure:
                task.failure = str(error)
                logger.error("%s in the background: %s", task.name, error)
        with self._lock:
            task.ended_ms = self._io.monotonic_ms()
            rest_ms = task.interval_ms if rest_ms is None or task.asked else max(rest_ms, task.interval_ms)
            task.due_ms = min(task.due_ms, task.ended_ms + rest_ms)
