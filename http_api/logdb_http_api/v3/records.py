"""Routes for producing in Kafka's REST API v3: one record, a stream of records, a batch.

``formats`` decodes records, ``json_stream`` splits a stream.  Records that arrive together are appended with one call per partition.

A stream is one request: JSON objects one after the other, each with a report, in the same order.  The records of one piece are
appended and reported before the next piece is read: so a client that does not read its reports is slowed down, and the
server's memory for a stream is one piece, or one incomplete record.  An error that ends a stream, such as text that is not JSON,
is the last report.

    POST …/records         200, and a report for each record, appended or not
    POST …/records:batch   207, {"successes": […], "failures": […]}

Source: Confluent's kafka-rest, ``ProduceAction``, ``ProduceBatchAction``, ``StreamingResponse``.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias

from aiohttp import web

from logdb.access.session import AuthorizedSession
from logdb.client.producer.partitioner import partition_for_key
from logdb.errors import InvalidRecord, InvalidTimestamp, LogdbError, RecordTooLarge, without_frames
from logdb.log.protocols import PartitionLog
from logdb.requests.records import Produce
from logdb.serving.shares import NoRoom
from logdb_http_api.door.json_stream import JsonStream
from logdb_http_api.door.request import Request
from logdb_http_api.door.routing import Routes
from logdb_http_api.errors import ApiError
from logdb_http_api.v3 import shapes
from logdb_http_api.v3.formats import Row, refusal, report_begin, row, timestamp_text
from logdb_http_api.v3.resources import CLUSTER, malformed, of_cluster, read_object, require_json, told, unprocessable

RECORDS = CLUSTER + "/topics/{topic_name}/records"
ENTRY_COUNT_MAX, ID_LENGTH_MAX = 10_000, 80
_FAULTS = (RecordTooLarge, InvalidRecord, InvalidTimestamp)  # of one record: the others can be appended without it
_SUCCESS, _SEPARATOR = '{"error_code":200', "\r\n"
_SMALL_LENGTH = 64 << 10
_PIECE_BYTES = 128 << 10  # appended and reported at once; a larger one falls out of the processor's cache
_BESIDE = frozenset(("id",))  # fields of an entry beside those of a record

logger = logging.getLogger(__name__)
routes = Routes()


# ---------------------------------------------------------------- a stream


@routes.post(
    RECORDS,
    "Append records, each to the partition of its key; answers with a report for each",
    needs=("Write Topic",),
    body=shapes.RECORD,
    gives=shapes.REPORTS,
)
@of_cluster
async def produce(request: Request) -> web.StreamResponse:
    require_json(request)
    stream = await request.call(_Stream, request)
    response = web.StreamResponse()
    response.content_type = "application/json"
    pieces = request.pieces(idle_ms=request.door.limits.wait_ms_max)
    try:
        while not stream.ended and (piece := await _next(request, pieces)):
            for at in range(0, len(piece), _PIECE_BYTES):
                await _report(request, response, await request.call(stream.take, piece[at : at + _PIECE_BYTES]))
                await request.hold_back()
            await stream.hold(request)
        await _report(request, response, stream.take(b"", last=True))
    except ConnectionError:
        stream.ended = True
    except Exception as error:
        if not response.prepared:
            raise
        stream.ended = True
        await _report(request, response, _last_words(error))
    if not response.prepared:
        raise unprocessable(42206, "Payload error. Request body is empty. Data is required.")
    if stream.ended:
        response.force_close()
    return response


async def _next(request: Request, pieces: AsyncIterator[bytes]) -> bytes:
    """The next piece of a body, empty at its end; waits as long as the principal's quotas demand.

    Raises:
        ApiError: It did not arrive in time, or the server is draining.
    """
    drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with request.waiting(), request.door.drained_by(drained):
        if delay_ms := request.session.take_throttle_ms():
            await asyncio.wait((drained,), timeout=delay_ms / 1000)
        coming = asyncio.ensure_future(_piece(pieces))
        try:
            await asyncio.wait((coming, drained), return_when=asyncio.FIRST_COMPLETED)
            if drained.done():
                drained.result()
            return coming.result()
        finally:
            coming.cancel()
            drained.cancel()


async def _piece(pieces: AsyncIterator[bytes]) -> bytes:
    return await anext(pieces, b"")


async def _report(request: Request, response: web.StreamResponse, reports: str) -> None:
    if reports:
        with request.waiting():
            await response.prepare(request.http)
            await response.write(reports.encode())


def _last_words(error: Exception) -> str:
    """The report on the error that ends a stream."""
    if isinstance(error, LogdbError):
        error = told(error)
    if isinstance(error, NoRoom):
        error = ApiError(503, 503, str(error))
    if not isinstance(error, ApiError):
        logger.error("a stream of records", exc_info=error)
        error = ApiError(500, 500, "internal error")
    return f"{{{refusal(error)}}}{_SEPARATOR}"


class _Stream:
    """Turns pieces of a request's body into reports."""

    def __init__(self, request: Request) -> None:
        self._records = _Records(request, _SUCCESS)
        self._objects = JsonStream()
        self.ended = False

    async def hold(self, request: Request) -> None:
        """Count the received part of a large record in the memory of all requests."""
        request.give_memory_back()
        if self._objects.held_length > _SMALL_LENGTH:
            await request.take_memory(self._objects.held_length)

    def take(self, piece: bytes, *, last: bool = False) -> str:
        """Append the complete records of a piece; returns the reports."""
        if self.ended:
            return ""
        reports = self._records.append(self._objects.feed(piece, last=last), row)
        texts = [one if type(one) is str else f"{{{refusal(one)}}}" for one in reports]  # type: ignore[arg-type]  # what is no text is an error
        if self._objects.failure is not None:
            self.ended = True
            texts.append(f"{{{refusal(self._objects.failure)}}}")
        return _SEPARATOR.join((*texts, ""))


# ---------------------------------------------------------------- a batch


@routes.post(
    RECORDS + ":batch",
    "Append a batch of records; answers with successes and failures",
    needs=("Write Topic",),
    body=shapes.BATCH,
    gives=shapes.BATCH_REPORT,
    status=207,
)
@of_cluster
async def produce_batch(request: Request) -> web.StreamResponse:
    body = await read_object(request, "entries", size_bytes_max=request.door.limits.json_bytes_max)
    return await request.call(_append_batch, request, body)


def _append_batch(request: Request, body: dict[str, Any]) -> web.Response:
    entries = _entries(body)
    reports = _Records(request).append(entries, _entry_row)
    ids = [json.dumps(entry["id"]) for entry in entries]
    good = [f'{{"id":{name}{one}' for name, one in zip(ids, reports, strict=True) if isinstance(one, str)]
    bad = [f'{{"id":{name},{refusal(one)}}}' for name, one in zip(ids, reports, strict=True) if not isinstance(one, str)]
    answer = f'{{"successes":[{",".join(good)}],"failures":[{",".join(bad)}]}}'
    return web.Response(body=answer.encode(), status=207, content_type="application/json")


def _entries(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of a batch, each with its own id."""
    entries = body.get("entries")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise malformed("entries", entries, "a list of objects")
    if not entries:
        raise unprocessable(42208, "Empty batch.")
    if len(entries) > ENTRY_COUNT_MAX:
        raise unprocessable(42208, f"Too many entries in batch: {len(entries)}, must be at most {ENTRY_COUNT_MAX}.")
    ids = [entry.get("id") for entry in entries]
    for name in ids:
        if not isinstance(name, str) or not 1 <= len(name) <= ID_LENGTH_MAX:
            raise unprocessable(
                42208, f"Batch entry identifier is not a valid string: {name!r:.100} has not 1 to {ID_LENGTH_MAX} characters."
            )
    if len(set(ids)) < len(ids):
        raise unprocessable(42208, "Batch entry IDs are not distinct.")
    return entries


def _entry_row(entry: Any) -> Row:
    return row(entry, _BESIDE)


# ---------------------------------------------------------------- to the logs

_Chosen: TypeAlias = tuple[list[int], list[Row]]
"""Rows of one partition: the places of their reports, and the records."""


class _Records:
    """Appends records to the partitions of a topic."""

    def __init__(self, request: Request, begin: str = "") -> None:
        """May wait for a disk.

        Args:
            begin: The begin of all reports.

        Raises:
            NotAuthorized, UnknownTopic: No record can be appended.
        """
        self._session: AuthorizedSession = request.session
        self._begin = begin
        self._topic, self._cluster_id = request.path("topic_name"), request.path("cluster_id")
        self._session.authorize(Produce(self._topic, 0))
        self._count = self._session.partition_count(self._topic)
        config = self._session.describe_topic(self._topic).config
        self._log_time = config.get("message.timestamp.type") == "LogAppendTime"
        self._logs: dict[int, PartitionLog] = {}

    def append(self, records: Sequence[Any], parse: Callable[[Any], Row]) -> list[str | ApiError]:
        """Append records, those of a partition together; returns for each the rest of its report, or the error."""
        reports: list[Any] = [None] * len(records)
        rows: dict[int, _Chosen] = {}
        any_partition = random.randrange(self._count)  # noqa: S311 -- spreads pieces, keeps no secret
        for at, record in enumerate(records):
            try:
                one = parse(record)
            except ApiError as error:
                reports[at] = without_frames(error)
                continue
            except RecursionError:
                reports[at] = ApiError(400, 400, "Bad Request: a record is too deep.")
                continue
            partition, key = one[0], one[1]
            if partition is None:
                partition = any_partition if key is None else partition_for_key(key, self._count)
            chosen = rows.get(partition)
            if chosen is None:
                chosen = rows[partition] = ([], [])
            chosen[0].append(at)
            chosen[1].append(one)
        now_ms = self._now_ms()
        for partition, (places, found) in rows.items():
            if 0 <= partition < self._count:
                self._append(self._log(partition), places, found, now_ms, reports)
            else:
                _refuse(places, reports, ApiError(404, 40402, f"Partition not found: {self._topic} has {self._count}, not {partition}."))
        return reports

    def _now_ms(self) -> int:
        clock = self._session.clock
        return time.time_ns() // 1_000_000 if clock is None else clock()

    def _log(self, partition: int) -> PartitionLog:
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = self._session.log(self._topic, partition)
        return log

    def _append(self, log: PartitionLog, places: Sequence[int], rows: Sequence[Row], now_ms: int, reports: list[Any]) -> None:
        """Append rows to a partition in one call; by halves if one of them is refused, so that only that one is left out."""
        _, keys, values, headers, times, tails = zip(*rows, strict=True)
        stamped = [now_ms if at_ms is None else at_ms for at_ms in times]
        try:
            offsets = log.append_many(values, keys, headers=headers if any(headers) else None, timestamps_ms=stamped)
        except LogdbError as error:
            middle = len(rows) // 2
            if middle and isinstance(error, _FAULTS):
                self._append(log, places[:middle], rows[:middle], now_ms, reports)
                self._append(log, places[middle:], rows[middle:], now_ms, reports)
            else:
                _refuse(places, reports, told(error))
            return
        begin = self._begin + report_begin(self._cluster_id, self._topic, log.partition)
        now = timestamp_text(None if self._log_time else now_ms)
        for place, offset, at_ms, tail in zip(places, offsets, times, tails, strict=True):
            when = now if at_ms is None or self._log_time else timestamp_text(at_ms)
            reports[place] = f"{begin}{offset}{when}{tail}"


def _refuse(places: Sequence[int], reports: list[Any], error: ApiError) -> None:
    for place in places:
        reports[place] = error
