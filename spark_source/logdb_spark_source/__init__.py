"""logdb as a data source of Apache Spark: ``format("logdb")`` reads a directory, a snapshot or a server, in batches and as a stream.

``scan`` reads the Parquet files beside a log, too, by Spark's own reader.

>>> from logdb_spark_source import session
>>> spark = session()  # doctest: +SKIP
>>> frame = spark.read.format("logdb").option("path", "events").option("subscribe", "trades").load()  # doctest: +SKIP

Spark is imported when one of the public names is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logdb_spark_source.fast_tier import scan
    from logdb_spark_source.launch import session
    from logdb_spark_source.source import LogdbDataSource
    from logdb_spark_source.upserts import upsert

__all__ = ["LogdbDataSource", "scan", "session", "upsert"]

_HOMES = {"LogdbDataSource": "source", "scan": "fast_tier", "session": "launch", "upsert": "upserts"}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"logdb_spark_source.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'logdb_spark_source' has no attribute {name!r}")
