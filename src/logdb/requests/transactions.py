"""Requests of producers about their ids and transactions, and of administrators; ``Session`` says what each does."""

from collections.abc import Mapping

from logdb.coordinator.events import TransactionInfo
from logdb.model import NO_TOPIC_IDS, OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition
from logdb.requests.request import May, Request, cluster, each_topic, listed, named

_WRITE = named("Write", "TransactionalId", "transactional_id")


class InitProducerId(Request[ProducerIdAndEpoch], frozen=True):
    needs = (
        cluster("IdempotentWrite", unless="transactional_id"),
        _WRITE,
    )
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer: ProducerIdAndEpoch | None = None


class AddPartitions(Request[None], frozen=True):
    needs = (_WRITE, each_topic("Write", "partitions"))
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False


class AddOffsets(Request[None], frozen=True):
    needs = (_WRITE, named("Read", "Group", "group_id"))
    transactional_id: str
    producer: ProducerIdAndEpoch
    group_id: str


class CommitTransactionOffsets(Request[None], frozen=True):
    needs = (_WRITE, named("Read", "Group", "group_id"), each_topic("Read", "offsets"))
    transactional_id: str
    producer: ProducerIdAndEpoch
    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    verify_only: bool = False
    topic_ids: Mapping[str, str] = NO_TOPIC_IDS


class EndTransaction(Request[ProducerIdAndEpoch], frozen=True):
    needs = (_WRITE,)
    transactional_id: str
    producer: ProducerIdAndEpoch
    commit: bool
    bump_epoch: bool = True


# ---------------------------------------------------------------- administration


def _visible(info: TransactionInfo, may: May) -> TransactionInfo:
    return info._replace(partitions=tuple(partition for partition in info.partitions if may("Describe", "Topic", partition.topic)))


class Transactions(Request[list[TransactionInfo]], frozen=True):
    needs = (listed("Describe", "TransactionalId"),)

    def visible(self, answer: list[TransactionInfo], may: May) -> list[TransactionInfo]:
        return [_visible(info, may) for info in answer if may("Describe", "TransactionalId", info.transactional_id)]


class DescribeTransaction(Request[TransactionInfo], frozen=True):
    needs = (named("Describe", "TransactionalId", "transactional_id"),)
    transactional_id: str

    def visible(self, answer: TransactionInfo, may: May) -> TransactionInfo:
        return _visible(answer, may)


class AbortTransaction(Request[None], frozen=True):
    needs = (_WRITE,)
    transactional_id: str
