"""A transaction's partitions that this node leads, while its replication, a double, says what has become of them."""

from types import SimpleNamespace

import pytest

from logdb import errors
from logdb.broker.cluster_peers import ClusterPeers
from logdb.coordinator.effects import WriteMarkers
from logdb.model import ProducerIdAndEpoch, TopicPartition

HERE, DELETED = TopicPartition("here", 0), TopicPartition("deleted", 0)


class Replication:
    """Leads all partitions but the deleted ones; ``committed`` are those that were waited for."""

    def __init__(self, *deleted, refusal=None):
        self.deleted, self.refusal, self.committed = deleted, refusal, []

    def leads(self, *where):
        if where in self.deleted:
            raise errors.UnknownTopic(where[0])
        if self.refusal is not None:
            raise self.refusal
        log = SimpleNamespace(end_offset=1, commit_to=lambda *_, **__: self.committed.append(where))
        return SimpleNamespace(log=log, leader_epoch=0)


def markers(*partitions):
    return WriteMarkers("tx", ProducerIdAndEpoch(1, 1), frozenset(partitions), True, 0, 0)


def peers(replication, written):
    local = SimpleNamespace(write_markers=lambda markers: written.append(markers.partitions))
    metadata = SimpleNamespace(node_id=1, partition_state=lambda *_: SimpleNamespace(leader=1))
    return ClusterPeers(local, replication, metadata, SimpleNamespace(ask=lambda requests, places: {}))


def test_a_partition_that_was_deleted_behind_the_decision_is_done():
    """An error would reach the client as one after which it aborts, and begins again: what the other partitions have, twice."""
    written = []
    replication = Replication(DELETED)
    peers(replication, written).write_markers(markers(HERE, DELETED))
    assert written == [{HERE, DELETED}] and replication.committed == [HERE]


def test_one_that_another_node_leads_by_now_is_not():
    written = []
    with pytest.raises(errors.NotLeaderOrFollower):
        peers(Replication(refusal=errors.NotLeaderOrFollower("here", 0, 2, 1)), written).write_markers(markers(HERE))
    assert written == []
