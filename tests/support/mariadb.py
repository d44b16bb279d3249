"""A MariaDB of our own, for a test: on a free port of the loopback, with a binary log of rows, gone afterwards."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port

_SETTINGS = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "innodb-flush-log-at-trx-commit": "0",
    "sync-binlog": "0",
    "skip-name-resolve": "1",
    "aria-pagecache-buffer-size": "1M",
    "key-buffer-size": "1M",
}


def _needed() -> str | None:
    """What is missing, if anything is."""
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        return "MariaDB is not installed: apt-get install mariadb-server"
    if os.getuid() == 0 and subprocess.run(["id", "mysql"], capture_output=True).returncode != 0:
        return "root cannot run MariaDB, and there is no user mysql"
    return None


class MariaDb:
    """A server with its data in a directory; it can be killed and started again at the same port.  Skips the test where there is none.

    Attributes:
        port: Of the loopback; the user is ``root``, without password.
    """

    def __init__(self, directory: Path) -> None:
        if (missing := _needed()) is not None:
            pytest.skip(missing)
        self._directory, self._data = directory, directory / "data"
        self._data.mkdir(parents=True)
        if os.getuid() == 0:
            for path in (directory, self._data):
                shutil.chown(path, "mysql", "mysql")
        user = ["--user=mysql"] if os.getuid() == 0 else []
        install = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={self._data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *user,
        ]
        subprocess.run(install, check=True, capture_output=True)
        self.port = free_port()
        socket = directory / "socket"
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        where = [f"--datadir={self._data}", f"--port={self.port}", f"--socket={socket}", f"--pid-file={directory / 'pid'}"]
        self._command = [shutil.which("mariadbd") or "", "--no-defaults", *where, *settings, *user]
        self._process: subprocess.Popen[Any] | None = None

    def connect(self, database: str | None = None, **more: Any) -> Any:
        """A connection with autocommit."""
        import pymysql

        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, **more)

    def start(self) -> None:
        import pymysql

        with open(self._directory / "server.log", "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        while True:
            if self._process.poll() is not None:
                raise AssertionError((self._directory / "server.log").read_text())
            with contextlib.suppress(pymysql.OperationalError):
                self.connect().close()
                return

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)
