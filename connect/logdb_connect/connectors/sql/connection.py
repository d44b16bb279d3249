"""Connections: URLs of SQLAlchemy and of JDBC, engines, and which errors of a database pass by themselves.

Identifiers are quoted by SQLAlchemy.  Values are parameters.  No text of a record becomes a part of a statement.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least, revealed
from logdb_connect.connectors import limits
from logdb_connect.errors import ConfigError, ConnectError, RetriableError

_log = logging.getLogger(__name__)

DRIVERS = {
    "sqlite": "sqlite+pysqlite",
    "postgresql": "postgresql+psycopg2",
    "postgres": "postgresql+psycopg2",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
"""The driver of each database where the URL names none: those that the extras of logdb install."""
_HINTS = {
    "postgresql": ". The extra 'connect-postgresql' has one: pip install 'psycopg2-binary>=2.9.9'",
    "mysql": ". The extra 'connect-mysql' has one: pip install 'PyMySQL>=1.1'",
    "mariadb": ". The extra 'connect-mysql' has one: pip install 'PyMySQL>=1.1'",
}
DIALECTS = ("sqlite", "postgresql", "mysql", "mariadb")

BUSY_SECONDS = 10.0
"""How long a statement waits for SQLite's lock."""

_JDBC_SETTINGS = {"sslmode": "sslmode", "ApplicationName": "application_name", "connectTimeout": "connect_timeout"}
_PASSING_MYSQL = {
    1040,
    1053,
    1077,
    1078,
    1079,
    1152,
    1158,
    1159,
    1160,
    1161,
    1205,
    1213,
    1290,
    1836,
    1927,
    2002,
    2003,
    2006,
    2013,
    2055,
    4031,
}
_PASSING_SQLITE = {5, 6, 10, 13, 14}  # busy, locked, I/O error, full, cannot open
_READ_ONLY_POSTGRESQL = "25006"  # a standby, while another server takes over

CONNECTION = ConfigDef(
    ConfigKey(
        "connection.url",
        "STRING",
        REQUIRED,
        "URL of the database, as SQLAlchemy or JDBC writes it: `postgresql://host/shop`, `jdbc:postgresql://host/shop`.",
        "HIGH",
        group="Connection",
    ),
    ConfigKey("connection.user", "STRING", None, "User of the database; takes precedence over the URL's.", "HIGH", group="Connection"),
    ConfigKey("connection.password", "PASSWORD", None, "Password of the user.", "HIGH", group="Connection"),
    ConfigKey("connection.attempts", "INT", 3, "Attempts to connect when a task starts.", "LOW", at_least(1), group="Connection"),
    ConfigKey("connection.backoff.ms", "LONG", 10_000, "Pause between two attempts.", "LOW", at_least(1), group="Connection"),
    ConfigKey(
        "quote.sql.identifiers",
        "STRING",
        "always",
        "`always` keeps the case of names. `never` makes them lower case on PostgreSQL, as unquoted names are there.",
        values=("always", "never"),
        group="Connection",
    ),
    ConfigKey("db.timezone", "STRING", "UTC", "Time zone of columns whose type has none, such as `Europe/Zurich`.", group="Connection"),
)


def url_fault(config: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with ``connection.url``, for a validation."""
    try:
        url_of(config)
    except ConfigError as error:
        return {error.name: str(error)}
    return {}


def url_of(config: Mapping[str, Any]) -> URL:
    """The URL of ``connection.url``, ``connection.user`` and ``connection.password``.

    Raises:
        ConfigError: It is none, or of a database that is not supported.
    """
    text = config["connection.url"]
    try:
        url = _of_jdbc(text[len("jdbc:") :]) if text.startswith("jdbc:") else make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError("connection.url", "Invalid value for configuration connection.url: it is no URL of a database.") from None
    if url.drivername.partition("+")[0] not in (*DIALECTS, "postgres"):
        allowed = ", ".join(DIALECTS)
        raise ConfigError(
            "connection.url", f"Invalid value for configuration connection.url: {url.drivername} is not supported; use {allowed}"
        )
    url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
    if (user := config.get("connection.user")) is not None:
        url = url.set(username=user)
    if (password := config.get("connection.password")) is not None:
        url = url.set(password=revealed(password))
    return url


def _of_jdbc(rest: str) -> URL:
    """A JDBC URL without ``jdbc:``; the port of MySQL's ``loadbalance:`` and the like is not understood."""
    name, _, where = rest.partition(":")
    if name == "sqlite":
        return URL.create("sqlite", database=where.partition("?")[0].removeprefix("file:") or None)
    parts = urlsplit(where)
    settings = dict(parse_qsl(parts.query))
    known: dict[str, Any] = {
        _JDBC_SETTINGS[key]: value for key, value in settings.items() if key in _JDBC_SETTINGS and name == "postgresql"
    }
    if (schema := settings.get("currentSchema")) is not None:
        known["options"] = f"-csearch_path={schema}"
    for key in sorted(set(settings) - set(_JDBC_SETTINGS) - {"user", "password", "currentSchema"}):
        _log.warning("The setting %s of the JDBC URL is ignored", key)
    return URL.create(
        name,
        username=settings.get("user"),
        password=settings.get("password"),
        host=parts.hostname,
        port=parts.port,
        database=unquote(parts.path.lstrip("/")) or None,
        query=known,
    )


def engine_of(config: Mapping[str, Any], *, writes: bool) -> Engine:
    """An engine; it connects at the first use, and again after the database went away.

    Args:
        writes: Transactions take SQLite's write lock at their begin, so that none waits for a lock that it cannot get.

    Raises:
        ConfigError: The URL is wrong.
        ConnectError: A package is missing, or the file of an SQLite database that is to be read.
    """
    url = url_of(config)
    _check_limits(url)
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        if not writes and url.database not in {None, "", ":memory:"} and not Path(str(url.database)).exists():
            raise ConnectError(f"There is no SQLite database {url.database}")
        arguments = {"check_same_thread": False, "timeout": BUSY_SECONDS}
    elif url.get_backend_name() in {"mysql", "mariadb"}:
        arguments = {"init_command": "SET time_zone = '+00:00'"}
    try:
        more = {"executemany_mode": "values_plus_batch"} if url.get_driver_name() == "psycopg2" else {}
        engine = sqlalchemy.create_engine(url, pool_pre_ping=True, connect_args=arguments, **more)
    except (ImportError, NoSuchModuleError) as error:
        raise ConnectError(f"{url.get_backend_name()} needs a driver: {error}{_HINTS.get(url.get_backend_name(), '')}") from error
    if engine.dialect.name == "postgresql":
        _time_zone(engine, config.get("db.timezone", "UTC"))
    if engine.dialect.name == "sqlite":
        _own_transactions(engine, "BEGIN IMMEDIATE" if writes else "BEGIN")
    return engine


def _check_limits(url: URL) -> None:
    """Raises ``ConnectError`` where the worker does not allow the file or the host."""
    if url.get_backend_name() == "sqlite":
        if url.database not in {None, "", ":memory:"}:
            limits.check_path(unquote(str(url.database).removeprefix("file:")))
        return
    more = [url.query[key] for key in ("host", "hostaddr", "service", "unix_socket") if key in url.query]  # drivers take them, too
    named = [url.host or "localhost", *(name for each in more for name in ([each] if isinstance(each, str) else each))]
    for host in (name for each in named for name in each.split(",")):
        if host.startswith("/"):
            limits.check_path(host)
        else:
            limits.check_host(host.rpartition(":")[0] if host.count(":") == 1 else host)


def _time_zone(engine: Engine, zone: str) -> None:
    """PostgreSQL converts between its two kinds of timestamps by the zone of the session."""

    @event.listens_for(engine, "connect")
    def _(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('TimeZone', %s, false)", [zone])
        connection.commit()


def _own_transactions(engine: Engine, begin: str) -> None:
    """Python's sqlite3 begins a transaction only before it changes something: here each one begins at its begin."""

    @event.listens_for(engine, "connect")
    def _(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql(begin)


def passes(error: DBAPIError) -> bool:
    """Whether the error may be gone at the next attempt: the database is away, full or busy, or a deadlock was resolved."""
    cause = error.orig
    if error.connection_invalidated:
        return True
    if (code := getattr(cause, "sqlite_errorcode", None)) is not None:
        return code & 0xFF in _PASSING_SQLITE
    if type(cause).__module__.startswith("pymysql"):
        number = cause.args[0] if cause is not None and cause.args else None
        return number in _PASSING_MYSQL or type(cause).__name__ == "InterfaceError"
    return isinstance(error, sqlalchemy.exc.OperationalError | sqlalchemy.exc.InterfaceError) or (
        getattr(cause, "pgcode", None) == _READ_ONLY_POSTGRESQL
    )


def reason(error: BaseException) -> str:
    """The database's own message, on one line, without statement and parameters."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(cause).split()) or type(cause).__name__


@contextmanager
def retriable(url: URL) -> Iterator[None]:
    """Makes a ``RetriableError`` of an error that passes; hands on any other."""
    try:
        yield
    except DBAPIError as error:
        if passes(error):
            raise RetriableError(f"The database {url.render_as_string()} cannot be used now: {reason(error)}. Retry is safe.") from error
        raise
    except sqlalchemy.exc.TimeoutError as error:
        raise RetriableError(f"The database {url.render_as_string()} has no free connection. Retry is safe.") from error
