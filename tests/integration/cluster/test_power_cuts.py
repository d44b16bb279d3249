"""Nodes lose their power: of what was not synced any part may be gone, and every acknowledged record is there."""

import filecmp
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import pytest

import logdb
from support import power_cut_node
from support.cluster import NODES, Cluster, Load, Network, in_sync, needs_namespaces, stored, until
from support.history import check

pytestmark = [needs_namespaces(), pytest.mark.xdist_group("cluster"), pytest.mark.slow, pytest.mark.timeout(240)]
SCALE = int(os.environ.get("LOGDB_TEST_SCALE", "1"))
SEED = 1 if SCALE == 1 else random.randrange(1 << 30)
PARTITIONS = 2


class PoweredCluster(Cluster):
    """Its nodes may lose their power; ``seed`` says what their disks keep."""

    seed, lost_count = SEED, 0  # how many files were not whole any more

    def program(self, node):
        self.seed += 1
        return [sys.executable, power_cut_node.__file__, str(self.seed), str(self.data(node))]

    def cut_power(self, *nodes):
        """Of nodes at once; what their disks keep is what they find, and of the controllers, which sync all, what there is."""
        controllers = [Path(f"/proc/{pid}") for node in nodes for pid in self.children(node)]
        for node in nodes:
            os.kill(self.processes[node].pid, signal.SIGUSR1)
        for node in nodes:
            assert self.processes.pop(node).wait(30) == -signal.SIGKILL, self.errors(node)
        until(lambda: not any(map(Path.exists, controllers)), "the controllers have ended")
        for node in nodes:
            kept = Path(f"{self.data(node)}.cut")
            shutil.rmtree(kept / "quorum")
            shutil.copytree(self.data(node) / "quorum", kept / "quorum")
            self.lost_count += sum(_differs(path, self.data(node)) for path in self.data(node).rglob("*") if path.is_file())
            shutil.rmtree(self.data(node))
            kept.rename(self.data(node))


def _differs(path, data):
    kept = Path(f"{data}.cut") / path.relative_to(data)
    return path.name != "lock.mdb" and not (kept.exists() and filecmp.cmp(path, kept, shallow=False))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        with Network() as network, PoweredCluster(tmp_path_factory.mktemp("cluster") / "cluster", network) as running:
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
