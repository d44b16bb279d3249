"""Faults of a cluster by a seed, one or two at a time: what each does, which come when, and rounds of them under all clients.

Beside the faults an operator moves replicas, replaces a node that has lost its disk, lets a fourth node join, and takes it away again.

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
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

import logdb
from logdb.errors import LogdbError
from support.cluster import NODES, REPLICAS, SPARE, in_sync
from support.history import Anomaly
from support.node_disk import Trouble
from support.powered_cluster import PoweredCluster as Cluster
from support.storm_clients import Clients
from support.waiting import until

ALL = (*NODES, SPARE)
PARTITIONS = 3
FAULTS_PER_ROUND = 4
_HEALED_S = 90
Fault = Callable[[Cluster, int], Iterator[None]]
FAULTS: dict[str, Callable[[Cluster, int], AbstractContextManager[None]]] = {}
OF_ALL = {"kill-all", "cut-power-of-all"}


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
    killed = tuple(nodes.members)
    nodes.kill(*killed)
    yield
    nodes.start(*killed)


@_fault
def cut_power(nodes: Cluster, node: int) -> Iterator[None]:
    nodes.cut_power(node)
    yield
    nodes.start(node)


@_fault
def cut_power_of_all(nodes: Cluster, _node: int) -> Iterator[None]:
    cut = tuple(nodes.members)
    nodes.cut_power(*cut)
    yield
    nodes.start(*cut)


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


def _from(node: int) -> list[tuple[int, int]]:
    return [(node, one) for one in ALL if one != node]


def _to(node: int) -> list[tuple[int, int]]:
    return [(one, node) for one in ALL if one != node]


def _cuts(nodes: Cluster, pairs: list[tuple[int, int]]) -> Iterator[None]:
    for pair in pairs:
        nodes.network.cut(*pair)
    yield
    for pair in pairs:
        nodes.network.mend(*pair)


@_fault
def isolate(nodes: Cluster, node: int) -> Iterator[None]:
    return _cuts(nodes, [*_from(node), *_to(node)])


@_fault
def mute(nodes: Cluster, node: int) -> Iterator[None]:
    return _cuts(nodes, _from(node))


@_fault
def deafen(nodes: Cluster, node: int) -> Iterator[None]:
    return _cuts(nodes, _to(node))


@_fault
def cut_between_two(nodes: Cluster, node: int) -> Iterator[None]:
    other = _next(nodes, node)
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


def _command(nodes: Cluster, *words: object) -> None:
    """Run a command until it succeeds: under a fault it may find no quorum, or no broker."""
    end = time.monotonic() + _HEALED_S
    command = [sys.executable, "-m", "logdb.cli", *map(str, words)]
    while (ended := subprocess.run(command, capture_output=True, text=True)).returncode:
        said = ended.stderr or ended.stdout
        nodes.refusals[f"{words[0]} {words[1]}: {said.strip()}"] += 1
        assert time.monotonic() < end, f"logdb {' '.join(map(str, words))}: {said}"
        time.sleep(0.5)


def _reassign(nodes: Cluster, by: int, to: Iterable[int], *topics: str) -> None:
    which = [word for topic in topics for word in ("--topic", topic)] or ["--all"]
    _command(nodes, "partitions", "reassign", *which, "--to", ",".join(map(str, to)), "--timeout", "10s", "--cluster", nodes.config(by))


def reassign(nodes: Cluster, topic: str, node: int) -> None:
    """Two replicas instead of three, then three in another order."""
    one, two = [other for other in nodes.members if other != node][-2:]
    _reassign(nodes, one, (one, two), topic)
    _reassign(nodes, one, (node, one, two), topic)


def replace(nodes: Cluster, _topic: str, node: int) -> None:
    """A node loses its disk, and joins anew."""
    nodes.kill(node)
    shutil.rmtree(nodes.data(node))
    _command(nodes, "cluster", "join", nodes.data(node), "--cluster", nodes.config(node))
    nodes.start(node)


def join(nodes: Cluster, topic: str, node: int) -> None:
    """A fourth node, which gets replicas, and is the first to lead them."""
    _command(nodes, "cluster", "join", nodes.data(SPARE), "--cluster", nodes.config(SPARE))
    nodes.start(SPARE)
    nodes.members.append(SPARE)
    _reassign(nodes, node, (SPARE, node, node % len(NODES) + 1), topic)


def leave(nodes: Cluster, _topic: str, node: int) -> None:
    """The fourth node, in good order."""
    _reassign(nodes, node, NODES)
    _command(nodes, "brokers", "drain", SPARE, "--timeout", "10s", "--cluster", nodes.config(node))
    nodes.members.remove(SPARE)
    nodes.end(SPARE)
    _remove_spare(nodes, node)


def remove(nodes: Cluster, _topic: str, node: int) -> None:
    """The fourth node, which is dead."""
    nodes.members.remove(SPARE)
    nodes.kill(SPARE)
    _reassign(nodes, node, NODES)
    _remove_spare(nodes, node)


def _remove_spare(nodes: Cluster, node: int) -> None:
    _command(nodes, "cluster", "remove", SPARE, "--cluster", nodes.config(node))
    shutil.rmtree(nodes.data(SPARE))


def _next(nodes: Cluster, node: int) -> int:
    return nodes.members[(nodes.members.index(node) + 1) % len(nodes.members)]


CHANGES = {function.__name__: function for function in (reassign, replace, join, leave, remove)}


@contextlib.contextmanager
def changed(nodes: Cluster, change: str, topic: str, node: int) -> Iterator[threading.Thread]:
    """An operator's change beside the block, and until it is done after it; for the fourth node: with ``node`` beside it."""
    failed: list[Exception] = []

    def run() -> None:
        try:
            CHANGES[change](nodes, topic, node)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=change, daemon=True)
    thread.start()
    yield thread
    thread.join(2 * _HEALED_S)
    assert not thread.is_alive(), f"{change} beside node {node} hangs"
    assert not failed, f"{change} beside node {node} failed: {failed}"


# ---------------------------------------------------------------- which, when


class Planned(NamedTuple):
    """A fault from one moment to another, in seconds after its episode began."""

    name: str
    target: str | int  # "leader": of the first partition; "spare": the fourth node, where it has joined, or joins
    at_s: float
    lasts_s: float


Episode = tuple[list[Planned], str | None]


def schedule(seed: int) -> Iterator[Episode]:
    """Episodes: one fault, or two that overlap on different nodes, and what an operator changes, if anything.

    A change begins before its fault, so that the fault comes in any step of it.  A node is replaced beside one fault at most: otherwise no
    quorum is left.  A seed always gives the same.
    """
    rng = random.Random(seed)
    names, joined = sorted(FAULTS), False
    while True:
        rng.shuffle(names)  # all come before one comes again
        for name in names:
            change = rng.choice(["reassign", "replace", *(["leave", "remove"] if joined else ["join", "join"]), None, None])
            change = None if name in OF_ALL and change == "replace" else change
            joined = change == "join" or (joined and change not in {"leave", "remove"})
            at_s = rng.uniform(0, 6) if change else 0
            first = Planned(name, rng.choice(["leader", "leader", "spare", *NODES]), at_s, rng.uniform(0.5, 4))
            second = Planned(
                rng.choice([one for one in names if one not in OF_ALL]), rng.choice(NODES), at_s + rng.uniform(0.1, 2), rng.uniform(0.5, 4)
            )
            alone = name in OF_ALL or change == "replace" or rng.random() < 0.6
            yield [first] if alone else [first, second], change


# ---------------------------------------------------------------- rounds


class Storm:
    """Rounds of faults over a cluster; ``faults`` counts them, ``acknowledged`` the records."""

    def __init__(self, nodes: Cluster, episodes: Iterator[Episode], tell: Callable[[str], None] = print, kafka_producers: int = 1) -> None:
        self._nodes, self._tell, self._episodes, self._kafka_producers = nodes, tell, episodes, kafka_producers
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
        clients = self.clients = Clients(self._nodes, name, PARTITIONS, self._kafka_producers)
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
        (planned, change), taken = next(self._episodes), set[int]()
        began = time.monotonic()
        with ExitStack() as stack:
            events: list[tuple[float, str, Planned, int, AbstractContextManager[None]]] = []
            for one in planned:
                node = self._target(one.target, topic, change, taken)
                taken.add(node)
                fault = FAULTS[one.name](self._nodes, node)
                events += [(one.at_s, "begin", one, node, fault), (one.at_s + one.lasts_s, "end", one, node, fault)]
            if change is not None:
                node = next(node for node in NODES if node not in taken)
                self.say(f"  {change} node {node if change in {'reassign', 'replace'} else SPARE}")
                self.faults[change] += 1
                stack.enter_context(changed(self._nodes, change, topic, node))
            for at_s, what, one, node, fault in sorted(events, key=lambda event: event[0]):
                time.sleep(max(0.0, began + at_s - time.monotonic()))
                if what == "begin":
                    began += self._wait_for_member(node)
                    self.say(f"  {one.name} {'' if one.name in OF_ALL else f'node {node} '}for {one.lasts_s:.1f} s")
                    self.faults[one.name] += 1
                    stack.enter_context(fault)
                else:
                    fault.__exit__(None, None, None)
        gap_s = clients.wait_for_more(20, _HEALED_S)
        until(lambda: all(in_sync(self._nodes, one) for one in clients.topics), "all replicas are in sync again", _HEALED_S)
        until(self._nodes.all_vote, "all voters run again", _HEALED_S)
        self.say(f"  all is well; 20 more were acknowledged in {gap_s:.1f} s")

    def _target(self, target: str | int, topic: str, change: str | None, taken: AbstractSet[int]) -> int:
        """The node that a fault hits: another one than the fault beside it, and not one that leaves."""
        members = [node for node in self._nodes.members if node != SPARE or change not in {"leave", "remove"}]
        members += [SPARE] if change == "join" else []
        wanted = self._nodes.leader((topic, 0)) if target == "leader" else SPARE if target == "spare" else int(target)
        return next(node for node in (wanted, *members) if node in members and node not in taken)

    def _wait_for_member(self, node: int) -> float:
        """Until a node has joined; returns the seconds."""
        began = time.monotonic()
        until(lambda: node in self._nodes.members, f"node {node} has joined", 2 * _HEALED_S)
        return time.monotonic() - began

    def state(self) -> str:
        """Each partition that is not whole, and each group with its offsets, as each node tells it."""
        lines = []
        for node in self._nodes.members:
            try:
                with logdb.open([self._nodes.url(node)], timeout_ms=2_000) as db:
                    for info in db.topics(internal=True):
                        told = [
                            f"{info.name}-{one.partition} leader {one.leader} epoch {one.leader_epoch} in sync {one.in_sync}"
                            for one in db.describe_topic(info.name).partitions
                            if len(one.in_sync) < REPLICAS or one.leader is None
                        ]
                        lines += [f"    node {node}: {one}" for one in told]
                    for group in db.groups():
                        about = db.describe_group(group.group_id)
                        members = [f"{one.member_id} of {one.client_host}" for one in about.members]
                        lines.append(f"    node {node}: group {group.group_id} {about.state} generation {about.generation} {members}")
                        lines += [f"    node {node}:     {one}" for one in db.group_offsets(group.group_id)]
            except LogdbError as error:
                lines.append(f"    node {node}: {error}")
        return "\n".join(lines)

    def table(self) -> str:
        """Faults and what came of them."""
        rows = [f"    {name:18}{count:6}" for name, count in sorted(self.faults.items())]
        sums = f"{self._rounds} rounds, {self.acknowledged:,} records acknowledged, {self.copied:,} copied exactly once"
        errors = ", ".join(f"{name} {count}" for name, count in self.errors.most_common())
        refusals = [f"    {count:4} {text}" for text, count in self._nodes.refusals.most_common()]
        met = f"  errors that clients met: {errors or 'none'}"
        return "\n".join([f"    {'fault':18}{'count':>6}", *rows, f"  {sums}", met, "  what commands that failed said:", *refusals])
