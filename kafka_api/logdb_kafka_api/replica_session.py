"""What a follower's connection fetches (KIP-227): a request names only the partitions that have changed, an answer those with news.

    named ──► followed ──► due: there may be a record, or the leadership is over ──► read: in the answer
                 │                                                                     └──► an error: it is in the session no more
                 └──► moved: its high watermark, or log start, is higher than the follower knows ──► in the next answer

A session belongs to one connection, on which a follower has one request at a time.  So an answer that is lost ends the session with its
connection, and the next request on a connection confirms the answer before it: what it does not name again is as the answer said.
A partition whose answer had records has to be named again; otherwise they are sent once more.

Threading: the event loop of the door.  Logs call ``FollowedPartition.set`` from any thread, under their locks.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from logdb.errors import LogdbError, without_frames
from logdb.model import Signal, TopicPartition
from logdb.store.protocols import LastFetch, Leadership, ReplicaReport, Replication

NOT_KNOWN = -1
"""The high watermark of a follower that wants to hear of the partition in each answer."""


class Named(NamedTuple):
    """A partition as a request names it."""

    where: TopicPartition
    topic_id: str
    leader_epoch: int
    fetch_offset: int
    max_bytes: int
    flushed_offset: int
    high_watermark: int
    lineage: int
    start_offset: int


class FollowedPartition:
    """One partition of a session.

    | field                | changed by           | to be trusted                                                               |
    |----------------------|----------------------|-----------------------------------------------------------------------------|
    | ``named``            | ``ReplicaSession``   | as the follower has named it last                                           |
    | ``high_watermark``,  | the same             | what the follower knows                                                     |
    | ``start_offset``     |                      |                                                                             |
    | ``is_due``           | the same; a log      | it is among those that are due                                              |
    | ``is_moved``         | the same; a log      | it is among those that have moved                                           |
    """

    __slots__ = ("_session", "high_watermark", "is_due", "is_moved", "leadership", "log", "named", "start_offset")

    def __init__(self, session: "ReplicaSession", named: Named, leadership: Leadership) -> None:
        self._session, self.leadership, self.log = session, leadership, leadership.log
        self.is_due = self.is_moved = False
        self.name(named)

    def name(self, named: Named) -> None:
        """Take what the follower says; of a log start that it does not say it knows the lowest."""
        self.named, self.high_watermark, self.start_offset = named, named.high_watermark, max(named.start_offset, 0)

    def set(self) -> None:
        """The log has moved, is closed, or the leadership is over."""
        if not self.is_due and self._has_more():
            self._session.becomes_due(self)
        if self.log.high_watermark > self.high_watermark:
            self._session.has_risen(self)
        elif self.log.start_offset > self.start_offset:
            self._session.becomes_moved(self)

    def _has_more(self) -> bool:
        return self.log.end_offset > self.named.fetch_offset or self.leadership.is_over or self.log.closed or self.log.follows


class ReplicaSession:
    """One session.

    | field              | changed by             | to be trusted                                                                     |
    |--------------------|------------------------|-----------------------------------------------------------------------------------|
    | ``epoch``          | ``goes_on``            | of the last request; the next one has the next number                             |
    | ``_partitions``    | requests, answers      | always                                                                            |
    | ``_due``           | logs; ``take``         | an item may have left the session                                                 |
    | ``_moved``         | logs; ``take_moved``   | the same                                                                          |
    | ``_unconfirmed``   | answers, requests      | partitions of which records were sent in the last answer                          |
    | ``change_count``   | logs                   | grows when a partition becomes due, or has moved where there are readers          |
    | ``_has_readers``   | requests               | consumers read at the follower, and are to see each high watermark at once        |
    """

    closed = follows = False  # as those of a log that is waited for

    def __init__(self, node_id: int, broker_epoch: int, replication: Replication) -> None:
        self.node_id, self.broker_epoch, self._replication = node_id, broker_epoch, replication
        self.epoch, self.change_count, self._has_readers = 0, 0, False
        self._last_fetch = LastFetch(replication.now_ms())
        self._partitions: dict[TopicPartition, FollowedPartition] = {}
        self._due, self._moved = deque[FollowedPartition](), deque[FollowedPartition]()
        self._unconfirmed: dict[TopicPartition, FollowedPartition] = {}
        self._watchers: tuple[Signal, ...] = ()

    def __len__(self) -> int:
        return len(self._partitions)

    # ------------------------------------------------------------ requests

    def goes_on(self, epoch: int, node_id: int, broker_epoch: int) -> bool:
        """Whether a request is the next one of this session, which it then confirms."""
        if (epoch, node_id, broker_epoch) != (self.epoch + 1, self.node_id, self.broker_epoch):
            return False
        self.epoch = epoch
        return True

    def take_request(
        self, named: Iterable[Named], forgotten: Iterable[TopicPartition], *, has_readers: bool = False
    ) -> dict[TopicPartition, LogdbError]:
        """The partitions that a request names and forgets; returns why some cannot be followed."""
        self._last_fetch.at_ms, self._has_readers = self._replication.now_ms(), has_readers
        for where in forgotten:
            self.leave(where)
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        errors: dict[TopicPartition, LogdbError] = {}
        for one in named:
            unconfirmed.pop(one.where, None)
            try:
                self._name(one)
            except LogdbError as error:
                self.leave(one.where)
                errors[one.where] = without_frames(error)
        for partition in unconfirmed.values():
            if self._partitions.get(partition.named.where) is partition:
                self.becomes_due(partition)
        return errors

    def _name(self, one: Named) -> None:
        """Take the report of a partition, and follow it."""
        report = ReplicaReport(
            self.node_id,
            self.broker_epoch,
            one.topic_id,
            one.leader_epoch,
            one.flushed_offset,
            one.lineage,
            self._last_fetch,
            one.start_offset,
        )
        leadership, known = self._replication.reported(*one.where, report), self._partitions.get(one.where)
        if known is not None and known.leadership is leadership:
            known.name(one)
        else:
            self.leave(one.where)
            known = self._partitions[one.where] = FollowedPartition(self, one, leadership)
            known.log.watch(known)
        self.becomes_due(known)  # an offset that is out of range is found by a read
        self.becomes_moved(known)

    def leave(self, where: TopicPartition) -> None:
        """Follow a partition no more."""
        partition = self._partitions.pop(where, None)
        if partition is not None:
            partition.log.unwatch(partition)
            partition.leadership.left_session(self.node_id, self._last_fetch)

    def close(self) -> None:
        """Follow nothing more: the connection is gone, or a new session begins."""
        for where in list(self._partitions):
            self.leave(where)

    # ------------------------------------------------------------ logs

    def becomes_due(self, partition: FollowedPartition) -> None:
        """A read may find something; from any thread."""
        partition.is_due = True
        self._due.append(partition)
        self._wake()

    def becomes_moved(self, partition: FollowedPartition) -> None:
        """The follower may have to be told of the high watermark; from any thread."""
        if not partition.is_moved:
            partition.is_moved = True
            self._moved.append(partition)

    def has_risen(self, partition: FollowedPartition) -> None:
        """The high watermark is higher than the follower knows; from any thread."""
        self.becomes_moved(partition)
        if self._has_readers:
            self._wake()

    def _wake(self) -> None:
        self.change_count += 1  # what two threads count as one is one change more than was seen, too
        for woken in self._watchers:
            woken.set()

    # ------------------------------------------------------------ answers

    def take(self) -> list[FollowedPartition]:
        """The partitions to read now, each once, those first that have waited longest."""
        taken: dict[TopicPartition, FollowedPartition] = {}
        for partition in self._drained(self._due):
            partition.is_due = False  # before the read: what comes behind it makes the partition due again
            taken[partition.named.where] = partition
        return list(taken.values())

    def was_sent(self, where: TopicPartition) -> None:
        """An answer has records of a partition: it becomes due again unless the next request names it."""
        if where in self._partitions:
            self._unconfirmed[where] = self._partitions[where]

    def was_left_out(self, where: TopicPartition) -> None:
        """An answer had no room for a partition: it is read behind the others that are due."""
        if where in self._partitions:
            self.becomes_due(self._partitions[where])

    def take_moved(self) -> list[FollowedPartition]:
        """The partitions whose high watermark the follower is to be told with this answer, each once."""
        told: dict[TopicPartition, FollowedPartition] = {}
        unknown: dict[TopicPartition, FollowedPartition] = {}
        for partition in self._drained(self._moved):
            partition.is_moved = False
            if partition.high_watermark == NOT_KNOWN:
                unknown[partition.named.where] = partition
            if partition.log.high_watermark > partition.high_watermark or partition.log.start_offset > partition.start_offset:
                told[partition.named.where] = partition
        for partition in unknown.values():
            self.becomes_moved(partition)
        return list(told.values())

    def has_moved(self) -> bool:
        """Whether a high watermark has moved that the follower's readers wait for."""
        moved = tuple(self._moved) if self._has_readers else ()
        return any(NOT_KNOWN != one.high_watermark < one.log.high_watermark for one in moved)

    def was_told(self, where: TopicPartition, high_watermark: int, start_offset: int) -> None:
        """An answer has these offsets; those that the follower cannot take yet it names again."""
        partition = self._partitions.get(where)
        if partition is None:
            return
        partition.start_offset = max(partition.start_offset, start_offset)
        if partition.high_watermark != NOT_KNOWN:
            partition.high_watermark = max(partition.high_watermark, high_watermark)

    def _drained(self, waiting: deque[FollowedPartition]) -> Iterator[FollowedPartition]:
        """Those of a queue that are still in the session."""
        for _ in range(len(waiting)):
            partition = waiting.popleft()
            if self._partitions.get(partition.named.where) is partition:
                yield partition

    # ------------------------------------------------------------ waits: as a log that grows by one with each change

    def watch(self, woken: Signal) -> None:
        self._watchers = (*self._watchers, woken)

    def unwatch(self, woken: Signal) -> None:
        self._watchers = tuple(one for one in self._watchers if one is not woken)
