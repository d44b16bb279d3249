"""Kafka Connect's own standalone worker on a Kafka broker, with the heap of Kafka's scripts."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from benches.peers import not_importable
from benches.peers._connect import Worker, operations, worker
from benches.peers.kafka import broker
from benches.peers.kafka.jars import PLATFORM
from benches.workload import Work

_HEAP = ("-Xms256m", "-Xmx2g", "-XX:+UseG1GC")


def missing() -> str | None:
    return not_importable("confluent_kafka") or broker.missing() or PLATFORM.missing()


def _command(file: Path) -> list[str]:
    jars = ":".join(str(one) for one in PLATFORM.directory.iterdir() if not one.name.startswith("connect-file"))
    level = "-Dorg.apache.logging.log4j.level=ERROR"
    return ["java", *_HEAP, level, "-cp", jars, "org.apache.kafka.connect.cli.ConnectStandalone", str(file)]


@contextlib.contextmanager
def _running(work: Work) -> Iterator[Worker]:
    plugins = {"plugin.path": next(PLATFORM.directory.glob("connect-file-*.jar")), "plugin.discovery": "service_load"}
    with (
        broker.broker(work.directory / "broker") as address,
        worker(_command, address, work.directory, **plugins) as one,
    ):
        yield one


OPERATIONS = operations(_running)
