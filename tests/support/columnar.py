"""What a topic holds by its logs, and by its dataset; the two must never differ."""

from __future__ import annotations

from typing import Any, NamedTuple

import logdb


class Row(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def rows_of_logs(db: logdb.Database, topic: str, isolation_level: str = "read_uncommitted") -> list[Row]:
    """By reading each partition record for record."""
    return [
        Row(partition, record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
        for partition in range(db.describe_topic(topic).partition_count)
        for log in [db._store.open_log(topic, partition)]  # not through the broker, which would end a test's transactions
        for record in log.read(log.start_offset, isolation_level=isolation_level)
    ]


def rows_of_dataset(dataset: Any, topic: str) -> list[Row]:
    """Sorted by partition and offset."""
    table = dataset.to_table()
    names = ("partition", "offset", "timestamp", "key", "value", "headers")
    assert set(table["topic"].to_pylist()) <= {topic}
    times = table["timestamp"].cast("int64")
    rows = zip(*((times if name == "timestamp" else table[name]).to_pylist() for name in names), strict=True)
    return sorted(Row(*row[:5], tuple((head["key"], head["value"]) for head in row[5] or ())) for row in rows)


def check_same(db: logdb.Database, topic: str = "t", where: object = "") -> int:
    """See that dataset and logs agree at both isolation levels; returns how many Parquet files had a part in it."""
    for level in ("read_uncommitted", "read_committed"):
        assert rows_of_dataset(db.topic_dataset(topic, isolation_level=level), topic) == rows_of_logs(db, topic, level), (level, where)
    return len(db.topic_tiers(topic, isolation_level="read_committed").files)
