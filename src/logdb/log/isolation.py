"""What ``read_committed`` leaves out: the batches of aborted transactions.

Knows batches and the list of aborted transactions.  Does not know where the list comes from.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from logdb.codec import Header, convert
from logdb.codec.batch import TRANSACTIONAL
from logdb.model import AbortedTransaction, Buffer

IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


def is_committed(isolation_level: str) -> bool:
    """Whether only what is committed is to be read; raises ValueError for a level that there is not."""
    if isolation_level not in ISOLATION_LEVELS:
        raise ValueError(f"isolation_level {isolation_level!r}: allowed are {', '.join(ISOLATION_LEVELS)}")
    return isolation_level == "read_committed"


def without_aborted(chunks: Iterable[Buffer], aborted: Sequence[AbortedTransaction]) -> Iterator[memoryview]:
    """The batches of ``chunks`` that are part of no aborted transaction, in runs as long as they lie together.

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
        del view, chunk  # its buffer may be taken again


def _runs(batches: memoryview, ranges: dict[int, list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Stretches of bytes that hold no batch to be left out."""
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
