"""Checkpoints: the catalogue takes over the sealed segments and recovery points of logs.

A segment is final and synced, with its directory entry, before the catalogue names it; the recovery point follows.
"""

from collections.abc import Callable, Sequence

from logdb.disk import sync_directory
from logdb.errors import LogdbError
from logdb.log.log import Log
from logdb.log.recovery_point import Point
from logdb.log.sealed import segment_entry
from logdb.meta import LogEntry, SegmentEntry
from logdb.model import TopicPartition
from logdb.segment.segment import Segment
from logdb.store.entries import Entries
from logdb.store.state import StoreState


class Checkpoints:
    """The checkpoints of one store."""

    def __init__(self, state: StoreState, entries: Entries, sealed: Callable[[Log], None]) -> None:
        """``sealed``: called with each log of which the catalogue names more segments."""
        self._state, self._entries, self._sealed = state, entries, sealed

    def checkpoint(self, logs: Sequence[Log]) -> None:
        """Seal rolled segments, and commit them and the recovery points to the catalogue, in one transaction for all logs.

        Raises the error of the first log that failed, after the others were checkpointed.
        """
        with self._state.checkpoint_lock:
            self.checkpoint_locked(logs)

    def checkpoint_locked(self, logs: Sequence[Log]) -> None:
        """As ``checkpoint``; under the lock of checkpoints."""
        failure: LogdbError | None = None
        sealed: dict[Log, list[Segment]] = {}
        points: dict[Log, Point] = {}
        segments: list[SegmentEntry] = []
        for log in logs:
            if not self._state.is_current(log) or TopicPartition(log.topic, log.partition) not in self._entries or log.interrupted:
                continue  # deleted meanwhile, and perhaps created again; or truncated
            try:
                sealed[log] = log.take_sealing()
                entries_of_log = [self._seal(log, segment) for segment in sealed[log]]
                points[log] = log.syncs.save_active_indexes()
                segments += entries_of_log
            except LogdbError as error:
                failure = failure or error
        self._entries.change(
            lambda: [self.entry_at(log, point, grown=bool(sealed[log])) for log, point in points.items()],
            lambda txn: txn.put_segments(segments),
        )
        for log, point in points.items():
            log.syncs.checkpoint_done(point, sealed[log])
            if sealed[log]:
                self._sealed(log)
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame

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
