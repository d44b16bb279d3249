"""One partition's log, read beside the process that writes it.

Knows that the files may grow while it looks, and that past the recovery point the first
batch that is not whole and good is "not there yet".  Repairs nothing, holds no lock.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from errno import ENOENT
from typing import Any, Literal

from logdb.codec import Positions, Status
from logdb.disk import File, exists, names_in, path_id
from logdb.errors import CorruptionError, OffsetOutOfRange, UnknownTopic
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log.epochs import LeaderEpochs
from logdb.log.host import Captured, End, View
from logdb.log.log import Log
from logdb.log.recovery_point import Point, RecoveryPointFile
from logdb.log.replay import TailProducers
from logdb.log.sealed import sealed_segment
from logdb.log.segment_reader import FileMissing
from logdb.meta import SegmentEntry
from logdb.model import OFFSET_MAX, AbortedTransaction, Buffer, LogConfig, OpenTransaction
from logdb.segment.segment import Segment, segment_path
from logdb.threads import renew

_POLL_MS_MIN, _POLL_MS_MAX = 1, 50
_UNSETTLED = -1  # instead of a generation: files are getting their names, so each look has to ask


class TailLog(Log):
    """A log that another process may be appending to; takes no records itself.

    ``lookup``: what the catalogue says of the log by now; given the generation that is known, and None while there is no other.
    ``frozen``: it is that of a snapshot.  What is undecided in it stays so: its end is stable, its open transactions
    count as aborted.
    """

    def __init__(
        self,
        *,
        config: LogConfig,
        view: View,
        lookup: "Callable[[TailLog, int], View | None]",
        io: IO,
        directory: str,
        frozen: bool = False,
        **rest: Any,
    ) -> None:
        self._lookup, self._frozen = lookup, frozen
        entry, sealed, pending = view
        segments = [self._make(io, directory, named, config, pending) for named in sealed]
        point = RecoveryPointFile(io, directory, writable=False)
        catalogued = Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position)
        if catalogued.offset >= point.point.offset:
            point.point = catalogued
        super().__init__(
            io=io,
            directory=directory,
            config=config,
            segments=segments,
            epochs=LeaderEpochs(),
            point=point,
            start_offset=entry.start_offset,
            next_offset=segments[-1].next_offset if segments else entry.start_offset,
            strict=False,
            writable=False,
            **rest,
        )
        self._refresh_lock = threading.RLock()
        self._generation = _UNSETTLED if pending else entry.generation
        self._producers = TailProducers(io, directory, entry)
        self._directory_id = path_id(io, directory)
        self._load_epochs()
        self._catch_up()

    def forked(self) -> None:
        renew((self._refresh_lock,))
        super().forked()

    @property
    def start_offset(self) -> int:
        """The first offset that can be read, as the writer has moved it by now."""
        with self._refresh_lock:
            self._refresh()
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The next offset that the writer will give, as far as it has written."""
        self._catch_up()
        return self._next_offset

    def _readable_end(self, offset: int) -> int:
        if self._closed:
            raise self._host.refusal(self)
        if offset >= self._next_offset:
            self._catch_up()
        if not self._start_offset <= offset <= self._next_offset:
            raise OffsetOutOfRange(self.topic, self.partition, offset, self.start_offset, self._next_offset)
        return OFFSET_MAX  # looked up when the reading comes to it

    @property
    def last_stable_offset(self) -> int:
        """Where what the writer has written, and decided, ends."""
        self._catch_up()
        return max(self._stable_end(), self._start_offset)

    def open_transactions(self) -> list[OpenTransaction]:
        self._catch_up()
        self._advance()
        return [] if self._frozen else self._producers.states.open_transactions()

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        end = self._advance()
        found = super().aborted_transactions(offset, end_offset)
        if self._frozen:
            begun = [(left.producer_id, left.first_offset) for left in self._producers.states.open_transactions()]
            found += [AbortedTransaction(producer_id, first, end) for producer_id, first in begun if first < end_offset]
        return found

    def capture(self) -> Captured:
        with self._refresh_lock:
            self._catch_up()
            self._advance()
            end, states = self._end, self._producers.states
            known = states.copy() if states.producers or self._producers.began else None
            return Captured(end, self._epochs, known, b"" if end.segment is None else end.segment.transactions.below(end.offset))

    def _stable_end(self) -> int:
        with self._refresh_lock:
            end = self._advance()
            first = None if self._frozen else self._producers.states.first_unstable
            return end if first is None else min(first, end)

    def _advance(self) -> int:
        """Bring what is known of producers up to the end, and return that."""
        with self._refresh_lock:
            while True:
                end = self._end.offset
                try:
                    self._producers.advance(self._segments, self._start_offset, end, self._epochs.entries or None)
                except FileMissing:
                    if not self._refresh():
                        raise
                else:
                    return end

    def _chunks(self, offset: int, end_offset: int, positions: Positions | Literal["own"] | None = "own") -> Iterator[Buffer]:
        known = self._end.offset
        try:
            if offset < known:  # a read of what is known need not look at the files
                yield from super()._chunks(offset, min(end_offset, known), positions)
            if end_offset > known:
                self._catch_up()
                yield from super()._chunks(max(offset, known), min(end_offset, self._end.offset), positions)
        except CorruptionError:
            self._catch_up()  # tells if the topic was deleted beside us
            raise
        except FileNotFoundError:
            raise UnknownTopic(self.topic) from None  # deleted beside us

    def _catch_up(self) -> None:
        """Look for what was written since the last look."""
        with self._refresh_lock:
            try:
                self._look()
            except FileNotFoundError:
                if not self._refresh():
                    raise UnknownTopic(self.topic) from None  # deleted beside us
                self._look()

    def _look(self) -> None:
        generation = None
        while generation != self._generation:  # where segments were replaced while it looked, it looks again
            generation = self._generation
            self._check_identity()
            while self._grow():
                pass
            self._check_identity()
        if self._next_offset < self._point.point.offset:
            self._note_loss()

    def _check_identity(self) -> None:
        """The files still have the names they were opened under: the topic was not deleted, nor made anew, beside us."""
        last = self._segments[-1] if self._segments else None
        opened = self._directory_id if last is None or last.file_id is None else last.file_id
        if path_id(self._io, self.directory if last is None or last.file_id is None else last.path) != opened and not self._refresh():
            raise UnknownTopic(self.topic)  # what is open can still be read

    def _replaced(self, segments: Sequence[Segment]) -> bool:
        with self._refresh_lock:
            self._refresh()
        return super()._replaced(segments)

    def _refresh(self) -> bool:
        """Take what the catalogue says, if that has changed: where the log starts, and which segments it has; under ``_refresh_lock``.

        Returns:
            Whether there are other segments than before.
        """
        view = self._lookup(self, self._generation)
        if view is None:
            return False
        entry, sealed, pending = view
        self._generation, self._start_offset = _UNSETTLED if pending else entry.generation, entry.start_offset
        known = {segment.base_offset: segment for segment in self._segments}
        segments = [self._known(known.get(named.base_offset), named, pending) for named in sealed]
        first = sealed[-1].next_offset if sealed else self._first_base()
        segments += [segment for segment in self._segments if segment.base_offset >= first]
        if segments == list(self._segments):
            return False
        self._load_epochs()  # sealed under an epoch that began since
        self._positions.clear()
        self._cursor = None
        if self._segments and (not segments or segments[0].base_offset > self._segments[0].base_offset):
            self._producers = TailProducers(self._io, self.directory, entry)  # a marker may have gone with what was removed
        last = segments[-1] if segments else None
        self._next_offset = max(self._next_offset, entry.start_offset, last.next_offset if last else 0)
        self._segments = tuple(segments)
        self._end = End(last, last.size_bytes if last else 0, self._next_offset)
        return True

    def _first_base(self) -> int:
        """Where the first segment begins if none is sealed: at the log start offset, or before it."""
        bases = [int(name[:20]) for name in names_in(self._io, self.directory) if len(name) == 24 and name.endswith(".log")]
        return max((base for base in bases if base <= self._start_offset), default=self._start_offset)

    def _known(self, segment: Segment | None, named: SegmentEntry, pending: bool) -> Segment:
        """The segment as it was taken before, unless its file is another one by now, or has another name."""
        if segment is not None and (segment.next_offset, segment.size_bytes) == (named.next_offset, named.size_bytes):
            found = path_id(self._io, segment.path)
            if found is not None and (segment.file_id == found or (segment.file_id is None and (pending or not segment.suffix))):
                return segment
        return self._make(self._io, self.directory, named, self._config, pending)

    def _make(self, io: IO, directory: str, named: SegmentEntry, config: LogConfig, pending: bool) -> Segment:
        interval = config.index_interval_bytes
        made = sealed_segment(io, directory, named, index_interval_bytes=interval, writable=False, pending=pending, kind=SharedSegment)
        assert isinstance(made, SharedSegment)
        made.is_current = self._is_current
        return made

    def _is_current(self, segment: Segment) -> bool:
        """Whether the catalogue still says of a segment what it said when it was made; asked once its file was opened."""
        with self._refresh_lock:
            self._refresh()
            return segment in self._segments

    def _grow(self) -> bool:
        """Take what the last segment has grown by; True if there is a next segment to look at."""
        segment = self._segments[-1] if self._segments else None
        if segment is not None and not self._is_sealed(segment):
            self._scan(segment)
        if segment is not None and segment.next_offset == segment.base_offset:
            return False
        following = segment.next_offset if segment is not None else self._first_base()
        there = exists(self._io, segment_path(self.directory, following))
        if (there or (segment is not None and self._is_sealed(segment))) and self._refresh():
            return True  # it may be sealed by now, and be another file, or a part of one
        if not exists(self._io, segment_path(self.directory, following)):
            return False
        self._segments = (*self._segments, self._open_segment(following))
        return True

    def _note_loss(self) -> None:
        """The files end before the recovery point: whoever reads what is missing gets an error, not the end of the log."""
        end = self._point.point.offset
        if not self._segments or self._segments[-1].base_offset != self._next_offset:
            self._segments = (*self._segments, Segment(self._io, self.directory, self._next_offset, writable=False))
        last = self._segments[-1]
        last.next_offset = self._next_offset = end
        self._end = End(last, last.size_bytes, end)

    def _is_sealed(self, segment: Segment) -> bool:
        return segment.scanner is None

    def _open_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._io, self.directory, base_offset, writable=False, index_interval_bytes=self._config.index_interval_bytes)
        segment.open()
        point = self._point.point
        position, offset = (point.position, point.offset) if point.segment == base_offset and point.offset else (0, base_offset)
        try:
            segment.resume(position, offset)
        except CorruptionError:  # reading will come to it, and say it
            segment.begin_at(position, offset)
        return segment

    def _scan(self, segment: Segment) -> None:
        size_bytes = segment.open().size_bytes()
        scanner = segment.scanner
        if scanner is not None and size_bytes > segment.size_bytes:
            if not self._epochs.entries:  # the log was empty at the last look
                self._load_epochs()
            scanner.require(check_crc=True, epochs=self._epochs.entries or None)
            if segment.scan_to(scanner, size_bytes) is Status.EPOCH and self._load_epochs():
                scanner.require(check_crc=True, epochs=self._epochs.entries or None)
                segment.scan_to(scanner, size_bytes)
            segment.adopt(scanner)
        if self._end.offset != segment.next_offset or self._end.segment is not segment:
            self._end = End(segment, segment.size_bytes, segment.next_offset)
            self._next_offset = segment.next_offset

    def _check_epoch(self, offset: int, leader_epoch: int) -> None:
        if leader_epoch >= self._epochs.latest:  # the writer may have begun others since
            self._load_epochs()
        super()._check_epoch(offset, leader_epoch)

    def _load_epochs(self) -> bool:
        """Read the epoch checkpoint again; True if it is another one."""
        try:
            epochs = epochs_file.load(self._io, os.path.join(self.directory, epochs_file.FILE_NAME))
        except CorruptionError:
            return False  # without it epochs are not checked; verify reports it
        if epochs is None or epochs.entries == self._epochs.entries:
            return False
        self._epochs = epochs
        return True

    def _wait_for(self, offset: int, timeout_ms: int | None, stop: threading.Event | None, end_of: Callable[[], int]) -> bool:
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        wait_ms, pause = _POLL_MS_MIN, stop or threading.Event()
        while True:
            self._catch_up()
            if end_of() > offset:
                return True
            left = OFFSET_MAX if until is None else until - time.monotonic()
            if left <= 0 or pause.wait(min(wait_ms / 1000, left)):
                return False
            if self._closed:
                raise self._host.refusal(self)
            wait_ms = min(2 * wait_ms, _POLL_MS_MAX)


class SharedSegment(Segment):
    """A sealed segment that the writer may replace: whoever opens its file has to be sure that it is the one it knows."""

    __slots__ = ("is_current",)

    is_current: Callable[[Segment], bool]

    def open(self, *, create: bool = False) -> File:
        first = self.file_id is None
        file = super().open(create=create)
        if first and not self.is_current(self):
            self.file = self.file_id = None
            raise FileNotFoundError(ENOENT, "another file may have its name", self.path)
        return file
