"""Requests about the records of one partition; ``Session`` and ``PartitionLog`` say what each does.

Record batches are no fields: they go beside a request as buffers, in and out, and nothing encodes or decodes them.  Each read of records
needs what ``ReadBatches`` needs; each append, and a flush of the log, what ``Produce`` needs.
"""

from typing import Any

from logdb.log.isolation import IsolationLevel
from logdb.log.producers import Producer
from logdb.log.protocols import PartitionLog
from logdb.model import AbortedTransaction, Durability, OpenTransaction
from logdb.requests.request import Need, Request, named, value
from logdb.requests.resources import CLUSTER

_DESCRIBE = named("Describe", "Topic", "topic")
_READ = named("Read", "Topic", "topic")


@value
class Log(Request[PartitionLog]):
    """The log of a partition, with its ends."""

    local = True
    needs = (_DESCRIBE,)
    topic: str
    partition: int = 0


@value
class Produce(Request[range]):
    local = True
    needs = (
        named("Write", "TransactionalId", "transactional_id"),
        Need("ClusterAction", "Cluster", lambda request: (CLUSTER,) if request.mirrored else ()),
        named("Write", "Topic", "topic"),
    )
    topic: str
    partition: int
    durability: Durability | None = None
    transactional_id: str | None = None
    expected_offset: int | None = None
    mirrored: bool = False


@value
class ReadBatches(Request[tuple[memoryview, int]]):
    local = True
    needs = (_READ,)
    topic: str
    partition: int
    offset: int
    size_bytes_max: int = 1 << 20
    isolation_level: IsolationLevel = "read_uncommitted"


@value
class AbortedTransactions(Request[list[AbortedTransaction]]):
    local = True
    needs = (_READ,)
    topic: str
    partition: int
    offset: int
    end_offset: int


@value
class Producers(Request[list[Producer]]):
    """The producers that have appended lately."""

    local = True
    needs = (_READ,)
    topic: str
    partition: int


@value
class OpenTransactions(Request[list[OpenTransaction]]):
    local = True
    needs = (_DESCRIBE,)
    topic: str
    partition: int


@value
class OffsetForTimestamp(Request[int | None]):
    local = True
    needs = (_DESCRIBE,)
    topic: str
    partition: int
    timestamp_ms: int


@value
class EpochAt(Request[int]):
    local = True
    needs = (_DESCRIBE,)
    topic: str
    partition: int
    offset: int


OF_LOGS: tuple[type[Request[Any]], ...] = (AbortedTransactions, Producers, OpenTransactions, OffsetForTimestamp, EpochAt)
"""Requests that a partition's log carries out, by its method of that name."""
