"""Helpers for users of Kafka Streams: thin functions over Structured Streaming.

    stream        ``StreamsBuilder.stream``: the records of topics
    join_latest   ``KStream.join(KTable)``, ``join(GlobalKTable)``: rows with the latest value of their key in a table
    windows       ``windowedBy(TimeWindows.ofSizeAndGrace(…))``
    windowed_key  the bytes of Kafka's TimeWindowedSerializer
    to            ``KStream.to``
    to_table      ``KTable.toStream().to``: each change of an aggregation, by key, to a compacted topic
    repartition   ``KStream.repartition``: through a topic, by a new key

Each returns an object of Spark, so that Spark's own functions go on from there.
"""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 -- Spark's documentation names it so
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from logdb.errors import InvalidConfig
from logdb_spark_source.location import Location
from logdb_spark_source.options import PLACE, Given, directory_of, place_of
from logdb_spark_source.streams_store import table_of
from logdb_spark_source.upserts import upsert

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_Path = str | os.PathLike[str] | None
_RECORD = ("key", "value", "headers")  # a column "partition" of a row that was read would send it to that partition of another topic


class Repartitioned(NamedTuple):
    """The query that writes the topic, and a stream of the topic's records."""

    query: "StreamingQuery"
    records: "DataFrame"


def stream(spark: "SparkSession", topics: str, *, path: _Path = None, url: str | None = None, **options: str) -> "DataFrame":
    """The records of topics (``"orders"``, ``"orders,refunds"``): from the earliest one, without records of aborted transactions.

    Args:
        path, url: The database; exactly one of them.
        options: Others of ``format("logdb")`` for reading; they win over these defaults.
    """
    given = {"subscribe": topics, "startingOffsets": "earliest", "isolationLevel": "read_committed", **_place(path, url), **options}
    return spark.readStream.format("logdb").options(**given).load()


# ---------------------------------------------------------------- a stream and a table


def join_latest(
    rows: "DataFrame",
    topic: str,
    *,
    path: _Path = None,
    url: str | None = None,
    key: str = "key",
    name: str | None = None,
    how: str = "left",
    store: str | None = None,
) -> "DataFrame":
    """The rows, each with the latest value of its key in a table: a topic of which the last record of a key counts.

    A record of the table that was committed before the micro-batch began is seen, or a later one of its key.  So a row may see a value
    that is younger than itself.  Of two micro-batches the second one never sees an older value.  A tombstone deletes a key.

    A micro-batch that Spark runs again may see later values.  A sink that is exactly once keeps the rows of one run.

    Each Python worker has the table on its disk.  The first batch reads the topic, later ones only its new records.

    Args:
        path, url: The table's database; exactly one of them.
        key: A column of type string or binary; a foreign key is allowed.  Null finds no value.
        name: The new column, of type binary; None: the topic's name.
        how: ``left`` keeps rows without a value, with null; ``inner`` drops them.
        store: A directory on each executor that keeps the tables when Spark stops; None: a local directory of Spark.

    Raises:
        InvalidConfig: The topic or the column does not exist, or an argument is invalid.
    """
    place = place_of(Given(_place(path, url), PLACE))
    column = topic if name is None else name
    _check_join(rows, place, topic, key=key, column=column, how=how)
    schema = StructType([*rows.schema.fields, StructField(column, BinaryType())])
    directory = None if store is None else directory_of("store", store)
    joined = rows.mapInArrow(_look_up(place, topic, key, column, directory), schema)
    return joined.where(F.col(f"`{column}`").isNotNull()) if how == "inner" else joined


def _check_join(rows: "DataFrame", place: Location, topic: str, *, key: str, column: str, how: str) -> None:
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    if not isinstance(kinds.get(key), StringType | BinaryType):
        raise InvalidConfig("key", key, f"must be a column of type string or binary; the rows are {rows.schema.simpleString()}")
    if column in kinds:
        raise InvalidConfig("name", column, "must be a new column: the rows have one of that name")
    if how not in ("left", "inner"):
        raise InvalidConfig("how", how, "must be left or inner")
    topics = sorted(info.name for info in place.open().topics())
    if topic not in topics:
        raise InvalidConfig("topic", topic, f"must be a topic at {place}; its topics: {', '.join(topics) or 'none yet'}")


def _look_up(
    place: Location, topic: str, key: str, column: str, store: str | None
) -> "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]":
    def look_up(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow as pa

        table = table_of(place, topic, store)
        for batch in batches:
            keys = batch.column(key).dictionary_encode()
            values = pa.array(table.get_many(keys.dictionary.to_pylist()), pa.binary())
            yield pa.RecordBatch.from_arrays([*batch.columns, values.take(keys.indices)], [*batch.schema.names, column])

    return look_up


# ---------------------------------------------------------------- windows


def windows(
    rows: "DataFrame", size: str, *, grace: str, advance: str | None = None, by: str = "key", timestamp: str = "timestamp"
) -> "GroupedData":
    """The rows grouped by a column and by windows of event time, for ``count()`` or ``agg(…)``; the result has a column ``window``.

    Event time is the largest timestamp of the micro-batches so far.  A window is closed when event time reaches its end plus ``grace``.
    Rows for a closed window are dropped.

    Args:
        size, grace, advance: Durations, as ``"5 minutes"``; ``advance`` None: tumbling windows.
        by: The column to group by, next to the window.
        timestamp: The column with the time.
    """
    window = F.window(timestamp, size, advance) if advance is not None else F.window(timestamp, size)
    return rows.withWatermark(timestamp, grace).groupBy(by, window.alias("window"))


def windowed_key(key: str = "key", window: str = "window") -> "Column":
    """A column of keys of windows, as Kafka's TimeWindowedSerializer writes them: the key, then the window's begin.

    The begin is milliseconds since 1970, 8 bytes, big-endian.  ``windowed_key_bytes`` makes one such key.
    """
    begin = F.unhex(F.lpad(F.hex(F.unix_millis(F.col(f"{window}.start"))), 16, "0"))
    return F.concat(F.col(key).cast("binary"), begin)


def windowed_key_bytes(key: bytes, begin: datetime) -> bytes:
    """The key of one window, to look it up: ``db.table("counts").get(windowed_key_bytes(b"user-7", begin))``.

    Args:
        begin: The window's begin, with a time zone.
    """
    if begin.tzinfo is None:
        raise ValueError(f"begin={begin!r}: must have a time zone, such as datetime.UTC")
    return key + round(begin.timestamp() * 1_000).to_bytes(8, "big", signed=True)


# ---------------------------------------------------------------- topics


def to(rows: "DataFrame", topic: str, *, path: _Path = None, url: str | None = None, **options: str) -> "DataStreamWriter":
    """A writer of the rows' key, value and headers to a topic, each row exactly once.

    The partition is the one that Kafka's producers choose: murmur2 of the key.  Columns ``topic`` and ``partition`` are not used.

    Args:
        path, url: The database; exactly one of them.
        options: Others of ``format("logdb")`` for writing.
    """
    return _record(rows).writeStream.format("logdb").options(topic=topic, **_place(path, url), **options)


def to_table(rows: "DataFrame", topic: str, *, path: _Path = None, url: str | None = None, **options: str) -> "DataStreamWriter":
    """A writer of the changed rows of an aggregation to a compacted topic, exactly once; a value of null deletes its key.

    Any process reads the result with ``db.table(topic)``.  Arguments and errors: see ``upsert``.
    """
    write: Callable[[Any, int], None] = upsert(topic, path=path, url=url, **options)
    return _record(rows).writeStream.outputMode("update").foreachBatch(write)


def repartition(
    rows: "DataFrame", topic: str, *, checkpoint: str, path: _Path = None, url: str | None = None, **options: str
) -> Repartitioned:
    """The rows, written to a topic by their key and read from it: rows of a key are in one partition.

    Rows of one partition of the input keep their order.  The query that writes them is started.  It follows its input until it is
    stopped.

    Args:
        topic: It exists; its number of partitions counts.
        checkpoint: The directory for the checkpoint of that query.
        path, url: The database; exactly one of them.
        options: Others of ``format("logdb")`` for writing.
    """
    query = to(rows, topic, path=path, url=url, **options).option("checkpointLocation", checkpoint).start()
    return Repartitioned(query, stream(rows.sparkSession, topic, path=path, url=url))


def _record(rows: "DataFrame") -> "DataFrame":
    return rows.select(*(name for name in _RECORD if name in rows.columns))


def _place(path: _Path, url: str | None) -> dict[str, str]:
    """The options of a location; exactly one, which others check."""
    given = {"path": None if path is None else os.fspath(path), "url": url}
    return {name: value for name, value in given.items() if value is not None}
