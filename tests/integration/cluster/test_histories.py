"""Three nodes under load, a fault, and its end: nothing that was acknowledged is lost, twice, elsewhere or out of order.

``LOGDB_TEST_SCALE`` makes each test longer; ``make fault`` goes on for as long as it is told, and prints its seed.
"""

import os
import random
import signal
import time

import pytest

import logdb
from support.cluster import NODES, Load, cluster, in_sync, needs_namespaces, stored
from support.history import check
from support.waiting import until

pytestmark = [needs_namespaces()]
TOPIC, PARTITIONS = "t", 2
SESSION_S = 1


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic(nodes, request):
    name = request.node.name.translate(str.maketrans("[]", "..")).removeprefix("test_")
    with logdb.open(nodes.urls) as db:
        db.create_topic(name, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": 2})
    until(lambda: in_sync(nodes, name), "all replicas are in sync")
    return name


def kill_leader(nodes, topic):
    node = nodes.leader((topic, 0))
    nodes.kill(node)
    return lambda: nodes.start(node)


def kill_follower(nodes, topic):
    node = next(node for node in NODES if node != nodes.leader((topic, 0)))
    nodes.kill(node)
    return lambda: nodes.start(node)


def kill_controllers(nodes, _topic):
    for node in NODES:
        for pid in nodes.children(node):
            os.kill(pid, signal.SIGKILL)
    return lambda: None


def kill_all(nodes, _topic):
    nodes.kill(*NODES)
    return lambda: nodes.start(*NODES)


def stop_leader(nodes, topic):
    """Beyond the session: its sockets stay open."""
    node = nodes.leader((topic, 0))
    nodes.signal(node, signal.SIGSTOP)
    return lambda: nodes.signal(node, signal.SIGCONT)


def isolate_leader(nodes, topic):
    nodes.network.isolate(nodes.leader((topic, 0)))
    return nodes.network.heal


def mute_leader(nodes, topic):
    """It receives, and nothing that it sends arrives."""
    node = nodes.leader((topic, 0))
    for other in NODES:
        if other != node:
            nodes.network.cut(node, other)
    return nodes.network.heal


def bridge(nodes, topic):
    """The leader and one other node do not reach each other; both reach the third."""
    node = nodes.leader((topic, 0))
    other = next(one for one in NODES if one != node)
    nodes.network.cut(node, other)
    nodes.network.cut(other, node)
    return nodes.network.heal


FAULTS = (kill_leader, kill_follower, kill_controllers, kill_all, stop_leader, isolate_leader, mute_leader, bridge)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_under_load(nodes, topic, fault):
    with Load(nodes, topic, PARTITIONS) as load:
        load.wait_for_more(50)
        end = fault(nodes, topic)
        try:
            if fault is not kill_all:
                load.wait_for_more(20)
            time.sleep(2 * SESSION_S)
        finally:
            end()
        load.wait_for_more(50)
        until(lambda: in_sync(nodes, topic), "all replicas are in sync again")
    assert check(load.history, stored(nodes, topic, PARTITIONS)) == []


def test_two_of_three_are_gone(nodes, topic):
    """What is committed can be read where a leader is left; a write is refused, or waits; later all goes on."""
    with Load(nodes, topic, PARTITIONS) as load:
        load.wait_for_more(50)
        gone = random.Random(0).sample(NODES, 2)
        nodes.kill(*gone)
        time.sleep(2 * SESSION_S)
        before = load.acknowledged
        time.sleep(2 * SESSION_S)
        assert load.acknowledged == before
        nodes.start(*gone)
        load.wait_for_more(50)
    assert check(load.history, stored(nodes, topic, PARTITIONS)) == []
