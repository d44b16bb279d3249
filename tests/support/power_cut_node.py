"""A broker, or a controller, on a disk that loses its power at SIGUSR1.

    power_cut_node.py broker SEED DATA ARGUMENT…        ``logdb ARGUMENT…``, which serves DATA; what it would find then is in ``DATA.cut``
    power_cut_node.py controller SEED CONFIG DIRECTORY  its controller, which it starts; the same in ``DIRECTORY.cut``

A broker has its controller lose its power, too, and takes what is left of that into ``DATA.cut``.  From then on no call returns.
``DATA.boot`` names the boot of the machine.

Threading: a thread of its own waits for the signal.
"""

import contextlib
import os
import random
import runpy
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from logdb.store.cluster_file import QUORUM_NAME
from logdb.store.store import Store
from logdb_replication.controller import process, supervisor
from logdb_replication.raft import quorum
from support.power_cut import PowerCutIO, commits_noted


class PoweredIO(PowerCutIO):
    """Syncs are real, and may hang or fail; a call after the cut never returns."""

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        super(PowerCutIO, self).fsync_dir(path)

    def _live(self) -> None:
        if self.dead:
            threading.Event().wait()

    def lose_power(self, seed: str) -> None:
        with self.tree_lock:
            self.dead = True
        self.cut(f"{self.root}.cut", random.Random(seed))


def on_signal(lose_power: Callable[[], None]) -> None:
    """Have it called at SIGUSR1, then kill the process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # of all threads and processes that this one starts

    def wait() -> None:
        signal.sigwait({signal.SIGUSR1})
        try:
            lose_power()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="power", daemon=True).start()


def broker(seed: str, data: str, *arguments: str) -> None:
    io, opened = PoweredIO(data, boot=Path(f"{data}.boot").read_text()), Store.open
    Store.open = lambda path, **options: opened(path, io=io, **options)
    supervisor.PROGRAM = (sys.executable, __file__, "controller", seed)

    def lose_power() -> None:
        supervisor.PROGRAM = ("false",)
        children = [int(pid) for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()]
        for pid in children:
            os.kill(pid, signal.SIGUSR1)
        io.lose_power(seed)
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            time.sleep(0.001)
        kept = Path(data, QUORUM_NAME + ".cut")
        shutil.rmtree(Path(f"{data}.cut", QUORUM_NAME), ignore_errors=True)
        shutil.copytree(kept if kept.exists() else Path(data, QUORUM_NAME), Path(f"{data}.cut", QUORUM_NAME))

    on_signal(lose_power)
    sys.argv[1:] = arguments
    with commits_noted(io):
        runpy.run_module("logdb.cli", run_name="__main__")


def controller(seed: str, config: str, directory: str) -> int:
    io = PoweredIO(directory)
    quorum.IO = lambda: io
    on_signal(lambda: io.lose_power(seed))
    return process.main([config, directory])


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit({"broker": broker, "controller": controller}[sys.argv[1]](*sys.argv[2:]))
