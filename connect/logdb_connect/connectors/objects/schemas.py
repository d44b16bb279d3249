"""Connect's schemas as those of Arrow and of Avro, and back.  Values keep their Python types: only maps change for Arrow."""

import datetime
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from logdb_connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema
from logdb_connect.errors import DataError

if TYPE_CHECKING:
    import pyarrow

_AVRO_PLAIN = {
    "int8": {"type": "int", "connect.type": "int8"},
    "int16": {"type": "int", "connect.type": "int16"},
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_OF_AVRO = {
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_OF_AVRO_LOGICAL = {"date": DATE, "time-millis": TIME, "timestamp-millis": TIMESTAMP}
_AVRO_LOGICAL = {DATE: ("int", "date"), TIME: ("int", "time-millis"), TIMESTAMP: ("long", "timestamp-millis")}
_NAMESPACE, _DEFAULT_NAME = "io.confluent.connect.avro", "ConnectDefault"
_AVRO_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL_DIGITS = 38


# Avro ---------------------------------------------------------------------------------------------------------------------------


def avro_schema(schema: Schema) -> Any:
    """The Avro schema, with Confluent's names for structs without one.

    Raises:
        DataError: The schema has a map whose keys are not strings.
    """
    return _AvroWriter().schema(schema.replace(optional=False))


class _AvroWriter:
    def __init__(self) -> None:
        self._names: dict[str, Schema] = {}

    def schema(self, schema: Schema) -> Any:
        plain = self._plain(schema)
        return ["null", plain] if schema.optional else plain

    def _plain(self, schema: Schema) -> Any:
        if schema.name == DECIMAL:
            return {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": scale_of(schema)}
        if schema.name in _AVRO_LOGICAL:
            kind, logical = _AVRO_LOGICAL[schema.name]
            return {"type": kind, "logicalType": logical}
        match schema.type:
            case "array":
                return {"type": "array", "items": self.schema(_inner(schema))}
            case "map":
                if schema.keys is None or schema.keys.type != "string":
                    raise DataError("Avro has maps of string keys only; a map of the record has other keys")
                return {"type": "map", "values": self.schema(_inner(schema))}
            case "struct":
                return self._record(schema)
            case kind:
                return _AVRO_PLAIN[kind]

    def _record(self, schema: Schema) -> Any:
        base = name = schema.name or f"{_NAMESPACE}.{_DEFAULT_NAME}"
        for given in (*name.split("."), *(each.name for each in schema.fields)):
            if not _AVRO_NAME.fullmatch(given):
                raise DataError(f"Avro cannot have the name {given!r}: names consist of letters, digits and _, and begin with no digit")
        bare, number = schema.replace(optional=False), 1
        while name in self._names:
            if self._names[name] == bare:
                return name
            number += 1
            name = f"{base}{number}"
        self._names[name] = bare
        fields = [
            {"name": each.name, "type": self.schema(each.schema), **({"default": None} if each.schema.optional else {})}
            for each in schema.fields
        ]
        namespace, _, short = name.rpartition(".")
        return {"type": "record", "name": short, "fields": fields, **({"namespace": namespace} if namespace else {})}


def of_avro(avro: Any, named: dict[str, Schema] | None = None) -> Schema:
    """The schema of what fastavro reads.

    Raises:
        DataError: It has a union of more than null and one type.
    """
    named = {} if named is None else named
    if isinstance(avro, list):
        others = [each for each in avro if each != "null"]
        if len(others) != 1:
            raise DataError(f"Connect has no schema for Avro's union {avro}")
        return of_avro(others[0], named).replace(optional=len(others) < len(avro))
    if isinstance(avro, str):
        if avro in named:
            return named[avro]
        if avro not in _OF_AVRO:
            raise DataError(f"Connect has no schema for Avro's type {avro}")
        return Schema(type=_OF_AVRO[avro])  # type: ignore[arg-type]
    match avro["type"]:
        case "record" | "error":
            fields = tuple(Field(each["name"], of_avro(each["type"], named)) for each in avro["fields"])
            name = avro["name"] if "." in avro["name"] or "namespace" not in avro else f"{avro['namespace']}.{avro['name']}"
            default = f"{_NAMESPACE}.{_DEFAULT_NAME}"
            named[name] = Schema(type="struct", name=None if name == default else name, fields=fields)
            return named[name]
        case "array":
            return Schema(type="array", values=of_avro(avro["items"], named))
        case "map":
            return Schema(type="map", keys=Schema(type="string"), values=of_avro(avro["values"], named))
        case "enum" | "fixed" as kind:
            named[avro["name"]] = Schema(type="string" if kind == "enum" else "bytes")
            return named[avro["name"]]
        case inner:
            return _of_avro_logical(of_avro(inner, named), avro)


def _of_avro_logical(plain: Schema, avro: Mapping[str, Any]) -> Schema:
    logical = avro.get("logicalType")
    if logical == "decimal":
        return plain.replace(name=DECIMAL, version=1, parameters=(("scale", str(avro.get("scale", 0))),))
    if logical in _OF_AVRO_LOGICAL:
        return plain.replace(name=_OF_AVRO_LOGICAL[logical], version=1)
    return plain.replace(type=avro["connect.type"]) if avro.get("connect.type") in {"int8", "int16"} else plain


# Arrow --------------------------------------------------------------------------------------------------------------------------


def arrow_schema(schema: Schema) -> "pyarrow.Schema":
    """The Arrow schema of a struct's fields."""
    import pyarrow

    return pyarrow.schema([_arrow_field(each) for each in schema.fields])


def _arrow_field(field: Field) -> "pyarrow.Field":
    import pyarrow

    return pyarrow.field(field.name, _arrow_type(field.schema), nullable=field.schema.optional)


def _arrow_type(schema: Schema) -> "pyarrow.DataType":
    import pyarrow

    match schema.name:
        case "org.apache.kafka.connect.data.Decimal":
            return pyarrow.decimal128(_DECIMAL_DIGITS, scale_of(schema))
        case "org.apache.kafka.connect.data.Date":
            return pyarrow.date32()
        case "org.apache.kafka.connect.data.Time":
            return pyarrow.time32("ms")
        case "org.apache.kafka.connect.data.Timestamp":
            return pyarrow.timestamp("ms", tz="UTC")
    match schema.type:
        case "boolean":
            return pyarrow.bool_()
        case "bytes":
            return pyarrow.binary()
        case "array":
            return pyarrow.list_(_arrow_field(Field("element", _inner(schema))))
        case "map":
            assert schema.keys is not None
            return pyarrow.map_(_arrow_type(schema.keys), _arrow_field(Field("value", _inner(schema))))
        case "struct":
            return pyarrow.struct([_arrow_field(each) for each in schema.fields])
        case kind:
            return getattr(pyarrow, kind)()


Convert = Callable[[Any], Any]


def to_arrow(schema: Schema) -> Convert | None:
    """How to change a value of a schema for pyarrow; None where no part of it is a map."""
    match schema.type:
        case "map":
            inner = to_arrow(_inner(schema)) or (lambda value: value)
            return lambda value: None if value is None else [(key, inner(each)) for key, each in value.items()]
        case "array":
            item = to_arrow(_inner(schema))
            return item and (lambda value: None if value is None else [item(each) for each in value])
        case "struct":
            converts = {each.name: convert for each in schema.fields if (convert := to_arrow(each.schema))}
            if not converts:
                return None
            return lambda value: value and {**value, **{name: convert(value.get(name)) for name, convert in converts.items()}}
    return None


def of_arrow(arrow: "pyarrow.Schema") -> Schema:
    """The schema of a struct with these fields.

    Raises:
        DataError: Connect has no such type.
    """
    return Schema(type="struct", fields=tuple(Field(each.name, _of_arrow_type(each.type, optional=each.nullable)) for each in arrow))


def _of_arrow_type(kind: "pyarrow.DataType", *, optional: bool) -> Schema:
    from pyarrow import types

    if types.is_decimal(kind):
        return Schema(type="bytes", name=DECIMAL, version=1, parameters=(("scale", str(kind.scale)),), optional=optional)
    if types.is_map(kind):
        keys, values = _of_arrow_type(kind.key_type, optional=False), _of_arrow_type(kind.item_type, optional=kind.item_field.nullable)
        return Schema(type="map", keys=keys, values=values, optional=optional)
    if types.is_list(kind) or types.is_large_list(kind):
        return Schema(type="array", values=_of_arrow_type(kind.value_type, optional=kind.value_field.nullable), optional=optional)
    if types.is_struct(kind):
        return of_arrow(kind).replace(optional=optional)
    for matches, plain in _arrow_tests():
        if matches(kind):
            return plain.replace(optional=optional)
    raise DataError(f"Connect has no schema for Arrow's type {kind}")


def _arrow_tests() -> list[tuple[Callable[[Any], bool], Schema]]:
    from pyarrow import types

    return [
        (types.is_boolean, Schema(type="boolean")),
        (types.is_int8, Schema(type="int8")),
        (lambda kind: types.is_int16(kind) or types.is_uint8(kind), Schema(type="int16")),
        (lambda kind: types.is_int32(kind) or types.is_uint16(kind), Schema(type="int32")),
        (types.is_integer, Schema(type="int64")),
        (lambda kind: types.is_float16(kind) or types.is_float32(kind), Schema(type="float32")),
        (types.is_float64, Schema(type="float64")),
        (lambda kind: types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind), Schema(type="string")),
        (lambda kind: types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind), Schema(type="bytes")),
        (types.is_date, Schema(type="int32", name=DATE, version=1)),
        (types.is_time, Schema(type="int32", name=TIME, version=1)),
        (types.is_timestamp, Schema(type="int64", name=TIMESTAMP, version=1)),
    ]


def of_arrow_value(schema: Schema, value: Any) -> Any:
    """A value that pyarrow read, as Connect has it: maps as dicts, times in UTC."""
    if value is None:
        return None
    match schema.type:
        case "struct":
            return {each.name: of_arrow_value(each.schema, value[each.name]) for each in schema.fields}
        case "map":
            return {key: of_arrow_value(_inner(schema), each) for key, each in value}
        case "array":
            return [of_arrow_value(_inner(schema), each) for each in value]
    if schema.name == TIMESTAMP and isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
    return value


def is_plain(schema: Schema) -> bool:
    """Whether ``of_arrow_value`` changes no value of a struct."""
    return all(each.schema.type not in {"struct", "map", "array"} and each.schema.name != TIMESTAMP for each in schema.fields)


def scale_of(schema: Schema) -> int:
    """Digits after the point of a ``DECIMAL``."""
    return int(dict(schema.parameters).get("scale", "0"))


def _inner(schema: Schema) -> Schema:
    if schema.values is None:
        raise DataError(f"A schema of type {schema.type} does not say what it contains")
    return schema.values
