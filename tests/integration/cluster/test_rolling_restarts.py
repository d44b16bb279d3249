"""Idempotent producers and groups of eight clients, while each of three nodes is restarted and then killed in its turn.

Nothing is lost, nothing is stored twice, and no client stops.  Skipped, with the reason, where Go, Node, Java or Maven are missing.
"""

import contextlib
import itertools
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

import logdb
from benches.peers.kafka.jars import PLATFORM
from logdb.errors import LogdbError, UnknownTopic
from support.cluster_process import ClusterProcess, all_in_sync, cluster_process, eventually
from support.franz_go import fetched
from support.java import compiled, java
from support.kafkajs import kafkajs
from support.waiting import until

HERE = Path(__file__).parent / "rolling"
CLIENTS = ["librdkafka", "kafka-python", "aiokafka", "logdb", "java", "franz-go", "sarama", "kafkajs"]
PROGRESS, PROGRESS_S = 50, 120
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(1_800)]


class Client:
    """A program that produces and reads; ``acknowledged`` and ``read``: values, and when the test saw them."""

    def __init__(self, name: str, command: list[object], errors: Path) -> None:
        self.name, self.acknowledged, self.read, self.failed = name, list[tuple[str, float]](), list[tuple[str, float]](), list[str]()
        self.is_done = threading.Event()
        self._errors = errors
        with errors.open("wb") as file:
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            kind, _, rest = line.rstrip("\n").partition(" ")
            if kind in {"a", "r"}:
                (self.acknowledged if kind == "a" else self.read).append((rest, time.monotonic()))
            elif kind == "sent":
                self.is_done.set()
            else:
                self.failed.append(line)

    def goes_on(self) -> None:
        sent, read = len(self.acknowledged), len(self.read)
        try:
            until(lambda: len(self.acknowledged) >= sent + PROGRESS, f"{self.name} sends", PROGRESS_S)
            until(lambda: len(self.read) >= read + PROGRESS, f"{self.name} reads", PROGRESS_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.failed[-3:]} {self._errors.read_text()[-2000:]}") from None

    def stop(self) -> None:
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        until(self.is_done.is_set, f"{self.name} ends", PROGRESS_S)

    def gaps(self, spans: dict[str, tuple[float, float]]) -> str:
        """The longest times without an acknowledgement, and without a record read, in each span."""
        return "; ".join(
            f"{what} {longest_gap(self.acknowledged, *span):.1f} s sent, {longest_gap(self.read, *span):.1f} s read"
            for what, span in spans.items()
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._listener.join(30)
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # of a client that had gone
            self.process.stdin.close()


class Repeated(threading.Thread):
    """Does something again and again; ``seen``: when it was done, each time."""

    def __init__(self, urls: list[str], work: "Callable[[logdb.Database], Generator[None]]") -> None:
        super().__init__(daemon=True)
        self.seen, self.errors = list[tuple[str, float]](), list[Exception]()
        self._urls, self._work, self._stopped = urls, work, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                with logdb.open(self._urls, timeout_ms=1_000 * PROGRESS_S) as db, contextlib.closing(self._work(db)) as rounds:
                    for _ in rounds:
                        self.seen.append(("", time.monotonic()))
                        if self._stopped.wait(0.2):
                            break
            except LogdbError as error:
                self.errors.append(error)
                self._stopped.wait(0.2)

    def gaps(self, spans: dict[str, tuple[float, float]]) -> str:
        return "; ".join(f"{what} {longest_gap(self.seen, *span):.1f} s" for what, span in spans.items())

    def stop(self) -> None:
        self._stopped.set()
        self.join(PROGRESS_S)
        assert not self.is_alive()


def transactions(db: logdb.Database) -> Generator[None]:
    with db.producer(transactional_id="repeated") as producer:
        while True:
            producer.begin_transaction()
            producer.send(topic_of("transactions"), b"")
            producer.commit_transaction()
            yield


def creations(db: logdb.Database) -> Generator[None]:
    """A topic is created and deleted."""
    for number in itertools.count():
        name = topic_of(f"creation-{number}")
        db.create_topic(name, partitions=1, replication_factor=3, if_not_exists=True)
        yield
        db.delete_topic(name)


@contextlib.contextmanager
def repeated(urls: list[str]) -> Iterator[dict[str, Repeated]]:
    started = {work.__name__: Repeated(urls, work) for work in (transactions, creations)}
    try:
        yield started
    finally:
        for one in started.values():
            one.stop()


def commands(directory: Path) -> dict[str, list[object]]:
    """What starts each client; without servers and topic."""
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)
    fetched(["go", "mod", "download", "-modcacherw"], HERE / "go")
    subprocess.run(["go", "build", "-o", directory / "rolling", "."], check=True, timeout=600, cwd=HERE / "go")
    kafkajs(directory / "kafkajs")
    shutil.copy(HERE / "kafkajs.mjs", directory / "kafkajs")
    classes = compiled(HERE / "RollingClient.java", directory / "classes")
    python = {name: [sys.executable, HERE / "clients.py", name] for name in ("librdkafka", "kafka-python", "aiokafka", "logdb")}
    go = {name: [directory / "rolling", name] for name in ("franz-go", "sarama")}
    return {**python, **go, "java": java("RollingClient", classes=classes), "kafkajs": ["node", directory / "kafkajs" / "kafkajs.mjs"]}


@contextlib.contextmanager
def clients(cluster: ClusterProcess, directory: Path) -> Iterator[list[Client]]:
    started = list[Client]()
    try:
        for name, command in commands(directory).items():
            servers = cluster.urls if name == "logdb" else cluster.kafka
            started.append(Client(name, [*command, ",".join(servers), topic_of(name)], directory / f"{name}.errors"))
        yield started
    finally:
        for client in started:
            client.kill()


def topic_of(name: str) -> str:
    return f"of-{name}"


def in_turn(cluster: ClusterProcess, all_clients: list[Client], end: Callable[[int], object]) -> tuple[float, float]:
    """End each node and start it again; returns when that began and when it was over."""
    began = time.monotonic()
    for node in cluster.numbers:
        end(node)
        for client in all_clients:
            client.goes_on()
        cluster.start(node)
        eventually(lambda: are_all_in_sync(cluster), 120)
        for client in all_clients:
            client.goes_on()
    return began, time.monotonic()


def are_all_in_sync(cluster: ClusterProcess) -> bool:
    try:
        return all_in_sync(cluster)
    except UnknownTopic:  # it was deleted during the look
        return False


def longest_gap(seen: list[tuple[str, float]], began: float, ended: float) -> float:
    times = [at for _, at in seen if began <= at <= ended]
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0)


def test_no_client_stops_loses_or_repeats(tmp_path, record_property):
    with cluster_process(tmp_path / "nodes", 3, "--session-timeout-ms-min", "1000", kafka=True) as cluster:
        with logdb.open(cluster.urls) as db:
            for name in (*CLIENTS, "transactions"):
                db.create_topic(topic_of(name), partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
        with clients(cluster, tmp_path) as started, repeated(cluster.urls) as beside:
            assert sorted(one.name for one in started) == sorted(CLIENTS)
            for client in started:
                client.goes_on()
            spans = {how: in_turn(cluster, started, end) for how, end in (("restarts", cluster.end), ("kills", cluster.kill))}
            for client in started:
                client.stop()
            with logdb.open(cluster.urls) as db:
                for client in started:
                    check(db, client)
    for client in started:
        counts = f"{len(client.acknowledged)} records, {len(client.failed)} failed"
        record_property("told", f"rolling restarts, {client.name}: {counts}; longest gaps: {client.gaps(spans)}")
    for what, work in beside.items():
        counts = f"{len(work.seen)} {what}, {len(work.errors)} failed"
        record_property("told", f"rolling restarts: {counts}; longest gaps: {work.gaps(spans)}")


def check(db: logdb.Database, client: Client) -> None:
    acknowledged = {value for value, _ in client.acknowledged}
    stored = Counter(record.value.decode() for record in db.read(topic_of(client.name)))
    failed = Counter(client.failed).most_common(5)
    assert sorted(acknowledged - stored.keys()) == [], f"{client.name} lost records, and met {failed}"
    assert [value for value, count in stored.items() if count > 1] == [], f"{client.name} stored records twice"
    until(lambda: acknowledged <= {value for value, _ in client.read}, f"{client.name} reads all", PROGRESS_S)
