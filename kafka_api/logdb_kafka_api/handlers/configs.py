"""Configs of topics, and of the broker: those are its options at the start, but for the rate of reassignments in a cluster."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from logdb.codec.schema import STRING_BYTES_MAX
from logdb.errors import InvalidConfig, LogdbError, PolicyViolation
from logdb.model import (
    BY_DEFAULT,
    LIST_CONFIGS,
    REASSIGNMENT_RATES,
    TOPIC_CONFIGS,
    ConfigValue,
    ListChange,
    check_topic_name,
    in_kafkas_words,
)
from logdb.requests.topic_changes import AlterConfigs
from logdb.requests.topics import DescribeConfigs
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values, each_once
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.messages.configs import (
    ALTER_CONFIGS_REQUEST,
    ALTER_CONFIGS_RESPONSE,
    DESCRIBE_CONFIGS_REQUEST,
    DESCRIBE_CONFIGS_RESPONSE,
    INCREMENTAL_ALTER_CONFIGS_REQUEST,
    INCREMENTAL_ALTER_CONFIGS_RESPONSE,
    LIST_CONFIG_RESOURCES_REQUEST,
    LIST_CONFIG_RESOURCES_RESPONSE,
)

_TOPIC, _BROKER = 2, 4  # types of resources
_OF_TOPIC, _OF_BROKER, _BY_DEFAULT = 1, 4, 5  # where a value comes from: DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT
_SET_OF_BROKER, _SET_OF_ALL = 2, 3  # DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER
_ANY_RATE = 2**63 - 1  # Kafka's default of a rate: no limit
_LOGGER, _CLIENT_METRICS, _GROUP = 8, 16, 32  # other types that Kafka lists
_THROTTLED = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
_THROTTLED_FORM = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?")
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LIST = 7
_TYPES: Mapping[type, int] = {bool: 1, str: 2, int: 5, float: 6}
Changes = Mapping[str, str | ListChange | None]


class _Refused(Exception):
    """A resource that is refused."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Config(NamedTuple):
    """One config, with the values that would count if the one before were not set."""

    name: str
    values: tuple[tuple[int, ConfigValue], ...]  # (where from, value)
    meaning: str
    read_only: bool = False

    def described(self) -> Values:
        """As DescribeConfigs has it, and in fewer fields CreateTopics; a value that is not told is sensitive, as Kafka's clients expect."""
        source, value = self.values[0]
        told = _told(self.name, value)
        return {
            "name": self.name,
            "value": told,
            "read_only": self.read_only,
            "config_source": source,
            "is_default": source == _BY_DEFAULT,
            "is_sensitive": told is None,
            "config_type": _LIST if self.name in LIST_CONFIGS else _TYPES[type(value)],
        }

    def synonyms(self) -> list[Values]:
        return [{"name": self.name, "value": _told(self.name, value), "source": source} for source, value in self.values]


def _text(name: str, value: ConfigValue) -> str:
    shown = in_kafkas_words(name, value)
    return str(shown).lower() if isinstance(shown, bool) else str(shown)


def _told(name: str, value: ConfigValue) -> str | None:
    """The text of a value; None: it is longer than a string that every client reads."""
    text = _text(name, value)
    return text if len(text.encode()) <= STRING_BYTES_MAX else None


def of_topic(found: Mapping[str, ConfigValue]) -> list[_Config]:
    """All configs of a topic; ``found``: those that were set."""
    configs = []
    for name, key in TOPIC_CONFIGS.items():
        default = (_BY_DEFAULT, key.default)
        configs.append(_Config(name, ((_OF_TOPIC, found[name]), default) if name in found else (default,), key.meaning))
    return configs


_MEANINGS = {
    "advertised.listeners": "the address that clients are told to connect to",
    "auto.create.topics.enable": "Metadata creates a topic that it names",
    "broker.id": "the number of the broker",
    "broker.rack": "where the broker is; consumers with this client.rack may read at it",
    "default.replication.factor": "of topics that are created without one",
    "log.cleaner.backoff.ms": "at least so long between two looks for logs to compact",
    "log.cleaner.dedupe.buffer.size": "memory of the map of keys",
    "log.cleaner.delete.retention.ms": "default of the topic config delete.retention.ms",
    "log.cleaner.enable": "compacted topics are compacted",
    "log.cleaner.io.buffer.load.factor": "how full the map of keys may become",
    "log.cleaner.io.buffer.size": "bytes of one read",
    "log.cleaner.io.max.bytes.per.second": "limit of compaction's reads and writes",
    "log.cleaner.max.compaction.lag.ms": "default of the topic config max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "default of the topic config min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "default of the topic config min.compaction.lag.ms",
    "log.cleaner.threads": "threads that compact in the background",
    "log.dirs": "the directory of the database",
    "num.partitions": "of topics that are created without a number",
}


def _of_broker(call: Call) -> list[_Config]:
    door = call.door
    of_door: Mapping[str, ConfigValue] = {
        "advertised.listeners": door.advertised_listener(call.client),
        "auto.create.topics.enable": door.auto_create_topics,
        "broker.rack": door.racks().get(door.access.metadata.node_id, ""),
        "num.partitions": door.access.metadata.default_partition_count if door.num_partitions == BY_DEFAULT else door.num_partitions,
    }
    found = {**call.session.describe_configs(None), **of_door}
    configs = [_Config(name, ((_OF_BROKER, found[name]),), meaning, read_only=True) for name, meaning in _MEANINGS.items()]
    return configs + (_rates(found, _SET_OF_BROKER) if call.door.access.is_replicated else [])


def _rates(found: Mapping[str, ConfigValue], source: int) -> list[_Config]:
    """The rate of reassignments, which all brokers have in common, by both of its names."""
    meaning, default = "bytes a second that a broker fetches for replicas that are being added", (_BY_DEFAULT, _ANY_RATE)
    return [_Config(name, ((source, found[name]), default) if name in found else (default,), meaning) for name in REASSIGNMENT_RATES]


# ---------------------------------------------------------------- reading


@answers(32, DESCRIBE_CONFIGS_REQUEST, DESCRIBE_CONFIGS_RESPONSE)
async def describe_configs(call: Call) -> Values:
    return {
        "results": await call.call(
            lambda: [_described(call, one) for one in call.each(each_once(call.values["resources"], "resource_type", "resource_name"))]
        )
    }


@answers(74, LIST_CONFIG_RESOURCES_REQUEST, LIST_CONFIG_RESOURCES_RESPONSE)
async def list_config_resources(call: Call) -> Values:
    """The topics and the brokers: nothing else has configs here.  Version 0 asks for client metrics alone."""
    wanted = set(call.values["resource_types"]) if call.version else {_CLIENT_METRICS}
    known = {_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP}
    try:
        call.session.authorize(DescribeConfigs(None))
        topics = await call.call(call.session.topics, internal=True)
    except LogdbError as error:
        return {"error_code": code_of(error)}
    if not wanted <= known:
        return {"error_code": Code.UNSUPPORTED_VERSION}
    names = {_BROKER: [str(one.node_id) for one in call.door.access.metadata.brokers()], _TOPIC: [one.name for one in topics]}
    found = [(kind, name) for kind in names if kind in (wanted or known) for name in names[kind]]
    return {"error_code": Code.NONE, "config_resources": [{"resource_type": kind, "resource_name": name} for kind, name in found]}


def _described(call: Call, resource: Values) -> Values:
    wanted, values = resource["configuration_keys"], call.values

    def described(config: _Config) -> Values:
        return {
            **config.described(),
            "synonyms": config.synonyms() if values["include_synonyms"] else (),
            "documentation": config.meaning if values["include_documentation"] else None,
        }

    def found() -> Values:
        configs = _configs(call, resource["resource_type"], resource["resource_name"])
        return {"configs": [described(one) for one in configs if not wanted or one.name in wanted]}

    return _answered(resource, found)


def _configs(call: Call, resource_type: int, name: str) -> list[_Config]:
    if resource_type == _TOPIC:
        check_topic_name(name)
        return of_topic(call.session.describe_configs(name))
    if resource_type in (_CLIENT_METRICS, _GROUP):
        call.session.authorize(DescribeConfigs(None))
        return []
    _check_broker(call, resource_type, name)
    if name:
        return _of_broker(call)
    return [one for one in _rates(call.session.describe_configs(None), _SET_OF_ALL) if len(one.values) > 1]  # what was set of all brokers


def _check_broker(call: Call, resource_type: int, name: str) -> None:
    if resource_type != _BROKER:
        raise _Refused(Code.INVALID_REQUEST, f"resource type {resource_type}: must be {_TOPIC} (topic) or {_BROKER} (broker)")
    if name not in ("", str(call.door.access.metadata.node_id)):
        raise _Refused(Code.INVALID_REQUEST, f"broker {name}: this one is {call.door.access.metadata.node_id}")


def _answered(resource: Values, answer: Callable[[], Values]) -> Values:
    """The answer for one resource, or its error."""
    named: Values = {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}
    try:
        return {**named, "error_code": Code.NONE, "error_message": None, **answer()}
    except _Refused as error:
        return {**named, "error_code": error.code, "error_message": str(error)}
    except LogdbError as error:
        return {**named, "error_code": code_of(error), "error_message": str(error)}


# ---------------------------------------------------------------- changing


@answers(33, ALTER_CONFIGS_REQUEST, ALTER_CONFIGS_RESPONSE)
async def alter_configs(call: Call) -> Values:
    """Set these configs of a topic, or of the brokers, and reset all others."""
    return await _alter(call, lambda configs, _: {one["name"]: one["value"] for one in configs}, replace=True)


@answers(44, INCREMENTAL_ALTER_CONFIGS_REQUEST, INCREMENTAL_ALTER_CONFIGS_RESPONSE)
async def incremental_alter_configs(call: Call) -> Values:
    """Set, reset, or change the lists of some configs of a topic, or of the brokers."""
    return await _alter(call, _incremental)


async def _alter(call: Call, changes: Callable[[list[Values], Collection[str]], Changes], *, replace: bool = False) -> Values:
    return {"responses": [await call.change(_altered, call, one, changes, replace=replace) for one in call.values["resources"]]}


def _altered(call: Call, resource: Values, changes: Callable[[list[Values], Collection[str]], Changes], *, replace: bool) -> Values:
    def alter() -> Values:
        session, name = call.session, resource["resource_name"]
        if resource["resource_type"] == _TOPIC:
            if not name:
                raise _Refused(Code.INVALID_REQUEST, "the name of the topic is empty")
            check_topic_name(name)
            changed = _without_throttled(changes(resource["configs"], TOPIC_CONFIGS))
        else:
            session.authorize(AlterConfigs(None, {}))
            _check_broker(call, resource["resource_type"], name)
            name, changed = None, changes(resource["configs"], {*_MEANINGS, *REASSIGNMENT_RATES})
        try:
            session.alter_configs(name, changed, replace=replace, validate_only=call.values["validate_only"])
        except PolicyViolation as error:  # one of its options at the start; Kafka has that code for a topic's policies alone
            raise _Refused(Code.INVALID_REQUEST if name is None else code_of(error), str(error)) from None
        return {}

    return _answered(resource, alter)


def _without_throttled(changes: Changes) -> Changes:
    """Without the lists of replicas that are throttled: here those are all that a reassignment adds, and no others."""
    for name in _THROTTLED:
        value = changes.get(name)
        if value is not None and (isinstance(value, ListChange) or not _THROTTLED_FORM.fullmatch(value)):
            raise InvalidConfig(name, value, "must be * or PARTITION:BROKER,PARTITION:BROKER,…")
    return {name: value for name, value in changes.items() if name not in _THROTTLED}


def _incremental(configs: list[Values], known: Collection[str]) -> Changes:
    changes: dict[str, str | ListChange | None] = {}
    for one in configs:
        name, operation, value = one["name"], one["config_operation"], one["value"]
        if name in changes:
            raise _Refused(Code.INVALID_REQUEST, f"{name} is named twice")
        if operation in (_APPEND, _SUBTRACT):
            names = tuple(part.strip() for part in (value or "").split(","))
            changes[name] = ListChange(names, removed=operation == _SUBTRACT)
        elif operation == _DELETE:
            if name in known:  # of a config of Kafka's that is none here nothing was set
                changes[name] = None
        elif operation == _SET and value is not None:
            changes[name] = value
        else:
            raise _Refused(Code.INVALID_REQUEST, f"{name}: operation {operation} with the value {value!r}")
    return changes
