"""Routes about the log of a partition, except its records: start and end, transactions, durability.  The remote log reads the answers."""

import contextlib

from aiohttp import web

from logdb.access.session import AuthorizedSession
from logdb.errors import NotAuthorized, NotLeaderOrFollower, OffsetNotAvailable, TopicDeleted, UnknownPartition, UnknownTopic
from logdb.log.isolation import IsolationLevel
from logdb.log.producers import Producer
from logdb.model import KnownLog, TopicPartition
from logdb.requests.records import AbortedTransactions, EpochAt, Log, OffsetForTimestamp, OpenTransactions, Producers
from logdb_http_api.door.request import Request, answer, encoded
from logdb_http_api.door.routing import Routes
from logdb_http_api.door.schemas import Body, Number, Parameter
from logdb_http_api.errors import ApiError
from logdb_http_api.protocol import (
    PARTITION_PATH,
    PARTITIONS_PATH,
    PARTITIONS_WAIT_MS_MAX,
    Epoch,
    Found,
    Latest,
    LogState,
    Look,
    Transactions,
)

PARTITION_COUNT_MAX = 10_000

routes = Routes()


@routes.post(
    PARTITIONS_PATH,
    "The start and end of partitions; waits for a record at one of the positions",
    needs=("Describe Topic",),
    body=Body({"application/json": Look}),
    gives={"application/json": list[LogState | None]},
    leaves_out=True,
)
async def look(request: Request) -> web.StreamResponse:
    """States in the order of the positions; null for a partition that does not exist, or that the principal may not see.

    A node waits for the partitions that it leads; if another one leads one of them, it answers at once.
    """
    wanted: Look = await request.decoded(Look)
    if len(wanted.positions) > PARTITION_COUNT_MAX:
        raise ApiError(422, 422, f"{len(wanted.positions)} positions: must be at most {PARTITION_COUNT_MAX}")
    if wanted.timeout_ms > 0:
        positions, level, timeout_ms = wanted.positions, wanted.isolation_level, min(wanted.timeout_ms, PARTITIONS_WAIT_MS_MAX)
        with contextlib.suppress(NotLeaderOrFollower, TopicDeleted):  # the states say so
            if not await request.call(request.session.wait, positions, 0, isolation_level=level, known=wanted.known):
                await request.wait(positions, timeout_ms, isolation_level=level, known=wanted.known)
    return await request.call(_states, request.session, wanted)


def _states(session: AuthorizedSession, wanted: Look) -> web.Response:
    return encoded([_state(session, partition, wanted) for partition in wanted.positions])


def _state(session: AuthorizedSession, partition: TopicPartition, wanted: Look) -> LogState | None:
    try:
        log = session.open_log(Log(*partition))
        if session.replication is not None:
            log.check_end_known()
        readable = log.readable_end_offset(wanted.isolation_level)
        return LogState(
            log.start_offset,
            log.end_offset,
            readable,
            log.last_stable_offset,
            log.size_bytes,
            log.durability,
            topic_id=log.topic_id,
            leader_epoch=log.epoch_at(readable - 1) if readable else -1,
            is_elsewhere=log.is_elsewhere(wanted.positions[partition], wanted.known.get(partition, KnownLog())),
        )
    except (NotLeaderOrFollower, OffsetNotAvailable) as error:
        return LogState(-1, -1, -1, -1, 0, "os", vars(session.located(error)).get("leader_address") or "")
    except (UnknownTopic, UnknownPartition, NotAuthorized):
        return None


@routes.get(
    f"{PARTITION_PATH}/timestamps/latest",
    "The record with the latest timestamp",
    needs=("Describe Topic",),
    takes=(Parameter("isolation_level", IsolationLevel, "read_committed leaves out open and aborted transactions."),),
    gives={"application/json": Latest},
)
async def latest_record(request: Request) -> web.StreamResponse:
    """The first record with the largest timestamp, or a transaction's marker; null if there is neither."""
    where = TopicPartition(request.path("topic"), request.partition())
    found = await request.call(_latest, request.session, where, request.isolation_level())
    return encoded(Latest(*(found or (None, None))))


def _latest(session: AuthorizedSession, partition: TopicPartition, isolation_level: IsolationLevel) -> tuple[int, int] | None:
    return session.log(*partition).latest_record(isolation_level=isolation_level)


@routes.get(
    f"{PARTITION_PATH}/timestamps/{{timestamp_ms}}",
    "The first offset of a time, or after it",
    needs=("Describe Topic",),
    gives={"application/json": Found},
)
async def offset_for_timestamp(request: Request) -> web.StreamResponse:
    """The offset of the first record that is as old as the timestamp, or younger; null if no record is."""
    asked = OffsetForTimestamp(request.path("topic"), request.partition(), request.path_number("timestamp_ms", -(2**63)))
    return encoded(Found(await request.call(request.session.submit, asked)))


@routes.get(
    f"{PARTITION_PATH}/epochs/{{offset}}", "The leader epoch of a record", needs=("Describe Topic",), gives={"application/json": Epoch}
)
async def epoch_at(request: Request) -> web.StreamResponse:
    """The leader epoch of the record at an offset; -1: unknown."""
    asked = EpochAt(request.path("topic"), request.partition(), request.path_number("offset"))
    return encoded(Epoch(await request.call(request.session.submit, asked)))


@routes.get(
    f"{PARTITION_PATH}/transactions",
    "Open and aborted transactions",
    needs=("Describe Topic",),
    takes=(Parameter("offset", Number(0), "Where to begin."), Parameter("end_offset", Number(0), "Where to end.")),
    gives={"application/json": Transactions},
)
async def transactions(request: Request) -> web.StreamResponse:
    """The open transactions, and the aborted ones with batches in [``offset``, ``end_offset``)."""
    where, offset, end_offset = (request.path("topic"), request.partition()), request.number("offset", 0), request.number("end_offset", 0)
    return await request.call(_transactions, request.session, AbortedTransactions(*where, offset, end_offset))


def _transactions(session: AuthorizedSession, asked: AbortedTransactions) -> web.Response:
    opened = session.submit(OpenTransactions(asked.topic, asked.partition))
    return encoded(Transactions(opened, session.submit(asked) if asked.offset < asked.end_offset else []))


@routes.get(
    f"{PARTITION_PATH}/producers",
    "The producers that have appended lately",
    needs=("Read Topic",),
    gives={"application/json": list[Producer]},
)
async def producers(request: Request) -> web.StreamResponse:
    """Each with its last batches and its open transaction, -1 where it has none; a producer that sends nothing for a day is forgotten."""
    return encoded(await request.call(request.session.submit, Producers(request.path("topic"), request.partition())))


@routes.post(
    f"{PARTITION_PATH}/flush",
    "Make appended records durable",
    needs=("Write Topic",),
    takes=(Parameter("sync", bool, "Whether to wait for the disk."),),
    gives={"application/json": {"*": object}},
)
async def flush(request: Request) -> web.StreamResponse:
    """Answered once the log is durable; with ``sync=false`` once the operating system has it."""
    log = await request.call(request.session.log, request.path("topic"), request.partition())
    await request.call(log.flush, request.flag("sync", default=True))
    return answer({})
