"""What connectors of this process may reach: directories, hosts, commands.

A principal who may create a connector can read files and reach hosts as the worker can.  The worker's properties
``connector.directories.allowed`` and ``connector.hosts.allowed`` limit that.  Commands run only where ``connector.commands.allowed``
names them.  The limits hold for the whole process.
"""

import fnmatch
import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence

from logdb_connect.errors import ConnectError

_directories: tuple[str, ...] = ()
_hosts: tuple[str, ...] = ()
_commands: tuple[str, ...] = ()


def configure(directories: Iterable[str] = (), hosts: Iterable[str] = (), commands: Iterable[str] = ()) -> None:
    """Set the limits.  No directories or hosts: no limit.  No commands: none may run.

    Args:
        directories: Connectors may use what is below these.
        commands: Absolute paths of programs.
        hosts: Names, patterns such as ``*.example.com``, or networks such as ``10.0.0.0/8``.
    """
    global _directories, _hosts, _commands  # noqa: PLW0603 one for the process
    _commands = tuple(commands)
    _directories = tuple(os.path.realpath(each) for each in directories)
    _hosts = tuple(each.strip().lower() for each in hosts)


def are_set() -> bool:
    """Whether connectors of this process are limited to some directories or hosts."""
    return bool(_directories or _hosts)


def check_path(path: str) -> None:
    """Raises ``ConnectError`` where connectors may not use a file or a directory."""
    real = os.path.realpath(path)
    if _directories and not any(os.path.commonpath((real, each)) == each for each in _directories):
        allowed = ", ".join(_directories)
        raise ConnectError(f"Connectors of this worker may not use {path}: connector.directories.allowed has only {allowed}")


def addresses(host: str, port: int) -> Sequence[str]:
    """The addresses of a host that connectors may connect to.

    Raises:
        ConnectError: They may connect to none.
        OSError: The host has no address.
    """
    found = list(dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
    if not _hosts or any(fnmatch.fnmatchcase(host.lower(), each) for each in _hosts):
        return found
    networks = [network for each in _hosts if (network := _network(each)) is not None]
    if allowed := [each for each in found if any(_address(each) in network for network in networks)]:
        return allowed
    raise ConnectError(f"Connectors of this worker may not connect to {host}: connector.hosts.allowed has only {', '.join(_hosts)}")


def check_command(path: str) -> None:
    """Raises ``ConnectError`` where connectors may not run a program."""
    if not os.path.isabs(path) or path not in _commands:
        allowed = f"has only {', '.join(_commands)}" if _commands else "is empty"
        raise ConnectError(f"Connectors of this worker may not run {path}: the worker's connector.commands.allowed {allowed}")


def check_host(host: str) -> None:
    """Raises ``ConnectError`` where connectors may not connect to a host."""
    if _hosts:
        try:
            addresses(host, 0)
        except OSError as error:
            raise ConnectError(f"Cannot find the host {host}: {error}") from error


def _network(text: str) -> "ipaddress.IPv4Network | ipaddress.IPv6Network | None":
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _address(text: str) -> "ipaddress.IPv4Address | ipaddress.IPv6Address":
    return ipaddress.ip_address(text.partition("%")[0])
