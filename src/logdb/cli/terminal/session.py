"""The state of one call, shared by all verbs: the database, the output, the exit code."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

import logdb
from logdb import errors
from logdb.cli.terminal import servers
from logdb.cli.terminal.servers import BOOTSTRAP_VARIABLE, Servers
from logdb.client.addresses import path_of, url_meant, without_credentials

DATA_DIR_VARIABLE = "LOGDB_DATA_DIR"

Function = TypeVar("Function", bound=Callable[..., Any])

# Errors of the disk or the network: exit code 1; the caller's mistakes: 2.
FAILURES = (
    errors.BackupDamaged,
    errors.CatalogueDamaged,
    errors.CloseIncomplete,
    errors.CodecMissing,
    errors.ControllerUnavailable,
    errors.CorruptionError,
    errors.DiskFull,
    errors.InvalidAnswer,
    errors.LogTruncated,
    errors.ReadFailed,
    errors.ServerUnavailable,
    errors.SyncFailed,
    errors.WriteFailed,
)


@dataclass
class Session:
    """One call of the command."""

    data_dir_given: str | None = None
    servers: Servers = field(default_factory=Servers)
    as_json: bool = False
    kafka: bool = False  # called by the name of one of Kafka's tools: prints and defaults as that does
    exit_code: int = 0
    follows: bool = False  # SIGTERM ends such a call normally

    @property
    def bootstrap(self) -> str | None:
        """The servers; None: the database is a directory.

        Raises:
            click.UsageError: No database is named, or two are.
        """
        path, urls = self.data_dir_given, self.servers.bootstrap
        if path is not None and urls is not None:
            raise click.UsageError(f"two databases are named, {path} and {urls}: give --data-dir or -b, not both")
        if path is None and urls is None:
            path, urls = os.environ.get(DATA_DIR_VARIABLE) or None, os.environ.get(BOOTSTRAP_VARIABLE) or None
            if path is not None and urls is not None:
                raise click.UsageError(f"{DATA_DIR_VARIABLE} and {BOOTSTRAP_VARIABLE} are both set: give --data-dir or -b to say which")
            if path is None and urls is None:
                raise click.UsageError(
                    f"name a database: give --data-dir DIR or -b URL, or set {DATA_DIR_VARIABLE} or {BOOTSTRAP_VARIABLE}."
                )
        if path is not None and self.servers.any_credentials:
            raise click.UsageError("--user, --token-file, --ca-file, --cert-file and --key-file go with -b: a directory needs none")
        if path is not None:
            checked_directory(path)
        return urls

    @property
    def place(self) -> str:
        """The name of the database: its directory, or the servers."""
        return self.bootstrap or self._directory

    def directory(self, why: str) -> str:
        """The directory of the database, for work that no server can do.

        Args:
            why: A sentence without its full stop.

        Raises:
            click.UsageError: A server was named, or no database.
        """
        self.refuse_servers(why)
        if not self._directory:
            raise click.UsageError(f"{why}: give --data-dir DIR, or set {DATA_DIR_VARIABLE}.")
        return self._directory

    def refuse_servers(self, why: str) -> None:
        """Refuse ``-b`` for a verb that cannot use it."""
        if self.servers.bootstrap is not None or self.servers.any_credentials:
            raise click.UsageError(f"{why}: call it on the machine of the files, without -b")

    @property
    def _directory(self) -> str:
        path = self.data_dir_given or os.environ.get(DATA_DIR_VARIABLE) or ""
        return checked_directory(path) if path else ""

    @contextlib.contextmanager
    def read(self) -> "Iterator[logdb.Database]":
        """Open for reading, also beside a process that writes; or by the server."""
        urls = self.bootstrap
        with logdb.open(self._directory, mode="r") if urls is None else self.servers.open(urls) as db:
            yield db

    @contextlib.contextmanager
    def write(self, *, create: bool = False) -> "Iterator[logdb.Database]":
        """Open for writing, or by the server.

        Args:
            create: Create a missing database; otherwise a mistyped directory is refused.

        Raises:
            DirectoryLocked: Another process has it open to write.
            NotADatabase: The directory has no database, and ``create`` is False.
        """
        if (urls := self.bootstrap) is not None:
            with self.servers.open(urls) as db:
                yield db
            return
        path = self._directory
        if not create and not (os.path.isdir(path) and os.listdir(path)):
            raise errors.NotADatabase(f"{path} holds no database; 'logdb topics create' makes one")
        with _opened(path) as db:
            yield db


def checked_directory(path: str) -> str:
    """The directory in an argument, checked for mistakes.

    Raises:
        click.UsageError: It is something else; the error says what was meant.
    """
    if (url := url_meant(path)) is not None:
        raise click.UsageError(f"{without_credentials(path)!r} is not a directory, but a server: -b {url}")
    try:
        path_of(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    there = path
    while there and not os.path.exists(there):
        there = os.path.dirname(there)
    if os.path.isfile(there):
        raise click.UsageError(f"{path!r} is not a directory: {there} is a file")
    return path


def _opened(path: str) -> "logdb.Database":
    with advising("stop that process, or if it is a server use -b URL"):
        return logdb.open(path)


@contextlib.contextmanager
def advising(advice: str) -> Iterator[None]:
    """Within the block, a DirectoryLocked says what to do at a terminal."""
    try:
        yield
    except errors.DirectoryLocked as error:
        raise errors.DirectoryLocked(error.path, pid=error.pid, host=error.host, since=error.since, advice=advice) from None


def exit_code_of(error: errors.LogdbError) -> int:
    """1 for an error of the disk or the network, 2 for a refused call."""
    return 1 if isinstance(error, FAILURES) else 2


def _set_data_dir(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None:
        context.ensure_object(Session).data_dir_given = checked_directory(path)


def _set_json(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.ensure_object(Session).as_json = True


def _set_servers(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value not in {None, ()}:
        assert parameter.name is not None
        setattr(context.ensure_object(Session).servers, parameter.name, value)


def common(function: Function) -> Function:
    """Add the options of all verbs to one; they may stand before or after its name."""
    return _shared(servers.options(function, _set_servers, hidden=True))


def root(function: Function) -> Function:
    """Add the same options to the command itself; its help shows them all."""
    return _shared(servers.options(function, _set_servers, hidden=False))


def here(function: Function) -> Function:
    """Add the common options to a verb that works on files, or on none; it calls ``refuse_servers``."""
    return _shared(servers.options(function, _set_servers, hidden=True, local=True))


def _shared(function: Function) -> Function:
    function = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_json, help="Print JSON: one document, or one per line; errors, too."
    )(function)
    return click.option(
        "--data-dir",
        metavar="DIR",
        expose_value=False,
        callback=_set_data_dir,
        help=f"Directory of the database  [env: {DATA_DIR_VARIABLE}]",
    )(function)


pass_session = click.make_pass_decorator(Session, ensure=True)
