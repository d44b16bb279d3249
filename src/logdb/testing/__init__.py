"""A broker for the tests of applications: Kafka's clients talk to it as they do to a Kafka, and nothing of it is left.

    with logdb.testing.broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

``logdb.testing.fixtures`` has it as a pytest fixture.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from logdb.client.database import Database
from logdb.client.opening import open_database
from logdb.client.serving import serve


class Broker(NamedTuple):
    """A broker that runs; ``database`` is what it serves, for a test to look into."""

    bootstrap_servers: str
    database: Database


@contextlib.contextmanager
def broker(**options: Any) -> Iterator[Broker]:
    """Run a broker in this process, on a free port of the loopback and in a temporary directory, until the block ends.

    Metadata creates topics that it names, as Kafka's own default has it.

    Args:
        options: See ``logdb.serve``.
    """
    with tempfile.TemporaryDirectory(prefix="logdb-broker-") as directory, open_database(directory) as database:
        settings: dict[str, Any] = {"kafka": "127.0.0.1:0", "auto_create_topics": True, "drain_ms": 0}
        with serve(database, **settings | options) as server:
            yield Broker(server.addresses[-1], database)
