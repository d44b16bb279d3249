"""The JSON shapes of Kafka's REST API v3, for the description of its routes.

Source: Confluent's kafka-rest, ``api/v3/openapi.yaml``.
"""

from collections.abc import Mapping
from typing import Any, Literal

from logdb_http_api.door.schemas import Body, Number, OneOf

_LINK = {"related": str}


def one(shape: Any) -> Mapping[str, Any]:
    """An answer."""
    return {"application/json": shape}


def _body(shape: Any) -> Body:
    return Body({"application/json": shape})


def _resource(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": str, "metadata": {"self": str, "resource_name": str}, "cluster_id": str, **fields}


def _links(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, _LINK)


def all_of(resource: Any) -> Mapping[str, Any]:
    """An answer with all resources of a kind."""
    return one({"kind": str, "metadata": {"self": str, "next": str | None}, "data": [resource]})


# ---------------------------------------------------------------- clusters, topics, partitions

CLUSTER = _resource(
    {
        "controller": OneOf(_LINK, None),
        **_links("acls", "brokers", "broker_configs", "consumer_groups", "topics", "partition_reassignments"),
    }
)
BROKER = _resource(
    {"broker_id": int, "host": str | None, "port": int | None, "rack": str | None, **_links("configs", "partition_replicas")}
)
TOPIC = _resource(
    {
        "topic_name": str,
        "is_internal": bool,
        "replication_factor": int,
        "partitions_count": int,
        "authorized_operations?": [str],
        **_links("partitions", "configs", "partition_reassignments"),
    }
)
CONFIG = _resource(
    {
        "topic_name": str,
        "name": str,
        "value": str | None,
        "is_default": bool,
        "is_read_only": bool,
        "is_sensitive": bool,
        "source": str,
        "synonyms": [{"name": str, "value": str | None, "source": str}],
    }
)
_OF_PARTITION = {"topic_name": str, "partition_id": int}
PARTITION = _resource({**_OF_PARTITION, "leader": OneOf(_LINK, None), **_links("replicas", "reassignment")})
OFFSETS = _resource({**_OF_PARTITION, "earliest_offset": int, "latest_offset": int})
REASSIGNMENT = _resource({**_OF_PARTITION, "adding_replicas": [int], "removing_replicas": [int], **_links("replicas")})
REPLICA = _resource({**_OF_PARTITION, "broker_id": int, "is_leader": bool, "is_in_sync": bool, **_links("broker")})

_VALUE = OneOf(str, int, float, bool, None)
NEW_TOPIC = _body(
    {
        "topic_name": str,
        "partitions_count?": Number(1, 100_000),
        "replication_factor?": Number(-1, 32_767),
        "replicas_assignments?": {"*": [Number(0)]},
        "configs?": [{"name": str, "value?": _VALUE}],
        "validate_only?": bool,
    }
)
GROWN_TOPIC = _body({"partitions_count": Number(1, 100_000)})
NEW_CONFIG = _body({"value": _VALUE})
CHANGES = _body({"data": [{"name": str, "value?": _VALUE, "operation?": Literal["SET", "DELETE"]}], "validate_only?": bool})

# ---------------------------------------------------------------- ACLs

_ACL = {
    "resource_type": Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"],
    "resource_name": str,
    "pattern_type": Literal["LITERAL", "PREFIXED"],
    "principal": str,
    "host": str,
    "operation": str,
    "permission": Literal["DENY", "ALLOW"],
}
ACL = {"kind": str, "metadata": {"self": str}, "cluster_id": str, **_ACL}
NEW_ACL = _body(_ACL)
NEW_ACLS = _body({"data": [_ACL]})

# ---------------------------------------------------------------- groups

_OF_GROUP = {"consumer_group_id": str}
_READER = {"consumer_id": str, "instance_id": str | None, "client_id": str}
GROUP = _resource(
    {
        **_OF_GROUP,
        "is_simple": bool,
        "partition_assignor": str,
        "state": str,
        "type": str,
        "is_mixed_consumer_group": bool,
        **_links("coordinator", "consumers", "lag_summary"),
    }
)
CONSUMER = _resource({**_OF_GROUP, **_READER, **_links("assignments")})
ASSIGNMENT = _resource({**_OF_GROUP, "consumer_id": str, **_OF_PARTITION, **_links("partition", "lag")})
LAG = _resource({**_OF_GROUP, **_OF_PARTITION, **_READER, "current_offset": int | None, "log_end_offset": int | None, "lag": int | None})
LAG_SUMMARY = _resource(
    {
        **_OF_GROUP,
        **{f"max_lag_{name}": kind for name, kind in {**_READER, **_OF_PARTITION}.items()},
        "max_lag": int,
        "total_lag": int,
        **_links("max_lag_consumer", "max_lag_partition"),
    }
)

# ---------------------------------------------------------------- records

_EMBEDDED = OneOf(
    {"type": Literal["BINARY"], "data?": bytes | None},
    {"type": Literal["JSON"], "data?": object},
    {"type": Literal["STRING"], "data?": str | None},
)
_RECORD = {
    "partition_id?": OneOf(Number(0, 2**31 - 1), None),
    "headers?": [{"name": str, "value?": bytes | None}],
    "key?": OneOf(_EMBEDDED, None),
    "value?": OneOf(_EMBEDDED, None),
    "timestamp?": str | None,
}
RECORD = _body(_RECORD)
BATCH = _body({"entries": [{"id": str, **_RECORD}]})
_SIZES = {"key?": {"type": str, "size": int}, "value?": {"type": str, "size": int}}
_DONE = {"cluster_id": str, **_OF_PARTITION, "offset": int, "timestamp": str | None, **_SIZES}
_FAILED = {"error_code": int, "message": str}
REPORTS = one(object)  # one after the other: {"error_code": 200, …} for each record that was appended
BATCH_REPORT = one({"successes": [{"id": str, **_DONE}], "failures": [{"id": str, **_FAILED}]})
