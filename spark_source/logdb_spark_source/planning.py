"""From offsets to tasks: ranges are cut or joined to the wanted number of tasks."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from logdb_spark_source.limits import shares

ROWS_PER_TASK = 100_000
"""Fewer offsets than that are not worth a task of their own: starting one takes as long as reading so many."""


class Range(NamedTuple):
    """Offsets [``start``, ``end``) of one partition of the topic with the id ``topic_id``."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


class Task(InputPartition):
    """The ranges of one Spark task, in order."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        super().__init__(tuple(tuple(one) for one in ranges))  # plain tuples pickle to a third of the bytes

    @property
    def ranges(self) -> list[Range]:
        """In reading order."""
        return [Range(*one) for one in self.value or ()]


def divide(ranges: Iterable[Range], *, count_min: int | None = None, records_max: int | None = None) -> list[Range]:
    """The non-empty ranges, cut into pieces.

    Args:
        count_min: The least number of pieces, more of the larger ranges; fewer if there are not so many offsets.
        records_max: Most offsets of a piece, 1 or more.
    """
    pieces = [one for one in ranges if one.size > 0]
    if records_max is not None:
        pieces = [piece for one in pieces for piece in _cut(one, -(-one.size // records_max))]
    if count_min is None or len(pieces) >= count_min:
        return pieces
    counts = shares({at: one.size for at, one in enumerate(pieces)}, count_min)
    return [piece for at, one in enumerate(pieces) for piece in _cut(one, counts[at])]


def _cut(one: Range, count: int) -> list[Range]:
    """``count`` pieces whose sizes differ by one at most."""
    edges = [one.start + one.size * at // count for at in range(count + 1)]
    return [one._replace(start=start, end=end) for start, end in pairwise(edges)]


def pack(ranges: Sequence[Range], *, count_min: int = 1, rows_per_task: int = ROWS_PER_TASK) -> list[Task]:
    """Join ranges to tasks of about ``rows_per_task`` offsets; larger ranges stay alone, none is cut.

    Args:
        count_min: The least number of tasks, if there are so many ranges.
    """
    total = sum(one.size for one in ranges)
    count = min(len(ranges), max(count_min, -(-total // rows_per_task)))
    bins: list[list[Range]] = [[] for _ in range(count)]
    filled = [0] * count
    for one in sorted(ranges, key=lambda one: -one.size):
        at = min(range(count), key=lambda at: (filled[at], len(bins[at])))
        bins[at].append(one)
        filled[at] += one.size
    return [Task(sorted(some)) for some in bins]
