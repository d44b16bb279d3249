"""The columns: Spark's schema, Arrow's, and the conversion of a log's batches.

pyarrow is imported by the first batch.
Schema of Spark's Kafka source: key binary, value binary, topic string, partition int, offset long, timestamp timestamp,
timestampType int (0 CreateTime, 1 LogAppendTime), and, if asked for, headers array<struct<key: string, value: binary>>,
null where a record has none.  Each may be null as far as the schema says.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logdb.codec.times import clamped
from logdb.errors import InvalidConfig

if TYPE_CHECKING:
    import pyarrow

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
NAMES = tuple(_TYPES)
_OF_THE_LOG = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}


def chosen(names: Sequence[str] | None, *, headers: bool) -> tuple[str, ...]:
    """The columns to read, in their order: the named ones, otherwise all, with or without headers.

    Raises:
        InvalidConfig: A name is unknown, or given twice.
    """
    if names is None:
        return NAMES if headers else NAMES[:-1]
    for name in names:
        if name not in NAMES or names.count(name) > 1:
            raise InvalidConfig("columns", ",".join(names), f"must be names of {', '.join(NAMES)}, separated by commas, each once")
    if not names:
        raise InvalidConfig("columns", "", f"name at least one of {', '.join(NAMES)}")
    return tuple(names)


def spark_schema(names: Sequence[str]) -> StructType:
    """The schema of some columns."""
    return StructType([StructField(name, _TYPES[name]) for name in names])


def of_schema(schema: StructType) -> tuple[str, ...]:
    """The columns in a schema of the user.

    Raises:
        InvalidConfig: One of them is unknown, or has another type.
    """
    for field in schema.fields:
        if field.name not in _TYPES or _TYPES[field.name] != field.dataType or not field.nullable:
            allowed = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _TYPES.items())
            raise InvalidConfig(
                "schema", f"{field.name} {field.dataType.simpleString()}", f"must be a selection of {allowed}; all nullable"
            )
    return chosen(schema.fieldNames(), headers=True)


def log_columns(names: Sequence[str]) -> list[str]:
    """The columns to read from a log: at least one, for its number of rows."""
    return [_OF_THE_LOG[name] for name in names if name in _OF_THE_LOG] or ["offset"]


class Converter:
    """Converts batches of a log to batches of Spark's columns.

    Columns with one value for the whole partition are made once, for the largest batch, and sliced.
    """

    def __init__(self, names: Sequence[str]) -> None:
        import pyarrow as pa

        header = pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
        kinds = {
            "key": pa.binary(),
            "value": pa.binary(),
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "timestampType": pa.int32(),
            "headers": pa.list_(header),
        }
        self._pa = pa
        self.schema = pa.schema([pa.field(name, kinds[name]) for name in names])
        self._constants: dict[str, Any] = {}

    def batches(self, batches: "Iterable[pyarrow.RecordBatch]", topic: str, partition: int) -> "Iterator[pyarrow.RecordBatch]":
        """The batches of one partition in the schema."""
        of_all: dict[str, str | int] = {"topic": topic, "partition": partition}
        self._constants = {}
        for batch in batches:
            arrays = [
                self._constant(name, of_all[name], batch.num_rows) if name in of_all else self._of_the_log(name, batch)
                for name in self.schema.names
            ]
            yield self._pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, name: str, value: str | int, count: int) -> Any:
        array = self._constants.get(name)
        if array is None or len(array) < count:
            array = self._constants[name] = self._pa.repeat(self._pa.scalar(value, self.schema.field(name).type), count)
        return array.slice(0, count)

    def _of_the_log(self, name: str, batch: "pyarrow.RecordBatch") -> Any:
        array = batch.column(_OF_THE_LOG[name])
        if name == "timestamp":
            return clamped(array).cast(self.schema.field(name).type)
        if name == "headers":
            return self._headers(array)
        return array

    def _headers(self, array: Any) -> Any:
        """Null for no headers, as Spark's Kafka source."""
        import pyarrow.compute as pc

        kind = self.schema.field("headers").type
        none = pc.equal(array.value_lengths(), 0)
        return self._pa.ListArray.from_arrays(array.offsets, array.values, type=kind, mask=none)
