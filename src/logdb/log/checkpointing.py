"""Syncs and checkpoints of one log: when they are due, and what a checkpoint saves before the catalogue names it.

Called by the store's threads (``store.flusher``, ``store.checkpoints``).  Times are on the monotonic clock.
"""

from typing import TYPE_CHECKING

from logdb.codec import FSYNC, OS
from logdb.log import producer_snapshot
from logdb.log.segment_reader import segment_slot
from logdb.segment import transaction_index

if TYPE_CHECKING:
    from logdb.log.log import Log
    from logdb.log.recovery_point import Point
    from logdb.log.transactions import Transactions
    from logdb.log.view import LogView

CHECKPOINT_SIZE_BYTES = 64 << 20  # unsynced, and so to be scanned after a crash, at most
CHECKPOINT_INTERVALS = 10  # of flush.ms, from one to the next: each writes five pages or more, however little has come


def sync_due_ms(log: "Log") -> int | None:
    """When unsynced records must be synced; None: never by a timer."""
    since, view = log.writer.unsynced_since_ms, log.view
    if not since:
        return None
    if view.segments and _unsynced_bytes(view) >= CHECKPOINT_SIZE_BYTES:
        return since
    if log._level == OS and not log._interval_wanted:
        return None
    return since + log._config.flush_ms * 3 // 4  # early enough to end by flush.ms


def _unsynced_bytes(view: "LogView") -> int:
    if view.active is None or view.active.base_offset != view.flushed.segment:
        tail = view.segments[segment_slot(view.segments, view.flushed.offset) :]
        return sum(segment.size_bytes for segment in tail) - view.flushed.position
    return view.written_position - view.flushed.position


def checkpoint_due_ms(log: "Log") -> int | None:
    """When the next checkpoint is due; None: the catalogue is up to date."""
    point = log.view.flushed
    if log.writer.sealing or point.position - log.checkpointed.position >= CHECKPOINT_SIZE_BYTES:
        return log._checkpointed_ms
    if point.offset <= log.checkpointed.offset:
        return None
    return log._checkpointed_ms + CHECKPOINT_INTERVALS * log._config.flush_ms


def save_active_indexes(log: "Log") -> "Point":
    """Sync the active segment's indexes, and a producer snapshot; returns the recovery point that they cover at least."""
    if log.writer.transactions is not None:
        _save_producers(log, log.writer.transactions)
    point, segment = log.view.flushed, log.view.active
    if segment is not None and segment.scanner is not None:
        segment.save_indexes()
    return point


def _save_producers(log: "Log", transactions: "Transactions") -> None:
    """Sync the log, and save a snapshot of the producers at its end."""
    with transactions.lock:
        transactions.written.expire(log._clock())
        offset, states = log.view.written_offset, transactions.written.copy()
        if (offset == transactions.snapshot_offset and not transactions.stale) or offset < transactions.written_offset:
            return
    if log.view.flushed.offset < offset:
        log.sync()
    active = log.view.segments[-1:]  # before the others: if it is rolled meanwhile, it is one of them
    unsealed = {segment.base_offset: segment for segment in (*active, *log.writer.sealing)}
    for segment in unsealed.values():
        segment.save_transactions()
    aborted = {base: transaction_index.summary(segment.transactions.below(offset)) for base, segment in unsealed.items()}
    producer_snapshot.save(log._io, log.directory, offset, states, aborted)
    transactions.saved(offset)


def begin_fsync_only(log: "Log") -> bool:
    """Whether all appends past the recovery point were at level fsync, so that the catalogue may say so.

    From then on an append below that level first calls the host's ``end_fsync_only``.
    """
    if log._level == FSYNC and not log.fsync_only and _all_at_fsync(log):
        log.fsync_only = True
        log.configure(log._config)
        if not _all_at_fsync(log):  # another append came in between
            log.fsync_only = False
            log.configure(log._config)
    return log.fsync_only


def _all_at_fsync(log: "Log") -> bool:
    return not log._below_fsync_count and log.view.flushed.offset == log._next_offset
