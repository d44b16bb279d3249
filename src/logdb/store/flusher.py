"""The two threads of a store: one writes lingering batches, the other syncs, seals and makes checkpoints.

Both sleep until something is due: an idle store wakes neither thread.
"""

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable
from heapq import heappop, heappush

from logdb.errors import SyncFailed
from logdb.io import IO
from logdb.log import shared_sync
from logdb.log.log import Log
from logdb.threads import started

logger = logging.getLogger(__name__)

_SYNC_TICK_MS = 50  # between two rounds: logs that are due at about the same time share a round
_TOGETHER_MS = 5_000  # a checkpoint due so soon is made together with one that is due now, in one transaction of the catalogue
_SYNCED_TOGETHER_MS = 500  # the same for a sync that many logs share
_RETRY_MS = 200  # after a failed write, so that a full disk does not keep a core busy


class _Signal:
    """Wakes one thread.  Unlike an Event it holds no lock of Python's that an exception from outside (Ctrl-C) could leave locked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is already set
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, and clear it; False after the timeout."""
        return self._lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))


class Flusher:
    """Runs a round over the registered logs until none has work left."""

    def __init__(self, io: IO, linger_ms: int, checkpoint: Callable[[list[Log]], None]) -> None:
        self._io, self._linger_ms, self._checkpoint = io, linger_ms, checkpoint
        self._lingering: set[Log] = set()
        self._unsynced: set[Log] = set()  # woken since the last round
        self._due: dict[Log, int] = {}  # when to look at a log again; each has one entry in the heap with this time, and perhaps others
        self._heap: list[tuple[int, int, Log]] = []
        self._number = itertools.count()
        self._failed: set[tuple[str, Log]] = set()  # logs whose failure was already reported, by thread
        self._wake_writer, self._wake_syncer = _Signal(), _Signal()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads; raises ThreadUnavailable, after which ``stop`` has to be called."""
        self._threads.append(started("logdb-writer", self._write_loop))
        self._threads.append(started("logdb-syncer", self._sync_loop))

    def stop(self) -> None:
        """End both threads after their present round."""
        self._stopped.set()
        self._wake_writer.set()
        self._wake_syncer.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def wake_writer(self, log: Log) -> None:
        """``log`` has records to write; cheap, from any thread."""
        self._lingering.add(log)
        self._wake_writer.set()

    def wake_syncer(self, log: Log) -> None:
        """``log`` has data to sync or a segment to seal; cheap, from any thread."""
        self._unsynced.add(log)
        self._wake_syncer.set()

    def forget(self, log: Log) -> None:
        self._lingering.discard(log)
        self._unsynced.discard(log)
        self._due.pop(log, None)

    def _write_loop(self) -> None:
        while not self._stopped.is_set():
            self._wake_writer.wait()
            wait_ms = self._linger_ms
            while self._lingering and not self._stopped.wait(wait_ms / 1000):
                failed = self._write_lingering()
                wait_ms = _RETRY_MS if failed else max(self._linger_ms, 1)

    def _write_lingering(self) -> bool:
        """One round over the logs with records in the open batch; True if a write failed."""
        failed, now_ms = False, self._io.monotonic_ms()
        for log in list(self._lingering):
            self._lingering.discard(log)  # first: a later record adds it again
            try:
                waits = log.write_lingering(now_ms, self._linger_ms)
                self._failed.discard(("write", log))
            except Exception as error:  # noqa: BLE001 -- a thread that ended of one log would leave all others unsynced
                waits, failed = not isinstance(error, SyncFailed), True
                self._report("write", log, error)
            if waits:
                self._lingering.add(log)
        return failed

    def _sync_loop(self) -> None:
        wait_s: float | None = None
        while not self._stopped.is_set():
            if self._wake_syncer.wait(wait_s) and self._stopped.wait(_SYNC_TICK_MS / 1000):
                return
            wait_s = self._sync_due()

    def _sync_due(self) -> float | None:
        """One round over the logs that were woken, and those that are due; returns the time until the next is, None if no work is left."""
        now_ms = self._io.monotonic_ms()
        logs, tended, ready = self._take(now_ms), [], []
        unsynced = self._sync(logs, now_ms)
        for log in logs:
            if log in unsynced:
                continue
            try:
                if _is_due(log.checkpoint_due_ms(), now_ms):
                    ready.append(log)
                if _is_due(log.high_watermark_due_ms(), now_ms):
                    log.note_high_watermark()
                if _is_due(log.idle_due_ms(), now_ms):
                    log.free_idle_space()
                self._failed.discard(("sync", log))
                tended.append(log)
            except Exception as error:  # noqa: BLE001 -- a thread that ended of one log would leave all others unsynced
                self._report("sync", log, error)
                if not isinstance(error, SyncFailed):
                    tended.append(log)
        tended += [log for log, error in unsynced.items() if not isinstance(error, SyncFailed)]
        if ready:
            others = {*tended, *list(self._due)}.difference(ready)
            ready += [log for log in others if _is_due(log.checkpoint_due_ms(), now_ms + _TOGETHER_MS)]
            try:
                self._checkpoint(ready)
                self._failed.difference_update([("checkpoint", log) for log in ready])
            except Exception as error:  # noqa: BLE001 -- a thread that ended of one log would leave all others unsynced
                self._report("checkpoint", ready[0], error)
                if isinstance(error, SyncFailed):
                    tended = [log for log in tended if log not in ready]
        return self._wait_s(tended)

    def _take(self, now_ms: int) -> list[Log]:
        """The logs to look at; those that wait for their time cost nothing."""
        woken = list(self._unsynced)
        self._unsynced.difference_update(woken)  # first: a later write adds one again
        logs = dict.fromkeys(woken)
        self._take_due(logs, now_ms)
        if len(logs) >= shared_sync.COUNT_MIN:
            self._take_due(logs, now_ms + _SYNCED_TOGETHER_MS)
        return list(logs)

    def _take_due(self, logs: dict[Log, None], until_ms: int) -> None:
        while self._heap and self._heap[0][0] <= until_ms:
            due_ms, _, log = heappop(self._heap)
            if self._due.get(log) == due_ms:
                self._due.pop(log, None)
                logs[log] = None

    def _wait_s(self, tended: list[Log]) -> float | None:
        """Note when to look at these logs again; returns the time until the first of all is due."""
        for log in tended:
            due_ms, known_ms = log.due_ms(), self._due.get(log)
            if due_ms is None:
                self._due.pop(log, None)
            elif known_ms is None or due_ms < known_ms:  # else it is looked at early, once
                self._due[log] = due_ms
                heappush(self._heap, (due_ms, next(self._number), log))
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        if not self._heap:
            return None
        return max(self._heap[0][0] - self._io.monotonic_ms(), _SYNC_TICK_MS) / 1000

    def _sync(self, logs: list[Log], now_ms: int) -> dict[Log, Exception]:
        """Sync those that are due; returns the errors of those that could not be."""
        failed: dict[Log, Exception] = {}

        def report(log: Log, error: Exception) -> None:
            failed[log] = error
            self._report("sync", log, error)

        due = [log for log in logs if _is_due(log.sync_due_ms(), now_ms)]
        if len(due) >= shared_sync.COUNT_MIN:  # those that are due soon, too: so there are fewer such syncs
            due = [log for log in logs if _is_due(log.sync_due_ms(), now_ms + _SYNCED_TOGETHER_MS)]
        shared_sync.sync(self._io, due, report)
        return failed

    def _report(self, what: str, log: Log, error: Exception) -> None:
        if (what, log) not in self._failed:
            self._failed.add((what, log))
            logger.error("in the background, %s-%d: %s", log.topic, log.partition, error)


def _is_due(due_ms: int | None, now_ms: int) -> bool:
    return due_ms is not None and due_ms <= now_ms
