"""The limit of Kafka's clients: a broker that acknowledges without storing, and sends without reading (``kafka/nothing.py``)."""

import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benches.peers import kafka_door
from benches.peers._server import HOST, free_port, running
from benches.peers.kafka import clients
from benches.peers.kafka.platforms import serving
from benches.workload import Measure, Work

if TYPE_CHECKING:
    from benches.peers.kafka.clients import ClientOperation

missing = kafka_door.missing


@contextlib.contextmanager
def _nothing(work: Work, segments: Sequence[Path] = ()) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "benches.peers.kafka.nothing", str(port), *map(str, segments)]
    with running(command, port, work.directory / "output-of-nothing"):
        yield f"{HOST}:{port}"


def _write(operation: "ClientOperation", work: Work) -> Measure:
    with _nothing(work) as address:
        return operation(work, address)


def _read(operation: "ClientOperation", work: Work) -> Measure:
    """The bytes are those that our side has on its disk, after the same client has sent them."""
    with serving(kafka_door.prepare, work) as (address, _):
        clients.fill(work, address)
    segments = sorted((work.directory / "broker" / "db").rglob(f"{clients.TOPIC}-0/*.log"))
    with _nothing(work, segments) as address:
        return operation(work, address)


_FOLLOWING = ("follow", "follow_latency")  # nothing is there to follow
OPERATIONS = {
    **{one.__name__: functools.partial(_write, one) for one in clients.WRITES if one.__name__ not in _FOLLOWING},
    **{one.__name__: functools.partial(_read, one) for one in clients.READS},
}
