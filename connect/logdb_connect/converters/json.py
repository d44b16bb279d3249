"""JSON, as Kafka's ``JsonConverter`` writes and reads it.

With ``schemas.enable`` each value stands in an envelope:

    {"schema":{"type":"string","optional":false},"payload":"a line"}

Most values take a fast path: the head of the envelope is made once for each schema, and msgspec checks and encodes the value by a type
that is made from the schema.  Values that the fast path refuses take the general path.  It either converts them, or says what is wrong.
So the fast path must refuse all values that the general path treats in another way.

One deliberate difference from Kafka: a number that does not fit the integer type of its schema is an error.  Kafka cuts off its high bits.
"""

import base64
import binascii
import json
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Generic, TypedDict, TypeVar

import msgspec

from logdb_connect import logical
from logdb_connect.config import ConfigDef, ConfigKey
from logdb_connect.converters.primitive import HeadersAsValues
from logdb_connect.data import DECIMAL, Field, Schema
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.plugin import Columns

_TYPE_NAMES: Final[Mapping[str, str]] = {"float32": "float", "float64": "double"}
_TYPES: Final[Mapping[str, Any]] = {
    "boolean": "boolean",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "bytes",
    "string": "string",
}
_ALSO: Final[Mapping[str, Any]] = {"array": (set, frozenset), "float32": Decimal, "float64": Decimal}
"""What values of a type may be, beside those of ``logical.fits``."""
_CONTROL: Final = re.compile(rb"\\(?:(u00[01])[0-9a-f]|.)")
_BEYOND: Final = re.compile(rb"[\xf0-\xf4][\x80-\xbf]{3}")
_FLOAT_MAX: Final = 1.7976931348623157e308
_FAST: Final[Mapping[str, Any]] = {
    **{name: Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)] for name, bits in logical.INTEGERS.items()},
    "float64": Annotated[float, msgspec.Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)],  # NaN and infinities take the general path
    "boolean": bool,
    "string": str,
}
_UNREAD: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""What msgspec raises for bytes that it does not read; ``UnicodeDecodeError`` is a ``ValueError``."""
_UNWRITTEN: Final = (msgspec.ValidationError, DataError, ValueError, RecursionError)
"""What the fast path raises for values that it does not write."""
_NOT_JSON = "Converting byte[] to Kafka Connect data failed due to serialization error: "
_NO_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
Key = TypeVar("Key")
Value = TypeVar("Value")


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_envelope: Final = msgspec.json.Decoder(_Envelope).decode


class Cache(Generic[Key, Value]):
    """The values that ``make`` gave for the last keys."""

    def __init__(self, size: int, make: Callable[[Key], Value]) -> None:
        self._size, self._make = size, make
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def __getitem__(self, key: Key) -> Value:
        if key in self._entries:
            self._entries.move_to_end(key)
            return self._entries[key]
        value = self._make(key)
        if self._size > 0:
            while len(self._entries) >= self._size:
                self._entries.popitem(last=False)
            self._entries[key] = value
        return value


class _Writing:
    """What is made once for each schema that values are written with.

    Attributes:
        fast_type: What msgspec converts values to; None: only the general path writes them.
        logical: Fields of a struct whose values become numbers or text before.
    """

    __slots__ = ("convert_many", "fast_type", "head", "logical", "schema")

    def __init__(self, schema: Schema | None, head: bytes, *, numeric: bool) -> None:
        self.schema, self.head = schema, head
        self.logical = _logical_fields(schema, numeric=numeric)
        self.fast_type = None if schema is None else _fast_type(_plain_fields(schema, self.logical), reads=False)
        self.convert_many = None if self.fast_type is None else list[self.fast_type]  # type: ignore[name-defined]

    def prepared(self, value: Any) -> Any:
        """The value for ``fast_type``."""
        if not self.logical or not isinstance(value, dict):
            return value
        made = dict(value)
        for name, schema in self.logical.items():
            if (given := made.get(name)) is not None:
                made[name] = _logical_to_json(schema, given)
        return made


class Reading:
    """What is made once for each schema that values are read with.

    Attributes:
        decode, decode_envelope: From a payload, or from the whole; None: only the general path reads values.
        logical: Fields of a struct whose values are made of numbers or text afterwards.
    """

    __slots__ = ("decode", "decode_envelope", "logical", "schema", "schema_json")

    def __init__(self, schema: Schema | None, schema_json: bytes) -> None:
        self.schema, self.schema_json = schema, msgspec.Raw(schema_json)
        self.logical = _logical_fields(schema, numeric=False)
        fast_type = Any if schema is None else _fast_type(_plain_fields(schema, self.logical), reads=True)
        self.decode: Callable[[bytes], Any] | None = None
        self.decode_envelope: Callable[[Any], Any] | None = None
        if fast_type is not None:
            self.decode = msgspec.json.Decoder(fast_type).decode
            fields = [("schema", msgspec.Raw), ("payload", fast_type)]
            self.decode_envelope = msgspec.json.Decoder(msgspec.defstruct("Envelope", fields, forbid_unknown_fields=True, gc=False)).decode

    def finished(self, value: Any) -> Any:
        """The value that ``decode`` gave, with its logical types."""
        if self.logical and value is not None:
            for name, schema in self.logical.items():
                if (given := value[name]) is not None:
                    value[name] = _logical_of_json(schema, given)
        return value


def _logical_fields(schema: Schema | None, *, numeric: bool) -> dict[str, Schema]:
    """The fields of a struct that have a logical type and no default; decimals only as text."""
    return {
        field.name: field.schema
        for field in (schema.fields if schema is not None and schema.type == "struct" else ())
        if field.schema.name in logical.NAMES and field.schema.default is None and not (numeric and field.schema.name == DECIMAL)
    }


def _plain_fields(schema: Schema, logical_fields: Mapping[str, Schema]) -> Schema:
    """The struct with the numbers or the text that stand for the values of these fields."""

    def plain(field: Field) -> Field:
        kind = "string" if field.schema.name == DECIMAL else field.schema.type
        return Field(field.name, Schema(type=kind, optional=field.schema.optional)) if field.name in logical_fields else field

    return schema.replace(fields=tuple(map(plain, schema.fields))) if logical_fields else schema


class JsonConverter(HeadersAsValues):
    """Values as JSON, with their schemas or without."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey("schemas.enable", "BOOLEAN", True, "Include schemas within each of the serialized values and keys.", "HIGH"),
        ConfigKey(
            "schemas.cache.size", "INT", 1000, "The maximum number of schemas that can be cached in this converter instance.", "HIGH"
        ),
        ConfigKey(
            "schema.content",
            "STRING",
            None,
            "The schema of all messages, as JSON. Messages are then read without an envelope. "
            "Without it, each message contains its schema.",
            "HIGH",
        ),
        ConfigKey(
            "decimal.format",
            "STRING",
            "BASE64",
            "Controls which format this converter will serialize decimals in. "
            "This value is case insensitive and can be either 'BASE64' (default) or 'NUMERIC'",
            "LOW",
            check=lambda value: (
                None if value.upper() in {"BASE64", "NUMERIC"} else "String must be one of (case insensitive): BASE64, NUMERIC"
            ),
        ),
        ConfigKey(
            "replace.null.with.default",
            "BOOLEAN",
            True,
            "Whether to replace fields that have a default value and that are null to the default value. "
            "When set to true, the default value is used, otherwise null is used.",
            "LOW",
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        self._enveloped = config.get("schemas.enable", True)
        self._values = _Values(
            numeric=str(config.get("decimal.format") or "BASE64").upper() == "NUMERIC",
            defaults=config.get("replace.null.with.default", True),
        )
        size = config.get("schemas.cache.size", 1000)
        self._writings: Cache[Schema | None, _Writing] = Cache(size, self._make_writing)
        self._readings: Cache[bytes, Reading] = Cache(size, self._make_reading)
        self._last_writing = self._make_writing(None)
        self._last_reading = self._head_reading = self._make_reading(b"null")
        self._head = b'{"schema":null,"payload":'  # of values that _head_reading reads
        self._given: Reading | None = None
        if (content := config.get("schema.content")) and self._enveloped:
            try:
                self._given = self._make_reading(content.encode())
            except DataError as error:
                raise ConfigError("schema.content", f"Invalid value {content} for configuration schema.content: {error}") from None

    # ------------------------------------------------------------ to bytes

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        if schema is None and value is None:
            return None
        writing = self._writing(schema)
        if writing.fast_type is not None:
            try:
                data = _as_jackson([_encode(msgspec.convert(writing.prepared(value), writing.fast_type))])[0]
            except _UNWRITTEN:
                pass  # the general path knows more, and says what is wrong
            else:
                return writing.head + data + b"}" if writing.head else data
        return self._general(writing, value)

    def from_connect_many(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:  # noqa: ARG002
        writing = self._writing(schema)
        head, tail = writing.head, b"}" if writing.head else b""
        try:
            if schema is None:
                fast = values if set(map(type, values)) == {str} else None
            elif schema.type == "string" and writing.fast_type is not None and set(map(type, values)) == {str}:
                fast = values
            elif writing.convert_many is not None:
                fast = msgspec.convert(list(map(writing.prepared, values)) if writing.logical else values, writing.convert_many)
            else:
                fast = None
            if fast is not None:
                return [head + each + tail for each in _as_jackson(list(map(_encode, fast)))]
        except _UNWRITTEN:
            pass  # the general path knows more, and says which value is wrong
        return [None if schema is None and each is None else self._general(writing, each) for each in values]

    def _general(self, writing: _Writing, value: Any) -> bytes:
        try:
            data = _as_jackson([_encode(self._values.to_json(writing.schema, value))])[0]
        except (UnicodeEncodeError, RecursionError, OverflowError) as error:
            raise DataError(f"Converting Kafka Connect data to byte[] failed due to serialization error: {error}") from None
        return writing.head + data + b"}" if writing.head else data

    def _writing(self, schema: Schema | None) -> _Writing:
        if self._last_writing.schema is not schema:
            self._last_writing = self._writings[schema]
        return self._last_writing

    def _make_writing(self, schema: Schema | None) -> _Writing:
        head = b""
        if self._enveloped:
            head = (
                b'{"schema":'
                + (b"null" if schema is None else _as_jackson([_encode(self._values.schema_to_json(schema))])[0])
                + b',"payload":'
            )
        return _Writing(schema, head, numeric=self._values.numeric)

    # ------------------------------------------------------------ from bytes

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        if data is None:
            return None, None
        if not self._enveloped:
            return None, self.read(self._last_reading, data) if data else None
        if self._given is not None:
            return self._given.schema, self.read(self._given, data)
        if data.startswith(self._head) and data.endswith(b"}"):
            # What lies between is one JSON value, or is refused: then the bytes are taken apart as a whole.
            reading, payload = self._head_reading, data[len(self._head) : -1]
            try:
                value = self.read(reading, payload)
            except DataError:
                pass
            else:
                self._last_reading = reading
                return reading.schema, value
        return self._read_envelope(data)

    def to_connect_many(self, topic: str, data: Sequence[bytes | None]) -> Columns:
        reading = self._last_reading
        if not self._enveloped and reading.decode is not None and all(data):
            try:
                return [None] * len(data), list(map(reading.decode, data))  # type: ignore[arg-type]
            except _UNREAD:
                pass  # one by one: the general path knows more, and says what is wrong
        if data and self._enveloped and self._given is None and None not in data:
            self.to_connect(topic, data[0])
            reading = self._last_reading
            if reading.decode_envelope is not None:
                schema, same = reading.schema, reading.schema_json
                try:
                    found = [each.payload for each in map(reading.decode_envelope, data) if each.schema == same]
                except _UNREAD:
                    found = []
                if len(found) == len(data):
                    return [schema] * len(found), [reading.finished(value) for value in found] if reading.logical else found
        return super().to_connect_many(topic, data)

    def _read_envelope(self, data: bytes) -> tuple[Schema | None, Any]:
        try:
            envelope = _envelope(data)
        except msgspec.ValidationError:
            raise DataError(_NO_ENVELOPE) from None
        except _UNREAD:
            parsed = _parse(data)  # what msgspec refuses and Kafka takes: NaN
            if not isinstance(parsed, dict) or parsed.keys() != {"schema", "payload"}:
                raise DataError(_NO_ENVELOPE) from None
            schema = self._values.schema_of_json(parsed["schema"])
            return schema, self._values.of_json(schema, parsed["payload"])
        if envelope.schema != self._last_reading.schema_json:
            self._last_reading = self._readings[bytes(envelope.schema)]
        payload = bytes(envelope.payload)
        head = b'{"schema":' + bytes(envelope.schema) + b',"payload":'
        if data.startswith(head):  # as Kafka writes it; others are read whole each time
            self._head, self._head_reading = head, self._last_reading
        return self._last_reading.schema, self.read(self._last_reading, payload)

    def read(self, reading: Reading, payload: bytes) -> Any:
        """The value of a payload, which has no envelope.

        Raises:
            DataError: It is none of the schema's.
        """
        if reading.decode is not None:
            try:
                return reading.finished(reading.decode(payload))
            except _UNREAD:
                pass  # the general path knows more, and says what is wrong
        parsed = _parse(payload)
        return _plain(parsed) if reading.schema is None else self._values.of_json(reading.schema, parsed)

    def _make_reading(self, schema_json: bytes) -> Reading:
        return Reading(self._values.schema_of_json(_parse(schema_json)), schema_json)


def _surrogates(found: "re.Match[bytes]") -> bytes:
    number = ord(found[0].decode()) - 0x10000
    return b"\\u%04X\\u%04X" % (0xD800 + (number >> 10), 0xDC00 + (number & 0x3FF))


def _as_jackson(encoded: list[bytes]) -> list[bytes]:
    """The same with characters as Jackson escapes them: keys that are equal have equal bytes.

    Control characters have capitals, and those beyond U+FFFF are two escapes.
    """
    joined = b"".join(encoded)
    if not joined.isascii() and _BEYOND.search(joined) is not None:
        encoded = [_BEYOND.sub(_surrogates, each) for each in encoded]
    if b"\\u00" not in joined:
        return encoded
    return [_CONTROL.sub(lambda found: found[0][:-2] + found[0][-2:].upper() if found[1] else found[0], each) for each in encoded]


def _parse(data: bytes) -> Any:
    """JSON; numbers with a point are ``Decimal``, since those of a Decimal schema keep all of their digits."""
    try:
        return json.loads(data, parse_float=Decimal, parse_constant=float)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise DataError(f"{_NOT_JSON}{error}") from None


def _plain(parsed: Any) -> Any:
    """A value without schema."""
    match parsed:
        case Decimal():
            return float(parsed)
        case list():
            return [_plain(each) for each in parsed]
        case dict():
            return {key: _plain(each) for key, each in parsed.items()}
        case _:
            return parsed


def _fast_type(schema: Schema, *, reads: bool) -> Any:
    """A type by which msgspec checks values of ``schema``; None where only the general path knows how.

    It must refuse a value that the general path would change: a null that has a default, for one.
    """
    if schema.name in logical.NAMES or schema.default is not None:
        return None
    fast: Any
    match schema.type:
        case "array":
            item = _fast_type(schema.values, reads=reads) if schema.values else None
            fast = None if item is None else list[item]  # type: ignore[valid-type]
        case "map":
            plain_keys = schema.keys is not None and schema.keys == Schema(type="string")
            item = _fast_type(schema.values, reads=reads) if schema.values and plain_keys else None
            fast = None if item is None else dict[str, item]  # type: ignore[valid-type]
        case "struct":
            fast = _fast_struct(schema.fields, reads=reads)
        case "bytes" if reads:
            fast = bytes
        case _:
            fast = _FAST.get(schema.type)
    return fast | None if schema.optional and fast is not None else fast


def _fast_struct(fields: Sequence[Field], *, reads: bool) -> Any:
    """Of a struct: read as a dict, written as a msgspec struct, which has the fields in order."""
    types = [_fast_type(field.schema, reads=reads) for field in fields]
    if None in types or not fields:
        return None
    if reads:
        return TypedDict("Fields", {field.name: type_ for field, type_ in zip(fields, types, strict=True)})  # type: ignore[operator]
    names = {f"f{number}": field.name for number, field in enumerate(fields)}
    return msgspec.defstruct("Fields", list(zip(names, types, strict=True)), rename=names, forbid_unknown_fields=True, gc=False)


class _Values:
    """The general path: values and schemas as what ``json`` reads, and msgspec writes."""

    def __init__(self, *, numeric: bool, defaults: bool) -> None:
        self.numeric, self._defaults = numeric, defaults

    def to_json(self, schema: Schema | None, value: Any) -> Any:
        if schema is None:
            return self._plain_to_json(value)
        if value is None:
            if schema.default is not None and self._defaults:
                return self.to_json(schema, schema.default)
            if schema.optional:
                return None
            raise DataError("Conversion error: null value for field that is required and has no default value")
        if schema.name in logical.NAMES:
            return _logical_to_json(schema, value, numeric=self.numeric)
        if isinstance(value, _ALSO.get(schema.type, ())):  # as msgspec does
            value = list(value) if schema.type == "array" else math.nan if value.is_snan() else float(value)
        if not logical.fits(schema.type, value):
            raise DataError(f"Invalid type for {schema.type.upper()}: {type(value).__name__}")
        match schema.type:
            case "float32" | "float64":
                return _float_to_json(value, narrow=schema.type == "float32")
            case "bytes":
                return base64.b64encode(value).decode()
            case "array":
                return [self.to_json(schema.values, each) for each in value]
            case "map":
                if schema.keys is not None and schema.keys.type == "string":
                    return {self.to_json(schema.keys, key): self.to_json(schema.values, each) for key, each in value.items()}
                return [[self.to_json(schema.keys, key), self.to_json(schema.values, each)] for key, each in value.items()]
            case "struct":
                return self._struct_to_json(schema, value)
            case _:
                return value

    def _struct_to_json(self, schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for field in schema.fields:
            found[field.name] = self.to_json(field.schema, value.get(field.name))
        if unknown := value.keys() - found.keys():
            raise DataError(f"{min(unknown)} is not a valid field name")
        return found

    def _plain_to_json(self, value: Any) -> Any:
        match value:
            case None | bool() | str():
                return value
            case int() if logical.fits("int64", value):
                return value
            case float():
                return _float_to_json(value, narrow=False)
            case bytes() | bytearray() | memoryview():
                return base64.b64encode(value).decode()
            case list() | tuple():
                return [self._plain_to_json(each) for each in value]
            case Mapping():
                if all(isinstance(key, str) for key in value):
                    return {key: self._plain_to_json(each) for key, each in value.items()}
                return [[self._plain_to_json(key), self._plain_to_json(each)] for key, each in value.items()]
            case int():
                raise DataError(f"Couldn't convert {value} to JSON: the number has more than 64 bits")
            case _:
                raise DataError(f"Java class {type(value).__name__} does not have corresponding schema type.")

    def of_json(self, schema: Schema | None, parsed: Any) -> Any:
        if schema is None:
            return _plain(parsed)
        if parsed is None:
            if schema.default is not None and self._defaults:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"Invalid null value for required {schema.type.upper()} field")
        if schema.name in logical.NAMES:
            return _logical_of_json(schema, parsed)
        match schema.type:
            case "array" if isinstance(parsed, list):
                return [self.of_json(schema.values, each) for each in parsed]
            case "map":
                return self._map_of_json(schema, parsed)
            case "struct":
                if not isinstance(parsed, dict):
                    raise DataError(f"Structs should be encoded as JSON objects, but found {_node(parsed)}")
                return {field.name: self.of_json(field.schema, parsed.get(field.name)) for field in schema.fields}
            case "bytes" if isinstance(parsed, str):
                return _binary(parsed, "Invalid bytes field")
            case "float32" | "float64":
                return _float_of_json(schema, parsed)
        if isinstance(parsed, Decimal) and schema.type in logical.INTEGERS and parsed.adjusted() < 20 and parsed == int(parsed):
            parsed = int(parsed)
        if not logical.fits(schema.type, parsed):
            raise DataError(f"Invalid type for {schema.type.upper()}: {_node(parsed)}{_size_of(schema, parsed)}")
        return parsed

    def _map_of_json(self, schema: Schema, parsed: Any) -> dict[Any, Any]:
        if schema.keys is not None and schema.keys.type == "string":
            if not isinstance(parsed, dict):
                raise DataError(f"Maps with string fields should be encoded as JSON objects, but found {_node(parsed)}")
            return {key: self.of_json(schema.values, each) for key, each in parsed.items()}
        if not isinstance(parsed, list):
            raise DataError(f"Maps with non-string fields should be encoded as JSON array of tuples, but found {_node(parsed)}")
        found = {}
        for entry in parsed:
            if not isinstance(entry, list):
                raise DataError(f"Found invalid map entry instead of array tuple: {_node(entry)}")
            if len(entry) != 2:
                raise DataError(f"Found invalid map entry, expected length 2 but found :{len(entry)}")
            key = self.of_json(schema.keys, entry[0])
            if isinstance(key, list | dict):
                raise DataError(f"Found invalid map entry: {_node(key)} as a key is not supported")
            found[key] = self.of_json(schema.values, entry[1])
        return found

    # ------------------------------------------------------------ schemas

    def schema_to_json(self, schema: Schema) -> dict[str, Any]:
        found: dict[str, Any] = {"type": _TYPE_NAMES.get(schema.type, schema.type)}
        match schema.type:
            case "array":
                found["items"] = None if schema.values is None else self.schema_to_json(schema.values)
            case "map":
                found["keys"] = None if schema.keys is None else self.schema_to_json(schema.keys)
                found["values"] = None if schema.values is None else self.schema_to_json(schema.values)
            case "struct":
                found["fields"] = [{**self.schema_to_json(field.schema), "field": field.name} for field in schema.fields]
        found["optional"] = schema.optional
        for name in ("name", "version", "doc"):
            if (part := getattr(schema, name)) is not None:
                found[name] = part
        if schema.parameters:
            found["parameters"] = dict(schema.parameters)
        if schema.default is not None:
            found["default"] = self.to_json(schema, schema.default)
        return found

    def schema_of_json(self, parsed: Any) -> Schema | None:
        if parsed is None:
            return None
        kind = parsed.get("type") if isinstance(parsed, dict) else None
        if not isinstance(kind, str):
            raise DataError("Schema must contain 'type' field")
        schema = self._bare_schema(kind, parsed)
        parts: dict[str, Any] = {"optional": parsed.get("optional") is True}
        for name, type_ in (("name", str), ("version", int), ("doc", str)):
            if isinstance(part := parsed.get(name), type_) and not isinstance(part, bool):
                parts[name] = part
        if isinstance(parameters := parsed.get("parameters"), dict):
            if not all(isinstance(each, str) for each in parameters.values()):
                raise DataError("Schema parameters must have string values.")
            parts["parameters"] = tuple(parameters.items())
        schema = schema.replace(**parts)
        return schema.replace(default=self.of_json(schema, parsed["default"])) if "default" in parsed else schema

    def _bare_schema(self, kind: str, parsed: Mapping[str, Any]) -> Schema:
        if (type_ := _TYPES.get(kind)) is not None:
            return Schema(type=type_)
        match kind:
            case "array":
                if parsed.get("items") is None:
                    raise DataError("Array schema did not specify the element type")
                return Schema(type="array", values=self.schema_of_json(parsed["items"]))
            case "map":
                for part, what in (("keys", "key"), ("values", "value")):
                    if part not in parsed:
                        raise DataError(f"Map schema did not specify the {what} type")
                return Schema(type="map", keys=self.schema_of_json(parsed["keys"]), values=self.schema_of_json(parsed["values"]))
            case "struct":
                return Schema(type="struct", fields=tuple(map(self._field, _fields(parsed))))
            case _:
                raise DataError(f"Unknown schema type: {kind}")

    def _field(self, parsed: Any) -> Field:
        name = parsed.get("field") if isinstance(parsed, dict) else None
        if not isinstance(name, str):
            raise DataError("Struct schema's field name not specified properly")
        schema = self.schema_of_json(parsed)
        assert schema is not None
        return Field(name, schema)


def _fields(parsed: Mapping[str, Any]) -> list[Any]:
    fields = parsed.get("fields")
    if not isinstance(fields, list):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    names = [each.get("field") for each in fields if isinstance(each, dict)]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"Cannot create field because of field name duplication {name}")
    return fields


def _float_to_json(value: float, *, narrow: bool) -> Any:
    number = logical.float32_of(value) if narrow else float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return float(logical.float32_text(number)) if narrow else number


def _float_of_json(schema: Schema, parsed: Any) -> float:
    if parsed in {"NaN", "Infinity", "-Infinity"} or (isinstance(parsed, int | float | Decimal) and not isinstance(parsed, bool)):
        number = float(parsed)
        return logical.float32_of(number) if schema.type == "float32" else number
    raise DataError(f"Invalid type for {schema.type.upper()}: {_node(parsed)}")


def _logical_to_json(schema: Schema, value: Any, *, numeric: bool = False) -> Any:
    if schema.name != DECIMAL:
        return logical.to_number(schema, value)
    if not isinstance(value, Decimal):
        raise DataError(f"Invalid type for Decimal, expected Decimal but was {type(value).__name__}")
    logical.scale_in(value)
    return value if numeric else base64.b64encode(logical.decimal_to_bytes(value, logical.scale_of(schema))).decode()


def _logical_of_json(schema: Schema, parsed: Any) -> Any:
    is_whole = isinstance(parsed, int) and not isinstance(parsed, bool)
    if schema.name != DECIMAL:
        if not is_whole:
            kind = "integral" if schema.type == "int64" else "integer"
            name = logical.short_name(schema)
            raise DataError(f"Invalid type for {name}, underlying representation should be {kind} but was {_node(parsed)}")

        return logical.of_number(schema, parsed)
    if is_whole or isinstance(parsed, Decimal):
        return Decimal(parsed)
    if isinstance(parsed, str):
        return logical.decimal_of_bytes(_binary(parsed, "Invalid bytes for Decimal field"), logical.scale_of(schema))
    raise DataError(f"Invalid type for Decimal, underlying representation should be numeric or bytes but was {_node(parsed)}")


def _binary(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(what) from None


def _node(parsed: Any) -> str:
    """The type of a JSON value, as Kafka's messages have it."""
    match parsed:
        case None:
            return "NULL"
        case bool():
            return "BOOLEAN"
        case int() | float() | Decimal():
            return "NUMBER"
        case str():
            return "STRING"
        case list():
            return "ARRAY"
        case _:
            return "OBJECT"


def _size_of(schema: Schema, parsed: Any) -> str:
    is_large = schema.type in logical.INTEGERS and isinstance(parsed, int) and not isinstance(parsed, bool)
    return f", {parsed} has more than {logical.INTEGERS[schema.type] + 1} bits" if is_large else ""
