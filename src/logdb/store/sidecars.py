"""Parquet sidecars of sealed segments: which ones to make, the steps that make one durable, their removal.

``codec.parquet`` has the file's layout, ``store.tiers`` reads sidecars.  The steps:

    .tmp written, synced -> renamed to the name with its CRC -> the directory synced
    -> the catalogue has it with its segment (the commit point)

A thread of its own (``logdb-parquet``) starts with the first topic that has the config ``logdb.parquet``; pyarrow is imported for
the first segment.

Threading: one sidecar is made at a time, by the background or by a caller of ``make``, for which the background does not
pause.  No lock is held that appends or reads wait for.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logdb.codec import crc32c
from logdb.disk import File, sync_directory, write_error
from logdb.errors import Closed, LogdbError, ReadOnly, UnknownPartition, UnknownTopic
from logdb.io import IO
from logdb.log.log import Log
from logdb.log.sealed import sidecar_path, unfinished_sidecar_path
from logdb.meta import SegmentEntry, Sidecar, WriteTransaction
from logdb.model import RAW_TABLE, TABLE_MODE, TOPIC_CONFIGS, Buffer, ConfigValue, TopicPartition
from logdb.requests.report import Progress
from logdb.store.entries import Entries
from logdb.store.housekeeping import UNTIL_ASKED, Housekeeping
from logdb.store.state import StoreState
from logdb.threads import renewed

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)

CONFIG = "logdb.parquet"
_INTERVAL_MS = 15_000
_CHECK_SIZE_BYTES = 1 << 20
_END_SIZE_BYTES = 8


class MadeSidecars(NamedTuple):
    """The result of ``make`` for one partition.

    ``made``: the number of new files.  ``damaged``: the number of damaged or missing ones, removed from the catalogue.  ``file_count``
    and ``size_bytes``: of all present ones.  ``stable_offset``: the last stable offset; no later segment has one.
    """

    topic: str
    partition: int
    made: int
    damaged: int
    file_count: int
    size_bytes: int
    stable_offset: int


class Sidecars:
    """The sidecars of a store that is open for writing."""

    def __init__(
        self, state: StoreState, entries: Entries, log: Callable[[str, int], Log], checkpoint: Callable[[Sequence[Log]], None]
    ) -> None:
        """It starts with ``consider`` or ``make``.

        Args:
            log: Opens a log.
            checkpoint: Seals rolled segments.
        """
        self._state, self._io, self._entries, self._log, self._checkpoint = state, state.io, entries, log, checkpoint
        self.background = Housekeeping(state.io, "logdb-parquet")
        self.background.add("parquet", self._round, interval_ms=_INTERVAL_MS, needed=is_wanted)
        self._making = renewed(threading.Lock())
        self._waiting_count = 0  # callers of ``make``
        self._stopping = False
        self.made: Callable[[], None] = lambda: None  # a round has made sidecars

    def stop(self) -> None:
        """End the thread, and running work before its next write; none begins afterwards."""
        self._stopping = True
        self.background.stop()
        with self._making:
            pass

    # ------------------------------------------------------------ now, and in the background

    def make(self, topic: str, partition: int, progress: Progress | None = None) -> MadeSidecars:
        """Roll the active segment, check the present sidecars, and make the missing ones; in the caller's thread."""
        name, log = TopicPartition(topic, partition), self.seal(topic, partition)
        self._waiting_count += 1
        try:
            dropped = self._drop_damaged(log)
            made = self._make_missing(log, progress)
        finally:
            self._waiting_count -= 1
        there = [named.sidecar for named in self._state.catalogue.segments(*name) if named.sidecar is not None]
        size_bytes = sum(sidecar.size_bytes for sidecar in there)
        return MadeSidecars(topic, partition, made, dropped, len(there), size_bytes, log.last_stable_offset)

    def seal(self, topic: str, partition: int) -> Log:
        """Roll and seal the active segment of a partition; returns its log."""
        name, log = TopicPartition(topic, partition), self._log(topic, partition)
        if log.read_only_reason is not None:
            raise ReadOnly(f"{name} is read-only: {log.read_only_reason}")
        log.flush()
        log.roll()
        self._checkpoint([log])
        return log

    def altered(self) -> None:
        """A segment of a log with sidecars was sealed, or a topic has other configs."""
        self.background.ask("parquet")

    def _round(self) -> float | None:
        """Make the missing sidecars of all topics with the config; raises the error of the first failed log, after all others were handled.

        Returns:
            None if some cannot be made yet.
        """
        failure: Exception | None = None
        missing = False
        for topic in self._state.catalogue.topics().values():
            for partition in range(topic.partition_count) if is_wanted(topic.config) else ():
                try:
                    entry, sealed = self._state.catalogue.view(topic.name, partition)
                    wanted = sum(named.sidecar is None for named in sealed) if entry.read_only_reason is None else 0
                    missing |= wanted > 0 and self._make_missing(self._log(topic.name, partition)) < wanted
                except (UnknownTopic, UnknownPartition):  # deleted meanwhile
                    break
                except Closed:
                    return None
                except LogdbError as error:
                    failure = failure or error
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback has this frame
            self.made()
        return None if missing else UNTIL_ASKED

    def _make_missing(self, log: Log, progress: Progress | None = None) -> int:
        """Make the missing sidecars of a log; returns their number."""
        due = self._due(log)
        total_bytes, done_bytes, made = sum(named.size_bytes for named in due), 0, 0
        for named in due:
            with self._making:
                made += self._make(log, named, hurried=bool(self._waiting_count))
            done_bytes += named.size_bytes
            if progress is not None:
                progress(done_bytes, total_bytes, str(TopicPartition(log.topic, log.partition)))
        return made

    def _due(self, log: Log) -> list[SegmentEntry]:
        """The sealed segments without a sidecar that may have one: their transactions have ended, durably."""
        stable_offset = log.view.last_stable_offset
        if log.had_producers:
            log.sync()  # the end of the transactions below it must be durable before their records are
        limit, start_offset = min(log.view.flushed.offset, stable_offset), log.start_offset
        return [
            named
            for named in self._state.catalogue.segments(log.topic, log.partition)
            if named.sidecar is None and named.base_offset >= start_offset and named.next_offset <= limit
        ]

    def _drop_damaged(self, log: Log) -> int:
        """Remove damaged sidecars from the catalogue; returns their number."""
        dropped = 0
        for named in self._state.catalogue.segments(log.topic, log.partition):
            if named.sidecar is not None:
                with self._making:  # a sidecar that is made beside the removal has the same name
                    dropped += self._drop_if_damaged(log, named)
        return dropped

    def _drop_if_damaged(self, log: Log, named: SegmentEntry) -> bool:
        wrong = self._damage(log.directory, named)
        if wrong is None or not self._commit(log, named, None):
            return False
        path = sidecar_path(log.directory, named)
        logger.warning("%s: %s; it is rebuilt", path, wrong)
        remove_files(self._io, [path])
        return True

    def _damage(self, directory: str, named: SegmentEntry) -> str | None:
        self._check_stopping()
        return damage(self._io, directory, named)

    def _check_stopping(self) -> None:
        if self._stopping:
            raise Closed("the database is being closed: not every sidecar was made")

    # ------------------------------------------------------------ one sidecar

    def _make(self, log: Log, named: SegmentEntry, *, hurried: bool) -> bool:
        """Make the sidecar of one segment; False if the segment was replaced meanwhile, or another thread has made its sidecar."""
        if self._state.catalogue.read(lambda txn: txn.segment(named.topic, named.partition, named.base_offset)) != named:
            return False  # the other thread's file has the name that this one would have
        path = unfinished_sidecar_path(log.directory, named.base_offset)
        try:
            sidecar = self._write(log, named, path, hurried=hurried)
            made = named._replace(sidecar=sidecar)
            with self._state.checkpoint_lock:
                self._check_current(log)
                self._io.rename(path, sidecar_path(log.directory, made))
            sync_directory(self._io, log.directory)
        except BaseException as error:
            remove_files(self._io, [path])
            if isinstance(error, OSError):
                raise write_error(path, 0, error) from error
            raise
        if not self._commit(log, named, sidecar):
            remove_files(self._io, [sidecar_path(log.directory, made)])
            return False
        return True

    def _check_current(self, log: Log) -> None:
        """Check, under the checkpoint lock, that the log's directory still belongs to the topic."""
        self._state.check_writable()
        if not self._state.is_current(log):
            raise UnknownTopic(log.topic)  # deleted meanwhile

    def _write(self, log: Log, named: SegmentEntry, path: str, *, hurried: bool) -> Sidecar:
        """Write and sync the file of a segment's records."""
        from logdb.codec import parquet  # few programs need it

        begin, end = named.base_offset, named.next_offset
        file = File(self._io, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        sink = _Sink(file)
        metadata = {
            "logdb.format": 1,
            "logdb.topic": named.topic,
            "logdb.partition": named.partition,
            "logdb.base_offset": begin,
            "logdb.next_offset": end,
            "logdb.segment_size_bytes": named.size_bytes,
            "logdb.segment_crc": named.crc,
        }
        committed_only = bool(log.aborted_transactions(begin, end))
        batches = log.read_arrow(begin, end_offset=end, columns=parquet.LOG_COLUMNS, isolation_level="read_committed", use_threads=False)
        try:
            texts = {key: str(value) for key, value in metadata.items()}
            parquet.write(sink, self._paced(batches, hurried=hurried), named.topic, named.partition, texts)
        finally:
            sink.finished = True  # a writer that is interrupted would write a footer when it is deleted
        file.sync()
        footer_size_bytes = parquet.footer_size(file.read(_END_SIZE_BYTES, sink.size_bytes - _END_SIZE_BYTES))
        footer = file.read(footer_size_bytes, sink.size_bytes - footer_size_bytes)
        return Sidecar(sink.size_bytes, sink.crc, footer_size_bytes, crc32c(footer), committed_only)

    def _paced(self, batches: "Iterator[pyarrow.RecordBatch]", *, hurried: bool) -> "Iterator[pyarrow.RecordBatch]":
        """The batches; the background pauses for half of the time."""
        begun_ms = self._io.monotonic_ms()
        for batch in batches:
            yield batch
            self._check_stopping()
            if not hurried and not self._waiting_count:
                self.background.pause(self._io.monotonic_ms() - begun_ms)
            begun_ms = self._io.monotonic_ms()

    def _commit(self, log: Log, named: SegmentEntry, sidecar: Sidecar | None) -> bool:
        """Set or remove a segment's sidecar in the catalogue; False if its entry has changed meanwhile."""

        def put(txn: WriteTransaction) -> bool:
            if txn.segment(named.topic, named.partition, named.base_offset) != named:
                return False
            txn.put_segment(named._replace(sidecar=sidecar))
            return True

        with self._state.checkpoint_lock:
            self._check_current(log)
            return self._state.catalogue.write(put)


class _Sink:
    """The target of pyarrow's writes, through ``IO``, sequential; computes size and CRC-32C."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size_bytes = self.crc = 0
        self.closed = self.finished = False

    def write(self, data: Buffer) -> int:
        """Write the next bytes; ignored once ``finished``."""
        size_bytes = len(data)
        if not self.finished:
            self._file.write(data, self.size_bytes)
            self.crc = crc32c(data, self.crc)
            self.size_bytes += size_bytes
        return size_bytes

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The caller closes the file."""


# ---------------------------------------------------------------- files of sidecars


def is_wanted(config: Mapping[str, ConfigValue]) -> bool:
    """Whether a topic with these configs has sidecars."""
    return bool(config.get(CONFIG, TOPIC_CONFIGS[CONFIG].default)) or config.get(TABLE_MODE) == RAW_TABLE


def damage(io: IO, directory: str, named: SegmentEntry) -> str | None:
    """The problem of a sidecar's file, read completely; None without one."""
    assert named.sidecar is not None
    try:
        file = File(io, sidecar_path(directory, named), os.O_RDONLY)
    except FileNotFoundError:
        return "the file is missing"
    with file:
        size_bytes = crc = 0
        for part in file.pieces(_CHECK_SIZE_BYTES):
            size_bytes, crc = size_bytes + len(part), crc32c(part, crc)
    if (size_bytes, crc) == (named.sidecar.size_bytes, named.sidecar.crc):
        return None
    return f"{size_bytes} bytes with CRC {crc:08x}; the catalogue says {named.sidecar.size_bytes} and {named.sidecar.crc:08x}"


def footer_damage(io: IO, directory: str, named: SegmentEntry) -> str | None:
    """The problem of a sidecar's size or footer, which no page checksum covers; None without one."""
    assert named.sidecar is not None
    size_bytes, _, footer_size_bytes, footer_crc, _ = named.sidecar
    try:
        file = File(io, sidecar_path(directory, named), os.O_RDONLY)
    except FileNotFoundError:
        return "the file is missing"
    with file:
        found_bytes = file.size_bytes()
        found_crc = crc32c(file.read(footer_size_bytes, max(0, found_bytes - footer_size_bytes)))
    if (found_bytes, found_crc) == (size_bytes, footer_crc):
        return None
    return f"{found_bytes} bytes and a footer with CRC {found_crc:08x}; the catalogue says {size_bytes} and {footer_crc:08x}"


def remove_files(io: IO, paths: Sequence[str]) -> None:
    """Remove unnamed files; the next opening removes what remains."""
    for path in paths:
        try:
            io.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.warning("%s could not be removed: %s", path, error)
