"""The log of a partition for a principal that may describe its topic (``requests.records.Log``).

An append needs what ``Produce`` needs, a read what ``ReadBatches`` needs.  A read is counted and authorized again for each chunk of about
1 MiB: a principal whose right is taken away reads no further.  The chunks of a read are of one lineage of the log.

Threading: any number of threads.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from logdb.broker.waiting import Awaited, commit
from logdb.codec import Record, RecordIterator, arrow, convert, split
from logdb.codec.batch import BATCH_SIZE_BYTES_MAX, CODEC_MASK
from logdb.errors import FencedLeaderEpoch, InvalidTopic, LogTruncated, NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch
from logdb.handles import Handle
from logdb.log.epochs import EpochEnd
from logdb.log.isolation import ISOLATION_LEVELS, IsolationLevel, is_committed, without_aborted
from logdb.log.lookups import Lookups
from logdb.log.protocols import PartitionLog, ReplicaLog
from logdb.log.reading import Lineage
from logdb.log.view import Ends, Page
from logdb.model import INTERNAL_TOPICS, AbortedTransaction, Buffer, Durability, Duration, KnownLog, OpenTransaction, Signal, Timestamp
from logdb.requests.records import AbortedTransactions, Produce, ReadBatches
from logdb.store.protocols import Leadership, ReadableReplica

if TYPE_CHECKING:
    import pyarrow

    from logdb.access.session import AuthorizedSession

_READ_SIZE_BYTES = 1 << 20
_Headers = Iterable[tuple[str, Buffer | None]]


def _size_bytes(parts: Iterable[Buffer | None]) -> int:
    return sum(map(len, filter(None, parts)))


class AuthorizedLog(Lookups, Handle):
    """``log.protocols.PartitionLog`` for the principal of a session."""

    def __init__(self, session: "AuthorizedSession", log: ReplicaLog) -> None:
        self.topic, self.partition = log.topic, log.partition
        self._session, self._log = session, log

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AuthorizedLog) and self._log == other._log

    def __hash__(self) -> int:
        return hash(self._log)

    # ------------------------------------------------------------ needs no more than the log itself

    @property
    def topic_id(self) -> str:
        return self._log.topic_id

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self._log.last_stable_offset

    @property
    def durability(self) -> Durability:
        return self._log.durability

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def offset_for_timestamp(self, timestamp_ms: Timestamp) -> int | None:
        return self._log.offset_for_timestamp(timestamp_ms)

    def open_transactions(self) -> list[OpenTransaction]:
        return self._log.open_transactions()

    def readable_end_offset(self, isolation_level: IsolationLevel = "read_uncommitted") -> int:
        return self._log.readable_end_offset(isolation_level)

    def epoch_at(self, offset: int) -> int:
        return self._log.epoch_at(offset)

    def record_since(self, timestamp_ms: int) -> tuple[int, int] | None:
        return self._log.record_since(timestamp_ms)

    def latest_record(self, *, isolation_level: IsolationLevel = "read_uncommitted") -> tuple[int, int] | None:
        return self._log.latest_record(isolation_level=isolation_level)

    def append_time_ms(self, offset: int) -> int:
        return self._log.append_time_ms(offset)

    def epoch_end(self, epoch: int, *, current_epoch: int | None = None) -> EpochEnd | None:
        return self._log.epoch_end(epoch, current_epoch=current_epoch)

    def ends(self, *, committed: bool = False) -> Ends:
        return self._log.ends(committed=committed)

    def check_end_known(self) -> None:
        self._log.check_end_known()

    def is_elsewhere(self, offset: int, known: KnownLog) -> bool:
        """As ``broker.waiting.Awaited.is_elsewhere``."""
        return Awaited(self._log, offset, known).is_elsewhere

    def watch(self, grown: Signal) -> None:
        self._log.watch(grown)

    def unwatch(self, grown: Signal) -> None:
        self._log.unwatch(grown)

    # ------------------------------------------------------------ appending

    def _need_write(self) -> None:
        """Go on if the principal may append.

        Raises:
            NotAuthorized: It may not.
            InvalidTopic: logdb alone appends to the topic: it keeps groups and transactions in it.
        """
        self._session.authorize(Produce(self.topic, self.partition))
        if self.topic in INTERNAL_TOPICS:
            raise InvalidTopic(self.topic, "logdb alone writes to it")

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        headers: _Headers = (),
        timestamp_ms: Timestamp | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> int:
        self._need_write()
        leadership = None if self._session.replication is None else self._leadership()
        offset = self._session.call(
            self._log.append,
            value,
            key,
            headers=headers,
            timestamp_ms=timestamp_ms,
            expected_offset=expected_offset,
            durability=durability,
        )
        self._session.appended(self.topic, 1, len(value or b"") + len(key or b""))
        if leadership is not None:
            commit(leadership, offset + 1)
        return offset

    def append_many(
        self,
        values: Iterable[Buffer | None],
        keys: Iterable[Buffer | None] | None = None,
        *,
        headers: Iterable[_Headers] | None = None,
        timestamps_ms: Iterable[Timestamp | None] | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> range:
        self._need_write()
        values = list(values)
        keys = None if keys is None else list(keys)
        leadership = None if self._session.replication is None else self._leadership()
        offsets = self._session.call(
            self._log.append_many,
            values,
            keys,
            headers=headers,
            timestamps_ms=timestamps_ms,
            expected_offset=expected_offset,
            durability=durability,
        )
        self._session.appended(self.topic, len(offsets), _size_bytes(values) + _size_bytes(keys or ()))
        if leadership is not None:
            commit(leadership, offsets.stop)
        return offsets

    def append_batches(self, batches: Buffer, *, expected_offset: int | None = None, durability: str | None = None) -> range:
        """As ``Session.produce``, which sees to it that what is transactional is part of a transaction."""
        level = cast("Durability | None", durability)  # the log refuses any other
        leadership = None if self._session.replication is None else self._leadership()
        request = Produce(self.topic, self.partition, level, expected_offset=expected_offset)
        offsets = self._session.submit_batches(request, batches)
        if leadership is not None:
            commit(leadership, offsets.stop)
        return offsets

    def _leadership(self) -> Leadership | None:
        return self._session.leadership(self.topic, self.partition)

    def flush(self, sync: bool = True) -> None:
        self._session.authorize(Produce(self.topic, self.partition))
        self._session.call(self._log.flush, sync)

    # ------------------------------------------------------------ reading

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        self._session.authorize(AbortedTransactions(self.topic, self.partition, offset, end_offset))
        return self._log.aborted_transactions(offset, end_offset)

    def read_batches(
        self, offset: int, size_bytes_max: int = _READ_SIZE_BYTES, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> tuple[memoryview, int]:
        return self._page(offset, size_bytes_max, isolation_level=isolation_level)

    def _page(
        self, offset: int, size_bytes_max: int, *, isolation_level: IsolationLevel = "read_uncommitted", lineage: Lineage | None = None
    ) -> tuple[memoryview, int]:
        self._session.authorize(ReadBatches(self.topic, self.partition, offset, size_bytes_max, isolation_level))
        batches, next_offset = self._session.call(
            self._log.read_batches, offset, size_bytes_max, isolation_level=isolation_level, lineage=lineage
        )
        self._session.fetched(self.topic, len(batches))
        return batches, next_offset

    def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> RecordIterator:
        end, chunks = self._begin(offset, end_offset, isolation_level, leader_epoch)
        return RecordIterator(chunks, offset, end, self.topic, self.partition)

    def _begin(
        self,
        offset: int,
        end_offset: int | None,
        isolation_level: IsolationLevel,
        leader_epoch: int | None = None,
        *,
        as_stored: bool = False,
    ) -> "tuple[int, Callable[[int, int], Iterator[Buffer]]]":
        """Where a read from ``offset`` ends, and its chunks: of the log in which the aborted transactions were looked up."""
        self._session.authorize(ReadBatches(self.topic, self.partition, offset))
        while True:
            lineage = self._log.lineage
            self._log.read(offset, end_offset=offset, leader_epoch=leader_epoch)  # raises where it is none to read from
            end = self._log.readable_end_offset(isolation_level)
            end = end if end_offset is None else min(end, end_offset)
            aborted = self._log.aborted_transactions(offset, end) if is_committed(isolation_level) else []
            if lineage is self._log.lineage:  # else the log was cut off meanwhile
                break

        def chunks(offset: int, end_offset: int) -> Iterator[Buffer]:
            found = self._chunks(lineage, offset, end_offset, as_stored)
            return without_aborted(found, aborted) if aborted else found

        return end, chunks

    def _chunks(self, lineage: Lineage, offset: int, end_offset: int, as_stored: bool) -> Iterator[Buffer]:
        while offset < end_offset:
            batches, offset = self._page(offset, _READ_SIZE_BYTES, lineage=lineage)
            if not batches:
                return
            compressed = not as_stored and any(batch.attributes & CODEC_MASK for _, batch in convert.headers(batches))
            for part in split(batches, 1) if compressed else (batches,):  # one at a time: the bound is a batch's
                yield convert.decompress_batches(part, BATCH_SIZE_BYTES_MAX)

    def _columns(
        self, offset: int | None, end_offset: int | None, isolation_level: IsolationLevel, use_threads: bool, columns: Sequence[str] | None
    ) -> "pyarrow.RecordBatchReader":
        offset = self.start_offset if offset is None else offset
        end, chunks = self._begin(offset, end_offset, isolation_level, as_stored=True)
        return arrow.record_batches(chunks(offset, end), offset, end, columns, use_threads=use_threads)

    def follow(
        self,
        offset: int,
        *,
        timeout_ms: Duration | None = None,
        stop: threading.Event | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Iterator[Record]:
        """As ``Log.follow``; it is authorized at the begin, and the records are not counted."""
        self._session.authorize(ReadBatches(self.topic, self.partition, offset))
        return self._log.follow(offset, timeout_ms=timeout_ms, stop=stop, isolation_level=isolation_level)


class LogToRead(AuthorizedLog):
    """The log of a partition for one read of a page, which ``AuthorizedSession.log_to_read`` has authorized."""

    def page(self, offset: int, size_bytes_max: int, *, committed: bool = False) -> Page:
        page = self._log.page(offset, size_bytes_max, committed=committed)
        self._session.fetched(self.topic, len(page.batches))
        return page


class ReplicaToRead(LogToRead):
    """The log of a replica, the leader's or a follower's, for one read of a page by a consumer in a rack.

    A follower is no authority for an offset that it lacks: the consumer asks the leader, and does not reset its position.
    """

    def __init__(self, session: "AuthorizedSession", replica: ReadableReplica) -> None:
        super().__init__(session, replica.log)
        self._replica, self._lineage = replica, replica.log.lineage

    def nearest(self, rack: str, offset: int, listener: str) -> int | None:
        """As ``ReadableReplica.nearest``."""
        return self._replica.nearest(rack, offset, listener)

    def epoch_end(self, epoch: int, *, current_epoch: int | None = None) -> EpochEnd | None:
        """As ``ReplicaLog.epoch_end``; a follower's log may not have the latest epoch yet."""
        known = self._replica.leader_epoch
        if current_epoch is not None and current_epoch != known:
            kind = FencedLeaderEpoch if current_epoch < known else UnknownLeaderEpoch
            raise kind(self.topic, self.partition, current_epoch, known)
        return self._log.epoch_end(epoch)

    def page(self, offset: int, size_bytes_max: int, *, committed: bool = False) -> Page:
        try:
            page = self._log.page(offset, size_bytes_max, committed=committed, lineage=self._lineage)
        except (OffsetOutOfRange, LogTruncated) as error:
            if not self._log.follows:
                raise
            raise self._elsewhere(offset) from error
        if committed and self._log.lineage is not self._lineage:  # the log was cut off, perhaps with the markers
            raise self._elsewhere(offset)
        self._session.fetched(self.topic, len(page.batches))
        return page

    def _elsewhere(self, offset: int) -> NotLeaderOrFollower:
        reason = f"the replica of {self.topic}-{self.partition} here has no offset {offset}: ask the leader"
        return NotLeaderOrFollower(self.topic, self.partition, None, self._replica.leader_epoch, reason=reason)


class ForwardedLog(AuthorizedLog):
    """The log of a partition that another node of the cluster leads; reads are counted by what they return."""

    def __init__(self, session: "AuthorizedSession", log: PartitionLog) -> None:
        super().__init__(session, cast("ReplicaLog", log))
        self._elsewhere = log

    def ends(self, *, committed: bool = False) -> Ends:
        return self._ends(self._elsewhere.readable_end_offset(ISOLATION_LEVELS[committed]))

    def _ends(self, readable_offset: int) -> Ends:
        """For HTTP, which forwards alone, and names no high watermark: each look at the others' ends may be a request."""
        return Ends(self._elsewhere.start_offset, readable_offset, self._elsewhere.last_stable_offset, readable_offset)

    def page(self, offset: int, size_bytes_max: int, *, committed: bool = False) -> Page:
        log, level = self._elsewhere, ISOLATION_LEVELS[committed]
        readable_offset = log.readable_end_offset(level)  # before the read, so that there may be more
        batches, next_offset = log.read_batches(offset, size_bytes_max, isolation_level=level)
        self._session.fetched(self.topic, len(batches))
        aborted = log.aborted_transactions(offset, next_offset) if committed and batches else ()
        return Page(batches, next_offset, aborted, self._ends(readable_offset))

    def is_elsewhere(self, offset: int, known: KnownLog) -> bool:
        return known.topic_id not in {"", self.topic_id} or (offset > 0 and offset > self.end_offset)

    def check_end_known(self) -> None:
        """The leader checks it before it tells its ends."""

    def read_batches(
        self, offset: int, size_bytes_max: int = _READ_SIZE_BYTES, *, isolation_level: IsolationLevel = "read_uncommitted"
    ) -> tuple[memoryview, int]:
        self._session.authorize(ReadBatches(self.topic, self.partition, offset, size_bytes_max, isolation_level))
        batches, next_offset = self._session.call(self._elsewhere.read_batches, offset, size_bytes_max, isolation_level=isolation_level)
        self._session.fetched(self.topic, len(batches))
        return batches, next_offset

    def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> RecordIterator:
        self._session.authorize(ReadBatches(self.topic, self.partition, offset))
        return self._elsewhere.read(offset, end_offset=end_offset, leader_epoch=leader_epoch, isolation_level=isolation_level)

    def read_arrow(
        self,
        offset: int | None = None,
        *,
        end_offset: int | None = None,
        columns: Sequence[str] | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        schema: "arrow.ValueSchema | None" = None,
        use_threads: bool = True,
    ) -> "pyarrow.RecordBatchReader":
        self._session.authorize(ReadBatches(self.topic, self.partition, 0))
        return self._elsewhere.read_arrow(
            offset, end_offset=end_offset, columns=columns, isolation_level=isolation_level, schema=schema, use_threads=use_threads
        )
