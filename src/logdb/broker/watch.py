"""Changes of topics: created, altered, deleted; and of a cluster's nodes.  A watcher reads those after its position.

    changes     … 7  8  9  10         the last 1,024 are kept
    positions           ^9            between two changes; as text: run of the process - number of changes before it

No change waits for a watcher.  A slow watcher loses its place; the next read tells it so.  A writer in this process reports each
change; a directory that another process writes to is polled.

Threading: any number of threads.
"""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from logdb.errors import Closed
from logdb.io import IO
from logdb.model import Changes, ClusterEvent, TopicEvent, TopicInfo
from logdb.requests.session import CHANGE_COUNT_MAX
from logdb.threads import renewed

POLL_MS = 50


class Signals:
    """Events that are set at each change.

    Attributes:
        poll_ms: Interval at which a watcher must look even if no signal is set; None: never.
    """

    def __init__(self, poll_ms: int | None = None) -> None:
        self.poll_ms = poll_ms
        self._all: tuple[threading.Event, ...] = ()
        self._lock = renewed(threading.Lock())

    def add(self, signal: threading.Event) -> None:
        with self._lock:
            self._all = (*self._all, signal)

    def remove(self, signal: threading.Event) -> None:
        with self._lock:
            self._all = tuple(known for known in self._all if known is not signal)

    def set(self) -> None:
        for signal in self._all:
            signal.set()


class Events:
    """The changes of topics in a directory that this process writes to; the store calls ``add``.

    Attributes:
        signals: Set when there is a change, and when the broker closes.
        count: Of the changes so far.
    """

    def __init__(self) -> None:
        self.signals = Signals()
        self._run, self.count = uuid.uuid4().hex[:12], 0
        self._closed = False
        self._kept: deque[TopicEvent | ClusterEvent] = deque(maxlen=CHANGE_COUNT_MAX)
        self._lock = renewed(threading.Lock())

    def close(self) -> None:
        """Wake all watchers: no more changes come."""
        self._closed = True
        self.signals.set()

    def add(self, event: TopicEvent | ClusterEvent) -> None:
        with self._lock:
            self._kept.append(event)
            self.count += 1
        self.signals.set()

    def since(self, position: str | None, count_max: int = CHANGE_COUNT_MAX) -> Changes:
        """The changes since ``position``, at most ``count_max``; None: no changes, only the position from which to go on.

        Raises:
            Closed: The broker is closed.
        """
        if self._closed:
            raise Closed("the database is closed")
        with self._lock:
            if position is None:
                return Changes((), f"{self._run}-{self.count}")
            number = self._number(position)
            first = len(self._kept) - (self.count - number)
            if not 0 <= first <= len(self._kept):
                return Changes((), f"{self._run}-{self.count}", complete=False)
            events = tuple(islice(self._kept, first, first + count_max))
            return Changes(events, f"{self._run}-{number + len(events)}")

    def _number(self, position: str) -> int:
        """The number of changes before a position; one past all changes if the position is of another run."""
        run, _, number = position.partition("-")
        known = run == self._run and number.isascii() and number.isdigit() and len(number) < 20
        return int(number) if known else self.count + 1

    def wait(self, position: str | None, timeout_ms: int, *, count_max: int = CHANGE_COUNT_MAX, io: IO) -> Changes:
        """As ``since``, but wait for a change, for ``timeout_ms`` at most."""
        until_ms = io.monotonic_ms() + timeout_ms
        changed = threading.Event()
        self.signals.add(changed)
        try:
            while True:
                changed.clear()
                changes = self.since(position, count_max)
                left_ms = until_ms - io.monotonic_ms()
                if changes.events or not changes.complete or left_ms <= 0:
                    return changes
                changed.wait(min(left_ms, self.signals.poll_ms or left_ms) / 1000)
        finally:
            self.signals.remove(changed)


class PolledEvents(Events):
    """The changes in a directory that another process may write to; a topic that is created and deleted between two looks is missed."""

    def __init__(self, version: Callable[[], int], topics: Callable[[], Iterable[TopicInfo]]) -> None:
        """Look for the first time.

        Args:
            version: Returns a number that grows with each change; called at each look.
            topics: All topics.
        """
        super().__init__()
        self.signals = Signals(POLL_MS)
        self._version, self._topics = version, topics
        self._look_lock = renewed(threading.Lock())
        self._seen, self._known = version(), by_name(topics())

    def since(self, position: str | None, count_max: int = CHANGE_COUNT_MAX) -> Changes:
        with self._look_lock:
            version = self._version()
            if version != self._seen:
                now = by_name(self._topics())
                for event in differences(self._known, now):
                    self.add(event)
                self._seen, self._known = version, now
        return super().since(position, count_max)


def by_name(topics: Iterable[TopicInfo]) -> dict[str, TopicInfo]:
    return {info.name: info for info in topics}


def differences(former: Mapping[str, TopicInfo], now: Mapping[str, TopicInfo]) -> list[TopicEvent]:
    """The changes between two sets of topics, by topic."""
    events = []
    for name in sorted(former.keys() | now.keys()):
        before, after = former.get(name), now.get(name)
        if before is not None and after is not None and before.topic_id == after.topic_id:
            if after.partition_count != before.partition_count:
                events.append(TopicEvent("partitions_added", after))
            if after.config != before.config:
                events.append(TopicEvent("topic_altered", after))
            continue
        if before is not None:
            events.append(TopicEvent("topic_deleted", before))
        if after is not None:
            events.append(TopicEvent("topic_created", after))
    return events
