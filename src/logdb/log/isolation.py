"""Filters the batches of aborted transactions for ``read_committed``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from logdb.codec import Header, convert
from logdb.codec.batch import TRANSACTIONAL
from logdb.mistakes import must_be, one_of
from logdb.model import AbortedTransaction, Buffer

IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


def is_committed(isolation_level: str) -> bool:
    """Whether the level is ``read_committed``; raises ValueError for an unknown level."""
    if isolation_level not in ISOLATION_LEVELS:
        raise ValueError(must_be("isolation_level", isolation_level, one_of(ISOLATION_LEVELS)))
    return isolation_level == "read_committed"


def without_aborted(chunks: Iterable[Buffer], aborted: Sequence[AbortedTransaction]) -> Iterator[memoryview]:
    """The batches of ``chunks`` outside of aborted transactions, in contiguous runs.

    Args:
        chunks: uint8[n] each, checked batches back to back; each is borrowed until the next one is asked for.
    """
    ranges: dict[int, list[tuple[int, int]]] = {}
    for transaction in aborted:
        ranges.setdefault(transaction.producer_id, []).append((transaction.first_offset, transaction.last_offset))
    for chunk in chunks:
        view = memoryview(chunk)
        for start, stop in _runs(view, ranges):
            yield view[start:stop]
        del view, chunk  # its buffer may be reused


def _runs(batches: memoryview, ranges: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The ranges of bytes without batches of aborted transactions."""
    runs, start, at = [], 0, 0
    for _, head in convert.headers(batches):
        if _is_aborted(head, ranges):
            if start < at:
                runs.append((start, at))
            start = at + head.size_bytes
        at += head.size_bytes
    if start < at:
        runs.append((start, at))
    return runs


def _is_aborted(head: Header, ranges: dict[int, list[tuple[int, int]]]) -> bool:
    if not head.attributes & TRANSACTIONAL or head.producer_id not in ranges:
        return False
    return any(first <= head.base_offset <= last for first, last in ranges[head.producer_id])
