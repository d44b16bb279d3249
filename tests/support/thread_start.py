"""A system that gives no thread, now and then."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


class Refusals:
    """``left``: how many more threads, of those whose names begin as wanted, cannot be started."""

    def __init__(self, count: int) -> None:
        self.left = count


@contextmanager
def refused(name: str, count: int = 1) -> Iterator[Refusals]:
    """Have ``Thread.start`` fail, as it does without memory, for the next threads with a name that begins so; all are to be asked for."""
    refusals, start = Refusals(count), threading.Thread.start

    def failing(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and refusals.left:
            refusals.left -= 1
            raise RuntimeError("can't start new thread")
        start(thread)

    with patch.object(threading.Thread, "start", failing):
        yield refusals
    assert not refusals.left, f"no call wanted a thread {name}"
