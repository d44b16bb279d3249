"""The nodes of a cluster on this machine, each ``logdb serve --cluster`` in a process of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import logdb
from logdb.errors import LogdbError
from logdb_replication import directory
from support.ports import free_port


class ClusterProcess:
    """Nodes by their numbers; ``urls``: of their HTTP doors, the first one is node 1's; ``kafka``: the addresses of their Kafka doors."""

    def __init__(self, path: Path, count: int = 3, *flags: str, kafka: bool = False, racks: Sequence[str] = (), nice: int = 0) -> None:
        """Make the directories; no node runs.  ``nice``: how far the priority of the nodes is lowered."""
        ports, more = ([free_port() for _ in range(count)] for _ in range(2))
        _, nodes = directory.init(str(path), count, ports, more if kafka else (), racks=racks)
        self.path, self.numbers, self.urls = path, range(1, count + 1), [node.addresses.http for node in nodes]
        self.kafka = [f"127.0.0.1:{port}" for port in more] if kafka else []
        self._flags, self._before = flags, ["nice", "-n", str(nice)] if nice else []
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def data(self, number: int) -> str:
        return str(self.path / f"node-{number}" / "data")

    def config(self, number: int) -> str:
        return str(self.path / f"node-{number}" / "cluster.toml")

    def url(self, number: int) -> str:
        return self.urls[number - 1]

    def start(self, *numbers: int) -> None:
        """Start nodes, or all; returns when each is let in."""
        for number in numbers or self.numbers:
            command = [sys.executable, "-m", "logdb.cli", "serve", self.data(number), "--cluster", self.config(number), *self._flags]
            self.processes[number] = subprocess.Popen([*self._before, *command], stdout=subprocess.PIPE, text=True)
        for number in numbers or self.numbers:
            for address in (self.url(number), *self.kafka[number - 1 : number]):
                said = self.processes[number].stdout.readline().strip()
                assert said == address, f"node {number} says {said!r}"

    def kill(self, number: int) -> None:
        """As a crash of the broker would."""
        self._end(number, signal.SIGKILL)

    def end(self, number: int) -> int:
        """Ask it to end; returns its exit code."""
        return self._end(number, signal.SIGTERM)

    def _end(self, number: int, by: int) -> int:
        process = self.processes.pop(number)
        process.send_signal(by)
        code = process.wait(60)
        process.stdout.close()
        return code

    def open(self, number: int) -> logdb.Database:
        return logdb.open(self.url(number))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """All of its nodes run within the block; those that the test did not end have to end well."""
        try:
            self.start()
            yield
            running = dict(self.processes)
            for process in running.values():
                process.send_signal(signal.SIGTERM)
            assert {number: process.wait(60) for number, process in running.items()} == dict.fromkeys(running, 0)
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait(10)
                process.stdout.close()


@contextlib.contextmanager
def cluster_process(
    path: Path, count: int = 3, *flags: str, kafka: bool = False, racks: Sequence[str] = (), nice: int = 0
) -> Iterator[ClusterProcess]:
    """A cluster whose nodes run; those that the test did not end have to end well."""
    cluster = ClusterProcess(path, count, *flags, kafka=kafka, racks=racks, nice=nice)
    with cluster.running():
        yield cluster


def bytes_out(cluster: ClusterProcess, topic: str) -> dict[int, int]:
    """How many bytes of a topic each running node has sent to clients."""
    found = {}
    for number in cluster.processes:
        with urllib.request.urlopen(f"{cluster.url(number)}/metrics") as page:
            sample = re.search(rf'bytesout_total{{topic="{topic}"}} ([0-9.e+]+)', page.read().decode())
        found[number] = int(float(sample[1])) if sample else 0
    return found


def all_in_sync(cluster: ClusterProcess) -> bool:
    """Whether each replica of each topic is in sync."""
    with logdb.open(cluster.urls) as db:
        topics = db.topics(internal=True)
        return all(set(one.in_sync) == set(one.replicas) for topic in topics for one in db.describe_topic(topic.name).partitions)


def controller_of(process: "subprocess.Popen[str]") -> int:
    """The process id of a node's controller."""
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    (child,) = {int(number) for path in children for number in path.read_text(encoding="ascii").split()}
    return child


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")


def eventually(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Return once a condition holds; a retriable error counts as not yet."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except LogdbError as error:
            if not error.retriable or time.monotonic() > end:
                raise
        except AssertionError:  # a command that has found no controller that leads
            if time.monotonic() > end:
                raise
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)
