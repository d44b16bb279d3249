"""``Database.topic_dataset`` and ``scan_polars``: the parts of a topic that they read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logdb.client.ranges import Position, Range, ranges_of
from logdb.codec.topic_dataset import Part, TopicDataset
from logdb.errors import missing_package
from logdb.log.isolation import IsolationLevel
from logdb.model import OFFSET_MAX

if TYPE_CHECKING:
    import polars
    import pyarrow

    from logdb.client.database import Database
    from logdb.codec import arrow
    from logdb.store.tiers import TopicTiers


def topic_dataset(
    db: "Database", topic: str, start: Position, end: Position, isolation_level: IsolationLevel, tiers: "TopicTiers | None"
) -> TopicDataset:
    """See ``Database.topic_dataset``; ``tiers``: where the records are, None: all in logs."""

    def read(partition: int, begin: int, stop: int, columns: Sequence[str]) -> "pyarrow.RecordBatchReader":
        return db.log(topic, partition).read_arrow(begin, end_offset=stop, columns=columns, isolation_level=isolation_level)

    if tiers is not None and start is None is end:
        parts = [Part(file.partition, file.start_offset, file.end_offset, file.path) for file in tiers.files]
        return TopicDataset(topic, [*parts, *(Part(*one) for one in tiers.ranges)], read)
    ranges = ranges_of(db, topic, start, end, isolation_level)
    if tiers is None:
        return TopicDataset(topic, [Part(*one) for one in ranges], read)
    return TopicDataset(topic, [part for one in ranges for part in _within(one, tiers)], read)


def scan_polars(
    db: "Database",
    topic: str,
    start: Position,
    end: Position,
    isolation_level: IsolationLevel,
    schema: "arrow.ValueSchema | None",
    tiers: "TopicTiers | None",
) -> "polars.LazyFrame":
    """See ``Database.scan_polars``."""
    try:
        from logdb.codec.lazy_frame import lazy_frame
    except ModuleNotFoundError as error:
        raise missing_package("scan_polars", error.name or "") from error

    def since(timestamp_ms: int) -> dict[int, int]:
        found = {}
        for number in range(len(db.describe_topic(topic).partitions)):  # it may have more by now
            offset = db.log(topic, number).offset_for_timestamp(timestamp_ms)
            found[number] = OFFSET_MAX if offset is None else offset
        return found

    return lazy_frame(topic_dataset(db, topic, start, end, isolation_level, tiers), since, schema)


def _within(one: Range, tiers: "TopicTiers") -> list[Part]:
    """The parts of a range."""
    found = []
    for file in (file for file in tiers.files if file.partition == one.partition):
        start, end = max(file.start_offset, one.start), min(file.end_offset, one.end)
        if start < end:
            found.append(Part(one.partition, start, end, file.path, clipped=(start, end) != (file.start_offset, file.end_offset)))
    for tail in (tail for tail in tiers.ranges if tail.partition == one.partition):
        start, end = max(tail.start_offset, one.start), min(tail.end_offset, one.end)
        if start < end:
            found.append(Part(one.partition, start, end))
    return found
