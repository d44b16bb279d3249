"""What all verbs share in one call: the database, the way of printing, the exit code.

Knows the options that every verb takes.  Does not know any verb.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import click

import logdb
from logdb import errors
from logdb.cli.output import say

DATA_DIR_VARIABLE = "LOGDB_DATA_DIR"

Function = TypeVar("Function", bound=Callable[..., Any])

# What the disk did, as against what the caller asked for: exit code 1, not 2.
FAILURES = (
    errors.BackupDamaged,
    errors.CatalogueDamaged,
    errors.CloseIncomplete,
    errors.CodecMissing,
    errors.CorruptionError,
    errors.DiskFull,
    errors.LogTruncated,
    errors.ReadFailed,
    errors.SyncFailed,
    errors.WriteFailed,
)


@dataclass
class Session:
    """One call of the command."""

    data_dir_given: str | None = None
    as_json: bool = False
    kafka: bool = False  # called by the name of one of Kafka's tools: print and default as it does
    exit_code: int = 0
    follows: bool = False  # Ctrl-C and SIGTERM are how such a call ends

    @property
    def data_dir(self) -> str:
        """The directory of the database.

        Raises:
            click.UsageError: neither the option nor the variable names one.
        """
        path = self.data_dir_given or os.environ.get(DATA_DIR_VARIABLE)
        if not path:
            raise click.UsageError(f"which database? Give --data-dir DIR, or set {DATA_DIR_VARIABLE}.")
        return path

    @contextlib.contextmanager
    def read(self) -> "Iterator[logdb.Database]":
        """Open to read, also beside a process that writes."""
        with logdb.open(self.data_dir, mode="r") as db:
            yield db

    @contextlib.contextmanager
    def write(self, *, create: bool = False) -> "Iterator[logdb.Database]":
        """Open to write; says what recovery found.

        Args:
            create: Make the database where there is none; otherwise a mistyped
                directory is refused, not created.

        Raises:
            DirectoryLocked: Another process has it open to write.
            NotADatabase: Nothing is there, and ``create`` is False.
        """
        path = self.data_dir
        if not create and not (os.path.isdir(path) and os.listdir(path)):
            raise errors.NotADatabase(f"{path} holds no database; 'logdb topics create' makes one")
        with logdb.open(path) as db:
            try:
                yield db
            finally:
                for line in db.reports:
                    say(line)


def exit_code_of(error: errors.LogdbError) -> int:
    """1 for what the disk did, 2 for a call that is refused."""
    return 1 if isinstance(error, FAILURES) else 2


def _set_data_dir(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None:
        context.ensure_object(Session).data_dir_given = path


def _set_json(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        context.ensure_object(Session).as_json = True


def common(function: Function) -> Function:
    """Give a verb the options that all have; they may stand before or after its name."""
    function = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_json, help="Print JSON: one document, or one a line."
    )(function)
    return click.option(
        "--data-dir",
        metavar="DIR",
        type=click.Path(file_okay=False),
        expose_value=False,
        callback=_set_data_dir,
        help=f"Directory of the database  [env: {DATA_DIR_VARIABLE}]",
    )(function)


pass_session = click.make_pass_decorator(Session, ensure=True)
