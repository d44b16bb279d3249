"""Committed offsets of consumer groups."""

from logdb.codec.schema import BOOL, INT16, INT32, INT64, STRING, UUID, Array, Field, Message, structs

_COMMITTED = (Field("partition_index", INT32), Field("error_code", INT16))

OFFSET_COMMIT_REQUEST = Message(
    "OffsetCommitRequest",
    "0-10",
    "8+",
    Field("group_id", STRING),
    Field("generation_id_or_member_epoch", INT32, "1+", default=-1),
    Field("member_id", STRING, "1+"),
    Field("group_instance_id", STRING, "7+", nullable="7+", default=None),
    Field("retention_time_ms", INT64, "2-4", default=-1),
    Field(
        "topics",
        structs(
            Field("name", STRING, "0-9"),
            Field("topic_id", UUID, "10+"),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("committed_offset", INT64),
                    Field("committed_leader_epoch", INT32, "6+", default=-1),
                    Field("commit_timestamp", INT64, "1", default=-1),
                    Field("committed_metadata", STRING, nullable="0+"),
                ),
            ),
        ),
    ),
)
OFFSET_COMMIT_RESPONSE = Message(
    "OffsetCommitResponse",
    "0-10",
    "8+",
    Field("throttle_time_ms", INT32, "3+"),
    Field(
        "topics",
        structs(Field("name", STRING, "0-9"), Field("topic_id", UUID, "10+"), Field("partitions", structs(*_COMMITTED))),
    ),
)

OFFSET_FETCH_REQUEST = Message(
    "OffsetFetchRequest",
    "0-10",
    "6+",
    Field("group_id", STRING, "0-7"),
    Field("topics", structs(Field("name", STRING), Field("partition_indexes", Array(INT32))), "0-7", nullable="2-7"),
    Field(
        "groups",
        structs(
            Field("group_id", STRING),
            Field("member_id", STRING, "9+", nullable="9+", default=None),
            Field("member_epoch", INT32, "9+", default=-1),
            Field(
                "topics",
                structs(Field("name", STRING, "8-9"), Field("topic_id", UUID, "10+"), Field("partition_indexes", Array(INT32))),
                nullable="0+",
            ),
        ),
        "8+",
    ),
    Field("require_stable", BOOL, "7+"),
)
_OFFSETS = structs(
    Field("name", STRING, "0-9"),
    Field("topic_id", UUID, "10+"),
    Field(
        "partitions",
        structs(
            Field("partition_index", INT32),
            Field("committed_offset", INT64),
            Field("committed_leader_epoch", INT32, "5+", default=-1),
            Field("metadata", STRING, nullable="0+"),
            Field("error_code", INT16),
        ),
    ),
)
OFFSET_FETCH_RESPONSE = Message(
    "OffsetFetchResponse",
    "0-10",
    "6+",
    Field("throttle_time_ms", INT32, "3+"),
    Field("topics", _OFFSETS, "0-7"),
    Field("error_code", INT16, "2-7"),
    Field("groups", structs(Field("group_id", STRING), Field("topics", _OFFSETS), Field("error_code", INT16)), "8+"),
)

OFFSET_DELETE_REQUEST = Message(
    "OffsetDeleteRequest",
    "0",
    "none",
    Field("group_id", STRING),
    Field("topics", structs(Field("name", STRING), Field("partitions", structs(Field("partition_index", INT32))))),
)
OFFSET_DELETE_RESPONSE = Message(
    "OffsetDeleteResponse",
    "0",
    "none",
    Field("error_code", INT16),
    Field("throttle_time_ms", INT32),
    Field("topics", structs(Field("name", STRING), Field("partitions", structs(*_COMMITTED)))),
)
