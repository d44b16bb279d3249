"""The state of a log's producers in a file: Kafka's ``<offset>.snapshot``.

The catalogue names the snapshot that recovery uses.  Behind Kafka's entries, where Kafka's tools do not look, lie the earlier ones of
the last five batches, for which an entry has no room: after a restart, too, a producer's repeated batches must be found.  Then come
checksums of the indexes of aborted transactions of segments that are not sealed.  Format: docs/inside/format.md, "Producer snapshot".
"""

import logging
import os
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from logdb.codec import crc32c
from logdb.disk import File, replace_file
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log.producers import BATCH_COUNT_MAX, SEQUENCE_MASK, Batch, Producer, ProducerStates
from logdb.model import SEGMENT_SIZE_BYTES_MAX
from logdb.segment.segment import segment_path

logger = logging.getLogger(__name__)

SUFFIX = ".snapshot"
_KEPT_COUNT = 2
_UNCHECKED_SIZE_BYTES_MAX = 1 << 20  # of a file that is read as a whole before its CRC is known
_VERSION = 1
_HEAD = struct.Struct(">hIi")  # version, CRC-32C of what follows it, count
_CRC_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_EARLIER = struct.Struct(">qiqi")  # producer id, then as in an entry: last sequence, last offset, offset delta
_ABORTED = struct.Struct(">qiqI")  # no producer id, then of a .txnindex: count of entries, base offset of the segment, CRC-32C
_NO_PRODUCER_ID = -1


class Snapshot(NamedTuple):
    """The content of one snapshot.

    ``aborted``: of each segment that was not sealed and had entries below the offset in its ``.txnindex``, by base offset:
    their count and their CRC-32C.
    """

    states: ProducerStates
    aborted: Mapping[int, tuple[int, int]]

    def aborted_in(self, base_offset: int) -> tuple[int, int]:
        """Count and CRC of the entries below the offset in the ``.txnindex`` of a segment that is not sealed."""
        return self.aborted.get(base_offset, (0, 0))


def snapshot_path(directory: str, offset: int) -> str:
    return segment_path(directory, offset, SUFFIX)


def offsets(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among the files of a directory, increasing."""
    return sorted(int(name[:20]) for name in names if len(name) == 29 and name.endswith(SUFFIX) and name[:20].isdigit())


def encode(states: ProducerStates, aborted: Mapping[int, tuple[int, int]]) -> bytes:
    """The bytes of a snapshot; ``aborted`` as in ``Snapshot``."""
    producers = states.producers.values()
    entries = b"".join(_encode_entry(producer) for producer in producers)
    earlier = b"".join(_EARLIER.pack(producer.producer_id, *batch) for producer in producers for batch in producer.batches[:-1])
    indexes = b"".join(_ABORTED.pack(_NO_PRODUCER_ID, count, base, crc) for base, (count, crc) in sorted(aborted.items()) if count)
    body = len(producers).to_bytes(4, "big") + entries + earlier + indexes
    return _VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def _encode_entry(producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else Batch(-1, -1, 0)
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        *last,
        producer.timestamp_ms,
        producer.coordinator_epoch,
        producer.first_offset,
    )


def read(io: IO, path: str) -> bytes:
    """The bytes of a snapshot's file; a large one is checked before it takes memory.

    Raises:
        FileNotFoundError: There is none.
        CorruptionError: The CRC of a large one is wrong, or it is not a regular file.
        ReadFailed: see ``logdb.errors``.
    """
    with File(io, path, os.O_RDONLY) as file:
        size_bytes = file.size_bytes()
        if size_bytes > SEGMENT_SIZE_BYTES_MAX:
            raise CorruptionError(path, SEGMENT_SIZE_BYTES_MAX, f"{size_bytes} bytes: must be at most {SEGMENT_SIZE_BYTES_MAX}")
        if size_bytes > _UNCHECKED_SIZE_BYTES_MAX:
            crc = 0
            for piece in file.pieces(1 << 20, _CRC_FROM):
                crc = crc32c(piece, crc)
            _check_head(file.read(_HEAD.size, 0), crc, path)
        return file.content(SEGMENT_SIZE_BYTES_MAX)


def _check_head(head: bytes, computed: int, path: str) -> int:
    """Check the version and the CRC of a snapshot; returns how many entries it has."""
    version, stored, count = _HEAD.unpack_from(head)
    if version != _VERSION or stored != computed:
        raise CorruptionError(path, 0, f"version {version} (expected {_VERSION}), stored CRC {stored:08x}, computed {computed:08x}")
    return int(count)


def decode(data: bytes, path: str) -> Snapshot:
    """Parse a snapshot.

    Raises:
        CorruptionError: The bytes are not what ``encode`` or Kafka writes.
    """
    if len(data) < _HEAD.size:
        raise CorruptionError(path, len(data), f"{len(data)} bytes are no producer snapshot")
    count = _check_head(data, crc32c(data[_CRC_FROM:]), path)
    end = _HEAD.size + count * _ENTRY.size
    if count < 0 or end > len(data) or (len(data) - end) % _EARLIER.size:
        raise CorruptionError(path, _HEAD.size, f"{count} entries of {_ENTRY.size} bytes in {len(data) - _HEAD.size} bytes")
    earlier, aborted = _decode_earlier(data[end:])
    producers = [
        _decode_entry(numbers, earlier.pop(numbers[0], ()), path, slot)
        for slot, numbers in enumerate(_ENTRY.iter_unpack(data[_HEAD.size : end]))
    ]
    states = ProducerStates(producers)
    if len(states.producers) != count or earlier:
        raise CorruptionError(path, _HEAD.size, f"{count} entries for {len(states.producers)} producers, batches of {len(earlier)} others")
    return Snapshot(states, aborted)


def _decode_earlier(data: bytes) -> tuple[dict[int, tuple[Batch, ...]], dict[int, tuple[int, int]]]:
    """The part behind the entries: earlier batches of producers, and checksums of indexes by base offset."""
    earlier: dict[int, tuple[Batch, ...]] = {}
    aborted: dict[int, tuple[int, int]] = {}
    for at in range(0, len(data), _EARLIER.size):
        producer_id, *batch = _EARLIER.unpack_from(data, at)
        if producer_id == _NO_PRODUCER_ID:
            _, count, base_offset, crc = _ABORTED.unpack_from(data, at)
            aborted[base_offset] = count, crc
        else:
            earlier[producer_id] = (*earlier.get(producer_id, ()), Batch(*batch))
    return earlier, aborted


def _decode_entry(numbers: tuple[int, ...], earlier: tuple[Batch, ...], path: str, slot: int) -> Producer:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator_epoch, first_offset = numbers
    known = producer_id >= 0 and epoch >= 0 and last_offset >= -1 and coordinator_epoch >= -1 and first_offset >= -1
    last = Batch(last_sequence, last_offset, offset_delta)
    batches = (*earlier, last) if earlier or last_offset >= 0 else ()
    whole = known and (bool(batches) or last == Batch(-1, -1, 0)) and len(batches) <= BATCH_COUNT_MAX
    if not whole or not all(map(_is_whole, batches)) or any(a.last_offset >= b.first_offset for a, b in pairwise(batches)):
        raise CorruptionError(path, _HEAD.size + slot * _ENTRY.size, f"no entry of a producer: {numbers}, {earlier}")
    return Producer(producer_id, epoch, batches, timestamp_ms, coordinator_epoch, first_offset, timestamp_ms if first_offset >= 0 else -1)


def _is_whole(batch: Batch) -> bool:
    return -1 <= batch.last_sequence <= SEQUENCE_MASK and 0 <= batch.offset_delta <= min(batch.last_offset, SEQUENCE_MASK)


def load(io: IO, directory: str, offset: int) -> Snapshot:
    """Read the snapshot of an offset.

    Raises:
        FileNotFoundError: The snapshot is absent.
        CorruptionError: As ``decode``.
    """
    path = snapshot_path(directory, offset)
    return decode(read(io, path), path)


def remove_old(io: IO, directory: str, known: list[int], bases: Sequence[int] = ()) -> None:
    """Remove all snapshots but the newest two (the one that the catalogue names, and a spare one), and the newest in each segment.

    Args:
        known: The offsets of the snapshots, increasing; those of removed ones are deleted from the list.
        bases: Base offsets of the segments of a log that may be truncated, increasing: a truncation replays one segment.
    """
    newest = {bisect_right(bases, offset): offset for offset in known}
    kept = {*known[-_KEPT_COUNT:], *(offset for slot, offset in newest.items() if slot)}
    removed, known[:] = [offset for offset in known if offset not in kept], sorted(kept)
    for offset in removed:
        path = snapshot_path(directory, offset)
        try:
            io.unlink(path)
        except OSError as error:  # an old snapshot does no harm; the next opening tries again
            logger.warning("removing %s: %s", path, error)


def save(io: IO, directory: str, offset: int, states: ProducerStates, aborted: Mapping[int, tuple[int, int]]) -> None:
    """Write the snapshot of an offset, durably; ``aborted`` as in ``Snapshot``.

    Raises:
        DiskFull, WriteFailed, SyncFailed: As ``replace_file``.
    """
    replace_file(io, snapshot_path(directory, offset), encode(states, aborted))
