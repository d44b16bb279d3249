"""Serializers and deserializers for keys and values: string, json, avro.

Knows these formats.  Does not know records or clients: whatever has ``serialize`` and ``deserialize`` does as well,
and so does a callable.  None is passed by: it is a missing key, or a tombstone.

    db.producer(key_serializer=serde.string, value_serializer=serde.json)
    db.consumer("orders", key_deserializer=serde.string, value_deserializer=serde.avro(schema))
"""

import io
import json as _json
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from logdb.errors import SerializationError, missing_package
from logdb.model import Buffer


@runtime_checkable
class Serde(Protocol):
    """One format, both ways."""

    def serialize(self, value: Any) -> Buffer: ...

    def deserialize(self, data: bytes) -> Any: ...


Serializer: TypeAlias = Serde | Callable[[Any], Buffer | None]
Deserializer: TypeAlias = Serde | Callable[[bytes], Any]


class String:
    """str, encoded.

    Args:
        encoding: As in ``str.encode``.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # an unknown one is an error here, not at the first record
        self._encoding = encoding

    def serialize(self, value: str) -> bytes:
        return value.encode(self._encoding)

    def deserialize(self, data: bytes) -> str:
        return data.decode(self._encoding)


class Json:
    """Whatever JSON can say, as compact UTF-8; NaN and infinities, which it cannot, are refused both ways."""

    def serialize(self, value: Any) -> bytes:
        return _json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def deserialize(self, data: bytes) -> Any:
        return _json.loads(data, parse_constant=_refuse_constant)


class Avro:
    """Avro's binary encoding of one schema, without the schema: both sides have to know it.

    Needs the package fastavro (``pip install fastavro``).

    Args:
        schema: As in an ``.avsc`` file, parsed from JSON: what the bytes were, or are, written with.
        reader_schema: What is wanted by the reader, if that is a later or earlier version of it.

    Raises:
        SerializationError: It is no schema, or fastavro is not installed.

    Source: Avro 1.11, "Binary Encoding" and "Schema Resolution".
    """

    def __init__(self, schema: "Schema", *, reader_schema: "Schema | None" = None) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise SerializationError(str(missing_package("avro", "fastavro"))) from error
        try:
            self._schema = fastavro.parse_schema(schema)
            self._reader_schema = None if reader_schema is None else fastavro.parse_schema(reader_schema)
        except Exception as error:
            raise SerializationError(f"not an avro schema: {error}") from error
        self._write, self._read = fastavro.schemaless_writer, fastavro.schemaless_reader

    def serialize(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, self._schema, value)
        return out.getvalue()

    def deserialize(self, data: bytes) -> Any:
        file = io.BytesIO(data)
        value = self._read(file, self._schema, self._reader_schema)
        if rest := len(data) - file.tell():
            raise ValueError(f"{rest} of {len(data)} bytes are left over")
        return value


Schema: TypeAlias = str | list[Any] | dict[str, Any]

string, json, avro = String(), Json(), Avro


def serializing(serializer: Serializer | None, what: str) -> Callable[[Any], Buffer | None] | None:
    """What turns a key or a value (``what``) into bytes; None where bytes are what is given.

    Raises:
        SerializationError: from what is returned, whatever the serializer raised.
        TypeError: ``serializer`` is neither one of this module nor a callable.
    """
    if serializer is None:
        return None
    return _guarded(_callable(serializer.serialize if isinstance(serializer, Serde) else serializer, f"{what}_serializer"), what)


def deserializing(deserializer: Deserializer | None, what: str) -> Callable[[Any], Any] | None:
    """The way back; raises as ``serializing``."""
    if deserializer is None:
        return None
    return _guarded(_callable(deserializer.deserialize if isinstance(deserializer, Serde) else deserializer, f"{what}_deserializer"), what)


def _callable(given: Callable[[Any], Any], option: str) -> Callable[[Any], Any]:
    if not callable(given):
        raise TypeError(f"{option}={given!r}: allowed is one of logdb.serde (string, json, avro(schema)), or a callable")
    return given


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
