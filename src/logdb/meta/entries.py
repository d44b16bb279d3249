"""The catalogue's entries, and their encoding as keys and values.

    key                                         value
    f                                           {"format":1,"id":"<uuid of the database>"}
    t <topic>                                   TopicEntry
    l <topic> <partition, 10 digits>            LogEntry
    s <topic> <partition> <base, 20 digits>     SegmentEntry: sealed segments only
    i <id, 20 digits>                           Intent
    p                                           {"next":…}: producer ids from here on are free

Keys are ASCII.  The space sorts before every character that a topic name may have (Kafka's rules), so keys sort as names
do, and a prefix that ends in a space selects exactly one topic or partition; digits of fixed width sort as their numbers.  A
value is compact JSON, without the fields in the key, followed by the CRC-32C of key and JSON (4 bytes, big-endian):

    66                                                   key "f"
    7b 22 66 6f 72 6d 61 74 22 3a 31 7d  30 11 26 5f     {"format":1} and its CRC

The entry ``f`` has this encoding in every format, so that an older logdb can name the format in its error.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from logdb.codec import crc32c
from logdb.model import ConfigValue

FORMAT = 1
FORMAT_KEY = b"f"
PRODUCER_IDS_KEY = b"p"
TOPIC_PREFIX, LOG_PREFIX, SEGMENT_PREFIX, INTENT_PREFIX = b"t ", b"l ", b"s ", b"i "

_CRC_SIZE_BYTES = 4
_NAME_LENGTH_MAX = 249
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class TopicEntry(NamedTuple):
    """One topic; ``config`` holds only the keys that were set."""

    name: str
    topic_id: str
    partition_count: int
    config: dict[str, ConfigValue]


class LogEntry(NamedTuple):
    """One partition's log.

    ``start_offset``: log start offset.  ``generation``: increases whenever the set of segments changes, so that a reader notices.
    Recovery point: fdatasync has returned for everything up to ``recovery_offset``, at byte ``recovery_position`` of the segment
    with base offset ``recovery_segment``.  ``strict``: everything after it was appended at level ``fsync``.
    ``leader_epoch``: the latest, at the last checkpoint of the log.  ``producers_offset``: of the producer snapshot that belongs to
    the recovery point; -1: the log never had a batch of a producer.  ``clean_offset``: the log is compacted below it.
    ``delete_horizon_ms``: the earliest time at which a tombstone or marker that compaction kept may be deleted.
    ``segment_created_ms``: when the segment ``recovery_segment`` was created, milliseconds since 1970; ``segment_append_ms``: when
    it was last appended to below the recovery point; 0: unknown.
    """

    topic: str
    partition: int
    start_offset: int = 0
    generation: int = 0
    recovery_segment: int = 0
    recovery_offset: int = 0
    recovery_position: int = 0
    strict: bool = False
    read_only_reason: str | None = None
    leader_epoch: int = 0
    producers_offset: int = -1
    clean_offset: int = 0
    delete_horizon_ms: int | None = None
    segment_created_ms: int = 0
    segment_append_ms: int = 0


class Sidecar(NamedTuple):
    """The Parquet file with a segment's records as columns.

    ``crc`` is the CRC-32C of the file, ``footer_crc`` that of its last ``footer_size_bytes``.  ``committed_only``: records of
    aborted transactions may be missing.
    """

    size_bytes: int
    crc: int
    footer_size_bytes: int
    footer_crc: int
    committed_only: bool


class SegmentEntry(NamedTuple):
    """One sealed segment.

    ``size_bytes`` and ``crc`` (CRC-32C) are those of the whole ``.log`` file;
    ``next_offset`` is the base offset of the next segment; ``max_timestamp`` and
    ``append_ms`` (the time of the last append) are milliseconds since 1970.
    ``aborted_count`` and ``aborted_crc`` are those of its ``.txnindex``.
    ``sidecar``: None where it has none.
    """

    topic: str
    partition: int
    base_offset: int
    size_bytes: int
    crc: int
    next_offset: int
    max_timestamp: int
    append_ms: int
    aborted_count: int = 0
    aborted_crc: int = 0
    sidecar: Sidecar | None = None


class Intent(NamedTuple):
    """A committed note of several steps that opening replays.

    ``kind``: ``create``, ``delete``, ``grow``, ``swap`` or ``truncate``; ``body``: JSON of the store.
    """

    kind: str
    topic: str
    body: dict[str, Any]


# ---------------------------------------------------------------- keys


def can_be_topic(name: str) -> bool:
    """Whether a key can hold the name; no topic has another one."""
    return name.isascii() and len(name) <= _NAME_LENGTH_MAX


def topic_key(topic: str) -> bytes:
    return f"t {topic}".encode("ascii")


def log_key(topic: str, partition: int) -> bytes:
    return f"l {topic} {partition:010d}".encode("ascii")


def segment_key(topic: str, partition: int, base_offset: int) -> bytes:
    return f"s {topic} {partition:010d} {base_offset:020d}".encode("ascii")


def intent_key(intent_id: int) -> bytes:
    return f"i {intent_id:020d}".encode("ascii")


def logs_prefix(topic: str) -> bytes:
    return f"l {topic} ".encode("ascii")


def segments_prefix(topic: str, partition: int | None = None) -> bytes:
    """The common prefix of a topic's segment keys, or of one partition's."""
    return f"s {topic} ".encode("ascii") if partition is None else f"s {topic} {partition:010d} ".encode("ascii")


# ---------------------------------------------------------------- values


def encode_format(database_id: str) -> bytes:
    return _seal(FORMAT_KEY, {"format": FORMAT, "id": database_id})


def encode_topic(entry: TopicEntry) -> tuple[bytes, bytes]:
    """Key and value of an entry; so do the next three."""
    key = topic_key(entry.name)
    return key, _seal(key, {"id": entry.topic_id, "partitions": entry.partition_count, "config": dict(entry.config)})


def encode_log(entry: LogEntry) -> tuple[bytes, bytes]:
    key = log_key(entry.topic, entry.partition)
    return key, _seal(key, dict(zip(LogEntry._fields[2:], entry[2:], strict=True)))


def encode_segment(entry: SegmentEntry) -> tuple[bytes, bytes]:
    key = segment_key(entry.topic, entry.partition, entry.base_offset)
    fields: dict[str, Any] = dict(zip(SegmentEntry._fields[3:], entry[3:], strict=True))
    if entry.sidecar is None:
        del fields["sidecar"]  # so that an older logdb can read the entry
    else:
        fields["sidecar"] = entry.sidecar._asdict()
    return key, _seal(key, fields)


def encode_intent(intent_id: int, intent: Intent) -> tuple[bytes, bytes]:
    key = intent_key(intent_id)
    return key, _seal(key, intent._asdict())


def encode_producer_ids(next_producer_id: int) -> bytes:
    return _seal(PRODUCER_IDS_KEY, {"next": next_producer_id})


class DamagedEntry(ValueError):
    """A value contradicts its CRC or its form; the text says how."""


def decode_format(value: bytes) -> tuple[int, str]:
    """Format number and database id; raises DamagedEntry, as all that follow."""
    fields = _unseal(FORMAT_KEY, value)
    try:
        return int(fields["format"]), str(fields.get("id", ""))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedEntry(f"{fields!r} has no format number") from error


def decode_topic(key: bytes, value: bytes) -> TopicEntry:
    fields = _unseal(key, value)
    try:
        return TopicEntry(key[2:].decode("ascii"), fields["id"], fields["partitions"], fields["config"])
    except (KeyError, ValueError) as error:
        raise DamagedEntry(f"no topic entry: {error!r}") from error


def decode_log(key: bytes, value: bytes) -> LogEntry:
    fields = _unseal(key, value)
    try:
        _, topic, partition = key.decode("ascii").split(" ")
        return LogEntry(topic, int(partition), **fields)
    except (TypeError, ValueError) as error:
        raise DamagedEntry(f"no log entry: {error!r}") from error


def decode_segment(key: bytes, value: bytes) -> SegmentEntry:
    fields = _unseal(key, value)
    try:
        _, topic, partition, base_offset = key.decode("ascii").split(" ")
        sidecar = Sidecar(**fields.pop("sidecar")) if "sidecar" in fields else None
        return SegmentEntry(topic, int(partition), int(base_offset), **fields, sidecar=sidecar)
    except (TypeError, ValueError) as error:
        raise DamagedEntry(f"no segment entry: {error!r}") from error


def decode_intent(key: bytes, value: bytes) -> tuple[int, Intent]:
    fields = _unseal(key, value)
    try:
        return int(key[2:]), Intent(**fields)
    except (TypeError, ValueError) as error:
        raise DamagedEntry(f"no intent: {error!r}") from error


def decode_producer_ids(value: bytes) -> int:
    fields = _unseal(PRODUCER_IDS_KEY, value)
    try:
        return int(fields["next"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DamagedEntry(f"{fields!r} is no producer id") from error


def _seal(key: bytes, fields: Mapping[str, Any]) -> bytes:
    payload = _to_json(fields).encode("ascii")
    return payload + crc32c(payload, crc32c(key)).to_bytes(_CRC_SIZE_BYTES, "big")


def _unseal(key: bytes, value: bytes) -> dict[str, Any]:
    payload, stored = value[:-_CRC_SIZE_BYTES], int.from_bytes(value[-_CRC_SIZE_BYTES:], "big")
    computed = crc32c(payload, crc32c(key))
    if len(value) <= _CRC_SIZE_BYTES or stored != computed:
        raise DamagedEntry(f"stored CRC {stored:08x}, computed {computed:08x} over {len(value)} bytes")
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise DamagedEntry(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise DamagedEntry(f"not a JSON object: {fields!r}")
    return fields
