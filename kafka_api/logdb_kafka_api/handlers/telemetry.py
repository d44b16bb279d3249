"""Metrics of clients (KIP-714): a client that asks gets a subscription of no metrics.

ApiVersions leaves these APIs out, as a Kafka does that has no plugin for metrics: clients then push none.
"""

import uuid

from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code
from logdb_kafka_api.messages.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS_REQUEST,
    GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE,
    PUSH_TELEMETRY_REQUEST,
    PUSH_TELEMETRY_RESPONSE,
)

_NO_ID = bytes(16)
_SUBSCRIPTION = 0  # the only one: of no metrics
_ACCEPTED = (4, 3, 1, 2)  # zstd, lz4, gzip, snappy: Kafka's order
_PUSH_INTERVAL_MS, _BYTES_MAX = 300_000, 1 << 20


@answers(71, GET_TELEMETRY_SUBSCRIPTIONS_REQUEST, GET_TELEMETRY_SUBSCRIPTIONS_RESPONSE, is_advertised=False)
async def get_telemetry_subscriptions(call: Call) -> Values:
    given = call.values["client_instance_id"]
    return {
        "error_code": Code.NONE,
        "client_instance_id": uuid.uuid4().bytes if given == _NO_ID else given,
        "subscription_id": _SUBSCRIPTION,
        "accepted_compression_types": _ACCEPTED,
        "push_interval_ms": _PUSH_INTERVAL_MS,
        "telemetry_max_bytes": _BYTES_MAX,
        "delta_temporality": True,
        "requested_metrics": (),
    }


@answers(72, PUSH_TELEMETRY_REQUEST, PUSH_TELEMETRY_RESPONSE, is_advertised=False)
async def push_telemetry(call: Call) -> Values:
    """Drop the metrics, unread."""
    if call.values["client_instance_id"] == _NO_ID:
        return {"error_code": Code.INVALID_REQUEST}
    return {"error_code": Code.NONE if call.values["subscription_id"] == _SUBSCRIPTION else Code.UNKNOWN_SUBSCRIPTION_ID}
