"""New partitions of a cluster, on the nodes that are named for them: at each door, by Python and by the command."""

import contextlib

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import logdb
from logdb.cli.app import arguments, cli
from logdb.cli.terminal.session import Session
from logdb.errors import InvalidPartitions, InvalidReassignment, TopicExists
from logdb_kafka_api.errors import Code
from support.cluster_process import cluster_process, eventually
from support.kafka_wire import Wire
from support.serving import Served

pytestmark = [pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with cluster_process(tmp_path_factory.mktemp("cluster"), kafka=True) as running:
        yield running


@pytest.fixture
def db(nodes):
    with logdb.open(nodes.urls) as db:
        yield db


@pytest.fixture
def topic(db, request):
    """A topic of one partition on two nodes."""
    name = request.node.name.replace("test_", "")[:60]
    db.create_topic(name, partitions=1, replication_factor=2)
    return name


def placed(db, topic, first=1):
    """The replicas of the partitions that were added; they take records."""
    partitions = db.describe_topic(topic).partitions[first:]
    for one in partitions:
        assert (one.leader, sorted(one.in_sync)) == (one.replicas[0], sorted(one.replicas))
        db.log(topic, one.partition).append(b"x")
    return [one.replicas for one in partitions]


def test_kafkas_clients(nodes, db, topic):
    admin = AdminClient({"bootstrap.servers": ",".join(nodes.kafka)})

    def grow(count, assignments, **options):
        admin.create_partitions([NewPartitions(topic, count, *([assignments] if assignments else ()))], **options)[topic].result(30)

    grow(3, [[3, 1], [2, 3]], validate_only=True)
    assert placed(db, topic) == []
    grow(3, [[3, 1], [2, 3]])
    assert placed(db, topic) == [(3, 1), (2, 3)]
    for validate_only in (True, False):
        for count, assignments, code in (
            (3, (), "INVALID_PARTITIONS"),
            (4, [[1, 2, 3]], "INVALID_REPLICA_ASSIGNMENT"),
            (4, [[1, 9]], "INVALID_REPLICA_ASSIGNMENT"),
            (4, [[0, 1]], "INVALID_REPLICA_ASSIGNMENT"),
            (4, [[1, 1]], "INVALID_REPLICA_ASSIGNMENT"),
        ):
            with pytest.raises(KafkaException) as refused:
                grow(count, assignments, validate_only=validate_only)
            assert refused.value.args[0].name() == code
    with Wire(nodes.kafka[0]) as wire:  # the clients check the number themselves
        wanted = {"name": topic, "count": 5, "assignments": [{"broker_ids": [1, 2]}]}
        (refused,) = wire.ask("CreatePartitions", 3, topics=[wanted], timeout_ms=1000, validate_only=False)["results"]
    assert (refused["error_code"], "nodes are named for 1" in refused["error_message"]) == (Code.INVALID_REPLICA_ASSIGNMENT, True)
    assert db.describe_topic(topic).partition_count == 3


def test_python_and_its_calls_over_http(nodes, db, topic):
    assert db.alter_topic(topic, partitions=2, assignments=[[2, 1]]).partition_count == 2
    for wanted, error, reason in (
        ({"partitions": 3, "assignments": [[1, 9]]}, InvalidReassignment, "node 9 has never registered"),
        ({"partitions": 3, "assignments": []}, InvalidReassignment, "1 partitions are added, and nodes are named for 0"),
        ({"assignments": [[1, 2]]}, InvalidReassignment, "0 partitions are added, and nodes are named for 1"),
        ({"partitions": 1, "assignments": []}, InvalidPartitions, "can only grow"),
    ):
        with pytest.raises(error, match=reason):
            db.alter_topic(topic, **wanted)
    door = Served(None, nodes.urls[1], None)
    assert door.call("/logdb/v1/calls/alter_topic", {"name": topic, "partitions": 3, "assignments": [[3, 2]]})[0] == 200
    eventually(lambda: db.describe_topic(topic).partition_count == 3)
    assert placed(db, topic) == [(2, 1), (3, 2)]


def test_rest_has_no_word_for_it(nodes, db, topic):
    door = Served(None, nodes.urls[0], None)
    path = f"/v3/clusters/{door.call('/v3/clusters')[1]['data'][0]['cluster_id']}/topics/{topic}"
    status, said = door.call(path, {"partitions_count": 2, "replicas_assignments": {"1": [2, 1]}}, method="PATCH")
    assert (status, "replicas_assignments" in said["message"]) == (400, True)
    assert db.describe_topic(topic).partition_count == 1


@pytest.fixture
def run(nodes, capsys):
    """Runs kafka-topics: the exit code, and what it says on stderr."""

    def run(*flags):
        words, kafka = arguments(["logdb", "kafka-topics", "--bootstrap-server", nodes.urls[0], *flags])
        session = Session(kafka=kafka)
        with contextlib.suppress(SystemExit):
            cli.main(args=words, prog_name="logdb", obj=session)
        return session.exit_code, capsys.readouterr().err

    return run


def test_the_flags_of_kafka_topics(db, topic, run):
    run("--alter", "--topic", topic, "--partitions", "3", "--replica-assignment", "1:2,3:2,1:3")  # the first is that of before
    assert placed(db, topic) == [(3, 2), (1, 3)]
    code, said = run("--alter", "--topic", topic, "--partitions", "4", "--replica-assignment", "1:2,3:2,1:3,1:9")
    assert (code, "node 9 has never registered" in said) == (2, True)
    assert "such as 1:2,2:3" in run("--alter", "--topic", topic, "--partitions", "4", "--replica-assignment", "1:x")[1]
    assert "goes with --create" in run("--alter", "--topic", topic, "--replica-assignment", "1:2")[1]


# ---------------------------------------------------------------- created topics


def test_kafkas_clients_create_topics(nodes, db):
    admin = AdminClient({"bootstrap.servers": ",".join(nodes.kafka)})

    def create(name, assignments, **options):
        admin.create_topics([NewTopic(name, len(assignments), replica_assignment=assignments)], **options)[name].result(30)

    create("k1", [[3, 1], [2, 3]], validate_only=True)
    assert "k1" not in [info.name for info in db.topics()]
    create("k1", [[3, 1], [2, 3]])
    assert placed(db, "k1", 0) == [(3, 1), (2, 3)]
    for validate_only in (True, False):
        for name, assignments, code in (
            ("k1", [[1]], "TOPIC_ALREADY_EXISTS"),
            ("k2", [[1, 2], [1, 2, 3]], "INVALID_REPLICA_ASSIGNMENT"),
            ("k2", [[1, 9]], "INVALID_REPLICA_ASSIGNMENT"),
            ("k2", [[0, 1]], "INVALID_REPLICA_ASSIGNMENT"),
            ("k2", [[1, 1]], "INVALID_REPLICA_ASSIGNMENT"),
        ):
            with pytest.raises(KafkaException) as refused:
                create(name, assignments, validate_only=validate_only)
            assert refused.value.args[0].name() == code
    assert "k2" not in [info.name for info in db.topics()]


def test_by_the_wire_partitions_are_assigned_or_counted(nodes, db):
    def create(*assignments, count=-1, factor=-1, validate_only=True):
        given = [{"partition_index": index, "broker_ids": list(brokers)} for index, brokers in assignments]
        topic = {"name": "w", "num_partitions": count, "replication_factor": factor, "assignments": given, "configs": []}
        return wire.ask("CreateTopics", 7, topics=[topic], timeout_ms=10_000, validate_only=validate_only)["topics"][0]

    with Wire(nodes.kafka[0]) as wire:
        assert create((0, [1]), count=1)["error_code"] == create((0, [1]), factor=1)["error_code"] == Code.INVALID_REQUEST
        for wrong in ([(1, [1])], [(0, [1]), (2, [1])], [(0, [1]), (0, [2])], [(-1, [1]), (0, [1])], [(0, [])]):
            assert create(*wrong)["error_code"] == Code.INVALID_REPLICA_ASSIGNMENT
        for validate_only in (True, False):
            made = create((1, [2, 3]), (0, [1, 2]), validate_only=validate_only)
            assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (Code.NONE, 2, 2)
    assert placed(db, "w", 0) == [(1, 2), (2, 3)]


def test_python_and_the_calls_over_http_create_topics(nodes, db):
    made = db.create_topic("p1", assignments=[[2, 1, 3], [3, 1, 2]])
    assert (made.partition_count, made.config["min.insync.replicas"]) == (2, 2)
    assert placed(db, "p1", 0) == [(2, 1, 3), (3, 1, 2)]
    assert db.create_topic("p1", assignments=[[1]], if_not_exists=True).partition_count == 2
    with pytest.raises(TopicExists):
        db.create_topic("p1", assignments=[[1]])
    for assignments, counts, error, reason in (
        ([[1, 9]], {}, InvalidReassignment, "node 9 has never registered"),
        ([[1, 2], [3]], {}, InvalidReassignment, "they are 1, and the replication factor is 2"),
        ([[1, 2]], {"replication_factor": 3}, InvalidReassignment, "they are 2, and the replication factor is 3"),
        ([[1, 2]], {"partitions": 2}, InvalidReassignment, "2 partitions are added, and nodes are named for 1"),
        ([], {}, InvalidPartitions, "must be 1 to"),
    ):
        with pytest.raises(error, match=reason):
            db.create_topic("p2", assignments=assignments, **counts)
    door = Served(None, nodes.urls[1], None)
    assert door.call("/logdb/v1/calls/create_topic", {"name": "p3", "assignments": [[3, 2]]})[0] == 200
    assert placed(db, "p3", 0) == [(3, 2)]


def test_rest_creates_topics(nodes, db):
    door = Served(None, nodes.urls[0], None)
    path = f"/v3/clusters/{door.call('/v3/clusters')[1]['data'][0]['cluster_id']}/topics"
    wanted = {"topic_name": "r1", "replicas_assignments": {"1": [3, 1], "0": [2, 3]}}
    for status, more in ((200, {"validate_only": True}), (201, {})):
        answer = door.call(path, wanted | more)
        assert (answer[0], answer[1]["replication_factor"], answer[1]["partitions_count"]) == (status, 2, 2)
    assert placed(db, "r1", 0) == [(2, 3), (3, 1)]
    status, refused = door.call(path, {"topic_name": "r2", "replicas_assignments": {"0": [1, 9]}})
    assert (status, refused["error_code"], "node 9 has never registered" in refused["message"]) == (400, 40002, True)


def test_kafka_topics_creates_them(db, run):
    assert run("--create", "--topic", "c1", "--replica-assignment", "1:2,3:2")[0] == 0
    assert placed(db, "c1", 0) == [(1, 2), (3, 2)]
    code, said = run("--create", "--topic", "c2", "--replica-assignment", "1:9")
    assert (code, "node 9 has never registered" in said) == (2, True)
    for flag in ("--partitions", "--replication-factor"):
        assert "names all replicas" in run("--create", "--topic", "c2", "--replica-assignment", "1:2", flag, "1")[1]
