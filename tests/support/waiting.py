"""Waits for what another thread or process does, without a deadline that a slow machine misses."""

import time
from collections.abc import Callable
from pathlib import Path


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


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or is a zombie: in a container without init, nobody waits for one whose parent is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
