"""How fast a node fetches for replicas that are being added: so many bytes a second, over all leaders."""

import threading

from logdb.threads import renewed


class Throttle:
    """Threading: any thread.  ``free_ms``: nothing more is to be fetched before that time."""

    def __init__(self) -> None:
        self.free_ms = 0
        self._bytes_per_s: int | None = None
        self._lock = renewed(threading.Lock())

    def limit(self, bytes_per_s: int | None) -> None:
        """Let so many bytes come in a second; None: any number.  What came under another limit delays no fetch any more."""
        with self._lock:
            if bytes_per_s != self._bytes_per_s:
                self._bytes_per_s, self.free_ms = bytes_per_s, 0

    def took(self, size_bytes: int, now_ms: int) -> None:
        """So many bytes have come."""
        with self._lock:
            if self._bytes_per_s is not None:
                self.free_ms = max(self.free_ms, now_ms) + size_bytes * 1000 // self._bytes_per_s
