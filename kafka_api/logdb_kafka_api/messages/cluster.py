"""The cluster: its quorum and its features."""

from logdb.codec.schema import BOOL, ERROR_MESSAGE, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, Field, Message, structs

_REPLICA = structs(
    Field("replica_id", INT32),
    Field("replica_directory_id", UUID, "2+"),
    Field("log_end_offset", INT64),
    Field("last_fetch_timestamp", INT64, "1+", default=-1),
    Field("last_caught_up_timestamp", INT64, "1+", default=-1),
)
_QUORUM_MESSAGE = Field("error_message", ERROR_MESSAGE, "2+", nullable="2+", default=None)

DESCRIBE_QUORUM_REQUEST = Message(
    "DescribeQuorumRequest",
    "0-2",
    "0+",
    Field("topics", structs(Field("topic_name", STRING), Field("partitions", structs(Field("partition_index", INT32))))),
)
DESCRIBE_QUORUM_RESPONSE = Message(
    "DescribeQuorumResponse",
    "0-2",
    "0+",
    Field("error_code", INT16),
    _QUORUM_MESSAGE,
    Field(
        "topics",
        structs(
            Field("topic_name", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("error_code", INT16),
                    _QUORUM_MESSAGE,
                    Field("leader_id", INT32),
                    Field("leader_epoch", INT32),
                    Field("high_watermark", INT64),
                    Field("current_voters", _REPLICA),
                    Field("observers", _REPLICA),
                ),
            ),
        ),
    ),
    Field(
        "nodes",
        structs(
            Field("node_id", INT32),
            Field("listeners", structs(Field("name", STRING), Field("host", STRING), Field("port", UINT16))),
        ),
        "2+",
    ),
)

UPDATE_FEATURES_REQUEST = Message(
    "UpdateFeaturesRequest",
    "0-2",
    "0+",
    Field("timeout_ms", INT32, default=60_000),
    Field(
        "feature_updates",
        structs(
            Field("feature", STRING),
            Field("max_version_level", INT16),
            Field("allow_downgrade", BOOL, "0"),
            Field("upgrade_type", INT8, "1+", default=1),
        ),
    ),
    Field("validate_only", BOOL, "1+"),
)
_OUTCOME = (Field("error_code", INT16), Field("error_message", ERROR_MESSAGE, nullable="0+", default=None))
UPDATE_FEATURES_RESPONSE = Message(
    "UpdateFeaturesResponse",
    "0-2",
    "0+",
    Field("throttle_time_ms", INT32),
    *_OUTCOME,
    Field("results", structs(Field("feature", STRING), *_OUTCOME), "0-1"),
)
