"""Three nodes on this machine are one server: the leader is killed -9 under load, again and again, and nothing is lost.

    python demo/cluster.py                       # three kills under load, in a scratch directory
    python demo/cluster.py --serve --path nodes  # the nodes alone, kept, until Ctrl-C

Each record is acknowledged once two of three nodes have it on their disks.  A program that kills sees the time until the next
acknowledgement; at the end every acknowledged record has to be where its acknowledgement says, once, and in order.
"""

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

import logdb

TOPIC, AHEAD_COUNT, SETTLE_S = "payments", 100, 2.0

console = Console(highlight=False)


class Nodes:
    """The processes of a cluster."""

    def __init__(self, path: str, ports: Sequence[int]) -> None:
        self.path, self.urls = path, [f"http://127.0.0.1:{port}" for port in ports]
        if not os.path.exists(os.path.join(path, "node-1")):
            run_logdb("cluster", "init", path, "--nodes", str(len(ports)), "--http-ports", ",".join(map(str, ports)))
        self._processes: dict[int, subprocess.Popen[str]] = {}

    def start(self, *numbers: int) -> None:
        """Start nodes; returns when they serve.  Ends the program, with the node's own words, if one does not."""
        for number in numbers:
            directory = os.path.join(self.path, f"node-{number}")
            command = [*LOGDB, "serve", os.path.join(directory, "data"), "--cluster", os.path.join(directory, "cluster.toml")]
            with open(self._log_path(number), "a") as log:
                self._processes[number] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        for number in numbers:
            output = self._processes[number].stdout
            assert output is not None
            url = output.readline().strip()
            if url != self.urls[number - 1]:
                reason = (
                    f"it serves at {url}, not at {self.urls[number - 1]}: --path has nodes with other ports"
                    if url
                    else self._last_words(number)
                )
                sys.exit(f"node {number} did not start: {reason}")

    def _log_path(self, number: int) -> str:
        return os.path.join(self.path, f"node-{number}", "log")

    def _last_words(self, number: int) -> str:
        """What a node that has ended said last."""
        self._processes[number].wait()
        with open(self._log_path(number)) as log:
            lines = log.read().strip().splitlines()
        return lines[-1] if lines else f"it ended with code {self._processes[number].returncode}"

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait()


LOGDB = [sys.executable, "-m", "logdb.cli"]


def run_logdb(*words: str) -> None:
    done = subprocess.run([*LOGDB, *words], check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"logdb {' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def cluster(path: str, ports: Sequence[int]) -> Iterator[Nodes]:
    nodes = Nodes(path, ports)
    try:
        nodes.start(*range(1, len(ports) + 1))
        yield nodes
    finally:
        nodes.stop()


class Load:
    """A producer that sends numbers until it is stopped, some ahead of their acknowledgements.

    ``acknowledged``: the number at each offset, as it was told.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.acknowledged: dict[int, int] = {}
        self._urls, self._stop = urls, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        under_way: list[tuple[int, Any]] = []
        with logdb.open(self._urls) as db, db.producer(acks="all", enable_idempotence=True) as producer:
            for number in itertools.count():
                if self._stop.is_set():
                    break
                under_way.append((number, producer.send(TOPIC, b"%d" % number)))
                if len(under_way) >= AHEAD_COUNT:
                    self._take(under_way)
            producer.flush()
            self._take(under_way)

    def _take(self, under_way: list[tuple[int, Any]]) -> None:
        for number, future in under_way:
            self.acknowledged[future.result(timeout=60).offset] = number
        under_way.clear()

    def next_acknowledgement_s(self) -> float:
        """How long it takes until more is acknowledged."""
        begun, count = time.monotonic(), len(self.acknowledged)
        while len(self.acknowledged) <= count + AHEAD_COUNT:  # those that were under way may have been answered before
            time.sleep(0.01)
        return time.monotonic() - begun


def kill_leaders(nodes: Nodes, count: int) -> None:
    rounds = Table("kill", "node", "acknowledged before", "next acknowledgement after")
    with logdb.open(nodes.urls) as db:
        db.create_topic(TOPIC, partitions=1, replication_factor=3)
        load = Load(nodes.urls)
        for number in range(count):
            time.sleep(SETTLE_S)
            leader = db.describe_topic(TOPIC).partitions[0].leader
            assert leader is not None
            before = len(load.acknowledged)
            nodes.kill(leader)
            rounds.add_row(str(number + 1), str(leader), f"{before:,}", f"{load.next_acknowledgement_s():.1f} s")
            nodes.start(leader)
        load.stop()
        console.print(rounds)
        stored = {record.offset: int(record.value or b"") for record in db.log(TOPIC, partition=0).read(0)}
    lost = [offset for offset, number in load.acknowledged.items() if stored.get(offset) != number]
    assert not lost, f"{len(lost)} acknowledged records are gone, the first at offset {min(lost)}"
    assert list(stored.values()) == sorted(set(stored.values())), "a record is there twice, or out of order"
    console.print(f"{len(load.acknowledged):,} records were acknowledged; each is there once, in order, where its acknowledgement says.")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", help="keep the nodes there (default: a scratch directory)")
    parser.add_argument("--ports", default="8081,8082,8083", help="of the three HTTP listeners; each must be free")
    parser.add_argument("--kills", type=int, default=3, help="how often the leader is killed")
    parser.add_argument("--serve", action="store_true", help="run the nodes until Ctrl-C")
    options = parser.parse_args(arguments)
    ports = [int(port) for port in options.ports.split(",")]
    with contextlib.ExitStack() as closing:
        path = options.path or closing.enter_context(tempfile.TemporaryDirectory(prefix="logdb-cluster-"))
        nodes = closing.enter_context(cluster(os.path.abspath(path), ports))
        console.print(f"three nodes serve one cluster: {', '.join(nodes.urls)}")
        if options.serve:
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
        else:
            kill_leaders(nodes, options.kills)


if __name__ == "__main__":
    main()
