"""Records and schemas as connectors, transforms and converters see them (``org.apache.kafka.connect.data`` and ``connector``).

A value is plain Python: ``None``, bool, int, float, str, bytes, list, dict.  A struct is a dict whose keys are the schema's fields.
Kafka's logical types are Python's own: ``decimal.Decimal``, ``datetime.date``, ``datetime.time``, ``datetime.datetime`` in UTC.

Records are never changed in place: ``record.replace(topic="t")`` makes another one.  So a transform may hand a record on, and the
worker may still report the record as the connector made it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, overload

from logdb_connect.errors import DataError

SchemaType = Literal["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "bytes", "array", "map", "struct"]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
"""Name of a bytes schema whose values are ``Decimal``; its parameter ``scale`` is the number of digits after the point."""
DATE = "org.apache.kafka.connect.data.Date"
"""Name of an int32 schema whose values are ``date``: days since 1970-01-01."""
TIME = "org.apache.kafka.connect.data.Time"
"""Name of an int32 schema whose values are ``time``: milliseconds since midnight."""
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
"""Name of an int64 schema whose values are ``datetime`` in UTC: milliseconds since 1970."""


SCHEMA_COUNT_MAX, SCHEMA_DEPTH_MAX = 100_000, 250
"""How many schemas a schema may contain, each counted wherever it is used, and how many may lie in one another.

To hash or compare a schema visits each of them.  In Avro, sixty records that contain the one before twice would be 2^60.
"""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    schema: "Schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The type of a value.  Schemas are equal when all of their parts are.

    Raises:
        DataError: It contains more than ``SCHEMA_COUNT_MAX`` schemas, or deeper than ``SCHEMA_DEPTH_MAX``.

    Attributes:
        name: Of a struct, or of a logical type such as ``TIMESTAMP``.
        parameters: Pairs of strings, such as ``("scale", "2")`` of a ``DECIMAL``.
        fields: Of a struct, in order.
        keys: Of a map: the schema of its keys.
        values: Of a map or an array: the schema of what it contains.
    """

    type: SchemaType
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = field(default=None, hash=False)
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    keys: "Schema | None" = None
    values: "Schema | None" = None
    _count: int = field(default=1, init=False, compare=False, repr=False)
    _depth: int = field(default=1, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = [each.schema for each in self.fields] + [each for each in (self.keys, self.values) if each is not None]
        if not inner:
            return
        count, depth = 1 + sum(each._count for each in inner), 1 + max(each._depth for each in inner)
        if count > SCHEMA_COUNT_MAX or depth > SCHEMA_DEPTH_MAX:
            what = f"{count} schemas in {depth} levels: must be at most {SCHEMA_COUNT_MAX} in {SCHEMA_DEPTH_MAX} levels"
            raise DataError(f"the schema {self.name or self.type!r} contains {what}")
        object.__setattr__(self, "_count", count)
        object.__setattr__(self, "_depth", depth)

    def field(self, name: str) -> Field | None:
        """The field ``name`` of a struct, or None."""
        return next((each for each in self.fields if each.name == name), None)

    def replace(self, **changes: Any) -> Self:
        """Another schema, which differs in ``changes``."""
        return dataclasses.replace(self, **changes)


STRING = Schema(type="string")
OPTIONAL_STRING = Schema(type="string", optional=True)
BYTES = Schema(type="bytes")
OPTIONAL_BYTES = Schema(type="bytes", optional=True)


def struct(name: str | None = None, /, *, optional: bool = False, **fields: Schema) -> Schema:
    """The schema of a struct: ``struct("person", name=STRING, age=Schema(type="int32"))``."""
    return Schema(type="struct", name=name, optional=optional, fields=tuple(Field(key, schema) for key, schema in fields.items()))


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record."""

    key: str
    value: Any
    schema: Schema | None = None


@dataclass(slots=True, kw_only=True)
class ConnectRecord:
    """What source and sink records share, and what transforms and predicates work on.

    Attributes:
        partition: Of the topic; None lets the producer choose by the key.
        timestamp_ms: Milliseconds since 1970; negative: before.  None: at a source the time at which the record is written, at a sink a
            record without a timestamp.  A source writes such a record with -1.
    """

    topic: str
    value: Any
    value_schema: Schema | None = None
    key: Any = None
    key_schema: Schema | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[Header] = ()

    def replace(self, **changes: Any) -> Self:
        """Another record, which differs in ``changes``."""
        return dataclasses.replace(self, **changes)


@dataclass(slots=True, kw_only=True)
class SourceRecord(ConnectRecord):
    """A record that a source has read.

    Attributes:
        source_partition: What part of the source it is from, such as ``{"filename": "/a.txt"}``: JSON values.
        source_offset: Where to continue after this record, such as ``{"position": 42}``: JSON values.
    """

    source_partition: Mapping[str, Any]
    source_offset: Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class SinkRecord(ConnectRecord):
    """A record for a sink.

    Attributes:
        offset: Its offset in the partition of the topic that it was read from.
        original_topic, original_partition: Where it was read from, whatever transforms have made of ``topic`` (KIP-793).
    """

    offset: int
    original_topic: str
    original_partition: int


@dataclass(slots=True, kw_only=True)
class SourceBatch:
    """Many records of one source partition, topic and schema, as columns: for sources that read much.

    Attributes:
        values: One for each record.
        keys: One for each record, or None where no record has a key.
        offset: Where to continue after the last record.
    """

    source_partition: Mapping[str, Any]
    offset: Mapping[str, Any]
    topic: str
    values: list[Any]
    value_schema: Schema | None = None
    keys: list[Any] | None = None
    key_schema: Schema | None = None
    partition: int | None = None
    timestamp_ms: int | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[SourceRecord]:
        """The same as records; each has the offset of the batch, since the worker commits batches whole."""
        for value, key in zip(self.values, self.keys or [None] * len(self.values), strict=True):
            yield SourceRecord(
                source_partition=self.source_partition,
                source_offset=self.offset,
                topic=self.topic,
                value=value,
                value_schema=self.value_schema,
                key=key,
                key_schema=self.key_schema,
                partition=self.partition,
                timestamp_ms=self.timestamp_ms,
            )


SourceRecords = SourceBatch | Iterable[SourceRecord] | None
"""What ``SourceTask.poll`` gives; None is no record."""


class SinkRecords(Sequence[SinkRecord]):
    """The records of one ``SinkTask.put``, as columns; a record is made when it is asked for.

    Sinks that write much use the columns: ``records.values``, ``records.offsets``.

    Attributes:
        topics, partitions, offsets, timestamps_ms, keys, key_schemas, values, value_schemas, headers: One entry for each record.
        originals: Topic and partition that each was read from.
    """

    __slots__ = (
        "headers",
        "key_schemas",
        "keys",
        "offsets",
        "originals",
        "partitions",
        "timestamps_ms",
        "topics",
        "value_schemas",
        "values",
    )

    def __init__(
        self,
        *,
        topics: list[str],
        partitions: list[int],
        offsets: list[int],
        timestamps_ms: list[int | None],
        keys: list[Any],
        key_schemas: list[Schema | None],
        values: list[Any],
        value_schemas: list[Schema | None],
        headers: list[Sequence[Header]],
        originals: list[tuple[str, int]] | None = None,
    ) -> None:
        self.topics, self.partitions, self.offsets, self.timestamps_ms = topics, partitions, offsets, timestamps_ms
        self.keys, self.key_schemas, self.values, self.value_schemas = keys, key_schemas, values, value_schemas
        self.headers = headers
        self.originals = originals

    @classmethod
    def of(cls, records: Iterable[SinkRecord]) -> "SinkRecords":
        """The columns of records."""
        given = list(records)
        return cls(
            topics=[one.topic for one in given],
            partitions=[-1 if one.partition is None else one.partition for one in given],
            offsets=[one.offset for one in given],
            timestamps_ms=[one.timestamp_ms for one in given],
            keys=[one.key for one in given],
            key_schemas=[one.key_schema for one in given],
            values=[one.value for one in given],
            value_schemas=[one.value_schema for one in given],
            headers=[one.headers for one in given],
            originals=[(one.original_topic, one.original_partition) for one in given],
        )

    def __add__(self, other: "SinkRecords") -> "SinkRecords":
        """The records of both."""
        names = [name for name in self.__slots__ if name != "originals"]
        originals = None if self.originals is None and other.originals is None else self._sources() + other._sources()
        return SinkRecords(**{name: getattr(self, name) + getattr(other, name) for name in names}, originals=originals)

    def _sources(self) -> list[tuple[str, int]]:
        return self.originals if self.originals is not None else list(zip(self.topics, self.partitions, strict=True))

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> SinkRecord: ...

    @overload
    def __getitem__(self, index: slice) -> "SinkRecords": ...

    def __getitem__(self, index: "int | slice") -> "SinkRecord | SinkRecords":
        if isinstance(index, slice):
            parts: dict[str, Any] = {name: None if (column := getattr(self, name)) is None else column[index] for name in self.__slots__}
            return SinkRecords(**parts)
        topic, partition = self.originals[index] if self.originals is not None else (self.topics[index], self.partitions[index])
        return SinkRecord(
            topic=self.topics[index],
            partition=self.partitions[index],
            offset=self.offsets[index],
            timestamp_ms=self.timestamps_ms[index],
            key=self.keys[index],
            key_schema=self.key_schemas[index],
            value=self.values[index],
            value_schema=self.value_schemas[index],
            headers=self.headers[index],
            original_topic=topic,
            original_partition=partition,
        )
