"""Which nodes have a partition: how an operator changes that, and looks at it, by the ``cluster.toml`` of any node.

    reassign  ──►  new replicas fetch  ──►  all of the target are in sync  ──►  the others go (``controller.elections.finished``)

Threading: each function makes its own connections.
"""

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from logdb.errors import LogdbError, UnknownPartition, UnknownTopic
from logdb.model import PartitionInfo, TopicPartition
from logdb.requests.nodes import PartitionState
from logdb_http_api.remote.connection import Security
from logdb_http_api.remote.session import nodes_session
from logdb_replication.administration import cluster_state, controllers
from logdb_replication.config import ClusterConfig
from logdb_replication.controller.client import ControllerClient
from logdb_replication.controller.commands import ElectPreferred, ElectUnclean, LimitReassignments, PreferLeaders
from logdb_replication.controller.elections import HandOverWait, is_electing
from logdb_replication.controller.machine import answered
from logdb_replication.controller.state import ClusterState, TopicState
from logdb_replication.controller.tls import node_tls
from logdb_replication.metadata import Propose, propose_reassignment
from logdb_replication.tokens import cluster_token

_TIMEOUT_MS = 3_000
_POLL_S = 0.1


def reassign(
    config_path: str, targets: Mapping[TopicPartition, Sequence[int]], *, bytes_per_s: int | None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Let partitions have other replicas; returns at once, with the replicas of before.

    Args:
        targets: The nodes of each, the preferred leader first; none: what is under way is cancelled.
        bytes_per_s: What a broker fetches at most for replicas that are being added, of all reassignments; None: any number.

    Raises:
        UnknownTopic, UnknownPartition, InvalidReassignment: Nothing was changed; unless the cluster has changed since it was looked at:
            then the partitions before it in the order of ``targets`` are reassigned.
        ControllerUnavailable: There is no quorum.
    """
    with controllers(config_path) as (_, client):
        state = cluster_state(client)
        before = {where: _partition(state, where)[1].original for where in targets}
        _propose_all(partial(answered, state), state, targets)  # all of them are checked before the first one is changed
        client.propose(LimitReassignments(bytes_per_s))
        _propose_all(client.propose, state, targets)
        return before


def _propose_all(propose: Propose, state: ClusterState, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    for where, nodes in targets.items():
        propose_reassignment(propose, _topic(state, where.topic), where.partition, tuple(nodes))


def assignments(config_path: str, topics: Collection[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
    """The nodes that each partition has, or will have; ``topics`` None: of all, internal ones too.  Raises UnknownTopic."""
    with controllers(config_path) as (_, client):
        state = cluster_state(client)
    return {where: one.assignment for where, one in ((where, _partition(state, where)[1]) for where in _partitions(state, topics))}


def describe(config_path: str, topics: Collection[str] | None = None, *, moving: bool = False) -> list[dict[str, Any]]:
    """Each partition as the controllers have it, and how far the logs of its replicas are.

    Args:
        moving: Those alone that are being reassigned.

    Returns:
        For each: topic, partition, leader, leader_epoch, replicas, in_sync, target, adding, removing; and ``logs``: for each node that
        answers, its start and end offset and its size; for one that is being added, how much is left.
    """
    with controllers(config_path) as (config, client):
        state = cluster_state(client)
        wanted = [where for where in _partitions(state, topics) if not moving or _partition(state, where)[1].target]
        nodes = {node for where in wanted for node in _partition(state, where)[1].replicas}
        logs = _logs(config, nodes, sorted({where.topic for where in wanted}))
    return [_described(state, where, logs) for where in wanted]


def _described(state: ClusterState, where: TopicPartition, logs: Mapping[int, Mapping[TopicPartition, PartitionInfo]]) -> dict[str, Any]:
    _, one = _partition(state, where)
    found = {node: known[where] for node, known in logs.items() if node in one.replicas and where in known}
    led = found.get(one.leader) if one.leader is not None else None
    described: dict[str, Any] = {}
    for node, log in sorted(found.items()):
        described[str(node)] = {"start_offset": log.start_offset, "end_offset": log.end_offset, "size_bytes": log.size_bytes}
        if led is not None and node in one.adding and node not in one.in_sync:
            left = {"offsets_left": led.end_offset - log.end_offset, "bytes_left": led.size_bytes - log.size_bytes}
            described[str(node)] |= {name: max(0, count) for name, count in left.items()}
    return {
        "topic": where.topic,
        "partition": where.partition,
        "leader": one.leader,
        "leader_epoch": one.leader_epoch,
        "replicas": list(one.replicas),
        "in_sync": list(one.in_sync),
        "target": list(one.target),
        "adding": list(one.adding),
        "removing": list(one.removing),
        "logs": described,
    }


def elect_unclean(config_path: str, where: TopicPartition, node: int, *, execute: bool) -> None:
    """Let a replica lead a partition without a leader, with what it has: what it lacks is lost.

    Args:
        execute: False: only raise what it would be refused for.

    Raises:
        UnknownTopic, UnknownPartition: There is no such partition.
        IneligibleReplica: The node has no replica, or is fenced.
    """
    with controllers(config_path) as (_, client):
        state = cluster_state(client)
        topic, partition = _partition(state, where)
        propose = client.propose if execute else partial(answered, state)
        propose(ElectUnclean(topic.name, topic.topic_id, where.partition, partition.leader_epoch, node))


def prefer_leaders(config_path: str, topic: str | None = None, number: int | None = None) -> dict[TopicPartition, tuple[int, ...]]:
    """Let partitions be led by their first replicas, where these are in sync.

    Args:
        topic: None: each partition of all topics.
        number: None: each partition of the topic.

    Returns:
        The partitions that have no leader, which stay as they are, with their in-sync sets.

    Raises:
        UnknownTopic, UnknownPartition: There is no such partition.
        ControllerUnavailable: There is no quorum.
    """
    with controllers(config_path) as (_, client):
        state = cluster_state(client)
        named = _partitions(state, None if topic is None else (topic,))
        if topic is not None and number is not None:
            named = [TopicPartition(topic, number)]
        wanted = {where: _partition(state, where) for where in named}
        _elect_preferred(client, state, wanted, is_all=topic is None)
    return {where: partition.in_sync for where, (_, partition) in wanted.items() if partition.leader is None}


def _elect_preferred(client: ControllerClient, state: ClusterState, wanted: Collection[TopicPartition], *, is_all: bool) -> None:
    """Let leaders hand over to the first replicas; those that do not in time are replaced at once."""
    if is_all:
        client.propose(PreferLeaders(in_order=True))
    for where in () if is_all else wanted:
        client.propose(_election(state, where, in_order=True))
    wait = HandOverWait(len(wanted), time.monotonic())
    while wait.left_s(len(left := _electing(state := cluster_state(client), wanted)), time.monotonic()):
        time.sleep(_POLL_S)
    for where in left:
        client.propose(_election(state, where))


def _electing(state: ClusterState, wanted: Collection[TopicPartition]) -> list[TopicPartition]:
    return [where for where in wanted if is_electing(state, where)]


def _election(state: ClusterState, where: TopicPartition, *, in_order: bool = False) -> ElectPreferred:
    topic, partition = _partition(state, where)
    return ElectPreferred(topic.name, topic.topic_id, where.partition, partition.leader_epoch, in_order)


def _partitions(state: ClusterState, topics: Collection[str] | None) -> list[TopicPartition]:
    names = sorted(state.topics) if topics is None else topics
    return [TopicPartition(name, number) for name in names for number in range(len(_topic(state, name).partitions))]


def _topic(state: ClusterState, name: str) -> TopicState:
    if (topic := state.topics.get(name)) is None:
        raise UnknownTopic(name, known=tuple(sorted(state.topics)))
    return topic


def _partition(state: ClusterState, where: TopicPartition) -> tuple[TopicState, PartitionState]:
    topic = _topic(state, where.topic)
    if not 0 <= where.partition < len(topic.partitions):
        raise UnknownPartition(*where, len(topic.partitions))
    return topic, topic.partitions[where.partition]


def _logs(config: ClusterConfig, nodes: Collection[int], topics: Sequence[str]) -> dict[int, dict[TopicPartition, PartitionInfo]]:
    """The logs of each of the nodes that answers."""
    security, found = Security(token=cluster_token(config.secret, config.cluster), context=node_tls(config).client), {}
    for node in (one for one in config.nodes if one.number in nodes):
        with contextlib.suppress(LogdbError), contextlib.closing(nodes_session([node.http], security, timeout_ms=_TIMEOUT_MS)) as session:
            found[node.number] = {
                TopicPartition(name, one.partition): one for name in topics for one in session.describe_topic(name).partitions
            }
    return found
