"""Redis Streams: a redis-server with an append-only file, synced every second, and redis-py with hiredis.

Each answer follows the file's write; what is read comes from the server's memory, which holds all of the stream.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benches.peers import not_importable
from benches.peers._server import HOST, free_port, not_installed, program, running
from benches.workload import Measure, Work, rate

if TYPE_CHECKING:
    from redis import Redis

_STREAM = "t"
_PAGE_COUNT = 1_000
# Its snapshots and the rewriting of its file are off: neither belongs to a log.
_CONFIG = ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0", "--save", "")


def missing() -> str | None:
    return not_installed("redis-server") or not_importable("redis") or not_importable("hiredis")


@contextlib.contextmanager
def _client(work: Work) -> "Iterator[Redis]":
    from redis import Redis

    port, place = free_port(), work.directory / "redis"
    place.mkdir()
    command = (program("redis-server") or "", "--bind", HOST, "--port", str(port), "--dir", str(place), *_CONFIG)
    with running(command, port, work.directory / "output"), Redis(HOST, port) as client:
        yield client


def _append(work: Work, client: "Redis") -> float:
    """XADD of all records, a pipeline of 1,000 a time; returns when it began."""
    batches = list(work.batches())
    began = work.start()
    for keys, values in batches:
        pipeline = client.pipeline(transaction=False)
        for key, value in zip(keys, values, strict=True):
            pipeline.xadd(_STREAM, {b"k": key, b"v": value})
        pipeline.execute()
    return began


def _scan(client: "Redis") -> tuple[int, int]:
    """XRANGE of 1,000 entries a page."""
    count = size_bytes = 0
    first = b"-"
    xrange: Any = client.xrange  # its types allow for answers that are decoded
    while page := xrange(_STREAM, min=first, count=_PAGE_COUNT):
        for _, fields in page:
            size_bytes += len(fields[b"v"])
        count += len(page)
        first = b"(" + page[-1][0]
    return count, size_bytes


def append_many(work: Work) -> Measure:
    with _client(work) as client:
        began = _append(work, client)
        seconds = time.perf_counter() - began
        work.check(_scan(client))
        return rate(work.count, seconds)


def scan_values(work: Work) -> Measure:
    with _client(work) as client:
        _append(work, client)
        return work.passes(lambda: _scan(client))


def append(work: Work) -> Measure:
    """One record a call, acknowledged: ms."""
    value = bytes(work.value_size)
    with _client(work) as client:
        client.xadd(_STREAM, {b"v": value})
        began = work.start()
        for _ in range(work.count - 1):
            client.xadd(_STREAM, {b"v": value})
        seconds = time.perf_counter() - began
        work.check(_scan(client))
        return Measure(seconds / (work.count - 1) * 1e3, "ms")


OPERATIONS = {operation.__name__: operation for operation in (append_many, scan_values, append)}
