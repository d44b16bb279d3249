"""Signals that partitions of a server have grown, by long polls.

Threading: any number of threads watch; one thread, which lives while there are watchers, polls the server.
"""

import threading
from typing import TYPE_CHECKING

from logdb.errors import LogdbError
from logdb.model import KnownLog, Signal, TopicPartition
from logdb.threads import renewed, started
from logdb_http_api.protocol import LogState

if TYPE_CHECKING:
    from logdb_http_api.remote.end_offsets import EndOffsets

_POLL_MS = 250  # until watchers that came meanwhile are included
_IDLE_S = 2.0  # a new thread for each poll would cost more than an idle one


class Watching:
    """The signals of one session."""

    def __init__(self, ends: "EndOffsets") -> None:
        self._ends = ends
        self._events: dict[TopicPartition, list[Signal]] = {}
        self._changed = renewed(threading.Condition())
        self._thread: threading.Thread | None = None
        self._closed = False

    def watch(self, partition: TopicPartition, grown: Signal) -> None:
        """Set ``grown`` whenever there may be more to read, until ``unwatch``; raises ThreadUnavailable."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = started("logdb-watch", self._run)
            self._events.setdefault(partition, []).append(grown)
            self._changed.notify()

    def unwatch(self, partition: TopicPartition, grown: Signal) -> None:
        """Undo one ``watch``."""
        with self._changed:
            left = [event for event in self._events.get(partition, ()) if event is not grown]
            if left:
                self._events[partition] = left
            else:
                self._events.pop(partition, None)

    def close(self) -> None:
        """Set all signals, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._set(self._watched())

    def _watched(self) -> list[TopicPartition]:
        with self._changed:
            return list(self._events)

    def _set(self, partitions: list[TopicPartition]) -> None:
        with self._changed:
            events = [event for partition in partitions for event in self._events.get(partition, ())]
        for event in events:
            event.set()

    def _run(self) -> None:
        known: dict[TopicPartition, LogState] = {}
        while self._is_wanted():
            watched = self._watched()
            if not watched:
                continue
            new = [partition for partition in watched if partition not in known]
            try:
                states = {partition: known[partition] for partition in watched if partition in known}
                positions = dict.fromkeys(watched, 0) | {partition: state.readable_end_offset for partition, state in states.items()}
                of = {partition: KnownLog(state.topic_id, state.leader_epoch) for partition, state in states.items()}
                ends = self._ends.ends(positions, 0 if new else _POLL_MS, of)
            except LogdbError:
                self._set(watched)  # their next request gets the error
                with self._changed:
                    self._changed.wait(_POLL_MS / 1000)
                continue
            self._set([partition for partition in watched if partition in new or _seen(ends.get(partition)) != _seen(known[partition])])
            known = ends

    def _is_wanted(self) -> bool:
        """Whether to go on polling; waits a while for watchers."""
        with self._changed:
            if not self._events and not self._closed:
                self._changed.wait(_IDLE_S)
            if self._closed or not self._events:
                self._thread = None
                return False
            return True


def _seen(state: LogState | None) -> tuple[int, str, int] | None:
    """What watchers are told of."""
    return None if state is None else (state.readable_end_offset, state.topic_id, state.leader_epoch)
