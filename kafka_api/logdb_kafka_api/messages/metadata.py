"""What a client asks first: versions, brokers and topics, coordinators."""

from logdb.codec.schema import BOOL, ERROR_MESSAGE, INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, Message, Struct, structs

API_VERSIONS_REQUEST = Message(
    "ApiVersionsRequest",
    "0-4",
    "3+",
    Field("client_software_name", STRING, "3+"),
    Field("client_software_version", STRING, "3+"),
)
API_VERSIONS_RESPONSE = Message(
    "ApiVersionsResponse",
    "0-4",
    "3+",
    Field("error_code", INT16),
    Field("api_keys", structs(Field("api_key", INT16), Field("min_version", INT16), Field("max_version", INT16))),
    Field("throttle_time_ms", INT32, "1+"),
    Field(
        "supported_features",
        structs(Field("name", STRING), Field("min_version", INT16), Field("max_version", INT16)),
        "3+",
        tag=0,
    ),
    Field("finalized_features_epoch", INT64, "3+", default=-1, tag=1),
    Field(
        "finalized_features",
        structs(Field("name", STRING), Field("max_version_level", INT16), Field("min_version_level", INT16)),
        "3+",
        tag=2,
    ),
    Field("zk_migration_ready", BOOL, "3+", tag=3),
)

METADATA_REQUEST = Message(
    "MetadataRequest",
    "0-13",
    "9+",
    Field("topics", structs(Field("topic_id", UUID, "10+"), Field("name", STRING, nullable="10+")), nullable="1+"),
    Field("allow_auto_topic_creation", BOOL, "4+", default=True),
    Field("include_cluster_authorized_operations", BOOL, "8-10"),
    Field("include_topic_authorized_operations", BOOL, "8+"),
)
_NOT_ASKED = -(1 << 31)
METADATA_RESPONSE = Message(
    "MetadataResponse",
    "0-13",
    "9+",
    Field("throttle_time_ms", INT32, "3+"),
    Field(
        "brokers",
        structs(
            Field("node_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            Field("rack", STRING, "1+", nullable="1+", default=None),
        ),
    ),
    Field("cluster_id", STRING, "2+", nullable="2+", default=None),
    Field("controller_id", INT32, "1+", default=-1),
    Field(
        "topics",
        structs(
            Field("error_code", INT16),
            Field("name", STRING, nullable="12+"),
            Field("topic_id", UUID, "10+"),
            Field("is_internal", BOOL, "1+"),
            Field(
                "partitions",
                structs(
                    Field("error_code", INT16),
                    Field("partition_index", INT32),
                    Field("leader_id", INT32),
                    Field("leader_epoch", INT32, "7+", default=-1),
                    Field("replica_nodes", Array(INT32)),
                    Field("isr_nodes", Array(INT32)),
                    Field("offline_replicas", Array(INT32), "5+"),
                ),
            ),
            Field("topic_authorized_operations", INT32, "8+", default=_NOT_ASKED),
        ),
    ),
    Field("cluster_authorized_operations", INT32, "8-10", default=_NOT_ASKED),
    Field("error_code", INT16, "13+"),
)

_CURSOR = Struct(Field("topic_name", STRING), Field("partition_index", INT32))
DESCRIBE_TOPIC_PARTITIONS_REQUEST = Message(
    "DescribeTopicPartitionsRequest",
    "0",
    "0+",
    Field("topics", structs(Field("name", STRING))),
    Field("response_partition_limit", INT32, default=2000),
    Field("cursor", _CURSOR, nullable="0+"),
)
DESCRIBE_TOPIC_PARTITIONS_RESPONSE = Message(
    "DescribeTopicPartitionsResponse",
    "0",
    "0+",
    Field("throttle_time_ms", INT32),
    Field(
        "topics",
        structs(
            Field("error_code", INT16),
            Field("name", STRING, nullable="0+"),
            Field("topic_id", UUID),
            Field("is_internal", BOOL),
            Field(
                "partitions",
                structs(
                    Field("error_code", INT16),
                    Field("partition_index", INT32),
                    Field("leader_id", INT32),
                    Field("leader_epoch", INT32, default=-1),
                    Field("replica_nodes", Array(INT32)),
                    Field("isr_nodes", Array(INT32)),
                    Field("eligible_leader_replicas", Array(INT32), nullable="0+", default=None),
                    Field("last_known_elr", Array(INT32), nullable="0+", default=None),
                    Field("offline_replicas", Array(INT32)),
                ),
            ),
            Field("topic_authorized_operations", INT32, default=_NOT_ASKED),
        ),
    ),
    Field("next_cursor", _CURSOR, nullable="0+"),
)

FIND_COORDINATOR_REQUEST = Message(
    "FindCoordinatorRequest",
    "0-4",
    "3+",
    Field("key", STRING, "0-3"),
    Field("key_type", INT8, "1+"),
    Field("coordinator_keys", Array(STRING), "4+"),
)
FIND_COORDINATOR_RESPONSE = Message(
    "FindCoordinatorResponse",
    "0-4",
    "3+",
    Field("throttle_time_ms", INT32, "1+"),
    Field("error_code", INT16, "0-3"),
    Field("error_message", ERROR_MESSAGE, "1-3", nullable="1-3"),
    Field("node_id", INT32, "0-3"),
    Field("host", STRING, "0-3"),
    Field("port", INT32, "0-3"),
    Field(
        "coordinators",
        structs(
            Field("key", STRING),
            Field("node_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            Field("error_code", INT16),
            Field("error_message", ERROR_MESSAGE, nullable="0+"),
        ),
        "4+",
    ),
)

DESCRIBE_CLUSTER_REQUEST = Message(
    "DescribeClusterRequest",
    "0-1",
    "0+",
    Field("include_cluster_authorized_operations", BOOL),
    Field("endpoint_type", INT8, "1+", default=1),
)
DESCRIBE_CLUSTER_RESPONSE = Message(
    "DescribeClusterResponse",
    "0-1",
    "0+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("error_message", ERROR_MESSAGE, nullable="0+", default=None),
    Field("endpoint_type", INT8, "1+", default=1),
    Field("cluster_id", STRING),
    Field("controller_id", INT32, default=-1),
    Field(
        "brokers",
        structs(
            Field("broker_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            Field("rack", STRING, nullable="0+", default=None),
        ),
    ),
    Field("cluster_authorized_operations", INT32, default=_NOT_ASKED),
)
