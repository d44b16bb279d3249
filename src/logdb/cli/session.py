"""What all verbs share in one call: the database, the way of printing, the exit code.

Knows the options that every verb takes.  Does not know any verb.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

import logdb
from logdb import errors
from logdb.cli import servers
from logdb.cli.servers import BOOTSTRAP_VARIABLE, Servers
from logdb.client.addresses import path_of, url_meant, without_credentials

DATA_DIR_VARIABLE = "LOGDB_DATA_DIR"

Function = TypeVar("Function", bound=Callable[..., Any])

# What the disk or the network did, as against what the caller asked for: exit code 1, not 2.
FAILURES = (
    errors.BackupDamaged,
    errors.CatalogueDamaged,
    errors.CloseIncomplete,
    errors.CodecMissing,
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
    kafka: bool = False  # called by the name of one of Kafka's tools: print and default as it does
    exit_code: int = 0
    follows: bool = False  # SIGTERM is how such a call ends

    @property
    def bootstrap(self) -> str | None:
        """The servers to speak to; None: the database is a directory.

        Raises:
            click.UsageError: Nothing says which database, or too much does.
        """
        path, urls = self.data_dir_given, self.servers.bootstrap
        if path is not None and urls is not None:
            raise click.UsageError(f"which database, the one in {path} or the one at {urls}? Give --data-dir or -b, not both.")
        if path is None and urls is None:
            path, urls = os.environ.get(DATA_DIR_VARIABLE) or None, os.environ.get(BOOTSTRAP_VARIABLE) or None
            if path is not None and urls is not None:
                raise click.UsageError(f"{DATA_DIR_VARIABLE} and {BOOTSTRAP_VARIABLE} are both set: give --data-dir or -b to say which")
            if path is None and urls is None:
                raise click.UsageError(
                    f"which database? Give --data-dir DIR or -b URL, or set {DATA_DIR_VARIABLE} or {BOOTSTRAP_VARIABLE}."
                )
        if path is not None and self.servers.any_credentials:
            raise click.UsageError("--user, --token-file, --ca-file, --cert-file and --key-file go with -b: a directory asks for nothing")
        if path is not None:
            checked_directory(path)
        return urls

    @property
    def place(self) -> str:
        """What the database is called: its directory, or the servers."""
        return self.bootstrap or self._directory

    def directory(self, why: str) -> str:
        """The directory of the database, for what cannot be done through a server.

        Args:
            why: A sentence without its full stop.

        Raises:
            click.UsageError: A server was named, or nothing at all.
        """
        self.refuse_servers(why)
        if not self._directory:
            raise click.UsageError(f"which database? {why}: give --data-dir DIR, or set {DATA_DIR_VARIABLE}.")
        return self._directory

    def refuse_servers(self, why: str) -> None:
        """Say why a verb takes no ``-b``, if it was given one."""
        if self.servers.bootstrap is not None or self.servers.any_credentials:
            raise click.UsageError(f"{why}: not with -b, but where the files are")

    @property
    def _directory(self) -> str:
        path = self.data_dir_given or os.environ.get(DATA_DIR_VARIABLE) or ""
        return checked_directory(path) if path else ""

    @contextlib.contextmanager
    def read(self) -> "Iterator[logdb.Database]":
        """Open to read, also beside a process that writes; or the server's."""
        urls = self.bootstrap
        with logdb.open(self._directory, mode="r") if urls is None else self.servers.open(urls) as db:
            yield db

    @contextlib.contextmanager
    def write(self, *, create: bool = False) -> "Iterator[logdb.Database]":
        """Open to write, or the server's.

        Args:
            create: Make the database where there is none; otherwise a mistyped
                directory is refused, not created.

        Raises:
            DirectoryLocked: Another process has it open to write.
            NotADatabase: Nothing is there, and ``create`` is False.
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
    """A directory that somebody named: no server, no file, no slip of the pen.

    Raises:
        click.UsageError: It is something else; says what was meant.
    """
    if (url := url_meant(path)) is not None:
        raise click.UsageError(f"{without_credentials(path)!r} is no directory, but a server: -b {url}")
    try:
        path_of(path)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    there = path
    while there and not os.path.exists(there):
        there = os.path.dirname(there)
    if os.path.isfile(there):
        raise click.UsageError(f"{path!r} is no directory: {there} is a file")
    return path


def _opened(path: str) -> "logdb.Database":
    try:
        return logdb.open(path)
    except errors.DirectoryLocked as error:
        error.add_note("if that is a server, -b URL goes through it")
        raise


def exit_code_of(error: errors.LogdbError) -> int:
    """1 for what the disk did, 2 for a call that is refused."""
    return 1 if isinstance(error, FAILURES) else 2


def _set_data_dir(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None:
        context.ensure_object(Session).data_dir_given = checked_directory(path)


def _set_json(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.ensure_object(Session).as_json = True


def _set_servers(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value is not None:
        assert parameter.name is not None
        setattr(context.ensure_object(Session).servers, parameter.name, value)


def common(function: Function) -> Function:
    """Give a verb the options that all have; they may stand before or after its name."""
    return _shared(servers.options(function, _set_servers, hidden=True))


def root(function: Function) -> Function:
    """Give the command itself the same options; its help shows them all."""
    return _shared(servers.options(function, _set_servers, hidden=False))


def here(function: Function) -> Function:
    """Give a verb that works on files, or on none, the options that all have; what needs files calls ``refuse_servers``."""
    return _shared(servers.options(function, _set_servers, hidden=True, local=True))


def _shared(function: Function) -> Function:
    function = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_json, help="Print JSON: one document, or one a line; errors, too."
    )(function)
    return click.option(
        "--data-dir",
        metavar="DIR",
        expose_value=False,
        callback=_set_data_dir,
        help=f"Directory of the database  [env: {DATA_DIR_VARIABLE}]",
    )(function)


pass_session = click.make_pass_decorator(Session, ensure=True)
