"""The options of ``format("logdb")`` for writing, and the columns that it accepts: those of Spark's Kafka sink, and its own."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from logdb.errors import InvalidConfig
from logdb.model import INTERNAL_TOPICS, OFFSET_MAX
from logdb_spark_source.encoding import Target
from logdb_spark_source.location import Location
from logdb_spark_source.options import PLACE, Given, directory_of, place_of

WRITING = (
    *PLACE,
    "topic",
    "stagingPath",
    "lockTimeout",
    "failOnDataLoss",
    "writeId",
    "batchId",
)
"""All options for writing."""

_OF_SPARK = ("checkpointLocation",)  # Spark passes it to sinks
_LOCK_TIMEOUT_MS = 10_000


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Target and manner of a write.

    Attributes:
        topic: For all rows; None: the column has it.
        staging: The directory of the staged files, and of the driver's notes.
        uploads: Tasks upload their batches to the server, in place of files.
        lock_timeout_ms: How long a commit waits for the writer's lock of a directory.
        fail_on_data_loss: Whether it is an error if the database lacks an earlier commit.
        write_id, batch_id: A batch write with both is done exactly once; None without.
    """

    place: Location
    topic: str | None
    staging: str
    uploads: bool
    lock_timeout_ms: int
    fail_on_data_loss: bool
    write_id: str | None
    batch_id: int | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "WriteOptions":
        """Parse Spark's options.

        Raises:
            InvalidConfig: One is unknown, missing, contradicts another or has an invalid value.
        """
        options = Given(given, WRITING, also=_OF_SPARK)
        place = place_of(options)
        lock_timeout_ms = options.duration_ms("lockTimeout")
        write_id, batch_id = options.text("writeId"), options.text("batchId")
        if (write_id is None) != (batch_id is None) or write_id == "":
            raise InvalidConfig("writeId", write_id, "give it together with batchId: a batch write with both is done once")
        if batch_id is not None and not (batch_id.strip().isdecimal() and int(batch_id) < OFFSET_MAX):
            raise InvalidConfig("batchId", batch_id, "must be a number, 0 or more: the batch id of foreachBatch")
        return cls(
            place=place,
            topic=_topic(options),
            staging=_staging(options, place),
            uploads=place.path is None and options.text("stagingPath") is None,
            lock_timeout_ms=_LOCK_TIMEOUT_MS if lock_timeout_ms is None else lock_timeout_ms,
            fail_on_data_loss=options.flag("failOnDataLoss", default=True),
            write_id=write_id,
            batch_id=None if batch_id is None else int(batch_id),
        )

    def targets(self) -> dict[str, Target]:
        """The present topics that rows may go to.

        Raises:
            InvalidConfig: The option's topic does not exist.
            NotADatabase, ServerUnavailable, AuthenticationFailed: as ``Location.open``.
        """
        database = self.place.open()
        targets = {info.name: Target.of(info) for info in database.topics()}
        if self.topic is None:
            return targets
        if self.topic not in targets:
            there = ", ".join(sorted(targets)) or "none yet"
            raise InvalidConfig("topic", self.topic, f"there is no such topic at {self.place}; its topics: {there}")
        return {self.topic: targets[self.topic]}


def _topic(options: Given) -> str | None:
    topic = options.text("topic")
    if topic in INTERNAL_TOPICS:
        raise InvalidConfig("topic", topic, "logdb alone writes to it")
    return topic


def _staging(options: Given, place: Location) -> str:
    given = options.text("stagingPath")
    if given is not None:
        return directory_of("stagingPath", given.strip())
    if place.path is not None:
        return f"{place.path}.staging"
    return os.path.join(tempfile.gettempdir(), f"logdb-spark-{os.getuid()}")


# ---------------------------------------------------------------- columns

_TEXT_OR_BYTES = "string or binary"
_HEADER = "array<struct<key:string,value:binary>>"


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Check that the rows have the columns of a sink; other columns are ignored.

    Raises:
        InvalidConfig: One is missing, or has another type.
    """
    kinds = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds:
        raise InvalidConfig("schema", schema.simpleString(), f"a column value of type {_TEXT_OR_BYTES} is needed")
    if options.topic is None and "topic" not in kinds:
        raise InvalidConfig("topic", None, "name a topic by this option, or one for each row in a column topic of type string")
    for name in ("key", "value"):
        _check(kinds, name, isinstance(kinds.get(name), StringType | BinaryType), _TEXT_OR_BYTES)
    _check(kinds, "topic", isinstance(kinds.get("topic"), StringType), "string")
    _check(kinds, "partition", isinstance(kinds.get("partition"), IntegerType), "int")
    _check(kinds, "headers", _are_headers(kinds.get("headers")), _HEADER)


def _check(kinds: Mapping[str, DataType], name: str, fits: bool, allowed: str) -> None:
    if name in kinds and not fits:
        raise InvalidConfig("schema", f"{name} {kinds[name].simpleString()}", f"a column {name} is of type {allowed}")


def _are_headers(kind: DataType | None) -> bool:
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and [(field.name, type(field.dataType)) for field in kind.elementType.fields] == [("key", StringType), ("value", BinaryType)]
    )
