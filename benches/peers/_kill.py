"""A writer in a process of its own, ended by SIGKILL in mid-append, and the opening of what it left."""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from benches.workload import BATCH_COUNT, Keys, Measure, Values, Work, Wrong


def write_until_killed(work: Work, batch: Callable[[Keys, Values], object]) -> NoReturn:
    """Append batches for ever; say so on stdout once ``work.count`` records are acknowledged."""
    batches = list(work.batches())
    count = 0
    while True:
        for keys, values in batches:
            batch(keys, values)
            count += BATCH_COUNT
            if count == work.count:
                print(count, flush=True)


def open_after_kill(work: Work, side: str, end_offset: Callable[[], int]) -> Measure:
    """Time ``end_offset``, which opens what a killed writer left and says where the log ends."""
    command = [sys.executable, "-m", "benches.side", side, "write", str(work.count), str(work.value_size), str(work.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        said = writer.stdout.readline()
        writer.kill()
    if said != f"{work.count}\n":
        raise Wrong(f"the writer said {said!r}")
    began = work.start()
    end = end_offset()
    seconds = time.perf_counter() - began
    if end < work.count:
        raise Wrong(f"{work.count} records were acknowledged, {end} are there")
    return Measure(seconds * 1e3, "ms", f"{end} records")
