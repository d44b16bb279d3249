"""The options that name servers, credentials and trusted certificates, with their variables."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

import logdb
from logdb.cli.terminal import client_security, properties
from logdb.cli.terminal.output import asked
from logdb.cli.terminal.units import Duration
from logdb.client.addresses import url_meant
from logdb.errors import AuthenticationFailed, ServerUnavailable

Function = TypeVar("Function", bound=Callable[..., Any])

BOOTSTRAP_VARIABLE = "LOGDB_BOOTSTRAP"
USER_VARIABLE, PASSWORD_VARIABLE, TOKEN_VARIABLE = "LOGDB_USER", "LOGDB_PASSWORD", "LOGDB_TOKEN"
REQUEST_TIMEOUT_MS = 30_000


@dataclass
class Servers:
    """The servers and credentials of one call; None: not given."""

    bootstrap: str | None = None
    user: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    request_timeout_ms: int | None = None
    connect_timeout: int | None = None  # ms
    client_file: str | None = None  # a property file of Kafka's clients
    client_pairs: tuple[str, ...] = ()  # its lines, one by one
    asks: bool = True  # for a password, on a terminal

    @property
    def any_credentials(self) -> bool:
        """Whether an option gives credentials or certificates."""
        return any((self.user, self.token_file, self.ca_file, self.cert_file, self.key_file))

    def urls(self, text: str) -> list[str]:
        """URLs, separated by commas; ``host:port`` alone, as in Kafka's tools, gets the scheme that fits the options.

        Raises:
            click.UsageError: There is no URL.
        """
        client = client_security.of_properties(self.client_properties())
        scheme = "https" if self.ca_file or self.cert_file or client.tls else "http"
        found = [url if "://" in url else f"{scheme}://{_host_and_port(url)}" for url in map(str.strip, text.split(",")) if url]
        if not found:
            raise click.UsageError(f"{text!r} names no server: give http://HOST:PORT, several separated by commas")
        return found

    def open(self, text: str) -> "logdb.Database":
        """Open the database of the servers.

        Raises:
            click.UsageError: An option is invalid.
            ServerUnavailable: No server answers, or none is trusted.
            AuthenticationFailed: The server refuses the credentials.
        """
        urls, client = self.urls(text), client_security.of_properties(self.client_properties())
        if self.key_file is not None and self.cert_file is None:
            raise click.UsageError("--key-file is the key of a certificate: give --cert-file, too")
        token = None if self.token_file is None else _first_line(self.token_file)
        if self.user is not None and token is not None:
            raise click.UsageError("give --user or --token-file, not both")
        try:
            return logdb.open(
                urls,
                user=self.user or client.user,
                password=client.password if self.user is None else self._password(self.user),
                token=token,
                ca_file=self.ca_file or client.ca_file,
                cert_file=self.cert_file or client.cert_file,
                key_file=self.key_file,
                timeout_ms=self.request_timeout_ms or REQUEST_TIMEOUT_MS,
                connect_timeout_ms=self.connect_timeout,
            )
        except AuthenticationFailed as error:
            if not self.any_credentials:
                error.add_note(f"--user NAME or --token-file FILE gives credentials, or {USER_VARIABLE} or {TOKEN_VARIABLE}")
            raise
        except ServerUnavailable as error:
            from ssl import SSLCertVerificationError  # most calls need none

            if isinstance(error.__cause__, SSLCertVerificationError) and self.ca_file is None:
                error.add_note("--ca-file FILE names further authorities to trust")
            elif isinstance(error.__cause__, ConnectionRefusedError):
                error.add_note("is 'logdb serve' running there?")
            raise
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    def client_properties(self) -> dict[str, str]:
        """The properties of one of Kafka's clients, from the file and one by one."""
        pairs = dict(pair.partition("=")[::2] for pair in self.client_pairs)
        return properties.trimmed({**(properties.read(self.client_file) if self.client_file else {}), **pairs})

    def _password(self, user: str) -> str:
        password = os.environ.get(PASSWORD_VARIABLE)
        if password is not None:
            return password
        if not self.asks or not _at_terminal():
            raise click.UsageError(f"no terminal to ask for the password of {user!r}: set {PASSWORD_VARIABLE}, or give --token-file")
        return asked(f"Password of {user}")


def _host_and_port(text: str) -> str:
    """The URL for a text without a scheme; refused if it must be something else."""
    if text.startswith((".", "/", "~")) or os.path.isdir(text):
        raise click.UsageError(f"{text!r} is a directory, or the path of one: --data-dir {text}; -b names a server: http://HOST:PORT")
    if text.lower().startswith(("http:", "https:", "http//", "https//")):
        raise click.UsageError(f"{text!r} is not a URL: {url_meant(text)!r} is")
    return f"localhost{text}" if text.startswith(":") else text


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        token = file.readline().strip()
    if not token:
        raise click.UsageError(f"{path} holds no token: its first line is empty")
    return token


_FILE = click.Path(exists=True, dir_okay=False)
_OPTIONS = {
    "--user": ("NAME", str, f"The user; the password comes from {PASSWORD_VARIABLE}, or is asked for  [env: {USER_VARIABLE}]"),
    "--token-file": ("FILE", _FILE, f"A bearer token instead, the first line of FILE  [env: {TOKEN_VARIABLE}, the token itself]"),
    "--ca-file": ("FILE", _FILE, "Certificates to trust, PEM; otherwise the system's."),
    "--cert-file": ("FILE", _FILE, "The client's certificate, PEM."),
    "--key-file": ("FILE", _FILE, "Its key, PEM."),
    "--connect-timeout": ("N", Duration("s", least=1), "How long to try to reach a server the first time: seconds, or 500ms  [default: 3]"),
    "--request-timeout-ms": (
        "N",
        Duration("ms", least=1),
        f"How long to wait for an answer, and for a server that has answered before  [default: {REQUEST_TIMEOUT_MS}]",
    ),
}


def options(function: Function, note: Callable[..., None], *, hidden: bool, local: bool = False) -> Function:
    """Add the options to a command; each value goes to ``note``, and ``function`` gets none.

    Args:
        hidden: The help shows only ``-b``.
        local: It does not show ``-b`` either: the command needs files, and refuses a server.
    """
    function = click.option("--command-config", "client_file", type=_FILE, expose_value=False, callback=note, hidden=True)(function)
    function = click.option("--command-property", "client_pairs", multiple=True, expose_value=False, callback=note, hidden=True)(function)
    for name, (metavar, kind, meaning) in reversed(_OPTIONS.items()):
        function = click.option(name, metavar=metavar, type=kind, expose_value=False, callback=note, hidden=hidden, help=meaning)(function)
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="URL,...",
        expose_value=False,
        callback=note,
        hidden=local,
        help=f"The servers of the database, instead of a directory  [env: {BOOTSTRAP_VARIABLE}]",
    )(function)
