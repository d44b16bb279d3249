"""``/metrics`` for Prometheus, with the names and labels of kafka_exporter, so that its dashboards work.

Source: danielqsj/kafka_exporter; ``kafka_server_…`` and ``kafka_log_log_size`` are Kafka's own beans as the JMX exporter names them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from aiohttp import web

from logdb.access.session import Measurements
from logdb.broker.metrics import Counts, GroupGauges, NodeGauges, TopicCounts
from logdb.disk import SYNC_BOUNDS_S, SyncTimes
from logdb.model import PartitionInfo, TopicPartition
from logdb.requests.nodes import PartitionState
from logdb_http_api.door.request import Request
from logdb_http_api.door.routing import Routes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample: TypeAlias = tuple[Mapping[str, object], float]
routes = Routes()
_SUFFIX = ""  # no name of a label: what the name of a histogram's sample ends with


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


@routes.get(
    "/metrics",
    "Offsets, lags and counters for Prometheus, with the names of kafka_exporter",
    needs=("Describe Cluster",),
    gives={"text/plain": str},
)
async def metrics(request: Request) -> web.StreamResponse:
    """Prometheus' text format 0.0.4.  Counters begin when the database is opened."""
    text = await request.call(lambda: page(request.session.metrics(), request.address()))
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


def page(measured: Measurements, address: str) -> str:
    """The whole page."""
    return "".join(line for family in _families(measured, address) for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        said = ",".join(f'{name}="{_escaped(str(label))}"' for name, label in labels.items() if name != _SUFFIX)
        name = f"{family.name}{labels.get(_SUFFIX, '')}"
        yield f"{name}{{{said}}} {value}\n" if said else f"{name} {value}\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _families(measured: Measurements, address: str) -> Iterator[Family]:
    brokers, topics, replicas, groups, in_sync_min, node = measured.gauges
    counts = measured.counts
    yield Family("kafka_brokers", "gauge", "Number of brokers.", [({}, len(brokers))])
    yield Family(
        "kafka_broker_info", "gauge", "A broker.", [({"id": one.node_id, "address": one.address("http") or address}, 1) for one in brokers]
    )
    sizes: Iterable[Sample] = [({"topic": topic}, len(partitions)) for topic, partitions in topics.items()]
    yield Family("kafka_topic_partitions", "gauge", "Number of partitions of a topic.", sizes)
    alive = frozenset(one.node_id for one in brokers)
    yield from _of_partitions(topics, alive)
    yield _under_min_isr(topics, in_sync_min, alive)
    yield from _of_replicas(replicas)
    yield from _of_groups(groups)
    yield from _of_traffic(topics, counts.topics)
    yield from _of_requests(counts)
    yield from _of_node(node)


def _in_sync_count(state: PartitionState, alive: frozenset[int]) -> int:
    """Replicas in sync on brokers that are alive, as their leader counts them: a dead one stays in the set if too few are left."""
    return sum(node in alive for node in state.in_sync)


def _under_min_isr(topics: Mapping[str, tuple[PartitionState, ...]], in_sync_min: Mapping[str, int], alive: frozenset[int]) -> Family:
    samples: Iterable[Sample] = [
        ({"topic": topic, "partition": at}, int(_in_sync_count(state, alive) < min(in_sync_min[topic], len(state.replicas))))
        for topic, states in topics.items()
        for at, state in enumerate(states)
    ]
    said = "1 if a partition has fewer in-sync replicas than min.insync.replicas."
    return Family("kafka_topic_partition_under_min_isr", "gauge", said, samples)


def _of_node(node: NodeGauges) -> Iterator[Family]:
    leader = -1 if node.quorum_leader is None else node.quorum_leader
    yield Family("logdb_quorum_leader", "gauge", "The node whose controller leads the quorum, -1 if none is known.", [({}, leader)])
    yield Family("logdb_disk_free_bytes", "gauge", "Free bytes of the disk of the data directory.", [({}, node.disk_free_bytes)])
    yield Family("logdb_disk_size_bytes", "gauge", "Size of the disk of the data directory.", [({}, node.disk_size_bytes)])
    yield Family("logdb_sync_seconds", "histogram", "How long a sync of a file or directory took.", _histogram(node.syncs))


def _histogram(times: SyncTimes) -> Iterator[Sample]:
    """The samples of a histogram, each with the end of its name."""
    total = 0
    for bound, count in zip((*SYNC_BOUNDS_S, "+Inf"), times.counts, strict=True):
        total += count
        yield {_SUFFIX: "_bucket", "le": bound}, total
    yield {_SUFFIX: "_sum"}, times.seconds
    yield {_SUFFIX: "_count"}, total


def _of_partitions(topics: Mapping[str, tuple[PartitionState, ...]], alive: frozenset[int]) -> Iterator[Family]:
    numbers: tuple[tuple[str, str, Callable[[PartitionState], int]], ...] = (
        ("in_sync_replica", "Number of in-sync replicas of a partition.", lambda partition: len(partition.in_sync)),
        ("leader", "The broker that leads a partition.", lambda partition: -1 if partition.leader is None else partition.leader),
        (
            "leader_is_preferred",
            "1 if a partition is led by its preferred broker.",
            lambda partition: int(partition.is_led_as_preferred),
        ),
        ("replicas", "Number of replicas of a partition.", lambda partition: len(partition.replicas)),
        (
            "under_replicated_partition",
            "1 if a partition lacks in-sync replicas.",
            lambda partition: int(_in_sync_count(partition, alive) < len(partition.replicas)),
        ),
    )
    placed = [({"topic": topic, "partition": at}, state) for topic, states in topics.items() for at, state in enumerate(states)]
    for name, said, number in numbers:
        yield Family(f"kafka_topic_partition_{name}", "gauge", said, [(labels, number(state)) for labels, state in placed])


def _of_replicas(replicas: Mapping[str, tuple[PartitionInfo, ...]]) -> Iterator[Family]:
    numbers: tuple[tuple[str, str, Callable[[PartitionInfo], int]], ...] = (
        ("topic_partition_current_offset", "The end offset of a partition.", lambda partition: partition.end_offset),
        ("topic_partition_oldest_offset", "The start offset of a partition.", lambda partition: partition.start_offset),
        ("log_log_size", "Bytes of a partition's segments.", lambda partition: partition.size_bytes),
    )
    found = [({"topic": topic, "partition": one.partition}, one) for topic, partitions in replicas.items() for one in partitions]
    for name, said, number in numbers:
        yield Family(f"kafka_{name}", "gauge", said, [(labels, number(one)) for labels, one in found])


def _of_groups(groups: Iterable[GroupGauges]) -> Iterator[Family]:
    groups = tuple(groups)
    for name, numbers, said in (
        ("current_offset", [(group, group.offsets) for group in groups], "The offset that a group has committed of a partition"),
        ("lag", [(group, group.lag) for group in groups], "How far a group is behind the end of a partition"),
    ):
        each = [
            ({"consumergroup": group.group_id, "topic": partition.topic, "partition": partition.partition}, number)
            for group, by_partition in numbers
            for partition, number in by_partition.items()
        ]
        sums = [
            ({"consumergroup": group.group_id, "topic": topic}, number)
            for group, by_partition in numbers
            for topic, number in _by_topic(by_partition).items()
            if all(partition in by_partition for partition in group.offsets if partition.topic == topic)
        ]
        yield Family(f"kafka_consumergroup_{name}", "gauge", f"{said}.", each)
        yield Family(f"kafka_consumergroup_{name}_sum", "gauge", f"{said}, over all partitions of a topic.", sums)
    members = [({"consumergroup": group.group_id}, group.member_count) for group in groups]
    yield Family("kafka_consumergroup_members", "gauge", "Number of members of a group.", members)


def _by_topic(by_partition: Mapping[TopicPartition, int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for partition, number in by_partition.items():
        sums[partition.topic] = sums.get(partition.topic, 0) + number
    return sums


def _of_traffic(topics: Iterable[str], counts: Mapping[str, TopicCounts]) -> Iterator[Family]:
    """The counters of all existing topics: a topic without records has a rate of 0, not an absent one."""
    none = TopicCounts(0, 0, 0)
    for field, name, said in (
        ("messages_in", "messagesin", "Records that were appended to a topic through servers."),
        ("bytes_in", "bytesin", "Bytes of record batches that were appended to a topic through servers."),
        ("bytes_out", "bytesout", "Bytes of record batches that were read from a topic through servers."),
    ):
        samples = [({"topic": topic}, getattr(counts.get(topic, none), field)) for topic in topics]
        yield Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", said, samples)


def _of_requests(counts: Counts) -> Iterator[Family]:
    for name, said, number in (
        ("requests", "Requests of clients.", counts.requests),
        ("authentication_failures", "Requests and logins with wrong or missing credentials.", counts.failed_authentications),
        ("authorization_failures", "Operations that a principal was denied.", counts.refusals),
        ("throttled_seconds", "How long answers were delayed by quotas.", counts.throttled_ms / 1000),
    ):
        yield Family(f"logdb_{name}_total", "counter", said, [({}, number)])
    calls = [({"call": name}, number) for name, number in sorted(counts.calls.items())]
    yield Family("logdb_calls_total", "counter", "Calls that requests led to: one request may have several.", calls)
