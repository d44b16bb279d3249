"""What the batches of a partition say of its producers, beside what its files say.

Knows snapshots of producers and indexes of aborted transactions.  Does not know what to do about a contradiction:
``verify`` reports it, ``repair`` makes the file anew.

Neither file can be told exactly from the log: producers expire, retention takes the begin of what is known, and compaction
takes batches and markers.  So the log's word counts where it has one.
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
    """Follows the batches of one partition, in their order.

    ``begins_at``: the first offset that was walked, -1 before.  ``at_snapshot``: the producers as they were at
    ``snapshot_offset``.  ``aborted``: the transactions that were aborted, by the base offset of the marker's segment.
    ``markers``: producers of the abort markers, by their offsets.
    """

    def __init__(self, snapshot_offset: int, now_ms: int) -> None:
        """``now_ms``: when the batches count as appended, so that producers don't expire of records with an old time."""
        self.snapshot_offset, self._now_ms = snapshot_offset, now_ms
        self.aborted: dict[int, list[AbortedTransaction]] = {}
        self.markers: dict[int, int] = {}
        self._states = ProducerStates()
        self._at_snapshot: ProducerStates | None = None
        self._base_offset = self.begins_at = -1

    def begin(self, base_offset: int) -> None:
        """What is visited from here on lies in the segment of that base offset."""
        self._base_offset = base_offset
        self.begins_at = base_offset if self.begins_at < 0 else self.begins_at

    def visit(self, head: Header, image: memoryview) -> None:
        """Take over a good batch of a producer."""
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
        """Whether the log has a batch of a producer at all."""
        return bool(self._states.producers)


def was_compacted(config: LogConfig, entry: LogEntry) -> bool:
    """Whether batches and markers may have gone from the middle of a log, by its policy now or before."""
    return config.compacted or entry.clean_offset > 0


def wrong_snapshot(io: IO, directory: str, walk: ProducerWalk, *, compacted: bool, damaged: bool = False) -> tuple[str, str] | None:
    """What is wrong with the snapshot that the catalogue names: a kind of problem and the reason; None if nothing is.

    Args:
        walk: Of all batches that the log has.
        compacted: The last batch of a producer that has expired may be gone from it.
        damaged: It is damaged, and says nothing of the snapshot.
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
    if known.epoch < seen.epoch or (seen.first_offset >= 0) != (known.first_offset >= 0):
        return True
    if known.first_offset >= begins_at and known.first_offset != seen.first_offset:
        return True
    if known.epoch != seen.epoch or not known.batches or known.batches[-1:] == seen.batches[-1:]:
        return False
    gone = not seen.batches or seen.batches[-1].last_offset < known.batches[-1].last_offset
    return not (compacted and gone)


def wrong_index(data: bytes, walk: ProducerWalk, base_offset: int, judged_below: int, *, compacted: bool) -> str | None:
    """What is wrong with the index of aborted transactions of one segment; None if nothing is.

    Args:
        data: The file, of whole entries.
        judged_below: Markers from there on need not be in it, nor what is of them be true.
        compacted: Markers may be gone from the log.
    """
    entries = {entry.last_offset: entry for entry in transaction_index.entries(data) if entry.last_offset < judged_below}
    for seen in walk.aborted.get(base_offset, []):
        found = entries.get(seen.last_offset)
        whole = walk.begins_at == 0 and not compacted  # of what the entry was made of, nothing is gone
        if seen.last_offset < judged_below and (found is None or not (found == seen if whole else _covers(found, seen))):
            return f"the log has {seen}, the index {found}"
    for entry in entries.values():
        if walk.markers.get(entry.last_offset, entry.producer_id if compacted else -1) != entry.producer_id:
            return f"it says {entry}; the log has no such marker"
    return None


def _covers(found: AbortedTransaction, seen: AbortedTransaction) -> bool:
    """Whether an entry hides all that the log has of a transaction, and no search ends at it too early."""
    reaches = found.first_offset <= seen.first_offset and found.last_stable_offset <= seen.last_stable_offset
    return found.producer_id == seen.producer_id and reaches


def index_path(directory: str, base_offset: int) -> str:
    return segment_path(directory, base_offset, transaction_index.SUFFIX)


def newest_snapshot(io: IO, directory: str, names: Iterable[str], end_offset: int) -> int | None:
    """Offset of the newest good snapshot at or below ``end_offset``; None where there is none."""
    for offset in reversed(producer_snapshot.offsets(names)):
        if offset <= end_offset:
            try:
                producer_snapshot.load(io, directory, offset)
            except CorruptionError:
                continue
            return offset
    return None
