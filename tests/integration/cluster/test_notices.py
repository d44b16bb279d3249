"""What a watcher of a cluster is told while a node is killed and comes back."""

import json
import urllib.request

import pytest

import logdb
from logdb.model import ClusterEvent, TopicPartition
from support.cluster_process import cluster_process, eventually

pytestmark = pytest.mark.timeout(120)


def test_a_node_is_killed_and_comes_back(tmp_path):
    with cluster_process(tmp_path) as cluster, cluster.open(1) as db:
        db.create_topic("t", partitions=3)
        eventually(lambda: all(len(one.in_sync) == 3 for one in db.describe_topic("t").partitions))
        eventually(lambda: any(one.leader == 3 for one in db.describe_topic("t").partitions), 60)
        led = [one.partition for one in db.describe_topic("t").partitions if one.leader == 3]
        assert led
        begin = json.load(urllib.request.urlopen(f"{cluster.url(1)}/logdb/v1/watch", timeout=60))["position"]
        topics, watch = db.watch(timeout_ms=100), db.watch(cluster=True, timeout_ms=30_000)

        cluster.kill(3)
        left, led_by_others, out = False, set(), set()
        while not (left and led_by_others >= set(led) and len(out) == 3):
            event = next(watch)
            left |= event.kind == "broker_left" and event.node == 3
            if event.kind == "leader_changed" and event.node in (1, 2):
                led_by_others.add(event.partition.partition)
            if event.kind == "in_sync_changed" and 3 not in event.in_sync:
                out.add(event.partition.partition)

        cluster.start(3)
        joined, back = False, set()
        while not (joined and len(back) == 3):
            event = next(watch)
            joined |= event.kind == "broker_joined" and event.node == 3
            if event.kind == "in_sync_changed" and set(event.in_sync) == {1, 2, 3}:
                back.add(event.partition.partition)

        assert list(topics) == [], "who asks for topics alone gets nothing else"
        request = urllib.request.Request(
            f"{cluster.url(1)}/logdb/v1/watch?cluster=true", headers={"Accept": "text/event-stream", "Last-Event-ID": begin}
        )
        with urllib.request.urlopen(request, timeout=60) as stream:
            kinds = set()
            while not kinds >= {"broker_left", "broker_joined", "leader_changed", "in_sync_changed"}:
                line = stream.readline().decode()
                if line.startswith("event: "):
                    kinds.add(line.removeprefix("event: ").strip())


def test_a_watch_whose_node_is_killed_tells_at_the_next_one_what_it_missed(tmp_path):
    def partitions_at(node):
        return node.describe_topic("t").partitions

    with cluster_process(tmp_path) as cluster, cluster.open(2) as two, cluster.open(3) as three:
        three.create_topic("t", partitions=3)
        eventually(lambda: all(len(one.in_sync) == 3 for one in partitions_at(three)))
        eventually(lambda: any(one.leader == 1 for one in partitions_at(three)))
        with logdb.open(cluster.urls) as db:
            watch = db.watch(cluster=True, timeout_ms=0)
            eventually(lambda: not list(watch))
            led = {one.partition for one in db.describe_topic("t").partitions if one.leader == 1}

            cluster.kill(1)
            for node in (two, three):
                eventually(lambda: all(one.leader in {2, 3} and set(one.in_sync) == {2, 3} for one in partitions_at(node)))  # noqa: B023
            expected = [ClusterEvent("broker_left", 1)]
            for one in partitions_at(three):
                what = one.leader, TopicPartition("t", one.partition), one.leader_epoch, one.in_sync
                expected += [ClusterEvent("leader_changed", *what)] * (one.partition in led) + [ClusterEvent("in_sync_changed", *what)]
            assert list(watch) == expected
            assert list(watch) == [], "each is told once"
