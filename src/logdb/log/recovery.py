"""Finding the end of one log again, when it is opened for writing.

What may be trusted depends on the last stop: a clean close, a crash of the process, or one of the machine.  The store says which.

    sealed (catalogue)        unnamed files, oldest first; the last one is active
    [0 … 1000) [1000 … 2000)  [2000 …            [2700 …
                                        ^ recovery point: before it, all was synced

1. Before the recovery point a bad batch is corruption: reported, never cut.
2. Past it, the first batch that is not whole and good ends the log.  What follows is cut;
   it is set aside as ``.torn`` first if a whole good batch lies in it.
3. If everything past the point was appended at level fsync, only the last group can be
   torn: whole batches further behind mean corruption, and the log opens read-only.
4. Every unclean open begins a new leader epoch, unless a controller gives the epochs.

docs/inside/durability.md has it in full.
"""

import logging
import os
from collections.abc import Sequence

from logdb.codec import Status, explain, find_batch
from logdb.codec.batch import size_at
from logdb.disk import File, changing, exists, names_in, remove, sync_directory
from logdb.errors import CorruptionError
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import producer_snapshot
from logdb.log.appending import GROUP_SIZE_BYTES
from logdb.log.epochs import LeaderEpochs
from logdb.log.recovery_point import NOWHERE, Point, RecoveryPointFile
from logdb.log.replay import load_index, load_snapshot, replay
from logdb.log.sealed import sealed_segment, unnamed_sidecars
from logdb.log.transactions import LogTransactions
from logdb.meta import LogEntry, SegmentEntry
from logdb.model import LogConfig, TopicPartition
from logdb.segment import buffers
from logdb.segment.segment import CLEANED, INDEX_SUFFIXES, Segment, segment_path

logger = logging.getLogger(__name__)


class Recovered:
    """One recovered log: ``Log`` is made from it."""

    def __init__(self, point: RecoveryPointFile, next_offset: int, read_only_reason: str | None) -> None:
        self.segments: list[Segment] = []
        self.unsealed: list[Segment] = []
        self.epochs = LeaderEpochs()
        self.point = point
        self.intact = NOWHERE  # no record before it was lost: the recovery point, or the written end if the page cache survived
        self.indexed: Point | None = None  # the catalogue's point, if index entries past it may be lost or torn
        self.next_offset = next_offset
        self.transactions: LogTransactions | None = None
        self.read_only_reason = read_only_reason
        self.reports: list[str] = []

    def indexed_to(self, base_offset: int) -> int | None:
        """The part of a segment's index files that is trusted: all, or what was synced with the catalogue's point."""
        if self.indexed is None or base_offset < self.indexed.segment:
            return None
        return self.indexed.position if base_offset == self.indexed.segment else 0

    def report(self, what: str) -> None:
        logger.warning("%s", what)
        self.reports.append(what)

    def corrupt(self, error: CorruptionError) -> None:
        """Make the log read-only: its good records can be read."""
        self.report(f"corruption: {error}")
        self.read_only_reason = self.read_only_reason or str(error)


def recover(
    io: IO,
    directory: str,
    entry: LogEntry,
    sealed: Sequence[SegmentEntry],
    config: LogConfig,
    *,
    clean: bool,
    distrust_cache: bool = False,
    replicated: bool = False,
    restarted: bool = False,
    now_ms: int | None = None,
) -> Recovered:
    """Open the files of one partition.

    Args:
        entry, sealed: The catalogue's entries of the log and of its sealed segments, by offset.
        clean: The last writer closed the log: the files end at the recovery point.
        distrust_cache: A sync failed: the page cache may show bytes that the disk lacks.
        replicated: A controller gives the leader epochs.
        restarted: The log is open: unfinished files may be those of another thread.
        now_ms: The store's time of day, taken as the last append to an unsealed file if that is unknown; None: the machine's.
    """
    recovered = _begin(io, directory, entry, clean=clean, distrust_cache=distrust_cache)
    try:
        names = names_in(io, directory)
    except FileNotFoundError:
        raise CorruptionError(directory, 0, "the directory of the partition is missing") from None
    cut_off = [name for name in names if name.endswith((CLEANED, ".tmp"))]  # of a compaction before its commit, of a file before its rename
    for name in {*cut_off, *unnamed_sidecars(names, sealed)} if not restarted else ():
        remove(io, os.path.join(directory, name))
    bases = sorted(int(name[:20]) for name in names if len(name) == 24 and name.endswith(".log") and name[:20].isdigit())
    bases = _remove_below(io, directory, entry.start_offset, names, bases, {segment.base_offset for segment in sealed}, recovered)
    _take_sealed(io, directory, sealed, bases, config, recovered)
    _load_epochs(io, directory, recovered)
    tail = _take_tail(io, directory, entry, sealed, bases, config, recovered)
    if distrust_cache:
        for segment in tail:
            segment.sync()
            segment.open().drop_cache()
    for slot, segment in enumerate(tail):
        _date(segment, entry, io.clock_ms() if now_ms is None else now_ms)
        if not _open_tail(io, directory, entry, segment, tail[slot + 1 :], recovered, clean=clean):
            break
    if (
        recovered.segments
        and recovered.next_offset == entry.recovery_offset
        and recovered.segments[-1].base_offset == entry.recovery_segment
    ):
        recovered.segments[-1].append_ms = entry.segment_append_ms or recovered.segments[-1].append_ms  # no append came since
    recovered.unsealed = recovered.segments[len(sealed) : -1]
    if recovered.point.point.offset > recovered.next_offset:
        _note_loss(io, directory, recovered)
    if not clean and recovered.read_only_reason is None:
        _recover_epochs(io, directory, recovered, replicated=replicated)
    if entry.producers_offset >= 0:
        _load_producers(io, directory, entry, producer_snapshot.offsets(names), len(sealed), recovered)
    return recovered


def _begin(io: IO, directory: str, entry: LogEntry, *, clean: bool, distrust_cache: bool) -> Recovered:
    """The state before a look at the files: the recovery point, and the intact end."""
    point = RecoveryPointFile(io, directory, writable=True)
    recovered = Recovered(point, entry.start_offset, entry.read_only_reason)
    catalogued = Point(entry.recovery_segment, entry.recovery_offset, entry.recovery_position)
    if catalogued.offset >= point.point.offset:
        point.point = catalogued
    if not clean:
        point.repair()
    if not clean and (distrust_cache or point.written == NOWHERE):
        recovered.indexed = catalogued
    recovered.intact = point.point if clean or distrust_cache else max(point.point, point.written, key=lambda place: place.offset)
    return recovered


def _date(segment: Segment, entry: LogEntry, now_ms: int) -> None:
    """Set the times of an unsealed segment from which its age counts."""
    segment.created_ms = segment.append_ms = now_ms
    if segment.base_offset == entry.recovery_segment and entry.segment_created_ms:
        segment.created_ms = entry.segment_created_ms


def _remove_below(
    io: IO, directory: str, start_offset: int, names: Sequence[str], bases: list[int], named: set[int], recovered: Recovered
) -> list[int]:
    """Remove files of forgotten segments wholly below the log start offset, which a kill has left; returns the other base offsets."""
    head = max((base for base in (*bases, *named) if base <= start_offset), default=start_offset)
    below = [base for base in bases if base < head and base not in named]
    for base in list(below):
        segment = Segment(io, directory, base, writable=False)
        if _ends_below(segment, start_offset):
            segment.remove()
            recovered.report(f"removed {segment.path}: it lies below the log start offset {start_offset}")
        else:
            below.remove(base)
    kept = set(bases) - set(below)
    for name in names:
        stem, _, suffix = name.partition(".")
        stray = suffix in INDEX_SUFFIXES and len(stem) == 20 and stem.isdigit() and int(stem) < head
        if stray and int(stem) not in kept | named and exists(io, path := os.path.join(directory, name)):
            remove(io, path)
    return sorted(kept)


def _ends_below(segment: Segment, start_offset: int) -> bool:
    """Whether an unnamed file has only whole batches below the log start offset."""
    size_bytes = segment.open().size_bytes()
    segment.begin_at(0, segment.base_offset)
    scanner = segment.scanner
    assert scanner is not None
    status = segment.scan_to(scanner, size_bytes)
    whole = status is Status.OK or (status is Status.ZERO and is_zero(segment, scanner.position, size_bytes))
    return whole and scanner.next_offset <= start_offset


def _load_producers(io: IO, directory: str, entry: LogEntry, snapshots: Sequence[int], sealed_count: int, recovered: Recovered) -> None:
    """Recover the producers: from the snapshot that the catalogue names, and the batches since."""
    where = TopicPartition(entry.topic, entry.partition)
    snapshot, offset = load_snapshot(io, directory, entry.producers_offset, entry.start_offset, snapshots, recovered.report)
    epochs, usable = recovered.epochs.entries or None, entry.producers_offset if recovered.read_only_reason else offset
    kept = [known for known in snapshots if known <= usable]
    for newer in snapshots[len(kept) :]:  # no checkpoint names it, or it is damaged
        remove(io, producer_snapshot.snapshot_path(directory, newer))
    stale = False
    for slot in range(sealed_count, len(recovered.segments)):
        try:
            error = load_index(snapshot, offset, recovered.segments, slot, epochs)
        except CorruptionError as damage:
            recovered.corrupt(damage)
            continue
        if error is not None:
            recovered.report(f"{error}; rebuilt from the log")
            recovered.segments[slot].transactions.unsaved = stale = True
    try:
        replay(snapshot.states, recovered.segments, offset, recovered.next_offset, epochs, io.clock_ms())
    except CorruptionError as error:
        recovered.corrupt(error)
    recovered.transactions = LogTransactions(where, snapshot.states, kept, offset)
    recovered.transactions.stale = stale


def _take_sealed(io: IO, directory: str, sealed: Sequence[SegmentEntry], bases: list[int], config: LogConfig, recovered: Recovered) -> None:
    """Take sealed segments as the catalogue has them; reads check their bytes."""
    for named in sealed:
        segment = sealed_segment(io, directory, named, index_interval_bytes=config.index_interval_bytes, writable=True)
        if named.base_offset not in bases:
            recovered.corrupt(CorruptionError(segment.path, 0, f"the file of the sealed segment of {named.size_bytes} bytes is missing"))
        recovered.segments.append(segment)
        recovered.next_offset = named.next_offset


def _load_epochs(io: IO, directory: str, recovered: Recovered) -> None:
    path = os.path.join(directory, epochs_file.FILE_NAME)
    try:
        epochs = epochs_file.load(io, path)
    except CorruptionError as error:
        if recovered.point.point.offset > 0:
            recovered.corrupt(error)
        return  # no record was durable yet, nor was this file
    if epochs is None and recovered.point.point.offset > 0:
        recovered.corrupt(CorruptionError(path, 0, "the file is missing"))
    recovered.epochs = epochs or LeaderEpochs()


def _take_tail(
    io: IO, directory: str, entry: LogEntry, sealed: Sequence[SegmentEntry], bases: list[int], config: LogConfig, recovered: Recovered
) -> list[Segment]:
    """Take the files after the sealed ones; files that are no part of the log are set aside."""
    named = {segment.base_offset for segment in sealed}
    first = sealed[-1].next_offset if sealed else max((base for base in bases if base <= entry.start_offset), default=entry.start_offset)
    tail: list[Segment] = []
    for base in bases:
        segment = Segment(io, directory, base, writable=True, index_interval_bytes=config.index_interval_bytes)
        if base in named:
            continue
        if base >= first:
            tail.append(segment)
        else:
            _set_aside(io, segment, ".orphan", recovered)
    return tail


def _open_tail(
    io: IO, directory: str, entry: LogEntry, segment: Segment, later: Sequence[Segment], recovered: Recovered, *, clean: bool
) -> bool:
    """Append ``segment`` to the log; False if the log ends in it, and later files are no part of it."""
    expected = recovered.next_offset if recovered.segments else min(segment.base_offset, entry.start_offset)
    point, intact = recovered.point.point, recovered.intact
    if segment.base_offset != expected:
        for stray in (segment, *later):
            if recovered.read_only_reason is None and stray.base_offset > point.segment:
                _set_aside(io, stray, ".orphan", recovered)
        return False
    size_bytes = segment.open().size_bytes()
    segment.size_bytes = segment.room_bytes = size_bytes
    recovered.segments.append(segment)
    if segment.base_offset > intact.segment or intact.offset == 0:
        trusted, next_offset = 0, segment.base_offset
    elif segment.base_offset == intact.segment:
        trusted, next_offset = intact.position, intact.offset
    else:  # intact to the base offset of the next file; preallocated zeroes may follow
        trusted, next_offset = size_bytes, later[0].base_offset if later else intact.offset
    recovered.next_offset = next_offset
    if trusted > size_bytes or (clean and trusted != size_bytes):
        recovered.corrupt(
            CorruptionError(segment.path, min(trusted, size_bytes), f"the file has {size_bytes} bytes, {trusted} were written")
        )
        segment.size_bytes, segment.next_offset = min(trusted, size_bytes), next_offset
        return False
    try:
        segment.resume(trusted, next_offset, indexed_to=recovered.indexed_to(segment.base_offset))
    except CorruptionError as error:
        recovered.corrupt(error)
        segment.size_bytes, segment.next_offset = trusted, next_offset
        return False
    goes_on = clean or _scan_rest(io, directory, entry, segment, size_bytes, later, recovered)
    try:
        segment.check_timestamps()
    except CorruptionError as error:
        recovered.corrupt(error)
    return goes_on


def _scan_rest(
    io: IO, directory: str, entry: LogEntry, segment: Segment, size_bytes: int, later: Sequence[Segment], recovered: Recovered
) -> bool:
    """Check everything past the recovery point; the first bad batch ends the log."""
    scanner = segment.scanner
    assert scanner is not None
    scanner.require(check_crc=True, epochs=recovered.epochs.entries or None)
    status = segment.scan_to(scanner, size_bytes)
    scanner.require(check_crc=False, epochs=None)
    segment.adopt(scanner)
    recovered.next_offset = segment.next_offset
    if recovered.next_offset > recovered.point.point.offset:
        segment.write_count += 1  # by the process that died
    if segment.size_bytes == size_bytes and status is Status.OK:
        return True
    ends = segment.size_bytes
    reason = f"{explain(status, scanner)} at byte {ends} of {size_bytes}"
    goes_on = bool(later) and later[0].base_offset == segment.next_offset
    if status is Status.ZERO and (goes_on or not later) and is_zero(segment, ends, size_bytes):
        segment.trim()  # zeroes, preallocated or of a write whose data is lost
        return goes_on
    reach = _reach([(segment, ends), *((file, 0) for file in later)])
    if entry.strict and reach > GROUP_SIZE_BYTES:
        recovered.corrupt(
            CorruptionError(segment.path, ends, f"{reason}, yet whole batches follow up to {reach} bytes behind, more than one group")
        )
        return False
    recovered.report(f"{segment.path} ends at offset {segment.next_offset}: {reason}")
    if reach:
        _keep_torn(io, directory, segment, ends, size_bytes, recovered)
    for file in later:
        if _reach([(file, 0)]):
            _set_aside(io, file, ".torn", recovered)
        else:
            file.remove()
    _cut(segment)
    return False


def _reach(files: Sequence[tuple[Segment, int]]) -> int:
    """Bytes from the first (file, position) to the end of the last whole good batch; 0 without such a batch."""
    reach = behind = 0
    for segment, start in files:
        size_bytes = segment.open().size_bytes()
        if ends := _last_batch_end(segment, start, size_bytes):
            reach = behind = behind + ends - start
    return reach


def _last_batch_end(segment: Segment, position: int, size_bytes: int) -> int:
    """The end of the last whole good batch at or after ``position``; 0 without such a batch."""
    ends, window = 0, 2 * buffers.READ_SIZE_BYTES
    while position < size_bytes:
        view = memoryview(buffers.take(window))
        read = segment.open().fill(view[: min(window, size_bytes - position)], position)
        if read <= 0:
            break
        inside = find_batch(view[:read])
        if inside >= 0:
            ends = position = position + inside + size_at(view, inside)
        elif position + read >= size_bytes:
            break
        else:
            position += read // 2  # a batch may begin in this half and end in the next read
    return ends


def is_zero(segment: Segment, position: int, size_bytes: int) -> bool:
    """Whether the file has only zeroes from ``position`` to ``size_bytes``."""
    buffer = memoryview(buffers.take(buffers.READ_SIZE_BYTES))
    while position < size_bytes:
        read = segment.open().fill(buffer[: min(len(buffer), size_bytes - position)], position)
        if read <= 0 or buffer[:read].tobytes().strip(b"\0"):
            return False
        position += read
    return True


def _note_loss(io: IO, directory: str, recovered: Recovered) -> None:
    """The log ends before its recovery point: a read of the missing records gets an error, not the end of the log."""
    ends, end = recovered.next_offset, recovered.point.point.offset
    lost = Segment(io, directory, ends, writable=True)
    lost.next_offset = recovered.next_offset = end
    recovered.corrupt(CorruptionError(lost.path, 0, f"the log ends at offset {ends}, before the recovery point {end}"))
    if recovered.segments and recovered.segments[-1].base_offset == ends:
        recovered.segments[-1].next_offset = end
    else:
        recovered.segments.append(lost)


def _keep_torn(io: IO, directory: str, segment: Segment, position: int, size_bytes: int, recovered: Recovered) -> None:
    """Copy the bytes that will be cut to a ``.torn`` file, durably."""
    path = segment_path(directory, segment.base_offset, f"-{position}.torn")
    with File(io, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as torn:
        buffer, at = memoryview(buffers.take(buffers.READ_SIZE_BYTES)), position
        while at < size_bytes and (read := segment.open().fill(buffer[: min(len(buffer), size_bytes - at)], at)) > 0:
            torn.write(buffer[:read], at - position)
            at += read
        torn.sync()
    sync_directory(io, directory)
    recovered.report(f"set {size_bytes - position} bytes aside as {path}")


def _cut(segment: Segment) -> None:
    segment.trim()
    segment.sync()


def _set_aside(io: IO, segment: Segment, suffix: str, recovered: Recovered) -> None:
    """Rename a file that is no part of the log; never delete it."""
    segment.file = None
    with changing(segment.path):
        io.rename(segment.path, segment.path + suffix)
    sync_directory(io, os.path.dirname(segment.path))
    recovered.report(f"{segment.path} is no part of the log; renamed to {segment.path}{suffix}")


def _recover_epochs(io: IO, directory: str, recovered: Recovered, *, replicated: bool) -> None:
    """Recover the epoch checkpoint after an unclean stop: a new epoch distinguishes later records from lost ones.

    Only a log that is not replicated begins an epoch.  A replicated log forgets the epochs that begin past its end.
    """
    known = recovered.epochs
    first = recovered.segments[0] if recovered.segments else None
    if not known.entries and first is not None and first.next_offset > first.base_offset:  # the power cut took the file
        recovered.epochs = known.begun(first.first_epoch(), first.base_offset)
    if replicated:
        recovered.epochs = recovered.epochs.until(recovered.next_offset)
    else:
        recovered.epochs = recovered.epochs.begun(recovered.epochs.latest + 1, recovered.next_offset)
    if recovered.epochs.entries != known.entries:
        epochs_file.save(io, os.path.join(directory, epochs_file.FILE_NAME), recovered.epochs)
