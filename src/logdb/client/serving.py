"""``logdb.serve``: a server on a database that this process holds."""

from collections.abc import Iterable, Mapping
from typing import Any

from logdb.access.partition_limits import PartitionLimits
from logdb.client.database import Database
from logdb.client.local import LocalDatabase
from logdb.errors import LocalOnly, missing_package
from logdb.mistakes import must_be
from logdb.model import Duration, check_config, duration_ms, plain_options
from logdb.requests.principals import Principal

try:
    from logdb.access.access_control import AccessControl
    from logdb.broker.broker import Broker
    from logdb.serving.server import DRAIN_MS, Server
except ModuleNotFoundError as error:
    raise missing_package("a server", error.name or "") from error

HTTP = "127.0.0.1:8080"
"""Where a server listens that is not told."""


def make_server(
    broker: Broker,
    doors: Mapping[str, str],
    *,
    topic_config: Mapping[str, object] | None = None,
    authentication: bool = False,
    super_users: Iterable[str] = (),
    cluster_token: str | None = None,
    **options: Any,
) -> Server:
    """A server that is not open yet; see ``serve`` and ``AccessControl``."""
    required = authentication or options.get("tls_client_ca") is not None
    limits = PartitionLimits(**{name: options.pop(name) for name in PartitionLimits._fields if name in options})
    access = AccessControl(
        broker,
        super_users=map(Principal.parse, super_users),
        authentication=required,
        cluster_token=cluster_token,
        partition_limits=limits,
    )
    broker.serve_topics(check_config(topic_config or {}))
    return Server(access, doors, **options)


def serve(
    database: Database,
    *,
    http: str | None = None,
    kafka: str | None = None,
    topic_config: Mapping[str, object] | None = None,
    insecure: bool = False,
    drain_ms: Duration = DRAIN_MS,
    authentication: bool = False,
    super_users: Iterable[str] = (),
    **options: Any,
) -> Server:
    """Serve a database that this process holds, until the server, or the database, is closed.

    Args:
        database: The result of ``logdb.open`` for a directory, to write or to read.
        http: Address of the HTTP listener, ``host:port``; port 0: any free port.  The default is ``127.0.0.1:8080`` if ``kafka`` is
            left out, too.
        kafka: Address of the listener for Kafka's clients.
        topic_config: Default configs of topics that are created through the server.  If ``retention.ms`` is left out, topics keep their
            records for seven days if Kafka's APIs or ``POST /logdb/v1/calls/create_topic`` create them, and forever if
            ``logdb.open(url)`` does.
        insecure: Serve addresses other than loopback without TLS and authentication.
        drain_ms: How long a close waits for running requests.
        authentication: Clients need credentials, also before the first user, token or ACL exists; ``tls_client_ca`` implies it.
        super_users: Principals that may do everything, such as ``"User:admin"``.
        options: See ``docs/reference/server-options.md``, such as ``tls_cert``, ``tls_key`` and ``memory_bytes_max``.

    Returns:
        The server; a context manager that closes itself.  ``addresses``: where it listens.

    Raises:
        LocalOnly: The database is behind a URL: its server serves it.
        OSError: Listening failed, as when the address is in use.
        InsecureAddress: The address is public: it needs TLS and authentication.
        ValueError: The address has another form, or its host name is unknown.
        InvalidCertificate: A certificate or a key is unusable.
        InvalidConfig: In ``topic_config``.
        ModuleNotFoundError: A package that a listener needs is missing.
    """
    if not isinstance(database, LocalDatabase):
        if isinstance(database, Database):
            raise LocalOnly("serving", database.path)
        raise TypeError(must_be("database", database, "a database in a directory, as logdb.open returns it"))
    server = make_server(
        database._session,
        {name: address for name, address in (("http", http), ("kafka", kafka)) if address is not None} or {"http": HTTP},
        topic_config=topic_config,
        authentication=authentication,
        super_users=super_users,
        insecure=insecure,
        drain_ms=duration_ms(drain_ms),
        **plain_options(options),
    )
    server.start()
    database.on_close(server.close)
    return server
