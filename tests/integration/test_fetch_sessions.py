"""What a follower's session of fetches names and is answered, by frames on connections of its own (``replica_session``)."""

import time

import pytest

from logdb_http_api.remote.connection import Security
from logdb_kafka_api.errors import Code
from logdb_replication.controller import commands
from logdb_replication.replica.manager import ReplicaManager
from logdb_replication.replica.peer import HttpPeer, fetch_request
from support.replicas import TOKEN, Replicas, eventually

COUNT = 3


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path) as cluster:
        yield cluster


class Following:
    """A connection of one of the followers of all partitions of one leader; its own replicas have ended."""

    def __init__(self, cluster, leader, node):
        self.cluster, self.leader, self.node, self.epoch = cluster, leader, node, 0
        self.topic_id = cluster.controller.state.topics["t"].topic_id
        self.peer = HttpPeer(leader.url, Security(token=TOKEN))

    def fetch(self, named=(), forgotten=(), *, wait_ms=0, **changes):
        """The answered partitions by their number."""
        partitions = [self.named(*one) if isinstance(one, tuple) else self.named(one) for one in named]
        values = {
            "replica_id": self.node.number,
            "replica_epoch": self.node.broker_epoch,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_id": min(self.epoch, 1),
            "session_epoch": self.epoch,
            "topics": [{"topic": "t", "logdb_topic_id": self.topic_id, "partitions": partitions}] if partitions else [],
            "forgotten_topics_data": [{"topic": "t", "partitions": list(forgotten)}] if forgotten else [],
        }
        answer = self.peer.ask(fetch_request(values | changes, 10), 30)
        if answer["error_code"]:
            return Code(answer["error_code"])
        assert answer["session_id"] == 1
        self.epoch += 1
        return {one["partition_index"]: one for topic in answer["responses"] for one in topic["partitions"]}

    def named(self, partition, offset=0, high_watermark=0):
        return {
            "partition": partition,
            "current_leader_epoch": self.cluster.controller.partition("t", partition).leader_epoch,
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
            "flushed_offset": offset,
            "high_watermark": high_watermark,
            "lineage": 1_000_000,  # later than what its own replicas have reported
        }


@pytest.fixture
def following(replicas):
    """One follower fetches by hand; the other one is gone, so that no high watermark moves on its own."""
    replicas.create_topic(partitions=COUNT * 3)
    leader = replicas.leader("t", 0)
    for node in replicas.followers():
        node.watches.clear()
        node.manager.close()
    return Following(replicas, leader, replicas.followers()[0])


def own(following):
    """Partitions that the leader of the session leads."""
    controller, number = following.cluster.controller, following.leader.number
    return [one for one in range(COUNT * 3) if controller.partition("t", one).leader == number]


def offsets(found):
    return {partition: len(one["records"] or b"") > 0 for partition, one in found.items()}


def test_an_answer_has_what_has_news(following):
    first, second, third = own(following)
    assert following.fetch((first, second, third)) == {}
    assert following.fetch() == {}
    following.leader.log("t", second).append(b"x", durability="os")
    assert offsets(following.fetch(wait_ms=10_000)) == {second: True}
    assert offsets(following.fetch(wait_ms=10_000)) == {second: True}, "it was not named again: it has not come"
    assert following.fetch([(second, 1)]) == {}
    following.leader.log("t", first).append_many([b"x"], durability="os")
    assert offsets(following.fetch(forgotten=[first])) == {}
    assert offsets(following.fetch([(first, 0)])) == {first: True}


def test_a_high_watermark_is_told_once(following):
    first, *_ = own(following)
    assert following.fetch([(first, 0, -1)])[first]["high_watermark"] == 0
    assert following.fetch()[first]["high_watermark"] == 0, "until it says what it knows"
    assert following.fetch([(first, 0, 0)]) == {}
    other = Following(following.cluster, following.leader, following.cluster.followers()[1])
    following.leader.log("t", first).append(b"x", durability="os")
    following.fetch()
    following.fetch([(first, 1)])
    other.fetch([(first, 1)])
    eventually(lambda: following.leader.log("t", first).high_watermark == 1)
    assert following.fetch()[first]["high_watermark"] == 1
    assert following.fetch() == {}


def test_a_fetch_that_waits_is_answered_when_the_leadership_ends(following):
    first, second, _ = own(following)
    following.fetch((first, second))
    state = following.cluster.controller.partition("t", first)
    began = time.monotonic()
    following.cluster.controller.propose(commands.ResignLeader("t", first, state.leader_epoch))
    found = following.fetch(wait_ms=30_000)
    assert {one: Code(found[one]["error_code"]) for one in found} == {first: Code.NOT_LEADER_OR_FOLLOWER}
    assert time.monotonic() - began < 20
    assert following.fetch() == {}, "it has left the session"
    assert following.fetch([first])[first]["error_code"] == Code.NOT_LEADER_OR_FOLLOWER


def test_what_a_session_refuses(following):
    first, *_ = own(following)
    assert following.fetch(session_epoch=1) is Code.FETCH_SESSION_ID_NOT_FOUND, "there is none"
    assert following.fetch([(first, 77)])[first]["error_code"] == Code.OFFSET_OUT_OF_RANGE
    following.fetch([first])
    for wrong in ({"session_epoch": 7}, {"replica_epoch": following.node.broker_epoch + 1}, {"replica_id": 9}):
        assert following.fetch(**wrong) is Code.FETCH_SESSION_ID_NOT_FOUND
    assert following.fetch() == {}


def test_a_connection_that_is_gone_leaves_nothing(following):
    first, second, _ = own(following)
    logs = [following.leader.log("t", one) for one in (first, second)]
    before = [len(log._watchers) for log in logs]
    following.fetch((first, second))
    assert [len(log._watchers) for log in logs] == [count + 1 for count in before]
    following.peer.cut()
    eventually(lambda: [len(log._watchers) for log in logs] == before)


def test_a_record_costs_its_own_partition(replicas, monkeypatch):
    """Of many partitions that are followed, those without news are neither reported nor read."""
    replicas.create_topic(partitions=60)
    leader, reports = replicas.leader("t", 0), []
    real = ReplicaManager.reported

    def reported(manager, topic, partition, report):
        reports.append(partition)
        return real(manager, topic, partition, report)

    def settled():
        reports.clear()
        time.sleep(0.6)  # longer than a fetch waits
        return not reports

    monkeypatch.setattr(ReplicaManager, "reported", reported)
    eventually(settled)
    leader.log("t", 0).append(b"x", durability="os")
    for node in replicas.nodes.values():
        eventually(lambda node=node: node.log("t", 0).high_watermark == 1)
    assert set(reports) == {0}
    assert len(reports) < 20
