"""The topics of one directory: creating, altering and deleting them, in the catalogue and in the directories of their partitions.

Creating and deleting a topic take several steps, each an intent that opening replays:

    create: directories as .tmp, synced -> catalogue names them (the commit point) -> renamed -> intent cleared
    delete: catalogue forgets the topic (the commit point) -> directories renamed -delete -> removed -> intent cleared
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from logdb.codec import compression
from logdb.disk import changing, disk_bytes, exists, names_in, sync_directory
from logdb.errors import (
    CatalogueDamaged,
    InvalidConfig,
    InvalidPartitions,
    InvalidReassignment,
    LogdbError,
    NotADatabase,
    TopicExists,
    UnknownTopic,
)
from logdb.log.log import Log
from logdb.meta import Intent, LogEntry, SegmentEntry, TopicEntry, WriteTransaction
from logdb.model import (
    BY_DEFAULT,
    INTERNAL_TOPICS,
    PARTITION_COUNT_MAX,
    TABLE_HISTORY,
    TABLE_SCHEMA,
    TOPIC_CONFIGS,
    ConfigValue,
    EventKind,
    ListChange,
    LogConfig,
    PartitionInfo,
    SchemaEnds,
    TopicEvent,
    TopicInfo,
    TopicPartition,
    check_config,
    check_topic_name,
    unknown_config,
)
from logdb.store import replacement_intent, topic_file
from logdb.store.directories import UNFINISHED, remove_tree
from logdb.store.entries import Entries
from logdb.store.protocols import always
from logdb.store.segment_replacer import SegmentReplacer
from logdb.store.state import StoreState

logger = logging.getLogger(__name__)


def list_topics(state: StoreState, *, internal: bool) -> list[TopicInfo]:
    """All topics by name, without their partitions."""
    state.check_open()
    found = [_info(entry) for entry in state.catalogue.topics().values()]
    return [info for info in found if internal or not info.internal]


def describe(state: StoreState, topic: TopicEntry, logs: list[Log], clean_offsets: list[int]) -> TopicInfo:
    """One topic with its partitions as they are now, by all of its logs and their clean offsets."""
    found = zip(logs, clean_offsets, strict=True)
    return _info(topic, tuple(_partition_info(log, clean)._replace(disk_bytes=disk_bytes(state.io, log.directory)) for log, clean in found))


def describe_at_rest(state: StoreState, name: str) -> TopicInfo:
    """As ``describe``, without ``disk_bytes``; of logs that were not opened yet what the catalogue says.

    That is all of it once no recovery is due: a log that is not open has no record past its recovery point.
    """
    state.check_open()
    topic, entries, sealed = state.catalogue.read(lambda txn: (txn.topic(name), txn.logs(name), txn.segments(name)))
    if topic is None:
        raise UnknownTopic(name, known=state.catalogue.topic_names())
    segments: dict[int, list[SegmentEntry]] = {}
    for segment in sealed:
        segments.setdefault(segment.partition, []).append(segment)
    partitions = []
    for entry in entries:
        log = state.logs.get(TopicPartition(name, entry.partition))
        if log is not None and log.topic_id == topic.topic_id:
            partitions.append(_partition_info(log, entry.clean_offset))
        else:
            partitions.append(_at_rest(entry, segments.get(entry.partition, ())))
    return _info(topic, tuple(partitions))


def _at_rest(entry: LogEntry, sealed: Sequence[SegmentEntry]) -> PartitionInfo:
    has_active = entry.recovery_offset > (sealed[-1].next_offset if sealed else entry.start_offset)
    return PartitionInfo(
        partition=entry.partition,
        start_offset=entry.start_offset,
        end_offset=entry.recovery_offset,
        size_bytes=sum(segment.size_bytes for segment in sealed) + (entry.recovery_position if has_active else 0),
        segment_count=len(sealed) + has_active,
        leader_epoch=entry.leader_epoch,
        read_only_reason=entry.read_only_reason,
        clean_offset=entry.clean_offset,
    )


def _partition_info(log: Log, clean_offset: int) -> PartitionInfo:
    return PartitionInfo(
        partition=log.partition,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        size_bytes=log.size_bytes,
        segment_count=len(log.segments),
        leader_epoch=log.epochs.latest,
        read_only_reason=log.read_only_reason,
        clean_offset=clean_offset,
    )


def _info(entry: TopicEntry, partitions: tuple[PartitionInfo, ...] = ()) -> TopicInfo:
    return TopicInfo(
        name=entry.name,
        topic_id=entry.topic_id,
        partition_count=entry.partition_count,
        config=dict(entry.config),
        internal=entry.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


class TopicChanges:
    """Creates, alters and deletes the topics of a store that writes."""

    def __init__(
        self,
        state: StoreState,
        entries: Entries,
        replacer: SegmentReplacer,
        forget: Callable[[Log], None],
        prepare: Callable[[Mapping[str, ConfigValue]], None],
    ) -> None:
        """Begin without a change.

        Args:
            forget: Called with an open log whose topic was deleted.
            prepare: Called with the new configs of a topic before they are set; an error that it raises prevents the change.
        """
        self._prepare = prepare
        self._state, self._io, self._entries, self._replacer, self._forget = state, state.io, entries, replacer, forget
        self._interrupted = False  # a change may be committed, and is not finished
        self._untold: tuple[EventKind, TopicEntry] | None = None  # a change that may be committed, and that no listener knows
        self._unnamed: list[str] = []  # directories of partitions that were made, and that the catalogue may not name

    def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, object],
        *,
        if_not_exists: bool,
        go_on: Callable[[], None] = always,
        topic_id: str | None = None,
    ) -> TopicInfo:
        """Create a topic.

        Args:
            go_on: Called before each partition is created; an error that it raises ends the call.
            topic_id: Its id; None: a new one.
        """
        parsed = check_new(name, partitions, config)
        with self._state.changes_lock:
            with self._state.topics_lock:
                self._begin()
                if (entry := self._state.catalogue.topic(name)) is not None:
                    if if_not_exists:
                        return _info(entry)
                    raise TopicExists(name)
                self._prepare(parsed)
            entry = TopicEntry(name, topic_id or new_topic_id(), partitions, parsed)
            self._make_partitions(entry, range(partitions), "create", go_on)
            return _info(entry)

    def check_new(self, name: str, partitions: int, config: Mapping[str, object]) -> TopicInfo:
        """What ``create`` would make, without an id; raises what that would."""
        parsed = check_new(name, partitions, config)
        with self._state.topics_lock:
            self._begin()
            if self._state.catalogue.topic(name) is not None:
                raise TopicExists(name)
        return _info(TopicEntry(name, "", partitions, parsed))

    def check_configs(self, name: str, config: Mapping[str, object], *, replace: bool = False) -> None:
        """Raise what ``alter`` would."""
        with self._state.topics_lock:
            self._begin()
            entry = self._state.topic(name)
            changed_config(name, entry.config, entry.partition_count, config, replace=replace)

    def alter(
        self,
        name: str,
        config: Mapping[str, object],
        partitions: int | None,
        go_on: Callable[[], None] = always,
        *,
        replace: bool = False,
    ) -> TopicInfo:
        """Alter a topic; ``go_on``: as in ``create``; ``replace``: configs that are not named get their defaults."""
        with self._state.changes_lock:
            with self._state.topics_lock:
                self._begin()
                entry = self._state.topic(name)
                changed = changed_config(name, entry.config, entry.partition_count, config, replace=replace)
                self._prepare(changed)
            if partitions is not None and partitions != entry.partition_count:
                check_partition_count(name, partitions, entry.partition_count)
                grown = entry._replace(partition_count=partitions)
                self._make_partitions(grown, range(entry.partition_count, partitions), "grow", go_on)
                entry = grown
            if config or replace:
                with self._state.topics_lock:
                    self._begin()
                    former, entry = entry, entry._replace(config=changed)
                    self._untold = ("topic_altered", entry) if entry != former else None
                    self._interrupted = True  # until it is finished
                    self._change_config(entry)
                    if entry != former:
                        self._tell("topic_altered", entry)
                    self._interrupted = False
            return _info(entry)

    def delete(self, name: str) -> None:
        with self._state.changes_lock, self._state.topics_lock, self._state.checkpoint_lock:
            self._begin()
            entry = self._state.topic(name)
            intent = Intent("delete", name, {"partition_count": entry.partition_count, "topic_id": entry.topic_id})
            self._untold = ("topic_deleted", entry)
            self._interrupted = True  # until it is finished
            number = self._entries.forget(name, intent)
            self._tell("topic_deleted", entry)
            self._finish_delete(number, intent)
            self._interrupted = False

    # ------------------------------------------------------------ intents

    def replay_intents(self) -> None:
        """At an opening: finish committed changes, then remove the files of changes that were never committed."""
        for number, intent in self._state.catalogue.intents():
            if replacement_intent.replaces(intent):
                logger.info("finishing the %s of topic %s", intent.kind, intent.topic)
                self._replacer.finish(number, intent)
            elif not self._finish(number, intent):
                raise CatalogueDamaged(self._state.catalogue.path, f"unknown intent {intent.kind!r}")
        for name in names_in(self._io, self._state.path):
            if name.endswith(UNFINISHED):
                remove_tree(self._io, self._state.file(name))

    def finish_interrupted(self) -> None:
        """Finish a change that an error cut short after its commit, before another one begins; under the lock of topics.

        Only what topics have begun: compactions and truncations may run meanwhile, and a copy may hold links in a directory of its own.
        """
        if self._interrupted:
            self._state.check_writable()
            for number, intent in self._state.catalogue.intents():
                self._finish(number, intent)
            for path in self._unnamed:
                if exists(self._io, path):
                    remove_tree(self._io, path)
            self._entries.load()
            if self._untold is not None and self._is_committed(*self._untold):
                self._tell(*self._untold)
            self._interrupted, self._untold, self._unnamed = False, None, []

    def _is_committed(self, kind: EventKind, entry: TopicEntry) -> bool:
        known = self._state.catalogue.topic(entry.name)
        is_there = known is not None and known.topic_id == entry.topic_id
        return not is_there if kind == "topic_deleted" else is_there and known == entry

    def _finish(self, number: int, intent: Intent) -> bool:
        """Finish a change of a topic; False if the intent is not of one."""
        finish = {"create": self._finish_create, "grow": self._finish_create, "delete": self._finish_delete}.get(intent.kind)
        if finish is None:
            return False
        logger.info("finishing the %s of topic %s", intent.kind, intent.topic)
        finish(number, intent)
        return True

    def _tell(self, kind: EventKind, entry: TopicEntry) -> None:
        """Report a committed change to the listeners."""
        self._state.tell(TopicEvent(kind, _info(entry)))
        self._untold = None

    def _begin(self) -> None:
        self._state.check_writable()
        self.finish_interrupted()

    # ------------------------------------------------------------ steps

    def _change_config(self, entry: TopicEntry) -> None:
        try:
            with self._state.checkpoint_lock:  # the starts of logs don't move meanwhile
                for partition in range(entry.partition_count):
                    start_offset = self._entries.get(TopicPartition(entry.name, partition)).start_offset
                    directory = self._state.partition_path(entry.name, partition)
                    topic_file.replace(self._io, directory, topic_file.describe(entry, partition, start_offset))
                self._state.catalogue.write(lambda txn: txn.put_topic(entry))
            self._configure_logs(entry)
        except LogdbError:
            raise
        except BaseException:  # from outside (Ctrl-C): it may be committed
            self._configure_logs(self._state.topic(entry.name))
            raise

    def _configure_logs(self, entry: TopicEntry) -> None:
        for partition in range(entry.partition_count):
            if (log := self._state.logs.get(TopicPartition(entry.name, partition))) is not None:
                log.alter(LogConfig.of(entry.config, self._state.durability))

    def _make_partitions(self, entry: TopicEntry, partitions: range, kind: Literal["create", "grow"], go_on: Callable[[], None]) -> None:
        """Create the directories of new partitions, while logs can be opened, and let the catalogue name them."""
        try:
            for partition in partitions:
                go_on()
                self._make_partition(entry, partition)
            sync_directory(self._io, self._state.path)
            with self._state.topics_lock:
                self._begin()
                self._name_partitions(entry, partitions, kind)
        except Exception:
            if not self._interrupted:
                self._remove_unnamed(entry, partitions)
            raise

    def _remove_unnamed(self, entry: TopicEntry, partitions: range) -> None:
        """Remove directories that the catalogue does not name; the next opening removes those that remain."""
        for partition in partitions:
            with contextlib.suppress(LogdbError, OSError):
                temporary = self._unfinished_path(entry.topic_id, partition, ".tmp")
                if self._io.exists(temporary):
                    remove_tree(self._io, temporary)

    def _name_partitions(self, entry: TopicEntry, partitions: range, kind: Literal["create", "grow"]) -> None:
        """Let the catalogue name new partitions."""
        strict = LogConfig.of(entry.config, self._state.durability).durability == "fsync"
        logs = [LogEntry(topic=entry.name, partition=partition, strict=strict) for partition in partitions]
        intent = Intent(kind, entry.name, {"partitions": [partitions.start, partitions.stop], "topic_id": entry.topic_id})

        def commit(txn: WriteTransaction) -> int:
            txn.put_topic(entry)
            return txn.add_intent(intent)

        self._unnamed = [self._unfinished_path(entry.topic_id, partition, ".tmp") for partition in partitions]
        event: EventKind = "topic_created" if kind == "create" else "partitions_added"
        self._untold = (event, entry)
        self._interrupted = True  # until it is finished
        number = self._entries.change(lambda: logs, commit)
        self._tell(event, entry)
        self._finish_create(number, intent)
        self._interrupted = False

    def _make_partition(self, entry: TopicEntry, partition: int) -> None:
        """Create the directory of a partition, synced, under the name of unfinished work."""
        path = self._state.partition_path(entry.name, partition)
        if exists(self._io, path):
            raise NotADatabase(f"{path} is there already, but not in the catalogue: run logdb verify")
        temporary = self._unfinished_path(entry.topic_id, partition, ".tmp")
        if exists(self._io, temporary):
            remove_tree(self._io, temporary)
        with changing(temporary):
            self._io.mkdir(temporary)
        topic_file.create(self._io, temporary, topic_file.describe(entry, partition, 0))
        sync_directory(self._io, temporary)

    def _finish_create(self, number: int, intent: Intent) -> None:
        start, stop = intent.body["partitions"]
        for partition in range(start, stop):
            path = self._state.partition_path(intent.topic, partition)
            temporary = self._unfinished_path(intent.body["topic_id"], partition, ".tmp")
            if exists(self._io, temporary):
                with changing(path):
                    self._io.rename(temporary, path)
        sync_directory(self._io, self._state.path)
        self._state.catalogue.write(lambda txn: txn.clear_intent(number))

    def _finish_delete(self, number: int, intent: Intent) -> None:
        for partition in range(intent.body["partition_count"]):  # first: an open log would take appends of the next topic of this name
            if (log := self._state.logs.pop(TopicPartition(intent.topic, partition), None)) is not None:
                self._forget(log)
        doomed = []
        for partition in range(intent.body["partition_count"]):
            path = self._state.partition_path(intent.topic, partition)
            doomed.append(self._unfinished_path(intent.body["topic_id"], partition, "-delete"))
            if self._state.is_of(path, intent.body["topic_id"]):
                with changing(path):
                    self._io.rename(path, doomed[-1])
        sync_directory(self._io, self._state.path)
        for path in doomed:
            if exists(self._io, path):
                remove_tree(self._io, path)
        self._state.catalogue.write(lambda txn: txn.clear_intent(number))

    def _unfinished_path(self, topic_id: str, partition: int, suffix: str) -> str:
        """By id: a topic's name may leave no room for a suffix in the 255 bytes of a file's."""
        return self._state.file(f"{topic_id}-{partition}{suffix}")


def new_topic_id() -> str:
    from uuid import uuid4

    return str(uuid4())


def check_new(name: str, partition_count: int, config: Mapping[str, object]) -> dict[str, ConfigValue]:
    """Raise unless a topic with these arguments is valid; returns its configs, parsed."""
    check_topic_name(name)
    parsed = _given(config)
    _check_policy(name, parsed)
    compression.check_installed(str(parsed.get("compression.type")))
    check_partition_count(name, partition_count, 1)
    return parsed


def changed_config(
    name: str, known: Mapping[str, ConfigValue], partition_count: int, config: Mapping[str, object], *, replace: bool = False
) -> dict[str, ConfigValue]:
    """The configs of a topic, which has the ``known`` ones, after a change; see ``requests.topic_changes``.

    The history of the schemas outlasts a ``replace`` that does not name it.  A history that equals the known one is no correction: a tool
    that has read all configs writes it back.

    Raises:
        SchemaEndsNeeded: See ``SchemaEnds.of``.
    """
    plain = {key: value for key, value in config.items() if not isinstance(value, SchemaEnds)}
    ends = config.get(TABLE_HISTORY)
    if isinstance(ends, SchemaEnds) and ends.given:
        plain[TABLE_HISTORY] = ends.given[0]
    parsed = _given({key: _of_list(known, key, value) if isinstance(value, ListChange) else value for key, value in plain.items()})
    kept = {key: value for key, value in known.items() if key not in plain and (key == TABLE_HISTORY or not replace)}
    changed = kept | parsed
    is_corrected = changed.get(TABLE_HISTORY, "") != known.get(TABLE_HISTORY, "")
    if isinstance(ends, SchemaEnds) and not is_corrected:
        history = ends.of(known, changed.get(TABLE_SCHEMA, ""), partition_count)
        changed |= _given({TABLE_HISTORY: history}) if history else {}
    _check_policy(name, changed)
    compression.check_installed(str(parsed.get("compression.type")))
    return changed


def _of_list(known: Mapping[str, ConfigValue], key: str, change: ListChange) -> str:
    return change.of(key, known[key] if key in known else TOPIC_CONFIGS[key].default if key in TOPIC_CONFIGS else "")


def _given(config: Mapping[str, object]) -> dict[str, ConfigValue]:
    """Configs, parsed, without those that are None: these get their defaults."""
    for key, value in config.items():
        if value is None and key not in TOPIC_CONFIGS:
            raise unknown_config(key, None)
    return check_config({key: value for key, value in config.items() if value is not None})


def _check_policy(name: str, config: Mapping[str, ConfigValue]) -> None:
    """Internal topics have a state that is replayed: only compaction may remove their records."""
    policy = config.get("cleanup.policy", TOPIC_CONFIGS["cleanup.policy"].default)
    if name in INTERNAL_TOPICS and policy != "compact":
        raise InvalidConfig("cleanup.policy", policy, f"must be compact: {name} holds the state of groups or transactions")


def check_partition_count(topic: str, count: int, least: int) -> None:
    """Raise InvalidPartitions unless a topic may have so many partitions; ``least``: it has so many now."""
    if not least <= count <= PARTITION_COUNT_MAX:
        raise InvalidPartitions(topic, count, f"must be {least} to {PARTITION_COUNT_MAX}; the number of partitions can only grow")


def new_count(topic: str, partitions: int, assignments: Sequence[Sequence[int]] | None, default: int) -> int:
    """How many partitions a new topic gets; raises InvalidReassignment where it and ``assignments`` are not equally many."""
    if partitions == BY_DEFAULT:
        return default if assignments is None else len(assignments)
    if assignments is not None:
        check_assignment_count(topic, partitions, 0, assignments)
    return partitions


def check_assignment_count(topic: str, added: int, known: int, assignments: Sequence[Sequence[int]]) -> None:
    """Raise InvalidReassignment unless nodes are named for each partition that is added to the ``known`` ones."""
    if len(assignments) != added:
        reason = f"{added} partitions are added, and nodes are named for {len(assignments)}"
        raise InvalidReassignment(topic, known + min(added, len(assignments)), (), reason)
