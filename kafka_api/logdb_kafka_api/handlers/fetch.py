"""Fetch: whole batches of each partition, from the one that holds the asked offset, as they lie on the disk.

Every answer is a full one: session id 0 tells the client that there is no fetch session (KIP-227).
"""

import contextlib

from logdb.access.session import AuthorizedSession
from logdb.errors import LogdbError, UnknownPartition, UnknownTopic
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel, is_committed
from logdb.model import AbortedTransaction
from logdb.requests.session import Session
from logdb.serving import fetch as serving
from logdb_kafka_api.call import Call, Values
from logdb_kafka_api.errors import Code, code_of

_FIRST_EPOCHS = (-1, 0)  # of a fetch that belongs to no session, or wants to begin one


class Read(serving.PartitionRead):
    """What is read of one partition; a client at ``read_committed`` leaves out aborted batches itself.

    field         meaning                                                    to be trusted
    _values       ends of the log and aborted transactions                   once read without an error
    others        see ``PartitionRead``                                      as they say
    """

    def __init__(self, topic: str, asked: Values, room_bytes: int) -> None:
        """Nothing is read yet; ``room_bytes``: for all partitions of the answer."""
        super().__init__(serving.Wanted(topic, asked["partition"], asked["fetch_offset"], asked["partition_max_bytes"]))
        self._epoch, self._room_bytes = asked["current_leader_epoch"], room_bytes
        self._values: Values = {"high_watermark": -1}

    def read(self, session: Session, room_bytes: int, isolation_level: IsolationLevel) -> None:
        """Read from the asked offset on; what an earlier read has found is read again, since the answer has one buffer.

        The first batch of the answer is read even if it alone is larger than it may be, or the client could never go on.
        """
        room_bytes += self.size_bytes
        self.parts, self.size_bytes, self.next_offset = [], 0, self.wanted.offset
        assert isinstance(session, AuthorizedSession)
        try:
            log = session.log(*self.where)
            if self._epoch >= 0:
                log.epoch_end(self._epoch, current_epoch=self._epoch)
            bytes_max, is_first = min(room_bytes, self.wanted.max_bytes), room_bytes == self._room_bytes
            if is_first or bytes_max > 0:
                records, next_offset = log.read_batches(self.wanted.offset, max(1, bytes_max), isolation_level=isolation_level)
                if is_first or len(records) <= bytes_max:
                    self.next_offset = next_offset
                    self._keep(records)
            aborted = list[AbortedTransaction]()
            if is_committed(isolation_level) and self.size_bytes:
                aborted = log.aborted_transactions(self.wanted.offset, self.next_offset)
            self._values = {
                "high_watermark": log.readable_end_offset(),
                "last_stable_offset": log.last_stable_offset,
                "log_start_offset": log.start_offset,
                "aborted_transactions": [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in aborted],
            }
        except LogdbError as error:
            self.error = error

    def values(self) -> Values:
        """As the response has it."""
        return {
            **self._values,
            "partition_index": self.wanted.partition,
            "error_code": Code.NONE if self.error is None else code_of(self.error),
            "records": self.parts[0] if self.parts else b"",
        }


async def fetch(call: Call) -> Values:
    """Read until there are ``min_bytes``, a partition has an error, or the time is over."""
    values = call.values
    if values["session_id"]:
        return {"error_code": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
    if values["session_epoch"] not in _FIRST_EPOCHS:
        return {"error_code": Code.INVALID_FETCH_SESSION_EPOCH, "responses": []}
    asked = [(topic["topic"], one) for topic in values["topics"] for one in topic["partitions"]]
    room_bytes = max(1, min(values["max_bytes"], call.door.limits.fetch_bytes_max, sum(one["partition_max_bytes"] for _, one in asked)))
    reads = [Read(topic, one, room_bytes) for topic, one in asked]
    if reads:
        with contextlib.suppress(UnknownTopic, UnknownPartition):  # it went during the wait: the next fetch says so
            await serving.fetch(
                call,
                reads,
                max_bytes=room_bytes,
                min_bytes=values["min_bytes"],
                wait_ms=values["max_wait_ms"],
                isolation_level=ISOLATION_LEVELS[values["isolation_level"] == 1],
            )
    answers = iter(reads)
    return {
        "error_code": Code.NONE,
        "responses": [
            {"topic": topic["topic"], "partitions": [next(answers).values() for _ in topic["partitions"]]} for topic in values["topics"]
        ],
    }
