"""The columns of a table by its mode, and the data files that have them."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestamptzType

from logdb import serde
from logdb.codec import crc32c, parquet
from logdb.codec.avro_columns import arrow_fields
from logdb.codec.times import clamped
from logdb.codec.typed_values import TypedValues, typed_values
from logdb.errors import SerializationError
from logdb.model import RAW_TABLE, TABLE_MODE, TABLE_SCHEMA
from logdb.store.tables import SchemaVersion
from logdb_iceberg.evolution import following
from logdb_iceberg.resolution import Unreadable, reader_of

if TYPE_CHECKING:
    import pyarrow

_OWN, _PARTITION = "logdb", "logdb_partition"


class Columns(ABC):
    """The columns of a table.

    Attributes:
        schema: With the ids that the table and its data files have.
        arrow: The same for programs, as pyiceberg reads it.
        spec: By the number of the partition.
        properties: Of the table.
    """

    schema: Schema
    arrow: "pyarrow.Schema"
    spec: PartitionSpec
    properties: dict[str, str]

    def follow(self, table: Table) -> None:  # noqa: B027 -- columns that never change have the ids already
        """Take the ids that the columns have in a table; later files and snapshots have them."""

    def crc(self, segment_crc: int) -> int:
        """What tells a data file of a segment from one with other records or other columns."""
        return segment_crc

    @abstractmethod
    def batches(self, records: "Iterable[pyarrow.RecordBatch]", partition: int) -> "Iterator[pyarrow.Table]":
        """The records of one partition in the columns of the table; ``records`` has ``parquet.LOG_COLUMNS``."""

    @abstractmethod
    def write(self, file: IO[bytes], records: "Iterable[pyarrow.RecordBatch]", partition: int) -> None:
        """Write a data file of the records of one partition; ``records`` has ``parquet.LOG_COLUMNS``."""


def columns_of(mode: str, topic: str, versions: Sequence[SchemaVersion], wanted: str) -> Columns:
    """The columns of the schema ``wanted``, for values of the versions; raises ValueError if it has no table."""
    return RawColumns(topic) if mode == RAW_TABLE else TypedColumns(mode, versions, wanted)


def _held(batch: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
    """The records with times that engines can hold."""
    place = batch.schema.get_field_index("timestamp")
    return batch.set_column(place, batch.schema.field(place), clamped(batch.column(place)))


def _headers(field_id: int, first_id: int) -> NestedField:
    element = StructType(NestedField(first_id + 1, "key", StringType()), NestedField(first_id + 2, "value", BinaryType()))
    return NestedField(field_id, "headers", ListType(first_id, element, element_required=False))


class RawColumns(Columns):
    """The record as it is, as ``codec.parquet`` writes it."""

    def __init__(self, topic: str) -> None:
        import pyarrow as pa

        self._topic = topic
        parts = pa.struct([("key", pa.string()), ("value", pa.binary())])
        kinds = {"timestamp": pa.timestamp("us", "UTC"), "headers": pa.list_(pa.field("element", parts))}
        self.arrow = pa.schema([pa.field(one.name, kinds.get(one.name, one.type), one.nullable) for one in parquet.schema()])
        self.schema = Schema(
            NestedField(1, "key", BinaryType()),
            NestedField(2, "value", BinaryType()),
            NestedField(3, "topic", StringType(), required=True),
            NestedField(4, "partition", IntegerType(), required=True),
            NestedField(5, "offset", LongType(), required=True),
            NestedField(6, "timestamp", TimestamptzType(), required=True),
            NestedField(7, "timestampType", IntegerType(), required=True),
            _headers(8, 9),
        )
        self.spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "partition"))
        self.properties = {
            "schema.name-mapping.default": self.schema.name_mapping.model_dump_json(),
            "write.metadata.metrics.default": "full",
            "write.metadata.metrics.column.key": "truncate(16)",
            "write.metadata.metrics.column.value": "none",
            "write.metadata.metrics.column.headers.element.key": "none",
            "write.metadata.metrics.column.headers.element.value": "none",
        }

    def batches(self, records: "Iterable[pyarrow.RecordBatch]", partition: int) -> "Iterator[pyarrow.Table]":
        import pyarrow as pa

        rows = parquet.Rows(self._topic, partition)
        for batch in map(_held, records):
            yield pa.Table.from_batches([rows.of(batch)])

    def write(self, file: IO[bytes], records: "Iterable[pyarrow.RecordBatch]", partition: int) -> None:
        sink: Any = file
        parquet.write(sink, map(_held, records), self._topic, partition, {})


class TypedColumns(Columns):
    """Fields of the values, and the record's own in the struct ``logdb``."""

    def __init__(self, mode: str, versions: Sequence[SchemaVersion], wanted: str) -> None:
        if not wanted:
            raise ValueError(f"{TABLE_MODE}={mode} needs {TABLE_SCHEMA}: the Avro schema of the values, as JSON")
        import pyarrow as pa

        fields = arrow_fields(serde.avro(json.loads(wanted)).plain()[0])
        if mode == "avro":
            self._values = [(one.begins, _decoder(one.text, wanted)) for one in versions]
        else:
            versions, json_values = (), typed_values(pa.schema(fields), ())
            _check_parser(json_values)
            self._values = [({}, json_values)]
        self._known = json.dumps([wanted, versions])
        self._kinds = [_storable(field.name, field.type) for field in fields]
        if taken := {_OWN, _PARTITION}.intersection(field.name for field in fields):
            raise ValueError(f"{TABLE_SCHEMA}: the field {min(taken)!r} must have another name: the table has a column of that name")
        own = pa.struct(
            [
                pa.field("partition", pa.int32(), nullable=False),
                pa.field("offset", pa.int64(), nullable=False),
                pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
                pa.field("timestampType", pa.int32(), nullable=False),
                pa.field("key", pa.binary()),
                pa.field("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
                pa.field("value", pa.binary()),
            ]
        )
        columns = [pa.field(field.name, kind) for field, kind in zip(fields, self._kinds, strict=True)]
        self.arrow = pa.schema([*columns, pa.field(_OWN, own, nullable=False)])
        self.schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(self.arrow))
        self._storing(self.schema)
        number = self.schema.find_field(f"{_OWN}.partition").field_id
        self.spec = PartitionSpec(PartitionField(number, 1000, IdentityTransform(), _PARTITION))
        self.properties = {
            f"write.metadata.metrics.column.{_OWN}.{name}": "none"
            for name in ("value", "headers", "headers.element.key", "headers.element.value")
        }

    def follow(self, table: Table) -> None:
        self._storing(following(self.schema, table))

    def crc(self, segment_crc: int) -> int:
        """Files of another schema or history have other names, even with equal columns: their values may differ."""
        return crc32c(self._mark, segment_crc)

    def _storing(self, schema: Schema) -> None:
        self.schema, self._arrow = schema, schema_to_pyarrow(schema, include_field_ids=True)
        self._mark = f"{schema.model_dump_json()}{self._known}".encode()

    def write(self, file: IO[bytes], records: "Iterable[pyarrow.RecordBatch]", partition: int) -> None:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, self._arrow, compression="zstd", write_page_checksum=True, store_schema=False) as writer:
            for batch in self.batches(records, partition):
                writer.write_table(batch.cast(self._arrow))

    def batches(self, records: "Iterable[pyarrow.RecordBatch]", partition: int) -> "Iterator[pyarrow.Table]":
        import pyarrow as pa

        for batch in records:
            for part, values in self._versions(batch, partition):
                yield pa.table(self._columns(part, partition, values), names=self.arrow.names)

    def _versions(self, batch: "pyarrow.RecordBatch", partition: int) -> "Iterator[tuple[pyarrow.RecordBatch, TypedValues | None]]":
        """The parts of a batch, in order, that have a version of the schema, and what decodes them; None: no value fits."""
        import pyarrow.compute as pc

        stop = batch.num_rows
        parts = []
        for begins, values in reversed(self._values):
            begin = begins.get(partition, 0)
            start = pc.sum(pc.less(batch.column("offset"), begin)).as_py() if begin and stop else 0
            if start < stop:
                parts.append((batch.slice(start, stop - start), values))
                stop = start
        yield from reversed(parts)

    def _columns(self, batch: "pyarrow.RecordBatch", partition: int, values_of: TypedValues | None) -> list[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        parts = [(self._unfit, 1)] * batch.num_rows if values_of is None else list(self._fitting(batch, values_of))
        values = [pa.chunked_array([part[place] for part, _ in parts], kind) for place, kind in enumerate(self._kinds)]
        fits = pa.array([one for part, count in parts for one in [part is not self._unfit] * count], pa.bool_())
        own = {
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows),
            "offset": batch.column("offset"),
            "timestamp": clamped(batch.column("timestamp")).cast(pa.timestamp("us", "UTC")),
            "timestampType": batch.column("timestamp_type"),
            "key": batch.column("key"),
            "headers": parquet.null_without_headers(batch.column("headers")),
            "value": pc.if_else(fits, pa.scalar(None, pa.binary()), batch.column("value")),
        }
        return [*values, pa.StructArray.from_arrays(list(own.values()), list(own))]

    def _fitting(self, batch: "pyarrow.RecordBatch", values: TypedValues) -> "Iterator[tuple[list[Any], int]]":
        """The columns of parts of a batch, and the rows of each; a row whose value does not fit is a part of its own."""
        try:
            found = [column.cast(kind) for column, kind in zip(values.columns(batch), self._kinds, strict=True)]
        except (SerializationError, ValueError, TypeError, OverflowError):
            half = batch.num_rows // 2
            if half:
                yield from self._fitting(batch.slice(0, half), values)
                yield from self._fitting(batch.slice(half), values)
                return
            found = self._unfit
        yield found, batch.num_rows

    @cached_property
    def _unfit(self) -> list[Any]:
        """One row of nulls."""
        import pyarrow as pa

        return [pa.nulls(1, kind) for kind in self._kinds]


def _decoder(text: str, wanted: str) -> TypedValues | None:
    """What decodes values of the schema ``text`` as those of ``wanted``; None: none can be."""
    schema, reader = json.loads(text or "null"), json.loads(wanted)
    if schema == reader:
        return typed_values(serde.avro(reader), ())
    try:
        return typed_values(serde.avro(schema, reader_schema=reader_of(schema, reader)), ())
    except (Unreadable, SerializationError, ValueError, LookupError, TypeError):  # also of an earlier schema that is none
        return None


def _check_parser(values: TypedValues) -> None:
    """Raise ValueError if Arrow cannot make a column of values of this kind."""
    import pyarrow as pa

    try:
        values.columns(pa.record_batch({"offset": pa.array([0]), "value": pa.array([b"{}"])}))
    except NotImplementedError as error:  # ArrowNotImplementedError
        raise ValueError(f"{TABLE_SCHEMA}: {error}: use another type, or mode avro") from None


def _storable(name: str, kind: "pyarrow.DataType") -> "pyarrow.DataType":
    """The type of a column in a table of version 2; raises ValueError if it has none."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _storable(f"{name}.{one.name}", one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _storable(f"{name}.value", kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_storable(f"{name}.element", kind.value_type))
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_null(kind) or pa.types.is_timestamp(kind):
        raise ValueError(f"{TABLE_SCHEMA}: Iceberg has no type for {kind} of the field {name!r}: use another type")
    return kind
