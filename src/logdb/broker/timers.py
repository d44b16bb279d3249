"""Timers: one thread calls ``fire`` with each key that is due.

The thread is started before the first timer, and sleeps until the next one is due.  Each key has at most one valid entry in the heap.
Setting a timer later, as every heartbeat does, or cancelling it only changes a dictionary: the entry in the heap is corrected when it
reaches the top.

Threading: all methods, from any thread.  ``fire`` is called in the timer thread, for one key at a time, with no lock held.  It takes
the lock under which the key's timer is set, and then asks ``claim``.
"""

import heapq
import logging
import threading
from collections.abc import Callable, Hashable

from logdb.io import IO
from logdb.threads import renewed, started

logger = logging.getLogger(__name__)

_WAIT_MS_MAX = 3_600_000  # a longer wait is split: a lock takes no timeout of years


class Timers:
    """Calls ``fire(key)`` when a key is due."""

    def __init__(self, io: IO, fire: Callable[[Hashable], None]) -> None:
        self._io, self._fire = io, fire
        self._due_ms: dict[Hashable, int] = {}
        self._queued_ms: dict[Hashable, int] = {}  # the valid entry of each key: never later than its due time
        self._heap: list[tuple[int, int, Hashable]] = []  # (queued, number, key)
        self._number = 0
        self._lock = renewed(threading.Lock())  # entered by itself: a Ctrl-C in Condition.__enter__ would leave it locked
        self._changed = renewed(threading.Condition(self._lock))
        self._thread: threading.Thread | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the thread, before a step that a timer has to follow.

        Raises:
            ThreadUnavailable: The thread could not be started; the next call tries again.
        """
        with self._lock:
            if self._thread is None and not self._stopped:
                self._thread = started("logdb-timers", self._loop)

    def set(self, key: Hashable, delay_ms: int | None) -> None:
        """Let ``key`` fire in ``delay_ms``, instead of its earlier setting; None: cancel."""
        with self._lock:
            if delay_ms is None or self._stopped:
                self._due_ms.pop(key, None)
                return
            due_ms = self._due_ms[key] = self._io.monotonic_ms() + delay_ms
            queued_ms = self._queued_ms.get(key)
            if queued_ms is None or due_ms < queued_ms:
                self._queue(due_ms, key)
                if self._heap[0][2] == key:
                    self._changed.notify_all()

    def claim(self, key: Hashable) -> bool:
        """Whether ``key`` is still due: it was neither set again nor cancelled since it fired.  Cancels it."""
        with self._lock:
            due_ms = self._due_ms.get(key)
            if due_ms is None or due_ms > self._io.monotonic_ms():
                return False
            del self._due_ms[key]
            return True

    def forget(self, belongs: Callable[[Hashable], bool]) -> None:
        """Cancel the timers whose key satisfies ``belongs``; ``claim`` of one that is just firing is then False."""
        with self._lock:
            for key in [key for key in self._due_ms if belongs(key)]:
                del self._due_ms[key]
            for key in [key for key in self._queued_ms if belongs(key)]:
                del self._queued_ms[key]
            self._heap = [place for place in self._heap if not belongs(place[2])]
            heapq.heapify(self._heap)

    def fire_due(self) -> None:
        """Fire all keys that are due now, as the thread does."""
        for key in self._take_due():
            try:
                self._fire(key)
            except Exception:  # one timer's failure must not keep the others from firing
                logger.exception("a timer")

    def stop(self) -> None:
        """End the thread after its current call; no key fires afterwards."""
        with self._lock:
            self._stopped = True
            self._due_ms.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _queue(self, due_ms: int, key: Hashable) -> None:
        self._number += 1
        self._queued_ms[key] = due_ms
        heapq.heappush(self._heap, (due_ms, self._number, key))

    def _take_due(self) -> list[Hashable]:
        now_ms, due = self._io.monotonic_ms(), []
        with self._lock:
            while self._heap and self._heap[0][0] <= now_ms:
                queued_ms, _, key = heapq.heappop(self._heap)
                if self._queued_ms.get(key) != queued_ms:
                    continue  # an earlier entry is valid
                del self._queued_ms[key]
                due_ms = self._due_ms.get(key)
                if due_ms is not None and due_ms > now_ms:  # set to a later time since
                    self._queue(due_ms, key)
                elif due_ms is not None:
                    due.append(key)
        return due

    def _loop(self) -> None:
        while True:
            self.fire_due()
            with self._lock:
                if self._stopped:
                    return
                if not self._heap:
                    self._changed.wait()
                elif (wait_ms := self._heap[0][0] - self._io.monotonic_ms()) > 0:
                    self._changed.wait(min(wait_ms, _WAIT_MS_MAX) / 1000)
