"""Three brokers over one store, whose metadata is a double: it says who leads each partition.

The store, the brokers and their doors are real.  All nodes have the same records, as after a replication without delay.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from logdb.broker.broker import Broker
from logdb.client.serving import make_server
from logdb.coordinator.transactions import TransactionConfig
from logdb.errors import InvalidReplicationFactor, NotLeaderOrFollower
from logdb.io import IO
from logdb.log.log import Log
from logdb.model import BY_DEFAULT, TopicPartition
from logdb.requests.nodes import BrokerInfo, PartitionState, QuorumInfo, QuorumVoter
from logdb.requests.replicas import DescribeQuorum
from logdb.requests.topic_changes import CheckNewTopic, CreateTopic
from logdb.serving.server import Server
from logdb.store.protocols import SecurityDocument
from logdb.store.security_file import SecurityFile
from logdb.store.store import Store
from logdb_http_api.remote.connection import Security
from logdb_http_api.remote.session import nodes_session
from support.ports import free_port

NODES = (1, 2, 3)
TOKEN = "the nodes' own"


class Cluster:
    """What the nodes know in common: where they are, and who leads.

    ``leaders``: of the partitions that do not have their first replica for a leader; None: none leads.
    ``quorum``: its voters, for whoever asks.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.addresses: dict[int, dict[str, tuple[str, int]]] = {node: {} for node in NODES}
        self.fenced: set[int] = set()
        self.leaders: dict[TopicPartition, tuple[int | None, int]] = {}
        self.factors: dict[str, int] = {}
        self.quorum = QuorumInfo(3, 7, 40, tuple(QuorumVoter(node, 1, 40, 5, ("127.0.0.1", 9000 + node)) for node in NODES))
        self._lock = threading.Lock()

    def lead(self, topic: str, partition: int, node: int | None) -> int:
        """Let another node lead; returns the leader epoch."""
        with self._lock:
            epoch = self.state(topic, partition).leader_epoch + 1
            self.leaders[TopicPartition(topic, partition)] = (node, epoch)
            return epoch

    def state(self, topic: str, partition: int) -> PartitionState:
        replicas = tuple((partition + step) % len(NODES) + 1 for step in range(self.factors.get(topic, len(NODES))))
        leader, epoch = self.leaders.get(
            TopicPartition(topic, partition), (replicas[0], self.store.open_log(topic, partition).leader_epoch)
        )
        return PartitionState(leader, epoch, replicas, tuple(one for one in replicas if one not in self.fenced), epoch)


class ClusterMetadata:
    """``store.protocols.Metadata`` of one node."""

    default_partition_count, default_replication_factor, controller_id = 2 * len(NODES), len(NODES), 3

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster, self.node_id = cluster, node_id

    def brokers(self) -> tuple[BrokerInfo, ...]:
        cluster = self._cluster
        return tuple(BrokerInfo(node, cluster.addresses[node], f"rack-{node}", node in cluster.fenced) for node in NODES)

    def partition_state(self, topic: str, partition: int) -> PartitionState:
        return self._cluster.state(topic, partition)

    def submit(self, request: Any, **caller: Any) -> Any:
        if isinstance(request, DescribeQuorum):
            return self._cluster.quorum
        if isinstance(request, CreateTopic | CheckNewTopic):
            factor = self._checked(request.replication_factor)
            count = self.default_partition_count if request.partitions == BY_DEFAULT else request.partitions
            request = replace(request, partitions=count, replication_factor=None)
        answer = self._cluster.store.submit(request, **caller)
        if isinstance(request, CreateTopic):
            self._cluster.factors[request.name] = factor
        return answer

    def _checked(self, factor: int | None) -> int:
        if factor in (None, BY_DEFAULT):
            return len(NODES)
        if not 1 <= factor <= len(NODES):
            raise InvalidReplicationFactor(factor, len(NODES))
        return factor

    def __getattr__(self, name: str) -> Any:
        """The rest is the store's: every node has all of it."""
        return getattr(self._cluster.store, name)


class NodeStorage:
    """``store.protocols.Storage`` of one node: the logs that it leads."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster, self._node_id = cluster, node_id

    def open_log(self, topic: str, partition: int = 0) -> Log:
        log = self._cluster.store.open_log(topic, partition)
        state = self._cluster.state(topic, partition)
        if state.leader != self._node_id:
            raise NotLeaderOrFollower(topic, partition, state.leader, state.leader_epoch)
        return log

    @property
    def open_logs(self) -> dict[TopicPartition, Log]:
        logs = dict(self._cluster.store.open_logs)
        return {where: log for where, log in logs.items() if self._cluster.state(*where).leader == self._node_id}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster.store, name)


class Node(NamedTuple):
    """One node: its broker, and where its doors are."""

    broker: Broker
    server: Server
    url: str
    kafka: str


class Clustered(NamedTuple):
    """What a test has in hand."""

    cluster: Cluster
    nodes: dict[int, Node]

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]


documents: dict[str, SecurityDocument] = {}
"""The users, tokens, ACLs and quotas of the clusters that run, by the URLs of their nodes."""


@contextlib.contextmanager
def clustered(path: Path, opened: Mapping[str, Any] | None = None, **options: Any) -> Iterator[Clustered]:
    """Three nodes, each with an HTTP and a Kafka door on the loopback.

    Args:
        opened: How to open the store.
        options: See ``logdb.serve``.
    """
    with contextlib.ExitStack() as stack:
        store = Store.open(path, **(opened or {}))
        stack.callback(store.close)
        cluster, nodes = Cluster(store), {}
        ports = [free_port() for _ in NODES]
        for number, port in zip(NODES, ports, strict=True):
            others = nodes_session([f"http://127.0.0.1:{port}" for port in ports], Security(token=TOKEN))
            stack.callback(others.close)
            transactions = TransactionConfig(defer_additions=False, abort_on_recovery=False)
            broker = Broker(NodeStorage(cluster, number), ClusterMetadata(cluster, number), transaction_config=transactions, nodes=others)
            stack.callback(broker.close)
            server = make_server(broker, {"http": f"127.0.0.1:{port}", "kafka": "127.0.0.1:0"}, cluster_token=TOKEN, **options).start()
            stack.callback(server.close)
            url, kafka = server.addresses
            documents[url] = SecurityFile(IO(), str(path))
            stack.callback(documents.pop, url)
            for door, address in (("http", url.rpartition("/")[2]), ("kafka", kafka)):
                host, _, at = address.rpartition(":")
                cluster.addresses[number][door] = (host, int(at))
            nodes[number] = Node(broker, server, url, kafka)
        yield Clustered(cluster, nodes)
