"""Fetch: whole batches of each partition, from the one that holds the asked offset, as they lie on the disk.

Every answer is a full one: session id 0 tells the client that there is no fetch session (KIP-227).
"""

import contextlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from logdb.errors import UnknownPartition, UnknownTopic
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel, is_committed
from logdb.requests.error_document import document
from logdb.serving import fetch as serving
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of

if TYPE_CHECKING:
    from logdb.access.log import AuthorizedLog

_FIRST_EPOCHS = (-1, 0)  # of a fetch that belongs to no session, or wants to begin one


class Read(serving.PartitionRead):
    """What is read of one partition; a client at ``read_committed`` leaves out aborted batches itself.

    field         meaning                                                    to be trusted
    _aborted      first offsets of aborted transactions, by producer         always: of what was read so far
    others        see ``PartitionRead``                                      as they say
    """

    def __init__(self, topic: str, asked: Values) -> None:
        epoch = asked["current_leader_epoch"]
        super().__init__(
            serving.Wanted(topic, asked["partition"], asked["fetch_offset"], asked["partition_max_bytes"], None if epoch < 0 else epoch)
        )
        self._aborted: dict[tuple[int, int], None] = {}  # in order, each once: several reads may find the same

    def check(self, log: "AuthorizedLog", leader_epoch: int) -> None:
        log.epoch_end(leader_epoch, current_epoch=leader_epoch)  # the one that the client takes for the current one

    def selected(self, log: "AuthorizedLog", view: memoryview, begin: int, isolation_level: IsolationLevel) -> Iterable[memoryview]:
        if is_committed(isolation_level) and begin < self.next_offset:
            self._aborted |= {(one.producer_id, one.first_offset): None for one in log.aborted_transactions(begin, self.next_offset)}
        return (view,)

    def marks_of(self, log: "AuthorizedLog", readable: int) -> dict[str, int]:
        del readable
        ends = {"high_watermark": log.readable_end_offset(), "last_stable_offset": log.last_stable_offset}
        return ends | {"log_start_offset": log.start_offset}

    def values(self) -> Values:
        """As the response has it."""
        return {
            "high_watermark": -1,
            **self.marks,
            "partition_index": self.wanted.partition,
            "error_code": Code.NONE if self.error is None else code_of(self.error),
            "aborted_transactions": [{"producer_id": producer, "first_offset": offset} for producer, offset in self._aborted],
            "records": self.parts[0] if len(self.parts) == 1 else b"".join(self.parts),
        }


class DetailedRead(serving.UnabortedRead):
    """What is read of one partition for a request that is ``detailed``: as a fetch over HTTP has it, without aborted batches."""

    def __init__(self, topic: str, asked: Values) -> None:
        epoch = asked["last_fetched_epoch"]
        super().__init__(
            serving.Wanted(topic, asked["partition"], asked["fetch_offset"], asked["partition_max_bytes"], None if epoch < 0 else epoch)
        )

    def values(self) -> Values:
        """As the response has it."""
        return {
            "high_watermark": -1,
            "last_stable_offset": self.marks.get("last_stable_offset", -1),
            "log_start_offset": self.marks.get("start_offset", -1),
            "partition_index": self.wanted.partition,
            "error_code": Code.NONE if self.error is None else code_of(self.error),
            "aborted_transactions": (),
            "records": self.parts[0] if len(self.parts) == 1 else b"".join(self.parts),
            "next_offset": self.next_offset,
            "error": b"" if self.error is None else json.dumps(document(self.error)).encode(),
            "readable_end_offset": self.marks.get("readable_end_offset", -1),
        }


async def fetch(call: Call) -> Values:
    """Read until there are ``min_bytes``, a partition has an error, or the time is over."""
    values = call.values
    if values["session_id"]:
        return {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    if values["session_epoch"] not in _FIRST_EPOCHS:
        return {"error_code": Code.INVALID_FETCH_SESSION_EPOCH, "responses": []}
    make: type[DetailedRead | Read] = DetailedRead if values["detailed"] else Read
    reads = [make(topic["topic"], one) for topic in values["topics"] for one in topic["partitions"]]
    if reads:
        with contextlib.suppress(UnknownTopic, UnknownPartition):  # it went during the wait: the next fetch says so
            await serving.fetch(
                call,
                reads,
                max_bytes=max(1, min(values["max_bytes"], call.door.limits.fetch_bytes_max, sum(read.wanted.max_bytes for read in reads))),
                min_bytes=values["min_bytes"],
                wait_ms=values["max_wait_ms"],
                isolation_level=ISOLATION_LEVELS[values["isolation_level"] == 1],
            )
    answers = iter(reads)
    responses = [
        {"topic": topic["topic"], "partitions": [next(answers).values() for _ in topic["partitions"]]} for topic in values["topics"]
    ]
    announced = {"next_offset": reads[0].next_offset} if values["detailed"] and len(reads) == 1 else {}
    return {"error_code": Code.NONE, "responses": responses, **announced}
