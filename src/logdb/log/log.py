"""One partition's log: its writer.

The catalogue, and the threads that flush, belong to its ``Host``.

    BatchBuilder    C: append, append_many; hands full buffers of batches to its hook ``_write``, the ``SegmentWriter``'s ``write``
    ReadableLog     where it ends, and reading it (readable.py)
      AppendableLog     batches that come ready-made (appending.py)
        FollowingLog      leading and following: leader epochs, batches of a leader (following.py)
          Log               its parts together; its state (states.py); rolls, truncation
            SegmentWriter     writes the buffers into segments (segment_writer.py)
            LogSync           what is durable: syncs and checkpoints (log_sync.py)

Threading: any number of threads.  A change is published as a ``LogView`` by one assignment, after which readers may see it.
``log.view`` says which lock is held for what.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from logdb.codec import FSYNC, OS, BatchBuilder, Positions, compression
from logdb.disk import sync_directory, write_error
from logdb.errors import (
    CodecMissing,
    DiskFull,
    InvalidRecord,
    InvalidTimestamp,
    LogdbError,
    PolicyViolation,
    RecordTooLarge,
    SyncFailed,
    UnexpectedOffset,
    WriteFailed,
)
from logdb.io import IO
from logdb.log import high_watermark, producer_snapshot
from logdb.log.appending import GROUP_SIZE_BYTES
from logdb.log.epochs import LeaderEpochs
from logdb.log.following import FollowedLeader, FollowingLog
from logdb.log.high_watermark import HighWatermarkFile
from logdb.log.host import Captured, Host
from logdb.log.log_sync import LogSync
from logdb.log.producers import Producer
from logdb.log.readable import ReadableLog
from logdb.log.recovery_point import Point, RecoveryPointFile
from logdb.log.segment_writer import SegmentWriter, unstable_offset
from logdb.log.states import ALLOWS, TRANSITIONS, WriterEvent, WriterState
from logdb.log.transactions import LogTransactions
from logdb.log.view import LogView
from logdb.model import (
    COMPRESSION_TYPES,
    DURABILITY_LEVELS,
    OFFSET_MAX,
    AbortedTransaction,
    LogConfig,
    OpenTransaction,
    accepted_timestamps,
)
from logdb.segment.files import FileHolder
from logdb.segment.segment import Segment
from logdb.threads import renew

if TYPE_CHECKING:
    from logdb.log.recovery import Recovered

T = TypeVar("T")

logger = logging.getLogger(__name__)

WRITE_SIZE_BYTES = 128 << 10  # one write(2) for each 16 KiB would halve the speed
_REFUSING = 1  # to the builder: it takes no records
_CLIENTS_REFUSED = -1  # records of clients; a leader's batches are taken


class Log(FollowingLog):
    """One partition: append records, read them back.  Made by ``Database.log``.

    | field                  | who changes it                            | under which lock       | when it may be trusted              |
    |------------------------|-------------------------------------------|------------------------|-------------------------------------|
    | ``view``               | see ``log.view``                          | see there              | always: it is one value             |
    | ``state``              | ``_change``: see ``log.states``           | ``_state_lock``        | always                              |
    | ``_refusing``,         | ``_change``: what ``state`` allows        | the same               | each append asks the one, each      |
    | ``refuses_writes``     |                                           |                        | write the other                     |
    | ``interrupted``        | the same                                  | the same               | true: the files are not the log's   |
    | ``writer``, ``syncs``, | never; what they have: their own tables   | see there              | see there                           |
    | ``fsync_only``         |                                           |                        |                                     |
    | ``is_held``            | ``alone``                                 | ``syncs.lock`` to set  | true: ``roll`` does nothing         |
    | ``high_watermark_file``| never; what it says: its own table        | see there              | None: the log is not replicated     |
    | ``_followed``          | see ``FollowingLog``                      | the append lock        | not None: records of clients are    |
    |                        |                                           |                        | refused, from its change on         |
    """

    def __init__(
        self,
        *,
        io: IO,
        clock: Callable[[], int] | None,
        host: Host,
        directory: str,
        topic: str,
        topic_id: str,
        partition: int,
        config: LogConfig,
        batch_size: int,
        segments: Sequence[Segment],
        epochs: LeaderEpochs,
        point: RecoveryPointFile,
        start_offset: int,
        next_offset: int,
        fsync_only: bool,
        checkpointed: Point,
        unsealed: Sequence[Segment] = (),
        transactions: LogTransactions | None = None,
        high_watermark_file: HighWatermarkFile | None = None,
        read_only_reason: str | None = None,
    ) -> None:
        BatchBuilder.__init__(
            self,
            next_offset=next_offset,
            leader_epoch=epochs.latest,
            batch_size=min(batch_size, config.max_message_bytes),
            write_size=min(WRITE_SIZE_BYTES, config.segment_bytes),
            group_size=GROUP_SIZE_BYTES,
            clock=clock,
        )
        view = LogView(
            segments=tuple(segments),
            start_offset=start_offset,
            written_offset=next_offset,
            written_position=segments[-1].size_bytes if segments else 0,
            flushed=point.point,
            epochs=epochs,
            unstable_offset=unstable_offset(transactions),
            high_watermark=OFFSET_MAX if high_watermark_file is None else high_watermark_file.offset,
        )
        ReadableLog.__init__(
            self,
            host=host,
            directory=directory,
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            config=config,
            view=view,
            read_only_reason=read_only_reason,
        )
        self.fsync_only = fsync_only
        self._io, self._batch_size = io, batch_size
        self.high_watermark_file = high_watermark_file
        self.follows = high_watermark_file is not None
        self._followed = FollowedLeader(None, epochs.latest) if self.follows else None
        self._high_watermark_epoch = -1  # of the leader that has moved it last; under ``SegmentWriter.lock``
        self._replacing = threading.Lock()  # held while files are renamed: a reader that misses a file waits
        self.writer = SegmentWriter(self, io=io, host=host, config=config, point=point, unsealed=unsealed, transactions=transactions)
        self._write = self.writer.write  # type: ignore[method-assign]  # a hook; a method here would only call it
        self._withdraw = self.writer.withdraw  # type: ignore[method-assign]  # the same
        self.syncs = LogSync(self, io, host, checkpointed)
        self.is_held = False  # by ``alone``: the active segment stays
        self._state_lock = threading.Lock()
        self._enter(WriterState.WRITABLE if read_only_reason is None else WriterState.READ_ONLY)
        self._unfinished: str | None = None  # why ``finish`` has failed
        self.configure(config)

    # ------------------------------------------------------------ the view

    def catch_up(self) -> LogView:
        """The latest view, once all records appended so far are written.

        The view lacks records that cannot be written now.  At level fsync
        a group goes out when the one before it is durable, so readers join the next sync.
        """
        if self._next_offset > self.view.written_offset:
            with contextlib.suppress(DiskFull, WriteFailed, SyncFailed):
                if self._commits_groups() and not self._refusing:
                    self._sync_to(self._next_offset)
                else:
                    self._drain()
        return self.view

    def _decided(self) -> LogView:
        return self.view

    stable_view = catch_up

    def _aborted(self, view: LogView, offset: int, end_offset: int) -> list[AbortedTransaction]:
        return super()._aborted(view, offset, end_offset) if self.had_producers else []

    def _replaced(self, view: LogView) -> bool:
        with self._replacing:
            return self.view.segments is not view.segments

    @property
    def last_stable_offset(self) -> int:
        end, transactions = self._next_offset, self.writer.transactions  # the end first: all open transactions below it are then known
        first, view = None if transactions is None else transactions.accepted.first_unstable, self.view
        end = min(end, view.high_watermark)
        return end if first is None else min(max(first, view.start_offset), end)

    def open_transactions(self) -> list[OpenTransaction]:
        return [] if self.writer.transactions is None else self.writer.transactions.accepted.open_transactions()

    def producer(self, producer_id: int) -> Producer | None:
        """A producer as of the end; None: it is unknown."""
        return None if self.writer.transactions is None else self.writer.transactions.accepted.producers.get(producer_id)

    @property
    def had_producers(self) -> bool:
        """Whether a batch of a producer was ever accepted."""
        return self.writer.transactions is not None

    def producers(self) -> list[Producer]:
        """The producers as of the written end, without expired ones."""
        transactions = self.writer.transactions
        if transactions is None:
            return []
        with transactions.lock:
            transactions.written.expire(self.now_ms())
            return list(transactions.written.producers.values())

    def capture(self) -> Captured:
        view, transactions = self.catch_up(), self.writer.transactions
        if transactions is None:  # read after the end: no batch below the end has a producer
            return Captured(view, None, b"")
        with transactions.lock:
            view, producers = self.view, transactions.written.copy()
            if view.written_offset < transactions.written_offset:
                interrupted = f"writing up to offset {transactions.written_offset} was interrupted at {view.written_offset}"
                raise WriteFailed(self.directory, interrupted)
            aborted = b"" if view.active is None else view.active.transactions.below(view.written_offset)
            return Captured(view, producers, aborted)

    # ------------------------------------------------------------ configs, flush

    def flush(self, sync: bool = True) -> None:
        """Return once everything appended so far is durable, or with ``sync=False`` with the operating system.

        Raises:
            DiskFull: There is no room; what was accepted is kept and tried again.
            SyncFailed: Final; the database is read-only until reopened.
            Closed, ReadOnly, Forked: The database takes no writes.
        """
        if self._refusing:
            raise self._host.refusal(self)
        if sync or self._commits_groups():  # at level fsync a group is written only after the last sync
            self._sync_to(self._next_offset)
        else:
            self._drain()

    def _sync_to(self, next_offset: int) -> None:
        """Return once everything below ``next_offset`` is durable; concurrent callers share one sync; raises as ``flush``."""
        if self.view.flushed.offset < next_offset:
            self.syncs.group.commit(next_offset)

    @property
    def is_synced(self) -> bool:
        """Whether a sync has nothing to do: all that was appended is durable, or the level is os."""
        return self._level == OS or self._next_offset <= self.view.flushed.offset

    def commit_to(
        self, offset: int, *, sync: bool = False, leader_epoch: int | None = None, go_on: Callable[[], object] | None = None
    ) -> None:
        """Return once everything below ``offset``, which is written, is committed.

        At level fsync it is committed once it is synced; where the log is replicated, once the high watermark has reached it, too.

        Args:
            sync: It is to be synced at level interval, too.
            leader_epoch: In which its leader waits; None: the latest one.
            go_on: Called while the high watermark is waited for, after each ``wake``; an error that it raises ends the wait.

        Raises:
            FencedLeaderEpoch, UnknownLeaderEpoch: Another epoch is the latest one: only its leader knows what is committed.
            NotLeaderOrFollower: Another node leads.
            DiskFull, SyncFailed, Closed, ReadOnly, Forked: as ``flush``.
        """
        if (self._level == FSYNC or (sync and self._level != OS)) and self.view.flushed.offset < offset:
            if self._refusing:
                raise self._host.refusal(self)
            self.syncs.group.commit(offset)
        if self.high_watermark_file is not None:
            high_watermark.wait(self, offset, leader_epoch, go_on)

    def configure(self, config: LogConfig) -> None:
        """Use other configs from the next batch on."""
        self._config = config
        self._level = DURABILITY_LEVELS.index(config.durability)
        self.writer.config, self.writer.codec = config, COMPRESSION_TYPES.index(config.compression_type)
        self.tell_builder()

    def tell_builder(self) -> None:
        """Tell the builder what holds now: the configs, and whose records are taken; again, if that has changed meanwhile."""
        while True:
            config, refusing, fsync_only = self._config, self._refused_records(), self.fsync_only
            self._codec_missing = None if self._refusing else _missing_codec(config)
            self._configure(
                level=self._level,
                refusing=refusing,
                fsync_only=fsync_only,
                keys_required=config.compacted,
                log_append_time=config.log_append_time,
                timestamp_before_max_ms=config.timestamp_before_max_ms,
                timestamp_after_max_ms=config.timestamp_after_max_ms,
                message_size_max=0 if self._codec_missing else config.max_message_bytes,  # 0: the builder passes every record to _reject
                batch_size=min(self._batch_size, config.max_message_bytes),
            )
            if (config, refusing, fsync_only) == (self._config, self._refused_records(), self.fsync_only):
                return

    def _refused_records(self) -> int:
        return self._refusing or (0 if self._followed is None and not self._config.mirror_of else _CLIENTS_REFUSED)

    def alter(self, config: LogConfig) -> None:
        """As ``configure``.  When this returns, a log that is a mirror no more has all batches of its source that it will ever have."""
        if self.is_mirror and not config.mirror_of:
            self._alone(lambda _next_offset: self.configure(config))
        else:
            self.configure(config)
        self._host.wake_syncer(self)  # flush.ms may be another

    # ------------------------------------------------------------ the high watermark

    def move_high_watermark(self, offset: int, *, leader_epoch: int) -> int:
        """Records below ``offset`` are replicated: readers, compaction and retention may reach up to it.

        A log that is not replicated has no high watermark until one is given: its limit is the log end.

        Args:
            offset: Where a batch begins; past the written end: the written end.
            leader_epoch: Of the leader that reports it.  Within an epoch the high watermark only rises; reports of an older epoch
                are ignored.

        Returns:
            The high watermark as it is now.
        """
        with self.writer.lock:
            view, known = self.view, self._high_watermark_epoch
            offset = max(min(offset, view.written_offset), view.start_offset)
            if leader_epoch < known or (leader_epoch == known and offset <= view.high_watermark):
                return view.high_watermark
            self._high_watermark_epoch, self.view = leader_epoch, view._replace(high_watermark=offset)
        if self.high_watermark_file is not None:
            self._host.wake_syncer(self)
        self.wake()
        return offset

    # ------------------------------------------------------------ hooks of the builder

    def _woken(self) -> None:
        self._host.wake_writer(self)

    def _end_fsync_only(self) -> None:
        if self.fsync_only:
            self._host.end_fsync_only(self)
            self.fsync_only = False
            self.tell_builder()

    def _check_room(self, size_bytes: int, /) -> None:
        """Refuse a large call as a whole, where the disk has no room for all of it: what it compresses to is not known before."""
        if not self.writer.codec and (free_bytes := self._io.free_bytes(self.directory)) < size_bytes:
            raise DiskFull(self.directory, size_bytes, f"{free_bytes} bytes are free")

    def _commit(self, next_offset: int, level: int) -> None:
        """Return once everything below ``next_offset`` is acknowledged at a level."""
        if level == FSYNC:
            self._sync_to(next_offset)
        else:
            self.syncs.commit_in_time()

    def _reject(self, reason: str, *numbers: int) -> None:
        """Raise the error that the builder found."""
        if reason == "refusing" and numbers[0] == _CLIENTS_REFUSED:
            if self._followed is None:
                raise PolicyViolation(
                    f"{self.topic} mirrors another topic: logdb mirror alone appends to it, until its config logdb.mirror.of is deleted"
                )
            raise self.not_leader()
        self._check_codec()
        match reason:
            case "size":
                raise RecordTooLarge(numbers[0], numbers[1])
            case "expected_offset":
                raise UnexpectedOffset(self.topic, self.partition, numbers[0], numbers[1])
            case "timestamp":
                at, now, before, after = numbers
                raise InvalidTimestamp(at, accepted_timestamps(self.topic, now, before, after))
            case "key":
                raise InvalidRecord(f"topic {self.topic} is compacted: every record needs a key (config cleanup.policy)")
        raise self._host.refusal(self)

    # ------------------------------------------------------------ segments

    def created_ms(self, base_offset: int) -> int:
        """When the active segment was begun, milliseconds since 1970, if that is its base offset; else 0."""
        segment = self.view.active
        return segment.created_ms if segment is not None and segment.base_offset == base_offset else 0

    def append_ms(self, base_offset: int) -> int:
        """When the active segment was last appended to, milliseconds since 1970, if that is its base offset; else 0."""
        segment = self.view.active
        return segment.append_ms if segment is not None and segment.base_offset == base_offset else 0

    def roll(self, end_offset: int | None = None) -> bool:
        """Begin a new active segment before the current one is full, so that it is sealed; an empty one is not rolled.

        Args:
            end_offset: Roll only if the log ends there; None: always.

        Returns:
            Whether the segment was rolled; it and the new one are then durable.  A log that is being truncated is not rolled.
        """
        with self.syncs.lock:
            with self.writer.lock:
                active, offset = self.view.active, self.view.written_offset
                is_held = self._closed or self.interrupted or self.is_held
                if is_held or active is None or not self.view.written_position or end_offset not in (None, offset):
                    return False
                try:
                    self.writer.make_whole(active)
                    segment = self.writer.roll(self.now_ms())
                except OSError as error:
                    raise write_error(self.directory, 0, error) from error
            self.syncs.sync_locked()
            if segment.new:
                count = segment.entry_count
                sync_directory(self._io, self.directory)
                segment.entries_synced(count)
            if self.view.flushed.offset == offset:
                point = Point(offset, offset, 0)
                with self.writer.lock:
                    self.writer.publish(flushed=point)
                self.writer.point.note(point=point)
            return True

    def begin_at(self, start_offset: int) -> list[Segment]:
        """Move the log start offset, as the catalogue has it already.

        Returns:
            The sealed segments wholly below it: the log has them no more, but readers of them may go on.
        """
        with self.writer.lock:
            segments = self.view.segments
            gone = [segment for segment in segments[:-1] if segment.next_offset <= start_offset]
            limit = max(self.view.high_watermark, start_offset)
            self.writer.publish(start_offset=start_offset, segments=segments[len(gone) :], high_watermark=limit)
            self.writer.sealing = [segment for segment in self.writer.sealing if segment in self.view.segments]
        self.wake()  # a follower that has to delete, too
        self.remove_old_snapshots()
        self._positions.clear()
        self._cursor = None
        return gone

    def replace(self, old: Sequence[Segment], make: Callable[[], Sequence[Segment]]) -> None:
        """Put other segments, with the same offsets, in the place of sealed ones.

        Args:
            old: Consecutive segments.  A reader of one goes on with it while its file is open, else with the new ones.
            make: Renames the files to their final names, and returns the new segments.
        """
        with self._replacing:
            made = make()
            with self.writer.lock:
                segments = self.view.segments
                first = segments.index(old[0])
                self.writer.publish(segments=(*segments[:first], *made, *segments[first + len(old) :]))
        self._positions.clear()
        self._cursor = None

    # ------------------------------------------------------------ truncation, called by store.truncation

    def alone(self, work: Callable[[int], T]) -> T:
        """Call ``work(next_offset)`` while no record is accepted and ``roll`` does nothing; ``work`` may flush, but must not append."""

        def held(next_offset: int) -> T:
            with self.syncs.lock:  # no roll is under way
                self.is_held = True
            try:
                return work(next_offset)
            finally:
                self.is_held = False

        return self._alone(held)

    def restart(self, recover: Callable[[], "Recovered"], start_offset: int) -> None:
        """Take over what a recovery finds in the directory: the log was truncated.  The caller is ``alone``; no record waits to be written.

        Args:
            recover: Called while no file is opened and none is synced; if it raises, the log stays as it is.
        """
        with self.syncs.lock:
            with self._replacing:
                found = recover()
                with self.writer.lock:
                    self._take(found, start_offset)
            self.writer.point.note(point=found.point.point)
        self.wake()
        self._host.wake_syncer(self)  # the high watermark may have moved

    def _take(self, found: "Recovered", start_offset: int) -> None:
        kept = {(segment.base_offset, segment.next_offset): segment for segment in self.view.segments if segment.scanner is None}
        segments = [kept.get((new.base_offset, new.next_offset), new) if new.scanner is None else new for new in found.segments]
        limit = self.view.high_watermark
        if limit < OFFSET_MAX:
            limit = max(start_offset, min(limit, found.next_offset))
        view = LogView(
            segments=tuple(segments),
            start_offset=start_offset,
            written_offset=found.next_offset,
            written_position=segments[-1].size_bytes if segments else 0,
            flushed=found.point.point,
            epochs=found.epochs,
            unstable_offset=unstable_offset(found.transactions),
            high_watermark=limit,
        )
        self.writer.restart(view, found.point, found.unsealed, found.transactions)
        self.syncs.restart(found.point.point)
        self._next_offset, self.leader_epoch = found.next_offset, found.epochs.latest
        self._begin_lineage(self._lineage.end(found.next_offset, self.view.epochs))
        self.view = view
        self._positions, self._cursor = Positions(), None  # a running read may still add to the old ones
        self.damage = self.read_only_reason = found.read_only_reason
        self._change(WriterEvent.RESTART if found.read_only_reason is None else WriterEvent.RESTART_DAMAGED)

    def interrupt(self, reason: str) -> None:
        """Refuse appends, writes and syncs until ``restart``: the files differ from what the log has in memory."""
        self.read_only_reason = reason
        self._change(WriterEvent.INTERRUPT)

    def lower_high_watermark(self, offset: int) -> None:
        """Let the file of the high watermark say no more than ``offset``, durably: the log ends there soon.  The caller is ``alone``."""
        high_watermark.lower(self, offset)

    def renew_point(self) -> None:
        """Note the recovery point in a new file: a truncation removed the old one, and was not committed.  The caller is ``alone``."""
        with self.syncs.lock:
            point = RecoveryPointFile(self._io, self.directory, writable=True)
            self.writer.point.retire()
            self.writer.point = point
            point.note(point=self.view.flushed)
        self._host.wake_syncer(self)  # the file of the high watermark may say less than it could

    # ------------------------------------------------------------ what the store's threads call

    def write_lingering(self, now_ms: int, linger_ms: int) -> bool:
        """Write records that have waited for ``linger_ms``; returns whether some still wait."""
        self._dirty = False  # a later record wakes the store again
        opened_ms = self._opened_ms
        if opened_ms and now_ms - opened_ms >= linger_ms and (self._broken or not self._commits_groups()):
            self._drain()  # at level fsync only records that a full disk has left: appending threads write their own groups
        return bool(self._opened_ms)

    def sync_due_ms(self) -> int | None:
        """When unsynced records must be synced, on the monotonic clock; None: never by a timer."""
        return self.syncs.due_ms()

    def sync(self) -> None:
        """Sync written records; those in the open batch stay there."""
        self.syncs.sync()

    def checkpoint_due_ms(self) -> int | None:
        """When the next checkpoint is due, on the monotonic clock; None: the catalogue is up to date."""
        return self.syncs.checkpoint_due_ms()

    def high_watermark_due_ms(self) -> int | None:
        """On the monotonic clock, when the file of the high watermark is to be written; None: it says what the log does."""
        return high_watermark.due_ms(self)

    def note_high_watermark(self) -> None:
        """Let the file of the high watermark say what the log does; raises DiskFull, WriteFailed."""
        with self.syncs.lock:
            high_watermark.note(self)

    def idle_due_ms(self) -> int | None:
        """When to look whether reserved disk space is still needed, on the monotonic clock; None: there is none."""
        return self.writer.idle_due_ms

    def free_idle_space(self) -> None:
        """Free the reserved disk space if the log is not written to any more."""
        self.writer.free_idle_space()

    def due_ms(self) -> int | None:
        """When the next sync, seal, checkpoint, note or look at reserved space is due, on the monotonic clock; None: no work waits."""
        if self._closed:  # also where its topic was deleted during the flusher's round
            return None
        dues = (self.sync_due_ms(), self.checkpoint_due_ms(), self.high_watermark_due_ms(), self.idle_due_ms())
        return min((due for due in dues if due is not None), default=None)

    def remove_old_snapshots(self) -> None:
        """Remove the snapshots of producers that no opening needs any more."""
        if self.writer.transactions is not None:
            bases = () if self.high_watermark_file is None else [segment.base_offset for segment in self.view.segments]
            producer_snapshot.remove_old(self._io, self.directory, self.writer.transactions.snapshots, bases)

    def take_sealing(self) -> list[Segment]:
        """Take the rolled segments that wait to be sealed; a roll that a Ctrl-C has ended leaves the active one among them."""
        active = self.view.active
        return [segment for segment in self.writer.sealing if segment is not active]

    @property
    def producers_offset(self) -> int:
        """Offset of the newest snapshot of the producers; -1: the log never had any."""
        return -1 if self.writer.transactions is None else self.writer.transactions.snapshot_offset

    @property
    def producers_unsaved(self) -> bool:
        """Whether the newest snapshot of the producers is older than the log."""
        transactions = self.writer.transactions
        return transactions is not None and (transactions.stale or transactions.snapshot_offset != self.end_offset)

    # ------------------------------------------------------------ for its parts

    @property
    def level(self) -> int:
        """The level of appends that name none: OS, INTERVAL or FSYNC."""
        return self._level

    @property
    def pending_count(self) -> int:
        """Records accepted, but not written."""
        return self._pending_count

    @property
    def drained_offset(self) -> int:
        """Up to here the builder has handed over its records, and they are written."""
        return self._written_offset

    def drain(self) -> None:
        """Write all records that were accepted before the call; raises DiskFull, WriteFailed."""
        self._drain()

    def refusal(self) -> LogdbError:
        """Why the log takes no records."""
        return self._host.refusal(self)

    # ------------------------------------------------------------ its state

    def refuse_appends(self) -> None:
        """Take no more records: the log ends.  Those that were accepted are written.  The host's ``refusal`` is the error."""
        self._change(WriterEvent.REFUSE)

    def refuse_writes(self) -> None:
        """Write and sync nothing any more: a sync has failed."""
        self._change(WriterEvent.FAIL)

    def _change(self, event: WriterEvent) -> None:
        """The one place where the state changes.

        An event that comes again puts right what an interrupt of the first one has left: nothing of it is left out.
        """
        with self._state_lock:
            self._enter(TRANSITIONS.get((self.state, event), self.state))
        self.tell_builder()
        if not self._closed:
            self.wake()  # the threads that wait for a commit

    def _enter(self, state: WriterState) -> None:
        allows = ALLOWS[state]
        self.state, self.interrupted, self._closed = state, allows.is_interrupted, allows.is_closed
        self._refusing, self.refuses_writes = 0 if allows.appends else _REFUSING, not allows.writes

    def _commits_groups(self) -> bool:
        return self.fsync_only and self._level == FSYNC  # its appending threads write and sync in groups themselves

    def forked(self) -> None:
        """In a forked child: the parent writes the records that wait."""
        renew((self.writer.lock, self._replacing, self.syncs.lock, self._watch_lock, self._state_lock))
        if self.writer.transactions is not None:
            renew((self.writer.transactions.lock,))
        self._change(WriterEvent.CLOSE)

    def finish(self) -> str | None:
        """Accept no more records, write and sync everything, and prepare the files for a clean open.

        Returns:
            Why that failed; None if it succeeded.  Of a log that was abandoned, what it returned before that.
        """
        if not self._closed:
            self._unfinished = self._finish()
        return self._unfinished

    def _finish(self) -> str | None:
        if self.interrupted:
            return self.read_only_reason
        try:
            if not self.refuses_writes and self.read_only_reason is None:
                self.refuse_appends()
                with self.syncs.lock:
                    self._drain()
                    self.syncs.sync_locked()
                    self._finish_active()
                    self.writer.point.sync_slots()
                    high_watermark.note(self, sync=True)
        except Exception as error:  # noqa: BLE001 -- no error may keep the other logs from closing
            return str(error)
        return f"{self._pending_count} records were still waiting" if self._pending_count else None

    def begin_finish(self) -> bool:
        """The steps of ``finish`` before its syncs, for ``shared_sync.finish``; False: ``finish`` has nothing to do, or meets the error."""
        if self._closed or self.interrupted or self.refuses_writes or self.read_only_reason is not None:
            return False
        try:
            self.refuse_appends()
            with self.syncs.lock:
                self._drain()
                segment = self.view.active
                if segment is not None and segment.scanner is not None:
                    segment.trim()
        except (LogdbError, OSError):
            return False
        return True

    def note_end(self) -> tuple[FileHolder, int] | None:
        """Let the small files say where the log ends, unsynced.

        Returns:
            A file of the log, and how many directory entries the active segment has; None: all of it is synced.
        """
        segment, point = self.view.active, self.writer.point
        with self.syncs.lock:
            high_watermark.note(self)
            is_synced = self.high_watermark_file is None or self.high_watermark_file.synced
        if is_synced and not point.unsynced and (segment is None or not segment.new):
            return None
        count = 0 if segment is None else segment.entry_count
        return (point if segment is None or point.unsynced else segment), count

    def end_synced(self, entry_count: int) -> None:
        """A sync of the file system has covered what ``note_end`` wrote, and so many directory entries of the active segment."""
        with self.syncs.lock:
            self.writer.point.slots_synced()
            if self.view.active is not None:
                self.view.active.entries_synced(entry_count)
            if self.high_watermark_file is not None:
                self.high_watermark_file.synced = True

    def _finish_active(self) -> None:
        segment = self.view.active
        if segment is not None and segment.scanner is not None:
            segment.trim()
            if segment.dirty:
                segment.sync()
            segment.save_indexes(final=True)
            if segment.new:
                count = segment.entry_count
                sync_directory(self._io, self.directory)
                segment.entries_synced(count)

    def abandon(self) -> int:
        """Release files and memory; returns the number of records that waited to be written."""
        with self.syncs.lock:  # a running sync ends, and no other begins
            self._change(WriterEvent.CLOSE)
        lost = self._next_offset - self.view.written_offset
        self._discard()  # without the lock: a running append may wait for it
        if self.writer.transactions is not None:
            self.writer.transactions.discard()
        self._positions.clear()
        for segment in self.view.segments:
            segment.retire()
        self.writer.point.retire()
        self.writer.forget_space()
        self.wake()
        return lost


def _missing_codec(config: LogConfig) -> CodecMissing | None:
    try:
        compression.check_installed(config.compression_type)
    except CodecMissing as error:
        return error.with_traceback(None)
    return None
