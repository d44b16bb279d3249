"""Other languages' clients on three nodes, each of which is killed in its turn and comes back: nothing is lost, and nothing counted twice.

Spark's turn is in integration/spark/test_cluster.py.
Skipped, with the reason, where Go, Java or Maven are missing.
"""

import json
import subprocess
from collections.abc import Callable

import confluent_kafka
import pytest

import logdb
from benches.peers.kafka.jars import PLATFORM
from support.cluster_process import ClusterProcess, all_in_sync, cluster_process, eventually
from support.feeding import fed
from support.franz_go import franz_go
from support.java import compiled, java, running
from support.word_counts import SOURCE, check, exactly_once, word_of

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path):
    with cluster_process(tmp_path / "nodes", 3, "--session-timeout-ms-min", "1000", kafka=True) as cluster:
        yield cluster


def create(cluster: ClusterProcess, *topics: str) -> None:
    with logdb.open(cluster.urls) as db:
        for topic in topics:
            db.create_topic(topic, partitions=3, replication_factor=3, config={"min.insync.replicas": 2})


def kill_each(cluster: ClusterProcess, more: Callable[[], object]) -> None:
    """``more`` returns once there is progress; a node is killed only when all replicas are in sync."""
    for node in cluster.numbers:
        more()
        cluster.kill(node)
        more()
        cluster.start(node)
        eventually(lambda: all_in_sync(cluster), 60)


def test_franz_go(cluster, tmp_path):
    """An idempotent producer and a group; every node leads a partition."""
    create(cluster, "go")
    command = [*franz_go(tmp_path), ",".join(cluster.kafka), "through", "go"]
    with (
        logdb.open(cluster.urls) as db,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program,
    ):
        logs = [db.log("go", partition) for partition in range(3)]

        def more() -> None:
            enough = [log.end_offset + 100 for log in logs]
            eventually(lambda: all(log.end_offset >= end for log, end in zip(logs, enough, strict=True)), 60)

        try:
            kill_each(cluster, more)
            told, errors = program.communicate(timeout=90)  # closes its stdin
        finally:
            program.kill()
        assert program.returncode == 0, errors
        seen = json.loads(told)
        stored = {(number, one.offset, one.value.decode()) for number, log in enumerate(logs) for one in log.read(0)}
    acknowledged, read = ({(one["partition"], one["offset"], one["value"]) for one in seen[name]} for name in ("acknowledged", "read"))
    assert seen["failed"] == []
    assert stored == acknowledged == read
    assert len({value for _, _, value in stored}) == len(stored) == len(seen["acknowledged"]) > 600


def test_streams(cluster, tmp_path):
    """At ``exactly_once_v2``: words, changelog, counts, offsets and transactions are led by nodes that are killed."""
    if (reason := PLATFORM.missing()) is not None:
        pytest.skip(reason)
    create(cluster, "words", "counts")
    addresses, sent, told = ",".join(cluster.kafka), list[str](), list[tuple[str, int]]()
    options = {"bootstrap.servers": addresses, "log_level": 0}
    producer = confluent_kafka.Producer(options | {"enable.idempotence": True, "linger.ms": 1})
    consumer = confluent_kafka.Consumer(options | {"group.id": "g", "isolation.level": "read_committed", "reconnect.backoff.max.ms": 500})
    consumer.assign([confluent_kafka.TopicPartition("counts", one, 0) for one in range(3)])

    def send(number: int) -> None:
        producer.produce("words", word_of(number).encode(), b"%d" % number, partition=number % 3)
        producer.poll(0)
        sent.append(word_of(number))

    def read() -> int:
        told.extend((one.key().decode(), int(one.value())) for one in consumer.consume(1_000, 0.05) if one.error() is None)
        return len(told)

    classes = compiled(SOURCE, tmp_path / "classes")
    with running(java("WordCounts", exactly_once(addresses, tmp_path), classes=classes), tmp_path / "log") as program:

        def more() -> None:
            enough = read() + 500
            program.until(lambda: read() >= enough)

        with fed(send):
            kill_each(cluster, more)
        assert producer.flush(60) == 0
        program.until(lambda: read() >= len(sent))
    check(told, sent)
    consumer.close()
