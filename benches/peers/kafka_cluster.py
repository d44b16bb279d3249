"""Three Kafka brokers, each a controller, too; their JVMs have had records in before they are timed."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benches.peers import not_importable
from benches.peers._server import HOST, free_port
from benches.peers.kafka import broker, clusters
from benches.peers.kafka.jars import TOOLS


def missing() -> str | None:
    return broker.missing() or TOOLS.missing() or not_importable("confluent_kafka")


@contextlib.contextmanager
def start(directory: Path) -> Iterator[clusters.Cluster]:
    """Single sends are compared with ``flush.messages=1``: a topic's config."""
    ports, controllers = {node: free_port() for node in clusters.NODES}, {node: free_port() for node in clusters.NODES}
    commands, nowhere = broker.prepare_cluster(directory, ports, controllers), subprocess.DEVNULL

    def process(node: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(commands[node], stdin=nowhere, stdout=nowhere, stderr=nowhere)

    with clusters.running({node: f"{HOST}:{port}" for node, port in ports.items()}, process) as cluster:
        yield cluster


OPERATIONS = clusters.operations(start, warm=True, single={"flush.messages": 1})
