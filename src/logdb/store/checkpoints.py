"""Checkpoints: the catalogue takes over the sealed segments and recovery points of logs.

A segment is final and synced, with its directory entry, before the catalogue names it; the recovery point follows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from logdb.disk import sync_directory, write_files, write_files_together
from logdb.errors import LogdbError, without_frames
from logdb.log import shared_sync
from logdb.log.log import Log
from logdb.log.log_sync import Captured, Saving
from logdb.log.recovery_point import Point
from logdb.log.sealed import segment_entry
from logdb.meta import LogEntry, SegmentEntry
from logdb.model import TopicPartition
from logdb.segment.files import FILES
from logdb.segment.segment import Segment
from logdb.store.entries import Entries
from logdb.store.state import StoreState

_SAVED_TOGETHER = 512  # logs: each has up to three files open


class _Saved(NamedTuple):
    point: Point
    sealed: list[Segment]
    entries: list[SegmentEntry]


class Checkpoints:
    """The checkpoints of one store."""

    def __init__(self, state: StoreState, entries: Entries, sealed: Callable[[Log], None]) -> None:
        """``sealed``: called with each log of which the catalogue names more segments."""
        self._state, self._entries, self._sealed = state, entries, sealed

    def checkpoint(self, logs: Sequence[Log], *, final: bool = False) -> None:
        """Seal rolled segments, and commit them and the recovery points to the catalogue, in one transaction for all logs.

        Raises the error of the first log that failed, after the others were checkpointed.

        Args:
            final: The store is about to be closed: old snapshots of producers of many logs are left to the first checkpoint after it.
        """
        with self._state.checkpoint_lock:
            self.checkpoint_locked(logs, tidy=not final or len(logs) < shared_sync.COUNT_MIN)

    def checkpoint_locked(self, logs: Sequence[Log], *, tidy: bool = True) -> None:
        """As ``checkpoint``; under the lock of checkpoints."""
        failure: LogdbError | None = None
        sealed: dict[Log, list[Segment]] = {}
        points: dict[Log, Point] = {}
        segments: list[SegmentEntry] = []
        current = [log for log in logs if self._may_be_checkpointed(log)]
        count = max(1, min(_SAVED_TOGETHER, FILES.limit // 16))
        for at in range(0, len(current), count):
            saved, failed = self._save(current[at : at + count])
            failure = failure or failed
            for log, (point, taken, entries) in saved.items():
                points[log], sealed[log] = point, taken
                segments += entries
            del failed
        self._entries.change(
            lambda: [self.entry_at(log, point, grown=bool(sealed[log])) for log, point in points.items()],
            lambda txn: txn.put_segments(segments),
        )
        for log, point in points.items():
            log.syncs.checkpoint_done(point, sealed[log], tidy=tidy)
            if sealed[log]:
                self._sealed(log)
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame

    def _may_be_checkpointed(self, log: Log) -> bool:
        """Not if it was deleted meanwhile, and perhaps created again; or if a truncation was interrupted."""
        return self._state.is_current(log) and TopicPartition(log.topic, log.partition) in self._entries and not log.interrupted

    def _save(self, logs: Sequence[Log]) -> tuple[dict[Log, "_Saved"], LogdbError | None]:
        """Make durable what the catalogue will name of each log: sealed segments, indexes, producers; returns the first error, too."""
        saved: dict[Log, _Saved] = {}
        savings: dict[Log, Saving] = {}
        failures: list[LogdbError | None] = []
        is_shared = len(logs) >= shared_sync.COUNT_MIN
        captured = self._captured(logs) if is_shared else {}
        for log in logs:
            try:
                sealed = log.take_sealing()
                entries = [self._seal(log, segment) for segment in sealed]
                saving = log.syncs.begin_saving(captured.get(log))
                if not is_shared:
                    write_files(self._state.io, saving.writes)
                savings[log], saved[log] = saving, _Saved(saving.point, sealed, entries)
            except LogdbError as error:
                failures.append(without_frames(error))  # a frame has the sealed segments: their files stay open until they are deleted
        ends: list[LogdbError | None] = [None] * len(savings)
        if is_shared:
            ends = write_files_together(self._state.io, [saving.writes for saving in savings.values()])
        for (log, saving), failed in zip(savings.items(), ends, strict=True):
            if failed is None:
                log.syncs.end_saving(saving)
            else:
                del saved[log]
        return saved, next((failed for failed in (*failures, *ends) if failed is not None), None)

    def _captured(self, logs: Sequence[Log]) -> dict[Log, Captured]:
        """The producers of logs, which are synced up to there: appends go on, so that a later look would find logs unsynced again."""
        captured = {log: found for log in logs if (found := log.syncs.captured_producers()) is not None}
        unsynced = [log for log, found in captured.items() if log.view.flushed.offset < found.offset]
        failed: dict[Log, Exception] = {}
        shared_sync.sync(self._state.io, unsynced, failed.__setitem__)
        return {log: found for log, found in captured.items() if log not in failed}  # the sync of one says why

    def _seal(self, log: Log, segment: Segment) -> SegmentEntry:
        """Make a segment final, with its directory entry, before the catalogue names it."""
        self._state.check_synced()
        crc = segment.seal()
        count = segment.entry_count
        sync_directory(self._state.io, log.directory)
        segment.entries_synced(count)
        return segment_entry(log.topic, log.partition, segment, crc)

    def is_behind(self, log: Log) -> bool:
        """Whether the catalogue lacks sealed segments or a later recovery point of ``log``."""
        if not self._may_be_checkpointed(log):
            return False
        entry = self._entries.get(TopicPartition(log.topic, log.partition))
        unsaid = log.epochs.latest != entry.leader_epoch or log.producers_unsaved
        return log.view.flushed != log.syncs.checkpointed or unsaid or bool(log.take_sealing())

    def entry_at(self, log: Log, point: Point, *, grown: bool) -> LogEntry:
        """The entry of ``log`` once ``point`` is its recovery point; ``grown``: its sealed segments have changed."""
        entry = self._entries.get(TopicPartition(log.topic, log.partition))
        return entry._replace(
            generation=entry.generation + grown,
            recovery_segment=point.segment,
            recovery_offset=point.offset,
            recovery_position=point.position,
            strict=log.syncs.begin_fsync_only(),
            leader_epoch=log.epochs.latest,
            producers_offset=max(entry.producers_offset, log.producers_offset),
            segment_created_ms=log.created_ms(point.segment),
            segment_append_ms=log.append_ms(point.segment),
        )
