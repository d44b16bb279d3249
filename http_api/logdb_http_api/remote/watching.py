"""Telling those who wait that partitions at a server have grown.

Knows events and long polls.  Does not know who waits, nor for what.

Threading: any number of threads watch; one, which lives as long as somebody does, asks the server.
"""

import threading
from typing import TYPE_CHECKING

from logdb.errors import LogdbError
from logdb.model import Signal, TopicPartition
from logdb.threads import renewed, started

if TYPE_CHECKING:
    from logdb_http_api.remote.end_offsets import EndOffsets

_POLL_MS = 250  # until those who came meanwhile are counted in
_IDLE_S = 2.0  # a thread that ends with each look would cost more than it waits


class Watching:
    """The events of one session."""

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
        """Take one ``watch`` back."""
        with self._changed:
            left = [event for event in self._events.get(partition, ()) if event is not grown]
            if left:
                self._events[partition] = left
            else:
                self._events.pop(partition, None)

    def close(self) -> None:
        """Wake all; there will be nothing more."""
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
        known: dict[TopicPartition, int] = {}
        while self._is_wanted():
            watched = self._watched()
            if not watched:
                continue
            new = [partition for partition in watched if partition not in known]
            try:
                positions = {partition: known.get(partition, 0) for partition in watched}
                ends = self._ends.ends(positions, 0 if new else _POLL_MS)
            except LogdbError:
                self._set(watched)  # whoever looks is told what is wrong
                with self._changed:
                    self._changed.wait(_POLL_MS / 1000)
                continue
            self._set([partition for partition in watched if partition in new or ends.get(partition, -1) != known[partition]])
            known = ends

    def _is_wanted(self) -> bool:
        """Whether to go on; waits a while for somebody to come."""
        with self._changed:
            if not self._events and not self._closed:
                self._changed.wait(_IDLE_S)
            if self._closed or not self._events:
                self._thread = None
                return False
            return True
