"""Topics are created and deleted."""

from collections import Counter
from typing import Any

from logdb.errors import LogdbError
from logdb.model import BY_DEFAULT, INTERNAL_TOPICS, TopicInfo, colliding
from logdb.requests.topics import DescribeConfigs
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.handlers import configs
from logdb_kafka_api.messages.topics import CREATE_TOPICS_REQUEST, CREATE_TOPICS_RESPONSE, DELETE_TOPICS_REQUEST, DELETE_TOPICS_RESPONSE

_NO_ID = bytes(16)


@answers(19, CREATE_TOPICS_REQUEST, CREATE_TOPICS_RESPONSE)
async def create_topics(call: Call) -> Values:
    """Create each topic by itself: one that fails does not keep the others from being created."""
    topics = call.values["topics"]
    counts = Counter(topic["name"] for topic in topics)
    return {"topics": [await _create(call, topic, is_twice=counts[topic["name"]] > 1) for topic in topics]}


async def _create(call: Call, topic: Values, *, is_twice: bool) -> Values:
    name = topic["name"]
    code, message, counts = _counts(call, topic)
    if is_twice:
        code, message = Code.INVALID_REQUEST, "the topic is named twice"
    if code:
        return {"name": name, "error_code": code, "error_message": message, "configs": None}
    known = await call.call(lambda: [one.name for one in call.session.topics(internal=True)]) if {".", "_"} & set(name) else ()
    if name in INTERNAL_TOPICS and name in known:
        message = f"topic {name!r} exists already"
        return {"name": name, "error_code": Code.TOPIC_ALREADY_EXISTS, "error_message": message, "configs": None}
    if name not in known and (other := colliding(name, known)):
        message = f"Topic '{name}' collides with existing topic: {other}"
        return {"name": name, "error_code": Code.INVALID_TOPIC_EXCEPTION, "error_message": message, "configs": None}
    create = call.session.check_new_topic if call.values["validate_only"] else call.session.create_topic
    config = {one["name"]: one["value"] for one in topic["configs"]}
    try:
        info = await call.change(create, name, **counts, config=config)
    except LogdbError as error:
        return {"name": name, "error_code": code_of(error), "error_message": str(error), "configs": None}
    made = {"name": name, "error_code": Code.NONE, "error_message": None, "topic_id": info.uuid}
    if not call.session.allows(DescribeConfigs(name)):
        return {**made, "topic_config_error_code": Code.TOPIC_AUTHORIZATION_FAILED, "configs": None}
    return {
        **made,
        "num_partitions": info.partition_count,
        "replication_factor": _replication_factor(call, info, counts),
        "configs": [one.described() for one in configs.of_topic(info.config)],
    }


def _replication_factor(call: Call, info: TopicInfo, asked: Values) -> int:
    """How many replicas a topic has; of one that only could be made in a cluster, what was asked for."""
    if call.values["validate_only"] and call.door.access.is_replicated:
        return len(asked["assignments"][0]) if "assignments" in asked else asked["replication_factor"]
    return len(call.door.access.placement(info)[0].replicas)


def _counts(call: Call, topic: Values) -> tuple[Code, str, dict[str, Any]]:
    """How many partitions and replicas are asked for, or the brokers of each partition."""
    count, factor = topic["num_partitions"], topic["replication_factor"]
    if given := sorted((one["partition_index"], tuple(one["broker_ids"])) for one in topic["assignments"]):
        if (count, factor) != (BY_DEFAULT, BY_DEFAULT):
            return Code.INVALID_REQUEST, "partitions are assigned and counted: num_partitions and replication_factor are then -1", {}
        if [index for index, _ in given] != list(range(len(given))):
            return Code.INVALID_REPLICA_ASSIGNMENT, "the partitions must be 0, 1, 2, …, each once", {}
        return Code.NONE, "", {"assignments": tuple(brokers for _, brokers in given)}
    return Code.NONE, "", {"partitions": call.door.num_partitions if count == BY_DEFAULT else count, "replication_factor": factor}


@answers(20, DELETE_TOPICS_REQUEST, DELETE_TOPICS_RESPONSE)
async def delete_topics(call: Call) -> Values:
    """Delete topics by name, or from version 6 on by id; one that is named twice stays, as in Kafka, and is answered once.

    A name and an id together could mean two topics: neither is deleted, as in Kafka.
    """
    asked = call.values["topics"] or [{"name": name, "topic_id": _NO_ID} for name in call.values["topic_names"]]
    wanted = [one for one in asked if (one["name"] is None) != (one["topic_id"] == _NO_ID)]
    refused = [
        {**one, "error_code": Code.INVALID_REQUEST, "error_message": "a topic is named by its name or by its id"}
        for one in asked
        if (one["name"] is None) == (one["topic_id"] == _NO_ID)
    ]
    names: dict[bytes, str] = {}
    if any(one["name"] is None for one in wanted):
        names = {info.uuid: info.name for info in await call.call(call.session.topics)}
    named = [(names.get(one["topic_id"]) if one["name"] is None else one["name"], one["topic_id"]) for one in wanted]
    counts = Counter(topic_id if name is None else name for name, topic_id in named)
    once = {topic_id if name is None else name: (name, topic_id) for name, topic_id in named}
    return {"responses": refused + [await _delete(call, *one, is_twice=counts[key] > 1) for key, one in once.items()]}


async def _delete(call: Call, name: str | None, topic_id: bytes, *, is_twice: bool) -> Values:
    answer = {"name": name, "topic_id": topic_id, "error_code": Code.NONE, "error_message": None}
    if is_twice:
        return {**answer, "error_code": Code.INVALID_REQUEST, "error_message": "the topic is named twice"}
    if name is None:
        return {**answer, "error_code": Code.UNKNOWN_TOPIC_ID}
    try:
        await call.change(call.session.delete_topic, name)
    except LogdbError as error:
        return {**answer, "error_code": code_of(error), "error_message": str(error)}
    return answer
