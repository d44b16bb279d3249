"""A walk over a segment's file, batch by batch: finds damage, and continues behind it.

The walk trusts no byte, rebuilds the indexes, and changes no file: ``verify`` reports the flaws, ``repair`` corrects them.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logdb.codec import Header, Scanner, Status, check, control, convert, crc32c, explain, find_batch, header, records_check
from logdb.codec.batch import BATCH_SIZE_BYTES_MAX, CODEC_MASK, CONTROL, CRC_FROM, HEADER_SIZE_BYTES
from logdb.disk import File, names_in
from logdb.errors import CodecMissing, InvalidBatch
from logdb.io import IO
from logdb.log.epochs import LeaderEpochs
from logdb.model import OFFSET_MAX, Buffer
from logdb.segment import buffers
from logdb.segment.segment import INDEX_ENTRY_SIZE, TIME_INDEX_ENTRY_SIZE

_TRUSTED_SIZE_BYTES_MAX = 64 << 20  # a longer batch is read into memory only if its CRC proves its length
_SEARCH_SIZE_BYTES = 32 << 20
_SEARCH_STEP_SIZE_BYTES = 16 << 20  # behind damage, a longer batch may be missed


class Flaw(NamedTuple):
    """Damaged bytes, or missing batches.

    A batch with ``expected_offset`` should begin at ``position``, but ``size_bytes`` from there are damaged
    (0: batches are missing between two good ones).  ``resume_offset`` is the base offset of the next good
    batch (None: the file has no further one).
    """

    position: int
    size_bytes: int
    expected_offset: int
    resume_offset: int | None
    status: Status
    reason: str


class SegmentWalk:
    """One pass over a ``.log`` file; after ``run`` the attributes hold the result.

    next_offset, position   where its good batches end
    flaws                   the damage before that
    torn                    the flaw that ended the walk at or past ``strict_below``: a write that was not finished
    crc                     CRC of all bytes up to ``position``
    good_end                position behind the last good batch
    epoch_runs              the leader epochs of the batches, each with its first offset
    epoch_begins_inside     whether an epoch of the checkpoint begins inside a batch
    scanner                 the rebuilt indexes; valid only without flaws
    offsets, times          the check of the index files given; valid only without flaws
    """

    def __init__(
        self,
        io: IO,
        path: str,
        base_offset: int,
        *,
        epochs: LeaderEpochs | None = None,
        offset_limit: int = OFFSET_MAX,
        strict_below: int = OFFSET_MAX,
        reserve_allowed: bool = False,
        boundary: int = 0,
        index: bytes = b"",
        time_index: bytes = b"",
        index_interval_bytes: int = 4096,
        progress: Callable[[int], None] | None = None,
        visit: Callable[[Header, memoryview], None] | None = None,
    ) -> None:
        """Prepare a walk.

        Args:
            epochs: The checkpoint to check the batches' leader epochs against; None or empty: they are not checked.
            offset_limit: The offset after the segment's last one, if it is known.
            strict_below: Below this offset a batch that is not whole is damage; from it on, an unfinished write (``torn``).
            reserve_allowed: Preallocated zeroes may follow ``offset_limit``; ``size_bytes`` then does not count them.
            boundary: ``boundary_found`` becomes (offset, position) of the first end of a batch at or after this offset.
            index, time_index: The segment's index files.
            progress: Called with the number of bytes walked since the last call.
            visit: Called with each good batch of a producer, borrowed for the call.
        """
        self.path, self.base_offset = path, base_offset
        self.size_bytes = self.crc = self.position = 0
        self.next_offset = base_offset
        self.batch_count = self.record_count = self.produced_count = 0
        self.max_timestamp = -1
        self.flaws: list[Flaw] = []
        self.torn: Flaw | None = None
        self.codec_missing: str | None = None
        self.epoch_runs: list[tuple[int, int]] = []
        self.epoch_begins_inside = False
        self.boundary_found: tuple[int, int] | None = (base_offset, 0) if boundary <= base_offset else None
        self.scanner = Scanner(segment_base_offset=base_offset, gaps=True, check_crc=False, index_interval_bytes=index_interval_bytes)
        self.offsets = EntryCheck(index, INDEX_ENTRY_SIZE)
        self.times = EntryCheck(time_index, TIME_INDEX_ENTRY_SIZE)
        self.good_end = 0
        self._io, self._epochs = io, epochs.entries if epochs else ()
        self._limit, self._strict_below, self._boundary = offset_limit, strict_below, boundary
        self._reserve_allowed = reserve_allowed
        self._progress, self._visit = progress, visit

    def run(self) -> "SegmentWalk":
        """Walk the file.  Raises FileNotFoundError; ReadFailed where the system cannot read it."""
        with File(self._io, self.path, os.O_RDONLY) as self._file:
            self.size_bytes = self._file.size_bytes()
            wanted = 0
            while self.position < self.size_bytes and self.torn is None:
                before = self.position
                wanted = self._step(max(wanted, buffers.READ_SIZE_BYTES))
                if self._progress is not None:
                    self._progress(self.position - before)
        return self

    # ------------------------------------------------------------ batch by batch

    def _step(self, wanted: int) -> int:
        """Walk the batches of one read; returns how many bytes the next read needs at least."""
        view, at = self._read(self.position, wanted), 0
        if len(view) < min(wanted, self.size_bytes - self.position):  # a writer cut the file meanwhile
            self.size_bytes = self.position + len(view)
        while at < len(view):
            rest = view[at:]
            status, head, computed_crc = check(rest)
            if status is Status.SHORT and self.position + len(rest) < self.size_bytes:
                if head is None:
                    return 0
                if self.position + head.size_bytes <= self.size_bytes and self._length_holds(head):
                    return head.size_bytes
            if status is not Status.OK or head is None:
                self._skip(status, head, explain(status, head, computed_crc=computed_crc))
                return 0
            if not self._take(rest[: head.size_bytes], head):
                return 0
            at += head.size_bytes
        return 0

    def _take(self, image: memoryview, head: Header) -> bool:
        """Take a batch with a good CRC, if its offsets fit; any other contradiction becomes a flaw."""
        flawed = len(self.flaws)
        if head.base_offset != self.next_offset or head.last_offset >= self._limit:
            placed = self._placed(head)
            if placed is None:
                return False
            head = placed
        if wanted := self._wrong_epoch(head):
            self._flaw(Status.EPOCH, head, f"leader epoch {head.leader_epoch}, the checkpoint says {wanted}")
        elif reason := self._wrong_records(image, head):
            self._flaw(Status.RECORD, head, reason)
        if self.torn is not None:
            return False
        if len(self.flaws) == flawed or self.flaws[-1].status is not Status.RECORD:
            self._count(image, head)
        if not self.flaws:
            self._index(image, head)
        if not self.epoch_runs or self.epoch_runs[-1][0] != head.leader_epoch:
            self.epoch_runs.append((head.leader_epoch, head.base_offset))
        self.max_timestamp = max(self.max_timestamp, head.max_timestamp)
        self.crc = crc32c(image, self.crc)
        self._move_to(self.position + head.size_bytes, head.last_offset + 1)
        self.good_end = self.position
        return True

    def _count(self, image: memoryview, head: Header) -> None:
        self.batch_count += 1
        self.record_count += head.record_count
        if head.producer_id >= 0:
            self.produced_count += 1
            if self._visit is not None:
                self._visit(head, image)

    def _index(self, image: memoryview, head: Header) -> None:
        self.scanner.scan(image)
        last_offset = head.last_offset - self.base_offset
        self.offsets.see(last_offset, self.position)
        if head.max_timestamp > self.max_timestamp:
            self.times.see(head.max_timestamp, last_offset)

    def _placed(self, head: Header) -> Header | None:
        """The corrected header of a batch with an unexpected base offset; None where the batch is skipped."""
        expected, span = self.next_offset, head.last_offset - head.base_offset + 1
        reason = f"offsets {head.base_offset} to {head.last_offset}, expected {expected}"
        reason += f" to {self._limit - 1} at most" if self._limit < OFFSET_MAX else " on"
        if self._follows(self.position + head.size_bytes, expected + span):
            placed = head._replace(base_offset=expected, last_offset=expected + span - 1)
            self._flaw(Status.OFFSET, placed, reason)
            return placed
        if expected < head.base_offset and head.last_offset < self._limit:
            self._note(Flaw(self.position, 0, expected, head.base_offset, Status.OFFSET, f"{reason}: batches are missing"))
            self._move_to(self.position, head.base_offset)
            return head if self.torn is None else None
        self._skip(Status.OFFSET, None, reason)
        return None

    def _follows(self, position: int, offset: int) -> bool:
        """Whether the batch at ``position``, or the end of the file, confirms that the batch before it ends at ``offset``."""
        if position == self.size_bytes:
            return offset == self._limit
        following = self._header_at(position)
        return following is not None and following.base_offset == offset

    def _wrong_epoch(self, head: Header) -> str | None:
        """The epoch that the checkpoint expects of a batch; None if the batch has it."""
        entries = self._epochs
        if not entries:
            return None
        slot = bisect_right(entries, head.base_offset, key=lambda entry: entry[1])
        if slot < len(entries) and entries[slot][1] <= head.last_offset:
            self.epoch_begins_inside = True
            return f"{entries[slot][0]} from offset {entries[slot][1]} on, inside the batch"
        if slot == 0:
            return None if head.leader_epoch <= entries[0][0] else f"at most {entries[0][0]}"
        return None if head.leader_epoch == entries[slot - 1][0] else str(entries[slot - 1][0])

    def _wrong_records(self, image: memoryview, head: Header) -> str | None:
        """How the decompressed records contradict their header; None if they match."""
        body: Buffer = image[HEADER_SIZE_BYTES:]
        if head.attributes & CODEC_MASK and head.record_count:
            try:
                body = convert.decompress_batches(image, BATCH_SIZE_BYTES_MAX)[HEADER_SIZE_BYTES:]
            except InvalidBatch as error:
                return error.reason
            except CodecMissing as error:
                self.codec_missing = str(error)
                return None
        status = records_check(body, head)
        if status is Status.OK and head.attributes & CONTROL and head.record_count:
            try:
                control.parse(image)
            except InvalidBatch as error:
                return error.reason
        return None if status is Status.OK else explain(status, head)

    # ------------------------------------------------------------ over damage

    def _flaw(self, status: Status, head: Header, reason: str) -> None:
        """Note a batch that is whole, except for ``status``."""
        self._note(Flaw(self.position, head.size_bytes, head.base_offset, head.last_offset + 1, status, reason))

    def _note(self, flaw: Flaw) -> None:
        if flaw.expected_offset >= self._strict_below:
            self.torn = flaw
        else:
            self.flaws.append(flaw)

    def _skip(self, status: Status, head: Header | None, reason: str) -> None:
        """Skip to the next good batch, or to the end of the file."""
        position, expected = self.position, self.next_offset
        if self._reserve_allowed and expected == self._limit and not any(bytes(view).strip(b"\0") for view in self._read_range(position)):
            self.size_bytes = position
            return
        if status is Status.SHORT:
            size = f"of {head.size_bytes} bytes" if head else "header"
            reason = f"a batch {size}, of which the file has {self.size_bytes - position}"
        if expected >= self._strict_below:
            self.torn = Flaw(position, self.size_bytes - position, expected, None, status, reason)
            return
        after, resume_offset = self._resume(head)
        for view in self._read_range(position, after):
            self.crc = crc32c(view, self.crc)
        self.flaws.append(Flaw(position, after - position, expected, resume_offset, status, reason))
        self._move_to(after, expected if resume_offset is None else resume_offset)

    def _move_to(self, position: int, next_offset: int) -> None:
        self.position, self.next_offset = position, next_offset
        if self.boundary_found is None and next_offset >= self._boundary:
            self.boundary_found = next_offset, position

    def _resume(self, head: Header | None) -> tuple[int, int | None]:
        """Position and base offset of the next good batch behind a bad one with the header ``head``."""
        begin = self.position + 1
        if head is not None and head.base_offset == self.next_offset and head.size_bytes >= HEADER_SIZE_BYTES:
            after = self.position + head.size_bytes
            if after == self.size_bytes:
                return after, None
            following = self._header_at(after)
            if following is not None and following.base_offset == head.last_offset + 1:
                return after, following.base_offset  # the header is good: only the records are damaged
        while (found := self._find(begin)) is not None:
            position, first = found
            ends, next_offset = self._chain(position, first)
            behind = self._find(ends) if ends < self.size_bytes else None
            if behind is None or behind[1].base_offset >= next_offset:
                return position, first.base_offset
            begin = behind[0]  # the two contradict each other: the first one is part of a record
        return self.size_bytes, None

    def _find(self, position: int) -> tuple[int, Header] | None:
        """The first whole batch at or after ``position`` that has a good CRC and offsets in [next_offset, limit)."""
        while position < self.size_bytes:
            view = self._read(position, _SEARCH_SIZE_BYTES)
            at = find_batch(view, offset_min=self.next_offset, size_bytes_max=_SEARCH_STEP_SIZE_BYTES)
            if at < 0:
                if position + len(view) >= self.size_bytes:
                    return None
                position += _SEARCH_STEP_SIZE_BYTES
                continue
            _, found = header(view[at:])
            if found is not None and found.last_offset < self._limit:
                return position + at, found
            position += at + 1
        return None

    def _chain(self, position: int, head: Header) -> tuple[int, int]:
        """Position and offset behind the run of contiguous batches that begins with ``head``."""
        following: Header | None = head
        next_offset = head.base_offset
        while following is not None and following.base_offset == next_offset:
            position, next_offset = position + following.size_bytes, following.last_offset + 1
            following = self._header_at(position)
        return position, next_offset

    # ------------------------------------------------------------ reading

    def _header_at(self, position: int) -> Header | None:
        """The header at ``position``, if it is valid and its batch ends in the file."""
        status, found = header(self._file.read(HEADER_SIZE_BYTES, position))
        if found is None or status not in (Status.OK, Status.SHORT) or position + found.size_bytes > self.size_bytes:
            return None
        return found

    def _length_holds(self, head: Header) -> bool:
        """Whether a batch may be read into memory: it is short, or its CRC proves its length."""
        if head.size_bytes <= _TRUSTED_SIZE_BYTES_MAX:
            return True
        crc = 0
        for view in self._read_range(self.position + CRC_FROM, self.position + head.size_bytes):
            crc = crc32c(view, crc)
        return crc == head.crc

    def _read_range(self, position: int, end: int = OFFSET_MAX) -> Iterator[memoryview]:
        while position < end and (view := self._read(position, min(buffers.READ_SIZE_BYTES, end - position))):
            yield view
            position += len(view)

    def _read(self, position: int, size_bytes: int) -> memoryview:
        size_bytes = max(0, min(size_bytes, self.size_bytes - position))
        view = memoryview(buffers.take(size_bytes))[:size_bytes]
        return view[: self._file.fill(view, position)]


# ---------------------------------------------------------------- indexes


class EntryCheck:
    """Compares the entries of an index file with a walk over the log.

    An entry is a number and a place: its last four bytes, which increase along the log.  Each entry must
    be true of the log, at any index interval.  ``flaw`` is the position of the first false entry, -1
    without; ``at`` that of the first entry that the walk has not confirmed.
    """

    def __init__(self, data: bytes, entry_size_bytes: int) -> None:
        self.data, self.flaw, self.at = data, -1, 0
        self.size = entry_size_bytes
        self._entry = self._next()

    def see(self, number: int, place: int) -> None:
        """The log has ``number`` at ``place``; no batch begins between the place seen before and this one."""
        while self._entry is not None and self._entry[1] <= place and self.flaw < 0:
            if self._entry != (number, place):
                self.flaw = self.at
                return
            self.at += self.size
            self._entry = self._next()

    def is_false_below(self, place: int) -> bool:
        """Whether the log, walked up to ``place``, contradicts an entry below it."""
        rest = range(self.at, len(self.data) - self.size + 1, self.size)
        return any(int.from_bytes(self.data[at + self.size - 4 : at + self.size], "big") < place for at in rest)

    def entry_hex(self) -> str:
        """The entry at ``at``, for messages."""
        return self.data[self.at : self.at + self.size].hex(" ", 4)

    def _next(self) -> tuple[int, int] | None:
        entry = self.data[self.at : self.at + self.size]
        if len(entry) < self.size:
            return None
        return int.from_bytes(entry[:-4], "big", signed=len(entry) > 8), int.from_bytes(entry[-4:], "big")


# ---------------------------------------------------------------- directories


def listed(io: IO, directory: str) -> list[str]:
    """Names in a directory; none where the directory is missing."""
    try:
        return names_in(io, directory)
    except FileNotFoundError:
        return []


def log_base(name: str) -> int | None:
    """The base offset in the name of a ``.log`` file; None for another name."""
    return int(name[:20]) if len(name) == 24 and name.endswith(".log") and name[:20].isdigit() else None
