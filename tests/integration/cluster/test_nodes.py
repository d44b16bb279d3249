"""Nodes as processes: they start, are refused, are killed, and end."""

import json
import os
import shutil
import signal
import threading
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb.errors import ReadOnly
from logdb_replication import directory
from logdb_replication.config import ClusterConfig, format_address
from support.cluster_process import ClusterProcess, cluster_process, controller_of, eventually, is_running

pytestmark = pytest.mark.timeout(120)


def refused(path, config, *flags: str, code: int = 2) -> str:
    result = CliRunner().invoke(cli, ["serve", str(path), "--cluster", str(config), *flags])
    assert result.exit_code == code, result.output
    return result.stderr


def asked(cluster: ClusterProcess, *words: str):
    """What a command about the cluster prints."""
    result = CliRunner().invoke(cli, [*words, "--cluster", cluster.config(1), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def silent_voters(cluster: ClusterProcess) -> list[int]:
    """Who has not answered for a second, as each node that runs says by HTTP; nobody where they do not agree."""
    said = []
    for number in (1, 2):
        with urllib.request.urlopen(f"{cluster.url(number)}/logdb/v1/quorum", timeout=30) as answer:
            quorum = json.load(answer)
        others = [voter for voter in quorum["voters"] if voter["node_id"] != quorum["leader"]]
        said.append([voter["node_id"] for voter in others if voter["answered_ms_ago"] is None or voter["answered_ms_ago"] > 1_000])
    return said[0] if said[0] == said[1] else []


def test_a_cluster_from_start_to_end(tmp_path):
    with cluster_process(tmp_path) as cluster:
        with cluster.open(2) as db:
            made = db.create_topic("t", partitions=3)
        for number in cluster.numbers:  # each has it, the one that was asked at once
            with cluster.open(number) as db:
                eventually(lambda db=db: db.topics() == [made._replace(partitions=())])
        assert "is open for writing in process" in refused(cluster.data(1), cluster.config(1))
        with pytest.raises(ReadOnly, match="node 1 of the cluster"):
            logdb.open(cluster.data(1))
        with logdb.open(cluster.data(1), mode="r") as db:
            assert [topic.name for topic in db.topics()] == ["t"]

        eventually(lambda: [voter.get("state") for voter in asked(cluster, "quorum")["voters"]].count("leader") == 1)

        def brokers():
            return [(one["node"], one["fenced"], one["replicas"]) for one in asked(cluster, "brokers", "list")["brokers"]]

        eventually(lambda: brokers() == [(1, False, 3), (2, False, 3), (3, False, 3)])
        eventually(lambda: asked(cluster, "brokers", "list")["brokers"][0]["leads"] > 0, 60)
        assert asked(cluster, "brokers", "drain", "1") == {"node": 1, "draining": True, "leads": 0}
        assert asked(cluster, "brokers", "list")["brokers"][0]["draining"]
        asked(cluster, "brokers", "drain", "1", "--cancel")

        controller = controller_of(cluster.processes[3])
        cluster.kill(3)
        eventually(lambda: asked(cluster, "brokers", "list")["brokers"][2]["fenced"])
        assert "error" in asked(cluster, "quorum")["voters"][2]
        eventually(lambda: silent_voters(cluster) == [3])
        eventually(lambda: not is_running(controller))
        with cluster.open(1) as db:
            db.create_topic("u", partitions=1)
        cluster.start(3)
        with cluster.open(3) as db:
            eventually(lambda: [topic.name for topic in db.topics()] == ["t", "u"])

        os.kill(controller_of(cluster.processes[2]), signal.SIGKILL)
        with cluster.open(2) as db:  # another controller is asked, and its own is started again
            db.delete_topic("u")
            assert [topic.name for topic in db.topics()] == ["t"]


def test_what_is_not_its_own_is_refused_and_left_alone(tmp_path):
    one, other = ClusterProcess(tmp_path / "a"), ClusterProcess(tmp_path / "b")
    assert "it is node 1's" in refused(one.data(1), one.config(2))
    assert "it is of cluster" in refused(one.data(1), other.config(1))
    assert "logdb cluster init" in refused(tmp_path / "new", one.config(1))
    assert "the file is missing" in refused(one.data(1), tmp_path / "none.toml")
    assert "a node has it from" in refused(one.data(1), one.config(1), "--http", "127.0.0.1:1")
    assert "is that of node 1 of the cluster" in CliRunner().invoke(cli, ["serve", one.data(1)]).stderr
    assert sorted(os.listdir(one.data(1))) == ["cluster.json", "quorum"]
    assert not os.path.exists(tmp_path / "new")


def test_a_config_with_another_quorum_is_refused(tmp_path):
    cluster = ClusterProcess(tmp_path)
    path = Path(cluster.config(1))
    known = ClusterConfig.load(str(path)).of(3).quorum
    path.write_text(
        path.read_text(encoding="utf-8").replace(f'quorum = "{format_address(known)}"', 'quorum = "127.0.0.1:9"'), encoding="utf-8"
    )
    said = refused(cluster.data(1), path)
    assert "nodes.quorum" in said
    assert f"3: '{format_address(known)}'" in said


def test_addresses_that_others_can_reach_need_tls(tmp_path):
    directory.init(str(tmp_path), 1, [8081], hosts=["192.0.2.1"])
    path = tmp_path / "node-1" / "cluster.toml"
    assert "192.0.2.1:8081" in refused(tmp_path / "node-1" / "data", path)
    path.write_text(path.read_text().replace('http = "192.0.2.1:8081"', 'http = "127.0.0.1:8081"'))
    assert "lacks TLS" in refused(tmp_path / "node-1" / "data", path)  # of the quorum


@pytest.mark.parametrize("name", ["journal", "vote", "snapshot"])
def test_a_voter_that_lost_a_file_does_not_start(tmp_path, name):
    cluster = ClusterProcess(tmp_path)
    os.unlink(os.path.join(cluster.data(1), "quorum", name))
    said = refused(cluster.data(1), cluster.config(1))
    assert f"{name} is missing" in said
    assert "add it again as a new voter" in said


def test_a_copy_of_a_node_that_runs_is_refused(tmp_path):
    with cluster_process(tmp_path / "c", 1):
        shutil.copytree(tmp_path / "c" / "node-1", tmp_path / "copy", ignore=shutil.ignore_patterns("lock.mdb"))
        said = refused(tmp_path / "copy" / "data", tmp_path / "copy" / "cluster.toml")
        assert "ddress already in use" in said


def changed(monkeypatch, path: Path, program: str) -> None:
    """Have Python run a program before a node that is started from now on."""
    path.mkdir()
    (path / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(path))


def test_a_node_whose_clock_is_apart_is_not_let_in_until_it_is_set(tmp_path, monkeypatch, capfd):
    slow = tmp_path / "slow"
    program = f"""
import os
from logdb.io import IO
real = IO.clock_ms
IO.clock_ms = lambda io: real(io) - 90_000 * os.path.exists({str(slow)!r})
"""
    cluster = ClusterProcess(tmp_path / "c")
    with cluster.running():
        cluster.end(3)
        slow.touch()
        changed(monkeypatch, tmp_path / "changed", program)
        comes = threading.Thread(target=cluster.start, args=(3,))
        comes.start()
        said = "node 3 waits to be let in by the controller: the clock of node 3 is 90 s behind that of the controller;"
        eventually(lambda: said in capfd.readouterr().err)
        assert asked(cluster, "brokers", "list")["brokers"][2]["fenced"]
        slow.unlink()
        comes.join()
        assert not asked(cluster, "brokers", "list")["brokers"][2]["fenced"]


def test_a_node_that_does_not_understand_a_newer_one_is_fenced(tmp_path, monkeypatch, capfd):
    program = """
from logdb_replication.controller import commands
from logdb_replication.controller.errors import UnknownCommand
real = commands.decode
def decode(data):
    command = real(data)
    if isinstance(command, commands.AlterTopic):
        raise UnknownCommand("AlterTopic")
    return command
commands.decode = decode
"""
    cluster = ClusterProcess(tmp_path / "c")
    with cluster.running():
        cluster.end(3)
        changed(monkeypatch, tmp_path / "changed", program)
        cluster.start(3)
        with cluster.open(1) as db:
            db.create_topic("t", partitions=1)
            db.alter_topic("t", config={"retention.ms": 1_000_000})
            eventually(lambda: asked(cluster, "brokers", "list")["brokers"][2]["fenced"])
            assert db.append("t", b"v").offset == 0
        assert "not a command of this version of logdb: AlterTopic" in capfd.readouterr().err
