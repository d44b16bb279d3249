"""The producers of a log that this process writes: their accepted states, their written states, and the updates between.

    admit ──► accepted ──► pending ──► written ──► .snapshot, .txnindex
              batches are              the states of the
              checked against it       files; readers see it

A batch is checked under the append lock of the batch builder, in the step that gives it its offsets.  Its update waits in ``pending``
until the batch is in the file.  So a snapshot never has a batch that the log lacks, and a batch that still waits in memory is
recognized as a duplicate.

Threading: batches are admitted under the builder's append lock, ``advance`` under its write lock.  ``lock`` keeps threads from copying
the states while ``advance`` works; it is never held over I/O.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from logdb.codec import Header
from logdb.codec.batch import TRANSACTIONAL
from logdb.codec.control import ControlType
from logdb.codec.convert import Produced
from logdb.errors import ConcurrentTransactions, OutOfOrderSequence
from logdb.log.producers import Producer, ProducerStates, Update, repeated
from logdb.model import OFFSET_MAX, ProducerIdAndEpoch, TopicPartition
from logdb.segment.transaction_index import TransactionIndex
from logdb.verifications import Verifications

_EXPIRY_INTERVAL_MS = 60_000


class Duplicate(Exception):
    """All batches of the call are already in the log, or accepted for it."""

    def __init__(self, offsets: range) -> None:
        self.offsets = offsets


class Begun(Exception):
    """A crash interrupted the first try of this call: its first batches are in the log, or accepted for it, the others are not.

    ``refusal``: makes the error to raise if the others can no longer follow the first.
    """

    def __init__(self, offsets: range, batch_count: int, refusal: Callable[[], OutOfOrderSequence]) -> None:
        self.offsets, self.batch_count, self.refusal = offsets, batch_count, refusal


class Superseded(Exception):
    """The log was truncated while the call waited: it has another ``LogTransactions`` now."""


class LogTransactions:
    """The producers of a log that this process writes.

    ``written_offset``: ``written`` includes the batches below it.  ``snapshot_offset``: of the newest snapshot on the disk.
    ``snapshots``: the offsets of all on the disk, increasing.  ``stale``: the newest snapshot has not the checksums of the current
    indexes of aborted transactions, because one was rebuilt.  ``superseded``: the log was truncated and has another
    ``LogTransactions``; set under the builder's append lock.  ``_verifying``: producers without an open transaction here whose coordinator
    is asked, each with what ``verification`` gave; a marker takes that away.
    """

    def __init__(self, where: TopicPartition, states: ProducerStates, snapshots: Sequence[int], snapshot_offset: int) -> None:
        self._where = where
        self.accepted, self.written = states, states.copy()
        self.pending: deque[Update] = deque()
        self.written_offset = self._expired_ms = 0
        self.lock = threading.Lock()
        self.snapshots, self.snapshot_offset, self.stale = list(snapshots), snapshot_offset, False
        self.superseded = False
        self._verifying = Verifications()

    # ------------------------------------------------------------ written batches

    def advance(self, end_offset: int, index: TransactionIndex) -> int:
        """The log was written up to ``end_offset``, at last into the segment of ``index``; with ``lock`` held.

        Returns:
            The first offset of the oldest open transaction; OFFSET_MAX without one.
        """
        while self.pending and (update := self.pending[0]).last_offset < end_offset:
            self.written_offset = update.last_offset + 1
            if update.aborted is not None:
                index.add(update.aborted)  # first: once the transaction is closed, readers look there
            self.written.put(update.producer)
            self.pending.popleft()  # last: after an exception from outside (Ctrl-C) the update is applied again
        return OFFSET_MAX if self.written.first_unstable is None else self.written.first_unstable

    def withdraw(self, first: int, next_offset: int) -> bool:
        """Take back the updates of batches with the offsets [first, next_offset); under the append lock and the write lock.

        Returns:
            Whether they may go: a later batch of the same producer, or a marker among them, keeps them.
        """
        with self.lock:
            updates = [update for update in self.pending if update.last_offset >= first]
            gone = [update for update in updates if update.last_offset < next_offset]
            followed = {update.producer.producer_id for update in updates[len(gone) :]}
            if any(update.is_marker or update.producer.producer_id in followed for update in gone):
                return False
            for update in reversed(gone):
                self.pending.remove(update)
                self.accepted.restore(update.producer.producer_id, update.before)
        return True

    def saved(self, offset: int) -> None:
        """A snapshot of the producers at ``offset`` was saved."""
        self.snapshot_offset, self.stale = offset, False
        self.snapshots = [*(known for known in self.snapshots if known < offset), offset]

    def discard(self) -> None:
        """Drop updates that were accepted and not written."""
        with self.lock:
            self.pending.clear()
            self.accepted = self.written.copy()

    # ------------------------------------------------------------ incoming batches

    def offsets_of(self, produced: Sequence[Produced], batch_count: int) -> range | None:
        """The offsets of batches that are all duplicates; None if all are new.

        Raises:
            Begun: Only the first of them are duplicates.
            OutOfOrderSequence: Others are duplicates.
        """
        batches = repeated(self.accepted.producers, produced)
        if not batches:
            return None
        offsets, count = range(batches[0].first_offset, batches[-1].last_offset + 1), len(batches)
        if count == batch_count:
            return offsets
        head = produced[0].header
        first = self.accepted.producers.get(head.producer_id) or Producer(head.producer_id)
        numbers = first.producer_id, head.base_sequence, first.next_sequence
        refusal = partial(OutOfOrderSequence, *self._where, *numbers, last_offset=first.last_offset)
        if len(produced) == batch_count and len(repeated(self.accepted.producers, produced[:count])) == count:
            raise Begun(offsets, count, refusal)
        raise refusal()

    def verification(self, producer_id: int) -> object:
        """What the next transaction of a producer here is begun with; to be asked for before the coordinator is.  Any thread."""
        return self._verifying.give(producer_id)

    def _check_verified(self, produced: Sequence[Produced], verified: Mapping[int, object]) -> None:
        for _, head in produced:
            known = self.accepted.producers.get(head.producer_id)
            is_open = known is not None and known.first_offset >= 0
            is_good = is_open or self._verifying.holds(head.producer_id, verified.get(head.producer_id))
            if head.attributes & TRANSACTIONAL and not is_good:
                raise ConcurrentTransactions(f"the transaction of producer {head.producer_id} ended before its batch arrived")

    def admit_batches(
        self,
        produced: Sequence[Produced],
        batch_count: int,
        sequenced: bool,
        verified: Mapping[int, object] | None,
        first_offset: int,
        now_ms: int,
    ) -> None:
        """Admit batches that are about to get the offsets from ``first_offset`` on.

        Args:
            sequenced: They are a producer's; a coordinator's own have no sequence.
            verified: See ``AppendableLog.append_batches``.

        Raises:
            ConcurrentTransactions: A marker has come since a producer was verified.
            Duplicate, Begun, Superseded: as they say.
            ProducerFenced, OutOfOrderSequence, InvalidTransactionState, InvalidBatch: see ``log.producers``.
        """
        self._begin(now_ms)
        if sequenced and (offsets := self.offsets_of(produced, batch_count)) is not None:
            raise Duplicate(offsets)
        if verified is not None:
            self._check_verified(produced, verified)
        self.accepted.take(self.accepted.checked_batches(self._where, produced, sequenced, first_offset, now_ms), self.pending)

    def admit_next(
        self, producer_id: int, epoch: int, base_sequence: int, record_count: int, max_timestamp_ms: int, first_offset: int, now_ms: int
    ) -> bool:
        """As ``admit_batches``, of one batch that a known producer sends next, outside of transactions; False: it is another one."""
        known = self.accepted.producers.get(producer_id)
        if known is None or known.epoch != epoch or known.next_sequence != base_sequence or known.first_offset >= 0:
            return False
        if self.superseded or now_ms - self._expired_ms >= _EXPIRY_INTERVAL_MS:
            return False
        after = known.after_next(record_count, max_timestamp_ms, first_offset, now_ms)
        self.accepted.take((Update(after.batches[-1].last_offset, after, known),), self.pending)
        return True

    def admit_followed(self, produced: Sequence[tuple[Header, bytes]], now_ms: int) -> None:
        """Admit a leader's batches, which the leader has checked: their effect is that of a replay."""
        self._begin(now_ms)
        following = (self.accepted.following(head, image, now_ms) for head, image in produced)
        self.accepted.take((update for update in following if update is not None), self.pending)

    def admit_marker(self, kind: ControlType, producer: ProducerIdAndEpoch, coordinator_epoch: int, first_offset: int, now_ms: int) -> None:
        """Admit a marker; raises ProducerFenced, CoordinatorFenced, Superseded."""
        if self.superseded:
            raise Superseded
        marker = self.accepted.checked_marker(self._where, kind, producer, coordinator_epoch, first_offset, now_ms)
        self.accepted.take((marker,), self.pending)
        self._verifying.end(producer.producer_id)

    def _begin(self, now_ms: int) -> None:
        """Under the append lock, as all changes of ``accepted``: forget expired producers now and then."""
        if self.superseded:
            raise Superseded
        if now_ms - self._expired_ms >= _EXPIRY_INTERVAL_MS:
            self._expired_ms = now_ms
            self.accepted.expire(now_ms)
