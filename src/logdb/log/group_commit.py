"""Many threads, one sync: whoever comes first leads, the others wait for what it makes durable.

Knows threads and offsets.  Does not know files: the leader calls ``work``.

    commit ──► nobody leads ──► lead: gather, work, wake those it covered ──► done
       └─────► wait ──► covered ──► done
                  └───► not covered: leads next

A leader that has seen company waits a moment before its sync, at most half as long as a
sync takes, so that those whom the last one woke are in this one instead of the next.
"""

import threading
import time
from collections.abc import Callable

_GATHER_MAX_S = 0.002


class _Waiter:
    __slots__ = ("leads", "offset", "woken")

    def __init__(self, offset: int) -> None:
        self.offset, self.leads = offset, False
        self.woken = threading.Lock()
        self.woken.acquire()


class GroupCommit:
    """Waits for durability, shared.  ``work`` makes durable what there is and returns up to where, or raises."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._mutex = threading.Lock()
        self._leading = False
        self._waiting: list[_Waiter] = []
        self._company = 1  # how many committed at about the same time of late
        self._work_s = 0.0
        self._gathered = threading.Lock()
        self._gathered.acquire()
        self._gathering = False

    def commit(self, offset: int) -> None:
        """Return once everything below ``offset`` is durable; raises what this thread's own ``work`` raised."""
        with self._mutex:
            waiter = _Waiter(offset) if self._leading else None
            self._leading = True
            if waiter is not None:
                self._waiting.append(waiter)
                if self._gathering and len(self._waiting) + 1 >= self._company:
                    self._gathering = False
                    self._gathered.release()
        if waiter is not None:
            waiter.woken.acquire()
            if not waiter.leads:
                return
        self._lead()

    def _lead(self) -> None:
        self._gather()
        began = time.perf_counter()
        durable = -1
        try:
            durable = self._work()
        finally:
            self._work_s = time.perf_counter() - began
            with self._mutex:
                covered = [waiter for waiter in self._waiting if waiter.offset <= durable]
                self._waiting = [waiter for waiter in self._waiting if waiter.offset > durable]
                self._company = max(len(covered) + len(self._waiting) + 1, self._company - 1)
                following = self._waiting.pop(0) if self._waiting else None
                self._leading = following is not None
            if following is not None:
                following.leads = True
                following.woken.release()
            for waiter in covered:
                waiter.woken.release()

    def _gather(self) -> None:
        """Wait for the company of late, but not long."""
        with self._mutex:
            if len(self._waiting) + 1 >= self._company:
                return
            self._gathering = True
        self._gathered.acquire(timeout=min(self._work_s / 2, _GATHER_MAX_S))
        with self._mutex:
            if not self._gathering:
                self._gathered.acquire(blocking=False)  # released at the last moment
            self._gathering = False
