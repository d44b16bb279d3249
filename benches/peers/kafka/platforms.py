"""The same operations on every broker: each starts one of its own, on an empty directory, and sees afterwards that the work was done.

Knows processes, and how long they take to answer.  Does not know what they are.
"""

import contextlib
import functools
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benches.peers._server import HOST, free_port, running
from benches.peers.kafka import clients
from benches.workload import Measure, Work, Wrong

if TYPE_CHECKING:
    from benches.peers import Operation
    from benches.peers.kafka.clients import ClientOperation

Prepare = Callable[[Path, int], Sequence[str]]
"""Makes what a broker needs in a directory; returns the command that serves it on a port of the loopback."""

_POLL_S, _START_S = 0.002, 90
_IDLE_S = 1


@contextlib.contextmanager
def serving(prepare: Prepare, work: Work) -> "Iterator[tuple[str, subprocess.Popen[bytes]]]":
    """A broker with an empty topic; yields its address and its process."""
    directory, port = work.directory / "broker", free_port()
    directory.mkdir()
    with running(prepare(directory, port), port, work.directory / "output") as process:
        address = f"{HOST}:{port}"
        clients.make_topic(address)
        yield address, process


def _write(prepare: Prepare, warm: bool, operation: "ClientOperation", work: Work) -> Measure:
    with serving(prepare, work) as (address, process):
        if warm:
            _warm(work, address)
        measure = _timed(operation, work, address, process)
        if (end := clients.end_offset(address)) != work.count:
            raise Wrong(f"{work.count} records were acknowledged, {end} are there")
        return measure


def _read(prepare: Prepare, warm: bool, operation: "ClientOperation", work: Work) -> Measure:
    with serving(prepare, work) as (address, _):
        clients.fill(work, address)
        if warm:
            clients.consume_once(work, address)
        return operation(work, address)


def _timed(operation: "ClientOperation", work: Work, address: str, process: "subprocess.Popen[bytes]") -> Measure:
    """The measure, with the broker's own time beside it: that moves less with what else the machine does."""
    before_s = clients.processor_s(process.pid)
    measure = operation(work, address)
    spent_us = (clients.processor_s(process.pid) - before_s) / work.count * 1e6
    return measure._replace(note="; ".join(filter(None, (measure.note, f"the broker: {spent_us:.3g} µs of a processor a record"))))


def _warm(work: Work, address: str) -> None:
    """A JVM compiles what runs often: records in and out of another topic, then single ones."""
    some = Work(work.directory, 500_000, work.value_size)
    clients.make_topic(address, clients.WARM_TOPIC)
    clients.fill(some, address, clients.WARM_TOPIC)
    clients.consume_once(some, address, clients.WARM_TOPIC)
    clients.send_single(Work(work.directory, 3_000, work.value_size), address, clients.WARM_TOPIC)


# ---------------------------------------------------------------- processes


@contextlib.contextmanager
def _process(command: Sequence[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that is killed in the end; what it prints is kept nowhere.  A Python may keep compiled files."""
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=compiling()) as process:
        try:
            yield process
        finally:
            process.kill()


def _until(is_there: Callable[[], bool], process: "subprocess.Popen[bytes]") -> float:
    """Wait until it is; returns the seconds.

    Raises:
        Wrong: It is not in time, or the process ended.
    """
    began = time.perf_counter()
    while not is_there():
        if process.poll() is not None or time.perf_counter() - began > _START_S:
            raise Wrong(f"{process.args!r} does not answer, exit {process.poll()}")
        time.sleep(_POLL_S)
    return time.perf_counter() - began


def compiling() -> dict[str, str]:
    """The environment, but for what forbids Python to keep compiled files."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _start(prepare: Prepare, work: Work) -> Measure:
    """From the start of the process on an empty directory to its answers to ApiVersions and Metadata: ms.  The second of two."""
    seconds = 0.0
    for name in ("before", "measured"):
        directory, port = work.directory / name, free_port()
        directory.mkdir()
        command = prepare(directory, port)
        work.start()
        with _process(command) as process:
            seconds = _until(functools.partial(clients.answers, f"{HOST}:{port}"), process)
    return Measure(seconds * 1e3, "ms")


def _restart(prepare: Prepare, work: Work) -> Measure:
    """From the start after kill -9 with all records to the answer that names the log end: ms."""
    directory, port = work.directory / "broker", free_port()
    directory.mkdir()
    command, address = prepare(directory, port), f"{HOST}:{port}"
    with _process(command) as process:
        _until(lambda: clients.answers(address), process)
        clients.make_topic(address)
        clients.fill(work, address)
    work.start()
    with _process(command) as process:
        seconds = _until(lambda: clients.end_offset(address) >= 0, process)
        if (end := clients.end_offset(address)) != work.count:
            raise Wrong(f"{work.count} records were acknowledged, {end} are there")
        return Measure(seconds * 1e3, "ms")


def _resident(prepare: Prepare, work: Work) -> Measure:
    """Resident memory after all records went in and out: MB."""
    with serving(prepare, work) as (address, process):
        clients.fill(work, address)
        clients.consume_once(work, address)
        time.sleep(_IDLE_S)
        return Measure(clients.resident_mb(process.pid), "MB")


def operations(prepare: Prepare, *, warm: bool = False) -> "dict[str, Operation]":
    """All operations, on brokers of one make.

    Args:
        warm: A broker gets other records before it is timed.
    """
    writes = {one.__name__: functools.partial(_write, prepare, warm, one) for one in clients.WRITES}
    reads = {one.__name__: functools.partial(_read, prepare, warm, one) for one in clients.READS}
    alone = {"start": _start, "restart": _restart, "resident": _resident}
    return {**writes, **reads, **{name: functools.partial(one, prepare) for name, one in alone.items()}}
