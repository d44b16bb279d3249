"""The state of a log's producers: the state machine behind idempotence and the last stable offset.

Source: KIP-98; Kafka's ProducerStateManager, ProducerAppendInfo and ProducerStateEntry.

The state of a producer after its next batch or marker:

    | next                            | sequence           | transaction         | epoch   | batches            |
    |---------------------------------|--------------------|---------------------|---------|--------------------|
    | one of the last five, repeated  | any                | unchanged           | same    | unchanged          |
    | batch, same epoch               | the last one's + 1 | begins if flagged   | same    | the last five      |
    | batch, newer epoch              | 0                  | begins if flagged   | newer   | this one           |
    | batch of an unknown producer    | any                | begins if flagged   | its own | this one           |
    | marker, same epoch              |                    | ends                | same    | unchanged          |
    | marker, newer epoch             |                    | ends                | newer   | none               |
    | batch or marker, older epoch    | ProducerFenced     |                     |         |                    |
    | a gap, or older than the five   | OutOfOrderSequence |                     |         |                    |
    | plain batch in a transaction    | InvalidTransactionState                                              |

Invariants: an open transaction has an entry in ``open``, in the order of first offsets; a producer with one never
expires; entries are immutable, so a state is copied by copying its dictionary.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from logdb.codec import Header, control
from logdb.codec.batch import CONTROL, TRANSACTIONAL
from logdb.codec.control import ControlType
from logdb.codec.convert import Produced
from logdb.errors import CoordinatorFenced, InvalidBatch, InvalidTransactionState, OutOfOrderSequence, ProducerFenced
from logdb.model import AbortedTransaction, Buffer, OpenTransaction, ProducerIdAndEpoch, TopicPartition

BATCH_COUNT_MAX = 5  # the most that a producer may have in flight
EXPIRATION_MS = 86_400_000  # Kafka's default of producer.id.expiration.ms
SEQUENCE_MASK = 2**31 - 1  # the sequence after it is 0


class Batch(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int  # -1: a batch without a sequence
    last_offset: int
    offset_delta: int

    @property
    def first_sequence(self) -> int:
        return -1 if self.last_sequence < 0 else self.last_sequence - self.offset_delta & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer(NamedTuple):
    """The state of one producer.

    ``batches``: the last ones under this epoch, at most BATCH_COUNT_MAX.  ``timestamp_ms``: expiry counts from it.
    ``coordinator_epoch``: of the last marker, -1 without.  ``first_offset``: of the open transaction, -1 without, begun
    at ``started_ms``.
    """

    producer_id: int
    epoch: int = -1
    batches: tuple[Batch, ...] = ()
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1
    started_ms: int = -1

    @property
    def last_offset(self) -> int:
        """The last record under this epoch; -1 without one."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def next_sequence(self) -> int:
        """The base sequence of the next batch under this epoch."""
        return self.batches[-1].last_sequence + 1 & SEQUENCE_MASK if self.batches else 0

    def duplicate_of(self, head: Header) -> Batch | None:
        """The batch that ``head`` repeats."""
        if head.producer_epoch != self.epoch or head.base_sequence < 0 or head.base_sequence == self.next_sequence:
            return None
        delta = head.last_offset - head.base_offset
        return next((b for b in self.batches if b.offset_delta == delta and b.first_sequence == head.base_sequence), None)

    def after_batch(self, head: Header, base_offset: int, now_ms: int) -> "Producer":
        """The state after a batch at ``base_offset``."""
        delta = head.last_offset - head.base_offset
        last_sequence = -1 if head.base_sequence < 0 else head.base_sequence + delta & SEQUENCE_MASK
        batch = Batch(last_sequence, base_offset + delta, delta)
        begins = self.first_offset < 0 and bool(head.attributes & TRANSACTIONAL)
        return Producer(
            head.producer_id,
            head.producer_epoch,
            (*self.batches[1 - BATCH_COUNT_MAX :], batch) if head.producer_epoch == self.epoch else (batch,),
            max(head.max_timestamp, now_ms),
            self.coordinator_epoch,
            base_offset if begins else self.first_offset,
            now_ms if begins else self.started_ms,
        )

    def after_next(self, record_count: int, max_timestamp_ms: int, base_offset: int, now_ms: int) -> "Producer":
        """The state after a batch at ``base_offset`` that follows the last one, under the same epoch, outside of transactions."""
        delta = record_count - 1
        batch = Batch(self.next_sequence + delta & SEQUENCE_MASK, base_offset + delta, delta)
        return Producer(
            self.producer_id,
            self.epoch,
            (*self.batches[1 - BATCH_COUNT_MAX :], batch),
            max(max_timestamp_ms, now_ms),
            self.coordinator_epoch,
        )

    def after_marker(self, epoch: int, coordinator_epoch: int, now_ms: int) -> "Producer":
        """The state after a marker: the transaction has ended."""
        return Producer(self.producer_id, epoch, self.batches if epoch == self.epoch else (), now_ms, coordinator_epoch)


class Update(NamedTuple):
    """The effect of one batch: the producer's state after it, and the transaction that it aborts."""

    last_offset: int
    producer: Producer
    before: Producer | None
    aborted: AbortedTransaction | None = None

    @property
    def is_marker(self) -> bool:
        """Whether it is the effect of a marker, not of a batch."""
        batches = self.producer.batches
        return not batches or batches[-1].last_offset != self.last_offset


class ProducerStates:
    """All producers of one log at one offset.

    ``first_unstable``: first offset of the oldest open transaction; None without one.
    """

    __slots__ = ("_open", "first_unstable", "producers")

    def __init__(self, producers: Iterable[Producer] = ()) -> None:
        self.producers = {producer.producer_id: producer for producer in producers}
        self.first_unstable: int | None = None
        self._reopen()

    def _reopen(self) -> None:
        begun = sorted((p for p in self.producers.values() if p.first_offset >= 0), key=lambda p: p.first_offset)
        self._open = {producer.producer_id: producer.first_offset for producer in begun}
        self.first_unstable = begun[0].first_offset if begun else None

    def copy(self) -> "ProducerStates":
        return ProducerStates(list(self.producers.values()))

    def put(self, producer: Producer) -> None:
        """Set the state of a producer after its latest batch."""
        self.producers[producer.producer_id] = producer
        if producer.first_offset < 0 and not self._open:  # most logs have no transactions
            return
        if producer.first_offset < 0:
            self._open.pop(producer.producer_id, None)
        elif producer.producer_id not in self._open:
            self._open[producer.producer_id] = producer.first_offset
        self.first_unstable = next(iter(self._open.values()), None)

    def take(self, updates: Iterable[Update], pending: deque[Update]) -> None:
        """Put the states after ``updates``, and queue these in ``pending``: all of them, or none.

        An update may be made only when its turn comes, and then sees the states after those before it.
        """
        taken: list[Update] = []
        try:
            for update in updates:
                taken.append(update)
                self.put(update.producer)
            pending.extend(taken)
        except BaseException:  # it is refused; or from outside (Ctrl-C): between the return and the append no exception can come
            for update in reversed(taken):
                if update in pending:
                    pending.remove(update)
                self.restore(update.producer.producer_id, update.before)
            raise

    def restore(self, producer_id: int, producer: Producer | None) -> None:
        """Set an earlier state of a producer; None: it was unknown."""
        if producer is None:
            self.producers.pop(producer_id, None)
        else:
            self.producers[producer_id] = producer
        self._reopen()

    def expire(self, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> None:
        """Forget producers whose last batch is older than ``expiration_ms``."""
        for producer in list(self.producers.values()):
            if producer.first_offset < 0 and now_ms - producer.timestamp_ms >= expiration_ms:
                del self.producers[producer.producer_id]

    def open_transactions(self) -> list[OpenTransaction]:
        """By their first offsets."""
        begun = [p for p in list(self.producers.values()) if p.first_offset >= 0]
        return [OpenTransaction(p.producer_id, p.epoch, p.first_offset, p.started_ms) for p in sorted(begun, key=lambda p: p.first_offset)]

    def checked_batches(
        self, where: TopicPartition, produced: Iterable[Produced], sequenced: bool, first_offset: int, now_ms: int
    ) -> Iterator[Update]:
        """The effects of batches that get the offsets from ``first_offset`` on, one after the other; raises as ``check_batch``."""
        for records_before, head in produced:
            before = self.producers.get(head.producer_id)
            known = before or Producer(head.producer_id)
            check_batch(where, known, head, sequenced=sequenced)
            after = known.after_batch(head, first_offset + records_before, now_ms)
            yield Update(after.batches[-1].last_offset, after, before)

    def checked_marker(
        self, where: TopicPartition, kind: ControlType, producer: ProducerIdAndEpoch, coordinator_epoch: int, offset: int, now_ms: int
    ) -> Update:
        """The effect of a marker at ``offset``; raises as ``check_marker``."""
        before = self.producers.get(producer.producer_id)
        known = before or Producer(producer.producer_id)
        check_marker(where, known, producer.producer_epoch, coordinator_epoch)
        after = known.after_marker(producer.producer_epoch, coordinator_epoch, now_ms)
        return Update(offset, after, before, self.ended(known, offset, kind))

    def ended(self, producer: Producer, offset: int, kind: ControlType) -> AbortedTransaction | None:
        """The transaction of ``producer`` that a marker at ``offset`` aborts; None if the marker commits, or ends no transaction."""
        if kind is not ControlType.ABORT or producer.first_offset < 0:
            return None
        others = (first for producer_id, first in self._open.items() if producer_id != producer.producer_id)
        return AbortedTransaction(producer.producer_id, producer.first_offset, offset, next(others, offset + 1))

    def following(self, head: Header, image: Buffer, now_ms: int) -> "Update | None":
        """The effect of a batch in a log; None: no effect, because compaction has emptied the marker.

        Args:
            image: uint8[n], the checked batch; parsed if it is a control batch.
        """
        before = self.producers.get(head.producer_id)
        known = before or Producer(head.producer_id)
        if not head.attributes & CONTROL:
            return Update(head.last_offset, known.after_batch(head, head.base_offset, now_ms), before)
        marker = control.parse(image) if head.record_count else None
        if marker is None or marker.coordinator_epoch is None:  # emptied by compaction, or not a transaction's marker
            return None
        aborted = self.ended(known, head.base_offset, ControlType(marker.type))
        return Update(head.last_offset, known.after_marker(head.producer_epoch, marker.coordinator_epoch, now_ms), before, aborted)

    def replay(self, head: Header, image: Buffer, now_ms: int) -> AbortedTransaction | None:
        """Apply a batch in the log, as ``following``; returns the transaction that it aborts."""
        update = self.following(head, image, now_ms)
        if update is None:
            return None
        self.put(update.producer)
        return update.aborted


# ---------------------------------------------------------------- checks


def check_batch(where: TopicPartition, known: Producer, head: Header, *, sequenced: bool) -> None:
    """Raise unless a batch, which is no duplicate, may follow.

    Args:
        known: The producer; epoch -1: it was unknown so far.
        sequenced: The batch is a producer's; a coordinator's own batches have no sequence.

    Raises:
        ProducerFenced, OutOfOrderSequence, InvalidTransactionState: See the table above.
        InvalidBatch: It has no sequence.
    """
    _check_epoch(known, head.producer_epoch)
    if sequenced:
        if head.base_sequence < 0:
            raise InvalidBatch(0, f"a batch of producer {head.producer_id} with the sequence {head.base_sequence}")
        expected = known.next_sequence if head.producer_epoch == known.epoch else 0
        if known.epoch >= 0 and head.base_sequence != expected:
            raise OutOfOrderSequence(*where, head.producer_id, head.base_sequence, expected, last_offset=known.last_offset)
    if known.first_offset >= 0 and not head.attributes & TRANSACTIONAL:
        since = f"a transaction open on {where} since offset {known.first_offset}"
        raise InvalidTransactionState(f"producer {head.producer_id} has {since}, and sent a batch outside of it")


def is_gap(error: OutOfOrderSequence) -> bool:
    """Whether batches are missing before the refused one; otherwise it is older than those that the log remembers."""
    return 0 < (error.sequence - error.expected_sequence & SEQUENCE_MASK) <= SEQUENCE_MASK // 2


def check_marker(where: TopicPartition, known: Producer, epoch: int, coordinator_epoch: int) -> None:
    """Raise unless a marker may follow.

    Raises:
        ProducerFenced: Its producer epoch is older than the last one.
        CoordinatorFenced: Its coordinator epoch is older than the last one.
    """
    _check_epoch(known, epoch)
    if coordinator_epoch < known.coordinator_epoch:
        raise CoordinatorFenced(*where, known.producer_id, coordinator_epoch, known.coordinator_epoch)


def _check_epoch(known: Producer, epoch: int) -> None:
    if epoch < known.epoch:
        raise ProducerFenced(known.producer_id, epoch, known.epoch)


def repeated(known: Mapping[int, Producer], produced: Iterable[Produced]) -> list[Batch]:
    """The batches that repeat one of their producer's last batches."""
    found = []
    for _, head in produced:
        producer = known.get(head.producer_id)
        if producer is not None and (batch := producer.duplicate_of(head)) is not None:
            found.append(batch)
    return found
