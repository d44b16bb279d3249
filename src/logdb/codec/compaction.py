"""Log compaction over buffers of batches: which record of a key is the latest, and a copy without the others.

The core has the rules (``_native/compact.h``); the caller gives a ``BatchRetention`` for each batch, by the state of its transaction.

Threading: a KeyMap or a Copy is used by one thread at a time; the GIL is released while the core works.
"""

import mmap
import os
from collections.abc import Iterator, Sequence
from enum import IntFlag
from typing import Any

from logdb._native import ffi, lib
from logdb.codec import convert
from logdb.codec.batch import CODEC_MASK, HEADER_SIZE_BYTES, Status, attributes_at, explain, header, size_at, split
from logdb.errors import InvalidBatch
from logdb.model import OFFSET_MAX, Buffer

_SLOT_SIZE_BYTES = 8
_SIZE_BYTES_A_SLOT = 32  # of a map: at three quarters full, with keys of 16 bytes, both of its parts are full


class BatchRetention(IntFlag):
    """The treatment of a batch; the numbers are compact.h's."""

    PLAIN = 0
    DISCARD = 1
    """Its records go."""
    RETAIN = 2
    """The batch stays, if necessary without records."""
    EXPIRES = 4
    """A marker of a transaction without remaining data: it gets a delete horizon."""


class KeyMap:
    """The latest offset of each key from an offset on, in a fixed amount of memory.

    Keys are compared byte by byte, so hash collisions do no harm.
    """

    def __init__(self, size_bytes: int, *, first_offset: int = 0, offset_count: int = OFFSET_MAX, hash_mask: int = 2**64 - 1) -> None:
        """Allocate the memory; the system gives pages only when they are touched.

        size_bytes: In [128, 2^35].  A key takes about 27 bytes plus its own bytes, rounded up to 8.
            size_bytes: In [128, 2^35].  A key takes about 27 bytes and its own, rounded up to 8.
            first_offset: Below it, earlier passes left only the latest record per key.
            offset_count: An upper bound of the number of offsets from there on.
            hash_mask: The bits of a hash to use; for tests of collisions.
        """
        bits_size_bytes = min(offset_count // 64 + 1, size_bytes // 64) * 8
        room_bytes = size_bytes - bits_size_bytes
        slot_count = max(2, min(room_bytes // _SIZE_BYTES_A_SLOT, offset_count * 4 // 3 + 3))
        self._memory = mmap.mmap(-1, size_bytes)
        self._view = ffi.from_buffer(self._memory, require_writable=True)
        first = ffi.cast("uint8_t *", self._view)
        slots = first + bits_size_bytes
        self._map = ffi.new(
            "logdb_key_map *",
            {
                "hash_key": [int.from_bytes(os.urandom(8), "big"), int.from_bytes(os.urandom(8), "big")],
                "hash_mask": hash_mask,
                "slots": ffi.cast("uint64_t *", slots),
                "slot_count": slot_count,
                "keys": slots + _SLOT_SIZE_BYTES * slot_count,
                "keys_room": room_bytes - _SLOT_SIZE_BYTES * slot_count,
                "superseded": first,
                "first_offset": first_offset,
                "bit_count": 8 * bits_size_bytes,
            },
        )

    def __len__(self) -> int:
        return int(self._map.key_count)

    def find(self, key: bytes) -> int | None:
        """The latest offset of a key; None if the map lacks the key."""
        found = int(lib.logdb_keys_find(self._map, key, len(key)))
        return None if found < 0 else found

    def add(self, batches: memoryview, retentions: Sequence[int] | None = None, *, decompressed_size_bytes_max: int) -> tuple[int, bool]:
        """Add the records at or past ``first_offset`` of checked batches of any codec.

        Args:
            retentions: One per batch; None: all are plain.
            decompressed_size_bytes_max: Limit of the decompressed records of one batch.

        Returns:
            Bytes of batches that are in the map as a whole, and whether the map is full: then the next batch is missing, or in it in
            part, which does no harm.

        Raises:
            InvalidBatch: A batch or its records contradict themselves.
            CodecMissing: The package of a batch's codec is not installed.
        """
        if not _has_codecs(batches):
            status, used = self._add(batches, bytes(retentions) if retentions is not None else ffi.NULL)
            return used, _is_full(status, batches, used)
        used = 0
        for slot, batch in enumerate(split(batches, 1)):
            retention = retentions[slot] if retentions is not None else 0
            image = batch if retention & BatchRetention.DISCARD else convert.decompress_batches(batch, decompressed_size_bytes_max)
            status, _ = self._add(image, bytes((retention,)))
            if _is_full(status, batch, 0):
                return used, True
            used += len(batch)
        return used, False

    def _add(self, batches: Buffer, retentions: Any) -> tuple[Status, int]:
        used = ffi.new("int64_t *")
        data = ffi.from_buffer(batches)
        status = Status(lib.logdb_keys_add(data, len(data), retentions, self._map, used))
        return status, used[0]


class Copy:
    """Copies batches without the records that a key map supersedes; empty batches take the offsets of removed ones.

    ``next_offset``: after the batches returned so far; ``horizon_min_ms``: their earliest delete horizon; ``record_count``: their
    records; ``changed``: whether one of them differs from its source.  Batches that were removed show only in the size.
    """

    def __init__(
        self,
        key_map: KeyMap,
        *,
        base_offset: int,
        end_offset: int,
        now_ms: int,
        horizon_ms: int,
        room_bytes: int = 1 << 20,
    ) -> None:
        """Begin at a batch boundary.

        Args:
            base_offset: Of the first batch.
            end_offset: Batches from here on are copied unchanged.
            horizon_ms: The delete horizon of tombstones that have none yet.
            room_bytes: Initial size of the output buffer.
        """
        self._key_map, self._end_offset = key_map, end_offset
        self._out = bytearray(room_bytes)
        self._state = ffi.new(
            "logdb_copy *",
            {
                "end_offset": end_offset,
                "now_ms": now_ms,
                "horizon_ms": min(horizon_ms, OFFSET_MAX),
                "next_offset": base_offset,
                "gap_end": base_offset,
                "horizon_min_ms": OFFSET_MAX,
            },
        )
        self.record_count = 0
        self.changed = False

    @property
    def next_offset(self) -> int:
        """The offset after the batches returned so far."""
        return int(self._state.next_offset)

    @property
    def horizon_min_ms(self) -> int | None:
        """The earliest delete horizon of the batches returned so far; None without one."""
        found = int(self._state.horizon_min_ms)
        return None if found == OFFSET_MAX else found

    def feed(
        self, batches: memoryview, retentions: Sequence[int] | None = None, *, decompressed_size_bytes_max: int
    ) -> Iterator[tuple[memoryview, int]]:
        """Copy checked batches of any codec, contiguous with those before; compressed ones are compressed again.

        Args:
            retentions, decompressed_size_bytes_max: As for ``KeyMap.add``.

        Yields:
            Batches, in memory that the next step reuses, and the offset after them.

        Raises:
            InvalidBatch, CodecMissing: As ``KeyMap.add``.
        """
        if not _has_codecs(batches):
            yield from self._feed(batches, bytes(retentions) if retentions is not None else b"")
            return
        for slot, batch in enumerate(split(batches, 1)):
            retention = retentions[slot] if retentions is not None else 0
            codec = attributes_at(batch, 0) & CODEC_MASK
            if not codec or retention & BatchRetention.DISCARD or int.from_bytes(batch[:8], "big") >= self._end_offset:
                yield from self._feed(batch, bytes((retention,)))
                continue
            image = memoryview(convert.decompress_batches(batch, decompressed_size_bytes_max))
            for copied, next_offset in self._feed(image, bytes((retention,))):
                filler = copied[: len(copied) - self._state.last_size_bytes]
                rest = copied[len(filler) :]
                again = convert.compress_batches(rest, codec) if self._state.changed_count else batch if rest else b""
                yield memoryview(b"".join((filler, again))), next_offset

    def finish(self) -> bytes:
        """The empty batch that takes the last offsets, if the last batches were removed."""
        out = bytearray(HEADER_SIZE_BYTES)
        return bytes(out[: lib.logdb_copy_finish(self._state, ffi.from_buffer(out, require_writable=True))])

    def _feed(self, batches: memoryview, retentions: bytes) -> Iterator[tuple[memoryview, int]]:
        state, used = self._state, 0
        data = ffi.from_buffer(batches)
        first, size = ffi.cast("uint8_t *", data), len(data)
        while used < size:
            out = ffi.from_buffer(self._out, require_writable=True)
            status = Status(
                lib.logdb_copy_batches(first + used, size - used, retentions or ffi.NULL, self._key_map._map, state, out, len(out))
            )
            del out
            used += state.used
            retentions = retentions[state.batch_count :]
            self.record_count += state.record_count
            self.changed = self.changed or state.changed_count > 0
            if state.size_bytes:
                yield memoryview(self._out)[: state.size_bytes], state.next_offset
            if status is Status.ROOM:
                if not state.used:
                    self._out = bytearray(state.room_wanted)
            elif status:
                raise InvalidBatch(used, explain(status, header(batches[used:])[1]))


def _has_codecs(batches: memoryview) -> bool:
    """Whether one of some checked batches is compressed."""
    at = 0
    while at < len(batches):
        if attributes_at(batches, at) & CODEC_MASK:
            return True
        at += size_at(batches, at)
    return False


def _is_full(status: Status, batches: memoryview, position: int) -> bool:
    if status not in (Status.OK, Status.ROOM):
        raise InvalidBatch(position, explain(status, header(batches[position:])[1]))
    return status is Status.ROOM
