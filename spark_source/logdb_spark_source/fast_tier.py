"""The fast tier: a topic read by Spark's own Parquet reader where it has Parquet files, and by ``format("logdb")`` elsewhere.

Knows which of the two reads what, and with which settings Spark's reader neither skips nor believes what is damaged.  Does
not know how files come to be, or go: the database says which there are, and where in the log everything else is.

Each record is in one file or in one range of its log, as of one look at the catalogue; ends are frozen with it.  A file never
changes under its name, so what is read later is the same, or an error, where retention or compaction was faster.
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
    """All records of a topic as they are now: the rows of ``format("logdb")``, faster where the topic has Parquet files.

    Files come from the topic's config ``logdb.parquet``, from ``logdb parquet TOPIC`` or from ``db.make_parquet(topic)``.

    Args:
        path: The database's directory, which driver and executors see, or a snapshot's (which has no such files).
        columns: Some of key, value, topic, partition, offset, timestamp, timestampType, headers; None: all but the headers.
        isolation_level: With ``"read_uncommitted"``, segments that have records of aborted transactions are read from the log.

    Returns:
        A DataFrame; each of its actions gives the same rows, or fails, where files it needs were removed since.

    Raises:
        InvalidConfig: There is no such column.
        UnknownTopic, NotADatabase: as they say.
    """
    names = kinds.chosen(columns, headers=False)
    place = Location(path=os.path.abspath(path))
    tiers = place.open().topic_tiers(topic, isolation_level=isolation_level)
    frames = [_of_files(spark, tiers.files, names)] if tiers.files else []
    frames += [_of_log(spark, place, topic, layer, names, isolation_level) for layer in layers(tiers.ranges)]
    return reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], kinds.spark_schema(names))


def layers(ranges: "Sequence[LogRange]") -> "list[list[LogRange]]":
    """The ranges in lists with no more than one of each partition, which is what one DataFrame reads."""
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
