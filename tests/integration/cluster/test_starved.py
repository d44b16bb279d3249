"""A cluster whose machine has far too little processor time settles, and goes on acknowledging."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.errors import LogdbError
from logdb_replication.node import READY_S
from support.cluster_process import ClusterProcess, all_in_sync, cluster_process, controller_of, eventually

PARTITIONS, BUSY, DURATION_S, PAUSE_S = 300, 8, 300, 0.5
NICE, BESIDE, CLIENTS, KILLS, SETTLED_S = 10, 5, 3, 4, 10
GAP_S_MAX, ELECTIONS_MAX, READY_S_MAX = 30, 3, 2 * READY_S
pytestmark = pytest.mark.timeout(DURATION_S + 300)


@contextlib.contextmanager
def busy_processes(count: int):
    """So many processes that compute without end."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait(10)


def voters(cluster: ClusterProcess):
    """The voters that answer, as ``logdb quorum`` shows them."""
    result = CliRunner().invoke(cli, ["quorum", "--cluster", cluster.config(1), "--json"])
    return [voter for voter in json.loads(result.stdout or '{"voters": []}')["voters"] if "term" in voter]


def produce(cluster: ClusterProcess, stopped: threading.Event, acknowledged: list[float]):
    """Send to one partition after the other, and note when each record was acknowledged."""
    number = 0
    with logdb.open(list(cluster.urls), timeout_ms=120_000) as db, db.producer(enable_idempotence=True) as producer:
        while not stopped.is_set():
            with contextlib.suppress(LogdbError):
                producer.send("t", b"%d" % number, partition=number % PARTITIONS).result(120)
                acknowledged.append(time.monotonic())
            number += 1


def killed(cluster: ClusterProcess) -> float:
    """Kill a node, and start it again; the time until it takes requests, in s."""
    cluster.kill(3)
    return started_again(cluster, 3)


def started_again(cluster: ClusterProcess, number: int) -> float:
    began = time.monotonic()
    cluster.start(number)
    return time.monotonic() - began


def test_a_starved_cluster_settles(tmp_path, record_property):
    with cluster_process(tmp_path) as cluster:
        with logdb.open(list(cluster.urls), timeout_ms=120_000) as db:
            db.create_topic("t", partitions=PARTITIONS)
        stopped, acknowledged, looks = threading.Event(), [], []
        first_term = max(voter["term"] for voter in voters(cluster))
        producing = threading.Thread(target=produce, args=(cluster, stopped, acknowledged))
        with busy_processes(BUSY):
            producing.start()
            began = time.monotonic()
            while time.monotonic() < began + DURATION_S / 2:
                looks += voters(cluster)
                stopped.wait(5)
            ready_s = killed(cluster)
            while time.monotonic() < began + DURATION_S:
                looks += voters(cluster)
                stopped.wait(5)
            stopped.set()
            producing.join(150)
        by_minute = [sum(minute <= (at - began) / 60 < minute + 1 for at in acknowledged) for minute in range(DURATION_S // 60)]
        terms = max(voter["term"] for voter in looks) - first_term
        gap = max(later - earlier for earlier, later in zip([began, *acknowledged], acknowledged, strict=False))
        late_ms = max(voter["late_ms"] for voter in looks)
        told = f"{terms} new terms, acknowledged by minute {by_minute}, longest gap {gap:.1f} s, ready {ready_s:.1f} s after a kill"
        record_property("told", f"a starved cluster: {told}, voters up to {late_ms} ms late")
        assert terms <= 5
        assert all(by_minute)
        assert ready_s < READY_S


def test_quorum_says_which_machine_is_starved(tmp_path):
    """How late a busy machine runs is its scheduler's matter; here a voter has no turn for half a second."""
    with cluster_process(tmp_path) as cluster:
        controller = controller_of(cluster.processes[2])

        def is_said() -> bool:
            os.kill(controller, signal.SIGSTOP)
            time.sleep(PAUSE_S)
            os.kill(controller, signal.SIGCONT)
            return any(voter["node"] == 2 and voter["starved"] for voter in voters(cluster))

        eventually(is_said, 60)


def leader_of(looks: list[dict[str, Any]]) -> int | None:
    """The node whose voter leads in the newest term."""
    return next((voter["node"] for voter in sorted(looks, key=lambda one: -one["term"]) if voter["state"] == "leader"), None)


def settled(cluster: ClusterProcess) -> tuple[int, int]:
    """The voter that leads, and its term, once neither has changed for a while."""
    until, last = time.monotonic() + 60, (0, 0)
    since = time.monotonic()
    while time.monotonic() < since + SETTLED_S:
        assert time.monotonic() < until, "the cluster does not settle"
        looks = voters(cluster)
        now = leader_of(looks), max((voter["term"] for voter in looks), default=0)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.2)
    leader, term = last
    assert leader is not None
    return leader, term


def test_a_leader_is_killed_on_a_busy_machine(tmp_path, record_property):
    """The leader of the controllers, and of a third of the partitions, while five busy processes have more weight than the nodes."""
    with cluster_process(tmp_path, nice=NICE) as cluster:
        with logdb.open(list(cluster.urls), timeout_ms=120_000) as db:
            db.create_topic("t", partitions=PARTITIONS // 3)
        stopped, clients = threading.Event(), [list[float]() for _ in range(CLIENTS)]
        producing = [threading.Thread(target=produce, args=(cluster, stopped, acknowledged)) for acknowledged in clients]
        with busy_processes(BESIDE):
            for thread in producing:
                thread.start()
            for _ in range(KILLS):
                leader, term = settled(cluster)
                at = time.monotonic()
                cluster.kill(leader)
                next_leader, next_term = settled(cluster)
                eventually(lambda at=at: all(acknowledged[-1] > at + SETTLED_S for acknowledged in clients), 120)
                ready_s = started_again(cluster, leader)
                eventually(lambda: all_in_sync(cluster), 120)
                gaps = [longest_gap(acknowledged, at, at + SETTLED_S) for acknowledged in clients]
                waited = ", ".join(f"{gap:.1f}" for gap in gaps)
                told = f"{next_term - term} new terms, the clients waited {waited} s, the node was ready again after {ready_s:.1f} s"
                record_property("told", f"kill -9 of a leader, nodes at nice {NICE} beside {BESIDE} busy processes: {told}")
                assert next_leader != leader
                assert next_term - term <= ELECTIONS_MAX
                assert max(gaps) < GAP_S_MAX
                assert ready_s < READY_S_MAX
            stopped.set()
            for thread in producing:
                thread.join(150)


def longest_gap(acknowledged: list[float], began: float, ended: float) -> float:
    """The longest time without an acknowledgement that has begun between two moments."""
    pairs = zip(list(acknowledged), list(acknowledged)[1:], strict=False)
    return max((later - earlier for earlier, later in pairs if earlier <= ended and later >= began), default=0.0)
