"""A log by hand: a file of two length prefixes, key and value.  No checksum, no index."""

import os
import struct
import time

from benches.workload import KEY_SIZE_BYTES, Measure, Work, rate

_LENGTHS = struct.Struct("<II")


def missing() -> str | None:
    return None


def append(work: Work) -> Measure:
    """One ``write`` a record into Python's buffered file."""
    keys, values = work.records()
    pack = _LENGTHS.pack
    with open(work.directory / "log", "wb") as file:
        write = file.write
        began = work.start()
        for key, value in zip(keys, values, strict=True):
            write(pack(len(key), len(value)) + key + value)
        file.flush()
        seconds = time.perf_counter() - began
    _check(work)
    return rate(work.count, seconds)


def append_many_durable(work: Work) -> Measure:
    """Batches joined in memory, one write and one fdatasync each."""
    batches = list(work.batches())
    pack = _LENGTHS.pack
    with open(work.directory / "log", "wb", buffering=0) as file:
        began = work.start()
        for keys, values in batches:
            parts: list[bytes] = []
            for key, value in zip(keys, values, strict=True):
                parts += (pack(len(key), len(value)), key, value)
            file.write(b"".join(parts))
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - began
    _check(work)
    return rate(work.count, seconds)


def _check(work: Work) -> None:
    size_bytes = (work.directory / "log").stat().st_size
    overhead = work.count * (_LENGTHS.size + KEY_SIZE_BYTES)
    work.check((work.count, size_bytes - overhead))


OPERATIONS = {"append": append, "append_many_durable": append_many_durable}
