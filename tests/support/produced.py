"""What an idempotent or transactional producer sends, batch by batch."""

import os
from collections.abc import Sequence
from typing import Any

import logdb
from logdb.client.local import LocalDatabase
from logdb.codec import convert
from logdb.model import ProducerIdAndEpoch
from logdb.store.store import Store
from support.batches import BASE_TIMESTAMP, encode_batch


def batch(values: Sequence[bytes], producer_id: int, epoch: int, sequence: int, *, transactional: bool = False, **options: Any) -> bytes:
    """One batch of a producer; ``options`` are ``encode_batch``'s."""
    image = bytearray(encode_batch(values, **options))
    convert.stamp_producer(image, ProducerIdAndEpoch(producer_id, epoch), sequence, transactional=transactional)
    return bytes(image)


class Bare(LocalDatabase):
    """A database whose logs are the store's: no broker ends the transactions of producers that are gone."""

    def log(self, topic: str, partition: int = 0) -> logdb.Log:
        return self._store.open_log(topic, partition)


def open_bare(path: str | os.PathLike[str], **options: Any) -> Bare:
    return Bare(Store.open(path, **options))


class Sender:
    """A producer that counts its sequences by itself; a batch that is refused is not counted."""

    def __init__(self, log: logdb.Log, producer_id: int = 7, epoch: int = 0, *, sequence: int = 0, transactional: bool = False) -> None:
        self.log, self.producer_id, self.epoch, self.sequence, self.transactional = log, producer_id, epoch, sequence, transactional
        self.timestamp_ms = BASE_TIMESTAMP

    @property
    def name(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    def image(self, *values: bytes) -> bytes:
        sender = self.producer_id, self.epoch, self.sequence
        return batch(values, *sender, transactional=self.transactional, base_timestamp=self.timestamp_ms)

    def send(self, *values: bytes, **options: Any) -> range:
        offsets = self.log.append_batches(self.image(*values), **options)
        self.sequence = self.sequence + len(values) & 2**31 - 1
        return offsets

    def end(self, *, commit: bool, coordinator_epoch: int = 0, **options: Any) -> int:
        return self.log.append_marker(self.name, commit=commit, coordinator_epoch=coordinator_epoch, **options)


def values(log: logdb.Log, offset: int = 0, **options: Any) -> list[bytes | None]:
    return [record.value for record in log.read(offset, **options)]


def committed(log: logdb.Log, offset: int = 0) -> list[bytes | None]:
    return values(log, offset, isolation_level="read_committed")
