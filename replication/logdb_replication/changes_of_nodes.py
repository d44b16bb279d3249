"""What became of a cluster's nodes between two states: brokers, leaders, in-sync sets."""

from collections.abc import Iterator

from logdb.model import ClusterEvent, TopicPartition
from logdb_replication.controller.state import ClusterState


def changes_of_nodes(former: ClusterState, state: ClusterState) -> Iterator[ClusterEvent]:
    """Brokers first, then partitions by topic; of a topic that was created the leaders, of one that was deleted nothing."""
    for node in sorted(former.brokers.keys() | state.brokers.keys()):
        was, serves = (one is not None and not one.fenced for one in (former.brokers.get(node), state.brokers.get(node)))
        if was != serves:
            yield ClusterEvent("broker_joined" if serves else "broker_left", node)
    if state.topics is former.topics:
        return
    for name, topic in sorted(state.topics.items()):
        known = former.topics.get(name)
        if known is topic:
            continue
        before = known.partitions if known is not None and known.topic_id == topic.topic_id else ()
        for number, now in enumerate(topic.partitions):
            leader, in_sync = (before[number].leader, before[number].in_sync) if number < len(before) else (None, now.in_sync)
            what = TopicPartition(name, number), now.leader_epoch, now.in_sync
            if now.leader != leader:
                yield ClusterEvent("leader_changed", now.leader, *what)
            if set(now.in_sync) != set(in_sync):
                yield ClusterEvent("in_sync_changed", now.leader, *what)
