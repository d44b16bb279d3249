"""Requests of Kafka's clients with one field wrong at a time, and what of an answer is compared between two brokers.

A case is a field and a value.  Its request is the base of its API with that field changed; a field is named by its path, through the
first element of each array.  What a request changes on the broker is its own: a partition, a group, a topic or a transactional id by
the number of the case.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from logdb.codec.batch import header_fields
from logdb_kafka_api.errors import Code
from support import request_fields_groups as groups
from support import request_fields_topics as topics
from support.batches import Rec, encode_batch
from support.kafka_wire import Wire, produce
from support.request_fields_values import FORMER, LAST, MEMBER, NOW, OWN, PARTITION, PRODUCER, READERS, Bases, T, Values, Wrong, text
from support.waiting import until

BASES: Bases = MappingProxyType({**topics.BASES, **groups.BASES, **topics.DELETING})
WRONG: Wrong = MappingProxyType({**topics.WRONG, **groups.WRONG})
CLOSED, NO_ANSWER, TOO_LATE = "the connection is closed", "no answer", "no answer in time"
_TIMEOUT_S = 5.0
_NOT_YET = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
_OF_A_TOPIC = frozenset(("CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "DeleteTopics", "DescribeProducers"))
_OF_A_PARTITION = frozenset(("Produce", "DeleteRecords"))
"""APIs whose cases have a topic each, or a partition of the topic ``own``."""


class Case(NamedTuple):
    """``number``: among all cases of all APIs.  ``row``: the API, and what else it is about, as in ``Bases``."""

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
        return f"{self.field} = {text(self.value)}" if self.field else "nothing"


def _changed(values: Values, path: str, value: Any) -> Values:
    values = copy.deepcopy(values)
    *outer, last = path.split(".")
    at = values
    for name in outer:
        at = at[name][0] if isinstance(at[name], list) else at[name]
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
_PARTITIONS = {case.number: at for at, case in enumerate(case for case in CASES if case.api in _OF_A_PARTITION)}

# ---------------------------------------------------------------- the answers

_SHOWN: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "ApiVersions": (),
        "Metadata": ("name",),
        "Produce": ("base_offset",),
        "Fetch": ("session_id", "high_watermark", "last_stable_offset", "log_start_offset", "records"),
        "ListOffsets": ("timestamp", "offset", "leader_epoch"),
        "OffsetForLeaderEpoch": ("leader_epoch", "end_offset"),
        "CreateTopics": ("num_partitions", "replication_factor"),
        "DescribeConfigs": (),
        "DescribeTopicPartitions": ("name", "topic_name"),
        "DescribeCluster": ("endpoint_type", "cluster_authorized_operations"),
        "DescribeQuorum": (),
        "DescribeLogDirs": ("name", "offset_lag", "is_future_key", "total_bytes", "usable_bytes"),
        "ListConfigResources": ("resource_type",),
        "UpdateFeatures": (),
        "CreatePartitions": (),
        "AlterConfigs": (),
        "IncrementalAlterConfigs": (),
        "DeleteTopics": ("name",),
        "DeleteRecords": ("low_watermark",),
        "OffsetCommit": (),
        "OffsetFetch": ("name", "committed_offset", "metadata"),
        "OffsetDelete": (),
        "FindCoordinator": ("key", "host"),
        "JoinGroup": ("generation_id", "protocol_type", "protocol_name", "skip_assignment", "group_instance_id"),
        "SyncGroup": ("protocol_type", "protocol_name", "assignment"),
        "Heartbeat": (),
        "LeaveGroup": ("member_id", "group_instance_id"),
        "DescribeGroups": (
            "group_id",
            "group_state",
            "protocol_type",
            "protocol_data",
            "group_instance_id",
            "client_id",
            "client_host",
            "member_metadata",
            "member_assignment",
            "authorized_operations",
        ),
        "ListGroups": ("group_id", "protocol_type", "group_state", "group_type"),
        "DeleteGroups": ("group_id",),
        "InitProducerId": ("producer_epoch",),
        "AddPartitionsToTxn": ("partition_index",),
        "AddOffsetsToTxn": (),
        "TxnOffsetCommit": (),
        "EndTxn": ("producer_id", "producer_epoch"),
        "DescribeProducers": (
            "producer_id",
            "producer_epoch",
            "last_sequence",
            "coordinator_epoch",
            "current_txn_start_offset",
        ),
        "DescribeTransactions": (
            "transactional_id",
            "transaction_state",
            "transaction_timeout_ms",
            "producer_id",
            "producer_epoch",
            "topic",
            "partitions",
        ),
        "ListTransactions": ("unknown_state_filters", "transactional_id", "producer_id", "transaction_state"),
    }
)
"""What is compared of an answer beside its error codes: what both brokers have in common, where they agree."""
_OF_ALL: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("AddPartitionsToTxn", "results_by_partition"): "partition_index",
        ("Metadata", "topics"): "name",
        ("DescribeTopicPartitions", "topics"): "name",
        ("DescribeLogDirs", "topics"): "name",
        ("ListGroups", "groups"): "group_id",
        ("ListTransactions", "transaction_states"): "transactional_id",
    }
)
"""Arrays whose order is the broker's, and what it is sorted by here.  Of all that a broker has, what belongs to other cases is left out."""
_CODES = ("error_code", "partition_error_code")
_COUNTED = (
    ("Metadata", "partitions"),
    ("DescribeTopicPartitions", "partitions"),
    ("ApiVersions", "api_keys"),
    ("DescribeCluster", "brokers"),
)


def _is_shown(name: str | int | None, number: int) -> bool:
    """Whether something is the case's own, or all cases'."""
    return name == f"x{number}" or not re.fullmatch(r"own|again|last|topic-.*|[a-z]\d+|first", str(name))


def _shown(case: Case, answer: Any) -> Iterator[str]:
    if isinstance(answer, list | tuple):
        for one in answer:
            yield from _shown(case, one)
    elif isinstance(answer, dict):
        for name, value in answer.items():
            yield from _field(case, answer, name, value)


def _field(case: Case, answer: Values, name: str, value: Any) -> Iterator[str]:
    """One field of an answer."""
    at = (case.api, name)
    if name in _CODES:
        yield Code(value).name if value in set(Code) else str(value)
    elif name in _SHOWN[case.api]:
        yield f"{name} {_value(name, value)}"
    elif at in _OF_ALL:
        key = _OF_ALL[at]
        yield from _shown(case, sorted((one for one in value if _is_shown(one[key], case.number)), key=lambda one: str(one[key])))
    elif at == ("DescribeLogDirs", "partitions") and answer["name"].startswith("__"):
        yield ""
    elif at in _COUNTED:  # how many an internal topic has is the broker's
        yield "" if answer.get("is_internal") else f"some {name}" if name == "api_keys" and value else f"{len(value)} {name}"
    elif at == ("DescribeConfigs", "configs"):
        yield " ".join(sorted(one["name"] for one in value)) if len(value) < 5 else f"{len(value)} configs"
    else:
        yield from _shown(case, value)


def _value(name: str, value: Any) -> str:
    if name == "records":
        return str(sum(found.record_count for found in header_fields(value or b"")))
    if name == "session_id" and value > 0:
        return "of its own"
    if name in {"total_bytes", "usable_bytes"} and value > 0:
        return "known"
    if name == "timestamp" and value > 0:
        return f"NOW{value - NOW:+}"
    return text(value)


class Peer:
    """One of the brokers that are compared, with topics ``t``, of three records, and ``own``, of a partition for some cases."""

    def __init__(self, address: str) -> None:
        self._address = address
        admin = AdminClient({"bootstrap.servers": address})
        each = [NewTopic(f"topic-{case.number}", 1, 1) for case in CASES if case.api in _OF_A_TOPIC]
        others = [NewTopic(name, 1, 1) for name in ("t", "again", "last", "topic-marked")]
        for made in admin.create_topics([*others, NewTopic("own", len(_PARTITIONS), 1), *each]).values():
            made.result(60)
        with Wire(address) as wire:
            former = self._known_id(wire, "again")
            admin.delete_topics(["again"])["again"].result(60)
            until(lambda: wire.topic_id("again") == bytes(16))
            admin.create_topics([NewTopic("again", 1, 1)])["again"].result(60)
            assert self._known_id(wire, "again") != former
            self._ids = {FORMER: former} | {one: self._known_id(wire, name) for one, name in ((T, "t"), (OWN, "own"), (LAST, "last"))}
            for partition in (_PARTITIONS[case.number] for case in CASES if case.api == "DeleteRecords"):
                self._fill(wire, "own", partition)
            self._fill(wire, "t", 0)
            for kind, key in enumerate((READERS, "first")):  # creates the internal topics
                until(lambda kind=kind, key=key: wire.ask("FindCoordinator", 3, key=key, key_type=kind)["error_code"] == Code.NONE)
            groups.with_offset(wire, READERS)
            groups.live_group(wire)
            until(lambda: wire.ask("InitProducerId", 4, transactional_id="first", transaction_timeout_ms=1000)["error_code"] == Code.NONE)

    @staticmethod
    def _known_id(wire: Wire, topic: str) -> bytes:
        """The id of a topic that was created, once the broker knows it."""
        until(lambda: wire.topic_id(topic) != bytes(16))
        return wire.topic_id(topic)

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
        with Wire(self._address) as wire:
            prepare: Callable[[Wire, int], Values] = groups.PREPARED.get(case.row, lambda *_: {})
            known = {**self._ids, PARTITION: _PARTITIONS.get(case.number), **prepare(wire, case.number)}

        def is_final() -> bool:
            found[:] = (self._asked(case, known),)
            return not any(code.name in found[0] for code in _NOT_YET)

        until(is_final)
        return found[0]

    def _asked(self, case: Case, known: Mapping[Any, Any]) -> str:
        values = _put(case.values, known)
        with Wire(self._address, _TIMEOUT_S) as wire:
            try:
                if values.get("acks") == 0:
                    wire.send(case.api, case.version, **values)
                    return NO_ANSWER if wire.ask("ApiVersions", 0) else CLOSED
                answer = _put(wire.ask(case.api, case.version, **values), {known[one]: one for one in (MEMBER, PRODUCER) if one in known})
                shown = " · ".join(filter(None, _shown(case, answer))) or "empty"
                return re.sub(rf"\b([fgox]|topic-){case.number}\b", r"\1N", shown)
            except (EOFError, ConnectionResetError):
                return CLOSED
            except TimeoutError:
                return TOO_LATE


def _put(values: Any, known: Mapping[Any, Any]) -> Any:
    """Values with others in place of those that stand for them."""
    if isinstance(values, dict):
        return {name: _put(value, known) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_put(value, known) for value in values]
    return known.get(values, values) if isinstance(values, str | bytes | int) else values
