"""Prepares a truncation: a copy of the segment that has the new end, up to that end, and the producers there.

The log stays as it is; ``store.truncation`` puts the copy in place.  docs/inside/durability.md, "Leaders and followers", has the steps.
"""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from logdb.disk import names_in, write_error
from logdb.errors import CorruptionError, LogdbError
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.log.producers import ProducerStates
from logdb.log.replay import replay
from logdb.log.segment_reader import SegmentReader, segment_slot
from logdb.segment import buffers
from logdb.segment.segment import CLEANED, Segment

if TYPE_CHECKING:
    from logdb.log.log import Log

_SYNC_SIZE_BYTES = 16 << 20  # written between two syncs of a copy, so that no sync keeps the disk busy for long


class Cut(NamedTuple):
    """The new end of a log.

    ``old``: the segment that ``offset``, the new end, lies in.  ``new``: the synced segment, under names that end in
    ``.cleaned``, that will take its place as the active one.  ``producers``: at the new end; None: the log never had any.
    """

    offset: int
    old: Segment
    new: Segment
    producers: ProducerStates | None

    def discard(self) -> None:
        """Remove the copy; the next try or opening removes it if that fails now."""
        with contextlib.suppress(LogdbError):
            self.new.remove()


def end_for(log: "Log", offset: int) -> int:
    """The end of a log that is truncated at ``offset``, in [start offset, written end): the base offset of the batch that holds it.

    If that batch begins at the log start offset or before it: the log start offset; the log is then empty.

    Raises:
        CorruptionError: The batch is damaged or missing; FileMissing: its segment was removed or replaced meanwhile.
    """
    view = log.view
    segment = view.segments[segment_slot(view.segments, offset)]
    reader = SegmentReader(segment, offset, view.written_offset, view.epochs.entries or None)
    batch = reader.read(1)
    if batch is None:
        raise CorruptionError(segment.path, reader.position, f"it has no batch at offset {offset}")
    return max(int.from_bytes(batch[:8], "big"), view.start_offset)


def cut(log: "Log", end_offset: int, *, io: IO, now_ms: int) -> Cut:
    """Prepare a log to end at ``end_offset``, where a batch begins.

    Raises:
        CorruptionError: A batch below it is damaged; FileMissing: of a segment that was removed or replaced meanwhile.
        DiskFull, WriteFailed, SyncFailed: The copy could not be written; it was removed.
    """
    view = log.view
    epochs = view.epochs.entries or None
    old = view.segments[segment_slot(view.segments, end_offset)]
    producers = _producers_at(log, io, view.segments, end_offset, epochs, now_ms) if log.had_producers else None
    interval = log.config.index_interval_bytes
    new = Segment(io, log.directory, old.base_offset, writable=True, index_interval_bytes=interval, suffix=CLEANED)
    try:
        _copy(old, new, end_offset, epochs)
    except OSError as error:
        raise write_error(new.path, 0, error) from error
    return Cut(offset=end_offset, old=old, new=new, producers=producers)


def _copy(old: Segment, new: Segment, end_offset: int, epochs: Sequence[tuple[int, int]] | None) -> None:
    """Copy the batches of ``old`` below ``end_offset`` to ``new``, and sync them."""
    new.remove()  # of an earlier try
    try:
        new.create(old.append_ms)
        new.created_ms = old.created_ms or old.append_ms
        if old.base_offset < end_offset:
            reader = SegmentReader(old, old.base_offset, end_offset, epochs)
            while (chunk := reader.read(buffers.READ_SIZE_BYTES)) is not None:
                new.append(chunk, reader.next_offset)
                if new.size_bytes // _SYNC_SIZE_BYTES != (new.size_bytes - len(chunk)) // _SYNC_SIZE_BYTES:
                    new.sync()
                del chunk  # its buffer may be reused
            aborted = [entry for entry in old.transactions.entries() if entry.last_offset < end_offset]
            new.transactions.rebuilt(aborted)
            new.transactions.unsaved = bool(aborted)
        new.sync()
        new.save_indexes()
    except BaseException:
        with contextlib.suppress(LogdbError):
            new.remove()
        raise


def _producers_at(
    log: "Log", io: IO, segments: Sequence[Segment], end_offset: int, epochs: Sequence[tuple[int, int]] | None, now_ms: int
) -> ProducerStates:
    """The producers at an offset: from the newest good snapshot below it, and the batches behind that."""
    states, known_to = ProducerStates(), segments[0].base_offset
    for offset in reversed(producer_snapshot.offsets(names_in(io, log.directory))):
        if known_to <= offset <= end_offset:
            with contextlib.suppress(FileNotFoundError, CorruptionError):
                states, known_to = producer_snapshot.load(io, log.directory, offset).states, offset
                break
    replay(states, segments, known_to, end_offset, epochs, now_ms, note=lambda _segment, _aborted: None)
    return states
