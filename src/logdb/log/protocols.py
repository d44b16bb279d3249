"""The log of a partition as clients know it, in a directory or behind a URL; and as the broker of a node does."""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from logdb.model import (
    AbortedTransaction,
    Buffer,
    Durability,
    Duration,
    OpenTransaction,
    ProducerIdAndEpoch,
    Signal,
    Timestamp,
)
from logdb.segment.buffers import READ_SIZE_BYTES
from logdb.signatures import readable

if TYPE_CHECKING:
    from typing import Protocol

    import pyarrow

    from logdb.codec import Record, RecordIterator, arrow
    from logdb.log.epochs import EpochEnd, LeaderEpochs
    from logdb.log.isolation import IsolationLevel
    from logdb.log.producers import Producer
    from logdb.log.reading import Lineage
    from logdb.log.view import Ends, Page
else:

    class _Structural(type):
        """``isinstance`` by methods, as with a protocol of ``typing``, whose inner parts ``help`` would show."""

        def __instancecheck__(cls, instance: object) -> bool:
            kind = type(instance)
            return all(hasattr(kind, name) for one in cls.__mro__ for name, value in vars(one).items() if inspect.isfunction(value))

    class Protocol(metaclass=_Structural):
        """The base of each protocol."""


@readable
class PartitionLog(Protocol):
    """The log of one partition, in a directory or behind a URL.  Made by ``Database.log``.

    Offsets are counted from 0, times are in ms since 1970.  Any number of threads may use it.
    """

    @property
    def topic(self) -> str:
        """The name of its topic."""

    @property
    def partition(self) -> int:
        """Its number in the topic."""

    @property
    def topic_id(self) -> str:
        """The id of its topic; behind a URL "" until a server has answered."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read; retention and ``delete_records`` move it."""

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def last_stable_offset(self) -> int:
        """Where readers at ``read_committed`` stop: the first offset of an open transaction, or else the end."""

    @property
    def durability(self) -> Durability:
        """The durability level of appends that name none."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments, as written."""

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        *,
        headers: "Iterable[tuple[str, Buffer | None]]" = (),
        timestamp_ms: Timestamp | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> int:
        """Append one record; returns its offset.

        Args:
            headers: (name, value) pairs.
            timestamp_ms: Milliseconds since 1970, or a ``datetime`` with a time zone; None: now; -1: none.
            expected_offset: Fail unless the log ends here.
            durability: ``"os"``, ``"interval"`` or ``"fsync"``; None: the topic's level.

        Raises:
            UnexpectedOffset: The log ends elsewhere.
            RecordTooLarge, InvalidRecord, InvalidTimestamp: The topic does not take such a record.
            CodecMissing: The package of the topic's ``compression.type`` is not installed.
            ReadOnly, DiskFull, SyncFailed, Closed: see ``logdb.errors``.
        """

    def append_many(
        self,
        values: Iterable[Buffer | None],
        keys: Iterable[Buffer | None] | None = None,
        *,
        headers: "Iterable[Iterable[tuple[str, Buffer | None]]] | None" = None,
        timestamps_ms: Iterable[Timestamp | None] | None = None,
        expected_offset: int | None = None,
        durability: str | None = None,
    ) -> range:
        """Append records with consecutive offsets, and write them; returns the offsets.  Arguments and errors as ``append``."""

    def append_batches(self, batches: Buffer, *, expected_offset: int | None = None, durability: str | None = None) -> range:
        """Append ready-made record batches (Kafka's RecordBatch v2, back to back, any codec); returns their offsets.

        Raises:
            InvalidBatch: They are no such batches; nothing was appended.
            ProducerFenced, OutOfOrderSequence, InvalidTransactionState: Their producer may not append them, or not now.
            LogdbError: See ``append``.
        """

    def flush(self, sync: bool = True) -> None:
        """Return once all appended records are on the disk, or with ``sync=False`` in the page cache."""

    def read(
        self,
        offset: int,
        *,
        end_offset: int | None = None,
        leader_epoch: int | None = None,
        isolation_level: "IsolationLevel" = "read_uncommitted",
    ) -> "RecordIterator":
        """Read records from ``offset`` to where the log ends now, or to ``end_offset``.

        Args:
            leader_epoch: The leader epoch of the record before ``offset``, as the reader saw it.
            isolation_level: ``"read_committed"`` leaves out aborted records, and ends before the first open transaction.

        Raises:
            OffsetOutOfRange: The log has no such offset, and does not end there.
            LogTruncated: The log lost the record that the reader saw.
            CorruptionError, ReadFailed: Raised by the iterator where it reaches the damage.
        """

    def get(self, offset: int, *, isolation_level: "IsolationLevel" = "read_uncommitted") -> "Record | None":
        """The record at an offset; None if compaction removed it, or a transaction's marker is there.

        Raises:
            OffsetOutOfRange: The offset is before the start or not yet written.
            CorruptionError: Its batch is damaged.
        """

    def tail(self, count: int, *, isolation_level: "IsolationLevel" = "read_uncommitted") -> "list[Record]":
        """The last ``count`` records, in the order of their offsets; fewer if the log has fewer."""

    def read_batches(
        self, offset: int, size_bytes_max: int = READ_SIZE_BYTES, *, isolation_level: "IsolationLevel" = "read_uncommitted"
    ) -> tuple[memoryview, int]:
        """Read whole record batches, as stored, from the one that holds ``offset``: at least one, about ``size_bytes_max``.

        Returns:
            The batches, and the offset to go on from.

        Raises:
            OffsetOutOfRange, CorruptionError: as ``read``.
        """

    def read_arrow(
        self,
        offset: int | None = None,
        *,
        end_offset: int | None = None,
        columns: Sequence[str] | None = None,
        isolation_level: "IsolationLevel" = "read_uncommitted",
        schema: "arrow.ValueSchema | None" = None,
        use_threads: bool = True,
    ) -> "pyarrow.RecordBatchReader":
        """Read records as Arrow batches, decoded in C; raises as ``read``.

        Args:
            columns: Some of offset, timestamp, timestamp_type, key, value, headers; None: all but the type.
            schema: Columns to make of values that are JSON objects, as ``Database.read_arrow``.
            use_threads: Decompress and decode in several threads.
        """

    def follow(
        self,
        offset: int,
        *,
        timeout_ms: Duration | None = None,
        stop: threading.Event | None = None,
        isolation_level: "IsolationLevel" = "read_uncommitted",
    ) -> "Iterator[Record]":
        """Read records from ``offset`` on, and wait for more; ends ``timeout_ms`` after the last one, or when ``stop`` is set.

        Args:
            timeout_ms: Milliseconds or a ``timedelta``; None: never.
        """

    def offset_for_timestamp(self, timestamp_ms: Timestamp) -> int | None:
        """The first offset whose record has this timestamp or a later one; None if there is none.

        Args:
            timestamp_ms: Milliseconds since 1970, or a ``datetime`` with a time zone.
        """

    def latest_record(self, *, isolation_level: "IsolationLevel" = "read_uncommitted") -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the largest timestamp; None if there is no record."""

    def open_transactions(self) -> list[OpenTransaction]:
        """The open transactions with records in this partition, in the order of their first offsets."""

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with batches in [``offset``, ``end_offset``)."""

    def readable_end_offset(self, isolation_level: "IsolationLevel" = "read_uncommitted") -> int:
        """Where reading ends now."""

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at ``offset``; -1: unknown."""

    def watch(self, grown: Signal) -> None:
        """Set ``grown`` whenever there may be more to read, until ``unwatch``."""

    def unwatch(self, grown: Signal) -> None:
        """End a ``watch``."""


class ReplicaLog(PartitionLog, Protocol):
    """The log of a partition that this node has a replica of: what its broker and its coordinators need beside reading and appending.

    Attributes:
        leader_epoch: That new records get.
        read_only_reason: Why it takes no records; None: it does.
        damage: What its opening or a read has found to be damaged; None: nothing.
        follows: Another node leads: records of clients are refused with NotLeaderOrFollower.
        fsync_only: The catalogue says that all appends past the recovery point were at level fsync; a weaker one has to change that.
    """

    leader_epoch: int
    read_only_reason: str | None
    damage: str | None
    follows: bool
    fsync_only: bool

    @property
    def closed(self) -> bool:
        """Whether the database, or its topic, is gone."""

    @property
    def directory(self) -> str:
        """Where its files are."""

    @property
    def epochs(self) -> "LeaderEpochs":
        """Its leader epochs."""

    @property
    def epoch_start_offset(self) -> int:
        """Where the latest leader epoch begins."""

    @property
    def high_watermark(self) -> int:
        """Where reading ends: all in-sync replicas have what is below; the log end for a log that is not replicated."""

    @property
    def flushed_offset(self) -> int:
        """Where what is known to be durable ends."""

    @property
    def is_synced(self) -> bool:
        """Whether all that was appended is durable, or the level is os."""

    def verification(self, producer_id: int) -> object:
        """What a transaction of the producer is begun with: see ``append_batches``."""

    def append_batches(
        self,
        batches: Buffer,
        *,
        expected_offset: int | None = None,
        durability: str | None = None,
        internal: bool = False,
        verified: Mapping[int, object] | None = None,
    ) -> range:
        """As ``PartitionLog.append_batches``.

        Args:
            internal: They are a coordinator's own, without sequences.
            verified: What ``verification`` gave, by producer id, before their transaction was verified: see ``log.appending``.
        """

    def read_batches(
        self,
        offset: int,
        size_bytes_max: int = READ_SIZE_BYTES,
        *,
        isolation_level: "IsolationLevel" = "read_uncommitted",
        replica: bool = False,
        lineage: "Lineage | None" = None,
    ) -> tuple[memoryview, int]:
        """As ``PartitionLog.read_batches``.

        Args:
            replica: Past the high watermark, up to what is written.
            lineage: Read before the first of several calls: together they give records of one log, or raise LogTruncated.
        """

    @property
    def lineage(self) -> "Lineage":
        """The log as it is until the next truncation."""

    def record_since(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is as old as ``timestamp_ms`` or younger; None if there is none."""

    def append_time_ms(self, offset: int) -> int:
        """When the batch at ``offset`` was appended, in ms since 1970; -1 unless the log gives records that time (LogAppendTime)."""

    def now_ms(self) -> int:
        """The clock that gives its records their time, in ms since 1970."""

    def producer(self, producer_id: int) -> "Producer | None":
        """A producer as of the end; None: it is unknown."""

    def append_marker(self, producer: ProducerIdAndEpoch, *, commit: bool, coordinator_epoch: int) -> int:
        """End a producer's transaction on this partition; returns the offset of the marker.

        Raises:
            ProducerFenced, CoordinatorFenced: A newer epoch of either was here.
            DiskFull, SyncFailed: as ``append``.
        """

    def commit_to(
        self, offset: int, *, sync: bool = False, leader_epoch: int | None = None, go_on: Callable[[], object] | None = None
    ) -> None:
        """Return once everything below ``offset``, which is written, is committed.

        At level fsync it is committed once it is synced; where the log is replicated, once the high watermark has reached it, too.

        Args:
            sync: It is to be synced at level interval, too.
            leader_epoch: In which its leader waits; None: the latest one.
            go_on: Called while the high watermark is waited for, after each ``wake``; an error that it raises ends the wait.

        Raises:
            FencedLeaderEpoch, UnknownLeaderEpoch: Another epoch is the latest one: only its leader knows what is committed.
            NotLeaderOrFollower: Another node leads.
            DiskFull, SyncFailed, Closed, ReadOnly, Forked: as ``flush``.
        """

    def wake(self) -> None:
        """Let everything that watches the log, or waits for a commit, look again."""

    def producers(self) -> "list[Producer]":
        """The producers that are known, as of what is written."""

    def page(self, offset: int, size_bytes_max: int, *, committed: bool = False, lineage: "Lineage | None" = None) -> "Page":
        """As ``read_batches``; all that is appended so far is written first, and what a reader is told beside is of the same view."""

    def ends(self, *, committed: bool = False) -> "Ends":
        """Where the log begins and ends now, for a reader."""

    def check_end_known(self) -> None:
        """Return if a leader can tell where reading ends.

        Raises:
            OffsetNotAvailable: Its high watermark has not reached the start of its epoch (KIP-207).
        """

    def follow_leader(self, leader: int | None, leader_epoch: int) -> None:
        """Take no records of clients from now on, as a log that was just opened: they get NotLeaderOrFollower with this leader."""

    def begin_epoch(self, epoch: int) -> int:
        """Begin the leader epoch that a controller has given, durably, and lead; returns the offset that it begins at.

        Raises:
            FencedLeaderEpoch: The log knows this epoch already, or a newer one.
            DiskFull, WriteFailed, SyncFailed, Closed, ReadOnly, Forked: as ``flush``.
        """

    def follow_append(self, batches: Buffer, *, durability: Durability | None = None) -> range:
        """Append batches of a leader's log, with the offsets and leader epochs that they carry; returns their offsets.

        Raises:
            UnexpectedOffset: The first of them does not begin where the log ends.
            FencedLeaderEpoch: An epoch is older than the latest one of the log.
            InvalidBatch, CodecMissing, DiskFull, SyncFailed: as ``append_batches``.
        """

    def mirror_append(self, batches: Buffer, *, durability: Durability | None = None) -> range:
        """Append batches of another cluster's log, with the offsets that they carry, in this log's leader epoch.

        Raises:
            NotLeaderOrFollower: The log follows.
            PolicyViolation: The topic is no mirror.
            UnexpectedOffset, InvalidBatch, CodecMissing, DiskFull, SyncFailed: as ``follow_append``.
        """

    @property
    def is_mirror(self) -> bool:
        """Whether another cluster's topic is copied into it: no client appends."""

    def epoch_end(self, epoch: int, *, current_epoch: int | None = None) -> "EpochEnd | None":
        """What a leader answers to a reader that asks where ``epoch`` ends, whose leader in ``current_epoch`` it takes this for.

        Raises:
            FencedLeaderEpoch, UnknownLeaderEpoch: ``current_epoch`` is not this log's latest.
        """

    def move_high_watermark(self, offset: int, *, leader_epoch: int) -> int:
        """What lies below ``offset`` is replicated, says the leader of ``leader_epoch``; returns the high watermark as it is now."""
