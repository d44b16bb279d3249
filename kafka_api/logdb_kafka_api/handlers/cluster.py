"""The cluster: its brokers, the quorum of its controllers, its features."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from logdb.errors import LogdbError
from logdb.requests.nodes import QuorumInfo, QuorumVoter
from logdb.requests.replicas import DescribeQuorum
from logdb.requests.resources import CLUSTER
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.handlers.rights import operations
from logdb_kafka_api.messages.cluster import (
    DESCRIBE_QUORUM_REQUEST,
    DESCRIBE_QUORUM_RESPONSE,
    UPDATE_FEATURES_REQUEST,
    UPDATE_FEATURES_RESPONSE,
)
from logdb_kafka_api.messages.metadata import DESCRIBE_CLUSTER_REQUEST, DESCRIBE_CLUSTER_RESPONSE

_BROKERS, _CONTROLLERS = 1, 2  # types of endpoints


@answers(60, DESCRIBE_CLUSTER_REQUEST, DESCRIBE_CLUSTER_RESPONSE)
async def describe_cluster(call: Call) -> Values:
    if call.values["endpoint_type"] == _CONTROLLERS:
        return {"error_code": Code.MISMATCHED_ENDPOINT_TYPE, "error_message": "this is a broker, and the request is for a controller"}
    if call.values["endpoint_type"] != _BROKERS:
        return {"error_code": Code.UNSUPPORTED_ENDPOINT_TYPE, "error_message": f"endpoint type {call.values['endpoint_type']}"}
    access, brokers, racks = call.door.access, call.door.brokers(call.client), call.door.racks()
    answer: Values = {
        "error_code": Code.NONE,
        "cluster_id": access.metadata.database_id,
        "controller_id": -1 if access.metadata.controller_id is None else access.metadata.controller_id,
        "brokers": [{"broker_id": node, "host": host, "port": port, "rack": racks.get(node)} for node, (host, port) in brokers.items()],
    }
    if call.values["include_cluster_authorized_operations"]:
        answer["cluster_authorized_operations"] = operations(call.session, "Cluster")
    return answer


# ---------------------------------------------------------------- the quorum

_METADATA = "__cluster_metadata"  # its partition 0 is what the quorum of a Kafka replicates
_NO_LEADER = -1


@answers(55, DESCRIBE_QUORUM_REQUEST, DESCRIBE_QUORUM_RESPONSE)
async def describe_quorum(call: Call) -> Values:
    """The controllers of a cluster; a single node is the only one of its own.  As in Kafka, no other partition may be named beside."""
    asked = [(topic["topic_name"], [one["partition_index"] for one in topic["partitions"]]) for topic in call.values["topics"]]
    try:
        quorum = await call.call(call.session.submit, DescribeQuorum())
    except LogdbError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    if asked != [(_METADATA, [0])]:
        return {"error_code": Code.NONE, "topics": [{"topic_name": name, "partitions": _unknown(indexes)} for name, indexes in asked]}
    topics = [{"topic_name": _METADATA, "partitions": [_described(quorum, call.session.io.clock_ms())]}]
    return {"error_code": Code.NONE, "topics": topics, "nodes": list(map(_node, quorum.voters))}


def _unknown(indexes: Iterable[int]) -> list[Values]:
    code, message = Code.UNKNOWN_TOPIC_OR_PARTITION, f"only partition 0 of {_METADATA} has a quorum: name it alone"
    empty: Values = {"leader_id": _NO_LEADER, "leader_epoch": 0, "high_watermark": 0, "current_voters": (), "observers": ()}
    return [{"partition_index": index, "error_code": code, "error_message": message, **empty} for index in indexes]


def _described(quorum: QuorumInfo, now_ms: int) -> Values:
    return {
        "partition_index": 0,
        "error_code": Code.NONE,
        "leader_id": _NO_LEADER if quorum.leader is None else quorum.leader,
        "leader_epoch": quorum.term,
        "high_watermark": quorum.committed,
        "current_voters": [_voter(quorum, one, now_ms) for one in quorum.voters],
        "observers": (),
    }


def _voter(quorum: QuorumInfo, voter: QuorumVoter, now_ms: int) -> Values:
    """A voter with what is committed counts as caught up when it answered last."""
    ago_ms = 0 if voter.node_id == quorum.leader else voter.answered_ms_ago
    heard_ms = -1 if ago_ms is None else now_ms - ago_ms
    end = -1 if voter.end is None else voter.end
    return {
        "replica_id": voter.node_id,
        "replica_directory_id": voter.incarnation.to_bytes(16),
        "log_end_offset": end,
        "last_fetch_timestamp": heard_ms,
        "last_caught_up_timestamp": heard_ms if end >= quorum.committed else -1,
    }


def _node(voter: QuorumVoter) -> Values:
    listeners = [] if voter.address is None else [{"name": "CONTROLLER", "host": voter.address[0], "port": voter.address[1]}]
    return {"node_id": voter.node_id, "listeners": listeners}


# ---------------------------------------------------------------- features

FEATURES: Mapping[str, int] = MappingProxyType(
    {
        "metadata.version": 30,  # Kafka 4.3's, whose answers this door gives
        "transaction.version": 2,  # see handlers.transactions
    }
)
"""Kafka's names and levels of what this version does; none of them can be switched."""
_UPGRADE_TYPES = (1, 2, 3)  # an upgrade, a safe downgrade, an unsafe one


@answers(57, UPDATE_FEATURES_REQUEST, UPDATE_FEATURES_RESPONSE)
async def update_features(call: Call) -> Values:
    """Each feature has one level: a request for that changes nothing, one for another is refused as a whole."""
    updates = call.values["feature_updates"]
    try:
        call.session.need_any([("Alter", "Cluster", CLUSTER)])
    except LogdbError as error:
        return {"error_code": code_of(error), "error_message": str(error)}
    for one in updates:
        name, level = one["feature"], one["max_version_level"]
        if FEATURES.get(name) != level or one["upgrade_type"] not in _UPGRADE_TYPES:
            known = ", ".join(f"{feature}={has}" for feature, has in FEATURES.items())
            return {"error_code": Code.INVALID_UPDATE_VERSION, "error_message": f"{name}={level}: this version of logdb has {known}"}
    return {"error_code": Code.NONE, "results": [{"feature": one["feature"], "error_code": Code.NONE} for one in updates]}
