"""Columns made of record values: JSON objects, by pyarrow's own parser; or records of Avro, by the decoder of ``serde``."""

import bisect
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from logdb.codec.avro_columns import AvroValues, arrow_fields
from logdb.codec.columns import import_pyarrow
from logdb.errors import SerializationError

if TYPE_CHECKING:
    import pyarrow

_ROW = re.compile(r" in row (\d+)$")  # as the parser names a row of a batch

ValueSchema: TypeAlias = Union["pyarrow.Schema", AvroValues]
"""Fields of JSON objects, or a schema of Avro."""


def typed_values(schema: ValueSchema, columns: Sequence[str], names: Sequence[str] | None = None) -> "TypedValues":
    """What makes the columns of a schema.

    Args:
        columns: The caller's columns of the records themselves.
        names: Only these fields; None: all.

    Raises:
        ValueError: It is neither of the two, or has no fields, or Arrow has no type for one.
    """
    if isinstance(schema, import_pyarrow().Schema) and schema.names:
        return _JsonValues(list(schema), columns, names)
    if hasattr(schema, "plain"):
        return _AvroValues(schema, columns, names)
    raise ValueError(f"schema={schema!r}: must be a pyarrow.Schema with at least one field, or logdb.serde.avro(…)")


class TypedValues(ABC):
    """Makes the columns of a schema from the values of batches.

    Attributes:
        source_columns: Columns that a batch needs: the caller's, ``offset`` and ``value``.
        fields: The schema's, all nullable.
    """

    def __init__(self, fields: "Sequence[pyarrow.Field]", columns: Sequence[str], names: Sequence[str] | None) -> None:
        self._pa = import_pyarrow()
        self.source_columns = [*columns, *(name for name in ("offset", "value") if name not in columns)]
        self.fields = [field.with_nullable(True) for field in fields if names is None or field.name in names]

    @abstractmethod
    def columns(self, batch: "pyarrow.RecordBatch") -> list[Any]:
        """One array for each field.

        Raises:
            SerializationError: A value does not fit the schema; the error has its offset.
        """


class _AvroValues(TypedValues):
    def __init__(self, values: AvroValues, columns: Sequence[str], names: Sequence[str] | None) -> None:
        schema, self._decode = values.plain()
        super().__init__(arrow_fields(schema), columns, names)
        self._kind = self._pa.struct(self.fields)

    def columns(self, batch: "pyarrow.RecordBatch") -> list[Any]:
        offsets, values, decode = batch.column("offset"), batch.column("value"), self._decode
        rows: list[Any] = []
        try:
            rows.extend(map(decode, values.to_pylist()))  # up to an error, which has its row in their number
        except SerializationError as error:
            raise SerializationError(f"the value at offset {offsets[len(rows)]} does not fit the schema: {error}") from None
        try:
            return list(self._pa.array(rows, self._kind).flatten())
        except self._pa.ArrowException as error:
            raise SerializationError(_explained(str(error), offsets)) from None


class _JsonValues(TypedValues):
    def __init__(self, fields: "Sequence[pyarrow.Field]", columns: Sequence[str], names: Sequence[str] | None) -> None:
        super().__init__(fields, columns, names)
        self._schema = self._pa.schema(self.fields)

    def columns(self, batch: "pyarrow.RecordBatch") -> list[Any]:
        offsets, values = batch.column("offset"), batch.column("value")
        try:
            table = self._parsed(values, self._schema)
            if table.num_rows == batch.num_rows:
                return [self._pa.concat_arrays(column.chunks) for column in table.columns]
        except self._pa.ArrowInvalid as error:
            raise SerializationError(self._located(str(error), values, offsets) or _explained(str(error), offsets)) from None
        raise SerializationError(
            f"a value of offsets {offsets[0]} to {offsets[-1]}: there are {table.num_rows} JSON objects in {batch.num_rows} values"
        )

    def _located(self, message: str, values: Any, offsets: Any) -> str:
        """The message of a conversion with the offset and the field, which the parser does not name; empty for other messages."""
        unused = self._pa.field("\0", self._pa.null())  # fails if no field is to blame, but the text
        for field in (unused, *self.fields) if _ROW.search(message) is None else ():
            schema = self._pa.schema([field])
            if (found := self._failure(values, schema)) and _ROW.search(found) is None:
                row = bisect.bisect_left(range(len(values) - 1), 1, key=lambda last: len(self._failure(values[: last + 1], schema)))
                found = self._failure(values[row : row + 1], schema) or found
                named = "" if field is unused else f"field {field.name!r}: "
                return f"the value at offset {offsets[row]} does not fit the schema: {named}{found}"
        return ""

    def _failure(self, values: Any, schema: "pyarrow.Schema") -> str:
        """Why the values do not fit these fields; empty: they do."""
        try:
            self._parsed(values, schema)
        except self._pa.ArrowInvalid as error:
            return str(error)
        return ""

    def _parsed(self, values: Any, schema: "pyarrow.Schema") -> "pyarrow.Table":
        """The objects of all values: each is one line of JSON lines.

        No line is blank, so each gives an object at least; if their number is that of the values, each value is one object.
        """
        import pyarrow.compute as pc
        from pyarrow import json

        pa = self._pa
        lines = pc.fill_null(values, b"{}").cast(pa.string())
        for end in ("\n", "\r"):  # between the parts of an object; within a string JSON forbids them
            lines = pc.replace_substring(lines, end, " ")
        blank = pc.index(pc.utf8_trim_whitespace(lines), "").as_py()
        if blank >= 0:
            raise pa.ArrowInvalid(f"The value is empty in row {blank}")
        (text,) = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
        data = text.as_buffer()
        options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        table = json.read_json(pa.BufferReader(data), json.ReadOptions(use_threads=False, block_size=data.size + 1), options)
        return table.select(schema.names).cast(schema)


def _explained(message: str, offsets: Any) -> str:
    """An error of the parser, with the offset of the record."""
    found = _ROW.search(message)
    if found is None or int(found[1]) >= len(offsets):
        return f"a value of offsets {offsets[0]} to {offsets[-1]} does not fit the schema: {message}"
    return f"the value at offset {offsets[int(found[1])]} does not fit the schema: {message[: found.start()]}"
