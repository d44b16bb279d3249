"""Producer ids and transactions."""

from logdb.codec.schema import BOOL, ERROR_MESSAGE, INT16, INT32, INT64, STRING, Array, Field, Message, structs

_PARTITION_ERRORS = structs(Field("partition_index", INT32), Field("partition_error_code", INT16))
_PRODUCER = (Field("producer_id", INT64), Field("producer_epoch", INT16))

INIT_PRODUCER_ID_REQUEST = Message(
    "InitProducerIdRequest",
    "0-5",
    "2+",
    Field("transactional_id", STRING, nullable="0+"),
    Field("transaction_timeout_ms", INT32),
    Field("producer_id", INT64, "3+", default=-1),
    Field("producer_epoch", INT16, "3+", default=-1),
)
INIT_PRODUCER_ID_RESPONSE = Message(
    "InitProducerIdResponse",
    "0-5",
    "2+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("producer_id", INT64, default=-1),
    Field("producer_epoch", INT16),
)

ADD_PARTITIONS_TO_TXN_REQUEST = Message(
    "AddPartitionsToTxnRequest",
    "0-3",  # from 4 on it is what brokers send to each other
    "3+",
    Field("transactional_id", STRING),
    *_PRODUCER,
    Field("topics", structs(Field("name", STRING), Field("partitions", Array(INT32)))),
)
ADD_PARTITIONS_TO_TXN_RESPONSE = Message(
    "AddPartitionsToTxnResponse",
    "0-3",
    "3+",
    Field("throttle_time_ms", INT32),
    Field("results_by_topic", structs(Field("name", STRING), Field("results_by_partition", _PARTITION_ERRORS))),
)

ADD_OFFSETS_TO_TXN_REQUEST = Message(
    "AddOffsetsToTxnRequest", "0-4", "3+", Field("transactional_id", STRING), *_PRODUCER, Field("group_id", STRING)
)
ADD_OFFSETS_TO_TXN_RESPONSE = Message("AddOffsetsToTxnResponse", "0-4", "3+", Field("throttle_time_ms", INT32), Field("error_code", INT16))

END_TXN_REQUEST = Message("EndTxnRequest", "0-5", "3+", Field("transactional_id", STRING), *_PRODUCER, Field("committed", BOOL))
END_TXN_RESPONSE = Message(
    "EndTxnResponse",
    "0-5",
    "3+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("producer_id", INT64, "5+", default=-1),
    Field("producer_epoch", INT16, "5+", default=-1),
)

TXN_OFFSET_COMMIT_REQUEST = Message(
    "TxnOffsetCommitRequest",
    "0-5",
    "3+",
    Field("transactional_id", STRING),
    Field("group_id", STRING),
    *_PRODUCER,
    Field("generation_id", INT32, "3+", default=-1),
    Field("member_id", STRING, "3+"),
    Field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("committed_offset", INT64),
                    Field("committed_leader_epoch", INT32, "2+", default=-1),
                    Field("committed_metadata", STRING, nullable="0+"),
                ),
            ),
        ),
    ),
)
TXN_OFFSET_COMMIT_RESPONSE = Message(
    "TxnOffsetCommitResponse",
    "0-5",
    "3+",
    Field("throttle_time_ms", INT32),
    Field(
        "topics",
        structs(Field("name", STRING), Field("partitions", structs(Field("partition_index", INT32), Field("error_code", INT16)))),
    ),
)

DESCRIBE_PRODUCERS_REQUEST = Message(
    "DescribeProducersRequest", "0", "0+", Field("topics", structs(Field("name", STRING), Field("partition_indexes", Array(INT32))))
)
DESCRIBE_PRODUCERS_RESPONSE = Message(
    "DescribeProducersResponse",
    "0",
    "0+",
    Field("throttle_time_ms", INT32),
    Field(
        "topics",
        structs(
            Field("name", STRING),
            Field(
                "partitions",
                structs(
                    Field("partition_index", INT32),
                    Field("error_code", INT16),
                    Field("error_message", ERROR_MESSAGE, nullable="0+", default=None),
                    Field(
                        "active_producers",
                        structs(
                            Field("producer_id", INT64),
                            Field("producer_epoch", INT32),
                            Field("last_sequence", INT32, default=-1),
                            Field("last_timestamp", INT64, default=-1),
                            Field("coordinator_epoch", INT32),
                            Field("current_txn_start_offset", INT64, default=-1),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

DESCRIBE_TRANSACTIONS_REQUEST = Message("DescribeTransactionsRequest", "0", "0+", Field("transactional_ids", Array(STRING)))
DESCRIBE_TRANSACTIONS_RESPONSE = Message(
    "DescribeTransactionsResponse",
    "0",
    "0+",
    Field("throttle_time_ms", INT32),
    Field(
        "transaction_states",
        structs(
            Field("error_code", INT16),
            Field("transactional_id", STRING),
            Field("transaction_state", STRING),
            Field("transaction_timeout_ms", INT32),
            Field("transaction_start_time_ms", INT64),
            *_PRODUCER,
            Field("topics", structs(Field("topic", STRING), Field("partitions", Array(INT32)))),
        ),
    ),
)

LIST_TRANSACTIONS_REQUEST = Message(
    "ListTransactionsRequest",
    "0-1",
    "0+",
    Field("state_filters", Array(STRING)),
    Field("producer_id_filters", Array(INT64)),
    Field("duration_filter", INT64, "1+", default=-1),
)
LIST_TRANSACTIONS_RESPONSE = Message(
    "ListTransactionsResponse",
    "0-1",
    "0+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("unknown_state_filters", Array(STRING)),
    Field(
        "transaction_states",
        structs(Field("transactional_id", STRING), Field("producer_id", INT64), Field("transaction_state", STRING)),
    ),
)
