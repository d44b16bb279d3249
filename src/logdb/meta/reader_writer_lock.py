"""A reader-writer lock: many threads share it, or one has it alone.

The catalogue's environment has one (a new map needs it alone), and so has a store (a snapshot captures all ends alone).
"""

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self


class ReaderWriterLock:
    """Shared by many threads, or held by one alone.

    A thread that waits to be alone goes before new sharers.  The lock is reentrant: a thread that shares it may share it
    again, or take it alone.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: dict[int, int] = {}  # thread -> how often it has entered
        self._waiting = 0

    def shared(self) -> Self:
        """The context manager for sharing."""
        return self

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
