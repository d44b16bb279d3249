"""``logdb connect``: runs workers, and talks to them by their REST API."""

import contextlib
from collections.abc import Iterator

import click

from logdb.cli import logs
from logdb.cli.session import Session, here, pass_session
from logdb.cli.waiting import wait
from logdb_connect import calls
from logdb_connect.errors import ConnectError

_FILE = click.Path(dir_okay=False)


@click.group(short_help="Data in and out, with Kafka Connect's property files.")
@here
def connect() -> None:
    """Run connectors: data from files, databases and object stores into topics, and back.

    Workers take Kafka Connect's property files, and serve its REST API. The other commands call that API.
    """


@connect.command(short_help="Run one worker with connectors of property files.")
@click.argument("worker", metavar="WORKER.properties", type=_FILE)
@click.argument("connectors", metavar="[CONNECTOR.properties]...", nargs=-1, type=_FILE)
@here
@pass_session
def standalone(session: Session, /, worker: str, connectors: tuple[str, ...]) -> None:
    """Run a worker alone, until Ctrl-C or SIGTERM.

    bootstrap.servers of WORKER.properties names servers, HOST:PORT or URLs, or the directory of a database.
    A connector's file has its properties, or JSON as POST /connectors takes it.
    """
    session.refuse_servers("bootstrap.servers in WORKER.properties names the servers")
    from logdb_connect.runtime.starting import standalone as run

    session.follows = True
    with _worker_log(session), run(worker, connectors) as ended:
        wait(ended)


@connect.command(short_help="Run one of several workers that share connectors.")
@click.argument("worker", metavar="WORKER.properties", type=_FILE)
@here
@pass_session
def distributed(session: Session, /, worker: str) -> None:
    """Run a worker of a group, until Ctrl-C or SIGTERM.

    Workers with the same group.id share connectors and tasks. Connectors are made by the REST API, or by 'logdb connect create'.
    """
    session.refuse_servers("bootstrap.servers in WORKER.properties names the servers")
    from logdb_connect.runtime.starting import distributed as run

    session.follows = True
    with _worker_log(session), run(worker) as ended:
        wait(ended)


for _call in calls.COMMANDS:
    connect.add_command(_call)


@contextlib.contextmanager
def _worker_log(session: Session) -> Iterator[None]:
    """Log lines on stderr; the worker's own errors as those of the command."""
    with logs.lines(as_json=session.as_json):
        try:
            yield
        except ConnectError as error:
            session.follows = False
            raise click.ClickException(str(error)) from error
