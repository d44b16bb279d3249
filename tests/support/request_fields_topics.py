"""Requests about topics, records and the cluster, with the values of their fields that are wrong in turn."""

from types import MappingProxyType

from support.request_fields_values import (
    LAST,
    LONG,
    MOST_32,
    MOST_64,
    NAMES,
    OTHER_IDS,
    OWN,
    PARTITION,
    RECORDS,
    UNKNOWN_ID,
    Bases,
    T,
    Values,
    Wrong,
    by_id,
    in_topic,
)

_CURSORS = (("t", 0), ("t", 9), ("t", -1), ("a", 0), ("z", 0))

# ---------------------------------------------------------------- the requests


def _produce(topic: Values) -> Values:
    return {"acks": -1, "timeout_ms": 20_000, **topic}


def _fetch(_: int) -> Values:
    at = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1}
    asked = in_topic("t", {**at, "partition_max_bytes": 1 << 20}, name="topic")
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0, "session_epoch": -1, **asked}


def _fetch_by_id(number: int) -> Values:
    values = _fetch(number)
    return {**values, "replica_state": {"replica_id": -1, "replica_epoch": -1}, **by_id(T, values["topics"][0]["partitions"][0])}


def _create(number: int) -> Values:
    topic = {"name": f"c{number}", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": 20_000, "validate_only": False}


def _add_partitions(number: int) -> Values:
    return {"topics": [{"name": f"topic-{number}", "count": 2, "assignments": None}], "timeout_ms": 20_000, "validate_only": False}


def _alter(number: int) -> Values:
    config = {"name": "retention.ms", "value": "86400000"}
    return {"resources": [{"resource_type": 2, "resource_name": f"topic-{number}", "configs": [config]}], "validate_only": False}


def _alter_some(number: int) -> Values:
    values = _alter(number)
    values["resources"][0]["configs"][0]["config_operation"] = 0
    return values


def _update_features(_: int) -> Values:
    return {"feature_updates": [{"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}], "validate_only": True}


def _describe_configs(_: int) -> Values:
    return {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms", "segment.bytes"]}]}


def _configs(*configs: tuple[str, str | None]) -> list[Values]:
    return [{"name": name, "value": value} for name, value in configs]


BASES: Bases = MappingProxyType(
    {
        "ApiVersions": (4, lambda _: {"client_software_name": "a-client", "client_software_version": "1.0"}),
        "Metadata": (13, lambda _: {"topics": [{"topic_id": bytes(16), "name": "t"}], "allow_auto_topic_creation": False}),
        "Metadata by id": (13, lambda _: {"topics": [{"topic_id": T, "name": None}], "allow_auto_topic_creation": False}),
        "Produce": (
            9,
            lambda _: _produce(in_topic("own", {"index": PARTITION, "records": RECORDS}, "topic_data", partitions="partition_data")),
        ),
        "Produce by id": (
            13,
            lambda _: _produce(by_id(OWN, {"index": PARTITION, "records": RECORDS}, "topic_data", "partition_data")),
        ),
        "Fetch": (12, _fetch),
        "Fetch by id": (17, _fetch_by_id),
        "ListOffsets": (
            10,
            lambda _: {
                "replica_id": -1,
                **in_topic("t", {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}),
                "timeout_ms": 20_000,
            },
        ),
        "OffsetForLeaderEpoch": (
            4,
            lambda _: {
                "replica_id": -1,
                **in_topic("t", {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}, name="topic"),
            },
        ),
        "DeleteRecords": (2, lambda _: {"timeout_ms": 20_000, **in_topic("own", {"partition_index": PARTITION, "offset": 1})}),
        "DescribeTopicPartitions": (0, lambda _: {"topics": [{"name": "t"}], "response_partition_limit": 2000, "cursor": None}),
        "DescribeCluster": (1, lambda _: {"include_cluster_authorized_operations": False, "endpoint_type": 1}),
        "DescribeQuorum": (2, lambda _: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
        "DescribeLogDirs": (4, lambda _: {"topics": [{"topic": "t", "partitions": [0]}]}),
        "ListConfigResources": (1, lambda _: {"resource_types": [4]}),
        "UpdateFeatures": (2, _update_features),
        "CreatePartitions": (3, _add_partitions),
        "AlterConfigs": (2, _alter),
        "IncrementalAlterConfigs": (1, _alter_some),
        "CreateTopics": (7, _create),
        "DescribeConfigs": (4, _describe_configs),
        "DeleteTopics by id": (6, lambda _: {"topics": [{"name": None, "topic_id": LAST}], "timeout_ms": 20_000}),
    }
)
DELETING: Bases = MappingProxyType(
    {"DeleteTopics": (6, lambda number: {"topics": [{"name": f"topic-{number}", "topic_id": bytes(16)}], "timeout_ms": 20_000})}
)
"""Comes last: a Kafka deletes its internal topics, too."""

# ---------------------------------------------------------------- the values

_CONFIGS = {
    "resources": ([],),
    "resources.resource_type": (0, 1, 4, 8, 99),
    "resources.resource_name": NAMES,
    "resources.configs": ([],),
    "resources.configs.name": ("", "nope", "cleanup.policy"),
    "resources.configs.value": ("", "x", "-2", None),
    "validate_only": (True,),
}
WRONG: Wrong = MappingProxyType(
    {
        "ApiVersions": {
            "client_software_name": ("", "!", "a.b-c", "-a", LONG),
            "client_software_version": ("", "!", "1.0-rc.1", "1_0", LONG),
        },
        "Metadata": {
            "topics": (None, []),
            "topics.topic_id": (UNKNOWN_ID,),
            "topics.name": (*NAMES, None, LONG, "__consumer_offsets"),
            "allow_auto_topic_creation": (True,),
            "include_topic_authorized_operations": (True,),
        },
        "Metadata by id": {"topics.topic_id": OTHER_IDS, "topics.name": ("", "t", "none")},
        "Produce": {
            "transactional_id": ("", "tx"),
            "acks": (0, 1, 2, -2),
            "timeout_ms": (0, -1),
            "topic_data": ([], [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": RECORDS}]}]),
            "topic_data.name": (*NAMES, "t"),
            "topic_data.partition_data": ([],),
            "topic_data.partition_data.index": (-1, 9999),
            "topic_data.partition_data.records": (None, b"", RECORDS * 2, RECORDS[:-1]),
        },
        "Produce by id": {
            "acks": (0, 1),
            "topic_data.topic_id": OTHER_IDS,
            "topic_data.partition_data": ([],),
            "topic_data.partition_data.index": (-1, 9999),
        },
        "Fetch": {
            "cluster_id": ("other",),
            "replica_id": (-2, 5),
            "max_wait_ms": (-1,),
            "min_bytes": (-1, 0, MOST_32),
            "max_bytes": (-1, 0, 1),
            "isolation_level": (1, 2, -1),
            "session_id": (5, -1),
            "session_epoch": (0, 1, -2),
            "topics": ([],),
            "topics.topic": NAMES,
            "topics.partitions": ([],),
            "topics.partitions.partition": (-1, 9999),
            "topics.partitions.current_leader_epoch": (0, 9, -2),
            "topics.partitions.fetch_offset": (-1, 3, 4, MOST_64),
            "topics.partitions.last_fetched_epoch": (0, 9, -2),
            "topics.partitions.log_start_offset": (-2, 9),
            "topics.partitions.partition_max_bytes": (-1, 0, 1),
            "forgotten_topics_data": ([{"topic": "none", "partitions": [0]}],),
            "rack_id": ("r",),
        },
        "Fetch by id": {
            "replica_state.replica_id": (5, -2),
            "replica_state.replica_epoch": (5, -2),
            "topics.topic_id": OTHER_IDS,
            "topics.partitions": ([],),
            "topics.partitions.partition": (-1, 9999),
            "topics.partitions.fetch_offset": (4,),
            "topics.partitions.replica_directory_id": (UNKNOWN_ID,),
            "topics.partitions.high_watermark": (0, MOST_64),
            "forgotten_topics_data": ([{"topic_id": UNKNOWN_ID, "partitions": [0]}],),
        },
        "ListOffsets": {
            "replica_id": (-2, 5),
            "isolation_level": (1, 2, -1),
            "topics": ([],),
            "topics.name": NAMES,
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (-1, 9999),
            "topics.partitions.current_leader_epoch": (0, 9, -2),
            "topics.partitions.timestamp": (0, -2, -3, -4, -5, -6, -7, MOST_64),
            "timeout_ms": (0, -1),
        },
        "OffsetForLeaderEpoch": {
            "replica_id": (-2, 5),
            "topics": ([],),
            "topics.topic": NAMES,
            "topics.partitions": ([],),
            "topics.partitions.partition": (-1, 9999),
            "topics.partitions.current_leader_epoch": (0, 9, -2),
            "topics.partitions.leader_epoch": (9, -1, -2),
        },
        "DeleteRecords": {
            "topics": ([], [{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}]),
            "topics.name": (*NAMES, "t"),
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (-1, 9999),
            "topics.partitions.offset": (0, -1, -2, 3, 4, MOST_64),
            "timeout_ms": (0, -1),
        },
        "DescribeTopicPartitions": {
            "topics": ([],),
            "topics.name": NAMES,
            "response_partition_limit": (0, -1, 1),
            "cursor": tuple({"topic_name": one, "partition_index": at} for one, at in _CURSORS),
        },
        "DescribeCluster": {"include_cluster_authorized_operations": (True,), "endpoint_type": (0, 2, 3, -1)},
        "DescribeQuorum": {
            "topics": ([],),
            "topics.topic_name": ("", "t"),
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (1, -1),
        },
        "DescribeLogDirs": {
            "topics": (None, []),
            "topics.topic": (*NAMES, "__consumer_offsets"),
            "topics.partitions": ([], [-1], [9999], [0, 0]),
        },
        "ListConfigResources": {"resource_types": ([0], [1], [8], [16], [32], [64], [4, 4], [4, 99])},
        "UpdateFeatures": {
            "feature_updates": ([],),
            "feature_updates.feature": ("", "nope", "metadata.version"),
            "feature_updates.max_version_level": (0, 1, 3, -1),
            "feature_updates.upgrade_type": (0, 2, 3, 9),
            "timeout_ms": (0, -1),
            "validate_only": (False,),
        },
        "CreatePartitions": {
            "topics": ([],),
            "topics.name": (*NAMES, "__consumer_offsets"),
            "topics.count": (0, 1, -1, MOST_32),
            "topics.assignments": ([], [{"broker_ids": []}], [{"broker_ids": [9]}], [{"broker_ids": [1, 1]}]),
            "timeout_ms": (0, -1),
            "validate_only": (True,),
        },
        "AlterConfigs": _CONFIGS,
        "IncrementalAlterConfigs": {**_CONFIGS, "resources.configs.config_operation": (1, 2, 3, 9, -1)},
        "CreateTopics": {
            "topics": ([],),
            "topics.name": ("", "!", ".", LONG, "t", "own", "__consumer_offsets"),
            "topics.num_partitions": (0, -1, -2),
            "topics.replication_factor": (0, 2, -1, -2),
            "topics.assignments": ([{"partition_index": 0, "broker_ids": [9]}],),
            "topics.configs": (
                _configs(("nope", "1")),
                _configs(("retention.ms", "x")),
                _configs(("retention.ms", "-2")),
                _configs(("retention.ms", None)),
                _configs(("retention.ms", "1"), ("retention.ms", "2")),
                _configs(("compression.type", "uncompressed")),
                _configs(("cleanup.policy", "nope")),
            ),
            "timeout_ms": (0, -1),
            "validate_only": (True,),
        },
        "DescribeConfigs": {
            "resources": ([],),
            "resources.resource_type": (0, 1, 3, 4, 8, 16, 32, 99),
            "resources.resource_name": (*NAMES, "__consumer_offsets"),
            "resources.configuration_keys": ([], ["nope"]),
            "include_synonyms": (True,),
            "include_documentation": (True,),
        },
        "DeleteTopics by id": {"topics.topic_id": OTHER_IDS},
        "DeleteTopics": {
            "topics": ([],),
            "topics.name": (*NAMES, None, "__consumer_offsets"),
            "topics.topic_id": (UNKNOWN_ID,),
            "timeout_ms": (0, -1),
        },
    }
)
