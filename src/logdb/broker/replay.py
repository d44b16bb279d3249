"""Reads a partition of an internal topic back into its coordinator.

The topic is compacted: of plain records, ``apply`` gets the last of each key, in the order of these last records.

Transactional batches, whose producer matters, and control batches are applied one by one, between those before and
after them.

Source: Kafka's ``CoordinatorLoader``, which reads to the log end, too.
"""

from collections.abc import Iterator

from logdb.codec import Record, RecordIterator, control, header
from logdb.codec.batch import CONTROL, TRANSACTIONAL, attributes_at, header_fields, size_at
from logdb.codec.control import ControlType
from logdb.codec.convert import decompress_batches
from logdb.coordinator.effects import Coordinator
from logdb.errors import CorruptionError, InvalidMessage
from logdb.log.protocols import ReplicaLog

_SPECIAL = TRANSACTIONAL | CONTROL
_DECOMPRESSED_SIZE_BYTES_MAX = 64 << 20


def replay(log: ReplicaLog, coordinator: Coordinator, offset: int) -> int:
    """Apply all written records from ``offset`` on, also above the high watermark; returns the offset after the last.

    A coordinator appends behind all of them, so its state must include all of them.

    Raises:
        CorruptionError: The partition is damaged, or a record has not the format of its topic.
    """
    latest: dict[bytes, Record] = {}
    end_offset = offset
    for batches, start, next_offset in _written(log, offset):
        for attributes, run in _runs(batches):
            if attributes & _SPECIAL:
                _apply_latest(log, coordinator, latest)
            if attributes & CONTROL:
                _apply_marker(coordinator, run)
            elif attributes & TRANSACTIONAL:
                producer_id = next(header_fields(run)).producer_id
                for record in _records(log, run, start):
                    _apply(log, coordinator, record, producer_id)
            else:
                for record in _records(log, run, start):
                    latest.pop(record.key, None)  # type: ignore[arg-type]  # the topic is compacted: there are no null keys
                    latest[record.key] = record  # type: ignore[index]  # the same
        end_offset = next_offset
    _apply_latest(log, coordinator, latest)
    return end_offset


def records(log: ReplicaLog) -> Iterator[Record]:
    """All written records, also above the high watermark."""
    for batches, start, _ in _written(log, log.start_offset):
        yield from _records(log, batches, start)


def _written(log: ReplicaLog, offset: int) -> Iterator[tuple[memoryview, int, int]]:
    """Batches from ``offset`` to the written end, with the offsets at which each read begins and ends."""
    while offset < log.end_offset:
        batches, next_offset = log.read_batches(offset, replica=True)
        if not batches:
            break
        yield batches, offset, next_offset
        offset = next_offset


def _runs(batches: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Runs of plain batches, and each transactional or control batch alone, with its attributes."""
    start, at, size_bytes = 0, 0, len(batches)
    while at < size_bytes:
        after = at + size_at(batches, at)
        attributes = attributes_at(batches, at)
        if attributes & _SPECIAL:
            if start < at:
                yield 0, batches[start:at]
            yield attributes, batches[at:after]
            start = after
        at = after
    if start < at:
        yield 0, batches[start:at]


def _records(log: ReplicaLog, run: memoryview, offset: int) -> Iterator[Record]:
    plain = decompress_batches(run, _DECOMPRESSED_SIZE_BYTES_MAX)
    return RecordIterator(lambda _offset, _end: (plain,), offset, log.end_offset, log.topic, log.partition)


def _apply_latest(log: ReplicaLog, coordinator: Coordinator, latest: dict[bytes, Record]) -> None:
    for record in latest.values():
        _apply(log, coordinator, record, -1)
    latest.clear()


def _apply(log: ReplicaLog, coordinator: Coordinator, record: Record, producer_id: int) -> None:
    try:
        coordinator.apply(record.key or b"", record.value, offset=record.offset, producer_id=producer_id)
    except InvalidMessage as error:
        reason = f"offset {record.offset} is no record of {log.topic}: {error}"
        raise CorruptionError(log.directory, 0, reason) from error


def _apply_marker(coordinator: Coordinator, batch: memoryview) -> None:
    head = header(batch)[1]
    if head is None or not head.record_count:
        return  # emptied by compaction
    found = control.parse(batch)
    if isinstance(found.type, ControlType):
        coordinator.apply_marker(head.producer_id, commit=found.type is ControlType.COMMIT)
