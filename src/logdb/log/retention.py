"""Which of a log's oldest segments retention removes, by age and size."""

from collections.abc import Sequence
from typing import TypeVar

from logdb.log.sealed import Sealed

S = TypeVar("S", bound=Sealed)


def born_ms(segment: Sealed) -> int:
    """The time from which a segment's age counts: the later of its largest record timestamp and its last append.  So
    old records that are loaded today do not expire today.
    """
    return max(segment.max_timestamp, segment.append_ms)


def expired(
    sealed: Sequence[S],
    *,
    active: S | None = None,
    log_size_bytes: int,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    limit_offset: int,
) -> Sequence[S]:
    """The oldest segments that are too old, or too many.

    By size, a segment is removed only if the others still have ``retention_bytes``.

    Args:
        sealed: The log's sealed segments, oldest first.
        active: The active segment, if it has records: it is removed by its age alone, after all others.
        log_size_bytes: Size of all segments, the active one too.
        now_ms: Milliseconds since 1970, as timestamps are.
        retention_ms, retention_bytes: The topic's configs; -1: no limit.
        limit_offset: Records from it on are kept (the last stable offset).

    Source: ``retention.ms`` and ``retention.bytes`` of Kafka; there age counts from the timestamp alone.
    """
    count, left_bytes = 0, log_size_bytes
    for segment in sealed:
        old = retention_ms >= 0 and now_ms - born_ms(segment) > retention_ms
        large = retention_bytes >= 0 and left_bytes - segment.size_bytes >= retention_bytes
        if segment.next_offset > limit_offset or not (old or large):
            break
        left_bytes -= segment.size_bytes
        count += 1
    if active is not None and count == len(sealed) and active.next_offset <= limit_offset:
        return [*sealed, active] if retention_ms >= 0 and now_ms - born_ms(active) > retention_ms else sealed
    return sealed[:count]
