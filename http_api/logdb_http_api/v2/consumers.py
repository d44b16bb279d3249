"""Routes for consumer instances in Kafka's REST API v2: subscribe, read records, commit, seek.

``instances`` keeps the instances, ``options`` has their options, ``formats`` embeds keys and values.

Source: Confluent's kafka-rest, ``ConsumersResource``, ``KafkaConsumerManager``.  Differences: a read answers as soon as there is
a record, and stays before a value that is not JSON instead of skipping it.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import web

from logdb.errors import NotAuthorized
from logdb.mistakes import one_of
from logdb.model import OFFSET_MAX, OffsetAndMetadata, TopicPartition, timestamp_ms_of
from logdb.requests import coding
from logdb.requests.groups import LeaveGroup
from logdb.requests.topics import DescribeTopic
from logdb_http_api.door import documents
from logdb_http_api.door.request import Request, no_content
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body, Number, Parameter
from logdb_http_api.errors import ApiError
from logdb_http_api.v2 import formats as v2_formats
from logdb_http_api.v2 import options as v2_options
from logdb_http_api.v2.errors import telling
from logdb_http_api.v2.formats import ANY, CONTROL, RecordsAnswer, accepted
from logdb_http_api.v2.instances import Id, Instance, asking
from logdb_http_api.v2.routes import control, finished, in_control, read_size_bytes

T = TypeVar("T")

INSTANCE = "/consumers/{group}/instances/{instance}"
OWN = ()  # only the principal that made an instance can reach it
IN_GROUP = ("Read Group",)
WAIT_MS = 1_000
COUNT_MAX, _FEW = 10_000, 100
"""Topics, partitions or offsets of one request."""

routes = Routes()


class Position(NamedTuple):
    """An offset of a partition, with a note."""

    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class Instant(NamedTuple):
    """A time in a partition: ISO 8601, or seconds since 1970."""

    topic: str
    partition: int
    timestamp: str | float
    metadata: str | None = None


_PARTITION: dict[str, Any] = {"topic": str, "partition": Number(0, 2**31 - 1)}
_PARTITIONS = {"partitions": [_PARTITION]}
_POSITION = {**_PARTITION, "offset": Number(0, OFFSET_MAX - 1), "metadata?": str | None}
_INSTANT = {**_PARTITION, "timestamp": str | float, "metadata?": str | None}
_READING = (
    Parameter("timeout", Number(-1), "Milliseconds to wait for the first record."),
    Parameter("max_bytes", Number(-1), "Of keys and values."),
)


def _taken(shape: Any, *, required: bool = True) -> Body:
    return Body(in_control(shape), required)


# ---------------------------------------------------------------- bodies


async def _body(request: Request, *names: str) -> dict[str, Any]:
    """The fields of the body's object; empty without a body.

    Raises:
        ApiError: 400, 415, 422.
    """
    data = await request.body(request.door.limits.call_bytes_max)
    if not data:
        return {}
    content_type = request.http.content_type
    if content_type not in ANY:
        raise ApiError(415, 415, f"HTTP 415 Unsupported Media Type: Content-Type is {content_type}: must be {one_of(CONTROL)}")
    body = await request.parsed(data, documents.parse)
    if wrong := documents.wrong_fields(body, names):
        raise ApiError(422, 422, f"the body {wrong}")
    return {name: value for name, value in body.items() if value is not None}


async def _list(request: Request, kind: type[T], body: Mapping[str, Any], name: str) -> list[T]:
    """A list of objects in the body.

    Raises:
        ApiError: It is not a list, is too long, or has invalid numbers; 422.
    """
    given = body.get(name)
    if isinstance(given, list) and len(given) > COUNT_MAX:
        raise ApiError(422, 422, f"{name} has {len(given)} entries: must be at most {COUNT_MAX}")
    return await request.call(_decoded, kind, given, name) if isinstance(given, list) and len(given) > _FEW else _decoded(kind, given, name)


def _decoded(kind: type[T], given: Any, name: str) -> list[T]:
    try:
        items: list[T] = coding.convert(list[kind], given)  # type: ignore[valid-type]  # a type that is a value
    except msgspec.ValidationError as error:
        raise ApiError(422, 422, f"{name}: {error}") from None
    for at, item in enumerate(items):
        for part, most in (("partition", 2**31 - 1), ("offset", OFFSET_MAX - 1)):
            if isinstance(item, tuple) and not 0 <= (value := getattr(item, part, 0)) <= most:
                raise ApiError(422, 422, f"{name}[{at}].{part} must be in [0, {most}] (was {value!r:.40})")
    return items


def _told(request: Request, value: Any) -> web.Response:
    return control(request, value, ANY)


# ---------------------------------------------------------------- instances


def _id(request: Request, name: str) -> Id:
    return Id(request.principal, request.path("group"), name)


def _instance(request: Request) -> Instance:
    """The instance, for this request.

    Raises:
        ApiError: This principal has no instance of that name; 404.
    """
    asking.set(request.session)
    return request.door.instances.get(_id(request, request.path("instance")))


async def _used(request: Request, *partitions: Position | Instant | TopicPartition) -> Instance:
    """The instance, if the principal may read its group, and describe the topics in the body.

    Raises:
        ApiError: This principal has no instance of that name; 404.
        NotAuthorized: The principal may not.
    """
    instance = _instance(request)
    await _need(request, {one.topic for one in partitions})
    return instance


async def _used_partitions(request: Request) -> tuple[Instance, list[TopicPartition]]:
    """The instance, as ``_used``, and the partitions in the body."""
    _instance(request)
    partitions = await _list(request, TopicPartition, await _body(request, "partitions"), "partitions")
    return await _used(request, *partitions), partitions


async def _need(request: Request, topics: Iterable[str] = ()) -> None:
    """Go on if the principal may be a member of the group, and describe the topics; raises NotAuthorized."""

    def authorize() -> None:
        request.session.authorize(LeaveGroup(request.path("group")))
        for topic in topics:
            request.session.authorize(DescribeTopic(topic))

    await request.call(authorize)


def _origin(request: Request) -> str:
    """The server's URL as the client knows it."""
    return f"{request.http.scheme}://{request.http.headers.get('Host') or request.address()}"  # HTTP/1.0 has no Host


@routes.post(
    "/consumers/{group}",
    "Make a consumer instance in a group",
    needs=("Read Group",),
    body=_taken(v2_options.SHAPE, required=False),
    gives=in_control({"instance_id": str, "base_uri": str}),
    refuses=(409,),
)
@telling
async def create(request: Request) -> web.StreamResponse:
    group_id = request.path("group")
    await _need(request)
    name, config, reading = v2_options.parse(await _body(request, *v2_options.ALL), group_id)
    path = f"/consumers/{quote(group_id, safe='')}/instances/{quote(name, safe='')}"
    made = _told(request, {"instance_id": name, "base_uri": f"{_origin(request)}{path}"})
    instance_id = _id(request, name)
    session = request.door.access.session(instance_id.principal, request.session.host, request.session.credential)  # outlives the request
    session.forwards, session.gathers = request.session.forwards, request.session.gathers
    request.door.instances.add(instance_id, session, config, reading)
    return made


@routes.delete(INSTANCE, "Delete a consumer instance", needs=OWN, status=204)
@telling
async def delete(request: Request) -> web.StreamResponse:
    """Deletion needs no permission; if the principal may not leave the group any more, the member's session times out."""
    asking.set(request.session)
    with contextlib.suppress(NotAuthorized):
        await request.door.instances.remove(_id(request, request.path("instance")))
    return no_content()


# ---------------------------------------------------------------- what it reads


@routes.post(
    INSTANCE + "/subscription",
    "Read topics, or those whose names match a pattern",
    needs=("Read Group", "Describe Topic"),
    body=_taken({"topics?": [str], "topic_pattern?": str | None}),
    status=204,
    refuses=(409,),
)
@telling
async def subscribe(request: Request) -> web.StreamResponse:
    instance, body = await _used(request), await _body(request, "topics", "topic_pattern")
    if body.keys() == {"topic_pattern"}:
        pattern = v2_options.pattern(body["topic_pattern"])
        instance.check_mode("a pattern")
        await instance.use(instance.consumer.subscribe(pattern=pattern))
        instance.mode = "a pattern"
        return no_content()
    if "topic_pattern" in body:
        raise ApiError(409, 40903, "Illegal state: Subscription to topics, partitions and pattern are mutually exclusive")
    if "topics" not in body:
        raise ApiError(422, 422, "the body says neither topics nor topic_pattern")
    topics = await _list(request, str, body, "topics")
    await _need(request, topics)
    instance.check_mode("topics")
    if topics:
        await instance.use(instance.consumer.subscribe(*topics))
        instance.mode = "topics"
    else:
        await _unsubscribe(instance)
    return no_content()


@routes.get(INSTANCE + "/subscription", "The subscribed topics", needs=IN_GROUP, gives=in_control({"topics": [str]}))
@telling
async def subscription(request: Request) -> web.StreamResponse:
    return _told(request, {"topics": list((await _used(request)).consumer.subscription())})


@routes.delete(INSTANCE + "/subscription", "Unsubscribe", needs=IN_GROUP, status=204)
@telling
async def unsubscribe(request: Request) -> web.StreamResponse:
    await _unsubscribe(await _used(request))
    return no_content()


async def _unsubscribe(instance: Instance) -> None:
    await instance.use(instance.consumer.unsubscribe())
    instance.mode = None


@routes.post(
    INSTANCE + "/assignments",
    "Read partitions, without being a member of the group",
    needs=("Read Group", "Describe Topic"),
    body=_taken(_PARTITIONS),
    status=204,
    refuses=(409,),
)
@telling
async def assign(request: Request) -> web.StreamResponse:
    instance, partitions = await _used_partitions(request)
    instance.check_mode("partitions")
    await instance.use(instance.consumer.assign(partitions))
    instance.mode = "partitions" if partitions else None
    return no_content()


@routes.get(INSTANCE + "/assignments", "The assigned partitions", needs=IN_GROUP, gives=in_control(_PARTITIONS))
@telling
async def assignments(request: Request) -> web.StreamResponse:
    return _told(request, {"partitions": [one._asdict() for one in (await _used(request)).consumer.assignment()]})


# ---------------------------------------------------------------- records


@routes.get(
    INSTANCE + "/records",
    "The next records",
    needs=("Read Group", "Read Topic"),
    takes=_READING,
    gives={**v2_formats.READING, **in_control(v2_formats.READING[v2_formats.JSON])},
    refuses=(406,),
)
@telling
async def records(request: Request) -> web.StreamResponse:
    """``timeout``: ms to wait for the first record; ``max_bytes``: of keys and values."""
    instance = _instance(request)
    wanted, longest = instance.reading.content_type, instance.reading.timeout_ms
    content_type = accepted(request.http.headers.get("Accept"), (wanted, *ANY), (wanted, *CONTROL))
    if content_type not in (wanted, *CONTROL):
        raise ApiError(
            406,
            40601,
            "The requested embedded data format does not match the deserializer for this consumer instance: "
            f"Accept is {content_type}, the instance has {wanted}",
        )
    timeout_ms = request.number("timeout", -1, -1, request.door.limits.wait_ms_max)
    if timeout_ms <= 0:
        timeout_ms = min(WAIT_MS if longest is None else longest, request.door.limits.wait_ms_max)
    elif longest is not None:
        timeout_ms = min(timeout_ms, longest)
    found = RecordsAnswer(wanted, read_size_bytes(request))
    if request.is_head:  # it takes no records: the next GET gets them
        return web.Response(content_type=content_type)
    with request.waiting():
        body = await instance.use(instance.read(found, timeout_ms, lambda: finished(request, found)))
    return web.Response(body=body, content_type=content_type)


# ---------------------------------------------------------------- committed offsets


@routes.post(
    INSTANCE + "/offsets",
    "Commit the given offsets, or the present positions",
    needs=("Read Group", "Read Topic"),
    body=_taken({"offsets?": [_POSITION]}, required=False),
    gives=in_control([object]),
)
@telling
async def commit(request: Request) -> web.StreamResponse:
    """``offset`` is that of the last processed record; the offset behind it is committed, as in Confluent's."""
    instance, body = _instance(request), await _body(request, "offsets")
    offsets: dict[tuple[str, int], int | OffsetAndMetadata] | None = None
    if "offsets" in body:
        given = await _list(request, Position, body, "offsets")
        offsets = {(one.topic, one.partition): OffsetAndMetadata(one.offset + 1, metadata=one.metadata or "") for one in given}
    await instance.use(instance.consumer.commit(offsets))
    return _told(request, [])


@routes.get(
    INSTANCE + "/offsets",
    "Committed offsets of partitions; the request has a body",
    needs=("Describe Group", "Describe Topic"),
    body=_taken(_PARTITIONS),
    gives=in_control({"offsets": [{**_POSITION, "metadata": str}]}),
)
@telling
async def committed(request: Request) -> web.StreamResponse:
    instance, body = _instance(request), await _body(request, "partitions")
    if not body:
        raise ApiError(404, 40402, 'Partition not found. Name partitions in the body: {"partitions": [{"topic": …, "partition": …}]}')
    told = []
    for partition in await _list(request, TopicPartition, body, "partitions"):
        found = await instance.use(instance.consumer.committed(partition))
        if found is not None:
            told.append({**partition._asdict(), "offset": found.offset, "metadata": found.metadata})
    return _told(request, {"offsets": told})


# ---------------------------------------------------------------- positions


@routes.post(
    INSTANCE + "/positions",
    "Seek to offsets, or to times",
    needs=("Read Group", "Describe Topic"),
    body=_taken({"offsets?": [_POSITION], "timestamps?": [_INSTANT]}),
    status=204,
)
@telling
async def seek(request: Request) -> web.StreamResponse:
    _instance(request)
    body = await _body(request, "offsets", "timestamps")
    offsets = await _list(request, Position, body, "offsets") if "offsets" in body else []
    times = (
        [(one, _milliseconds(one.timestamp)) for one in await _list(request, Instant, body, "timestamps")] if "timestamps" in body else []
    )
    instance = await _used(request, *offsets, *(one for one, _ in times))
    for position in offsets:
        await instance.use(instance.consumer.seek((position.topic, position.partition), position.offset))
    for instant, timestamp_ms in times:
        await instance.use(instance.consumer.seek_to_timestamp(timestamp_ms, (instant.topic, instant.partition)))
    return no_content()


@routes.post(
    INSTANCE + "/positions/beginning",
    "Seek to the first record",
    needs=("Read Group", "Describe Topic"),
    body=_taken(_PARTITIONS),
    status=204,
)
@telling
async def seek_to_beginning(request: Request) -> web.StreamResponse:
    instance, partitions = await _used_partitions(request)
    await instance.use(instance.consumer.seek_to_beginning(*partitions))
    return no_content()


@routes.post(
    INSTANCE + "/positions/end",
    "Seek to the end",
    needs=("Read Group", "Describe Topic"),
    body=_taken(_PARTITIONS),
    status=204,
)
@telling
async def seek_to_end(request: Request) -> web.StreamResponse:
    instance, partitions = await _used_partitions(request)
    await instance.use(instance.consumer.seek_to_end(*partitions))
    return no_content()


def _milliseconds(timestamp: str | float) -> int:
    """Rounded down."""
    try:
        if isinstance(timestamp, str):
            moment = datetime.fromisoformat(timestamp)
            return timestamp_ms_of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        return min(max(-OFFSET_MAX - 1, math.floor(timestamp * 1000)), OFFSET_MAX)
    except (ValueError, OverflowError) as error:
        raise ApiError(422, 422, f"timestamp is {timestamp!r:.40}: must be ISO 8601 or seconds since 1970: {error}") from None
