"""Fetch."""

from logdb.codec.schema import INT8, INT16, INT32, INT64, RECORDS, STRING, Array, Field, Message, Struct, structs

FETCH_REQUEST = Message(
    "FetchRequest",
    "4-12",
    "12+",
    Field("cluster_id", STRING, "12+", nullable="12+", default=None, tag=0),
    Field("replica_id", INT32, default=-1),
    Field("max_wait_ms", INT32),
    Field("min_bytes", INT32),
    Field("max_bytes", INT32, default=0x7FFFFFFF),
    Field("isolation_level", INT8),
    Field("session_id", INT32, "7+"),
    Field("session_epoch", INT32, "7+", default=-1),
    Field(
        "topics",
        structs(
            Field("topic", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition", INT32),
                    Field("current_leader_epoch", INT32, "9+", default=-1),
                    Field("fetch_offset", INT64),
                    Field("last_fetched_epoch", INT32, "12+", default=-1),
                    Field("log_start_offset", INT64, "5+", default=-1),
                    Field("partition_max_bytes", INT32),
                ),
            ),
        ),
    ),
    Field("forgotten_topics_data", structs(Field("topic", STRING), Field("partitions", Array(INT32))), "7+"),
    Field("rack_id", STRING, "11+"),
)
_EPOCH_END_OFFSET = Struct(Field("epoch", INT32, default=-1), Field("end_offset", INT64, default=-1))
_LEADER = Struct(Field("leader_id", INT32, default=-1), Field("leader_epoch", INT32, default=-1))
_SNAPSHOT = Struct(Field("end_offset", INT64, default=-1), Field("epoch", INT32, default=-1))
FETCH_RESPONSE = Message(
    "FetchResponse",
    "4-12",
    "12+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16, "7+"),
    Field("session_id", INT32, "7+"),
    Field(
        "responses",
        structs(
            Field("topic", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("error_code", INT16),
                    Field("high_watermark", INT64),
                    Field("last_stable_offset", INT64, default=-1),
                    Field("log_start_offset", INT64, "5+", default=-1),
                    Field("diverging_epoch", _EPOCH_END_OFFSET, "12+", tag=0),
                    Field("current_leader", _LEADER, "12+", tag=1),
                    Field("snapshot_id", _SNAPSHOT, "12+", tag=2),
                    Field(
                        "aborted_transactions",
                        structs(Field("producer_id", INT64), Field("first_offset", INT64)),
                        nullable="0+",
                    ),
                    Field("preferred_read_replica", INT32, "11+", default=-1),
                    Field("records", RECORDS, nullable="0+"),
                ),
            ),
        ),
    ),
)
