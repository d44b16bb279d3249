"""The node of a cluster that coordinates a group or a transactional id."""

from logdb.coordinator.records import partition_of
from logdb.model import TopicPartition
from logdb.requests.nodes import ClusterNodes


def coordinator_id(nodes: ClusterNodes, internal_topic: str, name: str) -> int:
    """Its id, 0 without a cluster; -1: no node coordinates it now, or none may be seen.

    Args:
        internal_topic: The topic that keeps ``name``.
    """
    if not nodes.serving:
        return 0
    count = sum(where.topic == internal_topic for where in nodes.partitions)
    leader = nodes.partitions[TopicPartition(internal_topic, partition_of(name, count))].leader if count else None
    return -1 if leader is None else leader
