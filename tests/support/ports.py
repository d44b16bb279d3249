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
PORTS = _ALL[_WORKER * len(_ALL) // _WORKERS : (_WORKER + 1) * len(_ALL) // _WORKERS]
_next = itertools.cycle(random.SystemRandom().sample(PORTS, len(PORTS)))


def free_port(taken: set[int] | None = None) -> int:
    """A port that nothing listens at; it comes into ``taken``, as where it stands for the function of a cluster's directories."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port := next(_next))):
            if taken is not None:
                taken.add(port)
            return port
