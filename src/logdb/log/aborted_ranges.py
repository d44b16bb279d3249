"""What compaction does to a batch because of its producer: transactions and sequences.

Knows batches' headers, which transactions were aborted, and each producer's last batch.  Does not know keys.

    | batch                                        | becomes                                            |
    |----------------------------------------------|----------------------------------------------------|
    | of an aborted transaction                    | goes, whatever its keys                            |
    | marker, data of its transaction met before   | stays                                              |
    | marker, no data left                         | gets a delete horizon, and goes once that is over  |
    | the last one of a producer                   | stays, without records if need be                  |
    | marker of a producer that has no other batch | the same: it has the epoch                         |

An empty batch counts as data: without its marker, a replay of the log would take it for a transaction that is open.

Source: Kafka's Cleaner.checkBatchRetention and CleanedTransactionMetadata.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logdb.codec.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL, HeaderFields, header_fields
from logdb.codec.compaction import Verdict
from logdb.model import AbortedTransaction


class LastBatch(NamedTuple):
    """What keeps a producer known: its last batch by the last offset (-1: none under this epoch), and its epoch."""

    last_offset: int
    producer_epoch: int


class AbortedRanges:
    """The verdicts on the batches of one pass over a log.

    ``discarded``: last offsets of the markers that go.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], last_batches: Mapping[int, LastBatch], now_ms: int) -> None:
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for transaction in sorted(aborted, key=lambda found: found.first_offset):
            self._aborted.setdefault(transaction.producer_id, []).append((transaction.first_offset, transaction.last_offset))
        self._last_batches, self._now_ms = last_batches, now_ms
        self._with_data: set[int] = set()  # producers of which a transactional batch was met since their last marker
        self.discarded: set[int] = set()

    def of(self, batches: memoryview) -> bytes:
        """A ``Verdict`` for each of some checked batches; the next call is about those behind them."""
        return bytes(self._judge(head) for head in header_fields(batches))

    def discards(self, batches: memoryview) -> bytes:
        """The same for a look at the batches alone, in any order: only which of them count for nothing."""
        return bytes(Verdict.DISCARD if self._is_aborted(head) else Verdict.PLAIN for head in header_fields(batches))

    def _judge(self, head: HeaderFields) -> Verdict:
        if head.producer_id < 0:
            return Verdict.PLAIN
        verdict = self._judge_marker(head) if head.attributes & CONTROL else self._judge_data(head)
        return verdict | Verdict.RETAIN if self._is_last(head) else verdict

    def _judge_data(self, head: HeaderFields) -> Verdict:
        if head.attributes & TRANSACTIONAL:
            self._with_data.add(head.producer_id)
        return Verdict.DISCARD if self._is_aborted(head) else Verdict.PLAIN

    def _judge_marker(self, head: HeaderFields) -> Verdict:
        if head.producer_id in self._with_data:
            self._with_data.discard(head.producer_id)
            return Verdict.PLAIN
        if head.record_count:
            if not head.attributes & DELETE_HORIZON:
                return Verdict.EXPIRES
            if head.base_timestamp > self._now_ms:
                return Verdict.PLAIN
        self.discarded.add(head.base_offset)
        return Verdict.DISCARD

    def _is_aborted(self, head: HeaderFields) -> bool:
        ranges = self._aborted.get(head.producer_id)
        if not ranges or head.attributes & CONTROL or not head.attributes & TRANSACTIONAL:
            return False
        slot = bisect_right(ranges, (head.base_offset, 2**63)) - 1
        return slot >= 0 and head.base_offset <= ranges[slot][1]

    def _is_last(self, head: HeaderFields) -> bool:
        last = self._last_batches.get(head.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return last.last_offset == head.base_offset + head.last_offset_delta
        return bool(head.attributes & CONTROL) and last.producer_epoch == head.producer_epoch
