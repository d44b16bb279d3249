"""APIs that administrators' programs call first: the quorum, features, topics page by page, resources, directories, client metrics."""

import time
from types import MappingProxyType

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import logdb.testing
from logdb_kafka_api.errors import Code
from logdb_kafka_api.handlers import metadata
from support.kafka_wire import Wire

QUORUM = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
LEVELS = MappingProxyType({"metadata.version": 30, "transaction.version": 2})


@pytest.fixture(scope="module")
def broker():
    with logdb.testing.broker() as running:
        for name in ("a", "b", "c"):
            running.database.create_topic(name, partitions=3)
        yield running


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as one:
        yield one


# ---------------------------------------------------------------- the cluster


@pytest.mark.parametrize("version", range(3))
def test_a_single_node_is_its_only_voter(broker, wire, version):
    before_ms = int(time.time() * 1000)
    answer = wire.ask("DescribeQuorum", version, topics=[QUORUM])
    (partition,) = answer["topics"][0]["partitions"]
    (voter,) = partition["current_voters"]
    assert (answer["error_code"], partition["error_code"]) == (0, 0)
    assert (partition["leader_id"], voter["replica_id"]) == (0, 0)
    assert voter["log_end_offset"] == partition["high_watermark"] > 0
    if version >= 1:
        assert voter["last_fetch_timestamp"] == voter["last_caught_up_timestamp"] >= before_ms
    assert answer["nodes"] == ([{"node_id": 0, "listeners": []}] if version >= 2 else ())


@pytest.mark.parametrize("more", [{"topic_name": "a", "partitions": [{"partition_index": 0}]}, QUORUM])
def test_only_the_metadata_has_a_quorum(wire, more):
    answer = wire.ask("DescribeQuorum", 2, topics=[QUORUM, more])
    assert (answer["error_code"], len(answer["topics"])) == (0, 2)
    assert {one["error_code"] for topic in answer["topics"] for one in topic["partitions"]} == {Code.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", [3, 4])
def test_features_have_one_level(wire, version):
    answer = wire.ask("ApiVersions", version)
    assert {one["name"]: one["max_version_level"] for one in answer["finalized_features"]} == LEVELS
    assert {one["name"]: one["max_version"] for one in answer["supported_features"]} == LEVELS


@pytest.mark.parametrize("version", range(3))
def test_a_feature_keeps_its_level(wire, version):
    def code(**levels):
        updates = [{"feature": name, "max_version_level": level} for name, level in levels.items()]
        answer = wire.ask("UpdateFeatures", version, feature_updates=updates)
        assert (answer["error_message"] is None) == (answer["error_code"] == 0)
        assert [one["feature"] for one in answer["results"]] == ([] if answer["error_code"] or version == 2 else list(levels))
        return answer["error_code"]

    assert code() == code(**LEVELS) == Code.NONE
    if version:
        update = {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 9}
        assert wire.ask("UpdateFeatures", version, feature_updates=[update])["error_code"] == Code.INVALID_UPDATE_VERSION
    for wrong in ({"metadata.version": 29}, {"transaction.version": 0}, {"group.version": 1}):
        assert code(**LEVELS | wrong) == Code.INVALID_UPDATE_VERSION


# ---------------------------------------------------------------- topics page by page


def pages(wire, *topics, limit, cursor=None):
    """The partitions of each page, by topic, until there is no cursor."""
    found = []
    while True:
        asked = {"topics": [{"name": name} for name in topics], "response_partition_limit": limit, "cursor": cursor}
        answer = wire.ask("DescribeTopicPartitions", 0, **asked)
        found.append({topic["name"]: [one["partition_index"] for one in topic["partitions"]] for topic in answer["topics"]})
        if (cursor := answer["next_cursor"]) is None:
            return found


@pytest.mark.parametrize("topics", [(), ("c", "a", "b", "a")], ids=["all", "named"])
def test_topics_come_in_pages(wire, topics):
    whole = {"a": [0, 1, 2], "b": [0, 1, 2], "c": [0, 1, 2]}
    assert pages(wire, *topics, limit=9) == pages(wire, *topics, limit=2000) == [whole]
    assert pages(wire, *topics, limit=3) == [{name: numbers} for name, numbers in whole.items()]
    assert pages(wire, *topics, limit=4) == [{"a": [0, 1, 2], "b": [0]}, {"b": [1, 2], "c": [0, 1]}, {"c": [2]}]
    assert pages(wire, *topics, limit=0) == pages(wire, *topics, limit=-1) == [{name: [one]} for name in whole for one in whole[name]]
    assert pages(wire, *topics, limit=9, cursor={"topic_name": "b", "partition_index": 2}) == [{"b": [2], "c": [0, 1, 2]}]


def test_a_client_cannot_ask_for_larger_answers(wire, monkeypatch):
    assert metadata._PARTITIONS_MAX == 2000
    monkeypatch.setattr(metadata, "_PARTITIONS_MAX", 2)  # in place of a topic of 2,001 partitions
    assert pages(wire, "a", limit=5000) == [{"a": [0, 1]}, {"a": [2]}]


def test_topics_that_cannot_be_described(wire):
    answer = wire.ask("DescribeTopicPartitions", 0, topics=[{"name": name} for name in ("a", "none", "!")])
    assert [(one["name"], one["error_code"]) for one in answer["topics"]] == [
        ("!", Code.INVALID_TOPIC_EXCEPTION),
        ("a", Code.NONE),
        ("none", Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    (partition, *_) = answer["topics"][1]["partitions"]
    assert (partition["leader_id"], partition["replica_nodes"], partition["isr_nodes"]) == (0, [0], [0])
    assert (partition["eligible_leader_replicas"], partition["last_known_elr"]) == ([], [])
    for cursor in ({"topic_name": "a", "partition_index": -1}, {"topic_name": "b", "partition_index": 0}):
        answer = wire.ask("DescribeTopicPartitions", 0, topics=[{"name": "a"}], cursor=cursor)
        assert [one["error_code"] for one in answer["topics"]] == [Code.INVALID_REQUEST]
    behind = {"topic_name": "bb", "partition_index": 2}
    assert pages(wire, limit=9, cursor=behind) == [{"c": [0, 1, 2]}]


# ---------------------------------------------------------------- resources and directories


def test_resources_that_have_configs(wire):
    def listed(version, *types):
        answer = wire.ask("ListConfigResources", version, resource_types=list(types))
        return answer["error_code"], [(one["resource_type"], one["resource_name"]) for one in answer["config_resources"]]

    topics = [(2, "a"), (2, "b"), (2, "c")]
    assert listed(1) == listed(1, 2, 4, 8, 16, 32) == (Code.NONE, [(4, "0"), *topics])
    assert listed(1, 2, 2) == (Code.NONE, topics)
    assert listed(0) == listed(1, 16) == (Code.NONE, [])
    assert listed(1, 2, 64) == (Code.UNSUPPORTED_VERSION, [])


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_stays_in_the_one_directory(broker, wire, version):
    def codes(path):
        topics = [{"name": "a", "partitions": [0, 7]}, {"name": "none", "partitions": [0]}]
        results = wire.ask("AlterReplicaLogDirs", version, dirs=[{"path": path, "topics": topics}])["results"]
        return [(topic["topic_name"], one["partition_index"], one["error_code"]) for topic in results for one in topic["partitions"]]

    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(broker.database.path) == [("a", 0, Code.NONE), ("a", 7, unknown), ("none", 0, unknown)]
    assert {code for *_, code in codes("/nowhere")} == {Code.LOG_DIR_NOT_FOUND}


def test_configs_of_the_broker_that_kafkas_programs_read(broker):
    resource = ConfigResource(ResourceType.BROKER, "0")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = admin.describe_configs([resource])[resource].result(10)
    assert found["advertised.listeners"].value == f"PLAINTEXT://{broker.bootstrap_servers}"
    values = {name: one.value for name, one in found.items() if name.startswith("log.cleaner.")}
    assert len(values) == 11  # as many as Kafka 4.3 has
    assert values["log.cleaner.enable"] == "true"
    assert float(values["log.cleaner.io.max.bytes.per.second"]) == 32 << 20
    assert values["log.cleaner.min.cleanable.ratio"] == "0.5"
    assert all(one.is_read_only for one in found.values())


def test_without_authentication_there_are_no_users_and_none_is_stored(broker, wire):
    """A stored user would switch authentication on, and lock every client out."""
    quotas = wire.ask("DescribeClientQuotas", 1, components=[], strict=False)
    assert (quotas["error_code"], quotas["entries"]) == (Code.NONE, [])
    credentials = wire.ask("DescribeUserScramCredentials", 0, users=None)
    assert (credentials["error_code"], credentials["results"]) == (Code.NONE, [])
    (named,) = wire.ask("DescribeUserScramCredentials", 0, users=[{"name": "alice"}])["results"]
    assert named["error_code"] == Code.RESOURCE_NOT_FOUND
    rate = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
    entry = {"entity": [{"entity_type": "user", "entity_name": "alice"}], "ops": [rate]}
    assert wire.ask("AlterClientQuotas", 1, entries=[entry])["entries"][0]["error_code"] == Code.SECURITY_DISABLED
    password = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    altered = wire.ask("AlterUserScramCredentials", 0, deletions=[], upsertions=[password])
    assert altered["results"][0]["error_code"] == Code.SECURITY_DISABLED
    assert wire.ask("Metadata", 12, topics=None)["topics"]  # nobody is locked out


# ---------------------------------------------------------------- clients' metrics, and their new groups


def test_a_client_is_asked_for_no_metrics(wire):
    asked = wire.ask("GetTelemetrySubscriptions", 0, client_instance_id=bytes(16))
    mine = asked["client_instance_id"]
    assert (asked["error_code"], asked["requested_metrics"]) == (Code.NONE, [])
    assert mine != bytes(16)
    assert wire.ask("GetTelemetrySubscriptions", 0, client_instance_id=mine)["client_instance_id"] == mine

    def pushed(client, subscription):
        return wire.ask("PushTelemetry", 0, client_instance_id=client, subscription_id=subscription, metrics=b"x")["error_code"]

    assert pushed(mine, asked["subscription_id"]) == Code.NONE
    assert pushed(mine, asked["subscription_id"] + 1) == Code.UNKNOWN_SUBSCRIPTION_ID
    assert pushed(bytes(16), asked["subscription_id"]) == Code.INVALID_REQUEST


def test_a_consumer_of_the_new_protocol_gets_an_error(broker):
    """Without ConsumerGroupHeartbeat among the APIs librdkafka waits for ever: no records, no error."""
    broker.database.log("a").append(b"x")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "group.protocol": "consumer"})
    consumer.subscribe(["a"])
    error = consumer.poll(20).error()
    consumer.close()
    assert error.code() == confluent_kafka.KafkaError._FATAL
    assert "API version not supported" in error.str()
