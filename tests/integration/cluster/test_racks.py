"""Kafka's clients with a rack, at three nodes in processes of their own: they read at the node in their rack (KIP-392)."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator

import pytest

import logdb
from benches.peers import SHORT_LIVED
from benches.peers.kafka.jars import TOOLS
from support.cluster_process import ClusterProcess, bytes_out, cluster_process, eventually

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]  # three processes start, and are killed
PARTITIONS = range(3)
RACKS = ("a", "b", "c")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("racks"), kafka=True, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def db(cluster):
    with logdb.open(cluster.urls) as db:
        yield db


def configured(cluster: ClusterProcess, **config: object) -> dict[str, object]:
    """Of librdkafka; it says nothing of brokers that are away."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    return {"bootstrap.servers": ",".join(cluster.kafka), "log_level": 0, **named}


class Reading:
    """A consumer without a group, which reads all partitions from their begin; ``read``: all that it was given, in order."""

    def __init__(self, cluster: ClusterProcess, topic: str, rack: str, **config: object) -> None:
        self._consumer = confluent_kafka.Consumer(
            configured(cluster, group_id="none", client_rack=rack, enable_auto_commit=False, **config)
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in PARTITIONS])
        self.read: list[tuple[int, int, bytes]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read.append((message.partition(), message.offset(), message.value()))
        self._consumer.close()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(30)


@contextlib.contextmanager
def reading(*args: object, **config: object) -> Iterator[Reading]:
    found = Reading(*args, **config)
    try:
        yield found
    finally:
        found.end()


def test_clients_are_told_the_racks(cluster) -> None:
    administrator = admin.AdminClient(configured(cluster))
    described = administrator.describe_cluster().result(30)
    assert {node.id: node.rack for node in described.nodes} == dict(zip(cluster.numbers, RACKS, strict=True))


def read_by_librdkafka(cluster: ClusterProcess, topic: str, count: int) -> None:
    with reading(cluster, topic, "b") as found:
        eventually(lambda: len(found.read) == count)


def read_by_java(cluster: ClusterProcess, topic: str, count: int) -> None:
    if (reason := TOOLS.missing()) is not None:
        pytest.skip(reason)
    program = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    asked = ("--bootstrap-server", ",".join(cluster.kafka), "--topic", topic, "--from-beginning", "--max-messages", str(count))
    command = ["java", *SHORT_LIVED, "-cp", f"{TOOLS.directory}/*", program, *asked, "--command-property", "client.rack=b"]
    read = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert read.stdout.count("\n") == count, read.stderr


@pytest.mark.parametrize("read", [read_by_librdkafka, pytest.param(read_by_java, marks=pytest.mark.foreign)])
def test_a_large_read_spares_the_leaders(cluster, db, read) -> None:
    topic = read.__name__
    db.create_topic(topic, partitions=len(PARTITIONS))
    for partition in PARTITIONS:
        db.log(topic, partition).append_many([b"x" * 1_000] * 1_000)
    assert len({one.leader for one in db.describe_topic(topic).partitions}) > 1
    before = bytes_out(cluster, topic)
    read(cluster, topic, 3_000)
    sent = {number: count - before[number] for number, count in bytes_out(cluster, topic).items()}
    assert sent[2] > 3_000_000
    assert (sent[1], sent[3]) == (0, 0)


def test_nothing_is_lost_and_nothing_comes_twice_while_a_follower_and_a_leader_are_killed(cluster, db) -> None:
    db.create_topic("kills", partitions=len(PARTITIONS))
    acknowledged: dict[tuple[int, int], bytes] = {}
    failures, stop = [], threading.Event()

    def delivered(error, message) -> None:
        if error is not None:
            failures.append(str(error))
        acknowledged[message.partition(), message.offset()] = message.value()

    def produce() -> None:
        producer, number = confluent_kafka.Producer(configured(cluster, enable_idempotence=True, linger_ms=1)), 0
        while not stop.is_set():
            producer.produce("kills", b"%d" % number, on_delivery=delivered, partition=number % len(PARTITIONS))
            producer.poll(0.002)
            number += 1
        producer.flush(60)

    def leads(number: int) -> bool:
        return any(one.leader == number for one in db.describe_topic("kills").partitions)

    producing = threading.Thread(target=produce, daemon=True)
    producing.start()
    with reading(cluster, "kills", "b", isolation_level="read_committed") as found:
        eventually(lambda: bytes_out(cluster, "kills")[2] > 0 and len(found.read) > 300)
        for victim in (2, next(one.leader for one in db.describe_topic("kills").partitions if one.leader != 2)):
            cluster.kill(victim)
            count = len(found.read)
            eventually(lambda victim=victim, count=count: not leads(victim) and len(found.read) > count + 300)
            cluster.start(victim)
            eventually(lambda: all(len(one.in_sync) == 3 for one in db.describe_topic("kills").partitions))
        stop.set()
        producing.join(90)
        eventually(lambda: len(found.read) >= len(acknowledged))
    assert failures == []
    assert len({(partition, offset) for partition, offset, _ in found.read}) == len(found.read), "nothing twice"
    assert {(partition, offset): value for partition, offset, value in found.read} == acknowledged
    assert len(set(acknowledged.values())) == len(acknowledged)
