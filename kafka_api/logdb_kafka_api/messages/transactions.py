"""Producer ids and transactions."""

from logdb.codec.schema import INT16, INT32, INT64, STRING, Field, Message

INIT_PRODUCER_ID_REQUEST = Message(
    "InitProducerIdRequest",
    "0-4",
    "2+",
    Field("transactional_id", STRING, nullable="0+"),
    Field("transaction_timeout_ms", INT32),
    Field("producer_id", INT64, "3+", default=-1),
    Field("producer_epoch", INT16, "3+", default=-1),
)
INIT_PRODUCER_ID_RESPONSE = Message(
    "InitProducerIdResponse",
    "0-4",
    "2+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("producer_id", INT64, default=-1),
    Field("producer_epoch", INT16),
)
