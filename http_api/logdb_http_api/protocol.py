"""logdb's own protocol over HTTP, as the door and the remote session share it: paths, media types, bounds, and documents."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from logdb.log.isolation import IsolationLevel
from logdb.model import NOTHING_KNOWN, AbortedTransaction, Durability, KnownLog, OpenTransaction, TopicPartition
from logdb.requests.nodes import QuorumInfo, QuorumVoter, host_and_port
from logdb.requests.report import Checked, Copied, Problem, Report

FOLLOWS = "Logdb-Follows"
"""The header of a client that goes to the leader itself: nothing is forwarded for it."""
CALLS_PATH = "/logdb/v1/calls/"
KAFKA_PATH, KAFKA_PROTOCOL = "/logdb/v1/kafka", "kafka"
BACKUPS_PATH, BACKUP = "/logdb/v1/backups", "application/vnd.logdb.backup"
WATCH_PATH, CHANGE_COUNT_MAX = "/logdb/v1/watch", 1024
PARTITIONS_PATH, PARTITIONS_WAIT_MS_MAX = "/logdb/v1/partitions", 60_000
PARTITION_PATH = "/logdb/v1/topics/{topic}/partitions/{partition}"
BATCHES_PATH, BATCHES = f"{PARTITION_PATH}/batches", "application/vnd.logdb.batches"
UPLOADS_PATH = f"{PARTITION_PATH}/uploads"
UPLOAD_PATH, DISCARD_PATH = f"{UPLOADS_PATH}/{{id}}", f"{UPLOADS_PATH}/discard"
FETCH_BYTES_MAX = 64 << 20


def path_of(path: str, where: TopicPartition) -> str:
    """A path for one partition."""
    return path.format(topic=quote(where.topic, safe=""), partition=where.partition)


class NamedUpload(NamedTuple):
    """An upload, and the CRC-32C of its bytes."""

    id: str
    crc: int


class AppendUploads(NamedTuple):
    """The body of ``POST …/uploads``: uploads, in order, become batches of a producer.
    ``sequence``: of the first record.
    """

    uploads: list[NamedUpload]
    producer_id: int
    producer_epoch: int
    sequence: int
    transactional_id: str | None = None


class AppendedUploads(NamedTuple):
    """The range of the offsets; or the ids that the server lacks: nothing was appended."""

    base_offset: int
    next_offset: int
    missing: Sequence[str] = ()


class DiscardUploads(NamedTuple):
    """The body of ``POST …/uploads/discard``."""

    ids: list[str]


class LogState(NamedTuple):
    """The state of a partition's log; ``readable_end_offset`` is that of the requested isolation level.

    ``leader_epoch``: of the record before ``readable_end_offset``; -1: there is none.
    ``is_elsewhere``: the position of the request lies in another log, so that a read from there raises.
    ``leader_address``: another node leads the partition, whose HTTP door is there (HOST:PORT; empty: no node leads it now), and the rest
    says nothing.
    """

    start_offset: int
    end_offset: int
    readable_end_offset: int
    last_stable_offset: int
    size_bytes: int
    durability: Durability
    leader_address: str | None = None
    topic_id: str = ""
    leader_epoch: int = -1
    is_elsewhere: bool = False


class Look(NamedTuple):
    """The body of ``POST /logdb/v1/partitions``.

    ``positions``: with ``timeout_ms``, the request waits for a record at one of them.
    ``known``: what the reader knows of the logs that they lie in.  If one is another log, the request does not wait.
    """

    positions: Mapping[TopicPartition, int]
    timeout_ms: int = 0
    isolation_level: IsolationLevel = "read_uncommitted"
    known: Mapping[TopicPartition, KnownLog] = NOTHING_KNOWN


class Transactions(NamedTuple):
    """The transactions of a partition."""

    open: list[OpenTransaction]
    aborted: list[AbortedTransaction]


class Voter(NamedTuple):
    """One controller that votes, as the leader of the quorum knows it.

    ``end``: one past the last command that it has; ``answered_ms_ago``: since it answered the leader.  None: unknown, or the leader itself.
    """

    node_id: int
    address: str | None
    end: int | None
    answered_ms_ago: int | None


class Quorum(NamedTuple):
    """The controllers that decide on topics and leaders.

    ``leader``: None if none leads.  ``committed``: one past the last command that a majority has.
    """

    leader: int | None
    term: int
    committed: int
    voters: tuple[Voter, ...]

    @classmethod
    def of(cls, found: QuorumInfo) -> "Quorum":
        return cls(found.leader, found.term, found.committed, tuple(map(_voter, found.voters)))


def _voter(found: QuorumVoter) -> Voter:
    return Voter(found.node_id, found.address and host_and_port(*found.address), found.end, found.answered_ms_ago)


class Found(NamedTuple):
    """The offset that was found; None: no record is that young."""

    offset: int | None


class Latest(NamedTuple):
    """The record with the latest timestamp; None: there is no record."""

    offset: int | None
    timestamp_ms: int | None


class Epoch(NamedTuple):
    """The leader epoch of a record; -1: unknown."""

    leader_epoch: int


class Verified(NamedTuple):
    """The result of a check; as ``Report``."""

    problems: list[Problem]
    notes: list[str]
    checked: Checked

    @classmethod
    def of(cls, report: Report) -> "Verified":
        return cls(report.problems, report.notes, report.checked)


class Offer(NamedTuple):
    """A backup that can be downloaded; ``copied.written_bytes`` is its size."""

    id: str
    copied: Copied
