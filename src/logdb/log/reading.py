"""Reading as functions over a view of a log and a limit: what lies in [offset, limit) of that view.

The results are those of the view.  If a file of the view is missing, the functions raise ``FileMissing``: the caller looks for a later
view (``log.readable``).
"""

import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from logdb.codec import RecordIterator, convert, find_timestamp
from logdb.codec.batch import CONTROL
from logdb.errors import CorruptionError
from logdb.log.epochs import LeaderEpochs
from logdb.log.replay import aborted_of
from logdb.log.segment_reader import FileMissing, SegmentReader, read_chunks, segment_slot
from logdb.log.view import LogView
from logdb.model import OFFSET_MAX, AbortedTransaction
from logdb.segment.segment import Segment

logger = logging.getLogger(__name__)


class Lineage:
    """A log from one truncation to the next; a read holds the lineage in which it began.

    | field    | who changes it                  | under which lock    | when it may be trusted                                    |
    |----------|---------------------------------|---------------------|-----------------------------------------------------------|
    | ``_end`` | ``end``, before the view behind | that of the log's   | None, asked after a view was taken: the view is of it     |
    |          | the truncation is published     | view                |                                                           |
    """

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end: tuple[int, LeaderEpochs, Lineage] | None = None

    def end(self, offset: int, epochs: LeaderEpochs) -> "Lineage":
        """The log is cut off at ``offset``; ``epochs`` are those before.  Returns the next lineage."""
        following = Lineage()
        self._end = offset, epochs, following
        return following

    @property
    def cut_offset(self) -> int:
        """Up to here the log still has the records of the lineage; OFFSET_MAX: all of them."""
        offset, end = OFFSET_MAX, self._end
        while end is not None:
            offset, end = min(offset, end[0]), end[2]._end
        return offset

    def epoch_before(self, offset: int) -> int:
        """The leader epoch that the record before ``offset`` had when the lineage ended; -1: there was none."""
        return -1 if self._end is None or not offset else self._end[1].at(offset - 1)


class Cursor(NamedTuple):
    """Where the last run of batches ended: the batch that begins with ``offset`` is at ``position`` of the segment.  A hint."""

    offset: int
    segment: Segment
    position: int


def batches(view: LogView, offset: int, limit: int, size_bytes_max: int, cursor: Cursor | None) -> tuple[memoryview, int, Cursor | None]:
    """Whole batches from the one that holds ``offset``, the offset to go on from, and where they ended.

    Args:
        size_bytes_max: Soft limit; one batch is returned even if it alone is larger.
    """
    epochs, segments = view.epochs.entries or None, view.segments
    slot = segment_slot(segments, offset) if segments else 0
    while slot < len(segments) and offset < limit:
        segment = segments[slot]
        if cursor is not None and cursor.offset == offset and cursor.segment is segment:
            reader = SegmentReader.resume(segment, offset, cursor.position, limit, epochs)
        else:
            reader = SegmentReader(segment, max(offset, segment.base_offset), limit, epochs)
        found = reader.read(max(size_bytes_max, 1))
        while found is not None and reader.next_offset <= offset:  # the index led to far before it
            found = reader.read(max(size_bytes_max, 1))
        if found is not None:
            return found, reader.next_offset, Cursor(reader.next_offset, segment, reader.position)
        slot += 1
    return memoryview(b""), offset, cursor


def record_since(view: LogView, limit: int, timestamp_ms: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record below ``limit`` that is as old as ``timestamp_ms`` or younger."""
    for slot, segment in enumerate(view.segments):
        if segment.max_timestamp < timestamp_ms:
            continue
        try:
            offset = max(segment.offset_before_timestamp(timestamp_ms), view.start_offset)
        except FileNotFoundError:
            raise FileMissing(segment.path, view.start_offset) from None
        for chunk in read_chunks(view.segments[slot:], offset, limit, view.epochs.entries or None):
            if found := find_timestamp(chunk, offset, timestamp_ms):
                return found if found[0] < limit else None
    return None


def latest(view: LogView, limit: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record, or marker, in [log start, ``limit``) with the largest timestamp; None if there is none.

    A segment's largest timestamp is an upper bound: its record may lie outside of that range, or be deleted by a compaction.
    """
    found: tuple[int, int] | None = None
    ends = {one.base_offset: following.base_offset for one, following in pairwise(view.segments)}
    for segment in sorted(view.segments, key=lambda one: -one.max_timestamp):
        if segment.max_timestamp < 0 or (found is not None and segment.max_timestamp < found[1]):
            break
        begin, end = max(segment.base_offset, view.start_offset), min(ends.get(segment.base_offset, limit), limit)
        if begin < end:
            found = _later(found, _latest_of(segment, begin, end, view.epochs.entries or None))
    return found


def _later(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other, key=lambda found: (found[1], -found[0]))


def _latest_of(segment: Segment, begin: int, end: int, epochs: Sequence[tuple[int, int]] | None) -> tuple[int, int] | None:
    """As ``latest``, of a segment's batches in [``begin``, ``end``); what earlier calls have read of them is known."""
    known_begin, known_end, found = segment.latest
    if known_begin != begin or known_end > end:
        known_end, found = begin, None
    if known_end == end:
        return found
    try:
        probable = segment.offset_before_timestamp(segment.max_timestamp)
        if begin < probable < end and found is None:  # by the time index
            found = _latest_in(segment, probable, end, segment.max_timestamp, epochs)
        if found is None or found[1] < segment.max_timestamp:
            found = _later(found, _latest_in(segment, known_end, end, segment.max_timestamp, epochs))
    except FileNotFoundError:
        raise FileMissing(segment.path, begin) from None
    segment.latest = begin, end, found
    return found


def _latest_in(segment: Segment, begin: int, end: int, largest_ms: int, epochs: Sequence[tuple[int, int]] | None) -> tuple[int, int] | None:
    """The same by reading, up to the first record of ``largest_ms``."""
    found: tuple[int, int] | None = None
    for chunk in read_chunks((segment,), begin, end, epochs):
        for image, batch in convert.headers(memoryview(chunk)):
            if not batch.record_count or (found is not None and batch.max_timestamp <= found[1]):
                continue
            if batch.attributes & CONTROL:
                found = _later(found, (batch.last_offset, batch.max_timestamp) if batch.last_offset >= begin else None)
            else:
                found = _later(found, find_timestamp(image, begin, batch.max_timestamp) or _latest_record(image, begin, end))
            if found is not None and found[1] >= largest_ms:
                return found
    return found


def _latest_record(image: memoryview, begin: int, end: int) -> tuple[int, int] | None:
    """The same in one batch, whose record with the largest timestamp lies before ``begin``."""
    records = RecordIterator(lambda _begin, _end: (image,), begin, end, "", 0)
    return max(((one.offset, one.timestamp_ms) for one in records), key=lambda found: (found[1], -found[0]), default=None)


def aborted_transactions(view: LogView, offset: int, limit: int, replaced: Callable[[LogView], bool]) -> list[AbortedTransaction]:
    """The aborted transactions with batches in [``offset``, ``limit``), by their markers.

    Args:
        replaced: Whether the log has other segments than the view by now: then a damaged index may be that of another file.
    """
    found: list[AbortedTransaction] = []
    segments = view.segments
    for slot in range(segment_slot(segments, offset), len(segments)):
        transactions = segments[slot].transactions
        if not transactions:
            continue
        try:
            entries, complete = transactions.search(offset, limit)
        except CorruptionError as error:
            if replaced(view):
                raise FileMissing(segments[slot].path, offset) from error
            logger.warning("%s; rebuilt in memory", error)
            transactions.rebuilt(aborted_of(segments, slot, view.epochs.entries or None))
            entries, complete = transactions.search(offset, limit)
        found += entries
        if complete:
            break
    return found
