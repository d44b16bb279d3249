"""One read and one write of a log's bytes, 1 MiB a call, straight from system call to system call: what compaction cannot beat."""

import os
import time

from benches.workload import Measure, Work, rate

_SIZE_BYTES = 1 << 20
OVERHEAD_BYTES = 10  # of a record in a log, with its share of the batch's header


def missing() -> str | None:
    return None


def copy_durable(work: Work) -> Measure:
    """The copy synced, as a compaction has to before it takes the place of the log."""
    return _copy(work, sync=True)


def copy(work: Work) -> Measure:
    return _copy(work, sync=False)


def _copy(work: Work, *, sync: bool) -> Measure:
    keys, values = work.records()
    source, target = work.directory / "log", work.directory / "copy"
    with open(source, "wb") as file:
        file.writelines(key + value + bytes(OVERHEAD_BYTES) for key, value in zip(keys, values, strict=True))
    buffer = memoryview(bytearray(_SIZE_BYTES))
    buffer[:] = bytes(_SIZE_BYTES)
    with open(source, "rb", buffering=0) as read, open(target, "wb", buffering=0) as write:
        began = work.start()
        while size := read.readinto(buffer):
            write.write(buffer[:size])
        if sync:
            os.fdatasync(write.fileno())
        seconds = time.perf_counter() - began
    size = target.stat().st_size
    work.check((work.count, size - work.count * (len(keys[0]) + OVERHEAD_BYTES)))
    return rate(work.count, seconds)


OPERATIONS = {"copy": copy, "copy_durable": copy_durable}
