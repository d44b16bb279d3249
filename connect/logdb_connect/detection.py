"""What answers at ``bootstrap.servers``: logdb, by HTTP on each of its listeners, or a Kafka, which knows no HTTP.

The first server that says what it is decides.  Nothing secret is sent: a request of HTTP without credentials, then Kafka's ApiVersions,
which Kafka answers before it asks who calls.
"""

import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from logdb.errors import ServerUnavailable
from logdb_connect.client import shown
from logdb_connect.errors import ConfigError

_TIMEOUT_S, _PATIENCE_S, _PAUSE_S = 5.0, 3.0, 0.2
_REQUEST = b"GET / HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
_API_VERSIONS, _CORRELATION_ID = 18, 0x6C6F6764
_ANSWER_MAX = 1 << 20


def kind_at(place: str, properties: Mapping[str, str], patience_s: float = _PATIENCE_S) -> str:
    """``logdb`` or ``kafka``.

    Args:
        patience_s: How long to ask again where nothing answers.

    Raises:
        ConfigError: Something answers that is neither, or wants a certificate first.
        ServerUnavailable: Nothing answers.
    """
    if place.startswith((".", "/")) or "://" in place or os.path.isdir(place):
        return "logdb"
    addresses = [address for address in shown(place).split(",") if address]
    tls = properties.get("security.protocol", "").upper().endswith("SSL")
    end = time.monotonic() + patience_s
    while True:
        failures: list[str] = []
        for address in addresses:
            try:
                if (kind := _kind(address, tls)) is not None:
                    return kind
            except (OSError, ValueError) as error:
                failures.append(f"{address}: {getattr(error, 'strerror', None) or error}")
        if len(failures) < len(addresses):
            raise ConfigError(
                "bootstrap.servers",
                f"Invalid value {shown(place)} for configuration bootstrap.servers: what answers is neither logdb nor Kafka. "
                "If it wants a certificate first, set logdb.client to logdb or kafka",
            )
        if time.monotonic() >= end:
            raise ServerUnavailable(tuple(addresses), "; ".join(failures))
        time.sleep(_PAUSE_S)


def _kind(address: str, tls: bool) -> str | None:
    """None: it is something else."""
    if _speaks_http(address, tls):
        return "logdb"
    return "kafka" if _speaks_kafka(address, tls) else None


@contextlib.contextmanager
def _connection(address: str, tls: bool) -> Iterator[socket.socket]:
    parts = urlsplit(f"//{address}")
    host = parts.hostname or "localhost"
    with socket.create_connection((host, parts.port or 9092), _TIMEOUT_S) as plain:
        if not tls:
            yield plain
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the client that is chosen checks
        with context.wrap_socket(plain, server_hostname=host) as wrapped:
            yield wrapped


def _speaks_http(address: str, tls: bool) -> bool:
    with _connection(address, tls) as connection, contextlib.suppress(ConnectionResetError, BrokenPipeError, TimeoutError):
        connection.sendall(_REQUEST % address.encode())
        return _received(connection, 5) == b"HTTP/"
    return False


def _speaks_kafka(address: str, tls: bool) -> bool:
    """Whether it answers ApiVersions, version 0, as any Kafka does."""
    request = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION_ID, -1)
    with _connection(address, tls) as connection, contextlib.suppress(ConnectionResetError, BrokenPipeError, TimeoutError):
        connection.sendall(struct.pack(">i", len(request)) + request)
        head = _received(connection, 10)
        if len(head) == 10:
            size, correlation_id, error = struct.unpack(">iih", head)
            return bool(10 <= size <= _ANSWER_MAX and correlation_id == _CORRELATION_ID and error == 0)
    return False


def _received(connection: socket.socket, size: int) -> bytes:
    """So many bytes, or less where the connection ends."""
    found = b""
    while len(found) < size and (part := connection.recv(size - len(found))):
        found += part
    return found
