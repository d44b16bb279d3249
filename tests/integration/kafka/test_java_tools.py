"""Kafka's own command-line tools on the Kafka door: Java's clients, in the versions that they choose.

Skipped, with the reason, where Java or Maven are missing.
"""

import json
import re
import subprocess

import pytest

from benches.peers import SHORT_LIVED
from benches.peers.kafka.jars import TOOLS
from support.kafka_door import kafka_door
from support.kafka_tools import kafka_tools
from support.waiting import until

pytestmark = pytest.mark.foreign
TOOL = "org.apache.kafka.tools."
GROUPS = "consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with kafka_door(tmp_path_factory.mktemp("kafka") / "db") as served:
        yield served


@pytest.fixture(scope="module")
def run():
    """Run a tool; what it prints, or all that it prints where it is to fail."""
    with kafka_tools() as tools:

        def run(name, *arguments, fails=False):
            code, said, warned = tools(TOOL + name, *arguments)
            assert (code != 0) == fails, said + warned
            return said + warned * fails

        yield run


def test_a_transactional_producer_gets_an_epoch_for_each_transaction(served, run, topic):
    served.db.create_topic(topic, partitions=2)
    properties = ["--command-property", f"bootstrap.servers={served.address}", f"transactional.id={topic}", "acks=all"]
    run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "1000", "--record-size", "100", "--throughput", "1000"),
        *("--transaction-duration-ms", "200", *properties),
    )
    until(lambda: served.db._session.describe_transaction(topic).state == "CompleteCommit")
    info = served.db._session.describe_transaction(topic)
    assert info.producer.producer_epoch > 2  # KIP-890: one for each
    logs = [served.db.log(topic, partition) for partition in range(2)]
    assert sum(len(list(log.read(0, isolation_level="read_committed"))) for log in logs) == 1000
    listed = run("TransactionsCommand", "--bootstrap-server", served.address, "list")
    assert int(re.search(rf"{topic}\s+(\d+)\s+\d+\s+CompleteCommit", listed)[1]) in served.nodes
    asked = "describe-producers", "--topic", topic, "--partition", "0"
    assert str(info.producer.producer_id) in run("TransactionsCommand", "--bootstrap-server", served.address, *asked)


def test_groups(served, run, topic):
    served.db.create_topic(topic)
    served.db.log(topic).append_many([b"%d" % number for number in range(10)])
    where = "--bootstrap-server", served.address
    limits = "--from-beginning", "--max-messages", "10", "--timeout-ms", "20000"
    read = run("consumer.ConsoleConsumer", *where, "--topic", topic, "--group", topic, *limits)
    assert read.split() == [str(number) for number in range(10)]
    assert re.search(rf"{topic} +{topic} +0 +10 +10 +0", run(GROUPS, *where, "--describe", "--group", topic))
    assert re.search(rf"{topic} +Empty", run(GROUPS, *where, "--list", "--state"))
    run(GROUPS, *where, "--group", topic, "--reset-offsets", "--to-offset", "4", "--topic", topic, "--execute")
    assert served.db._session.fetch_offsets(topic)[topic, 0].offset == 4
    run(GROUPS, *where, "--group", topic, "--delete-offsets", "--topic", topic)
    assert served.db._session.fetch_offsets(topic) == {}


def test_topics(served, run, topic):
    where = "--bootstrap-server", served.address
    run("TopicCommand", *where, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=5000")
    assert served.db.describe_topic(topic).config["retention.ms"] == 5000
    run("TopicCommand", *where, "--alter", "--topic", topic, "--partitions", "3")
    described = run("TopicCommand", *where, "--describe", "--topic", topic)
    assert re.search(rf"PartitionCount: 3\s+ReplicationFactor: {len(served.nodes)}\s+Configs: .*retention.ms=5000", described)
    served.db.log(topic).append_many([b"a", b"b"])
    assert run("GetOffsetShell", *where, "--topic", topic).split() == [f"{topic}:{place}" for place in ("0:2", "1:0", "2:0")]
    assert f'"partition":"{topic}-2"' in run("LogDirsCommand", *where, "--describe", "--topic-list", topic)
    assert run("ClusterTool", "cluster-id", *where).strip().endswith(served.db._session.metadata.database_id)
    run("TopicCommand", *where, "--delete", "--topic", topic)
    assert topic not in [info.name for info in served.db.topics()]


def test_verifiable_clients(served, topic):
    """What Kafka's own system tests run: each in a Java of its own, at whose end they close."""

    def alone(name, *arguments):
        command = ["java", *SHORT_LIVED, "-cp", f"{TOOLS.directory}/*", TOOL + name, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()

    served.db.create_topic(topic)
    where = "--bootstrap-server", served.address, "--topic", topic, "--max-messages", "100"
    told = [json.loads(line) for line in alone("VerifiableProducer", *where)]
    assert [one["offset"] for one in told if one["name"] == "producer_send_success"] == list(range(100))
    told = alone("VerifiableConsumer", *where, "--group-id", topic, "--reset-policy", "earliest")
    found = [one for one in map(json.loads, told) if one["name"] == "offsets_committed"]
    assert found[-1] == {**found[-1], "offsets": [{"topic": topic, "partition": 0, "offset": 100}], "success": True}


def test_the_quorum_and_the_features(served, run):
    where = "--bootstrap-server", served.address
    status = run("MetadataQuorumCommand", *where, "describe", "--status")
    assert int(re.search(r"LeaderId: +(\d+)", status)[1]) in served.nodes
    assert re.search(r"MaxFollowerLag: +0", status)
    voters = run("MetadataQuorumCommand", *where, "describe", "--replication").splitlines()[1:]
    assert sorted(int(line.split()[0]) for line in voters if line.strip()) == sorted(served.nodes)
    features = run("FeatureCommand", *where, "describe")
    assert re.search(r"metadata.version\s.*FinalizedVersionLevel: 4.3", features)
    refused = run("FeatureCommand", *where, "downgrade", "--feature", "transaction.version=1", fails=True)
    assert "this version of logdb has metadata.version=30, transaction.version=2" in refused


def test_a_consumer_of_the_new_protocol_gets_an_error(served, run, topic):
    served.db.create_topic(topic)
    asked = "--topic", topic, "--num-records", "1", "--timeout", "20000", "--command-property", "group.protocol=consumer"
    told = run("ConsumerPerformance", "--bootstrap-server", served.address, *asked, fails=True)
    assert "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic" in told
