"""Control batches: the marker that ends a transaction on a partition.

A control batch has one record: key {version int16, type int16}, value {version int16, coordinator epoch int32}, big-endian.

Later versions may add fields at the end, so what follows the known ones is ignored; types that are not a
transaction's (2 to 6 are KRaft's) are returned as numbers, without an epoch.

Source: Kafka's ControlRecordType and EndTransactionMarker.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from logdb.codec.batch import CODEC_MASK, CONTROL, HEADER_SIZE_BYTES, TRANSACTIONAL, Status, build_batch, explain, header
from logdb.errors import InvalidBatch
from logdb.model import Buffer, ProducerIdAndEpoch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_RECORD = struct.Struct(">5b4sb6sb")  # length, attributes, two deltas; key and value behind their sizes; no headers


class ControlType(IntEnum):
    """How a marker ends the transaction of its producer."""

    ABORT = 0
    COMMIT = 1


class ControlRecord(NamedTuple):
    """One control record.

    ``type`` is a ControlType, or the number of another type, with ``coordinator_epoch`` None.
    """

    type: ControlType | int
    coordinator_epoch: int | None


@lru_cache(maxsize=16)  # a transaction has the same marker on each of its partitions
def build(kind: ControlType, producer: ProducerIdAndEpoch, coordinator_epoch: int, timestamp_ms: int) -> bytes:
    """The batch of a marker, at offset 0; the log sets its offset.

    Args:
        kind: How the producer's transaction ends.
        coordinator_epoch: Of the deciding coordinator, in [0, 2^31).
        timestamp_ms: When, in milliseconds since 1970.

    Source: Kafka's MemoryRecords.withEndTransactionMarker.
    """
    key, value = _KEY.pack(0, kind), _VALUE.pack(0, coordinator_epoch)
    record = _RECORD.pack(2 * (_RECORD.size - 1), 0, 0, 0, 2 * len(key), key, 2 * len(value), value, 0)
    return build_batch(
        record,
        base_offset=0,
        last_offset=0,
        leader_epoch=0,
        attributes=TRANSACTIONAL | CONTROL,
        timestamp=timestamp_ms,
        record_count=1,
        producer=producer,
    )


def parse(batch: Buffer) -> ControlRecord:
    """Read the record of one control batch.

    Args:
        batch: uint8[n], begins with a checked control batch, never compressed; later bytes are ignored.

    Raises:
        InvalidBatch: At position 0: not a control batch, or its record is not a control record.
    """
    status, head = header(batch)
    if status != Status.OK or head is None:
        raise InvalidBatch(0, explain(status, head))
    if not head.attributes & CONTROL or head.attributes & CODEC_MASK or head.record_count != 1:
        raise InvalidBatch(0, f"not a control batch: attributes {head.attributes:#06x}, {head.record_count} records")
    data = memoryview(batch)[HEADER_SIZE_BYTES : head.size_bytes]
    size, at = _varint(data, 0)
    if size != len(data) - at:
        raise InvalidBatch(0, f"the control record has {size} bytes, the batch has {len(data) - at} for it")
    _, at = _varint(data, at + 1)  # timestamp delta, behind a byte of attributes, unused
    _, at = _varint(data, at)  # offset delta
    key, at = _sized(data, at)
    value, at = _sized(data, at)
    version, number = _fields(_KEY, key, "key")
    if version < 0:
        raise InvalidBatch(0, f"the control record's key has version {version}")
    if number not in tuple(ControlType):
        return ControlRecord(number, None)
    version, coordinator_epoch = _fields(_VALUE, value, "value")
    if version < 0:
        raise InvalidBatch(0, f"the control record's value has version {version}")
    return ControlRecord(ControlType(number), coordinator_epoch)


def _fields(layout: struct.Struct, data: memoryview, what: str) -> tuple[int, int]:
    if len(data) < layout.size:
        raise InvalidBatch(0, f"the control record's {what} has {len(data)} bytes, at least {layout.size} are needed")
    first, second = layout.unpack_from(data)
    return first, second


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The zig-zag varint at ``at``, and the position after it."""
    number = 0
    for shift, byte in enumerate(data[at : at + 10]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number >> 1 ^ -(number & 1), at + shift + 1
    raise InvalidBatch(0, f"a number of the control record does not end within its {len(data)} bytes")


def _sized(data: memoryview, at: int) -> tuple[memoryview, int]:
    """The bytes at ``at``, behind their size (-1, null, is none), and the position after them."""
    size, at = _varint(data, at)
    if size > len(data) - at:
        raise InvalidBatch(0, f"{size} bytes in a control record that has {len(data) - at} left")
    end = at + max(size, 0)
    return data[at:end], end
