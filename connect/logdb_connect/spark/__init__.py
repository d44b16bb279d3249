"""Sinks on Spark (``logdb.runner=spark``): the same properties, as a Structured Streaming query."""
