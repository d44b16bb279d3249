"""Topics: creating and deleting them."""

from logdb.codec.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Array, Field, Message, Struct

CREATE_TOPICS_REQUEST = Message(
    "CreateTopicsRequest",
    "0-7",
    "5+",
    Field(
        "topics",
        Array(
            Struct(
                Field("name", STRING),
                Field("num_partitions", INT32),
                Field("replication_factor", INT16),
                Field("assignments", Array(Struct(Field("partition_index", INT32), Field("broker_ids", Array(INT32))))),
                Field("configs", Array(Struct(Field("name", STRING), Field("value", STRING, nullable="0+")))),
            )
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
        Array(
            Struct(
                Field("name", STRING),
                Field("topic_id", UUID, "7+"),
                Field("error_code", INT16),
                Field("error_message", STRING, "1+", nullable="1+"),
                Field("topic_config_error_code", INT16, "5+", tag=0),
                Field("num_partitions", INT32, "5+", default=-1),
                Field("replication_factor", INT16, "5+", default=-1),
                Field(
                    "configs",
                    Array(
                        Struct(
                            Field("name", STRING),
                            Field("value", STRING, nullable="0+"),
                            Field("read_only", BOOL),
                            Field("config_source", INT8, default=-1),
                            Field("is_sensitive", BOOL),
                        )
                    ),
                    "5+",
                    nullable="5+",
                ),
            )
        ),
    ),
)

DELETE_TOPICS_REQUEST = Message(
    "DeleteTopicsRequest",
    "0-6",
    "4+",
    Field("topics", Array(Struct(Field("name", STRING, nullable="0+", default=None), Field("topic_id", UUID))), "6+"),
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
        Array(
            Struct(
                Field("name", STRING, nullable="6+"),
                Field("topic_id", UUID, "6+"),
                Field("error_code", INT16),
                Field("error_message", STRING, "5+", nullable="5+", default=None),
            )
        ),
    ),
)
