"""A bound on log lines that strangers cause: so many in a time, and then how many more there were.

Threading: any number of threads.
"""

import logging
import threading
from collections.abc import Callable

from logdb.threads import renewed


class LineLimit:
    """Says of each line whether it may be written."""

    def __init__(self, logger: logging.Logger, what: str, monotonic_ms: Callable[[], int], *, count_max: int, window_ms: int) -> None:
        """``what``: names the lines that were left out, as in "1250 more refusals in the last 1000 ms"."""
        self._logger, self._what, self._monotonic_ms = logger, what, monotonic_ms
        self._count_max, self._window_ms = count_max, window_ms
        self._lock = renewed(threading.Lock())
        self._since_ms, self._count = monotonic_ms(), 0

    def may_write(self) -> bool:
        """Count one line; the first one of a window also reports how many the window before has left out."""
        with self._lock:
            now_ms = self._monotonic_ms()
            passed_ms = now_ms - self._since_ms
            if passed_ms >= self._window_ms:
                if self._count > self._count_max:
                    self._logger.warning("%d more %s in the last %d ms", self._count - self._count_max, self._what, passed_ms)
                self._since_ms, self._count = now_ms, 0
            self._count += 1
            return self._count <= self._count_max
