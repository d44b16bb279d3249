"""Which worker runs which connectors and tasks: pure, incremental and cooperative (KIP-415).

A worker keeps what it has, up to its fair share.  What is over that moves in two rounds: its owner gives it up and joins again; then it
is free for others.  The work of a worker that has left waits for a worker to come in its place, for
``scheduled.rebalance.max.delay.ms`` at most.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from logdb_connect.runtime.tasks import TaskId

T = TypeVar("T", str, TaskId)


class Work(NamedTuple):
    """Connectors and tasks."""

    connectors: frozenset[str] = frozenset()
    tasks: frozenset[TaskId] = frozenset()

    @staticmethod
    def union(parts: "Iterable[Work]") -> "Work":
        listed = list(parts)
        return Work(frozenset(each for one in listed for each in one.connectors), frozenset(each for one in listed for each in one.tasks))

    def within(self, other: "Work") -> "Work":
        return Work(self.connectors & other.connectors, self.tasks & other.tasks)

    def without(self, other: "Work") -> "Work":
        return Work(self.connectors - other.connectors, self.tasks - other.tasks)

    def any(self) -> bool:
        return bool(self.connectors or self.tasks)


class Plan(NamedTuple):
    """Work of each member, and the milliseconds until what waits is assigned; 0: nothing waits."""

    work: dict[str, Work]
    delay_ms: int


@dataclass
class Leader:
    """What the leader remembers between rebalances.

    Attributes:
        assigned: All work of the last plan; None: this worker has just become the leader, and treats all free work as new.
        member_count: How many members there were when nothing waited.
        until_ms: When waiting work is assigned to others; None: nothing waits.
        waiting: Work that a worker had which has left.
    """

    assigned: Work | None = None
    member_count: int = 0
    until_ms: int | None = None
    waiting: Work = Work()  # noqa: RUF009 -- a tuple

    def plan(self, owned: Mapping[str, Work], configured: Work, *, now_ms: int, delay_ms: int) -> Plan:
        """Assign all that is configured.

        Args:
            owned: What each member runs now.
            delay_ms: How long work waits for a worker to come back.
        """
        running = Work.union(owned.values())
        lost = Work() if self.assigned is None else Work.union([self.assigned, self.waiting]).within(configured).without(running)
        fewer = len(owned) < self.member_count
        if lost.any() and fewer and self.until_ms is None and delay_ms > 0:
            self.until_ms = now_ms + delay_ms
            self.waiting = lost
        self.waiting = self.waiting.within(lost)
        if self.until_ms is not None and (now_ms >= self.until_ms or not fewer or not self.waiting.any()):
            self.until_ms, self.waiting = None, Work()
        if self.until_ms is None:
            self.member_count = len(owned)
        connectors = _balanced({one: work.connectors for one, work in owned.items()}, configured.connectors, self.waiting.connectors)
        tasks = _balanced({one: work.tasks for one, work in owned.items()}, configured.tasks, self.waiting.tasks)
        plan = {one: Work(connectors[one], tasks[one]) for one in owned}
        self.assigned = Work.union(plan.values())
        return Plan(plan, 0 if self.until_ms is None else self.until_ms - now_ms)


def _balanced(owned: Mapping[str, AbstractSet[T]], configured: AbstractSet[T], waiting: AbstractSet[T]) -> dict[str, frozenset[T]]:
    """Everyone's share of ``configured``.  Work that has to move, or that waits, is in no share yet."""
    share, more = divmod(len(configured) - len(waiting), len(owned))
    running = [each for work in owned.values() for each in work]
    twice = {each for each in running if running.count(each) > 1}  # a worker was thought dead, and is not: all give it up
    kept = {member: sorted(each for each in work if each in configured and each not in twice) for member, work in owned.items()}
    given: dict[str, set[T]] = {}
    for number, member in enumerate(sorted(owned, key=lambda one: (-len(kept[one]), one))):
        given[member] = set(kept[member][: share + (number < more)])
    for each in sorted(configured - set(running) - waiting):
        given[min(given, key=lambda one: (len(given[one]), one))].add(each)
    return {member: frozenset(work) for member, work in given.items()}
