"""Fetch by a follower: its reports, and whole batches past the high watermark.

session_epoch -1    of the partitions that the request names: a report, or the first batch of a log
session_epoch 0     begins a session of the connection (``replica_session``) with the partitions that it names
session_epoch n     goes on with it: names what has changed, is answered with what has news
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from logdb.codec.batch import span
from logdb.errors import LogdbError, NotLeaderOrFollower, OffsetOutOfRange, UnknownPartition, UnknownTopic, without_frames
from logdb.log.isolation import IsolationLevel
from logdb.log.protocols import ReplicaLog
from logdb.model import TopicPartition
from logdb.serving import fetch as serving
from logdb.serving.resources import DoorResources
from logdb.store.protocols import Leadership, ReplicaReport, Replication, Standing
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of
from logdb_kafka_api.replica_session import Named, ReplicaSession

if TYPE_CHECKING:
    from logdb.access.session import AuthorizedSession

_NO_SESSION, _FIRST_EPOCH = -1, 0
_SESSION_ID = 1  # of the one session of a connection


class ReplicaRead(serving.PartitionRead):
    """What a follower reads of one partition: past the high watermark, of the leadership that it follows.

    Attributes:
        is_news: The answer has something for the follower.
    """

    def __init__(
        self,
        wanted: serving.Wanted,
        node_id: int,
        known_high_watermark: int,
        leadership: Leadership | None,
        error: LogdbError | None = None,
    ) -> None:
        super().__init__(wanted)
        self._node_id, self._known_high_watermark, self._leadership, self.error = node_id, known_high_watermark, leadership, error

    def read(self, session: "AuthorizedSession", room_bytes: int, isolation_level: IsolationLevel, *, at_least_one: bool = True) -> None:
        del session, isolation_level
        leadership, room_bytes = self._leadership, min(room_bytes, self.wanted.max_bytes - self.size_bytes)
        try:
            if leadership is not None and (at_least_one or room_bytes > 0):
                leadership.check_not_over()
                view, next_offset = self._batches(leadership.log, max(1, room_bytes))
                leadership.check_not_over()  # the log that was read may be another leader's by now
                if at_least_one or len(view) <= room_bytes:
                    self.next_offset = next_offset
                    self._keep((view,))
                else:
                    self.is_full = True
        except LogdbError as error:
            self.error = without_frames(error)

    def _batches(self, log: ReplicaLog, size_bytes_max: int) -> tuple[memoryview, int]:
        """As ``ReplicaLog.read_batches``; also where the log start lies within the first batch, behind the wanted offset."""
        offset, start_offset = self.next_offset, log.start_offset
        view, next_offset = log.read_batches(max(offset, start_offset), size_bytes_max, replica=True)
        first = span(view)
        if offset < start_offset and (first is None or first.base_offset > offset):
            raise OffsetOutOfRange(log.topic, log.partition, offset, start_offset, log.end_offset)
        return view, next_offset

    def is_cached(self, door: DoorResources) -> bool:
        """As ``PartitionRead.is_cached``: what no follower had flushed yet was written a moment ago."""
        return self._leadership is None or (self.where not in door.appending and self.next_offset >= self.high_watermark)

    @property
    def high_watermark(self) -> int:
        return self._of_the_leaders_log(lambda log: log.high_watermark)

    @property
    def start_offset(self) -> int:
        return self._of_the_leaders_log(lambda log: log.start_offset)

    def _of_the_leaders_log(self, offset_of: Callable[[ReplicaLog], int]) -> int:
        """An offset of the log; -1 where this node does not lead it any more: then it may be the next leader's."""
        if self._leadership is None:
            return -1
        offset = offset_of(self._leadership.log)
        return -1 if self._leadership.is_over else offset

    @property
    def is_news(self) -> bool:
        return self.size_bytes > 0 or self.error is not None or self.high_watermark > self._known_high_watermark

    def values(self) -> Values:
        """As the response has it."""
        return {
            "high_watermark": self.high_watermark,
            "log_start_offset": self.start_offset,
            "standing": Standing.COUNTED if self._leadership is None else self._leadership.standing(self._node_id),
            "partition_index": self.wanted.partition,
            "error_code": Code.NONE if self.error is None else code_of(self.error),
            "aborted_transactions": (),
            "records": self.parts[0] if len(self.parts) == 1 else b"".join(self.parts),
        }


async def fetch_as_replica(call: Call, replication: Replication) -> Values:
    """Take a follower's reports, then read until there are records, a partition has an error, or the time is over."""
    values = call.values
    if values["session_epoch"] != _NO_SESSION:
        return await _fetch_in_session(call, replication)
    reads = [_reported(one, values, replication) for one in _named(values)]
    if values["max_bytes"] and reads:
        with contextlib.suppress(UnknownTopic, UnknownPartition, NotLeaderOrFollower):  # the next fetch is told so
            await _read(call, reads, values["max_wait_ms"])
    return {"error_code": Code.NONE, "responses": _responses(read for read in reads if read.is_news)}


def _named(values: Values) -> Iterator[Named]:
    for topic in values["topics"]:
        for one in topic["partitions"]:
            yield Named(
                TopicPartition(topic["topic"], one["partition"]),
                topic["logdb_topic_id"],
                one["current_leader_epoch"],
                one["fetch_offset"],
                one["partition_max_bytes"],
                one["flushed_offset"],
                one["high_watermark"],
                one["lineage"],
                one["log_start_offset"],
            )


def _wanted(one: Named) -> serving.Wanted:
    return serving.Wanted(*one.where, one.fetch_offset, one.max_bytes)


def _reported(one: Named, values: Values, replication: Replication) -> ReplicaRead:
    """A read of a partition whose report was taken."""
    node_id = values["replica_id"]
    report = ReplicaReport(
        node_id, values["replica_epoch"], one.topic_id, one.leader_epoch, one.flushed_offset, one.lineage, start_offset=one.start_offset
    )
    leadership, refused = None, None
    try:
        leadership = replication.reported(*one.where, report)
    except LogdbError as error:
        refused = without_frames(error)
    return ReplicaRead(_wanted(one), node_id, one.high_watermark, leadership, refused)


async def _read(call: Call, reads: Sequence[ReplicaRead], wait_ms: int) -> None:
    """Read as ``serving.fetch``; raises as it."""
    await serving.fetch(
        call,
        reads,
        max_bytes=min(call.values["max_bytes"], call.door.limits.fetch_bytes_max),
        min_bytes=call.values["min_bytes"],
        wait_ms=wait_ms,
        isolation_level="read_uncommitted",
        replica=True,
    )


def _responses(reads: Iterable[ReplicaRead]) -> list[Values]:
    """The answers by topic."""
    topics: dict[str, Values] = {}
    for read in reads:
        topics.setdefault(read.where.topic, {"topic": read.where.topic, "partitions": []})["partitions"].append(read.values())
    return list(topics.values())


# ---------------------------------------------------------------- sessions


async def _fetch_in_session(call: Call, replication: Replication) -> Values:
    """As without a session, of all partitions of the connection's: but only those that have changed cost anything."""
    values, session = call.values, _session(call, replication)
    if session is None:
        return {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    forgotten = [TopicPartition(topic["topic"], one) for topic in values["forgotten_topics_data"] for one in topic["partitions"]]
    named = list(_named(values))
    refused = session.take_request(named, forgotten, has_readers=values["has_readers"])
    found = {one.where: _read_of(session, one, None, refused[one.where]) for one in named if one.where in refused}
    found |= await _until_news(call, session, values["max_wait_ms"], is_over=bool(found))
    for partition in session.take_moved():
        if partition.named.where not in found:
            found[partition.named.where] = _read_of(session, partition.named, partition.leadership)
    for where, read in found.items():
        if read.error is not None:
            session.leave(where)
        else:
            session.was_told(where, read.high_watermark, read.start_offset)
    return {"error_code": Code.NONE, "session_id": _SESSION_ID, "responses": _responses(found.values())}


def _session(call: Call, replication: Replication) -> ReplicaSession | None:
    """The session that a request belongs to; None: it goes on with one that is not there."""
    values, client = call.values, call.client
    node_id, broker_epoch = values["replica_id"], values["replica_epoch"]
    if values["session_epoch"] == _FIRST_EPOCH:
        client.end_replica_session()
        client.replica_session = ReplicaSession(node_id, broker_epoch, replication)
        return client.replica_session
    session = client.replica_session
    return session if session is not None and session.goes_on(values["session_epoch"], node_id, broker_epoch) else None


def _read_of(session: ReplicaSession, one: Named, leadership: Leadership | None, error: LogdbError | None = None) -> ReplicaRead:
    return ReplicaRead(_wanted(one), session.node_id, one.high_watermark, leadership, error)


async def _until_news(call: Call, session: ReplicaSession, wait_ms: int, *, is_over: bool) -> dict[TopicPartition, ReplicaRead]:
    """Read the partitions that become due; returns those with records or an error.  ``is_over``: do not wait for any."""
    loop = asyncio.get_running_loop()
    until = loop.time() + min(wait_ms, call.door.limits.wait_ms_max) / 1000
    while True:
        seen, reads = session.change_count, [_read_of(session, one.named, one.leadership) for one in session.take()]
        if reads:
            await _read(call, reads, 0)
        has_records = any(read.size_bytes for read in reads)
        for read in reads:
            if read.size_bytes:
                session.was_sent(read.where)
            elif has_records and read.error is None:
                session.was_left_out(read.where)
        found = {read.where: read for read in reads if read.size_bytes or read.error is not None}
        left_ms = round((until - loop.time()) * 1000)
        if found or is_over or left_ms <= 0 or call.door.draining or session.has_moved():
            return found
        await call.changed(session, seen, left_ms)
