"""Buffers of whole record batches: checked on the way in, compressed, decompressed, stamped.

Offsets are left as they are; the limits of a topic are arguments.

Cost: one crossing into C per batch, two where its records are walked, one for each 256 KiB of what is decompressed; nothing is done per
record in Python.

Memory: of batches on the way in that is decompressed in pieces.  Batches for which a codec has to hold more than 2 MiB as a whole take
turns in one thread of the process: a few KiB may demand 64 MiB, from many clients at once.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from logdb._native import ffi, lib
from logdb.codec import compression, control
from logdb.codec.batch import (
    BATCH_SIZE_BYTES_MAX,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
    Scanner,
    Status,
    attributes_at,
    explain,
    header,
    header_fields,
    header_of,
    place,
    seal,
    set_last_offset_delta,
    set_uncompressed,
    size_at,
)
from logdb.errors import CorruptBatch, InvalidBatch, RecordTooLarge
from logdb.model import OFFSET_MAX, Buffer, ProducerIdAndEpoch
from logdb.pools import Pool

_RECORDS_SIZE_BYTES_MAX = BATCH_SIZE_BYTES_MAX - HEADER_SIZE_BYTES  # otherwise the uncompressed batch could not have a length field

_EMPTY = struct.Struct(">qiibIhiqqqhii")  # a batch header
_OF_THE_WAY = (Status.SHORT, Status.ZERO, Status.LENGTH, Status.CRC)  # what a faulty network or memory leaves of a good batch


HELD_BYTES_MAX = 2 << 20
REFUSED_COUNT_MAX = 1000  # of one batch; a client sends it again without them


class _LargeBatches:
    """The one thread for what codecs have to hold beyond that: malloc keeps memory for each thread that took much."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.pool = Pool(1, "logdb-large-batch")


_large_batches = _LargeBatches()
os.register_at_fork(after_in_child=_large_batches.renew)


class Produced(NamedTuple):
    """One batch of a producer in a checked buffer: the number of records before it, and its header."""

    records_before: int
    header: Header


class Incoming(NamedTuple):
    """The result of ``check_incoming``; every batch of the buffer is good.

    ``attributes`` are or-ed over the batches; ``min_timestamp`` and ``max_timestamp`` are the smallest and the largest of the records
    (``OFFSET_MAX`` and its negative for an empty buffer); ``produced`` are the batches with a producer id.
    """

    batch_count: int
    record_count: int
    min_timestamp: int
    max_timestamp: int
    attributes: int
    produced: list[Produced]


# ---------------------------------------------------------------- on the way in


def check_incoming(
    batches: Buffer,
    *,
    keys_required: bool,
    size_bytes_max: int,
    decompressed_size_bytes_max: int,
) -> Incoming:
    """Walk batches from a producer once: header, CRC, records, decompressed within bounds.

    Base offsets may have gaps, since the log replaces them; inside a batch the offset deltas are 0, 1, 2 ….
    The max timestamp of a header becomes the largest of its records: some clients leave it unset (sarama before 1.45.1).

    Args:
        batches: uint8[n], writable, whole batches back to back; borrowed for the call.  Changed: max timestamp and CRC of a batch
            whose header has another max timestamp than its records.
        keys_required: Refuse records without a key (compacted topics).
        size_bytes_max: Largest batch as it came (``max.message.bytes``).
        decompressed_size_bytes_max: Limit of the decompressed records of one batch.

    Raises:
        InvalidBatch: A batch is invalid; the error has its position and the reason.
        RecordTooLarge: A batch has more than ``size_bytes_max`` bytes.
        CodecMissing: The package of a batch's codec is not installed.

    Source: Kafka's LogValidator (KIP-98, "the offsets of a batch from a producer have no gaps").
    """
    data = ffi.from_buffer(batches, require_writable=True)
    view, first = memoryview(batches), ffi.cast("uint8_t *", data)
    batch, crc, times = ffi.new("logdb_batch *"), ffi.new("uint32_t *"), ffi.new("logdb_record_times *")
    batch_check, records_check = lib.logdb_batch_check, lib.logdb_records_check
    refused = lib.LOGDB_RECORDS_BOUNDED | (lib.LOGDB_RECORDS_KEYED if keys_required else 0)
    position, end, record_count, min_timestamp, max_timestamp, attributes = 0, len(data), 0, OFFSET_MAX, -OFFSET_MAX, 0
    batch_count, produced = 0, []
    while position < end:
        status = batch_check(first + position, end - position, size_bytes_max, batch, crc)
        if status:
            raise _refusal(status, view, position, size_bytes_max, crc[0])
        count, size, flags = batch.record_count, batch.size_bytes, batch.attributes
        if count < 1 or count != batch.last_offset - batch.base_offset + 1:
            raise InvalidBatch(position, f"{count} records for the offset deltas 0 to {batch.last_offset - batch.base_offset}")
        if flags & CONTROL:
            raise InvalidBatch(position, "a control batch: only a broker writes those")
        if flags & CODEC_MASK:
            status = _walk_compressed(view[position : position + size], batch, position, decompressed_size_bytes_max, refused, times)
        else:
            status = records_check(first + position + HEADER_SIZE_BYTES, size - HEADER_SIZE_BYTES, batch, refused, times)
        if status == Status.KEY:
            raise _without_keys(view, position, batch, decompressed_size_bytes_max)
        if status:
            raise _refusal(status, view, position, size_bytes_max, crc[0])
        if flags & LOG_APPEND_TIME:
            times.min = times.max = batch.max_timestamp
        elif times.max != batch.max_timestamp:
            batch.max_timestamp = times.max
            lib.logdb_batch_seal(first + position, size, flags, times.max)
        if batch.producer_id >= 0:
            _check_producer_epoch(batch, position)
            produced.append(Produced(record_count, cast(Header, header_of(batch))))
        elif flags & TRANSACTIONAL:
            raise InvalidBatch(position, "a transactional batch without a producer id")
        batch_count += 1
        record_count += count
        attributes |= flags
        min_timestamp, max_timestamp = min(min_timestamp, times.min), max(max_timestamp, times.max)
        position += size
    return Incoming(batch_count, record_count, min_timestamp, max_timestamp, attributes, produced)


def refused_records(
    image: memoryview, *, keys_required: bool, timestamp_min: int, timestamp_max: int, decompressed_size_bytes_max: int
) -> list[int]:
    """The numbers of the records that a topic does not accept in a batch from a producer, whose other records are good; the first 1,000.

    Args:
        image: uint8[n], one batch that ``check_incoming`` has refused for its keys, or has found good.
        keys_required: Records without a key are refused.
        timestamp_min, timestamp_max: Records with an earlier or a later timestamp are refused; -1 is no timestamp.
        decompressed_size_bytes_max: Limit of the decompressed records.
    """
    head = ffi.new("logdb_batch *")
    data = ffi.from_buffer(image)
    lib.logdb_batch_header(data, len(data), BATCH_SIZE_BYTES_MAX, head)

    def find() -> list[int]:
        records = ffi.from_buffer(decompressed(image, 0, decompressed_size_bytes_max) if is_compressed else image[HEADER_SIZE_BYTES:])
        numbers = ffi.new("int32_t[]", REFUSED_COUNT_MAX)
        accepted = ffi.new("logdb_record_times *", (timestamp_min, timestamp_max))
        flags = lib.LOGDB_RECORDS_KEYED if keys_required else 0
        count = lib.logdb_records_refused(records, len(records), head, flags, accepted, numbers, REFUSED_COUNT_MAX)
        return list(numbers[0:count])

    is_compressed = bool(head.attributes & CODEC_MASK)
    return _large_batches.pool.submit(find).result() if is_compressed else find()


def _without_keys(batches: memoryview, position: int, batch: Any, decompressed_size_bytes_max: int) -> InvalidBatch:
    image, (low, high) = batches[position : position + batch.size_bytes], (-OFFSET_MAX - 1, OFFSET_MAX)
    records = refused_records(
        image, keys_required=True, timestamp_min=low, timestamp_max=high, decompressed_size_bytes_max=decompressed_size_bytes_max
    )
    return InvalidBatch(position, explain(Status.KEY), records)


def _walk_compressed(image: memoryview, batch: Any, position: int, size_bytes_max: int, flags: int, times: Any) -> int:
    """As ``logdb_records_check``, of a compressed batch."""
    try:
        if compression.held_bytes(batch.attributes & CODEC_MASK, image[HEADER_SIZE_BYTES:]) <= HELD_BYTES_MAX:
            return _walk_pieces(image, batch, size_bytes_max, flags, times)
        return cast(int, _large_batches.pool.submit(_walk_pieces, image, batch, size_bytes_max, flags, times).result())
    except InvalidBatch as error:
        raise InvalidBatch(position, error.reason) from None


def _walk_pieces(image: memoryview, batch: Any, size_bytes_max: int, flags: int, times: Any) -> int:
    walk = ffi.new("logdb_records_walk *")
    codec, size_bytes_max = batch.attributes & CODEC_MASK, min(size_bytes_max, _RECORDS_SIZE_BYTES_MAX)
    for piece in compression.pieces(codec, image[HEADER_SIZE_BYTES:], size_bytes_max):
        records = ffi.from_buffer(piece)
        status = lib.logdb_records_take(walk, records, len(records), batch, flags)
        del piece, records  # before the next one is decompressed
        if status:
            return int(status)
    return int(lib.logdb_records_end(walk, batch, times))


class Followed(NamedTuple):
    """What ``check_followed`` found; every batch of the buffer is good, and follows on the one before it.

    ``epochs``: each leader epoch and the offset that it begins at, both rising.  ``produced``: the header of each batch with
    a producer id and, where it is a control batch, its bytes.
    """

    offsets: range
    epochs: list[tuple[int, int]]
    produced: list[tuple[Header, bytes]]


def check_followed(batches: Buffer) -> Followed:
    """Walk batches that lie in a leader's log once: header, CRC, records, offsets and leader epochs.

    Offsets lead from batch to batch, and leader epochs never fall.  Compaction may have taken records out of a batch, or all.

    Args:
        batches: uint8[n], whole batches back to back, at least one; borrowed for the call, not changed.

    Raises:
        InvalidBatch: A batch is not what it claims to be, or does not follow on the one before it.
        CodecMissing: The package of a batch's codec is not installed.
    """
    data = ffi.from_buffer(batches)
    view, first = memoryview(batches), ffi.cast("uint8_t *", data)
    batch, crc, batch_check = ffi.new("logdb_batch *"), ffi.new("uint32_t *"), lib.logdb_batch_check
    position, end, first_offset, next_offset, epoch = 0, len(data), 0, -1, -1
    epochs: list[tuple[int, int]] = []
    produced: list[tuple[Header, bytes]] = []
    while position < end or next_offset < 0:
        status = batch_check(first + position, end - position, BATCH_SIZE_BYTES_MAX, batch, crc)
        if status:
            raise _refusal(status, view, position, BATCH_SIZE_BYTES_MAX, crc[0])
        base_offset, size, flags = batch.base_offset, batch.size_bytes, batch.attributes
        if next_offset < 0:
            if batch.leader_epoch < 0:
                raise InvalidBatch(position, f"its leader epoch is {batch.leader_epoch}: must be 0 to {2**31 - 1}")
            first_offset, epoch = base_offset, batch.leader_epoch
            epochs.append((epoch, base_offset))
        elif base_offset != next_offset:
            raise InvalidBatch(position, f"it begins at offset {base_offset}, the batch before it ends at {next_offset}")
        if batch.leader_epoch < epoch:
            raise InvalidBatch(position, f"its leader epoch is {batch.leader_epoch}, that of the batch before it {epoch}")
        if batch.leader_epoch > epoch:
            epoch = batch.leader_epoch
            epochs.append((epoch, base_offset))
        if batch.record_count:  # compaction may have taken them all; of a codec's stream nothing need be left then
            _check_stored_records(view[position : position + size], batch, position)
        if batch.producer_id >= 0:
            _check_producer_epoch(batch, position)
            image = bytes(view[position : position + size]) if flags & CONTROL else b""
            produced.append((cast(Header, header_of(batch)), image))
        elif flags & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL:
            raise InvalidBatch(position, "a transactional batch without a producer id")
        next_offset = batch.last_offset + 1
        position += size
    return Followed(range(first_offset, next_offset), epochs, produced)


def _check_producer_epoch(batch: Any, position: int) -> None:
    if batch.producer_epoch < 0:
        raise InvalidBatch(position, f"producer {batch.producer_id} has the epoch {batch.producer_epoch}: must be 0 to {2**15 - 1}")


def _check_stored_records(image: memoryview, batch: Any, position: int) -> None:
    """See that a batch (its header: ``logdb_batch``) has the records that it claims, as it lies in a log."""
    records = decompressed(image, position, BATCH_SIZE_BYTES_MAX) if batch.attributes & CODEC_MASK else image[HEADER_SIZE_BYTES:]
    data = ffi.from_buffer(records)
    status = lib.logdb_records_check(data, len(data), batch, 0, ffi.NULL)
    if status:
        raise InvalidBatch(position, explain(Status(status), header_of(batch)))
    if batch.attributes & CONTROL:
        try:
            control.parse(image)
        except InvalidBatch as error:
            raise InvalidBatch(position, error.reason) from None


def begin_empty_batch_at(image: memoryview, batch: Header, base_offset: int) -> None:
    """Let a batch without records and without a producer begin at a later offset; it ends where it did.

    Args:
        image: uint8[n], from the begin of the batch, writable; changed.
    """
    place(image, 0, base_offset, batch.leader_epoch)
    set_last_offset_delta(image, batch.last_offset - base_offset)
    seal(image[: batch.size_bytes], batch.attributes, batch.max_timestamp)


def _refusal(status: int, batches: memoryview, position: int, size_bytes_max: int, computed_crc: int) -> InvalidBatch | RecordTooLarge:
    batch = header(batches[position:])[1]
    if status == Status.LENGTH and batch is not None and batch.size_bytes > size_bytes_max:
        return RecordTooLarge(batch.size_bytes, size_bytes_max)
    kind = CorruptBatch if status in _OF_THE_WAY else InvalidBatch
    return kind(position, explain(Status(status), batch, computed_crc=computed_crc))


def decompressed(batch: memoryview, position: int, size_bytes_max: int) -> Buffer:
    """The records of one batch; the errors of its codec carry the batch's ``position``."""
    codec = attributes_at(batch, 0) & CODEC_MASK
    try:
        return compression.decompress(codec, batch[HEADER_SIZE_BYTES:], min(size_bytes_max, _RECORDS_SIZE_BYTES_MAX))
    except InvalidBatch as error:
        raise InvalidBatch(position, error.reason) from None


def empty_batch(base_offset: int, next_offset: int) -> bytearray:
    """A batch without records for offsets whose records are gone, as compaction leaves one; at most 2^31 offsets."""
    image = bytearray(_EMPTY.pack(base_offset, 0, 0, 2, 0, 0, next_offset - base_offset - 1, -1, -1, -1, -1, -1, 0))
    seal(image, 0, -1)
    return image


def expanded_bytes(batches: Buffer) -> int:
    """A bound on what comes out of batches, of hostile bytes or not, by ``compression.expanded_bytes``."""
    view, at, size_bytes = memoryview(batches), 0, 0
    for fields in header_fields(batches):
        end = at + size_at(view, at)
        size_bytes += compression.expanded_bytes(fields.attributes & CODEC_MASK, view[at + HEADER_SIZE_BYTES : end])
        at = end
    return size_bytes


# ---------------------------------------------------------------- batches that were checked


def headers(batches: memoryview) -> Iterator[tuple[memoryview, Header]]:
    """Each batch and its header.

    Raises:
        InvalidBatch: The buffer does not hold whole batches; it was not checked.
    """
    position = 0
    while position < len(batches):
        status, batch = header(batches[position:])
        if status or batch is None:
            raise InvalidBatch(position, explain(status, batch))
        yield batches[position : position + batch.size_bytes], batch
        position += batch.size_bytes


def compress_batches(batches: Buffer, codec: int, *, size_bytes_max: int = BATCH_SIZE_BYTES_MAX) -> bytes:
    """Compress the records of each batch; offsets, timestamps and producers stay as they are.

    Not compressed are control batches, empty ones, compressed ones, and those that would grow over ``size_bytes_max``.

    Args:
        batches: uint8[n], checked batches back to back, borrowed for the call.
        codec: The codec's number, in [0, 4].
        size_bytes_max: Largest batch that the receiver accepts (``max.message.bytes``).

    Raises:
        CodecMissing: The codec's package is not installed.
    """
    parts: list[Buffer] = []
    for image, batch in headers(memoryview(batches)):
        part: Buffer = image
        if codec and batch.record_count and not batch.attributes & (CODEC_MASK | CONTROL):
            compressed = bytearray(image[:HEADER_SIZE_BYTES])
            compressed += compression.compress(codec, image[HEADER_SIZE_BYTES:])
            if len(compressed) <= size_bytes_max:
                seal(compressed, batch.attributes | codec, batch.max_timestamp)
                part = compressed
        parts.append(part)
    return b"".join(parts)


def decompress_batches(batches: memoryview, size_bytes_max: int) -> bytearray | memoryview:
    """Uncompressed copies of batches of any codec, back to back, for a walk over their records.

    Args:
        batches: uint8[n], checked batches back to back, offsets increasing as in a log.
        size_bytes_max: Limit of the decompressed records of one batch.

    Returns:
        ``batches`` itself if none is compressed.  Otherwise new bytes, with codec 0 and the new length in the headers; the CRC is
        unchanged, so a check of it fails.

    Raises:
        InvalidBatch: A batch cannot be decompressed, or not within ``size_bytes_max``.
        CodecMissing: The package of a batch's codec is not installed.
    """
    scanner = Scanner(segment_base_offset=0, gaps=True, check_crc=False, with_index=False)
    status = scanner.scan(batches)
    if status:
        raise InvalidBatch(scanner.used, explain(status, scanner))
    if not scanner.codecs & ~1:
        return batches
    images, position = bytearray(), 0
    for image, batch in headers(batches):
        begin = len(images)
        if not batch.attributes & CODEC_MASK:
            images += image
        else:
            images += image[:HEADER_SIZE_BYTES]
            if batch.record_count:  # an empty batch of compaction may have no stream
                images += decompressed(image, position, size_bytes_max)
            set_uncompressed(images, begin)
        position += batch.size_bytes
    return images


def stamp_append_time(batches: bytearray | memoryview, timestamp_ms: int) -> None:
    """Stamp all batches with the time of their append: attribute bit 3, the max timestamp and the CRC.

    Args:
        batches: uint8[n], writable, checked batches back to back; changed in place.
        timestamp_ms: Milliseconds since the epoch, in [0, 2^63).
    """
    if not 0 <= timestamp_ms <= OFFSET_MAX:
        raise ValueError(f"timestamp_ms={timestamp_ms} is not in [0, 2^63)")
    for image, batch in headers(memoryview(batches)):
        seal(image, batch.attributes | LOG_APPEND_TIME, timestamp_ms)


def stamp_producer(batches: bytearray | memoryview, producer: ProducerIdAndEpoch, base_sequence: int, *, transactional: bool) -> int:
    """Stamp all batches with a producer: id, epoch, sequence, the transactional bit and the CRC.

    Args:
        batches: uint8[n], writable, whole batches of any codec back to back; changed in place.
        base_sequence: Sequence of the first record, in [0, 2^31); -1: none, as for records of coordinators.

    Returns:
        The sequence of the record after the last; after 2^31 - 1 comes 0.

    Raises:
        InvalidBatch: The buffer does not hold whole batches; those before the error's position are stamped.

    Source: KIP-98.
    """
    if not -1 <= base_sequence < 1 << 31 or producer.producer_id < 0 or not 0 <= producer.producer_epoch < 1 << 15:
        raise ValueError(f"sequence {base_sequence} of {producer}: out of range")
    data = ffi.from_buffer(batches, require_writable=True)
    sequence, used = ffi.new("int32_t *", base_sequence), ffi.new("size_t *")
    if status := lib.logdb_batches_stamp(data, len(data), *producer, sequence, transactional, used):
        raise InvalidBatch(used[0], explain(Status(status), header(memoryview(batches)[used[0] :])[1]))
    return int(sequence[0])
