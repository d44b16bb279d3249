"""Serializers and deserializers for keys and values: string, json, avro.

Any object with ``serialize`` and ``deserialize``, and any callable, may take their place.  None is never passed to one: it is a
missing key, or a tombstone.

    db.producer(key_serializer=serde.string, value_serializer=serde.json)
    db.producer(key_serializer="string", value_serializer="json")  # the same
    db.consumer("orders", key_deserializer=serde.string, value_deserializer=serde.avro(schema))
"""

import io
import json as _json
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from logdb.codec.avro_bounds import AvroBounds
from logdb.errors import SerializationError, missing_package
from logdb.mistakes import must_be
from logdb.model import Buffer


@runtime_checkable
class Serde(Protocol):
    """A format, in both directions."""

    def serialize(self, value: Any) -> Buffer: ...

    def deserialize(self, data: bytes) -> Any: ...


Name: TypeAlias = Literal["string", "json"]
Serializer: TypeAlias = Serde | Callable[[Any], Buffer | None] | Name
Deserializer: TypeAlias = Serde | Callable[[bytes], Any] | Name


class String:
    """str, encoded.

    Args:
        encoding: As in ``str.encode``.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # raises for an unknown encoding here, not at the first record
        self._encoding = encoding

    def serialize(self, value: str) -> bytes:
        return value.encode(self._encoding)

    def deserialize(self, data: bytes) -> str:
        return data.decode(self._encoding)


class Json:
    """Any JSON value as compact UTF-8; NaN and infinities are not JSON and raise in both directions."""

    def serialize(self, value: Any) -> bytes:
        return _json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def deserialize(self, data: bytes) -> Any:
        return _json.loads(data, parse_constant=_refuse_constant)


class Avro:
    """Avro's binary encoding of one schema, without the schema: writers and readers have to agree on it.

    Needs the package fastavro (``pip install fastavro``).

    ``serialize`` allows 500 levels of records, arrays and maps in one another, ``deserialize`` 1,000; where libc is musl, 25 and 40.
    A value contains at most 100,000 nulls, records and other values without bytes of their own, or 16 for each of its bytes.

    Args:
        schema: The schema that the bytes are written with, parsed from an ``.avsc`` file.
        reader_schema: The schema that the reader wants, if it is another version.

    Raises:
        SerializationError: It is not a schema, or fastavro is not installed.

    Source: Avro 1.11, "Binary Encoding" and "Schema Resolution".
    """

    def __init__(self, schema: "Schema", *, reader_schema: "Schema | None" = None) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise SerializationError(str(missing_package("avro", "fastavro"))) from error
        self._given = schema, reader_schema
        self._parse, self._write, self._read = fastavro.parse_schema, fastavro.schemaless_writer, fastavro.schemaless_reader
        self._schema, self._reader_schema = self._parsed(schema), self._parsed(reader_schema)
        try:
            self._bounds = AvroBounds(self._schema)
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"not an avro schema: {error}") from error

    def _parsed(self, schema: "Schema | None") -> Any:
        try:
            return None if schema is None else self._parse(schema)
        except Exception as error:
            raise SerializationError(f"not an avro schema: {error}") from error

    def serialize(self, value: Any) -> bytes:
        self._bounds.check_value(value)
        out = io.BytesIO()
        self._write(out, self._schema, value)
        data = out.getvalue()
        self._bounds.check(data)
        return data

    def deserialize(self, data: bytes) -> Any:
        return self._decoded(data, self._schema, self._reader_schema)

    def plain(self) -> tuple[Any, Callable[[bytes], Any]]:
        """For ``read_arrow(schema=…)``: the reader's schema, and what decodes a value; times and UUIDs stay numbers and texts."""
        written, read = (self._parsed(_without_logical_types(schema)) for schema in self._given)
        return self._reader_schema or self._schema, _guarded(lambda data: self._decoded(data, written, read), "value")

    def _decoded(self, data: bytes, schema: Any, reader_schema: Any) -> Any:
        self._bounds.check(data)
        file = io.BytesIO(data)
        value = self._read(file, schema, reader_schema)
        if rest := len(data) - file.tell():
            raise ValueError(f"{rest} of {len(data)} bytes are left over")
        return value


Schema: TypeAlias = str | list[Any] | dict[str, Any]


def _without_logical_types(schema: Any) -> Any:
    """A schema whose values are those of the encoding; decimals stay, because their bytes are no number in Arrow."""
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name != "logicalType" or value == "decimal"}
    return {name: _without_logical_types(value) if name in {"type", "items", "values", "fields"} else value for name, value in kept.items()}


string, json, avro = String(), Json(), Avro
_BY_NAME: Mapping[str, Serde] = {"string": string, "json": json}
S = TypeVar("S")


def named(given: "S | Name") -> "S | Serde":
    """The serializer of a name; anything else stays as it is."""
    found = _BY_NAME.get(given) if isinstance(given, str) else None
    return given if found is None else found  # type: ignore[return-value]  # an unknown name is refused later


def serializing(serializer: Serializer | None, what: str) -> Callable[[Any], Buffer | None] | None:
    """The function that turns a key or a value (``what``) into bytes; None if no serializer is given.

    Raises:
        SerializationError: Raised by the returned function for any error of the serializer.
        TypeError: ``serializer`` is neither of this module nor callable.
    """
    if serializer is None:
        return None
    serializer = named(serializer)
    return _guarded(_callable(serializer.serialize if isinstance(serializer, Serde) else serializer, f"{what}_serializer"), what)


def deserializing(deserializer: Deserializer | None, what: str) -> Callable[[Any], Any] | None:
    """The same for a deserializer."""
    if deserializer is None:
        return None
    deserializer = named(deserializer)
    return _guarded(_callable(deserializer.deserialize if isinstance(deserializer, Serde) else deserializer, f"{what}_deserializer"), what)


def _callable(given: Any, option: str) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = given
    if not callable(given):
        raise TypeError(must_be(option, given, "'string', 'json', one of logdb.serde (string, json, avro(schema)), or a callable"))
    return function


def _guarded(convert: Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
    def guarded(given: Any) -> Any:
        if given is None:
            return None
        try:
            return convert(given)
        except Exception as error:
            raise SerializationError(f"{what} of type {type(given).__name__}: {type(error).__name__}: {error}") from error

    return guarded


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
