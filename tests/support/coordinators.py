"""A coordinator that is easy to foresee: it keeps a dict, and does what its events say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from logdb.coordinator.effects import Action, ActionDone, ActionFailed, Effects, Reply, StateRecord, Timer, TimerFired


@dataclass(frozen=True, kw_only=True)
class Put:
    """Set a key; the answer is the old value."""

    ticket: int
    key: bytes
    value: bytes | None
    sync: bool = False
    deferred: bool = False


@dataclass(frozen=True, kw_only=True)
class Later:
    """Answer when a Release comes, or the timer fires."""

    ticket: int
    delay_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Release:
    ticket: int
    result: Any = None


@dataclass(frozen=True, kw_only=True)
class Do:
    """Put a record, then have ``action`` carried out; the answer is how that went."""

    ticket: int
    action: Action
    sync: bool = False


class Note(NamedTuple):
    """An action."""

    what: str


class CountDown(NamedTuple):
    """An action that leads to the next one, down to 0."""

    left: int


class KeyValues:
    """A dict whose changes are records."""

    def __init__(self) -> None:
        self.state: dict[bytes, bytes] = {}
        self.markers: list[tuple[int, bool]] = []
        self.replayed: list[tuple[int, bytes, bytes | None, int]] = []
        self.offsets: list[int] = []
        self.waiting: list[int] = []
        self.failures: list[Exception] = []
        self.acting = 0
        self.recovery = Effects()

    def handle(self, event: Any, now_ms: int) -> Effects:
        match event:
            case Put(ticket=ticket, key=key, value=value):
                replies = (Reply(ticket, self.state.get(key)),)
                return Effects(records=(StateRecord(key, value),), replies=replies, sync=event.sync, deferred=event.deferred)
            case Later(ticket=ticket, delay_ms=delay_ms):
                timers = (Timer("later", delay_ms),) if delay_ms is not None else ()
                return Effects(timers=timers, changes={"waiting": [*self.waiting, ticket]})
            case Release(ticket=ticket, result=result):
                replies = (*(Reply(waiting, result) for waiting in self.waiting), Reply(ticket, len(self.waiting)))
                return Effects(replies=replies, timers=(Timer("later", None),), changes={"waiting": []})
            case TimerFired(key="later"):
                return Effects(replies=tuple(Reply(waiting, "late") for waiting in self.waiting), changes={"waiting": []})
            case Do(ticket=ticket, action=action, sync=sync):
                return Effects(records=(StateRecord(b"doing", b"1"),), actions=(action,), sync=sync, changes={"acting": ticket})
            case ActionDone(action=CountDown(left=left)):
                return Effects(actions=(CountDown(left - 1),)) if left else Effects(replies=(Reply(self.acting, "zero"),))
            case ActionDone(action=action):
                return Effects(records=(StateRecord(b"doing", None),), replies=(Reply(self.acting, action.what),))
            case ActionFailed(error=error):
                return Effects(replies=(Reply(self.acting, error),), changes={"failures": [*self.failures, error]})
        raise AssertionError(event)

    def accept(self, effects: Effects, offset: int) -> None:
        for name, value in effects.changes.items():
            setattr(self, name, value)
        for number, record in enumerate(effects.records):
            self._set(record.key, record.value, offset + number)

    def _set(self, key: bytes, value: bytes | None, offset: int) -> None:
        self.offsets.append(offset)
        if value is None:
            self.state.pop(key, None)
        else:
            self.state[key] = value

    def apply(self, key: bytes, value: bytes | None, *, offset: int, producer_id: int = -1) -> None:
        self.replayed.append((offset, key, value, producer_id))
        self._set(key, value, offset)

    def apply_marker(self, producer_id: int, *, commit: bool) -> None:
        self.markers.append((producer_id, commit))

    def recover(self, now_ms: int) -> Effects:
        return self.recovery
