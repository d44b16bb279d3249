"""The columns of a table by its mode, and the data files that have them."""

from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestamptzType

from logdb.codec import parquet

if TYPE_CHECKING:
    import pyarrow


class Columns(ABC):
    """The columns of a table.

    Attributes:
        schema: With the ids that the table and its data files have.
        spec: By the number of the partition.
        properties: Of the table.
    """

    schema: Schema
    spec: PartitionSpec
    properties: dict[str, str]

    @abstractmethod
    def write(self, file: IO[bytes], reader: "pyarrow.RecordBatchReader", partition: int) -> None:
        """Write a data file of the records of one partition; ``reader`` has ``parquet.LOG_COLUMNS``."""


def columns_of(mode: str, topic: str, schema: str) -> Columns:
    """Raises ValueError if the schema has no table."""
    return RawColumns(topic)


def _headers(field_id: int, first_id: int) -> NestedField:
    element = StructType(NestedField(first_id + 1, "key", StringType()), NestedField(first_id + 2, "value", BinaryType()))
    return NestedField(field_id, "headers", ListType(first_id, element, element_required=False))


class RawColumns(Columns):
    """The record as it is, as ``codec.parquet`` writes it."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
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

    def write(self, file: IO[bytes], reader: "pyarrow.RecordBatchReader", partition: int) -> None:
        sink: Any = file
        parquet.write(sink, reader, self._topic, partition, {})
