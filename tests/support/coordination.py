"""A runner without a log, a clock or threads: what ``coordinator.effects`` asks of one, in memory."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from logdb.coordinator.effects import ActionDone, ActionFailed, Effects, StateRecord, Submitted, TimerFired
from logdb.coordinator.group_coordinator import GroupCoordinator
from logdb.coordinator.groups import GroupConfig
from logdb.coordinator.transaction_coordinator import TransactionCoordinator
from logdb.coordinator.transactions import TransactionConfig
from logdb.errors import DiskFull, LogdbError

START_MS = 1_000_000
FULL = DiskFull("/nowhere", 100, "no space left on device")


class Marker(NamedTuple):
    producer_id: int
    commit: bool


class Entry(NamedTuple):
    record: StateRecord
    producer_id: int


class Runner:
    """Runs one coordinator; ``log`` is its partition, ``actions`` what it asked for and did not get yet."""

    def __init__(self, make: Callable[[dict[str, Any], int], Any], config: dict[str, Any]) -> None:
        self._make, self.config = make, config
        self.log: list[Entry | Marker] = []
        self.now_ms = START_MS
        self.refuses = False  # appends fail
        self.no_ids = False  # so do producer ids
        self.tickets = itertools.count(1)
        self.replies: dict[int, Any] = {}
        self.synced = 0  # so much of the log survives a power cut
        self.deferred: list[Entry | Marker] = []  # survives nothing
        self.epoch_start_offset = 0
        self.open()

    def open(self) -> None:
        """As after a start: what was not written is gone."""
        self.coordinator = self._make(self.config, self.epoch_start_offset)
        self.deferred.clear()
        self.timers: dict[tuple[str, ...], int] = {}
        self.actions: list[Any] = []
        for offset, entry in enumerate(self.log):
            if isinstance(entry, Marker):
                self.coordinator.apply_marker(entry.producer_id, commit=entry.commit)
            else:
                self.coordinator.apply(*entry.record, offset=offset, producer_id=entry.producer_id)
        self._carry_out(None, self.coordinator.recover(self.now_ms))

    # ------------------------------------------------------------ what a runner does

    def handle(self, event: Any) -> Effects:
        try:
            effects = self.coordinator.handle(event, self.now_ms)
        except LogdbError as error:
            return self.handle(ActionFailed(event.action, error))
        self._carry_out(event, effects)
        return effects

    def _carry_out(self, event: Any, effects: Effects) -> None:
        if effects.records and self.refuses and not effects.deferred:
            self._refuse(event, effects)
            return
        offset = len(self.log) + len(self.deferred)
        self.deferred += [Entry(record, effects.producer.producer_id if effects.producer else -1) for record in effects.records]
        if effects.records and not effects.deferred:
            self.write_deferred()
        if effects.sync:
            self.synced = len(self.log)
        self.coordinator.accept(effects, offset)
        for key, delay_ms in effects.timers:
            self.timers.pop(key, None)
            if delay_ms is not None:
                self.timers[key] = self.now_ms + delay_ms
        self.replies.update(effects.replies)
        self.actions += effects.actions

    def write_deferred(self) -> None:
        self.log += self.deferred
        self.deferred.clear()

    def _refuse(self, event: Any, effects: Effects) -> None:
        for ticket in [getattr(event, "ticket", None), *(reply.ticket for reply in effects.replies)]:
            self.replies[ticket] = FULL
        if isinstance(event, ActionDone):
            self.handle(ActionFailed(event.action, FULL))
        elif isinstance(event, TimerFired):
            self.timers[event.key] = self.now_ms + 1_000

    # ------------------------------------------------------------ what tests do

    def start(self, kind: type, *, verified: object = None, **fields: Any) -> int:
        """Ask; returns the ticket."""
        ticket = next(self.tickets)
        self.handle(Submitted(ticket, kind(**fields), verified))
        return ticket

    def call(self, kind: type, **fields: Any) -> Any:
        """Ask, and get the answer now."""
        return self.answer(self.start(kind, **fields))

    def waits(self, ticket: int) -> bool:
        return ticket not in self.replies

    def answer(self, ticket: int) -> Any:
        assert ticket in self.replies, "no answer yet"
        result = self.replies[ticket]
        if isinstance(result, LogdbError):
            raise result
        return result

    def advance(self, delay_ms: int) -> None:
        """Let time pass; timers fire when they are due."""
        end_ms = self.now_ms + delay_ms
        while due := [key for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            key = min(due, key=lambda key: (self.timers[key], key))
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.handle(TimerFired(key))
        self.now_ms = end_ms

    def act(self, *, error: LogdbError | None = None) -> Any:
        """Carry out the oldest action, or let it fail."""
        action = self.actions.pop(0)
        self.handle(ActionDone(action) if error is None else ActionFailed(action, error))
        return action

    def act_all(self) -> None:
        while self.actions:
            self.act()

    def mark(self, producer_id: int, *, commit: bool) -> None:
        """A marker is written to this partition."""
        self.log.append(Marker(producer_id, commit))
        self.coordinator.apply_marker(producer_id, commit=commit)

    def crash(self) -> None:
        """Kill and start again; whatever begins now may have begun before, in records that are lost."""
        self.epoch_start_offset = len(self.log)
        self.open()

    def reopen(self, *, power_cut: bool = False) -> None:
        """Kill and start again."""
        if power_cut:
            del self.log[self.synced :]
        self.open()


def group_runner(**config: Any) -> Runner:
    ids = map(str, itertools.count(1))
    return Runner(lambda config, _: GroupCoordinator(GroupConfig(**config), lambda: next(ids)), config)


def transaction_runner(**config: Any) -> Runner:
    producer_ids = itertools.count(1000)
    epochs = itertools.count()

    def new_producer_id() -> int:
        if runner.no_ids:
            raise FULL
        return next(producer_ids)

    def make(config: dict[str, Any], epoch_start_offset: int) -> TransactionCoordinator:
        return TransactionCoordinator(TransactionConfig(**config), new_producer_id, next(epochs), epoch_start_offset)

    runner = Runner(make, config)
    return runner
