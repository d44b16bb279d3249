"""``cluster.toml``: the cluster, which node of it this one is, and where the nodes are.

    cluster = "6c1f…"                  # id of the cluster, a UUID
    node = 1                           # number of this node
    secret_file = "cluster.secret"     # the same on each node; paths begin at the directory of this file
    profile = "ssd"                    # or "sd": longer timeouts, for SD cards
    rack = ""                          # replicas of a partition are spread over racks; clients in it may read here
    http = "0.0.0.0:8080"              # where the HTTP door listens; without it: at the address of this node's entry below
    kafka = "0.0.0.0:9092"             # the same of the Kafka door; without it there is none
    kafka_advertised = "board1:9092"   # what Kafka's clients are told; without it: ``kafka``
    tls_cert = "node.pem"              # TLS of the doors, and between the nodes; tls_key where it is not in the same file
    tls_ca = "ca.pem"                  # authorities of the nodes' certificates
    scrub_bytes_per_second = 1048576   # how fast sealed segments are read again to find damage; 0: never

    [[nodes]]                          # one for each node, in every node's file the same
    number = 1
    quorum = "board1:7071"             # where its controller listens for other controllers
    controller = "board1:7072"         # the same for brokers
    http = "http://board1:8080"        # where other nodes, and clients, reach its HTTP door

Each node is a voter of the quorum.
"""

import os
import tomllib
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from logdb.disk import read_file
from logdb.io import IO
from logdb.mistakes import one_of
from logdb.store.directories import is_private
from logdb_replication.errors import InvalidClusterConfig

Address: TypeAlias = tuple[str, int]

NODE_COUNTS = (1, 3, 5)
_SECRET_SIZES = range(32, 1025)
_SIZE_BYTES_MAX = 1 << 20
_RACK_SIZE_MAX = 255
RACK_ALLOWED = f"a printable text of at most {_RACK_SIZE_MAX} bytes in UTF-8"
SCRUB_BYTES_PER_SECOND = 1 << 20
_IO = IO()


class Times(NamedTuple):
    """How long things may take on a kind of disk.

    Attributes:
        session_ms: Without a heartbeat, until a broker is fenced.
        heartbeat_ms: Between two heartbeats of a broker.
        election_timeout_ms: Of the quorum: see ``raft.core.QuorumOptions``.
    """

    session_ms: int
    heartbeat_ms: int
    election_timeout_ms: int


PROFILES: Mapping[str, Times] = {"ssd": Times(1_000, 250, 300), "sd": Times(6_000, 1_500, 2_000)}


class NodeAddresses(NamedTuple):
    """Where one node is; ``http``: a URL without a path."""

    number: int
    quorum: Address
    controller: Address
    http: str

    @property
    def http_address(self) -> Address:
        parts = urlsplit(self.http)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The content of a ``cluster.toml``, checked; made by ``load``.

    Attributes:
        secret: The cluster's; authenticates nodes to one another.
        nodes: By their numbers.
        scrub_bytes_per_second: Of ``Store.open``.
        tls_cert, tls_key, tls_ca: Absolute paths; None: no TLS.
    """

    path: str
    cluster: str
    node: int
    secret: bytes = field(repr=False)
    profile: str
    rack: str
    http: Address
    kafka: Address | None
    kafka_advertised: Address | None
    tls_cert: str | None
    tls_key: str | None
    tls_ca: str | None
    scrub_bytes_per_second: int
    nodes: tuple[NodeAddresses, ...]

    @classmethod
    def load(cls, path: str) -> "ClusterConfig":
        """Read and check a ``cluster.toml`` and the secret that it names.

        Raises:
            InvalidClusterConfig: Names the key, its value, and what is allowed.
            ReadFailed: One of the two files cannot be read.
        """
        return _Document(os.path.abspath(path)).config()

    @property
    def times(self) -> Times:
        return PROFILES[self.profile]

    @property
    def own(self) -> NodeAddresses:
        return self.of(self.node)

    def of(self, number: int) -> NodeAddresses:
        """Where a node is; raises KeyError for a number that no node has."""
        for node in self.nodes:
            if node.number == number:
                return node
        raise KeyError(number)

    @property
    def advertised(self) -> dict[str, Address]:
        """Where clients reach the doors of this node, by the names of doors."""
        kafka = self.kafka_advertised or self.kafka
        return {"http": self.own.http_address} | ({"kafka": kafka} if kafka else {})


_KEYS = tuple("secret_file" if one.name == "secret" else one.name for one in fields(ClusterConfig) if one.name != "path")


class _Document:
    """A TOML document: its unknown keys are refused first, so that a mistyped key is named, and not the one that is missing then."""

    def __init__(self, path: str, table: dict[str, Any] | None = None, name: str = "") -> None:
        self._path, self._name = path, name
        self._table = self._read() if table is None else table

    def config(self) -> ClusterConfig:
        self._check_keys(_KEYS)
        nodes = self._nodes()
        node = self._taken("node", _number, "a number of [[nodes]]")
        own = {known.number: known for known in nodes}.get(node)
        if own is None:
            raise self._refused("node", node, f"must be the number of one of [[nodes]]: {one_of(known.number for known in nodes)}")
        config = ClusterConfig(
            path=self._path,
            cluster=self._taken("cluster", lambda given: str(uuid.UUID(given)), "a UUID"),
            node=node,
            secret=self._secret(),
            profile=self._taken("profile", _one_of(PROFILES), " or ".join(map(repr, PROFILES)), "ssd"),
            rack=self._taken("rack", _rack, RACK_ALLOWED, ""),
            http=self._taken("http", parse_address, "HOST:PORT", own.http_address),
            kafka=self._taken("kafka", parse_address, "HOST:PORT", None),
            kafka_advertised=self._taken("kafka_advertised", parse_address, "HOST:PORT", None),
            tls_cert=self._taken("tls_cert", self._file, "the path of a file", None),
            tls_key=self._taken("tls_key", self._file, "the path of a file", None),
            tls_ca=self._taken("tls_ca", self._file, "the path of a file", None),
            scrub_bytes_per_second=self._taken("scrub_bytes_per_second", _count, "a whole number, 0 or more", SCRUB_BYTES_PER_SECOND),
            nodes=nodes,
        )
        self._check_tls(config)
        if config.kafka_advertised and not config.kafka:
            raise self._refused("kafka_advertised", format_address(config.kafka_advertised), "of use only with kafka")
        return config

    def _nodes(self) -> tuple[NodeAddresses, ...]:
        tables = self._taken("nodes", _tables, "a table [[nodes]] for each node")
        nodes = tuple(sorted(_Document(self._path, table, f"nodes[{place}].")._node() for place, table in enumerate(tables)))
        if len(nodes) not in NODE_COUNTS:
            raise self._refused("nodes", len(nodes), f"must be {one_of(NODE_COUNTS)} nodes: an even number adds no safety")
        self._once("nodes.number", [str(node.number) for node in nodes])
        self._once(
            "nodes.address", [format_address(address) for node in nodes for address in (node.quorum, node.controller, node.http_address)]
        )
        return nodes

    def _once(self, key: str, values: list[str]) -> None:
        for value in values:
            if (count := values.count(value)) > 1:
                raise self._refused(key, value, f"must be unique, {count} nodes have it")

    def _node(self) -> NodeAddresses:
        self._check_keys(NodeAddresses._fields)
        return NodeAddresses(
            self._taken("number", _number, "a whole number, 1 or more"),
            self._taken("quorum", parse_address, "HOST:PORT"),
            self._taken("controller", parse_address, "HOST:PORT"),
            self._taken("http", _url, "http://HOST:PORT or https://HOST:PORT"),
        )

    def _check_tls(self, config: ClusterConfig) -> None:
        if (config.tls_cert is None) != (config.tls_ca is None):
            raise self._refused("tls_ca", config.tls_ca, "tls_cert and tls_ca go together: nodes check one another's certificates")
        if config.tls_key is not None and config.tls_cert is None:
            raise self._refused("tls_key", config.tls_key, "of use only with tls_cert")
        scheme = "http" if config.tls_cert is None else "https"
        for node in config.nodes:
            if not node.http.startswith(f"{scheme}://"):
                raise self._refused(
                    "nodes.http", node.http, f"must begin with {scheme}://, because tls_cert is {'not ' if scheme == 'http' else ''}set"
                )

    def _secret(self) -> bytes:
        path = self._taken("secret_file", self._file, "the path of a file", self._file("cluster.secret"))
        try:
            secret = _content(path).strip()
        except FileNotFoundError:
            raise self._refused("secret_file", path, "the file is missing: copy it from another node") from None
        if not is_private(_IO, path):
            raise self._refused("secret_file", path, f"others on this machine may read it: chmod 600 {path}")
        if len(secret) not in _SECRET_SIZES:
            raise self._refused("secret_file", path, f"it has {len(secret)} bytes: must be {_SECRET_SIZES[0]} to {_SECRET_SIZES[-1]}")
        return secret

    # ------------------------------------------------------------ steps

    def _read(self) -> dict[str, Any]:
        try:
            return tomllib.loads(_content(self._path).decode())
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidClusterConfig(self._path, "", None, f"no TOML: {error}") from None
        except FileNotFoundError:
            raise InvalidClusterConfig(self._path, "", None, "the file is missing: 'logdb cluster init' makes one for each node") from None

    def _taken(self, key: str, parse: Callable[[Any], Any], allowed: str, *default: object) -> Any:
        """The value of a key; without a default it has to be there."""
        if key not in self._table and default:
            return default[0]
        value = self._table.get(key)
        try:
            return parse(value)
        except (ValueError, TypeError, AttributeError):
            raise self._refused(key, value, f"must be {allowed}") from None

    def _check_keys(self, known: Collection[str]) -> None:
        for key, value in self._table.items():
            if key not in known:
                raise self._refused(key, value, f"unknown key; known keys: {', '.join(known)}")

    def _refused(self, key: str, value: object, allowed: str) -> InvalidClusterConfig:
        return InvalidClusterConfig(self._path, self._name + key, value, allowed)

    def _file(self, given: str) -> str:
        if not given:
            raise ValueError
        return os.path.join(os.path.dirname(self._path), given)


def parse_address(text: str) -> Address:
    """Host and port of ``host:port``; an IPv6 address is in brackets.  Raises ValueError."""
    host, _, port = text.rpartition(":")
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    wrong = (":" in name and name == host) or "/" in name or not name.isascii() or name.split() != [name]
    if wrong or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return name, int(port)


def format_address(address: Address) -> str:
    """The opposite of ``parse_address``."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None:
        raise ValueError(text)
    parse_address(parts.netloc)
    return f"{parts.scheme}://{parts.netloc}"


def _number(given: Any, least: int = 1) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given < 1 << 31:
        raise ValueError(given)
    return given


_count = partial(_number, least=0)


def is_rack(text: str) -> bool:
    return text.isprintable() and len(text.encode()) <= _RACK_SIZE_MAX


def _rack(given: str) -> str:
    if not is_rack(given):
        raise ValueError(given)
    return given


def _one_of(allowed: Mapping[str, object]) -> Callable[[Any], str]:
    def parse(given: Any) -> str:
        if given not in allowed:
            raise ValueError(given)
        return str(given)

    return parse


def _tables(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        raise TypeError(given)
    return given


def _content(path: str) -> bytes:
    return bytes(read_file(_IO, path, _SIZE_BYTES_MAX, follow_link=True))
