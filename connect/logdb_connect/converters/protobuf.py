"""Protobuf with a schema registry, as Confluent's ``ProtobufConverter`` writes and reads it.

After the id of the schema, a record has the indexes of its message in the file.  What proto3 does not have stands in options
(``confluent.field_meta``) and in parameters of Connect's schemas (``io.confluent.connect.protobuf.Tag``, ``….Enum``); a ``oneof`` is a
struct ``io.confluent.connect.protobuf.Union.NAME``.  A value must be a struct.  Messages that contain themselves are refused.
"""

from collections.abc import Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final

from logdb_connect import data, logical
from logdb_connect.config import ConfigDef, ConfigKey
from logdb_connect.converters import registry
from logdb_connect.converters.json import Cache
from logdb_connect.converters.primitive import HeadersAsValues
from logdb_connect.converters.protobuf_files import Compiled
from logdb_connect.converters.protobuf_schemas import UNION, Settings, connect_schema, proto_text
from logdb_connect.data import Schema
from logdb_connect.errors import DataError
from logdb_connect.logical import EPOCH

_INT64_END: Final = 1 << 63
_INDEXES_MAX: Final = 100


class ProtobufConverter(HeadersAsValues):
    """Values as Protobuf messages; their schemas are in the registry."""

    config_def: ClassVar[ConfigDef] = registry.CONFIG + ConfigDef(
        ConfigKey("enhanced.protobuf.schema.support", "BOOLEAN", False, "Whether names of schemas have the package of the message."),
        ConfigKey("optional.for.nullables", "BOOLEAN", False, "Whether optional fields are `optional` ones, so that null differs from 0."),
        ConfigKey("wrapper.for.nullables", "BOOLEAN", False, "Whether optional fields are messages such as `google.protobuf.StringValue`."),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        from google.protobuf import message  # an extra

        self._decode_error: Any = message.DecodeError
        self._registry = registry.Registry(config)
        self._subjects = registry.Subjects(self._registry, config, "PROTOBUF")
        self._settings = Settings(
            full_names=config["enhanced.protobuf.schema.support"],
            optional=config["optional.for.nullables"],
            wrappers=config["wrapper.for.nullables"],
        )
        size = config["schemas.cache.config"]
        self._writers: Cache[tuple[str, Schema], tuple[int, Any]] = Cache(size, self._make_writer)
        self._compiled: Cache[int, Compiled] = Cache(size, self._make_compiled)
        self._readers: Cache[tuple[int, tuple[int, ...]], tuple[Any, Schema]] = Cache(size, self._make_reader)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None or schema.type != "struct":
            raise DataError("Failed to serialize Protobuf data: ProtobufConverter needs structs with a schema")
        logical.check(schema, value)
        number, make = self._writers[self._subjects.subject(topic, schema), schema]
        message = make()
        try:
            _fill(message, schema, value)
            body = message.SerializeToString()
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise DataError(f"Failed to serialize Protobuf data from topic {topic}: {error}") from None
        return registry.framed(number, b"\x00" + body)  # the first message of the file

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        number, body = registry.unframed(topic, data, "Protobuf")
        path, at = _indexes(topic, body)
        make, schema = self._readers[number, path]
        try:
            message = make.FromString(body[at:])
            return schema, _struct(schema, message)
        except (self._decode_error, ValueError, OverflowError, ArithmeticError, RecursionError) as error:
            raise DataError(f"Failed to deserialize data for topic {topic} to Protobuf: {type(error).__name__}: {error}") from None

    def _make_writer(self, key: tuple[str, Schema]) -> tuple[int, Any]:
        subject, schema = key
        number, text = self._subjects.id_of(subject, proto_text(schema, self._settings))
        compiled = Compiled(text, {})
        return number, compiled.message_class(compiled.message((0,)))

    def _make_compiled(self, number: int) -> Compiled:
        found = self._registry.by_id(number)
        if found.get("schemaType") != "PROTOBUF":
            raise DataError(f"Schema {number} of the registry is {found.get('schemaType', 'AVRO')}, not Protobuf")
        return Compiled(str(found["schema"]), self._registry.references(found))

    def _make_reader(self, key: tuple[int, tuple[int, ...]]) -> tuple[Any, Schema]:
        compiled = self._compiled[key[0]]
        descriptor = compiled.message(key[1])
        return compiled.message_class(descriptor), connect_schema(compiled, descriptor, self._settings)


def _indexes(topic: str, body: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of the message in its file, and where they end."""
    count, at = _varint(topic, body, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise DataError(f"Failed to deserialize data for topic {topic} to Protobuf: {count} message indexes")
    path = []
    for _ in range(count):
        index, at = _varint(topic, body, at)
        if index < 0:
            raise DataError(f"Failed to deserialize data for topic {topic} to Protobuf: message index {index}")
        path.append(index)
    return tuple(path), at


def _varint(topic: str, body: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag form, and where it ends."""
    number = shift = 0
    for end, byte in enumerate(body[at : at + 5], at + 1):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), end
        shift += 7
    raise DataError(f"Failed to deserialize data for topic {topic} to Protobuf: the message indexes are cut off")


# ---------------------------------------------------------------- values to messages


def _fill(message: Any, schema: Schema, value: Mapping[str, Any]) -> None:
    """Put a struct into a message."""
    for field in schema.fields:
        each = value.get(field.name)
        if each is None:
            continue
        if (field.schema.name or "").startswith(UNION):
            _fill(message, field.schema, each)
        else:
            _put(message, field.name, field.schema, each)


def _put(message: Any, name: str, schema: Schema, value: Any) -> None:
    if schema.type == "array":
        assert schema.values is not None
        target = getattr(message, name)
        for each in value:
            if each is None:
                raise DataError(f"The array {name} has a null, which Protobuf does not have")
            if hasattr(target, "add"):
                _put_message(target.add(), schema.values, each)
            else:
                target.append(_scalar(message, name, schema.values, each))
    elif schema.type == "map":
        assert schema.values is not None
        target = getattr(message, name)
        for key, each in value.items():
            if each is None:
                raise DataError(f"The map {name} has a null, which Protobuf does not have")
            if schema.values.type == "struct" or schema.values.name in logical.NAMES:
                _put_message(target[key], schema.values, each)
            else:
                target[key] = each
    elif message.DESCRIPTOR.fields_by_name[name].message_type is not None:
        target = getattr(message, name)
        target.SetInParent()
        _put_message(target, schema, value)
    else:
        setattr(message, name, _scalar(message, name, schema, value))


def _scalar(message: Any, name: str, schema: Schema, value: Any) -> Any:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.enum_type is not None:
        return field.enum_type.values_by_name[value].number
    return bytes(value) if schema.type == "bytes" else value


def _put_message(target: Any, schema: Schema, value: Any) -> None:
    """Put a value into the message that stands for it."""
    match schema.name:
        case data.DECIMAL:
            target.value, target.scale = logical.decimal_to_bytes(value, logical.scale_of(schema)), logical.scale_of(schema)
            target.precision = len(value.as_tuple().digits)
        case data.DATE:
            target.year, target.month, target.day = value.year, value.month, value.day
        case data.TIME:
            target.hours, target.minutes, target.seconds = value.hour, value.minute, value.second
            target.nanos = value.microsecond // 1000 * 1_000_000
        case data.TIMESTAMP:
            since_ms = logical.to_number(schema, value)
            target.seconds, target.nanos = since_ms // 1000, since_ms % 1000 * 1_000_000
        case _ if schema.type == "struct":
            _fill(target, schema, value)
        case _:  # a wrapper
            target.value = bytes(value) if schema.type == "bytes" else value


# ---------------------------------------------------------------- messages to values


def _struct(schema: Schema, message: Any) -> dict[str, Any]:
    return dict(_fields(schema, message))


def _fields(schema: Schema, message: Any) -> Iterator[tuple[str, Any]]:
    for field in schema.fields:
        if (field.schema.name or "").startswith(UNION):
            chosen = message.WhichOneof(field.schema.name.removeprefix(UNION))  # type: ignore[union-attr]
            union = {one.name: _value(one.schema, message, one.name) if one.name == chosen else None for one in field.schema.fields}
            yield field.name, None if chosen is None else union
        else:
            yield field.name, _value(field.schema, message, field.name)


def _value(schema: Schema, message: Any, name: str) -> Any:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.has_presence and not message.HasField(name):
        return None
    value = getattr(message, name)
    if schema.type == "array":
        assert schema.values is not None
        return [_single(schema.values, each, field) for each in value]
    if schema.type == "map":
        assert schema.values is not None
        entry = field.message_type.fields_by_name["value"]
        return {key: _single(schema.values, each, entry) for key, each in value.items()}
    return _single(schema, value, field)


def _single(schema: Schema, value: Any, field: Any) -> Any:
    match schema.name:
        case _ if field.enum_type is not None:
            found = field.enum_type.values_by_number.get(value)
            return str(value) if found is None else found.name
        case data.DECIMAL:
            number = logical.decimal_of_bytes(value.value or b"\0", value.scale)
            return number.quantize(Decimal(1).scaleb(-logical.scale_of(schema)))
        case data.DATE:
            return date(value.year, value.month, value.day)
        case data.TIME:
            return time(value.hours, value.minutes, value.seconds, value.nanos // 1000)
        case data.TIMESTAMP:
            return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if schema.type == "struct":
        return _struct(schema, value)
    if field.message_type is not None and field.message_type.full_name.startswith("google.protobuf."):
        value = value.value  # of a wrapper
    if schema.type == "int64" and value >= _INT64_END:
        return value - 2 * _INT64_END  # as Java reads uint64
    return value
