"""The consumer: records of some partitions, and how far they were read.

Knows what an application may ask of it, and in which order things happen within a poll.  Does not know how records are
read (``fetching``), where reading begins (``positions``), which topics a pattern means (``subscription``) or how members
of a group share partitions (``group_membership``).

Threading: one thread at a time.  It has no thread of its own: whatever is to happen happens in ``poll`` and in iteration.
"""

import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from types import TracebackType
from typing import Self, TypeVar

from logdb.client.consumer import assignors
from logdb.client.consumer.assignment import Assignment, Listener, Listeners
from logdb.client.consumer.commits import Commits, OnCommit
from logdb.client.consumer.config import ConsumerConfig
from logdb.client.consumer.feed import Feed, Finishing, Handed
from logdb.client.consumer.fetching import NOWHERE, Cursor, Fetcher
from logdb.client.consumer.membership import GroupMetadata, Membership
from logdb.client.consumer.pace import Pace
from logdb.client.consumer.subscription import Subscription
from logdb.client.records import AnyRecord
from logdb.errors import Closed, Forked, IllegalGeneration, InvalidGroup, NotAssigned, RebalanceInProgress, UnknownTopic, UnstableOffsets
from logdb.mistakes import checked_call, explained
from logdb.model import OffsetAndMetadata, Partition, TopicPartition, partition_of
from logdb.requests.session import Session
from logdb.threads import renewed

T = TypeVar("T")

_ITERATION_WAIT_MS = 1_000
_DISK_WAIT_MS = 10


class Consumer:
    """Reads partitions of topics, alone or as a member of a group.  Made by ``Database.consumer``; a context manager that closes itself.

    Either ``subscribe`` or ``assign`` says which partitions.  Then ``poll``, or iterate:

        for record in consumer:
            ...
            consumer.commit()  # what was iterated over so far, this record included

    One thread at a time uses it.  It has none of its own: heartbeats, rebalances and automatic commits happen in ``poll``
    and in iteration.
    """

    def __init__(self, session: Session, config: ConsumerConfig, monotonic_ms: Callable[[], int]) -> None:
        self._session, self._config, self._monotonic_ms = session, config, monotonic_ms
        self._assignors = assignors.chosen(config.partition_assignment_strategy)
        self._fetcher = Fetcher()
        self._feed = Feed(
            self._fetcher,
            Finishing(config.key_deserializer, config.value_deserializer, config.interceptors),
            remembering=config.enable_auto_commit,
        )
        interval_ms = config.auto_commit_interval_ms if config.enable_auto_commit else None
        self._commits = Commits(session, self.group_metadata, interval_ms, monotonic_ms)
        self._assignment = Assignment(session, config, self._fetcher, self._feed, self._commits)
        self._membership: Membership | None = None
        self._tend_at_ms: int | None = None  # None: in any case
        self._pace = Pace(config.heartbeat_interval_ms, session.look_interval_ms_max)
        self._told: Mapping[TopicPartition, int] = {}  # positions of which a wait said that there is a record at one
        self._owner, self._closed = os.getpid(), False
        self._polling = renewed(threading.RLock())  # of the same thread, a listener may poll

    def __repr__(self) -> str:
        partitions = ", ".join(map(str, self._fetcher.cursors)) or "nothing"
        group = f" group={self._config.group_id}" if self._config.group_id else ""
        return f"<Consumer of {partitions}{group}>"

    # ------------------------------------------------------------ which partitions

    def subscribe(
        self,
        *topics: str,
        pattern: "str | re.Pattern[str] | None" = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics, instead of what was read so far; partitions that are added to them later, too.

        In a group, ``poll`` joins it and takes part in its rebalances.

        Args:
            topics: Names.
            pattern: Instead of names a regular expression: all topics, present and future, whose whole name matches.
            on_assigned: Called by ``poll`` with the list of partitions that came.
            on_revoked: With those that go: it may commit still.
            on_lost: With those that are another member's already: it is too late to commit.  None: ``on_revoked`` is called.
                Without a group none of the three is.

        Raises:
            UnknownTopic: One of the topics does not exist.
            ValueError: Both, or neither, are given; or ``pattern`` is no regular expression.
            TypeError: A topic is not a str (``subscribe("a", "b")``, not ``subscribe(["a", "b"])``).
        """
        self._check_open()
        subscription, assignment = Subscription(self._session, topics, pattern), self._assignment
        if assignment.subscription is None:
            assignment.set([])  # what was assigned by hand is not
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
                timeout_ms=self._config.max_poll_interval_ms,
            )

    @checked_call
    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions, instead of what was read so far.  Positions in partitions that stay are kept.

        With a ``group_id`` its committed offsets are used, but the consumer is no member.

        Raises:
            UnknownTopic, UnknownPartition: Nothing was changed.
        """
        self._check_open()
        wanted = list(dict.fromkeys(map(partition_of, partitions)))
        for partition in wanted:
            self._session.log(*partition)
        self._leave()
        self._assignment.set(wanted)
        self._tend_at_ms = None

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group."""
        self._check_open()
        self._leave()
        self._assignment.set([])

    def subscription(self) -> tuple[str, ...]:
        """The topics subscribed to: those that a pattern means now, none after ``assign``."""
        return self._assignment.topics()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return self._assignment.owned()

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group: what ``send_offsets`` of a transaction is checked by.

        Raises:
            InvalidGroup: It has no ``group_id``.
        """
        if self._config.group_id is None:
            raise InvalidGroup("the consumer has no group_id: there is no group that offsets could be committed for")
        return GroupMetadata(self._config.group_id) if self._membership is None else self._membership.metadata

    def _leave(self) -> None:
        """Be no member, and subscribed to nothing, any more."""
        membership, self._assignment.subscription = self._membership, None
        if membership is not None:
            try:
                if owned := self._assignment.owned():
                    self._assignment.give_up(owned)
            finally:
                self._membership = None
                membership.leave()

    # ------------------------------------------------------------ records

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[AnyRecord]]:
        """The next records of each partition; waits for the first.

        Args:
            timeout_ms: How long to wait.
            max_records: At most so many in all; None: ``max_poll_records``.

        Returns:
            Lists by partition, in the order of offsets; empty if nothing came in time.

        Raises:
            NoOffset: There is no committed offset, and ``auto_offset_reset`` is "none".
            OffsetOutOfRange: The position was deleted by retention, and ``auto_offset_reset`` is "none".
            LogTruncated: Records before the position were lost in a crash; ``seek`` says how to go on.
            SerializationError: The next record cannot be deserialized; to leave it out,
                ``consumer.seek((error.topic, error.partition), error.offset + 1)``.
            FencedInstance: Another consumer has taken over the ``group_instance_id``; this one is to be closed.
            InconsistentProtocol, InvalidGroup, ReadOnly: The group cannot be joined.
            CorruptionError, ReadFailed, UnknownTopic, Closed: as they say.
            RuntimeError: Another thread polls it now.
            whatever a listener or an interceptor raises.
        """
        if not self._polling.acquire(blocking=False):
            raise RuntimeError(f"{self!r} is polled by another thread: make a consumer for each")
        try:
            return self._poll(timeout_ms, max_records)
        except TypeError as error:
            raise explained(error, Consumer.poll, timeout_ms=timeout_ms, max_records=max_records) from error.__cause__
        finally:
            self._polling.release()

    def _poll(self, timeout_ms: int, max_records: int | None) -> dict[TopicPartition, list[AnyRecord]]:
        count_max = self._config.max_poll_records if max_records is None else max_records
        if count_max < 1:
            raise ValueError(f"max_records={max_records}: allowed is a whole number, 1 or more")
        self._feed.take_back()
        self._feed.finish()
        now_ms = self._monotonic_ms()
        deadline_ms = now_ms + timeout_ms
        while True:
            if self._is_due(now_ms):
                self._tend(now_ms)
            try:
                taken = self._feed.take(count_max)
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

    def __iter__(self) -> Iterator[AnyRecord]:
        """Records one after the other, waiting for more; ends after ``iteration_timeout_ms`` without one, or a ``close``.

        The position is behind the record that was looked at last.
        """
        return itertools.chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[AnyRecord]]:
        """Runs of records, from one partition after the other."""
        timeout_ms, now_ms = self._config.iteration_timeout_ms, self._monotonic_ms()
        idle_since_ms, self._tend_at_ms = now_ms, None
        self._feed.take_back()
        self._feed.finish()
        while not self._closed:
            if self._is_due(now_ms):
                self._tend(now_ms)
            try:
                for run in self._feed.runs(self._config.max_poll_records):
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
        """A log is not there any more: find out whether its topic was made anew, or need not be read any more.

        Raises:
            UnknownTopic, UnknownPartition, Closed: Neither.
        """
        self._tend(self._monotonic_ms())
        self._assignment.renew()

    # ------------------------------------------------------------ for logdb.aio

    @property
    def iteration_timeout_ms(self) -> int | None:
        """When iteration ends; None: never."""
        return self._config.iteration_timeout_ms

    @property
    def look_interval_ms(self) -> int:
        """After how long there may be something to do of which ``watch`` does not tell."""
        return self._pace.interval_ms

    def hand_out(self) -> Handed | None:
        """Records of one partition to iterate over, which count as read one by one as they are looked at; None if there are none."""
        now_ms = self._monotonic_ms()
        if self._is_due(now_ms):
            self._tend(now_ms)
        try:
            handed = self._feed.hand_out(self._config.max_poll_records)
        except (Closed, UnknownTopic):
            self._renew()
            handed = None
        if handed is None:
            self._tend_at_ms = None
        return handed

    def give_back(self, taken: Mapping[TopicPartition, Sequence[AnyRecord]]) -> None:
        """Read again what ``poll`` returned to nobody."""
        for partition, records in taken.items():
            if (cursor := self._fetcher.cursors.get(partition)) is not None:
                cursor.seek(records[0].offset, earned=True)

    def watch(self, grown: threading.Event) -> Callable[[], None]:
        """Set ``grown`` whenever there may be something for ``poll`` to do, until the function that is returned is called."""
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
        """What is to be done now and then, between records: at ``_tend_at_ms``, and before the first."""
        self._check_open()
        if os.getpid() != self._owner:
            raise Forked(f"the consumer was made by process {self._owner}, this is its child {os.getpid()}: make another one")
        self._tend_at_ms = None  # what fails is tried again by the next call
        subscription = self._assignment.subscription
        if subscription is not None and subscription.refresh() and self._membership is None:
            self._assignment.set(subscription.partitions())
        if self._membership is not None:
            self._membership.tend()
        self._commits.send_if_due(self._feed.positions)
        try:
            self._assignment.beginnings.settle(self._fetcher.cursors.values())
        except UnstableOffsets:
            return  # a transaction is being ended; what is settled can be read meanwhile
        generation = None if self._membership is None else self._membership.metadata.generation
        self._pace.looked((generation, None if subscription is None else subscription.counts))
        self._tend_at_ms = now_ms + self._pace.interval_ms

    def _wait(self, timeout_ms: int) -> None:
        """Wait for records, or for the other members of the group."""
        if self._assignment.subscription is not None:
            timeout_ms = min(timeout_ms, max(1, self._pace.interval_ms))
        if self._membership is not None and (answer := self._membership.answer) is not None:
            futures.wait((answer,), timeout_ms / 1000)
            self._tend_at_ms = None
            return
        awaited = self._fetcher.awaited()
        if self._told and awaited == self._told:  # of a record that cannot be read yet, because the disk takes nothing
            awaited, timeout_ms = {}, min(timeout_ms, _DISK_WAIT_MS)
        told = self._session.wait(awaited, timeout_ms, isolation_level=self._config.isolation_level)
        self._told = awaited if told else {}

    # ------------------------------------------------------------ positions

    def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that ``poll`` or iteration returns.

        Raises:
            NotAssigned, NoOffset: as they say.
        """
        return self._feed.position(self._settled(partition)).offset

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Behind what was returned so far, for all partitions that have a position: what ``commit`` commits."""
        return self._feed.positions()

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on from ``offset``; whether it is in the log shows when it is read.

        Raises:
            NotAssigned: as it says.
            ValueError: It is negative.
            TypeError: ``partition`` is no pair, or ``offset`` no number.
        """
        if not isinstance(offset, int):
            raise TypeError(f"offset={offset!r}: allowed is a whole number")
        if offset < 0:
            raise ValueError(f"offset={offset} is negative")
        self._chosen((partition,))[0].seek(offset)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on from the first record there is; without arguments in all partitions."""
        for cursor in self._chosen(partitions):
            cursor.seek(cursor.log.start_offset)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on with what is appended from now on; without arguments in all partitions."""
        for cursor in self._chosen(partitions):
            cursor.seek(cursor.end_offset())

    @checked_call
    def seek_to_timestamp(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go on from the first record that is as old as ``timestamp_ms`` (since 1970) or younger, or the end if none is."""
        for cursor in self._chosen(partitions):
            found = cursor.log.offset_for_timestamp(timestamp_ms)
            cursor.seek(cursor.end_offset() if found is None else found)

    @checked_call
    def offsets_for_times(self, timestamps_ms: Mapping[Partition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is as old as the timestamp or younger, for any partitions; None where none is."""
        self._check_open()
        wanted = {partition_of(partition): timestamp_ms for partition, timestamp_ms in timestamps_ms.items()}
        return {partition: self._session.log(*partition).offset_for_timestamp(timestamp_ms) for partition, timestamp_ms in wanted.items()}

    @checked_call
    def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The first offset of each partition, assigned or not."""
        self._check_open()
        return {partition: self._session.log(*partition).start_offset for partition in map(partition_of, partitions)}

    @checked_call
    def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Where each partition ends for this consumer (its isolation level), assigned or not."""
        self._check_open()
        level = self._config.isolation_level
        return {partition: self._session.log(*partition).readable_end_offset(level) for partition in map(partition_of, partitions)}

    def lag(self, partition: tuple[str, int]) -> int:
        """How many offsets the position is behind the end; 0 is none.

        Raises:
            NotAssigned, NoOffset: as they say.
        """
        cursor = self._settled(partition)
        return max(0, cursor.end_offset() - self._feed.position(cursor).offset)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return nothing of these (or all) partitions until ``resume``; they stay assigned, positions stay."""
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
        """The cursors of these, or all, with iteration over them ended."""
        self._check_open()
        chosen = [self._cursor(partition) for partition in partitions] if partitions else list(self._fetcher.cursors.values())
        self._feed.take_back()
        return chosen

    def _settled(self, partition: tuple[str, int]) -> Cursor:
        cursor = self._cursor(partition)
        self._assignment.beginnings.settle((cursor,))
        return cursor

    # ------------------------------------------------------------ committing

    @checked_call
    def commit(self, offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit, and return when that is durable at the level of ``__consumer_offsets``.

        Args:
            offsets: Where to go on in each partition; with a note as ``OffsetAndMetadata(offset, metadata="note")``.
                None: behind everything that was returned so far.

        Raises:
            NotAssigned: One of the partitions is not assigned to this consumer; nothing was committed.
            UnknownTopic: The topic of one of them was deleted meanwhile; those of the others were committed.
            UnknownMember, IllegalGeneration, FencedInstance: It has been replaced since; nothing was committed.
            RebalanceInProgress: The group is sharing its partitions out; poll, then try again.
            InvalidGroup: There is no ``group_id``, or a note is too long.
            ReadOnly: The database was opened with mode="r".
        """
        try:
            self.commit_async(offsets).result()
        except IllegalGeneration as error:
            if self._membership is not None and self._membership.answer is not None:  # the new generation is its own, too
                raise RebalanceInProgress(error.group_id) from error
            raise

    @checked_call
    def commit_async(
        self, offsets: Mapping[Partition, int | OffsetAndMetadata] | None = None, on_commit: OnCommit | None = None
    ) -> "futures.Future[None]":
        """Commit without waiting; later commits overtake none before them.

        Args:
            on_commit: Called with the offsets and None or the error, in any thread.

        Raises:
            NotAssigned, InvalidGroup, ReadOnly: as ``commit``; its other errors are the future's.
        """
        self._check_open()
        if offsets is None:
            self._feed.finish()
            return self._commits.send(self._feed.positions(), on_commit)
        wanted = {self._cursor(partition).partition: _position(at) for partition, at in offsets.items()}
        self._feed.finish(wanted)
        return self._commits.send(wanted, on_commit)

    def committed(self, partition: tuple[str, int]) -> OffsetAndMetadata | None:
        """What the group has committed of a partition, assigned or not; None if nothing.

        Raises:
            InvalidGroup: There is no ``group_id``.
        """
        self._check_open()
        self.group_metadata()
        wanted = partition_of(partition)
        return self._assignment.beginnings.committed((wanted,)).get(wanted)

    def seek_to_committed(self) -> None:
        """Go back, in all partitions, to what was committed last, or to where ``auto_offset_reset`` says.

        What is to be done when a transaction with ``send_offsets`` is aborted: its records will be read again.
        """
        for cursor in self._chosen(()):
            cursor.seek(NOWHERE)
        self._tend_at_ms = None

    # ------------------------------------------------------------ the end

    def close(self, *, commit: bool = True) -> None:
        """Read no more, and leave the group.  Closing twice is no error.

        Args:
            commit: With ``enable_auto_commit``, commit what was read before leaving.
        """
        self._close(self._feed.positions if commit else None)

    def _close(self, positions: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]] | None) -> None:
        """``positions``: what automatic commits commit; None: nothing."""
        if self._closed:
            return
        if os.getpid() != self._owner:  # a forked child: the member is the parent's
            self._closed = True
            return
        self._assignment.to_commit = positions
        try:
            if self._membership is None and positions is not None:
                self._commits.finish(positions())
            self._leave()
        finally:
            self._closed, self._tend_at_ms = True, None
            self._feed.take_back()
            self._fetcher.set({})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close.  After an exception, also Ctrl-C, an automatic commit leaves out what may be half processed: the record that
        iteration is at, or what the last ``poll`` returned.
        """
        self._close(self._feed.positions if error is None else self._feed.finished)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the consumer is closed")


def _position(at: int | OffsetAndMetadata) -> OffsetAndMetadata:
    if isinstance(at, OffsetAndMetadata):
        return at
    if not isinstance(at, int):
        raise TypeError(f"an offset to commit is a whole number or an OffsetAndMetadata, not {at!r}")
    return OffsetAndMetadata(at)
