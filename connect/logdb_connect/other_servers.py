"""Servers beside the worker's own: a connector opens them by properties of Kafka's clients.

Wrong properties are a ``ConfigError`` of the property ``setting`` that names the servers.
"""

from collections.abc import Mapping

import click

import logdb
from logdb.cli.terminal import client_security
from logdb.cli.terminal.servers import Servers
from logdb_connect.client import shown
from logdb_connect.errors import ConfigError

_CONNECT_MS = 3_000


def open_servers(place: str, properties: Mapping[str, str], setting: str) -> logdb.Database:
    """Open a database of logdb: URLs or ``host:port``.

    Raises:
        ConfigError: A property is wrong.
        LogdbError: It does not answer, or refuses.
    """
    pairs = tuple(f"{key}={value}" for key, value in properties.items())
    try:
        return Servers(client_pairs=pairs, asks=False, connect_timeout=_CONNECT_MS).open(place)
    except click.UsageError as error:
        raise ConfigError(setting, f"Invalid value {shown(place)} for configuration {setting}: {error.message}") from error


def security_of(properties: Mapping[str, str], setting: str) -> client_security.ClientSecurity:
    """Credentials and certificates.

    Raises:
        ConfigError: A property is wrong.
    """
    try:
        return client_security.of_properties(dict(properties))
    except click.UsageError as error:
        raise ConfigError(setting, f"{setting}: {error.message}") from error
