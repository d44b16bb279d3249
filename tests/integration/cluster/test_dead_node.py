"""Eight clients that start while one of three nodes is dead: each goes on.

The address of the dead node refuses connections, as that of a killed process does: Metadata still names it.  Or it is silent, as that of a
machine that is off: Metadata leaves it out after some seconds.
Each client starts alone.  Its times are recorded; they include the start of its Python, JVM or Node.
"""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka.admin
import pytest

import logdb
from integration.cluster.test_rolling_restarts import CLIENTS, Client, commands, topic_of
from support.cluster_process import ClusterProcess, cluster_process, eventually
from support.waiting import until

DEAD, WITHIN_S = 1, 60
FIRST, LAST, ALIVE = (1, 2, 3), (2, 3, 1), (2, 3)
"""The servers in a client's settings, in this order: the dead one is first or last, or is not named."""
SLOW_TO_CONNECT = {
    "kafka-python": "may try a silent address alone, for 30 s, and then raises KafkaTimeoutError",
    "aiokafka": "waits 40 s for each connection, and tries a silent address again",
    "franz-go": "waits 20 s for a silent address, and may try it again",
    "sarama": "waits 30 s for each connection, and tries a silent address again",
}
"""The clients that may wait longer than ``WITHIN_S`` for a silent address of their settings, and why."""
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, list[object]]:
    return commands(tmp_path_factory.mktemp("programs"))


def create_topics(cluster: ClusterProcess) -> None:
    """The clients' topics, and that of the groups, each with three replicas."""
    with logdb.open(cluster.urls) as db:
        for name in CLIENTS:
            db.create_topic(topic_of(name), partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
        with db.consumer(topic_of("logdb"), group_id="first", auto_offset_reset="earliest") as consumer:
            consumer.poll(0)


@contextlib.contextmanager
def silent(address: str) -> Iterator[None]:
    """The address takes no connection and refuses none: the queue of its listener is full."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, int(port)), backlog=0))
        with contextlib.suppress(TimeoutError):
            while True:
                stack.enter_context(socket.create_connection(listener.getsockname(), timeout=0.5))
        yield


@contextlib.contextmanager
def dead_node(cluster: ClusterProcess, is_silent: bool) -> Iterator[None]:
    """A node is killed; others lead its partitions, and Metadata names it."""
    cluster.kill(DEAD)
    eventually(lambda: leads_nothing(cluster))
    assert named(cluster) == {1, 2, 3}
    with contextlib.ExitStack() as stack:
        if is_silent:
            stack.enter_context(silent(cluster.kafka[DEAD - 1]))
            stack.enter_context(silent(cluster.url(DEAD)))
            eventually(lambda: named(cluster) == {2, 3})
        yield


def named(cluster: ClusterProcess) -> set[int]:
    """The brokers in the answers of both other nodes."""
    asked = [confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.kafka[node - 1]}) for node in ALIVE]
    return {broker for admin in asked for broker in admin.list_topics(timeout=30).brokers}


def leads_nothing(cluster: ClusterProcess) -> bool:
    with logdb.open(cluster.urls) as db:
        topics = [db.describe_topic(topic.name) for topic in db.topics(internal=True)]
        return all(one.leader not in {None, -1, DEAD} for topic in topics for one in topic.partitions)


def waited(name: str, command: list[object], addresses: list[str], errors: Path) -> str:
    """Start a client: how long until its first acknowledged record, and its first record read by a group."""
    began = time.monotonic()
    client = Client(name, [*command, ",".join(addresses), topic_of(name)], errors)
    try:
        until(lambda: client.acknowledged and client.read, f"{name} starts: {client.failed[-3:]}", WITHIN_S)
        client.goes_on()
        (_, sent), (_, read) = client.acknowledged[0], client.read[0]
        return f"{name} {sent - began:.1f} s to an acknowledged record, {read - began:.1f} s to one read, {len(client.failed)} failed"
    finally:
        client.kill()


@pytest.mark.parametrize(
    ("dead", "order"), [("none", FIRST), ("refuses", FIRST), ("refuses", LAST), ("silent", FIRST), ("silent", LAST), ("silent", ALIVE)]
)
def test_a_fresh_client_goes_on(tmp_path, record_property, programs, dead, order):
    with cluster_process(tmp_path / "nodes", 3, kafka=True) as cluster:
        create_topics(cluster)
        with contextlib.nullcontext() if dead == "none" else dead_node(cluster, dead == "silent"):
            for name, command in programs.items():
                if dead == "silent" and DEAD in order and name in SLOW_TO_CONNECT:
                    continue
                servers = cluster.urls if name == "logdb" else cluster.kafka
                told = waited(name, command, [servers[node - 1] for node in order], tmp_path / f"{name}.errors")
                record_property("told", f"dead node: {dead}, servers {order}: {told}")
