"""Our side for Kafka's clients: ``logdb serve --kafka`` at level ``os``, in a process of its own."""

import subprocess
import sys
import time
from pathlib import Path

from benches.peers import not_importable
from benches.peers._server import HOST
from benches.peers.kafka import clients
from benches.peers.kafka.jars import TOOLS
from benches.peers.kafka.platforms import compiling, operations
from benches.workload import Measure, Work, Wrong

_TESTING = """
import logdb.testing
with logdb.testing.broker() as broker:
    print(broker.bootstrap_servers, flush=True)
    input()
"""


def missing() -> str | None:
    return not_importable("confluent_kafka") or TOOLS.missing()


def prepare(directory: Path, port: int) -> list[str]:
    command = [sys.executable, "-m", "logdb.cli", "serve", str(directory / "db"), "--durability", "os"]
    return [*command, "--kafka", f"{HOST}:{port}", "--auto-create-topics"]


def start_testing(work: Work) -> Measure:
    """From the start of a Python to the answers of ``logdb.testing.broker()`` in it: ms.  The second of two."""
    _testing()
    work.start()
    return Measure(_testing() * 1e3, "ms")


def _testing() -> float:
    began, pipe = time.perf_counter(), subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _TESTING], stdin=pipe, stdout=pipe, text=True, env=compiling()) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not clients.answers(address):
            raise Wrong(f"{address!r} does not answer")
        seconds = time.perf_counter() - began
        process.communicate("\n")
    return seconds


OPERATIONS = {**operations(prepare), "start_testing": start_testing}
