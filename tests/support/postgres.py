"""A PostgreSQL of our own, for a test: on a free port of the loopback, with logical decoding, gone afterwards."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port

_DEBIAN = Path("/usr/lib/postgresql")
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "4",
    "fsync": "off",
    "shared_buffers": "16MB",
}


def _program(name: str) -> str | None:
    """Where a program of PostgreSQL is; Debian keeps them apart, by version."""
    newest = sorted(_DEBIAN.glob(f"*/bin/{name}"), key=lambda found: int(found.parts[-3]) if found.parts[-3].isdecimal() else 0)
    return shutil.which(name) or (str(newest[-1]) if newest else None)


def _as_its_user() -> list[str]:
    """What goes before a command: PostgreSQL refuses to be run by root, and Debian's package has made a user for it."""
    if os.getuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


def _needed(initdb: str | None, postgres: str | None, *, wal2json: bool) -> str | None:
    """What is missing, if anything is."""
    if initdb is None or postgres is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if wal2json and not list(Path(postgres).resolve().parents[1].glob("lib/wal2json.so")):
        return "wal2json is not installed: apt-get install postgresql-15-wal2json"
    if os.getuid() == 0 and subprocess.run(["id", "postgres"], capture_output=True).returncode != 0:
        return "root cannot run PostgreSQL, and there is no user postgres"
    return None


class Postgres:
    """A server with its data in a directory; it can be killed and started again at the same port.  Skips the test where there is none.

    Attributes:
        port: Of the loopback.
        where: How libpq finds it.
    """

    def __init__(self, directory: Path, *, wal2json: bool = False) -> None:
        initdb, server = _program("initdb"), _program("postgres")
        if (missing := _needed(initdb, server, wal2json=wal2json)) is not None:
            pytest.skip(missing)
        self._directory, self._server = directory, server
        data = directory / "data"
        data.mkdir(parents=True)
        self._environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        if os.getuid() == 0:
            for path in (data, *data.parents):
                if path.stat().st_uid == 0 and path.is_relative_to(directory):
                    shutil.chown(path, "postgres", "postgres")
        command = [*_as_its_user(), initdb, "--pgdata", data, "--username=test", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run(command, env=self._environment, cwd=data, check=True, capture_output=True)
        self.port = free_port()
        self.where = f"host=127.0.0.1 port={self.port} user=test dbname=postgres"
        self._process: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        data, log = self._directory / "data", self._directory / "server.log"
        settings = [part for name, value in (_SETTINGS | {"port": str(self.port)}).items() for part in ("-c", f"{name}={value}")]
        command = [*_as_its_user(), self._server, "-D", data, *settings]
        with open(log, "ab") as written:
            self._process = subprocess.Popen(command, env=self._environment, cwd=data, stderr=written, stdout=written)
        _ready(self._process, self.where, log)

    def kill(self) -> None:
        """As a power cut that spares the disk: all of its processes end, and its shared memory is gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)  # its own children die with it; SIGKILL would leave them
        self._process.wait(60)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # connections of others do not hold it up
            self._process.wait(60)


@contextlib.contextmanager
def postgres(directory: Path, *, wal2json: bool = False) -> Iterator[str]:
    """Run a server with its data in ``directory``; yields how libpq finds it.  Skips the test where there is none to be run.

    Args:
        wal2json: Its plugin for logical decoding is needed, too.
    """
    server = Postgres(directory, wal2json=wal2json)
    try:
        server.start()
        yield server.where
    finally:
        server.stop()


@contextlib.contextmanager
def open_to_its_user(*, wal2json: bool = False) -> Iterator[str]:
    """As ``postgres``, in a directory of its own: pytest's are closed to others, PostgreSQL's user among them."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o711)
        with postgres(Path(directory) / "postgres", wal2json=wal2json) as where:
            yield where


def _ready(process: "subprocess.Popen[Any]", where: str, log: Path) -> str:
    """Wait until it can be spoken to."""
    import psycopg

    while True:
        if process.poll() is not None:
            raise AssertionError(log.read_text())
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(where, connect_timeout=1):
            return where
