"""Metrics that clients push to their broker (KIP-714)."""

from logdb.codec.schema import BOOL, INT8, INT16, INT32, RECORDS, STRING, UUID, Array, Field, Message

GET_TELEMETRY_SUBSCRIPTIONS_REQUEST = Message("GetTelemetrySubscriptionsRequest", "0", "0+", Field("client_instance_id", UUID))
GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE = Message(
    "GetTelemetrySubscriptionsResponse",
    "0",
    "0+",
    Field("throttle_time_ms", INT32),
    Field("error_code", INT16),
    Field("client_instance_id", UUID),
    Field("subscription_id", INT32),
    Field("accepted_compression_types", Array(INT8)),
    Field("push_interval_ms", INT32),
    Field("telemetry_max_bytes", INT32),
    Field("delta_temporality", BOOL),
    Field("requested_metrics", Array(STRING)),
)

PUSH_TELEMETRY_REQUEST = Message(
    "PushTelemetryRequest",
    "0",
    "0+",
    Field("client_instance_id", UUID),
    Field("subscription_id", INT32),
    Field("terminating", BOOL),
    Field("compression_type", INT8),
    Field("metrics", RECORDS),
)
PUSH_TELEMETRY_RESPONSE = Message("PushTelemetryResponse", "0", "0+", Field("throttle_time_ms", INT32), Field("error_code", INT16))
