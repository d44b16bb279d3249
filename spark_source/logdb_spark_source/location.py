"""The location of the database in a plan: a directory, or the URLs of servers.

A process opens it once, and again after a fork or if another directory has the name.  It has no secret: driver and executors take
credentials from LOGDB_TOKEN, or LOGDB_USER and LOGDB_PASSWORD, in their environment.

Threading: any thread.
"""

import os
import threading
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import logdb
from logdb.threads import renewed

_CONNECT_TIMEOUT_MS = 5_000  # of the driver: a user waits for it
_PATIENT_CONNECT_TIMEOUT_MS = 30_000  # a restart of the server must not fail a task
_Identity = tuple[int, int, int] | None


class _Opened(NamedTuple):
    """A handle, the process that opened it, and the identity of the catalogue's file at that time."""

    database: logdb.Database
    pid: int
    identity: _Identity


_opened: "dict[Location, _Opened]" = {}
_lock = renewed(threading.Lock())


@dataclass(frozen=True)
class Location:
    """A directory (``path``, absolute), or servers (``urls``, of one cluster); exactly one of them."""

    path: str | None = None
    urls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.path is None) == (not self.urls):
            raise ValueError(f"path={self.path!r} and urls={self.urls!r}: give exactly one of them")
        if self.path is not None and not os.path.isabs(self.path):
            raise ValueError(f"path={self.path!r}: it has to be absolute")
        if any(part.username is not None or part.password is not None for part in map(urlsplit, self.urls)):
            raise ValueError("the URL must not have a user or a password, because plans and logs show it")

    def __str__(self) -> str:
        return self.path if self.path is not None else ",".join(self.urls)

    def open(self, *, patient: bool = False) -> logdb.Database:
        """The database, for reading; one handle per location and process, which callers do not close.

        Args:
            patient: Wait for a server that starts again.

        Raises:
            NotADatabase, ServerUnavailable, AuthenticationFailed: as ``logdb.open``.
        """
        with _lock:
            known, pid, identity = _opened.get(self), os.getpid(), self._identity()
            if known is not None and (known.pid, known.identity) == (pid, identity):
                return known.database
            if known is not None and known.pid == pid:
                known.database.close()
            database = self.open_new_handle(patient=patient)
            _opened[self] = _Opened(database, pid, identity)
            return database

    def open_new_handle(self, *, patient: bool = False) -> logdb.Database:
        """The database, for reading, by a handle that the caller closes."""
        if self.path is not None:
            return logdb.open(self.path, mode="r")
        return logdb.open(self.urls, connect_timeout_ms=_PATIENT_CONNECT_TIMEOUT_MS if patient else _CONNECT_TIMEOUT_MS)

    def _identity(self) -> _Identity:
        """The identity of a directory, which another one of that name lacks; None if it does not exist yet."""
        if self.path is None:
            return None
        try:
            found = os.stat(os.path.join(self.path, "catalogue"))
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_ctime_ns
