"""Disk space that is reserved behind the end of active segments at level fsync: a sync that does not extend its file is cheaper.

A log reserves as much as it wrote in the last second, within the budget of its directory.  So a trickle reserves nothing, and a
stream reserves growing steps.  docs/inside/durability.md (Preallocation) has the rules.

Threading: a ``Pace`` belongs to one log, under ``SegmentWriter.lock``.  Any thread may call a ``Budget``; ``free_all`` takes the lock of
each log that has reserved space, so its caller must hold none.
"""

import threading
from typing import Protocol

from logdb.io import IO
from logdb.model import OFFSET_MAX
from logdb.threads import renewed

STEP_SIZE_BYTES_MIN, STEP_SIZE_BYTES_MAX = 64 << 10, 8 << 20
BUDGET_SIZE_BYTES = 32 << 20
IDLE_MS = 5_000
"""A log that has written nothing for so long, or for twice as long, keeps no reserved space."""
_PERIOD_MS = 1_000
_DISK_SHARE = 16  # of the free space: the rest is for records, and for other programs


class Holder(Protocol):
    """A log that may have reserved space."""

    def free_space(self) -> bool:
        """Free the reserved space; False: there was none, or it could not be freed."""


class Pace:
    """How many bytes a log wrote in the last second, about; a position of its active segment is the only input.

    ``due_ms``: when to look whether the log still writes, on the monotonic clock; None: it has reserved nothing.
    """

    __slots__ = ("_position", "_seen_offset", "_since_ms", "due_ms")

    def __init__(self, position: int, now_ms: int) -> None:
        self._position, self._since_ms = position, now_ms
        self._seen_offset = OFFSET_MAX
        self.due_ms: int | None = None

    def lately(self, end: int, io: IO) -> int:
        """The bytes of the last second up to the position ``end``; 0 where they are too few to reserve as many."""
        if end - self._position < STEP_SIZE_BYTES_MIN:
            return 0
        now_ms = io.monotonic_ms()
        written, elapsed_ms = end - self._position, now_ms - self._since_ms
        if elapsed_ms > _PERIOD_MS:
            written = written * _PERIOD_MS // elapsed_ms
            self._position, self._since_ms = end - written, now_ms - _PERIOD_MS
        return written if written >= STEP_SIZE_BYTES_MIN else 0

    def restart(self, position: int, now_ms: int) -> None:
        """Nothing could be reserved: begin to count at a position, so that the next try comes later."""
        self._position, self._since_ms, self.due_ms = position, now_ms, None

    def rolled(self, size_bytes: int) -> None:
        """A new segment follows on one of ``size_bytes``, which keeps no reserved space: go on to count there."""
        self._position -= size_bytes
        self.due_ms = None

    def reserved(self, written_offset: int, now_ms: int) -> None:
        self._seen_offset, self.due_ms = written_offset, now_ms + IDLE_MS

    def is_idle(self, written_offset: int, now_ms: int) -> bool:
        """Whether nothing was written since the last look; otherwise there will be another one."""
        if written_offset == self._seen_offset:
            return True
        self.reserved(written_offset, now_ms)
        return False


class Budget:
    """The reserved space of all logs of one directory that is open for writing.

    What a log has used of its last step counts as reserved until the next one: the sum is an upper bound.
    """

    def __init__(self, io: IO) -> None:
        self._io = io
        self._lock = renewed(threading.Lock())
        self._reserved: dict[Holder, int] = {}
        self._sum = 0

    @property
    def size_bytes(self) -> int:
        """How much is reserved, at most."""
        return self._sum

    def grant(self, holder: Holder, size_bytes: int, directory: str) -> int:
        """How much of the wanted ``size_bytes`` a log may reserve, in place of its last step; 0: nothing.

        Half of what is left at most: logs that come later get some, too.
        """
        limit = min(BUDGET_SIZE_BYTES, self._io.free_bytes(directory) // _DISK_SHARE)
        with self._lock:
            left = limit - self._sum + self._reserved.get(holder, 0)
            granted = min(size_bytes, STEP_SIZE_BYTES_MAX, left // 2)
            if granted < STEP_SIZE_BYTES_MIN:
                granted = 0
            self._set(holder, granted)
        return granted

    def release(self, holder: Holder) -> bool:
        """A log has no reserved space any more; False: it had none."""
        with self._lock:
            return self._set(holder, 0) > 0

    def _set(self, holder: Holder, size_bytes: int) -> int:
        """Under ``_lock``; returns the size before."""
        before = self._reserved.pop(holder, 0)
        if size_bytes:
            self._reserved[holder] = size_bytes
        self._sum += size_bytes - before
        return before

    def free_all(self) -> bool:
        """Free the reserved space of all logs, because a disk is full; False: there was none."""
        with self._lock:
            holders = list(self._reserved)
        return sum(holder.free_space() for holder in holders) > 0
