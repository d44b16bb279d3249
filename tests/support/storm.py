"""Faults of a cluster by a seed, one or two at a time: what each does, which come when, and rounds of them under all clients.

Beside the faults an operator moves replicas, or replaces a node that has lost its disk.

A round is a set of topics with clients, under which several faults come and go; then all is well again, the clients read
to the end, and what they saw is checked.  What the former round left is checked once more, and deleted.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

import logdb
from logdb.errors import LogdbError
from support.cluster import NODES, Cluster, in_sync, until
from support.history import Anomaly
from support.node_disk import Trouble
from support.storm_clients import Clients

PARTITIONS = 3
FAULTS_PER_ROUND = 4
_HEALED_S = 90
Fault = Callable[[Cluster, int], Iterator[None]]
FAULTS: dict[str, Callable[[Cluster, int], AbstractContextManager[None]]] = {}


def _fault(function: Fault) -> Fault:
    FAULTS[function.__name__.replace("_", "-")] = contextlib.contextmanager(function)
    return function


@_fault
def kill(nodes: Cluster, node: int) -> Iterator[None]:
    nodes.kill(node)
    yield
    nodes.start(node)


@_fault
def kill_all(nodes: Cluster, _node: int) -> Iterator[None]:
    nodes.kill(*NODES)
    yield
    nodes.start(*NODES)


@_fault
def kill_controller(nodes: Cluster, node: int) -> Iterator[None]:
    for pid in nodes.children(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    yield


@_fault
def end(nodes: Cluster, node: int) -> Iterator[None]:
    """As an operator does: it drains first."""
    nodes.end(node)
    yield
    nodes.start(node)


@_fault
def stop(nodes: Cluster, node: int) -> Iterator[None]:
    nodes.signal(node, signal.SIGSTOP)
    yield
    nodes.signal(node, signal.SIGCONT)


def _cuts(nodes: Cluster, pairs: list[tuple[int, int]]) -> Iterator[None]:
    for pair in pairs:
        nodes.network.cut(*pair)
    yield
    for pair in pairs:
        nodes.network.mend(*pair)


@_fault
def isolate(nodes: Cluster, node: int) -> Iterator[None]:
    others = [one for one in NODES if one != node]
    return _cuts(nodes, [(node, one) for one in others] + [(one, node) for one in others])


@_fault
def mute(nodes: Cluster, node: int) -> Iterator[None]:
    return _cuts(nodes, [(node, one) for one in NODES if one != node])


@_fault
def deafen(nodes: Cluster, node: int) -> Iterator[None]:
    return _cuts(nodes, [(one, node) for one in NODES if one != node])


@_fault
def cut_between_two(nodes: Cluster, node: int) -> Iterator[None]:
    other = node % len(NODES) + 1
    return _cuts(nodes, [(node, other), (other, node)])


@_fault
def disk_hangs(nodes: Cluster, node: int) -> Iterator[None]:
    with nodes.disks[node].trouble("hangs"):
        yield


@_fault
def disk_is_full(nodes: Cluster, node: int) -> Iterator[None]:
    with nodes.disks[node].trouble("is full"):
        yield


def _until_restarted(nodes: Cluster, node: int, trouble: Trouble) -> Iterator[None]:
    """A sync that has failed is final: the disk is well again, and the process has to be started anew."""
    with nodes.disks[node].trouble(trouble):
        yield
    nodes.kill(node)
    nodes.start(node)


@_fault
def sync_fails(nodes: Cluster, node: int) -> Iterator[None]:
    return _until_restarted(nodes, node, "fails")


@_fault
def writes_short(nodes: Cluster, node: int) -> Iterator[None]:
    """LMDB takes such a write for a sync that has failed."""
    return _until_restarted(nodes, node, "writes short")


# ---------------------------------------------------------------- what an operator changes meanwhile


def _command(*words: object) -> None:
    """Run a command until it succeeds: under a fault it may find no quorum, or no broker."""
    end = time.monotonic() + _HEALED_S
    command = [sys.executable, "-m", "logdb.cli", *map(str, words)]
    while (ended := subprocess.run(command, capture_output=True, text=True)).returncode:
        assert time.monotonic() < end, f"logdb {' '.join(map(str, words))}: {ended.stderr}"
        time.sleep(0.5)


def reassign(nodes: Cluster, topic: str, node: int) -> None:
    """Two replicas instead of three, then three in another order."""
    one, two = (other for other in NODES if other != node)
    for to in (f"{one},{two}", f"{node},{one},{two}"):
        _command("partitions", "reassign", "--topic", topic, "--to", to, "--timeout", "10s", "--cluster", nodes.config(one))


def replace(nodes: Cluster, _topic: str, node: int) -> None:
    """A node loses its disk, and joins anew."""
    nodes.kill(node)
    shutil.rmtree(nodes.data(node))
    _command("cluster", "join", nodes.data(node), "--cluster", nodes.config(node))
    nodes.start(node)


CHANGES = {"reassign": reassign, "replace": replace}


# ---------------------------------------------------------------- which, when


class Planned(NamedTuple):
    """A fault from one moment to another, in seconds after the first of its episode."""

    name: str
    target: str | int  # "leader": of the first partition
    at_s: float
    lasts_s: float


def schedule(seed: int) -> Iterator[tuple[list[Planned], str | None]]:
    """Episodes: one fault, or two that overlap on different nodes, and what an operator changes, if anything.

    A node is replaced beside one fault at most: otherwise no quorum is left.  A seed always gives the same.
    """
    rng = random.Random(seed)
    names = sorted(FAULTS)
    while True:
        rng.shuffle(names)  # all come before one comes again
        for name in names:
            first = Planned(name, rng.choice(["leader", "leader", *NODES]), 0, rng.uniform(0.5, 4))
            second = Planned(
                rng.choice([one for one in names if one != "kill-all"]), rng.choice(NODES), rng.uniform(0.1, 2), rng.uniform(0.5, 4)
            )
            change = rng.choice([*CHANGES, None, None])
            alone = name == "kill-all" or change == "replace" or rng.random() < 0.6
            yield [first] if alone else [first, second], None if name == "kill-all" and change == "replace" else change


# ---------------------------------------------------------------- rounds


class Storm:
    """Rounds of faults over a cluster; ``faults`` counts them, ``acknowledged`` the records."""

    def __init__(self, nodes: Cluster, seed: int, tell: Callable[[str], None] = print) -> None:
        self._nodes, self._tell, self._schedule = nodes, tell, schedule(seed)
        self._began, self._rounds = time.monotonic(), 0
        self._left: Clients | None = None
        self.faults: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.acknowledged = self.copied = 0

    def say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._began:8.1f} s  {text}")

    def round(self, faults: int = FAULTS_PER_ROUND) -> list[Anomaly]:
        """So many episodes under one set of topics; returns what the clients saw that must not be."""
        self._rounds += 1
        name = f"round-{self._rounds}"
        clients = self.clients = Clients(self._nodes, name, PARTITIONS)
        with logdb.open(self._nodes.urls, timeout_ms=30_000) as db:
            for topic in clients.topics:
                db.create_topic(topic, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": 2})
        with clients:
            clients.wait_for_more(20)
            for _ in range(faults):
                self._episode(clients, name)
        found = clients.anomalies()
        if not found and self._left is not None:
            found = self._left.anomalies()
            with logdb.open(self._nodes.urls, timeout_ms=30_000) as db:
                for topic in self._left.topics:
                    db.delete_topic(topic)
        self._left = clients
        self.acknowledged += clients.acknowledged
        self.copied += clients.copied
        self.errors += clients.errors
        self.say(f"{name}: {clients.acknowledged:,} acknowledged, {clients.copied:,} copied once; {len(found)} anomalies")
        return found

    def _episode(self, clients: Clients, topic: str) -> None:
        (planned, change), taken = next(self._schedule), set[int]()
        began = time.monotonic()
        with ExitStack() as stack:
            events: list[tuple[float, str, Planned, int, AbstractContextManager[None]]] = []
            for one in planned:
                node = self._nodes.leader((topic, 0)) if one.target == "leader" else int(one.target)
                node = node if node not in taken else node % len(NODES) + 1
                taken.add(node)
                fault = FAULTS[one.name](self._nodes, node)
                events += [(one.at_s, "begin", one, node, fault), (one.at_s + one.lasts_s, "end", one, node, fault)]
            if change is not None:
                stack.enter_context(self._changed(change, topic, next(node for node in NODES if node not in taken)))
            for at_s, what, one, node, fault in sorted(events, key=lambda event: event[0]):
                time.sleep(max(0.0, began + at_s - time.monotonic()))
                if what == "begin":
                    self.say(f"  {one.name} {'' if one.name == 'kill-all' else f'node {node} '}for {one.lasts_s:.1f} s")
                    self.faults[one.name] += 1
                    stack.enter_context(fault)
                else:
                    fault.__exit__(None, None, None)
        gap_s = clients.wait_for_more(20, _HEALED_S)
        until(lambda: all(in_sync(self._nodes, one) for one in clients.topics), "all replicas are in sync again", _HEALED_S)
        until(self._nodes.all_vote, "all voters run again", _HEALED_S)
        self.say(f"  all is well; 20 more were acknowledged in {gap_s:.1f} s")

    @contextlib.contextmanager
    def _changed(self, change: str, topic: str, node: int) -> Iterator[None]:
        """An operator's change beside the block, and until it is done after it."""
        failed: list[Exception] = []

        def run() -> None:
            try:
                CHANGES[change](self._nodes, topic, node)
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                failed.append(error)

        self.say(f"  {change} node {node}")
        self.faults[change] += 1
        thread = threading.Thread(target=run, name=change, daemon=True)
        thread.start()
        yield
        thread.join(2 * _HEALED_S)
        assert not thread.is_alive(), f"{change} of node {node} hangs"
        assert not failed, f"{change} of node {node} failed: {failed}"

    def state(self) -> str:
        """Each partition that is not whole, as each node tells it."""
        lines = []
        for node, url in zip(NODES, self._nodes.urls, strict=True):
            try:
                with logdb.open([url], timeout_ms=2_000) as db:
                    for info in db.topics(internal=True):
                        told = [
                            f"{info.name}-{one.partition} leader {one.leader} epoch {one.leader_epoch} in sync {one.in_sync}"
                            for one in db.describe_topic(info.name).partitions
                            if len(one.in_sync) < len(NODES) or one.leader is None
                        ]
                        lines += [f"    node {node}: {one}" for one in told]
            except LogdbError as error:
                lines.append(f"    node {node}: {error}")
        return "\n".join(lines)

    def table(self) -> str:
        """Faults and what came of them."""
        rows = [f"    {name:18}{count:6}" for name, count in sorted(self.faults.items())]
        sums = f"{self._rounds} rounds, {self.acknowledged:,} records acknowledged, {self.copied:,} copied exactly once"
        errors = ", ".join(f"{name} {count}" for name, count in self.errors.most_common())
        return "\n".join([f"    {'fault':18}{'count':>6}", *rows, f"  {sums}", f"  errors that clients met: {errors or 'none'}"])
