"""One partition's log, for asyncio."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TYPE_CHECKING

from logdb.aio.mirror import TAKE_COUNT, WAIT_MS_MAX, Deadline, Mirror, Wake, in_thread
from logdb.codec import Record
from logdb.log.isolation import IsolationLevel
from logdb.log.protocols import PartitionLog
from logdb.model import Duration
from logdb.signatures import readable

if TYPE_CHECKING:
    import pyarrow

    from logdb.codec import arrow


@readable
class Log(Mirror[PartitionLog]):
    """As ``logdb.Log``.  Made by ``Database.log``."""

    append = in_thread(PartitionLog.append)
    append_many = in_thread(PartitionLog.append_many)
    append_batches = in_thread(PartitionLog.append_batches)
    flush = in_thread(PartitionLog.flush)
    get = in_thread(PartitionLog.get)
    tail = in_thread(PartitionLog.tail)
    read_batches = in_thread(PartitionLog.read_batches)
    offset_for_timestamp = in_thread(PartitionLog.offset_for_timestamp)
    latest_record = in_thread(PartitionLog.latest_record)
    aborted_transactions = in_thread(PartitionLog.aborted_transactions)
    open_transactions = in_thread(PartitionLog.open_transactions)

    @property
    def topic(self) -> str:
        return self._sync.topic

    @property
    def partition(self) -> int:
        return self._sync.partition

    @property
    def topic_id(self) -> str:
        """The id of its topic; behind a URL "" until a server has answered."""
        return self._sync.topic_id

    @property
    def start_offset(self) -> Awaitable[int]:
        """``await log.start_offset``: the first offset that can be read."""
        return self._threads.run(lambda: self._sync.start_offset)

    @property
    def size_bytes(self) -> Awaitable[int]:
        """``await log.size_bytes``: bytes of all segments, as written."""
        return self._threads.run(lambda: self._sync.size_bytes)

    @property
    def end_offset(self) -> Awaitable[int]:
        """``await log.end_offset``: the next offset to be written."""
        return self._threads.run(lambda: self._sync.end_offset)

    @property
    def last_stable_offset(self) -> Awaitable[int]:
        """``await log.last_stable_offset``: the first offset of an open transaction, or else the end."""
        return self._threads.run(lambda: self._sync.last_stable_offset)

    async def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> AsyncIterator[Record]:
        """As ``logdb.Log.read``; its errors come where iteration begins."""
        while True:
            records = await self._threads.run(
                self._sync.read, offset, end_offset=end_offset, leader_epoch=leader_epoch, isolation_level=isolation_level
            )
            while taken := await self._threads.run(records.take, TAKE_COUNT):
                for record in taken:
                    yield record
            if records.exhausted:
                return
            offset, leader_epoch = records.next_offset, None  # reading failed there, and does so again

    async def read_arrow(
        self,
        offset: int | None = None,
        *,
        end_offset: int | None = None,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        schema: "arrow.ValueSchema | None" = None,
        use_threads: bool = True,
    ) -> "AsyncIterator[pyarrow.RecordBatch]":
        """As ``logdb.Log.read_arrow``; its errors come where iteration begins."""
        batches = await self._threads.run(
            self._sync.read_arrow,
            offset,
            end_offset=end_offset,
            columns=columns,
            isolation_level=isolation_level,
            schema=schema,
            use_threads=use_threads,
        )
        while (batch := await self._threads.run(next, batches, None)) is not None:  # each is large
            yield batch

    async def follow(
        self,
        offset: int,
        *,
        timeout_ms: Duration | None = None,
        stop: asyncio.Event | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> AsyncIterator[Record]:
        """As ``logdb.Log.follow``; cancelling the task ends it, too, and no thread waits meanwhile."""
        wake, deadline, leader_epoch = Wake(), Deadline(timeout_ms), -1
        self._sync.watch(wake)
        try:
            while stop is None or not stop.is_set():
                wake.clear()
                end_offset = await self._threads.run(self._sync.readable_end_offset, isolation_level)
                async for record in self.read(offset, end_offset=end_offset, leader_epoch=leader_epoch, isolation_level=isolation_level):
                    yield record
                    offset, leader_epoch, deadline = record.offset + 1, record.leader_epoch, Deadline(timeout_ms)
                    if stop is not None and stop.is_set():
                        return
                if offset < end_offset:  # past offsets without records
                    offset, leader_epoch = end_offset, await self._threads.run(self._sync.epoch_at, end_offset - 1)
                if deadline.left_ms <= 0:
                    return
                await wake.wait_for(min(deadline.left_ms, WAIT_MS_MAX))
        finally:
            self._sync.unwatch(wake)
