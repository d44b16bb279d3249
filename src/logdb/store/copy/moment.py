"""The moment that a backup beside the writer shows: where each log ends in it.

A reader takes no lock of the writer.  It looks at the ends of the logs in this order:

    1  __transaction_state
    2  the topics, then __consumer_offsets
    3  __transaction_state                        the moment
    4  __consumer_offsets, then the topics
    5  __transaction_state

The records of a transaction are written before its decision, its markers after it.  So look 4 has all records of the
transactions that are decided at the moment.  It may also have markers of *late* transactions, decided between looks 3 and 5: the log is
cut before the first of these.  A transaction is in the backup as a whole, or it counts as aborted.

Committed offsets end at look 2 if a log is cut, since later ones may point behind the cut.

A marker names its transaction by producer id and epoch.  Where a client keeps its epoch, a marker in the window may belong to the
producer's transaction before the late one.  If the producer has another record between looks 1 and 5, the looks are repeated.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from logdb.codec import convert
from logdb.codec.batch import CONTROL, TRANSACTIONAL
from logdb.log.recovery_point import Point
from logdb.log.segment_reader import SegmentReader, segment_slot
from logdb.log.tail import TailLog
from logdb.log.view import LogView
from logdb.model import INTERNAL_TOPICS, TopicPartition
from logdb.segment import buffers

_OFFSETS, _STATES = INTERNAL_TOPICS


class TransactionStep(NamedTuple):
    """What a record of ``__transaction_state`` says of a transaction.

    ``decides``: it is prepared, and its markers have ``epoch``.  ``own_epoch``: no other transaction of the producer has that epoch.
    """

    producer_id: int
    epoch: int
    own_epoch: bool
    decides: bool
    partitions: frozenset[TopicPartition]


Ends = dict[TailLog, LogView]


class Unclear(Exception):
    """These looks show no consistent moment; the next ones may."""


def find(logs: Sequence[TailLog], step_of: Callable[[bytes], TransactionStep]) -> Ends:
    """The view of each log at one moment; raises Unclear.

    Args:
        step_of: Parses the value of a record of ``__transaction_state``.
    """
    states = [log for log in logs if log.topic == _STATES]
    offsets = [log for log in logs if log.topic == _OFFSETS]
    others = [log for log in logs if log.topic not in INTERNAL_TOPICS]
    first, low, moment = _look(states), _look([*others, *offsets]), _look(states)
    high, last = _look([*offsets, *others]), _look(states)
    late = _late(first, moment, last, step_of)
    if late:
        for log in offsets:
            _check_no_transaction(log, low[log], high[log])
            high[log] = low[log]
        for log in others:
            wanted = {step.producer_id: step.epoch for step in reversed(late) if (log.topic, log.partition) in step.partitions}
            if wanted:
                high[log] = _cut(low[log], high[log], wanted)
    return {**high, **moment}


def _look(logs: Iterable[TailLog]) -> Ends:
    return {log: log.catch_up() for log in logs}


def _late(first: Ends, moment: Ends, last: Ends, step_of: Callable[[bytes], TransactionStep]) -> list[TransactionStep]:
    """The decisions behind the moment, in order; raises Unclear if their markers cannot be told from those of earlier decisions."""
    early: set[int] = set()  # producers
    late: list[TransactionStep] = []
    for log, view in last.items():
        begin = first[log].written_offset
        if begin == view.written_offset:
            continue
        _check_growth(first[log], view)
        for record in log.read(begin, end_offset=view.written_offset):
            if record.value is None:
                continue
            step = step_of(record.value)
            if step.decides and record.offset >= moment[log].written_offset:
                if not step.own_epoch and step.producer_id in early:
                    raise Unclear(f"{log.topic}-{log.partition}: producer {step.producer_id} ends its transactions too fast")
                late.append(step)
            else:
                early.add(step.producer_id)
    return late


def _check_growth(before: LogView, after: LogView) -> None:
    """Raise Unclear unless a log has only grown at its end, within one segment."""
    if before.active is not after.active or before.written_offset > after.written_offset:
        raise Unclear("a segment was rolled, or replaced")


def _check_no_transaction(log: TailLog, low: LogView, high: LogView) -> None:
    if _first(low, high, lambda attributes, _producer_id, _epoch: bool(attributes & TRANSACTIONAL)) is not None:
        raise Unclear(f"{log.topic}-{log.partition}: offsets of a transaction were written")


def _cut(low: LogView, high: LogView, late: dict[int, int]) -> LogView:
    """``high``, but ended before the first marker of a producer in ``late`` with at least the epoch there."""
    found = _first(low, high, lambda attributes, producer_id, epoch: bool(attributes & CONTROL) and epoch >= late.get(producer_id, 1 << 16))
    return high if found is None else high._replace(written_offset=found.offset, written_position=found.position)


def _first(low: LogView, high: LogView, wanted: Callable[[int, int, int], bool]) -> Point | None:
    """Where the first wanted batch between two views begins; ``wanted`` takes attributes, producer id and epoch."""
    if low.written_offset == high.written_offset:
        return None
    _check_growth(low, high)
    segment = high.segments[segment_slot(high.segments, low.written_offset)]
    reader = SegmentReader(segment, low.written_offset, high.written_offset, high.epochs.entries or None)
    while (view := reader.read(buffers.READ_SIZE_BYTES)) is not None:
        position = reader.position - len(view)
        for _, head in convert.headers(view):
            if head.base_offset >= low.written_offset and wanted(head.attributes, head.producer_id, head.producer_epoch):
                return Point(segment.base_offset, head.base_offset, position)
            position += head.size_bytes
    return None
