"""A log of keyed records, and what a replay of it has to give, compacted or not.

Every offset that was appended is remembered, so that what is left after a compaction, a kill or
a power cut can be told from what should be.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from logdb import Log
from logdb.codec.convert import stamp_producer
from logdb.model import ProducerIdAndEpoch
from support.batches import Rec, encode_batch


class Row(NamedTuple):
    """What was appended at one offset; ``transaction``: its number, None for none; a marker has no key."""

    key: bytes | None
    value: bytes | None
    transaction: int | None = None


class Keyed:
    """What was appended to one log."""

    def __init__(self, seed: int = 0) -> None:
        self.rows: list[Row] = []
        self.ended: dict[int, tuple[int, bool]] = {}  # transaction: offset of its marker, whether it commits
        self._rng = random.Random(seed)
        self._sequences: dict[int, int] = {}

    def some(self, count: int, keys: int, size: int = 20) -> list[tuple[bytes, bytes | None]]:
        """Records to append: some keys, one in ten a tombstone."""
        rng = self._rng
        return [
            (b"key %d" % rng.randrange(keys), None if rng.random() < 0.1 else b"%d " % (len(self.rows) + n) * size) for n in range(count)
        ]

    def append(self, log: Log, count: int, keys: int, size: int = 20) -> None:
        """Append plain records; they are known before, since a kill may leave a part of them."""
        rows = self.some(count, keys, size)
        self.rows += [Row(key, value) for key, value in rows]
        log.append_many([value for _, value in rows], [key for key, _ in rows])

    def transact(self, log: Log, producer_id: int, count: int, keys: int, *, commit: bool | None, epoch: int = 0) -> None:
        """Append a batch of a transaction and, unless ``commit`` is None, end it."""
        number, producer = producer_id, ProducerIdAndEpoch(producer_id, epoch)
        rows = self.some(count, keys)
        self.rows += [Row(key, value, number) for key, value in rows]
        batch = bytearray(encode_batch([Rec(key, value) for key, value in rows]))
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = stamp_producer(batch, producer, sequence, transactional=True)
        log.append_batches(batch)
        if commit is not None:
            self.end(log, producer_id, commit=commit, epoch=epoch)

    def end(self, log: Log, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        self.ended[producer_id] = len(self.rows), commit
        self.rows.append(Row(None, None))
        log.append_marker(ProducerIdAndEpoch(producer_id, epoch), commit=commit, coordinator_epoch=0)

    def replay(self, end: int) -> dict[bytes, bytes]:
        """The latest value of each key, of what was committed below ``end``."""
        found: dict[bytes, bytes] = {}
        for row in self.rows[: self.stable(end)]:
            if row.key is None or (row.transaction is not None and not self.ended[row.transaction][1]):
                continue
            found.pop(row.key, None)
            if row.value is not None:
                found[row.key] = row.value
        return found

    def stable(self, end: int) -> int:
        """Where what is decided ends, in a log that ends at ``end``."""
        undecided = (
            offset
            for offset, row in enumerate(self.rows[:end])
            if row.transaction is not None and (row.transaction not in self.ended or self.ended[row.transaction][0] >= end)
        )
        return next(undecided, end)

    def check(self, log: Log, where: object = "") -> int:
        """See that a replay of ``log`` gives what it should, that records are where they were; returns how many there are."""
        end, count = log.end_offset, 0
        found: dict[bytes, bytes] = {}
        for record in log.read(log.start_offset, isolation_level="read_committed"):
            row = self.rows[record.offset]
            assert (record.key, record.value) == (row.key, row.value), where
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
            count += 1
        assert found == self.replay(end), where
        assert log.last_stable_offset == self.stable(end), where
        return count
