"""A database behind a Kafka door, in this process."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import logdb
from logdb.client.serving import make_server
from support import three_brokers

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    import kafka as kafka_python

__all__ = ["Served", "kafka_door", "kafka_python"]


class Served(NamedTuple):
    """The database, and where clients find it; ``nodes``: the addresses of the brokers by their ids."""

    db: logdb.Database
    address: str
    nodes: dict[int, str]


@contextlib.contextmanager
def kafka_door(path: Path, **options: Any) -> Iterator[Served]:
    if three_brokers.Shared.chosen:
        with three_brokers.nodes(path, {}, options) as cluster:
            yield Served(cluster.database, ",".join(cluster.kafka), dict(enumerate(cluster.kafka, 1)))
        return
    with logdb.open(path) as db, make_server(db._session, {"kafka": "127.0.0.1:0"}, **options).start() as server:
        yield Served(db, server.addresses[0], {0: server.addresses[0]})
