"""A transactional producer by hand: without a thread, so that a test knows who makes which call."""

from __future__ import annotations

from logdb.broker.broker import Broker
from logdb.codec import BatchBuilder
from logdb.codec.convert import stamp_producer
from logdb.model import OffsetAndMetadata, TopicPartition


class Memory(BatchBuilder):
    """Batches in memory."""

    def __init__(self):
        super().__init__(next_offset=0, leader_epoch=0, batch_size=1 << 16, write_size=1 << 16, group_size=1 << 16, clock=None)
        self.batches = bytearray()

    def _write(self, batches, base_offset, next_offset, now_ms):
        self.batches += batches


class Writer:
    """One instance of a transactional id."""

    def __init__(self, broker: Broker, transactional_id: str = "tx", **options: int) -> None:
        self.broker, self.id = broker, transactional_id
        self.producer = broker.init_producer_id(transactional_id, **options)
        self.sequences: dict[TopicPartition, int] = {}

    def batches(self, partition: TopicPartition, *values: bytes, keys: list[bytes] | None = None) -> bytearray:
        memory = Memory()
        memory.append_many(values, keys)
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = stamp_producer(memory.batches, self.producer, sequence, transactional=True)
        return memory.batches

    def write(self, partition: TopicPartition, *values: bytes) -> range:
        return self.broker.produce(*partition, self.batches(partition, *values), transactional_id=self.id)

    def offsets(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        self.broker.commit_transaction_offsets(self.id, self.producer, group_id, {partition: OffsetAndMetadata(offset)})

    def end(self, *, commit: bool) -> None:
        self.producer, self.sequences = self.broker.end_transaction(self.id, self.producer, commit=commit), {}
