"""Records to an HTTP API: webhooks.  The names of properties are those of Confluent's HTTP sink.

At least once: a request whose answer did not come is sent again.  Redirects are not followed.  An answer 4xx means that the records
are bad: they are reported.  After 408, 429, 5xx or a failed connection the request is repeated.
"""

import base64
import http.client
import itertools
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from logdb import TopicPartition
from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, at_least, revealed
from logdb_connect.connectors import limits
from logdb_connect.connectors.java_text import java_text
from logdb_connect.converters.json import JsonConverter
from logdb_connect.data import SinkRecord
from logdb_connect.errors import ConfigError, ConnectError, DataError, RetriableError
from logdb_connect.plugin import Properties, SinkConnector, SinkTask

_ANSWER_MAX = 65_536
_BACKOFF_MAX_S = 60.0
_CODES = re.compile(r"([1-5]\d\d)(?:(-)([1-5]\d\d)?)?")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHODS = ("POST", "PUT", "PATCH")


class _Answer(NamedTuple):
    status: int
    text: str


class _Request(NamedTuple):
    """What one or several records become."""

    method: str
    target: str
    body: bytes
    records: Sequence[SinkRecord]


class _Api:
    """The server, by one connection that is kept."""

    def __init__(self, url: SplitResult, connect_s: float, request_s: float, cafile: str | None) -> None:
        assert url.hostname is not None
        self._host, self._port = url.hostname, url.port or (443 if url.scheme == "https" else 80)
        self._connect_s, self._request_s = connect_s, request_s
        self._tls = ssl.create_default_context(cafile=cafile) if url.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def call(self, request: _Request, headers: Mapping[str, str]) -> _Answer:
        """Send a request.

        Raises:
            OSError: No answer came.
        """
        try:
            connection = self._connection or self._connect()
            connection.request(request.method, request.target, request.body, dict(headers))
            response = connection.getresponse()
            text = self._read(response)
            if not response.isclosed():
                self.close()
            return _Answer(response.status, text.decode(errors="replace"))
        except http.client.HTTPException as error:
            self.close()
            raise OSError(f"{type(error).__name__}: {error}") from error
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        end, found = time.monotonic() + self._request_s, b""
        while len(found) < _ANSWER_MAX and time.monotonic() < end:
            more = response.read1(_ANSWER_MAX)
            if not more:
                response.read()  # now it knows that it is at its end
                break
            found += more
        return found

    def _connect(self) -> http.client.HTTPConnection:
        """Connect to an address that the limits allow: the name is not looked up again."""
        failed: OSError = OSError(f"{self._host} has no address")
        for address in limits.addresses(self._host, self._port):
            try:
                opened = socket.create_connection((address, self._port), self._connect_s)
                opened.settimeout(self._request_s)
                connection = http.client.HTTPConnection(self._host, self._port)
                connection.sock = self._tls.wrap_socket(opened, server_hostname=self._host) if self._tls else opened
            except OSError as error:
                failed = error
            else:
                self._connection = connection
                return connection
        raise failed


class HttpSinkTask(SinkTask):
    """Sends records.

    State:
        _sent: Behind the last record of each partition that was sent or reported: a repeated ``put`` goes on there.
        _attempts: How often the present request has failed.
    """

    def start(self, properties: Properties) -> None:
        self._config = config = HttpSinkConnector.config_def.parse(properties)
        url = _url(config)
        self._url = config["http.api.url"]
        self._api = _Api(url, config["http.connect.timeout.ms"] / 1000, config["http.request.timeout.ms"] / 1000, config["ssl.cafile"])
        self._headers = _headers(config)
        self._retried = _codes(config["retry.on.status.codes"])
        self._converter = JsonConverter()
        self._converter.configure({"schemas.enable": False, "converter.type": "value"})
        self._sent: dict[TopicPartition, int] = {}
        self._attempts = 0

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self._sent.pop(each, None)

    def put(self, records: Sequence[SinkRecord]) -> None:
        fresh = [each for each in records if each.offset >= self._sent.get(_source(each), 0)]
        for target, run in itertools.groupby(fresh, key=self._target):
            for batch in _batches(run, self._config["batch.max.size"]):
                if target is None:
                    self._done(batch)
                else:
                    self._send(target, batch)

    def stop(self) -> None:
        if hasattr(self, "_api"):
            self._api.close()

    def _target(self, record: SinkRecord) -> tuple[str, str] | None:
        """Method and URL of a record; None where it is left out."""
        method = self._config["request.method"]
        if record.value is None:
            match self._config["behavior.on.null.values"]:
                case "ignore":
                    return None
                case "delete":
                    method = "DELETE"
                case _:
                    self.context.report(record, DataError("The value of a record is null; behavior.on.null.values=fail"))
                    return None
        url = self._url.replace("${topic}", quote(record.topic, safe=""))
        if "${key}" in url:
            if record.key is None:
                self.context.report(record, DataError("http.api.url has ${key}; the key of a record is null"))
                return None
            url = url.replace("${key}", quote(java_text(record.key, record.key_schema), safe=""))
        return method, url

    def _send(self, target: tuple[str, str], batch: Sequence[SinkRecord]) -> None:
        method, url = target
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        bodies, good = [], []
        for record in batch:
            try:
                bodies.append(self._body(record))
                good.append(record)
            except DataError as error:
                self.context.report(record, error)
        if good:
            self._call(_Request(method, path, b"" if method == "DELETE" else self._joined(bodies), good))
        self._done(batch)

    def _body(self, record: SinkRecord) -> bytes:
        if self._config["request.body.format"] == "json":
            return self._converter.from_connect(record.topic, record.value_schema, record.value) or b"null"
        if isinstance(record.value, bytes):
            return record.value
        return java_text(record.value, record.value_schema).encode(errors="replace")

    def _joined(self, bodies: Sequence[bytes]) -> bytes:
        if self._config["batch.json.as.array"]:
            return b"[" + b",".join(bodies) + b"]"
        prefix, separator, suffix = (str(self._config[f"batch.{part}"]).encode() for part in ("prefix", "separator", "suffix"))
        return prefix + separator.join(bodies) + suffix

    def _call(self, request: _Request) -> None:
        try:
            answer = self._api.call(request, self._headers)
        except OSError as error:
            self._retry(request, str(error))
            return
        if 200 <= answer.status < 300:
            self._attempts = 0
            return
        what = f"{answer.status} {answer.text[:200]!r}"
        if answer.status in self._retried:
            self._retry(request, what)
        self._attempts = 0
        hint = "; redirects are not followed" if 300 <= answer.status < 400 else ""
        for record in request.records:
            self.context.report(record, ConnectError(f"{request.method} {self._url} was answered by {what}{hint}"))

    def _retry(self, request: _Request, why: str) -> None:
        self._attempts += 1
        message = f"{request.method} {self._url} failed: {why}"
        if self._attempts > self._config["max.retries"]:
            raise ConnectError(f"{message}. max.retries={self._config['max.retries']} is exhausted; restart the task when the API answers.")
        self.context.wait(min(self._config["retry.backoff.ms"] / 1000 * 2 ** min(self._attempts - 1, 20), _BACKOFF_MAX_S))
        raise RetriableError(message)

    def _done(self, batch: Sequence[SinkRecord]) -> None:
        for record in batch:
            self._sent[_source(record)] = record.offset + 1


class HttpSinkConnector(SinkConnector):
    """Records to an HTTP API."""

    task_class = HttpSinkTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "http.api.url",
            "STRING",
            REQUIRED,
            "The HTTP API URL. ${topic} and ${key} are replaced in path and query.",
            "HIGH",
        ),
        ConfigKey("request.method", "STRING", "POST", "The HTTP request method.", "HIGH", values=_METHODS),
        ConfigKey("request.body.format", "STRING", "string", "Format of a record: string or json.", values=("string", "json")),
        ConfigKey("headers", "STRING", "", "HTTP headers, Name:value, with header.separator between them.", "HIGH"),
        ConfigKey("header.separator", "STRING", "|", "Separator of headers.", "HIGH"),
        ConfigKey(
            "auth.type",
            "STRING",
            "NONE",
            "NONE, BASIC, or BEARER with connection.password as the token.",
            "HIGH",
            values=("NONE", "BASIC", "BEARER"),
        ),
        ConfigKey("connection.user", "STRING", "", "The username of auth.type=BASIC.", "HIGH"),
        ConfigKey("connection.password", "PASSWORD", None, "The password of auth.type=BASIC; the token of auth.type=BEARER.", "HIGH"),
        ConfigKey(
            "behavior.on.null.values",
            "STRING",
            "ignore",
            "What null values do: ignore, delete (a DELETE request) or fail.",
            "LOW",
            values=("ignore", "delete", "fail"),
        ),
        ConfigKey("batch.max.size", "INT", 1, "The number of records of one request.", "HIGH", at_least(1)),
        ConfigKey("batch.prefix", "STRING", "", "What a body begins with.", "HIGH"),
        ConfigKey("batch.suffix", "STRING", "", "What a body ends with.", "HIGH"),
        ConfigKey("batch.separator", "STRING", ",", "What stands between the records of a body.", "HIGH"),
        ConfigKey("batch.json.as.array", "BOOLEAN", False, "Whether a body is a JSON array of records.", "HIGH"),
        ConfigKey("max.retries", "INT", 10, "How often a request is repeated before the task fails.", "HIGH", at_least(0)),
        ConfigKey(
            "retry.backoff.ms",
            "INT",
            3000,
            "The first pause; each further one is twice as long, up to a minute.",
            "HIGH",
            at_least(0),
        ),
        ConfigKey(
            "retry.on.status.codes",
            "STRING",
            "408,429,500-",
            "After which answers a request is repeated.",
            "MEDIUM",
        ),
        ConfigKey("http.connect.timeout.ms", "INT", 30_000, "How long to wait for a connection.", "MEDIUM", at_least(1)),
        ConfigKey("http.request.timeout.ms", "INT", 30_000, "How long to wait for an answer.", "MEDIUM", at_least(1)),
        ConfigKey("ssl.cafile", "STRING", None, "Certificates to trust, PEM; those of the system by default.", "LOW"),
    )

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties] * max_tasks

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        _url(config)
        _headers(config)
        _codes(config["retry.on.status.codes"])
        return {}


def _source(record: SinkRecord) -> TopicPartition:
    return TopicPartition(record.original_topic, record.original_partition)


def _batches(records: Iterator[SinkRecord], size: int) -> Iterator[Sequence[SinkRecord]]:
    while batch := list(itertools.islice(records, size)):
        yield batch


def _url(config: Mapping[str, Any]) -> SplitResult:
    text: str = config["http.api.url"]
    wrong = ConfigError("http.api.url", f"Invalid value {text} for configuration http.api.url: must be http://host/… or https://host/…")
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise wrong from None
    is_good = parts.scheme in {"http", "https"} and parts.hostname and not {"$", "@"} & set(parts.netloc)
    if not is_good or not text.isascii() or not text.isprintable() or " " in text:
        raise wrong
    return parts


def _headers(config: Mapping[str, Any]) -> dict[str, str]:
    is_json = config["request.body.format"] == "json" or config["batch.json.as.array"]
    found = {"Content-Type": "application/json" if is_json else "text/plain; charset=utf-8", "User-Agent": "logdb-connect"}
    for each in filter(str.strip, config["headers"].split(config["header.separator"])):
        name, colon, value = each.partition(":")
        if (
            not colon
            or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip())
            or not value.strip().isprintable()
            or not value.isascii()
        ):
            raise ConfigError(
                "headers", f"Invalid value for configuration headers: {name.strip()!r} must be Name:value, in printable ASCII"
            )
        found = {key: old for key, old in found.items() if key.lower() != name.strip().lower()} | {name.strip(): value.strip()}
    secret = revealed(config["connection.password"]) or ""
    if config["auth.type"] == "BASIC":
        found["Authorization"] = "Basic " + base64.b64encode(f"{config['connection.user']}:{secret}".encode()).decode()
    elif config["auth.type"] == "BEARER":
        if not secret.isascii() or not secret.isprintable():
            raise ConfigError(
                "connection.password", "Invalid value [hidden] for configuration connection.password: must be printable ASCII"
            )
        found["Authorization"] = f"Bearer {secret}"
    return found


def _codes(text: str) -> frozenset[int]:
    found: set[int] = set()
    for each in filter(None, map(str.strip, text.split(","))):
        parsed = _CODES.fullmatch(each)
        if parsed is None:
            raise ConfigError(
                "retry.on.status.codes", f"Invalid value {text} for configuration retry.on.status.codes: {each} is no code or range"
            )
        last = int(parsed[3] or 599) if parsed[2] else int(parsed[1])
        found.update(range(int(parsed[1]), last + 1))
    return frozenset(found)
