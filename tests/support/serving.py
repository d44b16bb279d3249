"""A database and the server in front of it, for tests."""

import base64
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import logdb
from logdb.serving.server import Server
from support import three_brokers


class Served(NamedTuple):
    """What a test has in hand: the database as the server's process holds it, where it is served, and whom to be and to trust there."""

    database: logdb.Database
    url: str
    server: Server
    context: ssl.SSLContext | None = None
    authorization: str | None = None

    def by(self, user: str, password: str) -> "Served":
        """The same, for somebody with a password."""
        return self._replace(authorization="Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())

    def call(
        self, path: str, body: Any = None, *, method: str | None = None, content_type: str = "application/json", headers: Any = None
    ) -> "tuple[int, Any]":
        """Status and body (parsed where it is JSON) of one plain request; ``body``: bytes as they are, else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": content_type} | (headers or {}), method=method)
        if self.authorization is not None:
            request.add_header("Authorization", self.authorization)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.context) as answer:
                return answer.status, _parsed(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parsed(error)


def _parsed(answer: Any) -> Any:
    body = answer.read()
    return json.loads(body) if body and "json" in answer.headers.get("Content-Type", "") else body


@contextlib.contextmanager
def served(path: Path, *, opened: "dict[str, Any] | None" = None, **options: Any) -> Iterator[Served]:
    """Serve a directory in this process, on a free port of the loopback; ``opened``: how to open it."""
    if three_brokers.Shared.chosen:
        with three_brokers.opened(**(opened or {}), **options) as database:
            yield Served(database, three_brokers.Shared.cluster().urls[0], None)
        return
    with logdb.open(path, **(opened or {})) as database, logdb.serve(database, http="127.0.0.1:0", **options) as server:
        yield Served(database, server.addresses[0], server)
