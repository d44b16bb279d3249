"""Producer snapshots and indexes of aborted transactions, compared with the batches of the log.

``verify`` reports a contradiction, ``repair`` rebuilds the file.  The log does not determine either file exactly: producers
expire, retention deletes the first batches, compaction deletes batches and markers.  So a file is wrong only where
batches that still exist contradict it.
"""

from collections.abc import Iterable

from logdb.codec import Header, control
from logdb.codec.batch import CONTROL
from logdb.codec.control import ControlType
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.log.producers import Producer, ProducerStates
from logdb.meta import LogEntry
from logdb.model import AbortedTransaction, LogConfig
from logdb.segment import transaction_index
from logdb.segment.segment import segment_path


class ProducerWalk:
    """The state of a partition's producers, computed from its batches in their order.

    begins_at     the first offset that was walked, -1 before
    at_snapshot   the producers as of ``snapshot_offset``
    aborted       the aborted transactions, by the base offset of the segment that has the marker
    markers       the producers of the abort markers, by offset
    """

    def __init__(self, snapshot_offset: int, now_ms: int) -> None:
        """``now_ms`` counts as the append time of all batches, so that old timestamps do not expire producers."""
        self.snapshot_offset, self._now_ms = snapshot_offset, now_ms
        self.aborted: dict[int, list[AbortedTransaction]] = {}
        self.markers: dict[int, int] = {}
        self._states = ProducerStates()
        self._at_snapshot: ProducerStates | None = None
        self._base_offset = self.begins_at = -1

    def begin(self, base_offset: int) -> None:
        """The batches visited from here on are in the segment with that base offset."""
        self._base_offset = base_offset
        self.begins_at = base_offset if self.begins_at < 0 else self.begins_at

    def visit(self, head: Header, image: memoryview) -> None:
        """Apply a good batch of a producer."""
        if self._at_snapshot is None and head.base_offset >= self.snapshot_offset:
            self._at_snapshot = self._states.copy()
        if head.attributes & CONTROL and head.record_count and control.parse(image).type is ControlType.ABORT:
            self.markers[head.base_offset] = head.producer_id
        aborted = self._states.replay(head, image, self._now_ms)
        if aborted is not None:
            self.aborted.setdefault(self._base_offset, []).append(aborted)

    @property
    def at_snapshot(self) -> ProducerStates:
        return self._states if self._at_snapshot is None else self._at_snapshot

    @property
    def any(self) -> bool:
        """Whether the log has any batch of a producer."""
        return bool(self._states.producers)


def was_compacted(config: LogConfig, entry: LogEntry) -> bool:
    """Whether compaction may have deleted batches and markers inside a log, under its present policy or an earlier one."""
    return config.compacted or entry.clean_offset > 0


def wrong_snapshot(io: IO, directory: str, walk: ProducerWalk, *, compacted: bool, damaged: bool = False) -> tuple[str, str] | None:
    """The kind and the reason of a problem with the snapshot that the catalogue names; None without a problem.

    Args:
        walk: Of all batches of the log.
        compacted: Compaction may have deleted the last batch of an expired producer.
        damaged: The log is damaged, so that the snapshot is not compared with it.
    """
    try:
        stored = producer_snapshot.load(io, directory, walk.snapshot_offset).states.producers
    except FileNotFoundError:
        return "missing", f"what the log knew of its producers at offset {walk.snapshot_offset}"
    except CorruptionError as error:
        return "damaged", error.reason
    if damaged:
        return None
    for producer_id, seen in walk.at_snapshot.producers.items():
        known = stored.pop(producer_id, None)
        if known is None and seen.first_offset >= 0:
            return "contradiction", f"it lacks producer {producer_id}, which has a transaction open since offset {seen.first_offset}"
        if known is not None and _contradicts(known, seen, walk.begins_at, compacted):
            return "contradiction", f"it says {known}, the log {seen}"
    for known in stored.values():
        if known.batches and known.batches[-1].first_offset >= walk.begins_at and not compacted:
            return "contradiction", f"it says {known}, of which the log has no batch"
    return None


def _contradicts(known: Producer, seen: Producer, begins_at: int, compacted: bool) -> bool:
    """Whether a snapshot's producer is not the one that the log's batches from ``begins_at`` on give; those before may be deleted."""
    if known.epoch < seen.epoch or (seen.first_offset >= 0 and known.first_offset < 0):
        return True
    if known.first_offset >= begins_at and known.first_offset != seen.first_offset:
        return True
    if known.epoch != seen.epoch or not known.batches or known.batches[-1:] == seen.batches[-1:]:
        return False
    gone = not seen.batches or seen.batches[-1].last_offset < known.batches[-1].last_offset
    return not (gone and (compacted or known.batches[-1].first_offset < begins_at))


def wrong_index(data: bytes, walk: ProducerWalk, base_offset: int, judged_below: int, *, compacted: bool) -> str | None:
    """The problem with one segment's index of aborted transactions; None without a problem.

    Args:
        data: The file: whole entries.
        judged_below: Entries of markers at or after this offset are not checked.
        compacted: Compaction may have deleted markers.
    """
    entries = {entry.last_offset: entry for entry in transaction_index.entries(data) if entry.last_offset < judged_below}
    for seen in walk.aborted.get(base_offset, []):
        found = entries.get(seen.last_offset)
        whole = walk.begins_at == 0 and not compacted  # the log still has every batch that the entry was made of
        if seen.last_offset < judged_below and (found is None or not (found == seen if whole else _covers(found, seen))):
            return f"the log has {seen}, the index {found}"
    for entry in entries.values():
        if walk.markers.get(entry.last_offset, entry.producer_id if compacted else -1) != entry.producer_id:
            return f"it says {entry}; the log has no such marker"
    return None


def _covers(found: AbortedTransaction, seen: AbortedTransaction) -> bool:
    """Whether an entry hides all batches of a transaction that the log has, and ends no search too early."""
    reaches = found.first_offset <= seen.first_offset and found.last_stable_offset <= seen.last_stable_offset
    return found.producer_id == seen.producer_id and reaches


def index_path(directory: str, base_offset: int) -> str:
    return segment_path(directory, base_offset, transaction_index.SUFFIX)


def newest_snapshot(io: IO, directory: str, names: Iterable[str], end_offset: int) -> int | None:
    """Offset of the newest good snapshot at or below ``end_offset``; None without one."""
    for offset in reversed(producer_snapshot.offsets(names)):
        if offset <= end_offset:
            try:
                producer_snapshot.load(io, directory, offset)
            except CorruptionError:
                continue
            return offset
    return None
