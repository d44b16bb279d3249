"""Spark, of the version that Spark's Kafka source is published for, in a Python environment of its own."""
