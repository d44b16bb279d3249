"""Converters without a format of their own: text, bytes, and numbers as Kafka's serializers write them."""

import codecs
import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from logdb_connect import logical
from logdb_connect.config import ConfigDef, ConfigKey
from logdb_connect.data import OPTIONAL_BYTES, OPTIONAL_STRING, Schema, SchemaType
from logdb_connect.errors import ConfigError, DataError
from logdb_connect.plugin import Columns, Converter, HeaderConverter
from logdb_connect.values import text_of


class HeadersAsValues(Converter, HeaderConverter):
    """A converter that treats a header as it treats a value."""

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        return self.from_connect(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        return self.to_connect(topic, data)


class StringConverter(HeadersAsValues):
    """Text; another value is written as headers are (``logdb_connect.values``)."""

    config_def: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            "converter.encoding",
            "STRING",
            "UTF-8",
            "The character set that is used for serialization and deserialization of strings. Java's names are accepted.",
            "HIGH",
        )
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        name = config.get("converter.encoding") or "UTF-8"
        try:
            self._encoding = codecs.lookup({"UTF8": "utf-8", "ISO8859_1": "latin-1"}.get(name, name)).name
        except LookupError:
            message = f"Invalid value {name} for configuration converter.encoding: unknown encoding"
            raise ConfigError("converter.encoding", message) from None

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        if value is None:
            return None
        try:
            return (value if isinstance(value, str) else text_of(schema, value)).encode(self._encoding)
        except UnicodeEncodeError as error:
            raise DataError(f"Failed to serialize to a string: {error.reason} at character {error.start}") from None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        # Bytes that are no text become U+FFFD, as Java's strings do.
        return OPTIONAL_STRING, None if data is None else data.decode(self._encoding, "replace")

    def from_connect_many(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        if self._encoding == "utf-8" and set(map(type, values)) == {str}:
            try:
                return list(map(str.encode, values))
            except UnicodeEncodeError:
                pass  # the error names the value below
        return super().from_connect_many(topic, schema, values)

    def to_connect_many(self, topic: str, data: Sequence[bytes | None]) -> Columns:  # noqa: ARG002
        schemas: list[Schema | None] = [OPTIONAL_STRING] * len(data)
        if self._encoding == "utf-8":
            try:
                return schemas, list(map(bytes.decode, data))  # type: ignore[arg-type]
            except (TypeError, UnicodeDecodeError):
                pass  # one is None, or no text
        encoding = self._encoding
        return schemas, [None if each is None else each.decode(encoding, "replace") for each in data]


class ByteArrayConverter(HeadersAsValues):
    """Bytes as they are."""

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        if schema is not None and schema.type != "bytes":
            raise DataError(f"Invalid schema type for ByteArrayConverter: {schema.type.upper()}")
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise DataError(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        return OPTIONAL_BYTES, data

    def from_connect_many(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        if (schema is None or schema.type == "bytes") and set(map(type, values)) <= {bytes, type(None)}:
            return list(values)
        return super().from_connect_many(topic, schema, values)

    def to_connect_many(self, topic: str, data: Sequence[bytes | None]) -> Columns:  # noqa: ARG002
        return [OPTIONAL_BYTES] * len(data), list(data)


class _Number(NamedTuple):
    name: str
    type: SchemaType
    layout: str


class _NumberConverter(HeadersAsValues):
    """Numbers of one type, most significant byte first."""

    _number: ClassVar[_Number]

    def __init__(self) -> None:
        self._struct = struct.Struct(self._number.layout)
        self._schema = Schema(type=self._number.type, optional=True)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        if value is None:
            return None
        if not logical.fits(self._number.type, value):
            raise DataError(f"Failed to serialize to {self._number.name} (was {type(value).__name__}): ")
        try:
            return self._struct.pack(value)
        except (OverflowError, struct.error):
            raise DataError(f"Failed to serialize to {self._number.name}: the number is too large") from None

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        if data is None:
            return self._schema, None
        if len(data) != self._struct.size:
            raise DataError(
                f"Failed to deserialize {self._number.name}: Size of data received by {self._number.name.capitalize()}Deserializer "
                f"is not {self._struct.size}"
            )
        return self._schema, self._struct.unpack(data)[0]


class ShortConverter(_NumberConverter):
    """Whole numbers of 16 bits."""

    _number = _Number("short", "int16", ">h")


class IntegerConverter(_NumberConverter):
    """Whole numbers of 32 bits."""

    _number = _Number("integer", "int32", ">i")


class LongConverter(_NumberConverter):
    """Whole numbers of 64 bits."""

    _number = _Number("long", "int64", ">q")


class FloatConverter(_NumberConverter):
    """Floating point numbers of 32 bits."""

    _number = _Number("float", "float32", ">f")


class DoubleConverter(_NumberConverter):
    """Floating point numbers of 64 bits."""

    _number = _Number("double", "float64", ">d")


class BooleanConverter(HeadersAsValues):
    """One byte, 0 or 1."""

    _schema: ClassVar[Schema] = Schema(type="boolean", optional=True)

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        if schema is not None and schema.type != "boolean":
            raise DataError(f"Invalid schema type for BooleanConverter: {schema.type.upper()}")
        if value is None:
            return None
        if not isinstance(value, bool):
            raise DataError(f"BooleanConverter is not compatible with objects of type {type(value).__name__}")
        return b"\x01" if value else b"\x00"

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        if data is not None and data not in {b"\x00", b"\x01"}:
            raise DataError(f"Failed to deserialize boolean: {'Size of data is not 1' if len(data) != 1 else 'byte is not 0 or 1'}")
        return self._schema, None if data is None else data == b"\x01"
