"""The producers of a log that this process writes: their accepted states, their written states, and the updates between.

    admit ──► accepted ──► pending ──► written ──► .snapshot, .txnindex
              batches are              the states of the
              checked against it       files; readers see it

A batch is checked under the append lock of the batch builder, in the step that gives it its offsets.  Its update waits in ``pending``
until the batch is in the file.  So a snapshot never has a batch that the log lacks, and a batch that still waits in memory is
recognized as a duplicate.

Threading: ``Admission`` runs under the builder's append lock, ``advance`` under its write lock.  ``lock`` keeps threads from copying
the states while ``advance`` works; it is never held over I/O.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from logdb.codec import Header, control
from logdb.codec.control import ControlType
from logdb.codec.convert import Produced
from logdb.errors import OutOfOrderSequence
from logdb.log.producers import Producer, ProducerStates, Update, check_batch, check_marker, repeated
from logdb.model import ProducerIdAndEpoch, TopicPartition
from logdb.segment.transaction_index import TransactionIndex

_EXPIRY_INTERVAL_MS = 60_000


class Duplicate(Exception):
    """All batches of the call are already in the log, or accepted for it."""

    def __init__(self, offsets: range) -> None:
        self.offsets = offsets


class Begun(Exception):
    """A crash interrupted the first try of this call: its first batches are in the log, or accepted for it, the others are not.

    ``refusal``: the error to raise if the others can no longer follow the first.
    """

    def __init__(self, offsets: range, batch_count: int, refusal: OutOfOrderSequence) -> None:
        self.offsets, self.batch_count, self.refusal = offsets, batch_count, refusal


class Superseded(Exception):
    """The log was truncated while the call waited: it has another ``Transactions`` now."""


class Transactions:
    """The producers of a log that this process writes.

    ``written_offset``: ``written`` includes the batches below it.  ``snapshot_offset``: of the newest snapshot on the disk.
    ``snapshots``: the offsets of all on the disk, increasing.  ``stale``: the newest snapshot has not the checksums of the current
    indexes of aborted transactions, because one was rebuilt.  ``superseded``: the log was truncated and has another
    ``Transactions``; set under the builder's append lock.
    """

    def __init__(self, where: TopicPartition, states: ProducerStates, snapshots: Sequence[int], snapshot_offset: int) -> None:
        self._where = where
        self.accepted, self.written = states, states.copy()
        self.pending: deque[Update] = deque()
        self.written_offset = self._expired_ms = 0
        self.lock = threading.Lock()
        self.snapshots, self.snapshot_offset, self.stale = list(snapshots), snapshot_offset, False
        self.superseded = False

    # ------------------------------------------------------------ written batches

    def advance(self, end_offset: int, index: TransactionIndex) -> None:
        """The log was written up to ``end_offset``, at last into the segment of ``index``; with ``lock`` held."""
        while self.pending and (update := self.pending[0]).last_offset < end_offset:
            self.written_offset = update.last_offset + 1
            if update.aborted is not None:
                index.add(update.aborted)  # first: once the transaction is closed, readers look there
            self.written.put(update.producer)
            self.pending.popleft()  # last: after an exception from outside (Ctrl-C) the update is applied again

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
        heads = [batch.header for batch in produced]
        batches = repeated(self.accepted.producers, heads)
        if not batches:
            return None
        offsets, count = range(batches[0].first_offset, batches[-1].last_offset + 1), len(batches)
        if count == batch_count:
            return offsets
        refusal = OutOfOrderSequence(
            *self._where, heads[0].producer_id, heads[0].base_sequence, self._known(heads[0].producer_id).next_sequence
        )
        if len(heads) == batch_count and len(repeated(self.accepted.producers, heads[:count])) == count:
            raise Begun(offsets, count, refusal)
        raise refusal

    def _expire(self, now_ms: int) -> None:
        """Forget expired producers now and then; under the append lock, as all changes of ``accepted``."""
        if now_ms - self._expired_ms >= _EXPIRY_INTERVAL_MS:
            self._expired_ms = now_ms
            self.accepted.expire(now_ms)

    def _known(self, producer_id: int) -> Producer:
        return self.accepted.producers.get(producer_id) or Producer(producer_id)

    def batches(self, produced: Sequence[Produced], batch_count: int, now_ms: int, *, sequenced: bool) -> "Admission":
        """The admission of batches, which runs once their offsets are known; raises Duplicate."""

        def updates(first_offset: int) -> list[Update]:
            self._expire(now_ms)
            if sequenced and (offsets := self.offsets_of(produced, batch_count)) is not None:
                raise Duplicate(offsets)
            latest: dict[int, Producer] = {}
            found = []
            for records_before, head in produced:
                known = latest.get(head.producer_id) or self._known(head.producer_id)
                check_batch(self._where, known, head, sequenced=sequenced)
                after = latest[head.producer_id] = known.after_batch(head, first_offset + records_before, now_ms)
                found.append(Update(after.batches[-1].last_offset, after, self.accepted.producers.get(head.producer_id)))
            return found

        return Admission(self, updates)

    def followed(self, produced: Sequence[tuple[Header, bytes]], now_ms: int) -> "Admission":
        """The admission of a leader's batches, which the leader has checked: their effect is that of a replay."""

        def updates(_first_offset: int) -> Iterator[Update]:
            self._expire(now_ms)
            for head, image in produced:
                if (update := self.accepted.following(head, image, now_ms)) is not None:
                    yield update

        return Admission(self, updates)

    def marker(self, kind: ControlType, producer: ProducerIdAndEpoch, coordinator_epoch: int, now_ms: int) -> "tuple[bytes, Admission]":
        """The batch of a marker, and its admission."""
        producer_id, epoch = producer

        def updates(first_offset: int) -> list[Update]:
            known = self._known(producer_id)
            check_marker(self._where, known, epoch, coordinator_epoch)
            aborted = self.accepted.ended(known, first_offset, kind)
            after = known.after_marker(epoch, coordinator_epoch, now_ms)
            return [Update(first_offset, after, self.accepted.producers.get(producer_id), aborted)]

        return control.build(kind, producer, coordinator_epoch, now_ms), Admission(self, updates)


class Admission:
    """Admits the batches of one call: called with the first offset just before they are accepted; raises ``Superseded``."""

    def __init__(self, transactions: Transactions, updates: Callable[[int], Iterable[Update]]) -> None:
        self._transactions, self._updates = transactions, updates

    def __call__(self, first_offset: int) -> None:
        if self._transactions.superseded:
            raise Superseded
        updates = self._updates(first_offset)
        accepted, pending = self._transactions.accepted, self._transactions.pending
        taken: list[Update] = []
        try:
            for update in updates:  # lazily: an update sees those before it
                taken.append(update)
                accepted.put(update.producer)
            pending.extend(taken)
        except BaseException:  # from outside (Ctrl-C); between the return and the append no exception can come
            for update in reversed(taken):
                if update in pending:
                    pending.remove(update)
                accepted.restore(update.producer.producer_id, update.before)
            raise
