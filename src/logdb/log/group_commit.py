"""Many threads, one sync: whoever comes first leads, the others wait for what it makes durable.

Knows threads and offsets.  Does not know files: the leader calls ``work``.

    commit ──► nobody leads ──► lead: gather, work, wake those it covered ──► done
       └─────► wait ──► covered ──► done
                  └───► not covered: leads next

A leader that has seen company waits a moment before its sync, at most half as long as a
sync takes, so that those whom the last one woke are in this one instead of the next.

An exception from outside (a signal handler's) may hit a leader at any place, even where it
hands the lead on.  So nobody relies on that: who has waited long while nobody works leads
itself.  Two leaders at a time do no harm, ``work`` has its own lock.
"""

import threading
import time
from collections.abc import Callable

_GATHER_MAX_S = 0.002
_LEADERLESS_S = 0.05  # without anybody at work: then the lead was lost


class _Waiter:
    __slots__ = ("covered", "leads", "offset", "woken")

    def __init__(self, offset: int) -> None:
        self.offset, self.leads, self.covered = offset, False, False
        self.woken = threading.Lock()
        self.woken.acquire()


class GroupCommit:
    """Waits for durability, shared.  ``work`` makes durable what there is and returns up to where, or raises."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._mutex = threading.Lock()
        self._working = threading.Lock()
        self._leading = False
        self._waiting: list[_Waiter] = []
        self._company = 1  # how many committed at about the same time of late
        self._work_s = 0.0
        self._gathered = threading.Lock()
        self._gathered.acquire()
        self._gathering = False

    def commit(self, offset: int) -> None:
        """Return once everything below ``offset`` is durable; raises what this thread's own ``work`` raised.

        An exception from outside (Ctrl-C) hands the lead on, or leaves the queue.
        """
        waiter, durable = _Waiter(offset), -1
        try:
            self._enter(waiter)
            while not (waiter.covered or waiter.leads or waiter.woken.acquire(timeout=_LEADERLESS_S)):
                self._take_over(waiter)
            if waiter.leads:
                with self._working:
                    self._gather()
                    began = time.perf_counter()
                    durable = self._work()
                    self._work_s = time.perf_counter() - began
        finally:
            if waiter.leads:
                self._hand_on(durable)
            elif waiter in self._waiting:
                self._leave(waiter)

    def _enter(self, waiter: _Waiter) -> None:
        """Lead if nobody does, else queue up."""
        with self._mutex:
            if not self._leading:
                self._leading = waiter.leads = True
                return
            self._waiting.append(waiter)
            if self._gathering and len(self._waiting) + 1 >= self._company:
                self._gathering = False
                if self._gathered.locked():
                    self._gathered.release()

    def _take_over(self, waiter: _Waiter) -> None:
        """Lead, if nobody is at work."""
        if not self._working.locked():
            with self._mutex:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                self._leading = waiter.leads = True

    def _leave(self, waiter: _Waiter) -> None:
        with self._mutex:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        if waiter.leads:  # it was just handed on
            self._hand_on(-1)

    def _hand_on(self, durable: int) -> None:
        """Wake those whose offset is durable, and let the first of the others lead."""
        with self._mutex:
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
