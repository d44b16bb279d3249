"""A PostgreSQL for the time of one operation, with logical decoding; Debian's package or another one on PATH."""

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benches.peers._server import HOST, free_port, program, running
from benches.workload import Work, Wrong

_DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: int(found.parent.name))
_CHANGED_AT_ONCE, _READY_S = 10_000, 60
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "4",
    "synchronous_commit": "off",
    "max_wal_size": "4GB",
}


class Postgres(NamedTuple):
    """A server without passwords; ``where``: how libpq finds it."""

    port: int
    where: str
    user: str = "test"

    def is_ready(self) -> bool:
        """It listens before it answers."""
        import psycopg2

        with contextlib.suppress(psycopg2.OperationalError):
            return bool(self.ask("SELECT 1"))
        return False

    def ask(self, statement: str) -> Any:
        """Run a statement; the first field of its first row."""
        import psycopg2

        with contextlib.closing(psycopg2.connect(self.where)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None


def _found(name: str) -> str | None:
    return program(name, *map(str, reversed(_DEBIAN)))


def why_missing() -> str | None:
    if not _found("initdb") or not _found("postgres"):
        return "no program initdb or postgres"
    if os.getuid() == 0 and subprocess.run(["id", "postgres"], capture_output=True, check=False).returncode:
        return "root cannot run PostgreSQL, and there is no user postgres"
    return None


@contextlib.contextmanager
def postgres(directory: Path) -> Iterator[Postgres]:
    """Start one in an empty directory below ``directory``."""
    home, port = directory / "postgres", free_port()
    data = home / "data"
    data.mkdir(parents=True)
    before: list[str] = []
    if os.getuid() == 0:  # it refuses to be run by root
        before = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        for path in (home, data):
            shutil.chown(path, "postgres", "postgres")
    initdb = [*before, str(_found("initdb")), "--pgdata", str(data), "--username=test", "--auth=trust", "--no-sync", "--encoding=UTF8"]
    subprocess.run(initdb, cwd=data, check=True, capture_output=True)
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = [*before, str(_found("postgres")), "-D", str(data), "-p", str(port), *settings]
    server = Postgres(port, f"host={HOST} port={port} user=test dbname=postgres")
    with running(command, port, directory / "postgres.log"):
        until_s = time.monotonic() + _READY_S
        while not server.is_ready():
            if time.monotonic() > until_s:
                raise Wrong(f"PostgreSQL is not ready within {_READY_S} s")
            time.sleep(0.05)
        yield server


def fill_table(server: Postgres, work: Work) -> None:
    """A table ``rows`` of ``count`` rows, with a text of the size of a value."""
    server.ask("CREATE TABLE rows (id int PRIMARY KEY, at bigint NOT NULL, value text NOT NULL)")
    server.ask(f"INSERT INTO rows SELECT n, 0, repeat('x', {work.value_size}) FROM generate_series(1, {work.count}) n")
    server.ask("CHECKPOINT")


@contextlib.contextmanager
def changing(server: Postgres) -> Iterator[None]:
    """Change every row, once, in transactions of a few thousand, while the block runs."""
    count, errors = server.ask("SELECT count(*) FROM rows"), []

    def change() -> None:
        try:
            for first in range(1, count + 1, _CHANGED_AT_ONCE):
                server.ask(f"UPDATE rows SET at = {first} WHERE id >= {first} AND id < {first + _CHANGED_AT_ONCE}")
        except Exception as error:  # noqa: BLE001 -- told below
            errors.append(error)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    yield
    thread.join()
    if errors:
        raise errors[0]
