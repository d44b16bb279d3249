"""pytest fixtures, which pytest finds by an entry point.  Each is new for every test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logdb.client.database import Database
    from logdb.testing import Broker, Clock, HttpServer

# Imported by each run of pytest where logdb is installed, so what a fixture needs is imported by its first use.


@pytest.fixture
def logdb_clock() -> "Clock":
    """The clock of ``logdb_database`` in the same test; it stands still until the test moves it."""
    from logdb.testing import Clock

    return Clock()


@pytest.fixture
def logdb_database(request: pytest.FixtureRequest) -> "Iterator[Database]":
    """An empty database in a temporary directory; with the clock of ``logdb_clock`` if the test asks for that."""
    from logdb.testing import database

    clock = request.getfixturevalue("logdb_clock") if "logdb_clock" in request.fixturenames else None
    with database(clock=clock) as opened:
        yield opened


@pytest.fixture
def logdb_broker() -> "Iterator[Broker]":
    """A broker for Kafka's clients; it creates topics on demand."""
    from logdb.testing import broker

    with broker() as running:
        yield running


@pytest.fixture
def logdb_server() -> "Iterator[HttpServer]":
    """A server over HTTP, for ``logdb.open(logdb_server.url)``."""
    from logdb.testing import server

    with server() as running:
        yield running
