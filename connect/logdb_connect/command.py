"""``logdb connect``: runs workers, and talks to them by their REST API."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from logdb.cli.terminal import logs
from logdb.cli.terminal.output import emit, line, say
from logdb.cli.terminal.session import Session, here, pass_session
from logdb.cli.terminal.waiting import wait
from logdb_connect import calls
from logdb_connect.errors import ConnectError

if TYPE_CHECKING:
    from logdb_connect.runtime.starting import Running

_READY_S = 30.0
_READY = "logdb_connect.ready"
"""In the context: where to tell that the worker is ready."""
_FILE = click.Path(dir_okay=False)


def _in_background(context: click.Context, _: click.Parameter, given: bool) -> None:
    """``-daemon``, as Kafka's scripts have it: start the worker in the background, and end once it is ready, or waits for its database.

    The worker prints to its log: it may be ready long after this process has ended.
    """
    if not given:
        return
    log = os.path.join(os.environ.get("LOG_DIR", "."), f"connect{str(context.command.name).title()}.out")
    reader, writer = os.pipe()
    words = [f"--ready-fd={writer}" if word in ("-daemon", "--daemon") else word for word in sys.orig_argv]
    with open(reader, "rb") as ready:
        try:
            with open(log, "ab") as file:
                worker = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, pass_fds=(writer,), start_new_session=True
                )
        except OSError as error:
            raise click.ClickException(f"{log}: {error.strerror}; LOG_DIR names a directory for it") from None
        finally:
            os.close(writer)
        if not select.select([ready], [], [], _READY_S)[0]:
            say(f"the worker is not ready yet; pid {worker.pid}, log in {log}")
            context.exit()
        if not (url := ready.readline().decode().strip()):
            raise click.ClickException(f"the worker ended with exit code {worker.wait()}; {log} says why")
    say(f"REST API at {url}; pid {worker.pid}, log in {log}")
    context.exit()


def _keep_ready(context: click.Context, _: click.Parameter, descriptor: int | None) -> None:
    if descriptor is not None:
        os.set_inheritable(descriptor, False)
        context.meta[_READY] = descriptor


def _tell_ready(url: str) -> None:
    """To the process that has started this one in the background, if it still waits."""
    descriptor = click.get_current_context().meta.pop(_READY, None)
    if descriptor is not None:
        with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as file:
            file.write(f"{url}\n".encode())


_daemon = click.option("--daemon", is_flag=True, hidden=True, is_eager=True, expose_value=False, callback=_in_background)
_ready_fd = click.option("--ready-fd", type=int, hidden=True, expose_value=False, callback=_keep_ready)


@click.group(short_help="Move data in and out, with Kafka Connect's property files.")
@here
def connect() -> None:
    """Run connectors: data from files, databases and object stores into topics, and back.

    Workers take Kafka Connect's property files, and serve its REST API. The other commands call that API.
    """


@connect.command(short_help="Run one worker with connectors of property files.")
@click.argument("worker", metavar="WORKER.properties", type=_FILE)
@click.argument("connectors", metavar="[CONNECTOR.properties]...", nargs=-1, type=_FILE)
@_daemon
@_ready_fd
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
    with _worker_log(session), run(worker, connectors) as running:
        _serve(session, running)


@connect.command(short_help="Run one of several workers that share connectors.")
@click.argument("worker", metavar="WORKER.properties", type=_FILE)
@_daemon
@_ready_fd
@here
@pass_session
def distributed(session: Session, /, worker: str) -> None:
    """Run a worker of a group, until Ctrl-C or SIGTERM.

    Workers with the same group.id share connectors and tasks. Connectors are made by the REST API, or by 'logdb connect create'.
    """
    session.refuse_servers("bootstrap.servers in WORKER.properties names the servers")
    from logdb_connect.runtime.starting import distributed as run

    session.follows = True
    with _worker_log(session), run(worker) as running:
        _serve(session, running)


for _call in calls.COMMANDS:
    connect.add_command(_call)


def _serve(session: Session, running: "Running") -> None:
    """Say where the REST API is, and wait for the end."""
    if session.as_json:
        emit({"url": running.url, "pid": os.getpid()})
    else:
        line(f"REST API at {running.url}")
    _tell_ready(running.url)
    wait(running.ended)


@contextlib.contextmanager
def _worker_log(session: Session) -> Iterator[None]:
    """Log lines on stderr; the worker's own errors as those of the command."""
    with logs.lines(as_json=session.as_json):
        try:
            yield
        except ConnectError as error:
            session.follows = False
            raise click.ClickException(str(error)) from error
