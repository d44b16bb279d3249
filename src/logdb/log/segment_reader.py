"""Reads checked batches from the segments of one log, chunk by chunk.

Each batch has a good CRC, and the base offset and epoch that its neighbours demand.  Chunks for readers of records are decompressed.

A chunk lies in a buffer that is reused: the caller may use it until it asks for the next.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter

from logdb.codec import Positions, Scanner, Status, convert, expected_batch, explain, header, span, split
from logdb.codec.batch import BATCH_SIZE_BYTES_MAX, HEADER_SIZE_BYTES
from logdb.disk import File
from logdb.errors import CorruptionError
from logdb.segment import buffers
from logdb.segment.segment import READ_FROM_BEGIN, ReadStart, Segment

_SECOND_READ_SIZE_BYTES = 128 << 10
_NEW_BYTES_SIZE_MAX = 64 << 10  # a read up to this size is cheaper into new bytes than into a pooled buffer
_base_offset, _start_offset = attrgetter("base_offset"), itemgetter(1)  # of a segment, of an entry of the epochs


class FileMissing(CorruptionError):
    """A segment's file is missing: lost, or removed or replaced beside the reader, which may then go on at ``offset``."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(path, 0, "the file is missing")
        self.offset = offset


class SegmentReader:
    """Reads one segment from the batch that holds ``offset`` on, up to ``end_offset``.

    ``position`` and ``next_offset`` move on with each chunk; ``codecs`` and ``produced_count`` are the last one's.
    """

    def __init__(
        self, segment: Segment, offset: int, end_offset: int, epochs: Sequence[tuple[int, int]] | None, place: ReadStart | None = None
    ) -> None:
        self._segment, self._offset, self._end_offset, self._epochs = segment, offset, end_offset, epochs
        self._stop = segment.size_bytes  # a later reader reads later writes
        self.next_offset = offset
        try:
            self._place = place or segment.locate(offset)
        except FileNotFoundError:
            raise FileMissing(segment.path, offset) from None
        self._scanner: Scanner | None = None
        self.position = self._place.position
        self.codecs = self.produced_count = 0

    @classmethod
    def resume(
        cls, segment: Segment, offset: int, position: int, end_offset: int, epochs: Sequence[tuple[int, int]] | None
    ) -> "SegmentReader":
        """Continue after another reader: the batch that begins with ``offset`` is at ``position``."""
        reader = cls(segment, offset, end_offset, epochs, ReadStart(position, buffers.READ_SIZE_BYTES, None))
        reader._scan_from(offset, position)
        return reader

    def read(self, size_bytes: int) -> memoryview | None:
        """The next whole batches, about ``size_bytes``, but at least one; None at the end.

        Raises:
            CorruptionError: The next batch is damaged; all before it were returned.
        """
        while self.position < self._stop and (self._scanner is None or self._scanner.next_offset < self._end_offset):
            wanted = size_bytes if self._scanner is not None else max(size_bytes, self._place.size_bytes)
            wanted = min(wanted, self._stop - self.position)
            view = self._view(wanted)
            complete = len(view) == wanted
            if self._scanner is None:
                begun = self._begin(view)
                if begun is None:
                    continue
                skipped, first_size_bytes = begun
                self.position += skipped
                view, size_bytes = view[skipped:], max(size_bytes, first_size_bytes)
            scanner = self._scanner
            assert scanner is not None
            status = scanner.scan(view, min(size_bytes, len(view)))
            if used := scanner.used:
                self.position += used
                self.next_offset, self.codecs, self.produced_count = scanner.next_offset, scanner.codecs, scanner.produced_count
                return view[:used]
            if status is Status.OK:
                break
            size_bytes = self._enlarge(status, view, complete)
        if self.next_offset < min(self._end_offset, self._segment.next_offset):
            reason = f"the batches end at offset {self.next_offset}, expected {self._segment.next_offset}"
            raise CorruptionError(self._segment.path, self.position, reason)
        return None

    def _open(self) -> File:
        try:
            return self._segment.open()
        except FileNotFoundError:
            raise FileMissing(self._segment.path, self.next_offset) from None

    def _view(self, size_bytes: int) -> memoryview:
        """The bytes at ``position``; fewer only at the end of the file."""
        if size_bytes <= _NEW_BYTES_SIZE_MAX:
            return memoryview(self._open().read(size_bytes, self.position))
        view = memoryview(buffers.take(size_bytes))[:size_bytes]
        return view[: self._open().fill(view, self.position)]

    def _begin(self, view: memoryview) -> tuple[int, int] | None:
        """Start a scan at the batch that holds the offset; returns how many bytes of ``view`` lie before it, and its size.

        None: the index was wrong; the read starts over without it.
        """
        place, expected, skipped, head = self._place, self._segment.base_offset, 0, span(view)
        if place.last_offset is not None:
            if head is None or head.last_offset != place.last_offset:
                self._place, self.position = READ_FROM_BEGIN, 0
                return None
            expected = head.base_offset
        while (
            head is not None
            and head.last_offset < self._offset
            and head.base_offset == expected
            and HEADER_SIZE_BYTES <= head.size_bytes < len(view) - skipped
        ):
            skipped += head.size_bytes
            expected = head.last_offset + 1
            head = span(view, skipped)
        self._scan_from(expected, self.position + skipped)
        return skipped, HEADER_SIZE_BYTES if head is None else max(HEADER_SIZE_BYTES, head.size_bytes)

    def _scan_from(self, next_offset: int, position: int) -> None:
        self._scanner = Scanner(
            segment_base_offset=self._segment.base_offset,
            next_offset=next_offset,
            position=position,
            end_offset=self._end_offset,
            epochs=self._epochs,
            with_index=False,
        )

    def _enlarge(self, status: Status, view: memoryview, complete: bool) -> int:
        """The size of a batch that did not fit; raises if the batch is damaged instead."""
        assert self._scanner is not None
        _, head = header(view)
        whole = HEADER_SIZE_BYTES if head is None else head.size_bytes
        if status is Status.SHORT and complete and self.position + whole <= self._stop:
            return whole
        reason = explain(status, self._scanner)
        if status is Status.SHORT:
            reason = f"the batch needs {whole} bytes, the segment ends after {min(len(view), self._stop - self.position)}"
        raise CorruptionError(self._segment.path, self.position, f"{reason} (expected offset {self._scanner.next_offset})")


def segment_slot(segments: Sequence[Segment], offset: int) -> int:
    """The slot of the segment that holds ``offset``; 0 for an offset before all segments."""
    return max(0, bisect_right(segments, offset, key=_base_offset) - 1)


def read_batch(
    segments: Sequence[Segment], offset: int, epochs: Sequence[tuple[int, int]] | None, positions: Positions
) -> tuple[memoryview, int] | None:
    """The one batch that holds ``offset``, checked, and the offset after it, if the index leads to it directly.

    Leaves its records' positions for point reads.  Its base offset, which no CRC covers, has to be the one that the
    last offset in the index demands: the delta between them is in the CRC.  None if anything is unusual or
    wrong: ``read_chunks`` then reads the batch, or raises the error.
    """
    leader_epoch = -1
    if epochs is not None:
        slot = bisect_right(epochs, offset, key=_start_offset)
        if slot == 0:
            return None
        leader_epoch = epochs[slot - 1][0]
    segment = segments[segment_slot(segments, offset)]
    try:
        place = segment.locate_batch(offset)
        if place is None or place[1] > _NEW_BYTES_SIZE_MAX:
            return None
        position, size_bytes, last_offset = place
        data = segment.open().read(size_bytes, position)
    except FileNotFoundError:
        return None
    size_bytes = expected_batch(data, offset, last_offset, leader_epoch)
    if not size_bytes:
        return None
    batch = memoryview(data)[:size_bytes]
    positions.add(segment, position, batch)
    return batch, last_offset + 1


def read_chunks(
    segments: Sequence[Segment],
    offset: int,
    end_offset: int,
    epochs: Sequence[tuple[int, int]] | None,
    *,
    positions: Positions | None = None,
    as_stored: bool = False,
) -> Iterator[memoryview | bytearray]:
    """Checked batches from the one that holds ``offset`` to ``end_offset``: uncompressed, or ``as_stored``.

    With ``positions``, the first read takes little more than the first batch and leaves its
    records' positions there, for point reads; later ones are large.
    """
    if offset >= end_offset:
        return
    size_bytes = 0 if positions is not None else _SECOND_READ_SIZE_BYTES
    for segment in segments[segment_slot(segments, offset) :]:
        if segment.base_offset >= end_offset:
            return
        reader = SegmentReader(segment, max(offset, segment.base_offset), end_offset, epochs)
        while True:
            first = not size_bytes
            batches = reader.read(size_bytes)
            if batches is None:
                break
            if first and positions is not None and not reader.codecs & ~1:
                positions.add(segment, reader.position - len(batches), batches)  # the first read has one batch
            if reader.codecs & ~1 and not as_stored:
                for batch in split(batches, 1):  # one at a time: the bound is that of a batch
                    yield convert.decompress_batches(batch, BATCH_SIZE_BYTES_MAX)
                    del batch
            else:
                yield batches
            del batches  # its buffer may be reused
            size_bytes = _SECOND_READ_SIZE_BYTES if first else buffers.READ_SIZE_BYTES
