"""Checkpoints: committed offsets of the source's groups, translated; and heartbeats.

A committed offset is translated by the last pair of offsets before it: the record after the pair's, or the pair's own.  Records between
that pair and the offset are read again by a group that changes over; none is left out.

Threading: the thread of the task.
"""

import bisect
import contextlib
import logging
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from logdb import LogdbError, OffsetAndMetadata, TopicPartition
from logdb.errors import UnknownTopic
from logdb_connect.client import Client, now_ms
from logdb_connect.config import ConfigDef
from logdb_connect.connectors.mirror import policies
from logdb_connect.connectors.mirror.clusters import Cluster, open_cluster
from logdb_connect.connectors.mirror.settings import CHECKPOINTS, DEFAULTS, HEARTBEATS, PREFIXES, source_client
from logdb_connect.connectors.mirror.source import TopicChoice, make_compacted, place_fault
from logdb_connect.connectors.mirror.wire import Checkpoint, OffsetSync, heartbeat
from logdb_connect.data import BYTES, SourceRecord, SourceRecords
from logdb_connect.errors import ConnectError, RetriableError
from logdb_connect.plugin import Properties, SourceConnector, SourceTask

logger = logging.getLogger(__name__)

_PAIRS_MAX = 1_000
_WAIT_S = 0.5


class OffsetPairs:
    """The pairs of offsets of each partition of the source, in order; of many, each second is dropped, except the last."""

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, list[tuple[int, int]]] = {}

    def add(self, pair: OffsetSync) -> None:
        known = self._pairs.setdefault(TopicPartition(pair.topic, pair.partition), [])
        if known and (pair.upstream < known[-1][0] or pair.downstream < known[-1][1]):
            known.clear()  # the topic was deleted and created again, here or there
        known.append((pair.upstream, pair.downstream))
        if len(known) > _PAIRS_MAX:
            del known[-2::-2]

    def translated(self, partition: TopicPartition, offset: int) -> int | None:
        """Where a reader that comes to ``offset`` of the source continues at the target; None: no pair tells it."""
        known = self._pairs.get(partition, [])
        at = bisect.bisect_right(known, (offset, 1 << 63)) - 1
        if at < 0:
            return None
        upstream, downstream = known[at]
        return downstream if upstream == offset else downstream + 1


class MirrorCheckpointTask(SourceTask):
    """Translates the offsets of groups, at intervals."""

    _cluster: Cluster | None = None
    _read_to: int | None = None

    def start(self, properties: Properties) -> None:
        self._config = config = CHECKPOINTS.parse(properties)
        self._choice = TopicChoice(config)
        self._client: Client = self.context.client
        self._properties = source_client(properties)
        wanted = policies.any_pattern(config["groups"], "groups")
        self._groups = _Groups(wanted, policies.any_pattern(config["groups.exclude"], "groups.exclude"))
        self._syncs = policies.offset_syncs_topic(self._choice.alias, self._choice.separator)
        self._checkpoints = policies.checkpoints_topic(self._choice.alias, self._choice.separator)
        self._pairs, self._told = OffsetPairs(), dict[tuple[str, TopicPartition], Checkpoint]()
        self._emit_at = self._commit_at = 0.0

    def poll(self) -> SourceRecords:
        now = time.monotonic()
        emits = self._config["emit.checkpoints.enabled"] and now >= self._emit_at
        commits = self._config["sync.group.offsets.enabled"] and now >= self._commit_at
        if not emits and not commits:
            self.context.wait(_WAIT_S)
            return None
        try:
            self._read_pairs()
            found = self._translated()
            if commits:
                self._commit(found)
        except LogdbError as error:
            self._close()
            if error.retriable:
                raise RetriableError(str(error)) from error
            raise
        except RetriableError:
            self._close()
            raise
        if commits:
            self._commit_at = now + self._config["sync.group.offsets.interval.seconds"]
        if not emits:
            return None
        self._emit_at = now + self._config["emit.checkpoints.interval.seconds"]
        return self._records(found)

    def stop(self) -> None:
        self._close()

    def _read_pairs(self) -> None:
        """Those that were written since the last call."""
        if self._read_to is None:
            make_compacted(self._client, self._syncs, self._config["checkpoints.topic.replication.factor"])
            self._read_to = self._client.topic_state(self._syncs).partitions[0].start_offset
        end = self._client.committed_end(self._syncs, 0)
        for one in self._client.read(self._syncs, 0, self._read_to, end) if self._read_to < end else ():
            try:
                self._pairs.add(OffsetSync.of(one.key, one.value))
            except (ValueError, TypeError, struct.error) as error:
                logger.warning("record %d of %s is no pair of offsets: %s", one.offset, self._syncs, error)
        self._read_to = end

    def _translated(self) -> list[Checkpoint]:
        if self._cluster is None:
            self._cluster = open_cluster(self._properties)
        found = []
        for group, offsets in self._cluster.committed(self._groups).items():
            for at, (offset, _, metadata) in offsets.items():
                if self._choice.is_mirrored(at.topic) and (here := self._pairs.translated(at, offset)) is not None:
                    found.append(Checkpoint(group, self._choice.renamed(at.topic), at.partition, offset, here, metadata))
        return found

    def _records(self, found: Sequence[Checkpoint]) -> list[SourceRecord] | None:
        """Those that have changed."""
        news = [one for one in found if self._told.get((one.group, TopicPartition(one.topic, one.partition))) != one]
        if not news:
            return None
        make_compacted(self._client, self._checkpoints, self._config["checkpoints.topic.replication.factor"])
        self._told |= {(one.group, TopicPartition(one.topic, one.partition)): one for one in news}
        return [
            SourceRecord(
                source_partition={"cluster": self._choice.alias, "group": one.group, "topic": one.topic, "partition": one.partition},
                source_offset={"offset": one.upstream},
                topic=self._checkpoints,
                partition=0,
                key=one.key(),
                key_schema=BYTES,
                value=one.value(),
                value_schema=BYTES,
            )
            for one in news
        ]

    def _commit(self, found: Sequence[Checkpoint]) -> None:
        """Commit for groups that have no members here; offsets go forward only."""
        groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for one in found:
            groups.setdefault(one.group, {})[TopicPartition(one.topic, one.partition)] = OffsetAndMetadata(
                one.downstream, metadata=one.metadata
            )
        for group, offsets in groups.items():
            with contextlib.suppress(UnknownTopic):  # nothing of it is mirrored yet
                if self._client.has_members(group):
                    continue
                known = self._client.committed(group, list(offsets))
                if news := {at: to for at, to in offsets.items() if at not in known or known[at].offset < to.offset}:
                    self._client.commit_for(group, news)

    def _close(self) -> None:
        cluster, self._cluster, self._read_to = self._cluster, None, None
        if cluster is not None:
            with contextlib.suppress(LogdbError, ConnectError):
                cluster.close()
        self._pairs = OffsetPairs()


class _Groups:
    """The groups that one pattern matches and another does not."""

    def __init__(self, wanted: Any, excluded: Any) -> None:
        self._wanted, self._excluded = wanted, excluded

    def fullmatch(self, name: str) -> bool:
        return bool(self._wanted.fullmatch(name)) and not self._excluded.fullmatch(name)


class MirrorCheckpointConnector(SourceConnector):
    """Committed offsets of groups of another cluster, translated for the topics that a mirror makes; one task."""

    task_class = MirrorCheckpointTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = CHECKPOINTS
    defaults = DEFAULTS
    prefixes = PREFIXES

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties]

    def check(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        TopicChoice(config)
        for name in ("groups", "groups.exclude"):
            policies.any_pattern(config[name], name)
        return place_fault(config)


class MirrorHeartbeatTask(SourceTask):
    """Writes a heartbeat, at intervals."""

    def start(self, properties: Properties) -> None:
        self._config = HEARTBEATS.parse(properties)
        self._at = 0.0

    def poll(self) -> SourceRecords:
        if (wait_s := self._at - time.monotonic()) > 0:
            self.context.wait(min(wait_s, _WAIT_S))
            return None
        self._at = time.monotonic() + self._config["emit.heartbeats.interval.seconds"]
        source, target, now = self._config["source.cluster.alias"], self._config["target.cluster.alias"], now_ms()
        key, value = heartbeat(source, target, now)
        make_compacted(self.context.client, policies.HEARTBEATS, self._config["heartbeats.topic.replication.factor"])
        return [
            SourceRecord(
                source_partition={"sourceClusterAlias": source, "targetClusterAlias": target},
                source_offset={"offset": now},
                topic=policies.HEARTBEATS,
                partition=0,
                key=key,
                key_schema=BYTES,
                value=value,
                value_schema=BYTES,
                timestamp_ms=now,
            )
        ]


class MirrorHeartbeatConnector(SourceConnector):
    """Heartbeats: a mirror of the worker's database takes them along, so that its delay can be seen; one task."""

    task_class = MirrorHeartbeatTask
    version = "1.0"
    config_def: ClassVar[ConfigDef] = HEARTBEATS
    defaults = DEFAULTS
    prefixes = PREFIXES

    def task_configs(self, max_tasks: int) -> Sequence[Properties]:
        return [self._properties] if HEARTBEATS.parse(self._properties)["emit.heartbeats.enabled"] else []
