"""Reading as functions over a view of a log and a limit: what lies in [offset, limit) of that view.

The results are those of the view.  If a file of the view is missing, the functions raise ``FileMissing``: the caller looks for a later
view (``log.readable``).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from logdb.codec import convert, find_timestamp
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


def batch_since(view: LogView, limit: int, timestamp_ms: int) -> tuple[int, int] | None:
    """Last offset and timestamp of the first batch below ``limit`` as old as that or younger, whatever it holds: also a marker."""
    segment = next((one for one in view.segments if one.max_timestamp >= timestamp_ms), None)
    if segment is None:
        return None
    try:
        offset = max(segment.offset_before_timestamp(timestamp_ms), view.start_offset)
    except FileNotFoundError:
        raise FileMissing(segment.path, view.start_offset) from None
    while offset < limit:
        found, offset, _ = batches(view, offset, limit, 1, None)
        for _, batch in convert.headers(found):
            if batch.max_timestamp >= timestamp_ms:
                return batch.last_offset, batch.max_timestamp
        if not found:
            return None
    return None


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
