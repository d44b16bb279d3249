"""A fetch: whole record batches of some partitions, once there are ``min_bytes`` of them or ``wait_ms`` are over.

A fetch that finds too little waits without a thread for more (``RequestResources.wait``) and reads on where it stopped.  Reads are made in
threads, but for those at the end of few logs: what they find is in the page cache, and a thread would take longer than they do.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from logdb.errors import (
    Closed,
    LogdbError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicDeleted,
    UnknownPartition,
    UnknownTopic,
    without_frames,
)
from logdb.log.isolation import IsolationLevel, without_aborted
from logdb.log.view import Ends, Page
from logdb.model import Buffer, KnownLog, TopicPartition
from logdb.serving.resources import ON_LOOP_COUNT_MAX, DoorResources, RequestResources

if TYPE_CHECKING:
    from logdb.access.log import AuthorizedLog
    from logdb.access.session import AuthorizedSession

FETCH_BYTES = 1 << 20
_READ_ON_LOOP_BYTES_MAX, _REPLICATED_ON_LOOP_BYTES_MAX = 64 << 10, 256 << 10
_READ_BYTES, _OF_MEMORY = 1 << 10, 8  # what a partition takes while it is waited for; many take a part of all memory at most
_KEPT_BYTES_MIN = 64 << 10  # a smaller part is copied: it does not keep a large read buffer while it is sent


class Wanted(NamedTuple):
    """A partition, and what of it to read.

    ``leader_epoch``: of the record before ``offset``, as the reader saw it; None: not checked.
    ``topic_id``: of the topic that the reader reads; "": not checked before the first read.
    """

    topic: str
    partition: int
    offset: int
    max_bytes: int = FETCH_BYTES
    leader_epoch: int | None = None
    topic_id: str = ""


class PartitionRead:
    """What was read of one partition so far.

    field         meaning                                                    to be trusted
    topic_id      of the topic that is read                                  once read without an error
    next_offset   where reading goes on                                      always
    parts         whole batches, each buffer the reader's own or a view      always
    size_bytes    the bytes of ``parts``                                     always
    held_bytes    of the buffers that are kept for them                      always
    is_full       the next batch would exceed the bounds                     until the fetch ends
    marks         ends of the log by name, as of the last read               once read without an error
    error         why the last read failed; nothing is read after it         always

    A door overrides ``check``, ``selected`` or ``marks_of`` where its protocol differs.  Threading: one thread at a time.

    Attributes:
        at_followers: A replica of this node that follows in sync may be read, too.
    """

    at_followers = False

    def __init__(self, wanted: Wanted) -> None:
        self.wanted, self.where = wanted, TopicPartition(wanted.topic, wanted.partition)
        self.topic_id, self.next_offset, self.is_full = wanted.topic_id, wanted.offset, False
        self.size_bytes = self.held_bytes = 0
        self.parts: list[Buffer] = []
        self.marks: dict[str, int] = {}
        self.error: LogdbError | None = None

    def read(self, session: "AuthorizedSession", room_bytes: int, isolation_level: IsolationLevel, *, at_least_one: bool = True) -> None:
        """Read on from where the last read ended; an error is kept in ``error``.

        Args:
            at_least_one: Take the first batch even if it is larger than the bounds.
        """
        if self.error is not None:
            return
        try:
            log = session.log_to_read(*self.where, at_followers=self.at_followers)
            topic_id, committed = log.topic_id, isolation_level == "read_committed"
            self._meet(topic_id)
            if self.wanted.leader_epoch is not None and not self.marks:
                self.check(log, self.wanted.leader_epoch)
            room_bytes = min(room_bytes, self.wanted.max_bytes - self.size_bytes)
            if at_least_one or room_bytes > 0:
                page = log.page(self.next_offset, max(1, room_bytes), committed=committed)
                ends = page.ends
                if not topic_id:  # of a log that another node leads it is known now
                    self._meet(log.topic_id)
                if session.replication is not None and page.next_offset == self.next_offset:
                    log.check_end_known()
                    ends = ends._replace(promised_offset=self.next_offset)  # it has become known since
                if at_least_one or len(page.batches) <= room_bytes:
                    self.next_offset = page.next_offset
                    self._keep(self.selected(page))
                else:
                    self.is_full = True
            else:
                ends = log.ends(committed=committed)
            self.marks = self.marks_of(log, ends)
        except OffsetOutOfRange as error:
            self.error = without_frames(session.located(self._reason(session, error)))
        except LogdbError as error:
            self.error = without_frames(session.located(error))

    def _reason(self, session: "AuthorizedSession", error: LogdbError) -> LogdbError:
        """Why a read failed at its position: the topic may have been created again between two looks at the log."""
        try:
            self._meet(session.log(*self.where).topic_id)
        except LogdbError as reason:
            return reason
        return error

    def _meet(self, topic_id: str) -> None:
        """Raise TopicDeleted if another topic was read before; ``topic_id``: "" is not known."""
        if topic_id not in {"", self.topic_id}:
            if self.topic_id:
                raise TopicDeleted(self.wanted.topic, self.topic_id, topic_id)
            self.topic_id = topic_id

    def check(self, log: "AuthorizedLog", leader_epoch: int) -> None:
        """Raise if the reader's position is not of this log; before the first read."""
        log.read(self.wanted.offset, leader_epoch=leader_epoch)

    def selected(self, page: Page) -> Iterable[memoryview]:
        """The parts that the client is sent of what was read."""
        return (page.batches,)

    def marks_of(self, log: "AuthorizedLog", ends: Ends) -> dict[str, int]:
        """The ends of the log that the answer names; ``ends``: of the view that was read."""
        return {
            "next_offset": self.next_offset,
            "start_offset": ends.start_offset,
            "end_offset": log.end_offset,
            "readable_end_offset": max(ends.promised_offset, self.next_offset),
            "last_stable_offset": ends.last_stable_offset,
            "leader_epoch": log.epoch_at(max(self.next_offset - 1, 0)),
        }

    def _keep(self, parts: Iterable[memoryview]) -> None:
        """Keep parts of one buffer: large ones as they are, with all of the buffer, small ones as copies."""
        kept_bytes = 0
        for part in parts:
            self.size_bytes += len(part)
            if len(part) >= _KEPT_BYTES_MIN:
                self.parts.append(part)
                base: Any = part.obj
                kept_bytes = len(base)
                continue
            self.held_bytes += len(part)
            if self.parts and isinstance(self.parts[-1], bytearray):
                self.parts[-1] += part
            elif part:
                self.parts.append(bytearray(part))
        self.held_bytes += kept_bytes

    def is_cached(self, door: DoorResources) -> bool:
        """Whether the next read finds nothing, or what is in the page cache, and waits for no append."""
        return door.is_at_end(self.where, self.next_offset)

    @property
    def is_over(self) -> bool:
        """Whether to wait for more makes no sense: an error, no room, or all was left out, so that the client learns where to go on."""
        return self.error is not None or self.is_full or (self.next_offset > self.wanted.offset and not self.size_bytes)


class UnabortedRead(PartitionRead):
    """As ``PartitionRead``; at ``read_committed`` without the batches of aborted transactions."""

    def selected(self, page: Page) -> Iterable[memoryview]:
        return without_aborted((page.batches,), page.aborted) if page.aborted else (page.batches,)


async def fetch(
    request: RequestResources,
    reads: Sequence[PartitionRead],
    *,
    max_bytes: int,
    min_bytes: int,
    wait_ms: int,
    isolation_level: IsolationLevel,
    replica: bool = False,
) -> None:
    """Read partitions in order until there are ``min_bytes`` over all, one fails, or the time is over.

    The memory of what was read is taken for the request, and that of very many partitions.

    Args:
        max_bytes: Over all partitions, and at most half of the door's memory; the first batch is returned even if it is larger (KIP-74).
        replica: The reader is a follower: it waits for what is written.

    Raises:
        NoRoom: There is no memory.
        AuthenticationFailed: The credential of the client is no longer valid.
        TopicDeleted, UnknownTopic, UnknownPartition, NotLeaderOrFollower: A partition of a ``replica`` went during the wait.
    """
    loop, door = asyncio.get_running_loop(), request.door
    until, size_bytes, read_bytes = loop.time() + min(wait_ms, door.limits.wait_ms_max) / 1000, 0, 0
    room_bytes = min(max_bytes, door.memory.total // 2)
    own_bytes = min(_READ_BYTES * len(reads), door.memory.total // _OF_MEMORY) if len(reads) > ON_LOOP_COUNT_MAX else 0
    on_loop, due = _is_on_loop(door, reads), reads
    while True:
        step_bytes = min(room_bytes, _REPLICATED_ON_LOOP_BYTES_MAX if replica else _READ_ON_LOOP_BYTES_MAX) if on_loop else room_bytes
        await request.keep_memory(own_bytes + max(step_bytes, read_bytes))
        if on_loop:
            more_bytes, held_bytes = _read_all(request, due, size_bytes, step_bytes, isolation_level)
        else:
            more_bytes, held_bytes = await request.call(_read_all, request, due, size_bytes, step_bytes, isolation_level)
        size_bytes, read_bytes = size_bytes + more_bytes, read_bytes + held_bytes
        await request.keep_memory(own_bytes + read_bytes)
        left_ms = round((until - loop.time()) * 1000)
        is_enough = size_bytes >= min(min_bytes, room_bytes)
        if is_enough or left_ms <= 0 or door.draining or any(read.is_over for read in reads):
            return
        on_loop = _is_on_loop(door, reads)
        positions = {read.where: read.next_offset for read in reads}
        known = {read.where: KnownLog(read.topic_id) for read in reads if read.topic_id}
        try:
            if not await request.wait(
                positions, left_ms, isolation_level=isolation_level, replica=replica, at_followers=reads[0].at_followers, known=known
            ):
                return
        except (UnknownTopic, UnknownPartition, NotLeaderOrFollower, Closed):
            if replica:
                raise
            on_loop, due = False, reads  # the next read of the one that went says so
        else:
            due = [read for read in reads if not door.is_at_end(read.where, read.next_offset)]  # of many, few have grown


def _is_on_loop(door: DoorResources, reads: Sequence[PartitionRead]) -> bool:
    """Whether the next read, now or after a wait, may be made on the loop.

    There are few, and each finds nothing, or what was appended a moment ago.
    """
    return len(reads) <= ON_LOOP_COUNT_MAX and all(read.is_cached(door) for read in reads)


def _read_all(
    request: RequestResources, reads: Sequence[PartitionRead], size_bytes: int, room_bytes: int, isolation_level: IsolationLevel
) -> tuple[int, int]:
    """Read some partitions of a fetch, which has ``size_bytes`` already; returns how many bytes came, and how many they hold."""
    more_bytes = held_bytes = 0
    for read in reads:
        request.door.access.refresh()  # each may wait for the disk: what was revoked meanwhile is read no more
        before_bytes, held_before_bytes = read.size_bytes, read.held_bytes
        read.read(request.session, room_bytes - size_bytes - more_bytes, isolation_level, at_least_one=not size_bytes + more_bytes)
        more_bytes += read.size_bytes - before_bytes
        held_bytes += read.held_bytes - held_before_bytes
    return more_bytes, held_bytes
