"""What a worker of Connect does, whichever it is: files into topics and topics into files, by the same property files.

Knows property files and the REST API.  Does not know whose worker it is.
"""

import contextlib
import functools
import json
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benches.peers._server import HOST, free_port, running
from benches.peers.kafka import clients
from benches.workload import Measure, Work, Wrong, rate

if TYPE_CHECKING:
    from benches.peers import Operation

WARM_COUNT = 200_000
"""Lines that a worker copies before it is timed: a JVM compiles what runs often."""
_STRING = "org.apache.kafka.connect.storage.StringConverter"
_POLL_S, _STILL_S, _WAIT_S = 0.005, 1.0, 250

Command = Callable[[Path], Sequence[str]]
"""The command of a standalone worker, by its property file."""


class Worker(NamedTuple):
    """A worker that runs: where its broker is, its REST API, and its process."""

    address: str
    port: int
    pid: int

    def call(self, method: str, path: str, document: object = None) -> object:
        """The answer of the REST API."""
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(f"http://{HOST}:{self.port}{path}", body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
            return json.loads(content) if content else None

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return self.call("GET", "/connectors") == []
        return False

    def create(self, name: str, **config: object) -> None:
        self.call("PUT", f"/connectors/{name}/config", {key.replace("_", "."): str(value) for key, value in config.items()})

    def check(self, name: str) -> None:
        """Whether a connector and its tasks run.

        Raises:
            Wrong: One failed.
        """
        status = self.call("GET", f"/connectors/{name}/status")
        if "FAILED" in json.dumps(status):
            raise Wrong(json.dumps(status)[-1500:])


def properties(path: Path, values: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


@contextlib.contextmanager
def worker(command: Command, address: str, directory: Path, **more: object) -> Iterator[Worker]:
    """A standalone worker without connectors."""
    port = free_port()
    file = properties(
        directory / "worker.properties",
        {
            "bootstrap.servers": address,
            "key.converter": _STRING,
            "value.converter": _STRING,
            "listeners": f"http://{HOST}:{port}",
            "offset.storage.file.filename": directory / "offsets",
            "offset.flush.interval.ms": 10_000,
            **more,
        },
    )
    with running(command(file), port, directory / "worker.log") as process:
        one = Worker(address, port, process.pid)
        until(one.is_ready, lambda: None, 0.1)  # it listens before it answers
        yield one


def until(what: Callable[[], bool], check: Callable[[], None], poll_s: float = _POLL_S) -> None:
    """Wait.

    Raises:
        Wrong: It takes too long, or ``check`` says so.
    """
    end, check_at = time.monotonic() + _WAIT_S, time.monotonic() + 5
    while not what():
        if time.monotonic() > end:
            raise Wrong(f"not within {_WAIT_S} s")
        if time.monotonic() > check_at:
            check_at = time.monotonic() + 5
            check()
        time.sleep(poll_s)


def lines_file(work: Work) -> Path:
    """The values, one a line."""
    path = work.directory / "in.txt"
    _, values = work.records()
    with path.open("wb") as file:
        file.writelines(value + b"\n" for value in values)
    return path


def _warm(one: Worker, work: Work) -> None:
    """Other lines, into another topic and out of it."""
    some = Work(work.directory, WARM_COUNT, work.value_size)
    lines, copy = lines_file(some), work.directory / "warm.txt"
    clients.make_topic(one.address, "warm-lines")  # a consumer of Java's learns of a later one after minutes
    one.create("warm-source", connector_class="FileStreamSource", tasks_max=1, file=lines, topic="warm-lines")
    one.create("warm-sink", connector_class="FileStreamSink", tasks_max=1, file=copy, topics="warm-lines")
    size = lines.stat().st_size
    until(lambda: copy.exists() and copy.stat().st_size >= size, functools.partial(one.check, "warm-sink"), 0.1)
    for name in ("warm-source", "warm-sink"):
        one.call("DELETE", f"/connectors/{name}")
    lines.unlink()


def file_to_topic(one: Worker, work: Work) -> Measure:
    """All lines of a file; see ``written``."""
    _warm(one, work)
    lines = lines_file(work)
    clients.make_topic(one.address)
    began = work.start()
    one.create("lines", connector_class="FileStreamSource", tasks_max=1, file=lines, topic=clients.TOPIC)
    measure = written(one, work, "lines", began)
    clients.consume_once(work, one.address)
    return measure


def written(one: Worker, work: Work, connector: str, began: float) -> Measure:
    """Until the last record is in the topic.  Markers of transactions, if any, are no records, but the log ends behind them."""
    seen: list[tuple[float, int]] = [(began, 0)]

    def ended() -> bool:
        end, now = clients.end_offset(one.address), time.perf_counter()
        if end > seen[-1][1]:
            seen.append((now, end))
        return seen[-1][1] >= work.count and now - seen[-1][0] > _STILL_S

    until(ended, functools.partial(one.check, connector))
    return rate(work.count, seen[-1][0] - began)


def topic_to_file(one: Worker, work: Work) -> Measure:
    """From the order to the last bytes in the file."""
    _warm(one, work)
    clients.make_topic(one.address)
    clients.fill(work, one.address)
    target, size = work.directory / "out.txt", work.count * (work.value_size + 1)
    began = work.start()
    one.create("lines", connector_class="FileStreamSink", tasks_max=1, file=target, topics=clients.TOPIC)
    until(lambda: target.exists() and target.stat().st_size >= size, functools.partial(one.check, "lines"))
    seconds = time.perf_counter() - began
    with target.open("rb") as file:
        count = sum(1 for _ in file)
    if target.stat().st_size != size or count != work.count:
        raise Wrong(f"{size} bytes in {work.count} lines were to come, {target.stat().st_size} in {count} came")
    return rate(work.count, seconds)


def resident(one: Worker, work: Work) -> Measure:
    """Resident memory with one connector, after all lines went through: MB."""
    lines = lines_file(work)
    clients.make_topic(one.address)
    one.create("lines", connector_class="FileStreamSource", tasks_max=1, file=lines, topic=clients.TOPIC)
    until(lambda: clients.end_offset(one.address) >= work.count, functools.partial(one.check, "lines"), 0.1)
    time.sleep(1)
    return Measure(clients.resident_mb(one.pid), "MB")


WorkerOperation = Callable[[Worker, Work], Measure]
SHARED: tuple[WorkerOperation, ...] = (file_to_topic, topic_to_file, resident)


def _timed(make: "Callable[[Work], contextlib.AbstractContextManager[Worker]]", operation: WorkerOperation, work: Work) -> Measure:
    with make(work) as one:
        before_s = clients.processor_s(one.pid)
        measure = operation(one, work)
        spent_us = (clients.processor_s(one.pid) - before_s) / work.count * 1e6
    return measure._replace(note=f"the worker: {spent_us:.3g} µs of a processor a record, with the warming")


def operations(
    make: "Callable[[Work], contextlib.AbstractContextManager[Worker]]", named: Sequence[WorkerOperation] = SHARED
) -> "dict[str, Operation]":
    """Operations on workers of one make."""
    return {one.__name__: functools.partial(_timed, make, one) for one in named}
