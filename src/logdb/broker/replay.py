"""Reads a partition of an internal topic back into its coordinator.

Knows batches, control records and what a coordinator's ``apply`` wants to be told of them.  Does not know what the
records mean.

Several plain batches that lie together are decoded as one run; a transactional batch, whose producer matters, and a
control batch are each a run of their own.
"""

import logging
from collections.abc import Iterator

from logdb.codec import Record, RecordIterator, control, header
from logdb.codec.batch import CONTROL, TRANSACTIONAL
from logdb.codec.control import ControlType
from logdb.codec.convert import decompress_batches
from logdb.coordinator.effects import Coordinator
from logdb.errors import CorruptionError, InvalidRecord
from logdb.log.log import Log

logger = logging.getLogger(__name__)

_SPECIAL = TRANSACTIONAL | CONTROL
_DECOMPRESSED_SIZE_BYTES_MAX = 64 << 20


def replay(log: Log, coordinator: Coordinator, offset: int) -> int:
    """Apply everything from ``offset`` on; returns where it ended.

    Raises:
        CorruptionError: The partition is damaged, or a record in it is none of its topic's.
    """
    while offset < log.end_offset:
        batches, next_offset = log.read_batches(offset)
        if not batches:
            break
        for attributes, run in _runs(batches):
            if attributes & CONTROL:
                _apply_marker(coordinator, run)
            else:
                _apply_records(log, coordinator, run, attributes, offset)
        offset = next_offset
    return offset


def _runs(batches: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The attributes and bytes of runs of batches."""
    start, at, size_bytes = 0, 0, len(batches)
    while at < size_bytes:
        after = at + int.from_bytes(batches[at + 8 : at + 12], "big") + 12
        attributes = int.from_bytes(batches[at + 21 : at + 23], "big")
        if attributes & _SPECIAL:
            if start < at:
                yield 0, batches[start:at]
            yield attributes, batches[at:after]
            start = after
        at = after
    if start < at:
        yield 0, batches[start:at]


def _apply_marker(coordinator: Coordinator, batch: memoryview) -> None:
    found, head = control.parse(batch), header(batch)[1]
    if head is not None and isinstance(found.type, ControlType):
        coordinator.apply_marker(head.producer_id, commit=found.type is ControlType.COMMIT)


def _apply_records(log: Log, coordinator: Coordinator, run: memoryview, attributes: int, offset: int) -> None:
    producer_id = int.from_bytes(run[43:51], "big", signed=True) if attributes & TRANSACTIONAL else -1
    for record in _records(log, run, offset):
        if record.key is None:
            raise _damage(log, record.offset, "a record without a key")
        try:
            coordinator.apply(record.key, record.value, offset=record.offset, producer_id=producer_id)
        except InvalidRecord as error:
            raise _damage(log, record.offset, str(error)) from error


def _records(log: Log, run: memoryview, offset: int) -> Iterator[Record]:
    plain = decompress_batches(run, _DECOMPRESSED_SIZE_BYTES_MAX)
    return RecordIterator(lambda _offset, _end: (plain,), offset, log.end_offset, log.topic, log.partition)


def _damage(log: Log, offset: int, reason: str) -> CorruptionError:
    return CorruptionError(log.directory, 0, f"offset {offset} of {log.topic}-{log.partition}: {reason}")
