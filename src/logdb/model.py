"""Values that all layers share: topic partitions, metadata, topic configs with their ranges and defaults."""

import contextlib
import datetime
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from logdb.errors import InvalidConfig, InvalidTopic

Buffer: TypeAlias = bytes | bytearray | memoryview
Durability: TypeAlias = Literal["os", "interval", "fsync"]
ConfigValue: TypeAlias = str | int | float | bool

DURABILITY_LEVELS: tuple[Durability, ...] = ("os", "interval", "fsync")
COMPRESSION_TYPES = ("none", "gzip", "snappy", "lz4", "zstd")  # position = the codec's number in a batch's attributes
UNCOMPRESSED = "uncompressed"  # Kafka's name of a topic's compression type "none"
OFFSET_MAX = 2**63 - 1
SEGMENT_SIZE_BYTES_MAX = 2**31 - 1
PARTITION_COUNT_MAX = 100_000
BY_DEFAULT = -1  # of partitions, or of replicas: what the server has for a default; as in Kafka's messages
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


class Signal(Protocol):
    """Called when a log has grown, by the thread that appends, so it must be quick; ``threading.Event`` is one."""

    def set(self) -> None: ...


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Partition = TypeVar("Partition", bound=tuple[str, int])
"""A partition as an application may name it: a key of a mapping, because its type tells it from a topic's name."""


def partition_of(given: object) -> TopicPartition:
    """The partition that an application named.

    Raises:
        TypeError: It is not a pair of a topic's name and a number.
    """
    match given:
        case (str(topic), int(partition)):
            return TopicPartition(topic, partition)
    raise TypeError(f"a partition is a pair (topic, number), such as TopicPartition('trades', 0), not {given!r}")


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is stored."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by their topics, both in the order given; a topic may come again."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


class ProducerIdAndEpoch(NamedTuple):
    """An idempotent producer; a larger epoch fences all smaller ones.  Source: KIP-98."""

    producer_id: int
    producer_epoch: int


class OpenTransaction(NamedTuple):
    """A transaction that is open on a partition: the last stable offset is at most ``first_offset``.

    ``started_ms``: when its first batch was appended, in ms since 1970; after a restart, an upper bound.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    started_ms: int


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted on a partition: its batches in [first_offset, last_offset] are invisible at ``read_committed``.

    ``last_offset``: of the marker.  ``last_stable_offset``: the log's when the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int = -1


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, the leader epoch of the record before it (-1: unknown), a note.

    A Kafka client may commit a negative offset to reset a group, as kafkajs does: the group then has no position there.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def positions_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets that are positions: those that are not negative."""
    return {partition: at for partition, at in committed.items() if at.offset >= 0}


class KnownLog(NamedTuple):
    """What a reader knows of the log that its position lies in.

    ``topic_id``: "" is not known.  ``leader_epoch``: of the record before the position; -1: not known.
    """

    topic_id: str = ""
    leader_epoch: int = -1


NO_TOPIC_IDS: Mapping[str, str] = {}
"""Of no topic the id is known."""
NOTHING_KNOWN: Mapping[TopicPartition, KnownLog] = {}
"""Of all partitions."""


def check_topic_name(name: object) -> str:
    """Return ``name`` if Kafka allows it as a topic's name.

    Raises:
        InvalidTopic: with the reason.

    Source: Kafka's ``Topic.validate``.
    """
    if not isinstance(name, str) or not name:
        raise InvalidTopic(str(name), "it is empty" if name == "" else f"it is not a string, but {type(name).__name__}")
    if name in (".", ".."):
        raise InvalidTopic(name, "it names a directory")
    if len(name) > 249:
        raise InvalidTopic(name, f"it has {len(name)} characters")
    if bad := re.search(r"[^a-zA-Z0-9._-]", name):
        raise InvalidTopic(name, f"it contains {bad.group()!r}")
    return name


def colliding(name: str, known: Iterable[str]) -> str | None:
    """A topic of another name that is the same with ``_`` in place of each ``.``; Kafka creates no topic beside such a one."""
    alike = name.replace(".", "_")
    return next((other for other in known if other != name and other.replace(".", "_") == alike), None)


def check_topic_id(topic_id: object) -> str:
    """Return ``topic_id`` if it is valid: it becomes part of directory names.

    Raises:
        ValueError: It is invalid.
    """
    if not isinstance(topic_id, str) or re.fullmatch(r"[0-9A-Za-z_-]{1,64}", topic_id) is None:
        raise ValueError(f"topic id {topic_id!r}: must be 1 to 64 of a-z A-Z 0-9 _ -")
    return topic_id


# ---------------------------------------------------------------- numbers with units

_SPANS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN_WORDS = re.compile(r"(milli|sec|min|hour|day|week)[a-z]*$")
_SIZES_BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}  # fmt: skip


def parse_span_ms(text: str) -> int:
    """Milliseconds of a time span with a unit: 500ms, 1.5s, 5m, 12h, 7d, 2w.

    Raises:
        ValueError: It is not a time span.
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?) ?([a-z]+)", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in _SPANS_MS:
        raise ValueError("a number and ms, s, m, h, d or w")
    return round(float(found[1]) * _SPANS_MS[found[2]])


def parse_size_bytes(text: str) -> int:
    """Bytes of a size with a unit: 800B, 64kB (1,000 bytes each), 64KiB (1,024).

    Raises:
        ValueError: It is not a size; 64M is ambiguous.
    """
    found = re.fullmatch(r"(\d{1,15}) ?([a-z]+)", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in _SIZES_BYTES:
        raise ValueError("a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")
    return int(found[1]) * _SIZES_BYTES[found[2]]


def _with_unit(name: str, value: object) -> str:
    """A config's value as it is written with its unit, for an error's hint; empty if it has no unit."""
    parse = {"ms": parse_span_ms, "bytes": parse_size_bytes}.get(name.rpartition(".")[2])
    if parse is None or not isinstance(value, str):
        return ""
    meant = _SPAN_WORDS.sub(lambda found: found[1][0] if found[1] != "milli" else "ms", value.strip().lower())  # 7 days means 7d
    for text in (value, f"{value}iB", meant.replace(" ", "")):  # 1G means 1GiB
        try:
            return f": {text} is {parse(text)}"
        except ValueError:
            pass
    return ""


# ---------------------------------------------------------------- times

Duration: TypeAlias = int | datetime.timedelta
"""Milliseconds, or a ``timedelta``."""
Timestamp: TypeAlias = int | datetime.datetime
"""Milliseconds since 1970, or a ``datetime`` with a time zone."""


def plain_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a call; a ``timedelta`` becomes milliseconds."""
    return {name: duration_ms(value) if isinstance(value, datetime.timedelta) else value for name, value in given.items()}


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)


@overload
def duration_ms(given: Duration) -> int: ...
@overload
def duration_ms(given: Duration | None) -> int | None: ...
def duration_ms(given: Duration | None) -> int | None:
    """The milliseconds of a duration, rounded up; None stays None."""
    if not isinstance(given, datetime.timedelta):
        return given
    whole, rest = divmod(given, _MS)
    return whole + bool(rest)


@overload
def timestamp_ms_of(given: Timestamp) -> int: ...
@overload
def timestamp_ms_of(given: Timestamp | None) -> int | None: ...
def timestamp_ms_of(given: Timestamp | None) -> int | None:
    """The milliseconds since 1970 of a point in time, rounded down; None stays None.

    Raises:
        ValueError: The ``datetime`` has no time zone.
    """
    if not isinstance(given, datetime.datetime):
        return given
    if given.tzinfo is None:
        raise ValueError(f"{given!r} has no time zone: use {given!r}.astimezone() for local time, or give tzinfo=datetime.UTC")
    return (given - _EPOCH) // _MS


# ---------------------------------------------------------------- topic configs


def _whole(least: int, most: int) -> tuple[Callable[[object], int], str]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        number = int(value)
        if not least <= number <= most:
            raise ValueError
        return number

    top = {2**63 - 1: "2^63-1", 2**31 - 1: "2^31-1"}.get(most, str(most))
    return parse, f"a whole number in [{least}, {top}]"


def _fraction() -> tuple[Callable[[object], float], str]:
    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        number = float(value)
        if not 0 <= number <= 1:
            raise ValueError
        return number

    return parse, "a number in [0, 1]"


def _flag() -> tuple[Callable[[object], bool], str]:
    def parse(value: object) -> bool:
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False}[str(value).lower()]

    return parse, "true or false"


def _one_of(*names: str) -> tuple[Callable[[object], str], str]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return parse, "one of " + ", ".join(name or "''" for name in names)


def _codec() -> tuple[Callable[[object], str], str]:
    parse, allowed = _one_of("none", UNCOMPRESSED, *COMPRESSION_TYPES[1:], "producer")

    def parse_codec(value: object) -> str:
        codec = parse(value)
        return "none" if codec == UNCOMPRESSED else codec

    return parse_codec, allowed


def _topic_id() -> tuple[Callable[[object], str], str]:
    def parse(value: object) -> str:
        return check_topic_id(value) if value != "" else ""

    return parse, "the id of a topic, or ''"


def _policies() -> tuple[Callable[[object], str], str]:
    def parse(value: object) -> str:
        parts = [part.strip() for part in str(value).split(",")] if value != "" else []
        if not set(parts) <= {"delete", "compact"} or len(set(parts)) != len(parts):
            raise ValueError
        return ",".join(sorted(parts))

    return parse, "delete, compact, both with a comma, or empty, which keeps all records"


def _avro_record() -> tuple[Callable[[object], str], str]:
    def parse(value: object) -> str:
        if value == "":
            return ""
        if not isinstance(value, str) or len(value) > _SCHEMA_CHARS_MAX:
            raise ValueError
        schema = _from_json(value)
        if not isinstance(schema, dict) or schema.get("type") != "record" or not schema.get("fields"):
            raise ValueError
        return value

    return parse, f"an Avro record with fields, as JSON of at most {_SCHEMA_CHARS_MAX} characters, or empty"


def _earlier_schemas() -> tuple[Callable[[object], str], str]:
    def parse(value: object) -> str:
        if value == "":
            return ""
        if not isinstance(value, str) or len(value) > _ESCAPED_CHARS_MAX * _HISTORY_CHARS_MAX:
            raise ValueError
        history = _to_json([_earlier_schema(**one) for one in _from_json(value)])
        if len(history) > _HISTORY_CHARS_MAX:
            raise ValueError
        return history

    return parse, (
        'a JSON list of {"schema": Avro record, "until": {partition: offset}}, the oldest first, '
        f"of at most {_HISTORY_CHARS_MAX} characters, or empty"
    )


def _from_json(text: str) -> Any:
    """What a text of JSON has; raises ValueError if it is none, or too deep."""
    import json  # few topics have a schema

    try:
        return json.loads(text)  # JSONDecodeError is a ValueError
    except RecursionError:
        raise ValueError from None


def _to_json(value: object) -> str:
    """The shortest JSON of a value.  It has as many characters as what is kept, which half a surrogate pair is not: that is escaped."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise ValueError from None
    return text.encode(errors="backslashreplace").decode()


def _earlier_schema(schema: object, until: object) -> dict[str, object]:
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(until, dict):
        raise ValueError
    ends = sorted((int(partition), offset) for partition, offset in until.items())
    if not all(partition >= 0 and type(offset) is int and 0 <= offset <= _LONG for partition, offset in ends):
        raise ValueError
    return {"schema": schema, "until": {str(partition): offset for partition, offset in ends}}


_SCHEMA_CHARS_MAX = 64 << 10
_HISTORY_CHARS_MAX = 100_000
_ESCAPED_CHARS_MAX = 6  # of one character of JSON
_LONG, _INT = 2**63 - 1, 2**31 - 1


class _Key(NamedTuple):
    default: ConfigValue
    parse: Callable[[object], ConfigValue]
    allowed: str
    meaning: str


def _key(default: ConfigValue, kind: tuple[Callable[[object], ConfigValue], str], meaning: str) -> _Key:
    return _Key(default, kind[0], kind[1], meaning)


IN_SYNC_MIN = "min.insync.replicas"
MIRROR_OF = "logdb.mirror.of"
TABLE_MODE, TABLE_SCHEMA = "logdb.iceberg.mode", "logdb.iceberg.schema"
TABLE_HISTORY = "logdb.iceberg.schema.history"
RAW_TABLE = "key_value"
"""The mode of a table whose columns are those of the record, and whose files are the Parquet sidecars."""

DELETING_CONFIGS = ("retention.ms", "retention.bytes", "cleanup.policy")
"""Configs of topics that decide which records are deleted."""

# Kafka's keys and defaults, except compression.type, durability, flush.ms and retention.ms (an embedded store keeps records
# forever), and segments may be smaller than Kafka allows.
TOPIC_CONFIGS: Mapping[str, _Key] = {
    "cleanup.policy": _key("delete", _policies(), "what becomes of old records"),
    "compression.type": _key("none", _codec(), "codec of batches that arrive uncompressed"),
    "delete.retention.ms": _key(86_400_000, _whole(0, _LONG), "how long compaction keeps a tombstone"),
    "durability": _key("", _one_of("", *DURABILITY_LEVELS), "level of the topic; empty: the database's"),
    "file.delete.delay.ms": _key(60_000, _whole(0, _LONG), "stored, without effect: readers hold what they read"),
    "flush.messages": _key(_LONG, _whole(1, _LONG), "stored, without effect: see durability"),
    "flush.ms": _key(1_000, _whole(1, _LONG), "longest that a written record stays unsynced at level interval"),
    "index.interval.bytes": _key(4_096, _whole(0, _INT), "log bytes between two entries of the offset index"),
    "local.retention.bytes": _key(-2, _whole(-2, _LONG), "stored, without effect"),
    "local.retention.ms": _key(-2, _whole(-2, _LONG), "stored, without effect"),
    MIRROR_OF: _key("", _topic_id(), "id of the topic that logdb mirror copies into this one, which takes no other records; or ''"),
    TABLE_MODE: _key("disabled", _one_of("disabled", RAW_TABLE, "json", "avro"), "the topic is an Iceberg table, with these columns"),
    TABLE_SCHEMA: _key("", _avro_record(), "Avro schema of the values, as JSON, for modes json and avro"),
    TABLE_HISTORY: _key("", _earlier_schemas(), "earlier schemas of the values, each with the offset of each partition at which it ends"),
    "logdb.parquet": _key(False, _flag(), "make a Parquet file of each sealed segment, in the background"),
    "max.compaction.lag.ms": _key(_LONG, _whole(1, _LONG), "longest that a record may stay uncompacted"),
    "max.message.bytes": _key(1_048_588, _whole(128, _INT), "largest record batch accepted"),
    "message.timestamp.after.max.ms": _key(3_600_000, _whole(0, _LONG), "how far ahead of the clock a record's time may be"),
    "message.timestamp.before.max.ms": _key(_LONG, _whole(0, _LONG), "how far behind the clock a record's time may be"),
    "message.timestamp.type": _key("CreateTime", _one_of("CreateTime", "LogAppendTime"), "whose clock stamps records"),
    "min.cleanable.dirty.ratio": _key(0.5, _fraction(), "share of uncompacted bytes that makes compaction worth it"),
    "min.compaction.lag.ms": _key(0, _whole(0, _LONG), "how long a record stays uncompacted at least"),
    IN_SYNC_MIN: _key(1, _whole(1, _INT), "stored, without effect on a single node"),
    "preallocate": _key(False, _flag(), "stored, without effect: level fsync preallocates"),
    "retention.bytes": _key(-1, _whole(-1, _LONG), "size over which the oldest segments go; -1: no limit"),
    "retention.ms": _key(-1, _whole(-1, _LONG), "age over which the oldest segments go; -1: no limit"),
    "segment.bytes": _key(1 << 30, _whole(1_024, _INT), "size at which a segment is sealed"),
    "segment.index.bytes": _key(10 << 20, _whole(12, _INT), "largest offset index of a segment"),
    "segment.jitter.ms": _key(0, _whole(0, _LONG), "stored, without effect"),
    "segment.ms": _key(604_800_000, _whole(1, _LONG), "age at which a segment is sealed"),
    "unclean.leader.election.enable": _key(False, _flag(), "stored, without effect on a single node"),
}


def in_sync_count_min(config: Mapping[str, ConfigValue]) -> int:
    """How many replicas in sync an acknowledgement by all needs, by the configs of a topic that were set."""
    return int(config.get(IN_SYNC_MIN, TOPIC_CONFIGS[IN_SYNC_MIN].default))


_FORMER_CONFIGS: Mapping[str, tuple[str, ...]] = {
    "message.timestamp.difference.max.ms": ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
}
"""Keys that Kafka had before 4.0 and that clients still send, and those that they set now (KIP-937)."""

LIST_CONFIGS = ("cleanup.policy",)
"""Topic configs whose value is a list, written with commas."""


REASSIGNMENT_RATES = ("follower.replication.throttled.rate", "leader.replication.throttled.rate")
"""Kafka's names of the one rate of reassignments, in bytes a second, among the configs of a cluster's nodes."""


def parse_rate(name: str, value: object) -> int:
    """A number of bytes a second; raises InvalidConfig."""
    parse, allowed = _whole(1, _LONG)
    try:
        return parse(value)
    except ValueError:
        raise InvalidConfig(name, value, allowed) from None


class ListChange(NamedTuple):
    """A change of a config that is a list: these names are added, or removed."""

    names: tuple[str, ...]
    removed: bool = False

    def of(self, name: str, value: ConfigValue) -> str:
        """The value after the change.

        Raises:
            InvalidConfig: The config is no list.
        """
        if name not in LIST_CONFIGS:
            raise InvalidConfig(name, ",".join(self.names), "it is no list to append to or to subtract from")
        parts = [part for part in str(value).split(",") if part]
        if self.removed:
            return ",".join(part for part in parts if part not in self.names)
        return ",".join([*parts, *(part for part in self.names if part not in parts)])


class SchemaEndsNeeded(Exception):
    """A change of a topic's schema needs to know where the partitions end; ``former``: see ``SchemaEnds``."""

    def __init__(self, former: tuple[str, str]) -> None:
        self.former = former


class SchemaEnds(NamedTuple):
    """A change of ``logdb.iceberg.schema.history`` beside one of the schema.

    Attributes:
        given: The history that the caller has given, as its only item.
        former: The schema and the history that the topic had before the partitions were asked; None: they were not.
        ends: The former schema holds up to these offsets, by partition.
    """

    given: tuple[Any, ...] = ()
    former: tuple[str, str] | None = None
    ends: Mapping[int, int] = {}

    def of(self, known: Mapping[str, ConfigValue], schema: ConfigValue, partition_count: int) -> str:
        """The history of a topic that has the ``known`` configs and so many partitions, once it has this schema.

        Raises:
            SchemaEndsNeeded: The schema changes, and ``ends`` are not those of all partitions, or were asked before an earlier change.
        """
        former, text = str(known.get(TABLE_SCHEMA, "")), str(known.get(TABLE_HISTORY, ""))
        if former in {"", schema} or known.get(TABLE_MODE) == "json":  # JSON names its fields: the newest schema reads all of it
            return text
        if self.former != (former, text) or len(self.ends) != partition_count:
            raise SchemaEndsNeeded((former, text))
        history = _from_json(text or "[]")
        until = {str(partition): offset for partition, offset in sorted(self.ends.items()) if offset}
        if until == (history[-1]["until"] if history else {}):  # no record has it
            return text
        text = _to_json([*history, {"schema": _from_json(former), "until": until}])
        if len(text) > _HISTORY_CHARS_MAX:
            reason = (
                f"the earlier schemas have {len(text)} characters, at most {_HISTORY_CHARS_MAX} are kept: shorten or delete {TABLE_HISTORY}"
            )
            raise InvalidConfig(TABLE_SCHEMA, str(schema)[:200], reason)
        return text


SERVED_TOPIC_DEFAULTS: Mapping[str, ConfigValue] = {"retention.ms": 604_800_000}
"""Configs of a topic that a server's client creates without naming them: Kafka's seven days.  Clients of this library
send the request to use the server's own defaults instead (``Database.create_topic``)."""


def in_kafkas_words(name: str, value: object) -> object:
    """The value of a topic's config as Kafka calls it."""
    return UNCOMPRESSED if (name, value) == ("compression.type", "none") else value


def unknown_config(name: str, value: object) -> InvalidConfig:
    """The error of a config that topics do not have; it names the one that is meant, or those that are like it."""
    meant = re.sub(r"^log\.", "", re.sub("[_ -]+", ".", str(name).strip().lower()))
    if meant not in TOPIC_CONFIGS:
        import difflib  # for the error alone

        close = difflib.get_close_matches(meant, TOPIC_CONFIGS, n=1, cutoff=0.8)
        meant = close[0] if close else ""
    if meant:
        return InvalidConfig(name, value, f"unknown key; did you mean {meant}?")
    near = ", ".join(known for known in TOPIC_CONFIGS if known.split(".")[0] == str(name).split(".")[0])
    return InvalidConfig(name, value, "unknown key; known keys: " + (near or ", ".join(TOPIC_CONFIGS)))


def plain_config(name: str, value: object) -> object:
    """The value of a topic's config with its unit worked out: ``1d`` of ``retention.ms``, or a ``timedelta`` of a day, is ``86400000``."""
    parse = {"ms": parse_span_ms, "bytes": parse_size_bytes}.get(name.rpartition(".")[2]) if name in TOPIC_CONFIGS else None
    if parse is not None and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return str(parse(value))
    if isinstance(value, datetime.timedelta):
        return duration_ms(value) if parse is parse_span_ms else str(value)  # a text that no other config takes
    return value


def plain_configs(given: Mapping[str, object] | None) -> dict[str, object] | None:
    """Topic configs with their units worked out; None stays None."""
    return None if given is None else {name: plain_config(name, value) for name, value in given.items()}


def check_config(given: Mapping[str, object]) -> dict[str, ConfigValue]:
    """Parse topic configs; strings have the format of Kafka's tools.

    Returns:
        The given keys with parsed values; defaults are not filled in.

    Raises:
        InvalidConfig: names the key and what is allowed.
    """
    parsed: dict[str, ConfigValue] = {}
    former = {now: value for name, value in given.items() for now in _FORMER_CONFIGS.get(name, ())}
    for name, value in {**former, **{name: value for name, value in given.items() if name not in _FORMER_CONFIGS}}.items():
        if name not in TOPIC_CONFIGS:
            raise unknown_config(name, value)
        key = TOPIC_CONFIGS[name]
        try:
            parsed[name] = key.parse(plain_config(name, value))
        except (ValueError, KeyError, TypeError):
            raise InvalidConfig(name, value, f"must be {key.allowed}{_with_unit(name, value)}") from None
    return parsed


class LogConfig(NamedTuple):
    """The configs of one partition's log, parsed, with defaults filled in."""

    durability: Durability = "interval"
    compression_type: str = "none"
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4_096
    max_message_bytes: int = 1_048_588
    flush_ms: int = 1_000
    compacted: bool = False
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _LONG
    log_append_time: bool = False
    timestamp_before_max_ms: int = _LONG
    timestamp_after_max_ms: int = 3_600_000
    retention_ms: int = -1
    mirror_of: str = ""

    @staticmethod
    def of(config: Mapping[str, ConfigValue], durability: Durability) -> "LogConfig":
        """From parsed topic configs and the level of the store, which a topic's own level overrides."""
        full = {name: config.get(name, key.default) for name, key in TOPIC_CONFIGS.items()}
        level = str(full["durability"] or durability)
        codec = str(full["compression.type"])
        return LogConfig(
            durability=next(known for known in DURABILITY_LEVELS if known == level),
            compression_type="none" if codec == "producer" else codec,
            segment_bytes=int(full["segment.bytes"]),
            segment_ms=int(full["segment.ms"]),
            segment_index_bytes=int(full["segment.index.bytes"]),
            index_interval_bytes=int(full["index.interval.bytes"]),
            max_message_bytes=int(full["max.message.bytes"]),
            flush_ms=int(full["flush.ms"]),
            compacted="compact" in str(full["cleanup.policy"]),
            delete_retention_ms=int(full["delete.retention.ms"]),
            min_cleanable_dirty_ratio=float(full["min.cleanable.dirty.ratio"]),
            min_compaction_lag_ms=int(full["min.compaction.lag.ms"]),
            max_compaction_lag_ms=int(full["max.compaction.lag.ms"]),
            log_append_time=full["message.timestamp.type"] == "LogAppendTime",
            timestamp_before_max_ms=int(full["message.timestamp.before.max.ms"]),
            timestamp_after_max_ms=int(full["message.timestamp.after.max.ms"]),
            retention_ms=int(full["retention.ms"]) if "delete" in str(full["cleanup.policy"]) else -1,
            mirror_of=str(full[MIRROR_OF]),
        )


def accepted_timestamps(topic: str, now_ms: int, before_max_ms: int, after_max_ms: int) -> str:
    """Which timestamps of records a topic accepts at a time, in words."""
    latest = min(now_ms + after_max_ms, OFFSET_MAX)
    accepted = f"timestamps up to {latest}" if before_max_ms == OFFSET_MAX else f"[{now_ms - before_max_ms}, {latest}]"
    return f"{topic} accepts {accepted} (message.timestamp.before.max.ms and after.max.ms)"


class PartitionInfo(NamedTuple):
    """One partition, as in ``describe_topic`` and ``logdb topics --describe``; it is compacted below ``clean_offset``.

    ``leader``, ``replicas``, ``in_sync``: nodes by their ids; a directory that is no cluster's is node 0; no leader: None.

    ``size_bytes``: of the record batches.  ``disk_bytes``: what the disk holds of the partition, with indexes and reserved space; None:
    the server is of an earlier version.
    """

    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int
    segment_count: int
    leader_epoch: int
    read_only_reason: str | None = None
    clean_offset: int = 0
    leader: int | None = 0
    replicas: tuple[int, ...] = (0,)
    in_sync: tuple[int, ...] = (0,)
    disk_bytes: int | None = None


class TopicInfo(NamedTuple):
    """One topic; ``config`` has only the keys that were set, ``partitions`` is empty except from ``describe_topic``."""

    name: str
    topic_id: str
    partition_count: int
    config: Mapping[str, ConfigValue]
    internal: bool = False
    partitions: tuple[PartitionInfo, ...] = ()

    @property
    def uuid(self) -> bytes:
        """Kafka's 16 bytes of the id: those that its 22 characters spell, or else a hash."""
        import base64
        import hashlib

        with contextlib.suppress(ValueError):
            spelled = base64.urlsafe_b64decode(self.topic_id + "==")
            if len(spelled) == 16 and len(self.topic_id) == 22:
                return spelled
        return hashlib.sha256(self.topic_id.encode()).digest()[:16]

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self._asdict().items() if name != "partitions" or value]
        return f"TopicInfo({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """For notebooks: the topic, and its partitions if it is of ``describe_topic``."""
        from logdb import notebook  # few programs need it

        count = f"{self.partition_count} partition{'s' if self.partition_count != 1 else ''}"
        title = f"topic {self.name} (id {self.topic_id}), {count} {notebook.configs(self.config)}"
        rows = [
            (one.partition, one.start_offset, one.end_offset, one.size_bytes, one.leader, ", ".join(map(str, one.in_sync)))
            for one in self.partitions
        ]
        return notebook.html_table(title, ("partition", "start offset", "end offset", "bytes", "leader", "in sync"), rows)


class ExpiredRecords(NamedTuple):
    """What retention deletes of one partition: the offsets [start_offset, new_start_offset), in whole segments.

    ``size_bytes``: of these segments.
    """

    topic: str
    partition: int
    start_offset: int
    new_start_offset: int
    segment_count: int
    size_bytes: int


EventKind: TypeAlias = Literal["topic_created", "topic_altered", "partitions_added", "topic_deleted"]


class TopicEvent(NamedTuple):
    """One change of a topic; ``topic`` is its state afterwards (for a deletion, before), without its partitions."""

    kind: EventKind
    topic: TopicInfo


ClusterEventKind: TypeAlias = Literal["leader_changed", "in_sync_changed", "broker_joined", "broker_left"]


class ClusterEvent(NamedTuple):
    """One change of a cluster's nodes.

    ``broker_joined``, ``broker_left``: ``node`` serves, or is fenced.  ``leader_changed``, ``in_sync_changed``: ``node`` leads
    ``partition`` now, None: no node does; ``in_sync`` are the replicas in sync.
    """

    kind: ClusterEventKind
    node: int | None
    partition: TopicPartition | None = None
    leader_epoch: int = -1
    in_sync: tuple[int, ...] = ()


class Changes(NamedTuple):
    """The changes of topics, and of a cluster's nodes, since a position, and the next position.

    ``complete`` is false if the position is too old: then there are no events, and the caller has to list all topics again.
    """

    events: tuple[TopicEvent | ClusterEvent, ...]
    position: str
    complete: bool = True
