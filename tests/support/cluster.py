"""A cluster of real processes, each node in a network namespace of its own, and clients that write down what they see.

Needs root for the namespaces.  The clients run in the namespace of the test, which is a host of the nodes' network.
"""

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

import pytest

import logdb
from logdb.errors import LogdbError
from logdb.model import TopicPartition
from logdb_replication import administration
from support.history import History, Partition
from support.node_disk import NodeDisk

NODES = (1, 2, 3)
REPLICAS = len(NODES)
RACKS = ("a", "b", "c")
SPARE = 4  # a node that each cluster.toml names, and that may join
_NAMED = (*NODES, SPARE, 5)  # three or five
HTTP, KAFKA, _QUORUM, _CONTROLLER = 8080, 9092, 7001, 7002
_READY_S, _END_S = 90, 90
C = TypeVar("C", bound="Cluster")


def needs_namespaces() -> pytest.MarkDecorator:
    return pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and ip(8)")


def _ip(*arguments: object) -> None:
    subprocess.run(["ip", *map(str, arguments)], check=True, capture_output=True)


class Network:
    """A bridge, and a namespace for each node.  Packets from one node to another are dropped by a route of the first."""

    def __init__(self) -> None:
        self._name = f"l{os.getpid() % 100_000:05d}{random.randrange(100):02d}"
        self._prefix = f"10.{random.randrange(64, 128)}.{random.randrange(256)}"
        self._cuts: set[tuple[int, int]] = set()

    def host(self, node: int) -> str:
        return f"{self._prefix}.{node}"

    def command(self, node: int) -> list[str]:
        """Before a command that is to run at a node; it becomes the process."""
        return ["ip", "netns", "exec", f"{self._name}-{node}"]

    def __enter__(self) -> Self:
        _ip("link", "add", self._name, "type", "bridge")
        _ip("addr", "add", f"{self._prefix}.254/24", "dev", self._name)
        _ip("link", "set", self._name, "up")
        for node in _NAMED:
            space, outside = f"{self._name}-{node}", f"{self._name}v{node}"
            _ip("netns", "add", space)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outside, "master", self._name, "up")
            for command in (
                ("link", "set", "lo", "up"),
                ("addr", "add", f"{self.host(node)}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
            ):
                _ip("-n", space, *command)
        return self

    def __exit__(self, *_exception: object) -> None:
        for node in _NAMED:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", f"{self._name}-{node}")
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._name)

    def cut(self, sender: int, receiver: int) -> None:
        """Drop what one node sends to another; the other way stays."""
        if (sender, receiver) not in self._cuts:
            _ip("-n", f"{self._name}-{sender}", "route", "add", "blackhole", f"{self.host(receiver)}/32")
            self._cuts.add((sender, receiver))

    def isolate(self, node: int) -> None:
        """Cut a node off from the others, both ways; clients reach it."""
        for other in _NAMED:
            if other != node:
                self.cut(node, other)
                self.cut(other, node)

    def mend(self, sender: int, receiver: int) -> None:
        if (sender, receiver) in self._cuts:
            _ip("-n", f"{self._name}-{sender}", "route", "del", "blackhole", f"{self.host(receiver)}/32")
            self._cuts.remove((sender, receiver))

    def heal(self) -> None:
        for pair in list(self._cuts):
            self.mend(*pair)


class Cluster:
    """Nodes as processes.

    ``processes``: those that run; ``members``: those that have joined and not left; ``disks``: of all, where a library for faults is given.
    """

    def __init__(self, directory: Path, network: Network, library: str | None = None) -> None:
        self.directory, self.network = directory, network
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        hosts, count = ",".join(map(network.host, NODES)), len(NODES)
        ports = [f"--{door}-ports={','.join([str(port)] * count)}" for door, port in (("http", HTTP), ("kafka", KAFKA))]
        command = [sys.executable, "-m", "logdb.cli", "cluster", "init", directory, "--nodes", str(count), *ports, f"--hosts={hosts}"]
        command.append(f"--racks={','.join(RACKS)}")
        subprocess.run(command, check=True, capture_output=True)
        self.members = list(NODES)
        self.refusals: Counter[str] = Counter()  # what commands that failed said
        self._name_others()
        self.disks = {} if library is None else {node: NodeDisk(self.data(node), library) for node in (*NODES, SPARE)}

    def _name_others(self) -> None:
        """In each cluster.toml, and make one for the node that may join."""
        text = "".join(
            f'\n[[nodes]]\nnumber = {node}\nquorum = "{host}:{_QUORUM}"\ncontroller = "{host}:{_CONTROLLER}"\nhttp = "http://{host}:{HTTP}"\n'
            for node, host in ((node, self.network.host(node)) for node in _NAMED if node not in NODES)
        )
        for node in NODES:
            with Path(self.config(node)).open("a") as file:
                file.write(text)
        shutil.copytree(self.directory / "node-1", self.directory / f"node-{SPARE}", ignore=shutil.ignore_patterns("data"))
        own, nodes = Path(self.config(1)).read_text().split("[[nodes]]", 1)
        own = own.replace("node = 1 ", f"node = {SPARE} ").replace(f"{self.network.host(1)}:", f"{self.network.host(SPARE)}:")
        Path(self.config(SPARE)).write_text(f"{own}[[nodes]]{nodes}")

    @property
    def urls(self) -> list[str]:
        return [self.url(node) for node in self.members]

    def url(self, node: int) -> str:
        return f"http://{self.network.host(node)}:{HTTP}"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{self.network.host(node)}:{KAFKA}" for node in self.members)

    def data(self, node: int) -> Path:
        return self.directory / f"node-{node}" / "data"

    def config(self, node: int) -> str:
        return str(self.directory / f"node-{node}" / "cluster.toml")

    def program(self, _node: int) -> list[str]:
        """The command ``logdb`` of a node."""
        return [sys.executable, "-m", "logdb.cli"]

    def environment(self, node: int) -> dict[str, str]:
        """Variables of a node's processes."""
        return self.disks[node].environment if self.disks else {}

    def start(self, *nodes: int) -> None:
        """Start nodes, and wait until their doors are open."""
        for node in nodes:
            place = self.directory / f"node-{node}"
            command = [*self.program(node), "serve", place / "data", "--cluster", place / "cluster.toml", "--insecure"]
            with (place / "errors").open("ab") as errors:
                self.processes[node] = subprocess.Popen(
                    [*self.network.command(node), *map(str, command)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    env={**os.environ, **self.environment(node)},
                )
        for node in nodes:
            self.wait(node)

    def wait(self, node: int) -> None:
        until, url = time.monotonic() + _READY_S, f"{self.url(node)}/health/ready"
        while True:
            try:
                urllib.request.urlopen(url, timeout=1).close()
            except OSError:
                process = self.processes.get(node)
                if process is None:  # an operator has ended it meanwhile
                    return
                assert process.poll() is None, f"node {node} ended:\n{self.errors(node)}"
                assert time.monotonic() < until, f"node {node} is not ready:\n{self.errors(node)}"
                time.sleep(0.05)
            else:
                return

    def errors(self, node: int) -> str:
        return (self.directory / f"node-{node}" / "errors").read_text()[-3_000:]

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.processes[node].kill()
        for node in nodes:
            self.processes.pop(node).wait(_END_S)

    def end(self, node: int) -> None:
        """Ask a node to end, and wait for it."""
        self.processes[node].terminate()
        self.processes.pop(node).wait(_END_S)

    def signal(self, node: int, number: int) -> None:
        """To the broker and to its controller."""
        for pid in (self.processes[node].pid, *self.children(node)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def children(self, node: int) -> list[int]:
        tasks = Path(f"/proc/{self.processes[node].pid}/task").glob("*/children")  # a thread that is not the main one has started it
        return [int(child) for task in tasks for child in task.read_text().split()]

    def leader(self, partition: Partition) -> int:
        with logdb.open(self.urls) as db:
            leader = db.describe_topic(partition[0]).partitions[partition[1]].leader
        assert leader is not None
        return int(leader)

    def controller(self) -> int:
        """The node whose voter leads the quorum."""
        voters = administration.quorum(self.config(1))
        return max((int(voter["term"]), int(voter["node"])) for voter in voters if voter.get("state") == "leader")[1]

    def all_vote(self) -> bool:
        """Whether no member's voter has stopped, or is out of reach."""
        voters = {int(voter["node"]): voter.get("state") for voter in administration.quorum(self.config(1))}
        return all(voters[node] in {"leader", "follower"} for node in self.members)

    def __enter__(self) -> Self:
        try:
            self.start(*NODES)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.network.heal()
        for node, process in self.processes.items():
            self.signal(node, signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_S)


@contextlib.contextmanager
def cluster(directory: Path, library: str | None = None, kind: Callable[[Path, Network, str | None], C] = Cluster) -> Iterator[C]:
    with Network() as network, kind(directory / "cluster", network, library) as nodes:
        yield nodes


# ---------------------------------------------------------------- clients


class Load:
    """Producers and consumers on a topic, from ``__enter__`` to ``__exit__``, each a thread; ``history`` has what they saw."""

    def __init__(
        self, nodes: Cluster, topic: str, partitions: int, *, producers: int = 2, consumers: int = 1, timeout_ms: int = 5_000
    ) -> None:
        self._nodes, self._topic, self._partitions, self._timeout_ms = nodes, topic, partitions, timeout_ms
        self.history, self._stop = History(), threading.Event()
        work = [(self._produce, f"producer-{n}") for n in range(producers)] + [(self._consume, f"consumer-{n}") for n in range(consumers)]
        self._threads = [threading.Thread(target=function, args=(name,), name=name, daemon=True) for function, name in work]

    @property
    def acknowledged(self) -> int:
        return sum(send.outcome == "ok" for send in list(self.history.sends))

    def wait_for_more(self, count: int = 20, timeout_s: float = 60) -> float:
        """Wait until so many more sends are acknowledged; returns the seconds."""
        began, wanted = time.monotonic(), self.acknowledged + count
        while self.acknowledged < wanted:
            assert time.monotonic() - began < timeout_s, f"{count} more sends are not acknowledged within {timeout_s} s"
            time.sleep(0.02)
        return time.monotonic() - began

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self._threads), "a client hangs"

    def _with_databases(self, work: Callable[[logdb.Database], None]) -> None:
        """Work with a client's database, until the end; after an error of the cluster with another one."""
        while not self._stop.is_set():
            with contextlib.suppress(LogdbError, TimeoutError), logdb.open(self._nodes.urls, timeout_ms=self._timeout_ms) as db:
                work(db)

    def _produce(self, name: str) -> None:
        numbers = itertools.count()

        def work(db: logdb.Database) -> None:
            with db.producer(acks="all", enable_idempotence=True, delivery_timeout_ms=self._timeout_ms * 4) as producer:
                while not self._stop.is_set():
                    number = next(numbers)
                    send = self.history.send(name, (self._topic, number % self._partitions), f"{name}-{number}".encode())
                    send.offset = producer.send(self._topic, send.value, partition=send.partition[1]).result(timeout=60).offset
                    send.outcome = "ok"

        self._with_databases(work)

    def _consume(self, name: str) -> None:
        assignments = itertools.count()
        partitions = [TopicPartition(self._topic, partition) for partition in range(self._partitions)]

        def work(db: logdb.Database) -> None:
            assignment = next(assignments)
            with db.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
                consumer.assign(partitions)
                while not self._stop.is_set():
                    for partition, records in consumer.poll(timeout_ms=200).items():
                        self.history.poll(name, assignment, [(tuple(partition), record.offset, bytes(record.value)) for record in records])

        self._with_databases(work)


def stored(nodes: Cluster, topic: str, partitions: int) -> dict[Partition, dict[int, bytes]]:
    """What a committed reader finds, once all is quiet."""
    with logdb.open(nodes.urls) as db:
        return {
            (topic, partition): {
                record.offset: bytes(record.value) for record in db.log(topic, partition).read(0, isolation_level="read_committed")
            }
            for partition in range(partitions)
        }


def in_sync(nodes: Cluster, topic: str) -> bool:
    """Whether each node knows that each partition has all of its replicas in sync, under the same leader."""
    found = set()
    for url in nodes.urls:
        with contextlib.suppress(LogdbError), logdb.open([url], timeout_ms=2_000) as db:
            found.add(tuple((one.leader, one.leader_epoch, frozenset(one.in_sync)) for one in db.describe_topic(topic).partitions))
            continue
        return False
    return len(found) == 1 and all(len(members) == REPLICAS for _, _, members in found.pop())
