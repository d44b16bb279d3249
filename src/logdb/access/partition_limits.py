"""Bounds on the partitions that are created through a server: each is a directory with files, until its topic is deleted.

    bound of      counts
    a request     the partitions that it adds
    a principal   those that it has added since the server was started, to topics that still exist; not for super users, and not
                  while authentication is off
    a server      all partitions of the directory but those of internal topics

The application itself is bounded by ``model.PARTITION_COUNT_MAX`` alone.

Threading: any number of threads.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from logdb.errors import InvalidPartitions
from logdb.mistakes import must_be
from logdb.requests.principals import Principal
from logdb.threads import renewed

Counts: TypeAlias = Callable[[], Mapping[str, int]]
"""Returns the number of partitions of each topic."""


class PartitionLimits(NamedTuple):
    """The three bounds; each is an option of ``logdb.serve``."""

    partitions_per_request_max: int = 1_000
    partitions_per_principal_max: int = 5_000
    partitions_max: int = 20_000

    def check(self) -> "PartitionLimits":
        """Return the limits if they are valid; raises ValueError."""
        for name, value in self._asdict().items():
            if type(value) is not int or value < 1:
                raise ValueError(must_be(name, value, "a whole number, 1 or more"))
        return self


class Partitions:
    """The partitions that principals have created, and those that are being created."""

    def __init__(self, limits: PartitionLimits) -> None:
        self._limits, self._lock = limits.check(), renewed(threading.Lock())
        self._made: dict[tuple[str, Principal], int] = {}  # by topic and creator
        self._coming: Counter[Principal] = Counter()

    @contextlib.contextmanager
    def adding(self, principal: Principal, topic: str, count: int, counts: Counts, *, bounded: bool) -> Iterator[None]:
        """Reserve room while a topic is created with, or grows to, ``count`` partitions.

        Args:
            bounded: Whether the principal's bound applies.

        Raises:
            InvalidPartitions: They are too many.
        """
        with self._lock:
            added = self._added(principal, topic, count, counts(), bounded=bounded)
            self._coming[principal] += added
        try:
            yield
            with self._lock:
                self._made[topic, principal] = self._made.get((topic, principal), 0) + added
        finally:
            with self._lock:
                self._coming[principal] -= added
                self._coming += Counter()  # removes entries that are zero

    def check(self, principal: Principal, topic: str, count: int, counts: Counts, *, bounded: bool) -> None:
        """Raise what ``adding`` would."""
        with self._lock:
            self._added(principal, topic, count, counts(), bounded=bounded)

    def _added(self, principal: Principal, topic: str, count: int, counts: Mapping[str, int], *, bounded: bool) -> int:
        """The number of partitions that are added; raises where a bound is exceeded."""
        of_request, of_principal, of_server = self._limits
        added = max(0, count - counts.get(topic, 0))
        if added > of_request:
            raise InvalidPartitions(topic, count, f"a request adds {of_request} at most (partitions_per_request_max)")
        self._made = {(name, who): min(made, counts[name]) for (name, who), made in self._made.items() if name in counts}
        own = self._coming[principal] + sum(made for (_, who), made in self._made.items() if who == principal)
        if bounded and added and own + added > of_principal:
            allowed = f"{principal} has made {own} since the server was started, of {of_principal} (partitions_per_principal_max)"
            raise InvalidPartitions(topic, count, allowed)
        there = self._coming.total() + sum(counts.values())
        if added and there + added > of_server:
            raise InvalidPartitions(topic, count, f"there are {there} in all, of {of_server} (partitions_max)")
        return added
