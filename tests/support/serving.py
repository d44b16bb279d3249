"""A database and the server in front of it, for tests."""

import base64
import contextlib
import itertools
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import logdb
from logdb.serving.server import Server
from support import three_brokers


class Served(NamedTuple):
    """What a test has in hand: the database as the server's process holds it, where it is served, and whom to be and to trust there.

    ``nodes``: where requests go in turn, as by a load balancer at ``url``; empty: to ``url``.  ``instances``: paths of the consumer
    instances that were made, and by whom.
    """

    database: logdb.Database
    url: str
    server: Server
    context: ssl.SSLContext | None = None
    authorization: str | None = None
    nodes: Iterator[str] | tuple[()] = ()
    instances: tuple[()] | list[tuple[str, str | None]] = ()

    def by(self, user: str, password: str) -> "Served":
        """The same, for a user with a password."""
        return self._replace(authorization="Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())

    def call(
        self, path: str, body: Any = None, *, method: str | None = None, content_type: str = "application/json", headers: Any = None
    ) -> "tuple[int, Any]":
        """Status and body (parsed where it is JSON) of one plain request; ``body``: bytes as they are, else as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Host": urlsplit(self.url).netloc} | (headers or {})
        request = urllib.request.Request(self.node_for(path) + path, data, headers, method=method)
        if self.authorization is not None:
            request.add_header("Authorization", self.authorization)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.context) as answer:
                return answer.status, self.noted(_parsed(answer))
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parsed(error)

    def node_for(self, path: str) -> str:
        """The URL of the node that a request goes to; a consumer instance is the one's that has made it, as is a position of changes."""
        return self.url if path.startswith(("/consumers/", "/logdb/v1/watch")) else next(iter(self.nodes), self.url)

    def noted(self, answer: Any) -> Any:
        """The answer; the consumer instance that it may tell of is noted, where others will use the server."""
        if isinstance(self.instances, list) and isinstance(answer, dict) and "base_uri" in answer:
            self.instances.append((urlsplit(answer["base_uri"]).path, self.authorization))
        return answer


def _parsed(answer: Any) -> Any:
    body = answer.read()
    return json.loads(body) if body and "json" in answer.headers.get("Content-Type", "") else body


class Where:
    """``host``: of the servers of this process; with ``--spark-machines`` other machines reach it."""

    host = "127.0.0.1"


@contextlib.contextmanager
def served(path: Path, *, opened: "dict[str, Any] | None" = None, **options: Any) -> Iterator[Served]:
    """Serve a directory in this process, on a free port of the loopback; ``opened``: how to open it.

    Or with ``--brokers 3`` the nodes of a cluster, by ``three_brokers.nodes``.
    """
    if three_brokers.Shared.chosen:
        with three_brokers.nodes(path, opened or {}, options) as cluster:
            turns = itertools.cycle(cluster.urls)
            server = Served(cluster.database, next(turns), three_brokers.Inside(), nodes=turns, instances=[])
            try:
                yield server
            finally:
                for instance, authorization in server.instances:
                    server._replace(authorization=authorization).call(instance, method="DELETE")
        return
    address = {"http": f"{Where.host}:0", "insecure": Where.host != "127.0.0.1"}
    with logdb.open(path, **(opened or {})) as database, logdb.serve(database, **address, **options) as server:
        yield Served(database, server.addresses[0], server)
