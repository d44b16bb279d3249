"""Truncation of logs: a follower truncates its log where it diverges from its leader's.

The locks and the order of the steps are here (docs/inside/durability.md, "Leaders and followers");
``log.truncation`` copies the segment, and
``replacement_intent`` repeats the steps behind the commit.

    .cleaned files synced -> appends wait -> .snapshot synced, recovery-point removed, the directory synced
    -> the catalogue has the new end and the intent (the commit point) -> files renamed, epochs dropped, files removed -> intent cleared
    -> the log is opened again as a recovery finds it
"""

import contextlib
import os
from collections.abc import Callable, Sequence

from logdb.disk import exists, names_in, remove, sync_directory
from logdb.errors import LogdbError, OffsetOutOfRange, SyncFailed, UnknownTopic
from logdb.log import producer_snapshot, recovery_point, truncation
from logdb.log.log import Log
from logdb.log.recovery import Recovered
from logdb.log.sealed import sidecar_paths
from logdb.log.segment_reader import FileMissing
from logdb.log.truncation import Cut
from logdb.meta import Intent, LogEntry, WriteTransaction
from logdb.model import TopicPartition
from logdb.segment import transaction_index
from logdb.segment.segment import CLEANED, Segment
from logdb.store import replacement_intent, topic_file
from logdb.store.checkpoints import Checkpoints
from logdb.store.cleaner import Cleaner
from logdb.store.entries import Entries
from logdb.store.segment_replacer import SegmentReplacer
from logdb.store.state import StoreState


class Truncations:
    """The truncations of logs of a store that writes.

    Threading: any thread.  Locks, in their order: the cleaner's place for the log, ``checkpoint_lock``, the append lock of the log's batch
    builder.  A copy is made under the first alone.
    """

    def __init__(
        self,
        state: StoreState,
        entries: Entries,
        checkpoints: Checkpoints,
        cleaner: Cleaner,
        replacer: SegmentReplacer,
        recovered: Callable[[Log], Recovered],
    ) -> None:
        """``recovered``: recovers a log as after a clean close."""
        self._state, self._io, self._entries, self._checkpoints = state, state.io, entries, checkpoints
        self._cleaner, self._replacer, self._recovered = cleaner, replacer, recovered

    def truncate_to(self, log: Log, offset: int, high_watermark: int) -> int:
        """See ``Store.truncate_to``."""
        with self._cleaner.alone(TopicPartition(log.topic, log.partition), wait=True):
            self._finish_interrupted(log)
            self._replacer.finish_of(log)
            while (end_offset := self._try_truncate(log, offset, high_watermark)) is None:
                pass
            return end_offset

    def begin_anew(self, log: Log, offset: int) -> None:
        """See ``Store.begin_anew``."""
        with self._cleaner.alone(TopicPartition(log.topic, log.partition), wait=True):
            self._finish_interrupted(log)
            self._replacer.finish_of(log)
            self._alone(log, lambda: self._empty(log, offset), keep=log.damage is None)

    # ------------------------------------------------------------ truncating

    def _try_truncate(self, log: Log, offset: int, high_watermark: int) -> int | None:
        """Truncate; None: the log changed meanwhile; the caller tries again."""
        log.flush()
        self._checkpoints.checkpoint([log])
        end_offset = log.view.written_offset
        self._check_range(log, offset, high_watermark, end_offset)
        if offset == end_offset:
            return self._alone(log, lambda: offset if self._forget_epochs(log, offset) else None)
        segments = log.view.segments
        try:
            new_end = truncation.end_for(log, offset)
            self._check_range(log, new_end, high_watermark, end_offset)
            if new_end == log.start_offset:
                return self._alone(log, lambda: self._empty(log, new_end) if log.start_offset == new_end else None)
            cut = truncation.cut(log, new_end, io=self._io, now_ms=self._state.clock_ms())
        except FileMissing:
            if log.view.segments is not segments:
                return None  # retention was faster
            raise
        try:
            return self._alone(log, lambda: self._cut(log, cut))
        except SyncFailed:
            raise  # if it was committed, the next opening finishes it
        except BaseException:
            if not self._is_committed(log):
                cut.discard()
            raise

    def _check_range(self, log: Log, offset: int, high_watermark: int, end_offset: int) -> None:
        least = max(log.start_offset, high_watermark)
        if not least <= offset <= end_offset:
            raise OffsetOutOfRange(log.topic, log.partition, offset, least, end_offset)

    def _alone(self, log: Log, work: Callable[[], int | None], *, keep: bool = True) -> int | None:
        """Run ``work`` while no record is accepted and no checkpoint is made; ``keep``: with all of the log flushed and sealed."""

        def ready(_next_offset: int) -> int | None:
            if keep:
                log.flush()
                self._checkpoints.checkpoint_locked([log])
            try:
                return work()
            except SyncFailed:
                raise  # the store takes no writes
            except BaseException as error:
                if not self._is_committed(log):
                    log.renew_point()
                elif not log.interrupted:  # Ctrl-C came after the commit
                    self._interrupt(log, error)
                raise

        with self._state.checkpoint_lock:
            self._check_current(log)
            return log.alone(ready)

    def _check_current(self, log: Log) -> None:
        self._state.check_writable()
        if not self._state.is_current(log):
            raise UnknownTopic(log.topic)  # deleted meanwhile

    def _forget_epochs(self, log: Log, offset: int) -> bool:
        """Forget the leader epochs that begin at the end of the log; False if the log does not end at ``offset`` now."""
        if log.view.written_offset != offset:
            return False
        log.forget_epochs(offset)
        return True

    def _cut(self, log: Log, cut: Cut) -> int | None:
        if cut.old not in log.view.segments:  # retention was faster
            cut.discard()
            return None
        if cut.producers is not None:
            aborted = transaction_index.summary(cut.new.transactions.below(cut.offset))
            producer_snapshot.save(self._io, log.directory, cut.offset, cut.producers, {cut.new.base_offset: aborted})
        self._take_ends_back(log, cut.offset)
        gone = [segment for segment in log.view.segments if segment.base_offset >= cut.old.base_offset]
        entry = self._entries.get(TopicPartition(log.topic, log.partition))._replace(
            recovery_segment=cut.new.base_offset,
            recovery_offset=cut.offset,
            recovery_position=cut.new.size_bytes,
            leader_epoch=log.view.epochs.before(cut.offset).latest,
            producers_offset=-1 if cut.producers is None else cut.offset,
            segment_created_ms=cut.new.created_ms,
            segment_append_ms=cut.new.append_ms,
        )
        self._commit(log, entry, [cut.new], gone)
        return cut.offset

    # ------------------------------------------------------------ emptying

    def _empty(self, log: Log, offset: int) -> int:
        name = TopicPartition(log.topic, log.partition)
        topic, former = self._state.topic(log.topic), self._entries.get(name)
        entry = LogEntry(
            *name,
            start_offset=offset,
            generation=former.generation,
            recovery_segment=offset,
            recovery_offset=offset,
            strict=former.strict,
            clean_offset=offset,
        )
        try:
            self._take_ends_back(log, offset)
            topic_file.replace(self._io, log.directory, topic_file.describe(topic, log.partition, offset))
            self._commit(log, entry, (), log.view.segments)
        except SyncFailed:
            raise  # it may be committed, with that log start offset
        except BaseException:
            if not self._is_committed(log):
                with contextlib.suppress(LogdbError):
                    topic_file.replace(self._io, log.directory, topic_file.describe(topic, log.partition, former.start_offset))
            raise
        return offset

    # ------------------------------------------------------------ the commit and the steps behind it

    def _take_ends_back(self, log: Log, offset: int) -> None:
        """Take back, durably, what files say of ends past ``offset``, the new end; the catalogue's recovery point is then in force."""
        log.lower_high_watermark(offset)
        path = os.path.join(log.directory, recovery_point.FILE_NAME)
        if exists(self._io, path):
            remove(self._io, path)
        sync_directory(self._io, log.directory)

    def _commit(self, log: Log, entry: LogEntry, new: Sequence[Segment], gone: Sequence[Segment]) -> None:
        """Commit that a log ends at the recovery point of ``entry``, and finish the truncation.

        Args:
            gone: The segments that ``new`` replaces, to the end of the log.
        """
        name = TopicPartition(log.topic, log.partition)
        intent = self._intent(log, entry.recovery_offset, new, gone)
        entry = entry._replace(generation=entry.generation + 1, clean_offset=min(entry.clean_offset, entry.recovery_offset))

        def commit(txn: WriteTransaction) -> None:
            for segment in gone:
                txn.delete_segment(*name, segment.base_offset)
            txn.add_intent(intent)

        self._entries.change(lambda: [entry], commit)
        self._finish(log)

    def _is_committed(self, log: Log) -> bool:
        """Whether a truncation of the log was committed and is not finished: it cannot be undone then."""
        return log.interrupted or bool(self._intents(log))

    def _intents(self, log: Log) -> list[tuple[int, Intent]]:
        return [
            (number, intent)
            for number, intent in self._state.catalogue.intents()
            if intent.kind == replacement_intent.TRUNCATION and replacement_intent.concerns(intent, log.topic, log.partition)
        ]

    def _intent(self, log: Log, offset: int, new: Sequence[Segment], gone: Sequence[Segment]) -> Intent:
        made = [path.removesuffix(CLEANED) for segment in new for path in segment.paths() if exists(self._io, path)]
        old = [path for segment in gone for path in segment.paths() if path not in made and exists(self._io, path)]
        aside: list[str] = []
        if log.damage is not None and not new:  # what was set aside before has more
            aside = [path for path in old if path.endswith(".log") and not exists(self._io, path + replacement_intent.DAMAGED)]
            old = [path for path in old if path not in aside]
        bases = {segment.base_offset for segment in gone}
        named = [entry for entry in self._state.catalogue.segments(log.topic, log.partition) if entry.base_offset in bases]
        known = producer_snapshot.offsets(names_in(self._io, log.directory))
        snapshots = [producer_snapshot.snapshot_path("", at) for at in known if at > offset or not new]
        body = {
            "topic_id": self._state.topic(log.topic).topic_id,
            "partition": log.partition,
            "epochs_offset": offset if new else 0,
            "renamed": [os.path.basename(path) for path in made],
            "set_aside": [os.path.basename(path) for path in aside],
            "removed": [os.path.basename(path) for path in (*old, *sidecar_paths(log.directory, named), *snapshots)],
        }
        return Intent(replacement_intent.TRUNCATION, log.topic, body)

    def _finish(self, log: Log) -> None:
        """The steps behind the commit; the log accepts no records until all are done."""

        def finished() -> Recovered:
            for number, intent in self._intents(log):
                self._replacer.finish(number, intent)
            return self._recovered(log)

        try:
            log.restart(finished, self._entries.get(TopicPartition(log.topic, log.partition)).start_offset)
        except BaseException as error:
            self._interrupt(log, error)
            raise
        if self._state.sync_failed is not None:  # meanwhile
            log.refuse_writes()

    def _interrupt(self, log: Log, error: BaseException) -> None:
        log.interrupt(f"a truncation was not finished: {str(error) or type(error).__name__}")

    def _finish_interrupted(self, log: Log) -> None:
        """Finish a truncation of the log that an error interrupted."""
        if log.interrupted:
            with self._state.checkpoint_lock:
                self._check_current(log)
                log.alone(lambda _next_offset: self._finish(log))
