"""The open logs of one directory: each is opened, and recovered, at its first use, and has one object."""

import logging
import os
import weakref
from collections.abc import Callable
from typing import cast

from logdb.disk import exists
from logdb.errors import CorruptionError, TopicDeleted, UnknownPartition
from logdb.log import high_watermark
from logdb.log.high_watermark import HighWatermarkFile
from logdb.log.host import CataloguedLog, Host, PendingReplacement
from logdb.log.log import Log
from logdb.log.recovery import Recovered, recover
from logdb.log.recovery_point import Point
from logdb.log.tail import TailLog
from logdb.meta import LogEntry, ReadTransaction, TopicEntry
from logdb.model import LogConfig, TopicPartition
from logdb.store import replacement_intent, topic_file
from logdb.store.entries import Entries
from logdb.store.reserve import Reserve
from logdb.store.state import StoreState

logger = logging.getLogger(__name__)


class OpenLogs:
    """The logs of a store that writes."""

    def __init__(
        self,
        state: StoreState,
        host: Host,
        entries: Entries,
        finish_topics: Callable[[], None],
        reserve: Reserve,
        *,
        distrust_cache: bool,
        replicated: bool,
    ) -> None:
        """Open none yet.

        Args:
            finish_topics: Finishes a change of a topic that an error interrupted.
            reserve: For the few bytes that an opening after a crash writes.
            distrust_cache: The page cache may show bytes that the disk lacks.
            replicated: A controller gives the leader epochs.
        """
        self._state, self._host, self._entries, self._finish_topics = state, host, entries, finish_topics
        self._reserve, self._distrust_cache, self._replicated = reserve, distrust_cache, replicated

    def open_log(self, topic: str, partition: int = 0) -> Log:
        """The one ``Log`` object of a partition, recovered at its first use."""
        found = self._state.logs.get(TopicPartition(topic, partition))
        if found is not None and not self._state.closed:
            return found
        return self._reserve.spend(lambda: self._first_used(topic, partition))  # after a crash it begins a leader epoch

    def _first_used(self, topic: str, partition: int) -> Log:
        with self._state.topics_lock:
            entry = _checked(self._state, topic, partition)
            name = TopicPartition(topic, partition)
            if name not in self._state.logs:
                self._state.logs[name] = self._open(entry, self._entries.get(name))
            return self._state.logs[name]

    def _open(self, topic: TopicEntry, entry: LogEntry) -> Log:
        state, config = self._state, LogConfig.of(topic.config, self._state.durability)
        directory = state.partition_path(topic.name, entry.partition)
        if not exists(state.io, directory):
            self._finish_topics()  # its creation may have been interrupted after the commit
            if not exists(state.io, directory):
                raise CorruptionError(directory, 0, "the partition's directory is missing; logdb repair creates it")
        _reconcile_topic_file(state, topic, entry, directory)
        found = self._recover(directory, entry, config, clean=state.clean, distrust_cache=self._distrust_cache)
        high_watermark_file = self._open_high_watermark(directory, entry, found)
        state.reports += found.reports
        log = Log(
            io=state.io,
            clock=state.clock,
            host=self._host,
            directory=directory,
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=entry.partition,
            config=config,
            batch_size=state.batch_size,
            segments=found.segments,
            epochs=found.epochs,
            point=found.point,
            start_offset=entry.start_offset,
            next_offset=found.next_offset,
            fsync_only=entry.strict,
            unsealed=found.unsealed,
            checkpointed=Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position),
            transactions=found.transactions,
            high_watermark_file=high_watermark_file,
            read_only_reason=found.read_only_reason,
        )
        self._begin(log)
        return log

    def _open_high_watermark(self, directory: str, entry: LogEntry, found: Recovered) -> HighWatermarkFile | None:
        if self._replicated:
            return high_watermark.open_replica(self._state.io, directory, entry.start_offset, found.next_offset, found.report)
        high_watermark.forget(self._state.io, directory)
        return None

    def recovered(self, log: Log) -> Recovered:
        """Recover an open log from its files and the catalogue, as after a clean close."""
        entry = self._entries.get(TopicPartition(log.topic, log.partition))
        found = self._recover(log.directory, entry, log.config, clean=True, restarted=True)
        self._state.reports += found.reports
        return found

    def _recover(
        self,
        directory: str,
        entry: LogEntry,
        config: LogConfig,
        *,
        clean: bool,
        distrust_cache: bool = False,
        restarted: bool = False,
    ) -> Recovered:
        state = self._state
        return recover(
            state.io,
            directory,
            entry,
            state.catalogue.segments(entry.topic, entry.partition),
            config,
            clean=clean,
            distrust_cache=distrust_cache,
            replicated=self._replicated,
            restarted=restarted,
            now_ms=state.clock_ms(),
        )

    def _begin(self, log: Log) -> None:
        """Let a recovered log accept records, unless it is read-only."""
        if log.read_only_reason is not None:
            self._entries.note(log, read_only_reason=log.read_only_reason)
        elif self._state.sync_failed is not None:
            log.refuse_appends()
        else:
            log.syncs.note_unsynced()
            if log.due_ms() is not None:
                self._host.wake_syncer(log)


class TailLogs:
    """The logs of a store that reads, perhaps beside a writer."""

    def __init__(self, state: StoreState, host: Host, *, frozen: bool) -> None:
        """``frozen``: the directory is a snapshot: open transactions are never decided."""
        self._state, self._host, self._frozen = state, host, frozen
        self._topic_ids: dict[str, str] = {}  # of the topics whose logs are open
        self._viewed: weakref.WeakKeyDictionary[TailLog, int] = weakref.WeakKeyDictionary()  # and their catalogue

    def open_log(self, topic: str, partition: int = 0) -> Log:
        """As ``OpenLogs.open_log``."""
        with self._state.topics_lock:
            entry = _checked(self._state, topic, partition)
            if self._topic_ids.setdefault(topic, entry.topic_id) != entry.topic_id:
                self._forget(entry)
            name = TopicPartition(topic, partition)
            if name not in self._state.logs:
                self._state.logs[name] = cast("Log", self._open(entry, partition))  # it has the methods of readers, and refuses the others
            return self._state.logs[name]

    def own_log(self, topic: str, partition: int) -> TailLog:
        """Another object of a partition's log, which only the caller uses and abandons."""
        entry = _checked(self._state, topic, partition)
        return self._open(entry, partition)

    def _forget(self, topic: TopicEntry) -> None:
        """The writer deleted the topic and created another of that name."""
        logs = self._state.logs
        for name in [name for name in logs if name.topic == topic.name]:
            logs.pop(name).abandon()
        self._topic_ids[topic.name] = topic.topic_id

    def _open(self, topic: TopicEntry, partition: int) -> TailLog:
        state, directory = self._state, self._state.partition_path(topic.name, partition)
        catalogued = state.catalogue.read(lambda txn: _catalogued(txn, txn.view(topic.name, partition)[0]))
        _reconcile_topic_file(state, topic, catalogued.entry, directory)
        return TailLog(
            config=LogConfig.of(topic.config, state.durability),
            catalogued=catalogued,
            lookup=self._lookup,
            io=state.io,
            host=self._host,
            directory=directory,
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=partition,
            frozen=self._frozen,
        )

    def _lookup(self, log: TailLog, generation: int) -> CataloguedLog | None:
        """The catalogue's present entries of a log and its sealed segments; None while its generation is ``generation``.

        Raises:
            TopicDeleted: as it says.
        """

        def read(txn: ReadTransaction) -> tuple[int, CataloguedLog | None]:
            topic, entry = txn.topic(log.topic), txn.log(log.topic, log.partition)
            if topic is None or entry is None or topic.topic_id != log.topic_id:
                raise TopicDeleted(log.topic, log.topic_id, None if topic is None else topic.topic_id)
            return txn.number, None if entry.generation == generation else _catalogued(txn, entry)

        if self._viewed.get(log) == self._state.catalogue.number():
            return None
        number, found = self._state.catalogue.read(read)
        if found is None or found.pending is None:  # while a replacement is pending, files change without the catalogue
            self._viewed[log] = number
        return found


def _catalogued(txn: ReadTransaction, entry: LogEntry) -> CataloguedLog:
    intents = [intent for _, intent in txn.intents() if replacement_intent.concerns(intent, entry.topic, entry.partition)]
    renamed, removed = (frozenset(name for intent in intents for name in intent.body[which]) for which in ("renamed", "removed"))
    pending = PendingReplacement(renamed, removed) if intents else None
    return CataloguedLog(entry, txn.segments(entry.topic, entry.partition), pending)


def _checked(state: StoreState, topic: str, partition: int) -> TopicEntry:
    """The topic; raises unless it has the partition."""
    entry = state.topic(topic)
    if not 0 <= partition < entry.partition_count:
        raise UnknownPartition(topic, partition, entry.partition_count)
    return entry


def _reconcile_topic_file(state: StoreState, topic: TopicEntry, entry: LogEntry, directory: str) -> None:
    """Raise unless the directory is the partition's.

    A change of configs or of the log start that was interrupted, or failed, may have left another ``topic.json``; it is rewritten from the
    catalogue.  One that is missing or damaged after a clean close is left to ``repair``.
    """
    wanted, found = topic_file.describe(topic, entry.partition, entry.start_offset), None
    try:
        found = topic_file.load(state.io, directory)
    except (FileNotFoundError, CorruptionError) as error:
        what = f"{directory}: {error}" + ("" if state.clean else "; rewritten from the catalogue")
        logger.warning("%s", what)
        state.reports.append(what)
    if found is not None and found[:3] != wanted[:3]:
        where = f"{found.topic}-{found.partition} (topic id {found.topic_id})"
        raise CorruptionError(os.path.join(directory, topic_file.FILE_NAME), 0, f"the directory is that of {where}")
    if found != wanted and (found is not None or not state.clean) and state.mode == "a":
        topic_file.replace(state.io, directory, wanted)
