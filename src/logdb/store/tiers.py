"""The source of each record of a topic: a sidecar, or a range of its log.

    [start offset                                                                 end)
     log  | sidecar | sidecar | log: no sidecar, or a damaged one | sidecar | log: not sealed

A segment that begins below the log start offset is read from the log.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from logdb.log.isolation import IsolationLevel, is_committed
from logdb.log.sealed import sidecar_path
from logdb.meta import LogEntry, ReadTransaction, SegmentEntry
from logdb.store.sidecars import footer_damage

if TYPE_CHECKING:
    from logdb.store.store import Store

logger = logging.getLogger(__name__)


class ParquetFile(NamedTuple):
    """The visible records of a partition in [start_offset, end_offset), in a Parquet file."""

    partition: int
    start_offset: int
    end_offset: int
    path: str


class LogRange(NamedTuple):
    """Offsets of a partition, [start_offset, end_offset), to read from its log."""

    partition: int
    start_offset: int
    end_offset: int


class TopicTiers(NamedTuple):
    """All records of a topic: each in one file or in one range; by partition and offset."""

    files: tuple[ParquetFile, ...]
    ranges: tuple[LogRange, ...]


def topic_tiers(store: "Store", topic: str, isolation_level: IsolationLevel) -> TopicTiers:
    """The present sources of a topic's records.

    A file with a damaged footer is reported, and its records are in a range.

    Raises:
        UnknownTopic: No topic has that name.
        ValueError: An unknown isolation level.
    """
    committed, count = is_committed(isolation_level), store.topic(topic).partition_count

    def read(txn: ReadTransaction) -> list[tuple[LogEntry, list[SegmentEntry]]]:
        return [txn.view(topic, partition) for partition in range(count)]

    files: list[ParquetFile] = []
    ranges: list[LogRange] = []
    for entry, sealed in store.catalogue.read(read):
        end_offset = store.open_log(topic, entry.partition).readable_end_offset(isolation_level)
        usable = _usable(store, entry, sealed, end_offset, committed=committed)
        offset = entry.start_offset
        for file in usable:
            if offset < file.start_offset:
                ranges.append(LogRange(entry.partition, offset, file.start_offset))
            files.append(file)
            offset = file.end_offset
        if offset < end_offset:
            ranges.append(LogRange(entry.partition, offset, end_offset))
    return TopicTiers(tuple(files), tuple(ranges))


def _usable(store: "Store", entry: LogEntry, sealed: list[SegmentEntry], end_offset: int, *, committed: bool) -> Iterator[ParquetFile]:
    directory = store.partition_path(entry.topic, entry.partition)
    for named in sealed:
        if named.sidecar is None or named.base_offset < entry.start_offset or named.next_offset > end_offset:
            continue
        if named.sidecar.committed_only and not committed:
            continue
        path = sidecar_path(directory, named)
        wrong = footer_damage(store.io, directory, named)
        if wrong is None:
            yield ParquetFile(entry.partition, named.base_offset, named.next_offset, path)
        else:
            logger.warning("%s: %s; its records are read from the log", path, wrong)
