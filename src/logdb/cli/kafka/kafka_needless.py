"""Kafka's tools that have nothing to do here: each says so, and succeeds, so that a script goes on."""

import base64
import uuid

import click

from logdb.cli.terminal.output import line, say
from logdb.cli.terminal.session import here

_ANY = {"ignore_unknown_options": True}


@click.command("zookeeper-server-start", context_settings=_ANY)
@here
@click.argument("arguments", nargs=-1)
def zookeeper_server_start(arguments: tuple[str, ...]) -> None:
    """Say that no ZooKeeper is needed."""
    say("logdb needs no ZooKeeper: nothing was started, and kafka-server-start alone is enough")


@click.command("kafka-storage", context_settings=_ANY)
@here
@click.argument("action", type=click.Choice(["random-uuid", "format", "info"]))
@click.argument("arguments", nargs=-1)
def kafka_storage(action: str, arguments: tuple[str, ...]) -> None:
    """Print a random id, or say that no directory needs to be formatted."""
    if action == "random-uuid":
        line(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
    else:
        say("logdb needs no formatted directory: kafka-server-start creates the database")
