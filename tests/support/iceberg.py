"""Iceberg tables of topics beside their logs."""

import os

from pyiceberg.table import StaticTable

from logdb.codec.parquet import LOG_COLUMNS


def location(db, topic="t"):
    """The current metadata of a topic's table, as a reader of the directory finds it."""
    parent = os.path.join(db.path, "iceberg", topic, "metadata")
    with open(os.path.join(parent, "version-hint.text")) as file:
        return os.path.join(parent, f"v{file.read()}.metadata.json")


def table(db, topic="t"):
    return StaticTable.from_metadata(location(db, topic))


def rows(batch):
    """Rows of a table of mode key_value by partition and offset; each of them once."""
    found = {}
    for row in batch.to_pylist():
        place = row["partition"], row["offset"]
        assert place not in found, place
        headers = [(one["key"], one["value"]) for one in row["headers"] or ()] or None  # pyiceberg makes an empty list of a null
        found[place] = row["topic"], row["key"], row["value"], row["timestamp"], row["timestampType"], headers
    return found


def logged(db, topic="t", ends=None):
    """The same of the logs, up to ``ends``."""
    found = {}
    for partition in range(db.describe_topic(topic).partition_count):
        log = db.log(topic, partition)
        end = None if ends is None else ends[partition]
        if end is not None and end <= log.start_offset:
            continue
        for row in log.read_arrow(end_offset=end, columns=LOG_COLUMNS, isolation_level="read_committed").read_all().to_pylist():
            headers = [(one["key"], one["value"]) for one in row["headers"]] or None
            found[partition, row["offset"]] = topic, row["key"], row["value"], row["timestamp"], row["timestamp_type"], headers
    return found
