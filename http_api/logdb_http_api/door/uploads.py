"""Uploads: record batches that lie outside the log until a later request appends them (docs/inside/spark.md).

The content is checked when it is appended.  In a cluster the leader of the partition takes them.
"""

from aiohttp import web

from logdb.codec import convert
from logdb.codec.batch import FirstBatch
from logdb.errors import LogdbError
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.requests.records import Produce
from logdb_http_api.door.kept_uploads import ID
from logdb_http_api.door.request import Request, answer, encoded, no_content
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body
from logdb_http_api.errors import ApiError
from logdb_http_api.protocol import BATCHES, DISCARD_PATH, UPLOAD_PATH, UPLOADS_PATH, AppendedUploads, AppendUploads, DiscardUploads

_UNKNOWN_UPLOAD = 40498
UPLOAD_COUNT_MAX = 10_000
"""Ids in one request."""

routes = Routes()


def _where(request: Request) -> TopicPartition:
    return TopicPartition(request.path("topic"), request.partition())


def _id(given: str) -> str:
    if ID.fullmatch(given) is None:
        raise ApiError(422, 422, f"upload {given[:40]!r}: an id must be 32 hexadecimal digits in lower case")
    return given


def _ids(given: list[str]) -> list[str]:
    if len(given) > UPLOAD_COUNT_MAX:
        raise ApiError(422, 422, f"{len(given)} uploads: must be at most {UPLOAD_COUNT_MAX}")
    return [_id(one) for one in given]


@routes.add(
    "PUT",
    UPLOAD_PATH,
    "Keep record batches outside the log",
    needs=("Write Topic",),
    body=Body({BATCHES: bytes}),
    status=204,
    refuses=(507,),
)
async def keep(request: Request) -> web.StreamResponse:
    """The body is whole record batches, which no reader sees; the client chooses the id.  They are removed when they are too old."""
    request.require(BATCHES)
    where, name = _where(request), _id(request.path("id"))
    await request.call(_check_writable, request, where)
    batches = await request.body()
    if not batches:
        raise ApiError(422, 422, "an upload must have at least one record batch")
    await request.call(request.door.uploads.keep, request.owner, where, name, batches)
    request.session.charge("produce", len(batches))
    request.door.expire_uploads()
    return no_content()


def _check_writable(request: Request, where: TopicPartition) -> None:
    """Raise what an append would: no right, an unknown partition, another node leads it."""
    session = request.session
    session.authorize(Produce(*where))
    session.check_open(writable=True)
    if session.replication is not None:
        session.leadership(*where)
    else:
        session.appended_to(*where)


@routes.get(UPLOAD_PATH, "Read an upload", needs=("Write Topic",), gives={BATCHES: bytes})
async def read(request: Request) -> web.StreamResponse:
    """The batches as they were uploaded."""
    where, name = _where(request), _id(request.path("id"))
    request.session.authorize(Produce(*where))
    uploads = request.door.uploads
    if not await request.call(uploads.missing, where, [name]):
        await request.take_memory(uploads.size_bytes(where, [name]))
    batches = await request.call(uploads.read, where, name)
    if batches is None:
        raise ApiError(404, _UNKNOWN_UPLOAD, f"upload {name} of {where} is unknown: it has expired, or another node has it")
    return web.Response(body=batches, content_type=BATCHES)


@routes.post(
    UPLOADS_PATH,
    "Append uploads",
    needs=("Write Topic",),
    body=Body({"application/json": AppendUploads}),
    gives={"application/json": AppendedUploads},
    refuses=(409,),
)
async def append(request: Request) -> web.StreamResponse:
    """The batches become those of the producer, and are appended in the order of the ids; the uploads stay.

    If the node lacks an upload, it appends nothing and names the missing ids.
    """
    given, where = await request.decoded(AppendUploads), _where(request)
    names = _ids([name for name, _ in given.uploads])
    if len(set(names)) < len(names):
        raise ApiError(422, 422, "an upload is named twice: each must be named once")
    for name, limit in (("producer_id", 1 << 63), ("producer_epoch", 1 << 15), ("sequence", 1 << 31)):
        if not 0 <= (value := getattr(given, name)) < limit:
            raise ApiError(422, 422, f"{name}={value}: must be in [0, {limit - 1}]")
    session = request.session
    session.authorize(Produce(*where, transactional_id=given.transactional_id))
    first = FirstBatch(given.producer_id, given.producer_epoch, given.sequence)
    leadership = None if session.replication is None else session.leadership(*where, first=lambda: first)
    uploads = request.door.uploads
    if missing := await request.call(uploads.missing, where, names):
        return encoded(AppendedUploads(-1, -1, missing))
    size_bytes = uploads.size_bytes(where, names)
    await request.take_memory(size_bytes)
    offsets = await request.append_in_thread((where,), _append, request, where, given, size_bytes)
    if offsets is None:
        return encoded(AppendedUploads(-1, -1, names))
    if leadership is not None:
        await request.committed(leadership, offsets.stop)
    return encoded(AppendedUploads(offsets.start, offsets.stop))


def _append(request: Request, where: TopicPartition, given: AppendUploads, size_bytes: int) -> range | None:
    """The offsets; None: an upload was removed, or replaced by a larger one, meanwhile."""
    uploads, session = request.door.uploads, request.session
    batches = uploads.gather(where, given.uploads, size_bytes)
    if batches is None:
        return None
    producer = ProducerIdAndEpoch(given.producer_id, given.producer_epoch)
    convert.stamp_producer(batches, producer, given.sequence, transactional=given.transactional_id is not None)
    credit_bytes = uploads.take_credit(where, [name for name, _ in given.uploads])
    if credit_bytes:
        session.charge("produce", -credit_bytes)  # counted when they came; ``produce`` counts them again
    try:
        return session.submit_batches(Produce(*where, transactional_id=given.transactional_id), batches)
    except LogdbError:
        if credit_bytes:
            session.charge("produce", credit_bytes)  # nothing was appended
        raise


@routes.post(
    DISCARD_PATH,
    "Remove uploads",
    needs=("Write Topic",),
    body=Body({"application/json": DiscardUploads}),
    gives={"application/json": {"*": object}},
)
async def discard(request: Request) -> web.StreamResponse:
    """Those that the node has; unknown ids are ignored."""
    given, where = await request.decoded(DiscardUploads), _where(request)
    request.session.authorize(Produce(*where))
    await request.call(request.door.uploads.discard, where, _ids(given.ids))
    return answer({})
