"""A real Kafka on the loopback: processes that are broker and controller at once (KRaft), one or a cluster of them.

Knows how it is configured.  Does not know how a server is started and ended, nor what it is asked.
"""

import base64
import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benches.peers import SHORT_LIVED
from benches.peers._server import HOST, free_port, running
from benches.peers.kafka.jars import BROKER

_HEAP = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC")  # the most that Kafka's own scripts give it
SMALL_HEAP = ("-Xmx256m", *SHORT_LIVED)
"""For tests, which ask little of it."""


def missing() -> str | None:
    """Why there is none here; None if there is."""
    return BROKER.missing()


@contextlib.contextmanager
def broker(directory: Path, heap: Sequence[str] = _HEAP) -> Iterator[str]:
    """Start one on an empty directory; yields its address, ``host:port``."""
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    with running(prepare(directory, port, heap), port, directory / "broker.log"):
        yield f"{HOST}:{port}"


def prepare(directory: Path, port: int, heap: Sequence[str] = _HEAP) -> list[str]:
    """Format an empty directory; returns the command of a broker that listens on ``port``."""
    return _formatted(directory, _config(directory, 1, {1: port}, {1: free_port()}), _cluster_id(), heap)


def prepare_cluster(directory: Path, ports: Mapping[int, int], controllers: Mapping[int, int]) -> dict[int, list[str]]:
    """Format a directory for each node; returns their commands.

    Args:
        ports: Of the brokers, by the ids of their nodes.
        controllers: Of the controllers.
    """
    cluster_id, commands = _cluster_id(), {}
    for node in ports:
        home = directory / f"node-{node}"
        home.mkdir()
        commands[node] = _formatted(home, _config(home, node, ports, controllers), cluster_id, _HEAP)
    return commands


def _formatted(directory: Path, config: Mapping[str, object], cluster_id: str, heap: Sequence[str]) -> list[str]:
    path = directory / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    subprocess.run(_java(heap, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", path), check=True, capture_output=True)
    return _java(heap, "kafka.Kafka", path)


def _config(directory: Path, node: int, ports: Mapping[int, int], controllers: Mapping[int, int]) -> dict[str, object]:
    port, count = ports[node], len(ports)
    in_sync = min(2, count)
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{other}@{HOST}:{at}" for other, at in controllers.items()),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controllers[node]}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": directory / "data",
        "log.retention.ms": -1,  # records may have any timestamp
        "offsets.topic.replication.factor": count,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": count,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": count,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
    }


def _java(heap: Sequence[str], program: str, *arguments: object) -> list[str]:
    return ["java", *heap, "-cp", f"{BROKER.directory}/*", program, *map(str, arguments)]


def _cluster_id() -> str:
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text.replace("-", "_", 1) if text.startswith("-") else text  # the tool would take it for an option
