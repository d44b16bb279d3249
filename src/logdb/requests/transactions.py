"""Requests of producers about their ids and transactions, and of administrators; ``Session`` says what each does."""

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from logdb.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.requests.request import May, Request, cluster, each_topic, listed, named, value

_WRITE = named("Write", "TransactionalId", "transactional_id")


class TransactionInfo(NamedTuple):
    """A transactional id and its last transaction; times in ms since 1970, -1 where there is none."""

    transactional_id: str
    state: str  # Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence
    producer: ProducerIdAndEpoch
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


@value
class InitProducerId(Request[ProducerIdAndEpoch]):
    needs = (
        cluster("IdempotentWrite", unless="transactional_id"),
        _WRITE,
    )
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer: ProducerIdAndEpoch | None = None


@value
class AddPartitions(Request[None]):
    needs = (_WRITE, each_topic("Write", "partitions"))
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False


@value
class AddOffsets(Request[None]):
    needs = (_WRITE, named("Read", "Group", "group_id"))
    transactional_id: str
    producer: ProducerIdAndEpoch
    group_id: str


@value
class CommitTransactionOffsets(Request[None]):
    needs = (_WRITE, named("Read", "Group", "group_id"), each_topic("Read", "offsets"))
    transactional_id: str
    producer: ProducerIdAndEpoch
    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    verify_only: bool = False
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@value
class EndTransaction(Request[ProducerIdAndEpoch]):
    needs = (_WRITE,)
    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    bump_epoch: bool = True


# ---------------------------------------------------------------- administration


def _visible(info: TransactionInfo, may: May) -> TransactionInfo:
    return info._replace(partitions=tuple(partition for partition in info.partitions if may("Describe", "Topic", partition.topic)))


@value
class Transactions(Request[list[TransactionInfo]]):
    needs = (listed("Describe", "TransactionalId"),)

    def visible(self, answer: list[TransactionInfo], may: May) -> list[TransactionInfo]:
        return [_visible(info, may) for info in answer if may("Describe", "TransactionalId", info.transactional_id)]


@value
class DescribeTransaction(Request[TransactionInfo]):
    needs = (named("Describe", "TransactionalId", "transactional_id"),)
    transactional_id: str

    def visible(self, answer: TransactionInfo, may: May) -> TransactionInfo:
        return _visible(answer, may)


@value
class AbortTransaction(Request[None]):
    needs = (_WRITE,)
    transactional_id: str
