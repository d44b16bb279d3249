"""A real Kafka on the loopback: one process, broker and controller at once (KRaft).

Knows how it is configured.  Does not know how a server is started and ended, nor what it is asked.
"""

import base64
import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from benches.peers._server import HOST, free_port, running
from benches.peers.kafka.jars import BROKER

_HEAP = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC")  # the most that Kafka's own scripts give it
SMALL_HEAP = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
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
    config = directory / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in _config(directory, port, free_port()).items()))
    subprocess.run(_java(heap, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", config), check=True, capture_output=True)
    return _java(heap, "kafka.Kafka", config)


def _config(directory: Path, port: int, controller_port: int) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": directory / "data",
        "log.retention.ms": -1,  # records may have any timestamp
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }


def _java(heap: Sequence[str], program: str, *arguments: object) -> list[str]:
    return ["java", *heap, "-cp", f"{BROKER.directory}/*", program, *map(str, arguments)]


def _cluster_id() -> str:
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text.replace("-", "_", 1) if text.startswith("-") else text  # the tool would take it for an option
