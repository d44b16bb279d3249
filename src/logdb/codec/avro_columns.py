"""The Arrow types of an Avro schema.

Source: Avro 1.12, "Complex Types" and "Logical Types".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from logdb.codec.columns import import_pyarrow

if TYPE_CHECKING:
    import pyarrow


class AvroValues(Protocol):
    """Values in Avro's binary encoding of one schema; ``logdb.serde.avro`` makes one."""

    def plain(self) -> tuple[Any, Callable[[bytes], Any]]:
        """The schema of the values as read, parsed, and what decodes one, or None, or raises SerializationError.

        Times and UUIDs stay the numbers and texts of the encoding.
        """


def arrow_fields(schema: Any) -> "list[pyarrow.Field]":
    """The columns of a record's fields, all nullable.

    Raises:
        ValueError: It is no record, or a field has no type in Arrow.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "record" or not schema.get("fields"):
        raise ValueError(f"schema={schema!r:.200}: must be an Avro record with at least one field")
    kinds = _Kinds()
    return list(kinds.of(schema))


class _Kinds:
    """Named types are known from where they are defined on."""

    def __init__(self) -> None:
        self._pa = pa = import_pyarrow()
        self._named: dict[str, Any] = {}
        self._primitive = {
            "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
            "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
        }  # fmt: skip
        self._logical = {
            "date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us"), "uuid": pa.string(),
            "timestamp-millis": pa.timestamp("ms", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
            "timestamp-nanos": pa.timestamp("ns", "UTC"), "local-timestamp-millis": pa.timestamp("ms"),
            "local-timestamp-micros": pa.timestamp("us"), "local-timestamp-nanos": pa.timestamp("ns"),
        }  # fmt: skip

    def of(self, schema: Any) -> "pyarrow.DataType":
        if isinstance(schema, str):
            if (known := self._primitive.get(schema) or self._named.get(schema)) is None:
                raise ValueError(f"schema: the type {schema!r} contains itself, or is unknown")
            return known
        if isinstance(schema, Sequence):
            return self._union([one for one in schema if one != "null"])
        found = self._logical_type(schema) or self._complex(schema["type"], schema)
        if "name" in schema:
            self._named[schema["name"]] = found
        return found

    def _logical_type(self, schema: Mapping[str, Any]) -> "pyarrow.DataType | None":
        logical = schema.get("logicalType")
        if logical == "decimal":
            return self._pa.decimal128(schema["precision"], schema.get("scale", 0))
        return None if logical is None or schema["type"] == "fixed" else self._logical.get(logical)

    def _union(self, kinds: Sequence[Any]) -> "pyarrow.DataType":
        if len(kinds) > 1:
            raise ValueError(f"schema: a union of {len(kinds)} types is no type in Arrow: must be one type, or null and one type")
        return self.of(kinds[0]) if kinds else self._pa.null()

    def _complex(self, kind: str, schema: Mapping[str, Any]) -> "pyarrow.DataType":
        pa = self._pa
        if kind == "array":
            return pa.list_(self.of(schema["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"]))
        if kind in {"record", "error"}:
            return pa.struct([pa.field(field["name"], self.of(field["type"])) for field in schema["fields"]])
        return pa.string() if kind == "enum" else pa.binary(schema["size"]) if kind == "fixed" else self.of(kind)
