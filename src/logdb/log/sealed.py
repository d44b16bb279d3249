"""Sealed segments as the catalogue has them, and the names of their files and sidecars (docs/inside/format.md).

While a replacement of segments is pending, the names of new files end in ``.cleaned`` until they are renamed over the old ones.  So
that name is looked for first, and no old file is mistaken for a new one.
"""

import os
import re
from collections.abc import Sequence
from typing import Protocol

from logdb.disk import exists
from logdb.io import IO
from logdb.meta import SegmentEntry
from logdb.segment.segment import CLEANED, Segment, segment_path

_SIDECAR = re.compile(r"\d{20}(-[0-9a-f]{8}\.parquet|\.parquet\.tmp)")


class Sealed(Protocol):
    """What retention and compaction read of a sealed segment; ``Segment`` and ``SegmentEntry`` have it."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def append_ms(self) -> int: ...


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
    """The segment that an entry names; its files are opened at their first use.

    Args:
        pending: A replacement was committed, and not every file has its final name yet.
        kind: The class of the segment.
    """
    suffix = CLEANED if pending and exists(io, segment_path(directory, named.base_offset, ".log" + CLEANED)) else ""
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


# ---------------------------------------------------------------- sidecars


def sidecar_path(directory: str, named: SegmentEntry) -> str:
    """The path of a segment's sidecar."""
    assert named.sidecar is not None
    return os.path.join(directory, f"{named.base_offset:020d}-{named.sidecar.crc:08x}.parquet")


def unfinished_sidecar_path(directory: str, base_offset: int) -> str:
    """The path of a sidecar while it is written."""
    return os.path.join(directory, f"{base_offset:020d}.parquet.tmp")


def sidecar_paths(directory: str, sealed: Sequence[SegmentEntry]) -> list[str]:
    """The paths of all sidecars that the entries name."""
    return [sidecar_path(directory, named) for named in sealed if named.sidecar is not None]


def unnamed_sidecars(names: Sequence[str], sealed: Sequence[SegmentEntry]) -> list[str]:
    """The ``names`` in a partition's directory of sidecars, finished or not, that no entry names."""
    known = set(sidecar_paths("", sealed))
    return [name for name in names if _SIDECAR.fullmatch(name) and name not in known]
