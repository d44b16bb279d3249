"""``logdb connect``: an entry point of the group ``logdb.connect`` has its commands."""

from importlib.metadata import entry_points

import click

(_command,) = entry_points(group="logdb.connect", name="command")
connect: click.Group = _command.load()
distributed, standalone = connect.commands["distributed"], connect.commands["standalone"]  # also called by the names of Kafka's tools
