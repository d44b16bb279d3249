"""What a consumer's application gets: lists of records, or runs to iterate over, deserialized and shown to interceptors.

Knows what the application has looked at: positions are behind that, whatever was read ahead.  Does not know how records
are read (``fetching``), nor what a consumer waits for.

Records that nobody changes go from the log's C iterator to the application without being touched.  Those that are finished
here come in lists; what of a list was iterated over is what its iterator has not left.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any, NamedTuple, cast

from logdb import serde
from logdb.client.consumer.fetching import Cursor, Fetcher
from logdb.client.producer.interceptor import Interceptor
from logdb.client.records import AnyRecord, ConsumedRecord
from logdb.codec import Record
from logdb.errors import LogdbError, SerializationError
from logdb.model import OffsetAndMetadata, TopicPartition


class Finishing:
    """What a consumer's options make of records.

    Attributes:
        needed: Whether that is anything at all.
    """

    def __init__(self, key: serde.Deserializer | None, value: serde.Deserializer | None, interceptors: Sequence[Interceptor]) -> None:
        self._key, self._value = serde.deserializing(key, "key"), serde.deserializing(value, "value")
        self._interceptors = interceptors
        self.needed = bool(self._key or self._value or interceptors)

    def deserialize(self, records: Sequence[Record]) -> list[AnyRecord]:
        """All records up to the first that cannot be deserialized.

        Raises:
            SerializationError: It is the first; the cause is the deserializer's own error.
        """
        key, value = self._key, self._value
        if key is None and value is None:
            return list(records)
        done: list[AnyRecord] = []
        for record in records:
            try:
                done.append(ConsumedRecord.of(record, key=_made(key, record.key), value=_made(value, record.value)))
            except SerializationError as error:
                if done:
                    break
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise SerializationError(
                    f"{where}: {error}", topic=record.topic, partition=record.partition, offset=record.offset
                ) from error.__cause__
        return done

    def intercept(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """What is left when all interceptors have seen them; raises whatever one of them does."""
        for interceptor in self._interceptors:
            seen = interceptor.on_consume(records)
            if not isinstance(seen, list):
                raise TypeError(f"{type(interceptor).__name__}.on_consume has to return a list of records, not {type(seen).__name__}")
            records = seen
        return records


def _made(deserializer: Callable[[Any], Any] | None, data: bytes | None) -> Any:
    return data if deserializer is None else deserializer(data)


class Handed(NamedTuple):
    """A list of records that iteration is in the middle of."""

    cursor: Cursor
    before: OffsetAndMetadata  # the position of its first record
    records: list[AnyRecord]
    iterator: Iterator[AnyRecord]

    def position(self) -> OffsetAndMetadata:
        """Behind the last record that was looked at."""
        left = length_hint(self.iterator)
        if not left:
            return self.cursor.position()
        seen = len(self.records) - left
        return OffsetAndMetadata(self.records[seen].offset, self.records[seen - 1].leader_epoch if seen else self.before.leader_epoch)

    def last(self) -> OffsetAndMetadata:
        """Of the record that was looked at last; of the first, if none was."""
        seen = len(self.records) - length_hint(self.iterator)
        if seen < 2:
            return self.before
        return OffsetAndMetadata(self.records[seen - 1].offset, self.records[seen - 2].leader_epoch)

    def take_back(self) -> None:
        """Let the cursor go on with the records that were not looked at, and iteration with other ones."""
        if length_hint(self.iterator):
            position = self.position()
            self.records.clear()
            self.cursor.seek(position.offset, position.leader_epoch, earned=True)


class Feed:
    """Records out of a consumer's cursors, in turn."""

    def __init__(self, fetcher: Fetcher, finishing: Finishing, *, remembering: bool = False) -> None:
        """``remembering``: keep in mind what ``finished`` has to know."""
        self._fetcher, self._finishing, self._remembering = fetcher, finishing, remembering
        self._handed: Handed | None = None
        self._begun: dict[TopicPartition, OffsetAndMetadata] = {}  # where what was given last, by ``take`` or as a run, begins
        self._running: Cursor | None = None  # the run that is iterated over

    def take(self, count_max: int) -> dict[TopicPartition, list[AnyRecord]]:
        """Of all partitions together, at most ``count_max``.

        Raises:
            whatever reading or finishing raises, unless there is something from the partitions before: then the next call
            comes to that first.
        """
        taken: dict[TopicPartition, list[AnyRecord]] = {}
        for cursor in self._fetcher.round():
            before = cursor.position() if self._remembering else None
            try:
                records = self._finished(cursor, count_max)
            except Exception:
                self._fetcher.begin_with(cursor)
                if not taken:
                    raise
                break
            if records:
                taken[cursor.partition] = records
                if before is not None:
                    self._begun[cursor.partition] = before
                count_max -= len(records)
                if count_max <= 0:
                    break
        return taken

    def runs(self, count_max: int) -> Iterator[Iterator[AnyRecord]]:
        """Runs of records of one partition, at most ``count_max`` each, from all partitions in turn until none has more."""
        seen = True
        while seen:
            seen = False
            for cursor in self._fetcher.round():
                before = cursor.offset
                begun = cursor.position()
                if (run := self._run(cursor, count_max)) is not None:
                    handed = self._handed
                    self._begun, self._running = {cursor.partition: begun}, cursor
                    yield run
                    self._begun, self._running = {}, None
                    if self._handed is handed:  # no other iteration has begun meanwhile
                        self._handed = None
                    cursor.end_run()
                    seen = seen or cursor.offset != before

    def _run(self, cursor: Cursor, count_max: int) -> Iterator[AnyRecord] | None:
        if self._finishing.needed:
            return None if (handed := self._hand_out(cursor, count_max)) is None else handed.iterator
        try:
            return cursor.run(count_max)
        except Exception:
            self._fetcher.begin_with(cursor)
            raise

    def hand_out(self, count_max: int) -> Handed | None:
        """A list of one partition, whose records count as read one by one as they are looked at; None if there is none."""
        self.take_back()
        self.finish()
        for cursor in self._fetcher.round():
            if (handed := self._hand_out(cursor, count_max)) is not None:
                self._begun, self._running = {cursor.partition: handed.before}, cursor
                return handed
        return None

    def _hand_out(self, cursor: Cursor, count_max: int) -> Handed | None:
        before = cursor.position()
        try:
            records = self._finished(cursor, count_max)
        except Exception:
            self._fetcher.begin_with(cursor)
            raise
        if not records:
            return None
        self._handed = Handed(cursor, before, records, iter(records))
        return self._handed

    def _finished(self, cursor: Cursor, count_max: int) -> list[AnyRecord]:
        """The next records of one partition, as the application gets them; the cursor is behind them."""
        if not self._finishing.needed:
            return cast(list[AnyRecord], cursor.take(count_max))
        before = cursor.position()
        taken = cursor.take(count_max)
        if not taken:
            return []
        try:
            done = self._finishing.deserialize(taken)
            if len(done) < len(taken):  # the next call comes to the one that cannot be deserialized
                cursor.seek(taken[len(done)].offset, taken[len(done) - 1].leader_epoch, earned=True)
            return self._finishing.intercept(done)
        except Exception:
            cursor.seek(taken[0].offset, before.leader_epoch, earned=True)
            raise

    def finish(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        """The application has done with what it was given; or has committed these offsets itself."""
        if offsets is None:
            self._begun, self._running = {}, None
        for partition, begun in list(self._begun.items()):
            if offsets is not None and partition in offsets and offsets[partition].offset > begun.offset:
                self._begun[partition] = offsets[partition]

    def finished(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions before what the application may be in the middle of: the lists that it was given last, or the record."""
        positions = self.positions()
        for partition, begun in self._begun.items():
            at = positions.get(partition)
            if at is not None and at.offset > begun.offset:
                last = None if self._running is None else self._last(self._running, at)
                positions[partition] = begun if last is None or last.offset < begun.offset else last
        return positions

    def _last(self, cursor: Cursor, at: OffsetAndMetadata) -> OffsetAndMetadata:
        """The position of the record that was looked at last in a run, which is at ``at`` by now."""
        if self._handed is not None and self._handed.cursor is cursor:
            return self._handed.last()
        with contextlib.suppress(LogdbError):
            return OffsetAndMetadata(at.offset - 1, cursor.log.epoch_at(at.offset - 2))
        return OffsetAndMetadata(at.offset - 1)

    def take_back(self) -> None:
        """What was handed out and not looked at is read again."""
        if self._handed is not None:
            self._handed.take_back()
            self._handed = None

    def position(self, cursor: Cursor) -> OffsetAndMetadata:
        """Behind what was looked at."""
        handed = self._handed
        return handed.position() if handed is not None and handed.cursor is cursor else cursor.position()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of all partitions that have one."""
        positions = self._fetcher.positions()
        if self._handed is not None:
            positions[self._handed.cursor.partition] = self._handed.position()
        return positions
