"""Fetch: whole batches of each partition, from the one that holds the asked offset, as they lie on the disk.

Every answer to a client is a full one: session id 0 tells it that there is no fetch session (KIP-227).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from logdb.access.log import ReplicaToRead
from logdb.codec.messages import FETCH_REQUEST, FETCH_RESPONSE
from logdb.errors import LogdbError, TopicDeleted, UnknownTopic, without_frames
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.log.view import Ends, Page
from logdb.requests.error_document import document
from logdb.requests.principals import CLUSTER_NODE
from logdb.serving import fetch as serving
from logdb_kafka_api.api import answers
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, topic_code_of
from logdb_kafka_api.handlers.replica_fetch import fetch_as_replica

if TYPE_CHECKING:
    from logdb.access.log import AuthorizedLog
    from logdb.access.session import AuthorizedSession

_FIRST_EPOCHS = (-1, 0)  # of a fetch that belongs to no session, ends one, or wants to begin one
_FIRST_OF_IDS = 13  # version that names topics by their ids
_LEVELS = range(len(ISOLATION_LEVELS))
_NO_NODE = -1
_max_bytes = attrgetter("wanted.max_bytes")


class Asked(NamedTuple):
    """A topic as a request names it: by its name, or by its id, of which the name is known.

    ``logdb_topic_id``: see ``serving.Wanted``.  ``name``: empty if the id is unknown.  ``error``: why nothing can be read of it.
    """

    name: str
    topic_id: bytes
    logdb_topic_id: str
    by_id: bool
    error: UnknownTopic | None = None


def _code(read: "DetailedRead | Read") -> Code:
    """A topic that was created again while the fetch waited for its records has another id than the topic that was read."""
    if read.error is None:
        return Code.NONE
    if read.asked.by_id and isinstance(read.error, TopicDeleted) and read.marks:
        return Code.INCONSISTENT_TOPIC_ID
    return topic_code_of(read.error, by_id=read.asked.by_id)


class Read(serving.PartitionRead):
    """What is read of one partition; a client at ``read_committed`` leaves out aborted batches itself.

    field         meaning                                                    to be trusted
    asked         the topic as the request names it                          always
    _aborted      first offsets of aborted transactions, by producer         always: of what was read so far
    others        see ``PartitionRead``                                      as they say
    """

    def __init__(self, asked: "Asked", wanted: serving.Wanted) -> None:
        super().__init__(wanted)
        self.asked, self.error = asked, asked.error
        self._aborted: dict[tuple[int, int], None] = {}  # in order, each once: several reads may find the same

    def check(self, log: "AuthorizedLog", leader_epoch: int) -> None:
        log.epoch_end(leader_epoch, current_epoch=leader_epoch)  # the one that the client takes for the current one

    def selected(self, page: Page) -> Iterable[memoryview]:
        if page.aborted:
            self._aborted |= {(one.producer_id, one.first_offset): None for one in page.aborted}
        return (page.batches,)

    def marks_of(self, log: "AuthorizedLog", ends: Ends) -> dict[str, int]:
        del log
        start_offset, high_watermark, last_stable_offset, _ = ends
        return {"high_watermark": high_watermark, "last_stable_offset": last_stable_offset, "log_start_offset": start_offset}

    def values(self) -> Values:
        """As the response has it."""
        return {
            "high_watermark": -1,
            **self.marks,
            "partition_index": self.wanted.partition,
            "error_code": _code(self),
            "aborted_transactions": [{"producer_id": producer, "first_offset": offset} for producer, offset in self._aborted],
            "records": self.parts[0] if len(self.parts) == 1 else b"".join(self.parts),
        }


class RackRead(Read):
    """What is read of one partition for a client with a rack: at the leader, or at a follower in sync (KIP-392).

    field         meaning                                                    to be trusted
    _nearest      the follower that the client is to read; None: this node   once read
    others        see ``Read``                                               as they say
    """

    at_followers = True

    def __init__(self, rack: str, asked: "Asked", wanted: serving.Wanted) -> None:
        super().__init__(asked, wanted)
        self._rack = rack
        self._nearest: int | None = None

    def read(self, session: "AuthorizedSession", room_bytes: int, isolation_level: IsolationLevel, *, at_least_one: bool = True) -> None:
        if not self.marks and self.error is None:
            self._choose(session)
        if self._nearest is None:
            super().read(session, room_bytes, isolation_level, at_least_one=at_least_one)

    def _choose(self, session: "AuthorizedSession") -> None:
        try:
            log = session.log_to_read(*self.where, at_followers=True, for_ends=True)
            self._meet(log.topic_id)
            if self.wanted.leader_epoch is not None:
                self.check(log, self.wanted.leader_epoch)
            if isinstance(log, ReplicaToRead) and self.next_offset >= log.start_offset:  # a follower may not know of a deletion yet
                self._nearest = log.nearest(self._rack, self.next_offset, "kafka")
            if self._nearest is not None:
                self.marks = self.marks_of(log, log.ends())
        except LogdbError as error:
            self.error = without_frames(session.located(error))

    @property
    def is_over(self) -> bool:
        return self._nearest is not None or super().is_over

    def values(self) -> Values:
        """As the response has it; an error names no ends, by which a client may take it for the leader's word."""
        if self.error is not None:
            self.marks = {}
        return super().values() | {"preferred_read_replica": _NO_NODE if self._nearest is None else self._nearest}


class DetailedRead(serving.UnabortedRead):
    """What is read of one partition for a request that is ``detailed``: as a fetch over HTTP has it, without aborted batches.

    field         meaning                                                    to be trusted
    at_followers  the client has been sent here by the leader                always
    _nearest      HTTP listener of the follower to read next; "": none       once read
    others        see ``PartitionRead``                                      as they say
    """

    def __init__(self, rack: str, at_followers: bool, asked: "Asked", wanted: serving.Wanted) -> None:
        super().__init__(wanted)
        self.asked, self.error = asked, asked.error
        self.at_followers, self._rack, self._nearest = at_followers, rack, ""

    def read(self, session: "AuthorizedSession", room_bytes: int, isolation_level: IsolationLevel, *, at_least_one: bool = True) -> None:
        super().read(session, room_bytes, isolation_level, at_least_one=at_least_one)
        if self._rack and not self.at_followers and self.error is None:
            self._choose(session)

    def _choose(self, session: "AuthorizedSession") -> None:
        """Name the follower that the client is to read next."""
        try:
            log = session.log_to_read(*self.where, at_followers=True, for_ends=True)
            self._nearest = session.nearest_address(log, self._rack, self.next_offset) or ""
        except LogdbError:  # this node leads it no more: the client's next request says so
            self._nearest = ""

    def values(self) -> Values:
        """As the response has it."""
        return {
            "high_watermark": -1,
            "last_stable_offset": self.marks.get("last_stable_offset", -1),
            "log_start_offset": self.marks.get("start_offset", -1),
            "partition_index": self.wanted.partition,
            "error_code": _code(self),
            "aborted_transactions": (),
            "records": self.parts[0] if len(self.parts) == 1 else b"".join(self.parts),
            "next_offset": self.next_offset,
            "error": b"" if self.error is None else json.dumps(document(self.error)).encode(),
            "readable_end_offset": self.marks.get("readable_end_offset", -1),
            "nearest": self._nearest,
        }


def _reads(values: Values, by_id: bool, rack: str) -> "Sequence[DetailedRead | Read]":
    """What a request reads, each partition once: of one that is named twice the last counts, as in Kafka.

    Takes the topics out of the request, which may wait for long.

    Args:
        rack: Of the client; "": it reads at leaders alone.

    Source: Kafka's ``FetchRequest.fetchData``.
    """
    make: Callable[[Asked, serving.Wanted], DetailedRead | Read] = partial(RackRead, rack) if rack else Read
    epoch_field = "current_leader_epoch"
    if values["detailed"]:
        make, epoch_field = partial(DetailedRead, rack, bool(rack) and values["at_followers"]), "last_fetched_epoch"
    reads = {}
    for topic in values.pop("topics"):
        name, topic_id = topic["topic"], topic["topic_id"]
        error = UnknownTopic(str(UUID(bytes=topic_id))) if by_id and not name else None
        asked = Asked(name, topic_id, topic["logdb_topic_id"], by_id, error)
        for one in topic["partitions"]:
            partition, epoch = one["partition"], one[epoch_field]
            position = one["fetch_offset"], one["partition_max_bytes"], None if epoch < 0 else epoch
            reads[name, topic_id, partition] = make(asked, serving.Wanted(name, partition, *position, asked.logdb_topic_id))
    return list(reads.values())


def _responses(reads: "Iterable[DetailedRead | Read]") -> list[Values]:
    """The answers by topic."""
    topics: dict[tuple[str, bytes], Values] = {}
    for read in reads:
        name, topic_id, *_ = read.asked
        topic = topics.setdefault((name, topic_id), {"topic": name, "topic_id": topic_id, "partitions": []})
        topic["partitions"].append(read.values())
        if isinstance(read, DetailedRead):
            topic["logdb_topic_id"] = read.topic_id
    return list(topics.values())


@answers(1, FETCH_REQUEST, FETCH_RESPONSE)
async def fetch(call: Call) -> Values:
    """Read until there are ``min_bytes``, a partition has an error, or the time is over."""
    values = call.values
    if values["replica_epoch"] >= 0:
        if call.session.replication is None or call.session.principal != CLUSTER_NODE:
            return {"error_code": Code.CLUSTER_AUTHORIZATION_FAILED, "responses": []}
        return await fetch_as_replica(call, call.session.replication)
    if values["session_epoch"] not in _FIRST_EPOCHS:
        return {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    if values["isolation_level"] not in _LEVELS:  # never read_uncommitted for a client that asks for something else
        return {"error_code": Code.INVALID_REQUEST, "responses": []}
    by_id = call.version >= _FIRST_OF_IDS
    if by_id and not call.door.topics.name_at_once(values["topics"], "topic"):
        await call.call(call.door.topics.look)
        call.door.topics.name_at_once(values["topics"], "topic")
    rack = "" if call.session.replication is None else values["rack_id"]
    reads = await call.aside(_reads, values, by_id, rack)
    if reads:
        await serving.fetch(
            call,
            reads,
            max_bytes=max(1, min(values["max_bytes"], call.door.limits.fetch_bytes_max, sum(map(_max_bytes, reads)))),
            min_bytes=values["min_bytes"],
            wait_ms=values["max_wait_ms"],
            isolation_level=ISOLATION_LEVELS[values["isolation_level"] == 1],
        )
    responses = await call.aside(_responses, reads)
    announced = {"next_offset": reads[0].next_offset} if values["detailed"] and len(reads) == 1 else {}
    return {"error_code": Code.NONE, "responses": responses, **announced}
