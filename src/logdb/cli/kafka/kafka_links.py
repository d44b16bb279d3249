"""``logdb kafka-links``: the names of Kafka's tools in a directory, as links to the command."""

import os
import shutil
import sys

import click

from logdb.cli.kafka.kafka_tools import KAFKA_TOOLS
from logdb.cli.terminal.output import emit, say
from logdb.cli.terminal.params import TARGET
from logdb.cli.terminal.session import Session, here, pass_session

SUFFIXES = ("", ".sh")


@click.command("kafka-links", short_help="Link the names of Kafka's tools to this command.")
@here
@click.argument("directory", metavar="DIR", type=TARGET)
@pass_session
def kafka_links(session: Session, directory: str) -> None:
    """Create kafka-topics, kafka-topics.sh and so on in DIR, as links to this command.

    Under such a name the command has the flags, defaults and output of Kafka's tool.  Other files in DIR stay.
    """
    session.refuse_servers("kafka-links makes local files")
    command = _command()
    names = [f"{tool}{suffix}" for tool in KAFKA_TOOLS for suffix in SUFFIXES]
    for name in names:
        path = os.path.join(directory, name)
        if os.path.lexists(path) and not (os.path.islink(path) and os.path.realpath(path) == command):
            raise click.UsageError(f"{path} is there already: name another directory, or remove it")
    os.makedirs(directory, exist_ok=True)
    for name in names:
        path = os.path.join(directory, name)
        if not os.path.lexists(path):
            os.symlink(command, path)
    if session.as_json:
        emit({"directory": directory, "command": command, "names": names})
    else:
        say(f"{len(names)} links to {command} in {directory}; put it first: export PATH={os.path.abspath(directory)}:$PATH")


def _command() -> str:
    """The path of the installed script.

    Raises:
        click.UsageError: It is not installed.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "logdb")
    found = beside if os.access(beside, os.X_OK) else shutil.which("logdb")
    if found is None:
        raise click.UsageError("the script logdb is neither beside Python nor on the PATH: links have nothing to lead to")
    return os.path.realpath(found)
