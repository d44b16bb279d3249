"""Which brokers have a partition, and which of them leads it."""

from logdb.codec.schema import BOOL, ERROR_MESSAGE, INT8, INT16, INT32, STRING, Array, Field, Message, structs

_TIMEOUT = Field("timeout_ms", INT32, default=60_000)
_THROTTLE = Field("throttle_time_ms", INT32)
_ERROR = (Field("error_code", INT16), Field("error_message", ERROR_MESSAGE, nullable="0+", default=None))

ELECT_LEADERS_REQUEST = Message(
    "ElectLeadersRequest",
    "0-2",
    "2+",
    Field("election_type", INT8, "1+"),
    Field("topic_partitions", structs(Field("topic", STRING), Field("partitions", Array(INT32))), nullable="0+"),
    _TIMEOUT,
)
ELECT_LEADERS_RESPONSE = Message(
    "ElectLeadersResponse",
    "0-2",
    "2+",
    _THROTTLE,
    Field("error_code", INT16, "1+"),
    Field(
        "replica_election_results",
        structs(Field("topic", STRING), Field("partition_result", structs(Field("partition_id", INT32), *_ERROR))),
    ),
)

ALTER_PARTITION_REASSIGNMENTS_REQUEST = Message(
    "AlterPartitionReassignmentsRequest",
    "0-1",
    "0+",
    _TIMEOUT,
    Field("allow_replication_factor_change", BOOL, "1+", default=True),
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field(
                "partitions",
                structs(Field("partition_index", INT32), Field("replicas", Array(INT32), nullable="0+", default=None)),
            ),
        ),
    ),
)
ALTER_PARTITION_REASSIGNMENTS_RESPONSE = Message(
    "AlterPartitionReassignmentsResponse",
    "0-1",
    "0+",
    _THROTTLE,
    Field("allow_replication_factor_change", BOOL, "1+", default=True),
    *_ERROR,
    Field("responses", structs(Field("name", STRING), Field("partitions", structs(Field("partition_index", INT32), *_ERROR)))),
)

LIST_PARTITION_REASSIGNMENTS_REQUEST = Message(
    "ListPartitionReassignmentsRequest",
    "0",
    "0+",
    _TIMEOUT,
    Field("topics", structs(Field("name", STRING), Field("partition_indexes", Array(INT32))), nullable="0+", default=None),
)
LIST_PARTITION_REASSIGNMENTS_RESPONSE = Message(
    "ListPartitionReassignmentsResponse",
    "0",
    "0+",
    _THROTTLE,
    *_ERROR,
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("replicas", Array(INT32)),
                    Field("adding_replicas", Array(INT32)),
                    Field("removing_replicas", Array(INT32)),
                ),
            ),
        ),
    ),
)
