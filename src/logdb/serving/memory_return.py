"""Memory that the allocator keeps is given back to the system, once a server has been busy and is idle again.

glibc keeps what a process has freed, in arenas of several threads: large bodies and answers, of an attack too, would count as the
server's memory for good.  ``malloc_trim`` returns the whole pages of it.  Other allocators return memory by themselves.

Each look asks how much processor time the process has used since the last one:

    much              the server is busy: memory is due, at most for ``DELAY_MAX_S``
    little            it is idle: what is due is returned, once

Threading: one event loop; the trim itself runs in a thread, since it may take some milliseconds.
"""

import asyncio
import contextlib
import ctypes
import time
from collections.abc import Callable

LOOK_S, DELAY_MAX_S = 10.0, 300.0
_BUSY_SHARE = 0.05  # of one processor


def trim() -> None:
    """Return the free pages of the allocator's arenas to the system; does nothing where that is not glibc's."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryReturn:
    """Of one server.

    ``_since`` is the number of looks at which memory was due already; 0: none is.
    """

    def __init__(self, *, processor_s: Callable[[], float] = time.process_time, give_back: Callable[[], None] = trim) -> None:
        """It does not look yet."""
        self._processor_s, self._give_back = processor_s, give_back
        self._used_s, self._since = processor_s(), 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look from now on, until ``end``."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_again(self) -> None:
        if self.is_due():
            asyncio.get_running_loop().run_in_executor(None, self._give_back)
        self.begin()

    def is_due(self) -> bool:
        """Look: whether memory is to be given back now."""
        before_s, self._used_s = self._used_s, self._processor_s()
        if self._used_s - before_s > _BUSY_SHARE * LOOK_S:
            self._since += 1
            if self._since * LOOK_S < DELAY_MAX_S:
                return False
        due, self._since = self._since > 0, 0
        return due
