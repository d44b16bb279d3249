"""The same operations on every cluster of three brokers: each starts one of its own, on empty directories, on the loopback.

A topic has one partition, three replicas, and ``min.insync.replicas`` 2; all is acknowledged by acks=all.
"""

import contextlib
import functools
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benches.peers.kafka import clients
from benches.workload import Measure, Work, Wrong

if TYPE_CHECKING:
    from benches.peers import Operation

NODES = (1, 2, 3)
_RATE, _RATE_S = 100_000, 10
_IDLE_S = 2
_WAIT_S = 60


@dataclass
class Cluster:
    """A cluster that runs; ``start`` makes the process of a node, for the first time or again."""

    addresses: Mapping[int, str]
    start: Callable[[int], "subprocess.Popen[bytes]"]
    processes: "dict[int, subprocess.Popen[bytes]]"

    @property
    def address(self) -> str:
        return ",".join(self.addresses.values())

    def processor_s(self) -> float:
        """What the processes of all nodes have had of the processors."""
        return sum(clients.processor_s(pid) for process in self.processes.values() for pid in family(process.pid))

    def resident_mb(self) -> float:
        """Resident memory of the largest node."""
        return max(sum(clients.resident_mb(pid) for pid in family(process.pid)) for process in self.processes.values())


Start = Callable[[Path], contextlib.AbstractContextManager[Cluster]]
"""A cluster in an empty directory, once all of its nodes are there."""


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(one for child in children for one in family(int(child)))]


def make_topic(cluster: Cluster, name: str = clients.TOPIC, **config: object) -> None:
    """A topic with three replicas in sync."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 3})
    wanted = NewTopic(name, 1, 3, config={"min.insync.replicas": "2", **{key: str(value) for key, value in config.items()}})
    admin.create_topics([wanted])[name].result(_WAIT_S)
    _until(lambda: len(_partition(cluster, name).isrs) == len(NODES), f"three replicas of {name} in sync")


def _partition(cluster: Cluster, name: str = clients.TOPIC):  # type: ignore[no-untyped-def]
    return clients.producer_of(cluster.address).list_topics(name, timeout=_WAIT_S).topics[name].partitions[0]


def _until(is_so: Callable[[], bool], what: str) -> float:
    began = time.perf_counter()
    while True:
        with contextlib.suppress(KeyError):  # the topic is on its way
            if is_so():
                return time.perf_counter() - began
        if time.perf_counter() - began > _WAIT_S:
            raise Wrong(f"{what}: not within {_WAIT_S} s")
        time.sleep(0.01)


@contextlib.contextmanager
def running(addresses: Mapping[int, str], start: Callable[[int], "subprocess.Popen[bytes]"]) -> Iterator[Cluster]:
    """Start all nodes; kill what is left of them in the end."""
    cluster = Cluster(addresses, start, {})
    try:
        for node in NODES:
            cluster.processes[node] = start(node)
        for address in addresses.values():
            _until(functools.partial(clients.answers, address), f"{address} answers")
        yield cluster
    finally:
        for process in cluster.processes.values():
            process.terminate()
        for process in cluster.processes.values():
            try:
                process.wait(_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# ---------------------------------------------------------------- operations


def _timed(start: Start, warm: bool, operation: "clients.ClientOperation", config: Mapping[str, object], work: Work) -> Measure:
    with start(work.directory) as cluster:
        make_topic(cluster, **config)
        if warm:
            _warm(cluster, work, config)
        before_s = cluster.processor_s()
        measure = operation(work, cluster.address)
        spent_us = (cluster.processor_s() - before_s) / work.count * 1e6
        note = "; ".join(filter(None, (measure.note, f"all brokers: {spent_us:.3g} µs of a processor a record")))
        return measure._replace(note=note)


def _warm(cluster: Cluster, work: Work, config: Mapping[str, object]) -> None:
    """A JVM compiles what runs often."""
    make_topic(cluster, clients.WARM_TOPIC, **config)
    clients.fill(Work(work.directory, 300_000, work.value_size), cluster.address, clients.WARM_TOPIC)
    clients.send_single(Work(work.directory, 1_000, work.value_size), cluster.address, clients.WARM_TOPIC)


def _processor(start: Start, warm: bool, work: Work) -> Measure:
    """Processor time of all brokers a record, of confluent-kafka's ``produce()``: µs."""
    with start(work.directory) as cluster:
        make_topic(cluster)
        if warm:
            _warm(cluster, work, {})
        before_s = cluster.processor_s()
        clients.produce(work, cluster.address)
        return Measure((cluster.processor_s() - before_s) / work.count * 1e6, "µs")


def _paced(start: Start, warm: bool, which: str, work: Work) -> Measure:
    """Latency at 100,000 records a second by kafka-producer-perf-test: ms, the mean or the 99th percentile."""
    with start(work.directory) as cluster:
        make_topic(cluster)
        if warm:
            _warm(cluster, work, {})
        payload = work.directory / "payload"
        records = Work(work.directory, 10_000, work.value_size).records()
        payload.write_bytes(b"".join(key + value + b"\n" for key, value in zip(*records, strict=True)))
        counts = "--num-records", _RATE * _RATE_S, "--warmup-records", _RATE * 2, "--throughput", _RATE
        said = clients.tool("ProducerPerformance", cluster.address, *counts, "--payload-file", payload, "--command-property", "acks=all")
        found = re.findall(r"^\d+ records sent, ([\d.]+) records/sec .*?([\d.]+) ms avg latency.* ([\d.]+) ms 99th", said, re.MULTILINE)
        if not found:
            raise Wrong(f"kafka-producer-perf-test said: {said.strip()[-500:]}")
        rate, mean, last = map(float, found[-1])
        return Measure({"mean": mean, "p99": last}[which], "ms", f"{rate:,.0f} records a second; mean {mean:g} ms, 99 %: {last:g} ms")


def _gap(start: Start, _warm: bool, work: Work) -> Measure:
    """From kill -9 of the leader to the next acknowledged record: ms, the largest of one record's times."""
    with start(work.directory) as cluster:
        make_topic(cluster)
        producer = clients.producer_of(cluster.address, **{"linger.ms": 0, "enable.idempotence": True, "retry.backoff.ms": 20})
        ended, longest = threading.Event(), [0.0]

        def send() -> None:
            last = time.perf_counter()
            while not ended.is_set():
                producer.produce(clients.TOPIC, b"v" * work.value_size, partition=0)
                if producer.flush(_WAIT_S):
                    raise Wrong("a record is not acknowledged")
                now = time.perf_counter()
                longest[0], last = max(longest[0], now - last), now

        thread = threading.Thread(target=send)
        thread.start()
        time.sleep(3)
        longest[0] = 0.0
        leader = cluster.processes[_partition(cluster).leader]
        leader.kill()
        leader.wait()
        time.sleep(8)
        ended.set()
        thread.join()
        return Measure(longest[0] * 1e3, "ms")


def _catch_up(start: Start, _warm: bool, work: Work) -> Measure:
    """A follower was away while all records were written: MB/s from its start to its place in the in-sync set."""
    with start(work.directory) as cluster:
        make_topic(cluster)
        partition = _partition(cluster)
        node = next(one for one in partition.replicas if one != partition.leader)
        cluster.processes[node].terminate()
        cluster.processes[node].wait()
        _until(lambda: node not in _partition(cluster).isrs, f"node {node} leaves the in-sync set")
        clients.fill(work, cluster.address)
        os.sync()
        began = time.perf_counter()
        cluster.processes[node] = cluster.start(node)
        _until(functools.partial(clients.answers, cluster.addresses[node]), "the node answers")
        started_s = time.perf_counter() - began
        _until(lambda: node in _partition(cluster).isrs, f"node {node} is in sync")
        seconds = time.perf_counter() - began
        return Measure(work.count * (work.value_size + 16) / seconds / 1e6, "MB/s", f"{started_s:.2f} s of it until it answers")


def _resident(start: Start, _warm: bool, idle: bool, work: Work) -> Measure:
    """Resident memory of the largest node: MB, shared pages of its processes counted twice."""
    with start(work.directory) as cluster:
        if not idle:
            make_topic(cluster)
            clients.fill(work, cluster.address)
        time.sleep(_IDLE_S)
        return Measure(cluster.resident_mb(), "MB")


def operations(start: Start, *, warm: bool = False, single: Mapping[str, object] | None = None) -> "dict[str, Operation]":
    """All operations.

    Args:
        warm: The cluster gets other records before it is timed.
        single: Configs of the topic for single sends.
    """
    timed: Sequence[tuple[clients.ClientOperation, Mapping[str, object]]] = (
        (clients.produce, {}),
        (clients.perf_produce, {}),
        (clients.send_each, single or {}),
    )
    return {
        **{one.__name__: functools.partial(_timed, start, warm, one, config) for one, config in timed},
        "processor": functools.partial(_processor, start, warm),
        "paced_mean": functools.partial(_paced, start, warm, "mean"),
        "paced_p99": functools.partial(_paced, start, warm, "p99"),
        "gap": functools.partial(_gap, start, warm),
        "catch_up": functools.partial(_catch_up, start, warm),
        "resident_idle": functools.partial(_resident, start, warm, True),
        "resident_load": functools.partial(_resident, start, warm, False),
    }
