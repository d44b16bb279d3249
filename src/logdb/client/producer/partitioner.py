"""Partitioners: choose the partition of a record by its key."""

from collections.abc import Callable
from typing import TypeAlias

from logdb.codec import murmur2
from logdb.mistakes import must_be
from logdb.model import Buffer

Partitioner: TypeAlias = Callable[[Buffer | None, int], int]

_STICKY_RECORD_COUNT = 128  # about one batch of 16 KiB


class Default:
    """Kafka's: murmur2 of the key; records without a key stay with one partition for about a batch, then change it.

    Source: Kafka's ``BuiltInPartitioner``; KIP-480 for the sticky part.
    """

    __slots__ = ("_left", "_partition", "_random")

    def __init__(self, seed: int | None = None) -> None:
        from random import Random

        self._random = Random(seed)  # noqa: S311 -- spreads records, keeps no secret
        self._left, self._partition = 0, -1

    def __call__(self, key: Buffer | None, partition_count: int) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        if self._left <= 0 or self._partition >= partition_count:
            self._left = _STICKY_RECORD_COUNT
            self._partition = self._another(partition_count)
        self._left -= 1
        return self._partition

    def _another(self, partition_count: int) -> int:
        if partition_count == 1:
            return 0
        step = self._random.randrange(1, partition_count)
        return (max(self._partition, 0) + step) % partition_count


class RoundRobin:
    """One partition after the other; keys are ignored."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, _key: Buffer | None, partition_count: int) -> int:
        partition = self._next % partition_count
        self._next = partition + 1
        return partition


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """The partition that Kafka's default partitioner gives a key: murmur2 without its sign, modulo the count."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def make(partitioner: "str | Partitioner | None") -> Partitioner:
    """The partitioner named ``"default"`` (or None), ``"round_robin"``, or the callable itself.

    Raises:
        ValueError: Another name.
    """
    if partitioner is None or partitioner == "default":
        return Default()
    if partitioner == "round_robin":
        return RoundRobin()
    if callable(partitioner):
        return partitioner
    raise ValueError(must_be("partitioner", partitioner, "'default', 'round_robin' or a callable (key, partition_count) -> int"))
