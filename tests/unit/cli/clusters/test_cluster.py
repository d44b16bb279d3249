import json
import os

from click.testing import CliRunner

import logdb
from logdb.cli.app import cli
from logdb_replication import administration
from logdb_replication.config import ClusterConfig
from support.ports import free_port


def call(*args: str, code: int = 0):
    return run("cluster", *args, code=code)


def run(*args: str, code: int = 0):
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == code, result.output
    return result


def test_init_prints_where_the_nodes_are(tmp_path):
    told = json.loads(call("init", str(tmp_path), "--nodes", "3", "--http-ports", "8081,8082,8083", "--json").stdout)
    assert [node["http"] for node in told["nodes"]] == ["http://127.0.0.1:8081", "http://127.0.0.1:8082", "http://127.0.0.1:8083"]
    assert [node["directory"] for node in told["nodes"]] == [str(tmp_path / f"node-{number}") for number in (1, 2, 3)]
    assert sorted(os.listdir(tmp_path)) == ["node-1", "node-2", "node-3"]


def test_init_says_how_to_go_on(tmp_path):
    result = call("init", str(tmp_path), "--nodes", "1", "--http-ports", "8081", "--kafka-ports", "9092")
    assert result.stdout.split() == [
        "NODE",
        "HTTP",
        "KAFKA",
        "DIRECTORY",
        "1",
        "http://127.0.0.1:8081",
        "127.0.0.1:9092",
        f"{tmp_path}/node-1",
    ]
    assert "logdb serve NODE/data --cluster NODE/cluster.toml" in result.stderr
    assert 'kafka = "127.0.0.1:9092"' in (tmp_path / "node-1" / "cluster.toml").read_text()


def test_init_gives_each_node_its_rack(tmp_path):
    racks = ["a", 'the "b"', "ü"]
    call("init", str(tmp_path), "--http-ports", "8081,8082,8083", "--racks", ",".join(racks))
    assert [ClusterConfig.load(str(tmp_path / f"node-{number}" / "cluster.toml")).rack for number in (1, 2, 3)] == racks
    again = ("init", str(tmp_path / "again"), "--http-ports", "8081,8082,8083", "--racks")
    assert "racks a,b: must be 3 racks, one for each node" in call(*again, "a,b", code=2).stderr
    assert "must be a printable text of at most 255 bytes" in call(*again, f"a,b,{'c' * 256}", code=2).stderr


def test_quorum_is_asked_for_as_kafkas_tool_is(tmp_path):
    call("init", str(tmp_path), "--nodes", "1", "--http-ports", "8081")
    where = ("--cluster", str(tmp_path / "node-1" / "cluster.toml"))
    said = [
        CliRunner().invoke(cli, ["quorum", *words, "--json"])
        for words in (where, ("describe", *where), (*where, "describe", "--status"), ("describe", "--replication", *where))
    ]
    assert {one.exit_code for one in said} == {1}  # the node does not run
    assert {json.loads(one.stdout)["voters"][0]["node"] for one in said} == {1}
    assert "'elect' is not 'describe'" in CliRunner().invoke(cli, ["quorum", "elect", *where]).stderr


def test_leave_shows_first_what_it_would_do(tmp_path):
    call("init", str(tmp_path), "--nodes", "1", "--http-ports", "8081")
    data = str(tmp_path / "node-1" / "data")
    assert "nothing was done; --yes takes" in call("leave", data).stderr
    assert os.path.exists(os.path.join(data, "cluster.json"))
    assert json.loads(call("leave", data, "--yes", "--json").stdout)["node"] == 1
    assert "no node of a cluster has this directory" in call("leave", data, "--yes", code=2).stderr
    with logdb.open(data) as db:
        db.create_topic("t")
    assert sorted(os.listdir(data)) == ["LOCK", "RESERVE", "catalogue", "t-0"]


def test_a_wrong_call_is_refused(tmp_path):
    path = str(tmp_path / "c")
    assert "must be 3 ports, one for each node" in call("init", path, "--http-ports", "1", code=2).stderr
    assert "numbers separated by commas" in call("init", path, "--http-ports", "a,b", code=2).stderr
    assert "must be 1, 3 or 5" in call("init", path, "--nodes", "4", "--http-ports", "1,2,3,4", code=2).stderr
    assert not os.path.exists(path)


def test_brokers_have_the_same_state_in_the_table_and_as_json(monkeypatch):
    told = [
        {"node": number, "addresses": {}, "rack": "", "fenced": fenced, "draining": draining, "leads": 0, "replicas": 0, "in_sync": 0}
        for number, (fenced, draining) in enumerate([(False, False), (False, True), (True, True)])
    ]
    monkeypatch.setattr(administration, "brokers", lambda _config: told)
    states = ["active", "draining", "fenced"]
    assert [(one["state"], one["fenced"]) for one in json.loads(run("brokers", "list", "--json").stdout)["brokers"]] == [
        *zip(states, (False, False, True), strict=True)
    ]
    assert [state for state in states if state in run("brokers", "list").stdout] == states


def test_no_quorum_is_a_failure_of_each_command(tmp_path, monkeypatch):
    monkeypatch.setattr(administration, "_ELECTION_S", 0.1)
    call("init", str(tmp_path), "--nodes", "1", "--http-ports", str(free_port()))
    config = str(tmp_path / "node-1" / "cluster.toml")
    run("quorum", "--cluster", config, code=1)
    for command in (("brokers", "list"), ("partitions", "list")):
        assert "no controller has answered" in run(*command, "--cluster", config, code=1).stderr
        assert json.loads(run(*command, "--cluster", config, "--json", code=1).stderr)["error"] == "ControllerUnavailable"
