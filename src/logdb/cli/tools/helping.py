"""``logdb help`` and ``logdb version``: for ``--help`` and ``--version``, by the names under which other tools have them."""

import importlib.metadata
from collections.abc import Sequence

import click

from logdb.cli.terminal.output import emit, line, styled
from logdb.cli.terminal.session import Session, here, pass_session


@click.command(short_help="Print the version.")
@here
@pass_session
def version(session: Session) -> None:
    """Print the version of logdb."""
    found = importlib.metadata.version("logdb")
    if session.as_json:
        emit({"version": found})
    else:
        line(f"logdb {found}")


@click.command("help", short_help="Show the help of a command.")
@here
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_(context: click.Context, words: Sequence[str]) -> None:
    """Show the help of a command: logdb help topics create."""
    shown = context.find_root()
    for word in words:
        command = shown.command
        found = command.get_command(shown, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"no such command: {shown.command_path} {word}")
        shown = click.Context(found, parent=shown, info_name=word)
    styled(shown.get_help())
