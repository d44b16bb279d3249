"""The topics that a consumer subscribes to, and how often it checks them and its group for changes."""

import re
from collections.abc import Mapping

from logdb.mistakes import must_be
from logdb.model import TopicPartition
from logdb.requests.session import Session

CHECK_INTERVAL_MS_MIN = 100
CHECK_INTERVAL_MS_MAX = 3_000


class Subscription:
    """Topics by name, or all except internal ones whose whole name matches a pattern.

    Attributes:
        counts: Partitions of each topic, as of the last ``refresh``.
    """

    def __init__(self, session: Session, topics: tuple[str, ...] = (), pattern: "str | re.Pattern[str] | None" = None) -> None:
        if bool(topics) == (pattern is not None):
            raise ValueError(f"subscribe to topics or to a pattern, not to topics={topics!r} and pattern={pattern!r}")
        for topic in topics:
            if not isinstance(topic, str):
                raise TypeError(f"each topic is a str and an argument of its own, as in subscribe('a', 'b'), not {topic!r}")
        self._session, self._names = session, tuple(dict.fromkeys(topics))
        self._pattern = _compiled(pattern)
        self.counts: Mapping[str, int] = {}
        self._change_count: int | None = None  # of the session's topics, before the last look-up
        self.refresh()
        self._first = self.counts

    def refresh(self) -> bool:
        """Look the topics up again, if any topic has changed; returns whether they, or their partition counts, have changed.

        Raises:
            UnknownTopic: A named topic does not exist.
        """
        change_count = self._session.topic_change_count
        if change_count is not None and change_count == self._change_count:
            return False
        if self._pattern is None:
            counts = {name: self._session.partition_count(name) for name in self._names}
        else:
            counts = {info.name: info.partition_count for info in self._session.topics() if self._pattern.fullmatch(info.name)}
        changed = counts != self.counts
        self.counts, self._change_count = counts, change_count
        return changed

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for topic, count in self.counts.items() for partition in range(count)]

    def is_new(self, partition: TopicPartition) -> bool:
        """Whether the partition was created after the subscription."""
        return partition.partition >= self._first.get(partition.topic, 0)


def _compiled(pattern: "str | re.Pattern[str] | None") -> "re.Pattern[str] | None":
    if pattern is None:
        return None
    if not isinstance(pattern, str):
        if hasattr(pattern, "fullmatch"):  # of ``re``, or of a compatible engine
            return pattern
        raise TypeError(must_be("pattern", pattern, "a str or a compiled pattern"))
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern={pattern!r} is not a regular expression: {error}") from error


class CheckInterval:
    """The time between two checks of a consumer for changes of its group and its topics.

    A check costs a request if the broker is behind a URL, and rebalances come in flocks: so checks are frequent after a change,
    and the interval doubles with each check that finds none.

    Source: Kafka's ``heartbeat.interval.ms`` for the longest interval.
    """

    def __init__(self, fixed_ms: int | None, most_ms: int) -> None:
        """Begin with the shortest interval.

        Args:
            fixed_ms: A constant interval; None: from ``CHECK_INTERVAL_MS_MIN`` to ``most_ms``.
        """
        self._fixed_ms, self._most_ms = fixed_ms, most_ms
        self._seen: object = None
        self.interval_ms = min(CHECK_INTERVAL_MS_MIN, most_ms) if fixed_ms is None else fixed_ms

    def checked(self, seen: object) -> None:
        """Take the result of a check: equal to the last one, or a change."""
        if self._fixed_ms is None:
            self.interval_ms = min(2 * self.interval_ms if seen == self._seen else CHECK_INTERVAL_MS_MIN, self._most_ms)
            self._seen = seen
