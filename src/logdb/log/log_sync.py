"""What of a log is durable: its syncs and checkpoints, when they are due, and what a checkpoint saves before the catalogue names it.

An append at level fsync waits in ``group``; concurrent ones share a sync (``log.group_commit``).  The store's threads call the rest
(``store.flusher``, ``store.checkpoints``).  Times are on the monotonic clock.

Threading: any number of threads.  A thread that holds ``lock`` may drain the builder, never the other way round.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logdb.codec import FSYNC, OS
from logdb.disk import Write, sync_directory, write_files
from logdb.io import IO
from logdb.log import producer_snapshot
from logdb.log.epochs import LeaderEpochs
from logdb.log.group_commit import GroupCommit
from logdb.log.host import Host
from logdb.log.recovery_point import Point, RecoveryPointFile
from logdb.log.segment_reader import segment_slot
from logdb.segment import transaction_index

if TYPE_CHECKING:
    from logdb.log.log import Log
    from logdb.log.producers import ProducerStates
    from logdb.log.transactions import LogTransactions
    from logdb.log.view import LogView
    from logdb.segment.segment import Segment

CHECKPOINT_SIZE_BYTES = 64 << 20  # unsynced, and so to be scanned after a crash, at most
CHECKPOINT_INTERVALS = 10  # of flush.ms, from one to the next: each writes five pages or more, however little has come


class Shared(NamedTuple):
    """A log at the begin of a sync that it shares with others.

    ``epochs``: those that the sync makes durable, too; None: their file is durable.  ``point_file``: a truncation takes another one.
    """

    log: "Log"
    view: "LogView"
    point_file: RecoveryPointFile
    tail: "Sequence[Segment]"
    entry_counts: list[int]
    epochs: LeaderEpochs | None
    since_ms: int


class Captured(NamedTuple):
    """The producers of one log at an offset."""

    transactions: "LogTransactions"
    offset: int
    states: "ProducerStates"


class Saving(NamedTuple):
    """What a checkpoint of one log writes before the catalogue names it; ``point``: the recovery point that it covers at least."""

    point: Point
    writes: list[Write]
    transactions: "LogTransactions | None"
    snapshot_offset: int | None
    segment: "Segment | None"
    sizes: tuple[int, int] | None


class LogSync:
    """The syncs and checkpoints of one log.

    | field                  | who changes it                            | under which lock        | when it may be trusted             |
    |------------------------|-------------------------------------------|-------------------------|------------------------------------|
    | ``lock``               | never                                     |                         | its place in the order: log.view   |
    | ``Log.view.flushed``   | see ``log.view``                          | see there               | below it a power cut takes nothing |
    | ``checkpointed``,      | a checkpoint; a truncation                | the store's checkpoint; | the catalogue's recovery point,    |
    | ``_checkpointed_ms``   |                                           | ``lock``                | and since when                     |
    | ``unsynced_since_ms``  | a write; a sync                           | ``SegmentWriter.lock``  | a hint for the flusher             |
    | ``_interval_wanted``   | an append at level interval in a log of   | none                    | a hint for the flusher             |
    |                        | level os; a sync                          |                         |                                    |
    | ``below_fsync_count``  | a call whose batches may come in below    | none                    | at once: such calls under way      |
    |                        | level fsync, or be more than a group      |                         |                                    |
    | ``Log.fsync_only``     | ``begin_fsync_only``; the first append    | none; the builder asks  | true: the catalogue says so, and   |
    |                        | below fsync                               | first                   | all past ``flushed`` was at fsync  |
    """

    def __init__(self, log: "Log", io: IO, host: Host, checkpointed: Point) -> None:
        self._log, self._io, self._host = log, io, host
        self.lock = threading.Lock()
        self.below_fsync_count = 0
        self.group = GroupCommit(self._write_and_sync)
        self.restart(checkpointed)

    def restart(self, checkpointed: Point) -> None:
        """Begin with a log all of which is synced: it was opened, or truncated."""
        self.checkpointed, self._checkpointed_ms = checkpointed, self._io.monotonic_ms()
        self.unsynced_since_ms, self._interval_wanted = 0, False

    # ------------------------------------------------------------ syncs

    def commit_in_time(self) -> None:
        """Have a sync made in time, of a log that would otherwise have none."""
        if not self._interval_wanted:
            self._interval_wanted = True
            self._host.wake_syncer(self._log)

    def _write_and_sync(self) -> int:
        """The work of a group commit; returns the offset below which everything is durable."""
        with self.lock:
            self._log.drain()
            self.sync_locked()
            return self._log.view.flushed.offset

    def sync(self) -> None:
        """Sync written records; those in the open batch stay there."""
        with self.lock:
            self.sync_locked()

    def sync_locked(self) -> None:
        """As ``sync``; under ``lock``.

        Raises:
            SyncFailed: Final.
            DiskFull, WriteFailed: The epoch checkpoint could not be written; nothing was acknowledged.
        """
        log, writer = self._log, self._log.writer
        if log.closed or log.refuses_writes:  # a sync failed during the wait for the lock: another sync would prove nothing
            raise self._host.refusal(log)
        with writer.lock:
            view, since_ms = log.view, self.unsynced_since_ms
            if not view.segments or (view.written_offset == view.flushed.offset and not writer.epochs_unsynced):
                return
            self.unsynced_since_ms = 0  # a write that this sync does not cover sets it
        try:
            tail = self._sync_segments(view)
        except BaseException:
            with writer.lock:
                self.unsynced_since_ms = since_ms or self.unsynced_since_ms
            raise
        written_since = log.view.written_offset != view.written_offset
        self._interval_wanted = self._interval_wanted and (written_since or log.pending_count > 0)
        point = Point(tail[-1].base_offset, view.written_offset, view.written_position)
        self._publish(point, lambda point: writer.point.note(point=point))

    def _publish(self, point: Point, note: Callable[[Point], None]) -> None:
        """All below ``point`` is durable; under ``lock``.  ``note`` tells the file of the recovery point."""
        log, writer = self._log, self._log.writer
        with writer.lock:
            log.view = log.view._replace(flushed=point)
        note(point)
        log.wake()

    # ------------------------------------------------------------ a sync that many logs share (log.shared_sync)

    def begin_shared(self) -> "Shared | None":
        """What a sync of the file system makes durable from now on; None: a sync has nothing to do, or is refused."""
        log, writer = self._log, self._log.writer
        with self.lock, writer.lock:
            view = log.view
            is_refused = log.closed or log.refuses_writes
            if is_refused or not view.segments or (view.written_offset == view.flushed.offset and not writer.epochs_unsynced):
                return None
            tail = _unsynced_segments(view)
            since_ms, self.unsynced_since_ms = self.unsynced_since_ms, 0  # a write that the sync does not cover sets it
            counts = [segment.entry_count for segment in tail]
            return Shared(log, view, writer.point, tail, counts, view.epochs if writer.epochs_unsynced else None, since_ms)

    def end_shared(self, shared: "Shared") -> None:
        """The sync has returned."""
        log, writer, view = self._log, self._log.writer, shared.view
        with self.lock:
            if log.closed or log.refuses_writes or writer.point is not shared.point_file:  # it was closed, or truncated, meanwhile
                return
            for segment, count in zip(shared.tail, shared.entry_counts, strict=True):
                segment.entries_synced(count)
            if shared.epochs is log.view.epochs:
                writer.epochs_unsynced = False
            written_since = log.view.written_offset != view.written_offset
            self._interval_wanted = self._interval_wanted and (written_since or log.pending_count > 0)
            if view.written_offset > log.view.flushed.offset:
                self._publish(Point(shared.tail[-1].base_offset, view.written_offset, view.written_position), writer.point.move)

    def undo_shared(self, shared: "Shared") -> None:
        """There was no sync."""
        with self._log.writer.lock:
            if self._log.writer.point is shared.point_file:
                self.unsynced_since_ms = shared.since_ms or self.unsynced_since_ms

    def _sync_segments(self, view: "LogView") -> "Sequence[Segment]":
        """Sync the files, the epoch checkpoint and the directory entries of a view; returns the segments that were not synced."""
        log, writer, tail = self._log, self._log.writer, _unsynced_segments(view)
        for segment in tail:
            if segment.dirty:
                segment.sync()
        counts = [segment.entry_count for segment in tail]
        if writer.epochs_unsynced:
            writer.save_epochs()
        if any(segment.new for segment in tail):
            sync_directory(self._io, log.directory)
            for segment, count in zip(tail, counts, strict=True):
                segment.entries_synced(count)
        return tail

    def note_unsynced(self) -> None:
        """A recovery found records past the recovery point: let them be synced in time."""
        view = self._log.view
        if view.written_offset > view.flushed.offset:
            self.unsynced_since_ms = self._io.monotonic_ms()

    def due_ms(self) -> int | None:
        """When unsynced records must be synced; None: never by a timer."""
        since, log = self.unsynced_since_ms, self._log
        if not since:
            return None
        if log.view.segments and _unsynced_bytes(log.view) >= CHECKPOINT_SIZE_BYTES:
            return since
        if log.level == OS and not self._interval_wanted:
            return None
        return since + log.config.flush_ms * 3 // 4  # early enough to end by flush.ms

    # ------------------------------------------------------------ checkpoints

    def checkpoint_due_ms(self) -> int | None:
        """When the next checkpoint is due; None: the catalogue is up to date."""
        log, point = self._log, self._log.view.flushed
        if log.writer.sealing or point.position - self.checkpointed.position >= CHECKPOINT_SIZE_BYTES:
            return self._checkpointed_ms
        if point.offset <= self.checkpointed.offset:
            return None
        return self._checkpointed_ms + CHECKPOINT_INTERVALS * log.config.flush_ms

    def save_active_indexes(self) -> Point:
        """Sync the active segment's indexes, and a producer snapshot; returns the recovery point that they cover at least."""
        saving = self.begin_saving()
        write_files(self._io, saving.writes)
        self.end_saving(saving)
        return saving.point

    def captured_producers(self) -> "Captured | None":
        """The producers as they are now, for ``begin_saving``; None: their newest snapshot is as new."""
        log, transactions = self._log, self._log.writer.transactions
        if transactions is None:
            return None
        with transactions.lock:
            transactions.written.expire(log.now_ms())
            offset, states = log.view.written_offset, transactions.written.copy()
            if (offset == transactions.snapshot_offset and not transactions.stale) or offset < transactions.written_offset:
                return None
        return Captured(transactions, offset, states)

    def begin_saving(self, captured: "Captured | None" = None, *, final: bool = False) -> "Saving":
        """What ``save_active_indexes`` writes, for a caller that makes it durable, and then calls ``end_saving``.

        Args:
            captured: The producers to save; None: as they are now.
            final: The log is about to be closed.
        """
        log, writes, transactions, snapshot_offset = self._log, list[Write](), None, None
        if (captured := captured or self.captured_producers()) is not None:
            transactions, snapshot_offset, _ = captured
            writes.append(self._producer_write(captured))
        point, segment, sizes = log.view.flushed, log.view.active, None
        if segment is not None and segment.scanner is not None and (begun := segment.begin_saving(final=final)) is not None:
            writes, sizes = writes + begun[0], begun[1]
        return Saving(point, writes, transactions, snapshot_offset, segment, sizes)

    def end_saving(self, saving: "Saving") -> None:
        """What ``saving`` writes is durable."""
        if saving.transactions is not None and saving.snapshot_offset is not None:
            saving.transactions.saved(saving.snapshot_offset)
        if saving.segment is not None and saving.sizes is not None:
            saving.segment.indexes_saved(saving.sizes)

    def _producer_write(self, captured: "Captured") -> Write:
        """Sync the log up to where the producers were captured; returns the write of their snapshot."""
        log = self._log
        if log.view.flushed.offset < captured.offset:
            self.sync()
        active = log.view.segments[-1:]  # before the others: if it is rolled meanwhile, it is one of them
        unsealed = {segment.base_offset: segment for segment in (*active, *log.writer.sealing)}
        for segment in unsealed.values():
            segment.save_transactions()
        aborted = {base: transaction_index.summary(segment.transactions.below(captured.offset)) for base, segment in unsealed.items()}
        data = producer_snapshot.encode(captured.states, aborted)
        return Write(producer_snapshot.snapshot_path(log.directory, captured.offset), data, replaces=True)

    def checkpoint_done(self, point: Point, sealed: "Sequence[Segment]", *, tidy: bool = True) -> None:
        """The catalogue has ``point`` and the ``sealed`` segments; ``tidy``: the snapshots that it needs no more go."""
        self.checkpointed, self._checkpointed_ms = point, self._io.monotonic_ms()
        for segment in sealed:
            self._log.writer.sealing.remove(segment)
        if tidy:
            self._log.remove_old_snapshots()

    def begin_fsync_only(self) -> bool:
        """Whether all appends past the recovery point were at level fsync, so that the catalogue may say so.

        From then on an append below that level first calls the host's ``end_fsync_only``.  A replica's appends are all below it: what
        they wait for is that the in-sync replicas have flushed them.
        """
        log = self._log
        if log.level == FSYNC and log.high_watermark_file is None and not log.fsync_only and self._all_at_fsync():
            log.fsync_only = True
            log.tell_builder()
            if not self._all_at_fsync():  # another append came in between
                log.fsync_only = False
                log.tell_builder()
        return log.fsync_only

    def _all_at_fsync(self) -> bool:
        return not self.below_fsync_count and self._log.view.flushed.offset == self._log.end_offset


def _unsynced_segments(view: "LogView") -> "Sequence[Segment]":
    """The segments from the flushed end on."""
    if view.segments[-1].base_offset == view.flushed.segment:
        return view.segments[-1:]
    return view.segments[segment_slot(view.segments, view.flushed.offset) :]


def _unsynced_bytes(view: "LogView") -> int:
    return sum(segment.size_bytes for segment in _unsynced_segments(view)) - view.flushed.position
