"""The fast tier: Spark's own Parquet reader for records with Parquet files, ``format("logdb")`` for the others.

Spark's reader gets settings with which it neither skips nor trusts damaged pages.  The database says which files there are, and in
which ranges of the logs the other records are.

Each record is in one file or in one range of its log, at one read of the catalogue, which also fixes the ends.  A file never changes,
so a later read gives the same rows, or an error if retention or compaction has deleted a file.
"""

import json
import os
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from logdb_spark_source import columns as kinds
from logdb_spark_source.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logdb import LogRange, ParquetFile
    from logdb.log.isolation import IsolationLevel

_GLOB = str.maketrans({character: f"\\{character}" for character in "\\{}[]*?"})
_PARQUET_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
    "datetimeRebaseMode": "CORRECTED",
}


def scan(
    spark: "SparkSession",
    path: str | os.PathLike[str],
    topic: str,
    *,
    columns: Sequence[str] | None = None,
    isolation_level: "IsolationLevel" = "read_uncommitted",
) -> DataFrame:
    """All present records of a topic: the rows of ``format("logdb")``, faster where the topic has Parquet files.

    Files come from the topic's config ``logdb.parquet``, from ``logdb parquet TOPIC`` or from ``db.make_parquet(topic)``.

    Args:
        path: The database's directory, which driver and executors must see, or a snapshot's (which has no such files).
        columns: Some of key, value, topic, partition, offset, timestamp, timestampType, headers; None: all but the headers.
        isolation_level: With ``"read_uncommitted"``, segments with records of aborted transactions are read from the log.

    Returns:
        A DataFrame; each of its actions gives the same rows, or fails if files it needs were deleted meanwhile.

    Raises:
        InvalidConfig: An unknown column.
        UnknownTopic, NotADatabase: see ``logdb.errors``.
    """
    names = kinds.chosen(columns, headers=False)
    place = Location(path=os.path.abspath(path))
    tiers = place.open().topic_tiers(topic, isolation_level=isolation_level)
    frames = [_of_files(spark, tiers.files, names)] if tiers.files else []
    frames += [_of_log(spark, place, topic, layer, names, isolation_level) for layer in layers(tiers.ranges)]
    return reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], kinds.spark_schema(names))


def layers(ranges: "Sequence[LogRange]") -> "list[list[LogRange]]":
    """The ranges in lists with at most one per partition, because one DataFrame reads no more."""
    found: list[list[LogRange]] = []
    seen: dict[int, int] = {}
    for one in ranges:
        at = seen.get(one.partition, 0)
        seen[one.partition] = at + 1
        if at == len(found):
            found.append([])
        found[at].append(one)
    return found


def _of_files(spark: "SparkSession", files: "Sequence[ParquetFile]", names: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(kinds.spark_schema(names)).options(**_PARQUET_OPTIONS)
    return reader.parquet(*[f"file://{file.path.translate(_GLOB)}" for file in files])


def _of_log(
    spark: "SparkSession", place: Location, topic: str, ranges: "Sequence[LogRange]", names: Sequence[str], isolation_level: str
) -> DataFrame:
    def by_partition(values: dict[int, Any]) -> str:
        return json.dumps({topic: {str(partition): value for partition, value in values.items()}})

    options = {
        "path": str(place),
        "assign": json.dumps({topic: [one.partition for one in ranges]}),
        "startingOffsets": by_partition({one.partition: one.start_offset for one in ranges}),
        "endingOffsets": by_partition({one.partition: one.end_offset for one in ranges}),
        "isolationLevel": isolation_level,
        "columns": ",".join(names),
    }
    return spark.read.format("logdb").options(**options).load()
