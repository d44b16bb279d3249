"""Fetch: whole batches of each partition, from the one that holds the asked offset, as they lie on the disk.

Every answer is a full one: session id 0 tells the client that there is no fetch session (KIP-227).
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError, UnknownPartition, UnknownTopic
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.model import AbortedTransaction, TopicPartition
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of

_FIRST_EPOCHS = (-1, 0)  # of a fetch that belongs to no session, or wants to begin one
_KEPT_BYTES_MIN = 64 << 10  # what is less does not keep a large read buffer while it is sent


class Wanted(NamedTuple):
    """What is to be read of one partition; ``leader_epoch``: that the client takes for the current one, -1: unknown."""

    where: TopicPartition
    offset: int
    bytes_max: int
    leader_epoch: int


class Read(NamedTuple):
    """What was read of one partition."""

    records: memoryview
    next_offset: int
    code: Code
    start_offset: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()

    def values(self, partition: int, isolation_level: IsolationLevel) -> Values:
        """As the response has it; the client leaves out what was aborted."""
        aborted = [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in self.aborted]
        return {
            "partition_index": partition,
            "error_code": self.code,
            "high_watermark": self.high_watermark,
            "last_stable_offset": self.last_stable_offset,
            "log_start_offset": self.start_offset,
            "aborted_transactions": aborted if isolation_level == "read_committed" else None,
            "records": self.records,
        }


async def fetch(call: Call) -> Values:
    """Read until ``min_bytes`` are there, a partition has an error, or the time is over."""
    values = call.values
    if values["session_id"]:
        return {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    if values["session_epoch"] not in _FIRST_EPOCHS:
        return {"error_code": Code.INVALID_FETCH_SESSION_EPOCH, "responses": []}
    wanted = [
        Wanted(
            TopicPartition(topic["topic"], one["partition"]), one["fetch_offset"], one["partition_max_bytes"], one["current_leader_epoch"]
        )
        for topic in values["topics"]
        for one in topic["partitions"]
    ]
    isolation_level = ISOLATION_LEVELS[values["isolation_level"] == 1]
    answers = iter(await _fetched(call, wanted, isolation_level))
    return {
        "error_code": Code.NONE,
        "responses": [{"topic": topic["topic"], "partitions": [next(answers) for _ in topic["partitions"]]} for topic in values["topics"]],
    }


async def _fetched(call: Call, wanted: list[Wanted], isolation_level: IsolationLevel) -> list[Values]:
    values, loop = call.values, asyncio.get_running_loop()
    until = loop.time() + values["max_wait_ms"] / 1000
    room_bytes = max(1, min(values["max_bytes"], call.door.limits.fetch_bytes_max, sum(one.bytes_max for one in wanted)))
    enough_bytes = min(values["min_bytes"], room_bytes)
    while True:
        await call.keep_memory(room_bytes)
        reads = await call.call(_read_all, call.session, wanted, room_bytes, isolation_level)
        left_ms = round((until - loop.time()) * 1000)
        is_enough = sum(len(one.records) for one in reads) >= enough_bytes or any(one.code for one in reads)
        if is_enough or left_ms <= 0 or call.door.draining or not wanted:
            await call.keep_memory(_held_bytes(reads))
            return [one.values(where.partition, isolation_level) for one, (where, *_) in zip(reads, wanted, strict=True)]
        await call.keep_memory(0)
        positions = {one.where: read.next_offset for one, read in zip(wanted, reads, strict=True)}
        try:
            await call.wait(positions, left_ms, isolation_level=isolation_level)
        except (UnknownTopic, UnknownPartition):
            until = 0.0  # the next read says so


def _read_all(session: AuthorizedSession, wanted: Iterable[Wanted], room_bytes: int, isolation_level: IsolationLevel) -> list[Read]:
    """Read partition after partition, as far as there is room; the first batch of all is read even if it alone is larger."""
    reads, is_first = list[Read](), True
    for one in wanted:
        read = _read(session, one, room_bytes, isolation_level, at_least_one=is_first)
        reads.append(read)
        room_bytes -= len(read.records)
        is_first = is_first and not read.records
    return reads


def _read(session: AuthorizedSession, wanted: Wanted, room_bytes: int, isolation_level: IsolationLevel, *, at_least_one: bool) -> Read:
    offset, bytes_max = wanted.offset, min(wanted.bytes_max, room_bytes)
    try:
        log = session.log(*wanted.where)
        if wanted.leader_epoch >= 0:
            log.epoch_end(wanted.leader_epoch, current_epoch=wanted.leader_epoch)
        records, next_offset = memoryview(b""), offset
        if at_least_one or bytes_max > 0:
            records, next_offset = log.read_batches(offset, max(1, bytes_max), isolation_level=isolation_level)
            if len(records) > bytes_max and not at_least_one:
                records, next_offset = memoryview(b""), offset
        aborted = log.aborted_transactions(offset, next_offset) if isolation_level == "read_committed" and next_offset > offset else []
        kept = records if len(records) >= _KEPT_BYTES_MIN else memoryview(bytes(records))
        return Read(kept, next_offset, Code.NONE, log.start_offset, log.readable_end_offset(), log.last_stable_offset, aborted)
    except LogdbError as error:
        return Read(memoryview(b""), offset, code_of(error))


def _held_bytes(reads: Iterable[Read]) -> int:
    """How much memory the views of records hold."""
    bases: list[Any] = [one.records.obj for one in reads]
    return sum({id(base): len(base) for base in bases}.values())
