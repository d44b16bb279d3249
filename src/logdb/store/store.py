"""The topics and partitions of one directory, open for writing or for reading.

Knows the catalogue, the lock, which logs are open, and the order in which files and the
catalogue become durable.  Does not know clients, partitioners or protocols.

    LOCK  catalogue/  <topic>-<partition>/ …        names ending in .tmp, -delete: unfinished work

Creating and deleting a topic take several steps, each an intent that opening replays:

    create: directories as .tmp, synced -> catalogue names them (the commit point) -> renamed -> intent cleared
    delete: catalogue forgets the topic (the commit point) -> directories renamed -delete -> removed -> intent cleared

Moving a log's start needs none: topic.json has it, synced -> the catalogue has it, and no segment below it
(the commit point) -> their files are removed.  Opening removes what is left of them.
"""

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from logdb.errors import (
    CatalogueDamaged,
    Closed,
    CloseIncomplete,
    CorruptionError,
    Forked,
    InvalidConfig,
    InvalidPartitions,
    LogdbError,
    NotADatabase,
    ReadOnly,
    SyncFailed,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from logdb.io import IO
from logdb.log.appending import AppendableLog
from logdb.log.host import View
from logdb.log.log import GATE_SEALED, GATE_SHUT, Log
from logdb.log.reading import ReadableLog
from logdb.log.recovery import recover
from logdb.log.recovery_point import Point
from logdb.log.sealed import sealed_segment, segment_entry
from logdb.log.tail import TailLog
from logdb.meta import Catalogue, Intent, LogEntry, ReadTransaction, SegmentEntry, TopicEntry, WriteTransaction, check_file, file_checksum
from logdb.meta.gate import Gate
from logdb.model import (
    DURABILITY_LEVELS,
    INTERNAL_TOPICS,
    PARTITION_COUNT_MAX,
    TOPIC_CONFIGS,
    ConfigValue,
    Durability,
    LogConfig,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
    check_config,
    check_topic_name,
)
from logdb.segment.files import Watcher, spread, sync_directory, write_error
from logdb.segment.segment import Segment
from logdb.store import lock, snapshot_file, swap, topic_file
from logdb.store.cleaner import CLEANER_BYTES_PER_SECOND, Cleaner
from logdb.store.directories import make_directory, named_errors, remove_tree
from logdb.store.flusher import Flusher
from logdb.store.housekeeping import Housekeeping
from logdb.store.retention import CHECK_INTERVAL_MS, Retention
from logdb.store.snapshot_file import SnapshotFile
from logdb.store.topic_file import TopicFile

if TYPE_CHECKING:
    from logdb.log.cleaner import Replacement

logger = logging.getLogger(__name__)

T = TypeVar("T")
Mode = Literal["a", "r"]
_UNFINISHED = (".tmp", "-delete")
_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


class Store:
    """One directory, open.  Made by ``Store.open``."""

    def __init__(
        self,
        path: str,
        *,
        mode: Mode,
        durability: Durability,
        batch_size: int,
        linger_ms: int,
        io: IO,
        clock: Callable[[], int] | None,
        retention_check_ms: int,
        cleaner_bytes_per_second: int,
    ) -> None:
        self.path, self.mode, self.durability = path, mode, durability
        self._io, self._clock, self._batch_size, self.linger_ms = io, clock, batch_size, linger_ms
        self._logs: dict[TopicPartition, Log] = {}
        self._entries: dict[TopicPartition, LogEntry] = {}
        self._topic_ids: dict[str, str] = {}  # mode "r": of the topics whose logs are open
        self._viewed: weakref.WeakKeyDictionary[ReadableLog, int] = weakref.WeakKeyDictionary()  # and the catalogue that they are of
        self.transaction_gate = Gate()  # shared while the markers of one transaction are written; taken before all locks
        self._lock = threading.RLock()  # topics, and opening of logs
        self._checkpoint_lock = threading.Lock()  # sealing of segments; taken after _lock
        self._catalogue_lock = threading.Lock()  # log entries and their transactions; taken last
        self._closed, self._owner = False, os.getpid()
        self._interrupted = False  # a change of topics was committed, perhaps, and not finished
        self._sync_failed: SyncFailed | None = None
        self._lock_file: lock.LockFile | None = None
        self._flusher: Flusher | None = None
        self.housekeeping = Housekeeping(io)
        self._recovery: threading.Thread | None = None
        self._stop_recovery = threading.Event()
        self._clean, self._recovered, self._distrust_cache = True, True, False
        self.reports: list[str] = []
        self.snapshot: SnapshotFile | None = None  # where the directory is one
        if mode == "a":
            self._open_for_writing(linger_ms)
            self.retention = Retention(io, self, self._catalogue, self.housekeeping, retention_check_ms)
            self.cleaner = Cleaner(io, self, self._catalogue, cleaner_bytes_per_second)
            for entry in self._catalogue.topics().values():
                self._consider(entry.config)
        else:
            self._open_for_reading()
        _stores.add(self)

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        mode: Mode = "a",
        durability: Durability = "interval",
        batch_size: int = 16_384,
        linger_ms: int = 5,
        io: IO | None = None,
        clock: Callable[[], int] | None = None,
        retention_check_ms: int = CHECK_INTERVAL_MS,
        cleaner_bytes_per_second: int = CLEANER_BYTES_PER_SECOND,
    ) -> "Store":
        """Open the directory ``path``; see ``logdb.open`` for the arguments and errors.

        ``retention_check_ms``: how often old records are looked for, in the background.
        """
        if mode not in ("a", "r"):
            raise ValueError(f"mode {mode!r}: allowed are 'a' (append and read) and 'r' (read beside a writer)")
        if durability not in DURABILITY_LEVELS:
            raise ValueError(f"durability {durability!r}: allowed are {', '.join(DURABILITY_LEVELS)}")
        if not 61 + 40 <= batch_size <= 1 << 20:
            raise ValueError(f"batch_size {batch_size}: allowed are 101 to 1048576 bytes")
        if not 0 <= linger_ms <= 60_000:
            raise ValueError(f"linger_ms {linger_ms}: allowed are 0 to 60000")
        if cleaner_bytes_per_second < 1:
            raise ValueError(f"cleaner_bytes_per_second {cleaner_bytes_per_second}: it is to be 1 or more")
        return Store(
            os.path.abspath(path),
            mode=mode,
            durability=durability,
            batch_size=batch_size,
            linger_ms=linger_ms,
            io=io or IO(),
            clock=clock,
            retention_check_ms=retention_check_ms,
            cleaner_bytes_per_second=cleaner_bytes_per_second,
        )

    # ------------------------------------------------------------ what the layer above works with

    @property
    def io(self) -> IO:
        return self._io

    @property
    def was_closed(self) -> bool:
        """Whether the last writer had closed it, so that nothing was to be recovered."""
        return self._clean

    @property
    def clock(self) -> Callable[[], int] | None:
        """The clock that was injected; None: the machine's, which records take coarsely."""
        return self._clock

    def clock_ms(self) -> int:
        """Time of day, in ms since 1970."""
        return self._clock() if self._clock is not None else self._io.clock_ms()

    def check_open(self, *, writable: bool = False) -> None:
        """Raise unless the store is open in this process, and can be written where that is wanted.

        Raises:
            Closed, Forked, ReadOnly, SyncFailed: as they say.
        """
        if writable:
            self._check_writable()
        else:
            self._check_open()

    def take_producer_ids(self, count: int) -> range:
        """So many producer ids that nobody has been given, and nobody ever will be again; durable.

        They begin at the time of day where the catalogue knows of no larger one: it may have been made anew, or be
        that of a restored snapshot, while the logs still hold what earlier producers wrote.
        """
        self._check_writable()

        def take(txn: WriteTransaction) -> int:
            first = max(txn.next_producer_id(), self.clock_ms() // 1000 << 20)
            txn.put_next_producer_id(first + count)
            return first

        with self._catalogue_lock:
            first = self._commit(take)
        return range(first, first + count)

    # ------------------------------------------------------------ opening

    def _open_for_writing(self, linger_ms: int) -> None:
        io = self._io
        make_directory(io, self.path)
        names = set(io.listdir(self.path))
        if snapshot_file.FILE_NAME in names:
            raise ReadOnly(f"{self.path} is a snapshot: open it with mode='r', or copy it by logdb restore and open the copy")
        new = not names - {"LOCK"}
        if not new and "LOCK" not in names and "catalogue" not in names and not self._holds_partitions(names):
            raise NotADatabase(f"{self.path} is not empty and holds no logdb database")
        self._lock_file = lock.LockFile.acquire(io, self._file("LOCK"))
        try:
            previous = self._lock_file.previous
            if previous.clean and previous.catalogue_size is not None and previous.catalogue_crc is not None:
                check_file(io, self._file("catalogue"), (previous.catalogue_size, previous.catalogue_crc))
            create = not self._holds_partitions(names)  # there is nothing that a lost catalogue could have named
            self._catalogue = Catalogue.open(self._file("catalogue"), create=create, io=io)
            try:
                self._clean = self._recovered = previous.clean or create
                self._distrust_cache = previous.failed_sync
                self._lock_file.mark_open()
                if self._clean:
                    self._lock_file.mark_recovered()
                self._replay_intents()
                self._load_entries()
            except BaseException:
                self._catalogue.close()
                raise
        except BaseException:
            self._lock_file.release()
            raise
        self._watcher = Watcher(io.device(self.path), self._fail)
        self._flusher = Flusher(io, linger_ms, self.checkpoint)
        self._flusher.start()
        if not self._clean:
            self._recovery = threading.Thread(target=self._recover_rest, name="logdb-recovery", daemon=True)
            self._recovery.start()

    def _open_for_reading(self) -> None:
        io = self._io
        if not io.exists(self._file("LOCK")) and not io.exists(self._file("catalogue")):
            raise NotADatabase(f"{self.path} holds no logdb database" if io.exists(self.path) else f"{self.path} does not exist")
        self.snapshot = snapshot_file.load(io, self.path)
        if self.snapshot is not None:
            check_file(io, self._file("catalogue"), (self.snapshot.catalogue_size, self.snapshot.catalogue_crc))
            self._catalogue = Catalogue.open(self._file("catalogue"), create=False, read_only=True, no_lock=True, io=io)
            return
        state = lock.read_state(io, self._file("LOCK"))
        lock.check_format(self._file("LOCK"), state)
        if state.clean and state.catalogue_size is not None and state.catalogue_crc is not None:
            try:
                check_file(io, self._file("catalogue"), (state.catalogue_size, state.catalogue_crc))
            except CatalogueDamaged:
                if lock.read_state(io, self._file("LOCK")).sequence == state.sequence:  # else a writer came meanwhile
                    raise
        self._catalogue = Catalogue.open(self._file("catalogue"), create=False, read_only=True, io=io)

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _holds_partitions(self, names: set[str]) -> bool:
        whole = (name for name in names if not name.endswith(_UNFINISHED))
        return any(self._io.exists(self._file(os.path.join(name, topic_file.FILE_NAME))) for name in whole)

    def _load_entries(self) -> None:
        self._entries = {TopicPartition(entry.topic, entry.partition): entry for entry in self._catalogue.logs()}

    def _replay_intents(self) -> None:
        """Finish what was begun, then remove what was begun and never committed."""
        for number, intent in self._catalogue.intents():
            logger.info("finishing the %s of topic %s", intent.kind, intent.topic)
            match intent.kind:
                case "create" | "grow":
                    self._finish_create(number, intent)
                case "delete":
                    self._finish_delete(number, intent)
                case swap.SWAP:
                    self._finish_swap(number, intent)
                case other:
                    raise CatalogueDamaged(self._catalogue.path, f"unknown intent {other!r}")
        for name in self._io.listdir(self.path):
            if name.endswith(_UNFINISHED):
                remove_tree(self._io, self._file(name))

    def _recover_rest(self) -> None:
        """After an unclean stop: open the logs that nobody has asked for yet, so that all are known to be whole."""
        failed = False
        for topic, partition in sorted(self._entries):
            if self._stop_recovery.is_set():
                return
            try:
                with contextlib.suppress(UnknownTopic, UnknownPartition):
                    self.log(topic, partition)
            except (LogdbError, OSError) as error:  # one log does not keep the others waiting
                logger.error("recovery of %s-%d in the background: %s", topic, partition, error)
                failed = True
        if failed or self._lock_file is None:
            return
        try:
            self._lock_file.mark_recovered()
            self._recovered = True
        except LogdbError as error:
            logger.error("recovery in the background: %s", error)

    # ------------------------------------------------------------ topics

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name, without their partitions."""
        self._check_open()
        found = [_topic_info(entry) for entry in self._catalogue.topics().values()]
        return [info for info in found if internal or not info.internal]

    def describe_topic(self, name: str) -> TopicInfo:
        """One topic with its partitions as they are now."""
        entry = self._topic(name)
        partitions = []
        for partition in range(entry.partition_count):
            log = self.log(name, partition)
            partitions.append(
                PartitionInfo(
                    partition=partition,
                    start_offset=log.start_offset,
                    end_offset=log.end_offset,
                    size_bytes=log.size_bytes,
                    segment_count=len(log.segments),
                    leader_epoch=log.epochs.latest,
                    read_only_reason=log.read_only_reason,
                )
            )
        return _topic_info(entry, tuple(partitions))

    def partition_count(self, topic: str) -> int:
        return self._topic(topic).partition_count

    def _topic(self, name: str) -> TopicEntry:
        self._check_open()
        entry = self._catalogue.topic(name)
        if entry is None:
            raise UnknownTopic(name, known=tuple(self._catalogue.topics()))
        return entry

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None, if_not_exists: bool = False
    ) -> TopicInfo:
        """Create a topic, durably; see ``Database.create_topic``."""
        check_topic_name(name)
        parsed = check_config(config or {})
        _check_partition_count(name, partitions, 1)
        with self._lock:
            self._check_writable()
            self._finish_interrupted()
            if (entry := self._catalogue.topic(name)) is not None:
                if if_not_exists:
                    return _topic_info(entry)
                raise TopicExists(name)
            from uuid import uuid4

            entry = TopicEntry(name, str(uuid4()), partitions, parsed)
            self._make_partitions(entry, range(partitions), "create")
            self._consider(entry.config)
            return _topic_info(entry)

    def alter_topic(self, name: str, *, config: Mapping[str, object] | None = None, partitions: int | None = None) -> TopicInfo:
        """Change configs (None: back to the default) or add partitions; see ``Database.alter_topic``."""
        given = dict(config or {})
        parsed = check_config({key: value for key, value in given.items() if value is not None})
        check_config({key: _any_value(key) for key, value in given.items() if value is None})
        with self._lock:
            self._check_writable()
            self._finish_interrupted()
            entry = self._topic(name)
            if partitions is not None and partitions != entry.partition_count:
                _check_partition_count(name, partitions, entry.partition_count)
                grown = entry._replace(partition_count=partitions)
                self._make_partitions(grown, range(entry.partition_count, partitions), "grow")
                entry = grown
            if given:
                kept = {key: value for key, value in entry.config.items() if key not in given}
                entry = entry._replace(config={**kept, **parsed})
                self._change_config(entry)
                self._consider(entry.config)
            return _topic_info(entry)

    def _consider(self, config: Mapping[str, ConfigValue]) -> None:
        """Begin the background work that a topic with these configs needs."""
        self.housekeeping.consider(config)
        self.cleaner.consider(config)

    def _change_config(self, entry: TopicEntry) -> None:
        with self._checkpoint_lock:  # the starts of logs don't move meanwhile
            for partition in range(entry.partition_count):
                start_offset = self._entries[TopicPartition(entry.name, partition)].start_offset
                topic_file.replace(self._io, self._partition_path(entry.name, partition), _topic_file(entry, partition, start_offset))
            self._commit(lambda txn: txn.put_topic(entry))
        for partition in range(entry.partition_count):
            if (log := self._logs.get(TopicPartition(entry.name, partition))) is not None:
                log.configure(LogConfig.of(entry.config, self.durability))

    def _make_partitions(self, entry: TopicEntry, partitions: range, kind: Literal["create", "grow"]) -> None:
        """Make the directories of new partitions and let the catalogue name them."""
        io, config = self._io, LogConfig.of(entry.config, self.durability)
        for partition in partitions:
            path = self._partition_path(entry.name, partition)
            if io.exists(path):
                raise NotADatabase(f"{path} is there already, but not in the catalogue: run logdb verify")
            temporary = self._unfinished_path(entry.topic_id, partition, ".tmp")
            if io.exists(temporary):
                remove_tree(self._io, temporary)
            with named_errors(temporary):
                io.mkdir(temporary)
            topic_file.create(io, temporary, _topic_file(entry, partition, 0))
            sync_directory(io, temporary)
        sync_directory(io, self.path)
        logs = [LogEntry(topic=entry.name, partition=partition, strict=config.durability == "fsync") for partition in partitions]
        intent = Intent(kind, entry.name, {"partitions": [partitions.start, partitions.stop], "topic_id": entry.topic_id})

        def commit(txn: WriteTransaction) -> int:
            txn.put_topic(entry)
            txn.put_logs(logs)
            return txn.add_intent(intent)

        self._interrupted = True  # until it is finished
        with self._catalogue_lock:
            number = self._commit(commit)
            self._entries.update({TopicPartition(log.topic, log.partition): log for log in logs})
        self._finish_create(number, intent)
        self._interrupted = False

    def _finish_create(self, number: int, intent: Intent) -> None:
        start, stop = intent.body["partitions"]
        for partition in range(start, stop):
            path = self._partition_path(intent.topic, partition)
            temporary = self._unfinished_path(intent.body["topic_id"], partition, ".tmp")
            if self._io.exists(temporary):
                with named_errors(path):
                    self._io.rename(temporary, path)
        sync_directory(self._io, self.path)
        self._commit(lambda txn: txn.clear_intent(number))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records, durably."""
        with self._lock, self._checkpoint_lock:
            self._check_writable()
            self._finish_interrupted()
            entry = self._topic(name)
            intent = Intent("delete", name, {"partition_count": entry.partition_count, "topic_id": entry.topic_id})
            self._interrupted = True  # until it is finished
            with self._catalogue_lock:
                number = self._commit(lambda txn: (txn.delete_topic(name), txn.add_intent(intent))[-1])
                for partition in range(entry.partition_count):
                    self._entries.pop(TopicPartition(name, partition), None)
            for partition in range(entry.partition_count):
                if (log := self._logs.pop(TopicPartition(name, partition), None)) is not None:
                    self._drop(log)
            self._finish_delete(number, intent)
            self._interrupted = False

    def _drop(self, log: Log) -> None:
        """Let go of a log whose topic goes; what it has not written does not matter any more."""
        assert self._flusher is not None
        self._flusher.forget(log)
        log.refuse(GATE_SHUT)
        log.abandon()

    def _finish_delete(self, number: int, intent: Intent) -> None:
        doomed = []
        for partition in range(intent.body["partition_count"]):
            path = self._partition_path(intent.topic, partition)
            doomed.append(self._unfinished_path(intent.body["topic_id"], partition, "-delete"))
            if self._io.exists(path) and self._is_of(path, intent.body["topic_id"]):
                with named_errors(path):
                    self._io.rename(path, doomed[-1])
        sync_directory(self._io, self.path)
        for path in doomed:
            if self._io.exists(path):
                remove_tree(self._io, path)
        self._commit(lambda txn: txn.clear_intent(number))

    def _is_of(self, path: str, topic_id: str) -> bool:
        """Whether a partition's directory is that of the topic with the id, not of a later one of the same name."""
        try:
            return topic_file.load(self._io, path).topic_id == topic_id
        except (FileNotFoundError, CorruptionError):
            return self._catalogue.topic(os.path.basename(path).rpartition("-")[0]) is None

    def _finish_interrupted(self) -> None:
        """Finish a change of topics that an error cut short after its commit, before another one begins."""
        if self._interrupted:
            self._replay_intents()
            self._load_entries()
            self._interrupted = False

    def _unfinished_path(self, topic_id: str, partition: int, suffix: str) -> str:
        """By id: a topic's name may leave no room for a suffix in the 255 bytes of a file's."""
        return os.path.join(self.path, f"{topic_id}-{partition}{suffix}")

    def _partition_path(self, topic: str, partition: int) -> str:
        return os.path.join(self.path, f"{topic}-{partition}")

    # ------------------------------------------------------------ logs

    def log(self, topic: str, partition: int = 0) -> Log:
        """The one ``Log`` object of a partition, recovered when it is first asked for."""
        found = self._logs.get(TopicPartition(topic, partition))
        if found is not None and not self._closed and self.mode == "a":
            return found
        with self._lock:
            entry = self._topic(topic)
            if not 0 <= partition < entry.partition_count:
                raise UnknownPartition(topic, partition, entry.partition_count)
            name = TopicPartition(topic, partition)
            if self.mode == "r" and self._topic_ids.setdefault(topic, entry.topic_id) != entry.topic_id:
                self._forget_topic(entry)
            if name not in self._logs:
                self._logs[name] = self._open_log(entry, partition) if self.mode == "a" else self._open_tail(entry, partition)
            return self._logs[name]

    def _forget_topic(self, entry: TopicEntry) -> None:
        """The writer deleted the topic and made another of that name."""
        for name in [name for name in self._logs if name.topic == entry.name]:
            self._logs.pop(name).abandon()
        self._topic_ids[entry.name] = entry.topic_id

    def _open_log(self, topic: TopicEntry, partition: int) -> Log:
        name, config = TopicPartition(topic.name, partition), LogConfig.of(topic.config, self.durability)
        directory, entry = self._partition_path(*name), self._entries[name]
        if not self._io.exists(directory):
            raise CorruptionError(directory, 0, "the partition's directory is missing; logdb repair makes it anew")
        self._reconcile_topic_file(topic, entry)
        found = recover(
            self._io,
            directory,
            entry,
            self._catalogue.segments(*name),
            config,
            clean=self._clean,
            distrust_cache=self._distrust_cache,
            now_ms=self.clock_ms(),
        )
        self.reports += found.reports
        log = Log(
            io=self._io,
            clock=self._clock,
            host=self,
            directory=directory,
            topic=topic.name,
            partition=partition,
            config=config,
            batch_size=self._batch_size,
            segments=found.segments,
            epochs=found.epochs,
            point=found.point,
            start_offset=entry.start_offset,
            next_offset=found.next_offset,
            strict=entry.strict,
            unsealed=found.unsealed,
            transactions=found.transactions,
        )
        log.checkpointed = Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position)
        if found.read_only_reason is not None:
            log.read_only_reason = found.read_only_reason
            log.refuse(GATE_SHUT)
            self._put_entry(entry._replace(read_only_reason=found.read_only_reason))
        elif self._sync_failed is not None:
            log.refuse(GATE_SHUT)
        else:
            log.note_unsynced()
            if log.needs_tending():
                self.wake(log)
        return log

    def _reconcile_topic_file(self, topic: TopicEntry, entry: LogEntry) -> None:
        """See that the directory is the partition's.

        A change of configs that was cut off may have left ``topic.json`` behind; the catalogue wins.
        """
        wanted, directory = _topic_file(topic, entry.partition, entry.start_offset), self._partition_path(topic.name, entry.partition)
        found = None
        try:
            found = topic_file.load(self._io, directory)
        except (FileNotFoundError, CorruptionError) as error:
            self.reports.append(f"{directory}: {error}" + ("" if self._clean else "; rewritten from the catalogue"))
        if found is not None and found[:3] != wanted[:3]:
            where = f"{found.topic}-{found.partition} (topic id {found.topic_id})"
            raise CorruptionError(os.path.join(directory, topic_file.FILE_NAME), 0, f"the directory is that of {where}")
        if found != wanted and not self._clean and self.mode == "a":
            topic_file.replace(self._io, directory, wanted)

    def _open_tail(self, topic: TopicEntry, partition: int) -> Log:
        view = self._catalogue.read(lambda txn: self._view(txn, txn.view(topic.name, partition)[0]))
        entry = view.entry
        self._reconcile_topic_file(topic, entry)
        log = TailLog(
            config=LogConfig.of(topic.config, self.durability),
            view=view,
            io=self._io,
            directory=self._partition_path(topic.name, partition),
            clock=self._clock,
            host=self,
            topic=topic.name,
            partition=partition,
            batch_size=self._batch_size,
            frozen=self.snapshot is not None,
        )
        log.read_only_reason = entry.read_only_reason
        return log

    # ------------------------------------------------------------ what logs ask (log.Host)

    def wake(self, log: Log) -> None:
        if self._flusher is not None:
            self._flusher.wake(log)

    def weaken(self, log: Log) -> None:
        name = TopicPartition(log.topic, log.partition)
        with self._catalogue_lock:
            if name not in self._entries:
                raise self.refusal(log)  # its topic was deleted
            self._put(self._entries[name]._replace(strict=False))

    def note_producers(self, log: AppendableLog, snapshot_offset: int) -> None:
        name = TopicPartition(log.topic, log.partition)
        with self._catalogue_lock:
            if name not in self._entries:
                raise self.refusal(log)  # its topic was deleted
            self._put(self._entries[name]._replace(producers_offset=snapshot_offset))

    def refusal(self, log: ReadableLog) -> LogdbError:
        where = TopicPartition(log.topic, log.partition)
        if os.getpid() != self._owner:
            return Forked(f"{self.path} was opened by process {self._owner}, this is its child {os.getpid()}: open it anew")
        if self._closed:
            return Closed(f"the database {self.path} is closed")
        if self.mode == "r":
            return ReadOnly(f"{self.path} was opened with mode='r': {where} can be read only")
        if self._sync_failed is not None:
            return SyncFailed(self._sync_failed.path, self._sync_failed.reason)
        if log.read_only_reason is not None:
            return ReadOnly(f"{where} is read-only: {log.read_only_reason}")
        return Closed(f"{where} is closed: its topic was deleted")

    def view(self, log: ReadableLog, generation: int) -> View | None:
        def read(txn: ReadTransaction) -> View | None:
            topic, entry = txn.topic(log.topic), txn.log(log.topic, log.partition)
            if topic is None or entry is None or topic.topic_id != self._topic_ids.get(log.topic, topic.topic_id):
                raise UnknownTopic(log.topic)  # deleted, or made anew
            return None if entry.generation == generation else self._view(txn, entry)

        number = self._catalogue.number()
        if self._viewed.get(log) == number:
            return None
        found = self._catalogue.read(read)
        if found is None or not found.pending:  # while a swap is pending, files change without the catalogue
            self._viewed[log] = number
        return found

    def _view(self, txn: ReadTransaction, entry: LogEntry) -> View:
        pending = any(swap.concerns(intent, entry.topic, entry.partition) for _, intent in txn.intents())
        return View(entry, txn.segments(entry.topic, entry.partition), pending)

    # ------------------------------------------------------------ where logs begin (retention.Host)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Move the start of a log; see ``Database.delete_records``."""
        self._check_writable()
        return self.retention.delete_records(topic, partition, before_offset)

    def begin_at(self, log: Log, start_offset: int) -> None:
        name = TopicPartition(log.topic, log.partition)
        with self._lock, self._checkpoint_lock:
            self._check_writable()
            if self._logs.get(name) is not log:
                raise UnknownTopic(log.topic)  # deleted meanwhile
            if start_offset > log.start_offset:
                self._commit_start(name, log, start_offset)
            gone = log.begin_at(max(start_offset, log.start_offset))
        for segment in gone:
            with self._checkpoint_lock:
                if self._closed or self._logs.get(name) is not log:
                    return  # what has the file's name by now may be another topic's
                try:
                    segment.remove()
                except OSError as error:
                    logger.warning("%s lies below the log start offset %d and could not be removed: %s", segment.path, start_offset, error)

    def _commit_start(self, name: TopicPartition, log: Log, start_offset: int) -> None:
        topic, directory = self._topic(name.topic), self._partition_path(*name)
        below = [segment.base_offset for segment in log.segments[:-1] if segment.next_offset <= start_offset]
        topic_file.replace(self._io, directory, _topic_file(topic, name.partition, start_offset))
        try:
            point = log.save_active_indexes()  # what is known of producers must not depend on what goes
            with self._catalogue_lock:
                moved = self._entry_at(log, point, grown=True)._replace(start_offset=start_offset)

                def commit(txn: WriteTransaction) -> None:
                    txn.put_log(moved)
                    for base_offset in below:
                        txn.delete_segment(*name, base_offset)

                self._commit(commit)
                self._entries[name] = moved
            log.checkpoint_done(point, ())
        except LogdbError:
            with contextlib.suppress(LogdbError):
                topic_file.replace(self._io, directory, _topic_file(topic, name.partition, log.start_offset))
            raise

    # ------------------------------------------------------------ what compaction asks (cleaner.Host)

    def compact(self, topic: str, partition: int | None = None) -> None:
        """Compact now; see ``Database.compact``."""
        self._check_writable()
        count = self.partition_count(topic)
        for number in range(count) if partition is None else (partition,):
            self.cleaner.compact(topic, number)

    def entry(self, name: TopicPartition) -> LogEntry:
        with self._catalogue_lock:
            if name not in self._entries:
                raise UnknownTopic(name.topic)  # deleted meanwhile
            return self._entries[name]

    def swap(self, log: Log, replacement: "Replacement") -> bool:
        name = TopicPartition(log.topic, log.partition)
        with self._checkpoint_lock:
            try:
                self._check_writable()
                if self._logs.get(name) is not log:
                    raise UnknownTopic(log.topic)  # deleted meanwhile
                if not set(replacement.old) <= set(log.segments):
                    replacement.discard()
                    return False
                sync_directory(self._io, log.directory)
                intent = swap.intent_of(self._io, log.topic, self._topic(log.topic).topic_id, log.partition, replacement)
                made = swap.entries_of(log.topic, log.partition, replacement)
                number = self._commit_swap(name, replacement.old, made, intent)
            except SyncFailed:
                raise  # it may have been committed: then opening finishes it
            except LogdbError:
                replacement.discard()
                raise
            self._rename_swapped(log, replacement.old, made, intent)
            self._finish_swap(number, intent)
            return True

    def _commit_swap(self, name: TopicPartition, old: Sequence[Segment], made: Sequence[SegmentEntry], intent: Intent) -> int:
        with self._catalogue_lock:
            entry = self._entries[name]._replace(generation=self._entries[name].generation + 1)

            def commit(txn: WriteTransaction) -> int:
                for segment in old:
                    txn.delete_segment(*name, segment.base_offset)
                txn.put_segments(made)
                txn.put_log(entry)
                return txn.add_intent(intent)

            number = self._commit(commit)
            self._entries[name] = entry
            return number

    def finish_swaps(self, log: Log) -> None:
        with self._checkpoint_lock:
            self._check_writable()
            self._finish_swaps(lambda intent: swap.concerns(intent, log.topic, log.partition))

    def _finish_swaps(self, concerned: Callable[[Intent], bool]) -> None:
        for number, intent in self._catalogue.intents():
            if concerned(intent):
                log = self.log(intent.topic, intent.body["partition"])
                unnamed = {segment.base_offset: segment for segment in log.segments if segment.suffix}
                made = [entry for entry in self._catalogue.segments(log.topic, log.partition) if entry.base_offset in unnamed]
                if made:
                    self._rename_swapped(log, tuple(unnamed.values()), made, intent)
                self._finish_swap(number, intent)

    def _rename_swapped(self, log: Log, old: Sequence[Segment], made: Sequence[SegmentEntry], intent: Intent) -> None:
        """Let readers find the new segments, even if not all of them could be given their names."""
        failure: list[OSError] = []

        def make() -> list[Segment]:
            try:
                swap.rename(self._io, log.directory, swap.of(intent))
            except OSError as error:
                failure.append(error)
            interval = log.config.index_interval_bytes
            return [
                sealed_segment(self._io, log.directory, entry, index_interval_bytes=interval, writable=True, pending=True) for entry in made
            ]

        log.replace(old, make)
        if failure:
            raise write_error(log.directory, 0, failure[0]) from failure[0]

    def _finish_swap(self, number: int, intent: Intent) -> None:
        directory = self._partition_path(intent.topic, intent.body["partition"])
        if self._io.exists(directory) and self._is_of(directory, intent.body["topic_id"]):
            with named_errors(directory):
                swap.rename(self._io, directory, swap.of(intent))
                swap.remove(self._io, directory, swap.of(intent))
        self._commit(lambda txn: txn.clear_intent(number))

    def clean_offset(self, topic: str, partition: int) -> int:
        """Up to where a log was compacted, as far as the catalogue knows."""
        entry = self._catalogue.log(topic, partition)
        return 0 if entry is None else entry.clean_offset

    def cleaned(self, log: Log, clean_offset: int, delete_horizon_ms: int | None) -> None:
        name = TopicPartition(log.topic, log.partition)
        with self._catalogue_lock:
            if name not in self._entries:
                raise UnknownTopic(log.topic)  # deleted meanwhile
            entry = self._entries[name]
            if (clean_offset, delete_horizon_ms) != (entry.clean_offset, entry.delete_horizon_ms):
                self._put(entry._replace(clean_offset=clean_offset, delete_horizon_ms=delete_horizon_ms))

    # ------------------------------------------------------------ durability

    def checkpoint(self, logs: Sequence[Log]) -> None:
        """Seal what was rolled over, and let the catalogue know it and the recovery points; one transaction for all logs.

        Raises what the first log failed with, after the others were seen to.
        """
        with self._checkpoint_lock:
            self._checkpoint(logs)

    def _checkpoint(self, logs: Sequence[Log]) -> None:
        failure: LogdbError | None = None
        sealed: dict[Log, list[Segment]] = {}
        points: dict[Log, Point] = {}
        segments: list[SegmentEntry] = []
        for log in logs:
            if TopicPartition(log.topic, log.partition) not in self._entries:
                continue  # deleted meanwhile
            try:
                sealed[log] = log.take_sealing()
                entries_of_log = [self._seal(log, segment) for segment in sealed[log]]
                points[log] = log.save_active_indexes()
                segments += entries_of_log
            except LogdbError as error:
                failure = failure or error

        def commit(txn: WriteTransaction) -> None:
            txn.put_segments(segments)
            txn.put_logs(entries)

        with self._catalogue_lock:
            entries = [self._entry_at(log, point, grown=bool(sealed[log])) for log, point in points.items()]
            self._commit(commit)
            self._entries.update({TopicPartition(entry.topic, entry.partition): entry for entry in entries})
        for log, point in points.items():
            log.checkpoint_done(point, sealed[log])
        if failure is not None:
            raise failure

    def _seal(self, log: Log, segment: Segment) -> SegmentEntry:
        """Make a segment final, with its directory entry, before the catalogue names it."""
        if self._sync_failed is not None:
            raise SyncFailed(self._sync_failed.path, self._sync_failed.reason)
        crc = segment.seal()
        sync_directory(self._io, log.directory)
        segment.new = False
        return segment_entry(log.topic, log.partition, segment, crc)

    def _is_behind(self, log: Log) -> bool:
        """Whether the catalogue does not say all that is to be said of ``log``."""
        entry = self._entries[TopicPartition(log.topic, log.partition)]
        unsaid = log.epochs.latest != entry.leader_epoch or log.producers_offset not in (-1, log.end_offset)
        return log.point != log.checkpointed or unsaid or bool(log.take_sealing())

    def _entry_at(self, log: Log, point: Point, *, grown: bool) -> LogEntry:
        entry = self._entries[TopicPartition(log.topic, log.partition)]
        return entry._replace(
            generation=entry.generation + grown,
            recovery_segment=point.segment,
            recovery_offset=point.offset,
            recovery_position=point.position,
            strict=log.strengthen(),
            leader_epoch=log.epochs.latest,
            producers_offset=max(entry.producers_offset, log.producers_offset),
            segment_created_ms=log.created_ms(point.segment),
        )

    def _commit(self, function: Callable[[WriteTransaction], T]) -> T:
        """``Catalogue.write``; a failed sync of it is as final as that of a log."""
        try:
            return self._catalogue.write(function)
        except SyncFailed as error:
            spread(self._io, error)
            raise

    def _put_entry(self, entry: LogEntry) -> None:
        with self._catalogue_lock:
            self._put(entry)

    def _put(self, entry: LogEntry) -> None:
        self._commit(lambda txn: txn.put_log(entry))
        self._entries[TopicPartition(entry.topic, entry.partition)] = entry

    def _fail(self, error: SyncFailed) -> None:
        """The device failed a sync: from here on nothing is written."""
        if self._sync_failed is None:
            self._sync_failed = error
            for log in list(self._logs.values()):
                log.refuse(GATE_SEALED)
            if self._lock_file is not None:
                self._lock_file.mark_failed_sync()

    def flush(self, sync: bool = True) -> None:
        """``Log.flush`` of every log that is open."""
        self._check_open()
        if self._sync_failed is not None:
            raise SyncFailed(self._sync_failed.path, self._sync_failed.reason)
        for log in list(self._logs.values()):
            if log.read_only_reason is None and self.mode == "a":
                log.flush(sync)

    # ------------------------------------------------------------ standing still (store.frozen)

    @property
    def database_id(self) -> str:
        """A UUID that the database has from its begin; its snapshots and backups have it too."""
        return self._catalogue.database_id

    @property
    def catalogue(self) -> Catalogue:
        return self._catalogue

    @contextlib.contextmanager
    def still(self, capture: Callable[[], T]) -> Iterator[T]:
        """Run ``capture`` while no transaction's marker is written, and yield what it returns.

        Until the block is left no file is removed or replaced, and no topic comes or goes; what was rolled
        over is sealed.  Appends go on.

        Raises:
            DiskFull, WriteFailed, SyncFailed: What was rolled could not be sealed.
        """
        with contextlib.ExitStack() as locks:
            with self.transaction_gate.alone():
                locks.enter_context(self._lock)
                locks.enter_context(self._checkpoint_lock)
                self._check_writable()
                self._finish_interrupted()
                self._finish_swaps(lambda intent: intent.kind == swap.SWAP)
                found = capture()
            self._checkpoint([log for log in self._logs.values() if log.take_sealing()])
            yield found

    def check_unchanging(self) -> None:
        """See that a directory that was opened for reading does not change.

        Raises:
            ReadOnly: It is written to, or was not closed cleanly.
        """
        self._check_open()
        if self.snapshot is not None:
            return
        path = self._file("LOCK")
        if lock.writer_alive(self._io, path) or not lock.read_state(self._io, path).clean:
            raise ReadOnly(f"{self.path} is open for writing, or was not closed cleanly: only what writes to it can freeze it")

    # ------------------------------------------------------------ closing

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if os.getpid() != self._owner:
            raise Forked(f"{self.path} was opened by process {self._owner}, this is its child {os.getpid()}: open it anew")
        if self._closed:
            raise Closed(f"the database {self.path} is closed")

    def _check_writable(self) -> None:
        self._check_open()
        if self.mode == "r":
            raise ReadOnly(f"{self.path} was opened with mode='r': it can be read only")
        if self._sync_failed is not None:
            raise SyncFailed(self._sync_failed.path, self._sync_failed.reason)

    def close(self) -> None:
        """Write, sync and close everything; closing twice is no error.

        Raises:
            CloseIncomplete: Some records could not be written; it says how many.
        """
        if os.getpid() != self._owner:
            self._closed = True
            return
        if self.mode == "a":
            self._finish_recovery()
        with self._lock:
            if self._closed:
                return
            failures = self._close_logs() if self.mode == "a" else self._close_tails()
            self._closed = True
            _stores.discard(self)
        if failures:
            lost, reason = sum(count for count, _ in failures), failures[0][1]
            raise CloseIncomplete(self.path, lost, reason)

    def _finish_recovery(self) -> None:
        self.housekeeping.stop()
        self.cleaner.stop()
        if self._recovery is not None and self._recovery.is_alive() and self._recovery is not threading.current_thread():
            self._recovery.join()
        if self._flusher is not None:
            self._flusher.stop()

    def _close_tails(self) -> list[tuple[int, str]]:
        for log in self._logs.values():
            log.abandon()
        self._catalogue.close()
        return []

    def _close_logs(self) -> list[tuple[int, str]]:
        """Close every log and, if all went well, leave the marks of a clean close."""
        finished = {log: log.finish() for log in self._logs.values()}
        good = [log for log, why in finished.items() if why is None and log.read_only_reason is None]
        failures: list[tuple[int, str]] = []
        reason = self._sync_failed.reason if self._sync_failed else None
        try:
            if reason is None:
                changed = [log for log in good if self._is_behind(log)]
                if changed:
                    self.checkpoint(changed)
        except Exception as error:  # noqa: BLE001 -- the logs and the lock are to be let go of all the same
            failures.append((0, str(error)))
        for log, why in finished.items():
            lost = log.abandon()
            if why is not None:
                failures.insert(0, (lost, why))
        self._catalogue.close()
        assert self._lock_file is not None
        try:
            if not failures and reason is None and self._recovered:
                self._lock_file.mark_clean(*file_checksum(self._io, self._catalogue.path))
        except LogdbError as error:
            failures.append((0, str(error)))
        finally:
            self._lock_file.release()
        return failures


def _topic_file(entry: TopicEntry, partition: int, start_offset: int) -> TopicFile:
    return TopicFile(entry.name, entry.topic_id, partition, entry.partition_count, entry.config, start_offset)


def _topic_info(entry: TopicEntry, partitions: tuple[PartitionInfo, ...] = ()) -> TopicInfo:
    return TopicInfo(
        name=entry.name,
        topic_id=entry.topic_id,
        partition_count=entry.partition_count,
        config=entry.config,
        internal=entry.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


def _check_partition_count(topic: str, count: int, least: int) -> None:
    if not least <= count <= PARTITION_COUNT_MAX:
        raise InvalidPartitions(topic, count, f"allowed are {least} to {PARTITION_COUNT_MAX}; their number never shrinks")


def _any_value(key: str) -> object:
    if key not in TOPIC_CONFIGS:
        raise InvalidConfig(key, None, "unknown key")
    return TOPIC_CONFIGS[key].default


def _after_fork_in_child() -> None:
    """Logs of the parent neither take nor write records in the child, nor wait for threads that it does not have."""
    for store in list(_stores):
        store._lock, store.transaction_gate = threading.RLock(), Gate()
        for log in list(store._logs.values()):
            log.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
