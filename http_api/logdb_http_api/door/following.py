"""A reader of one partition of a topic, or of all, whose records become server-sent events.

The reader never waits for records; ``events`` does.

    of a partition   id is the record's offset and leader epoch: 41.3
    of a topic       id is the next offset of each partition and the leader epoch before it, by their numbers: 17.3-4.0-0

A client that comes back names the epoch with its id.  A log that was restored from an older backup has another one there.
"""

import json
from collections.abc import Callable, Mapping

from logdb.codec import Record
from logdb.codec.batch import HEADER_COUNT_MAX
from logdb.errors import OffsetOutOfRange, SerializationError, TopicDeleted, UnknownPartition
from logdb.log.isolation import IsolationLevel
from logdb.log.protocols import PartitionLog
from logdb.model import OFFSET_MAX, KnownLog, TopicPartition
from logdb.requests.session import Session
from logdb_http_api.door import sse
from logdb_http_api.errors import ApiError
from logdb_http_api.v2.formats import base64_text, json_text

TAKE_BYTES = 64 << 10
_EPOCH_MAX = 2**31 - 1
PARTITION_COUNT_MAX = 256  # their position must fit a header
BEGIN: Mapping[str, Callable[[PartitionLog, IsolationLevel], int]] = {
    "earliest": lambda log, _: log.start_offset,
    "latest": lambda log, level: log.readable_end_offset(level),
}


def _string(data: bytes | None) -> str:
    return "null" if data is None else json.dumps(str(data, "utf-8"))


def _json(data: bytes | None) -> str:
    return json_text(data).translate({10: " ", 13: " "})  # between its parts; within strings they are escaped


FORMATS: Mapping[str, Callable[[bytes | None], str]] = {"binary": base64_text, "json": _json, "string": _string}


class Following:
    """The positions of a reader.

    | field           | who changes it       | when it may be trusted                                                  |
    |-----------------|----------------------|-------------------------------------------------------------------------|
    | _offsets        | begin, take          | the next record of each partition                                       |
    | _epochs         | begin, take          | the leader epoch of the record before it, where it is known             |
    | _before         | take                 | both, before the last ``take``                                          |
    | _topic_id       | begin                | the topic that is read; "": a node that leads no partition of it        |
    """

    def __init__(
        self, session: Session, topic: str, partition: int | None, forms: tuple[str, str], isolation_level: IsolationLevel, topic_id: str
    ) -> None:
        """Without positions yet: the caller calls ``begin``.

        Args:
            partition: None: all.
            forms: Of keys and of values; each is one of ``FORMATS``.
            topic_id: Of the topic to read; "": of the one that has its name.
        """
        self._session, self._topic, self._partition = session, topic, partition
        self._key, self._value = (FORMATS[form] for form in forms)
        self._isolation_level = isolation_level
        self._offsets: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._before: tuple[dict[int, int], dict[int, int]] = {}, {}
        self._topic_id = topic_id
        self._turn = 0

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The positions to wait at: the next record of each partition."""
        return {TopicPartition(self._topic, partition): offset for partition, offset in self._offsets.items()}

    @property
    def known(self) -> dict[TopicPartition, KnownLog]:
        """What is known of the logs that they lie in."""
        return {place: KnownLog(self._topic_id, self._epochs.get(place.partition, -1)) for place in self.positions}

    def begin(self, offset: str, last_id: str | None) -> None:
        """Go to ``offset``, or behind the event with the id ``last_id``.  May wait for a disk.

        Args:
            offset: A number (of a partition alone), ``earliest`` or ``latest``.

        Raises:
            ApiError: An invalid offset or id; 422.
            UnknownTopic, UnknownPartition, OffsetOutOfRange, NotAuthorized: The position cannot be read.
        """
        count = self._session.partition_count(self._topic)
        if self._partition is None and count > PARTITION_COUNT_MAX:
            raise ApiError(422, 422, f"{self._topic} has {count} partitions: at most {PARTITION_COUNT_MAX} can be followed together")
        if last_id is not None:
            self._offsets, self._epochs = self._after(last_id, count)
        else:
            partitions = range(count) if self._partition is None else (self._partition,)
            self._offsets = {partition: self._offset(partition, offset) for partition in partitions}
        for partition, position in self._offsets.items():
            log = self._log(partition)
            if not log.start_offset <= position <= (end := log.end_offset):
                raise OffsetOutOfRange(self._topic, partition, position, log.start_offset, end)
            if position and partition not in self._epochs and (epoch := log.epoch_at(position - 1)) >= 0:
                self._epochs[partition] = epoch

    def _offset(self, partition: int, offset: str) -> int:
        if offset in BEGIN:
            return BEGIN[offset](self._log(partition), self._isolation_level)
        if self._partition is None:
            raise ApiError(422, 422, f"offset={offset[:40]!r}: must be {' or '.join(BEGIN)} for a whole topic")
        if not _is_offset(offset):
            raise ApiError(422, 422, f"offset={offset[:40]!r}: must be {', '.join(BEGIN)} or a whole number in [0, {OFFSET_MAX}]")
        return int(offset)

    def _after(self, last_id: str, count: int) -> tuple[dict[int, int], dict[int, int]]:
        """The positions and epochs behind an event; an id without epochs is of an earlier version, or made by hand."""
        parts = [part.partition(".") for part in last_id.split("-")]
        well_formed = all(_is_offset(offset) and (not dot or _is_epoch(epoch)) for offset, dot, epoch in parts)
        if not well_formed or len(parts) > (count if self._partition is None else 1):
            raise ApiError(422, 422, f"Last-Event-ID: {last_id[:40]!r} is no event's of this stream")
        first, behind = (0, 0) if self._partition is None else (self._partition, 1)
        offsets = {partition: int(offset) + behind for partition, (offset, _, _) in enumerate(parts, first)}
        epochs = {partition: int(epoch) for partition, (_, dot, epoch) in enumerate(parts, first) if dot}
        later = range(len(parts), count) if self._partition is None else ()
        return offsets | dict.fromkeys(later, 0), epochs

    def _log(self, partition: int) -> PartitionLog:
        """The log of a partition; raises TopicDeleted where it is no longer that of the topic that is read."""
        log = self._session.log(self._topic, partition)
        self._topic_id = self._topic_id or log.topic_id
        if log.topic_id not in {"", self._topic_id}:
            raise TopicDeleted(self._topic, self._topic_id, log.topic_id)
        return log

    def take(self) -> bytes:
        """The next events, about ``TAKE_BYTES``; empty: no records yet.  May wait for a disk.

        Raises:
            SerializationError: The next record is not of the requested format; those before it were taken.
            TopicDeleted, OffsetOutOfRange, LogTruncated: The position lies in another log.
            UnknownTopic, NotAuthorized, CorruptionError: The next record cannot be read.
        """
        self._grow()
        self._before = self._offsets.copy(), self._epochs.copy()
        frames = bytearray()
        for _ in range(len(self._offsets)):
            partition = self._partition if self._partition is not None else self._turn % len(self._offsets)
            self._turn += 1
            self._read(partition, frames)
            if len(frames) >= TAKE_BYTES:
                break
        return bytes(frames)

    def take_back(self) -> None:
        """Undo the last ``take``."""
        self._offsets, self._epochs = self._before

    def _grow(self) -> None:
        """Include partitions that were added to the topic."""
        count = self._session.partition_count(self._topic)
        if self._partition is None:
            for partition in range(len(self._offsets), min(count, PARTITION_COUNT_MAX)):
                self._offsets[partition] = 0
        elif self._partition >= count:
            raise UnknownPartition(self._topic, self._partition, count)

    def _read(self, partition: int, frames: bytearray) -> None:
        log = self._log(partition)
        end = log.readable_end_offset(self._isolation_level)
        position, epoch = self._offsets[partition], self._epochs.get(partition)
        if position == end and (epoch is None or epoch == log.epoch_at(end - 1)):
            return
        records = log.read(position, end_offset=end, leader_epoch=epoch, isolation_level=self._isolation_level)
        for record in records:
            if len(frames) >= TAKE_BYTES:
                return
            try:
                data = self._data(record)
            except (ValueError, RecursionError) as error:
                if frames:
                    return
                where = f"{self._topic}-{partition} at offset {record.offset}"
                raise SerializationError(f"{where}: {error}", topic=self._topic, partition=partition, offset=record.offset) from None
            self._offsets[partition], self._epochs[partition] = record.offset + 1, record.leader_epoch
            frames += sse.frame(data, identity=self._identity(record))
        if self._offsets[partition] < end:  # past offsets without records
            self._offsets[partition], self._epochs[partition] = end, log.epoch_at(end - 1)

    def _identity(self, record: Record) -> str:
        if self._partition is not None:
            return f"{record.offset}.{record.leader_epoch}"
        epochs = self._epochs
        return "-".join(f"{at}.{epochs[one]}" if one in epochs else str(at) for one, at in self._offsets.items())

    def _data(self, record: Record) -> str:
        if record.header_count > HEADER_COUNT_MAX:  # of an earlier version; some bytes each would become some hundred
            raise ValueError(f"the record has {record.header_count} headers: an event has at most {HEADER_COUNT_MAX}")
        headers = ", ".join(f'{{"name": {json.dumps(name)}, "value": {base64_text(value)}}}' for name, value in record.headers)
        said = f'"topic":"{self._topic}","partition":{record.partition},"offset":{record.offset},"timestamp_ms":{record.timestamp_ms}'
        return f'{{{said},"key":{self._key(record.key)},"value":{self._value(record.value)},"headers":[{headers}]}}'


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= OFFSET_MAX


def _is_epoch(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= _EPOCH_MAX
