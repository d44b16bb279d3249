"""Which offsets of which partitions a read of a whole topic covers."""

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from logdb.errors import UnknownPartition
from logdb.log.isolation import IsolationLevel
from logdb.model import timestamp_ms_of

if TYPE_CHECKING:
    from logdb.client.database import Database
    from logdb.log.protocols import PartitionLog

Position: TypeAlias = int | datetime.datetime | Mapping[int, int] | None
"""An offset or a time for all partitions; or offsets by partition; None: the start, or the end."""


class Range(NamedTuple):
    """Offsets [``start``, ``end``) of a partition."""

    partition: int
    start: int
    end: int


def ranges_of(database: "Database", topic: str, start: Position, end: Position, isolation_level: IsolationLevel) -> list[Range]:
    """The range of each partition that is read, by number; empty ranges are left out.

    Raises:
        UnknownTopic: No topic has that name.
        UnknownPartition: A mapping names a partition that the topic does not have.
        ValueError: A time without a time zone.
    """
    count = len(database.describe_topic(topic).partitions)
    named = [given.keys() for given in (start, end) if isinstance(given, Mapping)]
    for number in (number for keys in named for number in keys):
        if number not in range(count):
            raise UnknownPartition(topic, number, count)
    wanted = sorted(set(range(count)).intersection(*named))
    found = []
    for number in wanted:
        log = database.log(topic, number)
        log_start, log_end = log.start_offset, log.readable_end_offset(isolation_level)
        begin = _offset(log, start, log_start, log_end, log_start)
        stop = _offset(log, end, log_start, log_end, log_end)
        if begin < stop:
            found.append(Range(number, begin, stop))
    return found


def _offset(log: "PartitionLog", position: Position, log_start: int, log_end: int, default: int) -> int:
    """The offset of a position in a log, within its ends."""
    if position is None:
        return default
    if isinstance(position, datetime.datetime):
        offset = log.offset_for_timestamp(timestamp_ms_of(position))
        return log_end if offset is None else min(offset, log_end)
    offset = position[log.partition] if isinstance(position, Mapping) else position
    return min(max(offset, log_start), log_end)
