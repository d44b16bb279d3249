"""Rows as Spark's tasks stage them, without Spark."""

from pathlib import Path
from typing import Any

import pyarrow as pa

import logdb
from logdb_spark_source.encoding import Encoder, Target
from logdb_spark_source.staging import Staged, StagingFile

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


def rows(*pairs: Any, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Rows of the schema's columns."""
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, pair, strict=True)) for pair in pairs], schema=schema)


def targets(database: logdb.Database) -> dict[str, Target]:
    return {info.name: Target.of(info) for info in database.topics()}


def staged(database: logdb.Database, directory: Path, *batches: pa.RecordBatch, topic: str | None = "t") -> Staged:
    """What one task would have staged."""
    file = StagingFile(str(directory))
    encoder = Encoder(targets(database), topic, file)
    for batch in batches:
        encoder.add(batch)
    encoder.finish()
    return file.close()


def values(database: logdb.Database, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """What a reader of committed records finds; nothing may be open."""
    log = database.log(topic, partition)
    assert log.last_stable_offset == log.end_offset, "a transaction is still open"
    return [record.value for record in log.read(log.start_offset, isolation_level="read_committed")]
