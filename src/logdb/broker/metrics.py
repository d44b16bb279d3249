"""Metrics as plain data: counters of topics and calls, and gauges of a broker, read on request.

Threading: any number of threads; counters are exact.
"""

import contextlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from logdb.disk import SyncTimes, sync_times
from logdb.errors import UnknownGroup, UnknownPartition, UnknownTopic
from logdb.model import PartitionInfo, TopicPartition, in_sync_count_min, positions_of
from logdb.requests.nodes import BrokerInfo, PartitionState
from logdb.requests.topics import DescribeAtRest
from logdb.threads import renewed

if TYPE_CHECKING:
    from logdb.broker.broker import Broker


class TopicCounts(NamedTuple):
    """Records written to and read from a topic through doors since the server was started.

    ``bytes_in`` and ``bytes_out`` count stored record batches, or keys and values where records came one by one; ``messages_in``
    counts offsets.
    """

    messages_in: int
    bytes_in: int
    bytes_out: int


class Counts(NamedTuple):
    """All counters; ``calls`` by the name of the session's, ``refusals`` those that were denied."""

    topics: Mapping[str, TopicCounts]
    requests: int
    calls: Mapping[str, int]
    refusals: int
    failed_authentications: int
    throttled_ms: int


class GroupGauges(NamedTuple):
    """One group.  ``lag`` has no entry for a deleted partition, and none for one that this node has no replica of."""

    group_id: str
    state: str
    member_count: int
    offsets: Mapping[TopicPartition, int]
    lag: Mapping[TopicPartition, int]


class NodeGauges(NamedTuple):
    """This node.  ``quorum_leader``: the node whose controller leads the quorum, as far as this one knows."""

    quorum_leader: int | None
    disk_free_bytes: int
    disk_size_bytes: int
    syncs: SyncTimes


class Gauges(NamedTuple):
    """The gauges of a broker: brokers that are alive, partitions by topic (also internal ones), groups that it coordinates.

    ``replicas``: the partitions that this node has a replica of; of the others it knows no offsets.  ``in_sync_min``: by topic.
    """

    brokers: tuple[BrokerInfo, ...]
    topics: Mapping[str, tuple[PartitionState, ...]]
    replicas: Mapping[str, tuple[PartitionInfo, ...]]
    groups: tuple[GroupGauges, ...]
    in_sync_min: Mapping[str, int]
    node: NodeGauges


class Metrics:
    """The counters of one access."""

    def __init__(self) -> None:
        self._lock = renewed(threading.Lock())
        self._topics: dict[str, list[int]] = {}
        self._calls: dict[str, int] = {}
        self._requests = self._refusals = self._failed_authentications = self._throttled_ms = 0

    def request(self) -> None:
        with self._lock:
            self._requests += 1

    def called(self, *names: str) -> None:
        with self._lock:
            for name in names:
                self._calls[name] = self._calls.get(name, 0) + 1

    def appended(self, topic: str, record_count: int, size_bytes: int) -> None:
        with self._lock:
            counts = self._topics.get(topic) or self._topics.setdefault(topic, [0, 0, 0])
            counts[0] += record_count
            counts[1] += size_bytes

    def fetched(self, topic: str, size_bytes: int) -> None:
        with self._lock:
            counts = self._topics.get(topic) or self._topics.setdefault(topic, [0, 0, 0])
            counts[2] += size_bytes

    def refused(self) -> None:
        with self._lock:
            self._refusals += 1

    def failed_authentication(self) -> None:
        with self._lock:
            self._failed_authentications += 1

    def throttled(self, delay_ms: int) -> None:
        with self._lock:
            self._throttled_ms += delay_ms

    def forget(self, topic: str) -> None:
        """A topic was deleted."""
        with self._lock:
            self._topics.pop(topic, None)

    def counts(self) -> Counts:
        with self._lock:
            topics = {name: TopicCounts(*counts) for name, counts in self._topics.items()}
            return Counts(topics, self._requests, dict(self._calls), self._refusals, self._failed_authentications, self._throttled_ms)


def gauges(broker: "Broker") -> Gauges:
    """Read all topics and groups; those that are deleted meanwhile are left out."""
    topics: dict[str, tuple[PartitionState, ...]] = {}
    replicas: dict[str, tuple[PartitionInfo, ...]] = {}
    in_sync_min: dict[str, int] = {}
    for name in broker.metadata.topic_names():
        with contextlib.suppress(UnknownTopic, UnknownPartition):
            info = broker.submit(DescribeAtRest(name))
            topics[name] = tuple(broker.placement(info))
            in_sync_min[name] = in_sync_count_min(info.config)
            replicas[name] = tuple(one for one in info.partitions if broker.metadata.node_id in one.replicas)
    ends = {TopicPartition(name, one.partition): one.end_offset for name, partitions in replicas.items() for one in partitions}
    groups = []
    for summary in broker.groups():
        with contextlib.suppress(UnknownGroup):
            groups.append(_group(broker, summary.group_id, ends))
    brokers = tuple(one for one in broker.metadata.brokers() if not one.fenced)
    return Gauges(brokers, topics, replicas, tuple(groups), in_sync_min, _node(broker))


def _node(broker: "Broker") -> NodeGauges:
    io, path = broker.io, broker.directory
    return NodeGauges(broker.metadata.controller_id, io.free_bytes(path), io.file_system_bytes(path), sync_times())


def _group(broker: "Broker", group_id: str, ends: Mapping[TopicPartition, int]) -> GroupGauges:
    """One group; ``ends``: of the replicas of this node, also of those that another node leads."""
    info = broker.describe_group(group_id)
    offsets = {partition: committed.offset for partition, committed in positions_of(broker.fetch_offsets(group_id)).items()}
    lag = {partition: max(0, ends[partition] - offset) for partition, offset in offsets.items() if partition in ends}
    return GroupGauges(group_id, info.state, len(info.members), offsets, lag)
