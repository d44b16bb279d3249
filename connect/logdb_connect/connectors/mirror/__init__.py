"""Mirrors: topics of another cluster, the offsets of its groups, and heartbeats (``org.apache.kafka.connect.mirror``)."""
