"""Nodes lose their power: of what was not synced any part may be gone, and every acknowledged record is there."""

import os
import random
from functools import partial

import pytest

import logdb
from support.cluster import NODES, Load, cluster, in_sync, needs_namespaces, stored
from support.history import check
from support.powered_cluster import PoweredCluster
from support.waiting import until

pytestmark = [needs_namespaces(), pytest.mark.slow, pytest.mark.timeout(240)]
SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
SEED = 1 if SCALE == 1 else random.randrange(1 << 30)
PARTITIONS = 2


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster"), kind=partial(PoweredCluster, seed=SEED)) as running:
        yield running


@pytest.fixture
def topic(nodes, request):
    name = request.node.name.translate(str.maketrans("[]", "..")).removeprefix("test_")
    with logdb.open(nodes.urls) as db:
        db.create_topic(name, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": 2})
    until(lambda: in_sync(nodes, name), "all replicas are in sync")
    return name


def under_load(nodes, topic, fault):
    with Load(nodes, topic, PARTITIONS) as load:
        load.wait_for_more(50)
        fault()
        load.wait_for_more(50)
        until(lambda: in_sync(nodes, topic), "all replicas are in sync again")
    assert check(load.history, stored(nodes, topic, PARTITIONS)) == [], f"seed {SEED}"


@pytest.mark.parametrize("turn", range(SCALE))
def test_all_nodes_lose_their_power_at_once(nodes, topic, turn):
    def fault():
        nodes.cut_power(*NODES)
        nodes.start(*NODES)

    under_load(nodes, topic, fault)
    assert nodes.lost_count, "or the disks have kept all"


def test_each_leader_loses_its_power_in_turn(nodes, topic):
    """A leader without power, and once it is back, its successor."""

    def fault():
        for _ in range(2):
            node = nodes.leader((topic, 0))
            nodes.cut_power(node)
            nodes.start(node)
            until(lambda: in_sync(nodes, topic), "all replicas are in sync again")

    under_load(nodes, topic, fault)
