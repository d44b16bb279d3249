"""Consumer groups: their members, and what administrators ask of them."""

from logdb.codec.schema import BOOL, BYTES, ERROR_MESSAGE, INT16, INT32, STRING, UUID, Array, Field, Message, Struct, structs

JOIN_GROUP_REQUEST = Message(
    "JoinGroupRequest",
    "0-9",
    "6+",
    Field("group_id", STRING),
    Field("session_timeout_ms", INT32),
    Field("rebalance_timeout_ms", INT32, "1+", default=-1),
    Field("member_id", STRING),
    Field("group_instance_id", STRING, "5+", nullable="5+", default=None),
    Field("protocol_type", STRING),
    Field("protocols", structs(Field("name", STRING), Field("metadata", BYTES))),
    Field("reason", STRING, "8+", nullable="8+", default=None),
)
JOIN_GROUP_RESPONSE = Message(
    "JoinGroupResponse",
    "0-9",
    "6+",
    Field("throttle_time_ms", INT32, "2+"),
    Field("error_code", INT16),
    Field("generation_id", INT32, default=-1),
    Field("protocol_type", STRING, "7+", nullable="7+", default=None),
    Field("protocol_name", STRING, nullable="7+"),
    Field("leader", STRING),
    Field("skip_assignment", BOOL, "9+"),
    Field("member_id", STRING),
    Field(
        "members",
        structs(
            Field("member_id", STRING),
            Field("group_instance_id", STRING, "5+", nullable="5+", default=None),
            Field("metadata", BYTES),
        ),
    ),
)

SYNC_GROUP_REQUEST = Message(
    "SyncGroupRequest",
    "0-5",
    "4+",
    Field("group_id", STRING),
    Field("generation_id", INT32),
    Field("member_id", STRING),
    Field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    Field("protocol_type", STRING, "5+", nullable="5+", default=None),
    Field("protocol_name", STRING, "5+", nullable="5+", default=None),
    Field("assignments", structs(Field("member_id", STRING), Field("assignment", BYTES))),
)
SYNC_GROUP_RESPONSE = Message(
    "SyncGroupResponse",
    "0-5",
    "4+",
    Field("throttle_time_ms", INT32, "1+"),
    Field("error_code", INT16),
    Field("protocol_type", STRING, "5+", nullable="5+", default=None),
    Field("protocol_name", STRING, "5+", nullable="5+", default=None),
    Field("assignment", BYTES),
)

HEARTBEAT_REQUEST = Message(
    "HeartbeatRequest",
    "0-4",
    "4+",
    Field("group_id", STRING),
    Field("generation_id", INT32),
    Field("member_id", STRING),
    Field("group_instance_id", STRING, "3+", nullable="3+", default=None),
)
HEARTBEAT_RESPONSE = Message("HeartbeatResponse", "0-4", "4+", Field("throttle_time_ms", INT32, "1+"), Field("error_code", INT16))

LEAVE_GROUP_REQUEST = Message(
    "LeaveGroupRequest",
    "0-5",
    "4+",
    Field("group_id", STRING),
    Field("member_id", STRING, "0-2"),
    Field(
        "members",
        structs(
            Field("member_id", STRING),
            Field("group_instance_id", STRING, nullable="0+", default=None),
            Field("reason", STRING, "5+", nullable="5+", default=None),
        ),
        "3+",
    ),
)
LEAVE_GROUP_RESPONSE = Message(
    "LeaveGroupResponse",
    "0-5",
    "4+",
    Field("throttle_time_ms", INT32, "1+"),
    Field("error_code", INT16),
    Field(
        "members",
        structs(Field("member_id", STRING), Field("group_instance_id", STRING, nullable="0+"), Field("error_code", INT16)),
        "3+",
    ),
)

DESCRIBE_GROUPS_REQUEST = Message(
    "DescribeGroupsRequest",
    "0-5",
    "5+",
    Field("groups", Array(STRING)),
    Field("include_authorized_operations", BOOL, "3+"),
)
DESCRIBE_GROUPS_RESPONSE = Message(
    "DescribeGroupsResponse",
    "0-5",
    "5+",
    Field("throttle_time_ms", INT32, "1+"),
    Field(
        "groups",
        structs(
            Field("error_code", INT16),
            Field("group_id", STRING),
            Field("group_state", STRING),
            Field("protocol_type", STRING),
            Field("protocol_data", STRING),
            Field(
                "members",
                structs(
                    Field("member_id", STRING),
                    Field("group_instance_id", STRING, "4+", nullable="4+", default=None),
                    Field("client_id", STRING),
                    Field("client_host", STRING),
                    Field("member_metadata", BYTES),
                    Field("member_assignment", BYTES),
                ),
            ),
            Field("authorized_operations", INT32, "3+", default=-(1 << 31)),
        ),
    ),
)

LIST_GROUPS_REQUEST = Message(
    "ListGroupsRequest",
    "0-5",
    "3+",
    Field("states_filter", Array(STRING), "4+"),
    Field("types_filter", Array(STRING), "5+"),
)
LIST_GROUPS_RESPONSE = Message(
    "ListGroupsResponse",
    "0-5",
    "3+",
    Field("throttle_time_ms", INT32, "1+"),
    Field("error_code", INT16),
    Field(
        "groups",
        structs(
            Field("group_id", STRING),
            Field("protocol_type", STRING),
            Field("group_state", STRING, "4+"),
            Field("group_type", STRING, "5+"),
        ),
    ),
)

DELETE_GROUPS_REQUEST = Message("DeleteGroupsRequest", "0-2", "2+", Field("groups_names", Array(STRING)))
DELETE_GROUPS_RESPONSE = Message(
    "DeleteGroupsResponse",
    "0-2",
    "2+",
    Field("throttle_time_ms", INT32),
    Field("results", structs(Field("group_id", STRING), Field("error_code", INT16))),
)

_MEMBER_PARTITIONS = structs(Field("topic_id", UUID), Field("partitions", Array(INT32)))
CONSUMER_GROUP_HEARTBEAT_REQUEST = Message(
    "ConsumerGroupHeartbeatRequest",
    "0-1",
    "0+",
    Field("group_id", STRING),
    Field("member_id", STRING),
    Field("member_epoch", INT32),
    Field("instance_id", STRING, nullable="0+", default=None),
    Field("rack_id", STRING, nullable="0+", default=None),
    Field("rebalance_timeout_ms", INT32, default=-1),
    Field("subscribed_topic_names", Array(STRING), nullable="0+", default=None),
    Field("subscribed_topic_regex", STRING, "1+", nullable="1+", default=None),
    Field("server_assignor", STRING, nullable="0+", default=None),
    Field("topic_partitions", _MEMBER_PARTITIONS, nullable="0+", default=None),
)
CONSUMER_GROUP_HEARTBEAT_RESPONSE = Message(
    "ConsumerGroupHeartbeatResponse",
    "0-1",
    "0+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("error_message", ERROR_MESSAGE, nullable="0+", default=None),
    Field("member_id", STRING, nullable="0+", default=None),
    Field("member_epoch", INT32),
    Field("heartbeat_interval_ms", INT32),
    Field("assignment", Struct(Field("topic_partitions", _MEMBER_PARTITIONS)), nullable="0+"),
)
