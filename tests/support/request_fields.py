"""Requests of Kafka's clients with one field wrong at a time, and what of an answer is compared between two brokers.

A case is a field and a value.  Its request is the base of its API with that field changed; a field is named by its path, through the
first element of each array.  What a request changes on the broker is its own: a partition, a group, a topic or a transactional id by
the number of the case.
"""

import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from logdb.codec.batch import header_fields
from logdb_kafka_api.errors import Code
from support.batches import Rec, encode_batch
from support.kafka_wire import Wire, produce
from support.waiting import until

NOW = int(time.time() * 1000)
CLOSED, NO_ANSWER, TOO_LATE = "the connection is closed", "no answer", "no answer in time"
_TIMEOUT_S = 5.0
_NOT_YET = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
_RECORDS = encode_batch([Rec(b"k", b"v")], base_timestamp=NOW)
_LONG = "x" * 250
_T, _OWN, _FORMER, _LAST = (name.encode().ljust(16, b".") for name in ("id of t", "id of own", "a former id", "id of last"))
_OTHER_IDS = (bytes(16), bytes(15) + b"1", _FORMER)
"""Ids that no topic has; the last one had the topic that ``again`` was before it was created again."""
_BYTES = {
    _RECORDS: "a batch",
    _RECORDS * 2: "two batches",
    _RECORDS[:-1]: "a batch that is cut off",
    bytes(16): "no id",
    bytes(15) + b"1": "an unknown id",
    _FORMER: "the id of a topic that was created again",
}
_READERS = "readers"
_CURSORS = (("t", 0), ("t", 9), ("t", -1), ("a", 0), ("z", 0))
_OF_A_TOPIC = frozenset(("CreatePartitions", "IncrementalAlterConfigs", "DeleteTopics"))
"""APIs whose cases have a topic each."""
_MOST_32, _MOST_64 = 2**31 - 1, 2**63 - 1
_NAMES = ("", "none", "!")
Values = dict[str, Any]
Base = Callable[[int], Values]


class Case(NamedTuple):
    """``number``: among all cases of all APIs.  ``row``: the API, and "by id" of requests that name topics by ids."""

    number: int
    row: str
    version: int
    field: str
    value: Any
    values: Values

    @property
    def api(self) -> str:
        return self.row.split()[0]

    @property
    def name(self) -> str:
        """As a table has it."""
        return f"{self.field} = {_text(self.value)}" if self.field else "nothing"


def _text(value: Any) -> str:
    """A value as a table shows it."""
    if isinstance(value, str) and len(value) > 99:
        return f"{len(value)} times x"
    if isinstance(value, bytes):
        return _BYTES.get(value, repr(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(one)}" for name, one in value.items()) + "}"
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else repr(value)


# ---------------------------------------------------------------- the requests


def _in_topic(topic: str, partition: Values, topics: str = "topics", name: str = "name", partitions: str = "partitions") -> Values:
    return {topics: [{name: topic, partitions: [partition]}]}


def _by_id(topic_id: bytes, partition: Values, topics: str = "topics", partitions: str = "partitions") -> Values:
    return {topics: [{"topic_id": topic_id, partitions: [partition]}]}


def _fetch_by_id(number: int) -> Values:
    values = _fetch(number)
    return values | _by_id(_T, values["topics"][0]["partitions"][0])


def _commit_by_id(number: int) -> Values:
    values = _commit(number)
    return values | _by_id(_T, values["topics"][0]["partitions"][0])


def _fetch(_: int) -> Values:
    at = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1}
    asked = _in_topic("t", {**at, "partition_max_bytes": 1 << 20}, name="topic")
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0, "session_epoch": -1, **asked}


def _join(number: int) -> Values:
    member = {"member_id": "", "group_instance_id": "me", "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    return {"group_id": f"j{number}", **member, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"m"}]}


def _create(number: int) -> Values:
    topic = {"name": f"c{number}", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": 20_000, "validate_only": False}


def _commit(number: int) -> Values:
    offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "m"}
    return {"group_id": f"o{number}", "generation_id_or_member_epoch": -1, "member_id": "", **_in_topic("t", offset)}


def _alter(number: int) -> Values:
    config = {"name": "retention.ms", "config_operation": 0, "value": "86400000"}
    return {"resources": [{"resource_type": 2, "resource_name": f"topic-{number}", "configs": [config]}], "validate_only": False}


def _configs(*configs: tuple[str, str | None]) -> list[Values]:
    return [{"name": name, "value": value} for name, value in configs]


BASES: Mapping[str, tuple[int, Base]] = MappingProxyType(
    {
        "Metadata": (13, lambda _: {"topics": [{"topic_id": bytes(16), "name": "t"}], "allow_auto_topic_creation": False}),
        "Produce": (
            9,
            lambda number: {
                "acks": -1,
                "timeout_ms": 20_000,
                **_in_topic("own", {"index": number, "records": _RECORDS}, "topic_data", partitions="partition_data"),
            },
        ),
        "Fetch": (12, _fetch),
        "ListOffsets": (
            10,
            lambda _: {"replica_id": -1, **_in_topic("t", {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1})},
        ),
        "DescribeTopicPartitions": (0, lambda _: {"topics": [{"name": "t"}], "response_partition_limit": 2000, "cursor": None}),
        "DescribeQuorum": (2, lambda _: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}),
        "ListConfigResources": (1, lambda _: {"resource_types": [4]}),
        "UpdateFeatures": (
            2,
            lambda _: {
                "feature_updates": [{"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}],
                "validate_only": True,
            },
        ),
        "CreatePartitions": (
            3,
            lambda number: {
                "topics": [{"name": f"topic-{number}", "count": 2, "assignments": None}],
                "timeout_ms": 20_000,
                "validate_only": False,
            },
        ),
        "IncrementalAlterConfigs": (1, _alter),
        "CreateTopics": (7, _create),
        "DescribeConfigs": (
            4,
            lambda _: {"resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms", "segment.bytes"]}]},
        ),
        "OffsetCommit": (8, _commit),
        "OffsetFetch": (
            8,
            lambda _: {"groups": [{"group_id": _READERS, "topics": [{"name": "t", "partition_indexes": [0]}]}], "require_stable": False},
        ),
        "JoinGroup": (9, _join),
        "FindCoordinator": (4, lambda number: {"key_type": 0, "coordinator_keys": [f"f{number}"]}),
        "InitProducerId": (4, lambda number: {"transactional_id": f"i{number}", "transaction_timeout_ms": 60_000}),
        "DeleteRecords": (2, lambda number: {"timeout_ms": 20_000, **_in_topic("own", {"partition_index": number, "offset": 1})}),
        "Metadata by id": (13, lambda _: {"topics": [{"topic_id": _T, "name": None}], "allow_auto_topic_creation": False}),
        "Produce by id": (
            13,
            lambda number: {
                "acks": -1,
                "timeout_ms": 20_000,
                **_by_id(_OWN, {"index": number, "records": _RECORDS}, "topic_data", "partition_data"),
            },
        ),
        "Fetch by id": (17, _fetch_by_id),
        "OffsetCommit by id": (10, _commit_by_id),
        "OffsetFetch by id": (
            10,
            lambda _: {"groups": [{"group_id": _READERS, "topics": [{"topic_id": _T, "partition_indexes": [0]}]}], "require_stable": False},
        ),
        "DeleteTopics by id": (6, lambda _: {"topics": [{"name": None, "topic_id": _LAST}], "timeout_ms": 20_000}),
        # last: a Kafka deletes its internal topics, too
        "DeleteTopics": (6, lambda number: {"topics": [{"name": f"topic-{number}", "topic_id": bytes(16)}], "timeout_ms": 20_000}),
    }
)
"""By API, those that name topics by ids beside the others: the version, and a request that nothing is wrong with."""

WRONG: Mapping[str, Mapping[str, Sequence[Any]]] = MappingProxyType(
    {
        "Metadata": {
            "topics": (None, []),
            "topics.topic_id": (bytes(15) + b"1",),
            "topics.name": (*_NAMES, None, _LONG, "__consumer_offsets"),
            "allow_auto_topic_creation": (True,),
            "include_topic_authorized_operations": (True,),
        },
        "Produce": {
            "transactional_id": ("", "tx"),
            "acks": (0, 1, 2, -2),
            "timeout_ms": (0, -1),
            "topic_data": ([], [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": _RECORDS}]}]),
            "topic_data.name": (*_NAMES, "t"),
            "topic_data.partition_data": ([],),
            "topic_data.partition_data.index": (-1, 9999),
            "topic_data.partition_data.records": (None, b"", _RECORDS * 2, _RECORDS[:-1]),
        },
        "Fetch": {
            "cluster_id": ("other",),
            "replica_id": (-2, 5),
            "max_wait_ms": (-1,),
            "min_bytes": (-1, 0, _MOST_32),
            "max_bytes": (-1, 0, 1),
            "isolation_level": (1, 2, -1),
            "session_id": (5, -1),
            "session_epoch": (0, 1, -2),
            "topics": ([],),
            "topics.topic": _NAMES,
            "topics.partitions": ([],),
            "topics.partitions.partition": (-1, 9999),
            "topics.partitions.current_leader_epoch": (0, 9, -2),
            "topics.partitions.fetch_offset": (-1, 3, 4, _MOST_64),
            "topics.partitions.last_fetched_epoch": (0, 9, -2),
            "topics.partitions.log_start_offset": (-2, 9),
            "topics.partitions.partition_max_bytes": (-1, 0, 1),
            "forgotten_topics_data": ([{"topic": "none", "partitions": [0]}],),
            "rack_id": ("r",),
        },
        "Metadata by id": {"topics.topic_id": _OTHER_IDS, "topics.name": ("", "t", "none")},
        "Produce by id": {
            "acks": (0, 1),
            "topic_data.topic_id": _OTHER_IDS,
            "topic_data.partition_data": ([],),
            "topic_data.partition_data.index": (-1, 9999),
        },
        "Fetch by id": {
            "replica_state": ({"replica_id": 5, "replica_epoch": -1},),
            "topics.topic_id": _OTHER_IDS,
            "topics.partitions": ([],),
            "topics.partitions.partition": (-1, 9999),
            "topics.partitions.fetch_offset": (4,),
            "forgotten_topics_data": ([{"topic_id": bytes(15) + b"1", "partitions": [0]}],),
        },
        "OffsetCommit by id": {
            "topics.topic_id": _OTHER_IDS,
            "topics.partitions.partition_index": (-1, 9999),
            "group_id": ("",),
        },
        "OffsetFetch by id": {
            "groups.topics": (None, []),
            "groups.topics.topic_id": _OTHER_IDS,
            "groups.topics.partition_indexes": ([9999],),
        },
        "DeleteTopics by id": {"topics.topic_id": _OTHER_IDS},
        "ListOffsets": {
            "replica_id": (-2, 5),
            "isolation_level": (1, 2, -1),
            "topics": ([],),
            "topics.name": _NAMES,
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (-1, 9999),
            "topics.partitions.current_leader_epoch": (0, 9, -2),
            "topics.partitions.timestamp": (0, -2, -3, -4, -5, -6, -7, _MOST_64),
        },
        "DescribeTopicPartitions": {
            "topics": ([],),
            "topics.name": _NAMES,
            "response_partition_limit": (0, -1, 1),
            "cursor": tuple({"topic_name": one, "partition_index": at} for one, at in _CURSORS),
        },
        "DescribeQuorum": {
            "topics": ([],),
            "topics.topic_name": ("", "t"),
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (1, -1),
        },
        "ListConfigResources": {"resource_types": ([0], [1], [8], [16], [32], [64], [4, 4], [4, 99])},
        "UpdateFeatures": {
            "feature_updates": ([],),
            "feature_updates.feature": ("", "nope", "metadata.version"),
            "feature_updates.max_version_level": (0, 1, 3, -1),
            "feature_updates.upgrade_type": (0, 2, 3, 9),
            "timeout_ms": (0, -1),
        },
        "CreatePartitions": {
            "topics": ([],),
            "topics.name": (*_NAMES, "__consumer_offsets"),
            "topics.count": (0, 1, -1, _MOST_32),
            "topics.assignments": ([], [{"broker_ids": []}], [{"broker_ids": [9]}], [{"broker_ids": [1, 1]}]),
            "timeout_ms": (0, -1),
            "validate_only": (True,),
        },
        "IncrementalAlterConfigs": {
            "resources": ([],),
            "resources.resource_type": (0, 1, 4, 8, 99),
            "resources.resource_name": _NAMES,
            "resources.configs": ([],),
            "resources.configs.name": ("", "nope", "cleanup.policy"),
            "resources.configs.config_operation": (1, 2, 3, 9, -1),
            "resources.configs.value": ("", "x", "-2", None),
            "validate_only": (True,),
        },
        "DeleteTopics": {
            "topics": ([],),
            "topics.name": (*_NAMES, None, "__consumer_offsets"),
            "topics.topic_id": (bytes(15) + b"1",),
            "timeout_ms": (0, -1),
        },
        "CreateTopics": {
            "topics": ([],),
            "topics.name": ("", "!", ".", _LONG, "t", "own", "__consumer_offsets"),
            "topics.num_partitions": (0, -1, -2),
            "topics.replication_factor": (0, 2, -1, -2),
            "topics.assignments": ([{"partition_index": 0, "broker_ids": [9]}],),
            "topics.configs": (
                _configs(("nope", "1")),
                _configs(("retention.ms", "x")),
                _configs(("retention.ms", "-2")),
                _configs(("retention.ms", None)),
                _configs(("retention.ms", "1"), ("retention.ms", "2")),
                _configs(("compression.type", "uncompressed")),
                _configs(("cleanup.policy", "nope")),
            ),
            "timeout_ms": (0, -1),
            "validate_only": (True,),
        },
        "DescribeConfigs": {
            "resources": ([],),
            "resources.resource_type": (0, 1, 3, 4, 8, 16, 32, 99),
            "resources.resource_name": (*_NAMES, "__consumer_offsets"),
            "resources.configuration_keys": ([], ["nope"]),
            "include_synonyms": (True,),
            "include_documentation": (True,),
        },
        "OffsetCommit": {
            "group_id": ("",),
            "generation_id_or_member_epoch": (0, 5, -2),
            "member_id": ("nobody",),
            "group_instance_id": ("", "me"),
            "topics": ([],),
            "topics.name": _NAMES,
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (-1, 9999),
            "topics.partitions.committed_offset": (-1, -2, _MOST_64),
            "topics.partitions.committed_leader_epoch": (9, -2),
            "topics.partitions.committed_metadata": (None, "x" * 4096, "x" * 4097),
        },
        "OffsetFetch": {
            "groups": ([],),
            "groups.group_id": ("", "nobody"),
            "groups.topics": (None, []),
            "groups.topics.name": _NAMES,
            "groups.topics.partition_indexes": ([], [-1], [9999], [0, 0]),
            "require_stable": (True,),
        },
        "JoinGroup": {
            "group_id": ("",),
            "session_timeout_ms": (0, -1, 5999, 1_800_001),
            "rebalance_timeout_ms": (0, -1, -2),
            "member_id": ("nobody",),
            "group_instance_id": (None, "", "!", _LONG),
            "protocol_type": ("", "connect"),
            "protocols": ([],),
            "protocols.name": ("",),
            "protocols.metadata": (b"",),
            "reason": ("r", _LONG * 2),
        },
        "FindCoordinator": {"key_type": (1, 2, 3, -1), "coordinator_keys": ([], [""], ["f", "f"])},
        "InitProducerId": {
            "transactional_id": ("", None),
            "transaction_timeout_ms": (0, -1, 900_001, _MOST_32),
            "producer_id": (5, -2),
            "producer_epoch": (5, -2),
        },
        "DeleteRecords": {
            "topics": ([], [{"name": "__consumer_offsets", "partitions": [{"partition_index": 0, "offset": 0}]}]),
            "topics.name": (*_NAMES, "t"),
            "topics.partitions": ([],),
            "topics.partitions.partition_index": (-1, 9999),
            "topics.partitions.offset": (0, -1, -2, 3, 4, _MOST_64),
            "timeout_ms": (0, -1),
        },
    }
)
"""By row of ``BASES`` and field."""


def _changed(values: Values, path: str, value: Any) -> Values:
    values = copy.deepcopy(values)
    *outer, last = path.split(".")
    at = values
    for name in outer:
        at = at[name][0]
    at[last] = value
    return values


def _cases() -> Iterator[Case]:
    number = 0
    for row, (version, base) in BASES.items():
        yield Case(number, row, version, "", None, base(number))
        for field, wrong in WRONG[row].items():
            for value in wrong:
                number += 1
                yield Case(number, row, version, field, value, _changed(base(number), field, value))
        number += 1


CASES = tuple(_cases())

# ---------------------------------------------------------------- the answers

_SHOWN: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "Metadata": ("name",),
        "Produce": ("base_offset",),
        "Fetch": ("session_id", "high_watermark", "last_stable_offset", "log_start_offset", "records"),
        "ListOffsets": ("timestamp", "offset", "leader_epoch"),
        "CreateTopics": ("num_partitions", "replication_factor"),
        "DescribeConfigs": (),
        "OffsetCommit": (),
        "OffsetFetch": ("name", "committed_offset", "metadata"),
        "DescribeTopicPartitions": ("name", "topic_name"),
        "DescribeQuorum": (),
        "ListConfigResources": ("resource_type",),
        "UpdateFeatures": (),
        "CreatePartitions": (),
        "IncrementalAlterConfigs": (),
        "DeleteTopics": ("name",),
        "JoinGroup": ("generation_id", "protocol_type", "protocol_name", "skip_assignment", "group_instance_id"),
        "FindCoordinator": ("key", "host"),
        "InitProducerId": ("producer_epoch",),
        "DeleteRecords": ("low_watermark",),
    }
)
"""What is compared of an answer beside its error codes: what both brokers have in common, where they agree."""


_OF_TOPICS = ("Metadata", "DescribeTopicPartitions")


def _shown(api: str, answer: Any) -> Iterator[str]:
    if isinstance(answer, list | tuple):
        for one in answer:
            yield from _shown(api, one)
    elif isinstance(answer, dict):
        for name, value in answer.items():
            if name == "error_code":
                yield _code(value)
            elif name in _SHOWN[api]:
                yield f"{name} {_value(name, value)}"
            elif name == "topics" and api in _OF_TOPICS:
                shown = [
                    topic
                    for topic in value
                    if topic["name"] not in {"own", "again", "last"} and not (topic["name"] or "").startswith("topic-")
                ]
                yield from _shown(api, sorted(shown, key=lambda topic: topic["name"] or ""))
            elif name == "partitions" and api in _OF_TOPICS:
                yield "" if answer["is_internal"] else f"{len(value)} partitions"  # how many an internal topic has is the broker's
            elif (api, name) == ("DescribeConfigs", "configs"):
                yield " ".join(sorted(one["name"] for one in value)) if len(value) < 5 else f"{len(value)} configs"
            else:
                yield from _shown(api, value)


def _code(number: int) -> str:
    return Code(number).name if number in set(Code) else str(number)


def _value(name: str, value: Any) -> str:
    if name == "records":
        return str(sum(found.record_count for found in header_fields(value or b"")))
    if name == "session_id" and value > 0:
        return "of its own"
    if name == "timestamp" and value > 0:
        return f"NOW{value - NOW:+}"
    return _text(value)


class Peer:
    """One of the brokers that are compared, with topics ``t``, of three records, and ``own``, of a partition for each case."""

    def __init__(self, address: str) -> None:
        self._address = address
        admin = AdminClient({"bootstrap.servers": address})
        each = [NewTopic(f"topic-{case.number}", 1, 1) for case in CASES if case.api in _OF_A_TOPIC]
        others = [NewTopic(name, 1, 1) for name in ("t", "again", "last")]
        for made in admin.create_topics([*others, NewTopic("own", len(CASES), 1), *each]).values():
            made.result(60)
        with Wire(address) as wire:
            former = self._known_id(wire, "again")
            admin.delete_topics(["again"])["again"].result(60)
            until(lambda: wire.topic_id("again") == bytes(16))
            admin.create_topics([NewTopic("again", 1, 1)])["again"].result(60)
            assert self._known_id(wire, "again") != former
            self._ids = {_FORMER: former} | {one: self._known_id(wire, name) for one, name in ((_T, "t"), (_OWN, "own"), (_LAST, "last"))}
            for partition in (case.number for case in CASES if case.api == "DeleteRecords"):
                self._fill(wire, "own", partition)
            self._fill(wire, "t", 0)
            for kind, key in enumerate((_READERS, "first")):  # creates the internal topics
                until(lambda kind=kind, key=key: wire.ask("FindCoordinator", 3, key=key, key_type=kind)["error_code"] == Code.NONE)
            commit = _commit(0) | {"group_id": _READERS}
            until(lambda: wire.ask("OffsetCommit", 8, **commit)["topics"][0]["partitions"][0]["error_code"] == Code.NONE)
            until(lambda: wire.ask("InitProducerId", 4, transactional_id="first", transaction_timeout_ms=1000)["error_code"] == Code.NONE)

    @staticmethod
    def _known_id(wire: Wire, topic: str) -> bytes:
        """The id of a topic that was created, once the broker knows it."""
        until(lambda: wire.topic_id(topic) != bytes(16))
        return wire.topic_id(topic)

    def _with_ids(self, values: Any) -> Any:
        """The values of a case with the ids that this broker has given."""
        if isinstance(values, dict):
            return {name: self._with_ids(value) for name, value in values.items()}
        if isinstance(values, list):
            return list(map(self._with_ids, values))
        return self._ids.get(values, values) if isinstance(values, bytes) else values

    @staticmethod
    def _fill(wire: Wire, topic: str, partition: int) -> None:
        for at in range(3):
            batch = encode_batch([Rec(b"k", b"v")], base_timestamp=NOW + at)
            until(lambda batch=batch: produce(wire, batch, topic=topic, partition=partition)["error_code"] == Code.NONE)

    def answers(self) -> dict[int, str]:
        """The answer to each case, in words, by its number."""
        return {case.number: self._answer(case) for case in CASES}

    def _answer(self, case: Case) -> str:
        found: list[str] = []

        def is_final() -> bool:
            found[:] = (self._asked(case),)
            return not any(code.name in found[0] for code in _NOT_YET)

        until(is_final)
        return found[0]

    def _asked(self, case: Case) -> str:
        values = self._with_ids(case.values)
        with Wire(self._address, _TIMEOUT_S) as wire:
            try:
                if values.get("acks") == 0:
                    wire.send(case.api, case.version, **values)
                    return NO_ANSWER if wire.ask("ApiVersions", 0) else CLOSED
                answer = wire.ask(case.api, case.version, **values)
                shown = " · ".join(filter(None, _shown(case.api, answer))) or "empty"
                return re.sub(rf"\b(f|topic-){case.number}\b", r"\1N", shown)
            except (EOFError, ConnectionResetError):
                return CLOSED
            except TimeoutError:
                return TOO_LATE
