"""A fetch: whole record batches of some partitions, once there are ``min_bytes`` of them or ``wait_ms`` are over.

A fetch that finds too little waits without a thread for more (``RequestResources.wait``) and reads on where it stopped.  Reads are made in
threads, but for those at the end of logs: what they find is in the page cache, and a thread would take longer than they do.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from logdb.errors import LogdbError
from logdb.log.isolation import IsolationLevel
from logdb.model import Buffer, TopicPartition
from logdb.requests.session import PartitionLog, Session
from logdb.serving.resources import DoorResources, RequestResources

FETCH_BYTES = 1 << 20
_READ_ON_LOOP_BYTES_MAX = 64 << 10
_KEPT_BYTES_MIN = 64 << 10  # a smaller part is copied: it does not keep a large read buffer while it is sent


class Wanted(NamedTuple):
    """A partition, and what of it to read.

    ``max_bytes`` is a soft limit: one batch is returned even if it is larger.  ``leader_epoch``: of the record before ``offset``, as the
    reader saw it; None: not checked.
    """

    topic: str
    partition: int
    offset: int
    max_bytes: int = FETCH_BYTES
    leader_epoch: int | None = None


class PartitionRead:
    """What was read of one partition so far.

    field         meaning                                                    to be trusted
    next_offset   where reading goes on                                      always
    parts         whole batches, each buffer the reader's own or a view      always
    size_bytes    the bytes of ``parts``                                     always
    marks         ends of the log by name, as of the last read               once read without an error
    error         why the last read failed; nothing is read after it         always

    Threading: one thread at a time.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.wanted, self.where = wanted, TopicPartition(wanted.topic, wanted.partition)
        self.next_offset, self.size_bytes = wanted.offset, 0
        self.parts: list[Buffer] = []
        self.marks: dict[str, int] = {}
        self.error: LogdbError | None = None

    def read(self, session: Session, room_bytes: int, isolation_level: IsolationLevel) -> None:
        """Read on from where the last read ended; an error is kept in ``error``."""
        wanted = self.wanted
        try:
            log = session.log(*self.where)
            if wanted.leader_epoch is not None and not self.marks:
                log.read(wanted.offset, leader_epoch=wanted.leader_epoch)
            begin, room_bytes = self.next_offset, min(room_bytes, wanted.max_bytes - self.size_bytes)
            readable = log.readable_end_offset(isolation_level)
            if room_bytes > 0:
                view, self.next_offset = log.read_batches(begin, room_bytes, isolation_level=isolation_level)
                for part in self.selected(log, view, begin, isolation_level):
                    self._keep(part)
            self.marks = {
                "next_offset": self.next_offset,
                "start_offset": log.start_offset,
                "end_offset": log.end_offset,
                "readable_end_offset": max(readable, self.next_offset),
                "last_stable_offset": log.last_stable_offset,
                "leader_epoch": log.epoch_at(max(self.next_offset - 1, 0)),
            }
        except LogdbError as error:
            self.error = error

    def selected(self, log: PartitionLog, view: memoryview, begin: int, isolation_level: IsolationLevel) -> Iterable[memoryview]:  # noqa: ARG002
        """The parts of ``view``, which begins at the offset ``begin``, that the client is sent; all, unless a subclass leaves some out."""
        return (view,)

    def _keep(self, part: memoryview) -> None:
        self.size_bytes += len(part)
        if len(part) >= _KEPT_BYTES_MIN:
            self.parts.append(part)
        elif self.parts and isinstance(self.parts[-1], bytearray):
            self.parts[-1] += part
        elif part:
            self.parts.append(bytearray(part))

    @property
    def has_left_out(self) -> bool:
        """Whether all that was read was left out: the client is to learn where to go on."""
        return self.next_offset > self.wanted.offset and not self.size_bytes


ReadT = TypeVar("ReadT", bound=PartitionRead)


async def fetch(
    request: RequestResources, reads: Sequence[ReadT], *, max_bytes: int, min_bytes: int, wait_ms: int, isolation_level: IsolationLevel
) -> None:
    """Read partitions in order until there are ``min_bytes`` over all, one fails, or the time is over.

    The memory of what was read is taken for the request.

    Args:
        max_bytes: Over all partitions; a soft limit, and at most half of the door's memory.

    Raises:
        NoRoom: There is no memory.
        AuthenticationFailed: The credential of the client is no longer valid.
        UnknownTopic, UnknownPartition, Closed: A partition went while the fetch waited for it.
    """
    loop, door = asyncio.get_running_loop(), request.door
    until = loop.time() + min(wait_ms, door.limits.wait_ms_max) / 1000
    room_bytes = min(max_bytes, door.memory.total // 2)
    at_once = _are_at_end(door, reads)
    while True:
        step_bytes = min(room_bytes, _READ_ON_LOOP_BYTES_MAX) if at_once else room_bytes
        await request.keep_memory(max(step_bytes, held_bytes(part for read in reads for part in read.parts)))
        if at_once:
            _read_all(request.session, reads, step_bytes, isolation_level)
        else:
            await request.call(_read_all, request.session, reads, step_bytes, isolation_level)
        await request.keep_memory(held_bytes(part for read in reads for part in read.parts))
        left_ms = round((until - loop.time()) * 1000)
        is_enough = sum(read.size_bytes for read in reads) >= min(min_bytes, room_bytes)
        if is_enough or left_ms <= 0 or door.draining or any(read.error or read.has_left_out for read in reads):
            return
        at_once = _are_at_end(door, reads)
        await request.wait({read.where: read.next_offset for read in reads}, left_ms, isolation_level=isolation_level)


def _are_at_end(door: DoorResources, reads: Iterable[PartitionRead]) -> bool:
    """Whether all have read what there is: then the next read, now or after a wait, finds nothing, or what was appended a moment ago."""
    return all(door.is_at_end(read.where, read.next_offset) for read in reads)


def _read_all(session: Session, reads: Iterable[PartitionRead], room_bytes: int, isolation_level: IsolationLevel) -> None:
    left_bytes = room_bytes - sum(read.size_bytes for read in reads)
    for read in reads:
        before_bytes = read.size_bytes
        read.read(session, left_bytes, isolation_level)
        left_bytes -= read.size_bytes - before_bytes


def held_bytes(parts: Iterable[Buffer]) -> int:
    """How much memory is held by views of it."""
    bases: list[Any] = [part.obj if isinstance(part, memoryview) else part for part in parts]
    return sum({id(base): len(base) for base in bases}.values())
