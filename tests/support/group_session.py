"""A session whose groups are a coordinator in memory and whose clock stands still until it is told: for members' tests."""

import itertools
from concurrent.futures import Future
from typing import Any

from logdb.coordinator.effects import Effects, Submitted, TimerFired
from logdb.coordinator.group_coordinator import GroupCoordinator
from logdb.coordinator.groups import GroupConfig
from logdb.errors import LogdbError, UnknownTopic
from logdb.requests.session import Session


class GroupSession(Session):
    """As much of a session as a membership asks for.

    Attributes:
        counts: The topics and their partitions.
        failures: Raised by the next calls instead of what they would do.
    """

    def __init__(self, **counts: int) -> None:
        self.counts, self.now_ms, self.failures = dict(counts), 0, list[LogdbError]()
        numbers = itertools.count(1)
        self.coordinator = GroupCoordinator(GroupConfig(), new_id=lambda: str(next(numbers)))
        self._tickets = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._timers: dict[Any, int] = {}
        self._offset = 0

    def partition_count(self, topic: str) -> int:
        if topic not in self.counts:
            raise UnknownTopic(topic)
        return self.counts[topic]

    def pass_ms(self, delay_ms: int) -> None:
        """Let time go by, and timers fire."""
        until_ms = self.now_ms + delay_ms
        while due := sorted((at_ms, key) for key, at_ms in self._timers.items() if at_ms <= until_ms):
            self.now_ms, key = due[0]
            del self._timers[key]
            self._carry_out(self.coordinator.handle(TimerFired(key), self.now_ms))
        self.now_ms = until_ms

    def _carry_out(self, effects: Effects) -> None:
        self.coordinator.accept(effects, self._offset)
        self._offset += len(effects.records)
        for timer in effects.timers:
            self._timers.pop(timer.key, None)
            if timer.delay_ms is not None:
                self._timers[timer.key] = self.now_ms + timer.delay_ms
        for ticket, result in effects.replies:
            if (future := self._waiting.pop(ticket, None)) is not None:
                future.set_exception(result) if isinstance(result, LogdbError) else future.set_result(result)

    def submit(self, request: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        ticket, future = next(self._tickets), Future[Any]()
        self._waiting[ticket] = future
        self._carry_out(self.coordinator.handle(Submitted(ticket, request), self.now_ms))
        return future if request.waits else future.result()
