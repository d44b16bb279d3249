"""Which topics a consumer wants.

Knows names, patterns and partition counts.  Does not know who gets which partition.
"""

import re
from collections.abc import Mapping

from logdb.model import TopicPartition
from logdb.requests.session import Session


class Subscription:
    """Topics by name, or all whose whole name matches a pattern, internal ones excepted.

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
        self.refresh()
        self._first = self.counts

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self.counts)

    def refresh(self) -> bool:
        """Look at the topics again; returns whether they, or their partitions, are others than before.

        Raises:
            UnknownTopic: A topic that was named does not exist.
        """
        if self._pattern is None:
            counts = {name: self._session.partition_count(name) for name in self._names}
        else:
            counts = {info.name: info.partition_count for info in self._session.topics() if self._pattern.fullmatch(info.name)}
        changed = counts != self.counts
        self.counts = counts
        return changed

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for topic, count in self.counts.items() for partition in range(count)]

    def is_new(self, partition: TopicPartition) -> bool:
        """Whether the partition was made after the subscription."""
        return partition.partition >= self._first.get(partition.topic, 0)


def _compiled(pattern: "str | re.Pattern[str] | None") -> "re.Pattern[str] | None":
    if pattern is None:
        return None
    if not isinstance(pattern, str):
        if hasattr(pattern, "fullmatch"):  # of ``re``, or of an engine that is like it
            return pattern
        raise TypeError(f"pattern={pattern!r}: allowed is a str or a compiled pattern")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern={pattern!r} is no regular expression: {error}") from error
