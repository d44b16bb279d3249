"""How compaction treats a batch because of its producer: aborted transactions, markers, and the producer's last batch.

    | batch                                        | treatment                                          |
    |----------------------------------------------|----------------------------------------------------|
    | of an aborted transaction                    | removed, with all of its keys                      |
    | marker, data of its transaction remains      | kept                                               |
    | marker, no data of its transaction remains   | gets a delete horizon, and is removed after it     |
    | the last batch of a producer                 | kept, if need be without records                   |
    | marker of a producer without another batch   | kept: it has the producer's epoch                  |

An empty batch counts as data: without its marker, a replay of the log would open a transaction.

Source: Kafka's Cleaner.checkBatchRetention and CleanedTransactionMetadata.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logdb.codec.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL, HeaderFields, header_fields
from logdb.codec.compaction import BatchRetention
from logdb.model import AbortedTransaction


class LastBatch(NamedTuple):
    """A producer's last batch, by its last offset (-1: none under this epoch), and its epoch."""

    last_offset: int
    producer_epoch: int


class AbortedRanges:
    """The ``BatchRetention`` of each batch in one pass over a log.

    ``discarded``: last offsets of the markers that are removed.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction], last_batches: Mapping[int, LastBatch], now_ms: int) -> None:
        self._aborted: dict[int, list[tuple[int, int]]] = {}
        for transaction in sorted(aborted, key=lambda found: found.first_offset):
            self._aborted.setdefault(transaction.producer_id, []).append((transaction.first_offset, transaction.last_offset))
        self._last_batches, self._now_ms = last_batches, now_ms
        self._with_data: set[int] = set()  # producers with a transactional batch since their last marker
        self.discarded: set[int] = set()

    def of(self, batches: memoryview) -> bytes:
        """The ``BatchRetention`` of each of these checked batches; the next call continues behind them."""
        return bytes(self._retention(head) for head in header_fields(batches))

    def discards(self, batches: memoryview) -> bytes:
        """Which batches are of aborted transactions: DISCARD or PLAIN for each; calls may come in any order."""
        return bytes(BatchRetention.DISCARD if self._is_aborted(head) else BatchRetention.PLAIN for head in header_fields(batches))

    def _retention(self, head: HeaderFields) -> BatchRetention:
        if head.producer_id < 0:
            return BatchRetention.PLAIN
        retention = self._retention_of_marker(head) if head.attributes & CONTROL else self._retention_of_data(head)
        return retention | BatchRetention.RETAIN if self._is_last(head) else retention

    def _retention_of_data(self, head: HeaderFields) -> BatchRetention:
        if head.attributes & TRANSACTIONAL:
            self._with_data.add(head.producer_id)
        return BatchRetention.DISCARD if self._is_aborted(head) else BatchRetention.PLAIN

    def _retention_of_marker(self, head: HeaderFields) -> BatchRetention:
        if head.producer_id in self._with_data:
            self._with_data.discard(head.producer_id)
            return BatchRetention.PLAIN
        if head.record_count:
            if not head.attributes & DELETE_HORIZON:
                return BatchRetention.EXPIRES
            if head.base_timestamp > self._now_ms:
                return BatchRetention.PLAIN
        self.discarded.add(head.base_offset)
        return BatchRetention.DISCARD

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
