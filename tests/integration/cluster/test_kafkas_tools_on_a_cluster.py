"""What our commands, called as Kafka's tools, say of the brokers of a cluster."""

import contextlib
import json

import pytest

import logdb
from logdb.cli.app import arguments, cli
from logdb.cli.terminal.session import Session
from support.cluster_process import cluster_process


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def run(nodes, capsys):
    """Runs a tool: the lines on stdout and on stderr."""

    def run(tool, *flags):
        words, kafka = arguments(["logdb", tool, "--bootstrap-server", nodes.urls[0], *flags])
        with contextlib.suppress(SystemExit):
            cli.main(args=words, prog_name="logdb", obj=Session(kafka=kafka))
        said = capsys.readouterr()
        return said.out.splitlines(), said.err

    return run


def test_kafka_configs_knows_the_brokers(run):
    heads = [f"Dynamic configs for broker {one} are:" for one in (1, 2, 3)]
    default = "Default configs for brokers in the cluster are:"
    assert run("kafka-configs", "--describe", "--entity-type", "brokers")[0] == [*heads, default]
    assert run("kafka-configs", "--describe", "--broker", "2")[0] == heads[1:2]
    assert run("kafka-configs", "--describe", "--broker", "0")[0] == ["The broker '0' doesn't exist and doesn't have dynamic config."]
    change = "--alter", "--broker", "1", "--add-config", "follower.replication.throttled.rate=9"
    assert "partitions reassign --throttle" in run("kafka-configs", *change)[1]


def test_kafka_log_dirs_shows_each_broker_with_what_it_leads(nodes, run):
    with logdb.open(nodes.urls[0]) as db:
        db.create_topic("t", assignments=[[1, 2], [2, 3], [3, 1]])
        for partition in range(3):
            db.log("t", partition).append(bytes(100_000 * (partition + 1)))
    _, answered, document = run("kafka-log-dirs", "--describe", "--topic-list", "t")[0]
    assert answered.endswith(" brokers 1,2,3")
    brokers = {one["broker"]: one["logDirs"][0]["partitions"] for one in json.loads(document)["brokers"]}
    assert {broker: [one["partition"] for one in partitions] for broker, partitions in brokers.items()} == {
        1: ["t-0"],
        2: ["t-1"],
        3: ["t-2"],
    }
    assert brokers[1][0]["size"] < brokers[2][0]["size"] < brokers[3][0]["size"]
