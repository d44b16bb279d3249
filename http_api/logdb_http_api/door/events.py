"""Streams of events: records of a partition or a topic, and changes of topics.

``sse`` writes the frames, ``following`` makes events from records.  A stream holds no thread while it waits.
"""

import asyncio
import json
from typing import Any, Literal

from aiohttp import web

from logdb.aio.mirror import Deadline, Wake
from logdb.errors import LogdbError
from logdb.log.isolation import IsolationLevel
from logdb.model import Changes, ClusterEvent, TopicEvent
from logdb_http_api.door import sse
from logdb_http_api.door.following import FORMATS, Following
from logdb_http_api.door.request import Request, encoded
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Number, Parameter
from logdb_http_api.door.sse import EventStream
from logdb_http_api.errors import REFUSALS, describe
from logdb_http_api.protocol import CHANGE_COUNT_MAX, WATCH_PATH

routes = Routes()

_LAST_ID = Parameter("Last-Event-ID", str, "The id of the last received event; the stream continues after it.", where="header")
_READING = (
    Parameter("format", Literal["binary", "json", "string"], "How keys and values are written: binary (the default) is base64."),
    Parameter("key_format", Literal["binary", "json", "string"], "How keys are written; the default is format."),
    Parameter("isolation_level", IsolationLevel, "read_committed leaves out open and aborted transactions."),
    Parameter("topic_id", str, "Of the topic that the client reads: another topic of that name is refused (404)."),
    Parameter("follow", bool, "false: the stream ends when no record is left to send. true (the default): it waits for more records."),
    _LAST_ID,
)
_OFFSET = Parameter("offset", str, "Where to begin: earliest, latest (the default), or a number.")
_OF_TOPIC = Parameter("offset", str, "Where to begin: earliest, or latest (the default).")


# ---------------------------------------------------------------- records


@routes.get(
    "/logdb/v1/topics/{topic}/partitions/{partition}/events",
    "Records of a partition as server-sent events",
    needs=("Read Topic",),
    takes=(_OFFSET, *_READING),
    gives={sse.CONTENT_TYPE: str},
    refuses=(416,),
)
async def partition_events(request: Request) -> web.StreamResponse:
    """Each record from ``offset`` on is an event; its id is the offset."""
    return await _records(request, request.partition())


@routes.get(
    "/logdb/v1/topics/{topic}/events",
    "Records of a topic as server-sent events",
    needs=("Read Topic",),
    takes=(_OF_TOPIC, *_READING),
    gives={sse.CONTENT_TYPE: str},
    refuses=(416,),
)
async def topic_events(request: Request) -> web.StreamResponse:
    """Each record of each partition is an event; its id has the positions of all partitions."""
    return await _records(request, None)


async def _records(request: Request, partition: int | None) -> web.StreamResponse:
    form, level = request.one_of("format", tuple(FORMATS)) or "binary", request.isolation_level()
    forms = (request.one_of("key_format", tuple(FORMATS)) or form, form)
    follow = request.flag("follow", default=True)
    following = Following(request.session, request.path("topic"), partition, forms, level, request.query("topic_id") or "")
    await request.call(following.begin, request.query("offset") or "latest", request.http.headers.get("Last-Event-ID"))
    if request.is_head:
        return sse.headers_alone()
    frames = await _frames(request, following)
    stream = await EventStream.open(request)
    try:
        while True:
            if frames:
                await stream.send(frames)
                del frames  # their memory is released
            elif not follow:
                return stream.response
            elif not await request.wait(following.positions, sse.KEEP_ALIVE_MS, isolation_level=level, known=following.known):
                await stream.keep_alive()
            if request.door.draining:
                return stream.response
            frames = await _frames(request, following)
    except (LogdbError, *REFUSALS) as error:
        await stream.send(_error(error))
    return stream.response


async def _frames(request: Request, following: Following) -> bytes:
    """The next events, with memory taken for them; without room they are dropped, and made again when there is room.

    Raises:
        NoRoom: No room came in time.
    """
    door = request.door
    async with request.share(door.making):
        frames: bytes = await request.call(following.take)
        if door.memory.has_room(size_bytes := len(frames), request.owner):
            await request.take_memory(size_bytes)
            return frames
        following.take_back()
        del frames
    await request.take_memory(size_bytes)
    async with request.share(door.making):
        return await request.call(following.take)


def _error(error: Exception) -> bytes:
    """The last event of a stream that cannot go on."""
    return sse.frame(json.dumps(describe(error)[1]), event="error")


# ---------------------------------------------------------------- topics


@routes.get(
    WATCH_PATH,
    "Changes of topics: created, altered, partitions added, deleted; and of a cluster's nodes",
    needs=("Describe Topic",),
    takes=(
        Parameter("position", str, "Where to continue, from an earlier answer; without it, from now on."),
        Parameter("timeout_ms", Number(0), "How long to wait for a change, if the answer is JSON."),
        Parameter("cluster", bool, "Whether to tell of a cluster's nodes, too: leaders, in-sync sets, brokers that come and go."),
        Parameter("count_max", Number(1, CHANGE_COUNT_MAX), "The most changes in an answer, if it is JSON."),
        _LAST_ID,
    ),
    gives={"application/json": Changes, sse.CONTENT_TYPE: str},
)
async def watch(request: Request) -> web.StreamResponse:
    """To a client that accepts ``text/event-stream``, events whose ids are positions; to others, a long poll as JSON.

    The event ``reset`` means that the position was lost: the client then lists all topics.
    """
    position = request.http.headers.get("Last-Event-ID") or request.query("position")
    cluster = request.flag("cluster", default=False)
    if sse.CONTENT_TYPE in request.http.headers.get("Accept", ""):
        return await _topics(request, position, cluster=cluster)
    timeout_ms = request.patience_ms(request.number("timeout_ms", 0))
    count_max = request.number("count_max", CHANGE_COUNT_MAX, 1, CHANGE_COUNT_MAX)
    return encoded(await _changes(request, position, timeout_ms, count_max, cluster=cluster))


async def _topics(request: Request, position: str | None, *, cluster: bool) -> web.StreamResponse:
    if position is None:
        position = (await request.call(request.session.changes, None, 0)).position
    if request.is_head:
        return sse.headers_alone()
    stream = await EventStream.open(request)
    try:
        while not request.door.draining:
            changes = await _changes(request, position, sse.KEEP_ALIVE_MS, 1, cluster=cluster)
            if not changes.complete:
                await stream.send(sse.frame("{}", identity=changes.position, event="reset"))
            for event in changes.events:
                await stream.send(_event(event, changes.position))
            if changes.position == position:
                await stream.keep_alive()
            position = changes.position
    except (LogdbError, *REFUSALS) as error:
        await stream.send(_error(error))
    return stream.response


def _event(event: TopicEvent | ClusterEvent, position: str) -> bytes:
    if isinstance(event, ClusterEvent):
        said = event._asdict() | {"partition": event.partition and event.partition._asdict()}
        del said["kind"]
        return sse.frame(json.dumps(said), identity=position, event=event.kind)
    topic: dict[str, Any] = {**event.topic._asdict(), "config": dict(event.topic.config)}
    del topic["partitions"]
    return sse.frame(json.dumps(topic), identity=position, event=event.kind)


async def _changes(request: Request, position: str | None, timeout_ms: int, count_max: int, *, cluster: bool) -> Changes:
    """As ``Session.changes``, without a thread; empty if the time is over or the server is draining."""
    signals, wake, deadline = request.door.access.topic_signals, Wake(), Deadline(timeout_ms)
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def released(done: "asyncio.Future[None]") -> None:
        done.exception()  # ``draining`` handles it
        wake.set()

    told.add_done_callback(released)
    signals.add(wake)
    try:
        with request.waiting(), request.door.drained_by(told):
            while True:
                wake.clear()
                changes: Changes = await request.call(request.session.changes, position, 0, count_max=count_max)
                if not cluster:
                    changes = changes._replace(events=tuple(event for event in changes.events if isinstance(event, TopicEvent)))
                if changes.events or not changes.complete or deadline.left_ms <= 0 or request.door.draining:
                    return changes
                if changes.position != position:  # what was left out is no reason to wait: more may have been told
                    position = changes.position
                    continue
                await wake.wait_for(min(deadline.left_ms, signals.poll_ms or deadline.left_ms))
    finally:
        signals.remove(wake)
