"""A client of schema registries that speak Confluent's REST API, and how the converters use one.

Blocking; one request at a time for each converter.  Schemas never change, so what was asked once is kept.
"""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final

from logdb_connect.config import REQUIRED, ConfigDef, ConfigKey, revealed
from logdb_connect.data import Schema
from logdb_connect.errors import ConfigError, DataError, RetriableError

_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_ANSWER_SIZE_MAX: Final = 16 << 20
_TIMEOUT_S: Final = 60
_REFERENCES_MAX: Final = 1000
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MAGIC: Final = b"\x00"


def _strategy(part: str) -> ConfigKey:
    return ConfigKey(
        f"{part}.subject.name.strategy",
        "CLASS",
        _PACKAGE + "TopicNameStrategy",
        f"Determines the subject under which the schema of a {part} is registered: {', '.join(_STRATEGIES)}.",
        check=lambda value: None if value.removeprefix(_PACKAGE) in _STRATEGIES else f"must be one of {', '.join(_STRATEGIES)}",
    )


CONFIG: Final = ConfigDef(
    ConfigKey("schema.registry.url", "LIST", REQUIRED, "URLs of the schema registry; the next one is asked where one is down.", "HIGH"),
    ConfigKey("auto.register.schemas", "BOOLEAN", True, "Whether to register a schema that the registry does not have."),
    ConfigKey("use.latest.version", "BOOLEAN", False, "Whether to write with the latest schema of the subject.", "LOW"),
    ConfigKey("normalize.schemas", "BOOLEAN", False, "Whether the registry normalizes schemas, so that equal ones have one id."),
    _strategy("key"),
    _strategy("value"),
    ConfigKey("basic.auth.credentials.source", "STRING", "URL", "Where user and password are.", values=("URL", "USER_INFO")),
    ConfigKey("basic.auth.user.info", "PASSWORD", "", "user:password, with basic.auth.credentials.source=USER_INFO."),
    ConfigKey("schemas.cache.config", "INT", 1000, "How many schemas are kept.", "LOW"),
)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could carry the credential to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Registry:
    """A registry, by its URLs."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._bases: list[tuple[str, str | None]] = []
        self._normalizes = config["normalize.schemas"]
        info = config["basic.auth.user.info"] if config["basic.auth.credentials.source"] == "USER_INFO" else None
        for url in config["schema.registry.url"]:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                message = "Invalid value for configuration schema.registry.url: must be URLs that begin with http:// or https://"
                raise ConfigError("schema.registry.url", message)
            login = revealed(info)
            if login is None and parts.username is not None:
                login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
            self._bases.append((base, base64.b64encode(login.encode()).decode() if login else None))

    def by_id(self, number: int) -> Mapping[str, Any]:
        """``schema`` and ``schemaType`` of an id."""
        return self._ask("GET", f"/schemas/ids/{number}")

    def references(self, found: Mapping[str, Any]) -> dict[str, str]:
        """The schemas that a schema refers to, and those that they refer to, by the names that they are known by there.

        Raises:
            DataError: They are not of the shape that a registry gives, or too many.
        """
        schemas: dict[str, str] = {}
        waiting = list(found.get("references") or ())
        while waiting:
            try:
                name, subject, version = (waiting[0]["name"], waiting[0]["subject"], int(waiting.pop(0)["version"]))
                if name not in schemas:
                    one = self._ask("GET", f"/subjects/{urllib.parse.quote(str(subject), safe='')}/versions/{version}")
                    schemas[str(name)] = str(one["schema"])
                    waiting += one.get("references") or ()
            except (TypeError, KeyError, ValueError, AttributeError):
                raise DataError("Schema registry: references of a schema must have name, subject and version") from None
            if len(schemas) > _REFERENCES_MAX:
                raise DataError(f"Schema registry: a schema refers to more than {_REFERENCES_MAX} others")
        return schemas

    def latest(self, subject: str) -> Mapping[str, Any]:
        """``id`` and ``schema`` of the latest version of a subject."""
        return self._ask("GET", f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/latest")

    def register(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema, new or not."""
        return int(self._ask("POST", self._path(subject, "/versions"), _document(schema, kind))["id"])

    def look_up(self, subject: str, schema: str, kind: str) -> int:
        """The id of a schema that is registered."""
        return int(self._ask("POST", self._path(subject, ""), _document(schema, kind))["id"])

    def _path(self, subject: str, rest: str) -> str:
        return f"/subjects/{urllib.parse.quote(subject, safe='')}{rest}{'?normalize=true' if self._normalizes else ''}"

    def _ask(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The answer of the first registry that gives one.

        Raises:
            DataError: It refuses the request.
            RetriableError: None can be reached, or each has an error of its own.
        """
        fault = ""
        for base, login in self._bases:
            headers = {"Accept": _TYPE, "Content-Type": _TYPE} | ({"Authorization": f"Basic {login}"} if login else {})
            data = None if document is None else json.dumps(document).encode()
            request = urllib.request.Request(base + path, data, headers, method=method)  # noqa: S310 - configure has checked the scheme
            try:
                with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                    found = json.loads(answer.read(_ANSWER_SIZE_MAX))
                if isinstance(found, dict):
                    return found
                fault = f"{base}: the answer is no JSON object"
            except urllib.error.HTTPError as error:
                fault = f"{base}: {error.code} {_message(error)}"
                if error.code < 500 and error.code not in {408, 429}:
                    raise DataError(f"Schema registry: {method} {path}: {fault}") from None
            except (OSError, HTTPException, ValueError) as error:
                fault = f"{base}: {getattr(error, 'reason', None) or error}"
        raise RetriableError(f"Schema registry: {method} {path}: {fault}; retry is safe")


def _message(error: urllib.error.HTTPError) -> str:
    """What the registry says; closes the answer."""
    try:
        with error:
            return str(json.loads(error.read(1 << 16))["message"])
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return str(error.reason)


def _document(schema: str, kind: str) -> dict[str, str]:
    return {"schema": schema} if kind == "AVRO" else {"schema": schema, "schemaType": kind}


class Subjects:
    """Ids of schemas, by subject: registered, looked up, or the latest, as the properties say."""

    def __init__(self, registry: Registry, config: Mapping[str, Any], kind: str) -> None:
        part = "key" if config.get("converter.type") == "key" else "value"
        self._registry, self._kind, self._part = registry, kind, part
        self._strategy = config[f"{part}.subject.name.strategy"].removeprefix(_PACKAGE)
        self._registers, self._uses_latest = config["auto.register.schemas"], config["use.latest.version"]

    def subject(self, topic: str, schema: Schema) -> str:
        """The subject of a schema.

        Raises:
            DataError: The strategy needs the name of a record, and the schema has none.
        """
        if self._strategy == "TopicNameStrategy":
            return f"{topic}-{self._part}"
        if schema.name is None:
            setting = f"{self._part}.subject.name.strategy"
            raise DataError(f"In configuration {setting} = {self._strategy}, the message {self._part} must only be a record schema")
        return schema.name if self._strategy == "RecordNameStrategy" else f"{topic}-{schema.name}"

    def id_of(self, subject: str, schema: str) -> tuple[int, str]:
        """The id to write with, and the schema that it stands for."""
        if self._registers:
            return self._registry.register(subject, schema, self._kind), schema
        if self._uses_latest:
            latest = self._registry.latest(subject)
            return int(latest["id"]), str(latest["schema"])
        return self._registry.look_up(subject, schema, self._kind), schema


def framed(number: int, data: bytes) -> bytes:
    """Confluent's wire format: a zero, the id in four bytes, the data."""
    return _MAGIC + number.to_bytes(4, "big") + data


def unframed(topic: str, data: bytes, name: str) -> tuple[int, bytes]:
    """The id and the data.

    Raises:
        DataError: The bytes are not of this format.
    """
    if len(data) < 5 or data[:1] != _MAGIC:
        raise DataError(f"Failed to deserialize data for topic {topic} to {name}: Unknown magic byte!")
    return int.from_bytes(data[1:5], "big"), data[5:]
