"""What a client asks first: APIs, brokers and topics, coordinators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from logdb.errors import LogdbError, NotAuthorized
from logdb.model import INTERNAL_TOPICS, TopicInfo, check_topic_name
from logdb.requests.groups import DescribeGroup
from logdb.requests.request import Request
from logdb.requests.topics import DescribeAtRest
from logdb.requests.transactions import DescribeTransaction
from logdb_kafka_api.api import Api, answers
from logdb_kafka_api.call import Call, Values, each_once
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.handlers.cluster import FEATURES
from logdb_kafka_api.handlers.rights import operations
from logdb_kafka_api.messages.metadata import (
    API_VERSIONS_REQUEST,
    API_VERSIONS_RESPONSE,
    DESCRIBE_TOPIC_PARTITIONS_REQUEST,
    DESCRIBE_TOPIC_PARTITIONS_RESPONSE,
    FIND_COORDINATOR_REQUEST,
    FIND_COORDINATOR_RESPONSE,
    METADATA_REQUEST,
    METADATA_RESPONSE,
)

_NO_ID, _NO_NODE = bytes(16), -1
_GROUP, _TRANSACTION = 0, 1
_FIRST_OF_NO_NAME = 12  # version of Metadata
_COORDINATED: "Mapping[int, Callable[[str], Request[Any]]]" = {_GROUP: DescribeGroup, _TRANSACTION: DescribeTransaction}
"""To find a coordinator needs what to describe its group or transaction does."""


# ---------------------------------------------------------------- APIs


@answers(18, API_VERSIONS_REQUEST, API_VERSIONS_RESPONSE, before_authentication=True)
async def api_versions(call: Call) -> Values:
    supported = [{"name": name, "min_version": level, "max_version": level} for name, level in FEATURES.items()]
    finalized = [{"name": name, "min_version_level": level, "max_version_level": level} for name, level in FEATURES.items()]
    return {
        "error_code": Code.NONE,
        "api_keys": [_advertised(api) for api in call.door.apis.values() if api.is_advertised],
        "supported_features": supported,
        "finalized_features_epoch": 0,
        "finalized_features": finalized,
    }


def _advertised(api: Api) -> Values:
    versions = api.request.versions
    return {"api_key": api.key, "min_version": versions[0], "max_version": versions[-1]}


def unsupported_version(api: Api) -> Values:
    """The answer to a version of ApiVersions that is unknown here: the client asks again in one of these."""
    return {"error_code": Code.UNSUPPORTED_VERSION, "api_keys": [_advertised(api)]}


# ---------------------------------------------------------------- brokers and topics


@answers(3, METADATA_REQUEST, METADATA_RESPONSE)
async def metadata(call: Call) -> Values:
    """All topics, or those that are named; one that does not exist may be created."""
    wanted = call.values["topics"]
    if wanted is None or (call.version == 0 and not wanted):
        found = await call.call(lambda: [_topic(call, info) for info in call.session.topics(internal=True)])
    else:
        found, may_create = await call.call(_named, call, each_once(wanted, "name", "topic_id")), call.values["allow_auto_topic_creation"]
        if call.door.auto_create_topics and may_create:
            found = [await _created(call, one) for one in found]
        for one in found:
            if one["error_code"] == Code.UNKNOWN_TOPIC_OR_PARTITION and one["name"] not in INTERNAL_TOPICS:
                call.door.note_missing(one["name"], is_allowed=may_create)
    access, brokers, racks = call.door.access, call.door.brokers(call.client), call.door.racks()
    answer: Values = {
        "brokers": [{"node_id": node, "host": host, "port": port, "rack": racks.get(node)} for node, (host, port) in brokers.items()],
        "cluster_id": access.metadata.database_id,
        "controller_id": _NO_NODE if access.metadata.controller_id is None else access.metadata.controller_id,
        "topics": found,
    }
    if call.values["include_cluster_authorized_operations"]:
        answer["cluster_authorized_operations"] = operations(call.session, "Cluster")
    return answer


def _named(call: Call, wanted: Sequence[Values]) -> list[Values]:
    is_by_id = any(one["topic_id"] != _NO_ID for one in wanted)
    names = {info.uuid: info.name for info in call.session.topics()} if is_by_id else {}
    found = []
    for one in call.each(wanted):
        name = one["name"] if one["topic_id"] == _NO_ID else names.get(one["topic_id"])  # Java's clients leave the name empty beside an id
        if name is None:
            found.append(_unknown(None if call.version >= _FIRST_OF_NO_NAME else "", Code.UNKNOWN_TOPIC_ID, one["topic_id"]))
            continue
        try:
            check_topic_name(name)  # for an unknown topic a client waits, for an invalid one it does not
            found.append(_topic(call, call.session.submit(DescribeAtRest(name))))
        except LogdbError as error:
            found.append(_unknown(name, code_of(error)))
    return found


async def _created(call: Call, found: Values) -> Values:
    """A topic as it was found, or as it is once it is created."""
    name = found["name"]
    if found["error_code"] != Code.UNKNOWN_TOPIC_OR_PARTITION or name in INTERNAL_TOPICS:
        return found
    try:
        await call.change(call.session.create_topic, name, partitions=call.door.num_partitions, if_not_exists=True)
        return _topic(call, await call.call(call.session.describe_topic, name))
    except LogdbError as error:
        return _unknown(name, code_of(error))


def _topic(call: Call, info: TopicInfo) -> Values:
    serving = call.door.serving()
    topic: Values = {
        "error_code": Code.NONE,
        "name": info.name,
        "topic_id": info.uuid,
        "is_internal": info.internal,
        "partitions": [
            {
                "error_code": Code.NONE if state.leader in serving else Code.LEADER_NOT_AVAILABLE,
                "partition_index": partition,
                "leader_id": state.leader if state.leader in serving else _NO_NODE,
                "leader_epoch": state.leader_epoch,
                "replica_nodes": state.replicas,
                "isr_nodes": state.in_sync,
                "offline_replicas": [one for one in state.replicas if one not in serving],
            }
            for partition, state in enumerate(call.door.access.placement(info))
        ],
    }
    if call.values.get("include_topic_authorized_operations"):
        topic["topic_authorized_operations"] = operations(call.session, "Topic", info.name)
    return topic


def _unknown(name: str | None, code: Code, topic_id: bytes = _NO_ID) -> Values:
    return {"error_code": code, "name": name, "topic_id": topic_id}


# ---------------------------------------------------------------- partitions, page by page

_PARTITIONS_MAX = 2000  # Kafka's max.request.partition.size.limit
_NO_ELIGIBLE = {"eligible_leader_replicas": (), "last_known_elr": ()}  # KIP-966's, which there are none of


@answers(75, DESCRIBE_TOPIC_PARTITIONS_REQUEST, DESCRIBE_TOPIC_PARTITIONS_RESPONSE)
async def describe_topic_partitions(call: Call) -> Values:
    """Topics by name, those that are named or all, up to a number of partitions; the next request goes on at the cursor."""
    return await call.call(_page, call)


def _page(call: Call) -> Values:
    cursor, asked = call.values["cursor"], list(dict.fromkeys(one["name"] for one in call.values["topics"]))
    known = {} if asked else {info.name: info for info in call.session.topics(internal=True)}
    names, first = sorted(asked or known), 0
    if cursor is not None:
        first = cursor["partition_index"]
        if first < 0 or (asked and cursor["topic_name"] not in asked):
            return {"topics": [_unknown(name, Code.INVALID_REQUEST) for name in asked]}
        names = [name for name in names if name >= cursor["topic_name"]]
        first *= names[:1] == [cursor["topic_name"]]
    left = max(1, min(call.values["response_partition_limit"], _PARTITIONS_MAX))
    topics: list[Values] = []
    for name in call.each(names):
        if not left:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": first}}
        topic = _described(call, name, known.get(name))
        partitions = topic.get("partitions", ())
        shown = partitions[first : first + left]
        topics.append({**topic, "partitions": [{**one, **_NO_ELIGIBLE} for one in shown]})
        if first + left < len(partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": first + left}}
        left, first = left - len(shown), 0
    return {"topics": topics}


def _described(call: Call, name: str, info: TopicInfo | None) -> Values:
    """A topic with all of its partitions, or why it is not shown."""
    try:
        check_topic_name(name)
        topic = _topic(call, info or call.session.describe_topic(name))
        return {**topic, "topic_authorized_operations": operations(call.session, "Topic", name)}
    except LogdbError as error:
        return _unknown(name, code_of(error))


# ---------------------------------------------------------------- coordinators


@answers(10, FIND_COORDINATOR_REQUEST, FIND_COORDINATOR_RESPONSE)
async def find_coordinator(call: Call) -> Values:
    """The leader of the partition that keeps a group or a transactional id; without a cluster this node."""
    kind = call.values["key_type"]
    if call.version >= 4:
        keys = each_once(call.values["coordinator_keys"])
        return {"coordinators": await call.call(lambda: [{"key": key, **_coordinator(call, kind, key)} for key in call.each(keys)])}
    key = call.values["key"]
    return await call.call(_coordinator, call, kind, key) if call.door.access.is_replicated else _coordinator(call, kind, key)


def _coordinator(call: Call, kind: int, key: str) -> dict[str, Any]:
    """Where to find a coordinator; in a cluster it may create the internal topic."""
    nowhere = {"node_id": _NO_NODE, "host": "", "port": -1}
    if kind not in _COORDINATED:
        return {"error_code": Code.INVALID_REQUEST, "error_message": f"key type {kind}", **nowhere}
    try:
        call.session.authorize(_COORDINATED[kind](key))
        node = call.door.access.coordinator(INTERNAL_TOPICS[kind], key)
    except NotAuthorized as error:
        return {"error_code": code_of(error), "error_message": str(error), **nowhere}
    except LogdbError as error:
        return {"error_code": Code.COORDINATOR_NOT_AVAILABLE, "error_message": str(error), **nowhere}
    brokers = call.door.brokers(call.client)
    if node not in brokers or node not in call.door.serving():
        return {"error_code": Code.COORDINATOR_NOT_AVAILABLE, "error_message": "no broker leads its partition now", **nowhere}
    host, port = brokers[node]
    return {"error_code": Code.NONE, "error_message": None, "node_id": node, "host": host, "port": port}
