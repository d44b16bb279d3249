"""Offsets of a log, by timestamp."""

from logdb.codec.schema import INT8, INT16, INT32, INT64, STRING, Field, Message, structs

LIST_OFFSETS_REQUEST = Message(
    "ListOffsetsRequest",
    "1-10",
    "6+",
    Field("replica_id", INT32),
    Field("isolation_level", INT8, "2+"),
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("current_leader_epoch", INT32, "4+", default=-1),
                    Field("timestamp", INT64),
                ),
            ),
        ),
    ),
    Field("timeout_ms", INT32, "10+"),
)
LIST_OFFSETS_RESPONSE = Message(
    "ListOffsetsResponse",
    "1-10",
    "6+",
    Field("throttle_time_ms", INT32, "2+"),
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("error_code", INT16),
                    Field("timestamp", INT64, default=-1),
                    Field("offset", INT64, default=-1),
                    Field("leader_epoch", INT32, "4+", default=-1),
                ),
            ),
        ),
    ),
)
