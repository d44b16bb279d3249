"""Batches of producers, appended straight to a log."""

from collections.abc import Sequence

import logdb
from logdb.codec.convert import stamp_producer
from logdb.model import ProducerIdAndEpoch
from support.batches import encode_batch


def produce(
    log: logdb.Log, producer: ProducerIdAndEpoch, sequence: int, values: Sequence[bytes] = (b"x",), *, transactional: bool = False
) -> range:
    """Append one batch of a producer, whose first record has ``sequence``; returns its offsets."""
    batch = bytearray(encode_batch(list(values)))
    stamp_producer(batch, producer, sequence, transactional=transactional)
    return log.append_batches(batch)


def committed(log: logdb.Log) -> list[bytes | None]:
    """The values that a reader of what is committed gets."""
    return [record.value for record in log.read(log.start_offset, isolation_level="read_committed")]
