"""Checked batches out of the segments of one log, chunk by chunk.

Knows positions, offsets and epochs.  Does not know records: what it yields has a
good CRC, the base offset and the epoch that its neighbours demand, and is
decompressed for those who look inside.

A chunk lies in a buffer that is reused: it is the caller's until it asks for the next.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from logdb.codec import Positions, Scanner, Status, convert, explain, header, split
from logdb.errors import CorruptionError
from logdb.segment import buffers
from logdb.segment.files import File
from logdb.segment.segment import FROM_THE_BEGIN, HEADER_SIZE, Place, Segment, fill

_SECOND_READ_SIZE_BYTES = 128 << 10
DECOMPRESSED_SIZE_BYTES_MAX = 64 << 20  # of one batch; more where max.message.bytes is


class SegmentReader:
    """Reads one segment from the batch that holds ``offset`` on, up to ``end_offset``.

    ``position`` and ``next_offset`` move on with each chunk.
    """

    def __init__(
        self, segment: Segment, offset: int, end_offset: int, epochs: Sequence[tuple[int, int]] | None, place: Place | None = None
    ) -> None:
        self._segment, self._offset, self._end_offset, self._epochs = segment, offset, end_offset, epochs
        self._stop = segment.size_bytes  # what is written later is for a later reader
        self._open()
        self._place = place or segment.locate(offset)
        self._scanner: Scanner | None = None
        self.position = self._place.position
        self.next_offset = offset
        self.codecs = 0

    @classmethod
    def resume(
        cls, segment: Segment, offset: int, position: int, end_offset: int, epochs: Sequence[tuple[int, int]] | None
    ) -> "SegmentReader":
        """Go on where another reader stopped: the batch that begins with ``offset`` is at ``position``."""
        reader = cls(segment, offset, end_offset, epochs, Place(position, buffers.READ_SIZE_BYTES, None))
        reader._scan_from(offset, position)
        return reader

    def read(self, size_bytes: int) -> memoryview | None:
        """The next whole batches, about ``size_bytes`` of them but at least one; None at the end.

        Raises:
            CorruptionError: The next batch is damaged; all before it were returned.
        """
        while self.position < self._stop and (self._scanner is None or self._scanner.next_offset < self._end_offset):
            wanted = size_bytes if self._scanner is not None else max(size_bytes, self._place.size_bytes)
            wanted = min(wanted, self._stop - self.position)
            view = memoryview(buffers.take(wanted))[:wanted]
            view = view[: fill(self._segment.io, self._open(), view, self.position)]
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
                self.next_offset, self.codecs = scanner.next_offset, scanner.codecs
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
            raise CorruptionError(self._segment.path, 0, "the file is missing") from None

    def _begin(self, view: memoryview) -> tuple[int, int] | None:
        """Start a scan at the batch that holds the offset; returns how many bytes of ``view`` lie before it, and its size.

        None means that the index was wrong, and that reading starts over without it.
        """
        place, expected, skipped = self._place, self._segment.base_offset, 0
        status, head = header(view)
        if place.last_offset is not None:
            if head is None or head.last_offset != place.last_offset:
                self._place, self.position = FROM_THE_BEGIN, 0
                return None
            expected = head.base_offset
        while (
            head is not None
            and status is Status.OK
            and head.last_offset < self._offset
            and head.base_offset == expected
            and skipped + head.size_bytes < len(view)
        ):
            skipped += head.size_bytes
            expected = head.last_offset + 1
            status, head = header(view[skipped:])
        self._scan_from(expected, self.position + skipped)
        return skipped, HEADER_SIZE if head is None else head.size_bytes

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
        """The size of a batch that did not fit; raises where that is not what is wrong."""
        assert self._scanner is not None
        _, head = header(view)
        whole = HEADER_SIZE if head is None else head.size_bytes
        if status is Status.SHORT and complete and self.position + whole <= self._stop:
            return whole
        reason = explain(status, self._scanner)
        if status is Status.SHORT:
            reason = f"the batch needs {whole} bytes, the segment ends after {min(len(view), self._stop - self.position)}"
        raise CorruptionError(self._segment.path, self.position, f"{reason} (expected offset {self._scanner.next_offset})")


def segment_slot(segments: Sequence[Segment], offset: int) -> int:
    """Which of the segments holds ``offset``; the first for one before all."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def read_chunks(
    segments: Sequence[Segment],
    offset: int,
    end_offset: int,
    epochs: Sequence[tuple[int, int]] | None,
    *,
    positions: Positions | None = None,
    decompressed_size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX,
) -> Iterator[memoryview | bytearray]:
    """Checked, uncompressed batches from the one that holds ``offset`` to ``end_offset``.

    With ``positions``, the first read takes little more than the first batch and leaves its
    records' positions there, for point reads; later ones are large.
    """
    if offset >= end_offset:
        return
    size_bytes = 0 if positions is not None else buffers.READ_SIZE_BYTES
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
                _remember(positions, segment, reader.position - len(batches), batches)
            if reader.codecs & ~1:
                for batch in split(batches, 1):  # one at a time: the bound is a batch's
                    yield convert.decompress_batches(batch, decompressed_size_bytes_max)
                    del batch
            else:
                yield batches
            del batches  # its buffer may be taken again
            size_bytes = _SECOND_READ_SIZE_BYTES if first else buffers.READ_SIZE_BYTES


def _remember(positions: Positions, segment: Segment, position: int, chunk: memoryview) -> None:
    """Leave where the records of the first batch of ``chunk`` lie."""
    _, head = header(chunk)
    if head is not None:
        positions.add(segment, position, chunk[: head.size_bytes])
