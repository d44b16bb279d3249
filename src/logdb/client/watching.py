"""``db.watch``: an iterator of changes of topics, and of a cluster's nodes.

It keeps the last known state of the topics.  If the session no longer knows its position (the server restarted, or the iterator
was idle for too long), it compares that state with the present one, and reports the differences.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from logdb.broker.watch import by_name, differences
from logdb.model import INTERNAL_TOPICS, ClusterEvent, TopicEvent

if TYPE_CHECKING:
    from logdb.requests.session import Session

_WAIT_MS_MAX = 10_000
_STOP_WAIT_MS_MAX = 100  # between two checks for a stop


class Watch:
    """An iterator of changes.  Made by ``Database.watch``; for one thread at a time."""

    def __init__(self, session: "Session", *, timeout_ms: int | None, stop: threading.Event | None, internal: bool, cluster: bool) -> None:
        self._session, self._internal, self._cluster = session, internal, cluster
        self._timeout_ms, self._stop = timeout_ms, stop
        self._position = session.changes(None, 0).position
        self._known = by_name(session.topics(internal=True))
        self._news: deque[TopicEvent | ClusterEvent] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TopicEvent | ClusterEvent:
        until = None if self._timeout_ms is None else time.monotonic() + self._timeout_ms / 1000
        wait_ms_max = _WAIT_MS_MAX if self._stop is None else _STOP_WAIT_MS_MAX
        while self._stop is None or not self._stop.is_set():
            left_ms = wait_ms_max if until is None else max(0, round((until - time.monotonic()) * 1000))
            event = self.next_within(min(left_ms, wait_ms_max))
            if event is not None:
                return event
            if until is not None and time.monotonic() >= until:
                break
        raise StopIteration

    def next_within(self, timeout_ms: int) -> TopicEvent | ClusterEvent | None:
        """The next change; None if none is reported within that time.

        Raises:
            Closed, ServerUnavailable: and other errors of the session.
        """
        if not self._news:
            changes = self._session.changes(self._position, timeout_ms)
            events: Iterable[TopicEvent | ClusterEvent] = changes.events
            if not changes.complete:
                events = differences(self._known, by_name(self._session.topics(internal=True)))
            self._position = changes.position
            self._news.extend(filter(self._is_wanted, events))
        return self._news.popleft() if self._news else None

    def _is_wanted(self, event: TopicEvent | ClusterEvent) -> bool:
        if isinstance(event, TopicEvent):
            return self._is_new(event) and (self._internal or not event.topic.internal)
        return self._cluster and (self._internal or event.partition is None or event.partition.topic not in INTERNAL_TOPICS)

    def _is_new(self, event: TopicEvent) -> bool:
        """Whether an event is news; a comparison of all topics may have reported it already."""
        name, topic_id, known = event.topic.name, event.topic.topic_id, self._known.get(event.topic.name)
        if event.kind == "topic_deleted":
            if known is None or known.topic_id != topic_id:
                return False
            del self._known[name]
            return True
        if known == event.topic or (known is not None and known.topic_id == topic_id and event.kind == "topic_created"):
            return False
        self._known[name] = event.topic
        return True
