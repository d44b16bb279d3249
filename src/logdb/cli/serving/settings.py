"""The settings of a server: a flag outweighs a variable, that the file, and that the default.

Both kinds of files are read: ``logdb.toml``, and Kafka's ``server.properties``.
"""

import contextlib
import os
import re
import tomllib
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import click

from logdb.access.certificates import PRINCIPAL_RULES
from logdb.cli.terminal import properties
from logdb.cli.terminal.client_security import PROTOCOLS
from logdb.cli.terminal.units import MILLISECONDS, SIZE, parse_duration, parse_size
from logdb.errors import InvalidConfig
from logdb.model import DURABILITY_LEVELS, check_config, plain_config

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
    "http": Setting("address of the HTTP listener, HOST:PORT; port 0 takes a free one  [default without --kafka: 127.0.0.1:8080]", str),
    "kafka": Setting("address of the Kafka listener, HOST:PORT; port 0 takes a free one", str, "listeners"),
    "kafka_advertised": Setting(
        "address that Kafka clients connect to after the first answer  [default: the one that they have reached]",
        str,
        "advertised.listeners",
    ),
    "auto_create_topics": Setting("create a topic when a Kafka client names an unknown one", bool, "auto.create.topics.enable"),
    "num_partitions": Setting("partitions of a topic that a Kafka client creates without a number  [default: 1]", int, "num.partitions"),
    "rack": Setting("rack of the broker, for Kafka clients; a node of a cluster has it from its cluster.toml", str, "broker.rack"),
    "insecure": Setting(
        "listen on other addresses than loopback without TLS and authentication: anybody who reaches them reads and deletes everything",
        bool,
    ),
    "tls_cert": Setting("certificate of the server with its chain, a PEM file; turns TLS on; SIGHUP reads it again", str),
    "tls_key": Setting("key of the certificate, a PEM file  [default: the file of the certificate]", str),
    "tls_client_ca": Setting("authorities that issue certificates of clients, a PEM file; turns authentication on", str),
    "tls_principal": Setting(
        "principal of a client's certificate: its common name (cn) or its whole subject (dn)  [default: cn]", str, "", PRINCIPAL_RULES
    ),
    "authentication": Setting("refuse clients without credentials; on by itself once the database has users, tokens or ACLs", bool),
    "super_users": Setting("principals with all rights: User:NAME;User:NAME", str, "super.users"),
    "durability": Setting(
        "durability level of topics that set none: os, interval or fsync  [default: interval]", str, "", DURABILITY_LEVELS
    ),
    "linger_ms": Setting("longest time that a record waits in memory for others before it is written  [default: 5]", int),
    "retention_check_interval_ms": Setting(
        "shortest time between two checks for old records  [default: 300000]", int, "log.retention.check.interval.ms"
    ),
    "cleaner_bytes_per_second": Setting(
        "most bytes a second that compaction reads and writes in the background  [default: 33554432]",
        int,
        "log.cleaner.io.max.bytes.per.second",
    ),
    "drain_ms": Setting("longest time that a shutdown waits for running requests  [default: 10000]", int),
    "connect_url": Setting("REST API of a Connect worker, http://HOST:PORT: the page shows its connectors", str),
    "connect_credentials": Setting("file with USER:PASSWORD, a user of that worker's rest.users.file", str),
    "connect_ca": Setting("authorities that issue that worker's certificate, a PEM file  [default: the system's]", str),
    "access_log": Setting("write a line of JSON for each request to stderr", bool),
    "body_bytes_max": Setting("largest body of a request  [default: 67108864; Kafka listener: 104857600]", int, "socket.request.max.bytes"),
    "call_bytes_max": Setting("largest JSON body without records  [default: 1048576]", int),
    "fetch_bytes_max": Setting("most bytes of records in an answer to a Kafka client  [default: 16777216]", int, "fetch.max.bytes"),
    "session_timeout_ms_min": Setting(
        "shortest session timeout of a Kafka client in a group  [default: 6000]", int, "group.min.session.timeout.ms"
    ),
    "session_timeout_ms_max": Setting(
        "longest session timeout of a Kafka client in a group  [default: 1800000]", int, "group.max.session.timeout.ms"
    ),
    "json_bytes_max": Setting("largest JSON body with records  [default: 8388608]", int),
    "memory_bytes_max": Setting("most memory of all requests and answers together  [default: 268435456]", int, "queued.max.request.bytes"),
    "connections_max": Setting("most connections  [default: 10000]", int, "max.connections"),
    "connections_per_address_max": Setting(
        "most connections of one IPv4 address or IPv6 /64  [default: a quarter of connections_max]", int, "max.connections.per.ip"
    ),
    "requests_max": Setting("most requests in progress  [default: 1024]", int, "queued.max.requests"),
    "header_timeout_ms": Setting("longest time for the headers of a request, the first byte, or a TLS handshake  [default: 10000]", int),
    "body_timeout_ms": Setting("longest time for 64 KiB of a body to arrive  [default: 30000]", int),
    "write_timeout_ms": Setting("longest time for a client to take 256 KiB of an answer  [default: 30000]", int),
    "keep_alive_ms": Setting(
        "longest time that a connection may be idle  [default: 75000; Kafka listener: 600000]", int, "connections.max.idle.ms"
    ),
    "wait_ms_max": Setting("longest time that a request may wait for records  [default: 300000]", int),
    "partitions_per_request_max": Setting("most partitions that one request may add  [default: 1000]", int),
    "partitions_per_principal_max": Setting(
        "most partitions that one principal may create; super users have no such limit  [default: 5000]", int
    ),
    "partitions_max": Setting("most partitions of the database: at this number the server creates no more  [default: 20000]", int),
    "read_bytes_max": Setting("most bytes of keys and values in a JSON answer  [default: 16777216]", int),
    "instances_max": Setting("most consumer instances of REST v2  [default: 2000]", int),
    "instances_per_principal_max": Setting("most consumer instances of one principal  [default: 500]", int),
    "instance_idle_ms": Setting("longest time that a consumer instance may be idle  [default: 300000]", int),
    "uploads_bytes_max": Setting("most bytes of uploads: batches that Spark's tasks have staged  [default: 17179869184]", int),
    "uploads_per_principal_bytes_max": Setting("most bytes of uploads of one principal  [default: 8589934592]", int),
    "upload_idle_ms": Setting("longest time that an upload is kept without use  [default: 86400000]", int),
}

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


KAFKA_PORT = 9092
_LISTENER = re.compile(r"([\w.-]+)://((?:\[[0-9a-fA-F:.]+\]|[\w.-]*):(\d{1,5}))", re.ASCII)
_PROTOCOL_MAP, _CONTROLLERS = "listener.security.protocol.map", "controller.listener.names"


class Listener(NamedTuple):
    """The listener of clients in Kafka's file, with its security protocol; ``where``: file, key and value, for errors."""

    name: str
    protocol: str
    where: str

    def check(self, *, tls: bool, authentication: bool) -> None:
        """See that a server has what the listener asks for.

        Raises:
            click.UsageError: It lacks TLS or authentication.
        """
        asked = f"{self.where}: {self.name} has the protocol {self.protocol}"
        if self.protocol.endswith("SSL") and not tls:
            raise click.UsageError(f"{asked}, which needs TLS: give --tls-cert FILE, or set {variable_of('tls_cert')}; no keystore is read")
        if self.protocol.startswith("SASL") and not authentication:
            ways = "it is on once there is a user (logdb users add NAME --super-user), or by --authentication"
            raise click.UsageError(f"{asked}, which needs authentication: {ways}")


class File(NamedTuple):
    """The settings of a file; of Kafka's also its listener, and ``ignored``: keys without a meaning here."""

    settings: Mapping[str, Any]
    topic_config: Mapping[str, object]
    ignored: tuple[str, ...] = ()
    listener: Listener | None = None


def read_file(path: str, overrides: Mapping[str, str] = {}, *, of_kafka: bool = False) -> File:
    """Read ``logdb.toml``, or Kafka's ``server.properties`` (by its ending).

    Args:
        overrides: Keys of Kafka's file with their values.
        of_kafka: It is Kafka's, whatever its name.

    Raises:
        click.UsageError: It cannot be read, or has an invalid value; the error names the key.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
        if of_kafka or path.endswith(".properties"):
            return _properties(path, properties.trimmed({**properties.parse(content.decode()), **overrides}))
        if overrides:
            raise click.UsageError(f"{path}: --override goes with Kafka's server.properties")
        return _toml(path, tomllib.loads(content.decode()))
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"{path}: {_read_as_toml(path)}{error}") from None
    except ValueError as error:
        raise click.UsageError(f"{path}: {error}") from None


def _read_as_toml(path: str) -> str:
    """Why a file is read as TOML, for an error; empty if its name says so."""
    return "" if path.endswith(".toml") else "read as TOML, because its name does not end in .properties: "


def _toml(path: str, document: dict[str, Any]) -> File:
    topic = document.pop(TOPIC_TABLE, {})
    if not isinstance(topic, dict):
        raise click.UsageError(f"{path}: {TOPIC_TABLE} has to be a table of topic configs")
    unknown = document.keys() - SETTINGS.keys()
    if unknown:
        allowed = f"{', '.join(SETTINGS)}, and the table [{TOPIC_TABLE}]"
        raise click.UsageError(f"{path}: {_read_as_toml(path)}unknown key {min(unknown)!r}; known keys: {allowed}")
    return File({name: _parse(path, name, name, value) for name, value in document.items()}, _check_topic(path, topic))


def _properties(path: str, pairs: dict[str, str]) -> File:
    listener = _take_listeners(path, pairs)
    settings: dict[str, Any] = {}
    for key in ("log.dir", "log.dirs"):  # the second one outweighs the first one
        if directory := pairs.pop(key, ""):
            if "," in directory:
                raise click.UsageError(f"{path}: {key}={directory!r}: a database has one directory")
            settings["data_dir"] = directory
    named = {setting.property_name: name for name, setting in SETTINGS.items() if setting.property_name}
    for key in named.keys() & pairs.keys():
        value = pairs.pop(key)
        if SETTINGS[named[key]].kind is bool and value.lower() not in ("true", "false"):
            raise click.UsageError(f"{path}: {key}={value!r}: must be true or false")
        settings[named[key]] = _parse(path, key, named[key], value)
    topic: dict[str, object] = {}
    for key, (name, factor) in _TOPIC_PROPERTIES.items():
        if key in pairs:
            value = pairs.pop(key)
            topic.setdefault(name, int(value) * factor if factor > 1 and value.isdecimal() and value.isascii() else value)
    return File(settings, _check_topic(path, topic), tuple(sorted(pairs)), listener)


def _take_listeners(path: str, pairs: dict[str, str]) -> Listener | None:
    """Replace Kafka's listeners by the address of the one that clients use; returns what it asks for."""
    protocols = _protocols(path, pairs.pop(_PROTOCOL_MAP, ""))
    controllers = {"CONTROLLER", *pairs.pop(_CONTROLLERS, "").upper().replace(" ", "").split(",")}
    _, advertised = _listener_of_clients(path, pairs, "advertised.listeners", controllers)
    if advertised:
        pairs["advertised.listeners"] = _listening(advertised, "")
    else:
        pairs.pop("advertised.listeners", None)
    if "listeners" not in pairs:
        return None
    text = pairs["listeners"]
    name, address = _listener_of_clients(path, pairs, "listeners", controllers)
    if not address:
        raise click.UsageError(f"{path}: listeners={text!r}: must be a listener for clients, such as PLAINTEXT://127.0.0.1:{KAFKA_PORT}")
    if name not in protocols:
        allowed = ", ".join(f"{name}:{known}" for known in PROTOCOLS)
        raise click.UsageError(f"{path}: listeners={text!r}: {_PROTOCOL_MAP} has no protocol for {name}; use one of {allowed}")
    pairs["listeners"] = _listening(address, advertised)
    return Listener(name, protocols[name], f"{path}: listeners={text!r}")


def _protocols(path: str, text: str) -> Mapping[str, str]:
    """The security protocols of Kafka's listeners by their names; that of ``SSL`` is SSL, if the text says nothing else."""
    found = {protocol: protocol for protocol in PROTOCOLS}
    for one in filter(None, map(str.strip, text.split(","))):
        name, _, protocol = one.upper().partition(":")
        if protocol not in PROTOCOLS:
            allowed = ", ".join(f"NAME:{known}" for known in PROTOCOLS)
            raise click.UsageError(f"{path}: {_PROTOCOL_MAP}={text!r}: must be one of {allowed}")
        found[name] = protocol
    return found


def _listener_of_clients(path: str, pairs: Mapping[str, str], key: str, controllers: Container[str]) -> tuple[str, str]:
    """Name and ``HOST:PORT`` of the only listener that clients use; both empty: there is none."""
    text, found = pairs.get(key, ""), []
    for one in filter(None, map(str.strip, text.split(","))):
        listener = _parsed_listener(one)
        if listener is None:
            name, _, address = one.rpartition("://")
            meant = f"{name or 'PLAINTEXT'}://{address}" + ("" if ":" in address else f":{KAFKA_PORT}")
            hint = "" if _parsed_listener(meant) is None else f"; {meant} is one"
            raise click.UsageError(f"{path}: {key}={text!r}: must be NAME://HOST:PORT{hint}")
        if listener[0] not in controllers:
            found.append(listener)
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise click.UsageError(f"{path}: {key}={text!r}: must be one listener for clients, not {names}")
    return found[0] if found else ("", "")


def _parsed_listener(text: str) -> tuple[str, str] | None:
    """Name and ``HOST:PORT`` of one of Kafka's listeners; None: it is none."""
    found = _LISTENER.fullmatch(text)
    return None if found is None or int(found[3]) > 65535 else (found[1].upper(), found[2])


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
        raise click.UsageError(f"{where}: {key}={value!r}: must be {error}") from None


def _check_topic(where: str, config: Mapping[str, object]) -> Mapping[str, object]:
    try:
        return check_config({key: plain_config(key, value) if isinstance(value, str) else value for key, value in config.items()})
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
