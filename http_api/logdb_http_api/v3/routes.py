"""Routes for clusters, brokers, topics, configs, partitions and replicas in Kafka's REST API v3.

``resources`` has the common parts; ``records``, ``groups`` and ``acls`` have their own routes.

There is one cluster, with the database's id; without a cluster it has one broker, with the only replica of each partition, and none is ever
reassigned.  Only topics have configs: the list of a broker's configs is empty.

Source: Confluent's kafka-rest, ``api/v3/openapi.yaml`` and ``resources/v3``.
"""

from typing import Any, Literal

from aiohttp import web

from logdb.errors import InvalidPartitions, UnknownPartition
from logdb.model import BY_DEFAULT, TOPIC_CONFIGS, ConfigValue, PartitionInfo, TopicInfo, TopicPartition
from logdb.requests.acls import spelled
from logdb.requests.nodes import BrokerInfo, PartitionState
from logdb.requests.replicas import Reassignments
from logdb.requests.topic_changes import Assignments
from logdb.requests.topics import DescribeConfigs
from logdb_http_api.door.request import Request, answer, no_content
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Parameter
from logdb_http_api.errors import ApiError
from logdb_http_api.v2.routes import config_text
from logdb_http_api.v3 import shapes
from logdb_http_api.v3.resources import (
    CLUSTER,
    REFUSED,
    ROOT,
    broker_link,
    collection,
    flag,
    malformed,
    not_found,
    objects,
    of_cluster,
    read_object,
    related,
    resource,
    text,
    url,
    whole,
)

TOPICS = CLUSTER + "/topics"
TOPIC = TOPICS + "/{topic_name}"
CONFIGS = TOPIC + "/configs"
PARTITIONS = TOPIC + "/partitions"
PARTITION = PARTITIONS + "/{partition_id}"
BROKER = CLUSTER + "/brokers/{broker_id}"
OFFSET_TYPE = "earliest_and_latest"

routes = Routes()

_OPERATIONS = Parameter("include_authorized_operations", bool, "Include the operations that the principal may perform on a topic.")
_OFFSET_TYPE = Parameter("offset_type", Literal["earliest_and_latest"], "The only value.")

_OF_NEW_TOPIC = ("topic_name", "partitions_count", "replication_factor", "replicas_assignments", "configs", "validate_only")


# ---------------------------------------------------------------- clusters and brokers


@routes.get(ROOT, "The list of clusters: this one", needs=(), gives=shapes.all_of(shapes.CLUSTER))
async def clusters(request: Request) -> web.StreamResponse:
    return answer({"kind": "KafkaClusterList", "metadata": {"self": url(request), "next": None}, "data": [_cluster(request)]})


@routes.get(CLUSTER, "A cluster", needs=(), gives=shapes.one(shapes.CLUSTER))
@of_cluster
async def cluster(request: Request) -> web.StreamResponse:
    return answer(_cluster(request))


def _cluster(request: Request) -> dict[str, Any]:
    return resource(
        request,
        "KafkaCluster",
        (),
        "",
        controller=broker_link(request, request.door.access.metadata.controller_id),
        acls=related(request, "acls"),
        brokers=related(request, "brokers"),
        broker_configs=related(request, "broker-configs"),
        consumer_groups=related(request, "consumer-groups"),
        topics=related(request, "topics"),
        partition_reassignments=related(request, "topics", "-", "partitions", "-", "reassignment"),
    )


@routes.get(CLUSTER + "/brokers", "The brokers", needs=(), gives=shapes.all_of(shapes.BROKER))
@of_cluster
async def brokers(request: Request) -> web.StreamResponse:
    alive = (one for one in request.door.access.metadata.brokers() if not one.fenced)
    return collection(request, "KafkaBrokerList", ("brokers",), [_broker(request, one) for one in alive])


@routes.get(BROKER, "A broker", needs=(), gives=shapes.one(shapes.BROKER))
@of_cluster
async def broker(request: Request) -> web.StreamResponse:
    return answer(_broker(request, _found_broker(request)))


def _found_broker(request: Request) -> BrokerInfo:
    number = request.partition("broker_id")
    for one in request.door.access.metadata.brokers():
        if one.node_id == number:
            return one
    raise not_found("Broker", number)


def _broker(request: Request, info: BrokerInfo) -> dict[str, Any]:
    """A broker; one without addresses is this one, where the client has reached it."""
    number, place = info.node_id, request.http.url
    host, port = info.addresses.get("http", (place.host, place.port))
    return resource(
        request,
        "KafkaBroker",
        ("brokers", number),
        f"/broker={number}",
        broker_id=number,
        host=host,
        port=port,
        rack=info.rack or None,
        configs=related(request, "brokers", number, "configs"),
        partition_replicas=related(request, "brokers", number, "partition-replicas"),
    )


@routes.get(
    CLUSTER + "/broker-configs",
    "Configs of all brokers: none can be changed",
    needs=(),
    gives=shapes.all_of(shapes.CONFIG),
)
@of_cluster
async def cluster_configs(request: Request) -> web.StreamResponse:
    return collection(request, "KafkaClusterConfigList", ("broker-configs",), [])


@routes.get(BROKER + "/configs", "Configs of a broker: none can be changed", needs=(), gives=shapes.all_of(shapes.CONFIG))
@of_cluster
async def broker_configs(request: Request) -> web.StreamResponse:
    number = _found_broker(request).node_id
    return collection(request, "KafkaBrokerConfigList", ("brokers", number, "configs"), [])


@routes.get(
    BROKER + "/partition-replicas",
    "The replicas of a broker",
    needs=("Describe Topic",),
    gives=shapes.all_of(shapes.REPLICA),
)
@of_cluster
async def broker_replicas(request: Request) -> web.StreamResponse:
    return await request.call(_all_replicas, request, _found_broker(request).node_id)


def _all_replicas(request: Request, broker_id: int) -> web.Response:
    data = (
        _replica(request, info.name, partition, state, broker_id)
        for info in request.session.topics(internal=True)
        for partition, state in enumerate(request.door.access.placement(info))
        if broker_id in state.replicas
    )
    return collection(request, "KafkaReplicaList", ("brokers", broker_id, "partition-replicas"), data)


# ---------------------------------------------------------------- topics


@routes.get(TOPICS, "All topics", needs=("Describe Topic",), takes=(_OPERATIONS,), gives=shapes.all_of(shapes.TOPIC))
@of_cluster
async def topics(request: Request) -> web.StreamResponse:
    return await request.call(_all_topics, request)


def _all_topics(request: Request) -> web.Response:
    found = request.session.topics(internal=True)
    return collection(request, "KafkaTopicList", ("topics",), (_topic(request, info) for info in found))


@routes.post(
    TOPICS,
    "Create a topic, or check whether it can be created",
    needs=("Create Topic",),
    body=shapes.NEW_TOPIC,
    gives=shapes.one(shapes.TOPIC),
    status=201,
)
@of_cluster
async def create_topic(request: Request) -> web.StreamResponse:
    body = await read_object(request, *_OF_NEW_TOPIC)
    name, partition_count, factor = text(body, "topic_name"), whole(body, "partitions_count"), whole(body, "replication_factor")
    assignments = _assignments(body)
    config = {text(entry, "name"): entry.get("value") for entry in objects(body, "configs", "name", "value")}
    given = {key: value for key, value in config.items() if value is not None}
    validate_only = flag(body, "validate_only")
    create = request.session.check_new_topic if validate_only else request.session.create_topic
    info = await request.change(
        create,
        name,
        partitions=BY_DEFAULT if partition_count is None else partition_count,
        replication_factor=factor,
        config=given,
        assignments=assignments,
    )
    place = {"Location": url(request, request.path("cluster_id"), "topics", name)}
    asked = len(assignments[0]) if assignments else factor or BY_DEFAULT
    unmade_factor = asked if validate_only and request.door.access.is_replicated else None
    response = answer(_topic(request, info, unmade_factor), status=200 if validate_only else 201)
    response.headers.update(place)
    return response


def _assignments(body: dict[str, Any]) -> Assignments | None:
    """The brokers of each partition of a new topic; None: they are not named."""
    given = body.get("replicas_assignments")
    if not given:
        return None
    if not isinstance(given, dict) or not all(map(_are_brokers, given.values())):
        raise malformed("replicas_assignments", given, "the ids of brokers for each partition")
    if sorted(given) != sorted(map(str, range(len(given)))):
        raise ApiError(*REFUSED, "replicas_assignments: partitions are numbered from 0, without a gap")
    return tuple(tuple(given[str(number)]) for number in range(len(given)))


def _are_brokers(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in value)


@routes.get(TOPIC, "A topic", needs=("Describe Topic",), takes=(_OPERATIONS,), gives=shapes.one(shapes.TOPIC))
@of_cluster
async def topic(request: Request) -> web.StreamResponse:
    return answer(_topic(request, await _described(request)))


@routes.add(
    "PATCH",
    TOPIC,
    "Add partitions to a topic",
    needs=("Alter Topic",),
    body=shapes.GROWN_TOPIC,
    gives=shapes.one(shapes.TOPIC),
)
@of_cluster
async def grow_topic(request: Request) -> web.StreamResponse:
    count = whole(await read_object(request, "partitions_count"), "partitions_count")
    if count is None:
        raise malformed("partitions_count", None, "a whole number")
    name = request.path("topic_name")
    present = await request.call(request.session.partition_count, name)
    if count == present:
        raise InvalidPartitions(name, count, f"it already has {present}")
    return answer(_topic(request, await request.change(request.session.alter_topic, name, partitions=count)))


@routes.delete(TOPIC, "Delete a topic", needs=("Delete Topic",), status=204)
@of_cluster
async def delete_topic(request: Request) -> web.StreamResponse:
    await request.change(request.session.delete_topic, request.path("topic_name"))
    return no_content()


async def _described(request: Request) -> TopicInfo:
    return await request.call(request.session.describe_topic, request.path("topic_name"))


def _topic(request: Request, info: TopicInfo, replication_factor: int | None = None) -> dict[str, Any]:
    """A topic; ``replication_factor``: of one that was not made, whose partitions do not say it."""
    place = ("topics", info.name)
    allowed: dict[str, list[str]] = {}
    if request.query("include_authorized_operations") == "true":
        allowed["authorized_operations"] = _authorized_operations(request, info.name)
    return resource(
        request,
        "KafkaTopic",
        place,
        f"/topic={info.name}",
        topic_name=info.name,
        is_internal=info.internal,
        replication_factor=replication_factor or len(request.door.access.placement(info)[0].replicas),
        partitions_count=info.partition_count,
        partitions=related(request, *place, "partitions"),
        configs=related(request, *place, "configs"),
        partition_reassignments=related(request, *place, "partitions", "-", "reassignment"),
        **allowed,
    )


def _authorized_operations(request: Request, name: str) -> list[str]:
    """The operations that the principal may perform on a topic, in Kafka's spelling."""
    return [spelled(one) for one in request.session.operations("Topic", name)]


# ---------------------------------------------------------------- configs of topics


@routes.get(TOPICS + "/-/configs", "The configs of all topics", needs=("DescribeConfigs Topic",), gives=shapes.all_of(shapes.CONFIG))
@of_cluster
async def all_configs(request: Request) -> web.StreamResponse:
    return await request.call(_all_configs, request)


def _all_configs(request: Request) -> web.Response:
    session = request.session
    found = [info for info in session.topics(internal=True) if session.allows(DescribeConfigs(info.name))]
    data = (_config(request, info.name, name, dict(info.config)) for info in found for name in TOPIC_CONFIGS)
    return collection(request, "KafkaTopicConfigList", ("topics", "-", "configs"), data)


@routes.get(CONFIGS, "The configs of a topic", needs=("DescribeConfigs Topic",), gives=shapes.all_of(shapes.CONFIG))
@of_cluster
async def configs(request: Request) -> web.StreamResponse:
    name = request.path("topic_name")
    found = dict(await request.call(request.session.describe_configs, name))
    data = [_config(request, name, key, found) for key in TOPIC_CONFIGS]
    return collection(request, "KafkaTopicConfigList", ("topics", name, "configs"), data)


@routes.get(CONFIGS + "/{name}", "A config of a topic", needs=("DescribeConfigs Topic",), gives=shapes.one(shapes.CONFIG))
@of_cluster
async def config(request: Request) -> web.StreamResponse:
    name = request.path("topic_name")
    found = dict(await request.call(request.session.describe_configs, name))
    return answer(_config(request, name, _config_name(request), found))


def _config_name(request: Request) -> str:
    name = request.path("name")
    if name not in TOPIC_CONFIGS:
        raise not_found("Config", name)
    return name


def _config(request: Request, topic_name: str, name: str, found: dict[str, ConfigValue]) -> dict[str, Any]:
    default = config_text(TOPIC_CONFIGS[name].default)
    synonyms = [{"name": name, "value": default, "source": "DEFAULT_CONFIG"}]
    if name in found:
        synonyms.insert(0, {"name": name, "value": config_text(found[name]), "source": "DYNAMIC_TOPIC_CONFIG"})
    return resource(
        request,
        "KafkaTopicConfig",
        ("topics", topic_name, "configs", name),
        f"/topic={topic_name}/config={name}",
        topic_name=topic_name,
        name=name,
        value=synonyms[0]["value"],
        is_default=name not in found,
        is_read_only=False,
        is_sensitive=False,
        source=synonyms[0]["source"],
        synonyms=synonyms,
    )


@routes.add("PUT", CONFIGS + "/{name}", "Set a config of a topic", needs=("AlterConfigs Topic",), body=shapes.NEW_CONFIG, status=204)
@of_cluster
async def set_config(request: Request) -> web.StreamResponse:
    body, name = await read_object(request, "value"), _config_name(request)
    await request.change(request.session.alter_topic, request.path("topic_name"), config={name: _new_value(body)})
    return no_content()


@routes.delete(CONFIGS + "/{name}", "Reset a config of a topic to its default", needs=("AlterConfigs Topic",), status=204)
@of_cluster
async def reset_config(request: Request) -> web.StreamResponse:
    await request.change(request.session.alter_topic, request.path("topic_name"), config={_config_name(request): None})
    return no_content()


@routes.post(
    TOPIC + "/configs:alter",
    "Set and reset configs of a topic, all or none",
    needs=("AlterConfigs Topic",),
    body=shapes.CHANGES,
    status=204,
)
@of_cluster
async def alter_configs(request: Request) -> web.StreamResponse:
    body = await read_object(request, "data", "validate_only")
    changes = dict(map(_change, objects(body, "data", "name", "value", "operation")))
    alter = request.session.check_topic_configs if flag(body, "validate_only") else request.session.alter_topic
    await request.change(alter, request.path("topic_name"), config=changes)
    return no_content()


def _change(entry: dict[str, Any]) -> tuple[str, Any]:
    """A config and its new value, None: the default."""
    operation = entry.get("operation") or "SET"
    if operation not in ("SET", "DELETE"):
        raise malformed("operation", operation, "SET or DELETE")
    return text(entry, "name"), None if operation == "DELETE" else _new_value(entry)


def _new_value(entry: dict[str, Any]) -> Any:
    """The new value of a config, None: the default.  It is required: a forgotten value must not reset the config."""
    if "value" not in entry:
        raise malformed("value", None, "a word or a number; null is the default")
    return entry["value"]


# ---------------------------------------------------------------- partitions and replicas


@routes.get(
    TOPICS + "/-/partitions/-/reassignment",
    "The partitions that are being reassigned",
    needs=("Describe Cluster",),
    gives=shapes.all_of(shapes.REASSIGNMENT),
)
@of_cluster
async def all_reassignments(request: Request) -> web.StreamResponse:
    return await request.call(_reassignments, request, "-", None)


@routes.get(
    PARTITIONS + "/-/reassignment",
    "The partitions of a topic that are being reassigned",
    needs=("Describe Topic", "Describe Cluster"),
    gives=shapes.all_of(shapes.REASSIGNMENT),
)
@of_cluster
async def reassignments(request: Request) -> web.StreamResponse:
    info = await _described(request)
    wanted = tuple(TopicPartition(info.name, number) for number in range(info.partition_count))
    return await request.call(_reassignments, request, info.name, wanted)


def _reassignments(request: Request, topic_name: str, partitions: tuple[TopicPartition, ...] | None) -> web.Response:
    found = request.session.submit(Reassignments(partitions))
    data = (_reassignment(request, where, state) for where, state in sorted(found.items()))
    return collection(request, "KafkaReassignmentList", ("topics", topic_name, "partitions", "-", "reassignment"), data)


@routes.get(
    PARTITION + "/reassignment",
    "The replicas of a partition during a reassignment",
    needs=("Describe Topic", "Describe Cluster"),
    gives=shapes.one(shapes.REASSIGNMENT),
)
@of_cluster
async def reassignment(request: Request) -> web.StreamResponse:
    info, one = await _partition_found(request)
    where = TopicPartition(info.name, one.partition)
    found = await request.call(request.session.submit, Reassignments((where,)))
    if where not in found:
        raise not_found("Reassignment of", f"{info.name}-{one.partition}")
    return answer(_reassignment(request, where, found[where]))


@routes.get(PARTITIONS, "The partitions of a topic", needs=("Describe Topic",), gives=shapes.all_of(shapes.PARTITION))
@of_cluster
async def partitions(request: Request) -> web.StreamResponse:
    return await request.call(_all_partitions, request)


def _all_partitions(request: Request) -> web.Response:
    info = request.session.describe_topic(request.path("topic_name"))
    data = (_partition(request, info.name, one) for one in info.partitions)
    return collection(request, "KafkaPartitionList", ("topics", info.name, "partitions"), data)


@routes.get(PARTITION, "A partition", needs=("Describe Topic",), gives=shapes.one(shapes.PARTITION))
@of_cluster
async def partition(request: Request) -> web.StreamResponse:
    info, found = await _partition_found(request)
    return answer(_partition(request, info.name, found))


@routes.get(
    PARTITION + "/offset",
    "The start and end of a partition",
    needs=("Describe Topic",),
    takes=(_OFFSET_TYPE,),
    gives=shapes.one(shapes.OFFSETS),
)
@of_cluster
async def offsets(request: Request) -> web.StreamResponse:
    offset_type = request.query("offset_type", OFFSET_TYPE)
    if offset_type != OFFSET_TYPE:
        raise ApiError(400, 400, f"Bad Request: offset_type:{offset_type:.40} is invalid: must be {OFFSET_TYPE}")
    info, found = await _partition_found(request)
    start, end = await request.call(request.session.ends, info.name, found.partition)
    place = ("topics", info.name, "partitions", found.partition, "offset")
    return answer(
        resource(
            request,
            "KafkaPartitionWithOffsets",
            place,
            f"/topic={info.name}/partition={found.partition}/offset_type={OFFSET_TYPE}",
            topic_name=info.name,
            partition_id=found.partition,
            earliest_offset=start,
            latest_offset=end,
        )
    )


@routes.get(
    PARTITION + "/replicas",
    "The replicas of a partition",
    needs=("Describe Topic",),
    gives=shapes.all_of(shapes.REPLICA),
)
@of_cluster
async def replicas(request: Request) -> web.StreamResponse:
    info, found = await _partition_found(request)
    place = ("topics", info.name, "partitions", found.partition, "replicas")
    return collection(
        request, "KafkaReplicaList", place, [_replica(request, info.name, found.partition, found, one) for one in found.replicas]
    )


@routes.get(PARTITION + "/replicas/{broker_id}", "A replica of a partition", needs=("Describe Topic",), gives=shapes.one(shapes.REPLICA))
@of_cluster
async def replica(request: Request) -> web.StreamResponse:
    info, found = await _partition_found(request)
    broker_id = request.partition("broker_id")
    if broker_id not in found.replicas:
        raise not_found(f"Replica of {info.name}-{found.partition} on broker", broker_id)
    return answer(_replica(request, info.name, found.partition, found, broker_id))


async def _partition_found(request: Request) -> tuple[TopicInfo, PartitionInfo]:
    number, info = request.partition("partition_id"), await _described(request)
    if number >= info.partition_count:
        raise UnknownPartition(info.name, number, info.partition_count)
    return info, info.partitions[number]


def _partition(request: Request, topic_name: str, info: PartitionInfo) -> dict[str, Any]:
    number = info.partition
    place = ("topics", topic_name, "partitions", number)
    return resource(
        request,
        "KafkaPartition",
        place,
        f"/topic={topic_name}/partition={number}",
        topic_name=topic_name,
        partition_id=number,
        leader=None if info.leader is None else related(request, *place, "replicas", info.leader),
        replicas=related(request, *place, "replicas"),
        reassignment=related(request, *place, "reassignment"),
    )


def _reassignment(request: Request, where: TopicPartition, state: PartitionState) -> dict[str, Any]:
    place = ("topics", where.topic, "partitions", where.partition)
    return resource(
        request,
        "KafkaReassignment",
        (*place, "reassignment"),
        f"/topic={where.topic}/partition={where.partition}/reassignment",
        topic_name=where.topic,
        partition_id=where.partition,
        adding_replicas=list(state.adding),
        removing_replicas=list(state.removing),
        replicas=related(request, *place, "replicas"),
    )


def _replica(request: Request, topic_name: str, number: int, state: "PartitionState | PartitionInfo", broker_id: int) -> dict[str, Any]:
    return resource(
        request,
        "KafkaReplica",
        ("topics", topic_name, "partitions", number, "replicas", broker_id),
        f"/topic={topic_name}/partition={number}/replica={broker_id}",
        topic_name=topic_name,
        partition_id=number,
        broker_id=broker_id,
        is_leader=state.leader == broker_id,
        is_in_sync=broker_id in state.in_sync,
        broker=related(request, "brokers", broker_id),
    )
