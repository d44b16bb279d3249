"""Fetch: whole batches of each partition, from the one that holds the asked offset, as they lie on the disk.

Every answer is a full one: session id 0 tells the client that there is no fetch session (KIP-227).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from logdb.errors import UnknownPartition, UnknownTopic
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel
from logdb.serving.fetch import PartitionRead, Wanted
from logdb.serving.fetch import fetch as fetch_partitions
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of

if TYPE_CHECKING:
    from logdb.access.log import AuthorizedLog

_FIRST_EPOCHS = (-1, 0)  # of a fetch that belongs to no session, or wants to begin one


class _Read(PartitionRead):
    """A partition of the response: the client leaves out what was aborted, by the list that goes along."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted)
        self._aborted: list[Values] = []

    def check(self, log: "AuthorizedLog") -> None:
        epoch = self.wanted.leader_epoch  # that the client takes for the current one
        if epoch is not None:
            log.epoch_end(epoch, current_epoch=epoch)

    def selected(self, log: "AuthorizedLog", view: memoryview, begin: int, isolation_level: IsolationLevel) -> Iterable[memoryview]:
        if isolation_level == "read_committed" and begin < self.next_offset:
            known = {(one["producer_id"], one["first_offset"]) for one in self._aborted}
            found = ((one.producer_id, one.first_offset) for one in log.aborted_transactions(begin, self.next_offset))
            self._aborted += [
                {"producer_id": producer_id, "first_offset": first} for producer_id, first in found if (producer_id, first) not in known
            ]
        return (view,)

    def marks_of(self, log: "AuthorizedLog", readable: int) -> dict[str, int]:
        del readable
        return {
            "log_start_offset": log.start_offset,
            "high_watermark": log.readable_end_offset(),
            "last_stable_offset": log.last_stable_offset,
        }

    def values(self, isolation_level: IsolationLevel) -> Values:
        """As the response has it."""
        marks: dict[str, Any] = (
            self.marks if self.error is None else dict.fromkeys(("log_start_offset", "high_watermark", "last_stable_offset"), -1)
        )
        return marks | {
            "partition_index": self.where.partition,
            "error_code": Code.NONE if self.error is None else code_of(self.error),
            "aborted_transactions": self._aborted if isolation_level == "read_committed" else None,
            "records": self.parts[0] if len(self.parts) == 1 else b"".join(self.parts),
        }


async def fetch(call: Call) -> Values:
    """Read until ``min_bytes`` are there, a partition has an error, or the time is over."""
    values = call.values
    if values["session_id"]:
        return {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    if values["session_epoch"] not in _FIRST_EPOCHS:
        return {"error_code": Code.INVALID_FETCH_SESSION_EPOCH, "responses": []}
    isolation_level = ISOLATION_LEVELS[values["isolation_level"] == 1]
    reads = [_read_of(topic["topic"], one) for topic in values["topics"] for one in topic["partitions"]]
    if reads:
        await _fetch(call, reads, isolation_level)
    answers = iter([read.values(isolation_level) for read in reads])
    return {
        "error_code": Code.NONE,
        "responses": [{"topic": topic["topic"], "partitions": [next(answers) for _ in topic["partitions"]]} for topic in values["topics"]],
    }


def _read_of(topic: str, one: Values) -> _Read:
    epoch = one["current_leader_epoch"]
    return _Read(Wanted(topic, one["partition"], one["fetch_offset"], one["partition_max_bytes"], epoch if epoch >= 0 else None))


async def _fetch(call: Call, reads: list[_Read], isolation_level: IsolationLevel) -> None:
    values = call.values
    wanted_bytes = sum(read.wanted.max_bytes for read in reads)
    bounds = {
        "max_bytes": max(1, min(values["max_bytes"], call.door.limits.fetch_bytes_max, wanted_bytes)),
        "min_bytes": values["min_bytes"],
    }
    try:
        await fetch_partitions(call, reads, **bounds, wait_ms=values["max_wait_ms"], isolation_level=isolation_level)
    except (UnknownTopic, UnknownPartition):  # it went meanwhile: the next read says of which
        await fetch_partitions(call, reads, **bounds, wait_ms=0, isolation_level=isolation_level)
