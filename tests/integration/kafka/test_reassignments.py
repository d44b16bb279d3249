"""Replicas are moved, and leaders elected, on three brokers by clients and tools of others, which are not changed for that.

Kafka's tools are skipped, with the reason, where Java or Maven are missing; franz-go, where Go is.
"""

import json
import os
import re
import subprocess
import warnings

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from logdb.model import REASSIGNMENT_RATES
from logdb_kafka_api.errors import Code
from support.cluster_process import ClusterProcess, cluster_process, eventually
from support.franz_go import franz_go
from support.kafka_door import kafka_door, kafka_python
from support.kafka_tools import kafka_tools
from support.kafka_wire import Wire

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by importlib.resources.read_text
    from kafka import errors
    from kafka.admin import KafkaAdminClient

pytestmark = [pytest.mark.timeout(300)]
LARGE = 200  # records of 20,000 bytes: at 50,000 bytes a second their way takes more than a minute
SLOW = ("--throttle", "50000")
PREFERRED = confluent_kafka.ElectionType.PREFERRED
NOT_NEEDED = confluent_kafka.KafkaError.ELECTION_NOT_NEEDED


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("cluster"), kafka=True) as running:
        yield running


@pytest.fixture(scope="module")
def admin(nodes):
    """kafka-python's."""
    admin = KafkaAdminClient(bootstrap_servers=nodes.kafka)
    yield admin
    admin.close()


def where(topic: str):
    return kafka_python.TopicPartition(topic, 0)


@pytest.fixture
def create(nodes, admin):
    """Make a topic of one partition on these nodes, with records of 20,000 bytes."""

    def create(topic: str, replicas, record_count: int = 1) -> None:
        with nodes.open(1) as db:
            db.create_topic(topic, partitions=1, replication_factor=len(replicas))
            with db.producer() as producer:
                for _ in range(record_count):
                    producer.send(topic, os.urandom(20_000), partition=0)
        assert admin.alter_partition_reassignments({where(topic): list(replicas)}) == {where(topic): None}
        moved(nodes, topic, replicas)

    return create


def described(nodes: ClusterProcess, topic: str):
    with nodes.open(1) as db:
        return db.describe_topic(topic).partitions[0]


def moved(nodes: ClusterProcess, topic: str, replicas) -> None:
    """Wait until a topic is on these nodes, all of them in sync."""
    wanted = list(replicas), sorted(replicas)
    eventually(lambda: (list((one := described(nodes, topic)).replicas), sorted(one.in_sync)) == wanted)


@pytest.fixture
def elected(nodes, admin, create):
    """Let a client elect the preferred leader of a topic that another leads; the controller itself may be faster, so it is tried again."""

    def elected(elect) -> None:
        for turn in range(5):
            topic = f"elected-{elect.__name__}-{turn}"
            create(topic, (2, 1))
            admin.alter_partition_reassignments({where(topic): [1]})
            moved(nodes, topic, (1,))
            admin.alter_partition_reassignments({where(topic): [2, 1]})
            moved(nodes, topic, (2, 1))
            was_done = elect(topic)
            assert described(nodes, topic).leader == 2
            if was_done:
                return
        raise AssertionError("the controller was faster each time")

    return elected


# ---------------------------------------------------------------- clients


def test_kafka_python(nodes, admin, create, elected):
    create("python", (1,))
    there, nowhere = where("python"), kafka_python.TopicPartition("python", 7)
    assert admin.alter_partition_reassignments({there: None, nowhere: [1]}) == {
        there: errors.NoReassignmentInProgressError,
        nowhere: errors.UnknownTopicOrPartitionError,
    }
    assert admin.alter_partition_reassignments({there: [1, 9]}) == {there: errors.for_code(39)}
    assert admin.alter_partition_reassignments({there: [3, 2]}) == {there: None}
    moved(nodes, "python", (3, 2))
    with nodes.open(1) as db:
        db.alter_topic("python", config={"min.insync.replicas": 2})
    assert admin.alter_partition_reassignments({there: [1]}) == {there: errors.for_code(39)}
    assert there not in admin.list_partition_reassignments()
    assert admin.list_partition_reassignments([there]) == {}

    def kafka_python_elects(topic):
        answer = admin.elect_leaders(0, {topic: [0]})
        return answer.replica_election_results[0].partition_result[0].error_code == 0

    elected(kafka_python_elects)
    admin.elect_leaders(0)


def test_without_a_quorum_a_request_is_answered_in_its_time(nodes, create):
    create("stuck", (1,))
    for node in (2, 3):
        nodes.kill(node)
    wanted = {"timeout_ms": 500, "topics": [{"name": "stuck", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}]}
    with Wire(nodes.kafka[0]) as wire:  # gives up before the half minute for which a node itself waits
        assert wire.ask("AlterPartitionReassignments", 1, **wanted)["error_code"] == Code.REQUEST_TIMED_OUT
        assert wire.ask("ListPartitionReassignments", 0, timeout_ms=500, topics=None)["topics"] == []
        nodes.start(2, 3)
        eventually(lambda: wire.ask("AlterPartitionReassignments", 1, **wanted)["error_code"] == Code.NONE)
    moved(nodes, "stuck", (1, 2))


def test_confluent_kafka(nodes, create, elected):
    client = AdminClient({"bootstrap.servers": ",".join(nodes.kafka)})

    def librdkafka_elects(topic):
        ((_, error),) = client.elect_leaders(PREFERRED, [confluent_kafka.TopicPartition(topic, 0)]).result(30).items()
        assert error is None or error.code() == NOT_NEEDED
        return error is None

    elected(librdkafka_elects)
    create("confluent", (1, 2))
    asked = [confluent_kafka.TopicPartition("confluent", partition) for partition in (0, 1)]
    codes = {one.partition: error.code() for one, error in client.elect_leaders(PREFERRED, asked).result(30).items()}
    assert codes == {0: NOT_NEEDED, 1: confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART}
    asked = asked[:1]
    ((_, error),) = client.elect_leaders(confluent_kafka.ElectionType.UNCLEAN, asked).result(30).items()
    assert error.code() == NOT_NEEDED
    assert client.elect_leaders(PREFERRED, None).result(30) is not None


def test_franz_go(nodes, create, tmp_path):
    program = franz_go(tmp_path)
    create("franz", (1, 2), LARGE)
    done = subprocess.run([*program, ",".join(nodes.kafka), "replicas", "franz"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "nothing to cancel": "NO_REASSIGNMENT_IN_PROGRESS",
        "another number": "INVALID_REPLICATION_FACTOR",
        "unknown broker": "INVALID_REPLICA_ASSIGNMENT",
        "moved": "",
        "moving": {"replicas": [1, 2, 3], "adding": [3], "removing": [2]},
        "cancelled": "",
        "left": 0,
        "elected": "ELECTION_NOT_NEEDED",
        "elected unclean": "ELECTION_NOT_NEEDED",
        "rate": "50000",
    }
    moved(nodes, "franz", (1, 2))


# ---------------------------------------------------------------- Kafka's tools


@pytest.fixture(scope="module")
def tools():
    with kafka_tools() as tools:
        yield tools


@pytest.fixture
def run(nodes, tools):
    """Run a tool; what it prints."""

    def run(tool, *flags, code=0):
        found, said, warned = tools(tool, "--bootstrap-server", ",".join(nodes.kafka), *map(str, flags))
        assert found == code, (said, warned)
        return said

    return run


@pytest.fixture
def plan(tmp_path):
    """A file as kafka-reassign-partitions reads it."""

    def plan(**topics):
        path = tmp_path / "plan.json"
        listed = [{"topic": name, "partition": 0, "replicas": list(nodes)} for name, nodes in topics.items()]
        path.write_text(json.dumps({"version": 1, "partitions": listed}))
        return "--reassignment-json-file", path

    return plan


def rates(run, node):
    """The rates of a broker, as kafka-configs tells them."""
    said = run("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", node)
    return dict(re.findall(rf"^ *({'|'.join(map(re.escape, REASSIGNMENT_RATES))})=(\d+)", said, re.MULTILINE))


@pytest.mark.foreign
def test_kafka_reassign_partitions(nodes, create, run, plan, tmp_path):
    create("tool", (1,), LARGE)
    (tmp_path / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "tool"}]}))
    said = run("kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", tmp_path / "topics.json", "--broker-list", "2,3")
    before, proposed = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert [one["replicas"] for one in before["partitions"]] == [[1]]
    assert [one["replicas"] for one in proposed["partitions"]] in ([[2]], [[3]])

    there = plan(tool=(2,))
    assert "No partition reassignments found." in run("kafka-reassign-partitions", "--list")
    said = run("kafka-reassign-partitions", "--execute", *there, *SLOW)
    assert "Successfully started partition reassignment for tool-0" in said
    assert json.dumps(before, separators=(",", ":")) in said
    assert "tool-0: replicas: 1,2. adding: 2. removing: 1." in run("kafka-reassign-partitions", "--list")
    assert rates(run, 1) == rates(run, 3) == dict.fromkeys(REASSIGNMENT_RATES, "50000")
    assert "there is an existing partition assignment" in run("kafka-reassign-partitions", "--execute", *there, code=1)
    run("kafka-reassign-partitions", "--execute", "--additional", *there, "--throttle", "40000")
    assert rates(run, 2) == dict.fromkeys(REASSIGNMENT_RATES, "40000")
    assert "Reassignment of partition tool-0 is still in progress." in run("kafka-reassign-partitions", "--verify", *there)
    assert rates(run, 2) == dict.fromkeys(REASSIGNMENT_RATES, "40000")

    said = run("kafka-reassign-partitions", "--cancel", *there)
    assert "Successfully cancelled partition reassignment for: tool-0" in said
    assert rates(run, 1) == {}
    assert "None of the specified partition reassignments are active." in run("kafka-reassign-partitions", "--cancel", *there)
    assert described(nodes, "tool").replicas == (1,)

    run("kafka-reassign-partitions", "--execute", *there, "--throttle", "100000000")
    moved(nodes, "tool", (2,))
    said = run("kafka-reassign-partitions", "--verify", *there)
    assert "Reassignment of partition tool-0 is completed." in said
    assert "Clearing broker-level throttles on brokers 1,2,3" in said
    assert "Clearing topic-level throttles on topic tool" in said
    assert rates(run, 1) == {}
    with nodes.open(1) as db:
        assert len(list(db.log("tool", 0).read(0))) == LARGE


@pytest.mark.foreign
def test_what_kafka_reassign_partitions_is_refused(create, run, plan):
    create("refused", (1, 2))
    assert "Unknown broker id 9" in run("kafka-reassign-partitions", "--execute", *plan(refused=(1, 9)), code=1)
    said = run("kafka-reassign-partitions", "--execute", "--disallow-replication-factor-change", *plan(refused=(1, 2, 3)), code=1)
    assert "they are 3 in place of 2" in said
    said = run("kafka-reassign-partitions", "--verify", *plan(refused=(3,)))
    assert "There is no active reassignment of partition refused-0, but replica set is 1,2 rather than 3." in said


@pytest.mark.foreign
def test_kafka_leader_election(run, elected, create):
    def kafka_elects(topic):
        said = run("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", 0)
        if f"Valid replica already elected for partitions {topic}-0" in said:
            return False
        assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in said
        return True

    elected(kafka_elects)
    create("led", (1, 2))
    for kind in ("preferred", "unclean"):
        said = run("kafka-leader-election", "--election-type", kind, "--topic", "led", "--partition", 0)
        assert "Valid replica already elected for partitions led-0" in said
    run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    said = run("kafka-leader-election", "--election-type", "preferred", "--topic", "none", "--partition", 0, code=1)
    assert "none-0" in said


@pytest.mark.foreign
def test_kafka_s_tools_on_one_broker(tools, plan, tmp_path):
    """A broker that is no cluster: what is asked of it is done already, or refused."""
    with kafka_door(tmp_path / "db") as served:
        served.db.create_topic("t")

        def run(tool, *flags):
            code, said, _ = tools(tool, "--bootstrap-server", served.address, *map(str, flags))
            return code, said

        code, said = run("kafka-reassign-partitions", "--execute", *plan(t=(0,)))
        assert (code, "Successfully started partition reassignment for t-0" in said) == (0, True)
        code, said = run("kafka-reassign-partitions", "--verify", *plan(t=(0,)))
        assert (code, "Reassignment of partition t-0 is completed." in said) == (0, True)
        assert run("kafka-reassign-partitions", "--list") == (0, "No partition reassignments found.\n")
        assert run("kafka-reassign-partitions", "--execute", *plan(t=(1,)))[0] == 1
        code, said = run("kafka-leader-election", "--election-type", "preferred", "--topic", "t", "--partition", 0)
        assert (code, "Valid replica already elected for partitions t-0" in said) == (0, True)


def test_each_broker_describes_the_quorum(nodes):
    """As the controller that leads knows it."""
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]

    def described(address):
        with Wire(address) as wire:
            answer = wire.ask("DescribeQuorum", 2, topics=asked)
        (partition,) = answer["topics"][0]["partitions"]
        assert (answer["error_code"], partition["error_code"]) == (Code.NONE, Code.NONE)
        assert [len(node["listeners"]) for node in answer["nodes"]] == [1, 1, 1]
        return partition

    def agree():
        found = [described(address) for address in nodes.kafka]
        voters = [one for partition in found for one in partition["current_voters"]]
        assert [one["replica_id"] for one in voters] == [1, 2, 3] * 3
        assert len({one["replica_directory_id"] for one in voters}) == 3
        return len({(one["leader_id"], one["leader_epoch"]) for one in found}) == 1 and all(
            one["last_caught_up_timestamp"] > 0 for one in voters
        )

    eventually(agree)
