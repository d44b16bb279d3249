"""Partitions that are added to a topic of a cluster, on the nodes that are named for them: at each door, by Python and by the command."""

import contextlib

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

import logdb
from logdb.cli.app import arguments, cli
from logdb.cli.session import Session
from logdb.errors import InvalidPartitions, InvalidReassignment
from logdb_kafka_api.errors import Code
from support.cluster_process import cluster_process, eventually
from support.kafka_wire import Wire
from support.serving import Served

pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("cluster")]


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


def placed(db, topic):
    """The replicas of the partitions that were added; they take records."""
    partitions = db.describe_topic(topic).partitions[1:]
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
        ({"partitions": 1, "assignments": []}, InvalidPartitions, "never shrinks"),
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


def test_the_flags_of_kafka_topics(nodes, db, topic, capsys):
    def run(*flags):
        words, kafka = arguments(["logdb", "kafka-topics", "--bootstrap-server", nodes.urls[0], *flags])
        session = Session(kafka=kafka)
        with contextlib.suppress(SystemExit):
            cli.main(args=words, prog_name="logdb", obj=session)
        return session.exit_code, capsys.readouterr().err

    run("--alter", "--topic", topic, "--partitions", "3", "--replica-assignment", "1:2,3:2,1:3")  # the first is that of before
    assert placed(db, topic) == [(3, 2), (1, 3)]
    code, said = run("--alter", "--topic", topic, "--partitions", "4", "--replica-assignment", "1:2,3:2,1:3,1:9")
    assert (code, "node 9 has never registered" in said) == (2, True)
    assert "like 1:2,2:3" in run("--alter", "--topic", topic, "--partitions", "4", "--replica-assignment", "1:x")[1]
    assert "goes with --alter" in run("--create", "--topic", "other", "--replica-assignment", "1:2")[1]
