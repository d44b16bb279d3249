"""Our cluster: three ``logdb serve --cluster`` with their controllers, at their defaults: acknowledged is what is synced on two disks."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benches.peers import not_importable
from benches.peers._server import HOST, free_port
from benches.peers.kafka import clusters
from benches.peers.kafka.jars import TOOLS
from benches.peers.kafka.platforms import compiling

_LOGDB = (sys.executable, "-m", "logdb.cli")


def missing() -> str | None:
    return not_importable("confluent_kafka") or not_importable("pysyncobj") or TOOLS.missing()


@contextlib.contextmanager
def start(directory: Path) -> Iterator[clusters.Cluster]:
    home = directory / "cluster"
    ports: dict[str, Mapping[int, int]] = {door: {node: free_port() for node in clusters.NODES} for door in ("http", "kafka")}
    options = [part for door, of in ports.items() for part in (f"--{door}-ports", ",".join(map(str, of.values())))]
    subprocess.run([*_LOGDB, "cluster", "init", home, "--nodes", str(len(clusters.NODES)), *options], check=True, capture_output=True)
    nowhere = subprocess.DEVNULL

    def process(node: int) -> "subprocess.Popen[bytes]":
        place = home / f"node-{node}"
        with (directory / f"node-{node}.log").open("ab") as errors:
            command = [*_LOGDB, "serve", place / "data", "--cluster", place / "cluster.toml"]
            return subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=errors, env=compiling())

    with clusters.running({node: f"{HOST}:{port}" for node, port in ports["kafka"].items()}, process) as cluster:
        yield cluster


OPERATIONS = clusters.operations(start)
