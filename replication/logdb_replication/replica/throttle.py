"""How fast a node fetches for replicas that are being added: so many bytes a second, over all leaders."""

import threading

from logdb.threads import renewed


class Throttle:
    """Threading: any thread; ``bytes_per_s`` is set by the manager, None: no limit."""

    def __init__(self) -> None:
        self.bytes_per_s: int | None = None
        self._free_ms = 0
        self._lock = renewed(threading.Lock())

    def took(self, size_bytes: int, now_ms: int) -> int:
        """So many bytes have come; returns the time before which those who took them fetch no more."""
        rate = self.bytes_per_s
        if rate is None:
            return now_ms
        with self._lock:
            self._free_ms = max(self._free_ms, now_ms) + size_bytes * 1000 // rate
            return self._free_ms
