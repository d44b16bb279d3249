"""The least that an acknowledged record costs a server on asyncio: a broker that only checks a CRC and writes (``kafka/least.py``)."""

import functools
import sys
from typing import TYPE_CHECKING

from benches.peers import kafka_door
from benches.peers._server import HOST, free_port, running
from benches.peers.kafka import clients
from benches.workload import Measure, Work

if TYPE_CHECKING:
    from benches.peers.kafka.clients import ClientOperation

missing = kafka_door.missing


def _write(operation: "ClientOperation", work: Work) -> Measure:
    port = free_port()
    command = [sys.executable, "-m", "benches.peers.kafka.least", str(port), str(work.directory / "batches")]
    with running(command, port, work.directory / "output-of-least"):
        return operation(work, f"{HOST}:{port}")


OPERATIONS = {one.__name__: functools.partial(_write, one) for one in (clients.perf_produce, clients.perf_produce_tuned, clients.send_each)}
