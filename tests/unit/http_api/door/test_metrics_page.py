"""The gauges of replicas in sync, as the leader of a partition counts them."""

import pytest

from logdb.access.session import Measurements
from logdb.broker.metrics import Counts, Gauges, NodeGauges
from logdb.disk import SYNC_BOUNDS_S, SyncTimes
from logdb.requests.nodes import BrokerInfo, PartitionState
from logdb_http_api.door.metrics_page import page


@pytest.mark.parametrize(
    ("alive", "in_sync", "count_min", "is_under_min", "is_under_replicated"),
    [
        ((1, 2, 3), (1, 2, 3), 2, 0, 0),
        ((1, 2), (1, 2), 2, 0, 1),
        ((1, 2), (1, 2, 3), 3, 1, 1),  # the dead one stays in the set: too few would be left
        ((1,), (1, 2), 2, 1, 1),
    ],
)
def test_a_replica_on_a_dead_broker_is_not_in_sync(alive, in_sync, count_min, is_under_min, is_under_replicated):
    brokers = tuple(BrokerInfo(node, {}) for node in alive)
    node = NodeGauges(1, 1, 2, SyncTimes((0,) * (len(SYNC_BOUNDS_S) + 1), 0.0))
    gauges = Gauges(brokers, {"t": (PartitionState(1, 0, (1, 2, 3), in_sync),)}, {}, (), {"t": count_min}, node)
    text = page(Measurements(Counts({}, 0, {}, 0, 0, 0), gauges), "127.0.0.1:80").splitlines()
    where = '{topic="t",partition="0"}'
    assert f"kafka_topic_partition_under_min_isr{where} {is_under_min}" in text
    assert f"kafka_topic_partition_under_replicated_partition{where} {is_under_replicated}" in text
    assert f"kafka_topic_partition_in_sync_replica{where} {len(in_sync)}" in text
