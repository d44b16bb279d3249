"""Compaction in the background: chooses the next log, and limits the speed.  ``log.cleaner`` compacts a log, ``segment_replacer`` replaces
its segments.

A thread of its own (``logdb-cleaner``) starts with the first compacted topic.  It checks at once, and then at least 15 s after the
last check, when a segment was sealed or something may be due by its age.  It compacts the logs that are due, the dirtiest first:

    dirty ratio   more than min.cleanable.dirty.ratio of the bytes are not compacted yet
    lag           the oldest of them is older than max.compaction.lag.ms
    horizon       tombstones, or markers of transactions, may be deleted now

A log that cannot be compacted (a damaged batch) is reported once, and skipped until the database is opened again.

Threading: one thread at a time compacts a log, the background's or that of a caller of ``compact``, which has no speed
limit.  Compaction holds no lock that appends or reads wait for.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logdb.errors import Closed, CorruptionError, LogdbError, PolicyViolation, ReadOnly, UnknownPartition, UnknownTopic
from logdb.io import IO
from logdb.log.log import Log
from logdb.meta import Catalogue, LogEntry, TopicEntry
from logdb.model import OFFSET_MAX, TOPIC_CONFIGS, ConfigValue, LogConfig, TopicPartition
from logdb.segment.buffers import READ_SIZE_BYTES
from logdb.segment.segment import Segment
from logdb.store.housekeeping import UNTIL_ASKED, Housekeeping
from logdb.threads import renewed

if TYPE_CHECKING:
    from logdb.log.cleaner import Cleanable, Replacement

logger = logging.getLogger(__name__)

CLEANER_BYTES_PER_SECOND = 32 << 20
KEY_MAP_SIZE_BYTES = 64 << 20  # about 1.7 million keys of 16 bytes
_KEY_MAP_LOAD_MAX = 0.75  # of its slots: _native/compact.c
FIRST_ROUND_MS = 0  # after the opening: a short-lived program has no other time for it
_INTERVAL_MS = 15_000  # Kafka's log.cleaner.backoff.ms
_REST_MS_MAX = 3_600_000  # even if nothing expires before: the clock may be set


def configs(bytes_per_second: int) -> Mapping[str, ConfigValue]:
    """Kafka's configs of the cleaner, with the values that hold here."""
    of_topics = {
        "log.cleaner.delete.retention.ms": "delete.retention.ms",
        "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
        "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    }
    return {
        "log.cleaner.backoff.ms": _INTERVAL_MS,
        "log.cleaner.dedupe.buffer.size": KEY_MAP_SIZE_BYTES,
        "log.cleaner.enable": True,
        "log.cleaner.io.buffer.load.factor": _KEY_MAP_LOAD_MAX,
        "log.cleaner.io.buffer.size": READ_SIZE_BYTES,
        "log.cleaner.io.max.bytes.per.second": float(bytes_per_second),
        "log.cleaner.threads": 1,
        **{name: TOPIC_CONFIGS[key].default for name, key in of_topics.items()},
    }


class Host(Protocol):
    """The part of the store that the cleaner uses."""

    def open_log(self, topic: str, partition: int) -> Log: ...

    def entry(self, name: TopicPartition) -> LogEntry:
        """The catalogue's entry of a log."""

    def clock_ms(self) -> int:
        """The wall clock, as for record timestamps."""

    def checkpoint(self, logs: list[Log]) -> None:
        """Seal rolled segments."""

    def replace_segments(self, log: Log, replacement: "Replacement") -> bool:
        """Replace segments with compacted ones; False if they are no longer the log's."""

    def finish_replacements(self, log: Log) -> None:
        """Finish the log's replacements that an error interrupted."""

    def cleaned(self, log: Log, clean_offset: int, delete_horizon_ms: int | None) -> None:
        """Set the offset up to which a log is compacted, and its earliest delete horizon."""


class Due(NamedTuple):
    """A log that is worth compacting; the largest is next."""

    dirty_ratio: float
    name: TopicPartition


class Cleaner:
    """The compaction of one store."""

    def __init__(self, io: IO, host: Host, catalogue: Catalogue, bytes_per_second: int) -> None:
        """It starts with ``consider`` or ``compact``.

        Args:
            bytes_per_second: Limit of the background's reads and writes, over all logs.
        """
        self._io, self._host, self._catalogue, self._bytes_per_second = io, host, catalogue, bytes_per_second
        self.key_map_size_bytes = KEY_MAP_SIZE_BYTES
        self.uncleanable: dict[TopicPartition, str] = {}
        self._failures: dict[TopicPartition, str] = {}  # the last failure of a log, reported once
        self.background = Housekeeping(io, "logdb-cleaner")
        self.background.add("compaction", self._round, interval_ms=_INTERVAL_MS, first_ms=FIRST_ROUND_MS, needed=is_compacted)
        self._rest_ms: float = UNTIL_ASKED  # from the present round to the next
        self._busy: set[TopicPartition] = set()
        self._awaited: set[TopicPartition] = set()  # callers of ``compact`` wait for the background to finish these
        self._changed = renewed(threading.Condition())
        self._stopping = False

    def altered(self) -> None:
        """A segment of a compacted log was sealed, or a topic has other configs."""
        self.background.ask("compaction")

    def hasten(self) -> None:
        """Check for due logs now."""
        self.background.hasten("compaction")

    def stop(self) -> None:
        """End the thread, and running compactions before their next read or write; none begins afterwards."""
        self._stopping = True
        self.background.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)

    # ------------------------------------------------------------ now

    def compact(self, topic: str, partition: int) -> None:
        """Compact one log completely, the active segment included; in the caller's thread, without a speed limit."""
        name, log = TopicPartition(topic, partition), self._host.open_log(topic, partition)
        if not log.config.compacted:
            raise PolicyViolation(f"{topic!r} cannot be compacted: its cleanup.policy does not say 'compact'")
        if log.read_only_reason is not None:
            raise ReadOnly(f"{name} is read-only: {log.read_only_reason}")
        with self.alone(name, wait=True):
            log.flush()
            log.roll()
            self._host.checkpoint([log])
            while self._pass(name, log):
                pass

    # ------------------------------------------------------------ in the background

    def _round(self) -> float | None:
        """Compact all due logs, the dirtiest first; returns the time in ms until another, or a failed one, may be due."""
        self._rest_ms = UNTIL_ASKED
        found = sorted(self._due(), reverse=True)
        for due in found:
            try:
                with self.alone(due.name, wait=False) as free:
                    if free:
                        self._pass(due.name, self._host.open_log(*due.name), throttled=True)
                        self._failures.pop(due.name, None)
            except (Closed, UnknownTopic, UnknownPartition):  # the store is closing, or the topic was deleted
                if self._stopping:
                    return None
            except (LogdbError, OSError) as error:
                self._failed(due.name, error)
        return None if found else self._rest_ms

    def _failed(self, name: TopicPartition, error: LogdbError | OSError) -> None:
        if self._failures.get(name) != str(error):
            self._failures[name] = str(error)
            logger.error("compacting %s: %s", name, error)
        if isinstance(error, LogdbError) and not error.retriable:
            self.uncleanable[name] = str(error)

    def _due(self) -> Iterator[Due]:
        for topic in self._catalogue.topics().values():
            for partition in range(topic.partition_count) if is_compacted(topic.config) else ():
                if self._stopping:
                    return
                name = TopicPartition(topic.name, partition)
                try:
                    found = None if name in self.uncleanable else self._look(name, topic)
                except (LogdbError, OSError) as error:  # one log does not keep the others waiting
                    self._failed(name, error)
                else:
                    if found is not None:
                        yield found

    def _look(self, name: TopicPartition, topic: TopicEntry) -> Due | None:
        """Whether a log is due, by the catalogue's entry, so that it need not be open."""
        from logdb.log.cleaner import cleanable

        config = LogConfig.of(topic.config, "interval")
        try:
            entry, sealed = self._catalogue.view(*name)
            if entry.read_only_reason is not None:
                return None
            now_ms = self._host.clock_ms()
            work = cleanable(
                sealed, clean_offset=entry.clean_offset, limit_offset=OFFSET_MAX, now_ms=now_ms, min_lag_ms=config.min_compaction_lag_ms
            )
            lags_ms = (
                self._lags_ms(self._host.open_log(*name), entry.clean_offset, now_ms) if config.max_compaction_lag_ms < OFFSET_MAX else inf
            )
        except (Closed, UnknownTopic, UnknownPartition):  # as in ``_round``
            return None
        expires_ms = inf if entry.delete_horizon_ms is None else entry.delete_horizon_ms
        if min(lags_ms, expires_ms) <= now_ms or (work.dirty_bytes and work.dirty_ratio > config.min_cleanable_dirty_ratio):
            return Due(work.dirty_ratio, name)
        young = any(segment.next_offset > entry.clean_offset for segment in sealed[len(work.segments) :])  # by min.compaction.lag.ms
        if young:
            self._rest_ms = min(self._rest_ms, _INTERVAL_MS)
        elif (due_ms := min(lags_ms, expires_ms)) < inf:
            self._rest_ms = min(self._rest_ms, due_ms - now_ms, _REST_MS_MAX)
        return None

    def _lags_ms(self, log: Log, clean_offset: int, now_ms: int) -> int:
        """When a dirty record becomes older than ``max.compaction.lag.ms``; an active segment that already has one is rolled."""
        lag_ms = log.config.max_compaction_lag_ms + 1
        for segment in log.segments:
            if segment.next_offset > clean_offset and segment.size_bytes:
                try:
                    first_ms = segment.first_timestamp()
                    lags_ms = (first_ms if first_ms >= 0 else segment.append_ms) + lag_ms
                except (CorruptionError, FileNotFoundError):
                    if segment in log.segments:
                        raise
                    continue  # retention has deleted it
                if lags_ms <= now_ms and segment is log.segments[-1]:
                    log.roll()
                    self._host.checkpoint([log])
                return lags_ms
        return now_ms + lag_ms

    # ------------------------------------------------------------ a pass

    @contextlib.contextmanager
    def alone(self, name: TopicPartition, *, wait: bool) -> Iterator[bool]:
        """Exclude other passes over a log, and truncations of it; without ``wait``, False if another thread has it."""
        with self._changed:
            if wait and name in self._busy:
                self._awaited.add(name)
                self._changed.wait_for(lambda: name not in self._busy)
                self._awaited.discard(name)
            self._check_stopping()
            free = name not in self._busy
            self._busy.add(name)
        try:
            yield free
        finally:
            with self._changed:
                if free:
                    self._busy.discard(name)
                self._changed.notify_all()

    def _check_stopping(self) -> None:
        if self._stopping:
            raise Closed("the database is being closed")

    def _pass(self, name: TopicPartition, log: Log, *, throttled: bool = False) -> bool:
        """One pass over one log; returns whether it made progress and there is more to do."""
        from logdb.log.cleaner import Compaction

        if log.read_only_reason is not None:  # of an interrupted truncation the catalogue says nothing
            return False
        self._host.finish_replacements(log)
        work = self._work(name, log)
        expires_ms, now_ms = self._host.entry(name).delete_horizon_ms, self._host.clock_ms()
        if not work.dirty_bytes and (expires_ms is None or expires_ms > now_ms):
            return False
        begun_bytes = log.size_bytes

        def spend(size_bytes: int) -> None:
            self._check_stopping()
            if throttled and name not in self._awaited:
                self.background.pause(1000 * size_bytes / self._bytes_per_second)

        compaction = Compaction(
            log, work, io=self._io, config=log.config, now_ms=now_ms, spend=spend, key_map_size_bytes=self.key_map_size_bytes
        )
        try:
            for replacement in compaction.run():
                if not self._host.replace_segments(log, replacement):
                    return False  # retention has deleted the segments; the next pass continues
        except (CorruptionError, FileNotFoundError):
            if _begins_later(log, work.segments):  # so it has, and their files were missing
                return False
            raise
        self._host.cleaned(log, compaction.end_offset, compaction.delete_horizon_ms)
        logger.info("compacted %s up to offset %d: %d of %d bytes remain", name, compaction.end_offset, log.size_bytes, begun_bytes)
        return compaction.end_offset < (work.segments[-1].next_offset if work.segments else 0)

    def _work(self, name: TopicPartition, log: Log) -> "Cleanable[Segment]":
        from logdb.log.cleaner import cleanable

        stable_offset = log.view.last_stable_offset
        if log.had_producers:
            log.sync()  # the end of the transactions below it must be durable before their records are
        unsealed = {log.segments[-1], *log.take_sealing()} if log.segments else set()
        return cleanable(
            [segment for segment in log.segments if segment not in unsealed],
            clean_offset=self._host.entry(name).clean_offset,
            limit_offset=min(log.view.flushed.offset, stable_offset),
            now_ms=self._host.clock_ms(),
            min_lag_ms=log.config.min_compaction_lag_ms,
        )


def _begins_later(log: Log, segments: Sequence[Segment]) -> bool:
    """Whether some of these segments were deleted: a log loses its first ones, and a copy begins where they did."""
    return bool(segments) and (not log.segments or log.segments[0].base_offset > segments[0].base_offset)


def is_compacted(config: Mapping[str, ConfigValue]) -> bool:
    """Whether a topic with these configs keeps only the latest record of each key."""
    return "compact" in str(config.get("cleanup.policy", TOPIC_CONFIGS["cleanup.policy"].default))
