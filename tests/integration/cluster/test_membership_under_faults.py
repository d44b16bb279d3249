"""A fourth node joins, gets replicas and leaves, each while a fault lasts: the change is done once all is well, and nothing is lost.

One cluster serves all; ``LOGDB_TEST_SCALE=2`` has all faults, in an order of chance, otherwise there are a few.
"""

import os
import random
from functools import partial

import pytest

import logdb
from logdb_replication import administration
from support import faulty_libc
from support.cluster import NODES, SPARE, Load, cluster, in_sync, needs_namespaces, stored
from support.history import check
from support.tools import needs
from support.waiting import until

pytest.importorskip("confluent_kafka")

from support.powered_cluster import PoweredCluster
from support.storm import FAULTS, changed

pytestmark = [
    needs_namespaces(),
    needs("gcc"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]
IS_LONG = int(os.environ.get("LOGDB_TEST_SCALE", "1")) > 1
SEED = random.randrange(1 << 30) if IS_LONG else 1
CHOSEN = random.Random(SEED).sample(sorted(FAULTS), len(FAULTS)) if IS_LONG else ["cut-power", "stop"]
LASTS_S = 4  # while no acknowledgement may come


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    with cluster(directory, faulty_libc.build(directory), partial(PoweredCluster, seed=SEED)) as running:
        yield running


def under_fault(nodes, name, change, topic, node):
    """Make a change while a node has a fault, which ends when the change is done, or has to wait for that."""
    by = next(one for one in NODES if one != node)
    with changed(nodes, change, topic, by) as thread, FAULTS[name](nodes, node):
        thread.join(LASTS_S)


def replicas(nodes, topic):
    until(lambda: in_sync(nodes, topic), "all replicas are in sync", 90)
    until(nodes.all_vote, "all voters run", 90)
    voters = {voter["number"] for one in administration.quorum(nodes.config(1)) for voter in one.get("voters", ())}
    assert voters == set(nodes.members)
    with logdb.open(nodes.urls) as db:
        return set(db.describe_topic(topic).partitions[0].in_sync)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_node_joins_and_leaves_during(nodes, name):
    topic = f"during-{name}"
    with logdb.open(nodes.urls) as db:
        db.create_topic(topic, partitions=1, replication_factor=3, config={"min.insync.replicas": 2})
    until(lambda: in_sync(nodes, topic), "all replicas are in sync")
    with Load(nodes, topic, 1) as load:
        load.wait_for_more(20)
        under_fault(nodes, name, "join", topic, nodes.leader((topic, 0)))
        assert SPARE in replicas(nodes, topic)
        load.wait_for_more(20)
        quorum = nodes.controller()
        under_fault(nodes, name, "leave", topic, quorum if quorum in NODES else NODES[0])
        assert replicas(nodes, topic) == set(NODES)
        load.wait_for_more(20)
    assert check(load.history, stored(nodes, topic, 1)) == [], f"seed {SEED}"
