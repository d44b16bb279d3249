"""Record batches as they lie: ``application/vnd.logdb.batches``, in and out.

The log checks the batches, on their way in and out.
"""

from functools import partial

from aiohttp import web

from logdb.codec.batch import first_batch
from logdb.log.isolation import IsolationLevel
from logdb.model import Buffer, Durability, TopicPartition
from logdb.requests.records import Produce
from logdb.serving.fetch import FETCH_BYTES, UnabortedRead, Wanted
from logdb.serving.fetch import fetch as fetch_partitions
from logdb_http_api.door.request import Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body, Number, Parameter
from logdb_http_api.door.sending import Parts
from logdb_http_api.protocol import BATCHES, BATCHES_PATH, FETCH_BYTES_MAX

routes = Routes()

_DURABILITY = Parameter("durability", Durability, "The durability level to wait for; without it, the topic's.")
_APPENDING = (
    _DURABILITY,
    Parameter("expected_offset", Number(0), "The log must end here, or nothing is appended."),
    Parameter("mirrored", bool, "The batches come from another cluster and keep their offsets; needs ClusterAction Cluster, too."),
    Parameter("transactional_id", str, "The producer's, for transactional batches."),
)
_READING = (
    Parameter("offset", Number(0), "Where to begin."),
    Parameter("max_bytes", Number(1, FETCH_BYTES_MAX), "The approximate size of the answer."),
    Parameter("min_bytes", Number(0), "The size to wait for."),
    Parameter("wait_ms", Number(0), "How long to wait for it."),
    Parameter("leader_epoch", Number(0, 2**31 - 1), "Of the record before the offset, as the reader saw it."),
    Parameter("isolation_level", IsolationLevel, "read_committed leaves out open and aborted transactions."),
    Parameter("topic_id", str, "Of the topic that the reader reads: another topic of that name is refused (404)."),
)
_OFFSETS = {"base_offset": int, "next_offset": int}


# ---------------------------------------------------------------- in


@routes.post(
    BATCHES_PATH,
    "Append record batches",
    needs=("Write Topic",),
    takes=_APPENDING,
    body=Body({BATCHES: bytes}),
    gives={"application/json": _OFFSETS},
    refuses=(409, 412),
)
async def produce(request: Request) -> web.StreamResponse:
    """The body is whole record batches; the answer is the range of their offsets."""
    request.require(BATCHES)
    where = TopicPartition(request.path("topic"), request.partition())
    expected = request.number("expected_offset", 0) if "expected_offset" in request.http.query else None
    offsets = await _append(request, where, await request.body(), expected)
    return answer({"base_offset": offsets.start, "next_offset": offsets.stop})


async def _append(request: Request, where: TopicPartition, batches: Buffer, expected_offset: int | None) -> range:
    """Append, on the loop if that waits for nothing."""
    durability, transactional_id = request.durability(), request.query("transactional_id")
    asked = Produce(*where, durability, transactional_id, expected_offset, request.flag("mirrored", default=False))
    append = partial(request.session.submit_batches, asked, batches)
    leadership = None if request.session.replication is None else request.session.leadership(*where, first=partial(first_batch, batches))
    if transactional_id is None and request.door.appends_at_once(where, durability, request.door.append_size(batches)):
        offsets = request.door.append_on_loop(append)
    else:
        offsets = await request.append_in_thread((where,), append)
    if leadership is not None:
        await request.committed(leadership, offsets.stop)
    return offsets


# ---------------------------------------------------------------- out


@routes.get(
    BATCHES_PATH,
    "Read record batches",
    needs=("Read Topic",),
    takes=_READING,
    gives={BATCHES: bytes},
    refuses=(410, 416),
)
async def fetch(request: Request) -> web.StreamResponse:
    """Whole record batches from the one that holds ``offset``; headers have the next offset and the log end.

    ``wait_ms``: how long to wait for ``min_bytes``.  At ``read_committed`` aborted transactions are left out.
    """
    leader_epoch = request.number("leader_epoch", 0, 0, 2**31 - 1) if "leader_epoch" in request.http.query else None
    wanted = Wanted(
        request.path("topic"),
        request.partition(),
        request.number("offset", 0),
        request.number("max_bytes", FETCH_BYTES, 1, FETCH_BYTES_MAX),
        leader_epoch,
        request.query("topic_id") or "",
    )
    read = UnabortedRead(wanted)
    await fetch_partitions(
        request,
        (read,),
        max_bytes=wanted.max_bytes,
        min_bytes=request.number("min_bytes", 1),
        wait_ms=request.patience_ms(request.number("wait_ms", 0)),
        isolation_level=request.isolation_level(),
    )
    if read.error is not None:
        raise read.error
    headers = {f"Logdb-{name.replace('_', '-').title()}": str(value) for name, value in read.marks.items()}
    headers["Logdb-Topic-Id"] = read.topic_id
    return web.Response(body=Parts(read.parts, BATCHES), headers=headers)
