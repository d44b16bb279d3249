"""The settings of a server: a flag outweighs a variable, that the file, and that the default.

Both kinds of files are read: ``logdb.toml``, and Kafka's ``server.properties``.
"""

import contextlib
import os
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from logdb.access.certificates import PRINCIPAL_RULES
from logdb.cli import properties
from logdb.cli.units import MILLISECONDS, SIZE, parse_duration, parse_size
from logdb.errors import InvalidConfig
from logdb.model import DURABILITY_LEVELS, check_config

CONFIG_VARIABLE, CONFIG_NAME = "LOGDB_CONFIG", "logdb.toml"
TOPIC_VARIABLE = "LOGDB_TOPIC_CONFIG"
TOPIC_TABLE = "topic"

_ADDRESSES = ("http", "kafka", "kafka_advertised")
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class Setting(NamedTuple):
    """One setting; ``property_name``: its key in Kafka's file, if it has one."""

    meaning: str
    kind: type[str] | type[int] | type[bool]
    property_name: str = ""
    allowed: tuple[str, ...] = ()

    def parse(self, text: object, name: str) -> Any:
        """Parse a value of a file or a variable; raises ValueError."""
        if self.kind is bool:
            word = str(text).lower()
            if word not in _TRUE + _FALSE:
                raise ValueError("true or false")
            return word in _TRUE
        if self.kind is int:
            if isinstance(text, bool) or not isinstance(text, int | str):
                raise ValueError("a whole number")
            return _number(str(text), name)
        if not isinstance(text, str) or (self.allowed and text not in self.allowed):
            raise ValueError(" or ".join(self.allowed) or "a text")
        return text


def _number(text: str, name: str) -> int:
    """Parse a number; a time or a size may have a unit.  Raises ValueError."""
    if text.isascii() and text.isdigit():
        return int(text)
    if _is_time(name):
        with contextlib.suppress(ValueError):
            return parse_duration(text)
        raise ValueError("a whole number of milliseconds, or a time like 10s")
    if _is_size(name):
        with contextlib.suppress(ValueError):
            return parse_size(text)
        raise ValueError("a whole number of bytes, or a size like 64MiB")
    raise ValueError("a whole number")


def _is_time(name: str) -> bool:
    return "ms" in name.split("_")


def _is_size(name: str) -> bool:
    return "bytes" in name.split("_")


SETTINGS = {
    "data_dir": Setting("directory of the database", str),
    "http": Setting("address of the HTTP door, HOST:PORT; port 0: any that is free  [default without --kafka: 127.0.0.1:8080]", str),
    "kafka": Setting("address of the Kafka door, HOST:PORT; port 0: any that is free", str, "listeners"),
    "kafka_advertised": Setting(
        "address that Kafka clients are told to connect to  [default: the one that they have reached]", str, "advertised.listeners"
    ),
    "auto_create_topics": Setting("Kafka clients that name an unknown topic create it", bool, "auto.create.topics.enable"),
    "num_partitions": Setting("partitions of topics that Kafka clients create without a number  [default: 1]", int, "num.partitions"),
    "insecure": Setting("serve addresses other than loopback without TLS and authentication", bool),
    "tls_cert": Setting("the server's certificate with its chain: a PEM file, read again on SIGHUP", str),
    "tls_key": Setting("its key: a PEM file  [default: it is in the certificate's]", str),
    "tls_client_ca": Setting("authorities of clients' certificates: a PEM file; authentication is on", str),
    "tls_principal": Setting("principal of a certificate: common name, or whole subject  [default: cn]", str, "", PRINCIPAL_RULES),
    "authentication": Setting("clients need credentials", bool),
    "super_users": Setting("principals without restrictions: User:NAME;User:NAME", str, "super.users"),
    "durability": Setting("what an acknowledged record survives, by default  [default: interval]", str, "", DURABILITY_LEVELS),
    "linger_ms": Setting("how long a record waits in memory for others", int),
    "retention_check_interval_ms": Setting("time between retention checks  [default: 300000]", int, "log.retention.check.interval.ms"),
    "cleaner_bytes_per_second": Setting("limit of compaction's reads and writes", int, "log.cleaner.io.max.bytes.per.second"),
    "drain_ms": Setting("how long a shutdown waits for running requests  [default: 10000]", int),
    "access_log": Setting("write a line of JSON for each request to stderr", bool),
    "body_bytes_max": Setting(
        "the largest body of a request  [default: 67108864, of the Kafka door 104857600]", int, "socket.request.max.bytes"
    ),
    "call_bytes_max": Setting("the largest body without records  [default: 1048576]", int),
    "fetch_bytes_max": Setting("records of an answer to a Kafka client  [default: 16777216]", int, "fetch.max.bytes"),
    "session_timeout_ms_min": Setting(
        "the shortest session of a Kafka client in a group  [default: 6000]", int, "group.min.session.timeout.ms"
    ),
    "session_timeout_ms_max": Setting("the longest one  [default: 1800000]", int, "group.max.session.timeout.ms"),
    "json_bytes_max": Setting("the largest JSON body of records  [default: 8388608]", int),
    "memory_bytes_max": Setting("memory of all bodies and answers together  [default: 268435456]", int, "queued.max.request.bytes"),
    "connections_max": Setting("connections  [default: 10000]", int, "max.connections"),
    "connections_per_address_max": Setting("connections per address, or IPv6 /64  [default: a quarter]", int, "max.connections.per.ip"),
    "requests_max": Setting("requests in progress  [default: 1024]", int, "queued.max.requests"),
    "header_timeout_ms": Setting("how long the headers of a request, the first byte, or a TLS handshake may take  [default: 10000]", int),
    "body_timeout_ms": Setting("how long 64 KiB of a body may take to arrive  [default: 30000]", int),
    "write_timeout_ms": Setting("how long 256 KiB of an answer may take to be sent  [default: 30000]", int),
    "keep_alive_ms": Setting(
        "how long a connection may be idle  [default: 75000, of the Kafka door 600000]", int, "connections.max.idle.ms"
    ),
    "wait_ms_max": Setting("how long a request may wait for records  [default: 300000]", int),
    "partitions_per_request_max": Setting("partitions that one request may add  [default: 1000]", int),
    "partitions_per_principal_max": Setting("partitions that one principal may create, except super users  [default: 5000]", int),
    "partitions_max": Setting("partitions above which the server creates none  [default: 20000]", int),
    "read_bytes_max": Setting("keys and values of a JSON answer  [default: 16777216]", int),
    "instances_max": Setting("consumer instances of REST v2  [default: 2000]", int),
    "instances_per_principal_max": Setting("consumer instances of one principal  [default: 500]", int),
    "instance_idle_ms": Setting("how long one may be idle  [default: 300000]", int),
}  # fmt: skip

# Kafka's broker defaults for topics -> the topic config.  A larger unit counts if the smaller one is not set.
_TOPIC_PROPERTIES = {
    "log.retention.ms": ("retention.ms", 1),
    "log.retention.minutes": ("retention.ms", 60_000),
    "log.retention.hours": ("retention.ms", 3_600_000),
    "log.retention.bytes": ("retention.bytes", 1),
    "log.segment.bytes": ("segment.bytes", 1),
    "log.roll.ms": ("segment.ms", 1),
    "log.roll.hours": ("segment.ms", 3_600_000),
    "log.flush.interval.ms": ("flush.ms", 1),
    "log.index.interval.bytes": ("index.interval.bytes", 1),
    "log.cleanup.policy": ("cleanup.policy", 0),
    "log.message.timestamp.type": ("message.timestamp.type", 0),
    "message.max.bytes": ("max.message.bytes", 1),
    "compression.type": ("compression.type", 0),
}


class File(NamedTuple):
    """The settings of a file; ``ignored``: keys of Kafka without a meaning here."""

    settings: Mapping[str, Any]
    topic_config: Mapping[str, object]
    ignored: tuple[str, ...] = ()


def read_file(path: str, overrides: Mapping[str, str] = {}) -> File:
    """Read ``logdb.toml``, or Kafka's ``server.properties`` (by its ending).

    Args:
        overrides: Keys of Kafka's file with their values.

    Raises:
        click.UsageError: It cannot be read, or has an invalid value; the error names the key.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
        if path.endswith(".properties"):
            return _properties(path, properties.trimmed({**properties.parse(content.decode()), **overrides}))
        if overrides:
            raise click.UsageError(f"{path}: --override goes with Kafka's server.properties")
        return _toml(path, tomllib.loads(content.decode()))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"{path}: {error}") from None


def _toml(path: str, document: dict[str, Any]) -> File:
    topic = document.pop(TOPIC_TABLE, {})
    if not isinstance(topic, dict):
        raise click.UsageError(f"{path}: {TOPIC_TABLE} has to be a table of topic configs")
    unknown = document.keys() - SETTINGS.keys()
    if unknown:
        raise click.UsageError(f"{path}: unknown key {min(unknown)!r}; allowed are {', '.join(SETTINGS)}, and the table [{TOPIC_TABLE}]")
    return File({name: _parse(path, name, name, value) for name, value in document.items()}, _check_topic(path, topic))


def _properties(path: str, pairs: dict[str, str]) -> File:
    advertised = _address_of_clients(pairs.get("advertised.listeners", ""))
    if advertised:
        pairs["advertised.listeners"] = _listening(advertised, "")
    if "listeners" in pairs:
        pairs["listeners"] = _listening(_address_of_clients(pairs["listeners"]), advertised)
    settings: dict[str, Any] = {}
    if "log.dirs" in pairs or "log.dir" in pairs:
        settings["data_dir"] = (pairs.pop("log.dirs", "") or pairs.pop("log.dir", "")).split(",")[0]
    named = {setting.property_name: name for name, setting in SETTINGS.items() if setting.property_name}
    for key in named.keys() & pairs.keys():
        settings[named[key]] = _parse(path, key, named[key], pairs.pop(key))
    topic: dict[str, object] = {}
    for key, (name, factor) in _TOPIC_PROPERTIES.items():
        if key in pairs:
            value = pairs.pop(key)
            topic.setdefault(name, int(value) * factor if factor > 1 and value.isdecimal() and value.isascii() else value)
    return File(settings, _check_topic(path, topic), tuple(sorted(pairs)))


def _address_of_clients(listeners: str) -> str:
    """``HOST:PORT`` of the first of Kafka's listeners that clients use."""
    named = dict(listener.strip().rpartition("://")[::2] for listener in listeners.split(","))
    return next((address for name, address in named.items() if name != "CONTROLLER"), listeners)


def _listening(address: str, advertised: str) -> str:
    """Where to listen: at all addresses if the listener has no host, but at loopback if clients are told to come there."""
    if not address.startswith(":"):
        return address
    from logdb.serving.server import is_loopback  # help and completion need nothing of the extra

    host = advertised.rpartition(":")[0]
    return f"{host}{address}" if host and is_loopback(host) else f"0.0.0.0{address}"  # noqa: S104 -- refused unless it is secure


def read_variables(environment: Mapping[str, str]) -> File:
    """The settings of ``LOGDB_*`` variables."""
    settings = {}
    for name in SETTINGS:
        variable = variable_of(name)
        if environment.get(variable):
            settings[name] = _parse("the environment", variable, name, environment[variable])
    return File(settings, _check_topic(TOPIC_VARIABLE, pairs_of(environment.get(TOPIC_VARIABLE, ""))))


def pairs_of(text: str) -> dict[str, object]:
    """``key=value,key=value``."""
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in text.split(",") if part.strip())}


def variable_of(name: str) -> str:
    return f"LOGDB_{name.upper()}"


def _parse(where: str, key: str, name: str, value: object) -> Any:
    try:
        return SETTINGS[name].parse(value, name)
    except ValueError as error:
        raise click.UsageError(f"{where}: {key}={value!r}: allowed is {error}") from None


def _check_topic(where: str, config: Mapping[str, object]) -> Mapping[str, object]:
    try:
        return check_config(config)
    except InvalidConfig as error:
        raise click.UsageError(f"{where}: {error}") from None


def find_file(given: str | None, environment: Mapping[str, str]) -> str | None:
    """The file to read: the named one, otherwise ``logdb.toml`` in the current directory, if it exists."""
    named = given or environment.get(CONFIG_VARIABLE)
    return named or (CONFIG_NAME if os.path.exists(CONFIG_NAME) else None)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each setting to a command; settings that are not given are None."""
    for name, setting in reversed(SETTINGS.items()):
        if name == "data_dir":
            continue
        flag, meaning = f"--{name.replace('_', '-')}", f"{setting.meaning[0].upper()}{setting.meaning[1:]}  [env: {variable_of(name)}]"
        if setting.kind is bool:
            function = click.option(flag, name, is_flag=True, default=None, help=meaning)(function)
        elif setting.kind is int:
            number = MILLISECONDS if _is_time(name) else SIZE if _is_size(name) else click.IntRange(0)
            function = click.option(flag, name, type=number, metavar="N", help=meaning)(function)
        else:
            kind = click.Choice(setting.allowed) if setting.allowed else str
            function = click.option(
                flag, name, type=kind, metavar=None if setting.allowed else "HOST:PORT" if name in _ADDRESSES else "TEXT", help=meaning
            )(function)
    return function
