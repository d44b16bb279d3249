"""Something is sent again and again while a test does other things."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

_PAUSE_S, _AT_ONCE = 0.01, 10


@contextlib.contextmanager
def fed(send: Callable[[int], object]) -> Iterator[None]:
    """Call ``send`` with 0, 1, 2 …, about a thousand times a second, until the block ends."""
    ends, numbers = threading.Event(), itertools.count()

    def feed() -> None:
        while not ends.wait(_PAUSE_S):
            for _ in range(_AT_ONCE):
                send(next(numbers))

    with ThreadPoolExecutor(1) as executor:
        feeding = executor.submit(feed)
        try:
            yield
        finally:
            ends.set()
        feeding.result()
