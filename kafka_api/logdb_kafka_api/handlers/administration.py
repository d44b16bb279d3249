"""Partitions are added, records deleted, the sizes of partitions told."""

from collections.abc import Iterable, Sequence

from logdb.errors import InvalidPartitions, LogdbError, OffsetOutOfRange
from logdb.model import TopicPartition, by_topic
from logdb.requests.nodes import PartitionState
from logdb.requests.resources import CLUSTER
from logdb.requests.topic_changes import CheckPartitions
from logdb.requests.topics import PartitionSizes
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.messages.topics import (
    ALTER_REPLICA_LOG_DIRS_REQUEST,
    ALTER_REPLICA_LOG_DIRS_RESPONSE,
    CREATE_PARTITIONS_REQUEST,
    CREATE_PARTITIONS_RESPONSE,
    DELETE_RECORDS_REQUEST,
    DELETE_RECORDS_RESPONSE,
    DESCRIBE_LOG_DIRS_REQUEST,
    DESCRIBE_LOG_DIRS_RESPONSE,
)

# ---------------------------------------------------------------- partitions and records


@answers(37, CREATE_PARTITIONS_REQUEST, CREATE_PARTITIONS_RESPONSE)
async def create_partitions(call: Call) -> Values:
    """Raise the number of partitions of each topic, on the brokers that are named for the new ones, or on the cluster's choice."""
    return {"results": [await call.change(_add_partitions, call, one) for one in call.values["topics"]]}


def _add_partitions(call: Call, topic: Values) -> Values:
    name, count, given = topic["name"], topic["count"], topic["assignments"]
    answer: Values = {"name": name, "error_code": Code.NONE}
    assignments = None if given is None else tuple(tuple(one["broker_ids"]) for one in given)
    try:
        check = CheckPartitions(name, count, assignments)
        call.session.authorize(check)
        present = call.session.partition_count(name)
        if count <= present:
            raise InvalidPartitions(name, count, f"it has {present}, and can have more alone")
        if call.values["validate_only"]:
            call.session.submit(check)
        else:
            call.session.alter_topic(name, partitions=count, assignments=assignments)
    except LogdbError as error:
        return {**answer, "error_code": code_of(error), "error_message": str(error)}
    return answer


@answers(21, DELETE_RECORDS_REQUEST, DELETE_RECORDS_RESPONSE)
async def delete_records(call: Call) -> Values:
    """Delete the records of each partition before an offset, -1: all."""
    wanted: dict[str, dict[int, Values]] = {}  # each once: the last offset counts, as in Kafka
    for topic in call.values["topics"]:
        wanted.setdefault(topic["name"], {}).update({one["partition_index"]: one for one in topic["partitions"]})
    return {
        "topics": await call.call(
            lambda: [
                {"name": topic, "partitions": [_delete_before(call, topic, one) for one in call.each(asked.values())]}
                for topic, asked in wanted.items()
            ]
        )
    }


def _delete_before(call: Call, topic: str, asked: Values) -> Values:
    """Offsets that are deleted already are a success, as in Kafka: a client may send a request twice."""
    partition, offset = asked["partition_index"], asked["offset"]
    try:
        start_offset = call.session.delete_records(topic, partition, offset)
    except LogdbError as error:
        if not (isinstance(error, OffsetOutOfRange) and 0 <= offset < error.start_offset):
            return {"partition_index": partition, "low_watermark": -1, "error_code": code_of(error)}
        start_offset = error.start_offset
    return {"partition_index": partition, "low_watermark": start_offset, "error_code": Code.NONE}


# ---------------------------------------------------------------- directories

_NOT_SAID = 1 << 63  # what ``IO`` has for a number of bytes that the system does not say


@answers(35, DESCRIBE_LOG_DIRS_REQUEST, DESCRIBE_LOG_DIRS_RESPONSE)
async def describe_log_dirs(call: Call) -> Values:
    """The size of each partition, in the one directory that there is."""
    asked = call.values["topics"]
    wanted = None if asked is None else by_topic(TopicPartition(topic["topic"], one) for topic in asked for one in topic["partitions"])
    try:
        sizes = await call.call(call.session.submit, PartitionSizes(None if wanted is None else tuple(wanted)))
    except LogdbError as error:
        return {"error_code": code_of(error)}
    found = by_topic(one for one in sizes if wanted is None or one.partition in wanted[one.topic])
    topics = [
        {
            "name": name,
            "partitions": [
                {"partition_index": one, "partition_size": sizes[TopicPartition(name, one)], "offset_lag": 0, "is_future_key": False}
                for one in partitions
            ],
        }
        for name, partitions in found.items()
    ]
    result: Values = {"error_code": Code.NONE, "log_dir": call.door.access.directory, "topics": topics}
    return {"error_code": Code.NONE, "results": [result | await call.call(_room, call)]}


def _room(call: Call) -> Values:
    """The size of the file system, and what is free of it; -1: the system does not say."""
    io, path = call.session.io, call.door.access.directory
    room = {"total_bytes": io.file_system_bytes(path), "usable_bytes": io.free_bytes(path)}
    return {name: size_bytes if size_bytes < _NOT_SAID else -1 for name, size_bytes in room.items()}


@answers(34, ALTER_REPLICA_LOG_DIRS_REQUEST, ALTER_REPLICA_LOG_DIRS_RESPONSE)
async def alter_replica_log_dirs(call: Call) -> Values:
    """Move replicas of this broker to another directory.  It has one: a replica is there already, or the directory is unknown."""
    return {"results": await call.call(_in_directories, call)}


def _in_directories(call: Call) -> list[Values]:
    wanted: dict[tuple[str, str], dict[int, None]] = {}  # partitions by directory and topic, each once
    for one in call.values["dirs"]:
        for topic in one["topics"]:
            wanted.setdefault((one["path"], topic["name"]), {}).update(dict.fromkeys(topic["partitions"]))
    return [{"topic_name": topic, "partitions": _in_directory(call, path, topic, found)} for (path, topic), found in wanted.items()]


def _in_directory(call: Call, path: str, topic: str, partitions: Iterable[int]) -> list[Values]:
    call.session.go_on()
    placed: Sequence[PartitionState] = ()
    code = Code.LOG_DIR_NOT_FOUND
    try:
        call.session.need_any([("Alter", "Cluster", CLUSTER)])
        if path == call.door.access.directory:
            placed, code = call.door.access.placement(call.session.describe_topic(topic)), Code.UNKNOWN_TOPIC_OR_PARTITION
    except LogdbError as error:
        code = code_of(error)
    here = call.door.access.metadata.node_id
    codes = {one: Code.NONE if here in state.replicas else Code.NOT_LEADER_OR_FOLLOWER for one, state in enumerate(placed)}
    return [{"partition_index": one, "error_code": codes.get(one, code)} for one in partitions]
