"""The size of a micro-batch, and each partition's share of it: maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay."""

from collections.abc import Callable, Mapping
from typing import TypeVar

P = TypeVar("P")


def pro_rata(start: Mapping[P, int], end: Mapping[P, int], offsets_max: int) -> dict[P, int]:
    """The end of a micro-batch of ``offsets_max`` offsets: each partition with offsets gives one, and its share of the rest.

    If more partitions than ``offsets_max`` have offsets, the batch is larger, so that no partition starves.

    Args:
        start, end: Of the same partitions; a partition that ends before its start has no offsets.
        offsets_max: 1 or more.
    """
    sizes = {one: end[one] - start[one] for one in end if end[one] > start[one]}
    given = shares(sizes, offsets_max)
    return {one: start[one] + given[one] if one in given else end[one] for one in end}


def shares(sizes: Mapping[P, int], count: int) -> dict[P, int]:
    """Divide ``count`` by size: at least one to each, at most its size, no other off its exact share by more than one.

    Args:
        sizes: 1 or more each.
        count: If it is less than the number of sizes, each gets one.
    """
    rest, total = count - len(sizes), sum(sizes.values()) - len(sizes)
    if rest >= total:
        return dict(sizes)
    if rest <= 0:
        return dict.fromkeys(sizes, 1)
    given = {one: 1 + (size - 1) * rest // total for one, size in sizes.items()}
    missing = count - sum(given.values())
    for one in sorted(sizes, key=lambda one: (sizes[one] - 1) * rest % total, reverse=True)[:missing]:  # the remainder of rounding down
        given[one] += 1
    return given


class Delay:
    """Delays a batch until it has ``offsets_min`` offsets, or ``delay_ms_max`` have passed since the last one.

    The first batch is not delayed.
    """

    def __init__(self, offsets_min: int, delay_ms_max: int, monotonic_ms: Callable[[], int]) -> None:
        self._offsets_min, self._delay_ms_max, self._monotonic_ms = offsets_min, delay_ms_max, monotonic_ms
        self._last_ms: int | None = None

    def holds(self, count: int) -> bool:
        """Whether a batch of so many offsets has to wait; if not, it becomes the last one."""
        now = self._monotonic_ms()
        if self._last_ms is not None and count < self._offsets_min and now - self._last_ms < self._delay_ms_max:
            return True
        self._last_ms = now
        return False
