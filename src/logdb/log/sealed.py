"""Sealed segments as the catalogue has them.

Knows under which names the files of a segment are while a swap of segments is pending: new ones have ``.cleaned``
behind their names until they are renamed over what they replace, so that name is looked for first, and no old file
is mistaken for a new one.
"""

from logdb.io import IO
from logdb.meta import SegmentEntry
from logdb.segment.segment import CLEANED, Segment, segment_path


def sealed_segment(
    io: IO,
    directory: str,
    named: SegmentEntry,
    *,
    index_interval_bytes: int,
    writable: bool,
    pending: bool = False,
    kind: type[Segment] = Segment,
) -> Segment:
    """The segment that an entry names; its files are opened when they are needed.

    Args:
        pending: A swap was committed, and not every file has its name yet.
        kind: What to make.
    """
    suffix = CLEANED if pending and io.exists(segment_path(directory, named.base_offset, ".log" + CLEANED)) else ""
    segment = kind(io, directory, named.base_offset, writable=writable, index_interval_bytes=index_interval_bytes, suffix=suffix)
    segment.size_bytes = segment.room_bytes = named.size_bytes
    segment.next_offset, segment.max_timestamp, segment.append_ms = named.next_offset, named.max_timestamp, named.append_ms
    segment.transactions.expect(named.aborted_count, named.aborted_crc)
    return segment


def segment_entry(topic: str, partition: int, segment: Segment, crc: int) -> SegmentEntry:
    """The entry of a sealed segment; ``crc`` is that of its log."""
    aborted_count, aborted_crc = segment.transactions.checksum()
    return SegmentEntry(
        topic=topic,
        partition=partition,
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        crc=crc,
        next_offset=segment.next_offset,
        max_timestamp=segment.max_timestamp,
        append_ms=segment.append_ms,
        aborted_count=aborted_count,
        aborted_crc=aborted_crc,
    )
