"""One PostgreSQL and one MariaDB for the session; a database of its own for each test."""

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from support.mariadb import MariaDb
from support.postgres import Postgres


def _run(kind: Any) -> Iterator[Any]:
    directory = Path(tempfile.mkdtemp())  # pytest's are closed to other users
    directory.chmod(0o711)
    server = None
    try:
        server = kind(directory / "server")
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    yield from _run(partial(Postgres, wal2json=True))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    yield from _run(MariaDb)


class Shop:
    """A database for one test.

    Attributes:
        kind: postgresql or mariadb.
        url: As SQLAlchemy writes it.
    """

    def __init__(self, kind: str, server: Any) -> None:
        self.kind, self.server, self.name = kind, server, f"shop_{uuid.uuid4().hex[:8]}"
        self.user = "test" if kind == "postgresql" else "root"
        driver = "postgresql+psycopg2" if kind == "postgresql" else "mariadb+pymysql"
        self.base = f"{driver}://{self.user}@127.0.0.1:{server.port}/"
        self._admin("CREATE DATABASE " + self.name)
        self.url = self.base + self.name
        self.engine = sqlalchemy.create_engine(self.url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    def ask(self, statement: str, **values: Any) -> list[Any]:
        """Run a statement in a transaction of its own; the rows that it gives."""
        with self.engine.connect() as connection:
            result = connection.execute(sqlalchemy.text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def transaction(self) -> sqlalchemy.Connection:
        """A connection whose transaction the test ends."""
        level = "READ COMMITTED"
        return self.engine.connect().execution_options(isolation_level=level)

    def drop(self) -> None:
        self.engine.dispose()
        if self.kind == "postgresql":
            admin = sqlalchemy.create_engine(self.base + "postgres", isolation_level="AUTOCOMMIT")
            with admin.connect() as connection:
                drop = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
                connection.exec_driver_sql(drop)
                while connection.exec_driver_sql("SELECT 1 FROM pg_replication_slots WHERE active").all():
                    pass
                connection.exec_driver_sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            admin.dispose()
            self._admin(f"DROP DATABASE {self.name} WITH (FORCE)")
        else:
            self._admin(f"DROP DATABASE {self.name}")

    def _admin(self, statement: str) -> None:
        engine = sqlalchemy.create_engine(self.base + ("postgres" if self.kind == "postgresql" else ""), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()


def _shop(kind: str, request: pytest.FixtureRequest) -> Iterator[Shop]:
    shop = Shop(kind, request.getfixturevalue({"postgresql": "postgres_server", "mariadb": "mariadb_server"}[kind]))
    yield shop
    shop.drop()


@pytest.fixture(params=["postgresql", "mariadb"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    yield from _shop(request.param, request)


@pytest.fixture
def postgres_shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    yield from _shop("postgresql", request)


@pytest.fixture
def mariadb_shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    yield from _shop("mariadb", request)
