"""Periodic tasks of a store: retention, compaction, sidecars.

The store registers a task with an interval and a predicate over configs: which topics need it.  One thread (``logdb-housekeeper``)
starts with the first topic that needs a task, so a store without such topics has none.  Tasks run one after the other.  A round
returns when the next one is needed; it may be only on request.

Threading: all methods, from any thread.  A long task calls ``pause`` or ``stopping`` now and then, and returns when they say so,
because closing the store waits for it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from math import inf

from logdb.io import IO
from logdb.model import ConfigValue
from logdb.threads import renewed, started

logger = logging.getLogger(__name__)

UNTIL_ASKED = inf  # the result of a round that leaves nothing to do
Round = Callable[[], float | None]


class _Task:
    """One task and its times.

    ``due_ms``: when the next round begins.  ``ended_ms``: when the last one ended, or the thread started; infinite during a round.
    ``asked``: a round was requested since the last one began.
    """

    def __init__(
        self, name: str, work: Round, interval_ms: int, first_ms: float, needed: Callable[[Mapping[str, ConfigValue]], bool]
    ) -> None:
        self.name, self.work, self.interval_ms, self.first_ms, self.needed = name, work, interval_ms, first_ms, needed
        self.due_ms = self.ended_ms = inf
        self.asked = False
        self.failure = ""  # the last failure, reported once


class Housekeeping:
    """The tasks of one store, and their thread."""

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
        """Register a task; before the first ``consider``.

        Args:
            work: One round over everything that may be due.  Returns the ms until the next one is needed, or ``UNTIL_ASKED``;
            None: the interval.  Its exceptions are logged, and the next round tries again.
            interval_ms: The shortest time from the end of one round to the begin of the next; 1 or more.
            first_ms: From the start of the thread to the first round; ``UNTIL_ASKED``: only on request; None: the interval.
            needed: Whether a topic with these configs (only those that were set) needs the task.
        """
        self._tasks[name] = _Task(name, work, interval_ms, interval_ms if first_ms is None else first_ms, needed)

    def consider(self, config: Mapping[str, ConfigValue]) -> bool:
        """A topic has these configs: start the thread, if they need a task; returns whether it runs.

        Raises:
            ThreadUnavailable: The thread could not be started; the next call tries again.
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
        """Request a round: it begins when the interval since the last one is over; the caller does not wait."""
        with self._lock:
            task = self._tasks[name]
            task.asked = True
            task.due_ms = min(task.due_ms, task.ended_ms + task.interval_ms)
        self._wake.set()

    def hasten(self, name: str) -> None:
        """Begin the next round of a task at once, if the thread runs; the caller does not wait."""
        self._tasks[name].due_ms = self._io.monotonic_ms()
        self._wake.set()

    def stop(self) -> bool:
        """End the thread after its present task; none begins afterwards.  Returns whether it had started."""
        with self._lock:
            self._stopped.set()
            self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        return self._thread is not None

    @property
    def stopping(self) -> bool:
        """Whether the store is closing: then a task has to end soon."""
        return self._stopped.is_set()

    def pause(self, wait_ms: float) -> bool:
        """Leave the disk to others for a while; False if the store is closing."""
        return not self._stopped.wait(wait_ms / 1000)

    def _loop(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()  # first: a later request sets it again
            for task in self._tasks.values():
                if task.due_ms <= self._io.monotonic_ms() and not self._stopped.is_set():
                    self._do(task)
            left_ms = min(task.due_ms for task in self._tasks.values()) - self._io.monotonic_ms()
            self._wake.wait(None if left_ms == inf else min(max(left_ms, 0) / 1000, threading.TIMEOUT_MAX))

    def _do(self, task: _Task) -> None:
        with self._lock:
            task.due_ms = task.ended_ms = inf  # ``hasten`` may set it during the task
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
