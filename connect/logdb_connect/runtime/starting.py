"""Makes a worker of its property file, and runs it until it is told to end."""

import contextlib
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from logdb import LogdbError
from logdb_connect.client import Client, connected, is_directory, shown
from logdb_connect.config import ConfigDef
from logdb_connect.connectors import limits
from logdb_connect.errors import ConfigError, ConnectError
from logdb_connect.plugins import Plugins
from logdb_connect.properties import read, read_connector
from logdb_connect.providers import Providers
from logdb_connect.runtime import settings
from logdb_connect.runtime.herder import Standalone
from logdb_connect.runtime.offsets import OffsetFile, OffsetStore
from logdb_connect.runtime.tasks import quietly
from logdb_connect.runtime.worker import Worker

if TYPE_CHECKING:
    from logdb_connect.rest.server import RestServer

logger = logging.getLogger(__name__)
T = TypeVar("T")
_PAUSE_S, _PAUSE_S_MAX, _TELL_S = 0.1, 1.0, 60.0
_OWN_PREFIXES = ("producer.", "consumer.", "admin.", "key.converter.", "value.converter.", "header.converter.", "config.providers.")
_CLIENT_PREFIXES = ("security.", "sasl.", "ssl.", "metrics.", "metric.", "auto.include.jmx.reporter", "reconnect.", "retry.", "request.")
_FORMATTER = logging.Formatter()
_NEEDLESS = (
    "access.control.allow.methods",
    "access.control.allow.origin",
    "admin.listeners",
    "connect.protocol",
    "inter.worker.key.generation.algorithm",
    "inter.worker.key.size",
    "inter.worker.key.ttl.ms",
    "inter.worker.signature.algorithm",
    "inter.worker.verification.algorithms",
    "offset.flush.timeout.ms",
    "offset.storage.cleanup.policy",
    "plugin.discovery",
    "response.http.headers.config",
    "rest.extension.classes",
    "worker.unsync.backoff.ms",
)


class Running(NamedTuple):
    """A worker that runs.

    Attributes:
        ended: Set if it ends by itself.
        url: Of its REST API.
    """

    ended: threading.Event
    url: str


@contextlib.contextmanager
def standalone(worker_file: str, connector_files: Sequence[str]) -> Iterator[Running]:
    """A standalone worker with its connectors; ends with the block."""
    properties, providers = _resolved(worker_file)
    config = parsed(settings.STANDALONE, properties)
    given = [read_connector(path) for path in connector_files]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_hidden(providers))
        server = stack.enter_context(_listening(config))
        file = stack.enter_context(contextlib.closing(OffsetFile(config["offset.storage.file.filename"])))
        client = stack.enter_context(
            contextlib.closing(_patiently(properties, providers.redact, server.wait_for, lambda: connected(properties)))
        )
        stores = _stores(client, config, file.identity)
        worker = _worker(properties, config, client, stores, f"standalone-{file.identity}", providers, file.identity)
        url, worker.id = advertised(config, server.addresses)
        herder = Standalone(worker)
        stack.callback(herder.close)
        stack.callback(server.stop)  # before the herder
        server.serve(herder)
        stack.enter_context(_copying(stores, file, config["offset.flush.interval.ms"]))
        for path, one in zip(connector_files, given, strict=True):
            try:
                herder.create(one["name"], one)
            except ConnectError as error:
                raise ConnectError(f"{path}: {error}") from error
        yield Running(server.ended, url)


@contextlib.contextmanager
def distributed(worker_file: str) -> Iterator[Running]:
    """A worker that shares the work of its group; ends with the block."""
    from logdb_connect.rest.forwarding import sender
    from logdb_connect.runtime.distributed import Distributed

    properties, providers = _resolved(worker_file)
    config = parsed(settings.DISTRIBUTED, properties)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_hidden(providers))
        server = stack.enter_context(_listening(config))
        client = stack.enter_context(
            contextlib.closing(_patiently(properties, providers.redact, server.wait_for, lambda: connected(properties)))
        )
        worker = _worker(properties, config, client, _stores(client, config), config["group.id"], providers)
        url, worker.id = advertised(config, server.addresses)
        herder = _patiently(properties, providers.redact, server.wait_for, lambda: Distributed(worker, config, send_tasks=sender(config)))
        stack.callback(herder.close)
        stack.callback(server.stop)  # before the herder
        _patiently(properties, providers.redact, server.wait_for, lambda: herder.start(url))
        server.serve(herder)
        yield Running(server.ended, url)


@contextlib.contextmanager
def of_one_task(properties: Mapping[str, str], group_id: str, identity: str | None) -> Iterator[Worker]:
    """A worker without an API, in a process of its own, for a task of another one.

    Args:
        properties: Of the other worker, resolved.
        identity: Of a standalone worker; None: the other worker is a distributed one.
    """
    config = (settings.DISTRIBUTED if identity is None else settings.STANDALONE).parse(properties)
    client = _patiently(properties, str, lambda _: None, lambda: connected(properties))
    try:
        yield _worker(properties, config, client, _stores(client, config, identity), group_id, Providers({}), identity)
    finally:
        quietly(client.close, "close the client")  # the task has ended: it is not FAILED for that


def _patiently(properties: Mapping[str, str], redact: Callable[[str], str], tell: Callable[[str], None], function: Callable[[], T]) -> T:
    """Call until a server of the database answers: workers and servers may start in any order.

    Args:
        redact: Hides the values of config providers.
        tell: Told what is waited for.

    Raises:
        LogdbError: A directory cannot be opened, or a server refuses this worker: to wait would not help.
    """
    pause_s, told_at = _PAUSE_S, 0.0
    while True:
        try:
            return function()
        except LogdbError as error:
            if not error.retriable or isinstance(error.__cause__, ssl.SSLCertVerificationError) or is_directory(properties):
                raise
            reason = redact(f"bootstrap.servers={shown(redact(properties['bootstrap.servers'].strip()))}: {error}")
            tell(reason)
            if time.monotonic() >= told_at:
                logger.warning("%s; the worker waits for an answer, and tries again", reason)
                told_at = time.monotonic() + _TELL_S
        time.sleep(pause_s)  # of the main thread: a signal must not wait for long
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _stores(client: Client, config: Mapping[str, Any], identity: str | None = None) -> "_Stores":
    def make(topic: str | None) -> OffsetStore:
        return OffsetStore(
            client,
            topic or config["offset.storage.topic"],
            identity=identity,
            partitions=config["offset.storage.partitions"],
            replication=config["offset.storage.replication.factor"],
        )

    return _Stores(make)


class _Stores:
    """The offset stores of a worker, one for each topic."""

    def __init__(self, make: Callable[[str | None], OffsetStore]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._stores: dict[str | None, OffsetStore] = {}

    def __call__(self, topic: str | None) -> OffsetStore:
        with self._lock:
            if topic not in self._stores:
                self._stores[topic] = self._make(topic)
            return self._stores[topic]

    def made(self) -> list[OffsetStore]:
        with self._lock:
            return list(self._stores.values())


@contextlib.contextmanager
def _copying(stores: _Stores, file: OffsetFile, interval_ms: int) -> Iterator[None]:
    """Keep the copy of the offsets in the file: as it was until a source runs."""
    stop = threading.Event()

    def copy() -> None:
        made = stores.made()
        for store in made:
            store.catch_up()
        if made:
            file.write([one for store in made for one in store.all()])

    def run() -> None:
        while not stop.wait(max(0.1, interval_ms / 1000)):
            try:
                copy()
            except Exception as error:  # noqa: BLE001 -- the copy is for people; the topic has the offsets
                logger.warning("the copy of the offsets was not written: %s", error)

    thread = threading.Thread(target=run, name="connect-offset-file", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):
            copy()


def parsed(definition: ConfigDef, properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a worker; a warning names each unknown property."""
    config = definition.parse(properties)
    for name in definition.unknown(properties):
        if name not in _NEEDLESS and not name.startswith((*_OWN_PREFIXES, *_CLIENT_PREFIXES)):
            logger.warning("worker: %s is unknown and has no effect", name)
    return config


def _resolved(worker_file: str) -> tuple[dict[str, str], Providers]:
    """The properties of a worker, with the values of its config providers."""
    given = read(worker_file)
    providers = Providers(given)
    return providers.resolve(given), providers


@contextlib.contextmanager
def _hidden(providers: Providers) -> Iterator[None]:
    """Log lines have none of the values that came from config providers."""

    def hide(record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception as error:  # noqa: BLE001 -- a wrong call of a plugin is no failure of its task
            text = f"{record.msg!r} with {record.args!r}: {type(error).__name__}: {error}"
        record.msg, record.args = providers.redact(text), ()
        if record.exc_info:
            record.exc_text, record.exc_info = providers.redact(_FORMATTER.formatException(record.exc_info)), None
        return True

    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(hide)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(hide)
        providers.close()


def _worker(
    properties: Mapping[str, str],
    config: Mapping[str, Any],
    client: Client,
    stores: Callable[[str | None], OffsetStore],
    group_id: str,
    providers: Providers,
    identity: str | None = None,
) -> Worker:
    plugins = Plugins(config["plugin.path"], config["connector.classes.allowed"])
    limits.configure(config["connector.directories.allowed"], config["connector.hosts.allowed"], config["connector.commands.allowed"])
    return Worker(
        properties, config, client=client, plugins=plugins, providers=providers, offsets=stores, group_id=group_id, identity=identity
    )


@contextlib.contextmanager
def _listening(config: Mapping[str, Any]) -> "Iterator[RestServer]":
    """The REST API of a worker, before there is one."""
    from logdb_connect.rest.server import RestServer

    server = RestServer(config)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def advertised(config: Mapping[str, Any], addresses: Sequence[tuple[str, str, int]]) -> tuple[str, str]:
    """The URL that other workers reach this one at, and ``host:port``."""
    wanted = config["rest.advertised.listener"]
    scheme, host, port = next((one for one in addresses if wanted in (None, one[0])), addresses[0])
    host = config["rest.advertised.host.name"] or ("127.0.0.1" if host in ("0.0.0.0", "::", "") else host)  # noqa: S104 -- any address
    port = config["rest.advertised.port"] or port
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}:{port}", f"{host}:{port}"


def listeners(config: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Scheme, host and port of each listener.

    Raises:
        ConfigError: One has another form.
    """
    found = []
    for text in config["listeners"]:
        parts = urlsplit(text)
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in ("http", "https") or port is None:
            raise ConfigError(
                "listeners", f"Invalid value {text} for configuration listeners: must be http://host:port or https://host:port"
            )
        found.append((parts.scheme, parts.hostname or "0.0.0.0", port))  # noqa: S104 -- as Kafka: no host is all addresses
    return found
