"""What the layers above a store need of it: the metadata of a cluster, the storage of a node; of its logs: ``log.protocols``.

Protocols: a ``Store`` is both on one node.  In a cluster the metadata comes from the controller, and a
log answers ``commit_to`` by its high watermark.
"""

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

from logdb.errors import LogdbError
from logdb.io import IO
from logdb.log.protocols import ReplicaLog
from logdb.model import (
    ClusterEvent,
    ConfigValue,
    TopicEvent,
    TopicPartition,
)
from logdb.requests.nodes import BrokerInfo, PartitionState

if TYPE_CHECKING:
    from logdb.meta.reader_writer_lock import ReaderWriterLock
    from logdb.requests.request import Request


T = TypeVar("T")
A = TypeVar("A")


def always() -> None:
    """Go on."""


class LastFetch:
    """When a follower has last fetched in a session; each fetch repeats its last reports of all partitions of the session.

    Attributes:
        at_ms: On the monotonic clock.
    """

    __slots__ = ("at_ms",)

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms


class ReadableReplica(Protocol):
    """A replica of this node that consumers may read: the leader's, or a follower's that is in sync.

    Attributes:
        log: The partition's.
    """

    log: ReplicaLog

    @property
    def leader_epoch(self) -> int:
        """The latest that this node has heard of."""

    def nearest(self, rack: str, offset: int, listener: str) -> int | None:
        """The follower in a rack that a consumer is to read from ``offset`` on, by a listener; None: this replica serves it itself.

        Source: KIP-392, with the rules of Kafka's ``RackAwareReplicaSelector``.
        """


class Leadership(ReadableReplica, Protocol):
    """One leader epoch of a partition that this node leads.

    Attributes:
        topic_id: Of its topic.
    """

    topic_id: str

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

    def is_new(self, now_ms: int) -> bool:
        """Whether batches that producers have sent to the former leader may still come; ``now_ms``: of the monotonic clock."""

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
            NotLeaderAfterAppend: The epoch is over, and it is unknown.
            NotEnoughReplicasAfterAppend: Too few replicas are in sync.
        """

    @property
    def is_over(self) -> bool:
        """Whether the epoch is over; once true, for good."""

    def left_session(self, node_id: int, last_fetch: LastFetch) -> None:
        """The session with this ``last_fetch`` repeats the report of that follower no more."""

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
    """A follower's report of one partition.

    Attributes:
        node_id, broker_epoch: Who it is, in which registration.
        topic_id, leader_epoch: Whom it follows.
        flushed_offset: What it has flushed; -1: nothing that it knows to be the leader's; or ``DAMAGED_OFFSET``.
        lineage: Grows when its log may have less than before: a report of a former lineage counts no more.
        last_fetch: Of the session that repeats this report until ``Leadership.left_session``; None: nothing repeats it.
        start_offset: Where its log begins; -1: it does not say, as nodes of earlier versions.
    """

    node_id: int
    broker_epoch: int
    topic_id: str
    leader_epoch: int
    flushed_offset: int
    lineage: int = 0
    last_fetch: LastFetch | None = None
    start_offset: int = -1


class Replication(Protocol):
    """What a broker and its doors ask of the replicas of a node that is one of a cluster."""

    def leads(self, topic: str, partition: int) -> Leadership:
        """The leadership of a partition.

        Raises:
            NotLeaderOrFollower: Another node leads it, or none.
        """

    def replica(self, topic: str, partition: int) -> ReadableReplica:
        """The replica of a partition that consumers may read here.

        Raises:
            NotLeaderOrFollower: This node neither leads the partition nor follows it in sync, or it has not heard from its leader.
        """

    def reported(self, topic: str, partition: int, report: ReplicaReport) -> Leadership:
        """A follower has reported; returns the leadership that it follows.

        Raises:
            NotLeaderOrFollower: as ``leads``; or the node has no replica.
            UnknownTopic: It follows a topic of that name with another id.
            FencedLeaderEpoch, UnknownLeaderEpoch: It follows another epoch.
            StaleBrokerEpoch: It has registered again since.
        """

    def now_ms(self) -> int:
        """The monotonic clock of ``LastFetch``."""


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


class Topic(Protocol):
    """What the metadata knows of a topic; ``config`` has only what was set."""

    @property
    def topic_id(self) -> str: ...
    @property
    def partition_count(self) -> int: ...
    @property
    def config(self) -> Mapping[str, ConfigValue]: ...


class ReadableMetadata(Protocol):
    """The topics of a database and where their partitions are, as they are now."""

    @property
    def node_id(self) -> int:
        """Of this node."""

    @property
    def database_id(self) -> str:
        """A UUID that the database has from its begin."""

    @property
    def controller_id(self) -> int | None:
        """The node whose controller leads the quorum; None: there is no such node now, or this one does not know it."""

    def brokers(self) -> tuple[BrokerInfo, ...]:
        """The brokers of the cluster by their ids, fenced ones too."""

    def topic(self, name: str) -> Topic:
        """A topic; raises UnknownTopic."""

    def topic_names(self) -> tuple[str, ...]:
        """Names of all topics, also of internal ones, at a fraction of what ``Topics`` costs."""

    def partition_state(self, topic: str, partition: int) -> PartitionState:
        """The leader, the replicas and the in-sync set of a partition; raises UnknownTopic, UnknownPartition."""

    @property
    def reassignment_bytes_per_s(self) -> int | None:
        """What a broker fetches at most for replicas that are being added; None: any number."""

    def change_number(self) -> int:
        """A number that grows with every change of the metadata."""

    @property
    def default_partition_count(self) -> int:
        """How many partitions a topic gets that is created without a number."""

    @property
    def default_replication_factor(self) -> int:
        """How many replicas its partitions get where none is named."""


class Metadata(ReadableMetadata, Protocol):
    """What there is, and its changes; each is durable when the call returns."""

    @property
    def security(self) -> SecurityDocument:
        """Users, tokens, ACLs and quotas."""

    def submit(self, request: "Request[A]", **caller: Callable[[], None]) -> A:
        """Carry out a change of topics, or its check (``requests.topic_changes``); or Topics, DescribeQuorum, Reassign, ElectLeaders.

        Args:
            caller: ``go_on``, of CreateTopic and AlterTopic, is called before each partition is made: an error that it raises ends that,
                and nothing is left of a new topic.

        Raises:
            MetadataTimeout: The controllers have not answered, or not confirmed all, in time.
        """

    def limit_reassignments(self, bytes_per_s: int | None) -> None:
        """Change ``reassignment_bytes_per_s``, of all brokers."""

    def listen(self, function: Callable[[TopicEvent | ClusterEvent], None]) -> None:
        """Have a function told each durable change of topics that is made here, and of the cluster's nodes; it is to be quick."""

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

    def check_open(self, *, writable: bool = False) -> None:
        """Raise unless it is open in this process (Closed, Forked), and, with ``writable``, as ``check_writable``."""

    def check_writable(self) -> None:
        """Raise unless it is open, and accepts writes: Closed, Forked, ReadOnly, SyncFailed."""

    def open_log(self, topic: str, partition: int = 0) -> ReplicaLog:
        """The one log of a partition, recovered when it is first asked for; raises UnknownTopic, UnknownPartition."""

    def has_segments(self, topic: str, partition: int) -> bool:
        """Whether a log has a file of records; it is not opened for that."""

    def logs_with_producers(self) -> list[TopicPartition]:
        """The logs that may have a transaction open."""

    def complete_transactions_by(self, complete: Callable[[], None], has_partial_markers: Callable[[], bool]) -> None:
        """Have ``complete`` called before a snapshot and a compaction of decisions: it ends dangling transactions.

        A snapshot asks ``has_partial_markers``, under the transaction lock, whether a transaction has only some of its markers by then.
        """

    def submit(self, request: "Request[A]") -> A:
        """Carry out DescribeTopic, DescribeAtRest, DeleteRecords, EnforceRetention, Compact, Flush, Reports or Backup."""

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
