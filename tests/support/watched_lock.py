"""A lock that tells who has come to it."""

import threading
from typing import Any

from support.waiting import until


class WatchedLock:
    """In the place of a lock of ``threading``."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._awaited = lock, set[int]()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._awaited.add(threading.get_ident())
            self._lock.acquire()

    def __exit__(self, *_exception: object) -> None:
        self._lock.release()

    def until_awaited_by(self, thread: threading.Thread) -> None:
        """Return once the thread has found the lock taken, or has ended, so that it never will."""
        until(lambda: thread.ident in self._awaited or not thread.is_alive(), "a thread comes to the lock")
