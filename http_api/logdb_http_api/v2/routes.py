"""Routes for topics, partitions and records in Kafka's REST API v2.

``formats`` embeds keys and values, ``consumers`` has the routes of consumer instances.

Source: Confluent's kafka-rest, ``resources/v2``; the stateless read and ``/status/ready`` are Redpanda's.
"""

import json
import random
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from aiohttp import web

from logdb.client.producer.partitioner import partition_for_key
from logdb.errors import InvalidRecord, InvalidTimestamp, LogdbError, RecordTooLarge, UnknownPartition
from logdb.log.protocols import PartitionLog
from logdb.model import TOPIC_CONFIGS, Buffer, PartitionInfo, TopicInfo, TopicPartition
from logdb.requests.session import Session
from logdb_http_api.door import health
from logdb_http_api.door.request import PARSED_BESIDE_OTHERS_BYTES_MAX, Request, answer
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Number, Parameter
from logdb_http_api.errors import ApiError
from logdb_http_api.v2 import formats as v2_formats
from logdb_http_api.v2.errors import code_of_record, telling
from logdb_http_api.v2.formats import CONTROL, RecordsAnswer, Rows, accepted

_READ_BYTES = 4 << 20
_OFF_LOOP_BYTES = 64 << 10
_FAULTS = (RecordTooLarge, InvalidRecord, InvalidTimestamp)  # of one record: the others can be appended without it

routes = Routes()

PARTITION = {"partition": int, "leader": int | None, "replicas": [{"broker": int, "leader": bool, "in_sync": bool}]}
_RESULT = {"partition": int | None, "offset": int | None, "error_code": int | None, "error": str | None}
_PRODUCED = {"offsets": [_RESULT], "key_schema_id": None, "value_schema_id": None}
_READING = (
    Parameter("offset", Number(0), "The first offset to read."),
    Parameter("timeout", Number(0), "Milliseconds to wait for the first record."),
    Parameter("max_bytes", Number(1), "Of keys and values."),
)


def in_control(shape: Any) -> dict[str, Any]:
    """The answer of ``control``, for the description of a route."""
    return dict.fromkeys(CONTROL, shape)


def control(request: Request, value: Any, offered: Sequence[str] = CONTROL) -> web.Response:
    """A JSON answer without records."""
    return answer(value, content_type=accepted(request.http.headers.get("Accept"), offered))


# ---------------------------------------------------------------- what there is


@routes.get("/brokers", "The brokers", needs=(), gives=in_control({"brokers": [int]}))
async def brokers(request: Request) -> web.StreamResponse:
    return control(request, {"brokers": [one.node_id for one in request.door.access.metadata.brokers() if not one.fenced]})


routes.get("/status/ready", "The server takes requests", needs=(), gives=health.STATUS)(health.ready)


@routes.get("/topics", "Names of all topics", needs=("Describe Topic",), gives=in_control([str]))
@telling
async def topics(request: Request) -> web.StreamResponse:
    return await request.call(lambda: control(request, [info.name for info in request.session.topics()]))


@routes.get(
    "/topics/{topic}",
    "A topic, its configs and partitions",
    needs=("Describe Topic",),
    gives=in_control({"name": str, "configs": {"*": str}, "partitions": [PARTITION]}),
)
@telling
async def topic(request: Request) -> web.StreamResponse:
    return await request.call(_topic, request)


def _topic(request: Request) -> web.Response:
    info = request.session.describe_topic(request.path("topic"))
    configs = {name: config_text(info.config.get(name, key.default)) for name, key in TOPIC_CONFIGS.items()}
    return control(request, {"name": info.name, "configs": configs, "partitions": [_partition(one) for one in info.partitions]})


@routes.get("/topics/{topic}/partitions", "The partitions of a topic", needs=("Describe Topic",), gives=in_control([PARTITION]))
@telling
async def partitions(request: Request) -> web.StreamResponse:
    return await request.call(_partitions, request)


def _partitions(request: Request) -> web.Response:
    info = request.session.describe_topic(request.path("topic"))
    return control(request, [_partition(one) for one in info.partitions])


@routes.get("/topics/{topic}/partitions/{partition}", "A partition", needs=("Describe Topic",), gives=in_control(PARTITION))
@telling
async def partition(request: Request) -> web.StreamResponse:
    return control(request, _partition(await _described_partition(request)))


@routes.get(
    "/topics/{topic}/partitions/{partition}/offsets",
    "The start and end of a partition",
    needs=("Describe Topic",),
    gives=in_control({"beginning_offset": int, "end_offset": int}),
)
@telling
async def offsets(request: Request) -> web.StreamResponse:
    start, end = await request.call(request.session.ends, request.path("topic"), request.partition())
    return control(request, {"beginning_offset": start, "end_offset": end})


async def _described(request: Request) -> TopicInfo:
    return await request.call(request.session.describe_topic, request.path("topic"))


async def _described_partition(request: Request) -> PartitionInfo:
    number, info = request.partition(), await _described(request)
    if number >= info.partition_count:
        raise UnknownPartition(info.name, number, info.partition_count)
    return info.partitions[number]


def _partition(info: PartitionInfo) -> dict[str, Any]:
    replicas = [{"broker": one, "leader": one == info.leader, "in_sync": one in info.in_sync} for one in info.replicas]
    return {"partition": info.partition, "leader": info.leader, "replicas": replicas}


def config_text(value: Any) -> str:
    """A config in Kafka's form."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---------------------------------------------------------------- records in


@routes.post(
    "/topics/{topic}",
    "Append records, each to the partition of its key",
    needs=("Write Topic",),
    body=v2_formats.PRODUCING,
    gives=in_control(_PRODUCED),
)
@telling
async def produce(request: Request) -> web.StreamResponse:
    return await _produce(request, None)


@routes.post(
    "/topics/{topic}/partitions/{partition}",
    "Append records to a partition",
    needs=("Write Topic",),
    body=v2_formats.PRODUCING,
    gives=in_control(_PRODUCED),
)
@telling
async def produce_to_partition(request: Request) -> web.StreamResponse:
    return await _produce(request, request.partition())


async def _produce(request: Request, partition: int | None) -> web.StreamResponse:
    content_type = accepted(request.http.headers.get("Accept"), CONTROL)
    body, given_type = await request.body(request.door.limits.json_bytes_max), request.http.content_type
    rows = None
    if len(body) > PARSED_BESIDE_OTHERS_BYTES_MAX:
        rows = await request.parsed(body, partial(v2_formats.produced, given_type))
    status, told = await request.call(append, request.session, request.path("topic"), partition, given_type, body, rows)
    return web.Response(body=told, status=status, content_type=content_type)


class Results:
    """The result of each record of a request, as JSON."""

    def __init__(self, count: int) -> None:
        self._texts = [""] * count
        self.status = 200

    def appended(self, partition: int, rows: Iterable[int], offsets: Iterable[int]) -> None:
        for row, offset in zip(rows, offsets, strict=True):
            self._texts[row] = f'{{"partition":{partition},"offset":{offset},"error_code":null,"error":null}}'

    def failed(self, rows: Iterable[int], error: LogdbError) -> None:
        code = code_of_record(error)
        self.status = {40101: 401, 40301: 403}.get(code, self.status)
        text = json.dumps({"partition": None, "offset": None, "error_code": code, "error": str(error)}, separators=(",", ":"))
        for row in rows:
            self._texts[row] = text

    def body(self) -> bytes:
        return f'{{"offsets":[{",".join(self._texts)}],"key_schema_id":null,"value_schema_id":null}}'.encode()


def append(
    session: Session, topic: str, partition: int | None, content_type: str, body: Buffer, rows: Rows | None = None
) -> tuple[int, bytes]:
    """Append the records of a produce request, each partition's in one call; returns the status and the answer.

    Args:
        rows: The parsed records of ``body``; None: parse it.
        partition: Of all records; None: each record's own, or by its key, or one for all that have neither.

    Raises:
        UnknownTopic, UnknownPartition, ApiError: No record was appended.
    """
    count = session.partition_count(topic)
    if partition is not None and partition >= count:
        raise UnknownPartition(topic, partition, count)
    rows = rows or v2_formats.produced(content_type, body)
    results = Results(len(rows.values))
    for number, chosen in _by_partition(rows, partition, count).items():
        if number >= count:
            results.failed(chosen, UnknownPartition(topic, number, count))
        else:
            _append(session.log(topic, number), rows, chosen, results)
    return results.status, results.body()


def _by_partition(rows: Rows, fixed: int | None, count: int) -> dict[int, list[int]]:
    """The rows of each partition."""
    chosen: dict[int, list[int]] = {}
    any_partition = random.randrange(count)  # noqa: S311 -- spreads requests, keeps no secret
    for row, (wanted, key) in enumerate(zip(rows.partitions, rows.keys, strict=True)):
        if fixed is not None:
            if wanted not in (None, fixed):
                raise ApiError(422, 422, f"records[{row}].partition is {wanted}, but the request is to partition {fixed}")
            number = fixed
        elif wanted is not None:
            number = wanted
        else:
            number = any_partition if key is None else partition_for_key(key, count)
        chosen.setdefault(number, []).append(row)
    return chosen


def _append(log: PartitionLog, rows: Rows, chosen: list[int], results: Results) -> None:
    """Append rows to a partition in one call; one by one if one of them is refused, so that only that one is left out."""
    try:
        offsets = log.append_many([rows.values[row] for row in chosen], [rows.keys[row] for row in chosen])
    except LogdbError as error:
        if len(chosen) == 1 or not isinstance(error, _FAULTS):
            results.failed(chosen, error)
        else:
            for row in chosen:
                _append(log, rows, [row], results)
        return
    results.appended(log.partition, chosen, offsets)


# ---------------------------------------------------------------- records out


def read_size_bytes(request: Request) -> int:
    """The limit of keys and values in bytes: ``max_bytes``, up to the door's limit."""
    wanted = request.number("max_bytes", -1, -1)
    return min(wanted if wanted > 0 else _READ_BYTES, request.door.limits.read_bytes_max)


async def finished(request: Request, found: RecordsAnswer) -> bytes:
    """Reserve the memory for the answer, for the time of the request.

    Raises:
        NoRoom: There is not enough.
    """
    body = found.body() if found.size_bytes < _OFF_LOOP_BYTES else await request.call(found.body)
    await request.take_memory(len(body))
    return body


@routes.get(
    "/topics/{topic}/partitions/{partition}/records",
    "Read records of a partition from an offset",
    needs=("Read Topic",),
    takes=_READING,
    gives=v2_formats.READING,
)
@telling
async def records(request: Request) -> web.StreamResponse:
    """``offset``: the first to read; ``timeout``: ms to wait for the first record; ``max_bytes``: of keys and values."""
    content_type = accepted(request.http.headers.get("Accept"), v2_formats.READ)
    offset, timeout_ms = request.number("offset", 0), request.patience_ms(request.number("timeout", 0, 0, request.door.limits.wait_ms_max))
    found = RecordsAnswer(content_type, read_size_bytes(request))
    partition = TopicPartition(request.path("topic"), request.partition())
    await _read(request, partition, offset, found)
    if not len(found) and timeout_ms and await request.wait({partition: offset}, timeout_ms):
        await _read(request, partition, offset, found)
    return web.Response(body=await finished(request, found), content_type=content_type)


async def _read(request: Request, partition: TopicPartition, offset: int, found: RecordsAnswer) -> None:
    def read() -> None:
        found.add(request.session.log(*partition).read(offset))
        if found.refused is not None:
            raise found.refused

    await request.take_memory(found.memory_bytes_max)
    try:
        await request.call(read)
    finally:
        request.give_memory_back()
