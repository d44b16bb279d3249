"""Group commit: one sync serves many threads.  The first thread leads, the others wait for its sync.

    commit ──► no leader ──► lead: gather, work, wake the covered ──► done
       └─────► wait ──► covered ──► done
                  └───► not covered: leads next

If threads committed together lately, the leader waits a moment before its sync, at most half as long as a sync takes: the threads
that the last sync woke then join this sync instead of the next.

An exception from outside (a signal handler's) may hit a leader anywhere, even while it hands the lead on.  So a thread that has
waited ``_LEADERLESS_S`` without a leader at work leads itself.  Two leaders at a time do no harm: ``work`` has its own lock.
"""

import threading
import time
from collections.abc import Callable

_GATHER_MAX_S = 0.002
_LEADERLESS_S = 0.05  # without a leader at work, after which the lead counts as lost


class _Waiter:
    __slots__ = ("covered", "leads", "offset", "woken")

    def __init__(self, offset: int) -> None:
        self.offset, self.leads, self.covered = offset, False, False
        self.woken = threading.Lock()
        self.woken.acquire()


class GroupCommit:
    """Shared waits for durability.  ``work`` syncs, and returns the offset below which all is durable, or raises."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._mutex = threading.Lock()
        self._working = threading.Lock()
        self._leading = False
        self._waiting: list[_Waiter] = []
        self._company = 1  # number of threads that committed together lately
        self._work_s = 0.0
        self._gathered = threading.Lock()
        self._gathered.acquire()
        self._gathering = False

    def commit(self, offset: int) -> None:
        """Return once everything below ``offset`` is durable; raises what ``work`` raised in this thread.

        An exception from outside (Ctrl-C) hands the lead on, or leaves the queue.
        """
        waiter: _Waiter | None = None
        leads, durable = False, -1
        try:
            waiter = self._enter(offset)
            while waiter is not None and not (waiter.covered or waiter.leads or waiter.woken.acquire(timeout=_LEADERLESS_S)):
                self._take_over(waiter)
            leads = waiter is None or waiter.leads
            if leads:
                with self._working:
                    if self._company > 1:
                        self._gather()
                    began = time.perf_counter()
                    durable = self._work()
                    self._work_s = time.perf_counter() - began
        finally:
            if leads:
                self._hand_on(durable)
            elif waiter is not None and not waiter.covered:
                self._leave(waiter)

    def _enter(self, offset: int) -> _Waiter | None:
        """Queue up behind the leader; None: there is none, and this thread leads."""
        waiter = _Waiter(offset) if self._leading else None  # made without the lock
        with self._mutex:
            if not self._leading:
                self._leading = True
                return None
            waiter = waiter or _Waiter(offset)
            self._waiting.append(waiter)
            if self._gathering and len(self._waiting) + 1 >= self._company:
                self._gathering = False
                if self._gathered.locked():
                    self._gathered.release()
            return waiter

    def _take_over(self, waiter: _Waiter) -> None:
        """Lead, if no leader is at work."""
        if not self._working.locked():
            with self._mutex:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                self._leading = waiter.leads = True

    def _leave(self, waiter: _Waiter) -> None:
        with self._mutex:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        if waiter.leads:  # the lead was just handed to it
            self._hand_on(-1)

    def _hand_on(self, durable: int) -> None:
        """Wake the waiters whose offset is durable, and let the first of the others lead."""
        with self._mutex:
            if not self._waiting:
                self._leading, self._company = False, max(1, self._company - 1)
                return
            covered = [waiter for waiter in self._waiting if waiter.offset <= durable]
            self._waiting = [waiter for waiter in self._waiting if waiter.offset > durable]
            self._company = max(len(covered) + len(self._waiting) + 1, self._company - 1)
            for waiter in covered:
                waiter.covered = True
            following = self._waiting.pop(0) if self._waiting else None
            self._leading = following is not None
            if following is not None:
                following.leads = True
        if following is not None:
            following.woken.release()
        for waiter in covered:
            waiter.woken.release()

    def _gather(self) -> None:
        """Wait a moment for as many threads as committed together lately."""
        with self._mutex:
            if len(self._waiting) + 1 >= self._company:
                return
            self._gathering = True
        self._gathered.acquire(timeout=min(self._work_s / 2, _GATHER_MAX_S))
        with self._mutex:
            if not self._gathering:
                self._gathered.acquire(blocking=False)  # released at the last moment
            self._gathering = False
