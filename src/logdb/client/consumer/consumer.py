"""The consumer: records of some partitions, and how far they were read.

This module has the application's calls, and the order of the steps within a poll.  Beside it: ``fetching`` reads records,
``fetch_collector`` prepares them for the application, ``start_positions`` decides where reading begins, ``subscription`` finds the
topics, ``membership`` takes part in the group.

Threading: one thread at a time.  It has no thread of its own: all its work is done in ``poll`` and in iteration.
"""

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from types import TracebackType
from typing import Any, Self, TypeVar

from logdb.client.consumer import assignors
from logdb.client.consumer.assignment import Assignment, Listener, Listeners
from logdb.client.consumer.commits import Commits, OnCommit
from logdb.client.consumer.config import ConsumerConfig
from logdb.client.consumer.fetch_collector import FetchCollector, ListIteration, RecordTransform
from logdb.client.consumer.fetching import NOWHERE, Cursor, Fetcher
from logdb.client.consumer.membership import GroupMetadata, Membership
from logdb.client.consumer.subscription import CheckInterval, Subscription
from logdb.client.records import AnyRecord
from logdb.errors import (
    Closed,
    Forked,
    IllegalGeneration,
    InvalidGroup,
    NotAssigned,
    RebalanceInProgress,
    UnknownMember,
    UnknownTopic,
    UnstableOffsets,
)
from logdb.handles import Handle, refusing
from logdb.mistakes import checked_call, explained, must_be
from logdb.model import Duration, OffsetAndMetadata, Partition, Timestamp, TopicPartition, duration_ms, partition_of
from logdb.requests.session import Session
from logdb.signatures import readable
from logdb.threads import renewed

T = TypeVar("T")

_ITERATION_WAIT_MS = 1_000
_DISK_WAIT_MS = 10


@readable
class Consumer(Handle):
    """Reads partitions of topics, alone or as a member of a group.  Made by ``Database.consumer``; a context manager that closes itself.

    Either ``subscribe`` or ``assign`` says which partitions.  Then ``poll``, or iterate:

        for record in consumer:
            ...
            consumer.commit()  # what was iterated over so far, this record included

    One thread at a time uses it.  Heartbeats, rebalances and automatic commits happen in ``poll`` and in iteration, in that thread.
    """

    def __new__(cls, *args: Any, **_options: Any) -> Self:
        if not (args and hasattr(args[0], "partition_count")):
            raise TypeError("a Consumer is made by: db.consumer('TOPIC', …), with db = logdb.open(PATH or URL)")
        return super().__new__(cls)

    def __init__(self, session: Session, config: ConsumerConfig, monotonic_ms: Callable[[], int]) -> None:
        self._session, self._config, self._monotonic_ms = session, config, monotonic_ms
        self._assignors = assignors.chosen(config.partition_assignment_strategy)
        self._fetcher = Fetcher()
        self._collector = FetchCollector(
            self._fetcher,
            RecordTransform(config.key_deserializer, config.value_deserializer, config.interceptors),
            remembering=config.enable_auto_commit,
        )
        interval_ms = duration_ms(config.auto_commit_interval_ms) if config.enable_auto_commit else None
        self._commits = Commits(session, self._group_metadata, interval_ms, monotonic_ms)
        self._assignment = Assignment(session, config, self._fetcher, self._collector, self._commits)
        self._membership: Membership | None = None
        self._tend_at_ms: int | None = None  # None: at the next call
        self._heartbeat_ms = monotonic_ms()  # of the last one that the group may have seen
        self._max_poll_interval_ms = duration_ms(config.max_poll_interval_ms)
        most_ms = min(session.look_interval_ms_max, max(1, self._max_poll_interval_ms // 3))  # a check is the heartbeat, too
        self._check_interval = CheckInterval(duration_ms(config.heartbeat_interval_ms), most_ms)
        self._told: Mapping[TopicPartition, int] = {}  # positions at which the last wait saw a record
        self._owner, self._closed = os.getpid(), False
        self._polling = renewed(threading.RLock())  # reentrant: a listener may poll in the same thread

    def __repr__(self) -> str:
        partitions = ", ".join(map(str, self._fetcher.cursors)) or "nothing"
        group = f" group={self._config.group_id}" if self._config.group_id else ""
        return f"<Consumer of {partitions}{group}>"

    def _repr_html_(self) -> str:
        """For notebooks: the partitions, and the positions in them."""
        from logdb import notebook  # few programs need it

        positions = self._collector.positions()
        rows = [(*at, positions[at].offset if at in positions else None) for at in self._fetcher.cursors]
        return notebook.html_table(repr(self), ("topic", "partition", "next offset"), rows)

    # ------------------------------------------------------------ which partitions

    def subscribe(
        self,
        *topics: str,
        pattern: "str | re.Pattern[str] | None" = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics, instead of the former ones; partitions that are added to them later, too.

        In a group, ``poll`` joins it and takes part in its rebalances.

        Args:
            topics: Names.
            pattern: Instead of names a regular expression: all topics, present and future, whose whole name matches.
            on_assigned: Called by ``poll`` with the list of new partitions.
            on_revoked: Called with the partitions to give up: it may still commit.
            on_lost: Called with partitions that another member already has: too late to commit.  None: ``on_revoked`` is called.
                All three are for members of a group.

        Raises:
            UnknownTopic: One of the topics is missing.
            ReadOnly: The database was opened with ``mode="r"``; members of a group need ``mode="a"``.
            ValueError: Names and ``pattern`` are both given, or both missing; or ``pattern`` is an invalid regular expression.
            TypeError: A topic is something else than a str, as in ``subscribe(["a", "b"])``; use ``subscribe("a", "b")``.
        """
        self._check_open()
        if self._config.group_id is not None:
            self._session.check_open(writable=True)
        subscription, assignment = Subscription(self._session, topics, pattern), self._assignment
        if assignment.subscription is None:
            assignment.set([])  # partitions of an earlier ``assign`` are dropped
        assignment.subscription, assignment.listeners = subscription, Listeners(on_assigned, on_revoked, on_lost)
        self._tend_at_ms = None
        if self._config.group_id is None:
            assignment.set(subscription.partitions())
        elif self._membership is None:
            self._membership = Membership(
                self._session,
                assignment,
                group_id=self._config.group_id,
                group_instance_id=self._config.group_instance_id,
                client_id=self._config.client_id,
                assignors=self._assignors,
                timeout_ms=self._max_poll_interval_ms,
            )

    @checked_call
    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, instead of the former ones.  Partitions that stay keep their positions.

        With a ``group_id`` its committed offsets are used, but the consumer is not a member.

        Raises:
            UnknownTopic, UnknownPartition: The assignment is unchanged.
        """
        self._check_open()
        wanted = list(dict.fromkeys(map(partition_of, partitions)))
        for partition in wanted:
            self._session.log(*partition)
        self._leave()
        self._assignment.set(wanted)
        self._tend_at_ms = None

    def unsubscribe(self) -> None:
        """Read no partition any more, and leave the group; a member with a ``group_instance_id`` stays in it, see ``close``."""
        self._check_open()
        self._leave()
        self._assignment.set([])

    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to: with a pattern those that match now; empty after ``assign``."""
        return self._assignment.topics()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return self._assignment.owned()

    def group_metadata(self) -> GroupMetadata:
        """The consumer's identity in its group, which ``send_offsets`` of a transaction checks.

        Raises:
            InvalidGroup: It lacks a ``group_id``.
        """
        self._know_removal()
        return self._group_metadata()

    def _group_metadata(self) -> GroupMetadata:
        if self._config.group_id is None:
            raise InvalidGroup("the consumer has no group_id, so it has no committed offsets")
        metadata = GroupMetadata(self._config.group_id) if self._membership is None else self._membership.metadata
        return metadata._replace(topic_ids=self._fetcher.topic_ids())

    def _know_removal(self) -> None:
        """A call of the application raises an error if the group has removed the consumer: ``poll`` logs no warning."""
        if self._membership is not None:
            self._membership.removal_is_known = True

    def _leave(self) -> None:
        """Leave the group, and drop the subscription."""
        membership, self._assignment.subscription = self._membership, None
        if membership is not None:
            try:
                if owned := self._assignment.owned():
                    self._assignment.give_up(owned)
            finally:
                self._membership = None
                membership.leave()

    # ------------------------------------------------------------ records

    def poll(self, timeout_ms: Duration = 0, max_records: int | None = None) -> dict[TopicPartition, list[AnyRecord]]:
        """The next records of each partition; waits for the first.

        Args:
            timeout_ms: How long to wait, milliseconds or a ``timedelta``.
            max_records: At most so many in total; None: ``max_poll_records``.

        Returns:
            Lists by partition, in the order of offsets; empty if the time is over.

        Raises:
            NoOffset: The committed offset is missing, and ``auto_offset_reset`` is "none".
            OffsetOutOfRange: The position was deleted by retention, and ``auto_offset_reset`` is "none".
            LogTruncated: Records before the position were lost in a crash; ``seek`` to continue.
            SerializationError: The next record cannot be deserialized; to skip it,
                ``consumer.seek((error.topic, error.partition), error.offset + 1)``.
            FencedInstance: Another consumer has taken over the ``group_instance_id``; close this one.
            InconsistentProtocol, InvalidGroup, ReadOnly: The group cannot be joined.
            CorruptionError, ReadFailed, UnknownTopic, Closed: see ``logdb.errors``.
            RuntimeError: Another thread is polling it.
            Exception: A listener or an interceptor raised it.
        """
        if not self._polling.acquire(blocking=False):
            raise RuntimeError(f"{self!r} is polled by another thread: make a consumer for each")
        try:
            return self._poll(duration_ms(timeout_ms), max_records)
        except TypeError as error:
            raise explained(error, Consumer.poll, timeout_ms=timeout_ms, max_records=max_records) from error.__cause__
        finally:
            self._polling.release()

    def _poll(self, timeout_ms: int, max_records: int | None) -> dict[TopicPartition, list[AnyRecord]]:
        count_max = self._config.max_poll_records if max_records is None else max_records
        if count_max < 1:
            raise ValueError(must_be("max_records", max_records, "a whole number, 1 or more"))
        self._collector.take_back()
        self._collector.mark_processed()
        now_ms = self._monotonic_ms()
        deadline_ms = now_ms + timeout_ms
        while True:
            if self._is_due(now_ms):
                self._tend(now_ms)
            try:
                taken = self._collector.take(count_max)
            except (Closed, UnknownTopic):
                self._renew()
                continue
            if taken:
                return taken
            now_ms = self._monotonic_ms()
            if now_ms >= deadline_ms:
                self._tend_at_ms = None
                return {}
            self._wait(deadline_ms - now_ms)
            now_ms = self._monotonic_ms()

    __contains__ = refusing(
        "__contains__", "`in` would read the records of this {}. Use its assignment() for partitions, a for loop for records"
    )

    def __iter__(self) -> Iterator[AnyRecord]:
        """Records one after the other, waiting for more; ends after ``iteration_timeout_ms`` without one, or a ``close``.

        The position is behind the last record that the iterator returned.
        """
        return itertools.chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[AnyRecord]]:
        """Runs of records, from one partition after the other."""
        timeout_ms, now_ms = self._iteration_timeout_ms, self._monotonic_ms()
        idle_since_ms, self._tend_at_ms = now_ms, None
        self._collector.take_back()
        self._collector.mark_processed()
        while not self._closed:
            if self._is_due(now_ms):
                self._tend(now_ms)
            try:
                for run in self._collector.runs(self._config.max_poll_records):
                    yield run
                    now_ms = idle_since_ms = self._monotonic_ms()
                    if self._is_due(now_ms):
                        break
                else:
                    left_ms = _ITERATION_WAIT_MS if timeout_ms is None else idle_since_ms + timeout_ms - self._monotonic_ms()
                    if left_ms <= 0:
                        return
                    self._wait(min(left_ms, _ITERATION_WAIT_MS))
                    now_ms = self._monotonic_ms()
            except (Closed, UnknownTopic):
                self._renew()

    def _renew(self) -> None:
        """A log was deleted: find the topic of that name again, or drop the partition from the assignment.

        Raises:
            UnknownTopic, UnknownPartition, Closed: Neither is possible.
        """
        self._tend(self._monotonic_ms())
        self._assignment.renew()

    # ------------------------------------------------------------ for logdb.aio

    @property
    def _iteration_timeout_ms(self) -> int | None:
        """When iteration ends; None: never."""
        return duration_ms(self._config.iteration_timeout_ms)

    @property
    def _look_interval_ms(self) -> int:
        """The longest time until ``poll`` may have work that ``watch`` does not report."""
        return self._check_interval.interval_ms

    def _hand_out(self) -> ListIteration | None:
        """A list of records of one partition, each of which counts as read when the iterator returns it; None if there are none."""
        now_ms = self._monotonic_ms()
        if self._is_due(now_ms):
            self._tend(now_ms)
        try:
            handed = self._collector.hand_out(self._config.max_poll_records)
        except (Closed, UnknownTopic):
            self._renew()
            handed = None
        if handed is None:
            self._tend_at_ms = None
        return handed

    def _give_back(self, taken: Mapping[TopicPartition, Sequence[AnyRecord]]) -> None:
        """Put back the records of a ``poll`` whose result was lost."""
        for partition, records in taken.items():
            if (cursor := self._fetcher.cursors.get(partition)) is not None:
                cursor.seek(records[0].offset, earned=True)

    def watch(self, grown: threading.Event) -> Callable[[], None]:
        """Have ``grown`` set whenever ``poll`` may have work, until the returned function is called."""
        logs = [cursor.log for cursor in self._fetcher.cursors.values()]
        for log in logs:
            log.watch(grown)
        if self._membership is not None and (answer := self._membership.answer) is not None:
            answer.add_done_callback(lambda _: grown.set())

        def unwatch() -> None:
            for log in logs:
                log.unwatch(grown)

        return unwatch

    # ------------------------------------------------------------ between records

    def _is_due(self, now_ms: int) -> bool:
        return self._tend_at_ms is None or now_ms >= self._tend_at_ms

    def _tend(self, now_ms: int) -> None:
        """The periodic work between records: at ``_tend_at_ms``, and before the first record."""
        self._check_open()
        if os.getpid() != self._owner:
            raise Forked(f"the consumer was made by process {self._owner}, this is its child {os.getpid()}: make another one")
        self._tend_at_ms = None  # after an error the next call tries again
        subscription = self._assignment.subscription
        if subscription is not None and subscription.refresh() and self._membership is None:
            self._assignment.set(subscription.partitions())
        if self._membership is not None:
            self._heartbeat_ms = self._monotonic_ms()
            self._membership.tend({} if subscription is None else subscription.counts)
        self._commits.send_if_due(self._collector.positions)
        try:
            self._assignment.start_positions.initialize(self._fetcher.cursors.values())
        except UnstableOffsets:
            return  # a transaction is ending; partitions with a position can be read meanwhile
        generation = None if self._membership is None else self._membership.metadata.generation
        self._check_interval.checked((generation, None if subscription is None else subscription.counts))
        self._tend_at_ms = now_ms + self._check_interval.interval_ms

    def _wait(self, timeout_ms: int) -> None:
        """Wait for records, or for the other members of the group."""
        if self._assignment.subscription is not None:
            timeout_ms = min(timeout_ms, max(1, self._check_interval.interval_ms))
        if self._membership is not None and (answer := self._membership.answer) is not None:
            futures.wait((answer,), timeout_ms / 1000)
            self._tend_at_ms = None
            return
        awaited = self._fetcher.awaited()
        known = self._fetcher.known()
        if self._told and awaited == self._told:  # the disk accepts no write, so the record cannot be read; or a position is elsewhere
            awaited, known, timeout_ms = {}, {}, min(timeout_ms, _DISK_WAIT_MS)
            self._fetcher.recheck()
        told = self._session.wait(awaited, timeout_ms, isolation_level=self._config.isolation_level, known=known)
        self._told = awaited if told else {}

    # ------------------------------------------------------------ positions

    def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that ``poll`` or iteration returns.

        Raises:
            NotAssigned, NoOffset: see ``logdb.errors``.
        """
        return self._collector.position(self._positioned(partition)).offset

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions that have one, behind the returned records: the offsets that ``commit`` commits."""
        return self._collector.positions()

    def seek(self, partition: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Continue from ``offset``; a later read finds out whether the log has it.

        Args:
            offset: A number, or an ``OffsetAndMetadata`` such as ``committed`` returns.  By its ``leader_epoch`` the later read finds out
                whether the log lost the record before the offset.

        Raises:
            NotAssigned: The partition is not assigned to this consumer.
            ValueError: It is negative.
            TypeError: ``partition`` or ``offset`` is of another type.
        """
        at = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if not isinstance(at, OffsetAndMetadata):
            raise TypeError(must_be("offset", offset, "a whole number or an OffsetAndMetadata"))
        if at.offset < 0:
            raise ValueError(must_be("offset", at.offset, "0 or more"))
        self._chosen((partition,))[0].seek(at.offset, at.leader_epoch, earned=at.leader_epoch >= 0)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue from the log start: in these partitions, by default in all."""
        for cursor in self._chosen(partitions):
            cursor.seek(cursor.log.start_offset)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue from the log end: in these partitions, by default in all."""
        for cursor in self._chosen(partitions):
            cursor.seek(cursor.end_offset())

    @checked_call
    def seek_to_timestamp(self, timestamp_ms: Timestamp, *partitions: tuple[str, int]) -> None:
        """Continue from the first record at or after a time, or from the end if all records are older.

        Args:
            timestamp_ms: Milliseconds since 1970, or a ``datetime`` with a time zone.
        """
        for cursor in self._chosen(partitions):
            found = cursor.log.offset_for_timestamp(timestamp_ms)
            cursor.seek(cursor.end_offset() if found is None else found)

    @checked_call
    def offsets_for_times(self, timestamps_ms: Mapping[Partition, Timestamp]) -> dict[TopicPartition, int | None]:
        """The first offset with a record at or after the timestamp, for any partitions; None without one."""
        self._check_open()
        wanted = {partition_of(partition): timestamp_ms for partition, timestamp_ms in timestamps_ms.items()}
        return {partition: self._session.log(*partition).offset_for_timestamp(timestamp_ms) for partition, timestamp_ms in wanted.items()}

    @checked_call
    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The log start offset of each partition; any partitions may be asked for."""
        self._check_open()
        return {partition: self._session.log(*partition).start_offset for partition in map(partition_of, partitions)}

    @checked_call
    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The end of each partition at this consumer's isolation level; any partitions may be asked for."""
        self._check_open()
        level = self._config.isolation_level
        return {partition: self._session.log(*partition).readable_end_offset(level) for partition in map(partition_of, partitions)}

    def lag(self, partition: tuple[str, int]) -> int:
        """The number of offsets from the position to the end.

        Raises:
            NotAssigned, NoOffset: see ``logdb.errors``.
        """
        cursor = self._positioned(partition)
        return max(0, cursor.end_offset() - self._collector.position(cursor).offset)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Withhold the records of these (or all) partitions until ``resume``; assignment and positions stay."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Undo ``pause``."""
        self._set_paused(partitions, False)

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        return sorted(cursor.partition for cursor in self._fetcher.cursors.values() if cursor.paused)

    def _set_paused(self, partitions: tuple[tuple[str, int], ...], paused: bool) -> None:
        for cursor in self._chosen(partitions):
            self._fetcher.pause(cursor, paused)

    def _cursor(self, partition: tuple[str, int]) -> Cursor:
        self._check_open()
        cursor = self._fetcher.cursors.get(partition_of(partition))
        if cursor is None:
            raise NotAssigned(*partition)
        return cursor

    def _chosen(self, partitions: tuple[tuple[str, int], ...]) -> list[Cursor]:
        """The cursors of these, or all, partitions; an iteration over them ends."""
        self._check_open()
        chosen = [self._cursor(partition) for partition in partitions] if partitions else list(self._fetcher.cursors.values())
        self._collector.take_back()
        return chosen

    def _positioned(self, partition: tuple[str, int]) -> Cursor:
        cursor = self._cursor(partition)
        self._assignment.start_positions.initialize((cursor,))
        return cursor

    # ------------------------------------------------------------ committing

    @checked_call
    def commit(self, offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit, and return when the offsets are durable at the level of ``__consumer_offsets``.

        Args:
            offsets: The next offset to read of each partition; with a note as ``OffsetAndMetadata(offset, metadata="note")``.
            None: behind all returned records.

        Raises:
            NotAssigned: One of the partitions is not assigned to this consumer; nothing was committed.
            UnknownTopic: The topic of one of them was deleted; those of the others were committed.
            UnknownMember, IllegalGeneration, FencedInstance: The consumer was removed or replaced; nothing was committed.
            RebalanceInProgress: The group is assigning partitions; poll, then try again.
            InvalidGroup: The consumer lacks a ``group_id``, or a note is too long.
            ReadOnly: The database was opened with mode="r".
        """
        try:
            self.commit_async(offsets).result()
        except IllegalGeneration as error:
            self._know_removal()
            if self._membership is not None and self._membership.answer is not None:  # the consumer belongs to the new generation, too
                raise RebalanceInProgress(error.group_id) from error
            raise
        except UnknownMember as error:
            self._know_removal()
            idle_ms, idle_ms_max = self._monotonic_ms() - self._heartbeat_ms, self._max_poll_interval_ms
            if self._membership is None or idle_ms < idle_ms_max:
                raise
            reason = (
                f"the group removed it because it did not poll within max_poll_interval_ms={idle_ms_max}: its last heartbeat was "
                f"{idle_ms} ms ago. Poll again: it joins again, and records since the last commit come again"
            )
            raise UnknownMember(error.group_id, error.member_id, reason) from error

    @checked_call
    def commit_async(
        self, offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None, on_commit: OnCommit | None = None
    ) -> "futures.Future[None]":
        """Commit without waiting; commits keep their order.

        Args:
            on_commit: Called with the offsets and None or the error, in any thread.

        Raises:
            NotAssigned, InvalidGroup, ReadOnly: as ``commit``; the future has its other errors.
        """
        self._check_open()
        if offsets is None:
            self._collector.mark_processed()
            return self._commits.send(self._collector.positions(), on_commit)
        wanted = {self._cursor(partition).partition: _position(at) for partition, at in offsets.items()}
        self._collector.mark_processed(wanted)
        return self._commits.send(wanted, on_commit)

    def committed(self, partition: tuple[str, int]) -> OffsetAndMetadata | None:
        """The group's committed offset of any partition; None if it has none there.

        Raises:
            InvalidGroup: The consumer lacks a ``group_id``.
        """
        self._check_open()
        self._group_metadata()
        wanted = partition_of(partition)
        return self._assignment.start_positions.committed((wanted,)).get(wanted)

    def seek_to_committed(self) -> None:
        """Go back, in all partitions, to the committed offsets, or where ``auto_offset_reset`` says.

        Call it when a transaction with ``send_offsets`` was aborted: its records will be read again.
        """
        for cursor in self._chosen(()):
            cursor.seek(NOWHERE)
        self._tend_at_ms = None

    # ------------------------------------------------------------ the end

    def close(self, *, commit: bool = True) -> None:
        """Stop reading, and leave the group.  A second call does nothing.

        A member with a ``group_instance_id`` stays in the group, as in Kafka, until ``max_poll_interval_ms`` (5 minutes by default) have
        passed since its last heartbeat.  Meanwhile it keeps its partitions: only a consumer with the same ``group_instance_id`` gets them.

        Args:
            commit: With ``enable_auto_commit``, commit what was read before leaving.
        """
        self._close(self._collector.positions if commit else None)

    def _close(self, positions: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]] | None) -> None:
        """``positions``: returns the offsets of the last automatic commit; None: there is none."""
        if self._closed:
            return
        if os.getpid() != self._owner:  # in a forked child: the parent is the member
            self._closed = True
            return
        self._assignment.to_commit = positions
        try:
            if self._membership is None and positions is not None:
                self._commits.finish(positions())
            self._leave()
        finally:
            self._closed, self._tend_at_ms = True, None
            self._collector.take_back()
            self._fetcher.set({})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close.

        After an exception, also Ctrl-C, the automatic commit excludes records that may be half processed: the record that
        iteration is at, or the result of the last ``poll``.
        """
        self._close(self._collector.positions if error is None else self._collector.processed_positions)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the consumer is closed")


def _position(at: int | OffsetAndMetadata) -> OffsetAndMetadata:
    if not isinstance(at, int | OffsetAndMetadata):
        raise TypeError(f"an offset to commit is a whole number or an OffsetAndMetadata, not {at!r}")
    position = at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
    if position.offset < 0:
        raise ValueError(f"an offset to commit is 0 or more, not {position.offset}")
    return position
