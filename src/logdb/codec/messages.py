"""Kafka's messages that a node asks itself: Produce and Fetch, by the remote session and by followers, and OffsetForLeaderEpoch.

The tagged fields from 100 on are logdb's own.  A request that is ``detailed`` gets an answer with ``next_offset``, ``readable_end_offset``
and, as JSON, ``error`` (``requests.error_document``); so Kafka's clients never see them.  A Fetch with a ``replica_epoch`` is a follower's:
it reports what that has flushed.  Its answer leaves out partitions that have nothing new.

From Fetch 13 and Produce 13 on, ``topic_id`` names the topic: Kafka's 16 bytes.  ``logdb_topic_id``, a tagged field, is logdb's own
text of the id; "" is not known.
"""

from logdb.codec.schema import (
    BOOL,
    BYTES,
    ERROR_MESSAGE,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Array,
    Field,
    Message,
    Struct,
    structs,
)

PRODUCE, FETCH, OFFSET_FOR_LEADER_EPOCH = 0, 1, 23
"""The keys of the APIs."""
RESPONSE_HEADER = Message("ResponseHeader", "1", "1", Field("next_offset", INT64, "1", default=-1, tag=100))
"""The tagged fields of a response's header; that of a detailed Fetch announces where the next one goes on."""
_LEADER = Struct(Field("leader_id", INT32, default=-1), Field("leader_epoch", INT32, default=-1))
_NODE_ENDPOINTS = structs(
    Field("node_id", INT32),
    Field("host", STRING),
    Field("port", INT32),
    Field("rack", STRING, nullable="0+", default=None),
)
PRODUCE_REQUEST = Message(
    "ProduceRequest",
    "0-13",  # 0 to 2 are refused; librdkafka up to 2.0 compresses nothing unless they are offered
    "9+",
    Field("transactional_id", STRING, "3+", nullable="3+", default=None),
    Field("acks", INT16),
    Field("timeout_ms", INT32),
    Field(
        "topic_data",
        structs(
            Field("name", STRING, "0-12"),
            Field("topic_id", UUID, "13+"),
            Field(
                "partition_data",
                structs(
                    Field("index", INT32),
                    Field("records", RECORDS, nullable="0+", default=None),
                    Field("expected_offset", INT64, "9+", default=-1, tag=100),
                    Field("mirrored", BOOL, "9+", tag=101),
                ),
            ),
        ),
    ),
    Field("durability", STRING, "9+", tag=100),
    Field("detailed", BOOL, "9+", tag=101),
)
PRODUCE_RESPONSE = Message(
    "ProduceResponse",
    "0-13",
    "9+",
    Field(
        "responses",
        structs(
            Field("name", STRING, "0-12"),
            Field("topic_id", UUID, "13+"),
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
                    Field("next_offset", INT64, "9+", default=-1, tag=100),
                    Field("error", BYTES, "9+", tag=101),
                ),
            ),
        ),
    ),
    Field("throttle_time_ms", INT32, "1+"),
    Field("node_endpoints", _NODE_ENDPOINTS, "10+", tag=0),
)
_REPLICA_STATE = Struct(Field("replica_id", INT32, default=-1), Field("replica_epoch", INT64, default=-1))
FETCH_REQUEST = Message(
    "FetchRequest",
    "4-17",
    "12+",
    Field("cluster_id", STRING, "12+", nullable="12+", default=None, tag=0),
    Field("replica_id", INT32, "4-14", default=-1),
    Field("replica_state", _REPLICA_STATE, "15+", tag=1),
    Field("max_wait_ms", INT32),
    Field("min_bytes", INT32),
    Field("max_bytes", INT32, default=0x7FFFFFFF),
    Field("isolation_level", INT8),
    Field("session_id", INT32, "7+"),
    Field("session_epoch", INT32, "7+", default=-1),
    Field(
        "topics",
        structs(
            Field("topic", STRING, "4-12"),
            Field("topic_id", UUID, "13+"),
            Field(
                "partitions",
                structs(
                    Field("partition", INT32),
                    Field("current_leader_epoch", INT32, "9+", default=-1),
                    Field("fetch_offset", INT64),
                    Field("last_fetched_epoch", INT32, "12+", default=-1),
                    Field("log_start_offset", INT64, "5+", default=-1),
                    Field("partition_max_bytes", INT32),
                    Field("replica_directory_id", UUID, "17+", tag=0),
                    Field("flushed_offset", INT64, "12+", default=-1, tag=100),
                    Field("high_watermark", INT64, "12+", default=-1, tag=101),
                    Field("lineage", INT64, "12+", tag=102),
                ),
            ),
            Field("logdb_topic_id", STRING, "12", tag=100),
        ),
    ),
    Field(
        "forgotten_topics_data",
        structs(Field("topic", STRING, "7-12"), Field("topic_id", UUID, "13+"), Field("partitions", Array(INT32))),
        "7+",
    ),
    Field("rack_id", STRING, "11+"),
    Field("detailed", BOOL, "12+", tag=101),
    Field("replica_epoch", INT64, "12+", default=-1, tag=102),
    Field("has_readers", BOOL, "12+", tag=103),
    Field("at_followers", BOOL, "12+", tag=104),
)
_EPOCH_END_OFFSET = Struct(Field("epoch", INT32, default=-1), Field("end_offset", INT64, default=-1))
_SNAPSHOT = Struct(Field("end_offset", INT64, default=-1), Field("epoch", INT32, default=-1))
FETCH_RESPONSE = Message(
    "FetchResponse",
    "4-17",
    "12+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16, "7+"),
    Field("session_id", INT32, "7+"),
    Field(
        "responses",
        structs(
            Field("topic", STRING, "4-12"),
            Field("topic_id", UUID, "13+"),
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
                    Field("next_offset", INT64, "12+", default=-1, tag=100),
                    Field("error", BYTES, "12+", tag=101),
                    Field("readable_end_offset", INT64, "12+", default=-1, tag=102),
                    Field("standing", INT8, "12+", tag=103),
                    Field("nearest", STRING, "12+", tag=104),
                    Field(
                        "aborted_transactions",
                        structs(Field("producer_id", INT64), Field("first_offset", INT64)),
                        nullable="0+",
                    ),
                    Field("preferred_read_replica", INT32, "11+", default=-1),
                    Field("records", RECORDS, nullable="0+"),
                ),
            ),
            Field("logdb_topic_id", STRING, "12", tag=100),
        ),
    ),
    Field("node_endpoints", _NODE_ENDPOINTS, "16+", tag=0),
)
OFFSET_FOR_LEADER_EPOCH_REQUEST = Message(
    "OffsetForLeaderEpochRequest",
    "0-4",
    "4+",
    Field("replica_id", INT32, "3+", default=-2),
    Field(
        "topics",
        structs(
            Field("topic", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition", INT32),
                    Field("current_leader_epoch", INT32, "2+", default=-1),
                    Field("leader_epoch", INT32),
                ),
            ),
            Field("logdb_topic_id", STRING, "4+", tag=100),
        ),
    ),
)
OFFSET_FOR_LEADER_EPOCH_RESPONSE = Message(
    "OffsetForLeaderEpochResponse",
    "0-4",
    "4+",
    Field("throttle_time_ms", INT32, "2+"),
    Field(
        "topics",
        structs(
            Field("topic", STRING),
            Field(
                "partitions",
                structs(
                    Field("error_code", INT16),
                    Field("partition", INT32),
                    Field("leader_epoch", INT32, "1+", default=-1),
                    Field("end_offset", INT64, default=-1),
                ),
            ),
        ),
    ),
)
