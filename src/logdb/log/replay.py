"""Replay: the state of a log's producers at the log end, from a snapshot and the batches behind it.

The catalogue names the snapshot.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence

from logdb.codec import convert
from logdb.disk import names_in
from logdb.errors import CorruptionError, InvalidBatch
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.log.producer_snapshot import Snapshot
from logdb.log.producers import ProducerStates
from logdb.log.segment_reader import SegmentReader, segment_slot
from logdb.meta import LogEntry
from logdb.model import AbortedTransaction
from logdb.segment import buffers
from logdb.segment.segment import Segment

logger = logging.getLogger(__name__)

_LOOK_COUNT_MAX = 5


def replay(
    states: ProducerStates,
    segments: Sequence[Segment],
    offset: int,
    end_offset: int,
    epochs: Sequence[tuple[int, int]] | None,
    now_ms: int,
    note: Callable[[Segment, AbortedTransaction], None] | None = None,
) -> None:
    """Apply the batches in [``offset``, ``end_offset``), and note which transactions they abort.

    Args:
        states: The producers at ``offset``, where a batch begins; changed.
        now_ms: Taken as the time of the appends.
        note: Called with each transaction that a marker aborts, and the marker's segment; None: the segment's index has it.

    Raises:
        CorruptionError: At a damaged batch; those before it are applied.
    """
    if offset >= end_offset or not segments:
        return
    for segment in segments[segment_slot(segments, offset) :]:
        if segment.base_offset >= end_offset:
            return
        reader = SegmentReader(segment, max(offset, segment.base_offset), end_offset, epochs)
        while (view := reader.read(buffers.READ_SIZE_BYTES)) is not None:
            if reader.produced_count:
                try:
                    found = _apply(states, view, offset, now_ms)
                except InvalidBatch as error:
                    position = reader.position - len(view)
                    raise CorruptionError(segment.path, position, f"here, or in a batch behind it: {error.reason}") from None
                for aborted in found:
                    if note is None:
                        segment.transactions.add(aborted)
                    else:
                        note(segment, aborted)
            del view  # its buffer may be reused


def _apply(states: ProducerStates, batches: memoryview, offset: int, now_ms: int) -> list[AbortedTransaction]:
    produced = ((head, image) for image, head in convert.headers(batches) if head.producer_id >= 0 and head.base_offset >= offset)
    return [aborted for head, image in produced if (aborted := states.replay(head, image, now_ms)) is not None]


def aborted_of(segments: Sequence[Segment], slot: int, epochs: Sequence[tuple[int, int]] | None) -> list[AbortedTransaction]:
    """The transactions that markers in ``segments[slot]`` abort, found by a scan of the whole log.

    Raises:
        CorruptionError: A batch is damaged.
    """
    found: list[AbortedTransaction] = []

    def note(segment: Segment, aborted: AbortedTransaction) -> None:
        if segment is segments[slot]:
            found.append(aborted)

    replay(ProducerStates(), segments, segments[0].base_offset, segments[slot].next_offset, epochs, 0, note)
    return found


def load_snapshot(
    io: IO, directory: str, offset: int, start_offset: int, older: Sequence[int], report: Callable[[str], None]
) -> tuple[Snapshot, int]:
    """The producers that a replay begins with, and its first offset.

    Args:
        offset: The snapshot that the catalogue names.
        start_offset: The log's; without a good snapshot the replay begins there, without producers.
        older: Offsets of other snapshots, tried next.
        report: Called with each damaged snapshot.
    """
    for candidate in (offset, *sorted((other for other in older if other < offset), reverse=True)):
        try:
            return producer_snapshot.load(io, directory, candidate), candidate
        except FileNotFoundError:
            report(f"{producer_snapshot.snapshot_path(directory, candidate)} is missing: rebuilt from the log")
        except CorruptionError as error:
            report(f"{error}; rebuilt from the log")
    return Snapshot(ProducerStates(), {}), start_offset


def load_index(
    snapshot: Snapshot, offset: int, segments: Sequence[Segment], slot: int, epochs: Sequence[tuple[int, int]] | None
) -> CorruptionError | None:
    """Load the index of aborted transactions of a segment that is not sealed; rebuild it if it differs from ``snapshot``.

    Args:
        offset: The snapshot's; a replay finds the markers behind it.

    Returns:
        The damage of the file; None if it was good.

    Raises:
        CorruptionError: The file was damaged, and so is a batch from which it is rebuilt.  The index is empty then.
    """
    index = segments[slot].transactions
    try:
        index.load_below(offset, *snapshot.aborted_in(segments[slot].base_offset))
    except CorruptionError as error:
        index.rebuilt(aborted_of(segments, slot, epochs))
        return error
    return None


class TailProducers:
    """The producers of a log that another process writes to, updated on request.

    Threading: one thread at a time, under the log's lock.
    """

    def __init__(self, io: IO, directory: str, entry: LogEntry) -> None:
        self._io, self._directory, self._entry = io, directory, entry
        self.states = ProducerStates()
        self.began = entry.producers_offset >= 0  # the log had a producer when it was opened
        self._offset = -1  # end of the batches that the states include; -1: no batch was read yet

    def advance(self, segments: Sequence[Segment], start_offset: int, end_offset: int, epochs: Sequence[tuple[int, int]] | None) -> None:
        """Apply the batches below ``end_offset``.

        Raises:
            CorruptionError: A batch is damaged.
        """
        if self._offset < 0:
            self._begin(segments, start_offset, end_offset, epochs)
        if self._offset < end_offset:
            replay(self.states, segments, self._offset, end_offset, epochs, self._io.clock_ms())
            self._offset = end_offset

    def _begin(self, segments: Sequence[Segment], start_offset: int, end_offset: int, epochs: Sequence[tuple[int, int]] | None) -> None:
        """Begin at the newest snapshot, or before the first producer."""
        if self._entry.producers_offset < 0:
            self._offset = max(start_offset, min(self._entry.recovery_offset, end_offset))
            return
        snapshot, offset = self._newest_snapshot(start_offset, end_offset)
        for slot, segment in enumerate(segments):
            if segment.scanner is None:
                continue  # sealed: the catalogue has the CRC of its index
            error = load_index(snapshot, offset, segments, slot, epochs)
            if error is not None:
                logger.warning("%s; rebuilt in memory", error)
        self.states, self._offset = snapshot.states, offset  # last: an exception before it lets the next call begin again

    def _newest_snapshot(self, start_offset: int, end_offset: int) -> tuple[Snapshot, int]:
        for _ in range(_LOOK_COUNT_MAX):  # the writer removes old snapshots
            for offset in reversed(producer_snapshot.offsets(names_in(self._io, self._directory))):
                if offset <= end_offset:
                    with contextlib.suppress(FileNotFoundError, CorruptionError):
                        return producer_snapshot.load(self._io, self._directory, offset), offset
        return Snapshot(ProducerStates(), {}), start_offset
