"""Databases, servers and a clock for the tests of applications.  They live in temporary directories, and are gone after the test.

    with logdb.testing.database() as db:
        db.create_topic("orders")

    with logdb.testing.broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    with logdb.testing.server() as server:
        db = logdb.open(server.url)

pytest finds the fixtures ``logdb_database``, ``logdb_broker``, ``logdb_server`` and ``logdb_clock`` by itself.  For other languages:
``logdb serve --temporary --kafka 127.0.0.1:0 --json``.
"""

import contextlib
import datetime
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from logdb.client import opening
from logdb.client.database import Database
from logdb.io import IO
from logdb.model import Duration, Timestamp, duration_ms, timestamp_ms_of

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Clock(IO):
    """A clock that stands still until a test moves it.

        clock = logdb.testing.Clock(datetime(2026, 1, 1, tzinfo=UTC))
        with logdb.testing.database(clock=clock) as db:
            ...
            clock.advance(timedelta(days=8))
            db.enforce_retention()

    Records get its time.  Retention, compaction and the timeouts of groups and transactions obey it.
    """

    def __init__(self, now: Timestamp | None = None) -> None:
        """``now``: a ``datetime`` with a time zone, or milliseconds since 1970; None: the machine's time."""
        at = timestamp_ms_of(now)
        self._now_ms = super().clock_ms() if at is None else at
        self._advanced_ms = 0

    @property
    def now(self) -> datetime.datetime:
        """Its time, in UTC."""
        return _EPOCH + datetime.timedelta(milliseconds=self._now_ms)

    def advance(self, by: Duration) -> None:
        """Move it forward.

        Args:
            by: A ``timedelta``, or milliseconds.

        Raises:
            ValueError: ``by`` is negative.
        """
        by_ms = duration_ms(by)
        if by_ms < 0:
            raise ValueError(f"by={by}: must be 0 or more")
        self._now_ms += by_ms
        self._advanced_ms += by_ms

    def clock_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._advanced_ms


class Broker(NamedTuple):
    """A broker that runs; ``database`` is what it serves, for a test to look into."""

    bootstrap_servers: str
    database: Database


class HttpServer(NamedTuple):
    """A server that runs: ``logdb.open(url)`` opens it; ``database`` is what it serves, for a test to look into."""

    url: str
    database: Database


@contextlib.contextmanager
def database(*, clock: Clock | None = None, **options: Any) -> Iterator[Database]:
    """Open a new database in a temporary directory, which is removed at the end of the block.

    Args:
        clock: Its clock; None: the machine's.
        options: See ``logdb.open``.
    """
    settings: dict[str, Any] = {} if clock is None else {"io": clock, "clock": clock.clock_ms}
    with tempfile.TemporaryDirectory(prefix="logdb-test-") as directory, opening.open(directory, **settings | options) as opened:
        yield opened


@contextlib.contextmanager
def broker(**options: Any) -> Iterator[Broker]:
    """Run a broker in this process, on a free port of the loopback and in a temporary directory, until the block ends.

    Metadata creates topics that it names, as Kafka's own default has it.

    Args:
        options: See ``logdb.serve``.
    """
    from logdb.client.serving import serve  # needs the extra http, unlike a database

    settings: dict[str, Any] = {"kafka": "127.0.0.1:0", "auto_create_topics": True, "drain_ms": 0}
    with database() as served, serve(served, **settings | options) as running:
        yield Broker(running.addresses[-1], served)


@contextlib.contextmanager
def server(**options: Any) -> Iterator[HttpServer]:
    """Run a server over HTTP in this process, on a free port of the loopback and in a temporary directory, until the block ends.

    Args:
        options: See ``logdb.serve``.
    """
    from logdb.client.serving import serve  # as above

    settings: dict[str, Any] = {"http": "127.0.0.1:0", "drain_ms": 0}
    with database() as served, serve(served, **settings | options) as running:
        yield HttpServer(running.addresses[0], served)
