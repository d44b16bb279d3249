"""Configs, partitions, records and sizes, as real administrators ask for them on the Kafka door."""

import json

import pytest
from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from logdb.model import TOPIC_CONFIGS
from support.cluster_wire import wire_to
from support.kafka_door import kafka_door, kafka_python


@pytest.fixture
def served(tmp_path):
    with kafka_door(tmp_path / "db") as served:
        served.db.create_topic("t", partitions=2, config={"retention.ms": 5000})
        yield served


@pytest.fixture
def admin(served):
    return AdminClient({"bootstrap.servers": served.address})


@pytest.fixture
def wire(served):
    with wire_to(served.address) as wire:
        yield wire


def config_of(admin, name="t", kind=ResourceType.TOPIC):
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource])[resource].result(10)


# ---------------------------------------------------------------- configs


def test_configs_of_a_topic(admin):
    found = config_of(admin)
    assert set(found) == set(TOPIC_CONFIGS)
    assert (found["retention.ms"].value, found["retention.ms"].is_default, found["retention.ms"].source) == ("5000", False, 1)
    assert [(one.value, one.source) for one in found["retention.ms"].synonyms.values()]
    assert (found["preallocate"].value, found["preallocate"].is_default) == ("false", True)
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PART"):
        config_of(admin, "none")


@pytest.mark.parametrize("version", range(5))
def test_configs_in_each_version(wire, version):
    asked = {"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms", "none"]}
    answer = wire.ask("DescribeConfigs", version, resources=[asked], include_synonyms=True, include_documentation=True)
    (config,) = answer["results"][0]["configs"]
    assert (config["name"], config["value"]) == ("retention.ms", "5000")
    assert config["synonyms"] == (
        [{"name": "retention.ms", "value": value, "source": source} for value, source in (("5000", 1), ("-1", 5))] if version else ()
    )
    if version >= 3:
        assert (config["config_type"], config["documentation"]) == (5, TOPIC_CONFIGS["retention.ms"].meaning)


@pytest.mark.parametrize("version", range(5))
def test_a_value_that_is_too_long_for_clients_is_not_told(served, wire, version):
    """Kafka's clients read no string over 32,767 bytes; the other configs, and other topics, are told."""
    name = "logdb.iceberg.schema"
    for topic, letter, count in (("long", "x", 40_000), ("fits", "x", 32_000), ("wide", "é", 20_000)):
        schema = {"type": "record", "name": "r", "doc": letter * count, "fields": [{"name": "a", "type": "long"}]}
        served.db.create_topic(topic, config={name: json.dumps(schema, ensure_ascii=False), "logdb.iceberg.mode": "avro"})
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None} for topic in ("long", "fits", "wide", "t")]
    answer = wire.ask("DescribeConfigs", version, resources=asked, include_synonyms=True, include_documentation=False)
    long, fits, wide, other = ({one["name"]: one for one in found["configs"]} for found in answer["results"])
    for found in (long, wide):
        assert (found[name]["value"], found[name]["is_sensitive"], found["logdb.iceberg.mode"]["value"]) == (None, True, "avro")
        assert [one["value"] for one in found[name]["synonyms"]] == ([None, ""] if version else [])
    assert (len(fits[name]["value"]) > 32_000, fits[name]["is_sensitive"]) == (True, False)
    assert other["retention.ms"]["value"] == "5000"


def test_no_compression_has_kafka_s_name(admin, served, wire):
    entry = ConfigEntry("compression.type", "uncompressed", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)
    assert served.db.describe_topic("t").config["compression.type"] == "none"
    asked = {"resource_type": 2, "resource_name": "t", "configuration_keys": ["compression.type"]}
    answer = wire.ask("DescribeConfigs", 4, resources=[asked], include_synonyms=True, include_documentation=False)
    (config,) = answer["results"][0]["configs"]
    assert [config["value"], *(one["value"] for one in config["synonyms"])] == ["uncompressed"] * 3
    for name in ("uncompressed", "none"):
        topic = NewTopic(name, 1, config={"compression.type": name})
        admin.create_topics([topic])[name].result(10)
        assert served.db.describe_topic(name).config["compression.type"] == "none"
        assert config_of(admin, name)["compression.type"].value == "uncompressed"


def test_configs_of_the_broker(admin, served, wire):
    found = config_of(admin, "0", ResourceType.BROKER)
    assert (found["num.partitions"].value, found["num.partitions"].is_read_only) == ("1", True)
    assert found["log.dirs"].value == served.db.path
    for kind, name in ((4, "7"), (8, "0"), (4, "0")):
        resources = [{"resource_type": kind, "resource_name": name, "configs": [{"name": "num.partitions", "value": "2"}]}]
        assert wire.ask("AlterConfigs", 1, resources=resources)["responses"][0]["error_code"] == 42
        answer = wire.ask("DescribeConfigs", 1, resources=[{**resources[0], "configuration_keys": None}])
        assert answer["results"][0]["error_code"] == (0 if (kind, name) == (4, "0") else 42)


def test_configs_are_changed_one_by_one(admin, served):
    def change(*entries, validate_only=False):
        resource = ConfigResource(
            ResourceType.TOPIC,
            "t",
            incremental_configs=[ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in entries],
        )
        admin.incremental_alter_configs([resource], validate_only=validate_only)[resource].result(10)
        config = served.db.describe_topic("t").config
        return {name: value for name, value in config.items() if name != "min.insync.replicas"}  # a cluster sets it

    op = AlterConfigOpType
    assert change(("segment.ms", op.SET, "9000")) == {"retention.ms": 5000, "segment.ms": 9000}
    assert change(("segment.ms", op.DELETE, None), validate_only=True) == {"retention.ms": 5000, "segment.ms": 9000}
    assert change(("segment.ms", op.DELETE, None), ("cleanup.policy", op.APPEND, "compact")) == {
        "retention.ms": 5000,
        "cleanup.policy": "compact,delete",
    }
    assert change(("cleanup.policy", op.SUBTRACT, "delete"))["cleanup.policy"] == "compact"
    for entry in (("segment.ms", op.SET, "soon"), ("none", op.SET, "1"), ("segment.ms", op.APPEND, "1")):
        with pytest.raises(Exception, match="INVALID_CONFIG"):
            change(entry)


def test_a_config_that_is_not_there_is_reset(admin, served):
    """As in Kafka, where MirrorMaker resets all that the source has not set, its own version's configs among them."""
    resource = ConfigResource(
        ResourceType.TOPIC,
        "t",
        incremental_configs=[
            ConfigEntry("remote.storage.enable", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("segment.ms", "7000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(10)
    assert served.db.describe_topic("t").config["segment.ms"] == 7000


def test_configs_are_replaced(admin, served, wire):
    resource = ConfigResource(ResourceType.TOPIC, "t", set_config={"segment.ms": "9000"})
    with pytest.warns(DeprecationWarning, match="incremental"):
        admin.alter_configs([resource])[resource].result(10)
    assert served.db.describe_topic("t").config == {"segment.ms": 9000}
    configs = [{"name": "retention.ms", "value": "1"}]
    asked = [{"resource_type": 2, "resource_name": name, "configs": configs} for name in ("t", "none")]
    answer = wire.ask("AlterConfigs", 2, resources=asked, validate_only=True)
    assert [one["error_code"] for one in answer["responses"]] == [0, 3]
    assert served.db.describe_topic("t").config == {"segment.ms": 9000}


def test_kafka_python_describes_and_alters_configs(served):
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=served.address)
    from kafka.admin import ConfigResource as TheirResource

    try:
        admin.alter_configs([TheirResource("TOPIC", "t", configs={"segment.ms": "9000"})])
        assert served.db.describe_topic("t").config["segment.ms"] == 9000
        assert "retention.ms" in str(admin.describe_configs([TheirResource("TOPIC", "t")]))
        cluster = admin.describe_cluster()
        assert [one["broker_id" if "broker_id" in one else "node_id"] for one in cluster["brokers"]] == list(served.nodes)
    finally:
        admin.close()


# ---------------------------------------------------------------- partitions, records, sizes


def test_partitions_are_added(admin, served):
    admin.create_partitions([NewPartitions("t", 4)], validate_only=True)["t"].result(10)
    assert served.db.describe_topic("t").partition_count == 2
    admin.create_partitions([NewPartitions("t", 4)])["t"].result(10)
    assert served.db.describe_topic("t").partition_count == 4
    admin.create_partitions([NewPartitions("t", 5, [[0]])])["t"].result(10)
    for wanted, code in (
        (NewPartitions("t", 5), "INVALID_PARTITIONS"),
        (NewPartitions("t", 6, [[1]]), "INVALID_REPLICA_ASSIGNMENT"),
        (NewPartitions("none", 6), "UNKNOWN_TOPIC_OR_PART"),
    ):
        with pytest.raises(Exception, match=code):
            admin.create_partitions([wanted])[wanted.topic].result(10)


def test_records_are_deleted(admin, served, wire):
    served.db.log("t").append_many([b"%d" % number for number in range(10)])
    wanted = TopicPartition("t", 0, 4)
    assert admin.delete_records([wanted])[wanted].result(10).low_watermark == 4
    assert served.db.log("t").start_offset == 4
    asked = [{"partition_index": partition, "offset": 11} for partition in (0, 9)]
    answer = wire.ask("DeleteRecords", 2, topics=[{"name": "t", "partitions": asked}])
    assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [1, 3]
    for deleted in (4, 3, 0):  # as Kafka: a client may send a request twice
        wanted = TopicPartition("t", 0, deleted)
        assert admin.delete_records([wanted])[wanted].result(10).low_watermark == 4
    everything = TopicPartition("t", 0, -1)
    assert admin.delete_records([everything])[everything].result(10).low_watermark == 10


def test_the_first_offset_on_this_machine(served, wire):
    served.db.log("t").append_many([b"a", b"b", b"c"])
    served.db.delete_records("t", 0, 2)
    for timestamp in (-2, -4):
        asked = [{"partition_index": 0, "timestamp": timestamp}]
        (found,) = wire.ask("ListOffsets", 8, replica_id=-1, topics=[{"name": "t", "partitions": asked}])["topics"][0]["partitions"]
        assert (found["error_code"], found["offset"]) == (0, 2)


@pytest.mark.parametrize("version", range(5))
def test_sizes(served, wire, version):
    served.db.log("t", 1).append_many([bytes(100)] * 10)
    served.db.flush()
    one, twice = {"topic": "t", "partitions": [1]}, {"topic": "t", "partitions": [0]}
    for topics, partitions in ((None, [0, 1]), ([one], [1]), ([one, twice], [0, 1])):
        (place,) = wire.ask("DescribeLogDirs", version, topics=topics)["results"]
        assert place["log_dir"] == served.db.path
        (topic,) = place["topics"]
        assert [one["partition_index"] for one in topic["partitions"]] == partitions
        assert topic["partitions"][-1]["partition_size"] > 1000


def test_the_cluster(admin, served, wire):
    found = admin.describe_cluster(include_authorized_operations=True).result(10)
    assert [(node.id, f"{node.host}:{node.port}") for node in found.nodes] == list(served.nodes.items())
    assert found.controller.id in served.nodes
    assert {operation.name for operation in found.authorized_operations} >= {"CREATE", "ALTER", "DESCRIBE"}
    topics = admin.describe_topics(TopicCollection(["t"]), include_authorized_operations=True)
    assert {operation.name for operation in topics["t"].result(10).authorized_operations} >= {"READ", "WRITE", "DELETE"}
    answer = wire.ask("DescribeCluster", 0, include_cluster_authorized_operations=True)
    assert answer["cluster_authorized_operations"] & 1 << 8
    assert wire.ask("DescribeCluster", 1, endpoint_type=2)["error_code"] == 114


def test_what_is_named_many_times_is_described_once(wire):
    """The answer to a small request is as large as what there is."""
    group = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1}
    offset = {"partition_index": 0, "committed_offset": 1}
    wire.ask("OffsetCommit", 8, **group, topics=[{"name": "t", "partitions": [offset]}])
    many, resource = 1_000, {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    asked = [
        ("Metadata", 9, "topics", {"topics": [{"name": "t"}] * many}),
        ("DescribeConfigs", 4, "results", {"resources": [resource] * many}),
        ("DescribeGroups", 5, "groups", {"groups": ["g"] * many}),
        ("OffsetFetch", 8, "groups", {"groups": [{"group_id": "g", "topics": None}] * many}),
        ("DescribeProducers", 0, "topics", {"topics": [{"name": "t", "partition_indexes": [0, 0]}] * many}),
        ("DescribeTransactions", 0, "transaction_states", {"transactional_ids": ["x"] * many}),
        ("FindCoordinator", 4, "coordinators", {"coordinator_keys": ["g"] * many}),
    ]
    for name, version, key, values in asked:
        (once,) = wire.ask(name, version, **values)[key]
        assert name != "DescribeProducers" or len(once["partitions"]) == 1
