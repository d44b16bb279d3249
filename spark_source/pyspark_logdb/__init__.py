"""Makes Spark find ``format("logdb")``: Spark imports every module whose name begins with ``pyspark_``."""

from logdb_spark_source.source import LogdbDataSource as DefaultSource

__all__ = ["DefaultSource"]
