"""Exits with 0 if the server in this container answers: what Docker's HEALTHCHECK runs.

Asks the listeners of process 1: HTTP for ``/health/live``, Kafka's protocol for its versions, each with TLS or without.  The system
knows these listeners, whatever options, variables and files the server was started with.  Of a node of a cluster, its
``cluster.toml`` names them, since its other ports are for nodes alone.  Certificates are not checked: the way does not leave the container.

    healthy.py [PID]
"""

import http.client
import os
import socket
import ssl
import struct
import sys
import tomllib
from collections.abc import Iterator
from urllib.parse import urlsplit

TIMEOUT_S = 2.0
LISTENING = "0A"
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # size, key, version, correlation id, no client id


def ports(pid: int) -> list[int]:
    """The ports at which the process serves clients."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode(errors="replace").split("\0")
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--cluster" or word.startswith("--cluster="):
            path = word.partition("=")[2] or following
            return of_node(os.path.join(os.readlink(f"/proc/{pid}/cwd"), path))
    return sorted(set(listening(pid)))


def of_node(path: str) -> list[int]:
    """The ports for clients in a ``cluster.toml``."""
    with open(path, "rb") as file:
        config = tomllib.load(file)
    (node,) = (one for one in config["nodes"] if one["number"] == config["node"])
    addresses = [config.get("http") or urlsplit(node["http"]).netloc, config.get("kafka", "")]
    return [int(address.rpartition(":")[2]) for address in addresses if address]


def listening(pid: int) -> Iterator[int]:
    """The ports at which a process listens, by its sockets and the table of its network."""
    own = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            own.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue  # closed meanwhile
    for table in ("tcp", "tcp6"):
        if os.path.exists(f"/proc/{pid}/net/{table}"):
            with open(f"/proc/{pid}/net/{table}") as file:
                for line in list(file)[1:]:
                    fields = line.split()
                    if fields[3] == LISTENING and f"socket:[{fields[9]}]" in own:
                        yield int(fields[1].rpartition(":")[2], 16)


def connected(port: int, *, tls: bool) -> socket.socket:
    try:
        plain = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    except ConnectionRefusedError:
        plain = socket.create_connection((socket.gethostname(), port), TIMEOUT_S)  # it listens at the container's address alone
    if not tls:
        return plain
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain)


def http_status(port: int, *, tls: bool) -> int:
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    asking.sock = connected(port, tls=tls)
    try:
        asking.request("GET", "/health/live")
        return asking.getresponse().status
    finally:
        asking.close()


def speaks_kafka(port: int, *, tls: bool) -> bool:
    with connected(port, tls=tls) as asking:
        asking.sendall(API_VERSIONS)
        return asking.recv(8)[4:] == API_VERSIONS[8:12]


def problem(port: int) -> str:
    """Why a listener is not healthy; empty: it is."""
    found = "it answers neither HTTP nor Kafka's protocol"
    for tls in (False, True):
        try:
            status = http_status(port, tls=tls)
        except (OSError, http.client.HTTPException):
            pass
        else:
            if status == http.HTTPStatus.OK:
                return ""
            found = f"/health/live has status {status}"
        try:
            if speaks_kafka(port, tls=tls):
                return ""
        except OSError:
            pass
    return found


def main() -> None:
    """Exits with 1, and says why, if the process has no listener, or one does not answer."""
    try:
        served = ports(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    problems = [f"port {port}: {found}" for port in served if (found := problem(port))]
    if problems or not served:
        sys.exit("; ".join(problems) or "it listens at no port")


if __name__ == "__main__":
    main()
