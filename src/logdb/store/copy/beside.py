"""A database frozen beside the process that writes it, by a reader.

    1. the logs' ends are found (``moment``)
    2. the files that the backup reads are opened: a file that the writer removes or replaces stays readable by its descriptor
    3. the catalogue is read again: if it names other segments than before, all of it is repeated

Only written records are in it.  Nothing in the database's directory is changed.
"""

import contextlib
import os
import resource
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from errno import EMFILE, ENFILE
from typing import TYPE_CHECKING, NamedTuple

from logdb.codec import crc32c
from logdb.disk import File
from logdb.errors import ConcurrentTransactions, CorruptionError, ReadFailed, UnknownPartition, UnknownTopic
from logdb.log.host import Captured
from logdb.log.sealed import segment_entry
from logdb.log.segment_reader import FileMissing
from logdb.log.tail import TailLog
from logdb.log.view import LogView
from logdb.meta import LogEntry, ReadTransaction, SegmentEntry, TopicEntry
from logdb.segment import buffers
from logdb.segment.segment import Segment, segment_path
from logdb.store import replacement_intent
from logdb.store.copy import moment
from logdb.store.copy.backup_list import LogKey
from logdb.store.copy.frozen import Frozen, FrozenLog, freeze_log
from logdb.store.copy.moment import Ends, TransactionStep, Unclear

if TYPE_CHECKING:
    from logdb.store.store import Store

_TRY_S = 60.0
_MISSING_S = 2.0  # a file that is missing for longer was not replaced: it is lost
_PAUSE_S = 0.002

Known = Mapping[LogKey, Collection[SegmentEntry]]
"""Of each log: the sealed segments that need not be read."""


class _Catalogued(NamedTuple):
    """What the catalogue has of the logs.  ``sealed``: below the segment that a log ends in."""

    topics: Mapping[str, TopicEntry]
    entries: Mapping[TailLog, LogEntry]
    sealed: Mapping[TailLog, Sequence[SegmentEntry]]
    next_producer_id: int


@contextlib.contextmanager
def held(store: "Store", step_of: Callable[[bytes], TransactionStep], known: Known) -> Iterator[Frozen]:
    """The database at one moment; the files that must be read stay open until the block ends.

    Raises:
        ConcurrentTransactions: No moment was found, because transactions end all the time; a retry is safe.
        CorruptionError: A partition is damaged.
        ReadFailed: The process may not open that many files.
        ReadOnly: A crash left the database, and nothing has recovered it; or it is a running node's.
    """
    store.check_recovered()
    tries = _Tries(store.path)
    while True:
        with contextlib.ExitStack() as opened:
            try:
                frozen = _freeze(store, step_of, known, opened)
            except (UnknownTopic, UnknownPartition, FileMissing, FileNotFoundError, Unclear) as error:
                tries.note(error)
            else:
                yield frozen
                return
        time.sleep(_PAUSE_S)


class _Tries:
    """Tries to freeze the database in ``path``, and the file that the last one has missed."""

    def __init__(self, path: str) -> None:
        self._path, self._began = path, time.monotonic()
        self._missing, self._missing_since = "", 0.0

    def note(self, error: Exception) -> None:
        """A try has ended with ``error``; raises if there must not be another one."""
        now = time.monotonic()
        missing = error.path if isinstance(error, FileMissing) else str(error.filename) if isinstance(error, FileNotFoundError) else ""
        if missing != self._missing:
            self._missing, self._missing_since = missing, now
        elif missing and now - self._missing_since > _MISSING_S:
            raise CorruptionError(missing, 0, "the file is missing") from error
        if now - self._began > _TRY_S:
            raise ConcurrentTransactions(
                f"{self._path} changes too fast for a backup beside its writer: {error}; a retry is safe, and so is db.backup in the writer"
            ) from error


def _freeze(store: "Store", step_of: Callable[[bytes], TransactionStep], known: Known, opened: contextlib.ExitStack) -> Frozen:
    topics = store.catalogue.topics()
    logs = [store.own_log(name, number) for name, topic in sorted(topics.items()) for number in range(topic.partition_count)]
    for log in logs:
        opened.callback(log.abandon)
        if log.read_only_reason is not None:
            raise CorruptionError(log.directory, 0, f"the partition is damaged ({log.read_only_reason}); run logdb repair first")
    ends = moment.find(logs, step_of)
    found = _read_catalogue(store, ends)
    if found.topics != topics:
        raise Unclear("topics were created, altered or deleted")
    states = {log: log.capture_at(ends[log]) for log in logs}  # before the files: this reads them, too
    with _counted_descriptors(ends):
        files = {log: _open(store, log, ends[log], found, known) for log in logs}
    again = _read_catalogue(store, ends)
    if (again.sealed, again.topics) != (found.sealed, found.topics):
        raise Unclear("segments were sealed or replaced")
    frozen = [_freeze_log(log, states[log], again, files[log]) for log in logs]
    return Frozen(database_id=store.database_id, next_producer_id=again.next_producer_id, logs=frozen)


def _read_catalogue(store: "Store", ends: Ends) -> _Catalogued:
    def read(txn: ReadTransaction) -> _Catalogued:
        topics, entries, sealed = txn.topics(), {(entry.topic, entry.partition): entry for entry in txn.logs()}, {}
        pending = [intent for _, intent in txn.intents()]
        for log, view in ends.items():
            if (log.topic, log.partition) not in entries:
                raise UnknownTopic(log.topic)
            if any(replacement_intent.concerns(intent, log.topic, log.partition) for intent in pending):
                raise Unclear(f"{log.topic}-{log.partition}: segments are being replaced")
            last = -1 if view.active is None else view.active.base_offset
            named = (segment for segment in txn.segments(log.topic, log.partition) if segment.base_offset < last)
            sealed[log] = tuple(segment._replace(sidecar=None) for segment in named)
        return _Catalogued(topics, {log: entries[log.topic, log.partition] for log in ends}, sealed, txn.next_producer_id())

    return store.catalogue.read(read)


# ---------------------------------------------------------------- the files of a log


def _open(store: "Store", log: TailLog, view: LogView, found: _Catalogued, known: Known) -> dict[str, File | bytes]:
    """The files to read of a log, by path."""
    held_files: dict[str, File | bytes] = {}
    if view.active is None:
        return held_files
    topic, sealed = found.topics[log.topic], {segment.base_offset: segment for segment in found.sealed[log]}
    unneeded = known.get((topic.topic_id, log.partition), ())
    for segment in view.segments[:-1]:
        named = sealed.pop(segment.base_offset, None)
        if segment.suffix or (named or segment).next_offset != segment.next_offset or (named or segment).size_bytes != segment.size_bytes:
            raise Unclear(f"{segment.path} was replaced")
        if named is None and segment.scanner is None:
            raise Unclear(f"{segment.path} was removed")
        index_path = segment_path(log.directory, segment.base_offset, ".txnindex")
        if named is None:
            held_files[index_path] = segment.transactions.below(segment.next_offset)
        elif named.aborted_count and named not in unneeded:
            held_files[index_path] = File(store.io, index_path, os.O_RDONLY)
        if named is None or named not in unneeded:
            held_files[segment.path] = segment.open()
    if sealed:
        raise Unclear(f"{log.topic}-{log.partition}: segments were replaced")
    held_files[view.active.path] = view.active.open()
    return held_files


@contextlib.contextmanager
def _counted_descriptors(ends: Ends) -> Iterator[None]:
    """Say how many descriptors the files need, if the process may not have that many: the limit is the program's to raise."""
    try:
        yield
    except ReadFailed as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in (EMFILE, ENFILE):
            raise
        needed = 2 * sum(len(view.segments) for view in ends.values())  # a log and its .txnindex
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise ReadFailed(
            error.path,
            error.position,
            f"{error.reason}: a backup beside the writer needs up to {needed} descriptors, and this process may have {limit} (ulimit -n); "
            "after a higher limit a retry is safe",
        ) from error


def _freeze_log(log: TailLog, state: Captured, found: _Catalogued, files: Mapping[str, File | bytes]) -> FrozenLog:
    view, entry = state.view, found.entries[log]
    if entry.start_offset > view.written_offset:
        raise Unclear(f"{log.topic}-{log.partition}: records were deleted")
    if view.active is not None and view.active.base_offset == entry.recovery_segment:
        view.active.created_ms, view.active.append_ms = entry.segment_created_ms, entry.segment_append_ms
    state = state._replace(view=view._replace(epochs=view.epochs.until(view.written_offset)))
    named = {segment.base_offset: segment for segment in found.sealed[log]}
    sealed = tuple(named.get(segment.base_offset) or _entry_of(log, segment, files) for segment in view.segments[:-1])
    frozen = freeze_log(found.topics[log.topic], entry, log.directory, state, sealed)
    return replace(frozen, held=files)


def _entry_of(log: TailLog, segment: Segment, files: Mapping[str, File | bytes]) -> SegmentEntry:
    """The entry of a segment that the writer has rolled and not sealed yet."""
    crc, file = 0, files[segment.path]
    assert isinstance(file, File)
    for piece in file.pieces(buffers.READ_SIZE_BYTES, stop=segment.size_bytes):
        crc = crc32c(piece, crc)
    return segment_entry(log.topic, log.partition, segment, crc)
