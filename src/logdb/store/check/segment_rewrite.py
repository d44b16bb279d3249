"""Rewriting a segment without its flaws: nothing good is lost, no offset is given twice.

Knows batches and one segment's file.  Does not know the catalogue, nor which flaws are to be mended.

What becomes of a flaw:

    only the header's first 17 bytes are damaged   they are put right; the CRC proves that the rest is as it was
    anything else                                  the bytes are copied to ``.damaged``; a batch without records takes
                                                   their place and their offsets, as compaction leaves one behind

The file is replaced as a whole: damaged bytes saved and synced -> new file written and synced -> renamed
over the old one (the commit point) -> directory synced.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from logdb.codec import Status, check, crc32c, place, seal
from logdb.disk import File, changing, exists, sync_directory
from logdb.io import IO
from logdb.log.epochs import LeaderEpochs
from logdb.model import OFFSET_MAX
from logdb.segment import buffers
from logdb.segment.segment import HEADER_SIZE
from logdb.store.check.segment_walk import Flaw, SegmentWalk

_HEADER = struct.Struct(">qiibIhiqqqhii")
_NO_TIMESTAMP = -1
_LENGTH_AT, _LENGTH_FROM, _MAGIC_AT = 8, 12, 16
_MENDED_SIZE_BYTES_MAX = 64 << 20  # a larger stretch is not one batch with a damaged header


class Edit(NamedTuple):
    """``size_bytes`` at ``position`` give way to ``replacement``, which leads to ``next_offset``.

    ``save``: they are kept in a ``.damaged`` file.
    """

    position: int
    size_bytes: int
    replacement: bytes
    next_offset: int
    save: bool
    what: str


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int) -> bytes:
    """A batch without records that takes the offsets [base_offset, next_offset), at most 2^31 of them."""
    batch = bytearray(
        _HEADER.pack(base_offset, 0, leader_epoch, 2, 0, 0, next_offset - 1 - base_offset, _NO_TIMESTAMP, _NO_TIMESTAMP, -1, -1, -1, 0)
    )
    seal(batch, 0, _NO_TIMESTAMP)
    return bytes(batch)


def filler(base_offset: int, next_offset: int, epochs: LeaderEpochs) -> bytes:
    """Batches without records that take the offsets [base_offset, next_offset), one for each leader epoch."""
    begins = [base_offset, *(start for _, start in epochs.entries if base_offset < start < next_offset)]
    return b"".join(empty_batch(begin, end, epochs.at(begin)) for begin, end in zip(begins, [*begins[1:], next_offset], strict=True))


def edits_of(io: IO, walk: SegmentWalk, end_offset: int | None, epochs: LeaderEpochs) -> list[Edit]:
    """What makes a walked segment whole.

    Args:
        end_offset: Where its offsets have to lead; None: wherever they do.
        epochs: The leader epochs of the log.
    """
    edits = []
    for flaw in walk.flaws:
        resume = flaw.resume_offset if flaw.resume_offset is not None else end_offset
        edits.append(_edit(io, walk.path, flaw, resume, epochs))
    cut_off = bool(walk.flaws) and walk.flaws[-1].resume_offset is None
    reached = edits[-1].next_offset if cut_off else walk.next_offset
    if end_offset is not None and reached < end_offset:
        what = f"the lost offsets [{reached}, {end_offset}) become an empty batch"
        edits.append(Edit(walk.size_bytes, 0, filler(reached, end_offset, epochs), end_offset, False, what))
    return edits


def _edit(io: IO, path: str, flaw: Flaw, resume: int | None, epochs: LeaderEpochs) -> Edit:
    mended = _mended(io, path, flaw, resume, epochs)
    if mended is not None:
        _, head, _ = check(mended)
        reached = flaw.expected_offset if head is None else head.last_offset + 1
        return Edit(flaw.position, flaw.size_bytes, mended, reached, False, f"header put right: {flaw.reason}")
    expected = flaw.expected_offset
    reached = expected if resume is None else max(resume, expected)
    empty = filler(expected, reached, epochs) if reached > expected else b""
    what = f"offsets [{expected}, {reached}) become an empty batch" if empty else "cut"
    if not flaw.size_bytes:
        return Edit(flaw.position, 0, empty, reached, False, f"{what}: {flaw.reason}")
    return Edit(flaw.position, flaw.size_bytes, empty, reached, True, f"{flaw.size_bytes} bytes set aside, {what}: {flaw.reason}")


def _mended(io: IO, path: str, flaw: Flaw, resume: int | None, epochs: LeaderEpochs) -> bytes | None:
    """The batch with the part of its header put right that the CRC does not cover, if the CRC then proves the rest."""
    if not HEADER_SIZE <= flaw.size_bytes <= _MENDED_SIZE_BYTES_MAX or flaw.status is Status.RECORD:
        return None
    batch = bytearray(_read(io, path, flaw.position, flaw.size_bytes))
    struct.pack_into(">i", batch, _LENGTH_AT, flaw.size_bytes - _LENGTH_FROM)
    batch[_MAGIC_AT] = 2
    place(batch, 0, flaw.expected_offset, epochs.at(flaw.expected_offset))
    status, head, _ = check(batch)
    if status is not Status.OK or head is None or (resume is not None and head.last_offset >= resume):
        return None
    return bytes(batch) if flaw.resume_offset is None or head.last_offset + 1 == resume else None


def rewrite(io: IO, source: str, target: str, edits: Sequence[Edit]) -> list[str]:
    """Make ``target`` of ``source`` (None of it, where that does not exist) and the edits, durably.

    Returns:
        The ``.damaged`` files that were written.
    """
    directory = os.path.dirname(target)
    saved = [_save(io, source, target, edit) for edit in edits if edit.save]
    if saved:
        sync_directory(io, directory)
    _write(io, target + ".tmp", _parts(io, source, edits))
    with changing(target):
        io.rename(target + ".tmp", target)
    sync_directory(io, directory)
    return saved


def _parts(io: IO, source: str, edits: Sequence[Edit]) -> Iterator[bytes | memoryview]:
    position = 0
    for edit in edits:
        yield from stretch(io, source, position, edit.position)
        yield edit.replacement
        position = edit.position + edit.size_bytes
    yield from stretch(io, source, position, OFFSET_MAX)


def _save(io: IO, source: str, target: str, edit: Edit) -> str:
    """Copy the bytes of an edit to a ``.damaged`` file; one that has them already, from an earlier try, will do."""
    stem, number = f"{target[: -len('.log')]}-{edit.position}", 0
    while True:
        path = f"{stem}{f'-{number}' if number else ''}.damaged"
        if not exists(io, path):
            break
        if _checksum(io, path, 0, OFFSET_MAX) == _checksum(io, source, edit.position, edit.position + edit.size_bytes):
            return path
        number += 1
    _write(io, path, stretch(io, source, edit.position, edit.position + edit.size_bytes))
    return path


def _write(io: IO, path: str, parts: Iterable[bytes | memoryview]) -> None:
    """Make a file of ``parts``, synced; its directory entry is the caller's to sync."""
    written = 0
    with File(io, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
        for part in parts:
            file.write(part, written)
            written += len(part)
        file.sync()


def _checksum(io: IO, path: str, position: int, end: int) -> tuple[int, int]:
    size_bytes = crc = 0
    for part in stretch(io, path, position, end):
        size_bytes, crc = size_bytes + len(part), crc32c(part, crc)
    return size_bytes, crc


def stretch(io: IO, path: str, position: int, end: int) -> Iterator[memoryview]:
    """The bytes [position, end) of a file, or up to where it ends, in parts; nothing where it does not exist."""
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
