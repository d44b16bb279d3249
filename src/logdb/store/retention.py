"""Old records go: by age, by size, and by ``delete_records``.

Knows topics' configs, and when a log's start moves.  Does not know how the move becomes durable: the store does it.

    retention       whole sealed segments, oldest first, never past the last stable offset
    delete_records  the log start offset moves to the very offset; segments wholly below it go,
                    the active one too, which is rolled over for that

A compacted topic that does not also say ``delete`` keeps its records from both.
"""

from collections.abc import Mapping
from typing import Protocol

from logdb.errors import LogdbError, OffsetOutOfRange, PolicyViolation, UnknownPartition, UnknownTopic
from logdb.io import IO
from logdb.log.log import Log
from logdb.log.retention import expired
from logdb.meta import Catalogue, LogEntry, SegmentEntry, TopicEntry
from logdb.model import OFFSET_MAX, TOPIC_CONFIGS, ConfigValue
from logdb.store.housekeeping import Housekeeping

CHECK_INTERVAL_MS = 300_000  # Kafka's log.retention.check.interval.ms


class Host(Protocol):
    """What retention asks of the store."""

    def log(self, topic: str, partition: int) -> Log: ...

    def clock_ms(self) -> int:
        """The time of day that records are stamped with."""

    def begin_at(self, log: Log, start_offset: int) -> None:
        """Move a log's start, durably, and remove the sealed segments wholly below it."""


class Retention:
    """The retention of one store; ``enforce`` is a task of its housekeeping."""

    def __init__(self, io: IO, host: Host, catalogue: Catalogue, housekeeping: Housekeeping, check_interval_ms: int) -> None:
        self._io, self._host, self._catalogue, self._housekeeping = io, host, catalogue, housekeeping
        housekeeping.add("retention", self.enforce, interval_ms=check_interval_ms, needed=is_limited)

    def enforce(self) -> None:
        """One round over all logs whose topic has a limit.

        Raises what the first log failed with, after the others were seen to.
        """
        failure: LogdbError | None = None
        for topic in self._catalogue.topics().values():
            for partition in range(topic.partition_count) if is_limited(topic.config) else ():
                if self._housekeeping.stopping:
                    return
                try:
                    self._enforce(topic, partition)
                except (UnknownTopic, UnknownPartition):  # deleted meanwhile
                    break
                except LogdbError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _enforce(self, topic: TopicEntry, partition: int) -> None:
        entry, sealed = self._catalogue.view(topic.name, partition)
        if entry.read_only_reason is not None or not _to_go(topic, entry, sealed, self._host.clock_ms(), OFFSET_MAX):
            return
        log = self._host.log(topic.name, partition)  # only now: a log that keeps all it has need not be opened
        gone = _to_go(topic, entry, sealed, self._host.clock_ms(), log.last_stable_offset)
        if gone and log.read_only_reason is None:
            begun_ms = self._io.monotonic_ms()
            self._host.begin_at(log, gone)
            self._housekeeping.pause(self._io.monotonic_ms() - begun_ms)  # the disk is the others' at least half of the time

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See ``Database.delete_records``."""
        entry = self._catalogue.topic(topic)
        if entry is not None and not deletes(entry.config):
            policy = str(entry.config["cleanup.policy"])
            raise PolicyViolation(f"records of {topic!r} cannot be deleted: its cleanup.policy is {policy!r}, without 'delete'")
        log = self._host.log(topic, partition)
        start, end = log.start_offset, log.end_offset
        offset = end if before_offset == -1 else before_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(topic, partition, offset, start, end)
        log.flush()  # a power cut must not leave the log ending before it starts
        log.roll(offset)
        self._host.begin_at(log, offset)
        return log.start_offset


def deletes(config: Mapping[str, ConfigValue]) -> bool:
    """Whether a topic lets go of old records by age, size or request."""
    return "delete" in str(_value(config, "cleanup.policy"))


def is_limited(config: Mapping[str, ConfigValue]) -> bool:
    """Whether a topic with these configs keeps its records for a time, or up to a size, only."""
    return deletes(config) and (int(_value(config, "retention.ms")) >= 0 or int(_value(config, "retention.bytes")) >= 0)


def _value(config: Mapping[str, ConfigValue], key: str) -> ConfigValue:
    return config.get(key, TOPIC_CONFIGS[key].default)


def _to_go(topic: TopicEntry, entry: LogEntry, sealed: list[SegmentEntry], now_ms: int, limit_offset: int) -> int:
    """The log start offset that retention asks for; 0 if nothing is to go."""
    active_bytes = entry.recovery_position if not sealed or entry.recovery_segment >= sealed[-1].next_offset else 0
    gone = expired(
        sealed,
        log_size_bytes=sum(segment.size_bytes for segment in sealed) + active_bytes,
        now_ms=now_ms,
        retention_ms=int(_value(topic.config, "retention.ms")),
        retention_bytes=int(_value(topic.config, "retention.bytes")),
        limit_offset=limit_offset,
    )
    return max(gone[-1].next_offset, entry.start_offset) if gone else 0
