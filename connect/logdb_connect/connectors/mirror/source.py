"""The source connector of mirrors: topics of another cluster, with keys, headers, timestamps and partitions.

Exactly once: the offset of a record at the source is its source offset, which the worker commits with the record.  Offsets at the target
differ, so pairs of offsets go to ``mm2-offset-syncs.<alias>.internal`` at the target, after each commit.  A pair is written at most once
a second, and again when the source is quiet: a group that has read everything there can continue at the end here.

Threading: the connector looks for topics in a thread of its own; a task has one thread.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from logdb import LogdbError, TopicPartition
from logdb.errors import UnknownTopic
from logdb_connect.client import Client
from logdb_connect.config import ConfigDef
from logdb_connect.connectors.mirror import policies
from logdb_connect.connectors.mirror.clusters import Cluster, Reader, Topic, check_limits, open_cluster
from logdb_connect.connectors.mirror.settings import DEFAULTS, MIRROR, PREFIXES, source_client
from logdb_connect.connectors.mirror.wire import OffsetSync
from logdb_connect.data import OPTIONAL_BYTES, Header, SourceRecord, SourceRecords
from logdb_connect.errors import ConfigError, ConnectError, RetriableError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

logger = logging.getLogger(__name__)

ASSIGNED = "task.assigned.partitions"
_AGAIN_S, _SYNC_S = 5.0, 1.0
_NEVER_COPIED = r"logdb\..*"


class TopicChoice:
    """Which topics are mirrored, and their names at the target."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.alias: str = config["source.cluster.alias"]
        self.separator: str = config["replication.policy.separator"]
        self.policy = policies.policy_of(config["replication.policy.class"], self.separator)
        self._target: str = config["target.cluster.alias"]
        self._wanted = policies.any_pattern(config["topics"], "topics")
        self._excluded = policies.any_pattern(config["topics.exclude"], "topics.exclude")

    def is_mirrored(self, topic: str) -> bool:
        """Topics that came from the target do not go back; heartbeats of others are always mirrored."""
        if topic.startswith(("__", ".")) or self._target in self.policy.topic_sources(topic):
            return False
        return topic == policies.HEARTBEATS or (bool(self._wanted.fullmatch(topic)) and not self._excluded.fullmatch(topic))

    def renamed(self, topic: str) -> str:
        return self.policy.format_remote_topic(self.alias, topic)


class MirrorSourceTask(SourceTask):
    """Copies its partitions.

    State:
        _upstream: The first and the last offset of the source that each partition of the target was given, in the present poll.
        _given: The last offset of each partition that the worker was given: a reader that is opened again continues behind it.
        _pairs: Pairs of offsets that are not written yet.
        _unwritten: How many records they are behind.
        _tried: Configs that were set: topic, name, value, and the value before.  One that the target refuses, or takes for its default,
            is not set again.
    """

    _cluster: Cluster | None = None
    _reader: Reader | None = None

    def start(self, properties: Properties) -> None:
        self._config = MIRROR.parse(properties)
        self._choice = TopicChoice(self._config)
        self._client: Client = self.context.client
        self._properties = source_client(properties)
        self._partitions = [_partition(each) for each in properties[ASSIGNED].split(",") if each]
        self._timeout_ms: int = self._config["consumer.poll.timeout.ms"]
        self._places = {
            each: {"cluster": self._choice.alias, "topic": each.topic, "partition": each.partition} for each in self._partitions
        }
        self._upstream: dict[TopicPartition, tuple[TopicPartition, int, int]] = {}
        self._given: dict[TopicPartition, int] = {}
        self._pairs: list[OffsetSync] = []
        self._unwritten = 0
        self._pairs_at = self._configs_at = 0.0
        self._tried: set[tuple[str, str, str | None, str | None]] = set()

    def poll(self) -> SourceRecords:
        try:
            reader = self._opened()
            if self._config["sync.topic.configs.enabled"] and time.monotonic() >= self._configs_at:
                self._copy_configs()
            self._write_pairs()
            polled = reader.poll(self._timeout_ms)
        except UnknownTopic as error:
            self._leave_out(error.topic)
            return None
        except RetriableError:
            self._close()
            raise
        return [record for at, records in polled.items() for record in self._copies(at, records)] or None

    def written(self, offsets: Mapping[TopicPartition, range]) -> None:
        """Pairs for checkpoints: the first and the last record of each partition."""
        for at, downstream in offsets.items():
            if (found := self._upstream.get(at)) is not None:
                source, first, last = found
                self._unwritten += last - first + 1
                pairs = OffsetSync(*source, first, downstream[0]), OffsetSync(*source, last, downstream[-1])
                self._pairs += pairs[: 1 if first == last else 2]
        self._upstream.clear()

    def stop(self) -> None:
        self._close()

    # ------------------------------------------------------------ records

    def _opened(self) -> Reader:
        if self._reader is None:
            self._cluster = self._cluster or open_cluster(self._properties)
            topics = {each.name: each for each in self._cluster.topics()}
            for name in sorted({each.topic for each in self._partitions}):
                if name not in topics:
                    raise UnknownTopic(name)
                self._make_topic(topics[name])
            self._reader = self._cluster.reader({at: self._next(at) for at in self._partitions})
        return self._reader

    def _next(self, at: TopicPartition) -> int | None:
        """The offset to read next; None: the first one."""
        if (last := self._given.get(at)) is None:
            stored = self.context.offset(self._places[at])
            last = None if stored is None else stored["offset"]
        return None if last is None else last + 1

    def _copies(self, at: TopicPartition, records: Sequence[Any]) -> list[SourceRecord]:
        topic, place = self._choice.renamed(at.topic), self._places[at]
        self._upstream[TopicPartition(topic, at.partition)] = at, records[0].offset, records[-1].offset
        self._given[at] = records[-1].offset
        return [
            SourceRecord(
                source_partition=place,
                source_offset={"offset": one.offset},
                topic=topic,
                partition=at.partition,
                key=one.key,
                key_schema=OPTIONAL_BYTES,
                value=one.value,
                value_schema=OPTIONAL_BYTES,
                timestamp_ms=one.timestamp_ms,
                headers=[Header(name, value, OPTIONAL_BYTES) for name, value in one.headers],
            )
            for one in records
        ]

    def _leave_out(self, topic: str) -> None:
        logger.warning("the topic %s of the source was deleted: it is left out; its copy stays", topic)
        self._partitions = [each for each in self._partitions if each.topic != topic]
        self._places = {each: self._places[each] for each in self._partitions}
        self._close()

    def _close(self) -> None:
        reader, cluster = self._reader, self._cluster
        self._reader = self._cluster = None
        for one in (reader, cluster):
            if one is not None:
                with contextlib.suppress(LogdbError, ConnectError):
                    one.close()

    # ------------------------------------------------------------ topics of the target

    def _make_topic(self, topic: Topic) -> None:
        """The topic at the target, with as many partitions; its configs follow."""
        name, client = self._choice.renamed(topic.name), self._client
        try:
            if not client.has_topic(name):
                replication = client.possible_replication(self._config["replication.factor"])
                client.create_topic(name, partitions=topic.partitions, replication=replication)
            if len(client.topic_state(name).partitions) < topic.partitions:
                client.alter_topic(name, partitions=topic.partitions)
        except LogdbError as error:
            raise _retriable(error) from error

    def _copy_configs(self) -> None:
        """Configs of the topics whose first partition is this task's; a config that the target refuses is named once."""
        self._configs_at = time.monotonic() + self._config["sync.topic.configs.interval.seconds"]
        excluded = policies.any_pattern([*self._config["config.properties.exclude"], _NEVER_COPIED], "config.properties.exclude")
        assert self._cluster is not None
        for topic in (each.topic for each in self._partitions if each.partition == 0):
            name = self._choice.renamed(topic)
            wanted = {key: value for key, value in self._cluster.config(topic).items() if not excluded.fullmatch(key)}
            try:
                known = self._client.topic_config(name)
            except LogdbError as error:
                raise _retriable(error) from error
            news: dict[str, str | None] = {key: value for key, value in wanted.items() if known.get(key) != value}
            news |= dict.fromkeys(key for key in known if key not in wanted and not excluded.fullmatch(key))
            for key, value in news.items():
                if (change := (name, key, value, known.get(key))) not in self._tried:
                    self._alter(name, key, value)
                    self._tried.add(change)

    def _alter(self, topic: str, key: str, value: str | None) -> None:
        try:
            self._client.alter_topic(topic, config={key: value})
        except LogdbError as error:
            if error.retriable:
                raise _retriable(error) from error
            logger.warning("the config %s=%s of the topic %s is not copied: %s", key, value, topic, error)

    # ------------------------------------------------------------ pairs of offsets

    def _write_pairs(self) -> None:
        now = time.monotonic()
        if not self._pairs or (self._unwritten < self._config["offset.lag.max"] and now < self._pairs_at):
            return
        self._pairs_at = now + _SYNC_S
        if self._config["emit.offset-syncs.enabled"]:
            topic = policies.offset_syncs_topic(self._choice.alias, self._choice.separator)
            try:
                make_compacted(self._client, topic, self._config["offset-syncs.topic.replication.factor"])
                with contextlib.closing(self._client.producer({})) as producer:
                    for pair in self._pairs:
                        producer.send(topic, pair.value(), pair.key())
                    producer.flush()
            except LogdbError as error:
                logger.warning("pairs of offsets are written later: %s", error)
                return
        self._pairs.clear()
        self._unwritten = 0


class MirrorSourceConnector(SourceConnector):
    """Topics of another cluster, or of a Kafka; partitions are shared among the tasks."""

    task_class = MirrorSourceTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = MIRROR
    defaults = DEFAULTS
    prefixes = PREFIXES

    def start(self, properties: Properties) -> None:
        super().start(properties)
        self._config = MIRROR.parse(properties)
        self._choice = TopicChoice(self._config)
        self._found: list[TopicPartition] = []
        self._ended = threading.Event()
        wait_s = self._look()
        threading.Thread(target=self._watch, args=(wait_s,), name="mirror-topics", daemon=True).start()

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        count = min(max_tasks, len(self._found))
        parts = [self._found[number::count] for number in range(count)]
        return [{**self._properties, ASSIGNED: ",".join(f"{topic}-{number}" for topic, number in part)} for part in parts]

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        TopicChoice(config)
        policies.any_pattern(config["config.properties.exclude"], "config.properties.exclude")
        return place_fault(config)

    def alter_offsets(self, properties: Properties, offsets: Mapping[str, Any]) -> None:
        for offset in offsets.values():
            if offset is not None and (type(offset.get("offset")) is not int or offset["offset"] < 0):
                raise ConnectError('An offset of a mirror is {"offset": N}: the last record that is copied, 0 or more')

    def stop(self) -> None:
        self._ended.set()

    # ------------------------------------------------------------ topics of the source

    def _look(self) -> float:
        """Find the partitions that are mirrored; returns for how long this holds."""
        try:
            with contextlib.closing(open_cluster(source_client(self._properties))) as cluster:
                topics = cluster.topics()
        except RetriableError as error:
            logger.warning("the topics of the source are looked for again: %s", error)
            return _AGAIN_S
        self._found = sorted(
            TopicPartition(one.name, number) for one in topics if self._choice.is_mirrored(one.name) for number in range(one.partitions)
        )
        return float(self._config["refresh.topics.interval.seconds"])

    def _watch(self, wait_s: float) -> None:
        while not self._ended.wait(wait_s):
            before = self._found
            if before and not self._config["refresh.topics.enabled"]:
                return
            try:
                wait_s = self._look()
            except Exception as error:  # noqa: BLE001 -- the status of the connector tells it
                self.context.raise_error(error)
                return
            if self._found != before and not self._ended.is_set():
                self.context.request_task_reconfiguration()


def place_fault(config: Mapping[str, Any]) -> dict[str, str]:
    """What forbids to read the source."""
    try:
        check_limits(config["source.cluster.bootstrap.servers"])
    except ConfigError:
        raise
    except ConnectError as error:
        return {"source.cluster.bootstrap.servers": str(error)}
    return {}


def make_compacted(client: Client, topic: str, replication: int) -> None:
    """Create a topic for the last record of each key, unless it is there."""
    if not client.has_topic(topic):
        client.create_topic(topic, partitions=1, replication=client.possible_replication(replication), cleanup_policy="compact")


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _retriable(error: LogdbError) -> Exception:
    return RetriableError(f"The target does not answer: {error}") if error.retriable else error
