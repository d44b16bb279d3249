"""``db.watch``: an iterator of changes of topics, and of a cluster's nodes.

It keeps the last known state of the topics and nodes.  If the session no longer knows its position (the server restarted, another node
answers, or the iterator was idle for too long), it compares that state with the present one, and reports the differences.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Self

from logdb.broker.watch import by_name, differences
from logdb.handles import Handle, refusing
from logdb.model import INTERNAL_TOPICS, ClusterEvent, Duration, TopicEvent, duration_ms
from logdb.signatures import readable

if TYPE_CHECKING:
    from logdb.requests.nodes import ClusterNodes
    from logdb.requests.session import Session

_WAIT_MS_MAX = 10_000
_STOP_WAIT_MS_MAX = 100  # between two checks for a stop


@readable
class Watch(Handle):
    """An iterator of changes.  Made by ``Database.watch``; for one thread at a time."""

    def __init__(self, session: "Session", *, timeout_ms: int | None, stop: threading.Event | None, internal: bool, cluster: bool) -> None:
        self._session, self._internal = session, internal
        self._timeout_ms, self._stop = timeout_ms, stop
        self._position = session.changes(None, 0).position
        self._known = by_name(session.topics(internal=True))
        self._nodes = KnownNodes(session.cluster_nodes()) if cluster else None
        self._news: deque[TopicEvent | ClusterEvent] = deque()

    __contains__ = refusing("__contains__", "`in` would wait for the changes of this {}. Use: for event in …")

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

    def next_within(self, timeout_ms: Duration) -> TopicEvent | ClusterEvent | None:
        """The next change; None if none is reported within that time.

        Args:
            timeout_ms: The longest wait, milliseconds or a ``timedelta``.

        Raises:
            Closed, ServerUnavailable: and other errors of the session.
        """
        if not self._news:
            changes = self._session.changes(self._position, duration_ms(timeout_ms))
            events: Iterable[TopicEvent | ClusterEvent] = changes.events
            if not changes.complete:
                events = self._differences()
            self._position = changes.position
            self._news.extend(filter(self._is_wanted, events))
        return self._news.popleft() if self._news else None

    def _differences(self) -> list[TopicEvent | ClusterEvent]:
        """What may have changed since the last event; in the order in which a node tells of one change."""
        events: list[TopicEvent | ClusterEvent] = [*differences(self._known, by_name(self._session.topics(internal=True)))]
        if self._nodes is not None:
            events += self._nodes.events(self._session.cluster_nodes())
        return events

    def _is_wanted(self, event: TopicEvent | ClusterEvent) -> bool:
        if isinstance(event, TopicEvent):
            return self._is_new(event) and (self._internal or not event.topic.internal)
        if self._nodes is None or not self._nodes.is_new(event):
            return False
        return self._internal or event.partition is None or event.partition.topic not in INTERNAL_TOPICS

    def _is_new(self, event: TopicEvent) -> bool:
        """Whether an event is news; a comparison of all topics may have reported it already."""
        name, topic_id, known = event.topic.name, event.topic.topic_id, self._known.get(event.topic.name)
        if event.kind == "topic_deleted":
            if self._nodes is not None:
                self._nodes.forget(name)
            if known is None or known.topic_id != topic_id:
                return False
            del self._known[name]
            return True
        if known == event.topic or (known is not None and known.topic_id == topic_id and event.kind == "topic_created"):
            return False
        self._known[name] = event.topic
        return True


class _Led(NamedTuple):
    leader: int | None
    leader_epoch: int
    in_sync: frozenset[int]


class KnownNodes:
    """The brokers of a cluster that serve, and who leads each partition and is in sync with it, as a watch has reported them."""

    def __init__(self, nodes: "ClusterNodes") -> None:
        self._serving: set[int] = set(nodes.serving)
        self._partitions = {
            where: _Led(state.leader, state.leader_epoch, frozenset(state.in_sync)) for where, state in nodes.partitions.items()
        }

    def forget(self, topic: str) -> None:
        """Forget the partitions of a deleted topic: the leader epochs of another one of that name begin again."""
        self._partitions = {where: state for where, state in self._partitions.items() if where.topic != topic}

    def events(self, nodes: "ClusterNodes") -> Iterator[ClusterEvent]:
        """All that these nodes are, as events, of which ``is_new`` tells the differences: brokers first, then partitions by topic."""
        for node in sorted({*nodes.serving, *self._serving}):
            yield ClusterEvent("broker_joined" if node in nodes.serving else "broker_left", node)
        for where, state in sorted(nodes.partitions.items()):
            what = state.leader, where, state.leader_epoch, state.in_sync
            yield ClusterEvent("leader_changed", *what)
            yield ClusterEvent("in_sync_changed", *what)

    def is_new(self, event: ClusterEvent) -> bool:
        """Whether an event is news, which is known from now on; a comparison may have reported it already, and a node may be behind."""
        if event.partition is None:
            assert event.node is not None
            was, serves = event.node in self._serving, event.kind == "broker_joined"
            (self._serving.add if serves else self._serving.discard)(event.node)
            return was != serves
        before = self._partitions.get(event.partition)
        if before is None:  # of a new partition the leader alone is told, where it has one
            self._partitions[event.partition] = _Led(event.node, event.leader_epoch, frozenset(event.in_sync))
            return event.kind == "in_sync_changed" or event.node is not None
        if event.leader_epoch < before.leader_epoch:
            return False
        if event.kind == "leader_changed":
            after = before._replace(leader=event.node, leader_epoch=event.leader_epoch)
        else:
            after = before._replace(leader_epoch=event.leader_epoch, in_sync=frozenset(event.in_sync))
        self._partitions[event.partition] = after
        return (after.leader, after.in_sync) != (before.leader, before.in_sync)
