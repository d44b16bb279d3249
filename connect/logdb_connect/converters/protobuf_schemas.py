"""Connect's schemas and Protobuf's, both ways (``ProtobufData`` of Confluent)."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from logdb_connect.converters import protobuf_files as files
from logdb_connect.converters.protobuf_files import Compiled
from logdb_connect.data import DATE, DECIMAL, TIME, TIMESTAMP, Field, Schema
from logdb_connect.errors import DataError
from logdb_connect.logical import decimal_schema

_PREFIX: Final = "io.confluent.connect.protobuf."
UNION: Final = f"{_PREFIX}Union."
TAG: Final = f"{_PREFIX}Tag"
ENUM: Final = f"{_PREFIX}Enum"
_DEFAULT_NAME: Final = "ConnectDefault"
_PRECISION: Final = "connect.decimal.precision"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final[Mapping[str, str]] = {
    "int8": "int32", "int16": "int32", "int32": "int32", "int64": "int64", "float32": "float", "float64": "double",
    "boolean": "bool", "string": "string", "bytes": "bytes",
}  # fmt: skip
_WRAPPERS: Final[Mapping[str, str]] = {
    "int32": "Int32Value", "int64": "Int64Value", "float": "FloatValue", "double": "DoubleValue", "bool": "BoolValue",
    "string": "StringValue", "bytes": "BytesValue",
}  # fmt: skip
_LOGICAL: Final[Mapping[str, tuple[str, str]]] = {
    DECIMAL: ("confluent.type.Decimal", files.DECIMAL),
    DATE: ("google.type.Date", files.DATE),
    TIME: ("google.type.TimeOfDay", files.TIME),
    TIMESTAMP: ("google.protobuf.Timestamp", files.TIMESTAMP),
}
_OF_MESSAGE: Final[Mapping[str, Schema]] = {
    "google.type.Date": Schema(type="int32", name=DATE, version=1),
    "google.type.TimeOfDay": Schema(type="int32", name=TIME, version=1),
    "google.protobuf.Timestamp": Schema(type="int64", name=TIMESTAMP, version=1),
}
_OF_WRAPPER: Final[Mapping[str, Any]] = {
    "Int32Value": "int32", "UInt32Value": "int64", "Int64Value": "int64", "UInt64Value": "int64", "FloatValue": "float32",
    "DoubleValue": "float64", "BoolValue": "boolean", "StringValue": "string", "BytesValue": "bytes",
}  # fmt: skip
_OF_TYPE: Final = {
    1: "float64", 2: "float32", 3: "int64", 4: "int64", 5: "int32", 6: "int64", 7: "int64", 8: "boolean", 9: "string", 12: "bytes",
    13: "int64", 15: "int32", 16: "int64", 17: "int32", 18: "int64",
}  # fmt: skip
"""Of ``FieldDescriptor.type``: double, float, int64, uint64, int32, fixed64, fixed32, bool, string, bytes, uint32, sfixed32, …."""


class Settings(NamedTuple):
    """What the converter's properties say about schemas."""

    full_names: bool = False
    optional: bool = False
    wrappers: bool = False


def proto_text(schema: Schema, settings: Settings) -> str:
    """The file of a struct's schema; its message is the first one.

    Raises:
        DataError: Protobuf has no such type, or no such name.
    """
    return _Writer(settings).written(schema)


class _Writer:
    """Writes one file.  All messages and enums are inside the first message, so that each can refer to each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._imports: set[str] = set()
        self._inner: list[str] = []
        self._known: dict[Schema, str] = {}
        self._names: set[str] = set()

    def written(self, schema: Schema) -> str:
        package, _, name = (schema.name or f"{_DEFAULT_NAME}1").rpartition(".")
        self._names.add(_checked(name))
        fields = self._fields(schema)
        inner = [f"  {line}" for text in self._inner for line in text.splitlines()]
        head = ['syntax = "proto3";', *([f"package {'.'.join(map(_checked, package.split('.')))};"] if package else []), ""]
        imports = [f'import "{each}";' for each in sorted(self._imports)]
        return "\n".join([*head, *imports, *([""] if imports else []), f"message {name} {{", *fields, *inner, "}", ""])

    def _fields(self, schema: Schema) -> list[str]:
        lines, number = [], 1
        for field in schema.fields:
            if (field.schema.name or "").startswith(UNION):
                lines.append(f"  oneof {_checked(str(field.schema.name).removeprefix(UNION))} {{")
                for one in field.schema.fields:
                    tag, number = _tag(one.schema, number)
                    lines.append(f"    {self._field(one.name, one.schema, tag, in_union=True)}")
                lines.append("  }")
                continue
            tag, number = _tag(field.schema, number)
            lines.append(f"  {self._field(field.name, field.schema, tag)}")
        return lines

    def _field(self, name: str, schema: Schema, tag: int, *, in_union: bool = False) -> str:
        label, inner = "", schema
        if schema.type == "array":
            assert schema.values is not None
            label, inner = "repeated ", schema.values
        if inner.type == "array" or (label and inner.type == "map"):
            raise DataError(f"Protobuf has no arrays of arrays or maps: field {name}")
        kind = self._map(name, schema) if schema.type == "map" else self._kind(inner, single=not label and not in_union)
        if kind in _WRAPPERS and schema.optional and not label and not in_union and self._settings.optional:
            label = "optional "
        parameters = _parameters(inner)
        options = ""
        if parameters:
            self._imports.add(files.META)
            texts = ", ".join(f'{{ key: "{key}", value: "{text}" }}' for key, text in parameters.items())
            options = f" [(confluent.field_meta) = {{ params: [{texts}] }}]"
        return f"{label}{kind} {_checked(name)} = {tag}{options};"

    def _map(self, name: str, schema: Schema) -> str:
        assert schema.keys is not None
        assert schema.values is not None
        keys = _SCALARS.get(schema.keys.type)
        if schema.keys.name in _LOGICAL or keys in (None, "float", "double", "bytes") or schema.values.type in ("array", "map"):
            raise DataError(
                f"Protobuf has no map such as field {name}: keys must be integers, booleans or strings, values no arrays or maps"
            )
        return f"map<{keys}, {self._kind(schema.values, single=False)}>"

    def _kind(self, schema: Schema, *, single: bool) -> str:
        if schema.name in _LOGICAL:
            kind, place = _LOGICAL[str(schema.name)]
            self._imports.add(place)
            return kind
        if schema.type == "struct":
            return self._message(schema)
        if ENUM in dict(schema.parameters):
            return self._enum(schema)
        kind = _SCALARS[schema.type]
        if single and schema.optional and self._settings.wrappers:
            self._imports.add(files.WRAPPERS)
            return f"google.protobuf.{_WRAPPERS[kind]}"
        return kind

    def _message(self, schema: Schema) -> str:
        key = schema.replace(optional=False, default=None, doc=None, parameters=())
        if key not in self._known:
            self._known[key] = name = self._free((schema.name or f"{_DEFAULT_NAME}{len(self._names) + 1}").rpartition(".")[2])
            fields = self._fields(schema)
            self._inner.append("\n".join([f"message {name} {{", *fields, "}"]))
        return self._known[key]

    def _enum(self, schema: Schema) -> str:
        key = schema.replace(optional=False, default=None, doc=None, parameters=tuple(one for one in schema.parameters if one[0] != TAG))
        if key not in self._known:
            parameters = dict(schema.parameters)
            symbols = {key.removeprefix(f"{ENUM}."): int(tag) for key, tag in parameters.items() if key.startswith(f"{ENUM}.")}
            self._known[key] = name = self._free(parameters[ENUM].rpartition(".")[2])
            lines = [f"  {_checked(symbol)} = {tag};" for symbol, tag in sorted(symbols.items(), key=lambda one: one[1])]
            self._inner.append("\n".join([f"enum {name} {{", *lines, "}"]))
        return self._known[key]

    def _free(self, name: str) -> str:
        """The name, with a number if another type has it."""
        found, number = _checked(name), 1
        while found in self._names:
            number += 1
            found = f"{name}{number}"
        self._names.add(found)
        return found


def _tag(schema: Schema, number: int) -> tuple[int, int]:
    """The number of a field, and that of the next one."""
    tag = dict(schema.parameters).get(TAG)
    return (number, number + 1) if tag is None else (int(tag), max(number, int(tag) + 1))


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DataError(f"{name!r} is no name in Protobuf: it must have letters, digits and _, and begin with a letter or _")
    return name


def _parameters(schema: Schema) -> dict[str, str]:
    if schema.type in ("int8", "int16"):
        return {"connect.type": schema.type}
    if schema.name == DECIMAL:
        given = dict(schema.parameters)
        found = {"precision": given.get(_PRECISION), "scale": str(int(given.get("scale", "0")))}
        return {key: str(int(each)) for key, each in found.items() if each is not None}
    return {}


# ---------------------------------------------------------------- schemas of Protobuf


def connect_schema(compiled: Compiled, descriptor: Any, settings: Settings) -> Schema:
    """The schema of a message.

    Raises:
        DataError: The message contains itself.
    """
    return _Reader(compiled, settings).struct(descriptor, ())


class _Reader:
    """Reads the messages of one file."""

    def __init__(self, compiled: Compiled, settings: Settings) -> None:
        self._compiled, self._settings = compiled, settings
        self._structs: dict[str, Schema] = {}

    def struct(self, descriptor: Any, around: tuple[str, ...]) -> Schema:
        name = descriptor.full_name
        if name in around:
            raise DataError(f"Protobuf message {name} contains itself, which is not supported")
        if name not in self._structs:
            fields: list[Field] = []
            unions: dict[tuple[int, str], list[Field]] = {}
            for field in descriptor.fields:
                read = Field(field.name, self._field(field, (*around, name)))
                if (union := field.containing_oneof) is not None and not _is_optional(union):
                    unions.setdefault((union.index, union.name), []).append(read)
                else:
                    fields.append(read)
            before = [
                Field(f"{of}_{index}", Schema(type="struct", name=f"{UNION}{of}", optional=True, fields=tuple(each)))
                for (index, of), each in sorted(unions.items())
            ]
            shown = name if self._settings.full_names else descriptor.name
            self._structs[name] = Schema(type="struct", name=shown, fields=(*before, *fields))
        return self._structs[name]

    def _field(self, field: Any, around: tuple[str, ...]) -> Schema:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name
            keys, values = self._single(entry["key"], around), self._single(entry["value"], around)
            made = Schema(type="map", keys=keys, values=values)
        else:
            made = self._single(field, around)
            if field.is_repeated:
                made = Schema(type="array", values=made)
        by_optional = self._settings.optional or self._settings.wrappers
        optional = not by_optional or field.has_presence or made.type in ("array", "map")
        return made.replace(optional=optional, parameters=(*made.parameters, (TAG, str(field.number))))

    def _single(self, field: Any, around: tuple[str, ...]) -> Schema:
        parameters = self._compiled.parameters(field)
        if field.enum_type is not None:
            symbols = ((f"{ENUM}.{one.name}", str(one.number)) for one in field.enum_type.values)
            return Schema(type="string", name=field.enum_type.name, parameters=((ENUM, field.enum_type.name), *symbols))
        if field.message_type is not None:
            return self._of_message(field.message_type, parameters, around)
        kind = _OF_TYPE.get(field.type)
        if kind is None:
            raise DataError(f"Protobuf field {field.full_name} has a type that is not supported")
        narrow = parameters.get("connect.type")
        return Schema(type=narrow if kind == "int32" and narrow in ("int8", "int16") else kind)  # type: ignore[arg-type]

    def _of_message(self, message: Any, parameters: Mapping[str, str], around: tuple[str, ...]) -> Schema:
        name = message.full_name
        if name == "confluent.type.Decimal":
            made = decimal_schema(int(parameters.get("scale", "0")))
            precision = parameters.get("precision")
            return made if precision is None else made.replace(parameters=(*made.parameters, (_PRECISION, precision)))
        if name in _OF_MESSAGE:
            return _OF_MESSAGE[name]
        if self._settings.wrappers and name.startswith("google.protobuf.") and message.name in _OF_WRAPPER:
            return Schema(type=_OF_WRAPPER[message.name])
        return self.struct(message, around)


def _is_optional(union: Any) -> bool:
    """Whether a oneof stands for the word ``optional``."""
    return len(union.fields) == 1 and not union.fields[0].is_repeated and union.name == f"_{union.fields[0].name}"
