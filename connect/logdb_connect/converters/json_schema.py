"""JSON with a schema registry, as Confluent's ``JsonSchemaConverter`` writes and reads it.

The schema of the registry is a JSON Schema.  What that does not have stands in properties: ``connect.type``, ``connect.index``,
``connect.version``, ``connect.parameters``; the name is the ``title``, the doc the ``description``.
Maps whose keys are no strings are refused, and ``oneOf`` other than of null and one type.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from logdb_connect.config import ConfigDef, ConfigKey
from logdb_connect.converters import registry
from logdb_connect.converters.json import Cache, JsonConverter, Reading
from logdb_connect.converters.primitive import HeadersAsValues
from logdb_connect.data import DECIMAL, STRING, Field, Schema
from logdb_connect.errors import DataError

_INTEGERS: Final = ("int8", "int16", "int32", "int64")
_FLOATS: Final = ("float32", "float64")
_DEPTH_MAX: Final = 200
_JSON_KEYS: Final = ("decimal.format", "replace.null.with.default")


class JsonSchemaConverter(HeadersAsValues):
    """Values as JSON; their schemas are in the registry."""

    config_def: ClassVar[ConfigDef] = (
        registry.CONFIG
        + ConfigDef(*(key for key in JsonConverter.config_def if key.name in _JSON_KEYS))
        + ConfigDef(
            ConfigKey("object.additional.properties", "BOOLEAN", True, "Whether the schema allows fields that it does not name.", "LOW"),
            ConfigKey(
                "use.optional.for.nonrequired", "BOOLEAN", False, "Whether fields that the schema does not require are optional.", "LOW"
            ),
        )
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._registry = registry.Registry(config)
        self._subjects = registry.Subjects(self._registry, config, "JSON")
        self._json = JsonConverter()
        self._json.configure({"schemas.enable": False, **{name: config[name] for name in _JSON_KEYS}})
        self._is_numeric = config["decimal.format"].upper() == "NUMERIC"
        self._is_open, self._by_required = config["object.additional.properties"], config["use.optional.for.nonrequired"]
        size = config["schemas.cache.config"]
        self._ids: Cache[tuple[str, Schema], int] = Cache(size, self._make_id)
        self._readings: Cache[int, Reading] = Cache(size, self._make_reading)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise DataError("Failed to serialize JSON Schema data: JsonSchemaConverter needs values with schemas")
        data = self._json.from_connect(topic, schema, value)
        return None if data is None else registry.framed(self._ids[self._subjects.subject(topic, schema), schema], data)

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        number, body = registry.unframed(topic, data, "JSON Schema")
        reading = self._readings[number]
        return reading.schema, self._json.read(reading, body)

    def _make_id(self, key: tuple[str, Schema]) -> int:
        subject, schema = key
        document = self._written(schema)
        return self._subjects.id_of(subject, json.dumps(document, separators=(",", ":")))[0]

    def _make_reading(self, number: int) -> Reading:
        found = self._registry.by_id(number)
        if found.get("schemaType") != "JSON":
            raise DataError(f"Schema {number} of the registry is {found.get('schemaType', 'AVRO')}, not JSON")
        if found.get("references"):
            raise DataError(f"Schema {number} of the registry refers to other schemas, which is not supported")
        try:
            document = json.loads(found["schema"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise DataError(f"Schema {number} of the registry is not a valid JSON Schema") from None
        return Reading(self._read(document, 0), b"null")

    # ------------------------------------------------------------ schemas

    def _written(self, schema: Schema) -> dict[str, Any]:
        """The JSON Schema of a schema (``JsonSchemaData.fromConnectSchema``)."""
        made = self._bare(schema)
        if schema.name is not None:
            made["title"] = schema.name
        if schema.doc is not None:
            made["description"] = schema.doc
        if schema.version is not None:
            made["connect.version"] = schema.version
        if schema.parameters:
            made["connect.parameters"] = dict(schema.parameters)
        if schema.default is not None:
            made["default"] = json.loads(self._json.from_connect("", schema, schema.default) or b"null")
        return {"oneOf": [{"type": "null"}, made]} if schema.optional else made

    def _bare(self, schema: Schema) -> dict[str, Any]:
        match schema.type:
            case "boolean" | "string":
                return {"type": schema.type}
            case "bytes":
                kind = "number" if schema.name == DECIMAL and self._is_numeric else "string"
                return {"type": kind, "connect.type": "bytes"}
            case "array":
                assert schema.values is not None
                return {"type": "array", "items": self._written(schema.values)}
            case "map":
                assert schema.values is not None
                if schema.keys is None or schema.keys.type != "string" or schema.keys.optional:
                    raise DataError("JsonSchemaConverter supports maps with string keys only")
                return {"type": "object", "connect.type": "map", "additionalProperties": self._written(schema.values)}
            case "struct":
                fields = {field.name: {**self._written(field.schema), "connect.index": at} for at, field in enumerate(schema.fields)}
                return {"type": "object", "properties": fields} | ({} if self._is_open else {"additionalProperties": False})
            case _:
                return {"type": "integer" if schema.type in _INTEGERS else "number", "connect.type": schema.type}

    def _read(self, document: Any, depth: int, *, is_optional: bool = False) -> Schema:
        """The schema of a JSON Schema (``JsonSchemaData.toConnectSchema``)."""
        if depth > _DEPTH_MAX or not isinstance(document, dict):
            raise DataError("Not a valid JSON Schema: too deep" if depth > _DEPTH_MAX else "JSON Schema must be an object")
        for word in ("oneOf", "anyOf"):
            if isinstance(members := document.get(word), list):
                return self._one_of(members, depth, is_optional=is_optional)
        kinds = document.get("type")
        if isinstance(kinds, list):
            members = [{**document, "type": kind} if kind != "null" else {"type": "null"} for kind in kinds]
            return self._one_of(members, depth, is_optional=is_optional)
        return self._annotated(document, self._plain(document, depth), is_optional=is_optional)

    def _one_of(self, members: list[Any], depth: int, *, is_optional: bool) -> Schema:
        others = [each for each in members if each != {"type": "null"}]
        if len(others) != 1:
            raise DataError("JSON Schema: oneOf and anyOf are supported of null and one type")
        return self._read(others[0], depth + 1, is_optional=is_optional or len(others) < len(members))

    def _plain(self, document: Mapping[str, Any], depth: int) -> Schema:
        kind, own = document.get("type"), document.get("connect.type")
        match kind:
            case "boolean":
                return Schema(type="boolean")
            case "integer":
                return Schema(type=own if own in _INTEGERS else "int64")
            case "number":
                return Schema(type=own if own in {*_INTEGERS, *_FLOATS, "bytes"} else "float64")
            case "string":
                return Schema(type="bytes" if own == "bytes" else "string")
            case "array":
                if own == "map":
                    raise DataError("JsonSchemaConverter supports maps with string keys only")
                return Schema(type="array", values=self._read(document.get("items"), depth + 1))
            case "object" if own == "map":
                return Schema(type="map", keys=STRING, values=self._read(document.get("additionalProperties"), depth + 1))
            case "object":
                return Schema(type="struct", fields=tuple(self._fields(document, depth)))
            case None if isinstance(document.get("enum"), list):
                return STRING
            case _:
                raise DataError(f"JSON Schema: type {kind} is not supported")

    def _fields(self, document: Mapping[str, Any], depth: int) -> list[Field]:
        properties, required = document.get("properties") or {}, document.get("required") or ()
        if not isinstance(properties, dict):
            raise DataError("JSON Schema: properties must be an object")
        places = {}
        for at, (name, each) in enumerate(properties.items()):
            index = each.get("connect.index") if isinstance(each, dict) else None
            places[name] = index if isinstance(index, int) else at
        names = sorted(properties, key=places.__getitem__)
        return [
            Field(name, self._read(properties[name], depth + 1, is_optional=self._by_required and name not in required)) for name in names
        ]

    def _annotated(self, document: Mapping[str, Any], schema: Schema, *, is_optional: bool) -> Schema:
        parts: dict[str, Any] = {"optional": is_optional}
        for word, part, kind in (("title", "name", str), ("description", "doc", str), ("connect.version", "version", int)):
            if isinstance(given := document.get(word), kind):
                parts[part] = given
        if isinstance(parameters := document.get("connect.parameters"), dict):
            parts["parameters"] = tuple((str(key), str(each)) for key, each in parameters.items())
        schema = schema.replace(**parts)
        if document.get("default") is not None:
            default = self._json.read(Reading(schema, b"null"), json.dumps(document["default"]).encode())
            schema = schema.replace(default=default)
        return schema
