"""What the layers above a store need of it: the log of a partition, the metadata of a cluster, the storage of a node.

Protocols: a ``Store`` and its ``Log`` are all three on one node.  In a cluster the metadata comes from the controller, and a
log answers ``commit_to`` by its high watermark.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from logdb.errors import LogdbError
from logdb.io import IO
from logdb.model import (
    BY_DEFAULT,
    AbortedTransaction,
    Buffer,
    ClusterEvent,
    ConfigValue,
    Durability,
    Duration,
    ExpiredRecords,
    OpenTransaction,
    ProducerIdAndEpoch,
    Signal,
    Timestamp,
    TopicEvent,
    TopicInfo,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow

    from logdb.codec import Record, RecordIterator, arrow
    from logdb.log.epochs import EpochEnd, LeaderEpochs
    from logdb.log.isolation import IsolationLevel
    from logdb.log.producers import Producer
    from logdb.log.reading import Lineage
    from logdb.meta.reader_writer_lock import ReaderWriterLock
    from logdb.store.check.report import Copied


T = TypeVar("T")


def always() -> None:
    """Go on."""


class PartitionLog(Protocol):
    """The log of one partition, in a directory or behind a URL.  Made by ``Database.log``.

    Offsets are counted from 0, times are in ms since 1970.  Any number of threads may use it.
    """

    topic: str
    partition: int

    @property
    def topic_id(self) -> str:
        """The id of its topic; behind a URL "" until a server has answered."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read; retention and ``delete_records`` move it."""

    @property
    def end_offset(self) -> int:
        """The next offset to be given."""

    @property
    def last_stable_offset(self) -> int:
        """Where what is decided ends: the first offset of an open transaction, or else the end."""

    @property
    def durability(self) -> Durability:
        """The level of appends that name none."""

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
            ReadOnly, DiskFull, SyncFailed, Closed: as they say.
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
        """Append records that lie together, and write them; returns their offsets.  Arguments and errors as ``append``."""

    def append_batches(self, batches: Buffer, *, expected_offset: int | None = None, durability: str | None = None) -> range:
        """Append ready-made record batches (Kafka's RecordBatch v2, back to back, any codec); returns their offsets.

        Raises:
            InvalidBatch: They are not; nothing was appended.
            ProducerFenced, OutOfOrderSequence, InvalidTransactionState: Their producer must not, or not now.
            LogdbError: See ``append``.
        """

    def flush(self, sync: bool = True) -> None:
        """Return once everything appended so far is durable, or with ``sync=False`` with the operating system."""

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
            leader_epoch: Of the record before ``offset``, as the reader saw it.
            isolation_level: ``"read_committed"`` leaves out what was aborted, and ends before what is open.

        Raises:
            OffsetOutOfRange: Neither in the log nor its end.
            LogTruncated: What the reader saw is lost.
            CorruptionError, ReadFailed: From the iterator, where it comes to the damage.
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
        self, offset: int, size_bytes_max: int = ..., *, isolation_level: "IsolationLevel" = "read_uncommitted"
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
        """Read records as Arrow batches of about 64 k rows, decoded in C; raises as ``read``.

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
        """The first offset whose record is as old as that, or younger; None if there is none.

        Args:
            timestamp_ms: Milliseconds since 1970, or a ``datetime`` with a time zone.
        """

    def latest_record(self, *, isolation_level: "IsolationLevel" = "read_uncommitted") -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the largest timestamp; None if there is no record."""

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that were begun on this partition and not ended, by their first offsets."""

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with batches in [``offset``, ``end_offset``)."""

    def readable_end_offset(self, isolation_level: "IsolationLevel" = "read_uncommitted") -> int:
        """Where reading ends now."""

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at ``offset``; -1: unknown."""

    def watch(self, grown: Signal) -> None:
        """Set ``grown`` whenever there may be more to read, until ``unwatch``."""

    def unwatch(self, grown: Signal) -> None:
        """Take a ``watch`` back."""


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
        size_bytes_max: int = ...,
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

    def promised_end_offset(self, isolation_level: "IsolationLevel" = "read_uncommitted") -> int:
        """Where reading ends; of a leader whose high watermark has not reached the start of its epoch: not below that start."""

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


class PartitionState(NamedTuple):
    """Who has a partition, by the ids of nodes; ``leader`` is None where no node leads it.

    ``partition_epoch`` grows with each change of the rest; a change is a compare-and-set on it.

    While the partition is reassigned (KIP-455) ``replicas`` are those of before and then ``adding``; they will be ``target``, which is
    empty otherwise.  ``electing``: the leader is asked to hand over to the preferred leader.
    """

    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    partition_epoch: int = 0
    target: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    electing: bool = False

    @property
    def removing(self) -> tuple[int, ...]:
        """The replicas that go once all of ``target`` are in sync."""
        return tuple(node for node in self.replicas if self.target and node not in self.target)

    def is_elsewhere(self, node: int) -> bool:
        """Whether a node has no replica, and all replicas are in sync: a log that it has here is of no use to anyone."""
        return node not in self.replicas and not self.target and set(self.in_sync) == set(self.replicas)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas without those that are being added."""
        return tuple(node for node in self.replicas if node not in self.adding)

    @property
    def assignment(self) -> tuple[int, ...]:
        """The replicas once no reassignment is under way."""
        return self.target or self.replicas

    @property
    def preferred_leader(self) -> int:
        return self.assignment[0]

    @property
    def is_led_as_preferred(self) -> bool:
        """Whether an election of the preferred leader would change nothing."""
        return self.leader == self.preferred_leader


class Leadership(Protocol):
    """One leader epoch of a partition that this node leads.

    Attributes:
        topic_id: Of its topic.
        log: The partition's.
    """

    topic_id: str
    log: ReplicaLog

    @property
    def leader_epoch(self) -> int: ...

    def standing(self, node_id: int) -> "Standing":
        """What a follower may do with a damaged log, by its last report."""

    def check_not_over(self) -> None:
        """Raise NotLeaderOrFollower if the epoch is over."""

    def check_append(self, *, acknowledged_by_all: bool) -> None:
        """Return if batches may be appended now.

        Raises:
            NotLeaderOrFollower: The epoch is over, or this node may have been replaced (without an acknowledgement by all).
            NotEnoughReplicas: Too few replicas are in sync.
        """

    def refused(self, error: LogdbError, producer_ids: Collection[int], now_ms: int) -> None:
        """The log has refused batches of these producers.

        Args:
            now_ms: Of the monotonic clock.

        Raises:
            NotLeaderOrFollower: Their sequence has a gap, and the missing batches may still come.  The producer has sent them to the former
                leader, and sends them here after that one has answered.  ``OutOfOrderSequence`` would make librdkafka take a new producer
                epoch, and send again under it what the log already has.
        """

    def is_committed(self, offset: int) -> bool:
        """Whether all in-sync replicas have what lies below ``offset``, which was appended in this epoch or was there at its begin.

        Raises:
            NotLeaderOrFollower: The epoch is over, and it is unknown.
            NotEnoughReplicasAfterAppend: Too few replicas are in sync.
        """

    def awaited_end(self, log: ReplicaLog) -> int:
        """What ``is_committed`` reaches; past all offsets where that raises.  For waits: the log wakes them when it moves."""


DAMAGED_OFFSET = -2
"""What a follower reports as its flushed end while its log is damaged."""


class Standing(IntEnum):
    """How far a leader counts on a follower: as on any; on nothing, so that its log may begin anew; it has all that is replicated."""

    COUNTED = 0
    MAY_BEGIN_ANEW = 1
    CAUGHT_UP = 2


class ReplicaReport(NamedTuple):
    """What a follower says with each fetch.

    Attributes:
        node_id, broker_epoch: Who it is, in which registration.
        topic_id, leader_epoch: Whom it follows.
        flushed_offset: What it has flushed; -1: nothing that it knows to be the leader's; or ``DAMAGED_OFFSET``.
        lineage: Grows when its log may have less than before: a report of a former lineage counts no more.
    """

    node_id: int
    broker_epoch: int
    topic_id: str
    leader_epoch: int
    flushed_offset: int
    lineage: int = 0


class Replication(Protocol):
    """What a broker and its doors ask of the replicas of a node that is one of a cluster."""

    def leads(self, topic: str, partition: int) -> Leadership:
        """The leadership of a partition.

        Raises:
            NotLeaderOrFollower: Another node leads it, or none.
        """

    def reported(self, topic: str, partition: int, report: ReplicaReport) -> Leadership:
        """A follower has reported; returns the leadership that it follows.

        Raises:
            NotLeaderOrFollower: as ``leads``; or the node has no replica.
            UnknownTopic: It follows a topic of that name with another id.
            FencedLeaderEpoch, UnknownLeaderEpoch: It follows another epoch.
            StaleBrokerEpoch: It has registered again since.
        """


class BrokerInfo(NamedTuple):
    """One broker of a cluster; ``addresses``: host and port by name of the door, none where a node is on its own."""

    node_id: int
    addresses: Mapping[str, tuple[str, int]]
    rack: str = ""
    fenced: bool = False

    def address(self, door: str) -> str | None:
        """Where a door is, HOST:PORT as in URLs; None: it has none."""
        host, port = self.addresses.get(door, ("", 0))
        return None if not host else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class QuorumVoter(NamedTuple):
    """One controller that votes, as the leader of the quorum knows it.

    ``end``: behind the last command that it has, None: unknown; ``answered_ms_ago``: when it answered the leader, None: it has not, or
    it is the leader.  ``address``: where the other controllers reach it; none where a node is on its own.
    """

    node_id: int
    incarnation: int = 0
    end: int | None = None
    answered_ms_ago: int | None = None
    address: tuple[str, int] | None = None


class QuorumInfo(NamedTuple):
    """The controllers that decide on the metadata; ``committed``: behind the last command that a majority has."""

    leader: int | None
    term: int
    committed: int
    voters: tuple[QuorumVoter, ...]


class ClusterNodes(NamedTuple):
    """What changes in ``ClusterEvent``: the brokers that serve, and who leads each partition and is in sync with it.

    ``addresses``: each broker and its HOST:PORT, where Kafka's clients reach it, or without a Kafka door HTTP's; a server of an earlier
    version tells none.
    """

    serving: tuple[int, ...]
    partitions: Mapping[TopicPartition, PartitionState]
    addresses: tuple[tuple[int, str], ...] = ()


class Following(Protocol):
    """One follower of a document."""

    @property
    def is_there(self) -> bool:
        """Whether there was a document at the last look."""

    def refresh(self) -> None:
        """Give the follower the document if there is another one; costs next to nothing if there is none.

        Raises:
            ReadFailed: The next call tries again.
            LogdbError: What the follower raises; it is given the next document.
        """

    def close(self) -> None:
        """Give it no more documents."""


class SecurityDocument(Protocol):
    """The users, tokens, ACLs and quotas of a database, as the bytes of one document; ``access.security_document`` has their format.

    Attributes:
        name: Of the document, for messages.
    """

    name: str

    def read(self) -> bytes | None:
        """The document; None: authentication is off.  Raises ReadFailed."""

    def follow(self, take: Callable[[bytes | None], None]) -> Following:
        """Have ``take`` given the document at the first ``refresh``, and each later one; None where there is none."""

    def change(self, edit: "Callable[[bytes | None], tuple[bytes, T]]") -> T:
        """Change the document by compare-and-set, durably; when this returns, a ``refresh`` finds it, in every process.

        Args:
            edit: Takes the document; returns the new one, and what ``change`` returns.  It may be called again if another change came
                first.  If it raises, the document is unchanged.

        Raises:
            DirectoryLocked, InvalidSecurity, DiskFull, WriteFailed, SyncFailed: The document is unchanged.
        """


class Metadata(Protocol):
    """The topics of a database and where their partitions are; every change is durable when the call returns.

    Attributes:
        node_id: Of this node.
    """

    @property
    def node_id(self) -> int: ...

    @property
    def database_id(self) -> str:
        """A UUID that the database has from its begin."""

    @property
    def security(self) -> SecurityDocument:
        """Users, tokens, ACLs and quotas."""

    @property
    def controller_id(self) -> int | None:
        """The node whose controller leads the quorum; None: there is no such node now, or this one does not know it."""

    def quorum(self) -> QuorumInfo:
        """The controllers, as the one that leads them knows them; a single node is its own only one.

        Raises:
            MetadataTimeout: No controller answers.
        """

    def brokers(self) -> tuple[BrokerInfo, ...]:
        """The brokers of the cluster by their ids, fenced ones too."""

    def topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name with their ids and configs, without their partitions."""

    def topic_names(self) -> tuple[str, ...]:
        """Names of all topics, also of internal ones, at a fraction of what ``topics`` costs."""

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; raises UnknownTopic."""

    def topic_id(self, topic: str) -> str:
        """The id of a topic; raises UnknownTopic."""

    def partition_state(self, topic: str, partition: int) -> PartitionState:
        """The leader, the replicas and the in-sync set of a partition; raises UnknownTopic, UnknownPartition."""

    def reassign(
        self, targets: "Mapping[TopicPartition, Sequence[int] | None]", *, may_change_count: bool = True, timeout_ms: int | None = None
    ) -> dict[TopicPartition, LogdbError | None]:
        """Let partitions have other replicas, each by itself; returns while new replicas fetch, with the error of each that is refused.

        Args:
            targets: The nodes of each, the preferred leader first; None: what is under way is cancelled.
            may_change_count: A partition may get another number of replicas.
            timeout_ms: How long to wait for the controllers; None: as for every change.

        Raises:
            MetadataTimeout: They have not confirmed all in time.
        """

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, LogdbError | None]:
        """Let each partition be led by its preferred leader, with the error of each where that is not so; see ``requests.topics``.

        Raises:
            MetadataTimeout: as ``reassign``.
        """

    @property
    def reassignment_bytes_per_s(self) -> int | None:
        """What a broker fetches at most for replicas that are being added; None: any number."""

    def limit_reassignments(self, bytes_per_s: int | None) -> None:
        """Change ``reassignment_bytes_per_s``, of all brokers."""

    def change_number(self) -> int:
        """A number that grows with every change of the metadata."""

    def listen(self, function: Callable[[TopicEvent | ClusterEvent], None]) -> None:
        """Have a function told each durable change of topics that is made here, and of the cluster's nodes; it is to be quick."""

    @property
    def default_partition_count(self) -> int:
        """How many partitions a topic gets that is created without a number."""

    @property
    def default_replication_factor(self) -> int:
        """How many replicas its partitions get where none is named."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BY_DEFAULT,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        if_not_exists: bool = False,
        assignments: Sequence[Sequence[int]] | None = None,
        go_on: Callable[[], None] = always,
    ) -> TopicInfo:
        """Create a topic; see ``Database.create_topic``.

        Args:
            go_on: Called before each partition is made: an error that it raises ends that, and nothing is left of the topic.
        """

    def check_new_topic(
        self,
        name: str,
        *,
        partitions: int = BY_DEFAULT,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
    ) -> TopicInfo:
        """The topic that ``create_topic`` would make, without an id; raises what that would, and changes nothing."""

    def check_topic_configs(self, name: str, config: Mapping[str, object], *, replace: bool = False) -> None:
        """Raise what ``alter_topic`` would, and change nothing."""

    def check_partitions(self, name: str, partitions: int, assignments: Sequence[Sequence[int]] | None) -> None:
        """Raise what ``alter_topic`` would for these partitions, and change nothing."""

    def alter_topic(
        self,
        name: str,
        *,
        config: Mapping[str, object] | None = None,
        partitions: int | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        go_on: Callable[[], None] = always,
        replace: bool = False,
    ) -> TopicInfo:
        """Change configs (None: back to the default) or add partitions; see ``Database.alter_topic``.

        Args:
            config: A list may be changed by a ``ListChange``.
            replace: Configs that are not named get their defaults.
        """

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""

    def take_producer_ids(self, count: int) -> range:
        """A block of producer ids that were never given before, and never will be again."""


class Storage(Protocol):
    """The partitions that this node has, in one directory.

    Attributes:
        mode: "a": this process writes to it; "r": it reads, perhaps beside a writer.
        linger_ms: How long a record may wait in memory to be written.
        cleaner_configs: Kafka's configs of compaction, with the values that hold here.
        transaction_lock: Shared while a transaction is decided, or its markers are written, so that a snapshot has it whole or not at all.
    """

    path: str
    mode: Literal["a", "r"]
    linger_ms: int
    cleaner_configs: Mapping[str, ConfigValue]
    transaction_lock: "ReaderWriterLock"

    @property
    def open_logs(self) -> Mapping[TopicPartition, ReplicaLog]:
        """The logs that were asked for before; other threads add to it."""

    @property
    def io(self) -> IO: ...

    @property
    def clock(self) -> Callable[[], int] | None:
        """The clock that was injected; None: the machine's."""

    @property
    def closed(self) -> bool: ...

    @property
    def reports(self) -> Sequence[str]:
        """What opening its logs has found so far."""

    def check_open(self, *, writable: bool = False) -> None:
        """Raise unless it is open in this process (Closed, Forked), and, with ``writable``, as ``check_writable``."""

    def check_writable(self) -> None:
        """Raise unless it is open, and accepts writes: Closed, Forked, ReadOnly, SyncFailed."""

    def log(self, topic: str, partition: int = 0) -> ReplicaLog:
        """The one log of a partition, recovered when it is first asked for; raises UnknownTopic, UnknownPartition."""

    def has_segments(self, topic: str, partition: int) -> bool:
        """Whether a log has a file of records; it is not opened for that."""

    def logs_with_producers(self) -> list[TopicPartition]:
        """The logs that may have a transaction open."""

    def complete_transactions_by(self, complete: Callable[[], None], has_partial_markers: Callable[[], bool]) -> None:
        """Have ``complete`` called before a snapshot and a compaction of decisions: it ends dangling transactions.

        A snapshot asks ``has_partial_markers``, under the transaction lock, whether a transaction has only some of its markers by then.
        """

    def describe_topic(self, name: str) -> TopicInfo:
        """One topic with its partitions as they are now: each log is opened, which tells whether it is damaged."""

    def describe_at_rest(self, name: str) -> TopicInfo:
        """As ``describe_topic``, without ``disk_bytes``; once no recovery is due, no log is opened."""

    def flush(self, sync: bool = True) -> None:
        """``PartitionLog.flush`` of every log that is open."""

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Move the start of a log; see ``Database.delete_records``."""

    def truncate_to(self, topic: str, partition: int, offset: int, *, high_watermark: int = 0) -> int:
        """Cut a log off, durably: a follower's, where it parts from its leader's; returns the new log end offset.

        Args:
            high_watermark: What lies below it is replicated, and stays.

        Raises:
            OffsetOutOfRange: ``offset`` is before the log start or ``high_watermark``, or past the log end.
            CorruptionError, DiskFull, WriteFailed, SyncFailed, Closed, ReadOnly: as they say.
        """

    def begin_anew(self, topic: str, partition: int, offset: int) -> None:
        """Let a log have nothing, and begin at an offset, durably: a follower's, whose leader has deleted what comes next.

        The segments of a damaged log are set aside, until ``remove_damaged``.

        Raises:
            DiskFull, WriteFailed, SyncFailed, Closed, ReadOnly: as ``truncate_to``.
        """

    def remove_damaged(self, topic: str, partition: int) -> None:
        """Remove the segments that were set aside: what they had is replicated, and durable here."""

    def enforce_retention(
        self, topic: str | None = None, *, dry_run: bool = False, config: Mapping[str, object] | None = None
    ) -> list[ExpiredRecords]:
        """See ``Database.enforce_retention``."""

    def compact(self, topic: str, partition: int | None = None) -> None:
        """See ``Database.compact``."""

    def backup(self, path: str, base: str | None = None) -> "Copied":
        """See ``Database.backup``."""
