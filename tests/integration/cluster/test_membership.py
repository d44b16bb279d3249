"""Nodes join a running cluster and leave it, and one that has lost its disk comes back: under load, with nothing lost."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from logdb.cli.app import cli
from support.cluster import Load, stored
from support.cluster_process import ClusterProcess, cluster_process, eventually
from support.history import check
from support.ports import free_port

pytestmark = [pytest.mark.timeout(180)]


def asked(*words: object, code: int = 0):
    result = CliRunner().invoke(cli, [*map(str, words), "--json"])
    assert result.exit_code == code, (result.output, result.stderr)
    return json.loads(result.stdout) if code == 0 else result.stderr


def changed(*words: object):
    """Change the quorum; again where its leader has not heard the other voters a moment ago."""
    answers = []

    def is_done() -> bool:
        result = CliRunner().invoke(cli, [*map(str, words), "--json"])
        assert result.exit_code == 0 or "it would have answer" in result.stderr, result.stderr
        answers.append(result.stdout)
        return result.exit_code == 0

    eventually(is_done)
    return json.loads(answers[-1])


def described(cluster: ClusterProcess) -> list[dict]:
    return json.loads(CliRunner().invoke(cli, ["quorum", "--cluster", cluster.config(1), "--json"]).stdout)["voters"]


def leader(cluster: ClusterProcess) -> int | None:
    return next((one["node"] for one in described(cluster) if one.get("state") == "leader"), None)


def voters(cluster: ClusterProcess) -> set[int]:
    found = [one for one in described(cluster) if one.get("state") == "leader"]
    return {voter["number"] for voter in found[0]["voters"]} if found else set()


def in_sync(cluster: ClusterProcess, topic: str) -> set[int]:
    with cluster.open(1) as db:
        return set(db.describe_topic(topic).partitions[0].in_sync)


def test_a_node_that_lost_its_disk_is_replaced_under_load(tmp_path):
    with cluster_process(tmp_path) as cluster:
        with cluster.open(1) as db:
            db.create_topic("t", partitions=1, replication_factor=3)
        with Load(cluster, "t", 1) as load:
            load.wait_for_more(50)
            assert "its controller runs" in asked("cluster", "join", tmp_path / "new", "--cluster", cluster.config(3), code=2)
            assert not (tmp_path / "new").exists()
            cluster.kill(3)
            shutil.rmtree(cluster.data(3))
            load.wait_for_more(20)
            joined = changed("cluster", "join", cluster.data(3), "--cluster", cluster.config(3))
            assert (joined["node"], joined["replaced"] is None) == (3, False)
            assert asked("cluster", "join", cluster.data(3), "--cluster", cluster.config(3)) == joined | {"replaced": None}
            cluster.start(3)
            eventually(lambda: in_sync(cluster, "t") == {1, 2, 3})
            cluster.kill(1)  # the new one is needed now
            load.wait_for_more(50)
            cluster.start(1)
        assert check(load.history, stored(cluster, "t", 1)) == []
        eventually(lambda: voters(cluster) == {1, 2, 3})


def with_two_more(cluster: ClusterProcess) -> None:
    """The nodes 4 and 5 in each cluster.toml, and one for node 4."""
    ports = [[free_port() for _ in range(3)] for _ in (4, 5)]
    more = "".join(
        f'\n[[nodes]]\nnumber = {number}\nquorum = "127.0.0.1:{one}"\ncontroller = "127.0.0.1:{two}"\nhttp = "http://127.0.0.1:{three}"\n'
        for number, (one, two, three) in zip((4, 5), ports, strict=True)
    )
    for number in cluster.numbers:
        path = Path(cluster.config(number))
        path.write_text(path.read_text() + more)
    shutil.copytree(cluster.path / "node-1", cluster.path / "node-4", ignore=shutil.ignore_patterns("data"))
    head, nodes = Path(cluster.config(1)).read_text().split("[[nodes]]", 1)
    kept = [line for line in head.splitlines() if not line.startswith(("node", "http"))]
    Path(cluster.config(4)).write_text("\n".join(["node = 4", *kept, "[[nodes]]" + nodes]))
    cluster.urls += [f"http://127.0.0.1:{ports[0][2]}"]


def test_a_fourth_node_joins_and_leaves(tmp_path):
    cluster = ClusterProcess(tmp_path)
    with_two_more(cluster)
    with cluster.running():
        with cluster.open(1) as db:
            db.create_topic("t", partitions=1, replication_factor=3)
        listed = CliRunner().invoke(cli, ["partitions", "list", "--cluster", cluster.config(1)])
        assert (listed.exit_code, listed.stderr) == (0, ""), "nodes without a replica are not asked: 4 and 5 do not run"
        with Load(cluster, "t", 1) as load:
            load.wait_for_more(20)
            changed("cluster", "join", cluster.data(4), "--cluster", cluster.config(4))
            cluster.start(4)
            eventually(lambda: voters(cluster) == {1, 2, 3, 4})
            move = ("partitions", "reassign", "--topic", "t", "--timeout", "20s", "--cluster", cluster.config(2), "--to")
            asked(*move, "2,3,4")
            eventually(lambda: in_sync(cluster, "t") == {2, 3, 4})
            load.wait_for_more(20)
            asked(*move, "1,2,3")
            assert cluster.end(4) == 0
            for _ in range(2):  # the second as after a call whose answer was lost
                assert changed("cluster", "remove", 4, "--cluster", cluster.config(1)) == {"voters": [1, 2, 3]}
            eventually(lambda: voters(cluster) == {1, 2, 3})
            load.wait_for_more(20)
        assert check(load.history, stored(cluster, "t", 1)) == []
        cluster.kill(3)
        found: list[int | None] = []
        eventually(lambda: found.append(leader(cluster)) or found[-1])
        follower = {1: 2, 2: 1}[found[-1]]
        refused = asked("cluster", "remove", follower, "--cluster", cluster.config(1), code=2)
        assert "1 of the voters that it would have answer: a majority is needed; no answer from node 3" in refused
        assert "the voters of the quorum are" in asked("cluster", "remove", 9, "--cluster", cluster.config(1), code=2)
