"""``logdb serve``: serves a directory: settings, signals, and the printed addresses."""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import click

import logdb
from logdb.cli.serving import settings
from logdb.cli.serving import temporary as temporaries
from logdb.cli.terminal import logs
from logdb.cli.terminal.addons import of_the_cluster
from logdb.cli.terminal.descriptors import take_descriptors
from logdb.cli.terminal.output import emit, line
from logdb.cli.terminal.params import CONFIG, PAIR
from logdb.cli.terminal.session import DATA_DIR_VARIABLE, Session, advising, checked_directory, here, pass_session
from logdb.client.local import LocalDatabase
from logdb.errors import InvalidCertificate
from logdb.serving.polling import polling_loop

if TYPE_CHECKING:
    from logdb.broker.broker import Broker
    from logdb.serving.server import Server

logger = logging.getLogger(__name__)

KAFKA = f"127.0.0.1:{settings.KAFKA_PORT}"
"""Where kafka-server-start listens if its file does not say."""
_PORTS = {"http": 8080, "kafka": settings.KAFKA_PORT}
_AUTHORITIES = "SSL_CERT_FILE"
_OF_THE_CLUSTER = frozenset(("http", "kafka", "kafka_advertised", "tls_cert", "tls_key", "tls_client_ca", "durability", "rack"))
_OF_THE_DATABASE = ("durability", "linger_ms", "retention_check_interval_ms", "cleaner_bytes_per_second")


def _refuse_half(_: click.Context, __: click.Parameter, given: str | None) -> None:
    """Refuse an address split over two options, and show the right one."""
    if given is not None:
        ways = [
            f"--{door} {given if ':' in given else f'127.0.0.1:{given}' if given.isdigit() else f'{given}:{port}'}"
            for door, port in _PORTS.items()
        ]
        raise click.UsageError(f"give the address in one option: {' or '.join(ways)}")


def _refuse_daemon(_: click.Context, __: click.Parameter, given: bool) -> None:
    if given:
        raise click.UsageError("-daemon: start it by systemd (deploy/ has a unit), or in the background by the shell's &")


@click.command(short_help="Serve a database over HTTP and Kafka's protocol.")
@click.argument("directory", metavar="[DIR]", required=False)
@click.option(
    "--config",
    metavar="FILE",
    help=f"logdb.toml, or Kafka's server.properties  [env: {settings.CONFIG_VARIABLE}; default: ./{settings.CONFIG_NAME}, if it is there]",
)
@click.option(
    "--topic-config",
    type=CONFIG,
    multiple=True,
    help=f"Default config of topics created through the server; repeatable  [env: {settings.TOPIC_VARIABLE}]",
)
@click.option(
    "--cluster",
    "cluster_file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Serve DIR as a node of a cluster.  FILE is the cluster.toml from 'logdb cluster init', with addresses and TLS",
)
@click.option(
    "--temporary",
    is_flag=True,
    help="For tests: serve an empty database, deleted at the end, on free ports of this machine; Kafka clients create topics on demand",
)
@click.option("--port", "--host", "--bind", "--listen", hidden=True, expose_value=False, callback=_refuse_half)
@click.option("--override", "overrides", type=PAIR, multiple=True, hidden=True)
@click.option("--daemon", is_flag=True, hidden=True, expose_value=False, callback=_refuse_daemon)
@settings.options
@here
@pass_session
def serve(
    session: Session,
    /,
    directory: str | None,
    config: str | None,
    topic_config: tuple[tuple[str, str], ...],
    cluster_file: str | None,
    temporary: bool,
    overrides: tuple[tuple[str, str], ...],
    **flags: Any,
) -> None:
    """Serve the database in DIR, created if missing, until SIGTERM or Ctrl-C.

    Prints the addresses, one per line, once they accept connections. The first signal lets running requests finish, a second
    one ends them. SIGHUP reads the certificate again. A flag beats its LOGDB_ variable, the variable beats the file, the file
    beats the default.

    With --temporary, tests get a server that is empty, and leaves nothing: logdb serve --temporary --kafka 127.0.0.1:0 --json
    prints {"kafka": "127.0.0.1:40123", ...} once it serves.
    """
    session.refuse_servers("serve needs a directory")
    with logs.lines(as_json=session.as_json):
        if not temporary:
            file = _file(config, dict(overrides), of_kafka=session.kafka)
            _serve(session, directory, cluster_file, _settled(file, dict(topic_config), flags))
            return
        for name, given in (("DIR", directory), ("--data-dir", session.data_dir_given), ("--cluster", cluster_file)):
            if given is not None:
                raise click.UsageError(f"{name} {given}: --temporary makes a directory of its own, and deletes it at the end")
        file = _file(config, dict(overrides), of_kafka=session.kafka) if config is not None else settings.File({}, {})
        settled = _settled(file, dict(topic_config), flags)
        with temporaries.directory() as path:
            own = {**temporaries.SETTINGS, **settled.settings}
            listeners = {} if own.keys() & temporaries.LISTENERS.keys() else temporaries.LISTENERS
            _serve(session, path, None, settled._replace(settings={**own, **listeners}))


def _serve(session: Session, directory: str | None, cluster_file: str | None, settled: settings.File) -> None:
    from logdb.client.serving import HTTP, make_server  # `logdb --help` needs nothing of the extra
    from logdb.serving.server import check_address

    given, listener = dict(settled.settings), settled.listener
    path = directory or session.data_dir_given or given.pop("data_dir", None)
    given.pop("data_dir", None)
    if not path:
        ways = "set log.dirs in the file, or say --override log.dirs=DIR" if session.kafka else f"give DIR, or set {DATA_DIR_VARIABLE}"
        raise click.UsageError(f"name a database: {ways}.")
    checked_directory(path)
    node = None if cluster_file is None else _node(path, cluster_file, given)
    doors: dict[str, str] = {name: given.pop(name) for name in ("http", "kafka") if name in given}
    doors = doors or ({"kafka": KAFKA} if session.kafka else {"http": HTTP})
    try:
        secure = "tls_cert" in given  # whether authentication is on is known only when the database is open
        check = functools.partial(check_address, tls=secure, authentication=secure, insecure=given.get("insecure", False))
        for name, address in doors.items():
            check(address, port_meant=_PORTS[name])
        for address in () if node is None else node.inner_addresses:
            check(address)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if listener is not None:
        listener.check(tls=secure, authentication=True)  # as above
    if given.get("access_log"):
        _log_access()
    given["super_users"] = [name.strip() for name in given.get("super_users", "").split(";") if name.strip()]
    options = {name: given.pop(name) for name in _OF_THE_DATABASE if name in given}
    take_descriptors()
    with contextlib.ExitStack() as stack:
        with advising("stop that process, or if it is a server use its address"):
            broker = stack.enter_context(_embedded(path, options) if node is None else node.running(**options))
        try:
            with _without_authorities():
                server = make_server(broker, doors, topic_config=settled.topic_config, **given)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if listener is not None:
            listener.check(tls=secure, authentication=server.authentication)
        # the nodes of a cluster may share a machine, where one that polls has the processor that another needs
        with asyncio.Runner(loop_factory=polling_loop if node is None else None) as runner:
            session.exit_code = runner.run(_run(server, node, as_json=session.as_json))


class ClusterNode(Protocol):
    """One node of a cluster; the entry point ``node`` of the group ``logdb.cluster`` makes it of a directory and its ``cluster.toml``.

    Attributes:
        settings: That the file has; a caller may not have them, too.
        inner_addresses: Where it listens for other nodes alone.
    """

    settings: Mapping[str, Any]
    inner_addresses: Sequence[str]

    def running(self, **options: Any) -> contextlib.AbstractContextManager["Broker"]:
        """Run it within the block; ``options``: of the store."""

    def begin(self) -> None:
        """The doors are open; returns once the cluster has let the node in, or it leaves."""

    def leave(self) -> None:
        """The doors are about to close: let other nodes lead, as far as they can."""


def _node(path: str, cluster_file: str, given: dict[str, Any]) -> ClusterNode:
    """The node, whose settings are added to those that were ``given``."""
    node: ClusterNode = of_the_cluster("node")(path, cluster_file)
    for name in _OF_THE_CLUSTER & given.keys():
        raise click.UsageError(f"{name} = {given[name]}: a node has it from {cluster_file}")
    given.update(node.settings)
    return node


@contextlib.contextmanager
def _embedded(path: str, options: Mapping[str, Any]) -> "Iterator[Broker]":
    with logdb.open(path, **options) as db:
        assert isinstance(db, LocalDatabase)
        yield db._session


@contextlib.contextmanager
def _without_authorities() -> Iterator[None]:
    """Within the block, OpenSSL loads only certificates of named authorities.

    At its import aiohttp loads the machine's twice, for its client, which is not used here: a quarter of the time of all imports.
    """
    before = os.environ.get(_AUTHORITIES)
    os.environ[_AUTHORITIES] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ[_AUTHORITIES]
        else:
            os.environ[_AUTHORITIES] = before


def _file(config: str | None, overrides: Mapping[str, str], *, of_kafka: bool) -> settings.File:
    """The file of settings; empty if there is none.

    Args:
        overrides: Values that replace those of a ``server.properties``.
        of_kafka: Called as kafka-server-start, which takes no other file than Kafka's, and needs one.
    """
    if of_kafka and config is None:
        raise click.UsageError("name Kafka's file: kafka-server-start server.properties [--override KEY=VALUE]")
    path = settings.find_file(config, os.environ)
    file = settings.read_file(path, overrides, of_kafka=of_kafka) if path else settings.File({}, {})
    if file.ignored:
        logger.warning("%s: no effect here: %s", path, ", ".join(file.ignored))
    return file


def _settled(file: settings.File, topic_flags: dict[str, str], flags: dict[str, Any]) -> settings.File:
    """The file with the settings of flags and variables, which outweigh its own."""
    variables = settings.read_variables(os.environ)
    given = {name: value for name, value in flags.items() if value is not None}
    topics = {**file.topic_config, **variables.topic_config, **topic_flags}
    return file._replace(settings={**file.settings, **variables.settings, **given}, topic_config=topics)


async def _run(server: "Server", node: ClusterNode | None, *, as_json: bool) -> int:
    """Serve until a signal comes; returns the exit code."""
    loop, signals = asyncio.get_running_loop(), asyncio.Queue[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        _on_signal(loop, number, signals.put_nowait, number)
    _on_signal(loop, signal.SIGHUP, _reload, server)
    await server.open()
    ending = loop.create_task(signals.get())
    if node is not None:
        begun = loop.create_task(asyncio.to_thread(node.begin))
        await asyncio.wait((begun, ending), return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        _show_addresses(server, as_json=as_json)
    first = await ending
    draining = loop.create_task(_drain(server, node))
    again = loop.create_task(signals.get())
    await asyncio.wait((draining, again), return_when=asyncio.FIRST_COMPLETED)
    if draining.done():
        again.cancel()
        await draining
        return 0 if first == signal.SIGTERM else 128 + first
    draining.cancel()
    await asyncio.wait((draining,))
    return 128 + again.result()


def _show_addresses(server: "Server", *, as_json: bool) -> None:
    if as_json:
        by_protocol = {"http" if address.startswith("http") else "kafka": address for address in server.addresses}
        emit({"addresses": list(server.addresses), **by_protocol, "pid": os.getpid()})
    else:
        for address in server.addresses:
            line(address)
    sys.stdout.flush()


async def _drain(server: "Server", node: ClusterNode | None) -> None:
    try:
        if node is not None:
            await asyncio.to_thread(node.leave)
    finally:
        await server.drain()


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, callback: Callable[..., object], *args: object) -> None:
    """Call a function on the loop when a signal comes.

    ``add_signal_handler`` alone loses a signal that comes while the pipe that wakes the loop is full: some hundred bytes.
    """
    loop.add_signal_handler(number, int)  # wakes the loop
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
    signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback, *args))


def _reload(server: "Server") -> None:
    with contextlib.suppress(InvalidCertificate):  # the door has logged it, and keeps the old certificate
        server.reload()


def _log_access() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    access = logging.getLogger("logdb.access")
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    access.propagate = False
