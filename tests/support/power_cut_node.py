"""``logdb`` on a disk that loses its power at SIGUSR1: beside the data directory it leaves what the machine would find afterwards.

power_cut_node.py SEED DATA ARGUMENT…    ``DATA.cut`` is made of DATA; the controller's files are those that it has synced itself
"""

import os
import random
import runpy
import signal
import sys
import uuid

from logdb.store.store import Store
from support.power_cut import PowerCutIO, commits_noted


def run(seed: str, data: str, *arguments: str) -> None:
    io, opened = PowerCutIO(data, boot=uuid.uuid4().hex), Store.open
    Store.open = lambda path, **options: opened(path, io=io, **options)

    def lose_power(*_: object) -> None:
        io.dead = True
        io.cut(f"{data}.cut", random.Random(seed))
        os.kill(os.getpid(), signal.SIGKILL)

    signal.signal(signal.SIGUSR1, lose_power)
    sys.argv[1:] = arguments
    with commits_noted(io):
        runpy.run_module("logdb.cli", run_name="__main__")


if __name__ == "__main__":
    run(*sys.argv[1:])
