"""Deleting old records: by age, by size, and by ``delete_records``.  ``log_start`` makes the move of a log's start durable.

        retention       whole segments, oldest first, never past the last stable offset; the active one only
                        by age, as a whole, after a roll
        delete_records  the log start offset moves to the exact offset; segments wholly below it are deleted,
                        the active one too, after a roll

Retention checks all logs when the store is opened and closed, and in between after ``check_interval_ms`` if something may have become
too old.  It checks one log when a segment of it was sealed, and the logs of one topic when its limits were changed.  A compacted topic
without ``delete`` in its policy keeps its records.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from logdb.errors import LogdbError, OffsetOutOfRange, PolicyViolation, UnknownPartition, UnknownTopic
from logdb.io import IO
from logdb.log.log import Log
from logdb.log.retention import born_ms, expired
from logdb.log.sealed import Sealed
from logdb.meta import Catalogue, LogEntry, TopicEntry
from logdb.model import DELETING_CONFIGS, OFFSET_MAX, TOPIC_CONFIGS, ConfigValue, ExpiredRecords, TopicInfo, TopicPartition
from logdb.store.housekeeping import UNTIL_ASKED, Housekeeping
from logdb.store.reserve import Reserve

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS = 300_000  # Kafka's log.retention.check.interval.ms
FIRST_ROUND_MS = 0  # after the opening
_DUE_INTERVAL_MS = 1_000
_REST_INTERVALS = 12  # the longest time between two rounds, in intervals: the clock may be set
_ALL, _DUE = "retention", "retention of logs that were rolled over or have other limits"


class Host(Protocol):
    """The part of the store that retention uses."""

    def open_log(self, topic: str, partition: int) -> Log: ...

    def log_in_use(self, name: TopicPartition) -> Log | None:
        """The log of a partition, if it is open."""

    def clock_ms(self) -> int:
        """The wall clock, as for record timestamps."""

    def checkpoint(self, logs: list[Log]) -> None:
        """Seal rolled segments."""

    def begin_at(self, log: Log, start_offset: int, config: Mapping[str, ConfigValue] | None = None) -> bool:
        """Move a log's start, durably, and remove the sealed segments wholly below it.

        Args:
            config: Only if its topic still has these configs.

        Returns:
            Whether the start was moved.
        """


class Active(NamedTuple):
    """The segment behind the sealed ones, as retention needs it."""

    size_bytes: int
    next_offset: int
    max_timestamp: int
    append_ms: int


class Kept(NamedTuple):
    """The segments of one log.

    ``sealed``: those of an open log that the catalogue does not name yet, too.  ``active``: None if it is empty, or its last append is
    unknown.
    """

    entry: LogEntry
    sealed: Sequence[Sealed]
    active: Active | None
    size_bytes: int

    def expired(self, topic: TopicEntry, now_ms: int, limit_offset: int) -> Sequence[Sealed]:
        """The segments over the topic's limits, oldest first; none at or past ``limit_offset``."""
        if self.entry.read_only_reason is not None:
            return ()
        return expired(
            self.sealed,
            active=self.active,
            log_size_bytes=self.size_bytes,
            now_ms=now_ms,
            retention_ms=int(_value(topic.config, "retention.ms")),
            retention_bytes=int(_value(topic.config, "retention.bytes")),
            limit_offset=limit_offset,
        )

    def report(self, gone: Sequence[Sealed]) -> ExpiredRecords:
        start = self.entry.start_offset
        size_bytes = sum(segment.size_bytes for segment in gone)
        return ExpiredRecords(self.entry.topic, self.entry.partition, start, max(gone[-1].next_offset, start), len(gone), size_bytes)


def look(catalogue: Catalogue, name: TopicPartition, log: Log | None) -> Kept:
    """The segments of a log, from the catalogue and, if it is open for writing, from the log itself.

    Raises:
        UnknownTopic, UnknownPartition: It does not exist, or was deleted.
    """
    entry, sealed = catalogue.view(*name)
    active = None
    if log is not None:
        segments = log.segments
        last = segments[-1] if segments else None
        if last is not None and last.size_bytes and last.scanner is not None:
            active = Active(last.size_bytes, last.next_offset, last.max_timestamp, last.append_ms)
        sealed_offset = sealed[-1].next_offset if sealed else 0
        unsealed = [segment for segment in segments[:-1] if segment.base_offset >= sealed_offset]
        return Kept(entry, (*sealed, *unsealed), active, log.size_bytes)
    unsealed_bytes = entry.recovery_position if not sealed or entry.recovery_segment >= sealed[-1].next_offset else 0
    if unsealed_bytes and entry.segment_append_ms:
        active = Active(unsealed_bytes, entry.recovery_offset, -1, entry.segment_append_ms)
    return Kept(entry, sealed, active, sum(segment.size_bytes for segment in sealed) + unsealed_bytes)


def plan(
    topics: Iterable[TopicEntry],
    catalogue: Catalogue,
    log: Callable[[str, int], Log],
    in_use: Callable[[TopicPartition], Log | None],
    now_ms: int,
) -> list[ExpiredRecords]:
    """The result that ``enforce`` would have.

    Args:
        topics: With their limits.
        log: Opens a log, if necessary; for writing, its recovery may find more segments.
        in_use: Returns a log that is open for writing; of others the last checkpoint counts.
    """
    found = []
    for entry in topics:
        for name in (TopicPartition(entry.name, partition) for partition in range(entry.partition_count)):
            if look(catalogue, name, in_use(name)).expired(entry, now_ms, OFFSET_MAX):
                stable_offset = log(*name).last_stable_offset
                kept = look(catalogue, name, in_use(name))
                gone = kept.expired(entry, now_ms, stable_offset)
                found += [kept.report(gone)] if gone else []
    return found


def limited(catalogue: Catalogue, topic: str | None) -> Iterator[TopicEntry]:
    """The topics with a limit, or one of them."""
    topics = catalogue.topics()
    return (entry for name, entry in topics.items() if topic in (None, name) and is_limited(entry.config))


class Retention:
    """The retention of one store; two tasks of its housekeeping."""

    def __init__(
        self, io: IO, host: Host, catalogue: Catalogue, housekeeping: Housekeeping, reserve: Reserve, check_interval_ms: int
    ) -> None:
        self._io, self._host, self._catalogue, self._housekeeping = io, host, catalogue, housekeeping
        self._reserve, self._check_interval_ms = reserve, check_interval_ms
        self._due: set[TopicPartition] = set()  # logs with a sealed segment, or other limits, since the last round
        housekeeping.add(_ALL, self._round, interval_ms=check_interval_ms, first_ms=FIRST_ROUND_MS, needed=is_limited)
        housekeeping.add(_DUE, self._round_of_due, interval_ms=_DUE_INTERVAL_MS, first_ms=UNTIL_ASKED, needed=lambda _config: False)

    # ------------------------------------------------------------ in the background

    def sealed(self, name: TopicPartition) -> None:
        """A segment of a log was sealed: the log may be over its size limit now."""
        self._due.add(name)
        self._housekeeping.ask(_DUE)

    def altered(self, topic: TopicInfo, former: TopicEntry | None) -> None:
        """A topic was created, or has other configs: if these may delete more records, its logs are checked at once."""
        if former is not None and is_limited(topic.config) and _limits(topic.config) != _limits(former.config):
            self._due.update(TopicPartition(topic.name, partition) for partition in range(topic.partition_count))
            self._housekeeping.hasten(_DUE)
        self._housekeeping.ask(_ALL)

    def _round(self) -> float:
        """One round over all logs; returns the ms until something may be too old."""
        self.enforce(politely=True)
        now_ms, rest_ms = self._host.clock_ms(), inf
        for topic in limited(self._catalogue, None):
            for partition in range(topic.partition_count):
                rest_ms = min(rest_ms, self._rest_ms(topic, partition, now_ms))
        return UNTIL_ASKED if rest_ms == inf else min(rest_ms, _REST_INTERVALS * self._check_interval_ms)

    def _rest_ms(self, topic: TopicEntry, partition: int, now_ms: int) -> float:
        """The ms until a log's oldest segment may be too old; 0 if one is that could not be deleted yet."""
        name = TopicPartition(topic.name, partition)
        try:
            kept = look(self._catalogue, name, self._host.log_in_use(name))
        except (UnknownTopic, UnknownPartition):  # deleted meanwhile
            return inf
        if kept.expired(topic, now_ms, OFFSET_MAX):
            return 0
        retention_ms = int(_value(topic.config, "retention.ms"))
        if retention_ms < 0 or kept.entry.read_only_reason is not None:
            return inf
        oldest = kept.sealed[0] if kept.sealed else kept.active
        return (now_ms if oldest is None else born_ms(oldest)) + retention_ms + 1 - now_ms

    def _round_of_due(self) -> float:
        while self._due and not self._housekeeping.stopping:
            with contextlib.suppress(UnknownTopic, UnknownPartition):  # deleted meanwhile
                self._enforce(self._due.pop(), politely=True)
        return UNTIL_ASKED

    # ------------------------------------------------------------ now

    def enforce(self, topic: str | None = None, *, until_ms: float = inf, politely: bool = False) -> list[ExpiredRecords]:
        """Delete what is over the topics' limits; raises the error of the first failed log, after all others were handled.

        Args:
            topic: One topic; None: all.
            until_ms: On the monotonic clock: no log is begun after that.
            politely: Leave the disk to others half of the time, and end when the store is closing.

        Returns:
            The deleted offsets, by topic and partition.
        """
        failure: LogdbError | None = None
        done: list[ExpiredRecords] = []
        for entry in limited(self._catalogue, topic):
            for partition in range(entry.partition_count):
                if (politely and self._housekeeping.stopping) or self._io.monotonic_ms() > until_ms:
                    return done
                try:
                    done += self._enforce(TopicPartition(entry.name, partition), politely=politely)
                except (UnknownTopic, UnknownPartition):  # deleted meanwhile
                    break
                except LogdbError as error:
                    failure = failure or error
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame
        return done

    def _enforce(self, name: TopicPartition, *, politely: bool) -> list[ExpiredRecords]:
        return self._reserve.spend(lambda: self._expire(name, politely=politely))

    def _expire(self, name: TopicPartition, *, politely: bool) -> list[ExpiredRecords]:
        topic = self._catalogue.topic(name.topic)  # its present configs: the round may have begun long ago
        if topic is None or not is_limited(topic.config):
            return []
        if not look(self._catalogue, name, self._host.log_in_use(name)).expired(topic, self._host.clock_ms(), OFFSET_MAX):
            return []
        log = self._host.open_log(*name)  # opened only now: a log without old records stays closed
        if log.take_sealing():
            self._host.checkpoint([log])
        kept = look(self._catalogue, name, log)
        gone = kept.expired(topic, self._host.clock_ms(), log.last_stable_offset)
        if gone and gone[-1] is kept.active:
            if log.roll(kept.active.next_offset):
                self._host.checkpoint([log])
            else:  # it was appended to
                gone = gone[:-1]
        if not gone or log.read_only_reason is not None:
            return []
        begun_ms = self._io.monotonic_ms()
        if not self._host.begin_at(log, gone[-1].next_offset, topic.config):
            return []  # the topic was altered meanwhile, which starts another round
        if politely:
            self._housekeeping.pause(self._io.monotonic_ms() - begun_ms)
        return [kept.report(gone)]

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """See ``Database.delete_records``."""
        entry = self._catalogue.topic(topic)
        if entry is not None and not deletes(entry.config):
            policy = str(entry.config["cleanup.policy"])
            raise PolicyViolation(f"records of {topic!r} cannot be deleted: its cleanup.policy is {policy!r}, without 'delete'")
        return self._reserve.spend(lambda: self._delete_records(topic, partition, before_offset))

    def _delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        log = self._host.open_log(topic, partition)
        start, end = log.start_offset, log.high_watermark
        offset = end if before_offset == -1 else before_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(topic, partition, offset, start, end)
        if offset > log.view.flushed.offset or log.read_only_reason is not None:
            log.flush()  # after a power cut the log must not end before its start; raises ReadOnly
        log.roll(offset)
        if not self._host.begin_at(log, offset):
            raise OffsetOutOfRange(topic, partition, offset, log.start_offset, log.high_watermark)  # truncated meanwhile
        return log.start_offset


def deletes(config: Mapping[str, ConfigValue]) -> bool:
    """Whether a topic deletes old records by age, size or request."""
    return "delete" in str(_value(config, "cleanup.policy"))


def is_limited(config: Mapping[str, ConfigValue]) -> bool:
    """Whether a topic with these configs has a limit of time or size."""
    return deletes(config) and (int(_value(config, "retention.ms")) >= 0 or int(_value(config, "retention.bytes")) >= 0)


def _limits(config: Mapping[str, ConfigValue]) -> list[ConfigValue]:
    return [_value(config, key) for key in DELETING_CONFIGS]


def _value(config: Mapping[str, ConfigValue], key: str) -> ConfigValue:
    return config.get(key, TOPIC_CONFIGS[key].default)
