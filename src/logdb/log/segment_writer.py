"""Writes buffers of batches into the segments of a log, and begins new segments.

Each step is published as a new view of the log, by one assignment.

Threading: ``write`` runs under the builder's write lock.  ``lock`` is held wherever a view is published.
"""

import logging
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from logdb.codec import convert, last_offset, split
from logdb.disk import write_error
from logdb.errors import DiskFull, LogdbError
from logdb.io import IO
from logdb.log import epochs as epochs_file
from logdb.log import producer_snapshot
from logdb.log.epochs import LeaderEpochs
from logdb.log.host import Host
from logdb.log.preallocation import Pace
from logdb.log.producers import ProducerStates
from logdb.log.recovery_point import Point, RecoveryPointFile
from logdb.log.retention import born_ms
from logdb.log.transactions import LogTransactions
from logdb.log.view import LogView
from logdb.model import OFFSET_MAX, LogConfig, TopicPartition
from logdb.segment.segment import Segment

if TYPE_CHECKING:
    from logdb.log.log import Log

logger = logging.getLogger(__name__)

NOTE_SIZE_BYTES = 8 << 20  # written, and so to be checked after a crash of the process, at most
_FREE_WAIT_S = 1  # for the write of another log, whose reserved space a full disk needs


class SegmentWriter:
    """The writing side of a log's files; ``LogSync`` syncs them.

    | field                 | who changes it                     | under which lock         | when it may be trusted                     |
    |-----------------------|------------------------------------|--------------------------|--------------------------------------------|
    | ``Log.view``          | see ``log.view``                   | ``lock``                 | always: it is one value                    |
    | ``config``, ``codec`` | ``Log.configure``                  | none                     | from the next batch on                     |
    | ``following``         | a leader's batch; a new epoch      | the append lock          | true: batches are written as they came     |
    | ``transactions``      | the first batch of a producer; a   | ``LogSync.lock``         | under the append lock; before, until it is |
    |                       | truncation                         |                          | ``superseded``; None: there was no batch   |
    | ``sealing``           | a roll; a checkpoint               | ``lock``; the store's    | sealed segments that the catalogue does    |
    |                       |                                    | checkpoint               | not name yet                               |
    | ``point``             | a truncation                       | ``LogSync.lock``         | always: the file of the recovery point     |
    | ``epochs_unsynced``   | a roll of an empty log; a sync     | ``LogSync.lock``, or     | false: the file is durable                 |
    |                       |                                    | ``lock``                 |                                            |
    | ``_tried``            | a write; a truncation              | the builder's write lock | until its buffer is written                |
    | ``_noted_position``   | a write, a roll; a truncation      | ``lock``                 | under it                                   |
    | ``_pace``             | a write, a roll; a truncation      | ``lock``                 | its ``due_ms`` is a hint for the flusher   |
    """

    def __init__(
        self,
        log: "Log",
        *,
        io: IO,
        host: Host,
        config: LogConfig,
        point: RecoveryPointFile,
        unsealed: Sequence[Segment],
        transactions: LogTransactions | None,
    ) -> None:
        self._log, self._io, self._host, self._directory = log, io, host, log.directory
        self._reserve, self._budget = host.reserve, host.preallocation
        self.config, self.codec, self.following = config, 0, False
        self.lock = threading.Lock()
        self._begin(log.view, point, unsealed, transactions)

    def _begin(self, view: LogView, point: RecoveryPointFile, unsealed: Sequence[Segment], transactions: LogTransactions | None) -> None:
        self.point, self.transactions, self.sealing = point, transactions, list(unsealed)
        self.epochs_unsynced = False
        self._noted_position = view.written_position
        self._pace = Pace(view.written_position, self._io.monotonic_ms())
        # Of the buffer that is written: base offset, codec, max.message.bytes, and room in the segment.
        self._tried = (-1, 0, 0, 0)

    def publish(self, **changes: Any) -> None:
        """Let readers see a view that differs from the latest one by ``changes``; under ``lock``."""
        self._log.view = self._log.view._replace(**changes)

    def restart(self, view: LogView, point: RecoveryPointFile, unsealed: Sequence[Segment], transactions: LogTransactions | None) -> None:
        """Go on with what a truncation has left, before its view is published; under the append lock, ``LogSync.lock`` and ``lock``."""
        if self.transactions is not None:
            self.transactions.superseded = True
        self.point.retire()
        self._budget.release(self)
        self._begin(view, point, unsealed, transactions)

    # ------------------------------------------------------------ writing

    def write(self, batches: memoryview, base_offset: int, next_offset: int, now_ms: int) -> None:
        """The builder's hook ``_write``: write a buffer of batches; tried again with the same bytes if it raises."""
        if self._log.refuses_writes:
            raise self._host.refusal(self._log)
        if self._reserve.spender:
            self._reserve.check(self._directory, len(batches))
        try:
            with self.lock:
                self._write(batches, base_offset, next_offset, now_ms)
        except DiskFull:
            if not self._budget.free_all():
                raise
            with self.lock:
                self._write(batches, base_offset, next_offset, now_ms)
        self._log.wake()

    def _write(self, batches: memoryview, base_offset: int, next_offset: int, now_ms: int) -> None:
        if base_offset != self._tried[0]:
            codec, config = 0 if self.following else self.codec, self.config
            room = config.segment_bytes - self._log.view.written_position  # in the active segment
            self._tried = (base_offset, codec, config.max_message_bytes, room if room > 0 else config.segment_bytes)
        # A retry writes the same bytes and rolls at the same places, even if the config has changed.
        _, codec, size_bytes_max, room = self._tried
        if codec:
            batches = self._compressed(batches, codec, size_bytes_max)
        parts = [batches] if len(batches) <= room else split(batches, room)
        for part in parts:
            part_next = next_offset if part is parts[-1] else last_offset(part) + 1
            view = self._log.view
            if part_next <= view.written_offset:  # an earlier try has written it
                continue
            segment = view.segments[-1] if view.segments else None
            try:
                if segment is not None and not (segment.whole and segment.size_bytes == view.written_position):
                    self.make_whole(segment)
                if segment is None or self._must_roll(segment, len(part), part_next, now_ms):
                    segment = self.roll(now_ms)
                segment.append_ms = now_ms  # first: retention may look at any moment, and must not find new records in an old segment
                if self.config.durability == "fsync" and segment.size_bytes + len(part) > segment.room_bytes:
                    self._reserve_space(segment, len(part))
                segment.append(part, part_next)
            except OSError as error:
                raise write_error(segment.path if segment else self._directory, len(part), error) from error
            if not self._log.syncs.unsynced_since_ms:
                self._log.syncs.unsynced_since_ms = self._io.monotonic_ms()
                self._host.wake_syncer(self._log)
            if self.transactions is not None and self.transactions.pending:
                with self.transactions.lock:
                    unstable = self.transactions.advance(part_next, segment.transactions)
                    self._publish_written(part_next, segment.size_bytes, unstable)
            else:
                self._publish_written(part_next, segment.size_bytes, self._log.view.unstable_offset)
            if segment.size_bytes - self._noted_position >= NOTE_SIZE_BYTES:
                self._noted_position = segment.size_bytes
                segment.note_indexes()
                self.point.note(written=Point(segment.base_offset, part_next, segment.size_bytes))
                self._host.wake_syncer(self._log)  # it sleeps until a time; much data is due at once

    def _reserve_space(self, segment: Segment, size_bytes: int) -> None:
        """Before a write of so many bytes that extends the file: reserve space for later ones, too, if there were many of late."""
        end = segment.size_bytes + size_bytes
        wanted = self._pace.lately(end, self._io)
        if not wanted:
            if self._pace.due_ms is not None:  # the last step is used up
                self._budget.release(self)
                self._pace.due_ms = None
            return
        now_ms, granted = self._io.monotonic_ms(), self._budget.grant(self, wanted, self._directory)
        if granted and segment.reserve(end + granted):
            self._pace.reserved(self._log.view.written_offset, now_ms)
        else:
            self._budget.release(self)
            self._pace.restart(end, now_ms)

    @property
    def idle_due_ms(self) -> int | None:
        """When to look whether reserved space is still needed, on the monotonic clock; None: there is none."""
        return self._pace.due_ms

    def free_idle_space(self) -> None:
        """Free the reserved space of a log that is not written to any more."""
        with self.lock:
            if self._pace.is_idle(self._log.view.written_offset, self._io.monotonic_ms()):
                self._free_space()

    def free_space(self) -> bool:
        """Free the reserved space: a disk is full; the caller holds no ``lock``.  False: there was none, or it could not be freed."""
        if not self.lock.acquire(timeout=_FREE_WAIT_S):
            return False
        try:
            return self._free_space()
        finally:
            self.lock.release()

    def _free_space(self) -> bool:
        """Under ``lock``."""
        self._pace.due_ms = None
        segment = self._log.view.active
        if not self._budget.release(self) or segment is None or segment.scanner is None:
            return False
        try:
            self.make_whole(segment)
            segment.trim()
        except LogdbError as error:  # the next roll, or the close, tries again
            logger.debug("freeing the reserved space of %s: %s", segment.path, error)
            return False
        return True

    def forget_space(self) -> None:
        """The log is closed, or deleted."""
        self._budget.release(self)

    def _publish_written(self, written_offset: int, written_position: int, unstable_offset: int) -> None:
        """As ``publish``, which takes three times as long."""
        view = self._log.view
        self._log.view = LogView(
            view.segments,
            view.start_offset,
            written_offset,
            written_position,
            view.flushed,
            view.epochs,
            unstable_offset,
            view.high_watermark,
        )

    def _compressed(self, batches: memoryview, codec: int, size_bytes_max: int) -> memoryview:
        """Compress batches; if the codec fails, return them as they are, because their records were accepted."""
        try:
            return memoryview(convert.compress_batches(batches, codec, size_bytes_max=size_bytes_max))
        except Exception as error:  # any error of a package, or no memory
            base_offset = self._tried[0]
            if self._log.view.written_offset > base_offset:  # an earlier try has written some of them compressed
                raise
            self._tried = (base_offset, 0, 0, self._tried[3])
            logger.warning(
                "%s-%d: batches are written uncompressed: %s", self._log.topic, self._log.partition, str(error) or type(error).__name__
            )
            return batches

    def make_whole(self, segment: Segment) -> None:
        """Repair the end of a segment after an exception from outside interrupted a write."""
        view = self._log.view
        if not segment.whole or segment.size_bytes != view.written_position:
            segment.restore(view.written_position, view.written_offset)

    def withdraw(self, first: int, next_offset: int) -> bool:
        """The builder's hook ``_withdraw``: let records of a call that failed go, unless some are written or others depend on them.

        What a short write has left of them in the file is cut off: a recovery would take it for records.  If the buffer that waits is
        written in part, because the segment was rolled in between, all of it stays: a retry divides it as before.
        """
        if self._log.high_watermark_file is not None:
            return False  # a node of a cluster notices its full disk by what waits, and gives the partition away
        with self.lock:
            view = self._log.view
            if view.written_offset > min(first, self._log.drained_offset):
                return False
            segment = view.active
            if segment is not None and segment.scanner is not None:
                self.make_whole(segment)
                segment.trim()
            if view.written_offset <= self._tried[0]:
                self._tried = (-1, 0, 0, 0)
        return self.transactions is None or self.transactions.withdraw(first, next_offset)

    def ensure_transactions(self) -> LogTransactions:
        """The log's ``LogTransactions``; before they are made, the catalogue notes durably that the log has producers."""
        if (known := self.transactions) is not None:
            return known
        log = self._log
        with log.syncs.lock:
            if self.transactions is None:
                offset = log.view.flushed.offset
                producer_snapshot.save(self._io, self._directory, offset, ProducerStates(), {})
                self._host.note_producers(log, offset)
                self.transactions = LogTransactions(TopicPartition(log.topic, log.partition), ProducerStates(), (offset,), offset)
            return self.transactions

    # ------------------------------------------------------------ segments

    def _must_roll(self, segment: Segment, size_bytes: int, next_offset: int, now_ms: int) -> bool:
        config = self.config
        scanner = segment.scanner
        return segment.size_bytes > 0 and (
            segment.size_bytes + size_bytes > config.segment_bytes
            or now_ms - segment.created_ms >= config.segment_ms
            or 0 <= config.retention_ms < now_ms - born_ms(segment)  # retention may remove all of it, unless this record makes it younger
            or next_offset - segment.base_offset > 2**31 - 1
            or (scanner is not None and len(scanner.index) + 8 > config.segment_index_bytes)
        )

    def roll(self, now_ms: int) -> Segment:
        """Begin a new active segment where the log was written to; the old one is sealed in the background.  Under ``lock``."""
        view, base_offset = self._log.view, self._log.view.written_offset
        if not view.epochs.entries:
            epochs = view.epochs.begun(self._log.leader_epoch, base_offset)
            self._save_epochs(epochs, sync=False)  # first: after an error, or a Ctrl-C, the next try begins the epoch
            self.publish(epochs=epochs)
        if view.segments:
            view.segments[-1].trim()
            self._budget.release(self)
            self._pace.rolled(view.written_position)
        segment = Segment(self._io, self._directory, base_offset, writable=True, index_interval_bytes=self.config.index_interval_bytes)
        segment.create(now_ms)
        older = view.segments
        while older and older[-1].base_offset >= base_offset:  # of an interrupted roll
            older = older[:-1]
        if older and older[-1] not in self.sealing:
            self.sealing.append(older[-1])
        self._noted_position = 0
        self.publish(segments=(*older, segment), written_position=0)
        if older:
            self._host.wake_syncer(self._log)
        return segment

    def save_epochs(self) -> None:
        """Make the file of the leader epochs durable."""
        self._save_epochs(self._log.view.epochs, sync=True)

    def _save_epochs(self, epochs: LeaderEpochs, *, sync: bool) -> None:
        path = os.path.join(self._directory, epochs_file.FILE_NAME)
        epochs_file.save(self._io, path, epochs, sync=sync)
        self.epochs_unsynced = not sync


def unstable_offset(transactions: LogTransactions | None) -> int:
    """The first offset of the oldest open transaction, as written; OFFSET_MAX without one."""
    first = None if transactions is None else transactions.written.first_unstable
    return OFFSET_MAX if first is None else first
