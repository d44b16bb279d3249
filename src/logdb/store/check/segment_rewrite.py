"""Rewriting a segment without its flaws: no good record is lost, no offset is given twice.

What becomes of a flaw:

    damage only in the header's first 17 bytes     the header is corrected: length, magic, base offset and leader epoch are
                                                   known, and the CRC proves the rest
    any other damage                               the bytes are copied to ``.damaged``; a batch without records takes
                                                   their place and their offsets, as after compaction

The file is replaced as a whole: damaged bytes saved and synced -> new file written and synced -> renamed
over the old one (the commit point) -> directory synced.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logdb.codec import Status, check, crc32c, place
from logdb.codec.batch import HEADER_SIZE_BYTES, build_batch, set_length_and_magic
from logdb.disk import File, changing, exists, sync_directory
from logdb.io import IO
from logdb.log.epochs import LeaderEpochs
from logdb.model import OFFSET_MAX
from logdb.segment import buffers
from logdb.store.check.segment_walk import Flaw, SegmentWalk

_NO_TIMESTAMP = -1
_HEADER_REPAIR_SIZE_BYTES_MAX = 64 << 20  # more bytes than that are not one batch with a damaged header


class Patch(NamedTuple):
    """``replacement`` takes the place of ``size_bytes`` bytes at ``position``; the offset after it is ``next_offset``.

    ``save``: the old bytes are kept in a ``.damaged`` file.
    """

    position: int
    size_bytes: int
    replacement: bytes
    next_offset: int
    save: bool
    what: str


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int) -> bytes:
    """A batch without records that takes the offsets [base_offset, next_offset), at most 2^31 of them."""
    return build_batch(
        b"",
        base_offset=base_offset,
        last_offset=next_offset - 1,
        leader_epoch=leader_epoch,
        attributes=0,
        timestamp=_NO_TIMESTAMP,
        record_count=0,
    )


def empty_batches(base_offset: int, next_offset: int, epochs: LeaderEpochs) -> bytes:
    """Batches without records that take the offsets [base_offset, next_offset), one for each leader epoch."""
    begins = [base_offset, *(start for _, start in epochs.entries if base_offset < start < next_offset)]
    return b"".join(empty_batch(begin, end, epochs.at(begin)) for begin, end in zip(begins, [*begins[1:], next_offset], strict=True))


def plan_patches(io: IO, walk: SegmentWalk, end_offset: int | None, epochs: LeaderEpochs) -> list[Patch]:
    """The patches that make a walked segment whole.

    Args:
        end_offset: The offset after its last one; None: where its batches end.
        epochs: The leader epochs of the log.
    """
    patches = []
    for flaw in walk.flaws:
        resume = flaw.resume_offset if flaw.resume_offset is not None else end_offset
        patches.append(_patch(io, walk.path, flaw, resume, epochs))
    cut_off = bool(walk.flaws) and walk.flaws[-1].resume_offset is None
    reached = patches[-1].next_offset if cut_off else walk.next_offset
    if end_offset is not None and reached < end_offset:
        what = f"the lost offsets [{reached}, {end_offset}) become an empty batch"
        patches.append(Patch(walk.size_bytes, 0, empty_batches(reached, end_offset, epochs), end_offset, False, what))
    return patches


def _patch(io: IO, path: str, flaw: Flaw, resume: int | None, epochs: LeaderEpochs) -> Patch:
    repaired = _with_header_repaired(io, path, flaw, resume, epochs)
    if repaired is not None:
        _, head, _ = check(repaired)
        reached = flaw.expected_offset if head is None else head.last_offset + 1
        return Patch(flaw.position, flaw.size_bytes, repaired, reached, False, f"header corrected: {flaw.reason}")
    expected = flaw.expected_offset
    reached = expected if resume is None else max(resume, expected)
    empty = empty_batches(expected, reached, epochs) if reached > expected else b""
    what = f"offsets [{expected}, {reached}) become an empty batch" if empty else "cut"
    if not flaw.size_bytes:
        return Patch(flaw.position, 0, empty, reached, False, f"{what}: {flaw.reason}")
    return Patch(flaw.position, flaw.size_bytes, empty, reached, True, f"{flaw.size_bytes} bytes set aside, {what}: {flaw.reason}")


def _with_header_repaired(io: IO, path: str, flaw: Flaw, resume: int | None, epochs: LeaderEpochs) -> bytes | None:
    """The batch of a flaw, the part of its header that the CRC does not cover corrected; None where the CRC then still does not match."""
    if not HEADER_SIZE_BYTES <= flaw.size_bytes <= _HEADER_REPAIR_SIZE_BYTES_MAX or flaw.status is Status.RECORD:
        return None
    batch = bytearray(_read(io, path, flaw.position, flaw.size_bytes))
    set_length_and_magic(batch)
    place(batch, 0, flaw.expected_offset, epochs.at(flaw.expected_offset))
    status, head, _ = check(batch)
    if status is not Status.OK or head is None or (resume is not None and head.last_offset >= resume):
        return None
    return bytes(batch) if flaw.resume_offset is None or head.last_offset + 1 == resume else None


def rewrite(io: IO, source: str, target: str, patches: Sequence[Patch]) -> list[str]:
    """Write ``source`` with its patches to ``target``, durably; a missing ``source`` is empty.

    Returns:
        The ``.damaged`` files that were written.
    """
    directory = os.path.dirname(target)
    saved = [_save(io, source, target, patch) for patch in patches if patch.save]
    if saved:
        sync_directory(io, directory)
    _write(io, target + ".tmp", _parts(io, source, patches))
    with changing(target):
        io.rename(target + ".tmp", target)
    sync_directory(io, directory)
    return saved


def _parts(io: IO, source: str, patches: Sequence[Patch]) -> Iterator[bytes | memoryview]:
    position = 0
    for patch in patches:
        yield from read_range(io, source, position, patch.position)
        yield patch.replacement
        position = patch.position + patch.size_bytes
    yield from read_range(io, source, position, OFFSET_MAX)


def _save(io: IO, source: str, target: str, patch: Patch) -> str:
    """Copy the old bytes of a patch to a ``.damaged`` file, unless an earlier repair did."""
    stem, number = f"{target[: -len('.log')]}-{patch.position}", 0
    while True:
        path = f"{stem}{f'-{number}' if number else ''}.damaged"
        if not exists(io, path):
            break
        if _checksum(io, path, 0, OFFSET_MAX) == _checksum(io, source, patch.position, patch.position + patch.size_bytes):
            return path
        number += 1
    _write(io, path, read_range(io, source, patch.position, patch.position + patch.size_bytes))
    return path


def _write(io: IO, path: str, parts: Iterable[bytes | memoryview]) -> None:
    """Write ``parts`` to a new file and sync it; the caller syncs the directory."""
    written = 0
    with File(io, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
        for part in parts:
            file.write(part, written)
            written += len(part)
        file.sync()


def _checksum(io: IO, path: str, position: int, end: int) -> tuple[int, int]:
    size_bytes = crc = 0
    for part in read_range(io, path, position, end):
        size_bytes, crc = size_bytes + len(part), crc32c(part, crc)
    return size_bytes, crc


def read_range(io: IO, path: str, position: int, end: int) -> Iterator[memoryview]:
    """The bytes [position, end) of a file, or up to its end, in parts; no part where the file does not exist."""
    try:
        file = File(io, path, os.O_RDONLY)
    except FileNotFoundError:
        return
    with file:
        buffer = memoryview(buffers.take(buffers.READ_SIZE_BYTES))
        while position < end and (read := file.fill(buffer[: min(len(buffer), end - position)], position)) > 0:
            yield buffer[:read]
            position += read


def _read(io: IO, path: str, position: int, size_bytes: int) -> bytes:
    with File(io, path, os.O_RDONLY) as file:
        return file.read(size_bytes, position)
