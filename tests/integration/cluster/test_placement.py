"""What the doors of a cluster tell of its brokers, and of the leaders and replicas of partitions."""

import pytest

import logdb
from logdb.errors import InvalidReplicationFactor
from logdb_kafka_api.errors import Code
from support.clustered import NODES, Clustered, clustered
from support.kafka_wire import Wire
from support.serving import Served


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    with clustered(tmp_path_factory.mktemp("placement") / "db") as nodes, logdb.open(nodes.urls) as db:
        db.create_topic("t", partitions=3)
        nodes.cluster.lead("t", 1, None)
        yield nodes


def served(nodes: Clustered, number: int = 1) -> Served:
    node = nodes.nodes[number]
    return Served(None, node.url, node.server)


def test_a_topic_gets_the_replicas_that_it_is_created_with(three) -> None:
    with logdb.open(three.urls) as db:
        assert [info.replicas for info in db.describe_topic("t").partitions] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
        assert [info.leader for info in db.describe_topic("t").partitions] == [1, None, 3]
        db.create_topic("two", partitions=1, replication_factor=2)
        one = db.describe_topic("two").partitions[0]
        assert (one.replicas, one.in_sync) == ((1, 2), (1, 2))
        assert db.create_topic("by-default").partition_count == 6
        with pytest.raises(InvalidReplicationFactor, match="larger than available brokers: 3"):
            db.create_topic("more", replication_factor=4)


def test_a_directory_has_one_replica(tmp_path) -> None:
    with logdb.open(tmp_path / "db") as db:
        for factor in (None, 1, -1):
            db.create_topic(f"t{factor}", replication_factor=factor)
        for factor in (0, 2, 3):
            with pytest.raises(InvalidReplicationFactor, match=f"{factor}"):
                db.create_topic("u", replication_factor=factor)
        one = db.describe_topic("t1").partitions[0]
        assert (one.leader, one.replicas, one.in_sync) == (0, (0,), (0,))


def test_kafkas_clients_learn_brokers_leaders_and_replicas(three) -> None:
    with Wire(three.nodes[2].kafka) as wire:
        answer = wire.ask("Metadata", 12, topics=[{"name": "t"}])
        assert {one["node_id"]: f"{one['host']}:{one['port']}" for one in answer["brokers"]} == {
            number: node.kafka for number, node in three.nodes.items()
        }
        assert answer["controller_id"] == 3
        first, second, third = answer["topics"][0]["partitions"]
        assert (first["leader_id"], first["replica_nodes"], first["isr_nodes"], first["error_code"]) == (1, [1, 2, 3], [1, 2, 3], 0)
        assert (second["leader_id"], second["error_code"]) == (-1, Code.LEADER_NOT_AVAILABLE)
        assert third["leader_id"] == 3
        described = wire.ask("DescribeCluster", 0)
        assert (described["controller_id"], sorted(one["broker_id"] for one in described["brokers"])) == (3, list(NODES))


def test_a_broker_that_is_away_is_named_and_leads_nothing(three) -> None:
    """A client forgets a broker that an answer leaves out; librdkafka's and kafka-python's then wait for it for good."""
    three.cluster.fenced.add(3)
    try:
        with Wire(three.nodes[1].kafka) as wire:
            answer = wire.ask("Metadata", 12, topics=[{"name": "t"}])
            described = wire.ask("DescribeCluster", 0)
        assert [one["node_id"] for one in answer["brokers"]] == list(NODES)
        assert [one["broker_id"] for one in described["brokers"]] == list(NODES)
        first, _, third = answer["topics"][0]["partitions"]
        assert (first["isr_nodes"], first["offline_replicas"]) == ([1, 2], [3])
        assert (third["leader_id"], third["error_code"]) == (-1, Code.LEADER_NOT_AVAILABLE)
    finally:
        three.cluster.fenced.clear()


def test_while_all_start_each_node_names_all(three) -> None:
    """All are fenced then: librdkafka forgets the brokers that an answer does not name, its bootstrap servers with them."""
    three.cluster.fenced.update(NODES)
    try:
        for node in three.nodes.values():
            with Wire(node.kafka) as wire:
                assert [one["node_id"] for one in wire.ask("Metadata", 9, topics=[])["brokers"]] == list(NODES)
                assert [one["broker_id"] for one in wire.ask("DescribeCluster", 0)["brokers"]] == list(NODES)
    finally:
        three.cluster.fenced.clear()


def test_topics_created_over_kafkas_wire_are_replicated(three) -> None:
    with Wire(three.nodes[1].kafka) as wire:
        topic = {"name": "by-kafka", "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
        made = wire.ask("CreateTopics", 7, topics=[topic])["topics"][0]
        assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 6, 3)
        made = wire.ask("CreateTopics", 7, topics=[topic | {"name": "k2", "num_partitions": 1, "replication_factor": 2}])["topics"][0]
        assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 1, 2)
        refused = wire.ask("CreateTopics", 7, topics=[topic | {"name": "k3", "replication_factor": 4}])["topics"][0]
        assert refused["error_code"] == Code.INVALID_REPLICATION_FACTOR


def test_a_coordinator_is_the_leader_of_its_partition(three) -> None:
    with Wire(three.nodes[1].kafka) as wire:
        found = wire.ask("FindCoordinator", 2, key="g", key_type=0)
        assert found["error_code"] == 0
        partition = three.nodes[1].broker._groups.partition_of("g")
        assert found["node_id"] == three.cluster.state("__consumer_offsets", partition).leader
        assert f"{found['host']}:{found['port']}" == three.nodes[found["node_id"]].kafka
        three.cluster.lead("__consumer_offsets", partition, None)
        assert wire.ask("FindCoordinator", 2, key="g", key_type=0)["error_code"] == Code.COORDINATOR_NOT_AVAILABLE
        assert wire.ask("FindCoordinator", 4, key_type=0, coordinator_keys=["g"])["coordinators"][0]["node_id"] == -1


def test_a_broker_tells_the_sizes_of_its_own_replicas_alone(three) -> None:
    with logdb.open(three.urls) as db:
        db.create_topic("sized", partitions=3, replication_factor=2)
    wanted = [{"topic": "sized", "partitions": [0, 1, 2]}]
    for number, replicas in ((1, [0, 2]), (2, [0, 1]), (3, [1, 2])):
        with Wire(three.nodes[number].kafka) as wire:
            (directory,) = wire.ask("DescribeLogDirs", 1, topics=wanted)["results"]
        assert [one["partition_index"] for topic in directory["topics"] for one in topic["partitions"]] == replicas


def test_rest_tells_them_too(three) -> None:
    rest = served(three)
    assert rest.call("/brokers")[1] == {"brokers": [1, 2, 3]}
    v2 = rest.call("/topics/t/partitions/1")[1]
    assert (v2["leader"], [one["broker"] for one in v2["replicas"]]) == (None, [2, 3, 1])
    cluster = "/v3/clusters/" + rest.call("/v3/clusters")[1]["data"][0]["cluster_id"]
    status, made = rest.call(f"{cluster}/topics", {"topic_name": "by-v3", "partitions_count": 1, "replication_factor": 2})
    assert (status, made["replication_factor"]) == (201, 2)
    assert rest.call(f"{cluster}/topics/by-v3")[1]["replication_factor"] == 2
    refused = rest.call(f"{cluster}/topics", {"topic_name": "by-v3-too", "replication_factor": 4})
    assert (refused[0], refused[1]["error_code"]) == (400, 40002)
    brokers = rest.call(f"{cluster}/brokers")[1]["data"]
    assert [(one["broker_id"], one["rack"]) for one in brokers] == [(1, "rack-1"), (2, "rack-2"), (3, "rack-3")]
    replicas = rest.call(f"{cluster}/topics/t/partitions/0/replicas")[1]["data"]
    assert [(one["broker_id"], one["is_leader"], one["is_in_sync"]) for one in replicas] == [
        (1, True, True),
        (2, False, True),
        (3, False, True),
    ]
    assert rest.call(f"{cluster}/topics/t/partitions/1")[1]["leader"] is None
    page = rest.call("/metrics")[1].decode()
    assert "kafka_brokers 3" in page
    assert 'kafka_topic_partition_replicas{topic="t",partition="0"} 3' in page
