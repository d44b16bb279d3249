"""How Spark finds ``format("logdb")`` by itself: it imports every module whose name begins with ``pyspark_``.

Knows the name of the class.  Does not know what it does.
"""

from logdb_spark_source.source import LogdbDataSource as DefaultSource

__all__ = ["DefaultSource"]
