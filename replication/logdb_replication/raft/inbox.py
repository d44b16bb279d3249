"""What is asked of a voter, until it is settled: commands, barriers, changes of the voters; so many at a time, and so large.

    put ──► waits here ──► take ──► waits in the journal, or for a round ──► settle
                │
                cancelled by its caller: the voter has not taken it, and no journal has it

What was put counts until it is settled, also in the journal: a leader without a majority does not fill the memory.

Threading: ``put`` and ``empty``: any thread; the rest: the node's.
"""

import logging
import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError
from typing import Any

from logdb.threads import renewed
from logdb_replication.raft.asked import Asked
from logdb_replication.raft.errors import CommandTooLarge, QuorumStopped, TooManyCommands
from logdb_replication.raft.journal import COMMAND_SIZE_BYTES_MAX

logger = logging.getLogger(__name__)


class Inbox:
    """Bounded; every field under ``_lock``."""

    def __init__(self, count_max: int, size_bytes_max: int) -> None:
        self._count_max, self._size_bytes_max = count_max, size_bytes_max
        self._lock = renewed(threading.Lock())
        self._waiting: deque[Asked] = deque()
        self._count = self._size_bytes = 0
        self._closed: QuorumStopped | None = None

    @property
    def empty(self) -> bool:
        return not self._waiting

    def put(self, what: Asked) -> None:
        """Raises CommandTooLarge, TooManyCommands, QuorumStopped: it was not taken."""
        size_bytes = len(what.data)
        if size_bytes >= COMMAND_SIZE_BYTES_MAX:
            raise CommandTooLarge(size_bytes, COMMAND_SIZE_BYTES_MAX - 1)
        with self._lock:
            if self._closed is not None:
                raise self._closed
            if self._count >= self._count_max or self._size_bytes + size_bytes > self._size_bytes_max:
                raise TooManyCommands(self._count, self._size_bytes)
            self._count += 1
            self._size_bytes += size_bytes
            self._waiting.append(what)

    def take(self) -> Asked | None:
        """The next that was not cancelled; from now on it cannot be."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                what = self._waiting.popleft()
            if what.future.set_running_or_notify_cancel():
                return what
            self._uncount(what)

    def settle(self, what: Asked, outcome: bytes | int | Exception) -> None:
        """It waits no longer."""
        self._uncount(what)
        future: Future[Any] = what.future
        try:
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        except InvalidStateError:
            logger.debug("settled twice: %r", outcome)

    def close(self, reason: QuorumStopped) -> None:
        """Nothing is put any more; what waits here was not applied and never will be."""
        with self._lock:
            self._closed = reason
        while (what := self.take()) is not None:
            self.settle(what, reason)

    def _uncount(self, what: Asked) -> None:
        with self._lock:
            self._count -= 1
            self._size_bytes -= len(what.data)
