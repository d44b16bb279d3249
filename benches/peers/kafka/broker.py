"""A real Kafka on the loopback: one process, broker and controller at once (KRaft).

Knows how it is configured, started and ended.  Does not know what it is asked.
"""

import base64
import contextlib
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from benches.peers.kafka.jars import BROKER

HOST = "127.0.0.1"
_HEAP = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC")  # the most that Kafka's own scripts give it
_START_SECONDS_MAX = 90


def missing() -> str | None:
    """Why there is none here; None if there is."""
    return BROKER.missing()


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[str]:
    """Start one on an empty directory; yields its address, ``host:port``."""
    port, controller_port = _free_ports(2)
    config = directory / "server.properties"
    directory.mkdir(parents=True, exist_ok=True)
    config.write_text("".join(f"{key}={value}\n" for key, value in _config(directory, port, controller_port).items()))
    subprocess.run(_java("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", config), check=True, capture_output=True)
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(_java("kafka.Kafka", config), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory)
    try:
        _wait(process, port, directory / "broker.log")
        yield f"{HOST}:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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


def _java(program: str, *arguments: object) -> list[str]:
    return ["java", *_HEAP, "-cp", f"{BROKER.directory}/*", program, *map(str, arguments)]


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    """Until it answers; a broker listens before it knows that it leads, so a client asks again."""
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"Kafka did not start: {log.read_text(errors='replace')[-1500:]}")
