"""One partition's log, read beside the process that writes it.

The files may grow during a look: past the recovery point, the first batch that is not whole and good is "not there yet".  A tail
repairs nothing, and holds no lock of the writer.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from errno import ENOENT
from typing import Any, Literal, NoReturn

from logdb.codec import Positions, Status
from logdb.disk import File, exists, names_in, path_id
from logdb.errors import CorruptionError, OffsetOutOfRange, TopicDeleted
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import high_watermark, recovery_point
from logdb.log.epochs import LeaderEpochs
from logdb.log.host import Captured, CataloguedLog, Host
from logdb.log.producers import Producer
from logdb.log.readable import ReadableLog
from logdb.log.reading import Lineage
from logdb.log.recovery_point import Point
from logdb.log.replay import TailProducers
from logdb.log.sealed import sealed_segment
from logdb.log.segment_reader import FileMissing
from logdb.log.view import LogView
from logdb.meta import LogEntry, SegmentEntry
from logdb.model import OFFSET_MAX, AbortedTransaction, Buffer, LogConfig, OpenTransaction
from logdb.segment.segment import CLEANED, Segment, segment_path
from logdb.threads import renew

_POLL_MS_MIN, _POLL_MS_MAX = 1, 50
_LOOK_COUNT_MAX = 5  # reads of a file that the writer may be changing
_PENDING = -1  # instead of a generation: while a replacement is pending, each look asks the catalogue


class TailLog(ReadableLog):
    """A log that another process may append to; it accepts no records.

    | field                | who changes it                          | under which lock | when it may be trusted                       |
    |----------------------|-----------------------------------------|------------------|----------------------------------------------|
    | ``view``             | a look at the files, or the catalogue   | ``_refresh_lock``| without a lock; the writer may be ahead      |
    | ``_generation``,     | a look at the catalogue                 | ``_refresh_lock``| until the catalogue has another one; while a |
    | ``_pending``         |                                         |                  | replacement is pending: for one look         |
    | ``_producers``       | ``_decided``                            | ``_refresh_lock``| below ``unstable_offset`` was brought up to  |
    | ``_replicated``      | a look at the leader epochs             | ``_refresh_lock``| until the log has others: a replica has its  |
    |                      |                                         |                  | file before the first epoch of a controller  |

    ``lookup``: takes the known generation; returns the catalogue's entries of a later one, or None.
    ``frozen``: the log is a snapshot's.  Its open transactions are never decided: its end is stable, and they count as aborted.
    """

    fsync_only = False  # a tail appends no records

    def __init__(
        self,
        *,
        config: LogConfig,
        catalogued: CataloguedLog,
        lookup: "Callable[[TailLog, int], CataloguedLog | None]",
        io: IO,
        host: Host,
        directory: str,
        topic: str,
        topic_id: str,
        partition: int,
        frozen: bool = False,
    ) -> None:
        self._io, self._lookup, self._frozen = io, lookup, frozen
        entry, sealed, pending = catalogued
        segments = tuple(self._make(directory, named, config, pending is not None) for named in sealed)
        view = LogView(
            segments=segments,
            start_offset=entry.start_offset,
            written_offset=segments[-1].next_offset if segments else entry.start_offset,
            written_position=segments[-1].size_bytes if segments else 0,
            flushed=_durable(io, directory, entry),
            epochs=LeaderEpochs(),
        )
        super().__init__(
            host=host,
            directory=directory,
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            config=config,
            view=view,
            read_only_reason=entry.read_only_reason,
        )
        self.now_ms = io.clock_ms
        self._refresh_lock = threading.RLock()
        self._generation, self._pending = entry.generation, pending
        self._producers = TailProducers(io, directory, entry)
        self._directory_id = path_id(io, directory)
        self._load_epochs()
        self.catch_up()

    def forked(self) -> None:
        """In a forked child: free the locks of the parent's threads."""
        renew((self._refresh_lock, self._watch_lock))
        self._closed = True

    def abandon(self) -> int:
        """Release files and memory; returns 0: no record waits here to be written."""
        self._closed = True
        self._positions.clear()
        for segment in self.view.segments:
            segment.retire()
        self.wake()
        return 0

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """A method of writers: raises why this log cannot carry it out."""
        raise self._host.refusal(self)

    append = append_many = append_batches = append_marker = producer = _refuse
    follow_append = begin_epoch = move_high_watermark = flush = roll = _refuse

    def commit_to(
        self, offset: int, *, sync: bool = False, leader_epoch: int | None = None, go_on: Callable[[], None] | None = None
    ) -> None:
        """Returns at once: a tail appends no records."""

    # ------------------------------------------------------------ ends

    @property
    def _next_offset(self) -> int:  # type: ignore[override]
        return self.view.written_offset

    @property
    def leader_epoch(self) -> int:
        """The latest leader epoch in the checkpoint."""
        return self.view.epochs.latest

    @property
    def start_offset(self) -> int:
        """The first readable offset, after a look at the catalogue."""
        with self._refresh_lock:
            self._refresh()
        return self.view.start_offset

    @property
    def end_offset(self) -> int:
        """The end of the records that the writer has written."""
        return self.catch_up().written_offset

    @property
    def high_watermark(self) -> int:
        return self.catch_up().limit(False)

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that the writer has written, and that are decided."""
        self.catch_up()
        return self._decided().last_stable_offset

    def stable_view(self) -> LogView:
        """As ``ReadableLog``, after a look at the catalogue: a reader is told where the log begins now."""
        with self._refresh_lock:
            self._refresh()
        return super().stable_view()

    def open_transactions(self) -> list[OpenTransaction]:
        self.catch_up()
        self._decided()
        return [] if self._frozen else self._producers.states.open_transactions()

    def producers(self) -> list[Producer]:
        """The producers as of where the writer has written."""
        self.catch_up()
        self._decided()
        return list(self._producers.states.producers.values())

    def _aborted(self, view: LogView, offset: int, end_offset: int) -> list[AbortedTransaction]:
        found = super()._aborted(view, offset, end_offset)
        if self._frozen:
            begun = [(left.producer_id, left.first_offset) for left in self._producers.states.open_transactions()]
            found += [AbortedTransaction(one, first, view.written_offset) for one, first in begun if first < end_offset]
        return found

    def capture(self) -> Captured:
        with self._refresh_lock:
            self.catch_up()
            view, states = self._decided(), self._producers.states
            known = states.copy() if states.producers or self._producers.began else None
            return Captured(view, known, b"" if view.active is None else view.active.transactions.below(view.written_offset))

    def capture_at(self, view: LogView) -> Captured:
        """As ``capture``, as of a view that this log has published, or one that was ended before.

        Only of a log whose transactions nobody has asked for: they are followed up to the end of the view.
        """
        with self._refresh_lock:
            self._producers.advance(view.segments, view.start_offset, view.written_offset, view.epochs.entries or None)
            states = self._producers.states
            known = states.copy() if states.producers or self._producers.began else None
            return Captured(view, known, b"" if view.active is None else view.active.transactions.below(view.written_offset))

    # ------------------------------------------------------------ views

    def _readable_end(self, offset: int) -> int:
        if self._closed:
            raise self._host.refusal(self)
        view = self.view
        if offset >= view.written_offset:
            view = self.catch_up()
        if not view.start_offset <= offset <= view.written_offset:
            raise OffsetOutOfRange(self.topic, self.partition, offset, self.start_offset, self.view.written_offset)
        return OFFSET_MAX  # looked up when the read comes to it

    def _decided(self) -> LogView:
        with self._refresh_lock:
            while True:
                view = self.view
                try:
                    self._producers.advance(view.segments, view.start_offset, view.written_offset, view.epochs.entries or None)
                except FileMissing:
                    if not self._refresh():
                        raise
                else:
                    first = None if self._frozen else self._producers.states.first_unstable
                    self.view = self.view._replace(unstable_offset=OFFSET_MAX if first is None else first)
                    return self.view

    def _chunks(
        self,
        lineage: Lineage,
        offset: int,
        end_offset: int,
        positions: Positions | Literal["own"] | None = "own",
        *,
        as_stored: bool = False,
    ) -> Iterator[Buffer]:
        known = self.view
        if lineage.cut_offset < offset:
            raise self._truncated(lineage, offset, lineage.cut_offset)
        return self._chunks_since(known, lineage, offset, end_offset, positions, as_stored)

    def _chunks_since(
        self,
        known: LogView,
        lineage: Lineage,
        offset: int,
        end_offset: int,
        positions: Positions | Literal["own"] | None,
        as_stored: bool,
    ) -> Iterator[Buffer]:
        """The chunks of a read that began with the view ``known``: of that log, and of later appends to it."""
        end = known.limit(False)
        try:
            if offset < end:  # a read below the known end need not look at the files
                if self.view is not known:
                    self._check_lineage(known, offset)
                yield from super()._chunks(lineage, offset, min(end_offset, end), positions, as_stored=as_stored)
            if end_offset > end:
                if end_offset == OFFSET_MAX:  # it is read as far as the log goes, whatever was cut off past what this read has seen
                    lineage = self._lineage
                offset, end_offset = max(offset, end), min(end_offset, self.catch_up().limit(False))
                self._check_lineage(known, offset)
                yield from super()._chunks(lineage, offset, end_offset, positions, as_stored=as_stored)
        except CorruptionError:
            self.catch_up()  # raises if the topic was deleted beside this process
            raise
        except FileNotFoundError:
            raise TopicDeleted(self.topic, self.topic_id) from None  # deleted beside this process

    def catch_up(self) -> LogView:
        """The latest view, after a look for records written since the last look."""
        with self._refresh_lock:
            while True:
                known = self._generation, self._pending
                try:
                    self._look()
                except FileNotFoundError:
                    if not self._refresh() and known == (self._generation, self._pending):
                        raise TopicDeleted(self.topic, self.topic_id) from None  # deleted beside this process
                else:
                    return self.view

    def _look(self) -> None:
        known = None
        while known != (self._generation, self._pending):  # segments were replaced during the look: look again
            if self._pending is not None or not self.view.segments:
                self._refresh()
            known = self._generation, self._pending
            self._check_identity()
            while self._grow():
                pass
            self._check_identity()
            if self.view.written_offset < self.view.flushed.offset:
                self._refresh()  # a truncation takes the recovery point back
            if self._replicated:
                self._take_high_watermark()
        if self.view.written_offset < self.view.flushed.offset:
            self._note_loss()

    def _take_high_watermark(self) -> None:
        """Let readers see what the writer says is replicated, unless the log was cut off since it was looked at.

        A truncation takes the high watermark back before its commit, which the catalogue shows.
        """
        offset, known = self._read_high_watermark(), (self._generation, self._pending)
        self._refresh()
        if known == (self._generation, self._pending):
            self.view = self.view._replace(high_watermark=max(offset, self.view.start_offset))

    def _read_high_watermark(self) -> int:
        for _ in range(_LOOK_COUNT_MAX):  # the writer may be at it
            with contextlib.suppress(CorruptionError):
                found = high_watermark.load(self._io, self.directory)
                return OFFSET_MAX if found is None else found  # None: a writer has opened the log on its own
        return 0 if self.view.high_watermark == OFFSET_MAX else self.view.high_watermark

    def _check_identity(self) -> None:
        """Raise unless the open files still have their names: the topic was neither deleted nor created again beside this process."""
        last = self.view.active
        opened = self._directory_id if last is None or last.file_id is None else last.file_id
        if path_id(self._io, self.directory if last is None or last.file_id is None else last.path) != opened and not self._refresh():
            raise TopicDeleted(self.topic, self.topic_id)  # open files can still be read

    def _replaced(self, view: LogView) -> bool:
        with self._refresh_lock:
            self._refresh()
        return self.view.segments is not view.segments

    def _refresh(self) -> bool:
        """Take over log start and segments from the catalogue, if they have changed; under ``_refresh_lock``.

        Returns:
            Whether the segments are others than before.
        """
        catalogued = self._lookup(self, self._generation if self._pending is None else _PENDING)
        if catalogued is None:
            return False
        view, (entry, sealed, pending) = self.view, catalogued
        self._generation, self._pending = entry.generation, pending
        known = {segment.base_offset: segment for segment in view.segments}
        first = sealed[-1].next_offset if sealed else self._first_base(entry.start_offset)
        segments = (*(self._known(known.get(named.base_offset), named) for named in sealed), *self._unsealed(view.segments, first))
        changed = view._replace(
            start_offset=entry.start_offset,
            flushed=_durable(self._io, self.directory, entry),
            epochs=self._read_epochs(),  # segments may be sealed under an epoch that began since
        )
        if segments == view.segments:
            self.view = changed if segments else changed._replace(written_offset=entry.start_offset)
            return False
        self._positions, self._cursor = Positions(), None
        last = segments[-1] if segments else None
        ends = max(entry.start_offset, last.next_offset if last else 0)
        changed = changed._replace(segments=segments, written_offset=ends, written_position=last.size_bytes if last else 0)
        truncated = ends < view.written_offset or not _continues(view, changed)
        if truncated:
            cut_offset = min(ends, view.epochs.common_end(changed.epochs, view.written_offset))
            self._begin_lineage(self._lineage.end(cut_offset, view.epochs))
            changed = changed._replace(high_watermark=entry.start_offset if self._replicated else OFFSET_MAX)
        self.view = changed
        if truncated or (view.segments and (not segments or segments[0].base_offset > view.segments[0].base_offset)):
            self._producers = TailProducers(self._io, self.directory, entry)  # a removed segment may have had a marker
        return True

    def _unsealed(self, segments: Iterable[Segment], first_offset: int) -> Iterator[Segment]:
        """The unsealed segments from an offset on that have files: a truncation replaces or removes some."""
        for segment in segments:
            there = segment.scanner is not None and segment.path == self._path(segment.base_offset)
            if there and path_id(self._io, segment.path) == segment.file_id and segment.base_offset == first_offset:
                yield segment
                first_offset = segment.next_offset

    def _first_base(self, start_offset: int) -> int:
        """The base offset of the first segment if none is sealed: the log start offset, or a lower one."""
        removed = () if self._pending is None else self._pending.removed
        names = (name for name in names_in(self._io, self.directory) if name not in removed)
        bases = [int(name[:20]) for name in names if len(name) == 24 and name.endswith(".log")]
        return max((base for base in bases if base <= start_offset), default=start_offset)

    def _path(self, base_offset: int) -> str | None:
        """The path of an unsealed segment's log; None if a pending replacement removes it."""
        path = segment_path(self.directory, base_offset)
        if self._pending is None:
            return path
        name = os.path.basename(path)
        if name in self._pending.renamed and exists(self._io, path + CLEANED):
            return path + CLEANED
        return None if name in self._pending.removed else path

    def _known(self, segment: Segment | None, named: SegmentEntry) -> Segment:
        """The segment of the former view, unless its file was replaced or renamed."""
        if segment is not None and (segment.next_offset, segment.size_bytes) == (named.next_offset, named.size_bytes):
            found = path_id(self._io, segment.path)
            if found is not None and (segment.file_id == found or (segment.file_id is None and (self._pending or not segment.suffix))):
                return segment
        return self._make(self.directory, named, self._config, self._pending is not None)

    def _make(self, directory: str, named: SegmentEntry, config: LogConfig, pending: bool) -> Segment:
        interval = config.index_interval_bytes
        made = sealed_segment(
            self._io, directory, named, index_interval_bytes=interval, writable=False, pending=pending, kind=SharedSegment
        )
        assert isinstance(made, SharedSegment)
        made.is_current = self._is_current
        return made

    def _is_current(self, segment: Segment) -> bool:
        """Whether the catalogue's entry of a segment is unchanged; called once its file is open."""
        with self._refresh_lock:
            self._refresh()
            return segment in self.view.segments

    def _grow(self) -> bool:
        """Scan the growth of the last segment; True if a next segment may exist."""
        segment = self.view.active
        if segment is not None and not self._is_sealed(segment):
            self._scan(segment)
        if segment is not None and segment.next_offset == segment.base_offset:
            return False
        following = segment.next_offset if segment is not None else self._first_base(self.view.start_offset)
        if (self._is_there(following) or (segment is not None and self._is_sealed(segment))) and self._refresh():
            return True  # it may be sealed meanwhile, and be another file, or a part of one
        if not self._is_there(following):
            return False
        known, opened = (self._generation, self._pending), self._open_segment(following)
        if self._refresh() or known != (self._generation, self._pending):
            return True  # the recovery point may belong to another file
        self.view = self.view._replace(
            segments=(*self.view.segments, opened), written_offset=opened.next_offset, written_position=opened.size_bytes
        )
        return True

    def _is_there(self, base_offset: int) -> bool:
        path = self._path(base_offset)
        return path is not None and exists(self._io, path)

    def _note_loss(self) -> None:
        """The files end before the recovery point: a read of the missing records gets an error, not the end of the log."""
        segments, written_offset, end = self.view.segments, self.view.written_offset, self.view.flushed.offset
        if not segments or segments[-1].base_offset != written_offset:
            segments = (*segments, Segment(self._io, self.directory, written_offset, writable=False))
        segments[-1].next_offset = end
        self.view = self.view._replace(segments=segments, written_offset=end, written_position=segments[-1].size_bytes)

    def _is_sealed(self, segment: Segment) -> bool:
        return segment.scanner is None

    def _open_segment(self, base_offset: int) -> Segment:
        interval, suffix = self._config.index_interval_bytes, CLEANED if (self._path(base_offset) or "").endswith(CLEANED) else ""
        segment = Segment(self._io, self.directory, base_offset, writable=False, index_interval_bytes=interval, suffix=suffix)
        segment.open()
        point = self.view.flushed
        position, offset = (point.position, point.offset) if point.segment == base_offset and point.offset else (0, base_offset)
        try:
            segment.resume(position, offset)
        except CorruptionError:  # a read will come to it, and raise it
            segment.begin_at(position, offset)
        return segment

    def _scan(self, segment: Segment) -> None:
        size_bytes = segment.open().size_bytes()
        scanner = segment.scanner
        if scanner is not None and size_bytes > segment.size_bytes:
            if not self.view.epochs.entries:  # the log was empty at the last look
                self._load_epochs()
            scanner.require(check_crc=True, epochs=self.view.epochs.entries or None)
            if segment.scan_to(scanner, size_bytes) is Status.EPOCH and self._load_epochs():
                scanner.require(check_crc=True, epochs=self.view.epochs.entries or None)
                segment.scan_to(scanner, size_bytes)
            segment.adopt(scanner)
        if self.view.written_offset != segment.next_offset or self.view.written_position != segment.size_bytes:
            self.view = self.view._replace(written_offset=segment.next_offset, written_position=segment.size_bytes)

    def _check_epoch(self, offset: int, leader_epoch: int) -> None:
        if leader_epoch >= self.view.epochs.latest:  # the writer may have begun later epochs since
            self._load_epochs()
        super()._check_epoch(offset, leader_epoch)

    def _load_epochs(self) -> bool:
        """Read the epoch checkpoint again; True if it has changed."""
        known = self.view.epochs
        self.view = self.view._replace(epochs=self._read_epochs())
        return self.view.epochs is not known

    def _read_epochs(self) -> LeaderEpochs:
        """The epochs of the checkpoint; the known ones if it is unchanged, or cannot be read."""
        known = self.view.epochs
        try:
            found = epochs_file.load(self._io, os.path.join(self.directory, epochs_file.FILE_NAME))
        except CorruptionError:
            return known  # without it epochs are not checked; verify reports it
        finally:
            self._replicated = exists(self._io, os.path.join(self.directory, high_watermark.FILE_NAME))
        return known if found is None or found.entries == known.entries else found

    def _wait_for(self, offset: int, timeout_ms: int | None, stop: threading.Event | None, committed: bool) -> bool:
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        wait_ms, pause = _POLL_MS_MIN, stop or threading.Event()
        while True:
            if self._limit(committed) > offset:
                return True
            self._view_from(offset)
            left = OFFSET_MAX if until is None else until - time.monotonic()
            if left <= 0 or pause.wait(min(wait_ms / 1000, left)):
                return False
            if self._closed:
                raise self._host.refusal(self)
            wait_ms = min(2 * wait_ms, _POLL_MS_MAX)


class SharedSegment(Segment):
    """A sealed segment that the writer may replace: opening checks that the file is still the same."""

    __slots__ = ("is_current",)

    is_current: Callable[[Segment], bool]

    def open(self, *, create: bool = False) -> File:
        first = self.file_id is None
        file = super().open(create=create)
        if first and not self.is_current(self):
            self.file = self.file_id = None
            raise FileNotFoundError(ENOENT, "another file may have its name", self.path)
        return file


def _continues(former: LogView, view: LogView) -> bool:
    """Whether a log still has all records of a former view."""
    if former.written_offset <= former.start_offset:
        return True
    ends = view.epochs.end_of(former.epochs.at(former.written_offset - 1), view.written_offset)
    return ends is not None and ends >= former.written_offset


def _durable(io: IO, directory: str, entry: LogEntry) -> Point:
    """A lower bound of the durable end; ``entry`` was read before."""
    exact = recovery_point.load(io, os.path.join(directory, recovery_point.FILE_NAME)).durable
    return max(exact, Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position), key=lambda point: point.offset)
