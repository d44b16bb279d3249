"""Produce."""

from logdb.codec.schema import ERROR_MESSAGE, INT16, INT32, INT64, RECORDS, STRING, Field, Message, Struct, structs

PRODUCE_REQUEST = Message(
    "ProduceRequest",
    "0-12",  # 0 to 2 are refused; librdkafka up to 2.0 compresses nothing unless they are offered
    "9+",
    Field("transactional_id", STRING, "3+", nullable="3+", default=None),
    Field("acks", INT16),
    Field("timeout_ms", INT32),
    Field(
        "topic_data",
        structs(
            Field("name", STRING),
            Field("partition_data", structs(Field("index", INT32), Field("records", RECORDS, nullable="0+", default=None))),
        ),
    ),
)
_LEADER = Struct(Field("leader_id", INT32, default=-1), Field("leader_epoch", INT32, default=-1))
PRODUCE_RESPONSE = Message(
    "ProduceResponse",
    "0-12",
    "9+",
    Field(
        "responses",
        structs(
            Field("name", STRING),
            Field(
                "partition_responses",
                structs(
                    Field("index", INT32),
                    Field("error_code", INT16),
                    Field("base_offset", INT64),
                    Field("log_append_time_ms", INT64, "2+", default=-1),
                    Field("log_start_offset", INT64, "5+", default=-1),
                    Field(
                        "record_errors",
                        structs(
                            Field("batch_index", INT32),
                            Field("batch_index_error_message", ERROR_MESSAGE, nullable="0+", default=None),
                        ),
                        "8+",
                    ),
                    Field("error_message", ERROR_MESSAGE, "8+", nullable="8+", default=None),
                    Field("current_leader", _LEADER, "10+", tag=0),
                ),
            ),
        ),
    ),
    Field("throttle_time_ms", INT32, "1+"),
    Field(
        "node_endpoints",
        structs(
            Field("node_id", INT32),
            Field("host", STRING),
            Field("port", INT32),
            Field("rack", STRING, nullable="0+", default=None),
        ),
        "10+",
        tag=0,
    ),
)
