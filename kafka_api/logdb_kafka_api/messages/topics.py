"""Topics, their partitions and records, and where they lie."""

from logdb.codec.schema import BOOL, ERROR_MESSAGE, INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, Message, structs

CREATE_TOPICS_REQUEST = Message(
    "CreateTopicsRequest",
    "0-7",
    "5+",
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field("num_partitions", INT32),
            Field("replication_factor", INT16),
            Field("assignments", structs(Field("partition_index", INT32), Field("broker_ids", Array(INT32)))),
            Field("configs", structs(Field("name", STRING), Field("value", STRING, nullable="0+"))),
        ),
    ),
    Field("timeout_ms", INT32, default=60_000),
    Field("validate_only", BOOL, "1+"),
)
CREATE_TOPICS_RESPONSE = Message(
    "CreateTopicsResponse",
    "0-7",
    "5+",
    Field("throttle_time_ms", INT32, "2+"),
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field("topic_id", UUID, "7+"),
            Field("error_code", INT16),
            Field("error_message", ERROR_MESSAGE, "1+", nullable="1+"),
            Field("topic_config_error_code", INT16, "5+", tag=0),
            Field("num_partitions", INT32, "5+", default=-1),
            Field("replication_factor", INT16, "5+", default=-1),
            Field(
                "configs",
                structs(
                    Field("name", STRING),
                    Field("value", STRING, nullable="0+"),
                    Field("read_only", BOOL),
                    Field("config_source", INT8, default=-1),
                    Field("is_sensitive", BOOL),
                ),
                "5+",
                nullable="5+",
            ),
        ),
    ),
)

DELETE_TOPICS_REQUEST = Message(
    "DeleteTopicsRequest",
    "0-6",
    "4+",
    Field("topics", structs(Field("name", STRING, nullable="0+", default=None), Field("topic_id", UUID)), "6+"),
    Field("topic_names", Array(STRING), "0-5"),
    Field("timeout_ms", INT32),
)
DELETE_TOPICS_RESPONSE = Message(
    "DeleteTopicsResponse",
    "0-6",
    "4+",
    Field("throttle_time_ms", INT32, "1+"),
    Field(
        "responses",
        structs(
            Field("name", STRING, nullable="6+"),
            Field("topic_id", UUID, "6+"),
            Field("error_code", INT16),
            Field("error_message", ERROR_MESSAGE, "5+", nullable="5+", default=None),
        ),
    ),
)

CREATE_PARTITIONS_REQUEST = Message(
    "CreatePartitionsRequest",
    "0-3",
    "2+",
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field("count", INT32),
            Field("assignments", structs(Field("broker_ids", Array(INT32))), nullable="0+", default=None),
        ),
    ),
    Field("timeout_ms", INT32),
    Field("validate_only", BOOL),
)
CREATE_PARTITIONS_RESPONSE = Message(
    "CreatePartitionsResponse",
    "0-3",
    "2+",
    Field("throttle_time_ms", INT32),
    Field(
        "results",
        structs(
            Field("name", STRING),
            Field("error_code", INT16),
            Field("error_message", ERROR_MESSAGE, nullable="0+", default=None),
        ),
    ),
)

DELETE_RECORDS_REQUEST = Message(
    "DeleteRecordsRequest",
    "0-2",
    "2+",
    Field(
        "topics",
        structs(Field("name", STRING), Field("partitions", structs(Field("partition_index", INT32), Field("offset", INT64)))),
    ),
    Field("timeout_ms", INT32),
)
DELETE_RECORDS_RESPONSE = Message(
    "DeleteRecordsResponse",
    "0-2",
    "2+",
    Field("throttle_time_ms", INT32),
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field(
                "partitions",
                structs(Field("partition_index", INT32), Field("low_watermark", INT64), Field("error_code", INT16)),
            ),
        ),
    ),
)

ALTER_REPLICA_LOG_DIRS_REQUEST = Message(
    "AlterReplicaLogDirsRequest",
    "1-2",
    "2+",
    Field(
        "dirs",
        structs(Field("path", STRING), Field("topics", structs(Field("name", STRING), Field("partitions", Array(INT32))))),
    ),
)
ALTER_REPLICA_LOG_DIRS_RESPONSE = Message(
    "AlterReplicaLogDirsResponse",
    "1-2",
    "2+",
    Field("throttle_time_ms", INT32),
    Field(
        "results",
        structs(
            Field("topic_name", STRING),
            Field("partitions", structs(Field("partition_index", INT32), Field("error_code", INT16))),
        ),
    ),
)

DESCRIBE_LOG_DIRS_REQUEST = Message(
    "DescribeLogDirsRequest",
    "0-4",
    "2+",
    Field("topics", structs(Field("topic", STRING), Field("partitions", Array(INT32))), nullable="0+"),
)
DESCRIBE_LOG_DIRS_RESPONSE = Message(
    "DescribeLogDirsResponse",
    "0-4",
    "2+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16, "3+"),
    Field(
        "results",
        structs(
            Field("error_code", INT16),
            Field("log_dir", STRING),
            Field(
                "topics",
                structs(
                    Field("name", STRING),
                    Field(
                        "partitions",
                        structs(
                            Field("partition_index", INT32),
                            Field("partition_size", INT64),
                            Field("offset_lag", INT64),
                            Field("is_future_key", BOOL),
                        ),
                    ),
                ),
            ),
            Field("total_bytes", INT64, "4+", default=-1),
            Field("usable_bytes", INT64, "4+", default=-1),
        ),
    ),
)
