"""Where the database is, in a form that travels in a plan: a directory, or the URLs of servers.

Knows how a process opens it, once, and again after a fork or where another directory has the name by now.  Does not know
what is read.  Holds no secret: who to be at a server, LOGDB_TOKEN, or LOGDB_USER and LOGDB_PASSWORD, say in each process,
driver and executors.

Threading: any number of threads.
"""

import os
import threading
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import logdb
from logdb.threads import renewed

_CONNECT_TIMEOUT_MS = 30_000  # a server that starts again fails no task
_Identity = tuple[int, int, int] | None


class _Opened(NamedTuple):
    """A handle, by which process it was opened, and what the catalogue's file was then."""

    database: logdb.Database
    pid: int
    identity: _Identity


_opened: "dict[Location, _Opened]" = {}
_lock = renewed(threading.Lock())


@dataclass(frozen=True)
class Location:
    """A directory (``path``, absolute), or servers (``urls``, of one cluster); exactly one of them is given."""

    path: str | None = None
    urls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.path is None) == (not self.urls):
            raise ValueError(f"path={self.path!r} and urls={self.urls!r}: exactly one of them is to be given")
        if self.path is not None and not os.path.isabs(self.path):
            raise ValueError(f"path={self.path!r}: it is to be absolute")
        if any(part.username is not None or part.password is not None for part in map(urlsplit, self.urls)):
            raise ValueError("a URL here holds no user and no password: it is written into plans and logs")

    def __str__(self) -> str:
        return self.path if self.path is not None else ",".join(self.urls)

    def open(self) -> logdb.Database:
        """The database, for reading; one handle for a place in each process, which nobody closes.

        Raises:
            NotADatabase, ServerUnavailable, AuthenticationFailed: as ``logdb.open``.
        """
        with _lock:
            known, pid, identity = _opened.get(self), os.getpid(), self._identity()
            if known is not None and (known.pid, known.identity) == (pid, identity):
                return known.database
            if known is not None and known.pid == pid:
                known.database.close()
            database = self.open_anew()
            _opened[self] = _Opened(database, pid, identity)
            return database

    def open_anew(self) -> logdb.Database:
        """The database, for reading, by a handle that is the caller's to close."""
        if self.path is not None:
            return logdb.open(self.path, mode="r")
        return logdb.open(self.urls, connect_timeout_ms=_CONNECT_TIMEOUT_MS)

    def _identity(self) -> _Identity:
        """What tells a directory from another one that has its name later; None where there is nothing yet."""
        if self.path is None:
            return None
        try:
            found = os.stat(os.path.join(self.path, "catalogue"))
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_ctime_ns
