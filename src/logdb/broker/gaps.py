"""Batches of a producer that come before others of it, which were refused for now.

A producer has up to five batches on their way.  If one is refused for now, those behind it meet a gap in the sequence.  The producer then
sends all of them again, in order.  ``OutOfOrderSequence`` would make librdkafka take a new producer epoch, for all its partitions: it sends
under that epoch what logs may have already.  So such a gap is NotLeaderOrFollower for a time, which has a producer send again what comes
before.

    refused for now        a batch of the producer was refused with an error after which the same batch may be appended later
    a known producer       its gap is temporary for ``MISSING_MS`` after that
    an unknown producer    in that time, and under a new leader, a batch with another sequence than 0 is refused: one that was refused, or
                           lost, may belong before it.  librdkafka counts a batch as stored once a later one is.  The log may have known the
                           producer, and have deleted its records.  So the least sequence that was refused is taken at its second try

Only the first batch of an append is looked at: a client sends one for a partition, or several of one producer, in order.  Sequences
that begin again at 0 after 2^31 - 1 are not put in order here.

Threading: any thread.
"""

import threading
from collections import OrderedDict
from typing import NamedTuple

from logdb.codec.batch import FirstBatch, first_batch
from logdb.errors import CorruptBatch, LogdbError, NotLeaderOrFollower, OutOfOrderSequence
from logdb.log.producers import is_gap
from logdb.log.protocols import ReplicaLog
from logdb.model import Buffer, TopicPartition
from logdb.threads import renewed

MISSING_MS = 30_000
"""How long a producer may take to send again what was refused: the request timeout of Kafka's clients."""
_COUNT_MAX = 10_000


class _Refused(NamedTuple):
    """The least sequence of a producer's epoch that was refused, and until when its gaps are temporary, on the monotonic clock."""

    sequence: int
    until_ms: int


def is_for_now(error: LogdbError) -> bool:
    """Whether clients send the same batch again after this error; Kafka's do so, too, with one that was damaged on its way."""
    return type(error).retriable or isinstance(error, CorruptBatch)


def missing(where: TopicPartition, producer_id: int, first: int, sequence: int, leader_epoch: int = -1) -> NotLeaderOrFollower:
    """The error that has a producer send first what comes before ``sequence``; ``leader_epoch`` -1: the error does not say it."""
    batches = f"the batches of producer {producer_id} from sequence {first} to {sequence - 1}"
    reason = f"{batches} are missing in {where}, and may be on their way: send them first"
    error = NotLeaderOrFollower(*where, None, leader_epoch, reason=reason)
    vars(error)["is_of_leader"] = True
    return error


def is_of_leader(error: NotLeaderOrFollower) -> bool:
    """Whether this node leads the partition all the same: no other one takes the batch."""
    return "is_of_leader" in vars(error)


class Gaps:
    """The producers of a node that were refused; the oldest make way for new ones.

    Field             Changed by                   Trusted
    ``_producers``    ``refused``, ``check_begin``  under ``_lock``
    ``_partitions``   the same                     under ``_lock``; a look without it may miss the newest
    """

    def __init__(self) -> None:
        self._lock = renewed(threading.Lock())
        self._producers: OrderedDict[tuple[TopicPartition, int, int], _Refused] = OrderedDict()
        self._partitions: OrderedDict[TopicPartition, int] = OrderedDict()  # until when one of its producers is among them

    def are_possible(self, where: TopicPartition, now_ms: int) -> bool:
        """Whether a batch was refused for now in a partition, and not long ago."""
        return now_ms < self._partitions.get(where, -1)

    def check_begin(self, log: ReplicaLog, batches: Buffer, now_ms: int, *, is_new: bool) -> None:
        """Before an append.

        Args:
            is_new: The log has had another leader until a moment ago.

        Raises:
            NotLeaderOrFollower: The log does not know the producer, and these are not its first batches.
        """
        where, first = TopicPartition(log.topic, log.partition), first_batch(batches)
        if first.producer_id < 0 or first.sequence <= 0:
            return
        with self._lock:
            known = self._known(where, first, now_ms)
            if (known is None and not is_new) or (known is not None and first.sequence == known.sequence):
                return
        if log.producer(first.producer_id) is not None:
            return
        with self._lock:
            self._note(where, first, known.until_ms if known is not None else now_ms + MISSING_MS)
        raise missing(where, first.producer_id, 0, first.sequence, log.leader_epoch)

    def refused(self, where: TopicPartition, error: LogdbError, first: FirstBatch, now_ms: int) -> None:
        """Batches were refused; to be called before the error is raised.

        Raises:
            NotLeaderOrFollower: Their sequence has a gap, which may be temporary.
        """
        if is_for_now(error):
            if first.producer_id >= 0 and first.sequence >= 0:
                with self._lock:
                    self._note(where, first, now_ms + MISSING_MS, is_damaged=isinstance(error, CorruptBatch))
        elif isinstance(error, OutOfOrderSequence) and is_gap(error):
            with self._lock:
                known = self._known(where, first._replace(producer_id=error.producer_id), now_ms)
            if known is not None:
                raise missing(where, error.producer_id, error.expected_sequence, error.sequence) from error

    def _known(self, where: TopicPartition, first: FirstBatch, now_ms: int) -> _Refused | None:
        found = self._producers.get((where, first.producer_id, first.producer_epoch))
        return found if found is not None and now_ms < found.until_ms else None

    def _note(self, where: TopicPartition, first: FirstBatch, until_ms: int, *, is_damaged: bool = False) -> None:
        """Under ``_lock``.  ``is_damaged``: so may the sequence be."""
        key, sequence = (where, first.producer_id, first.producer_epoch), first.sequence
        former = self._producers.pop(key, None)
        if former is not None and former.until_ms > until_ms - MISSING_MS:  # it is not over
            sequence = former.sequence if is_damaged else min(sequence, former.sequence)
            until_ms = max(until_ms, former.until_ms)
        self._producers[key] = _Refused(sequence, until_ms)
        self._partitions[where] = max(until_ms, self._partitions.get(where, -1))  # it stays there meanwhile: others look without the lock
        self._partitions.move_to_end(where)
        for known in (self._producers, self._partitions):
            if len(known) > _COUNT_MAX:
                known.popitem(last=False)
