"""One database in two places: in a directory, and the same behind a URL."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logdb
from support import three_brokers


@contextlib.contextmanager
def opened(place: str, path: Path, **options: Any) -> Iterator[logdb.Database]:
    """The database at ``path``, opened there (``"path"``), or served by this process and opened over HTTP (``"url"``).

    Or the database of three nodes (``"cluster"``).
    """
    if place == "cluster":
        with three_brokers.opened(**options) as database:
            yield database
        return
    with logdb.open(path, **options) as database:
        if place == "path":
            yield database
            return
        with logdb.serve(database, http="127.0.0.1:0") as server, logdb.open(server.addresses[0], clock=options.get("clock")) as remote:
            yield remote


def database(path: Path) -> contextlib.AbstractContextManager[logdb.Database]:
    """The database at ``path``, opened there; with ``--brokers 3`` that of three nodes."""
    return opened("cluster" if three_brokers.Shared.chosen else "path", path)
