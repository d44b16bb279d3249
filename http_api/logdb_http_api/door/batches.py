"""Record batches as they lie: ``application/vnd.logdb.batches``, in and out.

Knows the routes and their headers.  Does not look into a batch: the log checks what comes in, and what goes out.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from logdb.errors import LogdbError
from logdb.log.isolation import IsolationLevel, without_aborted
from logdb.model import Buffer, Durability, TopicPartition
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body, Number, Parameter
from logdb_http_api.door.sending import Parts

if TYPE_CHECKING:
    from logdb.requests.session import PartitionLog, Session

BATCHES = "application/vnd.logdb.batches"
FETCH_BYTES, FETCH_BYTES_MAX = 1 << 20, 64 << 20
_KEPT_BYTES_MIN = 64 << 10  # what is less does not keep a large read buffer while it is sent

routes = Routes()

_DURABILITY = Parameter("durability", Durability, "What to wait for; without it, the topic's.")
_APPENDING = (
    _DURABILITY,
    Parameter("expected_offset", Number(0), "Where the log has to end, or nothing is appended."),
    Parameter("transactional_id", str, "Of the producer, where the batches are transactional."),
)
_READING = (
    Parameter("offset", Number(0), "Where to begin."),
    Parameter("max_bytes", Number(1, FETCH_BYTES_MAX), "How much to answer, about."),
    Parameter("min_bytes", Number(0), "How much to wait for."),
    Parameter("wait_ms", Number(0), "How long to wait for it."),
    Parameter("leader_epoch", Number(0, 2**31 - 1), "Of the record before the offset, as the reader saw it."),
    Parameter("isolation_level", IsolationLevel, "read_committed leaves out what was aborted."),
)
_OFFSETS = {"base_offset": int, "next_offset": int}

# ---------------------------------------------------------------- in


@routes.post(
    "/logdb/v1/topics/{topic}/partitions/{partition}/batches",
    "Append record batches",
    needs=("Write Topic",),
    takes=_APPENDING,
    body=Body({BATCHES: bytes}),
    gives={"application/json": _OFFSETS},
    refuses=(409, 412),
)
async def produce(request: Request) -> web.StreamResponse:
    """The body is whole record batches; the answer the range of offsets that they were given."""
    request.require(BATCHES)
    where = TopicPartition(request.path("topic"), request.partition())
    expected = request.number("expected_offset", 0) if "expected_offset" in request.http.query else None
    offsets = await _append(request, where, await request.body(), expected)
    return answer({"base_offset": offsets.start, "next_offset": offsets.stop})


async def _append(request: Request, where: TopicPartition, batches: Buffer, expected_offset: int | None) -> range:
    """Append, on the loop where that can be."""
    durability, transactional_id = request.durability(), request.query("transactional_id")
    append = partial(
        request.session.produce, *where, batches, durability=durability, transactional_id=transactional_id, expected_offset=expected_offset
    )
    if transactional_id is None and request.door.appends_at_once(where, durability, len(batches)):
        return append()
    return await request.door.append_in_thread(where, append)


# ---------------------------------------------------------------- out


class Wanted(NamedTuple):
    """What of one partition is to be read."""

    topic: str
    partition: int
    offset: int
    max_bytes: int = FETCH_BYTES
    leader_epoch: int | None = None


class Reading:
    """What was read of one partition so far."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted, self.where = wanted, TopicPartition(wanted.topic, wanted.partition)
        self.next_offset, self.size_bytes = wanted.offset, 0
        self.parts: list[Buffer] = []
        self.marks: dict[str, int] = {}
        self.error: LogdbError | None = None

    def read(self, session: "Session", room_bytes: int, isolation_level: IsolationLevel) -> None:
        """Read on from where the last time ended; what fails is kept in ``error``."""
        wanted = self.wanted
        try:
            log = session.log(*self.where)
            if wanted.leader_epoch is not None and not self.marks:
                log.read(wanted.offset, leader_epoch=wanted.leader_epoch)
            begin, room_bytes = self.next_offset, min(room_bytes, wanted.max_bytes - self.size_bytes)
            readable = log.readable_end_offset(isolation_level)
            if room_bytes > 0:
                view, self.next_offset = log.read_batches(begin, room_bytes, isolation_level=isolation_level)
                self._keep(log, view, begin, isolation_level)
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

    def headers(self) -> dict[str, str]:
        """Where to go on, and where the log ends."""
        return {f"Logdb-{name.replace('_', '-').title()}": str(value) for name, value in self.marks.items()}

    def _keep(self, log: "PartitionLog", view: memoryview, begin: int, isolation_level: IsolationLevel) -> None:
        kept: list[memoryview] = [view]
        if isolation_level == "read_committed" and begin < self.next_offset:
            aborted = log.aborted_transactions(begin, self.next_offset)
            kept = list(without_aborted((view,), aborted)) if aborted else kept
        for part in kept:
            self.size_bytes += len(part)
            if len(part) >= _KEPT_BYTES_MIN:
                self.parts.append(part)
            elif self.parts and isinstance(self.parts[-1], bytearray):
                self.parts[-1] += part
            elif part:
                self.parts.append(bytearray(part))


@routes.get(
    "/logdb/v1/topics/{topic}/partitions/{partition}/batches",
    "Read record batches",
    needs=("Read Topic",),
    takes=_READING,
    gives={BATCHES: bytes},
    refuses=(410, 416),
)
async def fetch(request: Request) -> web.StreamResponse:
    """Whole record batches from the one that holds ``offset``; headers say where to go on, and where the log ends.

    ``wait_ms``: how long to wait until there are ``min_bytes``.  At ``read_committed`` what was aborted is left out.
    """
    leader_epoch = request.number("leader_epoch", 0, 0, 2**31 - 1) if "leader_epoch" in request.http.query else None
    wanted = Wanted(
        request.path("topic"),
        request.partition(),
        request.number("offset", 0),
        request.number("max_bytes", FETCH_BYTES, 1, FETCH_BYTES_MAX),
        leader_epoch,
    )
    min_bytes, wait_ms = request.number("min_bytes", 1), request.patience_ms(request.number("wait_ms", 0))
    read = await _fetch(request, wanted, min_bytes, wait_ms, request.isolation_level())
    if read.error is not None:
        raise read.error
    return web.Response(body=Parts(read.parts, BATCHES), headers=read.headers())


async def _fetch(request: Request, wanted: Wanted, min_bytes: int, wait_ms: int, isolation_level: IsolationLevel) -> Reading:
    """Read until ``min_bytes`` are there, it fails, or the time is over; what was read is in memory that was taken."""
    loop = asyncio.get_running_loop()
    until = loop.time() + min(wait_ms, request.door.limits.wait_ms_max) / 1000
    read = Reading(wanted)
    room_bytes = min(wanted.max_bytes, request.door.memory.total // 2)
    while True:
        await request.keep_memory(room_bytes)
        await request.call(read.read, request.session, room_bytes - read.size_bytes, isolation_level)
        await request.keep_memory(held_bytes(read.parts))
        left_ms = round((until - loop.time()) * 1000)
        moved = read.next_offset > wanted.offset and not read.size_bytes  # past what was aborted
        if read.size_bytes >= min(min_bytes, room_bytes) or moved or left_ms <= 0 or request.door.draining or read.error is not None:
            return read
        await request.wait({read.where: read.next_offset}, left_ms, isolation_level=isolation_level)


def held_bytes(parts: Iterable[Buffer]) -> int:
    """How much memory is held by views of it."""
    bases: list[Any] = [part.obj if isinstance(part, memoryview) else part for part in parts]
    return sum({id(base): len(base) for base in bases}.values())
