"""Collects fetched records for the application: lists, or runs to iterate over, deserialized and passed to interceptors.

A position is behind the last record that the application has seen; records read ahead of it do not count.  Records that need no
deserializer and no interceptor go from the log's C iterator to the application untouched.  Others come in lists; in
iteration, a list's iterator shows which of its records the application has seen.
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


class RecordTransform:
    """Deserializers and interceptors of a consumer.

    Attributes:
        needed: Whether there are any.
    """

    def __init__(self, key: serde.Deserializer | None, value: serde.Deserializer | None, interceptors: Sequence[Interceptor]) -> None:
        self._key, self._value = serde.deserializing(key, "key"), serde.deserializing(value, "value")
        self._interceptors = interceptors
        self.needed = bool(self._key or self._value or interceptors)

    def deserialize(self, records: Sequence[Record]) -> list[AnyRecord]:
        """All records up to the first that cannot be deserialized.

        Raises:
            SerializationError: It is the first record; the cause is the deserializer's own error.
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
        """The records after all interceptors; raises their exceptions."""
        for interceptor in self._interceptors:
            seen = interceptor.on_consume(records)
            if not isinstance(seen, list):
                raise TypeError(f"{type(interceptor).__name__}.on_consume has to return a list of records, not {type(seen).__name__}")
            records = seen
        return records


def _made(deserializer: Callable[[Any], Any] | None, data: bytes | None) -> Any:
    return data if deserializer is None else deserializer(data)


class ListIteration(NamedTuple):
    """A list of records during an iteration over it."""

    cursor: Cursor
    before: OffsetAndMetadata  # the position of its first record
    records: list[AnyRecord]
    iterator: Iterator[AnyRecord]

    def position(self) -> OffsetAndMetadata:
        """The position behind the last record seen."""
        left = length_hint(self.iterator)
        if not left:
            return self.cursor.position()
        seen = len(self.records) - left
        return OffsetAndMetadata(self.records[seen].offset, self.records[seen - 1].leader_epoch if seen else self.before.leader_epoch)

    def last(self) -> OffsetAndMetadata:
        """The position of the last record seen; of the first, if none was."""
        seen = len(self.records) - length_hint(self.iterator)
        if seen < 2:
            return self.before
        return OffsetAndMetadata(self.records[seen - 1].offset, self.records[seen - 2].leader_epoch)

    def take_back(self) -> None:
        """Move the cursor back to the records that were not seen, and end the iteration."""
        if length_hint(self.iterator):
            position = self.position()
            self.records.clear()
            self.cursor.seek(position.offset, position.leader_epoch, earned=True)


class FetchCollector:
    """Records out of a consumer's cursors, in turn."""

    def __init__(self, fetcher: Fetcher, transform: RecordTransform, *, remembering: bool = False) -> None:
        """``remembering``: keep what ``processed_positions`` needs."""
        self._fetcher, self._transform, self._remembering = fetcher, transform, remembering
        self._taken = self._transformed if transform.needed else cast("Callable[[Cursor, int], list[AnyRecord]]", Cursor.take)
        self._iteration: ListIteration | None = None
        self._begun: dict[TopicPartition, OffsetAndMetadata] = {}  # where the last result of ``take``, or the run, begins
        self._running: Cursor | None = None  # the run of the present iteration

    def take(self, count_max: int) -> dict[TopicPartition, list[AnyRecord]]:
        """Records of all partitions, at most ``count_max`` in total.

        Raises:
            any exception of reading, deserializers or interceptors, unless earlier partitions have records: then the next call
                begins with the failed one.
        """
        taken: dict[TopicPartition, list[AnyRecord]] = {}
        for cursor in self._fetcher.round():
            before = cursor.position() if self._remembering else None
            try:
                records = self._taken(cursor, count_max)
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
                    iteration = self._iteration
                    self._begun, self._running = {cursor.partition: begun}, cursor
                    yield run
                    self._begun, self._running = {}, None
                    if self._iteration is iteration:  # no other iteration has begun
                        self._iteration = None
                    cursor.end_run()
                    seen = seen or cursor.offset != before

    def _run(self, cursor: Cursor, count_max: int) -> Iterator[AnyRecord] | None:
        if self._transform.needed:
            return None if (iteration := self._hand_out(cursor, count_max)) is None else iteration.iterator
        try:
            return cursor.run(count_max)
        except Exception:
            self._fetcher.begin_with(cursor)
            raise

    def hand_out(self, count_max: int) -> ListIteration | None:
        """A list of one partition, whose records count as read one by one as its iterator returns them; None without records."""
        self.take_back()
        self.mark_processed()
        for cursor in self._fetcher.round():
            if (iteration := self._hand_out(cursor, count_max)) is not None:
                self._begun, self._running = {cursor.partition: iteration.before}, cursor
                return iteration
        return None

    def _hand_out(self, cursor: Cursor, count_max: int) -> ListIteration | None:
        before = cursor.position()
        try:
            records = self._taken(cursor, count_max)
        except Exception:
            self._fetcher.begin_with(cursor)
            raise
        if not records:
            return None
        self._iteration = ListIteration(cursor, before, records, iter(records))
        return self._iteration

    def _transformed(self, cursor: Cursor, count_max: int) -> list[AnyRecord]:
        """The next records of one partition, deserialized and intercepted; the cursor is behind them."""
        before = cursor.position()
        taken = cursor.take(count_max)
        if not taken:
            return []
        try:
            done = self._transform.deserialize(taken)
            if len(done) < len(taken):  # the next call begins with the one that cannot be deserialized
                cursor.seek(taken[len(done)].offset, taken[len(done) - 1].leader_epoch, earned=True)
            return self._transform.intercept(done)
        except Exception:
            cursor.seek(taken[0].offset, before.leader_epoch, earned=True)
            raise

    def mark_processed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        """The application has processed all returned records; or it has committed these offsets itself."""
        if offsets is None:
            self._begun, self._running = {}, None
        for partition, begun in list(self._begun.items()):
            if offsets is not None and partition in offsets and offsets[partition].offset > begun.offset:
                self._begun[partition] = offsets[partition]

    def processed_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions before the records that the application may be processing: the last lists, or the last record."""
        positions = self.positions()
        for partition, begun in self._begun.items():
            at = positions.get(partition)
            if at is not None and at.offset > begun.offset:
                last = None if self._running is None else self._last(self._running, at)
                positions[partition] = begun if last is None or last.offset < begun.offset else last
        return positions

    def _last(self, cursor: Cursor, at: OffsetAndMetadata) -> OffsetAndMetadata:
        """The position of the last record seen in a run, whose cursor is at ``at`` by now."""
        if self._iteration is not None and self._iteration.cursor is cursor:
            return self._iteration.last()
        with contextlib.suppress(LogdbError):
            return OffsetAndMetadata(at.offset - 1, cursor.log.epoch_at(at.offset - 2))
        return OffsetAndMetadata(at.offset - 1)

    def take_back(self) -> None:
        """Read again the records that were returned and not seen."""
        if self._iteration is not None:
            self._iteration.take_back()
            self._iteration = None

    def position(self, cursor: Cursor) -> OffsetAndMetadata:
        """The position behind the last record seen."""
        iteration = self._iteration
        return iteration.position() if iteration is not None and iteration.cursor is cursor else cursor.position()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions that have one."""
        positions = self._fetcher.positions()
        if self._iteration is not None:
            positions[self._iteration.cursor.partition] = self._iteration.position()
        return positions
