"""Waits for what another thread or process does, without a deadline that a slow machine misses."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str = "it does not happen", seconds: float = 30) -> float:
    """Return once ``condition()`` is true: how long it took, in s.

    Raises:
        AssertionError: It was not within ``seconds``; the text has ``what``.
    """
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.002)
    return time.monotonic() - began
