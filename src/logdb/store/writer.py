"""The writing half of a store: the parts that change the directory, their threads, and the order of closing."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logdb.disk import Watcher, device
from logdb.errors import Closed, LogdbError, UnknownTopic, without_frames
from logdb.log import host, shared_sync
from logdb.log.log import Log
from logdb.log.preallocation import Budget
from logdb.log.readable import ReadableLog
from logdb.meta import LogEntry, TopicEntry, WriteTransaction, file_checksum
from logdb.model import INTERNAL_TOPICS, ConfigValue, TopicInfo, TopicPartition
from logdb.store import retention, sidecars
from logdb.store.background_recovery import BackgroundRecovery
from logdb.store.checkpoints import Checkpoints
from logdb.store.cleaner import Cleaner
from logdb.store.entries import Entries
from logdb.store.flusher import Flusher
from logdb.store.housekeeping import Housekeeping
from logdb.store.log_start import LogStarts
from logdb.store.open_logs import OpenLogs
from logdb.store.opening import Opened
from logdb.store.protocols import always
from logdb.store.reserve import Reserve
from logdb.store.retention import Retention
from logdb.store.scrub import Scrub
from logdb.store.segment_replacer import SegmentReplacer
from logdb.store.sidecars import Sidecars
from logdb.store.state import StoreState
from logdb.store.tables import Tables, is_table
from logdb.store.topics import TopicChanges
from logdb.store.truncation import Truncations

if TYPE_CHECKING:
    from logdb.log.cleaner import Replacement

logger = logging.getLogger(__name__)

CLOSING_MS = 1_000  # the time for retention during a close; the log that it handles then is finished


def first_producer_id(database_id: str, now_ms: int) -> int:
    """Where producer ids begin that are taken now: higher in each second, elsewhere in it than all other databases' but one in 1,024.

    The batches of a mirror have the ids of its source: see ``first_producer_id`` of a cluster's metadata.
    """
    place = int.from_bytes(hashlib.sha256(database_id.encode()).digest()[:2]) & 1023
    return now_ms // 1000 << 20 | place << 10


class Writer:
    """The writing half of one store; also the ``retention.Host`` and the ``cleaner.Host``."""

    def __init__(
        self,
        state: StoreState,
        log_host: host.Host,
        opened: Opened,
        *,
        linger_ms: int,
        retention_check_interval_ms: int,
        cleaner_bytes_per_second: int,
        scrub_bytes_per_second: int,
        replicated: bool,
    ) -> None:
        """Write nothing, and start no thread, before ``begin``."""
        io = state.io
        self._state, self._opened = state, opened
        self.preallocation = Budget(io)
        self.reserve = Reserve(io, state.path, self.preallocation.free_all)
        self._failures: list[tuple[int, str]] | None = None  # of the logs, once they are closed
        self._last_checkpoint: str | None = None  # why the one of the close failed; "": it succeeded
        self.entries = Entries(opened.catalogue)
        self.logs = OpenLogs(
            state,
            log_host,
            self.entries,
            self._finish_topics,
            self.reserve,
            distrust_cache=opened.distrust_cache,
            replicated=replicated,
        )
        self.open_log = self.logs.open_log
        self.checkpoints = Checkpoints(state, self.entries, self._sealed)
        self.replacer = SegmentReplacer(state, self.entries, self.open_log)
        self._log_starts = LogStarts(state, self.entries, self.checkpoints)
        self._topics = TopicChanges(state, self.entries, self.replacer, self._forget, self._consider)
        self.flusher = Flusher(io, linger_ms, self.checkpoint)
        self.recovery = BackgroundRecovery(self.entries, self.open_log, opened.lock_file)
        self.housekeeping = Housekeeping(io)
        self.retention = Retention(io, self, opened.catalogue, self.housekeeping, self.reserve, retention_check_interval_ms)
        self.cleaner = Cleaner(io, self, opened.catalogue, cleaner_bytes_per_second)
        self.scrub = Scrub(state, self.open_log, scrub_bytes_per_second)
        self.sidecars = Sidecars(state, self.entries, self.open_log, self.checkpoint)
        self.tables = Tables(state, self.open_log, self.sidecars)
        self.truncations = Truncations(state, self.entries, self.checkpoints, self.cleaner, self.replacer, self.logs.recovered)

    # ------------------------------------------------------------ opening and closing

    def release(self) -> None:
        """Give the directory back after an opening that failed."""
        self._opened.close()

    def begin(self) -> None:
        """Finish the intents of the last writer, and start the threads that have work.

        Raises:
            ThreadUnavailable: A thread could not be started; the others have ended, and the lock is released.
        """
        try:
            self._replay()
            topics = self._state.catalogue.topics()
            self._watcher = Watcher(device(self._state.io, self._state.path), self._state.fail)
        except BaseException:
            self._opened.close()
            raise
        try:
            self.flusher.start()
            if not self._state.clean:
                self.recovery.start()
            for topic in topics.values():
                self._consider(topic.config)
        except BaseException:
            self._end_threads()
            for log in self._state.logs.values():
                log.abandon()
            self._opened.close()
            self._state.end()
            raise

    def _replay(self) -> None:
        lock_file = self._opened.lock_file
        lock_file.mark_open()
        self.reserve.fill()
        if self._state.clean:
            lock_file.mark_recovered()
        self._topics.replay_intents()
        self.entries.load()

    def stop(self) -> None:
        """Refuse records, end the threads after their present round, and delete old records.

        A short-lived program has no other time for retention.  Records are refused first, so that the threads come to an end.
        """
        for log in list(self._state.logs.values()):
            log.refuse_appends()
        limited = self._end_threads()
        if limited and self._state.sync_failed is None and not self._state.closed:
            try:
                self.retention.enforce(until_ms=self._state.io.monotonic_ms() + CLOSING_MS)
            except LogdbError as error:  # the next opening tries again
                logger.warning("retention while %s is closed: %s", self._state.path, error)

    def _end_threads(self) -> bool:
        """End the threads; returns whether that of retention had started."""
        begun = self.housekeeping.stop()
        self.cleaner.stop()
        self.scrub.background.stop()
        self.sidecars.stop()
        self.recovery.join()
        self.flusher.stop()
        return begun

    def close(self) -> list[tuple[int, str]]:
        """Close every log and, if all succeeded, mark the directory as cleanly closed.

        Returns:
            For each failure the number of lost records, and the reason.
        """
        if self._failures is None:  # else a Ctrl-C left an earlier call
            self._failures = self._close_logs()
        state, failures = self._state, self._failures
        state.catalogue.close()
        try:
            is_open = not self._opened.lock_file.released  # else a Ctrl-C left the mark unwritten: the next opening recovers
            if is_open and not failures and state.sync_failed is None and (state.clean or self.recovery.done):
                self._opened.lock_file.mark_clean(*file_checksum(state.io, state.catalogue.path))
        except LogdbError as error:
            failures.append((0, str(error)))
        finally:
            self._opened.lock_file.release()
        return failures

    def _close_logs(self) -> list[tuple[int, str]]:
        state = self._state
        logs, failed_before = list(state.logs.values()), state.sync_failed
        unsynced = shared_sync.finish(state.io, logs)
        finished = {log: log.finish() or (str(unsynced[log]) if log in unsynced else None) for log in logs}
        if self._last_checkpoint is None:  # else a Ctrl-C left an earlier call behind it
            try:
                if state.sync_failed is None:
                    self._checkpoint_at_end([log for log, why in finished.items() if why is None and log.read_only_reason is None])
                self._last_checkpoint = ""
            except Exception as error:  # noqa: BLE001 -- the logs and the lock must be released in any case
                self._last_checkpoint = str(error) or repr(error)
        failures = [(0, self._last_checkpoint)] if self._last_checkpoint else []
        if state.sync_failed is not None and failed_before is None and not any(finished.values()):
            failures.append((0, str(state.sync_failed)))  # of a sync that many logs share, or of what is saved beside one
        for log, why in finished.items():
            lost = log.abandon()
            if why is not None:
                failures.insert(0, (lost, why))
        return failures

    def _checkpoint_at_end(self, logs: list[Log]) -> None:
        if changed := [log for log in logs if self.checkpoints.is_behind(log)]:
            self.checkpoints.checkpoint(changed, final=True)

    # ------------------------------------------------------------ topics

    def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, object],
        *,
        if_not_exists: bool = False,
        go_on: Callable[[], None] = always,
        topic_id: str | None = None,
    ) -> TopicInfo:
        """Create a topic, durably; ``topic_id``: that a controller gave it, None: a new one."""
        info = self._topics.create(name, partitions, config, if_not_exists=if_not_exists, go_on=go_on, topic_id=topic_id)
        self._altered(info, None)
        return info

    def check_new(self, name: str, partitions: int, config: Mapping[str, object]) -> TopicInfo:
        return self._topics.check_new(name, partitions, config)

    def check_configs(self, name: str, config: Mapping[str, object], *, replace: bool = False) -> None:
        self._topics.check_configs(name, config, replace=replace)

    def alter(
        self, name: str, config: Mapping[str, object], partitions: int | None, go_on: Callable[[], None] = always, *, replace: bool = False
    ) -> TopicInfo:
        """Change configs, and add partitions, durably; ``replace``: configs that are not named get their defaults."""
        self._state.check_open()
        former = self._state.catalogue.topic(name)
        info = self.reserve.spend(lambda: self._topics.alter(name, config, partitions, go_on, replace=replace))
        self._altered(info, former)
        return info

    def delete(self, name: str) -> None:
        topic_id = self._state.topic(name).topic_id

        def delete() -> None:
            entry = self._state.catalogue.topic(name)
            if entry is not None and entry.topic_id == topic_id:
                self._topics.delete(name)
            else:  # the first try has committed it
                with self._state.changes_lock, self._state.topics_lock:
                    self._topics.finish_interrupted()

        self.reserve.spend(delete)
        self.tables.forget(name)

    def _finish_topics(self) -> None:
        self._topics.finish_interrupted()

    def finish_interrupted(self) -> None:
        """Finish changes that an error interrupted after their commit; under the locks of topics and of checkpoints."""
        self._topics.finish_interrupted()
        self.replacer.finish_locked()

    def _consider(self, config: Mapping[str, ConfigValue]) -> None:
        """Start the background tasks that a topic with these configs needs."""
        for tasks in (self.housekeeping, self.cleaner.background, self.scrub.background, self.sidecars.background):
            tasks.consider(config)

    def _altered(self, topic: TopicInfo, former: TopicEntry | None) -> None:
        """A topic was created, or has other configs: background tasks check it."""
        self.retention.altered(topic, former)
        self.cleaner.altered()
        self.sidecars.altered()
        self.tables.altered()

    def _sealed(self, log: Log) -> None:
        """A segment of a log was sealed: background tasks check it."""
        topic = self._state.catalogue.topic(log.topic)
        if topic is None:  # deleted meanwhile
            return
        if retention.is_limited(topic.config):
            self.retention.sealed(TopicPartition(log.topic, log.partition))
        if log.config.compacted:
            self.cleaner.altered()
        if sidecars.is_wanted(topic.config):
            self.sidecars.altered()
        if is_table(topic.config):
            self.tables.altered()

    def _forget(self, log: Log) -> None:
        """Close the log of a deleted topic; its unwritten records are dropped."""
        self.flusher.forget(log)
        log.refuse_appends()
        log.abandon()

    # ------------------------------------------------------------ logs

    def log_in_use(self, name: TopicPartition) -> Log | None:
        return self._state.logs.get(name)

    def clock_ms(self) -> int:
        return self._state.clock_ms()

    def checkpoint(self, logs: Sequence[Log]) -> None:
        self.checkpoints.checkpoint(logs)

    def flush_logs(self, sync: bool = True) -> None:
        """``Log.flush`` of every log that is open; many logs share a sync.

        An error of one log keeps no other from being flushed; the first one is raised at the end.
        """
        logs, errors = list(self._state.logs.values()), list[LogdbError]()
        if sync and len(logs) >= shared_sync.COUNT_MIN:
            errors += self._flush(logs, sync=False)
            unsynced = [log for log in logs if log.view.flushed.offset < log.view.written_offset]
            shared_sync.sync(self._state.io, unsynced, dict[Log, Exception]().__setitem__)  # the flush of a log meets its error
        errors += self._flush(logs, sync=sync)
        try:
            if errors:
                raise errors[0]
        finally:
            del errors  # a traceback has this frame

    def _flush(self, logs: Iterable[Log], *, sync: bool) -> list[LogdbError]:
        """Flush logs that take writes; returns the errors of those that could not be, but not of a topic that was deleted meanwhile."""
        errors = []
        for log in logs:
            if log.read_only_reason is None:
                try:
                    log.flush(sync)
                except LogdbError as error:
                    if not isinstance(error, Closed) or self._state.is_current(log):
                        errors.append(without_frames(error))
        return errors

    def take_producer_ids(self, count: int) -> range:
        """See ``Store.take_producer_ids``."""

        def take(txn: WriteTransaction) -> int:
            first = max(txn.next_producer_id(), first_producer_id(self._state.catalogue.database_id, self.clock_ms()))
            txn.put_next_producer_id(first + count)
            return first

        first = self._state.catalogue.write(take)
        return range(first, first + count)

    # ------------------------------------------------------------ the host of retention and of the cleaner

    def begin_at(self, log: Log, start_offset: int, config: Mapping[str, ConfigValue] | None = None) -> bool:
        moved = self._log_starts.move(log, start_offset, config)
        if moved:
            self._rewritten(log)
        return moved

    def entry(self, name: TopicPartition) -> LogEntry:
        return self.entries.get(name)

    def replace_segments(self, log: Log, replacement: "Replacement") -> bool:
        try:
            self._keep_decisions(log)
        except BaseException:
            replacement.discard()
            raise
        replaced = self.replacer.replace(log, replacement)
        self._rewritten(log)
        return replaced

    def _rewritten(self, log: Log) -> None:
        """Segments of a log were removed or replaced."""
        topic = self._state.catalogue.topic(log.topic)
        if topic is not None and is_table(topic.config):
            self.sidecars.altered()
            self.tables.altered()

    def _keep_decisions(self, log: Log) -> None:
        """Before compacted segments of ``log`` replace others: a transaction's decision stays until its markers are durable."""
        if log.topic == INTERNAL_TOPICS[1]:
            if self._state.complete_transactions is None:
                raise Closed(f"{log.topic} is compacted only while a broker runs on this store")
            self._state.complete_transactions()
            self.flush_logs()

    def finish_replacements(self, log: Log) -> None:
        self.replacer.finish_of(log)

    def cleaned(self, log: Log, clean_offset: int, delete_horizon_ms: int | None) -> None:
        entry = self.entry(TopicPartition(log.topic, log.partition))
        if (clean_offset, delete_horizon_ms) != (entry.clean_offset, entry.delete_horizon_ms):
            self.note(log, clean_offset=clean_offset, delete_horizon_ms=delete_horizon_ms)

    def note(self, log: ReadableLog, **fields: Any) -> None:
        """Change fields of an open log's entry, durably; raises UnknownTopic after its topic was deleted, and perhaps created again."""

        def changed() -> list[LogEntry]:
            if not self._state.is_current(log):
                raise UnknownTopic(log.topic)
            return [self.entry(TopicPartition(log.topic, log.partition))._replace(**fields)]

        self.entries.change(changed, lambda _txn: None)
