"""A reader-writer lock: many threads share it, or one has it alone.

The catalogue's environment has one (a new map needs it alone), and so has a store (a snapshot captures all ends alone).
"""

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType


class ReaderWriterLock:
    """Shared by many threads (``with lock:``), or held by one (``with lock.alone():``).

    A thread that waits to be alone goes before new sharers.  The lock is reentrant: a thread that shares it may share it
    again, or take it alone.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}  # thread -> how often it has entered
        self._waiting = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._lock:
            while self._waiting and me not in self._inside:
                self._changed.wait()
            self._inside[me] = self._inside.get(me, 0) + 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        me = threading.get_ident()
        with self._lock:
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
                if self._waiting:
                    self._changed.notify_all()

    def _at_fork_reinit(self) -> None:
        """In a forked child (``threads.renewed``): no other thread shares it or waits."""
        self._changed._at_fork_reinit()  # type: ignore[attr-defined]  # as threading's own
        me = threading.get_ident()
        self._inside = {thread: count for thread, count in self._inside.items() if thread == me}
        self._waiting = 0

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._changed:
            self._waiting += 1
            try:
                while self._inside.keys() - {me}:
                    self._changed.wait()
                yield
            finally:
                self._waiting -= 1
                self._changed.notify_all()
