"""Avro with a schema registry, as Confluent's ``AvroConverter`` writes and reads it; fastavro encodes.

What Avro does not have stands in properties of its schema: ``connect.name``, ``connect.version``, ``connect.doc``, ``connect.parameters``,
``connect.default``, ``connect.type``.  A map whose keys are no strings is an array of records ``MapEntry``.
Unions other than of null and one type are refused.
"""

import io
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from logdb.codec.avro_bounds import AvroBounds
from logdb_connect import logical
from logdb_connect.config import ConfigDef, ConfigKey
from logdb_connect.converters import registry
from logdb_connect.converters.json import Cache
from logdb_connect.converters.primitive import HeadersAsValues
from logdb_connect.data import DATE, DECIMAL, STRING, TIME, TIMESTAMP, Field, Schema
from logdb_connect.errors import DataError

_NAMESPACE: Final = "io.confluent.connect.avro"
_DEFAULT_NAME: Final = "ConnectDefault"
_ENTRY: Final = "MapEntry"
_PRECISION: Final = 64
_PRECISION_PARAMETER: Final = "connect.decimal.precision"
_TO_AVRO: Final[Mapping[str, str]] = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double",
}  # fmt: skip
_LOGICAL: Final[Mapping[str, str]] = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_OF_LOGICAL: Final[Mapping[str, str]] = {kind: name for name, kind in _LOGICAL.items()}
_OF_AVRO: Final[Mapping[str, Any]] = {
    "int": "int32", "long": "int64", "float": "float32", "double": "float64", "boolean": "boolean", "string": "string", "bytes": "bytes",
    "fixed": "bytes", "enum": "string",
}  # fmt: skip
_DEPTH_MAX: Final = 200


class AvroConverter(HeadersAsValues):
    """Values as Avro; their schemas are in the registry."""

    config_def: ClassVar[ConfigDef] = registry.CONFIG + ConfigDef(
        ConfigKey(
            "connect.meta.data", "BOOLEAN", True, "Whether the Avro schema has the names, versions and parameters of Connect's.", "LOW"
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        import fastavro  # an extra

        self._avro: Any = fastavro
        self._registry = registry.Registry(config)
        self._subjects = registry.Subjects(self._registry, config, "AVRO")
        self._has_metadata = config["connect.meta.data"]
        size = config["schemas.cache.config"]
        self._writers: Cache[tuple[str, Schema], tuple[int, Any, AvroBounds]] = Cache(size, self._make_writer)
        self._readers: Cache[int, tuple[Any, Schema, AvroBounds]] = Cache(size, self._make_reader)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise DataError("Failed to serialize Avro data: AvroConverter needs values with schemas")
        logical.check(schema, value)
        number, avro, bounds = self._writers[self._subjects.subject(topic, schema), schema]
        output = io.BytesIO()
        try:
            given = _to_avro(schema, value)
            bounds.check_value(given)
            self._avro.schemaless_writer(output, avro, given)
            bounds.check(output.getvalue())
        except (ValueError, TypeError, AttributeError, OverflowError, KeyError) as error:
            raise DataError(f"Failed to serialize Avro data from topic {topic}: {error}") from None
        return registry.framed(number, output.getvalue())

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        number, body = registry.unframed(topic, data, "Avro")
        avro, schema, bounds = self._readers[number]
        try:
            bounds.check(body)
            return schema, _of_avro(schema, self._avro.schemaless_reader(io.BytesIO(body), avro, None))
        except (
            ValueError,
            TypeError,
            EOFError,
            IndexError,
            OverflowError,
            KeyError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise DataError(f"Failed to deserialize data for topic {topic} to Avro: {type(error).__name__}: {error}") from None

    def _make_writer(self, key: tuple[str, Schema]) -> tuple[int, Any, AvroBounds]:
        subject, schema = key
        text = json.dumps(avro_schema(schema, has_metadata=self._has_metadata), separators=(",", ":"))
        number, used = self._subjects.id_of(subject, text)
        return number, *self._parsed(used)

    def _make_reader(self, number: int) -> tuple[Any, Schema, AvroBounds]:
        found = self._registry.by_id(number)
        if found.get("schemaType", "AVRO") != "AVRO":
            raise DataError(f"Schema {number} of the registry is {found['schemaType']}, not Avro")
        if found.get("references"):
            raise DataError(f"Schema {number} of the registry refers to other schemas, which is not supported")
        text = str(found["schema"])
        avro, bounds = self._parsed(text)
        return avro, connect_schema(_loaded(text)), bounds

    def _parsed(self, text: str) -> tuple[Any, AvroBounds]:
        """A schema that may be anybody's, and the bounds of its values."""
        try:
            avro = self._avro.parse_schema(_known_types(_loaded(text)))
            return avro, AvroBounds(avro)
        except DataError:
            raise
        except Exception as error:  # fastavro has many classes of errors where a schema is none
            raise DataError(f"Not a valid Avro schema: {error}") from error


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if text in _OF_AVRO:
            return text
        raise DataError("Not a valid Avro schema: no JSON") from None


def _known_types(avro: Any) -> Any:
    """The schema without the logical types that Connect does not know: their values stay numbers and text."""
    if isinstance(avro, list):
        return [_known_types(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    made = {key: _known_types(each) if key in {"type", "items", "values", "fields"} else each for key, each in avro.items()}
    if made.get("logicalType") not in {*_OF_LOGICAL, "decimal"}:
        made.pop("logicalType", None)
    return made


# ---------------------------------------------------------------- schemas to Avro


def avro_schema(schema: Schema, *, has_metadata: bool = True) -> Any:
    """The Avro schema of a schema (``AvroData.fromConnectSchema``)."""
    return _SchemaWriter(has_metadata=has_metadata).written(schema)


class _SchemaWriter:
    """Writes one schema: a record that comes again is named only."""

    def __init__(self, *, has_metadata: bool) -> None:
        self._has_metadata, self._unnamed = has_metadata, 0
        self._known: dict[str, Schema] = {}

    def written(self, schema: Schema) -> Any:
        made = self._bare(schema)
        if not schema.optional:
            return made
        return [made, "null"] if schema.default is not None else ["null", made]

    def _bare(self, schema: Schema) -> Any:
        if schema.type == "struct":
            return self._record(schema)
        parts: dict[str, Any] = {"type": _TO_AVRO.get(schema.type, schema.type)}
        if schema.type == "array":
            assert schema.values is not None
            parts["items"] = self.written(schema.values)
        elif schema.type == "map":
            parts = self._map(schema)
        elif schema.name == DECIMAL:
            precision = int(dict(schema.parameters).get(_PRECISION_PARAMETER, _PRECISION))
            parts |= {"scale": logical.scale_of(schema), "precision": precision}
        parts |= self._metadata(schema)
        if schema.name == DECIMAL and 0 <= parts["scale"] <= parts["precision"]:
            parts["logicalType"] = "decimal"
        elif (kind := _LOGICAL.get(schema.name or "")) is not None:
            parts["logicalType"] = kind
        return parts["type"] if parts.keys() == {"type"} else parts

    def _metadata(self, schema: Schema) -> dict[str, Any]:
        if not self._has_metadata:
            return {}
        found: dict[str, Any] = {
            "connect.doc": schema.doc,
            "connect.version": schema.version,
            "connect.parameters": dict(schema.parameters) or None,
            "connect.default": None if schema.default is None else _json_default(schema, schema.default),
            "connect.name": schema.name,
            "connect.type": schema.type if schema.type in {"int8", "int16"} else None,
        }
        return {key: each for key, each in found.items() if each is not None}

    def _map(self, schema: Schema) -> dict[str, Any]:
        assert schema.keys is not None
        assert schema.values is not None
        if schema.keys.type == "string" and not schema.keys.optional:
            return {"type": "map", "values": self.written(schema.values)}
        entry = {"type": "record", "name": _ENTRY, "namespace": _NAMESPACE}
        if schema.name is not None:
            namespace, _, name = schema.name.rpartition(".")
            entry = {"type": "record", "name": name, "connect.internal.type": _ENTRY} | ({"namespace": namespace} if namespace else {})
        return {"type": "array", "items": {**entry, "fields": [self._field("key", schema.keys), self._field("value", schema.values)]}}

    def _record(self, schema: Schema) -> Any:
        if schema.name is None:
            self._unnamed += 1
            namespace, name = _NAMESPACE, f"{_DEFAULT_NAME}{self._unnamed if self._unnamed > 1 else ''}"
        else:
            namespace, _, name = schema.name.rpartition(".")
        full = f"{namespace}.{name}" if namespace else name
        required = schema.replace(optional=False)
        if self._known.get(full) == required:
            return full
        self._known[full] = required
        named = {"type": "record", "name": name} | ({"namespace": namespace} if namespace else {})
        fields = [self._field(field.name, field.schema) for field in schema.fields]
        return {**named, "fields": fields, **self._metadata(schema)}

    def _field(self, name: str, schema: Schema) -> dict[str, Any]:
        made = {"name": name, "type": self.written(schema)}
        if schema.default is not None:
            return {**made, "default": _json_default(schema, schema.default)}
        return {**made, "default": None} if schema.optional else made


def _json_default(schema: Schema, value: Any) -> Any:
    """A default as Avro's JSON has it."""
    match value:
        case Decimal():
            return logical.decimal_to_bytes(value, logical.scale_of(schema)).decode("latin-1")
        case datetime() | date() | time():
            return logical.to_number(schema, value)
        case bytes() | bytearray() | memoryview():
            return bytes(value).decode("latin-1")
        case list() | tuple():
            return [_json_default(schema.values, each) if schema.values else each for each in value]
        case Mapping() if schema.type == "struct":
            return {field.name: _json_default(field.schema, value.get(field.name)) for field in schema.fields}
        case Mapping():
            return {key: _json_default(schema.values, each) if schema.values else each for key, each in value.items()}
        case _:
            return value


# ---------------------------------------------------------------- schemas of Avro


def connect_schema(avro: Any) -> Schema:
    """The schema of an Avro schema (``AvroData.toConnectSchema``).

    Raises:
        DataError: Connect has no such type.
    """
    return _SchemaReader().read(avro)


class _SchemaReader:
    """Reads one schema; knows the names that it has met."""

    def __init__(self) -> None:
        self._known: dict[str, Schema] = {}

    def read(self, avro: Any, namespace: str = "", depth: int = 0) -> Schema:
        if depth > _DEPTH_MAX:
            raise DataError("Not a valid Avro schema: too deep")
        if isinstance(avro, list):
            return self._union(avro, namespace, depth)
        if isinstance(avro, str):
            if avro in _OF_AVRO:
                return Schema(type=_OF_AVRO[avro])
            found = self._known.get(avro if "." in avro or not namespace else f"{namespace}.{avro}") or self._known.get(avro)
            if found is None:
                raise DataError(f"Avro type {avro} is not supported: it is unknown, or contains itself")
            return found
        if not isinstance(avro, dict):
            raise DataError("Not a valid Avro schema: must be text, a list or an object")
        if isinstance(avro.get("type"), dict | list):
            return self.read(avro["type"], namespace, depth + 1)
        return self._annotated(avro, self._plain(avro, namespace, depth), namespace)

    def _union(self, avro: list[Any], namespace: str, depth: int) -> Schema:
        members = [each for each in avro if each not in ("null", {"type": "null"})]
        if len(members) != 1:
            raise DataError("Avro unions are supported of null and one type")
        found = self.read(members[0], namespace, depth + 1)
        return found.replace(optional=True) if len(avro) > 1 else found

    def _plain(self, avro: Mapping[str, Any], namespace: str, depth: int) -> Schema:
        kind, logical_type = avro.get("type"), avro.get("logicalType")
        match kind:
            case "record" | "error":
                return self._record(avro, namespace, depth)
            case "array":
                items = avro.get("items")
                if isinstance(items, dict) and _ENTRY in {items.get("connect.internal.type"), items.get("name")}:
                    fields = {each["name"]: each["type"] for each in items.get("fields", ())}
                    keys, values = self.read(fields["key"], namespace, depth + 1), self.read(fields["value"], namespace, depth + 1)
                    return Schema(type="map", keys=keys, values=values)
                return Schema(type="array", values=self.read(items, namespace, depth + 1))
            case "map":
                return Schema(type="map", keys=STRING, values=self.read(avro.get("values"), namespace, depth + 1))
            case "bytes" | "fixed" if logical_type == "decimal":
                made = logical.decimal_schema(int(avro.get("scale", 0)))
                precision = avro.get("precision", _PRECISION)
                more = () if precision == _PRECISION else ((_PRECISION_PARAMETER, str(precision)),)
                return made.replace(parameters=(*made.parameters, *more))
            case "int" | "long" if (name := _OF_LOGICAL.get(logical_type or "")) is not None:
                return Schema(type=_OF_AVRO[kind], name=name, version=1)
            case "enum":
                symbols = ((f"io.confluent.connect.avro.Enum.{symbol}", symbol) for symbol in avro.get("symbols", ()))
                parameters = (("io.confluent.connect.avro.Enum", _full_name(avro, namespace)), *symbols)
                return Schema(type="string", parameters=parameters)
            case str() if kind in _OF_AVRO:
                return Schema(type=avro.get("connect.type") or _OF_AVRO[kind])
            case str():
                return self.read(kind, namespace, depth + 1)
            case _:
                raise DataError(f"Avro type {kind} is not supported")

    def _record(self, avro: Mapping[str, Any], namespace: str, depth: int) -> Schema:
        full = _full_name(avro, namespace)
        inner = full.rpartition(".")[0]
        fields = []
        for each in avro.get("fields", ()):
            schema = self.read(each["type"], inner, depth + 1)
            if each.get("default") is not None and schema.default is None:
                schema = schema.replace(default=_of_json_default(schema, each["default"]))
            fields.append(Field(str(each["name"]), schema))
        is_unnamed = full.startswith(f"{_NAMESPACE}.{_DEFAULT_NAME}")
        return Schema(type="struct", name=None if is_unnamed else full, fields=tuple(fields))

    def _annotated(self, avro: Mapping[str, Any], schema: Schema, namespace: str) -> Schema:
        parts: dict[str, Any] = {}
        for name, kind in (("doc", str), ("version", int), ("name", str)):
            if isinstance(given := avro.get(f"connect.{name}"), kind):
                parts[name] = given
        if isinstance(parameters := avro.get("connect.parameters"), dict):
            parts["parameters"] = tuple({**dict(schema.parameters), **{str(key): str(each) for key, each in parameters.items()}}.items())
        if schema.name in logical.NAMES:
            parts.pop("name", None)
        schema = schema.replace(**parts)
        if avro.get("connect.default") is not None:
            schema = schema.replace(default=_of_json_default(schema, avro["connect.default"]))
        if avro.get("type") in {"record", "error", "enum", "fixed"}:
            self._known[_full_name(avro, namespace)] = schema
        return schema


def _full_name(avro: Mapping[str, Any], namespace: str) -> str:
    name = str(avro.get("name", ""))
    inside = avro.get("namespace", namespace)
    return name if "." in name or not inside else f"{inside}.{name}"


def _of_json_default(schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    if schema.name == DECIMAL:
        return logical.decimal_of_bytes(str(value).encode("latin-1"), logical.scale_of(schema))
    if schema.name in _LOGICAL:
        return logical.of_number(schema, int(value))
    match schema.type:
        case "bytes":
            return str(value).encode("latin-1")
        case "array" if schema.values is not None:
            return [_of_json_default(schema.values, each) for each in value]
        case "struct":
            return {field.name: _of_json_default(field.schema, value.get(field.name)) for field in schema.fields}
        case "float32" | "float64":
            return float(value)
        case _:
            return value


# ---------------------------------------------------------------- values


def _to_avro(schema: Schema, value: Any) -> Any:
    """What fastavro writes: defaults in place of nulls, and entries of maps."""
    if value is None:
        return schema.default
    match schema.type:
        case "struct":
            return {field.name: _to_avro(field.schema, value.get(field.name)) for field in schema.fields}
        case "array" if schema.values is not None:
            return [_to_avro(schema.values, each) for each in value]
        case "map" if schema.keys is not None and schema.values is not None:
            if schema.keys.type == "string" and not schema.keys.optional:
                return {key: _to_avro(schema.values, each) for key, each in value.items()}
            return [{"key": _to_avro(schema.keys, key), "value": _to_avro(schema.values, each)} for key, each in value.items()]
        case "bytes" if schema.name == DECIMAL:
            scale = logical.scale_of(schema)
            precision = int(dict(schema.parameters).get(_PRECISION_PARAMETER, _PRECISION))
            data = logical.decimal_to_bytes(value, scale)
            return logical.decimal_of_bytes(data, scale) if 0 <= scale <= precision else data
        case _:
            return value


def _of_avro(schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    match schema.type:
        case "struct":
            return {field.name: _of_avro(field.schema, value[field.name]) for field in schema.fields}
        case "array" if schema.values is not None:
            return [_of_avro(schema.values, each) for each in value]
        case "map" if schema.keys is not None and schema.values is not None:
            if isinstance(value, dict):
                return {key: _of_avro(schema.values, each) for key, each in value.items()}
            return {_of_avro(schema.keys, each["key"]): _of_avro(schema.values, each["value"]) for each in value}
        case "bytes" if schema.name == DECIMAL and isinstance(value, bytes):
            return logical.decimal_of_bytes(value, logical.scale_of(schema))
        case _:
            return value
