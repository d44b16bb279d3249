"""Ports of the loopback for servers that must know theirs before they listen.

They lie below those that the system gives to outgoing connections, each worker of the tests has its own, and gives each once.
"""

import contextlib
import itertools
import os
import random
import socket

_WORKERS, _ALL = 8, range(10_000, 32_000)
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
_OWN = _ALL[_WORKER * len(_ALL) // _WORKERS : (_WORKER + 1) * len(_ALL) // _WORKERS]
_next = itertools.cycle(random.SystemRandom().sample(_OWN, len(_OWN)))


def free_port() -> int:
    """A port that nothing listens at."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port := next(_next))):
            return port
