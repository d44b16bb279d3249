"""A thread that works on what it is given, all of it at once: what comes meanwhile is its next round."""

import logging
import threading
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from logdb.threads import renewed, started

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Worker(Generic[T]):
    """Calls ``work`` with the items that were added since its last call.

    | field        | changed by        | under       | to be trusted                                        |
    |--------------|-------------------|-------------|------------------------------------------------------|
    | ``_items``   | add, the thread   | ``_lock``   | always: what no round has begun with                 |
    | ``_closed``  | end               | ``_lock``   | for good                                             |
    """

    def __init__(self, name: str, work: Callable[[Collection[T]], None]) -> None:
        """Start the thread; raises ThreadUnavailable."""
        self._name, self._work = name, work
        self._items: set[T] = set()
        self._closed = False
        self._lock = renewed(threading.Condition())
        self._thread = started(name, self._run)

    def add(self, item: T) -> None:
        """Have an item worked on; any thread, waits for nothing."""
        if item in self._items:  # its round begins later
            return
        with self._lock:
            self._items.add(item)
            self._lock.notify()

    def end(self) -> None:
        """Let the thread end behind its present round."""
        with self._lock:
            self._closed = True
            self._lock.notify()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for that."""
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._items and not self._closed:
                    self._lock.wait()
                if self._closed:
                    return
                items, self._items = self._items, set()
            try:
                self._work(items)
            except Exception:
                logger.exception("%s", self._name)
